//! A layer gets into the store once, whoever wants it: one process unpacks it, all others wait for that one.

use std::io::Read;
use std::os::fd::AsFd;
use std::path::PathBuf;

use super::Store;
use super::access::{Access, Requester};
use super::folders::{read_record, write_record};
use super::lock::{Lock, Mode, POLL};
use super::record::{LayerRecord, boot_id};
use super::stopped::Watcher;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::unpack::{Limits, Unpacked, unpack, verify};

/// A layer that is in the store and stays there for as long as this is held.
#[derive(Debug)]
pub struct LayerHeld {
    _lock: Lock,
}

/// What a process has that wants a layer.
pub enum Claim {
    There(LayerHeld),
    /// It is not there, and nobody else is at it: the holder makes it.
    ToMake(LayerToMake),
}

pub struct LayerToMake {
    lock: Lock,
}

impl Store {
    pub fn has_layer(&self, diff_id: &Digest) -> bool {
        self.folders.layer(diff_id).join("layer.json").exists()
    }

    /// Holds the layer if it is there.
    pub fn layer_if_there(&self, diff_id: &Digest) -> Result<Option<LayerHeld>> {
        if !self.has_layer(diff_id) {
            return Ok(None);
        }
        let lock = Lock::try_take(&self.folders.layer_lock(diff_id), Mode::Shared)?;
        Ok(lock.filter(|_| self.has_layer(diff_id)).map(|lock| LayerHeld { _lock: lock }))
    }

    /// Waits until the layer is there or this process is the one to make it.
    pub fn claim_layer(&self, diff_id: &Digest) -> Result<Claim> {
        let path = self.folders.layer_lock(diff_id);
        let mut watcher = Watcher::new(self);
        loop {
            if let Some(lock) = Lock::try_take(&path, Mode::Shared)? {
                if self.has_layer(diff_id) {
                    return Ok(Claim::There(LayerHeld { _lock: lock }));
                }
                drop(lock);
                if let Some(lock) = Lock::try_take(&path, Mode::Exclusive)? {
                    if !self.has_layer(diff_id) {
                        return Ok(Claim::ToMake(LayerToMake { lock }));
                    }
                    return Ok(Claim::There(LayerHeld { _lock: lock.downgrade()? }));
                }
            }
            watcher.turn();
            std::thread::sleep(POLL);
        }
    }

    /// Unpacks a layer under its lock. On an error nothing of it stays.
    pub fn make_layer(
        &self,
        what: &str,
        diff_id: &Digest,
        claim: LayerToMake,
        source: impl Read + Send,
        requester: &Requester,
    ) -> Result<LayerHeld> {
        let tmp = self.unpack_beside(diff_id.hex(), requester, |root| {
            unpack(what, source, Some(diff_id), root, &self.limits()?)
        });
        let (tmp, _) = tmp.map_err(|e| self.named(e))?;
        let place = self.folders.layer(diff_id);
        std::fs::rename(&tmp, &place).map_err(Error::at(&place))?;
        Ok(LayerHeld { _lock: claim.lock.downgrade()? })
    }

    /// Compares a layer that is there for others with the bytes that the requester brings: only who has them is given it.
    pub fn verify_layer(
        &self,
        what: &str,
        diff_id: &Digest,
        source: impl Read + Send,
        requester: &Requester,
    ) -> Result<()> {
        verify(what, source, diff_id, &self.options.limits)?;
        self.admit(diff_id, requester)
    }

    /// The layer that is there, or a new one of what `open` gives. Returns also whether that was read.
    pub fn layer_from<R: Read + Send>(
        &self,
        what: &str,
        diff_id: &Digest,
        bytes: u64,
        requester: &Requester,
        open: impl FnOnce() -> Result<R>,
    ) -> Result<(LayerHeld, bool)> {
        match self.claim_layer(diff_id)? {
            Claim::There(held) if self.admits(diff_id, requester) => Ok((held, false)),
            Claim::There(held) => {
                self.verify_layer(what, diff_id, open()?, requester)?;
                Ok((held, true))
            }
            Claim::ToMake(claim) => {
                self.make_room(bytes)?;
                let made = self.make_layer(what, diff_id, claim, open()?, requester)?;
                Ok((made, true))
            }
        }
    }

    /// Unpacks an archive whose digest is not known before, and keeps it under the digest that it turns out to have.
    pub fn import_layer(
        &self,
        what: &str,
        source: impl Read + Send,
        requester: &Requester,
    ) -> Result<(Digest, LayerHeld)> {
        let name = format!("import-{}-{}", std::process::id(), super::record::now().1);
        let guard = Lock::take(
            &self.folders.locks().join(format!("layer-{name}")),
            Mode::Exclusive,
            || (),
        )?;
        let unpacked = self.unpack_beside(&name, requester, |root| {
            unpack(what, source, None, root, &self.limits()?)
        });
        let outcome = unpacked.map_err(|e| self.named(e)).and_then(|(tmp, unpacked)| {
            let diff_id = unpacked.diff_id;
            let held = match self.claim_layer(&diff_id)? {
                Claim::There(held) => {
                    self.remove_folder(&tmp)?;
                    self.admit(&diff_id, requester)?;
                    held
                }
                Claim::ToMake(claim) => {
                    let place = self.folders.layer(&diff_id);
                    std::fs::rename(&tmp, &place).map_err(Error::at(&place))?;
                    LayerHeld { _lock: claim.lock.downgrade()? }
                }
            };
            Ok((diff_id, held))
        });
        guard.remove();
        outcome
    }

    /// Runs `fill` on a new folder in `tmp`; returns the folder with its record in it, or removes it.
    fn unpack_beside(
        &self,
        name: &str,
        requester: &Requester,
        fill: impl FnOnce(std::os::fd::BorrowedFd) -> Result<Unpacked>,
    ) -> Result<(PathBuf, Unpacked)> {
        let tmp = self.folders.tmp().join(name);
        // A process that was killed at the same layer left this behind: its lock is ours now.
        self.remove_folder(&tmp)?;
        let files = tmp.join("fs");
        std::fs::create_dir_all(&files).map_err(Error::at(&files))?;
        let outcome = (|| {
            set_open_mode(&files)?;
            let root = std::fs::File::open(&files).map_err(Error::at(&files))?;
            let unpacked = fill(root.as_fd())?;
            let record = LayerRecord {
                disk_bytes: unpacked.disk_bytes,
                entries: unpacked.entries,
                skipped: unpacked.skipped,
                boot: boot_id(),
                synced: false,
                access: Access::of(requester),
            };
            write_record(&tmp.join("layer.json"), &record)?;
            Ok(unpacked)
        })();
        match outcome {
            Ok(unpacked) => Ok((tmp, unpacked)),
            Err(error) => {
                self.remove_folder(&tmp)?;
                Err(error)
            }
        }
    }

    /// The bounds of the next layer: those of the options, and the room that is left in the store.
    fn limits(&self) -> Result<Limits> {
        let room = self.room()?;
        Ok(Limits { room_bytes: room, ..self.options.limits })
    }

    /// A full disk is said of the store, not of the layer.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::StoreFull { fault, .. } => Error::StoreFull { store: self.name(), fault },
            other => other,
        }
    }

    pub fn layer_record(&self, diff_id: &Digest) -> Option<LayerRecord> {
        read_record(&self.folders.layer(diff_id).join("layer.json"))
    }
}

/// A layer without an entry for its root has the root that everybody may read.
fn set_open_mode(folder: &std::path::Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
        .map_err(Error::at(folder))
}
