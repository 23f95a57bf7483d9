//! The last things that happened in a history, for the report of one that fails.

use std::collections::VecDeque;

/// The lines of a report.
const LINES_MAX: usize = 60;

/// Does nothing unless it is on: a history is run a second time for its trace.
#[derive(Debug, Default)]
pub struct Trace {
    is_on: bool,
    lines: VecDeque<String>,
}

impl Trace {
    pub fn on() -> Self {
        Self { is_on: true, lines: VecDeque::new() }
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.is_on {
            return;
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line());
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}
