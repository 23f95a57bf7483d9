//! `scontrol hold, release, requeue, suspend, resume, update` of jobs.

use super::{ending, held_again, requeue_begin};
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, Reply};
use crate::event::Event;
use crate::job::{Job, Phase};
use crate::select::{self, Chosen};
use crate::state::State;
use model::attempt::RequeueAs;
use model::change::{JobChange, JobRef, Requeue};
use model::id::JobId;
use model::reason::Refusal;
use model::run::{ExitStatus, Hold, LaunchKind, Outcome};

type PerJob = Vec<(String, Result<(), Refusal>)>;

impl State {
    pub(super) fn decide_change_job(
        &self,
        wanted: &JobRef,
        change: &JobChange,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let chosen = select::resolve(self, wanted);
        if chosen.is_empty() {
            return Err(Refusal::UnknownJob(wanted.shown_id()));
        }
        let mut events = Vec::new();
        let mut results: PerJob = Vec::new();
        let mut next_id = self.next_job;
        // Those that started together run again with the first of them.
        let follows = |one: &Chosen<'_>| {
            let first = one.job.het.filter(|of| !of.is_leader()).map(|of| of.first);
            let named = first.is_some_and(|id| chosen.iter().any(|other| other.job.id == id));
            named && matches!(change, JobChange::Requeue(_))
        };
        for one in &chosen {
            if chosen.len() > 1 && one.job.has_ended() || follows(one) {
                continue;
            }
            let changed = authorise(self, &context.by, Act::OwnJob(one.job))
                .and_then(|()| self.change_one(one, change, context, &mut next_id));
            results.push((one.job.shown_id(), changed.map(|more| events.extend(more))));
        }
        if results.iter().all(|(_, r)| r.is_err())
            && let Some((_, Err(why))) = results.first()
        {
            return Err(why.clone());
        }
        Ok(Decision { events, reply: Reply::PerJob(results) })
    }

    fn change_one(
        &self,
        chosen: &Chosen<'_>,
        change: &JobChange,
        context: &Context,
        next_id: &mut u32,
    ) -> Result<Vec<Event>, Refusal> {
        let job = chosen.job;
        match change {
            JobChange::Hold { by } => {
                let by = if self.operates(context) { *by } else { Hold::User };
                self.hold(chosen, by, context, next_id)
            }
            JobChange::Release => {
                if job.hold == Some(Hold::Admin) {
                    authorise(self, &context.by, Act::Operate)?;
                }
                if job.has_ended() {
                    return Err(Refusal::JobFinished(job.id));
                }
                Ok(self.each_task(chosen, next_id, |id| Event::Released { job: id }))
            }
            JobChange::Requeue(how) => self.requeue(job, *how, context),
            JobChange::Top => self.top(job, context),
            JobChange::Suspend => self.suspend(job, context),
            JobChange::Resume => self.resume(job, context),
            JobChange::Fields(fields) => self.update(chosen, fields, context, next_id),
        }
    }

    /// The event for the whole record, or for each named pending task, split off first.
    pub(super) fn each_task(
        &self,
        chosen: &Chosen<'_>,
        next_id: &mut u32,
        event: impl Fn(JobId) -> Event,
    ) -> Vec<Event> {
        let job = chosen.job;
        let (Some(tasks), Some(pending)) = (&chosen.tasks, &job.pending) else {
            return vec![event(job.id)];
        };
        if tasks.len() == pending.indices.len() {
            return vec![event(job.id)];
        }
        let mut events = Vec::new();
        for index in tasks.iter() {
            let id = JobId(*next_id);
            *next_id += 1;
            events.push(Event::TaskSplit { array: job.id, index, job: id });
            events.push(event(id));
        }
        events
    }

    pub(super) fn operates(&self, context: &Context) -> bool {
        authorise(self, &context.by, Act::Operate).is_ok()
    }

    /// It stands still, and others may have its cores meanwhile.
    fn suspend(&self, job: &Job, context: &Context) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_none() => {
                // One that made room stands still as it is, and does not go on by itself any more.
                let again = attempt.has_released_cores() && !attempt.auto_resume;
                let event = Event::Suspended { job: job.id, at: context.now, for_room: false };
                Ok(if again { Vec::new() } else { vec![event] })
            }
            _ => Err(Refusal::JobEnded(job.id)),
        }
    }

    /// It goes on, at once or as soon as nobody else has its cores.
    fn resume(&self, job: &Job, context: &Context) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_none() => match attempt.suspended {
                false => Err(Refusal::JobNotSuspended(job.id)),
                // Its turn comes by itself.
                true if attempt.gang_suspended => Ok(Vec::new()),
                true if self.can_go_on(job) => {
                    Ok(vec![Event::Resumed { job: job.id, at: context.now }])
                }
                true if attempt.auto_resume => Ok(Vec::new()),
                true => Ok(vec![Event::ResumeWanted { job: job.id }]),
            },
            _ => Err(Refusal::JobEnded(job.id)),
        }
    }

    /// Holds what waits. An administrator's hold is not made less by a user's.
    fn hold(
        &self,
        chosen: &Chosen<'_>,
        by: Hold,
        context: &Context,
        next_id: &mut u32,
    ) -> Result<Vec<Event>, Refusal> {
        if chosen.job.has_ended() {
            return Err(Refusal::JobFinished(chosen.job.id));
        }
        if chosen.job.hold == Some(Hold::Admin) && !self.operates(context) {
            return Ok(Vec::new());
        }
        Ok(self.each_task(chosen, next_id, |id| Event::Held { job: id, by }))
    }

    fn requeue(&self, job: &Job, how: Requeue, context: &Context) -> Result<Vec<Event>, Refusal> {
        requeueable(job)?;
        if how.incomplete && job.has_ended() {
            return Ok(Vec::new());
        }
        let Requeue { hold, special_exit, .. } = how;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Active(attempt) => {
                // One that stands still was stopped by somebody: it does not start again unasked.
                let hold = hold || (attempt.has_released_cores() && !attempt.auto_resume);
                let how = Some(RequeueAs { hold, special_exit });
                let exit = ExitStatus::default();
                Ok(ending(job, Outcome::Requeued, exit, context.now, how).into_iter().collect())
            }
            // The record of an array's cancelled tasks has no task left to run.
            Phase::Ended(_) if job.pending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Ended(_) => {
                let (hold, reason) = held_again(hold);
                let at = context.now;
                let begin = Some(requeue_begin(&self.config.parameters, job, at));
                Ok(vec![Event::Revived { job: job.id, at, hold, begin, reason, special_exit }])
            }
        }
    }
}

/// An allocation that a client holds has nothing to run again, and a job may say that it is not to.
fn requeueable(job: &Job) -> Result<(), Refusal> {
    match job.spec.launch.kind {
        _ if job.het.is_some_and(|of| !of.is_leader()) => Err(Refusal::NotHetLeader(job.id)),
        LaunchKind::Interactive => Err(Refusal::NotRequeueable(job.id)),
        LaunchKind::Batch if !job.spec.requeue => Err(Refusal::RequeueDisabled(job.id)),
        LaunchKind::Batch | LaunchKind::Task => Ok(()),
    }
}
