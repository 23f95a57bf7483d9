//! The controller's prolog and epilog: a site's programs on the server's own machine, one before a job's nodes are told of
//! it, one after its end. They run as the server's user, beside the dispatcher. No node knows a job whose prolog has not
//! ended.

use super::DispatchThread;
use crate::job_facts;
use crate::shared::Shared;
use crate::site_program::SiteProgram;
use cluster::command::CancelJobs;
use cluster::{Command, Job, State};
use model::allocation::Allocation;
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::id::{AttemptId, JobId};
use model::run::{ExitStatus, LaunchKind};
use slurm::environment::prolog_epilog;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Prologs that run at once; the others wait, and their jobs with them.
const RUNNING_MAX: usize = 64;

/// A job that has been started so often is held when its prolog fails again: it would only be requeued for ever.
const RESTARTS_MAX: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PrologStage {
    Waiting,
    Running,
    Done,
}

/// The attempts that have a prolog, from their start until they are forgotten.
#[derive(Default)]
pub(super) struct PrologRuns {
    stages: HashMap<AttemptId, PrologStage>,
    queue: VecDeque<AttemptId>,
}

impl PrologRuns {
    /// Whether the attempt's prolog has ended; one that is not known is queued.
    fn is_done_or_queued(&mut self, attempt: AttemptId) -> bool {
        match self.stages.get(&attempt) {
            Some(stage) => *stage == PrologStage::Done,
            None => {
                self.stages.insert(attempt, PrologStage::Waiting);
                self.queue.push_back(attempt);
                false
            }
        }
    }

    /// The next attempt whose prolog may run now.
    fn start_next(&mut self) -> Option<AttemptId> {
        let running = self.stages.values().filter(|stage| **stage == PrologStage::Running);
        if running.count() >= RUNNING_MAX {
            return None;
        }
        let attempt = self.queue.pop_front()?;
        self.stages.insert(attempt, PrologStage::Running);
        Some(attempt)
    }

    fn ended(&mut self, attempt: AttemptId) {
        self.stages.insert(attempt, PrologStage::Done);
    }

    /// Whether the attempt has a prolog that has not ended: no node knows of the attempt yet.
    pub(super) fn is_unfinished(&self, attempt: AttemptId) -> bool {
        self.stages.get(&attempt).is_some_and(|stage| *stage != PrologStage::Done)
    }

    pub(super) fn forget(&mut self, attempt: AttemptId) {
        self.stages.remove(&attempt);
    }
}

impl DispatchThread {
    /// Whether nodes may be told of the attempt. If not, its prolog is started.
    pub(super) fn prolog_done(&mut self, shared: &Shared, attempt: AttemptId) -> bool {
        if shared.read().config.site.controller_prolog.is_none() {
            return true;
        }
        let done = self.prologs.is_done_or_queued(attempt);
        if !done {
            self.start_prologs(shared);
        }
        done
    }

    fn start_prologs(&mut self, shared: &Shared) {
        while let Some(attempt) = self.prologs.start_next() {
            let program = prolog_of(&shared.read(), attempt);
            let dispatch = shared.dispatch.clone();
            std::thread::spawn(move || {
                let result = program.map_or(Ok(()), SiteProgram::run);
                if let Err(why) = &result {
                    tracing::error!("before attempt {attempt}: {why}");
                }
                dispatch.prolog_ended(attempt, result.is_ok());
            });
        }
    }

    /// Tells the nodes of the attempt, or requeues the job when its prolog failed.
    pub(super) fn on_prolog_ended(&mut self, shared: &Shared, attempt: AttemptId, success: bool) {
        self.prologs.ended(attempt);
        let found = {
            let state = shared.read();
            let job = state.jobs.get(&attempt.job).filter(|j| j.attempt_id() == Some(attempt));
            job.and_then(|job| {
                let active = job.attempt().filter(|a| a.ending.is_none())?;
                let steps: Vec<_> = active.steps.iter().map(|step| step.id).collect();
                let may_requeue = job.spec.requeue && job.spec.launch.kind == LaunchKind::Batch;
                let requeue_held = may_requeue.then(|| job.restarts() >= RESTARTS_MAX);
                Some((active.held_nodes.clone(), steps, requeue_held))
            })
        };
        match found {
            Some((nodes, steps, _)) if success => {
                for node in nodes {
                    self.launch(shared, attempt, &node);
                }
                for step in steps {
                    self.step(shared, attempt.job, step);
                }
            }
            Some((_, _, requeue_held)) => {
                self.send_command(shared, requeue_or_cancel(attempt.job, requeue_held))
            }
            // It was cancelled meanwhile, and its nodes have said that they know nothing of it.
            None => self.prologs.forget(attempt),
        }
        self.start_prologs(shared);
    }
}

