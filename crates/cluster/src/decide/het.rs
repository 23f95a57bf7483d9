//! Heterogeneous jobs: their components are submitted and start together, and what ends one may end all.
//!
//! Each component is a job with an id of its own; that of the leader, which is the first, names all. Of a batch job the leader
//! alone has a script; the groups of a task run commands each.

use super::end::{ended_unstarted, ending, ending_for_good};
use crate::apply::add_job;
use crate::command::{Context, Decision, Reply, Submit};
use crate::event::Event;
use crate::requeue::{self, RequeuedWait};
use crate::state::State;
use crate::state::job::Job;
use crate::state::node::Node;
use crate::view;
use model::attempt::{EndCause, Ending, RequeueAs};
use model::id::{JobId, RunId};
use model::reason::Refusal;
use model::request::WaitPolicy;
use model::run::{ExitStatus, HetComponent, LaunchKind, Outcome};
use model::time::Timestamp;
use sched::Start;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The most components of one het job.
const TOGETHER_MAX: usize = 128;

impl State {
    /// All of them or none: what is refused to one is refused to all, before an id is spent.
    pub(super) fn decide_submit_het_job(
        &self,
        submit: &Submit,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let size = 1 + submit.het_components.len();
        if submit.array.is_some() {
            return Err(Refusal::InvalidArray);
        }
        let parameters = &self.config.parameters;
        let free_slots = (parameters.max_job_count as usize)
            .saturating_sub(self.jobs.len() - self.ended.len())
            .min((u64::from(parameters.max_job_id) + 1).saturating_sub(self.next_job.into())
                as usize)
            .min(TOGETHER_MAX);
        if size > free_slots {
            return Err(Refusal::TooManyJobs { limit: free_slots as u64 });
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
                unique_name: submit.unique_name,
            };
            // The leader's setting counts for all: a component is never requeued alone.
            one.spec.requeue = submit.spec.requeue;
            one.spec.retry = submit.spec.retry.clone();
            let Decision { events: of_one, .. } =
                self.decide_submit_job(&one, size as u64, context)?;
            for mut event in of_one {
                if let Event::Submitted(submitted) = &mut event {
                    submitted.job = JobId(first.0 + offset);
                    // The groups of a task are one run.
                    let is_task = spec.launch.kind == LaunchKind::Task;
                    let apart = if is_task { 0 } else { offset };
                    submitted.run = RunId::from_random(context.random.wrapping_add(apart.into()));
                    submitted.het = Some(HetComponent { first, offset, size: size as u32 });
                }
                events.push(event);
            }
        }
        self.check_wait_policy_of_all(submit, context)?;
        if submit.test_only {
            return Ok(Decision::default());
        }
        let run = RunId::from_random(context.random);
        Ok(Decision { events, reply: Reply::Submitted { job: first, run } })
    }

    /// Components that are to start at once or not at all must fit beside each other.
    fn check_wait_policy_of_all(&self, submit: &Submit, context: &Context) -> Result<(), Refusal> {
        if submit.spec.request().wait_policy != WaitPolicy::Now {
            return Ok(());
        }
        let partitions = self.partition_indices(&submit.spec.request().partitions);
        let partitions = partitions.unwrap_or_default();
        let (view, jobs) = self.probe_all(submit, &partitions, context);
        let plan = sched::plan(&view, context.now, &mut sched::Memo::default());
        let starts = jobs.iter().all(|job| plan.starts.iter().any(|start| start.job == *job));
        if starts { Ok(()) } else { Err(Refusal::NoCapacityNow) }
    }

    /// Starts all components; each is checked beside those before it.
    pub(super) fn decide_start_het_job(
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
            self.count_beside(start, &mut beside);
            events.push(Event::Started(Box::new(started)));
        }
        Ok(events.into())
    }

    /// Counts a start on the nodes in `beside`.
    fn count_beside(&self, start: &Start, beside: &mut BTreeMap<String, Node>) {
        let Some(job) = self.jobs.get(&start.job) else { return };
        let partition = self.partition(&start.allocation.partition).map(|p| &**p);
        let whole = view::is_exclusive(job, partition, self.config.parameters.select);
        let alone = view::is_user_exclusive(job, partition);
        for share in &start.allocation.nodes {
            let Some(known) = self.nodes.get(&share.node) else { continue };
            let node = beside.entry(share.node.clone()).or_insert_with(|| known.clone());
            node.used.memory.0 += share.memory.0;
            node.used.gres.extend(share.gres.iter().cloned());
            add_job(&mut node.used, share, (job.id, job.spec.owner.uid), whole, alone);
        }
    }

    /// Completes a decision for het jobs: what ends one component may end or requeue the others.
    ///
    /// With the leader all end; with another component all end too, unless somebody ended that one alone. Where the
    /// leader is requeued, all are. The groups of a task do not end with one that was done, unless the run ends with its
    /// first node; where they are requeued, that one begins again with them.
    pub(super) fn end_het_jobs(&self, events: &mut Vec<Event>, now: Timestamp) {
        let mut ends: BTreeMap<JobId, HetEnd> = BTreeMap::new();
        let mut decided: BTreeSet<JobId> = BTreeSet::new();
        for event in events.iter() {
            let Some((id, outcome)) = end_of(event) else { continue };
            let Some(job) = self.jobs.get(&id) else { continue };
            let Some(het) = job.het else { continue };
            decided.insert(id);
            if let Some(end) = self.het_end(event, job, het, outcome, now) {
                ends.entry(het.first).or_insert(end);
            }
        }
        for event in events.iter_mut() {
            let job = end_of(event).and_then(|(id, _)| self.jobs.get(&id));
            let end = job.and_then(|job| ends.get(&job.het?.first));
            if let (Some(job), Some(end)) = (job, end) {
                self.adjust_to_het_end(event, job, end);
            }
        }
        for end in ends.into_values() {
            let others = end.het.jobs().filter(|id| !decided.contains(id));
            events.extend(others.filter_map(|id| {
                let job = self.jobs.get(&id)?;
                self.requeue_done_group(job, &end, now).or_else(|| end_component(job, &end, now))
            }));
        }
    }

    /// What the end of one component means to all. `None` if the others go on, or if their end was decided before.
    fn het_end(
        &self,
        event: &Event,
        job: &Job,
        het: HetComponent,
        outcome: Outcome,
        now: Timestamp,
    ) -> Option<HetEnd> {
        let under_way = job.attempt().and_then(|attempt| attempt.ending.as_ref());
        let was_requeued = under_way.is_some_and(|ending| ending.requeue.is_some());
        if under_way.is_some() && !(was_requeued && matches!(event, Event::Ending { .. })) {
            return None;
        }
        if !het.is_leader() && !job.is_waiting() && ends_alone(outcome) && !was_requeued {
            return None;
        }
        let ends_all = het.is_leader() && job.spec.launch.ends_with_first_node;
        if outcome == Outcome::Completed && self.are_groups(het) && !ends_all {
            return None;
        }
        let of_leader = match event {
            Event::Ending { ending, .. } if het.is_leader() => ending.requeue,
            _ => None,
        };
        let after_failure = || {
            let leader = self.jobs.get(&het.first)?;
            requeue::after_component_failure(&self.config.parameters, leader, outcome, now)
        };
        let requeue = of_leader.or_else(after_failure).filter(|_| self.can_be_requeued(het));
        Some(HetEnd { het, outcome, requeue })
    }

    /// Whether the components are the groups of a task: each runs commands of its own.
    fn are_groups(&self, het: HetComponent) -> bool {
        let is_task = |job: &Arc<Job>| job.spec.launch.kind == LaunchKind::Task;
        het.jobs().all(|id| self.jobs.get(&id).is_none_or(is_task))
    }

    /// Only components that all run, and of which none is ending, can wait for the next start as one; with them the groups of a
    /// task that were done.
    fn can_be_requeued(&self, het: HetComponent) -> bool {
        let are_groups = self.are_groups(het);
        let can_wait = |job: &Arc<Job>| match job.attempt() {
            Some(attempt) => attempt.ending.is_none(),
            None => are_groups && is_done(job),
        };
        het.jobs().all(|id| self.jobs.get(&id).is_some_and(can_wait))
    }

    /// A group that was done before the others are requeued waits with them, as if its attempt had ended now.
    fn requeue_done_group(&self, job: &Job, end: &HetEnd, now: Timestamp) -> Option<Event> {
        let requeue = end.requeue.filter(|_| is_done(job))?;
        let ending = Ending {
            cause: EndCause::OtherGroup(end.outcome),
            ..Ending::new(Outcome::Requeued, now, Some(requeue))
        };
        let RequeuedWait { begin, hold, reason, special_exit, retries } =
            RequeuedWait::after(&self.config.parameters, job, &ending, requeue, now);
        Some(Event::EndedJobRequeued {
            job: job.id,
            at: now,
            hold,
            begin: Some(begin),
            reason,
            special_exit,
            retries,
            by: None,
        })
    }

    /// Requeues the component if all are requeued, and ends it if they are not.
    fn adjust_to_het_end(&self, event: &mut Event, job: &Job, end: &HetEnd) {
        match (&mut *event, end.requeue) {
            (Event::Ending { ending, .. }, requeue) => ending.requeue = requeue,
            (Event::Requeued { job, ended, .. }, None) => {
                *event = Event::Ended { job: *job, ended: ended.clone() };
            }
            (Event::Ended { ended, .. }, Some(requeue)) => {
                let RequeuedWait { begin, hold, reason, special_exit, retries } =
                    RequeuedWait::new(&self.config.parameters, job, requeue, ended.end);
                let ended = ended.clone();
                *event = Event::Requeued {
                    job: job.id,
                    ended,
                    begin,
                    hold,
                    reason,
                    special_exit,
                    retries,
                };
            }
            _ => {}
        }
    }
}

