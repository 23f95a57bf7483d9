//! Whether a replica is ready, by its probes.

use model::service::Probe;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// How often each probe of a replica has succeeded in a row.
pub struct Readiness {
    streaks: Vec<Streak>,
    is_probed: AtomicBool,
}

struct Streak {
    /// From so many on the replica is ready.
    needed: u32,
    found: AtomicU32,
    /// The first success is enough: there may have been as many under an earlier server.
    is_resumed: AtomicBool,
}

impl Streak {
    fn is_long_enough(&self) -> bool {
        self.found.load(Relaxed) >= self.needed
    }
}

impl Readiness {
    pub fn new(probes: &[Probe]) -> Self {
        let streak = |probe: &Probe| Streak {
            needed: probe.ready_after,
            found: AtomicU32::default(),
            is_resumed: AtomicBool::default(),
        };
        Self { streaks: probes.iter().map(streak).collect(), is_probed: AtomicBool::new(false) }
    }

    /// Whether nobody makes the probes yet: the caller is to.
    pub fn begin(&self) -> bool {
        !self.streaks.is_empty() && !self.is_probed.swap(true, Relaxed)
    }

    /// It may have been ready under an earlier server: where the first of its probes succeed, it is so again.
    pub fn resume(&self) {
        self.streaks.iter().for_each(|streak| streak.is_resumed.store(true, Relaxed));
    }

    /// Notes how a probe went; whether it has succeeded often enough.
    pub fn note(&self, probe: usize, succeeded: bool) -> bool {
        let streak = &self.streaks[probe];
        let is_resumed = streak.is_resumed.swap(false, Relaxed);
        if succeeded && is_resumed {
            streak.found.store(streak.needed, Relaxed);
        } else if succeeded {
            streak.found.fetch_add(1, Relaxed);
        } else {
            streak.found.store(0, Relaxed);
        }
        streak.is_long_enough()
    }

    pub fn is_ready(&self) -> bool {
        self.streaks.iter().all(Streak::is_long_enough)
    }

    pub fn streaks(&self) -> Vec<u32> {
        self.streaks.iter().map(|streak| streak.found.load(Relaxed)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_is_ready_when_all_its_probes_succeeded_often_enough() {
        let probe = |ready_after| Probe { ready_after, ..Probe::default() };
        let readiness = Readiness::new(&[probe(1), probe(2)]);
        assert!(readiness.begin() && !readiness.begin(), "probed once");
        assert!(readiness.note(0, true));
        assert!(!readiness.note(1, true) && !readiness.is_ready());
        assert!(readiness.note(1, true) && readiness.is_ready());
        assert_eq!(readiness.streaks(), [1, 2]);
        assert!(!readiness.note(0, false) && !readiness.is_ready(), "one failure is enough");
        let resumed = Readiness::new(&[probe(3), probe(3)]);
        resumed.resume();
        assert!(!resumed.is_ready(), "nobody has probed it here");
        assert!(resumed.note(0, true) && !resumed.is_ready(), "the other probe has not been made");
        assert!(!resumed.note(1, false) && !resumed.note(1, true), "it counts anew");
        let unprobed = Readiness::new(&[]);
        assert!(unprobed.is_ready() && !unprobed.begin());
    }
}
