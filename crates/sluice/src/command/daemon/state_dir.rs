//! The state folder: its layout and owners, and the processes that run in it.

use crate::command::verb::VerbError;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Gid, Group, Pid, Uid, User, chown};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The account that the server runs as after it has given up root, if there is one.
const SERVER_ACCOUNT: &str = "sluice";

/// Without the account, the server takes a free user id from this range. Never `nobody`: other programs of that user could
/// read the keys that sign orders.
const SERVER_IDS: RangeInclusive<u32> = 61_184..=65_519;

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
    /// Makes the folder with mode 755, and the server's own part with mode 700.
    pub fn prepare(path: &Path) -> Result<Self, VerbError> {
        let make = |dir: &Path, mode: u32| {
            std::fs::DirBuilder::new().recursive(true).mode(mode).create(dir)?;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode))
        };
        make(path, 0o755).map_err(VerbError::file(path))?;
        let path = path.canonicalize().map_err(VerbError::file(path))?;
        for (name, mode) in [("server", 0o700), ("nodes", 0o755)] {
            let dir = path.join(name);
            make(&dir, mode).map_err(VerbError::file(dir))?;
        }
        Ok(Self { path })
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
        // Written and renamed, so that nobody reads half a number.
        let path = self.pid_file(of);
        let new = path.with_extension("pid.new");
        std::fs::write(&new, format!("{}\n", std::process::id()))
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(VerbError::file(path))
    }

    /// The administrator's token, which is made at the first start.
    pub fn admin_token(&self) -> Result<String, VerbError> {
        use std::io::Write;
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.path.join("admin.token");
        if let Ok(text) = std::fs::read_to_string(&path)
            && !text.trim().is_empty()
        {
            return Ok(text.trim().to_string());
        }
        let token: String =
            ::server::clock::random::<32>().iter().map(|b| format!("{b:02x}")).collect();
        let mut options = std::fs::OpenOptions::new();
        let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        opened.and_then(|mut file| writeln!(file, "{token}")).map_err(VerbError::file(&path))?;
        Ok(token)
    }

    /// Makes the server's user the owner of its folder.
    pub fn give_server_dir(&self, user: ServerUser) -> Result<(), VerbError> {
        let mut dirs = vec![self.server_dir()];
        while let Some(dir) = dirs.pop() {
            chown(&dir, Some(user.uid), Some(user.gid))
                .map_err(|e| VerbError::file(&dir)(e.into()))?;
            for entry in std::fs::read_dir(&dir).map_err(VerbError::file(&dir))? {
                let entry = entry.map_err(VerbError::file(&dir))?;
                let kind = entry.file_type().map_err(VerbError::file(&dir))?;
                if kind.is_dir() {
                    dirs.push(entry.path());
                } else if kind.is_file() {
                    let path = entry.path();
                    chown(&path, Some(user.uid), Some(user.gid))
                        .map_err(|e| VerbError::file(&path)(e.into()))?;
                }
            }
        }
        Ok(())
    }
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
