//! Namespaces in which a job sees folders of its own in the place of the machine's: `/tmp`, `/dev/shm`. They live as
//! long as a process of the job or its supervisor does, and with them all that was mounted there.

use super::scratch::{Place, Scratch, give};
use crate::spool::LaunchRecord;
use model::site::PrivateFolders;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, read, write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

/// A folder of memory instead of disk, with the System V objects that go with it.
const SHARED_MEMORY: &str = "/dev/shm";

/// What a process of the job enters before it becomes its user.
#[derive(Debug)]
pub(crate) struct Namespaces {
    fds: Vec<OwnedFd>,
}

impl PartialEq for Namespaces {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |own: &Self| own.fds.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        numbers(self) == numbers(other)
    }
}

impl Eq for Namespaces {}

/// What the supervisor has made for the job's processes on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    pub scratch: Option<String>,
    pub namespaces: Option<Arc<Namespaces>>,
}

impl Namespaces {
    pub fn enter(&self) -> Result<(), Errno> {
        self.fds.iter().try_for_each(|fd| setns(fd, CloneFlags::empty()))
    }
}

/// Makes the job's versions of the folders, and the namespaces that show them.
pub(super) fn make(
    folders: &PrivateFolders,
    record: &LaunchRecord,
) -> Result<(Scratch, Namespaces), String> {
    let user = &record.launch.user;
    if folders.make_base {
        make_base(&folders.base)?;
    }
    let place = Place::in_base(&folders.base, &record.group_root);
    let (scratch, own) = Scratch::make(&place, record.attempt, None)?;
    let mut shown = Vec::new();
    for (number, dir) in folders.dirs.iter().enumerate() {
        let failed = |e: Errno| format!("cannot make a private {dir}: {}", e.desc());
        if dir == SHARED_MEMORY {
            shown.push((dir.as_str(), None));
            continue;
        }
        let name = number.to_string();
        mkdirat(&own, name.as_str(), Mode::S_IRWXU).map_err(failed)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let version = openat(&own, name.as_str(), flags, Mode::empty()).map_err(failed)?;
        give(&version, user).map_err(failed)?;
        shown.push((dir.as_str(), Some(scratch.path().join(name))));
    }
    match unshared(&shown) {
        Ok(namespaces) => Ok((scratch, namespaces)),
        Err(why) => {
            let _ = scratch.remove();
            Err(why)
        }
    }
}

fn make_base(base: &str) -> Result<(), String> {
    match std::fs::create_dir_all(base) {
        Ok(()) => Ok(()),
        Err(e) => Err(format!("cannot make {base}: {e}")),
    }
}

/// A short-lived child makes the namespaces; held by descriptor they outlive it.
fn unshared(shown: &[(&str, Option<PathBuf>)]) -> Result<Namespaces, String> {
    let failed = |e: Errno| format!("cannot make the job's namespace: {}", e.desc());
    let memory = shown.iter().any(|(dir, _)| *dir == SHARED_MEMORY);
    let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    // SAFETY: the supervisor has one thread, and the child below never returns from here.
    let child = match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop(said);
            let word = match arrange(shown, memory) {
                Ok(()) => "ok".to_owned(),
                Err((what, errno)) => format!("{what}: {}", errno.desc()),
            };
            let _ = write(&say, word.as_bytes());
            loop {
                // Until the supervisor holds the namespaces, and kills it.
                nix::unistd::pause();
            }
        }
    };
    drop(say);
    let held = hold(child, &said, memory);
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    held
}

fn hold(child: Pid, said: &OwnedFd, memory: bool) -> Result<Namespaces, String> {
    let mut word = [0; 512];
    let length = read(said, &mut word).unwrap_or(0);
    if &word[..length] != b"ok" {
        let why = String::from_utf8_lossy(&word[..length]).into_owned();
        return Err(format!("cannot make the job's private folders: {why}"));
    }
    let kinds = if memory { &["mnt", "ipc"][..] } else { &["mnt"] };
    let open = |kind: &&str| {
        let path = format!("/proc/{child}/ns/{kind}");
        open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("cannot hold the job's namespace: {}", e.desc()))
    };
    Ok(Namespaces { fds: kinds.iter().map(open).collect::<Result<_, _>>()? })
}

/// In the child: what is mounted on the machine later is seen, what is mounted here is seen nowhere else.
fn arrange(shown: &[(&str, Option<PathBuf>)], memory: bool) -> Result<(), (String, Errno)> {
    let ipc = if memory { CloneFlags::CLONE_NEWIPC } else { CloneFlags::empty() };
    unshare(CloneFlags::CLONE_NEWNS | ipc).map_err(|e| ("unshare".into(), e))?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|e| ("/".into(), e))?;
    for (dir, version) in shown {
        let done = match version {
            // By path: a handle from outside is not of this namespace. Every folder on the way is ours alone.
            Some(version) => mount(Some(version), *dir, none, MsFlags::MS_BIND, none),
            None => {
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                mount(Some("tmpfs"), *dir, Some("tmpfs"), flags, Some("mode=1777"))
            }
        };
        done.map_err(|errno| ((*dir).to_owned(), errno))?;
    }
    Ok(())
}
