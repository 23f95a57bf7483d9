//! Letting go of blobs that nothing refers to any more.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::pack::RECORD_HEADER;
use super::{BlobError, BlobId, BlobLocation, Blobs, PACKS, big_name, pack_name};

/// What [`Blobs::retain`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectedBlobs {
    pub blobs: u64,
    pub bytes: u64,
}

impl Blobs {
    /// Lets go of every blob that `is_live` does not claim and that nobody has stored or asked for
    /// since `cutoff_s`. A dead small blob goes when half of its pack is dead; what lives there is
    /// moved first. At most `packs_max` packs are rewritten in one call.
    pub fn retain(
        &mut self,
        is_live: impl Fn(&BlobId) -> bool,
        cutoff_s: u64,
        packs_max: usize,
    ) -> Result<CollectedBlobs, BlobError> {
        if !self.staged.is_empty() {
            // A failure below would drop what somebody staged and is about to acknowledge.
            return Err(BlobError::StagedPending);
        }
        let mut collected = CollectedBlobs::default();
        let mut packs: BTreeMap<NonZeroU32, PackUsage> = BTreeMap::new();
        let mut dead_big = Vec::new();
        for (id, known) in &self.known {
            let live = known.touched >= cutoff_s.into() || is_live(id);
            match known.location {
                BlobLocation::Packed { pack, len, .. } => {
                    packs.entry(pack).or_default().add(*id, live, u64::from(len));
                }
                BlobLocation::Big { len } if !live => dead_big.push((*id, u64::from(len))),
                BlobLocation::Big { .. } => {}
            }
        }
        for (id, len) in dead_big {
            let file = big_name(&id);
            self.disk.remove(&file).map_err(BlobError::io("remove", &file))?;
            self.known.remove(&id);
            collected.blobs += 1;
            collected.bytes += len;
        }
        let active = self.active.as_ref().map(|active| active.number);
        let mostly_dead = packs.into_iter().filter(|(number, usage)| {
            Some(*number) != active && usage.dead_bytes > 0 && usage.dead_bytes >= usage.live_bytes
        });
        for (number, usage) in mostly_dead.take(packs_max) {
            self.rewrite(number, &usage)?;
            collected.blobs += usage.dead.len() as u64;
            collected.bytes += usage.dead_bytes;
        }
        Ok(collected)
    }

    /// Moves what lives in a pack to the active one, then removes the pack.
    fn rewrite(&mut self, number: NonZeroU32, usage: &PackUsage) -> Result<(), BlobError> {
        for id in &usage.live {
            let touched_s = self.known.get(id).map_or(0, |known| u64::from(known.touched.0));
            let Some(content) = self.get(id)? else { continue };
            self.stage_new(*id, &content, touched_s)?;
        }
        self.commit_staged()?;
        let file = pack_name(number);
        self.disk.remove(&file).map_err(BlobError::io("remove", &file))?;
        self.disk.sync_dir(PACKS).map_err(BlobError::io("sync", PACKS))?;
        for id in &usage.dead {
            self.known.remove(id);
        }
        Ok(())
    }
}

/// Which blobs of a pack live, and what they weigh.
#[derive(Default)]
struct PackUsage {
    live: Vec<BlobId>,
    live_bytes: u64,
    dead: Vec<BlobId>,
    dead_bytes: u64,
}

impl PackUsage {
    fn add(&mut self, id: BlobId, live: bool, len: u64) {
        let bytes = len + RECORD_HEADER as u64;
        if live {
            self.live.push(id);
            self.live_bytes += bytes;
        } else {
            self.dead.push(id);
            self.dead_bytes += bytes;
        }
    }
}
