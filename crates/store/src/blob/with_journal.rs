//! Blobs whose bytes a database stores in the journal's commit that needs them.

use super::{BlobError, BlobId, BlobLocation, Blobs, FIRST_PACK};
use std::num::NonZeroU32;

impl Blobs {
    /// As [`Blobs::commit_staged`], for contents that the journal's next commit needs: they may become durable with it. Whoever made
    /// that commit says how it went, by [`Blobs::note_journal`].
    pub fn commit_staged_with_journal(&mut self) -> Result<(), BlobError> {
        let is_small = |location: &BlobLocation| matches!(location, BlobLocation::Packed { .. });
        let small = self.staged.iter().filter(|(_, location)| is_small(location));
        let small: Vec<BlobId> = small.map(|(id, _)| *id).collect();
        let mut goes_with_journal = false;
        self.place_staged(|blobs, records| {
            let (location, with_journal) = blobs.append_with_journal(records)?;
            goes_with_journal = with_journal;
            Ok(location)
        })?;
        if goes_with_journal {
            self.with_journal.extend(small);
        }
        Ok(())
    }

    /// Writes records to the active pack: with the journal's next commit, which is what the second value says, or synced.
    fn append_with_journal(
        &mut self,
        records: &[u8],
    ) -> Result<((NonZeroU32, u32), bool), BlobError> {
        if records.is_empty() {
            return Ok(((FIRST_PACK, 0), false));
        }
        let written =
            self.write_by(records, |file, start| file.write_with_journal(start, records))?;
        if !written.1 {
            (self.is_unbacked, self.unsynced) = (false, Vec::new());
        }
        Ok(written)
    }

    /// How the journal's commit went. Where it failed, what should have gone with it is not there, and nothing is written behind the
    /// place that was kept for it.
    pub fn note_journal(&mut self, is_committed: bool) {
        let with_journal = std::mem::take(&mut self.with_journal);
        if is_committed || with_journal.is_empty() {
            return;
        }
        with_journal.iter().for_each(|id| self.forget(id));
        self.active = None;
    }
}
