//! The texts that a configuration is read from: files on disk, or texts held in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

const FILE_BYTES_MAX: u64 = 16 << 20;

pub trait Files {
    fn read(&self, path: &Path) -> io::Result<String>;
}

/// The files on disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn read(&self, path: &Path) -> io::Result<String> {
        let mut text = String::new();
        // One byte past the bound tells a file that is too large from one that just fits.
        File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let reason = format!("larger than {} MiB", FILE_BYTES_MAX >> 20);
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(text)
    }
}

/// Texts by path. A path is looked up exactly as written.
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
        self.0.get(path).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_disk_are_text_of_a_bounded_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("good"), "ClusterName=lab\n").expect("written");
        std::fs::write(path("binary"), [0xff, 0xfe, 0x00]).expect("written");
        let large = File::create(path("large")).expect("made");
        large.set_len(FILE_BYTES_MAX + 1).expect("a sparse file");
        let full = File::create(path("full")).expect("made");
        full.set_len(FILE_BYTES_MAX).expect("a sparse file");

        assert_eq!(RealFiles.read(&path("good")).expect("text"), "ClusterName=lab\n");
        assert_eq!(RealFiles.read(&path("full")).expect("text").len() as u64, FILE_BYTES_MAX);
        let refusal = |name: &str| RealFiles.read(&path(name)).expect_err("refused");
        assert_eq!(refusal("binary").kind(), ErrorKind::InvalidData);
        assert_eq!(refusal("large").kind(), ErrorKind::FileTooLarge);
        assert_eq!(refusal("large").to_string(), "larger than 16 MiB");
        assert_eq!(refusal("absent").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn texts_in_memory_are_found_by_their_exact_path() {
        let files = MemoryFiles::default().with("/c/a", "first").with("/c/a", "second");
        assert_eq!(files.read(Path::new("/c/a")).expect("text"), "second");
        let absent = files.read(Path::new("/c/./b")).expect_err("absent");
        assert_eq!(absent.to_string(), "entity not found");
    }
}
