//! Blobs: scripts, environments and uploads, kept once for each content under its SHA-256.
//!
//! Small blobs go into append-only packs: all that were staged since the last commit cost one write
//! and one `fdatasync` together, and content that is there already costs nothing. Large ones get a
//! file of their own, `big/ab/abcd…`. Both hold the same record (`blob/pack.rs`).
//!
//! Small blobs of a commit need no sync of their own where the journal's commit carries their records ([`Blobs::store_staged`]):
//! they are synced before the journal lets that commit go ([`Blobs::sync`]), and put back from it after a crash
//! ([`Blobs::restore`]); `blob/write_back.rs`.
//! A standby finds the small blobs that the leader stores in a database as far as it has read their packs (`blob/followed.rs`).
//! In a database the bytes of small blobs are a part of the journal's commit that needs them
//! (`blob/with_journal.rs`): a submit costs one commit there, and not two.
//!
//! Whether all of them can be read back is found without writing anything (`blob/inspection.rs`).
//!
//! Nothing here reads a clock: the caller passes the seconds that a record notes. What nothing needs
//! any more is removed by [`Blobs::turn`] (`blob/collect.rs`).

mod collect;
mod followed;
mod held;
mod id;
mod index;
mod inspection;
mod pack;
mod recovery;
mod with_journal;
mod write_back;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, is_full};
use pack::{BlobRecord, record_len};

pub use collect::{BIG_PER_TURN, CollectedBlobs, MOVED_BYTES_PER_TURN, Pass, RECORDS_PER_TURN};
pub use followed::FollowedBlobs;
pub use held::{HeldFile, HeldFiles};
pub use id::BlobId;
pub use index::{BadBytes, BlobIndex};
pub use inspection::{BlobInspection, carried_ids};
pub use recovery::BlobRecovery;
pub use write_back::UNSYNCED_BYTES_MAX;

const PACKS: &str = "packs";
const BIG: &str = "big";
const TEMPORARY: &str = ".tmp";
const FIRST_PACK: NonZeroU32 = NonZeroU32::MIN;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("'{text}' is not a blob's name; 64 hexadecimal digits are")]
    BadId { text: String },
    #[error("a blob of {bytes} bytes is larger than the {max} allowed")]
    TooLarge { bytes: u64, max: u64 },
    #[error("more than {max} bytes are staged; commit first")]
    StagedFull { max: u64 },
    #[error("disk full: {file} cannot be written; nothing was stored")]
    Full { file: String },
    #[error("blob {id} is damaged in {file}: {found}")]
    Damaged { id: BlobId, file: String, found: &'static str },
    #[error("cannot {action} {file}")]
    Io { action: &'static str, file: String, source: io::Error },
}

impl BlobError {
    fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| {
            if is_full(&source) { Self::Full { file } } else { Self::Io { action, file, source } }
        }
    }
}

#[derive(Debug, Clone)]
pub struct BlobOptions {
    /// Larger blobs get a file of their own.
    pub packed_bytes_max: usize,
    pub pack_bytes: u64,
    pub blob_bytes_max: usize,
    pub staged_bytes_max: usize,
}

impl Default for BlobOptions {
    fn default() -> Self {
        Self {
            packed_bytes_max: 64 << 10,
            pack_bytes: 16 << 20,
            blob_bytes_max: 1 << 30,
            staged_bytes_max: 64 << 20,
        }
    }
}

/// Small, as there is one for each script and environment of every job: packs are counted from one.
#[derive(Debug, Clone, Copy)]
enum BlobLocation {
    Packed { pack: NonZeroU32, offset: u32, len: u32 },
    Big { len: u32 },
}

const _: () = assert!(size_of::<BlobLocation>() == 12);

/// What is known of a pack: how many blobs the index finds in it, and where its records end.
#[derive(Debug, Clone, Copy, Default)]
struct PackIndex {
    blobs: u32,
    end: u64,
}

struct ActivePack {
    number: NonZeroU32,
    file: Box<dyn DiskFile>,
    end: u64,
}

/// The blobs in a folder of their own.
pub struct Blobs {
    disk: Arc<dyn Disk>,
    options: BlobOptions,
    /// Changed by [`Blobs::index`] and [`Blobs::forget`] alone, which keep the count of `packs`.
    known: HashMap<BlobId, BlobLocation>,
    packs: BTreeMap<NonZeroU32, PackIndex>,
    active: Option<ActivePack>,
    next_pack: NonZeroU32,
    staged: HashMap<BlobId, BlobLocation>,
    /// The records of the staged small blobs; a staged offset is one in here.
    staged_bytes: Vec<u8>,
    /// The records of the active pack that are not synced, in its order; or of one that was given up, where none is active.
    unsynced: Vec<u8>,
    /// Some of the records that are not synced are in no commit of the journal either.
    is_unbacked: bool,
    /// Something that is staged is no business of the journal.
    is_staged_private: bool,
    /// The blobs whose bytes go with the journal's next commit, in a database.
    with_journal: Vec<BlobId>,
}

