//! Starts one process of a job: forks it into the job's group, makes it its user's, opens its files, and executes it.
//!
//! The supervisor has one thread, so a forked child may allocate and open files before it executes. Output files are
//! opened in the child, after it has become the user: root never opens a path that a user chose.

pub(crate) use super::execute::Argv0;

use super::execute::{culprit, execute};
use super::readiness::{DIED, READY, failure_bytes, send};
use super::{login_environment, nice, rlimits};
use crate::cgroup::{EntryFds, Forked};
use crate::spool::close_claim_in_child;
use crate::supervisor::agent_connections;
use crate::supervisor::container::{self, ContainerSpec};
use crate::supervisor::folders::namespaces::Namespaces;
use crate::supervisor::process::binding::ProcessBinding;
use crate::supervisor::process::credentials::{as_user, become_user};
use crate::supervisor::prolog_epilog::task_prolog;
use crate::supervisor::workspace::RunWorkspace;
use model::limits::Limits;
use model::os_text;
use model::printable::printable;
use model::reason::LaunchFailure;
use model::run::{LoginEnvironment, Rlimits, WORK_DIR_FALLBACK};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::socket::{AddressFamily, ControlMessage, SockFlag, SockType, socketpair};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, getpid, setpgid, setsid};
use std::ffi::CString;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use wire::order::{Niceness, Notices, UserIds};

/// Message for a failed task prolog, where the launch brings none.
const PROLOG_FAILED: &str = "sluice: the program before the task failed: {error}";

/// The target of one of the standard streams.
pub(crate) enum Stream {
    Null,
    Read {
        path: String,
    },
    Write {
        path: String,
        append: bool,
    },
    Fd(OwnedFd),
    /// For standard error only: the same file as standard output.
    SameAsStdout,
}

/// Everything that a process is started with.
pub(crate) struct ProcessSpec<'a> {
    pub user: &'a UserIds,
    /// The first word is the program: a path if it has a slash, else searched for in `PATH`.
    pub argv: Vec<String>,
    pub argv0: Argv0,
    pub environment: Vec<String>,
    /// Variables that are set to the new process's pid.
    pub pid_variables: Vec<&'a str>,
    pub work_dir: &'a str,
    pub umask: u32,
    pub rlimits: &'a Rlimits,
    /// The job's limits, of which each process takes its own part; `None` for a program of the site.
    pub limits: Option<&'a Limits>,
    /// Lines written to its standard error before it is executed.
    pub lines: &'a [String],
    /// `None` keeps the nice value of this process.
    pub nice: Option<Niceness>,
    pub hold: ProcessBinding<'a>,
    pub streams: [Stream; 3],
    /// Its standard input is a terminal, which becomes its controlling terminal.
    pub terminal: bool,
    /// Entered before it becomes the user.
    pub namespaces: Option<&'a Namespaces>,
    /// The user's own environment on this node is added. A process in a container has its image's instead.
    pub login: Option<LoginEnvironment>,
    /// Task prologs, run as the user just before the program: what they print changes its environment. Each with the
    /// message for its failure.
    pub prologs: Vec<(String, &'a str)>,
    /// What is placed for it before it runs.
    pub workspace: Option<&'a RunWorkspace>,
    /// What it runs in; `None` for the node's own file system.
    pub container: Option<ContainerSpec<'a>>,
    pub entry: &'a EntryFds,
    pub notices: &'a Notices,
}

#[derive(Debug)]
pub(crate) struct Spawned {
    pub pid: Pid,
    /// Readable once the child is ready or has failed.
    pub ready: OwnedFd,
}

