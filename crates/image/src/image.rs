//! An image that is ready for a container, and the guard that keeps it there.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use crate::config::ImageConfig;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::local::SquashImage;
use crate::store::{ImageRecord, Lock, Mode, Store};

/// An image on this machine.
#[derive(Debug)]
pub struct Image {
    /// As it was asked for, in full.
    pub name: String,
    pub config: ImageConfig,
    pub root: Root,
    /// The digest of its manifest or archive; a root file system in a folder and a squashfs have none.
    pub digest: Option<Digest>,
    /// Keeps it from being evicted; a folder or file outside the store needs none.
    pub in_use: Option<ImageInUse>,
}

/// What a container's root file system is made from.
#[derive(Debug)]
pub enum Root {
    /// Lower layers of overlayfs, top first.
    Layers(Vec<PathBuf>),
    /// A folder that is used in place, as the one lower layer. Mount the handle (`/proc/self/fd/N`), not the path.
    Folder {
        path: PathBuf,
        handle: OwnedFd,
    },
    Squash(SquashImage),
}

/// Held for as long as a container runs from the image. The lock is the descriptor's: a process that is forked with it
/// keeps the image in use, and the kernel gives it back when the last of them ends. It does not survive `exec`.
#[derive(Debug)]
pub struct ImageInUse(Lock);

impl AsFd for ImageInUse {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<ImageInUse> for OwnedFd {
    fn from(guard: ImageInUse) -> Self {
        guard.0.into()
    }
}

impl Store {
    /// An image that is in the store already, held in use; asks no registry. A process whose child pulled the image
    /// takes it over by this.
    pub fn image(&self, name: &str, digest: &Digest) -> Result<Image> {
        let lock = Lock::take(&self.folders.image_lock(digest), Mode::Shared, || ())?;
        let record = self.whole_image(digest).ok_or_else(|| Error::NotFound {
            what: format!("{name} ({digest})"),
            place: self.name(),
        })?;
        self.in_use(name, record, lock)
    }

    /// `lock` is the image's, held shared.
    pub(crate) fn in_use(&self, name: &str, record: ImageRecord, lock: Lock) -> Result<Image> {
        lock.touch()?;
        Ok(Image {
            name: name.to_owned(),
            root: Root::Layers(self.lower(&record.diff_ids)),
            config: record.config,
            digest: Some(record.digest),
            in_use: Some(ImageInUse(lock)),
        })
    }
}
