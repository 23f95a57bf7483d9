//! The folders of a store, and its small files: written whole or not at all.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::digest::Digest;
use crate::error::{Error, Result};

pub const RECORD_BYTES_MAX: u64 = 16 << 20;

/// Where everything is. A store belongs to the account that runs the node's agent; nobody else may enter it.
#[derive(Debug, Clone)]
pub struct Folders {
    root: PathBuf,
}

const ALL: [&str; 9] =
    ["layers/sha256", "images", "tags", "partial", "locks", "slots", "progress", "tmp", "imports"];

impl Folders {
    pub fn make(root: &Path) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let folders = Self { root: root.to_owned() };
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for name in ALL {
            let path = root.join(name);
            builder.create(&path).map_err(Error::at(&path))?;
        }
        Ok(folders)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers/sha256").join(diff_id.hex())
    }

    /// The layer's files, as a lower layer of overlayfs.
    pub fn layer_root(&self, diff_id: &Digest) -> PathBuf {
        self.layer(diff_id).join("fs")
    }

    pub fn layers(&self) -> PathBuf {
        self.root.join("layers/sha256")
    }

    pub fn layer_lock(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("locks").join(format!("layer-{}", diff_id.hex()))
    }

    pub fn image(&self, digest: &Digest) -> PathBuf {
        self.root.join("images").join(format!("{}.json", digest.hex()))
    }

    pub fn images(&self) -> PathBuf {
        self.root.join("images")
    }

    /// Shared by who uses the image, exclusive for who removes it; its time is that of the last use.
    pub fn image_lock(&self, digest: &Digest) -> PathBuf {
        self.root.join("locks").join(format!("image-{}", digest.hex()))
    }

    pub fn tag(&self, key: &Digest) -> PathBuf {
        self.root.join("tags").join(format!("{}.json", key.hex()))
    }

    pub fn tags(&self) -> PathBuf {
        self.root.join("tags")
    }

    pub fn pull_lock(&self, key: &Digest) -> PathBuf {
        self.root.join("locks").join(format!("pull-{}", key.hex()))
    }

    pub fn progress(&self, key: &Digest) -> PathBuf {
        self.root.join("progress").join(key.hex())
    }

    pub fn partial(&self, blob: &Digest) -> PathBuf {
        self.root.join("partial").join(blob.hex())
    }

    pub fn partials(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub fn slot(&self, number: usize) -> PathBuf {
        self.slots().join(number.to_string())
    }

    pub fn slots(&self) -> PathBuf {
        self.root.join("slots")
    }

    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Has the boot in which the store was last cleaned; its time is when.
    pub fn cleaned(&self) -> PathBuf {
        self.root.join("cleaned")
    }

    /// What a file of this machine was, when it was imported.
    pub fn import(&self, key: &Digest) -> PathBuf {
        self.root.join("imports").join(format!("{}.json", key.hex()))
    }

    pub fn imports(&self) -> PathBuf {
        self.root.join("imports")
    }
}

/// Reads a small file as JSON. A file that is missing or not readable as a record counts as not there.
pub fn read_record<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(RECORD_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Writes a record beside its place and renames it there.
pub fn write_record(path: &Path, record: &impl Serialize) -> Result<()> {
    let bytes = serde_json::to_vec(record).map_err(|e| Error::at(path)(e.into()))?;
    let beside = path.with_extension(format!("new.{}", std::process::id()));
    std::fs::write(&beside, bytes).map_err(Error::at(&beside))?;
    std::fs::rename(&beside, path).map_err(Error::at(path))
}

/// The names in a folder; a folder that cannot be read has none.
pub fn names(folder: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect()
}
