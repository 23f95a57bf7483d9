//! The files by which `ResumeProgram` is told of its jobs: in a folder of the server's own, under names that nobody guesses, each
//! removed when its program has ended. Those of a server that was killed are removed at the next start.

use crate::clock;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const FOLDER: &str = "resume";

pub struct ResumeFiles {
    /// Absolute: the program works from elsewhere.
    folder: PathBuf,
}

impl ResumeFiles {
    /// Makes the folder, or empties the one that is there.
    pub fn open(server_dir: &Path) -> io::Result<Self> {
        let folder = std::path::absolute(server_dir.join(FOLDER))?;
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    pub fn write(&self, text: &str) -> io::Result<ResumeFile> {
        let path = self.folder.join(format!("{:032x}.json", clock::random_u128()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let written = ResumeFile(path);
        file.write_all(text.as_bytes())?;
        Ok(written)
    }
}

/// A file for one call, removed when it is dropped.
pub struct ResumeFile(PathBuf);

impl ResumeFile {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ResumeFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_the_servers_alone_and_go_with_their_call_or_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let files = ResumeFiles::open(dir.path()).expect("a folder");
        let (one, other) = (files.write("1").expect("a file"), files.write("2").expect("a file"));
        assert_ne!(one.path(), other.path());
        assert!(one.path().is_absolute() && one.path().starts_with(dir.path()));
        for path in [one.path(), &dir.path().join(FOLDER)] {
            let mode = std::fs::metadata(path).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", path.display());
        }
        let path = one.path().to_path_buf();
        drop(one);
        assert!(!path.exists());
        let left = other.path().to_path_buf();
        std::mem::forget(other);
        ResumeFiles::open(dir.path()).expect("a folder");
        assert!(!left.exists(), "a server that was killed left it");
    }
}
