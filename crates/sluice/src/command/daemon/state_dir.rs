//! The state folder: its layout and owners, and the processes that run in it.

use super::process_lock;
use super::server_user::ServerUser;
use crate::client::server_lock::{self, ServerNote};
use crate::command::verb::VerbError;
use ::agent::socket_folder;
use ::agent::trusted_dir::TrustedDir;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{Pid, fchown, fchownat};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The processes that hold the folder's lock.
const SERVER_PROCESSES: [&str; 2] = ["server", "server-keeper"];

/// The folder's locks, if this process holds them: the one that keeps others out, and the one that commands look at.
static HELD_LOCKS: OnceLock<(File, File)> = OnceLock::new();

/// The mode of the logs.
const LOG_MODE: u32 = 0o640;

pub struct StateDir {
    pub path: PathBuf,
}

impl StateDir {
    /// Makes the folder with mode 755, and the server's own part with mode 700. Refuses a folder in which another user
    /// could plant links: whatever this process makes in it, it makes as root.
    pub fn prepare(path: &Path) -> Result<Self, VerbError> {
        let trusted = TrustedDir::make(path).map_err(VerbError::file(path))?;
        trusted.set_mode(0o755).map_err(VerbError::file(path))?;
        for (name, mode) in [("server", 0o700), ("nodes", 0o711), (socket_folder::FOLDER, 0o755)] {
            trusted.folder(name, mode).map_err(VerbError::file(trusted.path().join(name)))?;
        }
        Ok(Self { path: trusted.path().to_path_buf() })
    }

    /// Makes the folder alone, for what fills it.
    pub fn prepare_empty(path: &Path) -> Result<Self, VerbError> {
        let trusted = TrustedDir::make(path).map_err(VerbError::file(path))?;
        trusted.set_mode(0o755).map_err(VerbError::file(path))?;
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
        self.path.join(socket_folder::SOCKET)
    }

    pub fn pid_file(&self, of: &str) -> PathBuf {
        self.path.join(format!("{of}.pid"))
    }

