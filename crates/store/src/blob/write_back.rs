//! Blobs whose commit the journal carries: they are written to their pack without a sync, synced later, and put back from the journal
//! after a crash.

use super::pack::{self, BlobRecord};
use super::{BlobError, BlobId, BlobLocation, Blobs, pack_name};
use std::num::NonZeroU32;

/// The bytes of records that wait for their sync. The commit that would go beyond it syncs them.
pub const UNSYNCED_BYTES_MAX: usize = 1 << 20;

/// The bytes of records that are put back with one sync.
const RESTORED_BYTES: usize = 4 << 20;

impl Blobs {
    /// Stores all that is staged, for a commit that can carry so many bytes of records. Returns the records that the commit has to
    /// carry: they are not durable otherwise until [`Blobs::sync`]. Empty where all is durable, or is with
    /// that commit in a database ([`Blobs::note_journal`]). On an error nothing is stored, and nothing stays staged.
    pub fn store_staged(&mut self, carried_max: usize) -> Result<Vec<u8>, BlobError> {
        if self.is_unbacked
            && let Err(error) = self.sync()
        {
            self.discard_staged();
            return Err(error);
        }
        let len = self.staged_bytes.len();
        let is_carried = len > 0 && len <= carried_max && !self.is_staged_private;
        if !is_carried || self.unsynced.len() + len > UNSYNCED_BYTES_MAX {
            self.commit_staged_with_journal()?;
            return Ok(Vec::new());
        }
        let records = self.staged_bytes.clone();
        self.place_staged(Self::write_unsynced)?;
        Ok(records)
    }

    /// Writes records to the active pack, to be synced later.
    fn write_unsynced(&mut self, records: &[u8]) -> Result<(NonZeroU32, u32), BlobError> {
        let location = self.write(records)?;
        self.unsynced.extend_from_slice(records);
        Ok(location)
    }

    /// Makes all that is stored durable without the journal.
    pub fn sync(&mut self) -> Result<(), BlobError> {
        if self.unsynced.is_empty() {
            self.is_unbacked = false;
            return Ok(());
        }
        let synced = self.active.as_ref().is_some_and(|active| active.file.sync_data().is_ok());
        if synced {
            (self.is_unbacked, self.unsynced) = (false, Vec::new());
            return Ok(());
        }
        // What a failed sync has left on the disk is not known: the records go into another pack.
        self.active = None;
        let records = std::mem::take(&mut self.unsynced);
        let was_unbacked = self.is_unbacked;
        match self.append(&records) {
            Ok((pack, base)) => {
                self.index_again(&records, pack, base);
                Ok(())
            }
            Err(error) => {
                (self.is_unbacked, self.unsynced) = (was_unbacked, records);
                Err(error)
            }
        }
    }

    /// Notes that these records are found in this pack from now on, each that is still known.
    fn index_again(&mut self, records: &[u8], pack: NonZeroU32, base: u32) {
        let mut found: Vec<(BlobId, u32, u32)> = Vec::new();
        pack::scan(records, |offset, record| {
            found.push((record.id, base + offset as u32, record.content.len() as u32));
        });
        for (id, offset, len) in found {
            if self.known.contains_key(&id) {
                self.index(id, BlobLocation::Packed { pack, offset, len });
            }
        }
    }

    /// A commit that was to carry records was not kept: what is not synced may be in no journal. Nothing is stored until it is synced.
    pub fn distrust_unsynced(&mut self) {
        self.is_unbacked = true;
    }

    /// Bytes of records that are not synced.
    pub fn unsynced_len(&self) -> usize {
        self.unsynced.len()
    }

    /// Writes the end of the newest pack once more, as far as it may not be synced, for a start whose journal carries texts. After a
    /// sync that failed the page cache alone may have it: nobody would see that until it is gone.
    pub fn write_again(&self) -> Result<(), BlobError> {
        let Some(active) = &self.active else { return Ok(()) };
        let start = active.end.saturating_sub(UNSYNCED_BYTES_MAX as u64);
        let name = pack_name(active.number);
        let mut records = vec![0; usize::try_from(active.end - start).unwrap_or(0)];
        let read = active.file.read_at(start, &mut records);
        let read = read.map_err(BlobError::io("read", &name))?;
        let written = active.file.write_at(start, &records[..read]);
        written.and_then(|()| active.file.sync_data()).map_err(BlobError::io("write", &name))
    }

    /// Takes in the records that a commit carries, those that are missing here: a crash has kept them from the packs, or they were
    /// collected since. They are durable after [`Blobs::commit_staged`].
    pub fn restore(&mut self, records: &[u8]) -> Result<(), BlobError> {
        let mut result = Ok(());
        pack::scan(records, |_, BlobRecord { id, stored_s, content, .. }| {
            let is_missing = !self.known.contains_key(&id) && BlobId::of(content) == id;
            if result.is_ok() && is_missing {
                result = self.stage_named(id, content, stored_s).map(drop);
            }
        });
        result?;
        let most = RESTORED_BYTES.min(self.options.staged_bytes_max / 2);
        if self.staged_bytes.len() >= most { self.commit_staged() } else { Ok(()) }
    }
}