impl Blobs {
    /// Stores one content durably.
    pub fn put(&mut self, content: &[u8], now_s: u64) -> Result<BlobId, BlobError> {
        let id = self.stage(content, now_s)?;
        self.commit_staged()?;
        Ok(id)
    }

    /// Stores many contents durably at the price of one.
    pub fn put_many(&mut self, contents: &[&[u8]], now_s: u64) -> Result<Vec<BlobId>, BlobError> {
        let ids = contents
            .iter()
            .map(|content| self.stage(content, now_s))
            .collect::<Result<Vec<BlobId>, BlobError>>()?;
        self.commit_staged()?;
        Ok(ids)
    }

    /// Takes a content in; it is durable, and to be found, after [`Blobs::commit_staged`].
    pub fn stage(&mut self, content: &[u8], now_s: u64) -> Result<BlobId, BlobError> {
        self.stage_named(BlobId::of(content), content, now_s)
    }

    /// As [`Blobs::stage`], for a caller that has worked out the content's name already.
    pub fn stage_named(
        &mut self,
        id: BlobId,
        content: &[u8],
        now_s: u64,
    ) -> Result<BlobId, BlobError> {
        let max = self.options.blob_bytes_max.min(u32::MAX as usize / 2);
        if content.len() > max {
            return Err(BlobError::TooLarge { bytes: content.len() as u64, max: max as u64 });
        }
        if !self.known.contains_key(&id) {
            self.stage_new(id, content, now_s)?;
        }
        Ok(id)
    }

    /// As [`Blobs::stage_named`], for a content that only the packs may hold, as one with a key in it: no commit of the journal carries
    /// its record.
    pub fn stage_private(
        &mut self,
        id: BlobId,
        content: &[u8],
        now_s: u64,
    ) -> Result<BlobId, BlobError> {
        self.is_staged_private = true;
        self.stage_named(id, content, now_s)
    }

    fn stage_new(&mut self, id: BlobId, content: &[u8], now_s: u64) -> Result<(), BlobError> {
        if self.staged.contains_key(&id) {
            return Ok(());
        }
        let len = content.len();
        if len > self.options.packed_bytes_max {
            self.write_big(&id, content, now_s)?;
            let location = BlobLocation::Big { len: len as u32 };
            self.staged.insert(id, location);
            return Ok(());
        }
        let offset = self.staged_bytes.len();
        let max = self.options.staged_bytes_max.min(u32::MAX as usize);
        if offset + record_len(len) > max {
            return Err(BlobError::StagedFull { max: max as u64 });
        }
        pack::encode(&id, now_s, content, &mut self.staged_bytes);
        // In which pack, the commit says.
        let pack = FIRST_PACK;
        let location = BlobLocation::Packed { pack, offset: offset as u32, len: len as u32 };
        self.staged.insert(id, location);
        Ok(())
    }

    /// Makes all that is staged durable: one write and one sync for the small ones. On an error
    /// none of them is stored, and none stays staged.
    pub fn commit_staged(&mut self) -> Result<(), BlobError> {
        self.place_staged(Self::append)
    }

    /// Has `place` put the records of all that is staged into a pack, and notes where each is.
    fn place_staged(
        &mut self,
        place: impl FnOnce(&mut Self, &[u8]) -> Result<(NonZeroU32, u32), BlobError>,
    ) -> Result<(), BlobError> {
        let staged = std::mem::take(&mut self.staged_bytes);
        let base = place(self, &staged);
        self.staged_bytes = staged;
        let synced = base.and_then(|base| self.sync_big().map(|()| base));
        let (pack, base) = match synced {
            Ok(location) => location,
            Err(error) => {
                self.discard_staged();
                return Err(error);
            }
        };
        for (id, location) in std::mem::take(&mut self.staged) {
            let location = match location {
                BlobLocation::Packed { offset, len, .. } => {
                    BlobLocation::Packed { pack, offset: base + offset, len }
                }
                big => big,
            };
            self.index(id, location);
        }
        self.staged_bytes.clear();
        self.is_staged_private = false;
        Ok(())
    }

