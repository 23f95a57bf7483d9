//! The launcher: a single-threaded process that forks the supervisors.
//!
//! The agent has an async runtime with threads, and a process with threads cannot safely fork without exec. So the
//! agent forks the launcher first, while it still has one thread. A supervisor is then a fork of a small process: no
//! exec, no runtime, and little private memory.

use crate::cgroup::Hierarchy;
use crate::launch_request::LaunchRequest;
use crate::supervisor;
use model::reason::LaunchFault;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    recv, recvmsg, sendmsg, setsockopt, socketpair, sockopt,
};
use nix::sys::stat::{Mode, umask};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};
use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use wire::report::ReportEvent;
use wire::supervisor::{CHANNEL, FromSupervisor, SupervisorEvent};

/// The largest request: two names and a path.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// How long the agent waits to send a request before the launcher counts as lost.
const SEND_TIMEOUT_S: i64 = 10;
/// The nodes whose control-group trees the launcher has open: a dozen descriptors each.
const HIERARCHIES_MAX: usize = 8;
/// The exit code of a forked process that panicked.
const PANICKED: i32 = 70;

/// The agent's handle on its launcher.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
}

impl Launcher {
    /// Forks the launcher. Must be called before the program has a second thread or important open files: only the
    /// calling thread exists in the fork.
    pub fn start() -> io::Result<Launcher> {
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        setsockopt(&ours, sockopt::SendTimeout, &TimeVal::seconds(SEND_TIMEOUT_S))?;
        // SAFETY: the caller promises to be the only thread, so the child finds no lock held by another.
        match unsafe { fork() }? {
            ForkResult::Parent { .. } => Ok(Launcher { socket: ours }),
            ForkResult::Child => {
                drop(ours);
                run_to_exit(|| serve(theirs))
            }
        }
    }

    /// Requests a supervisor; `agent_end` becomes its connection to the agent. If it cannot be started, that connection
    /// reports so, or closes.
    pub(crate) fn launch(&self, request: &LaunchRequest, agent_end: BorrowedFd) -> io::Result<()> {
        let message = serde_json::to_vec(request)?;
        let fds = [agent_end.as_raw_fd()];
        let passed = [ControlMessage::ScmRights(&fds)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        let iov = [IoSlice::new(&message)];
        sendmsg::<UnixAddr>(self.socket.as_raw_fd(), &iov, &passed, flags, None)?;
        Ok(())
    }

    /// Whether the launcher has ended. Its socket becomes readable when it has.
    pub(crate) fn is_lost(&self) -> bool {
        let mut byte = [0];
        !matches!(
            recv(self.socket.as_raw_fd(), &mut byte, MsgFlags::MSG_DONTWAIT),
            Err(Errno::EAGAIN)
        )
    }
}

impl AsFd for Launcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Launcher {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Runs a forked process to its end: it never returns into the code of its parent.
fn run_to_exit(body: impl FnOnce() -> i32) -> ! {
    let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(PANICKED);
    // SAFETY: ends this process at once, without the exit handlers that belong to the parent.
    unsafe { libc::_exit(code) }
}

fn serve(socket: OwnedFd) -> i32 {
    let Ok(socket) = become_daemon(socket) else { return 1 };
    supervisor::load_before_forks();
    let mut hierarchies: HashMap<(String, String, bool), Hierarchy> = HashMap::new();
    let mut buffer = vec![0; REQUEST_BYTES_MAX];
    loop {
        let (length, agent_end) = match receive(&socket, &mut buffer) {
            Ok(Some(received)) => received,
            // The agent has ended. Its supervisors continue.
            Ok(None) => return 0,
            Err(Errno::EINTR) => continue,
            Err(_) => return 1,
        };
        let Some(agent_end) = agent_end else { continue };
        let Ok(request) = serde_json::from_slice::<LaunchRequest>(&buffer[..length]) else {
            continue;
        };
        let key = (request.plugin.clone(), request.group_root.clone(), request.without_cpuset);
        if !hierarchies.contains_key(&key) {
            if hierarchies.len() >= HIERARCHIES_MAX {
                hierarchies.clear();
            }
            match request.discover_groups() {
                Ok(found) => drop(hierarchies.insert(key.clone(), found)),
                Err(reason) => {
                    let unfit = Some(reason.clone());
                    report_failed(agent_end, reason, unfit);
                    continue;
                }
            }
        }
        // SAFETY: this process has one thread.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { .. }) => {}
            Ok(ForkResult::Child) => {
                drop(socket);
                let hierarchy = hierarchies.remove(&key);
                drop(hierarchies);
                run_to_exit(|| supervisor::run(&request, agent_end.into(), hierarchy))
            }
            Err(errno) => {
                let what = format!("cannot fork a supervisor: {}", errno.desc());
                report_failed(agent_end, what, None)
            }
        }
    }
}

/// Leaves the agent's session, and resets files and signals, so that no job inherits them.
fn become_daemon(socket: OwnedFd) -> nix::Result<OwnedFd> {
    setsid()?;
    prctl::set_name(c"sluice-launcher")?;
    for number in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        let handler = match number {
            // Ignored SIGCHLD lets the kernel reap supervisors; ignored SIGPIPE makes a lost agent an error instead of
            // a death.
            Signal::SIGCHLD | Signal::SIGPIPE => SigHandler::SigIgn,
            _ => SigHandler::SigDfl,
        };
        // SAFETY: neither disposition runs any code of ours.
        unsafe { signal(number, handler) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    drop(null);
    umask(Mode::from_bits_truncate(0o022));
    keep_only(socket)
}

/// Moves this descriptor to 3 and closes all others above 2.
fn keep_only(socket: OwnedFd) -> nix::Result<OwnedFd> {
    const FIRST: RawFd = 3;
    let at = socket.into_raw_fd();
    if at != FIRST {
        // SAFETY: whatever 3 was in the agent, nothing in this process uses it: all it will ever use is opened later.
        Errno::result(unsafe { libc::dup3(at, FIRST, libc::O_CLOEXEC) })?;
    }
    // SAFETY: as above; close_range takes integers only.
    Errno::result(unsafe { libc::syscall(libc::SYS_close_range, FIRST + 1, u32::MAX, 0) })?;
    // SAFETY: 3 is the socket, and no handle owns it any more.
    Ok(unsafe { OwnedFd::from_raw_fd(FIRST) })
}

/// Receives one request and its descriptor; `None` when the agent has closed its end.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> nix::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut iov = [IoSliceMut::new(buffer)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<UnixAddr>(socket.as_raw_fd(), &mut iov, Some(&mut space), flags)?;
    if message.bytes == 0 {
        return Ok(None);
    }
    let mut passed = None;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            for fd in fds {
                // SAFETY: the kernel has just installed this descriptor for us.
                passed = Some(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    Ok(Some((message.bytes, passed)))
}

/// Reports to the agent that no supervisor was started.
fn report_failed(agent_end: OwnedFd, what: String, unfit: Option<String>) {
    let at = crate::wall_clock::now();
    let event = SupervisorEvent {
        number: 1,
        at,
        event: ReportEvent::LaunchFailed {
            what,
            fault: LaunchFault::Other,
            unfit,
            hold: false,
            user: None,
        },
    };
    let mut bytes = Vec::new();
    if wire::frame::encode_message(CHANNEL, &FromSupervisor::Event(event), &mut bytes).is_ok() {
        // If the agent has ended, the next one finds in the spool that nothing was started.
        let _ = UnixStream::from(agent_end).write_all(&bytes);
    }
}
