//! Collection: blobs that nothing needs any more leave the disk, in turns of bounded work.
//!
//! A pass walks over every pack and every folder of large blobs. What is dead leaves the index at once. A pack that is
//! worth it is rewritten: what lives is appended to the active pack and synced, and only then the old pack is removed.
//! A crash at any moment leaves each live blob in at least one pack.
//!
//! The caller that says what lives must keep writers off during that turn ([`Pass::asks`]): a blob that is found dead while a
//! submit relies on it would be missing.

use std::num::NonZeroU32;

use super::pack::{self, ALIGN, RECORD_HEADER, record_len};
use super::{BIG, BlobError, BlobId, BlobLocation, Blobs, FIRST_PACK, PACKS, big_name, pack_name};

/// Records that one turn looks at.
pub const RECORDS_PER_TURN: usize = 512;

/// Bytes of live records that one turn moves, by one write and one sync; the last record may go beyond it.
pub const MOVED_BYTES_PER_TURN: usize = 256 << 10;

/// Files of large blobs that one turn looks at.
pub const BIG_PER_TURN: usize = 64;

/// A pack with no more than this to move is rewritten for a single dead blob.
const CHEAP_BYTES: u64 = 256 << 10;

/// What a pass has removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectedBlobs {
    pub blobs: u64,
    pub bytes: u64,
}

/// How far one pass over the blobs has come.
#[derive(Debug)]
pub struct Pass {
    thorough: bool,
    /// Packs from here on are younger than the pass.
    before: NonZeroU32,
    place: Place,
    pub collected: CollectedBlobs,
    /// Blobs that are needed and that the disk has damaged: what is left of them stays.
    pub damaged: u64,
}

#[derive(Debug)]
enum Place {
    Pack(PackWalk),
    Moving(PackWalk),
    /// The folder of large blobs whose names begin with this byte, from behind this name on.
    Big(u8, String),
    Over,
}

/// One pack, as far as its records have been looked at.
#[derive(Debug)]
struct PackWalk {
    number: NonZeroU32,
    offset: u64,
    live: Vec<BlobId>,
    live_bytes: u64,
    dead: CollectedBlobs,
    /// It holds a blob that is needed and cannot be read: it stays as it is.
    damaged: bool,
}

impl PackWalk {
    fn new(number: NonZeroU32) -> Self {
        Self {
            number,
            offset: 0,
            live: Vec::new(),
            live_bytes: 0,
            dead: CollectedBlobs::default(),
            damaged: false,
        }
    }
}

impl Pass {
    pub fn is_over(&self) -> bool {
        matches!(self.place, Place::Over)
    }

    /// Whether the next turn asks which blobs live.
    pub fn asks(&self) -> bool {
        matches!(self.place, Place::Pack(_) | Place::Big(..))
    }
}

impl Blobs {
    /// A pass over all blobs. A thorough one rewrites every pack that has a dead blob; others leave a pack whose larger
    /// part lives.
    pub fn begin_pass(&self, thorough: bool) -> Pass {
        let place = Place::Pack(PackWalk::new(FIRST_PACK));
        let collected = CollectedBlobs::default();
        Pass { thorough, before: self.next_pack, place, collected, damaged: 0 }
    }

    /// One piece of a pass. After an error the pass is given up; nothing live is lost.
    pub fn turn(
        &mut self,
        pass: &mut Pass,
        is_live: &dyn Fn(&BlobId) -> bool,
    ) -> Result<(), BlobError> {
        let place = std::mem::replace(&mut pass.place, Place::Over);
        pass.place = match place {
            Place::Pack(walk) => self.walk(walk, pass, is_live)?,
            Place::Moving(walk) => self.move_some(walk, pass)?,
            Place::Big(first, after) => self.collect_big(first, after, pass, is_live)?,
            Place::Over => Place::Over,
        };
        Ok(())
    }

    /// Looks at the next records of a pack.
    fn walk(
        &mut self,
        mut walk: PackWalk,
        pass: &mut Pass,
        is_live: &dyn Fn(&BlobId) -> bool,
    ) -> Result<Place, BlobError> {
        let Some(end) = self.packs.get(&walk.number).map(|pack| pack.end) else {
            return Ok(self.after(walk.number, pass));
        };
        // The pack may be the active one, and may be given up at the end of this turn.
        self.sync()?;
        let name = pack_name(walk.number);
        let file = self.disk.open(&name).map_err(BlobError::io("open", &name))?;
        for _ in 0..RECORDS_PER_TURN {
            if walk.offset >= end {
                return Ok(self.judge(walk, pass));
            }
            let mut header = [0; RECORD_HEADER];
            let read =
                file.read_at(walk.offset, &mut header).map_err(BlobError::io("read", &name))?;
            let Some((id, _, len)) = pack::describe(&header[..read]) else {
                // Damaged: a blob that is lost here stays in the index, which keeps the pack.
                walk.offset += ALIGN as u64;
                continue;
            };
            let bytes = record_len(len) as u64;
            if self.is_damaged(&id, &name, is_live) {
                pass.damaged += 1;
                walk.damaged = true;
                walk.offset += ALIGN as u64;
                continue;
            }
            // A record that the index names elsewhere is a copy of one that was moved.
            let named = self.is_at(&id, walk.number, walk.offset);
            if named && is_live(&id) {
                walk.live.push(id);
                walk.live_bytes += bytes;
            } else {
                if named {
                    self.forget(&id);
                }
                walk.dead.blobs += 1;
                walk.dead.bytes += bytes;
            }
            walk.offset += bytes;
        }
        Ok(Place::Pack(walk))
    }

