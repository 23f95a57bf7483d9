//! The process that holds a container's namespaces, as the first process in them: tasks of a step that run in one
//! container share its files, its processes and its memory, as they would on the node itself.
//!
//! It is in the group of the process that made it, and is killed with what that leaves running. The holder of a named
//! container is in a group of the job's own, and lives for as long as the container has users, of whichever step.

use crate::cgroup::EntryFds;
use crate::pidfd;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pause, pipe2, read, write};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Ids inside a container that has a user namespace: as many as images use.
pub(super) const IDS: u32 = model::site::ID_RANGE_IDS;

/// How ids inside a container are those of the node: 0 is the job's user, the others have a range of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct IdMap {
    pub uid: u32,
    pub gid: u32,
    pub range: u32,
    /// The range of groups, where it is another than that of users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid_range: Option<u32>,
}

/// Ids from `inside` on are those of the node from `outside` on.
pub(super) struct MappedIds {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

impl IdMap {
    pub fn uids(&self) -> [MappedIds; 2] {
        mapped(self.uid, self.range)
    }

    pub fn gids(&self) -> [MappedIds; 2] {
        mapped(self.gid, self.gid_range.unwrap_or(self.range))
    }
}

fn mapped(first: u32, range: u32) -> [MappedIds; 2] {
    [
        MappedIds { inside: 0, outside: first, count: 1 },
        MappedIds { inside: 1, outside: range, count: IDS - 1 },
    ]
}

/// A process by pid and start time, so that another process with the same pid is not taken for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Holder {
    pub pid: i32,
    started: u64,
}

/// What the holder of a named container has beside: its group, and the file that its users lock.
pub(super) struct Shared<'a> {
    pub group: &'a EntryFds,
    pub users: OwnedFd,
}

/// The user namespace that a holder is started in.
#[derive(Clone, Copy)]
pub(super) enum UserNamespace<'a> {
    OfNode,
    New(&'a IdMap),
    /// One that is there, with its map.
    Made(&'a OwnedFd),
}

impl Holder {
    /// Starts it in new pid and IPC namespaces, as a child of this process's parent. It keeps `kept` open.
    pub fn start(
        user: UserNamespace,
        kept: Vec<OwnedFd>,
        shared: Option<Shared>,
    ) -> Result<Holder, String> {
        let failed = |e: Errno| format!("cannot make the container's namespaces: {}", e.desc());
        if shared.is_none() && !matches!(user, UserNamespace::Made(_)) {
            let pid = start_in_new_namespaces(user, kept, None, libc::CLONE_PARENT);
            return Holder::of(pid.map_err(failed)?);
        }
        let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        // A process in between enters the group or the user namespace, and ends at once, so that the holder is the
        // supervisor's child and not the container's.
        // SAFETY: this process has one thread, and the child ends below.
        match unsafe { fork() }.map_err(failed)? {
            ForkResult::Child => {
                let entered = shared.as_ref().map_or(Ok(()), |shared| shared.group.enter());
                let users = shared.map(|shared| shared.users);
                let started = entered.and_then(|()| start_in_new_namespaces(user, kept, users, 0));
                let word = match started {
                    Ok(pid) => pid.to_string(),
                    Err(errno) => errno.desc().to_owned(),
                };
                let _ = write(&say, word.as_bytes());
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(0) }
            }
            ForkResult::Parent { child } => {
                drop(say);
                let mut word = [0; 256];
                let length = read(&said, &mut word).unwrap_or(0);
                let _ = waitpid(child, None);
                let word = String::from_utf8_lossy(&word[..length]).into_owned();
                let pid = word
                    .parse()
                    .map_err(|_| format!("cannot make the container's namespaces: {word}"))?;
                Holder::of(pid)
            }
        }
    }

    fn of(pid: i32) -> Result<Holder, String> {
        let started = start_time(pid).ok_or("the container's first process is gone")?;
        Ok(Holder { pid, started })
    }

    /// The user namespace that it was started in.
    pub fn user_namespace(&self) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        open(self.namespace("user").as_str(), flags, Mode::empty())
    }

    pub fn is_alive(&self) -> bool {
        start_time(self.pid) == Some(self.started)
    }

    /// Kills it, and with it all processes in its namespaces. Returns when it is dead.
    pub fn end(&self) {
        // The pid is asked about after it was pinned: it may have become another process's.
        let Ok(pinned) = pidfd::open(self.pid) else { return };
        if self.is_alive() && pidfd::send_signal(pinned.as_fd(), Signal::SIGKILL).is_ok() {
            let mut fds = [PollFd::new(pinned.as_fd(), PollFlags::POLLIN)];
            while poll(&mut fds, PollTimeout::NONE) == Err(Errno::EINTR) {}
        }
    }

    /// Enters its network namespace, which may be the node's.
    pub fn join_network(&self) -> Result<(), String> {
        self.join("net", CloneFlags::CLONE_NEWNET)
    }

    /// Enters its mount namespace.
    pub fn join_mounts(&self) -> Result<(), String> {
        self.join("mnt", CloneFlags::CLONE_NEWNS)
    }

    fn join(&self, kind: &str, flag: CloneFlags) -> Result<(), String> {
        let failed = |e: Errno| format!("cannot join the container: {}", e.desc());
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let namespace =
            open(self.namespace(kind).as_str(), flags, Mode::empty()).map_err(failed)?;
        // Asked after it was opened: the pid may have become another process's.
        if !self.is_alive() {
            return Err("cannot join the container: it has ended".into());
        }
        setns(namespace, flag).map_err(failed)
    }

    /// The path of one of its namespaces: `mnt`, `net`, `pid`, `ipc`, `user`.
    pub fn namespace(&self, kind: &str) -> String {
        format!("/proc/{}/ns/{kind}", self.pid)
    }
}

