//! Whether something was committed since that was asked last, for the thread that tells the other servers.

use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Default)]
pub(super) struct CommitSignal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_set: bool,
    is_over: bool,
}

impl CommitSignal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic with the signal held")
    }

    /// Sets it. Who waits is woken by the first of several: a commit wakes nobody who does not wait for it.
    pub fn set(&self) {
        let was_set = std::mem::replace(&mut self.state().is_set, true);
        if !was_set {
            self.changed.notify_all();
        }
    }

    /// Nobody waits for it any more.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// Waits until it is set, and takes it back; false when nobody is to wait any more.
    pub fn take(&self) -> bool {
        let is_idle = |state: &mut State| !state.is_set && !state.is_over;
        let waited = self.changed.wait_while(self.state(), is_idle);
        let mut state = waited.expect("no panic with the signal held");
        state.is_set = false;
        !state.is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_told_once_together_until_the_end() {
        let signal = CommitSignal::default();
        for _ in 0..2 {
            signal.set();
            signal.set();
            assert!(signal.take());
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| (signal.take(), signal.take()));
            signal.set();
            // Whoever takes it twice waits for the end.
            signal.end();
            assert!(!waits.join().expect("no panic").1);
        });
    }
}
