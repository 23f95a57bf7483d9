//! How configuration files are reached: from the disk, or from a table in a test.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest configuration file that is read.
const FILE_BYTES_MAX: u64 = 16 << 20;

pub trait Files {
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        let read = File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if read as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("larger than {} MiB", FILE_BYTES_MAX >> 20),
            ));
        }
        Ok(text)
    }
}

/// Files held in memory, by path.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles(BTreeMap<PathBuf, String>);

impl MemoryFiles {
    #[must_use]
    pub fn with(mut self, path: impl Into<PathBuf>, text: impl Into<String>) -> MemoryFiles {
        self.0.insert(path.into(), text.into());
        self
    }
}

impl Files for MemoryFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_gives_text_and_refuses_what_is_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name| dir.path().join(name);
        std::fs::write(path("good"), "A=1\n").expect("written");
        std::fs::write(path("binary"), [0xff, 0xfe, 0x00]).expect("written");
        File::create(path("huge")).and_then(|f| f.set_len(FILE_BYTES_MAX + 1)).expect("made");
        assert_eq!(RealFiles.read(&path("good")).expect("read"), "A=1\n");
        let refused = |name| RealFiles.read(&path(name)).expect_err(name).kind();
        assert_eq!(refused("binary"), io::ErrorKind::InvalidData);
        assert_eq!(refused("huge"), io::ErrorKind::FileTooLarge);
        assert_eq!(refused("absent"), io::ErrorKind::NotFound);
    }
}
