//! A small cluster in virtual time: commands go in, every event is checked, applied and kept.

use crate::invariants::Watch;
use crate::job_builder::{Ask, root};
use cluster::command::{AttemptReport, CancelJobs, StepPlacement, StepRequest};
use cluster::{ClusterConfig, Command, Context, Event, Job, Reply, State};
use model::amount::Bytes;
use model::array::IndexSet;
use model::change::{JobChange, JobFilter, JobRef, NodeChange};
use model::id::{AttemptId, JobId};
use model::node::{NodeConfig, NodeGres};
use model::partition::Partition;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::JobRecord;
use model::run::{ExitStatus, JobState, Usage};
use model::time::Timestamp;
use std::time::Duration;

pub const START: Timestamp = Timestamp::from_secs(1_000_000);

pub struct World {
    pub state: State,
    pub now: Timestamp,
    pub events: Vec<Event>,
    pub records: Vec<JobRecord>,
    watch: Watch,
    random: u128,
    view_builder: cluster::view::builder::ViewBuilder,
    memo: sched::Memo,
}

/// A node of eight CPUs, 16 GiB and two GPUs.
pub fn node(name: &str) -> NodeConfig {
    let mut node = NodeConfig::plain(name, 8, Bytes::from_gib(16));
    node.gres = vec![NodeGres::plain("gpu", Some("h100"), 2)];
    node
}

/// These nodes in the default partition `main`.
pub fn config(names: &[&str]) -> ClusterConfig {
    let mut main = Partition::over("main", names.iter().map(|n| n.to_string()).collect());
    main.default = true;
    ClusterConfig {
        nodes: names.iter().map(|name| node(name)).collect(),
        partitions: vec![main],
        ..ClusterConfig::default()
    }
}

/// Nodes `n1`, `n2` and so on, all up, in the partition `main`.
pub fn world(nodes: u32) -> World {
    world_with(nodes, |_| {})
}

pub fn world_with(nodes: u32, set: impl FnOnce(&mut ClusterConfig)) -> World {
    let names: Vec<String> = (1..=nodes).map(|i| format!("n{i}")).collect();
    let mut config = config(&names.iter().map(String::as_str).collect::<Vec<_>>());
    set(&mut config);
    let mut world = World {
        state: State::default(),
        now: START,
        events: Vec::new(),
        records: Vec::new(),
        watch: Watch::default(),
        random: 0,
        view_builder: Default::default(),
        memo: Default::default(),
    };
    world.run(Command::StartTerm { term: 1 });
    world.run(Command::Configure(Box::new(config)));
    names.iter().for_each(|name| world.hello(name, &[]));
    world
}

pub fn killed() -> ExitStatus {
    ExitStatus { code: 0, signal: 9 }
}

pub fn over(exit: ExitStatus, oom: bool, timed_out: bool, lost: bool) -> AttemptReport {
    AttemptReport::Ended { exit, usage: Usage::default(), oom, timed_out, lost }
}

pub fn exited(code: i32) -> ExitStatus {
    ExitStatus { code, signal: 0 }
}

/// Nothing of the attempt is left on the node; its script exited so.
pub fn ended(code: i32) -> AttemptReport {
    AttemptReport::Ended {
        exit: exited(code),
        usage: Usage::default(),
        oom: false,
        timed_out: false,
        lost: false,
    }
}

pub fn tasks(text: &str) -> Option<IndexSet> {
    Some(IndexSet::parse(text, 1000).expect("indices of a test"))
}

impl World {
    /// Decides and applies; every event is looked at before and after.
    pub fn try_as(&mut self, by: Principal, command: Command) -> Result<Reply, Refusal> {
        // Jobs that are submitted together take the numbers after it too.
        self.random += 1_000;
        let context = Context { now: self.now, random: self.random, by };
        let decision = self.state.decide(&command, &context)?;
        for event in decision.events {
            let record = self.state.apply(&event);
            self.watch.event(&self.state, &event, record.as_ref());
            self.records.extend(record);
            self.events.push(event);
        }
        self.watch.between_commands(&self.state);
        Ok(decision.reply)
    }

    /// A command of the server's own that must not be refused.
    pub fn run(&mut self, command: Command) -> Reply {
        let shown = format!("{command:?}");
        self.try_as(root(), command).unwrap_or_else(|why| panic!("{shown} is refused: {why}"))
    }

    pub fn try_submit(&mut self, ask: Ask) -> Result<JobId, Refusal> {
        let owner = (*ask.0.spec.owner).clone();
        match self.try_as(owner, Command::Submit(Box::new(ask.0)))? {
            Reply::Submitted { job, .. } => Ok(job),
            other => panic!("a submit is answered with {other:?}"),
        }
    }

    pub fn submit(&mut self, ask: Ask) -> JobId {
        self.try_submit(ask).unwrap_or_else(|why| panic!("the submit is refused: {why}"))
    }

