//! The state folder: its layout and owners, and the processes that run in it.

use crate::command::verb::VerbError;
use ::agent::trusted_dir::TrustedDir;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Gid, Group, Pid, Uid, User, fchown, fchownat};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The account that the server runs as after it has given up root, if there is one.
const SERVER_ACCOUNT: &str = "sluice";

/// Without the account, the server takes a free user id from this range. Never `nobody`: other programs of that user could
/// read the keys that sign orders.
const SERVER_IDS: RangeInclusive<u32> = 61_184..=65_519;

/// The mode of the logs.
const LOG_MODE: u32 = 0o640;

pub struct StateDir {
    pub path: PathBuf,
}

/// The account that the server runs as.
#[derive(Debug, Clone, Copy)]
pub struct ServerUser {
    pub uid: Uid,
    pub gid: Gid,
}

impl StateDir {
    /// Makes the folder with mode 755, and the server's own part with mode 700. Refuses a folder in which another user
    /// could plant links: whatever this process makes in it, it makes as root.
    pub fn prepare(path: &Path) -> Result<Self, VerbError> {
        let trusted = TrustedDir::make(path).map_err(VerbError::file(path))?;
        trusted.set_mode(0o755).map_err(VerbError::file(path))?;
        for (name, mode) in [("server", 0o700), ("nodes", 0o755)] {
            trusted.folder(name, mode).map_err(VerbError::file(trusted.path().join(name)))?;
        }
        Ok(Self { path: trusted.path().to_path_buf() })
    }

    /// The open folder, to make files in it.
    pub fn trusted(&self) -> Result<TrustedDir, VerbError> {
        TrustedDir::open(&self.path).map_err(VerbError::file(&self.path))
    }

    pub fn open(path: &Path) -> Self {
        Self { path: path.to_path_buf() }
    }

    pub fn server_dir(&self) -> PathBuf {
        self.path.join("server")
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("sluice.sock")
    }

    pub fn pid_file(&self, of: &str) -> PathBuf {
        self.path.join(format!("{of}.pid"))
    }

    /// The process that a pid file names, if it is running and is one of ours.
    pub fn running_pid(&self, of: &str) -> Option<Pid> {
        let text = std::fs::read_to_string(self.pid_file(of)).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        // The pid may belong to another program by now.
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let ours = String::from_utf8_lossy(&command).contains("sluice");
        let pid = Pid::from_raw(pid);
        // Another user's process may not be signalled, but it is running.
        let lives = matches!(kill(pid, None), Ok(()) | Err(Errno::EPERM));
        (ours && lives).then_some(pid)
    }

    pub fn write_pid(&self, of: &str) -> Result<(), VerbError> {
        let text = format!("{}\n", std::process::id());
        self.trusted()?
            .replace(&format!("{of}.pid"), 0o644, text.as_bytes())
            .map_err(VerbError::file(self.pid_file(of)))
    }

    /// The log of a process in the background. Its lines tell what users ask for, so it is not for everybody.
    pub fn open_log(&self, name: &str) -> Result<std::fs::File, VerbError> {
        let opened = self.trusted()?.append(name, LOG_MODE);
        opened.map_err(VerbError::file(self.path.join(name)))
    }

    /// Makes the server's user the owner of its folder. The folder belongs to that user already at a second start, so
    /// it is walked by handle: a link in it is left alone, and so is a file with a second name elsewhere.
    pub fn give_server_dir(&self, user: ServerUser) -> Result<(), VerbError> {
        let dir = self.server_dir();
        let given = self.trusted()?.folder("server", 0o700).and_then(|own| give_tree(own, user));
        given.map_err(VerbError::file(dir))
    }
}

fn give_tree(top: OwnedFd, user: ServerUser) -> std::io::Result<()> {
    let own = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut dirs = vec![top];
    while let Some(dir) = dirs.pop() {
        fchown(&dir, Some(user.uid), Some(user.gid))?;
        let mut entries =
            Dir::from_fd(openat(&dir, ".", own | OFlag::O_DIRECTORY, Mode::empty())?)?;
        for entry in entries.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let handle = openat(&dir, name, own | OFlag::O_PATH, Mode::empty())?;
            let stat = fstat(&handle)?;
            match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
                SFlag::S_IFDIR => {
                    dirs.push(openat(&handle, ".", own | OFlag::O_DIRECTORY, Mode::empty())?);
                }
                SFlag::S_IFREG if stat.st_nlink == 1 => {
                    let empty = AtFlags::AT_EMPTY_PATH;
                    fchownat(&handle, c"", Some(user.uid), Some(user.gid), empty)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// The user to run as instead of root; `None` if this process is not root.
pub fn server_user() -> Result<Option<ServerUser>, VerbError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let account = User::from_name(SERVER_ACCOUNT).ok().flatten();
    let account = account.map(|user| ServerUser { uid: user.uid, gid: user.gid });
    let found = account.or_else(|| SERVER_IDS.into_iter().find_map(free_id));
    let nobody_left = || {
        let (first, last) = SERVER_IDS.into_inner();
        VerbError::Message(format!(
            "no user to give up root for: make an account {SERVER_ACCOUNT}, \
             or leave a user id from {first} to {last} free"
        ))
    };
    found.ok_or_else(nobody_left).map(Some)
}

/// The id, if no account and no group has it.
fn free_id(id: u32) -> Option<ServerUser> {
    let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
    let free = matches!(User::from_uid(uid), Ok(None)) && matches!(Group::from_gid(gid), Ok(None));
    free.then_some(ServerUser { uid, gid })
}

/// Gives up root for good.
pub fn give_up_root(user: ServerUser) -> Result<(), VerbError> {
    let failed = |e: nix::Error| VerbError::Message(format!("root cannot be given up: {e}"));
    nix::unistd::setgroups(&[user.gid]).map_err(failed)?;
    nix::unistd::setresgid(user.gid, user.gid, user.gid).map_err(failed)?;
    nix::unistd::setresuid(user.uid, user.uid, user.uid).map_err(failed)?;
    super::core_dump::forbid()?;
    match nix::unistd::setuid(Uid::from_raw(0)) {
        Ok(()) => Err(VerbError::Message("root could be taken back after it was given up".into())),
        Err(_) => Ok(()),
    }
}

/// Whether this user may signal the process.
pub fn may_signal(pid: Pid) -> bool {
    kill(pid, None) != Err(Errno::EPERM)
}

/// Sends SIGTERM and waits. Returns whether the process has ended.
pub fn terminate(pid: Pid, timeout: Duration) -> bool {
    if let Err(error) = kill(pid, Signal::SIGTERM) {
        return error == Errno::ESRCH;
    }
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if !is_alive(pid) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// A zombie counts as ended: only its parent has not waited for it yet.
fn is_alive(pid: Pid) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}
