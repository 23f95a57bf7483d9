//! Pulls that were stopped, by a signal or with their job: they hold locks that others wait for. A pull shows that it
//! runs by touching its lock's file; whoever waits kills the process of one that does not.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use super::Store;
use super::folders::names;
use super::lock::{Lock, Mode, POLL};
use crate::error::{Error, Result};

/// A pull is seen to be stopped when its file has not changed over so many looks.
const LOOKS: u32 = 10;
/// Times that a file is touched within the timeout.
const TOUCHES: u32 = 20;

/// The keep-alive of a pull: a thread touches the file of its lock until this is dropped.
pub struct KeepAlive {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl KeepAlive {
    /// Writes this process into the file of the pull's lock, and keeps touching it.
    pub fn start(lock: &mut Lock, timeout: Duration) -> Result<Self> {
        let path = lock.path().to_owned();
        let pid = std::process::id() as i32;
        lock.write(&format!("{pid} {}", start_time(pid).unwrap_or(0)))?;
        let file = lock.file().try_clone().map_err(Error::at(&path))?;
        let (stop, stopped) = channel::<()>();
        let touch = move || {
            while stopped.recv_timeout(timeout / TOUCHES) == Err(RecvTimeoutError::Timeout) {
                let _ = file.set_modified(SystemTime::now());
            }
        };
        let thread = std::thread::Builder::new().spawn(touch).map_err(Error::at(&path))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        // The caller may fork afterwards: the thread must be gone.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What somebody who waits has seen of the pulls. Time is counted in turns of its own waiting: whoever was stopped
/// itself has waited no longer for that.
pub struct Watcher<'a> {
    store: &'a Store,
    turns: u32,
    seen: BTreeMap<PathBuf, (SystemTime, u32)>,
}

impl<'a> Watcher<'a> {
    pub fn new(store: &'a Store) -> Self {
        Self { store, turns: 0, seen: BTreeMap::new() }
    }

    /// Called once in each turn of waiting, which takes [`POLL`].
    pub fn turn(&mut self) {
        let between =
            (self.store.options.keep_alive_timeout / LOOKS).as_millis() / POLL.as_millis();
        self.turns += 1;
        if u128::from(self.turns) < between {
            return;
        }
        self.turns = 0;
        let locks = self.store.folders.locks();
        for name in names(&locks).into_iter().filter(|n| n.to_string_lossy().starts_with("pull-")) {
            let path = locks.join(name);
            let Ok(at) = std::fs::metadata(&path).and_then(|m| m.modified()) else { continue };
            let seen = self.seen.entry(path.clone()).or_insert((at, 0));
            *seen = if seen.0 == at { (at, seen.1 + 1) } else { (at, 0) };
            if seen.1 >= LOOKS {
                end_pull(&path);
            }
        }
    }
}

/// Kills the process that holds the lock, if one does.
fn end_pull(lock: &Path) {
    if !matches!(Lock::try_take(lock, Mode::Shared), Ok(None)) {
        return;
    }
    let mut words = String::new();
    let read = std::fs::File::open(lock).and_then(|f| f.take(64).read_to_string(&mut words));
    let numbers: Vec<u64> = words.split(' ').filter_map(|word| word.parse().ok()).collect();
    let ([pid, started], Ok(_)) = (numbers.as_slice(), read) else { return };
    let Ok(pid) = i32::try_from(*pid) else { return };
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let pinned = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if pinned < 0 {
        return;
    }
    // SAFETY: the kernel has just made this descriptor for us.
    let pinned = unsafe { OwnedFd::from_raw_fd(pinned as i32) };
    // Asked after it was pinned: the pid may have become another process's.
    if start_time(pid) == Some(*started) {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        let fd = pinned.as_raw_fd();
        // SAFETY: a null siginfo is allowed; the rest are integers.
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, no_info, 0) };
    }
}

/// When the process started, in the kernel's ticks: with the pid it names one process.
fn start_time(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last parenthesis may hold anything.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
