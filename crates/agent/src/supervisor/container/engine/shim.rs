//! The process of root's beside a container that an engine made. The engine has started Sluice's own program in it, which
//! connects here and waits. The shim mounts what is shown in the container, says what to run, and counts what the
//! kernel killed before the engine removes the group that knows it.

use crate::pidfd;
use crate::supervisor::container::assembly::ShownHandles;
use crate::supervisor::container::files::{self, Placed};
use crate::supervisor::container::holder::close_all_but;
use crate::supervisor::container::init::{Orders, SOCKET};
use crate::supervisor::container::leftovers::oom_mark;
use crate::supervisor::container::program::{Inside, own_mounts};
use crate::supervisor::container::{ContainerSpec, group_trees};
use crate::supervisor::mount_calls::{MountPoints, Rights, stop_propagation};
use image::ImageConfig;
use model::printable::printable;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::{Mode, fstat, stat};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use wire::order::UserIds;

pub(super) struct EngineShim<'a> {
    pub settings: &'a ImageConfig,
    pub shown: ShownHandles,
    pub rlimits: &'a [(String, u64, u64)],
    /// The folder of what is made for this process.
    pub made: &'a Path,
    /// The group inside which the engine makes the container.
    pub group: &'a str,
    /// The file of the process's folder into which the engine writes the container's id.
    pub id_file: &'a str,
    /// The line about a program that cannot be executed.
    pub exec_failed: &'a str,
}

/// A process by its folder in `/proc`, which is of no other process that has its pid later.
struct ContainerProcess {
    handle: OwnedFd,
    pidfd: OwnedFd,
    /// Its control groups.
    groups: String,
}

