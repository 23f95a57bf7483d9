//! The site's programs on the server's own machine: one before a job's nodes are told of it, one after its end. They run
//! as the server's user, beside the dispatcher; a job whose program has not ended is not on any node yet.

use super::{Dispatch, DispatchThread, Effects};
use crate::shared::Shared;
use cluster::command::CancelJobs;
use cluster::{Command, Job, State};
use model::allocation::Allocation;
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::id::{AttemptId, JobId};
use model::run::{ExitStatus, LaunchKind};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use slurm::environment::around;
use slurm::environment::job::JobFacts;
use std::collections::{HashMap, VecDeque};
use std::os::unix::process::CommandExt;
use std::process::{self, Stdio};
use std::time::{Duration, Instant};
use wire::order::Action;

/// Programs at once; the jobs of the others wait.
const RUNNING_MAX: usize = 64;
/// A job that has been started so often is held when its program fails again: it would only go round.
const RESTARTS_MAX: u32 = 5;
/// Between two looks at a program that has a time limit.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    Done,
}

/// The attempts that a program comes before.
#[derive(Default)]
pub(super) struct Preparing {
    stages: HashMap<AttemptId, Stage>,
    queue: VecDeque<AttemptId>,
}

/// A program with all that it needs.
struct Task {
    program: String,
    environment: Vec<(String, String)>,
    limit: Option<Duration>,
}

impl Task {
    /// Whether it ended well and in time.
    fn run(self) -> Result<(), String> {
        let mut command = process::Command::new(&self.program);
        command.env_clear().envs(self.environment).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.program))?;
        let failed = |what: String| format!("{} {what}", self.program);
        let Some(limit) = self.limit else {
            let status = child.wait().map_err(|e| failed(e.to_string()))?;
            return if status.success() { Ok(()) } else { Err(failed(format!("ended: {status}"))) };
        };
        let until = Instant::now() + limit;
        loop {
            match child.try_wait().map_err(|e| failed(e.to_string()))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(failed(format!("ended: {status}"))),
                None if Instant::now() >= until => {
                    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
                    let _ = child.wait();
                    return Err(failed("took longer than PrologEpilogTimeout".into()));
                }
                None => std::thread::sleep(LOOK),
            }
        }
    }
}

impl Dispatch {
    fn prepared(&self, attempt: AttemptId, good: bool) {
        let _ = self.sender.send(Effects::Prepared { attempt, good });
    }
}

impl DispatchThread {
    /// Whether nodes may be told of the attempt; if not, its program is begun.
    pub(super) fn is_prepared(&mut self, shared: &Shared, attempt: AttemptId) -> bool {
        if shared.read().config.site.controller_prolog.is_none() {
            return true;
        }
        match self.preparing.stages.get(&attempt) {
            Some(stage) => *stage == Stage::Done,
            None => {
                self.preparing.stages.insert(attempt, Stage::Waiting);
                self.preparing.queue.push_back(attempt);
                self.prepare_more(shared);
                false
            }
        }
    }

    /// Whether no node has heard of the attempt yet.
    pub(super) fn is_unheard_of(&self, attempt: AttemptId) -> bool {
        self.preparing.stages.get(&attempt).is_some_and(|stage| *stage != Stage::Done)
    }

    pub(super) fn forget_prepared(&mut self, attempt: AttemptId) {
        self.preparing.stages.remove(&attempt);
    }

    fn prepare_more(&mut self, shared: &Shared) {
        let running = |(_, stage): &(&AttemptId, &Stage)| **stage == Stage::Running;
        while self.preparing.stages.iter().filter(running).count() < RUNNING_MAX
            && let Some(attempt) = self.preparing.queue.pop_front()
        {
            let task = prolog_of(&shared.read(), attempt);
            self.preparing.stages.insert(attempt, Stage::Running);
            let dispatch = shared.dispatch.clone();
            std::thread::spawn(move || {
                let result = task.map_or(Ok(()), Task::run);
                if let Err(why) = &result {
                    tracing::error!("before attempt {attempt}: {why}");
                }
                dispatch.prepared(attempt, result.is_ok());
            });
        }
    }

