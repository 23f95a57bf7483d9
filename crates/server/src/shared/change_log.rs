//! What changed lately, for pages that are open: which jobs, and whether nodes or anything else. A page that was away for too
//! long is told so, and asks for everything anew.

use crate::clock;
use cluster::Event;
use model::id::JobId;
use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};

/// Changes of jobs that are remembered.
const JOBS_MAX: usize = 16_384;

/// A place in the history of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeSeq(pub u64);

/// When each part of the cluster changed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastChanges {
    pub jobs: ChangeSeq,
    pub nodes: ChangeSeq,
    /// Accounts, reservations, fleets, tokens and what else is listed.
    pub lists: ChangeSeq,
}

impl LastChanges {
    pub fn newest(&self) -> ChangeSeq {
        self.jobs.max(self.nodes).max(self.lists)
    }
}

pub struct ChangeLog {
    inner: Mutex<Inner>,
}

struct Inner {
    seq: u64,
    last: LastChanges,
    jobs: VecDeque<(ChangeSeq, JobId)>,
    /// What changed up to here is not known in detail.
    forgotten: ChangeSeq,
}

impl Default for ChangeLog {
    /// Begins at the time of day: what a page heard from a server before this one is older.
    fn default() -> Self {
        let begin = ChangeSeq(u64::try_from(clock::now().millis()).unwrap_or(0));
        let last = LastChanges { jobs: begin, nodes: begin, lists: begin };
        let inner = Inner { seq: begin.0, last, jobs: VecDeque::new(), forgotten: begin };
        Self { inner: Mutex::new(inner) }
    }
}

impl ChangeLog {
    pub fn last(&self) -> LastChanges {
        self.held().last
    }

    /// The jobs that changed after this place; nothing where that is not known.
    pub fn jobs_since(&self, seen: ChangeSeq) -> Option<HashSet<JobId>> {
        let inner = self.held();
        if seen < inner.forgotten || seen.0 > inner.seq {
            return None;
        }
        let later = inner.jobs.iter().rev().take_while(|(at, _)| *at > seen);
        Some(later.map(|(_, job)| *job).collect())
    }

    pub fn add_event(&self, event: &Event) {
        let mut inner = self.held();
        inner.seq += 1;
        let at = ChangeSeq(inner.seq);
        let jobs = jobs_of(event);
        if !jobs.is_empty() {
            inner.last.jobs = at;
            inner.jobs.extend(jobs.into_iter().map(|job| (at, job)));
            while inner.jobs.len() > JOBS_MAX {
                if let Some((left_out, _)) = inner.jobs.pop_front() {
                    inner.forgotten = left_out;
                }
            }
            return;
        }
        match event {
            Event::NodeUp { .. }
            | Event::NodeSilent { .. }
            | Event::NodeDown { .. }
            | Event::NodeAdmin { .. }
            | Event::NodePower { .. }
            | Event::NodeHealth { .. }
            | Event::NodeSet { .. }
            | Event::DynamicNodesSet { .. }
            | Event::DynamicNodesRemoved { .. } => inner.last.nodes = at,
            Event::TermStarted { .. }
            | Event::Restored { .. }
            | Event::HistoryLost { .. }
            | Event::Configured { .. } => {
                inner.last = LastChanges { jobs: at, nodes: at, lists: at };
                inner.jobs.clear();
                inner.forgotten = at;
            }
            // No list has them.
            Event::WebSessionOpened(_) | Event::WebSessionClosed { .. } => {}
            _ => inner.last.lists = at,
        }
    }

    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no panic with the changes held")
    }
}

/// The jobs that an event changes.
fn jobs_of(event: &Event) -> Vec<JobId> {
    match event {
        Event::Submitted(submitted) => vec![submitted.job],
        Event::Started(started) => {
            let array = started.task.map(|(array, _)| array);
            array.into_iter().chain([started.attempt.job]).collect()
        }
        Event::TaskSplit { array, job, .. } => vec![*array, *job],
        Event::TasksCancelled { array, .. } => vec![*array],
        Event::Held { job, .. }
        | Event::Released { job }
        | Event::Changed { job, .. }
        | Event::Suspended { job, .. }
        | Event::GangSuspended { job, .. }
        | Event::ResumeRequested { job }
        | Event::Resumed { job, .. }
        | Event::StepStarted { job, .. }
        | Event::StepEndedOnNode { job, .. }
        | Event::PreemptionGraceStarted { job, .. }
        | Event::Ending { job, .. }
        | Event::Ended { job, .. }
        | Event::Requeued { job, .. }
        | Event::EndedJobRequeued { job, .. }
        | Event::ReservationLost { job, .. } => vec![*job],
        Event::PrologEndedOnNode { attempt, .. }
        | Event::NetworkMade { attempt, .. }
        | Event::AttemptEndedOnNode { attempt, .. }
        | Event::AttemptAbandonedOnNode { attempt, .. } => vec![attempt.job],
        Event::Purged { jobs } => jobs.clone(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released(job: u32) -> Event {
        Event::Released { job: JobId(job) }
    }

    #[test]
    fn page_hears_of_jobs_that_changed_since_it_looked() {
        let log = ChangeLog::default();
        let begin = log.last().newest();
        log.add_event(&released(1));
        let first = log.last().newest();
        log.add_event(&released(2));
        log.add_event(&released(2));
        assert_eq!(log.jobs_since(begin), Some([JobId(1), JobId(2)].into()));
        assert_eq!(log.jobs_since(first), Some([JobId(2)].into()));
        assert_eq!(log.jobs_since(log.last().newest()), Some(HashSet::new()));
        assert_eq!(log.last().nodes, begin, "no node changed");
        let silent = Event::NodeSilent { node: "n1".into(), at: clock::now() };
        log.add_event(&silent);
        assert!(log.last().nodes > log.last().jobs);
    }

    #[test]
    fn history_is_bounded_and_says_what_it_does_not_know() {
        let log = ChangeLog::default();
        let begin = log.last().newest();
        for job in 0..JOBS_MAX as u32 {
            log.add_event(&released(job));
        }
        assert_eq!(log.jobs_since(begin).map(|jobs| jobs.len()), Some(JOBS_MAX));
        log.add_event(&released(0));
        assert_eq!(log.jobs_since(begin), None, "the first is forgotten");
        let future = ChangeSeq(log.last().newest().0 + 1);
        assert_eq!(log.jobs_since(future), None, "from another server");
        log.add_event(&Event::TermStarted { term: 2, at: clock::now() });
        assert_eq!(log.jobs_since(begin), None);
        assert_eq!(log.held().jobs.len(), 0);
    }
}