fn read_at(folder: &OwnedFd, name: &str) -> Option<String> {
    let file = openat(folder, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).take(READ_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Bytes that are read of a small file.
const READ_BYTES_MAX: u64 = 64 << 10;
/// How long a container that is refused may take to say so.
const REFUSED_MAX: Duration = Duration::from_secs(2);
const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl ContainerProcess {
    /// Whether it is the first process of a container, with the rights of the job's user and no others. An engine finds
    /// out by files of the image which groups a number means.
    fn check(&self, user: &UserIds) -> Result<(), String> {
        let namespace =
            openat(&self.handle, "ns/user", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let of_container = namespace.and_then(fstat).map(|found| (found.st_dev, found.st_ino));
        let own = stat("/proc/self/ns/user").map(|found| (found.st_dev, found.st_ino));
        if of_container.is_err() || of_container != own {
            return Err("the container has a user namespace of its own: expected the node's".into());
        }
        let status = read_at(&self.handle, "status").ok_or("the container has ended")?;
        check_status(&status, user)
    }
}

/// Compares a process's file `status` with what the first process of the job's container has.
fn check_status(status: &str, user: &UserIds) -> Result<(), String> {
    let field = |name: &str| {
        let value =
            |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned());
        status.lines().find_map(value).unwrap_or_else(|| "missing".to_owned())
    };
    let refused = |name: &str, found: &str, expected: &str| {
        Err(format!("the engine's container has {name} {found}: expected {expected}"))
    };
    for (name, id) in [("Uid", user.uid), ("Gid", user.gid)] {
        let found = field(name);
        let id = id.to_string();
        if found.split_whitespace().count() != 4 || found.split_whitespace().any(|one| one != id) {
            return refused(name, &found, &id);
        }
    }
    let found = field("Groups");
    // The user's own group may be among them or not.
    let with_own = |groups: BTreeSet<String>| {
        groups.into_iter().chain([user.gid.to_string()]).collect::<BTreeSet<_>>()
    };
    let expected: BTreeSet<String> = user.groups.iter().map(u32::to_string).collect();
    let expected = with_own(expected);
    if with_own(found.split_whitespace().map(str::to_owned).collect()) != expected {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        return refused("Groups", &found, &expected.join(" "));
    }
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let found = field(name);
        if found.bytes().any(|digit| digit != b'0') {
            return refused(name, &found, "none");
        }
    }
    let found = field("NoNewPrivs");
    if found != "1" {
        return refused("NoNewPrivs", &found, "1");
    }
    // Its pid here, and in each namespace that it is in.
    let found = field("NSpid");
    let pids: Vec<&str> = found.split_whitespace().collect();
    if pids.len() < 2 || pids.last() != Some(&"1") {
        return refused("NSpid", &found, "1 in a namespace of its own");
    }
    Ok(())
}

impl EngineShim<'_> {
    /// Starts it. It ends with this process, which becomes the engine's command.
    pub fn start(
        self,
        spec: &ContainerSpec,
        folder: &Path,
        argv: &[String],
        environment: &[CString],
    ) -> nix::Result<()> {
        let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let handle = open(folder, HANDLE, Mode::empty())?;
        // The path of a socket is short; that of the folder need not be.
        let path = format!("/proc/self/fd/{}/{SOCKET}", handle.as_raw_fd());
        let listener = UnixListener::bind(&path).map_err(io)?;
        // Nobody gets here but the container, which has the folder and no other.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).map_err(io)?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).map_err(io)?;
        let marks = spec.folder.parent().unwrap_or(&spec.folder);
        let marks = open(marks, HANDLE, Mode::empty())?;
        // SAFETY: this process has one thread, and the child ends below.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => Ok(()),
            ForkResult::Child => {
                let _ = prctl::set_pdeathsig(Signal::SIGKILL);
                let _ = prctl::set_name(c"sluice:container");
                let code = match self.keep_own(&listener, &handle, &marks) {
                    Ok(()) => self.serve(spec, &listener, &handle, &marks, argv, environment),
                    Err(_) => 1,
                };
                // SAFETY: ends the child without the exit handlers of its parent.
                unsafe { libc::_exit(code) }
            }
        }
    }

    /// Closes the streams of the task, whose end its client awaits, and all else that is not needed.
    fn keep_own(
        &self,
        listener: &UnixListener,
        folder: &OwnedFd,
        marks: &OwnedFd,
    ) -> nix::Result<()> {
        let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
        dup2_stdin(&null)?;
        dup2_stdout(&null)?;
        dup2_stderr(&null)?;
        let own = [0, 1, 2, listener.as_raw_fd(), folder.as_raw_fd(), marks.as_raw_fd()];
        close_all_but(own.into_iter().chain(self.shown.handles()));
        std::mem::forget(null);
        Ok(())
    }

    fn serve(
        self,
        spec: &ContainerSpec,
        listener: &UnixListener,
        folder: &OwnedFd,
        marks: &OwnedFd,
        argv: &[String],
        environment: &[CString],
    ) -> i32 {
        let Ok((mut stream, _)) = listener.accept() else { return 1 };
        let Ok(peer) = getsockopt(&stream, PeerCredentials) else { return 1 };
        let Some(process) = self.process(peer.pid(), folder) else { return 1 };
        let memory = group_trees::memory_events(&process.groups);
        let exec_failed = self.exec_failed;
        let checked = process.check(spec.user);
        let is_refused = checked.is_err();
        let orders = match checked
            .and_then(|()| self.place_and_find(spec, &process.handle, argv, environment))
        {
            Ok(Ok(orders)) => orders,
            Ok(Err((errno, what))) => {
                let line = exec_failed.replace("{what}", &printable(&what));
                let line = line.replace("{error}", errno.desc());
                Orders::Fail { line, code: errno as i32 }
            }
            Err(why) => Orders::Fail { line: format!("sluice: {}", printable(&why)), code: 1 },
        };
        if is_refused {
            // It may say the line that it is told, and ends.
            let _ = stream.set_read_timeout(Some(REFUSED_MAX));
            let _ = stream.set_write_timeout(Some(REFUSED_MAX));
        }
        let Ok(text) = serde_json::to_vec(&orders) else { return 1 };
        let length = (text.len() as u32).to_be_bytes();
        let is_told = stream.write_all(&length).and_then(|()| stream.write_all(&text)).is_ok();
        if !is_told && !is_refused {
            return 1;
        }
        // Returns when the program has ended, or what waited for it.
        let _ = stream.read(&mut [0]);
        if let Some(kills) =
            memory.and_then(|file| group_trees::oom_kills(&file)).filter(|n| *n > 0)
        {
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
            let mark = oom_mark(&spec.step, spec.process);
            if let Ok(mark) = openat(marks, mark.as_str(), flags, Mode::from_bits_truncate(0o600)) {
                let _ = File::from(mark).write_all(kills.to_string().as_bytes());
            }
        }
        let _ = stream.write_all(b"k");
        if is_refused {
            let _ = stream.read(&mut [0]);
            let _ = pidfd::send_signal(process.pidfd.as_fd(), Signal::SIGKILL);
        }
        0
    }

    /// The process that has connected, if it is one of the container. A user may have killed it, and have brought another
    /// process to its pid, whose root is the node's.
    fn process(&self, pid: i32, folder: &OwnedFd) -> Option<ContainerProcess> {
        let handle = open(format!("/proc/{pid}").as_str(), HANDLE, Mode::empty()).ok()?;
        // What is read through the handle below says that the process lives, so this is the same one.
        let pidfd = pidfd::open(pid).ok()?;
        let groups = read_at(&handle, "cgroup")?;
        let id = read_at(folder, self.id_file)?;
        group_trees::is_of_container(&groups, self.group, id.trim()).then_some(ContainerProcess {
            handle,
            pidfd,
            groups,
        })
    }

    /// Mounts what is shown, and finds the program.
    fn place_and_find(
        self,
        spec: &ContainerSpec,
        process: &OwnedFd,
        argv: &[String],
        environment: &[CString],
    ) -> Result<Result<Orders, (Errno, String)>, String> {
        let failed = |e: Errno| format!("cannot enter the container: {}", e.desc());
        let root = openat(process, "root", HANDLE, Mode::empty()).map_err(failed)?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let namespace = openat(process, "ns/mnt", flags, Mode::empty()).map_err(failed)?;
        // Files of the node are opened while it can be seen.
        let mut placed: Vec<Placed> = Vec::new();
        placed.extend(files::user_files(&root, spec.user, self.shown.home(), self.made)?);
        let edits = spec.device_edits();
        for mount in &edits.mounts {
            placed.push(Placed::take_as(&mount.host, &mount.inside, mount.read_only)?);
        }
        let node_mounts = own_mounts()?;
        setns(namespace, CloneFlags::CLONE_NEWNS).map_err(failed)?;
        stop_propagation(&root).map_err(failed)?;
        let points = |rights| MountPoints { root: root.as_fd(), rights };
        let before = points(Rights::before_mounts(spec.user, false));
        placed.into_iter().try_for_each(|one| one.show(before))?;
        let among = points(Rights::among_mounts(spec.user, false));
        self.shown.show_mounts(among).map_err(|e| e.to_string())?;
        let inside = Inside {
            settings: self.settings,
            root: &root,
            of_folder: false,
            has_driver: edits.has_driver,
            device_variables: &edits.variables,
        };
        inside.clone_late(spec, environment, &node_mounts, self.rlimits)?;
        Ok(inside.program(spec, argv, environment).and_then(|program| {
            Ok(Orders::Run {
                arguments: program.in_place(spec.workspace.is_some(), &root, among.rights)?,
                environment: program.environment,
                umask: spec.umask,
                rlimits: self.rlimits.to_vec(),
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tx\nUid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8\nGroups:\t8 20 \nNSpid:\t311\t1\n\
        CapInh:\t0000\nCapPrm:\t0000\nCapEff:\t0000\nCapBnd:\t0000\nCapAmb:\t0000\nNoNewPrivs:\t1\n";

    #[test]
    fn a_container_with_other_rights_than_the_jobs_users_is_refused() {
        let user = UserIds { name: "kim".into(), uid: 7, gid: 8, groups: vec![20] };
        assert_eq!(check_status(STATUS, &user), Ok(()));
        for (own, other) in [
            ("Groups:\t8 20", "Groups:\t8 20 999"),
            ("Groups:\t8 20", "Groups:\t999"),
            ("Groups:\t8 20", "Groups:\t"),
            ("Uid:\t7\t7\t7\t7", "Uid:\t7\t7\t0\t7"),
            ("Gid:\t8\t8\t8\t8", "Gid:\t0\t0\t0\t0"),
            ("CapBnd:\t0000", "CapBnd:\t0400"),
            ("CapEff:\t0000\n", ""),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("NSpid:\t311\t1", "NSpid:\t311\t2"),
            ("NSpid:\t311\t1", "NSpid:\t1"),
        ] {
            let name = own.split(':').next().unwrap_or_default();
            let refused =
                check_status(&STATUS.replace(own, other), &user).err().unwrap_or_default();
            assert!(refused.contains(name), "{other}: {refused}");
        }
    }
}
