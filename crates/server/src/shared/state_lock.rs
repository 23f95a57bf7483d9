//! The cluster's state behind its lock.

use cluster::State;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Everybody reads; only the writer's thread writes.
///
/// A poisoned lock means that applying an event broke an invariant: nothing may go on, so both methods panic.
///
/// A thread holds it once at a time: a second read stands still where a writer came to wait between the two, and the
/// writer waits for the first. Builds with debug assertions, and so all tests, refuse it whether or not a writer came.
#[derive(Clone)]
pub struct StateLock(Arc<RwLock<State>>);

/// The state as one reader holds it.
pub struct StateRead<'a> {
    state: RwLockReadGuard<'a, State>,
    _turn: turn::Turn,
}

/// The state as the writer holds it.
pub struct StateWrite<'a> {
    state: RwLockWriteGuard<'a, State>,
    _turn: turn::Turn,
}

impl StateLock {
    pub fn new(state: State) -> Self {
        Self(Arc::new(RwLock::new(state)))
    }

    #[track_caller]
    pub fn read(&self) -> StateRead<'_> {
        let turn = turn::Turn::take();
        StateRead { state: self.0.read().expect("the state's invariants hold"), _turn: turn }
    }

    #[track_caller]
    pub fn write(&self) -> StateWrite<'_> {
        let turn = turn::Turn::take();
        StateWrite { state: self.0.write().expect("the state's invariants hold"), _turn: turn }
    }
}

impl Deref for StateWrite<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateWrite<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Deref for StateRead<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

/// The thread's one hold of the state, where debug assertions are on.
#[cfg(debug_assertions)]
mod turn {
    use std::cell::Cell;
    use std::panic::Location;

    thread_local! {
        static HOLDER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
    }

    pub struct Turn;

    impl Turn {
        #[track_caller]
        pub fn take() -> Self {
            if let Some(first) = HOLDER.get() {
                panic!("this thread already holds the state, since {first}");
            }
            HOLDER.set(Some(Location::caller()));
            Self
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            HOLDER.set(None);
        }
    }
}

#[cfg(not(debug_assertions))]
mod turn {
    pub struct Turn;

    impl Turn {
        pub fn take() -> Self {
            Self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "already holds the state")]
    fn a_thread_reads_once_at_a_time() {
        let lock = StateLock::new(State::default());
        let _first = lock.read();
        let _second = lock.read();
    }

    #[test]
    fn one_read_after_another_is_granted() {
        let lock = StateLock::new(State::default());
        drop(lock.read());
        drop(lock.write());
        drop(lock.read());
    }
}
