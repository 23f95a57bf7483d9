//! Jobs that are taken, start and end together: the components of Slurm's heterogeneous job.
//!
//! Each is a job of its own with the next id; the first has the script, and stands for all where it is named.

use super::{ended_unstarted, ending, held_again, requeue_begin};
use crate::apply::join;
use crate::command::{Context, Decision, Reply, Submit};
use crate::event::Event;
use crate::job::Job;
use crate::node::Node;
use crate::select;
use crate::state::State;
use crate::view;
use model::attempt::RequeueAs;
use model::change::JobFilter;
use model::id::{JobId, RunId};
use model::reason::Refusal;
use model::run::{ExitStatus, HetComponent, Outcome};
use model::time::Timestamp;
use sched::Start;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most jobs that start together.
const TOGETHER_MAX: usize = 128;

impl State {
    /// All of them or none: what is refused to one is refused to all, before an id is spent.
    pub(super) fn decide_submit_together(
        &self,
        submit: &Submit,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let size = 1 + submit.het_components.len();
        if submit.array.is_some() {
            return Err(Refusal::InvalidArray);
        }
        let parameters = &self.config.parameters;
        let room = (parameters.max_job_count as usize)
            .saturating_sub(self.jobs.len() - self.ended.len())
            .min((u64::from(parameters.max_job_id) + 1).saturating_sub(self.next_job.into())
                as usize)
            .min(TOGETHER_MAX);
        if size > room {
            return Err(Refusal::TooManyJobs { limit: room as u64 });
        }
        let first = JobId(self.next_job);
        let mut events = Vec::with_capacity(size);
        for (spec, offset) in std::iter::once(&submit.spec).chain(&submit.het_components).zip(0..) {
            let Submit { hold, priority, test_only, .. } = *submit;
            let mut one = Submit {
                spec: spec.clone(),
                het_components: Vec::new(),
                array: None,
                hold,
                priority,
                test_only,
            };
            // As the first is, so are all; a new attempt of one alone would not be one of all.
            one.spec.requeue = submit.spec.requeue;
            one.spec.retry = None;
            let Decision { events: of_one, .. } =
                self.decide_submit_of(&one, size as u64, context)?;
            for mut event in of_one {
                if let Event::Submitted(submitted) = &mut event {
                    submitted.job = JobId(first.0 + offset);
                    submitted.run = RunId::from_random(context.random.wrapping_add(offset.into()));
                    submitted.het = Some(HetComponent { first, offset, size: size as u32 });
                }
                events.push(event);
            }
        }
        if submit.test_only {
            return Ok(Decision::default());
        }
        let run = RunId::from_random(context.random);
        Ok(Decision { events, reply: Reply::Submitted { job: first, run } })
    }

    /// The starts of a whole group, each checked beside the ones before it.
    pub(super) fn decide_start_together(
        &self,
        starts: &[Start],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let of_first = starts.first().and_then(|start| self.jobs.get(&start.job));
        let group = of_first.and_then(|job| job.het).ok_or(Refusal::NoCapacityNow)?;
        let named: BTreeSet<JobId> = starts.iter().map(|start| start.job).collect();
        let all: BTreeSet<JobId> = group.jobs().collect();
        if named != all || starts.len() != all.len() {
            return Err(Refusal::JobNotPending(group.first));
        }
        let specs = starts.iter().filter_map(|start| self.jobs.get(&start.job));
        let mut licenses: BTreeMap<&str, u32> = BTreeMap::new();
        for (name, count) in specs.flat_map(|job| &job.spec.request().licenses) {
            *licenses.entry(name).or_default() += count;
        }
        let licenses: Vec<(String, u32)> =
            licenses.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        self.check_licenses_free(&licenses)?;
        let mut beside: BTreeMap<String, Node> = BTreeMap::new();
        let mut events = Vec::with_capacity(starts.len());
        for start in starts {
            let started = self.start_beside(start, &beside, context)?;
            self.put_beside(start, &mut beside);
            events.push(Event::Started(Box::new(started)));
        }
        Ok(events.into())
    }

    /// The nodes as they are with this one on them.
    fn put_beside(&self, start: &Start, beside: &mut BTreeMap<String, Node>) {
        let Some(job) = self.jobs.get(&start.job) else { return };
        let partition = self.partition(&start.allocation.partition).map(|p| &**p);
        let whole = view::is_exclusive(job, partition, self.config.parameters.select);
        let alone = view::is_user_exclusive(job, partition);
        for share in &start.allocation.nodes {
            let Some(known) = self.nodes.get(&share.node) else { continue };
            let node = beside.entry(share.node.clone()).or_insert_with(|| known.clone());
            node.used.memory.0 += share.memory.0;
            node.used.gres.extend(share.gres.iter().cloned());
            join(&mut node.used, share, (job.id, job.spec.owner.uid), whole, alone);
        }
    }

