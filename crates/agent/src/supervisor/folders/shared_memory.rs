//! Removes System V objects and files in `/dev/shm` that a user has left. They belong to no process, so they are
//! removed when the user's last process has ended, as systemd-logind does.

use crate::privilege;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::CString;
use std::os::unix::fs::MetadataExt;

/// Lower uids are system accounts, whose objects do not come from jobs.
const FIRST_USER: u32 = 1000;
const FILES: &str = "/dev/shm";
/// Objects of one kind that are read.
const OBJECTS_MAX: usize = 65_536;

/// The IPC objects and shared memory files of one user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IpcObjects {
    memory: Vec<i32>,
    semaphores: Vec<i32>,
    queues: Vec<i32>,
    files: Vec<CString>,
}

impl IpcObjects {
    pub fn is_empty(&self) -> bool {
        *self == IpcObjects::default()
    }
}

/// Finds the user's objects. Empty without root and for system accounts: those are never removed.
pub(crate) fn owned_by(uid: u32) -> IpcObjects {
    if uid < FIRST_USER || !privilege::is_root() {
        return IpcObjects::default();
    }
    let table = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap_or_default();
        objects(&text, uid)
    };
    IpcObjects {
        memory: table("shm"),
        semaphores: table("sem"),
        queues: table("msg"),
        files: files(uid),
    }
}

/// Parses one of the tables in `/proc/sysvipc`, whose first line names the columns. Returns the ids of the user's
/// objects.
fn objects(table: &str, uid: u32) -> Vec<i32> {
    let mut lines = table.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
    let place = |names: &[&str]| columns.iter().position(|column| names.contains(column));
    let Some((id, owner)) = place(&["shmid", "semid", "msqid"]).zip(place(&["uid"])) else {
        return Vec::new();
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let of = cells.get(owner)?.parse::<u32>().ok()?;
        (of == uid).then(|| cells.get(id)?.parse().ok()).flatten()
    };
    lines.take(OBJECTS_MAX).filter_map(row).collect()
}

fn files(uid: u32) -> Vec<CString> {
    let entries = std::fs::read_dir(FILES).into_iter().flatten().flatten().take(OBJECTS_MAX);
    let own = entries.filter(|entry| {
        let plain = entry.file_type().is_ok_and(|kind| kind.is_file());
        plain && entry.metadata().is_ok_and(|found| found.uid() == uid)
    });
    own.filter_map(|entry| {
        use std::os::unix::ffi::OsStrExt;
        CString::new(entry.file_name().as_bytes()).ok()
    })
    .collect()
}

/// Whether the user has a living process on this machine, of a job or not.
pub(crate) fn has_processes(uid: u32) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit()))
        .any(|entry| {
            entry.metadata().is_ok_and(|found| found.uid() == uid) && is_living(&entry.path())
        })
}

/// A zombie holds no shared memory.
fn is_living(path: &std::path::Path) -> bool {
    let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub(crate) fn remove(left: &IpcObjects, uid: u32) {
    // SAFETY: each takes numbers; removing an object that is gone is an error without effect.
    unsafe {
        for id in &left.memory {
            libc::shmctl(*id, libc::IPC_RMID, std::ptr::null_mut());
        }
        for id in &left.semaphores {
            libc::semctl(*id, 0, libc::IPC_RMID);
        }
        for id in &left.queues {
            libc::msgctl(*id, libc::IPC_RMID, std::ptr::null_mut());
        }
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let Ok(folder) = open(FILES, flags, Mode::empty()) else { return };
    for name in &left.files {
        let stat = fstatat(&folder, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| stat.st_uid == uid) {
            let _ = unlinkat(&folder, name.as_c_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_users_objects_are_found_in_each_table() {
        let shm = "       key      shmid perms   size  cpid  lpid nattch   uid   gid\n\
                   0      3  1600  10  77  77  0  1001  1001\n0  4  600  10  7  7  1  1002 1002\n";
        let sem = "       key      semid perms      nsems   uid   gid\n 5 9 600 1 1001 1001\n";
        assert_eq!(objects(shm, 1001), [3]);
        assert_eq!(objects(sem, 1001), [9]);
        assert_eq!(objects("", 1001), Vec::<i32>::new());
        assert!(owned_by(0).is_empty(), "the system's own are left alone");
    }
}
