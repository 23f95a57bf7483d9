//! Whether a replica's server is up: connections to it that were made, by a step, which knows what is its job's, or without one, and what its
//! node's agent says of its port.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

#[derive(Default)]
pub struct ReachState {
    /// For each request to ask; written with the connections held.
    is_reached: AtomicBool,
    connections: Mutex<Connections>,
}

#[derive(Default)]
struct Connections {
    /// When the last one was made.
    last: Option<Instant>,
    /// One is wanted that was made at this time or later.
    wanted: Option<Instant>,
}

impl Connections {
    fn is_one_since(&self, time: Instant) -> bool {
        self.last.is_some_and(|last| last >= time)
    }
}

impl ReachState {
    fn connections(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().expect("no panic with the connections held")
    }

    pub fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    /// A connection was made.
    pub fn note_reached(&self, now: Instant) {
        let mut connections = self.connections();
        connections.last = Some(now);
        self.is_reached.store(true, Relaxed);
    }

    /// Nobody listens at its port: its server has ended, and is looked for again. `asked`: when it was asked for; where a connection was made
    /// since, the answer is of before.
    pub fn note_unreached(&self, asked: Instant) {
        let connections = self.connections();
        if !connections.is_one_since(asked) {
            self.is_reached.store(false, Relaxed);
        }
    }

    /// Whether a connection was made at a time or later. Where none was, one is wanted.
    pub fn is_reached_since(&self, time: Instant) -> bool {
        let mut connections = self.connections();
        let is_since = connections.is_one_since(time);
        if !is_since {
            connections.wanted = Some(time);
        }
        is_since
    }

    /// Whether a connection is to be made to know whether it is up.
    pub fn is_asked_for(&self) -> bool {
        if !self.is_reached() {
            return true;
        }
        let connections = self.connections();
        connections.wanted.is_some_and(|time| !connections.is_one_since(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn answer_that_was_asked_for_before_the_last_connection_says_nothing() {
        let (state, start) = (ReachState::default(), Instant::now());
        let later = |s| start + Duration::from_secs(s);
        assert!(!state.is_reached() && state.is_asked_for());
        state.note_reached(later(2));
        state.note_unreached(later(1));
        assert!(state.is_reached(), "a request has connected since");
        state.note_unreached(later(3));
        assert!(!state.is_reached() && state.is_asked_for());
    }

    #[test]
    fn connection_is_asked_for_until_one_is_made_since() {
        let (state, start) = (ReachState::default(), Instant::now());
        let later = |s| start + Duration::from_secs(s);
        state.note_reached(later(1));
        assert!(!state.is_asked_for() && state.is_reached_since(later(1)));
        assert!(!state.is_asked_for());
        assert!(!state.is_reached_since(later(5)) && state.is_asked_for());
        state.note_reached(later(4));
        assert!(state.is_asked_for(), "it was made before");
        state.note_reached(later(5));
        assert!(!state.is_asked_for() && state.is_reached_since(later(5)));
    }
}
