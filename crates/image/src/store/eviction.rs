//! What was not used for longest goes first, never what is in use. An image goes with the layers that no other image has;
//! a download that broke off goes like an image.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nix::sys::statvfs::fstatvfs;

use super::Store;
use super::folders::{names, read_record};
use super::lock::{Lock, Mode};
use super::record::ImageRecord;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::unpack::remove_tree;

/// What can go to make room.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Evictable {
    Partial(PathBuf),
    Image(Digest),
}

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

    /// What a file may take on the store's file system and leave free what must stay free.
    pub(crate) fn free_bytes(&self) -> Result<u64> {
        let folder = std::fs::File::open(self.dir()).map_err(Error::at(self.dir()))?;
        let space = fstatvfs(folder.as_fd()).map_err(|e| Error::at(self.dir())(e.into()))?;
        let free = space.blocks_available().saturating_mul(space.fragment_size());
        Ok(free.saturating_sub(self.options.limits.free_bytes_min))
    }

    /// Refuses to begin what would fill the file system.
    pub(crate) fn require_free(&self, bytes: u64) -> Result<()> {
        let free = self.free_bytes()?;
        if bytes <= free {
            return Ok(());
        }
        let kept = self.options.limits.free_bytes_min;
        let fault = format!(
            "{bytes} bytes are needed, and {free} are free on its file system beside {kept} that must stay free"
        );
        Err(Error::StoreFull { store: self.name(), fault })
    }

    /// Removes images and partial downloads that are not in use, the one used longest ago first, until `bytes` more
    /// would fit.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let fits = |used: u64| used.saturating_add(bytes) <= self.options.bound_bytes;
        let mut used = self.used_bytes();
        if fits(used) {
            return Ok(());
        }
        self.remove_unused_layers();
        for (_, oldest) in self.by_last_use() {
            used = self.used_bytes();
            if fits(used) {
                return Ok(());
            }
            match oldest {
                Evictable::Image(digest) => drop(self.evict(&digest)?),
                Evictable::Partial(path) => {
                    if let Some(lock) = Lock::try_take(&path, Mode::Exclusive)? {
                        lock.remove();
                    }
                }
            }
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

    fn by_last_use(&self) -> Vec<(SystemTime, Evictable)> {
        let time = |path: &Path| {
            let modified = std::fs::metadata(path).and_then(|m| m.modified());
            modified.unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let images = self.images().into_iter().map(|image| {
            (time(&self.folders.image_lock(&image.digest)), Evictable::Image(image.digest))
        });
        let partials = self.folders.partials();
        let partials = names(&partials).into_iter().map(|name| partials.join(name));
        let partials = partials.map(|path| (time(&path), Evictable::Partial(path)));
        let mut all: Vec<_> = images.chain(partials).collect();
        all.sort();
        all
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
