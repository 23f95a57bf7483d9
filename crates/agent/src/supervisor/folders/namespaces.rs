//! Mount and IPC namespaces in which a job sees private folders instead of the machine's `/tmp` and `/dev/shm`. They
//! live as long as the job's supervisor or one of its processes does.

use super::volumes;
use crate::ownership::give_to_user;
use crate::spool::LaunchRecord;
use crate::supervisor::agent_connections;
use crate::supervisor::folders::scratch::{Scratch, ScratchLocation};
use crate::supervisor::process_title::is_title_of;
use crate::trusted_dir::TrustedDir;
use model::amount::Bytes;
use model::id::AttemptId;
use model::site::PrivateFolders;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2, read, write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use wire::order::UserIds;
use wire::volume::LaunchVolume;

/// Private as a tmpfs, together with an IPC namespace for System V objects.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
/// The kinds of namespaces, as `/proc/PID/ns` names them.
const KINDS: [&str; 2] = ["mnt", "ipc"];
/// What the child that makes the namespaces says: this when they are there, or why not; with a mark where it is the job's fault.
const MADE: &str = "ok";
const OF_JOB: &str = "job: ";
const WORD_BYTES_MAX: usize = 1024;

/// The namespaces of one job. Its processes enter them before they become the user.
#[derive(Debug)]
pub(crate) struct Namespaces {
    fds: Vec<OwnedFd>,
}

impl Namespaces {
    pub fn enter(&self) -> Result<(), Errno> {
        self.fds.iter().try_for_each(|fd| setns(fd, CloneFlags::empty()))
    }
}

pub(crate) struct PrivateScratch {
    pub scratch: Scratch,
    /// Why the disk quota could not be set, if so.
    pub complaint: Option<String>,
}

/// Opens the namespaces that an attempt's supervisor holds, for a login that joins the job.
pub(crate) fn open_held_by(supervisor: i32, attempt: AttemptId) -> Result<Vec<OwnedFd>, String> {
    let failed = |e: std::io::Error| format!("cannot see the job's private folders: {e}");
    let folder = PathBuf::from(format!("/proc/{supervisor}"));
    // The pid may have been reused by a process of another name.
    let name = std::fs::read_to_string(folder.join("comm")).map_err(failed)?;
    if !is_title_of(&name, attempt) {
        return Err("the job is ending".into());
    }
    let mut found: Vec<(PathBuf, OwnedFd)> = Vec::new();
    for entry in std::fs::read_dir(folder.join("fd")).map_err(failed)?.flatten() {
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        let is_one =
            KINDS.iter().any(|kind| link.to_string_lossy().starts_with(&format!("{kind}:[")));
        if is_one && found.iter().all(|(known, _)| *known != link) {
            let file = std::fs::File::open(entry.path()).map_err(failed)?;
            found.push((link, file.into()));
        }
    }
    if found.is_empty() {
        Err("the job's private folders are not there yet".into())
    } else {
        Ok(found.into_iter().map(|(_, fd)| fd).collect())
    }
}

/// Makes the job's versions of the private folders. They are not mounted yet.
pub(crate) fn make_private_folders(
    folders: &PrivateFolders,
    record: &LaunchRecord,
    beside: Option<&Scratch>,
) -> Result<PrivateScratch, String> {
    let user = &record.launch.user;
    if folders.make_base {
        make_base(&folders.base)?;
    }
    let location = ScratchLocation::in_base(&folders.base, &record.group_root);
    let (mut scratch, own) = Scratch::make(&location, record.attempt, None)?;
    let mut complaint = None;
    if let Some(limit) = record.limits.scratch {
        let job = (record.group_root.as_str(), record.attempt);
        complaint = scratch.limit(&own, limit, job, beside).err();
    }
    for (number, dir) in on_disk(folders) {
        let failed = |e: Errno| format!("cannot make a private {dir}: {}", e.desc());
        let name = number.to_string();
        mkdirat(&own, name.as_str(), Mode::S_IRWXU).map_err(failed)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let version = openat(&own, name.as_str(), flags, Mode::empty()).map_err(failed)?;
        give_to_user(&version, user.uid, user.gid).map_err(failed)?;
    }
    Ok(PrivateScratch { scratch, complaint })
}

/// The private folders on disk, with the number that names each version.
fn on_disk(folders: &PrivateFolders) -> impl Iterator<Item = (usize, &str)> {
    let all = folders.dirs.iter().map(String::as_str).enumerate();
    all.filter(|(_, dir)| *dir != SHARED_MEMORY)
}

/// Each private folder on disk, with the path of the job's version of it.
pub(crate) fn private_versions<'f>(
    folders: &'f PrivateFolders,
    scratch: &Scratch,
) -> impl Iterator<Item = (&'f str, PathBuf)> {
    on_disk(folders).map(|(number, dir)| (dir, scratch.path().join(number.to_string())))
}

/// The volumes of a job that runs among the node's own files.
pub(crate) struct ShownVolumes<'a> {
    pub volumes: &'a [LaunchVolume],
    /// The node's own files.
    pub node: &'a Path,
    pub user: &'a UserIds,
}

/// Why there are no namespaces for a job.
#[derive(Debug)]
pub(crate) enum NamespaceError {
    /// Other jobs could have none either.
    Node(String),
    /// What the job asked for cannot be shown to it.
    Job(String),
}

