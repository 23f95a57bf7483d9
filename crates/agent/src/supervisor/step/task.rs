//! One task of a step: its process, its pipes or terminal, and its pending input.

use crate::ownership::give_to_user;
use crate::supervisor::process::pipe::{pipe, set_nonblocking};
use crate::supervisor::process::spawn::Stream;
use crate::supervisor::step::input::{InputPiece, InputQueue};
use model::run::ExitStatus;
use model::usage::TaskSample;
use nix::fcntl::{FcntlArg, fcntl};
use nix::pty::{Winsize, openpty};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use wire::order::UserIds;
use wire::step::StepMessage;

const READ_BYTES: usize = 64 << 10;

/// One of a task's output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputStream {
    Stdout,
    Stderr,
}

pub(crate) struct Task {
    pub rank: u32,
    pub pid: Option<Pid>,
    pub ready: Option<OwnedFd>,
    /// Nobody is left to say whether it is ready: its end says what became of it.
    pub is_silent: bool,
    pub exit: Option<ExitStatus>,
    /// The usage of its processes at the last sample.
    pub used: TaskSample,
    /// Its task epilogs were started.
    pub epilog_started: bool,
    input: Option<File>,
    input_ends: bool,
    waiting: InputQueue,
    output: Option<File>,
    error: Option<File>,
    terminal: bool,
}

/// The supervisor's ends of a task's pipes.
pub(crate) struct TaskPipes {
    input: Option<File>,
    output: Option<File>,
    error: Option<File>,
    terminal: bool,
}

/// The targets of a task's standard streams.
pub(crate) struct TaskStreams {
    pub with_input: bool,
    /// A stream to a file of the user instead of to `srun`.
    pub stdout: Option<Stream>,
    pub stderr: Option<Stream>,
    /// The rows and columns of a terminal instead of pipes.
    pub terminal: Option<(u16, u16)>,
}

impl TaskStreams {
    /// The streams of one task of a step with `--pty`: its first task has the terminal; the others read nothing, and what they write is dropped.
    pub fn of_pty(terminal: Option<(u16, u16)>) -> Self {
        let nothing = || Some(Stream::Null);
        Self { with_input: false, stdout: nothing(), stderr: nothing(), terminal }
    }

    /// Makes the pipes (or the terminal) of one task. They belong to its user, who may open `/dev/stdout` again.
    pub fn connect(self, user: &UserIds) -> nix::Result<([Stream; 3], TaskPipes)> {
        if let Some(size) = self.terminal {
            return terminal(user, size);
        }
        let (stdin, input) = if self.with_input {
            let (read, write) = pipe(user)?;
            set_nonblocking(&write)?;
            (Stream::Fd(read), Some(File::from(write)))
        } else {
            (Stream::Null, None)
        };
        let outward = |stream: Option<Stream>| match stream {
            Some(stream) => Ok((stream, None)),
            None => {
                let (read, write) = pipe(user)?;
                set_nonblocking(&read)?;
                nix::Result::Ok((Stream::Fd(write), Some(File::from(read))))
            }
        };
        let (stdout, output) = outward(self.stdout)?;
        let (stderr, error) = outward(self.stderr)?;
        Ok(([stdin, stdout, stderr], TaskPipes { input, output, error, terminal: false }))
    }
}

