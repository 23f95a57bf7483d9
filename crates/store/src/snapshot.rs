//! Snapshots of the state: whole files, each labelled with its position in the journal and checked
//! by a hash. Two are kept, so that one can be damaged.
//!
//! ```text
//! 0 magic[8] · 8 version u32 · 12 zero u32 · 16 body length u64 · 24 seq u64 · 32 chain[32]
//! 64 SHA-256 of bytes 0..64 and the body[32] · 96 body
//! ```

use std::fmt;
use std::sync::Arc;

use crate::copy::CopiedFile;
use crate::disk::{Disk, is_full, replace_file};
use crate::frame::{hash_at, u32_at, u64_at};
use crate::journal::{Hash, JournalError, Position};
use crate::sha256::sha256;

const MAGIC: &[u8; 8] = b"SLUICESN";
const VERSION: u32 = 1;
const HEADER: usize = 96;
const PREFIX: &str = "snapshot-";
const SUFFIX: &str = ".snap";

/// The state at one position of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub position: Position,
    pub body: Vec<u8>,
}

/// A snapshot that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSnapshot {
    pub file: String,
    pub found: String,
}

impl fmt::Display for BadSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: damaged: {}; falling back to an older snapshot", self.file, self.found)
    }
}

/// What [`Snapshots::newest_good`] found.
#[derive(Debug, Default)]
pub struct Found {
    pub snapshot: Option<Snapshot>,
    /// Newer ones that were passed over.
    pub bad: Vec<BadSnapshot>,
}

impl Found {
    /// Where replay has to start.
    pub fn position(&self) -> Position {
        self.snapshot.as_ref().map_or(Position::START, |snapshot| snapshot.position)
    }
}

/// The snapshots in a folder, which may be the journal's.
pub struct Snapshots {
    disk: Arc<dyn Disk>,
    /// The newest one known to be good: read and checked, or written here.
    good: Option<u64>,
}

impl Snapshots {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, good: None }
    }

    /// Reads the newest snapshot that passes its checks.
    pub fn newest_good(&mut self) -> Result<Found, JournalError> {
        let mut found = Found::default();
        for (seq, name) in self.names()?.into_iter().rev() {
            let file = self.disk.open(&name).map_err(JournalError::io("open", &name))?;
            let bytes = file.read_all().map_err(JournalError::io("read", &name))?;
            // Sound, and newer than this program: the state in it must not be passed over for an older one.
            if let Some(version) = newer_version(&bytes) {
                return Err(JournalError::Newer { file: name, found: version, known: VERSION });
            }
            match parse(seq, bytes) {
                Ok(snapshot) => {
                    self.good = Some(seq);
                    found.snapshot = Some(snapshot);
                    break;
                }
                Err(what) => {
                    let bad = BadSnapshot { file: name, found: what };
                    tracing::error!("{bad}");
                    found.bad.push(bad);
                }
            }
        }
        Ok(found)
    }

    /// Goes on from the newest snapshot without reading it, and returns its seq, 0 without one: for who has the state already. It
    /// was checked by who wrote it.
    pub fn trust_newest(&mut self) -> Result<u64, JournalError> {
        self.good = self.names()?.last().map(|(seq, _)| *seq);
        Ok(self.good.unwrap_or(0))
    }

    /// Writes a snapshot durably, keeps the good one before it and removes the others. Returns the
    /// seq up to which the journal is no longer needed ([`crate::Journal::compact`]).
    ///
    /// `position` is the end of a commit that is already durable.
    pub fn write(&mut self, position: Position, body: &[u8]) -> Result<u64, JournalError> {
        if self.good == Some(position.seq) {
            // The same state is there. Written again it would stand for the one before it too.
            return Ok(0);
        }
        let name = snapshot_name(position.seq);
        let header = header(position, body);
        replace_file(&*self.disk, &name, &[&header, body]).map_err(|error| {
            if is_full(&error) {
                JournalError::Full { needed: (HEADER + body.len()) as u64 }
            } else {
                JournalError::io("write", &name)(error)
            }
        })?;
        let before = self.good.replace(position.seq);
        for (seq, name) in self.names()? {
            if seq != position.seq && Some(seq) != before {
                self.disk.remove(&name).map_err(JournalError::io("remove", &name))?;
            }
        }
        Ok(before.unwrap_or(0))
    }

    /// The files, opened: a later snapshot may remove them, and takes nothing from who reads them.
    pub fn open_files(disk: &Arc<dyn Disk>) -> Result<Vec<CopiedFile>, JournalError> {
        let mut files = Vec::new();
        for (_, name) in Self::new(disk.clone()).names()? {
            let file = match disk.open(&name) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(JournalError::io("open", &name)(error)),
            };
            let len = file.len().map_err(JournalError::io("size", &name))?;
            files.push(CopiedFile { name, file, len });
        }
        Ok(files)
    }

    /// Oldest first.
    fn names(&self) -> Result<Vec<(u64, String)>, JournalError> {
        let entries = self.disk.list("").map_err(JournalError::io("list", "the snapshots"))?;
        let mut names: Vec<(u64, String)> = entries
            .into_iter()
            .filter_map(|entry| Some((snapshot_seq(&entry.name)?, entry.name)))
            .collect();
        names.sort_unstable();
        Ok(names)
    }
}

