//! The terminal of `srun --pty`: raw while the task has it, and as it was afterwards.

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd};

/// The terminal is raw until this is dropped.
pub struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// `None` if standard input is no terminal.
    pub fn enter() -> nix::Result<Option<Self>> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&stdin, SetArg::TCSANOW, &raw)?;
        Ok(Some(Self { before }))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), SetArg::TCSADRAIN, &self.before);
    }
}

/// Rows and columns of the terminal on standard input.
pub fn size() -> Option<(u16, u16)> {
    size_of(io::stdin())
}

/// Rows and columns of a terminal.
pub fn size_of(terminal: impl AsFd) -> Option<(u16, u16)> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one `winsize`, and `size` is one that outlives the call, as the descriptor does.
    let done = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCGWINSZ, &mut size) };
    (done == 0 && size.ws_row > 0).then_some((size.ws_row, size.ws_col))
}

/// Whether this process may read its input: a terminal is read only by its foreground group.
pub fn is_ours(input: &File) -> bool {
    // An input that is not a terminal of this session has no foreground group, and may be read.
    tcgetpgrp(input).map_or(true, |group| group == getpgrp())
}
