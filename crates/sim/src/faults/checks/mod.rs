//! What must hold in every history: of each event as it is applied, of each commit as it is published, of what agents do, and of the
//! state as a whole.
//!
//! ```text
//!   edges        along which edges jobs and nodes move
//!   starts       what may start
//!   counts       what is granted and counted: nodes, limits, steps, and the state counted anew
//!   charges      what attempts are charged with
//!   explained    what is explained of a waiting job, and the plan that is made from nothing
//! ```

mod charges;
mod counts;
mod edges;
mod explained;
mod starts;
#[cfg(test)]
mod tests;

pub use counts::recounts;
pub use edges::Moving;
pub use explained::{explanation, plan_from_nothing};
pub use starts::{Awaited, awaited};

use charges::Charges;
use cluster::command::AttemptReport;
use cluster::{EndRecord, Event, Reply, State};
use model::allocation::{Allocation, NodeShare};
use model::id::{AttemptId, JobId};
use model::reason::Refusal;
use model::record::{JobRecord, RecordState};
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken(pub String);

pub type Checked = Result<(), Broken>;

fn hold(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(Broken(what())) }
}

/// What is durable or has really happened, kept apart from the state.
#[derive(Default)]
pub struct Ledger {
    /// Ids of jobs in commits on disk.
    ids: BTreeSet<JobId>,
    /// Jobs whose submit was answered.
    acknowledged: BTreeSet<JobId>,
    /// Where the history ended when a client was last told that something was done: a submit, a cancel, a hold, a change.
    answered_upto: u64,
    /// Jobs whose record has left memory.
    gone: BTreeSet<JobId>,
    /// What each attempt on disk was granted.
    granted: BTreeMap<AttemptId, Granted>,
    charges: Charges,
    /// Attempts that were started, on which node.
    launched: BTreeSet<(AttemptId, String)>,
}

/// What an attempt was granted, and for how long.
struct Granted {
    allocation: Arc<Allocation>,
    at: Timestamp,
    end_limit: Option<Timestamp>,
}

impl Ledger {
    pub fn launches(&self) -> usize {
        self.launched.len()
    }

    /// Whether the event may follow in this state: states move only along the drawn edges, and nothing starts that may not.
    pub fn before(&self, state: &State, event: &Event) -> Result<Vec<Moving>, Broken> {
        let moving = edges::before(state, event, &self.ids)?;
        if let Event::Started(started) = event {
            let attempt = started.attempt;
            if let Some(why) = starts::why_not(state, started) {
                return Err(Broken(format!("attempt {attempt} may not start: {why}")));
            }
            let is_new = !self.granted.contains_key(&attempt);
            hold(is_new, || format!("attempt {attempt} starts a second time"))?;
        }
        Ok(moving)
    }

    /// What must hold once the event was applied.
    pub fn after(
        &self,
        state: &State,
        event: &Event,
        record: Option<&JobRecord>,
        moving: &[Moving],
    ) -> Checked {
        edges::after(state, event, moving)?;
        let ended = match event {
            Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => Some((job, ended)),
            Event::TasksCancelled { array, ended, .. } => Some((array, ended)),
            _ => None,
        };
        match (ended, record) {
            (None, None) => {}
            (Some((job, ended)), Some(record)) => self.record_is_true(*job, ended, record)?,
            _ => return Err(Broken(format!("the books' record is wrong for {event:?}"))),
        }
        match event {
            Event::Started(started) => {
                counts::nothing_oversubscribed(state, started)?;
                counts::limits_hold(state, started.attempt.job)?;
                counts::group_limit_holds(state, started.attempt.job)
            }
            Event::StepStarted { job, .. } => counts::steps_share_nothing(state, *job),
            _ => Ok(()),
        }
    }

    /// The books' record says what was granted, from when to when, and how it ended.
    fn record_is_true(&self, job: JobId, ended: &EndRecord, record: &JobRecord) -> Checked {
        let granted = self.granted.get(&AttemptId { job, number: record.attempt });
        let is_as_granted = granted.is_none_or(|granted| {
            record.start == Some(granted.at)
                && record.cpus == granted.allocation.cpu_count()
                && granted.allocation.node_names().eq(record.nodes.iter().map(String::as_str))
        });
        let is_true = record.job == job
            && record.end == Some(ended.end)
            && record.state == RecordState::Ended(ended.outcome)
            && is_as_granted;
        hold(is_true, || format!("the books' record of job {job} is wrong: {record:?}"))
    }