/// Makes the namespaces in which the job's versions are mounted over the machine's folders, and its volumes at their paths;
/// `memory` is the size of a `/dev/shm` that the job asks for.
pub(crate) fn mount_private_folders(
    folders: Option<(&PrivateFolders, &Scratch)>,
    memory: Option<Bytes>,
    volumes: &ShownVolumes<'_>,
) -> Result<Namespaces, NamespaceError> {
    let sites =
        folders.is_some_and(|(folders, _)| folders.dirs.iter().any(|dir| dir == SHARED_MEMORY));
    let kept =
        folders.into_iter().flat_map(|(folders, scratch)| private_versions(folders, scratch));
    let kept = kept.map(|(dir, version)| (dir, Shown::Folder(version)));
    let has_memory = sites || memory.is_some();
    let shown: Vec<_> =
        kept.chain(has_memory.then_some((SHARED_MEMORY, Shown::Memory(memory)))).collect();
    create_namespaces(&shown, volumes)
}

/// What a job sees in place of a folder of the machine.
enum Shown {
    Folder(PathBuf),
    /// A tmpfs, of this size; `None` for the kernel's default.
    Memory(Option<Bytes>),
}

fn make_base(base: &str) -> Result<(), String> {
    // One that exists may be open to everybody: the jobs' own folder in it is checked.
    if Path::new(base).is_dir() {
        return Ok(());
    }
    TrustedDir::make(Path::new(base)).map(drop).map_err(|e| format!("cannot make {base}: {e}"))
}

/// Makes the namespaces in a short-lived child. Held by descriptor, they outlive it.
fn create_namespaces(
    shown: &[(&str, Shown)],
    volumes: &ShownVolumes<'_>,
) -> Result<Namespaces, NamespaceError> {
    let failed =
        |e: Errno| NamespaceError::Node(format!("cannot make the job's namespace: {}", e.desc()));
    let memory = shown.iter().any(|(dir, _)| *dir == SHARED_MEMORY);
    let (said, say) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
    // SAFETY: the supervisor has one thread, and the child below never returns from here.
    let child = match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop(said);
            agent_connections::close_in_child();
            // The child dies with a supervisor that is killed meanwhile.
            let _ = prctl::set_pdeathsig(Signal::SIGKILL);
            let word = match unshare_and_mount(shown, memory, volumes) {
                Ok(()) => MADE.to_owned(),
                Err(NamespaceError::Node(why)) => why,
                Err(NamespaceError::Job(why)) => format!("{OF_JOB}{why}"),
            };
            let most = word.len().min(WORD_BYTES_MAX);
            let _ = write(&say, &word.as_bytes()[..most]);
            loop {
                // Waits until the supervisor has opened the namespaces and kills it.
                nix::unistd::pause();
            }
        }
    };
    drop(say);
    let held = open_namespaces(child, &said, memory);
    let _ = kill(child, Signal::SIGKILL);
    let _ = waitpid(child, None);
    held
}

fn open_namespaces(child: Pid, said: &OwnedFd, memory: bool) -> Result<Namespaces, NamespaceError> {
    let mut word = [0; WORD_BYTES_MAX];
    let length = read(said, &mut word).unwrap_or(0);
    let word = String::from_utf8_lossy(&word[..length]).into_owned();
    if let Some(why) = word.strip_prefix(OF_JOB) {
        return Err(NamespaceError::Job(why.to_owned()));
    }
    if word != MADE {
        let why = format!("cannot make the job's private folders: {word}");
        return Err(NamespaceError::Node(why));
    }
    let kinds = if memory { &KINDS[..] } else { &KINDS[..1] };
    let open = |kind: &&str| {
        let path = format!("/proc/{child}/ns/{kind}");
        open(path.as_str(), OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(|e| {
            NamespaceError::Node(format!("cannot hold the job's namespace: {}", e.desc()))
        })
    };
    Ok(Namespaces { fds: kinds.iter().map(open).collect::<Result<_, _>>()? })
}

/// Runs in the child. Later mounts of the machine become visible here; mounts made here stay private.
fn unshare_and_mount(
    shown: &[(&str, Shown)],
    memory: bool,
    volumes: &ShownVolumes<'_>,
) -> Result<(), NamespaceError> {
    let of_node = |what: &str, e: Errno| NamespaceError::Node(format!("{what}: {}", e.desc()));
    let ipc = if memory { CloneFlags::CLONE_NEWIPC } else { CloneFlags::empty() };
    unshare(CloneFlags::CLONE_NEWNS | ipc).map_err(|e| of_node("unshare", e))?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(|e| of_node("/", e))?;
    let ShownVolumes { volumes, node, user } = volumes;
    let taken = volumes.iter().map(|volume| volumes::take(volume, node, user));
    let taken = taken.collect::<Result<Vec<_>, _>>().map_err(NamespaceError::Job)?;
    for (dir, version) in shown {
        let done = match version {
            // By path, because a descriptor of the old namespace cannot be mounted here. Only the supervisor's user can
            // write to the folders on the path.
            Shown::Folder(version) => mount(Some(version), *dir, none, MsFlags::MS_BIND, none),
            Shown::Memory(size) => {
                let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
                let size = size.map(|size| format!(",size={}", size.0)).unwrap_or_default();
                let options = format!("mode=1777{size}");
                mount(Some("tmpfs"), *dir, Some("tmpfs"), flags, Some(options.as_str()))
            }
        };
        done.map_err(|errno| of_node(dir, errno))?;
    }
    let show = |taken: volumes::Taken<'_>| taken.show(user);
    taken.into_iter().try_for_each(show).map_err(NamespaceError::Job)
}