    /// Takes the lock of the folder for the life of this process and its forks. The error if another has it.
    pub fn lock(&self) -> Result<(), VerbError> {
        let failed = |file| VerbError::file(self.path.join(file));
        // A server that was killed may hold it until the last of its threads has ended.
        let deadline = Instant::now() + KILLED_TIMEOUT;
        loop {
            let own = self.trusted()?.append(server_lock::OWN_FILE, 0o600);
            let own = own.map_err(failed(server_lock::OWN_FILE))?;
            if let Some(own) = server_lock::take(own).map_err(failed(server_lock::OWN_FILE))? {
                let shown = self.trusted()?.append(server_lock::FILE, 0o644);
                let shown = shown.and_then(server_lock::show).map_err(failed(server_lock::FILE))?;
                // They are closed with the process.
                let _ = HELD_LOCKS.set((own, shown));
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!("a server runs in {} already", self.path.display());
                return Err(VerbError::Message(text));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the last server of this folder ended without being stopped: it crashed, or its machine did. Known to who holds the
    /// lock, until this start is noted.
    pub fn has_crashed(&self) -> bool {
        let shown = HELD_LOCKS.get().map(|(_, shown)| shown);
        shown.and_then(server_lock::read_note) == Some(ServerNote::Runs)
    }

    /// Notes that a server runs from now on. Until then a refused start leaves the last note as it was.
    pub fn note_start(&self) {
        self.note(ServerNote::Runs);
    }

    /// Notes that the cluster was stopped in order.
    pub fn note_stop(&self) {
        let is_managed = std::env::var_os("NOTIFY_SOCKET").is_some();
        self.note(if is_managed { ServerNote::Ended } else { ServerNote::Stopped });
    }

    fn note(&self, note: ServerNote) {
        // A server that gave up root could not open it again.
        let noted = match HELD_LOCKS.get() {
            Some((_, shown)) => server_lock::write_note(shown, note).is_ok(),
            None => self.trusted().ok().is_some_and(|state| {
                let file = state.append(server_lock::FILE, 0o644);
                file.is_ok_and(|file| server_lock::write_note(&file, note).is_ok())
            }),
        };
        if !noted {
            tracing::debug!("{}: {note:?} is not noted", self.path.display());
        }
    }

    /// The process of this name, if it is running in this folder.
    pub fn running_pid(&self, of: &str) -> Option<Pid> {
        let pid = self.noted_pid(of)?;
        if is_killed(pid) {
            let deadline = Instant::now() + KILLED_TIMEOUT;
            while is_alive(pid) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        is_alive(pid).then_some(pid)
    }

    /// The process that holds the agent's or the keeper's lock; of a server the process that the pid file names, if the folder's
    /// lock is held. In a copy of the folder nobody holds either. The pid file tells too where the lock cannot be asked: of
    /// an agent of an earlier version, and for a user who may not open it. After an upgrade that was rolled back there is a lock's
    /// file, which that agent does not hold: it is known by its command line, if that names this folder.
    fn noted_pid(&self, of: &str) -> Option<Pid> {
        let mut is_free = false;
        if SERVER_PROCESSES.contains(&of) {
            if server_lock::is_free(&self.path) {
                return None;
            }
        } else {
            match process_lock::holder(&self.lock_file(of)) {
                Ok(Some(holder)) => return Some(holder),
                Ok(None) => is_free = true,
                Err(_) => {}
            }
        }
        let text = std::fs::read_to_string(self.pid_file(of)).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        // The pid may belong to another program by now.
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command);
        // A supervisor says which job it has and not whose folder that is: no pid file names one.
        let is_program = command.contains("sluice") && !command.starts_with("sluice: supervisor");
        let is_ours = match names_folder(&command, &self.path) {
            Some(is_this) => is_this && (!is_free || is_agent(&command)),
            None => !is_free,
        };
        (is_program && is_ours).then(|| Pid::from_raw(pid))
    }

    fn lock_file(&self, of: &str) -> PathBuf {
        self.path.join(process_lock::file_name(of))
    }

    /// Makes this process the folder's one of this name, and notes its number. The error if another is. Servers and their
    /// keepers have the folder's lock already.
    pub fn claim(&self, of: &str) -> Result<(), VerbError> {
        if !SERVER_PROCESSES.contains(&of) {
            self.lock_process(of)?;
        }
        let text = format!("{}\n", std::process::id());
        self.trusted()?
            .replace(&format!("{of}.pid"), 0o644, text.as_bytes())
            .map_err(VerbError::file(self.pid_file(of)))
    }

    /// Takes the lock of an agent or of its keeper. One that was killed may hold it until the last of its threads has ended.
    fn lock_process(&self, of: &str) -> Result<(), VerbError> {
        let path = self.lock_file(of);
        let deadline = Instant::now() + KILLED_TIMEOUT;
        loop {
            let file = self.trusted()?.append(&process_lock::file_name(of), process_lock::MODE);
            let is_taken = file.and_then(process_lock::take).map_err(VerbError::file(&path))?;
            if is_taken {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = format!("the {of} of {} runs already", self.path.display());
                return Err(VerbError::Message(text));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
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

/// Whether a command line names this state folder or another: in a copy of a folder pid files are those of the other. `None` where
/// it names none by a whole path.
fn names_folder(command: &str, folder: &Path) -> Option<bool> {
    let mut words = command.split('\0').skip_while(|word| *word != "--state").skip(1);
    let named = words.next().map(Path::new).filter(|path| path.is_absolute())?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    Some(real(named) == real(folder))
}

/// Whether a command line is that of an agent or of its keeper.
fn is_agent(command: &str) -> bool {
    command.split('\0').nth(1) == Some("agent")
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

/// How long a killed process may take to end before it counts as running.
const KILLED_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Whether SIGKILL was sent to it, or it is about to end: what it does in the kernel, as a write to disk, it does first.
fn is_killed(pid: Pid) -> bool {
    /// `PF_EXITING` of the kernel.
    const EXITING: u64 = 4;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |key: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(key));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    let kill = 1 << (Signal::SIGKILL as u64 - 1);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let flags = after_name.split_whitespace().nth(6).and_then(|flags| flags.parse().ok());
    (pending("ShdPnd:") | pending("SigPnd:")) & kill != 0 || flags.unwrap_or(0) & EXITING != 0
}

/// A zombie counts as ended: only its parent has not waited for it yet.
fn is_alive(pid: Pid) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_of_another_state_folder_is_known_by_its_command_line() {
        let here = Path::new("/srv/one");
        for (command, is_this) in [
            ("sluice\0up\0--state\0/srv/one\0--listen\0x\0", Some(true)),
            ("sluice\0agent\0--keep\0--state\0/srv/two\0", Some(false)),
            ("sluice\0agent\0--state\0relative\0", None),
            ("sluice\0agent\0", None),
        ] {
            assert_eq!(names_folder(command, here), is_this, "{command}");
        }
    }
}