    /// Plans as the server does, and starts what the plan says; gives what started.
    pub fn plan(&mut self) -> Vec<AttemptId> {
        let before = self.events.len();
        let view = cluster::view::view(&self.state, self.now);
        let plan = sched::plan(&view, self.now, &mut sched::Memo::default());
        for job in plan.resumes {
            let _ = self.try_as(root(), Command::Resume { job });
        }
        for command in cluster::command::start_commands(plan.starts) {
            // Refused: the state has moved on, as when a task has to wait for its counterpart.
            let _ = self.try_as(root(), command);
        }
        let started = self.events[before..].iter().filter_map(|event| match event {
            Event::Started(started) => Some(started.attempt),
            _ => None,
        });
        started.collect()
    }

    /// What a plan starts: the same whether made from nothing or from the last one.
    pub fn planned(&mut self) -> Vec<sched::Start> {
        let anew = cluster::view::view(&self.state, self.now);
        let view = self.view_builder.view(&self.state, self.now);
        assert_eq!(view.queue, anew.queue, "the queue was not followed");
        assert_eq!(view.running, anew.running, "the running jobs were not followed");
        let of_nodes = |view: &sched::view::View| -> Vec<_> {
            view.nodes.iter().map(|node| (node.availability, node.used.clone())).collect()
        };
        assert_eq!(of_nodes(&view), of_nodes(&anew), "the nodes were not followed");
        let plan = sched::plan(&view, self.now, &mut self.memo);
        assert_eq!(plan, sched::plan(&anew, self.now, &mut sched::Memo::default()));
        plan.starts
    }

    /// Submits and starts; the plan must start exactly this.
    pub fn started(&mut self, ask: Ask) -> AttemptId {
        let id = self.submit(ask);
        let started = self.plan();
        assert_eq!(started.iter().map(|a| a.job).collect::<Vec<_>>(), [id]);
        started[0]
    }

    pub fn report(&mut self, node: &str, attempt: AttemptId, what: AttemptReport) {
        self.run(Command::Report { node: node.into(), attempt, at: self.now, what });
    }

    /// Every node that holds a part of the job says that it ended so.
    pub fn end(&mut self, job: JobId, code: i32) {
        let attempt = self.job(job).attempt_id().expect("a running job of a test");
        let nodes = self.job(job).attempt().map(|a| a.held_nodes.clone()).unwrap_or_default();
        nodes.iter().for_each(|node| self.report(node, attempt, ended(code)));
    }

    pub fn job(&self, id: JobId) -> &Job {
        self.state.jobs.get(&id).unwrap_or_else(|| panic!("job {id} is unknown"))
    }

    pub fn is(&self, id: JobId) -> JobState {
        self.job(id).state()
    }

    /// The host names of a running job.
    pub fn nodes_of(&self, id: JobId) -> Vec<String> {
        let attempt = self.job(id).attempt().expect("a running job of a test");
        attempt.allocation.node_names().map(str::to_string).collect()
    }

    pub fn cancel(&mut self, jobs: &[JobRef]) -> Vec<(String, Result<(), Refusal>)> {
        self.cancel_as(root(), jobs)
    }

    pub fn cancel_as(
        &mut self,
        by: Principal,
        jobs: &[JobRef],
    ) -> Vec<(String, Result<(), Refusal>)> {
        match self.try_as(by, cancel(jobs)) {
            Ok(Reply::Signals { results, .. }) => results,
            other => panic!("a cancel is answered with {other:?}"),
        }
    }

    pub fn change(&mut self, id: JobId, change: JobChange) -> Result<Reply, Refusal> {
        self.change_as(root(), JobRef::whole(id), change)
    }

    pub fn change_as(
        &mut self,
        by: Principal,
        job: JobRef,
        change: JobChange,
    ) -> Result<Reply, Refusal> {
        self.try_as(by, Command::ChangeJob { job, change })
    }

    pub fn change_nodes(&mut self, nodes: &[&str], change: NodeChange) {
        let nodes = nodes.iter().map(|n| n.to_string()).collect();
        self.run(Command::ChangeNode { nodes, change });
    }

    /// The agent of a node says hello and names the live attempts that it holds.
    pub fn hello(&mut self, node: &str, held: &[AttemptId]) {
        let held = held.iter().map(|a| (*a, true)).collect();
        self.run(Command::NodeHello { node: node.into(), facts: Box::default(), held });
    }

    /// The node falls silent, and time passes until it is down.
    pub fn fail(&mut self, node: &str) {
        self.run(Command::NodeLost { node: node.into() });
        self.pass(u64::from(self.state.config.parameters.slurmd_timeout_s));
    }

    pub fn tick(&mut self) {
        self.run(Command::Tick { booked: true });
    }

    pub fn pass(&mut self, secs: u64) {
        self.now = self.now + Duration::from_secs(secs);
        self.tick();
    }

    pub fn step(&mut self, job: JobId, ask: StepRequest) -> StepPlacement {
        match self.run(Command::CreateStep { job, ask: Box::new(ask) }) {
            Reply::Step(placed) => placed,
            other => panic!("a step is answered with {other:?}"),
        }
    }

    /// The state as a snapshot brings it back takes the place of the living one.
    pub fn restart(&mut self) {
        self.state = crate::invariants::through_a_snapshot(&self.state);
    }
}

pub fn cancel(jobs: &[JobRef]) -> Command {
    Command::Cancel(Box::new(CancelJobs {
        filter: JobFilter { jobs: jobs.to_vec(), ..JobFilter::default() },
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    }))
}