    /// Notes where a blob is found from now on.
    fn index(&mut self, id: BlobId, location: BlobLocation) {
        self.forget(&id);
        if let BlobLocation::Packed { pack, .. } = location {
            self.packs.entry(pack).or_default().blobs += 1;
        }
        self.known.insert(id, location);
    }

    fn forget(&mut self, id: &BlobId) {
        if let Some(BlobLocation::Packed { pack, .. }) = self.known.remove(id)
            && let Some(pack) = self.packs.get_mut(&pack)
        {
            pack.blobs -= 1;
        }
    }

    /// The files that hold all that is stored, and how much of each counts. Nothing is collected until they are held
    /// ([`Blobs::hold`]); what is stored meanwhile comes behind.
    pub fn files(&self) -> Vec<(String, u64)> {
        let packs = self.packs.iter().map(|(number, pack)| (pack_name(*number), pack.end));
        let big = self.known.iter().filter_map(|(id, location)| match location {
            BlobLocation::Big { len } => Some((big_name(id), record_len(*len as usize) as u64)),
            BlobLocation::Packed { .. } => None,
        });
        packs.chain(big).collect()
    }

    pub fn discard_staged(&mut self) {
        self.staged.clear();
        self.staged_bytes.clear();
        self.is_staged_private = false;
    }

    /// Contents that wait for their commit.
    pub fn staged_len(&self) -> usize {
        self.staged.len()
    }

    pub fn contains(&self, id: &BlobId) -> bool {
        self.known.contains_key(id)
    }

