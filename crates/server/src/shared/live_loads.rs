//! What running jobs used when their nodes were last asked, for `/metrics`. A scrape never waits for nodes: it shows the last
//! answers, and has them asked anew.

use model::id::JobId;
use model::load::Load;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Answers are shown for this long.
const SHOWN_MAX: Duration = Duration::from_secs(60);

/// Nodes are asked again after this long at the earliest.
const PAUSE: Duration = Duration::from_secs(5);

/// By job and node.
pub type Loads = HashMap<(JobId, String), Load>;

#[derive(Default)]
pub struct LiveLoads {
    last: Mutex<LastAnswers>,
}

#[derive(Default)]
struct LastAnswers {
    loads: Arc<Loads>,
    answered: Option<Instant>,
    /// When nodes were asked; none while nobody waits for answers.
    asked: Option<Instant>,
}

impl LiveLoads {
    /// The last answers, and whether the caller is to ask again.
    pub fn take(&self, now: Instant) -> (Arc<Loads>, bool) {
        let mut last = self.last.lock().expect("no panic with the loads held");
        let age = last.answered.map(|at| now.saturating_duration_since(at));
        let is_shown = age.is_some_and(|age| age < SHOWN_MAX);
        // Whoever asked may have been dropped with its answer.
        let is_asked = last.asked.is_some_and(|at| now.saturating_duration_since(at) < SHOWN_MAX);
        let is_due = !is_asked && age.is_none_or(|age| age >= PAUSE);
        if is_due {
            last.asked = Some(now);
        }
        (if is_shown { last.loads.clone() } else { Arc::default() }, is_due)
    }

    pub fn put(&self, loads: Loads, now: Instant) {
        let mut last = self.last.lock().expect("no panic with the loads held");
        *last = LastAnswers { loads: Arc::new(loads), answered: Some(now), asked: None };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_asked_by_one_at_a_time_and_answers_shown_while_they_are_young() {
        let (loads, start) = (LiveLoads::default(), Instant::now());
        let after = |secs| start + Duration::from_secs(secs);
        let taken = |at| {
            let (shown, is_due) = loads.take(after(at));
            (shown.len(), is_due)
        };
        assert_eq!(taken(0), (0, true));
        assert_eq!(taken(1), (0, false), "somebody is asking");
        let one = Loads::from([((JobId(1), "n1".to_owned()), Load::default())]);
        loads.put(one, after(2));
        assert_eq!(taken(3), (1, false));
        assert_eq!(taken(7), (1, true));
        assert_eq!(taken(61), (1, false));
        assert_eq!(taken(62), (0, false), "too old");
        assert_eq!(taken(67), (0, true), "whoever asked is gone");
    }
}
