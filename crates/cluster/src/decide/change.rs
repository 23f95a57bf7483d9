//! `scontrol hold, release, requeue, suspend, resume, update` of jobs.

use super::end::ending;
use super::room::field_bytes;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, Reply};
use crate::event::Event;
use crate::job_selection::SelectedJob;
use crate::requeue::{self, RequeuedWait};
use crate::state::State;
use crate::state::job::{Job, Phase, Retries};
use crate::visibility::Viewer;
use model::attempt::{EndCause, RequeueAs};
use model::change::{JobChange, JobField, JobRef, Requeue};
use model::id::JobId;
use model::reason::Refusal;
use model::run::{ExitStatus, Hold, Outcome};
use std::collections::HashSet;
use std::mem::discriminant;

type PerJob = Vec<(String, Result<(), Refusal>)>;

/// What a change of several records may take in the journal: no commit holds more. Each record has a copy of the fields.
const COPIES_BYTES_MAX: u64 = 16 << 20;

/// The last field of each kind, which is the one that counts.
fn last_of_each(fields: &[JobField]) -> Vec<JobField> {
    let mut seen = HashSet::new();
    let mut kept: Vec<JobField> =
        fields.iter().rev().filter(|field| seen.insert(discriminant(*field))).cloned().collect();
    kept.reverse();
    kept
}

/// Refuses fields that are too long for so many records, before a copy is made for any of them.
fn check_copies(fields: &[JobField], chosen: &[SelectedJob<'_>]) -> Result<(), Refusal> {
    let alive = chosen.iter().filter(|one| !one.job.has_ended());
    // All that wait stay one record; some of them get one each.
    let records = alive.map(|one| match (&one.tasks, &one.job.pending) {
        (Some(tasks), Some(pending)) if tasks.len() < pending.indices.len() => tasks.len(),
        _ => 1,
    });
    let records = records.fold(0, u64::saturating_add);
    let bytes: u64 = fields.iter().map(field_bytes).sum();
    let bytes = records.saturating_mul(bytes);
    if records <= 1 || bytes <= COPIES_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: "the request".into(),
        value: format!("{bytes} bytes of changes for {records} records"),
        expected: format!("at most {COPIES_BYTES_MAX} at once"),
    })
}