/// How all components of a het job end.
struct HetEnd {
    het: HetComponent,
    outcome: Outcome,
    requeue: Option<RequeueAs>,
}

/// The end of a component about which nothing was decided yet.
fn end_component(job: &Job, end: &HetEnd, now: Timestamp) -> Option<Event> {
    if job.is_waiting() {
        let ended = Box::new(ended_unstarted(end.outcome, now));
        return Some(Event::Ended { job: job.id, ended });
    }
    // The other groups of a task have not failed themselves.
    let is_anothers = job.spec.launch.kind == LaunchKind::Task
        && matches!(end.outcome, Outcome::Failed | Outcome::OutOfMemory | Outcome::LaunchFailed);
    let outcome = match end.requeue {
        Some(_) if is_anothers => Outcome::Requeued,
        None if is_anothers => Outcome::Cancelled { by: 0 },
        _ => end.outcome,
    };
    // A component that waits again for a leader that does not would wait for ever.
    let for_good = ending_for_good(job, outcome).filter(|_| end.requeue.is_none());
    let mut event =
        for_good.or_else(|| ending(job, outcome, ExitStatus::default(), now, end.requeue))?;
    if let Event::Ending { ending, .. } = &mut event
        && outcome == Outcome::Requeued
        && is_anothers
    {
        ending.cause = EndCause::OtherGroup(end.outcome);
    }
    Some(event)
}

fn is_done(job: &Job) -> bool {
    job.ended().is_some_and(|end| end.outcome == Outcome::Completed)
}

/// Whether the other components go on when one that is not the leader has this outcome.
fn ends_alone(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled { .. } | Outcome::Timeout)
}

/// The job that an event ends, and its outcome.
fn end_of(event: &Event) -> Option<(JobId, Outcome)> {
    match event {
        Event::Ending { job, ending, .. } => Some((*job, ending.outcome)),
        Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => {
            Some((*job, ended.outcome))
        }
        _ => None,
    }
}
