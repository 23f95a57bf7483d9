//! The signals that `srun` and `sbcast` read instead of dying of them.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Most are passed on to the tasks.
const SIGNALS: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

/// Blocks the signals and reads them from a descriptor. Threads that start later inherit the mask.
pub fn take_signals() -> nix::Result<SignalFd> {
    let set: SigSet = SIGNALS.into_iter().collect();
    set.thread_block()?;
    // Reading a terminal from the background is then an error of the read, and does not stop the process.
    SigSet::from(Signal::SIGTTIN).thread_block()?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
}
