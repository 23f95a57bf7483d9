//! How far a simulation is: a line that is written over on a terminal, and a new one now and then where there is none.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How often a line says how far it is: on a terminal, and where there is none.
const TERMINAL_PERIOD: Duration = Duration::from_millis(100);
const LINE_PERIOD: Duration = Duration::from_secs(10);

const DAY_S: u64 = 86_400;

pub struct Progress {
    is_terminal: bool,
    /// When the next line is due.
    line_due: Instant,
}

impl Progress {
    pub fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let period = if is_terminal { Duration::ZERO } else { LINE_PERIOD };
        Self { is_terminal, line_due: Instant::now() + period }
    }

    /// How far a replay of so many jobs is. One job may run for years: the day says that time passes.
    pub fn replay(&mut self, done: ::sim::Progress, all: usize) {
        let percent = 100 * done.ended / all.max(1);
        let day = done.passed.as_secs() / DAY_S + 1;
        self.say(&format!("{} of {all} jobs, {percent} %, day {day}", done.ended));
    }

    pub fn jobs(&mut self, done: usize, all: usize) {
        let percent = 100 * done / all.max(1);
        self.say(&format!("{done} of {all} jobs, {percent} %"));
    }

    pub fn say(&mut self, line: &str) {
        let now = Instant::now();
        if now < self.line_due {
            return;
        }
        if self.is_terminal {
            self.line_due = now + TERMINAL_PERIOD;
            write(&format!("\r{line}\x1b[K"));
        } else {
            self.line_due = now + LINE_PERIOD;
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
