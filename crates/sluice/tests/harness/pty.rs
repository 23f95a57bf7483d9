//! A command on a terminal of its own: what it draws is read as it comes, and keys are typed.

use crate::harness::{Cluster, TIMEOUT};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Instant;

pub struct OnTerminal {
    pub child: Child,
    terminal: File,
    /// Kept open, so that what was written last can be read after the end.
    slave: File,
    /// All that it has written.
    pub seen: String,
    /// How much of that is on the screen.
    shown: usize,
    screen: Grid,
}

/// The characters of a screen, and where the next one goes.
struct Grid {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
}

impl Grid {
    fn new((columns, rows): (u16, u16)) -> Self {
        let line = vec![' '; usize::from(columns)];
        Self { cells: vec![line; usize::from(rows)], row: 0, column: 0 }
    }

    /// Writes text with the sequences that move the cursor; those that colour are left out. Returns how much was complete.
    fn write(&mut self, text: &str) -> usize {
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if first != '\x1b' {
                if let Some(cell) =
                    self.cells.get_mut(self.row).and_then(|r| r.get_mut(self.column))
                {
                    *cell = first;
                }
                self.column += 1;
                rest = &rest[first.len_utf8()..];
                continue;
            }
            let ends = |c: char| c.is_ascii_alphabetic();
            let Some(end) = rest.find(ends) else { break };
            let sequence = &rest[..=end];
            if let Some(place) = sequence.strip_prefix("\x1b[").and_then(|s| s.strip_suffix('H')) {
                let mut numbers = place.split(';').map(|n| n.parse().unwrap_or(1_usize) - 1);
                self.row = numbers.next().unwrap_or(0);
                self.column = numbers.next().unwrap_or(0);
            } else if sequence.ends_with('J') {
                self.cells.iter_mut().for_each(|line| line.fill(' '));
            }
            rest = &rest[end + 1..];
        }
        text.len() - rest.len()
    }

    fn text(&self) -> String {
        self.cells.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
    }
}

impl OnTerminal {
    pub fn start(
        cluster: &Cluster,
        args: &[&str],
        (columns, rows): (u16, u16),
        variables: &[(&str, &str)],
    ) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&size, None).expect("a terminal");
        let slave = File::from(slave);
        let end = || Stdio::from(slave.try_clone().expect("the terminal again"));
        let mut command = cluster.command(args);
        command
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        let child = command.envs(variables.iter().copied()).spawn().expect("the program runs");
        let screen = Grid::new((columns, rows));
        Self { child, terminal: File::from(master), slave, seen: String::new(), shown: 0, screen }
    }

    pub fn mode(&self) -> Termios {
        tcgetattr(&self.slave).expect("a terminal")
    }

    /// Reads until the screen satisfies `good`.
    pub fn until(&mut self, what: &str, good: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !good(&self.screen.text()) {
            let screen = self.screen.text();
            assert!(Instant::now() < deadline, "it did not come about: {what}:\n{screen}");
            self.read();
        }
    }

    /// Takes what comes within a tenth of a second.
    fn read(&mut self) {
        let mut fds = [PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(100_u8)).expect("a terminal") == 0 {
            return;
        }
        let mut buffer = [0; 65536];
        let length = self.terminal.read(&mut buffer).expect("readable");
        self.seen += &String::from_utf8_lossy(&buffer[..length]);
        self.shown += self.screen.write(&self.seen[self.shown..]);
    }

    pub fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Types more than the terminal takes at a time; what is drawn meanwhile is to be read.
    pub fn paste(&self, text: String) -> JoinHandle<()> {
        let mut terminal = self.terminal.try_clone().expect("the terminal again");
        std::thread::spawn(move || terminal.write_all(text.as_bytes()).expect("a terminal"))
    }

    pub fn resize(&mut self, (columns, rows): (u16, u16)) {
        self.screen = Grid::new((columns, rows));
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        use std::os::fd::AsRawFd;
        // SAFETY: the request reads one `winsize`, which outlives the call.
        let done = unsafe { libc::ioctl(self.terminal.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0);
        // The terminal is nobody's controlling one: the kernel tells nobody.
        let child = Pid::from_raw(self.child.id() as i32);
        kill(child, Signal::SIGWINCH).expect("the program runs");
    }

    pub fn end(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.read();
            if let Some(status) = self.child.try_wait().expect("a child") {
                self.read();
                return status;
            }
            assert!(Instant::now() < deadline, "it did not end");
        }
    }
}
