//! What killed pulls and lost power leave behind: half-unpacked layers, layers that may not have reached the disk,
//! downloads that nobody takes up.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use super::Store;
use super::folders::{names, write_record};
use super::lock::{Lock, Mode};
use super::record::boot_id;
use crate::digest::Digest;
use crate::error::{Error, Result};

/// A half download is kept for a day to be taken up, and records and locks of what is gone as long.
const PARTIAL_AGE_MAX: Duration = Duration::from_secs(86_400);
const RECORD_AGE_MAX: Duration = Duration::from_secs(3600);

impl Store {
    /// Cleans the store unless that was done lately in this boot: it looks at every layer and every lock, and each container
    /// opens the store.
    pub(super) fn clean_if_due(&self) {
        let (mark, boot) = (self.folders.cleaned(), boot_id());
        let is_of_boot = || std::fs::read_to_string(&mark).is_ok_and(|of| of == boot);
        if age(&mark) < self.options.clean_pause && is_of_boot() {
            return;
        }
        self.clean();
        let _ = std::fs::write(&mark, &boot);
    }

    /// Removes what nobody is at. What cannot be removed now is left for the next time: a store opens all the same.
    fn clean(&self) {
        self.clean_tmp();
        self.clean_unsynced();
        for folder in [
            self.folders.images(),
            self.folders.tags(),
            self.folders.imports(),
            self.folders.root().join("progress"),
        ] {
            // Records that were being written when their writer was killed.
            for name in names(&folder).into_iter().filter(|n| n.to_string_lossy().contains(".new."))
            {
                let path = folder.join(name);
                if age(&path) > RECORD_AGE_MAX {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
        let partials = self.folders.partials();
        for name in names(&partials) {
            let path = partials.join(name);
            if age(&path) > PARTIAL_AGE_MAX
                && let Ok(Some(lock)) = Lock::try_take(&path, Mode::Exclusive)
            {
                lock.remove();
            }
        }
        for folder in [self.folders.tags(), self.folders.imports()] {
            for name in names(&folder) {
                let path = folder.join(name);
                let image = Self::digest_of(&path);
                let gone = image.is_some_and(|digest| !self.folders.image(&digest).exists());
                if gone && age(&path) > PARTIAL_AGE_MAX {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
        self.clean_locks();
    }

    /// Removes the files of locks that stand for nothing any more.
    fn clean_locks(&self) {
        let digest = |hex: &str| format!("sha256:{hex}").parse::<Digest>().ok();
        let locks = self.folders.locks();
        for name in names(&locks) {
            let (path, name) = (locks.join(&name), name.to_string_lossy().into_owned());
            let image = name.strip_prefix("image-").and_then(digest);
            let layer = name.strip_prefix("layer-").and_then(digest);
            let needed = image.is_some_and(|d| self.folders.image(&d).exists())
                || layer.is_some_and(|d| self.folders.layer(&d).exists());
            if !needed
                && age(&path) > PARTIAL_AGE_MAX
                && let Ok(Some(lock)) = Lock::try_take(&path, Mode::Exclusive)
            {
                lock.remove();
            }
        }
    }

    /// A folder in `tmp` is named after the lock that its maker holds.
    fn clean_tmp(&self) {
        let tmp = self.folders.tmp();
        for name in names(&tmp) {
            let lock = self.folders.locks().join(format!("layer-{}", name.to_string_lossy()));
            if let Ok(Some(lock)) = Lock::try_take(&lock, Mode::Exclusive)
                && self.remove_folder(&tmp.join(&name)).is_ok()
            {
                lock.remove();
            }
        }
    }

    /// A layer of another boot that was never synced may have lost its data with the power.
    fn clean_unsynced(&self) {
        let boot = boot_id();
        for id in self.layer_ids() {
            let whole =
                self.layer_record(&id).is_some_and(|record| record.synced || record.boot == boot);
            if !whole
                && let Ok(Some(lock)) =
                    Lock::try_take(&self.folders.layer_lock(&id), Mode::Exclusive)
                && self.remove_layer(&id).is_ok()
            {
                lock.remove();
            }
        }
    }

    /// Brings every layer of this boot to disk and marks it so. For an idle moment: it waits for the disk.
    pub fn sync(&self) -> Result<()> {
        let is_unsynced = |id: &_| self.layer_record(id).is_some_and(|record| !record.synced);
        let unsynced: Vec<_> = self.layer_ids().into_iter().filter(is_unsynced).collect();
        if unsynced.is_empty() {
            return Ok(());
        }
        let root = std::fs::File::open(self.dir()).map_err(Error::at(self.dir()))?;
        // SAFETY: the descriptor is open until the end of this function.
        if unsafe { libc::syncfs(root.as_raw_fd()) } != 0 {
            return Err(Error::at(self.dir())(std::io::Error::last_os_error()));
        }
        for id in unsynced {
            let Some(_held) = Lock::try_take(&self.folders.layer_lock(&id), Mode::Shared)? else {
                continue;
            };
            // Read again: somebody may have been admitted to the layer meanwhile.
            if self.has_layer(&id)
                && let Some(mut record) = self.layer_record(&id)
            {
                record.synced = true;
                write_record(&self.folders.layer(&id).join("layer.json"), &record)?;
            }
        }
        Ok(())
    }
}

fn age(path: &Path) -> Duration {
    let modified = std::fs::metadata(path).and_then(|m| m.modified());
    modified.ok().and_then(|m| m.elapsed().ok()).unwrap_or_default()
}
