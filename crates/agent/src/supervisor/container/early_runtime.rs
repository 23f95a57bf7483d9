//! Starts the runtime before its container is made, for a step that makes one. A runtime takes milliseconds from its start until
//! it reads its configuration, about as long as the container takes to be put together: on two CPUs both are done at once.
//!
//! The task's process becomes the runtime at once; a copy of it makes the container in the same mount namespace, and then writes
//! the configuration into a pipe, which is the bundle's `config.json` meanwhile. Where the container cannot be made or the
//! program is not there, the copy leaves word of the exit code and kills the runtime, which has run nothing.

use super::runtime::{self, RUNC, Traces};
use super::{ContainerSpec, assembly, process_folder};
use crate::pidfd;
use model::run::ExitStatus;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe2};
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The file in the folder of a process that has the exit code of one whose runtime has run nothing.
const EXIT: &str = "exit";
const CONFIG: &str = "config.json";

/// A runtime that waits for its configuration.
pub(crate) struct EarlyRuntime {
    process: OwnedFd,
    config: OwnedFd,
    folder: PathBuf,
}

/// Whether a process may start its runtime early. What the runtime inherits from the process that starts it, beside its mounts,
/// must be there before: a network of its own, the lock of a container's name. `runc` is known to read its configuration from
/// a pipe. With one CPU nothing is won.
pub(super) fn is_possible(spec: &ContainerSpec, runtime: &Path) -> bool {
    let request = spec.request;
    let is_plain = request.name.is_none() && !request.privileged && !spec.own_network;
    let is_task = spec.script.is_none() && spec.save.is_none() && spec.workspace.is_none();
    let is_of_step = spec.folder.file_name().is_some_and(|name| name == spec.step.as_str());
    let is_runc = runtime.file_name().is_some_and(|name| name == RUNC);
    is_plain && is_task && is_of_step && is_runc && has_several_cpus()
}

fn has_several_cpus() -> bool {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return false };
    let is_set = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(is_set).nth(1).is_some()
}

impl EarlyRuntime {
    /// This process becomes the runtime, and the copy of it that goes on returns. The process itself returns only if the
    /// runtime cannot be executed.
    pub fn start(spec: &ContainerSpec, runtime: &Path) -> Result<EarlyRuntime, String> {
        let folder = process_folder(&spec.folder, &spec.step, spec.process);
        let io = |e: std::io::Error| format!("{}: {e}", folder.display());
        let failed = |e: Errno| format!("cannot start {}: {}", runtime.display(), e.desc());
        // What it leaves goes with the step, when its client has been told the end.
        let can_keep = runtime::can_keep(runtime, spec.node);
        let traces = if can_keep { Traces::Kept } else { Traces::Removed };
        fs::create_dir_all(&folder).map_err(io)?;
        let (read, config) = pipe2(OFlag::O_CLOEXEC).map_err(failed)?;
        symlink(format!("/proc/self/fd/{}", read.as_raw_fd()), folder.join(CONFIG)).map_err(io)?;
        let own = Pid::this();
        let process = pidfd::open(own.as_raw()).map_err(failed)?;
        // As the supervisor's child: a runtime need not know of it, and what it starts is the supervisor's too. So the supervisor
        // reaps it, and its pid may be another's by then: this process has a descriptor of it.
        let flags = libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut descriptor: RawFd = -1;
        let none: libc::c_long = 0;
        // SAFETY: this process has one thread. Without a stack of its own the child goes on with a copy of this one, as after
        // a fork. The descriptor is written to a live value, of this process alone.
        let copy = unsafe {
            let (flags, descriptor) = (libc::c_long::from(flags), &raw mut descriptor);
            libc::syscall(libc::SYS_clone, flags, none, descriptor, none, none)
        };
        let copy = Errno::result(copy).map_err(failed)?;
        if copy == 0 {
            return Ok(EarlyRuntime { process, config, folder });
        }
        // SAFETY: the kernel has just made this descriptor for us, and nobody else holds its number.
        let copy = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let executed = fcntl(&read, FcntlArg::F_SETFD(FdFlag::empty())).and_then(|_| {
            let id = runtime_id(spec);
            runtime::execute(runtime, &state_folder(spec), &folder, &id, traces)
        });
        // Nobody would read its configuration.
        let _ = pidfd::send_signal(copy.as_fd(), Signal::SIGKILL);
        match executed {
            Ok(never) => match never {},
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Gives the runtime its configuration, and ends this process.
    pub fn run(&self, config: &[u8]) -> nix::Result<Infallible> {
        // A pipe that has room for all of it makes nobody wait; one that has not is read soon.
        let _ = fcntl(&self.config, FcntlArg::F_SETPIPE_SZ(config.len() as libc::c_int));
        let pipe = self.config.try_clone().map(File::from);
        pipe.and_then(|mut pipe| pipe.write_all(config))
            .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO)))?;
        // SAFETY: ends this process without the exit handlers of the one that it is a copy of.
        unsafe { libc::_exit(0) }
    }

    /// Ends the runtime, which has nothing to run: its exit counts as this code.
    pub fn end(&self, code: i32) {
        let _ = fs::write(self.folder.join(EXIT), code.to_string());
        let _ = pidfd::send_signal(self.process.as_fd(), Signal::SIGKILL);
    }
}

/// The exit of a process of a step that ended with `exit`: the code that was left for it, where its runtime was killed before it
/// ran anything. `attempt` is the folder of the attempt's containers.
pub(crate) fn exit_of(attempt: &Path, step: &str, process: u32, exit: ExitStatus) -> ExitStatus {
    if exit.signal != libc::SIGKILL {
        return exit;
    }
    let file = process_folder(&attempt.join(step), step, process).join(EXIT);
    let code = fs::read_to_string(file).ok().and_then(|text| text.parse().ok());
    code.map_or(exit, |code| ExitStatus { code, signal: 0 })
}

/// By what the runtime knows a process of a container.
pub(super) fn runtime_id(spec: &ContainerSpec) -> String {
    format!("{}-{}-{}", assembly::name_of(&spec.folder), spec.step, spec.process)
}

/// Where the runtime keeps what it knows.
pub(super) fn state_folder(spec: &ContainerSpec) -> PathBuf {
    spec.folder.join("state")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_of_a_runtime_that_ran_nothing_is_the_code_that_was_left() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let killed = ExitStatus { code: 0, signal: libc::SIGKILL };
        let exit = |exit| exit_of(dir.path(), "0", 1, exit);
        assert_eq!(exit(killed), killed, "no word was left");
        let folder = process_folder(&dir.path().join("0"), "0", 1);
        fs::create_dir_all(&folder).expect("made");
        fs::write(folder.join(EXIT), "2").expect("written");
        assert_eq!(exit(killed), ExitStatus { code: 2, signal: 0 });
        let own = ExitStatus { code: 5, signal: 0 };
        assert_eq!(exit(own), own, "it has ended by itself");
    }
}
