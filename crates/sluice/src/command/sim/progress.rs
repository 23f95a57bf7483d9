//! How far a simulation is: a line that is written over on a terminal, and a new one now and then where there is none.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line says how far it is where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(10);

pub struct Progress {
    is_terminal: bool,
    /// When the next line is due where there is no terminal.
    line_due: Instant,
}

impl Progress {
    pub fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, line_due: Instant::now() + LINE_PERIOD }
    }

    pub fn jobs(&mut self, done: usize, all: usize) {
        let percent = 100 * done / all.max(1);
        self.say(&format!("{done} of {all} jobs, {percent} %"));
    }

    pub fn say(&mut self, line: &str) {
        if self.is_terminal {
            write(&format!("\r{line}"));
        } else if Instant::now() >= self.line_due {
            self.line_due = Instant::now() + LINE_PERIOD;
            write(&format!("{line}\n"));
        }
    }

    /// Takes the line off the terminal.
    pub fn clear(&self) {
        if self.is_terminal {
            write("\r\x1b[K");
        }
    }
}

/// A terminal that is gone is no reason to end.
fn write(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
