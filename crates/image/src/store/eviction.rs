//! What was not used for longest goes first, never what is in use. An image goes with the layers that no other image has.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::SystemTime;

use super::Store;
use super::folders::{names, read_record};
use super::lock::{Lock, Mode};
use super::record::ImageRecord;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::unpack::remove_tree;

impl Store {
    /// What layers and partial downloads take now.
    pub fn used_bytes(&self) -> u64 {
        let layers: u64 = self
            .layer_ids()
            .iter()
            .filter_map(|id| self.layer_record(id))
            .map(|r| r.disk_bytes)
            .sum();
        let partials = self.folders.partials();
        let sizes = names(&partials)
            .into_iter()
            .filter_map(|n| std::fs::metadata(partials.join(n)).ok())
            .map(|m| m.len());
        layers + sizes.sum::<u64>()
    }

    /// Bytes that a layer may take beside what is there, after everything that may go has gone if need be.
    pub(super) fn room(&self) -> Result<u64> {
        Ok(self.options.bound_bytes.saturating_sub(self.used_bytes()))
    }

    /// Removes images that are not in use, the one used longest ago first, until `bytes` more would fit.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let fits = |used: u64| used.saturating_add(bytes) <= self.options.bound_bytes;
        let mut used = self.used_bytes();
        if fits(used) {
            return Ok(());
        }
        self.remove_unused_layers();
        for (_, digest) in self.by_last_use() {
            used = self.used_bytes();
            if fits(used) {
                return Ok(());
            }
            self.evict(&digest)?;
        }
        used = self.used_bytes();
        if fits(used) {
            return Ok(());
        }
        let fault = format!(
            "{used} of {} bytes are taken by images in use, and {bytes} more are needed; wait for jobs to end, or give it more",
            self.options.bound_bytes
        );
        Err(Error::StoreFull { store: self.name(), fault })
    }

    fn by_last_use(&self) -> Vec<(SystemTime, Digest)> {
        let mut images: Vec<_> = self
            .images()
            .into_iter()
            .map(|image| {
                let lock = std::fs::metadata(self.folders.image_lock(&image.digest));
                (lock.and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH), image.digest)
            })
            .collect();
        images.sort();
        images
    }

    /// Removes one image with the layers that are only its own. Returns false when it is in use.
    pub fn evict(&self, digest: &Digest) -> Result<bool> {
        let Some(lock) = Lock::try_take(&self.folders.image_lock(digest), Mode::Exclusive)? else {
            return Ok(false);
        };
        let path = self.folders.image(digest);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(Error::at(&path)(error));
        }
        lock.remove();
        self.remove_unused_layers();
        Ok(true)
    }

    /// Removes layers that no image has and that no pull holds. A layer that cannot be removed now is tried again next time.
    pub fn remove_unused_layers(&self) {
        let needed: BTreeSet<Digest> =
            self.images().into_iter().flat_map(|image: ImageRecord| image.diff_ids).collect();
        for id in self.layer_ids().into_iter().filter(|id| !needed.contains(id)) {
            let Ok(Some(lock)) = Lock::try_take(&self.folders.layer_lock(&id), Mode::Exclusive)
            else {
                continue;
            };
            // An image may have been recorded between the list and the lock.
            let still_needed = self.images().iter().any(|image| image.diff_ids.contains(&id));
            if !still_needed && self.remove_layer(&id).is_ok() {
                lock.remove();
            }
        }
    }

    /// First out of its place, so that a half-removed layer is never taken for a whole one.
    pub(super) fn remove_layer(&self, id: &Digest) -> Result<()> {
        let tmp = self.folders.tmp().join(id.hex());
        self.remove_folder(&tmp)?;
        let place = self.folders.layer(id);
        std::fs::rename(&place, &tmp).map_err(Error::at(&place))?;
        self.remove_folder(&tmp)
    }

    pub(super) fn remove_folder(&self, path: &Path) -> Result<()> {
        use std::os::fd::AsFd;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let parent = std::fs::File::open(parent).map_err(Error::at(parent))?;
        remove_tree(parent.as_fd(), name.as_encoded_bytes()).map_err(|e| Error::at(path)(e.into()))
    }

    pub(super) fn layer_ids(&self) -> Vec<Digest> {
        let name =
            |name: std::ffi::OsString| format!("sha256:{}", name.to_string_lossy()).parse().ok();
        names(&self.folders.layers()).into_iter().filter_map(name).collect()
    }

    /// The image that the record of a tag or of an import leads to.
    pub(super) fn digest_of(record: &Path) -> Option<Digest> {
        #[derive(serde::Deserialize)]
        struct Leads {
            digest: Digest,
        }
        read_record::<Leads>(record).map(|leads| leads.digest)
    }
}
