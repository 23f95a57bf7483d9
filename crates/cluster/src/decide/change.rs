//! `scontrol hold, release, requeue, suspend, resume, update` of jobs.

use super::submit::check_access;
use super::{RequeueAs, ending};
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, Reply};
use crate::event::Event;
use crate::job::{Job, Phase};
use crate::priority::Ranking;
use crate::select::{self, Chosen};
use crate::state::State;
use crate::view;
use model::change::{JobChange, JobField, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use model::run::{ExitStatus, Hold, JobSpec, LaunchKind, Outcome};

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
            return Err(Refusal::UnknownJob(wanted.id.to_string()));
        }
        let mut events = Vec::new();
        let mut results: PerJob = Vec::new();
        let mut next_id = self.next_job;
        for one in &chosen {
            if chosen.len() > 1 && one.job.has_ended() {
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
                if !job.is_waiting() {
                    return Err(Refusal::JobNotPending(job.id));
                }
                Ok(self.each_task(chosen, next_id, |id| Event::Released { job: id }))
            }
            JobChange::Requeue { hold: true } if job.is_waiting() => {
                requeueable(job)?;
                self.hold(chosen, Hold::User, context, next_id)
            }
            JobChange::Requeue { hold } => self.requeue(job, *hold, context),
            JobChange::Suspend => {
                authorise(self, &context.by, Act::Operate)?;
                match job.attempt() {
                    Some(a) if a.ending.is_none() && !a.suspended => {
                        Ok(vec![Event::Suspended { job: job.id, at: context.now }])
                    }
                    _ => Err(Refusal::JobNotRunning(job.id)),
                }
            }
            JobChange::Resume => {
                authorise(self, &context.by, Act::Operate)?;
                match job.attempt() {
                    Some(a) if a.suspended => {
                        Ok(vec![Event::Resumed { job: job.id, at: context.now }])
                    }
                    _ => Err(Refusal::JobNotRunning(job.id)),
                }
            }
            JobChange::Fields(fields) => self.update(chosen, fields, context, next_id),
        }
    }

    /// The event for the whole record, or for each named pending task, split off first.
    fn each_task(
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

    fn operates(&self, context: &Context) -> bool {
        authorise(self, &context.by, Act::Operate).is_ok()
    }

    /// Holds what waits. An administrator's hold is not made less by a user's.
    fn hold(
        &self,
        chosen: &Chosen<'_>,
        by: Hold,
        context: &Context,
        next_id: &mut u32,
    ) -> Result<Vec<Event>, Refusal> {
        if !chosen.job.is_waiting() {
            return Err(Refusal::JobNotPending(chosen.job.id));
        }
        if chosen.job.hold == Some(Hold::Admin) && !self.operates(context) {
            return Ok(Vec::new());
        }
        Ok(self.each_task(chosen, next_id, |id| Event::Held { job: id, by }))
    }

    fn requeue(&self, job: &Job, hold: bool, context: &Context) -> Result<Vec<Event>, Refusal> {
        requeueable(job)?;
        match &job.phase {
            Phase::Waiting => Err(Refusal::JobNotRunning(job.id)),
            Phase::Active(attempt) if attempt.ending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Active(_) => {
                let how = Some(RequeueAs { hold });
                let exit = ExitStatus::default();
                Ok(ending(job, Outcome::Requeued, exit, context.now, how).into_iter().collect())
            }
            // The record of an array's cancelled tasks has no task left to run.
            Phase::Ended(_) if job.pending.is_some() => Err(Refusal::JobEnded(job.id)),
            Phase::Ended(_) => {
                let hold = hold.then_some(Hold::User);
                Ok(vec![Event::Revived { job: job.id, at: context.now, hold }])
            }
        }
    }

    fn update(
        &self,
        chosen: &Chosen<'_>,
        fields: &[JobField],
        context: &Context,
        next_id: &mut u32,
    ) -> Result<Vec<Event>, Refusal> {
        let job = chosen.job;
        if job.has_ended() {
            return Err(Refusal::JobEnded(job.id));
        }
        for field in fields {
            self.check_field(job, field, context)?;
        }
        let changed = |job| Event::Changed { job, fields: fields.to_vec(), at: context.now };
        let mut events = self.each_task(chosen, next_id, changed);
        // A priority of zero is a hold: of the one who sets it.
        if fields.contains(&JobField::Priority(0)) && !self.operates(context) {
            let held: Vec<Event> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Changed { job, .. } => Some(Event::Held { job: *job, by: Hold::User }),
                    _ => None,
                })
                .collect();
            events.extend(held);
        }
        Ok(events)
    }

    fn shown_priority(&self, job: &Job, context: &Context) -> u64 {
        Ranking::new(self, context.now).shown(job, context.now)
    }

    fn check_field(&self, job: &Job, field: &JobField, context: &Context) -> Result<(), Refusal> {
        let running = !job.is_waiting();
        match field {
            JobField::TimeLimit(limit) => {
                let raises = *limit > crate::books::effective_limit(self, job);
                if raises && running { authorise(self, &context.by, Act::Operate) } else { Ok(()) }
            }
            JobField::Name(_) | JobField::Comment(_) | JobField::Wckey(_) => Ok(()),
            JobField::Requeue(_) => Ok(()),
            JobField::Priority(priority) => match *priority {
                // A priority releases as well.
                _ if job.hold == Some(Hold::Admin) => authorise(self, &context.by, Act::Operate),
                raised if raised > self.shown_priority(job, context) => {
                    authorise(self, &context.by, Act::Operate)
                }
                _ => Ok(()),
            },
            JobField::Nice(nice) if *nice < 0 => authorise(self, &context.by, Act::Operate),
            JobField::SiteFactor(_) => authorise(self, &context.by, Act::Operate),
            _ if running => Err(Refusal::JobNotPending(job.id)),
            JobField::Partition(names) => names.iter().try_for_each(|name| {
                let partition = self.partition(name);
                let partition = partition.ok_or_else(|| Refusal::UnknownPartition(name.clone()))?;
                check_access(partition, &job.spec)
            }),
            JobField::Qos(name) => {
                let spec = JobSpec { qos: Some(name.clone()), ..(*job.spec).clone() };
                let asked = view::partition_indices(self, &spec.request().partitions);
                self.effective_qos(&spec, &job.account, &asked.unwrap_or_default()).map(|_| ())
            }
            JobField::Account(name) => {
                let spec = JobSpec { account: Some(name.clone()), ..(*job.spec).clone() };
                self.effective_account(&spec).map(|_| ())
            }
            JobField::NodeList(names) | JobField::Exclude(names) => {
                match names.iter().find(|n| !self.nodes.contains_key(*n)) {
                    Some(unknown) => Err(Refusal::UnknownNode(unknown.clone())),
                    None => Ok(()),
                }
            }
            JobField::Dependency(Some(d))
                if d.terms.iter().any(|t| t.job.is_some_and(|j| j.id == job.id.0)) =>
            {
                Err(Refusal::InvalidDependency)
            }
            _ => Ok(()),
        }
    }
}

/// An allocation that a client holds has nothing to run again.
fn requeueable(job: &Job) -> Result<(), Refusal> {
    match job.spec.launch.kind {
        LaunchKind::Interactive => Err(Refusal::NotRequeueable(job.id)),
        LaunchKind::Batch | LaunchKind::Task => Ok(()),
    }
}