    pub fn len(&self) -> usize {
        self.known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// The content, checked against its name; `None` if it is not here.
    pub fn get(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BlobError> {
        Ok(self.read(id)?.map(|(_, content)| content))
    }

    /// As [`Blobs::get`], with the seconds at which it was stored.
    fn read(&self, id: &BlobId) -> Result<Option<(u64, Vec<u8>)>, BlobError> {
        let Some(location) = self.known.get(id) else { return Ok(None) };
        let (file, offset, len) = match location {
            BlobLocation::Packed { pack, offset, len } => {
                (pack_name(*pack), u64::from(*offset), *len)
            }
            BlobLocation::Big { len } => (big_name(id), 0, *len),
        };
        let opened;
        let handle = match (&self.active, location) {
            // Most that is read was stored lately, in the pack that is open.
            (Some(active), BlobLocation::Packed { pack, .. }) if active.number == *pack => {
                &active.file
            }
            _ => {
                opened = self.disk.open(&file).map_err(BlobError::io("open", &file))?;
                &opened
            }
        };
        read_record(&**handle, &file, id, offset, len).map(Some)
    }

    /// Writes records to the active pack, synced; returns the pack and where they start.
    fn append(&mut self, records: &[u8]) -> Result<(NonZeroU32, u32), BlobError> {
        if records.is_empty() {
            return Ok((FIRST_PACK, 0));
        }
        let location = self.write(records)?;
        let Some(active) = &self.active else { return Ok(location) };
        if let Err(error) = active.file.sync_data() {
            let name = pack_name(active.number);
            self.give_up_active(location.1.into());
            return Err(BlobError::io("write", &name)(error));
        }
        (self.is_unbacked, self.unsynced) = (false, Vec::new());
        Ok(location)
    }

    /// The same without a sync. What was in the pack before and is not synced stays to be synced.
    fn write(&mut self, records: &[u8]) -> Result<(NonZeroU32, u32), BlobError> {
        let written = self.write_by(records, |file, start| file.write_at(start, records));
        written.map(|(location, ())| location)
    }

    /// Has `write` put records into the active pack, or into a new one; returns the pack, where they start, and what it returned.
    fn write_by<T>(
        &mut self,
        records: &[u8],
        write: impl FnOnce(&dyn DiskFile, u64) -> io::Result<T>,
    ) -> Result<((NonZeroU32, u32), T), BlobError> {
        let len = records.len() as u64;
        let has_room = self.has_room(len);
        if !has_room {
            // Nobody syncs a pack that is left.
            self.sync()?;
        }
        let mut active = match self.active.take() {
            Some(active) if has_room => active,
            _ => self.new_pack(len)?,
        };
        let (number, start) = (active.number, active.end);
        let written = write(&*active.file, start);
        if written.is_ok() {
            active.end = start + len;
        }
        self.active = Some(active);
        match written {
            Ok(written) => {
                self.packs.entry(number).or_default().end = start + len;
                Ok(((number, u32::try_from(start).unwrap_or(u32::MAX)), written))
            }
            Err(error) => {
                self.give_up_active(start);
                Err(BlobError::io("write", &pack_name(number))(error))
            }
        }
    }

    /// Whether so much more goes into the active pack. Whether bytes that go with a commit are there is not known before its end:
    /// nothing is written behind them until then, or a standby that reads on would pass over their place.
    fn has_room(&self, len: u64) -> bool {
        let end = self.active.as_ref().map(|active| active.end);
        let is_whole = self.with_journal.is_empty();
        is_whole && end.is_some_and(|end| end + len <= self.options.pack_bytes)
    }

    /// Gives the active pack up, whose records from `end` on may be on the disk or not. Cutting it keeps a later scan from taking
    /// cached bytes for stored ones.
    fn give_up_active(&mut self, end: u64) {
        let Some(active) = self.active.take() else { return };
        let _ = active.file.truncate(end);
        if end == 0 {
            self.packs.remove(&active.number);
            // The newest pack that is left is the one that a start looks after ([`Blobs::write_again`]).
            let _ = self.disk.remove(&pack_name(active.number));
        } else {
            self.packs.entry(active.number).or_default().end = end;
        }
    }

    fn new_pack(&mut self, needed: u64) -> Result<ActivePack, BlobError> {
        let number = self.next_pack;
        let name = pack_name(number);
        let file = self.disk.create(&name).map_err(BlobError::io("create", &name))?;
        let made = file
            .preallocate(self.options.pack_bytes.max(needed))
            .and_then(|()| file.sync_data())
            .and_then(|()| self.disk.sync_dir(PACKS));
        if let Err(error) = made {
            let _ = self.disk.remove(&name);
            return Err(BlobError::io("create", &name)(error));
        }
        self.next_pack = number.saturating_add(1);
        Ok(ActivePack { number, file, end: 0 })
    }

    /// Writes a large blob under its final name; the name is durable after [`Blobs::sync_big`].
    fn write_big(&self, id: &BlobId, content: &[u8], now_s: u64) -> Result<(), BlobError> {
        let name = big_name(id);
        let dir = crate::disk::parent(&name);
        let temporary = format!("{BIG}/{id}{TEMPORARY}");
        let mut record = Vec::with_capacity(record_len(content.len()));
        pack::encode(id, now_s, content, &mut record);
        let written = self.disk.make_dir(dir).and_then(|()| {
            let file = self.disk.create(&temporary)?;
            file.write_at(0, &record)?;
            file.sync_data()?;
            self.disk.rename(&temporary, &name)
        });
        written.map_err(|error| {
            let _ = self.disk.remove(&temporary);
            BlobError::io("write", &name)(error)
        })
    }

    fn sync_big(&self) -> Result<(), BlobError> {
        let mut dirs: Vec<String> = self
            .staged
            .iter()
            .filter(|(_, staged)| matches!(staged, BlobLocation::Big { .. }))
            .map(|(id, _)| crate::disk::parent(&big_name(id)).to_owned())
            .collect();
        if dirs.is_empty() {
            return Ok(());
        }
        dirs.push(BIG.to_owned());
        dirs.sort_unstable();
        dirs.dedup();
        dirs.iter().try_for_each(|dir| self.disk.sync_dir(dir).map_err(BlobError::io("sync", dir)))
    }
}

/// The content of this length whose record begins there, checked against its name, with the seconds at which it was stored.
fn read_record(
    handle: &dyn DiskFile,
    file: &str,
    id: &BlobId,
    offset: u64,
    len: u32,
) -> Result<(u64, Vec<u8>), BlobError> {
    let mut bytes = vec![0; record_len(len as usize)];
    let read = handle.read_at(offset, &mut bytes).map_err(BlobError::io("read", file))?;
    let damaged = |found| BlobError::Damaged { id: *id, file: file.to_owned(), found };
    let record = BlobRecord::parse(&bytes[..read])
        .ok_or_else(|| damaged("the record fails its checksum"))?;
    if BlobId::of(record.content) != *id {
        return Err(damaged("the content has another hash"));
    }
    Ok((record.stored_s, record.content.to_vec()))
}

fn pack_name(number: NonZeroU32) -> String {
    format!("{PACKS}/pack-{number:08}")
}

fn pack_number(name: &str) -> Option<NonZeroU32> {
    name.strip_prefix("pack-")?.parse().ok()
}

fn big_name(id: &BlobId) -> String {
    format!("{BIG}/{:02x}/{id}", id.0[0])
}