/// When the process started, in the kernel's ticks; `None` if there is none.
fn start_time(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before the last parenthesis may hold anything. The state follows it, and the start is 19 fields on.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// `parent` is `CLONE_PARENT` to make it a child of this process's own parent.
fn start_in_new_namespaces(
    user: UserNamespace,
    kept: Vec<OwnedFd>,
    users: Option<OwnedFd>,
    parent: libc::c_int,
) -> nix::Result<i32> {
    let (map, new_user) = match user {
        UserNamespace::OfNode => (None, 0),
        UserNamespace::New(map) => (Some(map), libc::CLONE_NEWUSER),
        UserNamespace::Made(namespace) => {
            setns(namespace, CloneFlags::CLONE_NEWUSER)?;
            (None, 0)
        }
    };
    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWIPC | new_user | parent | libc::SIGCHLD;
    // SAFETY: without a stack of its own the child goes on with a copy of this one, as after a fork; it never returns.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    match Errno::result(pid)? as i32 {
        0 => hold(&kept, users),
        pid => {
            if let Some(Err(errno)) = map.map(|map| map.write_for(pid)) {
                // Nobody would know it.
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                return Err(errno);
            }
            Ok(pid)
        }
    }
}

fn hold(kept: &[OwnedFd], users: Option<OwnedFd>) -> ! {
    let _ = prctl::set_name(c"sluice:container");
    let _ = prctl::set_dumpable(false);
    // Ended processes of the container are reaped by the kernel.
    // SAFETY: ignoring a signal runs no code of ours.
    let _ = unsafe { signal(Signal::SIGCHLD, SigHandler::SigIgn) };
    close_all_but(kept.iter().chain(&users).map(AsRawFd::as_raw_fd));
    if let Some(users) = users {
        wait_for_no_user(users);
        // SAFETY: ends this process without the exit handlers of the one it was forked from.
        unsafe { libc::_exit(0) }
    }
    loop {
        // The first process of a pid namespace has no other signal to fear than the kill.
        pause();
    }
}

/// Returns when the container has no user any more, and notes that in the file.
fn wait_for_no_user(users: OwnedFd) {
    let mut file = File::from(users);
    loop {
        match Flock::lock(file, FlockArg::LockExclusive) {
            Ok(lock) => {
                let _ = lock.set_len(1);
                return;
            }
            Err((again, Errno::EINTR)) => file = again,
            // Without a lock nobody can be seen to use it: it ends with the job.
            Err(_) => loop {
                pause();
            },
        }
    }
}

/// Closes what a process inherited that is never executed. Streams of tasks may be among it, whose end a client awaits.
pub(super) fn close_all_but(kept: impl Iterator<Item = RawFd>) {
    let mut kept: Vec<u32> = kept.map(|fd| fd as u32).collect();
    kept.sort_unstable();
    let mut first = 0;
    for last in kept.into_iter().chain([u32::MAX]) {
        if first < last {
            // SAFETY: nothing here uses a descriptor any more.
            unsafe { libc::syscall(libc::SYS_close_range, first, last - 1, 0) };
        }
        first = last.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_tells_a_process_from_another() {
        let own = std::process::id() as i32;
        assert_eq!(start_time(own), start_time(own));
        assert!(start_time(own).is_some_and(|at| at > 0));
        assert_eq!(start_time(i32::MAX), None);
        let dead = Holder { pid: own, started: 1 };
        assert!(!dead.is_alive(), "another process with its pid");
    }

    #[test]
    fn map_makes_root_inside_the_user_outside() {
        let lines = |ids: [MappedIds; 2]| ids.map(|ids| (ids.inside, ids.outside, ids.count));
        let map = IdMap { uid: 1000, gid: 100, range: 0x7000_0000, gid_range: None };
        let others = (1, 0x7000_0000, 65_535);
        assert_eq!(lines(map.uids()), [(0, 1000, 1), others]);
        assert_eq!(lines(map.gids()), [(0, 100, 1), others]);
        let map = IdMap { gid_range: Some(200_000), ..map };
        assert_eq!(lines(map.uids())[1], others);
        assert_eq!(lines(map.gids()), [(0, 100, 1), (1, 200_000, 65_535)]);
    }
}
