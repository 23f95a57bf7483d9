//! Writes the file that an `sbcast` sends. The process has the rights of the job's user and nothing more: which places may be
//! written is the kernel's to say. The file has its name only once all of it has arrived.

use model::os_text;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstatat, futimens};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, unlinkat};
use ring::rand::{SecureRandom, SystemRandom};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use wire::file_copy::{self, FileCopy};

pub fn run() -> i32 {
    match receive(io::stdin().lock()) {
        Ok(()) => 0,
        Err(why) => {
            let node = std::env::var("SLURMD_NODENAME").unwrap_or_default();
            eprintln!("sbcast: error: {node}: {why}");
            1
        }
    }
}

fn receive(mut input: impl Read) -> Result<(), String> {
    let copy = file_copy::receive_header(&mut input).map_err(|error| words(&error))?;
    write(&copy, input).map_err(|error| format!("{}: {}", copy.destination, words(&error)))
}

/// The kernel's words alone, without the number.
fn words(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

fn write(copy: &FileCopy, input: impl Read) -> io::Result<()> {
    let destination = os_text::to_os(&copy.destination);
    let path = Path::new(&*destination);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Errno::EISDIR.into());
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let folder = open(folder, flags, Mode::empty())?;
    refuse_existing(&folder, name, copy.replace)?;
    // Set-user-ID and its like are of no use in a copy that others may run.
    let mode = Mode::from_bits_truncate(copy.mode & 0o777);
    let mut new = NewFile::create(&folder, mode)?;
    file_copy::receive_bytes(copy, input, &mut new.file)?;
    // A full disk or a quota may be told only now.
    new.file.sync_all()?;
    if let Some(times) = copy.preserved {
        let time = |(seconds, nanoseconds)| TimeSpec::new(seconds, nanoseconds);
        fchmod(&new.file, mode)?;
        futimens(&new.file, &time(times.accessed), &time(times.modified))?;
    }
    Ok(new.publish(name, copy.replace)?)
}

/// Says early what would be said at the end: before the bytes are sent.
fn refuse_existing(folder: &OwnedFd, name: &OsStr, replace: bool) -> nix::Result<()> {
    let there = match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(there) => there,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let is_folder = there.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    match (replace, is_folder) {
        (_, true) => Err(Errno::EISDIR),
        (false, false) => Err(Errno::EEXIST),
        (true, false) => Ok(()),
    }
}

/// A file that does not have its name yet. Where the file system can, it has none at all, and the kernel removes what a
/// killed process leaves; elsewhere it has a name of its own until it is dropped.
struct NewFile<'f> {
    folder: &'f OwnedFd,
    file: File,
    temporary: Option<String>,
}

