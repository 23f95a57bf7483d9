//! A layer gets into the store once, whoever brings it first. Each process unpacks beside its place, where nobody waits for it: what it
//! reads may be slow, and so may be the job that it counts to.

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

/// What a process has that has unpacked a layer.
enum Claim {
    /// Another one was faster.
    There(LayerHeld),
    /// The place is free, and the holder's own.
    Free(Lock),
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

    /// Waits until the layer is there or its place is this process's own. Nobody holds a place for longer than a rename takes.
    fn claim_place(&self, diff_id: &Digest) -> Result<Claim> {
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
                        return Ok(Claim::Free(lock));
                    }
                    return Ok(Claim::There(LayerHeld { _lock: lock.downgrade()? }));
                }
            }
            watcher.turn();
            std::thread::sleep(POLL);
        }
    }

    /// The layer that is there, or a new one of `source`, which shows also who may have the one that is there.
    pub fn layer_of(
        &self,
        what: &str,
        diff_id: &Digest,
        source: impl Read + Send,
        requester: &Requester,
    ) -> Result<LayerHeld> {
        match self.layer_if_there(diff_id)? {
            Some(held) if self.admits(diff_id, requester) => Ok(held),
            Some(held) => self.verify_layer(what, diff_id, source, requester).map(|()| held),
            None => self.import_layer(what, source, Some(diff_id), requester).map(|(_, held)| held),
        }
    }

    /// Compares a layer that is there for others with the bytes that the requester brings: only who has them is given it.
    fn verify_layer(
        &self,
        what: &str,
        diff_id: &Digest,
        source: impl Read + Send,
        requester: &Requester,
    ) -> Result<()> {
        verify(what, source, diff_id, &self.options.limits)?;
        self.admit(diff_id, requester)
    }

    /// The layer that is there, or a new one of what `open` gives, which takes so many bytes. Returns also whether that was read:
    /// who may have a file has only the layers that were.
    pub fn layer_from<R: Read + Send>(
        &self,
        what: &str,
        diff_id: &Digest,
        bytes: u64,
        requester: &Requester,
        open: impl FnOnce() -> Result<R>,
    ) -> Result<(LayerHeld, bool)> {
        match self.layer_if_there(diff_id)? {
            Some(held) if self.admits(diff_id, requester) => Ok((held, false)),
            Some(held) => {
                self.verify_layer(what, diff_id, open()?, requester)?;
                Ok((held, true))
            }
            None => {
                self.make_room(bytes)?;
                let (_, held) = self.import_layer(what, open()?, Some(diff_id), requester)?;
                Ok((held, true))
            }
        }
    }

    /// Unpacks an archive and keeps it under its digest, which must be `expected` where that is known. On an error nothing of it
    /// stays.
    pub fn import_layer(
        &self,
        what: &str,
        source: impl Read + Send,
        expected: Option<&Digest>,
        requester: &Requester,
    ) -> Result<(Digest, LayerHeld)> {
        let name = format!("import-{}-{}", std::process::id(), super::record::now().1);
        let guard = Lock::take(
            &self.folders.locks().join(format!("layer-{name}")),
            Mode::Exclusive,
            || (),
        )?;
        let unpacked = self.unpack_beside(&name, requester, |root| {
            unpack(what, source, expected, root, &self.limits()?)
        });
        let outcome = unpacked.map_err(|e| self.named(e)).and_then(|(tmp, unpacked)| {
            let diff_id = unpacked.diff_id;
            let held = match self.claim_place(&diff_id)? {
                Claim::There(held) => {
                    self.remove_folder(&tmp)?;
                    self.admit(&diff_id, requester)?;
                    held
                }
                Claim::Free(lock) => {
                    let place = self.folders.layer(&diff_id);
                    std::fs::rename(&tmp, &place).map_err(Error::at(&place))?;
                    LayerHeld { _lock: lock.downgrade()? }
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
        // The caller holds the lock of this name: what is here was left by a process that was killed.
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

#[cfg(test)]
mod tests {
    use super::super::folders::names;
    use super::*;
    use std::io::Cursor;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// Says that it is read, and gives its bytes when `told` is closed.
    struct Late {
        asked: Sender<()>,
        told: Receiver<()>,
        bytes: Cursor<Vec<u8>>,
    }

    impl Read for Late {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let _ = self.asked.send(());
            let _ = self.told.recv();
            self.bytes.read(buffer)
        }
    }

    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(1);
        header.set_mode(0o644);
        builder.append_data(&mut header, "a", &b"1"[..]).unwrap();
        builder.into_inner().unwrap()
    }

    /// As a user can bring it about: an image in a file of his own has a layer that everybody wants, and no read of the file ends.
    #[test]
    fn a_file_that_is_read_slowly_keeps_nobody_from_its_layer() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 1 << 30).unwrap();
        let requester = |user| Requester { user, repository: None, is_public: false };
        let (bytes, diff_id) = (archive(), Digest::of(&archive()));
        let ((asked, is_asked), (tell, told)) = (channel(), channel());
        let late = Late { asked, told, bytes: Cursor::new(bytes.clone()) };
        let (slow, id, first) = (store.clone(), diff_id.clone(), requester(1));
        let waits = std::thread::spawn(move || slow.layer_of("late", &id, late, &first).map(drop));
        is_asked.recv_timeout(Duration::from_secs(60)).expect("it is read");
        store.layer_of("quick", &diff_id, Cursor::new(bytes), &requester(2)).unwrap();
        drop(tell);
        waits.join().unwrap().unwrap();
        assert_eq!(names(&store.folders.layers()).len(), 1);
        assert!(names(&store.folders.tmp()).is_empty());
        assert!([1, 2].iter().all(|user| store.admits(&diff_id, &requester(*user))));
    }
}