    /// A program before a job has ended: its nodes are told, or the job waits anew.
    pub(super) fn on_prepared(&mut self, shared: &Shared, attempt: AttemptId, good: bool) {
        self.preparing.stages.insert(attempt, Stage::Done);
        let found = {
            let state = shared.read();
            let job = state.jobs.get(&attempt.job).filter(|j| j.attempt_id() == Some(attempt));
            job.and_then(|job| {
                let active = job.attempt().filter(|a| a.ending.is_none())?;
                let steps: Vec<_> = active.steps.iter().map(|step| step.id).collect();
                let may = job.spec.requeue && job.spec.launch.kind == LaunchKind::Batch;
                let again = may.then(|| job.restarts() >= RESTARTS_MAX);
                Some((active.held_nodes.clone(), steps, again))
            })
        };
        match found {
            Some((nodes, steps, _)) if good => {
                for node in nodes {
                    self.launch(shared, attempt, &node);
                }
                for step in steps {
                    self.step(shared, attempt.job, step);
                }
            }
            Some((_, _, again)) => self.tell(shared, give_up(attempt.job, again)),
            // It was cancelled meanwhile, and its nodes have said that they know nothing of it.
            None => self.forget_prepared(attempt),
        }
        self.prepare_more(shared);
    }

    /// A script that was deferred starts once all nodes of its job are ready.
    pub(super) fn begin_deferred(&mut self, shared: &Shared, attempt: AttemptId) {
        let ready = {
            let state = shared.read();
            let job = state.jobs.get(&attempt.job).filter(|j| j.attempt_id() == Some(attempt));
            job.filter(|job| job.spec.launch.kind == LaunchKind::Batch).and_then(|job| {
                let active = job
                    .attempt()
                    .filter(|a| a.prolog_nodes.is_empty() && !a.is_ending_or_preempted())?;
                let first = active.allocation.node_names().next()?.to_owned();
                Some((first, job.spec.owner.uid))
            })
        };
        if let Some((node, uid)) = ready {
            self.send(shared, &node, attempt, uid, Action::Begin);
        }
    }

    /// The program after a job; how it ends is only said.
    pub(super) fn run_epilog(&self, shared: &Shared, id: JobId, ended: &cluster::EndRecord) {
        let state = shared.read();
        let Some(program) = state.config.site.controller_epilog.clone() else { return };
        let (Some(job), Some(allocation)) = (state.jobs.get(&id), &ended.allocation) else {
            return;
        };
        let exits = Some((ended.exit, ended.derived_exit));
        let task = task_of(&state, job, allocation, program, exits);
        drop(state);
        std::thread::spawn(move || {
            if let Err(why) = task.run() {
                tracing::error!("after job {id}: {why}");
            }
        });
    }
}

/// The job waits anew, held or not; or it is over.
fn give_up(job: JobId, again: Option<bool>) -> Command {
    if let Some(hold) = again {
        let change = JobChange::Requeue(if hold { Requeue::HELD } else { Requeue::PLAIN });
        return Command::ChangeJob { job: JobRef::whole(job), change };
    }
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let (step, signal) = (None, None);
    Command::Cancel(Box::new(CancelJobs { filter, step, signal, batch_only: false, full: false }))
}

fn prolog_of(state: &State, attempt: AttemptId) -> Option<Task> {
    let program = state.config.site.controller_prolog.clone()?;
    let job = state.jobs.get(&attempt.job)?;
    let active = job.attempt().filter(|a| a.number == attempt.number && a.ending.is_none())?;
    Some(task_of(state, job, &active.allocation, program, None))
}

fn task_of(
    state: &State,
    job: &Job,
    allocation: &Allocation,
    program: String,
    exits: Option<(ExitStatus, ExitStatus)>,
) -> Task {
    let facts = JobFacts {
        cluster: &state.config.name,
        job: job.id,
        array: None,
        spec: &job.spec,
        allocation,
        account: &job.account,
        qos: &job.qos,
        restarts: job.restarts(),
        default_memory: None,
        conf_file: None,
        submit_dir: None,
        reservation: job.attempt().and_then(|a| a.reservation.as_deref()),
        gpus: Default::default(),
        topology: None,
    };
    let environment = around::of_controller(&facts, exits);
    let pairs = environment.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    let limit = state.config.site.timeout_s.map(|s| Duration::from_secs(u64::from(s)));
    Task { program, environment: pairs.collect(), limit }
}
