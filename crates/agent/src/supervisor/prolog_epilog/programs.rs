//! Finds the node's prolog and epilog programs by path, folder or pattern, and checks that only root could have put
//! them there.

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::unistd::Uid;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Programs of one kind; a folder with more is a mistake.
const PROGRAMS_MAX: usize = 256;

const LOOK: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Returns the programs that `patterns` name, sorted by name within each pattern. A pattern or folder without programs
/// is fine; a path that does not exist is an error.
pub(crate) fn find(patterns: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut programs = Vec::new();
    for pattern in patterns {
        let path = Path::new(pattern);
        if !path.is_absolute() {
            return Err(format!("{pattern}: not a path from the root"));
        }
        let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
        let found = if name.iter().any(|byte| matches!(byte, b'*' | b'?')) {
            let folder = path.parent().unwrap_or(Path::new("/"));
            list_folder(folder, |entry| matches(name, entry))?
        } else if path.is_dir() {
            list_folder(path, |_| true)?
        } else {
            vec![path.to_path_buf()]
        };
        programs.extend(found);
    }
    if programs.len() > PROGRAMS_MAX {
        return Err(format!("{} programs, at most {PROGRAMS_MAX}", programs.len()));
    }
    programs.iter().map(|path| trusted_path(path)).collect()
}

fn list_folder(folder: &Path, wanted: impl Fn(&[u8]) -> bool) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let hidden = name.as_bytes().starts_with(b".");
        if !hidden && wanted(name.as_bytes()) && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// `*` is any bytes, `?` is one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|skipped| matches(rest, &name[skipped..])),
        Some((b'?', rest)) => name.split_first().is_some_and(|(_, name)| matches(rest, name)),
        Some((byte, rest)) => {
            name.split_first().is_some_and(|(first, name)| first == byte && matches(rest, name))
        }
    }
}

/// Returns the program's real path if only root or this process's user can change it or a folder above it. Each folder
/// is opened relative to its parent, so that no check can be bypassed by a rename.
fn trusted_path(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let real = path.canonicalize().map_err(|e| format!("{shown}: {e}"))?;
    let failed = |e: nix::Error| format!("{shown}: {}", e.desc());
    let mut at: OwnedFd = open("/", LOOK | OFlag::O_DIRECTORY, Mode::empty()).map_err(failed)?;
    let mut stat = fstat(&at).map_err(failed)?;
    for part in real.components() {
        let Component::Normal(name) = part else { continue };
        check_permissions(&stat).map_err(|why| format!("{shown}: a folder above it {why}"))?;
        at = openat(&at, name, LOOK, Mode::empty()).map_err(failed)?;
        stat = fstat(&at).map_err(failed)?;
    }
    let kind = SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits());
    if kind != SFlag::S_IFREG {
        return Err(format!("{shown}: not a file"));
    }
    if stat.st_mode & 0o111 == 0 {
        return Err(format!("{shown}: may not be executed"));
    }
    check_permissions(&stat).map_err(|why| format!("{shown}: it {why}"))?;
    Ok(real)
}

fn check_permissions(stat: &FileStat) -> Result<(), String> {
    let ours = Uid::effective().as_raw();
    if stat.st_uid != 0 && stat.st_uid != ours {
        return Err(format!("belongs to user {}", stat.st_uid));
    }
    let folder = stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let sticky = folder && stat.st_mode & 0o1000 != 0;
    if stat.st_mode & 0o022 != 0 && !sticky {
        return Err("may be written by others".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(dir: &Path, name: &str, mode: u32) -> String {
        let path = dir.join(name);
        std::fs::write(&path, "#!/bin/sh\n").expect("a file");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
        path.display().to_string()
    }

    fn names(found: Vec<PathBuf>) -> Vec<String> {
        found.iter().filter_map(|p| Some(p.file_name()?.to_string_lossy().into_owned())).collect()
    }

    #[test]
    fn programs_of_folders_and_patterns_are_sorted_by_name() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        for name in ["30-c.sh", "10-a.sh", "20-b.txt", ".hidden.sh"] {
            program(dir.path(), name, 0o755);
        }
        let folder = dir.path().display().to_string();
        let find = |pattern: String| names(find(&[pattern]).expect("programs"));
        assert_eq!(find(folder.clone()), ["10-a.sh", "20-b.txt", "30-c.sh"]);
        assert_eq!(find(format!("{folder}/*.sh")), ["10-a.sh", "30-c.sh"]);
        assert_eq!(find(format!("{folder}/?0-b*")), ["20-b.txt"]);
        assert!(find(format!("{folder}/*.py")).is_empty());
    }

    #[test]
    fn program_that_others_may_write_is_refused() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let refused = |path: String| find(&[path]).expect_err("not to be run");
        let open = program(dir.path(), "open", 0o777);
        assert!(refused(open).ends_with("it may be written by others"));
        assert!(refused(program(dir.path(), "plain", 0o644)).ends_with("may not be executed"));
        assert!(refused(format!("{}/gone", dir.path().display())).contains("No such file"));
        assert!(refused("relative/path".into()).contains("not a path from the root"));
        let good = program(dir.path(), "good", 0o755);
        assert_eq!(names(find(std::slice::from_ref(&good)).expect("a program")), ["good"]);
        let anybodys = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(dir.path(), anybodys).expect("a mode");
        assert!(refused(good).contains("a folder above it may be written by others"));
    }
}
