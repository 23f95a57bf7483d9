//! The cluster under a virtual clock: the state machine decides and applies, the planner plans on its view, as in the
//! server. The nodes are played: all of them are up, and a job ends when it is told to.

use cluster::command::{AttemptReport, CancelJobs, Submit, plan_commands};
use cluster::view::builder::ViewBuilder;
use cluster::view::priority::Ranking;
use cluster::{ClusterConfig, Command, Context, Event, Job, State};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use sched::Memo;
use sched::query::estimate::estimate_of;
use std::cmp::Reverse;

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

    /// Why a job would not start now. It is submitted, planned and taken back.
    pub fn obstacle(&mut self, submit: Submit) -> Result<Option<Reason>, Refusal> {
        let job = self.submit(submit)?;
        let view = self.view_builder.update(&self.state, self.now);
        let plan = sched::plan(view, self.now, &mut self.memo);
        let starts = plan.starts.iter().any(|start| start.job == job);
        let reason = plan.reasons.into_iter().find(|(of, _)| *of == job);
        self.cancel(job)?;
        Ok((!starts).then(|| reason.map_or(Reason::Resources, |(_, reason)| reason)))
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

    /// The end of the last period of priorities, once the passing of time up to this tick is decided on.
    pub fn period_end_after(&self, tick: Timestamp) -> Option<Timestamp> {
        let is_due = self.state.usage_period_due(tick).is_some();
        if is_due { Some(tick) } else { self.state.charged_usage.as_of }
    }

    /// The first job of the queue by expansion factor, if the last period of priorities ended then.
    pub fn first_in_queue(&self, period_end: Option<Timestamp>) -> Option<JobId> {
        let ranking = Ranking::with_period_end(&self.state, self.now, period_end);
        let waiting = self.state.queue.iter().filter_map(|id| self.state.job(*id));
        let turn = |job: &&Job| {
            let priority = ranking.priorities(job, &[], self.now).into_iter().max();
            (Reverse(priority), job.submit, job.id)
        };
        waiting.min_by_key(turn).map(|job| job.id)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_specs::{JobSpecs, Width};
    use crate::machine::single_processor_nodes;
    use crate::policy::Policy;
    use crate::trace::TraceJob;
    use std::time::Duration;

    const NODES: u32 = 48;
    const JOBS: u64 = 250;

    /// Jobs come and end at random; each plan is made from the last one, and from nothing.
    fn assert_same_plans(config: ClusterConfig, seed: u64) {
        let mut drawn = seed;
        let mut below = |bound: u64| {
            drawn = drawn.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (drawn >> 33) % bound
        };
        let begin = Timestamp::from_secs(1_000_000);
        let by_time = config.parameters.priority.is_computed();
        let mut virtual_cluster = VirtualCluster::new(config, begin).expect("a cluster");
        let first_job = virtual_cluster.state.next_job;
        let mut specs = JobSpecs::new(Width::Nodes, &[]);
        let mut runs = Vec::new();
        let mut ends: Vec<(Timestamp, JobId)> = Vec::new();
        let mut longest_queue = 0;
        for line in 1..=JOBS {
            let now = virtual_cluster.now() + Duration::from_secs(below(40));
            virtual_cluster.advance_to(now);
            let (due, later): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(end, _)| *end <= now);
            ends = later;
            for (_, job) in due {
                assert!(virtual_cluster.end(job, 1, false).expect("an end"));
            }
            let run_s = 1 + below(900) as u32;
            let most = if below(3) == 0 { 40 } else { 4 };
            let job = TraceJob {
                line,
                run_s,
                processors: 1 + below(most) as u32,
                estimate_s: (run_s + below(600) as u32).next_multiple_of(60),
                user: below(4) as i64,
                ..TraceJob::default()
            };
            runs.push(Duration::from_secs(run_s.into()));
            virtual_cluster.submit(specs.submit(&job)).expect("a job");
            longest_queue = longest_queue.max(virtual_cluster.state.queue.len());
            if by_time {
                virtual_cluster.tick().expect("a tick");
            }
            let anew = cluster::view::view(&virtual_cluster.state, now);
            let from_nothing = sched::plan(&anew, now, &mut Memo::default());
            let view = virtual_cluster.view_builder.update(&virtual_cluster.state, now);
            let plan = sched::plan(view, now, &mut virtual_cluster.memo);
            assert_eq!(plan, from_nothing, "seed {seed}, job {line}");
            for command in plan_commands(plan, now) {
                for event in virtual_cluster.run(&command).expect("a start") {
                    if let Event::Started(started) = event {
                        let job = started.attempt.job;
                        ends.push((now + runs[(job.0 - first_job) as usize], job));
                    }
                }
            }
        }
        assert!(longest_queue > 10, "seed {seed}: nothing waits");
    }

    #[test]
    fn plans_made_step_by_step_are_those_made_from_nothing() {
        for seed in 1..=3 {
            for policy in Policy::ALL {
                assert_same_plans(single_processor_nodes(NODES, policy), seed);
            }
            // With a slot for every job that waits: the order of the queue changes under the slots of the last plan.
            let mut config = single_processor_nodes(NODES, Policy::Sluice);
            config.parameters.backfill_slots_max = u32::MAX;
            assert_same_plans(config, seed);
            let mut config = single_processor_nodes(NODES, Policy::Easy);
            config.parameters.backfill_limits.narrow_jobs_end_first = false;
            assert_same_plans(config, seed);
        }
    }
}
