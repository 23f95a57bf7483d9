//! Blobs that another server stores, as a server finds them that waits for the lead: the small ones, as far as the packs were read.
//! Nothing is written here, and what is not found may be there all the same.

use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard, TryLockError};

use super::index::BlobIndex;
use super::{BlobError, BlobId, pack_name, read_record};
use crate::disk::Disk;

pub struct FollowedBlobs {
    /// Contents are read from here.
    disk: Arc<dyn Disk>,
    index: RwLock<BlobIndex>,
}

impl FollowedBlobs {
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, index: RwLock::default() }
    }

    fn index(&self) -> RwLockWriteGuard<'_, BlobIndex> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`BlobIndex::read_on`], by a session of the reader's own.
    pub fn read_on(&self, disk: &dyn Disk, bytes_max: usize) -> Result<bool, BlobError> {
        self.index().read_on(disk, bytes_max)
    }

    /// What the packs hold, for who stores blobs from now on.
    pub fn take_index(&self) -> BlobIndex {
        std::mem::take(&mut *self.index())
    }

    /// The content, checked against its name; `None` where no pack that was read has it, or while packs are read: a disk that hangs
    /// then holds up nobody who only looks. One whose pack was removed since is an error.
    pub fn get(&self, id: &BlobId) -> Result<Option<Vec<u8>>, BlobError> {
        // Nobody waits for the index while a content is read.
        let found = match self.index.try_read() {
            Ok(index) => index.find(id),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().find(id),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some((pack, blob)) = found else { return Ok(None) };
        let name = pack_name(pack);
        let file = self.disk.open(&name).map_err(BlobError::io("open", &name))?;
        let (_, content) = read_record(&*file, &name, id, blob.offset.into(), blob.len)?;
        Ok(Some(content))
    }
}
