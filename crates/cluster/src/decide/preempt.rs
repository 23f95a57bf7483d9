//! Preemption: jobs that give their resources to others, and suspended jobs that resume when their cores are free.

use super::end::ending;
use super::start::is_closed;
use crate::command::{Context, Decision, Preempt};
use crate::event::Event;
use crate::requeue;
use crate::state::State;
use crate::state::job::Job;
use crate::view;
use model::attempt::PreemptionGrace;
use model::id::JobId;
use model::preempt::PreemptMode;
use model::reason::Refusal;
use model::run::{ExitStatus, Outcome};
use model::time::Timestamp;
use sched::view::Preemption;
use std::time::Duration;

impl State {
    /// Checks again what a plan proposed: the preempting job may be gone, and the victim may be ending, or another attempt.
    pub(super) fn decide_preempt(
        &self,
        preempt: &Preempt,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let Preemption { victim, mode, grace_s, by } = preempt.preemption;
        let waits = |job: &&Job| job.is_waiting() && job.hold.is_none();
        self.job(by).filter(waits).ok_or(Refusal::JobNotPending(by))?;
        let job = self.job(victim).ok_or_else(|| Refusal::UnknownJob(victim.to_string()))?;
        let attempt = job.attempt().filter(|attempt| {
            attempt.start <= preempt.planned
                && !attempt.is_ending_or_preempted()
                && !attempt.has_released_cores()
        });
        let Some(attempt) = attempt else { return Err(Refusal::JobNotRunning(victim)) };
        // Nothing of it runs yet that could be suspended.
        if mode == PreemptMode::Suspend && !attempt.booting_nodes.is_empty() {
            return Err(Refusal::JobNotRunning(victim));
        }
        let requeue = mode == PreemptMode::Requeue;
        let event = match mode {
            PreemptMode::Off => return Err(Refusal::AccessDenied),
            PreemptMode::Suspend => {
                Some(Event::Suspended { job: victim, at: context.now, for_preemption: true })
            }
            PreemptMode::Cancel | PreemptMode::Requeue if grace_s == 0 => {
                preempted(job, requeue, context.now)
            }
            PreemptMode::Cancel | PreemptMode::Requeue => {
                let until = context.now + Duration::from_secs(u64::from(grace_s));
                let leaving = PreemptionGrace { since: context.now, until, by, requeue };
                Some(Event::PreemptionGraceStarted { job: victim, leaving })
            }
        };
        Ok(event.into_iter().collect::<Vec<_>>().into())
    }

    /// Ends the jobs whose preemption grace is over.
    pub(super) fn preemptions_due(&self, now: Timestamp) -> impl Iterator<Item = Event> + '_ {
        self.active.iter().filter_map(move |id| {
            let job = &self.jobs[id];
            let leaving = job.attempt()?.preemption_grace.filter(|leaving| leaving.until <= now)?;
            preempted(job, leaving.requeue, now)
        })
    }

    pub(super) fn decide_resume(&self, id: JobId, context: &Context) -> Result<Decision, Refusal> {
        let job = self.job(id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
        let waits = job
            .attempt()
            .is_some_and(|a| a.suspended && a.auto_resume && !a.is_ending_or_preempted());
        if waits {
            if self.can_resume(job) {
                Ok(vec![Event::Resumed { job: id, at: context.now }].into())
            } else {
                Err(Refusal::NoCapacityNow)
            }
        } else {
            Err(Refusal::JobNotSuspended(id))
        }
    }

    /// Whether the cores of a suspended job are free, and its nodes admit it beside their other jobs.
    pub(super) fn can_resume(&self, job: &Job) -> bool {
        let Some(attempt) = job.attempt() else { return false };
        let partition = self.partition(&attempt.allocation.partition).map(|p| &**p);
        let whole = view::is_exclusive(job, partition, self.config.parameters.select);
        let alone = view::is_user_exclusive(job, partition);
        let uid = job.spec.owner.uid;
        let shares = attempt.allocation.nodes.iter();
        shares.filter(|share| attempt.held_nodes.contains(&share.node)).all(|share| {
            let Some(node) = self.nodes.get(&share.node) else { return true };
            !is_closed(&node.used, uid, whole, alone) && node.used.admits_cpus(share)
        })
    }
}

fn preempted(job: &Job, requeue: bool, now: Timestamp) -> Option<Event> {
    let requeue = requeue::after_preemption(requeue);
    ending(job, Outcome::Preempted, ExitStatus::default(), now, requeue)
}