/// Runs the epilog after a job, beside the dispatcher; a failure is only logged.
pub(super) fn run_epilog(shared: &Shared, id: JobId, ended: &cluster::EndRecord) {
    let state = shared.read();
    let Some(program) = state.config.site.controller_epilog.clone() else { return };
    let (Some(job), Some(allocation)) = (state.jobs.get(&id), &ended.allocation) else {
        return;
    };
    let exits = Some((ended.exit, ended.derived_exit));
    let program = program_of(&state, job, allocation, program, exits);
    drop(state);
    std::thread::spawn(move || {
        if let Err(why) = program.run() {
            tracing::error!("after job {id}: {why}");
        }
    });
}

/// The command after a failed prolog. `requeue_held` is `None` for a job that may not be requeued: it is cancelled.
fn requeue_or_cancel(job: JobId, requeue_held: Option<bool>) -> Command {
    if let Some(hold) = requeue_held {
        let change = JobChange::Requeue(if hold { Requeue::HELD } else { Requeue::PLAIN });
        return Command::ChangeJob { job: JobRef::whole(job), change };
    }
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let (step, signal) = (None, None);
    Command::Cancel(Box::new(CancelJobs { filter, step, signal, batch_only: false, full: false }))
}

fn prolog_of(state: &State, attempt: AttemptId) -> Option<SiteProgram> {
    let program = state.config.site.controller_prolog.clone()?;
    let job = state.jobs.get(&attempt.job)?;
    let active = job.attempt().filter(|a| a.number == attempt.number && a.ending.is_none())?;
    Some(program_of(state, job, &active.allocation, program, None))
}

fn program_of(
    state: &State,
    job: &Job,
    allocation: &Allocation,
    program: String,
    exits: Option<(ExitStatus, ExitStatus)>,
) -> SiteProgram {
    let facts = job_facts::for_site_program(state, job, allocation);
    let environment = prolog_epilog::controller_variables(&facts, exits);
    let pairs = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let limit = state.config.site.timeout_s.map(|s| Duration::from_secs(u64::from(s)));
    SiteProgram {
        program,
        arguments: Vec::new(),
        environment: pairs.collect(),
        limit,
        limit_name: "PrologEpilogTimeout",
        logs_output: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(job: u32) -> AttemptId {
        AttemptId { job: JobId(job), number: 1 }
    }

    #[test]
    fn at_most_so_many_prologs_run_at_once_and_in_their_order() {
        let mut runs = PrologRuns::default();
        let many = RUNNING_MAX as u32 + 2;
        assert!((1..=many).all(|job| !runs.is_done_or_queued(attempt(job))));
        let started: Vec<_> = std::iter::from_fn(|| runs.start_next()).collect();
        assert_eq!(started, (1..many - 1).map(attempt).collect::<Vec<_>>());
        runs.ended(attempt(1));
        assert_eq!(runs.start_next(), Some(attempt(many - 1)));
        assert_eq!(runs.start_next(), None);
    }

    #[test]
    fn attempt_is_unfinished_until_its_prolog_ends_and_is_queued_once() {
        let mut runs = PrologRuns::default();
        assert!(!runs.is_unfinished(attempt(1)), "it has no prolog");
        assert!(!runs.is_done_or_queued(attempt(1)) && !runs.is_done_or_queued(attempt(1)));
        assert_eq!((runs.start_next(), runs.start_next()), (Some(attempt(1)), None));
        assert!(runs.is_unfinished(attempt(1)));
        runs.ended(attempt(1));
        assert!(!runs.is_unfinished(attempt(1)) && runs.is_done_or_queued(attempt(1)));
    }

    #[test]
    fn job_of_a_failed_prolog_is_requeued_held_or_cancelled() {
        let requeue = |held| match requeue_or_cancel(JobId(7), held) {
            Command::ChangeJob { change: JobChange::Requeue(requeue), .. } => Some(requeue),
            _ => None,
        };
        assert_eq!(requeue(Some(false)), Some(Requeue::PLAIN));
        assert_eq!(requeue(Some(true)), Some(Requeue::HELD));
        assert!(matches!(requeue_or_cancel(JobId(7), None), Command::Cancel(_)));
    }
}
