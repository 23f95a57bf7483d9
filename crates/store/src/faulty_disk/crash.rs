//! What of a disk's content survives a power cut: files and names as seen, as durable, and the
//! changes between the two.

use std::collections::{BTreeMap, BTreeSet};

use crate::disk::parent;

/// What a disk writes in one piece.
const SECTOR: usize = 512;

#[derive(Default, Clone)]
pub(super) struct Names {
    pub files: BTreeMap<String, u64>,
    pub dirs: BTreeSet<String>,
}

#[derive(Default)]
pub(super) struct FileState {
    pub seen: Vec<u8>,
    pub durable: Vec<u8>,
    pub pending: Vec<Change>,
}

pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Extend(usize),
    Truncate(usize),
}

pub(super) enum NameChange {
    Link(String, u64),
    Unlink(String),
    Rename(String, String),
    MakeDir(String),
}

impl FileState {
    pub(super) fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    pub(super) fn crash(&mut self, chance: &mut Chance) {
        for change in std::mem::take(&mut self.pending) {
            match change {
                Change::Write { offset, bytes } => {
                    for (offset, part) in surviving(offset, &bytes, chance) {
                        Change::Write { offset, bytes: part.to_vec() }.apply(&mut self.durable);
                    }
                }
                other if chance.below(2) == 0 => other.apply(&mut self.durable),
                _ => {}
            }
        }
        self.seen = self.durable.clone();
    }
}

/// The sectors of one write that reach the disk before the power is gone.
fn surviving<'a>(offset: usize, bytes: &'a [u8], chance: &mut Chance) -> Vec<(usize, &'a [u8])> {
    let mut sectors = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + SECTOR - (offset + at) % SECTOR);
        sectors.push((offset + at, &bytes[at..end]));
        at = end;
    }
    match chance.below(4) {
        0 => {}
        1 => sectors.clear(),
        2 => sectors.truncate(chance.below(sectors.len() as u64 + 1) as usize),
        _ => sectors.retain(|_| chance.below(2) == 0),
    }
    sectors
}

impl Change {
    pub(super) fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(bytes);
            }
            Self::Extend(len) if content.len() < *len => content.resize(*len, 0),
            Self::Extend(_) => {}
            Self::Truncate(len) => content.truncate(*len),
        }
    }
}

impl NameChange {
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(path, inode) => {
                names.files.insert(path.clone(), *inode);
            }
            Self::Unlink(path) => {
                names.files.remove(path);
            }
            Self::Rename(from, to) => {
                if let Some(inode) = names.files.remove(from) {
                    names.files.insert(to.clone(), inode);
                }
            }
            Self::MakeDir(path) => {
                names.dirs.insert(path.clone());
            }
        }
    }

    pub(super) fn is_in(&self, dir: &str) -> bool {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::MakeDir(path) => parent(path) == dir,
            Self::Rename(from, to) => parent(from) == dir || parent(to) == dir,
        }
    }
}

/// SplitMix64: enough to pick outcomes, and the same on every machine.
pub(super) struct Chance(pub u64);

impl Chance {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