impl State {
    pub(super) fn decide_change_job(
        &self,
        wanted: &JobRef,
        change: &JobChange,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let chosen = Viewer::new(self, &context.by).resolve(wanted);
        if chosen.is_empty() {
            return Err(Refusal::UnknownJob(wanted.shown_id()));
        }
        let settled = match change {
            JobChange::Fields(fields) => Some(JobChange::Fields(last_of_each(fields))),
            _ => None,
        };
        let change = settled.as_ref().unwrap_or(change);
        if let JobChange::Fields(fields) = change {
            check_copies(fields, &chosen)?;
        }
        let mut events = Vec::new();
        let mut results: PerJob = Vec::new();
        let mut next_id = self.next_job;
        // The components of a het job are requeued with their leader.
        let follows = |one: &SelectedJob<'_>| {
            let first = one.job.het.filter(|of| !of.is_leader()).map(|of| of.first);
            let named = first.is_some_and(|id| chosen.iter().any(|other| other.job.id == id));
            named && matches!(change, JobChange::Requeue(_))
        };
        for one in &chosen {
            if chosen.len() > 1 && one.job.has_ended() || follows(one) {
                continue;
            }
            let changed = authorise(self, &context.by, Act::ManageJob(one.job))
                .and_then(|()| self.change_one(one, change, context, &mut next_id));
            results.push((one.job.shown_id(), changed.map(|more| events.extend(more))));
        }
        // Every task of the array, or component of the het job, has ended. Only a requeue of incomplete ones may find none.
        let allows_none = matches!(change, JobChange::Requeue(how) if how.incomplete);
        if results.is_empty() && !allows_none {
            return Err(Refusal::JobEnded(chosen[0].job.id));
        }
        if results.iter().all(|(_, r)| r.is_err())
            && let Some((_, Err(why))) = results.first()
        {
            return Err(why.clone());
        }
        self.check_room_for_changes(chosen[0].job, &events, context)?;
        Ok(Decision { events, reply: Reply::PerJob(results) })
    }

    fn change_one(
        &self,
        chosen: &SelectedJob<'_>,
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

    /// The event for the whole record, or for each selected pending task after it is split off.
    pub(super) fn each_task(
        &self,
        chosen: &SelectedJob<'_>,
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

    /// Suspends a job by hand; others may use its cores meanwhile.
    fn suspend(&self, job: &Job, context: &Context) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            // Nothing of it runs yet that could be stopped: it would run when its nodes are up.
            Phase::Active(attempt) if !attempt.booting_nodes.is_empty() => {
                Err(Refusal::JobNotRunning(job.id))
            }
            Phase::Active(attempt) if attempt.ending.is_none() => {
                // A job that was suspended for another stays suspended, and no longer resumes by itself.
                let again = attempt.has_released_cores() && !attempt.auto_resume;
                let event =
                    Event::Suspended { job: job.id, at: context.now, for_preemption: false };
                Ok(if again { Vec::new() } else { vec![event] })
            }
            _ => Err(Refusal::JobEnded(job.id)),
        }
    }

    /// Resumes a job, at once or as soon as its cores are free.
    fn resume(&self, job: &Job, context: &Context) -> Result<Vec<Event>, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_none() => {
                if attempt.suspended {
                    if attempt.gang_suspended {
                        // Gang scheduling resumes the job at its next time slice.
                        Ok(Vec::new())
                    } else if self.can_resume(job) {
                        Ok(vec![Event::Resumed { job: job.id, at: context.now }])
                    } else if attempt.auto_resume {
                        Ok(Vec::new())
                    } else {
                        Ok(vec![Event::ResumeRequested { job: job.id }])
                    }
                } else {
                    Err(Refusal::JobNotSuspended(job.id))
                }
            }
            _ => Err(Refusal::JobEnded(job.id)),
        }
    }

    /// Holds a job. A user's hold does not replace an administrator's, nor the server's anybody's.
    fn hold(
        &self,
        chosen: &SelectedJob<'_>,
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
        if by == Hold::Update && chosen.job.hold.is_some() {
            return Ok(Vec::new());
        }
        Ok(self.each_task(chosen, next_id, |id| Event::Held { job: id, by }))
    }

    fn requeue(&self, job: &Job, how: Requeue, context: &Context) -> Result<Vec<Event>, Refusal> {
        requeue::check_request(job)?;
        if how.incomplete && job.has_ended() {
            return Ok(Vec::new());
        }
        let at = context.now;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Active(attempt) => {
                let requeue = Some(requeue::on_request(attempt, how));
                let mut event = ending(job, Outcome::Requeued, ExitStatus::default(), at, requeue);
                if let Some(Event::Ending { ending, .. }) = &mut event {
                    ending.cause = EndCause::RequeueRequested { by: context.by.uid };
                }
                // With its requeue, so that no crash between them leaves a hold that looks like its owner's.
                let is_held = how.hold && how.for_update && event.is_some() && job.hold.is_none();
                let held = is_held.then_some(Event::Held { job: job.id, by: Hold::Update });
                Ok(held.into_iter().chain(event).collect())
            }
            // The record of an array's cancelled tasks has no task left to run.
            Phase::Ended(_) if job.pending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Ended(_) => {
                // The address of a service that has ended is free: another may have it by now.
                self.check_address(&job.spec, Some(job.run))?;
                let requeue = RequeueAs { hold: how.hold, special_exit: how.special_exit };
                let RequeuedWait { begin, hold, reason, special_exit, .. } =
                    RequeuedWait::new(&self.config.parameters, job, requeue, at);
                Ok(vec![Event::EndedJobRequeued {
                    job: job.id,
                    at,
                    hold,
                    begin: Some(begin),
                    reason,
                    special_exit,
                    retries: Retries::default(),
                    by: Some(context.by.uid),
                }])
            }
        }
    }
}