pub(crate) fn spawn(spec: ProcessSpec) -> Result<Spawned, Errno> {
    let (ready, report) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    // SAFETY: the supervisor has one thread, and the child below executes or exits.
    match unsafe { spec.entry.fork() }? {
        Forked::Parent(pid) => Ok(Spawned { pid, ready }),
        Forked::Child(entered) => {
            drop(ready);
            close_claim_in_child();
            agent_connections::close_in_child();
            let life = || begin(spec, entered, &report);
            let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(life));
            let code = lived.unwrap_or_else(|_| {
                let failure = LaunchFailure::from(DIED.to_owned());
                let _ = send(&report, &failure_bytes(&failure), &[]);
                1
            });
            // SAFETY: ends the child without running exit handlers of the process it was forked from.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Runs in the child up to its program. Returns an exit code only if the program could not be executed.
fn begin(mut spec: ProcessSpec, entered: Result<(), Errno>, report: &OwnedFd) -> i32 {
    let container = spec.container.take();
    let code = begin_program(spec, container.as_ref(), entered, report);
    if let Some(container) = &container {
        container.end_early_runtime(code);
    }
    code
}

fn begin_program(
    spec: ProcessSpec,
    container: Option<&ContainerSpec>,
    entered: Result<(), Errno>,
    report: &OwnedFd,
) -> i32 {
    let argv = spec.argv.clone();
    let (argv0, notices, prologs) = (spec.argv0, spec.notices, spec.prologs.clone());
    let (user, workspace) = (spec.user, spec.workspace);
    let (work_dir, login) = (spec.work_dir, spec.login);
    let prepared = prepare(spec, entered, container.is_some()).map_err(LaunchFailure::from);
    // The streams are open: what takes long is told on standard error, and so is what fails.
    let entered = prepared.and_then(|environment| {
        let Some(container) = container else {
            let environment = place(workspace, work_dir, environment)?;
            return Ok((environment, None));
        };
        match container::enter(container, &environment, &mut write_line_if_read) {
            Ok(entered) => Ok((environment, Some((container, entered)))),
            Err(failure) => {
                let failure = LaunchFailure::from(failure);
                // An `srun` prints the reason itself; a script has only its file.
                if container.script.is_some() {
                    write_line(&format!("sluice: {}", failure.what));
                }
                Err(failure)
            }
        }
    });
    match entered {
        Ok((mut environment, container)) => {
            let fds = [libc::STDERR_FILENO];
            let passed = [ControlMessage::ScmRights(&fds)];
            let network = container.as_ref().and_then(|(_, entered)| entered.network());
            let network = network.and_then(|network| serde_json::to_vec(network).ok());
            let _ = send(report, network.as_deref().unwrap_or(READY), &passed);
            if let Some((container, entered)) = &container
                && container.save.is_some()
            {
                entered.save_and_exit(container, &environment);
            }
            if let Some(login) = login.filter(|_| container.is_none())
                && let Err(why) = login_environment::add(&mut environment, user.uid, login)
            {
                write_line(&format!("sluice: the login environment of {}: {why}", user.name));
            }
            for (program, words) in &prologs {
                let owner = container.is_some().then_some(user);
                if let Err(status) = task_prolog::run(program, &mut environment, owner) {
                    let words = if words.is_empty() { PROLOG_FAILED } else { words };
                    write_line(&words.replace("{error}", &status.to_string()));
                    return status;
                }
            }
            let words = match notices.exec_failed.as_str() {
                "" => "sluice: cannot execute {what}: {error}",
                words => words,
            };
            let (errno, what) = match container {
                // The interpreter of a program in a container is not looked for: this process is still root, and outside.
                Some((container, entered)) => {
                    entered.execute(container, &argv, &environment, words)
                }
                None => {
                    let (errno, what) = execute(&argv, &environment, argv0);
                    (errno, culprit(&what, errno))
                }
            };
            write_notice(words, &what, errno);
            // As in Slurm, the exit code of a program that cannot be executed is the errno: 2 for one that does not
            // exist.
            errno as i32
        }
        Err(failure) => {
            let _ = send(report, &failure_bytes(&failure), &[]);
            1
        }
    }
}

/// Places the run's workspace on the node itself. Returns the environment with what comes of it. What fails is told on
/// standard error as well.
///
/// A run that brings files along has its working directory made if it is missing: no other one will do.
fn place(
    workspace: Option<&RunWorkspace>,
    work_dir: &str,
    mut environment: Vec<CString>,
) -> Result<Vec<CString>, String> {
    let Some(workspace) = workspace else { return Ok(environment) };
    let failed = |e: std::io::Error| format!("working directory {work_dir}: {e}");
    let enter = || {
        std::fs::create_dir_all(work_dir)?;
        std::env::set_current_dir(work_dir)
    };
    let entered = if workspace.brings_files() { enter().map_err(failed) } else { Ok(()) };
    let placed = entered.and_then(|()| workspace.place(&environment));
    let more = placed.inspect_err(|reason| write_line(&format!("sluice: {reason}")))?;
    for (name, value) in more {
        let is_same = |entry: &CString| {
            let rest = entry.to_bytes().strip_prefix(name.as_bytes());
            rest.is_some_and(|rest| rest.first() == Some(&b'='))
        };
        environment.retain(|entry| !is_same(entry));
        environment.extend(CString::new(format!("{name}={value}")));
    }
    Ok(environment)
}

/// Sets up the child as a process of the job. Returns its environment. A process that is to run in a container opens its
/// files as the user, but becomes the user only inside.
fn prepare(
    spec: ProcessSpec,
    entered: Result<(), Errno>,
    in_container: bool,
) -> Result<Vec<CString>, String> {
    let step = |what: &'static str| move |errno: Errno| format!("{what}: {}", errno.desc());
    entered.map_err(step("cannot enter the job's control group"))?;
    if spec.terminal {
        setsid().map_err(step("cannot start a session"))?;
    } else {
        setpgid(Pid::from_raw(0), Pid::from_raw(0))
            .map_err(step("cannot start a process group"))?;
    }
    for number in [Signal::SIGPIPE, Signal::SIGCHLD] {
        // SAFETY: the default disposition runs no code of ours.
        unsafe { signal(number, SigHandler::SigDfl) }.map_err(step("cannot reset signals"))?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
        .map_err(step("cannot reset the signal mask"))?;
    if let Some(most) = spec.limits.and_then(|limits| limits.open_files) {
        rlimits::cap_open_files(most).map_err(step("cannot limit open files"))?;
    }
    let limits_refused = rlimits::apply(spec.rlimits);
    spec.hold.take()?;
    if let Some(namespaces) = spec.namespaces {
        namespaces.enter().map_err(step("cannot enter the job's private folders"))?;
    }
    let cannot_become = |errno: Errno| {
        format!("cannot become user {} ({}): {}", spec.user.name, spec.user.uid, errno.desc())
    };
    let nice_refused;
    let mut lost_dir = None;
    if in_container {
        let nice = spec.nice;
        let (work_dir, streams, terminal) = (spec.work_dir, spec.streams, spec.terminal);
        // Output files are created with the user's mask; what root makes for the container is not.
        let mask = umask(Mode::from_bits_truncate(spec.umask & 0o777));
        let connect = || {
            let _ = enter_work_dir(work_dir)?;
            connect_streams(streams, terminal)?;
            Ok::<_, String>(nice.and_then(|nice| nice::apply(nice).err()))
        };
        nice_refused = as_user(spec.user, connect).map_err(cannot_become)??;
        umask(mask);
    } else {
        become_user(spec.user).map_err(cannot_become)?;
        if spec.limits.is_some_and(|limits| limits.no_new_privs) {
            prctl::set_no_new_privs().map_err(step("cannot give up further rights"))?;
        }
        nice_refused = spec.nice.and_then(|nice| nice::apply(nice).err());
        umask(Mode::from_bits_truncate(spec.umask & 0o777));
        lost_dir = enter_work_dir(spec.work_dir)?;
        connect_streams(spec.streams, spec.terminal)?;
    }
    let brings_files = spec.workspace.is_some_and(RunWorkspace::brings_files);
    if let Some(errno) = lost_dir.filter(|_| !brings_files) {
        let words = match spec.notices.work_dir_failed.as_str() {
            "" => "sluice: cannot enter {what}: {error}; running in /tmp instead",
            words => words,
        };
        write_notice(words, spec.work_dir, errno);
    }
    for (what, errno) in limits_refused {
        let words = match spec.notices.limit_refused.as_str() {
            "" => "sluice: cannot set the limit {what}: {error}",
            words => words,
        };
        write_notice(words, &what, errno);
    }
    if let Some((value, errno)) = nice_refused {
        let words = match spec.notices.nice_refused.as_str() {
            "" => "sluice: cannot have the nice value {what}: {error}",
            words => words,
        };
        write_notice(words, &value.to_string(), errno);
    }
    let pid = getpid();
    for line in spec.hold.lines(pid.as_raw()).iter().chain(spec.lines) {
        write_line(line);
    }
    let with_pid = spec.pid_variables.iter().map(|name| format!("{name}={pid}"));
    let whole = spec.environment.into_iter().chain(with_pid);
    // A variable with a NUL inside cannot exist in an environment.
    Ok(whole.filter_map(|entry| CString::new(os_text::to_bytes(&entry)).ok()).collect())
}

/// Enters the working directory or the fallback. Returns the error where the fallback was needed.
fn enter_work_dir(work_dir: &str) -> Result<Option<Errno>, String> {
    match chdir(&*os_text::to_os(work_dir)) {
        Ok(()) => Ok(None),
        Err(errno) => match chdir(WORK_DIR_FALLBACK) {
            Ok(()) => Ok(Some(errno)),
            Err(_) => Err(format!("cannot enter {work_dir}: {}", errno.desc())),
        },
    }
}

fn connect_streams(streams: [Stream; 3], terminal: bool) -> Result<(), String> {
    let [input, output, error] = streams;
    if let Some(fd) = open_stream(input)? {
        dup2_stdin(&fd).map_err(|e| format!("standard input: {}", e.desc()))?;
        if terminal {
            // SAFETY: the descriptor is a terminal, and this process leads a new session without one.
            unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCSCTTY, 0) };
        }
    }
    if let Some(fd) = open_stream(output)? {
        dup2_stdout(&fd).map_err(|e| format!("standard output: {}", e.desc()))?;
    }
    if let Some(fd) = open_stream(error)? {
        dup2_stderr(&fd).map_err(|e| format!("standard error: {}", e.desc()))?;
    } else {
        dup2_stderr(std::io::stdout()).map_err(|e| format!("standard error: {}", e.desc()))?;
    }
    Ok(())
}

fn open_stream(stream: Stream) -> Result<Option<OwnedFd>, String> {
    let write = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_CLOEXEC;
    let (path, flags) = match stream {
        Stream::SameAsStdout => return Ok(None),
        Stream::Fd(fd) => return Ok(Some(fd)),
        Stream::Null => ("/dev/null".to_owned(), OFlag::O_RDWR | OFlag::O_CLOEXEC),
        Stream::Read { path } => (path, OFlag::O_RDONLY | OFlag::O_CLOEXEC),
        Stream::Write { path, append: true } => (path, write | OFlag::O_APPEND),
        Stream::Write { path, append: false } => (path, write | OFlag::O_TRUNC),
    };
    let flags = flags | OFlag::O_NOCTTY;
    open(&*os_text::to_os(&path), flags, Mode::from_bits_truncate(0o666))
        .map(Some)
        .map_err(|errno| format!("cannot open {path}: {}", errno.desc()))
}

/// `what` may be a text of an image.
fn write_notice(words: &str, what: &str, errno: Errno) {
    let what = &printable(what);
    write_line(&words.replace("{what}", what).replace("{error}", errno.desc()));
}

fn write_line(line: &str) {
    // If standard error cannot be written, there is nowhere to report it.
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Writes a line that may be missed: whoever does not read it does not hold up the process.
fn write_line_if_read(line: &str) {
    let stderr = std::io::stderr();
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    if poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
        write_line(line);
    }
}
