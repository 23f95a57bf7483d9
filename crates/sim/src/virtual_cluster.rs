//! The cluster under a virtual clock: the state machine decides and applies, the planner plans on its view, as in the
//! server. The nodes are played: all of them are up, and a job ends when it is told to.

use cluster::command::{AttemptReport, CancelJobs, Submit, plan_commands};
use cluster::view::builder::ViewBuilder;
use cluster::{ClusterConfig, Command, Context, Event, State};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use sched::Memo;
use sched::query::estimate::estimate_of;

pub struct VirtualCluster {
    state: State,
    now: Timestamp,
    view_builder: ViewBuilder,
    memo: Memo,
    /// The memo of start estimates, apart from that of plans: estimates walk the queue in another order.
    estimates_memo: Memo,
    /// The context of the last command. What is random in the server is the number of the command here.
    context: Context,
}

impl VirtualCluster {
    /// A cluster with this configuration, all of whose nodes are up.
    pub fn new(config: ClusterConfig, now: Timestamp) -> Result<Self, Refusal> {
        let mut cluster = Self {
            state: State::default(),
            now,
            view_builder: ViewBuilder::default(),
            memo: Memo::default(),
            estimates_memo: Memo::default(),
            context: Context { now, random: 0, by: root() },
        };
        cluster.run(&Command::StartTerm { term: 1 })?;
        let nodes: Vec<String> = config.nodes.iter().map(|node| node.name.clone()).collect();
        cluster.run(&Command::Configure(Box::new(config)))?;
        for node in nodes {
            let hello = Command::NodeHello { node, facts: Box::default(), held: Vec::new() };
            cluster.run(&hello)?;
        }
        Ok(cluster)
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Moves the clock, which never goes back.
    pub fn advance_to(&mut self, now: Timestamp) {
        assert!(now >= self.now, "the virtual clock goes back from {:?} to {now:?}", self.now);
        self.now = now;
    }

    fn run(&mut self, command: &Command) -> Result<Vec<Event>, Refusal> {
        self.context.now = self.now;
        self.context.random += 1;
        let decision = self.state.decide(command, &self.context)?;
        for event in &decision.events {
            self.state.apply(event);
        }
        Ok(decision.events)
    }

    pub fn submit(&mut self, submit: Submit) -> Result<JobId, Refusal> {
        let job = JobId(self.state.next_job);
        self.run(&Command::Submit(Box::new(submit)))?;
        Ok(job)
    }

    /// Takes a job back.
    pub fn cancel(&mut self, job: JobId) -> Result<(), Refusal> {
        let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
        let cancel =
            CancelJobs { filter, step: None, signal: None, batch_only: false, full: false };
        self.run(&Command::Cancel(Box::new(cancel)))?;
        Ok(())
    }

    /// All nodes of the job's attempt report that nothing of it is left. Returns false if the job has no such attempt.
    pub fn end(&mut self, job: JobId, attempt: u32, timed_out: bool) -> Result<bool, Refusal> {
        let active = self.state.job(job).and_then(|job| Some((job.attempt_id()?, job.attempt()?)));
        let Some((id, active)) = active.filter(|(id, _)| id.number == attempt) else {
            return Ok(false);
        };
        for node in active.held_nodes.clone() {
            let exit = ExitStatus::default();
            let usage = Usage::default();
            let what = AttemptReport::Ended { exit, usage, oom: false, timed_out, lost: false };
            self.run(&Command::Report { node, attempt: id, at: self.now, what })?;
        }
        Ok(true)
    }

    /// What the passing of time brings. Records of jobs that have ended go.
    pub fn tick(&mut self) -> Result<Vec<Event>, Refusal> {
        self.run(&Command::Tick { booked: true })
    }

    /// Makes a plan and carries it out. Returns what happened.
    pub fn plan(&mut self) -> Result<Vec<Event>, Refusal> {
        if self.state.queue.is_empty() {
            return Ok(Vec::new());
        }
        let view = self.view_builder.update(&self.state, self.now);
        let plan = sched::plan(view, self.now, &mut self.memo);
        let mut happened = Vec::new();
        for command in plan_commands(plan, self.now) {
            match self.run(&command) {
                Ok(events) => happened.extend(events),
                // A plan may name a victim twice, for two jobs: the second time there is nothing left to preempt.
                Err(_) if matches!(command, Command::Preempt(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(happened)
    }

    /// When a waiting job is expected to start, as `squeue --start` says.
    pub fn expected_start(&mut self, job: JobId) -> Option<Timestamp> {
        let view = self.view_builder.update(&self.state, self.now);
        let estimate = estimate_of(view, self.now, &mut self.estimates_memo, job);
        estimate.map(|estimate| estimate.start)
    }

    /// Why a job waits.
    pub fn reason(&mut self, job: JobId) -> Option<Reason> {
        let view = self.view_builder.update(&self.state, self.now);
        let reasons = sched::plan(view, self.now, &mut self.memo).reasons;
        reasons.into_iter().find(|(of, _)| *of == job).map(|(_, reason)| reason)
    }
}

/// The principal of all commands of a replay: it may do everything, so that nothing is refused for want of a right.
fn root() -> Principal {
    Principal {
        name: "root".into(),
        uid: 0,
        gid: 0,
        group: "root".into(),
        groups: Vec::new(),
        role: Role::Admin,
        token_limit: None,
    }
}