fn terminal(user: &UserIds, size: (u16, u16)) -> nix::Result<([Stream; 3], TaskPipes)> {
    let size = Winsize { ws_row: size.0, ws_col: size.1, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None)?;
    for fd in [&pty.master, &pty.slave] {
        fcntl(fd, FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    }
    give_to_user(&pty.slave, user.uid, user.gid)?;
    set_nonblocking(&pty.master)?;
    let copy = |fd: &OwnedFd| fd.try_clone().map_err(|_| nix::Error::EMFILE);
    let streams =
        [Stream::Fd(copy(&pty.slave)?), Stream::Fd(copy(&pty.slave)?), Stream::Fd(pty.slave)];
    let input = File::from(copy(&pty.master)?);
    let output = File::from(pty.master);
    Ok((
        streams,
        TaskPipes { input: Some(input), output: Some(output), error: None, terminal: true },
    ))
}

impl Task {
    pub fn new(rank: u32, ends: TaskPipes) -> Task {
        Task {
            rank,
            pid: None,
            ready: None,
            is_silent: false,
            exit: None,
            used: TaskSample::default(),
            epilog_started: false,
            input: ends.input,
            input_ends: false,
            waiting: InputQueue::default(),
            output: ends.output,
            error: ends.error,
            terminal: ends.terminal,
        }
    }

    /// A task that was never started.
    pub fn not_started(rank: u32, exit: ExitStatus) -> Task {
        let mut task =
            Task::new(rank, TaskPipes { input: None, output: None, error: None, terminal: false });
        task.exit = Some(exit);
        task
    }

    pub fn output(&self, output: OutputStream) -> Option<BorrowedFd<'_>> {
        match output {
            OutputStream::Stdout => self.output.as_ref(),
            OutputStream::Stderr => self.error.as_ref(),
        }
        .map(AsFd::as_fd)
    }

    /// Its input pipe, if input waits to be written.
    pub fn wanting_input(&self) -> Option<BorrowedFd<'_>> {
        self.input.as_ref().filter(|_| !self.waiting.is_empty()).map(AsFd::as_fd)
    }

    /// Bytes of input that it has not read yet; the credit bounds them.
    pub fn backlog(&self) -> usize {
        self.waiting.bytes()
    }

    /// The messages about it for an observer that connects later.
    pub fn catch_up(&self) -> Vec<StepMessage> {
        let (task, pid) = (self.rank, self.pid.map_or(0, |pid| pid.as_raw() as u32));
        let mut messages = Vec::new();
        if self.ready.is_none() {
            messages.push(StepMessage::Started { task, pid });
        }
        messages.extend(self.exit.map(|exit| StepMessage::Exited { task, exit, oom: false }));
        messages
    }

    pub fn outputs_closed(&self) -> bool {
        self.output.is_none() && self.error.is_none()
    }

    pub fn has_input(&self) -> bool {
        self.input.is_some()
    }

    pub fn take_input(&mut self, piece: Rc<InputPiece>) {
        if self.input.is_some() {
            self.waiting.push(piece);
            self.write_input();
        }
    }

    pub fn end_input(&mut self) {
        self.input_ends = true;
        self.write_input();
    }

    pub fn write_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        if self.waiting.write_to(input).is_err() {
            // The task has closed its input: further input is discarded.
            self.waiting.clear();
            self.input = None;
            return;
        }
        if !self.waiting.is_empty() {
            return;
        }
        if self.input_ends && !self.terminal {
            self.input = None;
        }
    }

    /// Reads the task's output, up to one buffer; `None` if there is none now. An ended output is closed.
    pub fn read_output(&mut self, output: OutputStream) -> Option<Vec<u8>> {
        let output = match output {
            OutputStream::Stdout => &mut self.output,
            OutputStream::Stderr => &mut self.error,
        };
        let mut buffer = vec![0; READ_BYTES];
        match output.as_mut()?.read(&mut buffer) {
            Ok(length) if length > 0 => {
                buffer.truncate(length);
                Some(buffer)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => None,
            // The end, or a terminal that its task has closed.
            Ok(_) | Err(_) => {
                *output = None;
                None
            }
        }
    }

    pub fn close_outputs(&mut self) {
        self.output = None;
        self.error = None;
    }

    pub fn resize(&self, rows: u16, columns: u16) {
        let Some(master) = self.output.as_ref().filter(|_| self.terminal) else { return };
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the descriptor is our end of the terminal and `size` is a live value of the type asked for.
        unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
    }
}
