//! What agents say about the health of their nodes, held to a rate: each change is an event, a line of the log and an entry of
//! the audit trail. What comes too soon waits; of several the last, which is never lost.

use crate::rate_limit::{RateLimit, RateUse};
use model::health::HealthSource;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Changes by one source of a node: a few at once, for a node whose check fails and passes, and then one in ten seconds.
const CHANGES: RateLimit = RateLimit { burst: 6, interval: Duration::from_secs(10) };

/// What was found, or that nothing is any more.
pub type Finding = Option<String>;

#[derive(Default)]
pub struct HealthReports(Mutex<BTreeMap<(String, HealthSource), Reports>>);

#[derive(Default)]
struct Reports {
    used: RateUse,
    /// What was let through last.
    last: Option<Finding>,
    waiting: Option<Finding>,
}

impl Reports {
    fn take(&mut self, found: Finding, now: Instant) -> Option<Finding> {
        let is_known = self.last.as_ref() == Some(&found);
        if !is_known && !CHANGES.take(&mut self.used, now) {
            self.waiting = Some(found);
            return None;
        }
        self.waiting = None;
        self.last = Some(found.clone());
        Some(found)
    }
}

impl HealthReports {
    /// The report, if it is to be decided on now. One that only repeats the last is.
    pub fn take(
        &self,
        node: &str,
        source: HealthSource,
        found: Finding,
        now: Instant,
    ) -> Option<Finding> {
        self.lock().entry((node.to_owned(), source)).or_default().take(found, now)
    }

    /// A report that could not be kept waits again, unless there is a later one.
    pub fn put_back(&self, node: &str, source: HealthSource, found: Finding) {
        let mut all = self.lock();
        let reports = all.entry((node.to_owned(), source)).or_default();
        if reports.waiting.is_none() && reports.last.as_ref() == Some(&found) {
            (reports.last, reports.waiting) = (None, Some(found));
        }
    }

    /// The reports whose wait is over.
    pub fn due(&self, now: Instant) -> Vec<(String, HealthSource, Finding)> {
        let mut all = self.lock();
        let mut due = Vec::new();
        for ((node, source), reports) in all.iter_mut() {
            if let Some(found) = reports.waiting.take().and_then(|found| reports.take(found, now)) {
                due.push((node.clone(), *source, found));
            }
        }
        // One that may change as often as a new one need not be remembered.
        all.retain(|_, reports| {
            reports.waiting.is_some() || !CHANGES.is_unused(&reports.used, now)
        });
        due
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, HealthSource), Reports>> {
        self.0.lock().expect("no panic with the reports held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_change_too_often_wait_and_the_last_is_taken_in_the_end() {
        let (reports, start) = (HealthReports::default(), Instant::now());
        let say = |text: &str, seconds: u64| {
            let at = start + Duration::from_secs(seconds);
            reports.take("n1", HealthSource::Check, Some(text.into()), at).is_some()
        };
        let taken = (0..100).filter(|n| say(&format!("failure {n}"), 0)).count();
        assert_eq!(taken, CHANGES.burst as usize);
        assert!(say("failure 5", 1), "what is known is told at any time");
        assert!(!say("the last", 1));
        let other = reports.take("n2", HealthSource::Check, None, start);
        assert_eq!(other, Some(None), "other nodes are not held up");
        let due = |seconds: u64| reports.due(start + Duration::from_secs(seconds));
        assert_eq!(due(9), []);
        assert_eq!(due(10), [("n1".into(), HealthSource::Check, Some("the last".into()))]);
        reports.put_back("n1", HealthSource::Check, Some("the last".into()));
        assert_eq!(due(20).len(), 1, "it was not kept");
        assert_eq!(due(30), []);
        assert!(due(1000).is_empty() && reports.lock().is_empty(), "nothing is kept for good");
    }
}
