//! A new file that only its owner can read, for a token.

use crate::command::verb::VerbError;
use nix::sys::stat::{Mode, SFlag, fchmod, fstat};
use nix::unistd::geteuid;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The mode of a file with a token in it.
const SECRET_MODE: u32 = 0o600;

/// A new file that only its owner can read. It has its name when the token is in it: an agent may wait for it. Without a token
/// there is none.
pub struct SecretFile {
    path: PathBuf,
    /// Beside `path`, until the token is written.
    fresh: PathBuf,
    file: File,
}

impl SecretFile {
    pub fn make(path: PathBuf) -> Result<Self, VerbError> {
        let Some(name) = path.file_name().filter(|_| path.symlink_metadata().is_err()) else {
            return Err(is_there(&path));
        };
        let fresh = format!(".{}.{}.new", name.to_string_lossy(), std::process::id());
        let fresh = path.with_file_name(fresh);
        // One that a crash has left may have another mode.
        let _ = std::fs::remove_file(&fresh);
        let mut how = OpenOptions::new();
        let made = how.write(true).create_new(true).mode(SECRET_MODE).open(&fresh);
        let file = made.map_err(VerbError::file(&path))?;
        Ok(Self { path, fresh, file })
    }

    pub fn write(mut self, text: &str) -> Result<(), VerbError> {
        let written = writeln!(self.file, "{}", text.trim_end());
        let written = written.and_then(|()| self.file.sync_all());
        written.and_then(|()| self.place()).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => is_there(&self.path),
            _ => VerbError::File { path: self.path.clone(), source: error },
        })
    }

    /// Gives the file its name, which nobody else's file may have.
    fn place(&self) -> io::Result<()> {
        match std::fs::hard_link(&self.fresh, &self.path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Ok(()) => Ok(()),
            // A file system without hard links.
            Err(_) => self.rename(),
        }
    }

    /// The same where a name cannot be given by a link: a rename would replace what has the name.
    fn rename(&self) -> io::Result<()> {
        if self.path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        std::fs::rename(&self.fresh, &self.path)
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.fresh);
    }
}

fn is_there(path: &Path) -> VerbError {
    let path = path.display();
    VerbError::Message(format!("{path}: is there already: expected the name of a new file"))
}

/// Takes the rights of others from what a token is printed to, where that is a file of this user: a shell makes one that everybody
/// can read. Pipes and terminals stay as they are.
pub fn close_to_others(printed_to: impl AsFd) -> io::Result<()> {
    let found = fstat(&printed_to)?;
    let is_file = SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
    let mode = Mode::from_bits_truncate(found.st_mode);
    let others = Mode::S_IRWXG | Mode::S_IRWXO;
    if is_file && found.st_uid == geteuid().as_raw() && mode.intersects(others) {
        fchmod(&printed_to, mode - others)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn file_that_a_token_is_printed_to_is_closed_to_others() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("n1.join");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path);
        close_to_others(file.expect("a file")).expect("closed");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let (_reader, writer) = io::pipe().expect("a pipe");
        close_to_others(writer).expect("a pipe is left alone");
    }

    #[test]
    fn token_goes_to_a_new_file_that_only_its_owner_can_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name);
        let file = SecretFile::make(path("n1.join")).expect("made");
        assert!(!path("n1.join").exists(), "who waits for it reads no part of it");
        file.write("secret\n").expect("written");
        assert_eq!(std::fs::read_to_string(path("n1.join")).expect("read"), "secret\n");
        assert_eq!(std::fs::metadata(path("n1.join")).expect("there").mode() & 0o777, 0o600);
        symlink("elsewhere", path("link")).expect("a link");
        for taken in ["n1.join", "link"] {
            let said = SecretFile::make(path(taken)).err().expect("refused").to_string();
            let words = format!("{}: is there already: expected", path(taken).display());
            assert!(said.starts_with(&words) && !said.contains("os error"), "{said}");
        }
        assert!(!path("elsewhere").exists());
        drop(SecretFile::make(path("refused")).expect("made"));
        let late = SecretFile::make(path("late")).expect("made");
        std::fs::write(path("late"), "another's").expect("written");
        let said = late.write("secret").expect_err("refused").to_string();
        assert!(said.contains("is there already"), "{said}");
        let later = SecretFile::make(path("later")).expect("made");
        symlink("elsewhere", path("later")).expect("a link");
        let kind = later.rename().expect_err("refused").kind();
        assert_eq!(kind, io::ErrorKind::AlreadyExists, "without hard links too");
        drop(later);
        let left = std::fs::read_dir(dir.path()).expect("listed").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["late", "later", "link", "n1.join"], "nothing is left without a token");
    }
}