    /// Whether the pack is rewritten, now that all its records are known.
    fn judge(&mut self, walk: PackWalk, pass: &Pass) -> Place {
        let cheap = walk.live_bytes <= walk.dead.bytes.max(CHEAP_BYTES);
        if walk.dead.blobs == 0 || walk.damaged || !(pass.thorough || cheap) {
            return self.after(walk.number, pass);
        }
        // Nothing is added any more to a pack that is to go.
        self.active.take_if(|active| active.number == walk.number);
        Place::Moving(walk)
    }

    /// Moves some of what lives in a pack to the active one; once all of it is there, removes the pack.
    fn move_some(&mut self, mut walk: PackWalk, pass: &mut Pass) -> Result<Place, BlobError> {
        let mut bytes = Vec::new();
        let mut moved = Vec::new();
        while bytes.len() < MOVED_BYTES_PER_TURN
            && let Some(id) = walk.live.pop()
        {
            match self.read(&id) {
                Ok(Some((stored_s, content))) => {
                    moved.push((id, bytes.len() as u32, content.len() as u32));
                    pack::encode(&id, stored_s, &content, &mut bytes);
                }
                Ok(None) => {}
                // It stays in the index, which keeps the pack.
                Err(error @ BlobError::Damaged { .. }) => tracing::error!("{error}"),
                Err(error) => return Err(error),
            }
        }
        if !bytes.is_empty() {
            let (pack, base) = self.append(&bytes)?;
            for (id, offset, len) in moved {
                self.index(id, BlobLocation::Packed { pack, offset: base + offset, len });
            }
        }
        if !walk.live.is_empty() {
            return Ok(Place::Moving(walk));
        }
        if self.packs.get(&walk.number).is_some_and(|pack| pack.blobs == 0) {
            let name = pack_name(walk.number);
            self.disk.remove(&name).map_err(BlobError::io("remove", &name))?;
            self.packs.remove(&walk.number);
            self.disk.sync_dir(PACKS).map_err(BlobError::io("sync", PACKS))?;
            pass.collected.blobs += walk.dead.blobs;
            pass.collected.bytes += walk.dead.bytes;
        }
        Ok(self.after(walk.number, pass))
    }

    fn after(&self, number: NonZeroU32, pass: &Pass) -> Place {
        let next = self.packs.range(number.saturating_add(1)..).next();
        let next = next.filter(|(number, _)| **number < pass.before);
        next.map_or(Place::Big(0, String::new()), |(number, _)| Place::Pack(PackWalk::new(*number)))
    }

    /// Removes the dead among the next large blobs of one folder, and files that were never committed.
    fn collect_big(
        &mut self,
        first: u8,
        after: String,
        pass: &mut Pass,
        is_live: &dyn Fn(&BlobId) -> bool,
    ) -> Result<Place, BlobError> {
        let dir = format!("{BIG}/{first:02x}");
        let next =
            || first.checked_add(1).map_or(Place::Over, |next| Place::Big(next, String::new()));
        let entries = match self.disk.list(&dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(next()),
            Err(error) => return Err(BlobError::io("list", &dir)(error)),
        };
        let mut left = entries.into_iter().filter(|entry| entry.name > after).peekable();
        let mut removed = false;
        let mut last = String::new();
        for entry in left.by_ref().take(BIG_PER_TURN) {
            last.clone_from(&entry.name);
            let Ok(id) = entry.name.parse::<BlobId>() else { continue };
            let file = big_name(&id);
            if self.is_damaged(&id, &file, is_live) {
                pass.damaged += 1;
                continue;
            }
            let is_large = matches!(self.known.get(&id), Some(BlobLocation::Big { .. }));
            if self.staged.contains_key(&id) || (is_large && is_live(&id)) {
                continue;
            }
            self.disk.remove(&file).map_err(BlobError::io("remove", &file))?;
            if is_large {
                self.forget(&id);
            }
            pass.collected.blobs += 1;
            pass.collected.bytes += entry.len;
            removed = true;
        }
        if removed {
            self.disk.sync_dir(&dir).map_err(BlobError::io("sync", &dir))?;
        }
        Ok(if left.peek().is_some() { Place::Big(first, last) } else { next() })
    }

    /// Whether a blob is needed that no sound record holds: the disk has damaged it before the start. What is left of it
    /// stays, for whoever can mend it.
    fn is_damaged(&self, id: &BlobId, file: &str, is_live: &dyn Fn(&BlobId) -> bool) -> bool {
        let unknown = !self.known.contains_key(id) && !self.staged.contains_key(id);
        let damaged = unknown && is_live(id);
        if damaged {
            tracing::error!("blob {id}, which a job needs, is damaged in {file}; it stays there");
        }
        damaged
    }

    fn is_at(&self, id: &BlobId, number: NonZeroU32, at: u64) -> bool {
        matches!(self.known.get(id), Some(BlobLocation::Packed { pack, offset, .. })
            if *pack == number && u64::from(*offset) == at)
    }
}