impl<'f> NewFile<'f> {
    fn create(folder: &'f OwnedFd, mode: Mode) -> nix::Result<Self> {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        match openat(folder, ".", flags | OFlag::O_TMPFILE, mode) {
            Ok(file) => return Ok(Self { folder, file: File::from(file), temporary: None }),
            Err(Errno::EOPNOTSUPP | Errno::EISDIR | Errno::EINVAL) => {}
            Err(errno) => return Err(errno),
        }
        Self::create_named(folder, mode)
    }

    fn create_named(folder: &'f OwnedFd, mode: Mode) -> nix::Result<Self> {
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let alone = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let name = random_name()?;
        let file = openat(folder, name.as_str(), flags | alone, mode)?;
        Ok(Self { folder, file: File::from(file), temporary: Some(name) })
    }

    /// Gives the file its name. A file that has come there meanwhile is refused by the kernel, in one step with the naming.
    fn publish(mut self, name: &OsStr, replace: bool) -> nix::Result<()> {
        if !replace {
            return self.link(name);
        }
        let temporary = match self.temporary.clone() {
            Some(temporary) => temporary,
            None => {
                let temporary = random_name()?;
                self.link(OsStr::new(&temporary))?;
                self.temporary.insert(temporary).clone()
            }
        };
        renameat(self.folder, temporary.as_str(), self.folder, name)?;
        self.temporary = None;
        Ok(())
    }

    fn link(&self, name: &OsStr) -> nix::Result<()> {
        match &self.temporary {
            Some(own) => linkat(self.folder, own.as_str(), self.folder, name, AtFlags::empty()),
            None => {
                let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(AT_FDCWD, own.as_str(), self.folder, name, AtFlags::AT_SYMLINK_FOLLOW)
            }
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.temporary {
            // Nobody is left who could do more about it.
            let _ = unlinkat(self.folder, name.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn random_name() -> nix::Result<String> {
    let mut random = [0; 8];
    SystemRandom::new().fill(&mut random).map_err(|_| Errno::EIO)?;
    Ok(format!(".sbcast-{:016x}", u64::from_le_bytes(random)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use wire::file_copy::FileTimes;

    fn copy_to(path: &Path, bytes: &[u8]) -> FileCopy {
        FileCopy {
            destination: path.to_str().expect("text").to_owned(),
            length: bytes.len() as u64,
            mode: 0o755,
            preserved: None,
            replace: false,
        }
    }

    fn stream(copy: &FileCopy, bytes: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        file_copy::send(copy, bytes, &mut stream).expect("sent");
        stream
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> =
            entries.map(|entry| name(entry).into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_written_once_and_replaced_only_if_asked() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        let mut copy = copy_to(&path, b"first");
        receive(&stream(&copy, b"first")[..]).expect("written");
        assert_eq!(fs::read(&path).expect("there"), b"first");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o700, 0o700, "that of the source");
        let why = receive(&stream(&copy, b"again")[..]).expect_err("it is there");
        assert_eq!(why, format!("{}: File exists", path.display()));
        assert_eq!(fs::read(&path).expect("there"), b"first");
        copy.replace = true;
        receive(&stream(&copy, b"again")[..]).expect("replaced");
        assert_eq!(fs::read(&path).expect("there"), b"again");
        assert_eq!(names(dir.path()), ["data"], "nothing else is left");
    }

    #[test]
    fn preserved_are_mode_and_times() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        let times = FileTimes { accessed: (1_000, 1), modified: (2_000, 2) };
        let copy = FileCopy { mode: 0o6646, preserved: Some(times), ..copy_to(&path, b"x") };
        receive(&stream(&copy, b"x")[..]).expect("written");
        let there = fs::metadata(&path).expect("there");
        assert_eq!(there.permissions().mode() & 0o7777, 0o646, "whatever the umask");
        assert_eq!((there.mtime(), there.mtime_nsec()), (2_000, 2));
    }

    #[test]
    fn a_torn_copy_leaves_what_was_there_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("data");
        fs::write(&path, "old").expect("written");
        let copy = FileCopy { replace: true, ..copy_to(&path, b"new bytes") };
        let whole = stream(&copy, b"new bytes");
        for length in 0..whole.len() {
            receive(&whole[..length]).expect_err("torn");
        }
        assert_eq!(fs::read(&path).expect("there"), b"old");
        assert_eq!(names(dir.path()), ["data"]);
    }

    #[test]
    fn links_and_folders_in_the_way_are_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "kept").expect("written");
        symlink(&target, &link).expect("a link");
        fs::create_dir(dir.path().join("folder")).expect("a folder");
        let mut copy = copy_to(&link, b"new");
        assert!(receive(&stream(&copy, b"new")[..]).is_err());
        copy.replace = true;
        receive(&stream(&copy, b"new")[..]).expect("the link itself is replaced");
        assert_eq!(fs::read(&target).expect("there"), b"kept");
        assert!(fs::symlink_metadata(&link).expect("there").is_file());
        copy.destination = dir.path().join("folder").to_str().expect("text").to_owned();
        let why = receive(&stream(&copy, b"new")[..]).expect_err("a folder");
        assert!(why.ends_with("/folder: Is a directory"), "{why}");
        copy.destination = dir.path().join("no/where").to_str().expect("text").to_owned();
        let why = receive(&stream(&copy, b"new")[..]).expect_err("no folder");
        assert!(why.ends_with("/no/where: No such file or directory"), "{why}");
    }

    #[test]
    fn a_file_with_a_temporary_name_ends_with_its_own_or_with_none() {
        let dir = tempfile::tempdir().expect("a folder");
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = open(dir.path(), flags, Mode::empty()).expect("opened");
        let made = || NewFile::create_named(&folder, Mode::S_IRWXU).expect("made");
        drop(made());
        assert!(names(dir.path()).is_empty());
        made().publish(OsStr::new("data"), false).expect("named");
        let errno = made().publish(OsStr::new("data"), false).expect_err("it is there");
        assert_eq!(errno, Errno::EEXIST);
        made().publish(OsStr::new("data"), true).expect("replaced");
        assert_eq!(names(dir.path()), ["data"]);
    }
}