    /// A commit is on disk.
    pub fn published(&mut self, state: &State, events: &[Event]) -> Checked {
        for event in events {
            self.charges.note(state, event);
            match event {
                Event::Submitted(submitted) => {
                    self.ids.insert(submitted.job);
                }
                Event::TaskSplit { array, job, .. } => {
                    self.ids.insert(*job);
                    self.note_gone(state, *array);
                }
                Event::Started(started) => {
                    self.ids.insert(started.attempt.job);
                    let granted = Granted {
                        allocation: started.allocation.clone(),
                        at: started.at,
                        end_limit: started.end_limit,
                    };
                    self.granted.insert(started.attempt, granted);
                    if let Some((array, _)) = started.task {
                        self.note_gone(state, array);
                    }
                }
                Event::TasksCancelled { array, .. } => self.note_gone(state, *array),
                Event::Purged { jobs } => self.gone.extend(jobs.iter().copied()),
                _ => {}
            }
        }
        self.charges.hold(state)
    }

    fn note_gone(&mut self, state: &State, job: JobId) {
        if state.job(job).is_none() {
            self.gone.insert(job);
        }
    }

    /// A client was answered, whose events are in the history up to here.
    pub fn acknowledged(&mut self, answer: &Result<Reply, Refusal>, upto: u64) {
        let Ok(reply) = answer else { return };
        self.answered_upto = self.answered_upto.max(upto);
        if let Reply::Submitted { job, .. } = reply {
            self.acknowledged.insert(*job);
        }
    }

    /// Nothing that was acknowledged is missing at the end of the history, which has this number.
    pub fn history_is_kept(&self, end: u64) -> Checked {
        let upto = self.answered_upto;
        hold(end >= upto, || format!("the history ends at {end}, and {upto} was acknowledged"))
    }

    /// No acknowledged job is lost, after a restart.
    pub fn jobs_are_kept(&self, state: &State) -> Checked {
        let is_kept = |job: &JobId| state.jobs.contains_key(job) || self.gone.contains(job);
        match self.acknowledged.iter().find(|job| !is_kept(job)) {
            Some(lost) => Err(Broken(format!("job {lost} was acknowledged and is lost"))),
            None => Ok(()),
        }
    }

    /// When the time limit of an attempt ends it, by the server's clock; `None` where it was changed, or does not say it alone: the
    /// attempt was suspended, or is ending.
    pub fn limit(&self, state: &State, attempt: AttemptId) -> Option<Timestamp> {
        let active = state.job(attempt.job)?.attempt()?;
        let is_plain = active.number == attempt.number
            && active.ending.is_none()
            && active.suspend_changed.is_none();
        let granted = self.granted.get(&attempt).filter(|_| is_plain)?;
        active.end_limit.filter(|_| active.end_limit == granted.end_limit)
    }

    /// An agent starts its part of an attempt: once, and with what was granted.
    pub fn launch(&mut self, attempt: AttemptId, share: &NodeShare) -> Checked {
        let node = &share.node;
        let granted = self.granted.get(&attempt);
        hold(granted.is_some(), || {
            format!("{node} starts attempt {attempt}, whose start is not on disk")
        })?;
        hold(granted.and_then(|granted| granted.allocation.share(node)) == Some(share), || {
            format!("{node} starts attempt {attempt} with what it was not granted: {share:?}")
        })?;
        let is_first = self.launched.insert((attempt, node.clone()));
        hold(is_first, || format!("{node} starts attempt {attempt} a second time"))
    }
}

/// The state that was read back is that before the commit which failed or was cut off, or that after it. Returns whether the
/// commit was kept.
pub fn read_back(before: Option<&State>, memory: &State, found: &State) -> Result<bool, Broken> {
    // Where the lists are in the same order already, no copies are needed.
    if found == memory {
        return Ok(true);
    }
    let found = found.with_sorted_lists();
    if found == memory.with_sorted_lists() {
        return Ok(true);
    }
    let is_before = before.is_some_and(|before| found == before.with_sorted_lists());
    let what = "the state that was read back is not the one that was acknowledged";
    hold(is_before, || what.to_owned()).map(|()| false)
}

/// Whether a report says that nothing of the attempt is left.
pub fn is_last(what: &AttemptReport) -> bool {
    matches!(what, AttemptReport::Ended { .. } | AttemptReport::LaunchFailed { .. })
}