fn snapshot_name(seq: u64) -> String {
    format!("{PREFIX}{seq:020}{SUFFIX}")
}

fn snapshot_seq(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

fn header(position: Position, body: &[u8]) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[0..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&(body.len() as u64).to_le_bytes());
    bytes[24..32].copy_from_slice(&position.seq.to_le_bytes());
    bytes[32..64].copy_from_slice(&position.chain);
    let hash = body_hash(&bytes[..64], body);
    bytes[64..].copy_from_slice(&hash);
    bytes
}

fn body_hash(header: &[u8], body: &[u8]) -> Hash {
    sha256(&[header, body])
}

/// The version of a sound snapshot that a newer program wrote. The hash covers the version, and its place is fixed.
fn newer_version(bytes: &[u8]) -> Option<u32> {
    let header = bytes.get(..HEADER).filter(|header| &header[..8] == MAGIC)?;
    let version = Some(u32_at(header, 8)).filter(|version| *version > VERSION)?;
    (body_hash(&header[..64], &bytes[HEADER..]) == hash_at(header, 64)).then_some(version)
}

fn parse(seq: u64, mut bytes: Vec<u8>) -> Result<Snapshot, String> {
    if bytes.len() < HEADER || &bytes[..8] != MAGIC {
        return Err(format!("{} bytes that are not a snapshot", bytes.len()));
    }
    let version = u32_at(&bytes, 8);
    if version != VERSION {
        return Err(format!("version {version}; this program reads {VERSION}"));
    }
    let (expected, found) = (u64_at(&bytes, 16), (bytes.len() - HEADER) as u64);
    if expected != found {
        return Err(format!("{found} bytes of state instead of {expected}"));
    }
    if body_hash(&bytes[..64], &bytes[HEADER..]) != hash_at(&bytes, 64) {
        return Err("the content does not have the hash it was written with".into());
    }
    let position = Position { seq: u64_at(&bytes, 24), chain: hash_at(&bytes, 32) };
    if position.seq != seq {
        return Err(format!("this is the snapshot of seq {}", position.seq));
    }
    bytes.drain(..HEADER);
    Ok(Snapshot { position, body: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty_disk::FaultyDisk;

    fn at(seq: u64) -> Position {
        Position { seq, chain: [seq as u8; 32] }
    }

    fn written(seqs: &[u64]) -> FaultyDisk {
        let disk = FaultyDisk::default();
        let mut snapshots = Snapshots::new(Arc::new(disk.clone()));
        for seq in seqs {
            snapshots.write(at(*seq), format!("state {seq}").as_bytes()).unwrap();
        }
        disk
    }

    #[test]
    fn two_are_kept_and_the_older_bounds_compaction() {
        let disk = FaultyDisk::default();
        let mut snapshots = Snapshots::new(Arc::new(disk.clone()));
        let bounds: Vec<u64> =
            [5, 9, 14].iter().map(|seq| snapshots.write(at(*seq), b"s").unwrap()).collect();
        assert_eq!(bounds, [0, 5, 9]);
        assert_eq!(snapshots.write(at(14), b"s").unwrap(), 0, "it is there");
        let names: Vec<String> = disk.list("").unwrap().into_iter().map(|e| e.name).collect();
        assert_eq!(names, [snapshot_name(9), snapshot_name(14)]);
    }

    #[test]
    fn any_damage_to_the_newest_falls_back_to_the_older_and_says_so() {
        let disk = written(&[5, 9]);
        let len = HEADER + "state 9".len();
        for byte in 0..len {
            let copy = disk.fork();
            copy.tamper(&snapshot_name(9), |bytes| bytes[byte] ^= 0x10).unwrap();
            let mut snapshots = Snapshots::new(Arc::new(copy.clone()));
            let found = snapshots.newest_good().unwrap();
            assert_eq!(found.snapshot.as_ref().unwrap().body, b"state 5", "byte {byte}");
            assert_eq!(found.position(), at(5));
            assert_eq!(found.bad[0].file, snapshot_name(9));
            assert_eq!(snapshots.write(at(12), b"s").unwrap(), 5, "the damaged one bounds nothing");
        }
        for cut in 0..len {
            let copy = disk.fork();
            copy.tamper(&snapshot_name(9), |bytes| bytes.truncate(cut)).unwrap();
            let found = Snapshots::new(Arc::new(copy)).newest_good().unwrap();
            assert_eq!(found.position(), at(5), "cut at {cut}");
        }
    }

    #[test]
    fn a_crash_while_writing_leaves_the_one_before_or_the_new_one() {
        for step in 1..12 {
            for seed in 0..8 {
                let disk = written(&[5, 9]);
                disk.crash_at(step);
                let result = Snapshots::new(Arc::new(disk.clone())).write(at(12), &[7; 2000]);
                disk.restart(seed);
                let found = Snapshots::new(Arc::new(disk)).newest_good().unwrap();
                assert!(found.bad.is_empty(), "step {step} seed {seed}: {:?}", found.bad);
                let seq = found.position().seq;
                assert!(if result.is_ok() { seq == 12 } else { [9, 12].contains(&seq) });
            }
        }
    }
}
