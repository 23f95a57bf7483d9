//! Files of blobs that a backup copies, held by links of their own: the collection of blobs goes on beside it, and what it
//! removes stays readable there. A pack only grows behind what counts.

use std::io;
use std::sync::Arc;

use super::{BlobError, Blobs};
use crate::disk::{Disk, DiskFile};

const HELD: &str = "held";

/// Files under links that go when this is dropped.
pub struct HeldFiles {
    disk: Arc<dyn Disk>,
    /// Name and length of each; its link is named by its place here.
    files: Vec<(String, u64)>,
}

impl Blobs {
    /// Holds these of [`Blobs::files`]. Nothing is collected until this returns. One at a time.
    pub fn hold(&self, files: Vec<(String, u64)>) -> Result<HeldFiles, BlobError> {
        self.disk.make_dir(HELD).map_err(BlobError::io("make", HELD))?;
        self.release_held()?;
        let held = HeldFiles { disk: self.disk.clone(), files };
        for (number, (name, _)) in held.files.iter().enumerate() {
            self.disk.link(name, &link_name(number)).map_err(BlobError::io("link", name))?;
        }
        Ok(held)
    }

    /// Removes the links of a program that was killed: they would keep the disk's space.
    pub(super) fn release_held(&self) -> Result<(), BlobError> {
        let entries = match self.disk.list(HELD) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(BlobError::io("list", HELD)(error)),
        };
        for entry in entries {
            let path = format!("{HELD}/{}", entry.name);
            self.disk.remove(&path).map_err(BlobError::io("remove", &path))?;
        }
        Ok(())
    }
}

impl HeldFiles {
    /// Each file by its name among the blobs, with the length that counts.
    pub fn files(&self) -> impl Iterator<Item = HeldFile<'_>> {
        self.files.iter().enumerate().map(|(number, (name, len))| HeldFile {
            disk: &*self.disk,
            number,
            name,
            len: *len,
        })
    }
}

pub struct HeldFile<'a> {
    disk: &'a dyn Disk,
    number: usize,
    pub name: &'a str,
    pub len: u64,
}

impl HeldFile<'_> {
    pub fn open(&self) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&link_name(self.number))
    }
}

impl Drop for HeldFiles {
    fn drop(&mut self) {
        for number in 0..self.files.len() {
            // What stays is removed at the next start.
            let _ = self.disk.remove(&link_name(number));
        }
    }
}

fn link_name(number: usize) -> String {
    format!("{HELD}/{number}")
}
