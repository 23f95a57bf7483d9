//! The cluster's state behind its lock.

use crate::shared::runtime_thread::aside;
use cluster::State;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Everybody reads; who commits writes: the writer's thread, or one that commits a submission of its own meanwhile.
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
        let mut turn = turn::Turn::take();
        // Most readers wait for nobody: nothing is timed of a wait. A writer that waits comes first either way.
        let state = if let Ok(state) = self.0.try_read() {
            state
        } else {
            // A commit of a slow database holds the state for as long: a thread of the runtime has others to serve meanwhile.
            let state = aside(|| self.0.read().expect("the state's invariants hold"));
            turn.granted();
            state
        };
        StateRead { state, _turn: turn }
    }

    #[track_caller]
    pub fn write(&self) -> StateWrite<'_> {
        let mut turn = turn::Turn::take();
        let state = self.0.write().expect("the state's invariants hold");
        turn.granted();
        StateWrite { state, _turn: turn }
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

/// One hold of the state, from the wait for it to its end.
mod turn {
    use std::panic::Location;
    use std::time::{Duration, Instant};

    /// A hold that is longer delays everybody who asks, and is logged with its place.
    const LONG: Duration = Duration::from_millis(200);

    pub struct Turn {
        place: &'static Location<'static>,
        begin: Instant,
        _only: only::Only,
    }

    impl Turn {
        #[track_caller]
        pub fn take() -> Self {
            let place = Location::caller();
            Self { place, begin: Instant::now(), _only: only::Only::take(place) }
        }

        /// The lock is held from now on.
        pub fn granted(&mut self) {
            let now = Instant::now();
            let waited = now - std::mem::replace(&mut self.begin, now);
            if waited > LONG {
                tracing::warn!(ms = waited.as_millis(), place = %self.place, "waited long for the state");
            }
        }
    }

    impl Drop for Turn {
        fn drop(&mut self) {
            let held = self.begin.elapsed();
            if held > LONG {
                tracing::warn!(ms = held.as_millis(), place = %self.place, "held the state for long");
            }
        }
    }

    /// The thread's one hold, where debug assertions are on.
    mod only {
        use std::cell::Cell;
        use std::panic::Location;

        thread_local! {
            static HOLDER: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
        }

        pub struct Only;

        impl Only {
            pub fn take(place: &'static Location<'static>) -> Self {
                if cfg!(debug_assertions) {
                    if let Some(first) = HOLDER.get() {
                        panic!("this thread already holds the state, since {first}");
                    }
                    HOLDER.set(Some(place));
                }
                Self
            }
        }

        impl Drop for Only {
            fn drop(&mut self) {
                HOLDER.set(None);
            }
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

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn readers_who_wait_for_the_state_keep_no_task_of_their_runtime_waiting() {
        const READERS: usize = 8;
        let lock = StateLock::new(State::default());
        let (waits, mut waiting) = tokio::sync::mpsc::unbounded_channel();
        let commit = lock.write();
        let reader = || {
            let (lock, waits) = (lock.clone(), waits.clone());
            async move {
                waits.send(()).expect("a test that waits");
                drop(lock.read());
            }
        };
        let readers: Vec<_> = (0..READERS).map(|_| tokio::spawn(reader())).collect();
        // More than there are threads, and another task after each.
        for _ in 0..READERS {
            waiting.recv().await.expect("a reader");
            tokio::spawn(async {}).await.expect("another task");
        }
        drop(commit);
        for reader in readers {
            reader.await.expect("it reads");
        }
    }

    #[test]
    fn one_read_after_another_is_granted() {
        let lock = StateLock::new(State::default());
        drop(lock.read());
        drop(lock.write());
        drop(lock.read());
    }
}
