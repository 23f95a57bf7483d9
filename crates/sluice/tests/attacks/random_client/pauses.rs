//! When the whole machine stood still, as a virtual one does while its host is busy: that is no time of the server's.

use nix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A thread that goes before all others and still wakes up later than this was kept by the machine.
const LATE: Duration = Duration::from_millis(100);

/// Since the machine's start: the clock that other programs read too.
fn now() -> Duration {
    Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).expect("a clock"))
}

#[derive(Default)]
pub struct Pauses(Mutex<Vec<Range<Duration>>>);

impl Pauses {
    /// Notes each until it is told to stop.
    pub fn watch(&self, stop: &AtomicBool) {
        let first = libc::sched_param { sched_priority: 1 };
        // SAFETY: the numbers and the struct are read, and 0 is this thread.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const first) };
        assert_eq!(set, 0, "a thread that goes before others: {}", nix::errno::Errno::last());
        while !stop.load(Ordering::Relaxed) {
            let expected = now() + BETWEEN_LOOKS;
            thread::sleep(BETWEEN_LOOKS);
            let woken = now();
            if woken > expected + LATE {
                println!("the machine stood still for {:?}", woken - expected);
                self.0.lock().expect("pauses").push(expected..woken);
            }
        }
    }

    /// How much of a time the machine stood still.
    pub fn within(&self, time: &Range<Duration>) -> Duration {
        let pauses = self.0.lock().expect("pauses");
        let shared = |pause: &Range<Duration>| {
            pause.end.min(time.end).saturating_sub(pause.start.max(time.start))
        };
        pauses.iter().map(shared).sum()
    }
}

#[test]
fn a_pause_counts_as_far_as_it_lies_in_the_time() {
    let seconds = |from: u64, to: u64| Duration::from_secs(from)..Duration::from_secs(to);
    let pauses = Pauses(Mutex::new(vec![seconds(10, 12), seconds(20, 30)]));
    for (time, expected) in
        [(seconds(1, 5), 0), (seconds(11, 15), 1), (seconds(9, 25), 7), (seconds(22, 23), 1)]
    {
        assert_eq!(pauses.within(&time), Duration::from_secs(expected), "{time:?}");
    }
}
