//! Threads with an event loop each, for connections whose requests are passed on: a request, its answer and the connections of both stay
//! on one thread, and nothing wakes another. Threads that share one loop wake each other with most requests.

use crate::vital_task;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::sleep;

/// Connections are few for each of more loops, and those to servers seldom where they are used again.
const LOOPS_MAX: usize = 16;

/// Less than the timeouts of connections and of requests, which are all that a loop has timers for at most times.
const NEAR: Duration = Duration::from_secs(10);

thread_local! {
    static OWN: Cell<LoopNumber> = const { Cell::new(LoopNumber(0)) };
}

/// Which event loop a thread has; the threads of a runtime that share one have one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopNumber(usize);

impl LoopNumber {
    pub fn of_this_thread() -> Self {
        OWN.get()
    }
}

/// They end when this is dropped, with what they have not done.
pub struct EventLoops(Vec<EventLoop>);

struct EventLoop {
    handle: Handle,
    /// One for each place, and this one.
    places: Arc<()>,
    /// Dropped to end it.
    _end: oneshot::Sender<()>,
}

/// The place of a connection in one of the loops, which do not end before it is dropped.
pub struct LoopPlace {
    loops: Arc<EventLoops>,
    at: usize,
    _counted: Arc<()>,
}

impl EventLoops {
    /// One for each processor that this process may use, within bounds.
    pub fn start(name: &str) -> io::Result<Arc<Self>> {
        let count = available_parallelism().map_or(1, NonZero::get).min(LOOPS_MAX);
        let loops = (1..=count).map(|number| EventLoop::start(name, number));
        Ok(Arc::new(Self(loops.collect::<Result<_, _>>()?)))
    }

    /// A place in the loop that has the fewest.
    pub fn place(self: &Arc<Self>) -> LoopPlace {
        let taken = |at: &usize| Arc::strong_count(&self.0[*at].places);
        let at = (0..self.0.len()).min_by_key(taken).unwrap_or(0);
        LoopPlace { loops: self.clone(), at, _counted: self.0[at].places.clone() }
    }
}

impl LoopPlace {
    /// Runs a task there.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.loops.0[self.at].handle.spawn(task);
    }
}

impl EventLoop {
    fn start(name: &str, number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::Builder::new().name(format!("{name} {number}")).spawn(move || {
            let _vital = VitalThread;
            OWN.set(LoopNumber(number));
            runtime.block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = keep_a_near_timer() => {}
                }
            });
            // Its own threads may be in a call that hangs.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, places: Arc::default(), _end: end })
    }
}

/// A runtime wakes itself, by two calls of the system, for each new timer that is earlier than all it had when it last waited: with most requests
/// of a connection that is alone, because the timeout of the next request is shorter than that of an answer. There is always an earlier one.
async fn keep_a_near_timer() {
    loop {
        sleep(NEAR).await;
    }
}

/// Held by the thread of a loop. A task that panics ends alone; where the loop itself does, its places look free, and each new
/// connection would go to a thread that is gone.
struct VitalThread;

impl Drop for VitalThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            vital_task::end_process(std::thread::current().name().unwrap_or("an event loop"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vital_task::CANNOT_GO_ON;
    use std::collections::BTreeMap;
    use std::process::Command;
    use std::sync::mpsc::{self, TryRecvError};

    const PANICS: &str = "SLUICE_TEST_LOOP_THREAD_PANICS";

    /// The end of the process is this one's: the test runs itself as a process of its own.
    #[test]
    fn panic_of_a_loops_thread_ends_the_process() {
        let mut test = Command::new(std::env::current_exe().expect("this program"));
        test.args(["--exact", "http::event_loops::tests::loop_thread_in_a_process_of_its_own"]);
        let ran = test.arg("--include-ignored").env(PANICS, "1").output().expect("it runs");
        assert_eq!(ran.status.code(), Some(CANNOT_GO_ON));
    }

    #[test]
    #[ignore = "run by the test above"]
    fn loop_thread_in_a_process_of_its_own() {
        let panics = std::env::var(PANICS).is_ok_and(|value| value == "1");
        let thread = std::thread::spawn(move || {
            let _vital = VitalThread;
            assert!(!panics, "as a defect would");
        });
        assert!(thread.join().is_ok(), "the process ends before");
    }

    #[test]
    fn places_are_spread_evenly_and_tasks_stay_on_the_thread_of_theirs() {
        const OF_EACH: usize = 10;
        let loops = EventLoops::start("test").expect("threads");
        let count = OF_EACH * loops.0.len();
        let (found, numbers) = mpsc::channel();
        let places: Vec<LoopPlace> = (0..count).map(|_| loops.place()).collect();
        for place in &places {
            let found = found.clone();
            place.spawn(async move {
                let before = LoopNumber::of_this_thread();
                tokio::task::yield_now().await;
                assert_eq!(LoopNumber::of_this_thread(), before);
                found.send(before.0).expect("a test that waits");
                std::future::pending::<()>().await;
            });
        }
        let mut counts = BTreeMap::<usize, usize>::new();
        for number in numbers.iter().take(count) {
            *counts.entry(number).or_default() += 1;
        }
        assert!(counts.values().all(|count| *count == OF_EACH), "{counts:?}");
        assert!(!counts.contains_key(&LoopNumber::of_this_thread().0));
        drop((found, loops));
        assert!(numbers.try_recv() == Err(TryRecvError::Empty), "the places keep their loops");
        drop(places);
        assert!(numbers.recv().is_err(), "the tasks end with their loops");
    }
}
