//! Unpacks one archive of files. Below its target every folder is reached by handle and no link is followed, so that a link
//! of the archive, or one that is there already, leads nowhere else.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use wire::workspace::{Content, Entry, entries};

const FOLDER: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC).union(OFlag::O_RDONLY);
const NEW_FILE: OFlag =
    OFlag::O_WRONLY.union(OFlag::O_CREAT).union(OFlag::O_EXCL).union(OFlag::O_CLOEXEC);

/// Places the archive's top at `target`. Files that are there are replaced, and folders are added to.
pub(super) fn unpack(archive: &[u8], target: &Path) -> Result<(), String> {
    let entries = entries(archive).map_err(|error| error.to_string())?;
    let name = target.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("expected a path that ends with a name")?;
    let above = target.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    fs::create_dir_all(above).map_err(|e| format!("cannot make {}: {e}", above.display()))?;
    let flags = FOLDER.difference(OFlag::O_NOFOLLOW);
    let above = open(above, flags, Mode::empty())
        .map_err(|e| format!("{}: {}", above.display(), e.desc()))?;
    for entry in &entries {
        let parts: Vec<&str> =
            std::iter::once(name).chain(entry.path.iter().map(String::as_str)).collect();
        place(above.as_fd(), &parts, entry, &entries)
            .map_err(|errno| format!("cannot write {}: {}", parts.join("/"), errno.desc()))?;
    }
    Ok(())
}

fn place(root: BorrowedFd<'_>, parts: &[&str], entry: &Entry, all: &[Entry]) -> nix::Result<()> {
    let Some((name, above)) = parts.split_last() else { return Err(Errno::EINVAL) };
    let folder = folder(root, above)?;
    match &entry.content {
        Content::Folder => make_folder(folder.as_fd(), name).map(drop),
        Content::File { mode, bytes } => write(folder.as_fd(), name, *mode, bytes),
        Content::Link { target } => {
            remove_file(folder.as_fd(), name)?;
            symlinkat(target.as_str(), &folder, *name)
        }
        Content::Copy { of } => {
            let same = all.iter().rev().find_map(|one| match &one.content {
                Content::File { mode, bytes } if one.path == *of => Some((*mode, bytes)),
                _ => None,
            });
            let (mode, bytes) = same.ok_or(Errno::ENOENT)?;
            write(folder.as_fd(), name, mode, bytes)
        }
    }
}

/// The folder, whose missing parts are made.
fn folder(root: BorrowedFd<'_>, parts: &[&str]) -> nix::Result<OwnedFd> {
    let mut at = openat(root, ".", FOLDER, Mode::empty())?;
    for part in parts {
        at = make_folder(at.as_fd(), part)?;
    }
    Ok(at)
}

fn make_folder(at: BorrowedFd<'_>, name: &str) -> nix::Result<OwnedFd> {
    match mkdirat(at, name, Mode::from_bits_truncate(0o777)) {
        Ok(()) | Err(Errno::EEXIST) => openat(at, name, FOLDER, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

/// Writes a file under another name first: who reads the one that was there sees it whole.
fn write(folder: BorrowedFd<'_>, name: &str, mode: u32, bytes: &[u8]) -> nix::Result<()> {
    if is_folder(folder, name) {
        return Err(Errno::EISDIR);
    }
    let new = format!(".sluice-{}", std::process::id());
    let mode = Mode::from_bits_truncate(mode);
    let made = match openat(folder, new.as_str(), NEW_FILE, mode) {
        Err(Errno::EEXIST) => {
            remove_file(folder, &new)?;
            openat(folder, new.as_str(), NEW_FILE, mode)
        }
        made => made,
    };
    let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
    let placed = File::from(made?)
        .write_all(bytes)
        .map_err(io)
        .and_then(|()| renameat(folder, new.as_str(), folder, name));
    if placed.is_err() {
        let _ = remove_file(folder, &new);
    }
    placed
}

fn is_folder(folder: BorrowedFd<'_>, name: &str) -> bool {
    fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW)
        .is_ok_and(|status| status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits())
}

fn remove_file(folder: BorrowedFd<'_>, name: &str) -> nix::Result<()> {
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tar::{Builder, EntryType, Header};

    fn archive(files: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (name, mode, text) in files {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::Regular);
            header.set_mode(*mode);
            header.set_size(text.len() as u64);
            builder.append_data(&mut header, name, text.as_bytes()).expect("an entry");
        }
        builder.into_inner().expect("an archive")
    }

    #[test]
    fn top_takes_the_name_of_its_target_and_replaces_files() {
        let dir = tempfile::tempdir().expect("a folder");
        let one = archive(&[("a.txt", 0o4700, "new")]);
        let target = dir.path().join("deep/er/b.txt");
        unpack(&one, &target).expect("unpacked");
        assert_eq!(fs::metadata(&target).expect("there").permissions().mode() & 0o7777, 0o700);
        fs::write(&target, "old and longer").expect("written");
        unpack(&one, &target).expect("unpacked again");
        assert_eq!(fs::read_to_string(&target).expect("text"), "new");
        let tree = archive(&[("top/bin/run", 0o755, "#!"), ("top/data", 0o644, "x")]);
        fs::create_dir(dir.path().join("here")).expect("a folder");
        unpack(&tree, &dir.path().join("here")).expect("unpacked");
        assert_eq!(fs::read_to_string(dir.path().join("here/bin/run")).expect("text"), "#!");
        assert!(unpack(&one, Path::new("/")).is_err());
        let said = unpack(&one, &dir.path().join("here")).expect_err("a folder is there");
        assert!(said.contains("Is a directory"), "{said}");
    }

    #[test]
    fn links_that_are_there_lead_nowhere_else() {
        let dir = tempfile::tempdir().expect("a folder");
        let elsewhere = tempfile::tempdir().expect("a folder");
        let here = dir.path().join("here");
        fs::create_dir(&here).expect("a folder");
        symlink(elsewhere.path(), here.join("sub")).expect("a link");
        symlink(elsewhere.path().join("file"), here.join("file")).expect("a link");
        let through = archive(&[("top/sub/x", 0o644, "x")]);
        assert!(unpack(&through, &here).is_err());
        unpack(&archive(&[("top/file", 0o644, "x")]), &here).expect("the link is replaced");
        assert!(!fs::symlink_metadata(here.join("file")).expect("there").is_symlink());
        assert_eq!(fs::read_dir(elsewhere.path()).expect("listed").count(), 0);
    }
}