    /// Whether it waits with others, of which the first is not meant.
    pub(super) fn waits_with_others(&self, job: &Job, filter: &JobFilter) -> bool {
        let others = job.het.filter(|of| !of.is_leader() && job.is_waiting());
        others.is_some_and(|het| {
            let meant = select::matching(self, filter);
            !meant.iter().any(|chosen| chosen.job.id == het.first)
        })
    }

    /// With the first of those that started together all end, and with another that did not end on somebody's word.
    /// Where the first would run again, all wait again.
    pub(super) fn end_together(&self, events: &mut Vec<Event>, now: Timestamp) {
        let mut fates: BTreeMap<JobId, Fate> = BTreeMap::new();
        let mut there: BTreeSet<JobId> = BTreeSet::new();
        for event in events.iter() {
            let Some((job, outcome)) = end_of(event) else { continue };
            let Some(known) = self.jobs.get(&job) else { continue };
            let Some(het) = known.het else { continue };
            there.insert(job);
            if let Some(fate) = self.fate(event, known, het, outcome) {
                fates.entry(het.first).or_insert(fate);
            }
        }
        for event in events.iter_mut() {
            let known = end_of(event).and_then(|(job, _)| self.jobs.get(&job));
            let fate = known.and_then(|job| fates.get(&job.het?.first));
            if let (Some(job), Some(fate)) = (known, fate) {
                self.share_fate(event, job, fate);
            }
        }
        for fate in fates.into_values() {
            let others = fate.het.jobs().filter(|id| !there.contains(id));
            events.extend(others.filter_map(|id| end_with(self.jobs.get(&id)?, &fate, now)));
        }
    }

    /// What an end of one means to all; none where it means nothing to the others, or was decided with their own.
    fn fate(&self, event: &Event, job: &Job, het: HetComponent, outcome: Outcome) -> Option<Fate> {
        let going = job.attempt().and_then(|attempt| attempt.ending.as_ref());
        let waits_again = going.is_some_and(|ending| ending.requeue.is_some());
        if going.is_some() && !(waits_again && matches!(event, Event::Ending { .. })) {
            return None;
        }
        if !het.is_leader() && !job.is_waiting() && ends_alone(outcome) && !waits_again {
            return None;
        }
        let first = self.jobs.get(&het.first);
        let by_first = match event {
            Event::Ending { ending, .. } if het.is_leader() => ending.requeue,
            _ => None,
        };
        let lost = outcome == Outcome::NodeFail && first.is_some_and(|job| job.spec.requeue);
        let again = by_first.or(lost.then(RequeueAs::default)).filter(|_| self.is_whole(het));
        Some(Fate { het, outcome, again })
    }

    /// Whether all of them run, and none is at its end: only so can they wait for the next start as one.
    fn is_whole(&self, het: HetComponent) -> bool {
        let runs = |job: &Arc<Job>| job.attempt().is_some_and(|attempt| attempt.ending.is_none());
        het.jobs().all(|id| self.jobs.get(&id).is_some_and(runs))
    }

    fn share_fate(&self, event: &mut Event, job: &Job, fate: &Fate) {
        match (&mut *event, fate.again) {
            (Event::Ending { ending, .. }, again) => ending.requeue = again,
            (Event::Requeued { job, ended, .. }, None) => {
                *event = Event::Ended { job: *job, ended: ended.clone() };
            }
            (Event::Ended { ended, .. }, Some(how)) => {
                let begin = requeue_begin(&self.config.parameters, job, ended.end);
                let (hold, reason) = held_again(how.hold);
                let (ended, special_exit) = (ended.clone(), how.special_exit);
                *event = Event::Requeued { job: job.id, ended, begin, hold, reason, special_exit };
            }
            _ => {}
        }
    }
}

/// How those that started together end.
struct Fate {
    het: HetComponent,
    outcome: Outcome,
    /// All of them wait again, and how.
    again: Option<RequeueAs>,
}

/// The end of one of the others.
fn end_with(job: &Job, fate: &Fate, now: Timestamp) -> Option<Event> {
    if job.is_waiting() {
        let ended = Box::new(ended_unstarted(fate.outcome, now));
        return Some(Event::Ended { job: job.id, ended });
    }
    let attempt = job.attempt()?;
    match &attempt.ending {
        // It would wait for ever for one that does not come back.
        Some(going) if going.requeue.is_some() && fate.again.is_none() => {
            let ending = going.without_requeue(fate.outcome);
            Some(Event::Ending { job: job.id, ending: Box::new(ending), exit: attempt.exit })
        }
        _ => ending(job, fate.outcome, ExitStatus::default(), now, fate.again),
    }
}

/// Whether the others go on when one that is not the first ends so.
fn ends_alone(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled { .. } | Outcome::Timeout)
}

/// The job that an event ends, and how.
fn end_of(event: &Event) -> Option<(JobId, Outcome)> {
    match event {
        Event::Ending { job, ending, .. } => Some((*job, ending.outcome)),
        Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => {
            Some((*job, ended.outcome))
        }
        _ => None,
    }
}
