//! A start that the plan proposes: checked again, since the state has moved on meanwhile.

use crate::command::{Context, Decision};
use crate::dependency;
use crate::event::{Event, Started};
use crate::job::Job;
use crate::state::State;
use model::allocation::Allocation;
use model::dependency::DependencyState;
use model::id::{AttemptId, JobId, StepId};
use model::reason::Refusal;
use model::run::{LaunchKind, Step};
use model::time::Timestamp;
use sched::Start;
use sched::view::Availability;

impl State {
    pub(super) fn decide_start(
        &self,
        start: &Start,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let job = self.jobs.get(&start.job);
        let job = job.ok_or_else(|| Refusal::UnknownJob(start.job.to_string()))?;
        if !job.is_waiting() || job.hold.is_some() {
            return Err(Refusal::JobNotPending(job.id));
        }
        if dependency::state_of(self, job, context.now) != DependencyState::Fulfilled {
            return Err(Refusal::InvalidDependency);
        }
        self.check_free(&start.allocation)?;
        let (id, task) = self.leaving(job)?;
        let attempt = AttemptId { job: id, number: job.attempts + 1 };
        let end_limit = start.time_limit.duration().map(|d| context.now + d);
        let step = first_step(job, &start.allocation, context.now);
        let started = Started {
            attempt,
            task,
            allocation: start.allocation.clone(),
            at: context.now,
            end_limit,
            step,
        };
        Ok(vec![Event::Started(Box::new(started))].into())
    }

    /// The id that starts, and the task that leaves the pending set for it.
    fn leaving(&self, job: &Job) -> Result<(JobId, Option<(JobId, u32)>), Refusal> {
        let Some(pending) = &job.pending else { return Ok((job.id, None)) };
        let ready = |index: &u32| dependency::task_ready(self, job, *index);
        let index = pending.indices.iter().find(ready).ok_or(Refusal::InvalidDependency)?;
        let last = pending.indices.len() == 1;
        let id = if last { job.id } else { JobId(self.next_job) };
        Ok((id, Some((job.id, index))))
    }

    /// Whether every share is free on a node that may take work.
    fn check_free(&self, allocation: &Allocation) -> Result<(), Refusal> {
        for share in &allocation.nodes {
            let node = self.nodes.get(&share.node);
            let node = node.ok_or_else(|| Refusal::UnknownNode(share.node.clone()))?;
            let used = &node.used;
            let memory = used.memory.0 + share.memory.0 <= node.config.usable_memory().0;
            let cpus = !used.cpus.intersects(&share.cpus)
                && share.cpus.is_subset(&node.config.usable_cpus());
            let gres = share.gres.iter().all(|wanted| {
                let same = used.gres.iter().filter(|g| g.name == wanted.name);
                let (mut count, mut clash) = (0, false);
                for held in same {
                    clash |= held.indices.iter().any(|i| wanted.indices.contains(i));
                    count += held.count;
                }
                !clash && count + wanted.count <= node.config.gres_total(&wanted.name)
            });
            let available = node.availability() == Availability::Available && !used.exclusive;
            if !(memory && cpus && gres && available) {
                return Err(Refusal::NoCapacityNow);
            }
        }
        Ok(())
    }
}

/// The step that a job has from its start: its script.
fn first_step(job: &Job, allocation: &Allocation, at: Timestamp) -> Option<Step> {
    let every_node = match job.spec.launch.kind {
        LaunchKind::Interactive => return None,
        LaunchKind::Batch => false,
        LaunchKind::Task => true,
    };
    let hosts = if every_node { allocation.nodes.len() } else { 1 };
    let nodes: Vec<String> = allocation.node_names().take(hosts).map(str::to_string).collect();
    Some(Step {
        id: StepId::Batch,
        name: "batch".into(),
        start: at,
        waiting: nodes.clone(),
        layout: Vec::new(),
        nodes,
        tasks: hosts as u32,
        cpus: allocation.nodes.iter().take(hosts).map(|s| s.cpus.len()).sum(),
        end: None,
        exit: Default::default(),
        usage: Default::default(),
        submit_line: String::new(),
    })
}
