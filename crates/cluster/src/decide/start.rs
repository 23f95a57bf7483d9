//! A start that the plan proposes, checked again: the state may have changed since.

use crate::command::{Context, Decision};
use crate::dependency::{self, Dependencies};
use crate::event::{Event, Started};
use crate::state::State;
use crate::state::job::Job;
use crate::state::node::Node;
use crate::view;
use crate::view::priority::Ranking;
use model::allocation::{Allocation, GresShare, NodeShare};
use model::dependency::DependencyState;
use model::gres::GPU;
use model::id::{AttemptId, JobId, StepId};
use model::reason::Refusal;
use model::run::{LaunchKind, Step};
use model::time::Timestamp;
use sched::Start;
use sched::view::NodeUse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest time in which the image of a run is pulled that does not count towards its `max_duration`. The node has it in its
/// limit from the start, and is told to end earlier once the image is there: without a server a run is longer by no more.
const PULL_CREDIT_MAX: Duration = Duration::from_secs(1800);

impl State {
    pub(super) fn decide_start(
        &self,
        start: &Start,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        if self.jobs.get(&start.job).is_some_and(|job| job.het.is_some()) {
            return Err(Refusal::JobNotPending(start.job));
        }
        let started = self.start_beside(start, &BTreeMap::new(), context)?;
        Ok(vec![Event::Started(Box::new(started))].into())
    }

    /// A start beside others of the same decision; `beside` holds the nodes with those counted.
    pub(super) fn start_beside(
        &self,
        start: &Start,
        beside: &BTreeMap<String, Node>,
        context: &Context,
    ) -> Result<Started, Refusal> {
        let job = self.jobs.get(&start.job);
        let job = job.ok_or_else(|| Refusal::UnknownJob(start.job.to_string()))?;
        if !job.is_waiting() || job.hold.is_some() {
            return Err(Refusal::JobNotPending(job.id));
        }
        // The plan was made before somebody put the job off, or let fewer tasks of the array run.
        if job.begin.is_some_and(|begin| begin > context.now) || self.is_throttled(job) {
            return Err(Refusal::JobNotPending(job.id));
        }
        if self.may_run_unknown(job) {
            return Err(Refusal::NoCapacityNow);
        }
        if dependency::state_of(self, job, context.now) != DependencyState::Fulfilled {
            return Err(Refusal::InvalidDependency);
        }
        self.check_free(job, &start.allocation, beside)?;
        self.check_licenses_free(&job.spec.request().licenses)?;
        if !job.spec.launch.volumes.is_empty() && self.awaits_disk_of_others(job) {
            return Err(Refusal::NoCapacityNow);
        }
        let nodes: Vec<&str> = start.allocation.node_names().collect();
        self.check_not_reserved(job, &nodes, context.now)?;
        let reservation = self.reservation_used(job, &nodes, context.now)?;
        let (id, task) = self.starting_id(job, context.now)?;
        let attempt = AttemptId { job: id, number: job.attempts + 1 };
        let end_limit = start.time_limit.duration().map(|d| context.now + d);
        let leaves = self.must_end_by(job, &nodes, context.now);
        let of_task = job.spec.launch.exact_limit(start.time_limit).map(|d| context.now + d);
        let end_without_pull = end_limit.into_iter().chain(of_task).chain(leaves).min();
        // One that somebody set stays as it is.
        let is_computed = self.config.parameters.priority.is_computed() && !job.priority_set;
        let priority = is_computed.then(|| Ranking::shown_of_one(self, job, context.now));
        let step = first_step(job, &start.allocation, context.now);
        let kind = job.spec.launch.kind;
        let needs_image = kind == LaunchKind::Task && job.spec.launch.container.is_some();
        // `max_duration` is of the running state. Other limits, as a partition's, are of all the time on the nodes.
        let has_credit = needs_image && of_task.is_some();
        let of_partition = self.partition(&start.allocation.partition);
        let of_partition = of_partition.and_then(|partition| partition.max_time.duration());
        let of_partition = of_partition.map(|longest| context.now + longest);
        let reserved = self.reserved_for_others_from(job, &nodes, context.now);
        let latest = [leaves, of_partition, reserved].into_iter().flatten().min();
        let end_limit = end_without_pull.map(|end| match latest {
            _ if !has_credit => end,
            Some(latest) => (end + PULL_CREDIT_MAX).min(latest).max(end),
            None => end + PULL_CREDIT_MAX,
        });
        let credit = end_limit.zip(end_without_pull).map(|(end, without)| end.since(without));
        let pull_credit_ms = credit.and_then(|credit| u64::try_from(credit.as_millis()).ok());
        let nodes_count = start.allocation.nodes.len();
        Ok(Started {
            attempt,
            preparing: needs_image || self.config.site.prolog_is_awaited(kind, nodes_count),
            task,
            allocation: start.allocation.clone(),
            at: context.now,
            end_limit,
            pull_credit_ms: pull_credit_ms.filter(|credit_ms| *credit_ms > 0),
            reservation,
            priority,
            step,
        })
    }

    /// Whether as many tasks of the array run as may at a time.
    fn is_throttled(&self, job: &Job) -> bool {
        self.throttle(job).is_some_and(|(array, most)| self.running_tasks(array) >= most)
    }

    /// The id of the job that starts, and for an array the task that leaves its pending set.
    fn starting_id(
        &self,
        job: &Job,
        now: Timestamp,
    ) -> Result<(JobId, Option<(JobId, u32)>), Refusal> {
        let Some(pending) = &job.pending else { return Ok((job.id, None)) };
        let first = Dependencies::new(self, now).first_ready(job, &pending.indices);
        let index = first.ok_or(Refusal::InvalidDependency)?;
        let last = pending.indices.len() == 1;
        let id = if last { job.id } else { JobId(self.next_job) };
        Ok((id, Some((job.id, index))))
    }

    /// Whether every share is free on a node that may take this job.
    fn check_free(
        &self,
        job: &Job,
        allocation: &Allocation,
        beside: &BTreeMap<String, Node>,
    ) -> Result<(), Refusal> {
        let partition = self.partition(&allocation.partition).map(|p| &**p);
        let whole = view::is_exclusive(job, partition, self.config.parameters.select);
        let alone = view::is_user_exclusive(job, partition);
        let uid = job.spec.owner.uid;
        for share in &allocation.nodes {
            let node = beside.get(&share.node).or_else(|| self.nodes.get(&share.node));
            let node = node.ok_or_else(|| Refusal::UnknownNode(share.node.clone()))?;
            let used = &node.used;
            let memory = used.memory.0 + share.memory.0 <= node.config.usable_memory().0;
            let cpus = used.admits_cpus(share) && share.cpus.is_subset(&node.config.usable_cpus());
            let gres = share.gres.iter().all(|wanted| gres_is_free(node, share, wanted));
            let closed = is_closed(used, uid, whole, alone);
            let available = node.availability().takes_jobs();
            if !(memory && cpus && gres && available) || closed {
                return Err(Refusal::NoCapacityNow);
            }
        }
        Ok(())
    }
}

/// Whether the jobs on a node exclude another of this user: `whole` wants the node to itself, `alone` without other users.
pub(super) fn is_closed(used: &NodeUse, uid: u32, whole: bool, alone: bool) -> bool {
    let others = used.users.iter().any(|other| *other != uid);
    used.exclusive
        || used.user_exclusive.iter().any(|(_, other)| *other != uid)
        || (whole && used.jobs > 0)
        || (alone && others)
}

/// Whether the units of a resource that a share names exist and are free.
fn gres_is_free(node: &Node, share: &NodeShare, wanted: &GresShare) -> bool {
    let held = || node.used.gres.iter().filter(|g| g.name == wanted.name);
    let units = || node.config.gres.iter().filter(|g| g.name == wanted.name);
    let there = |index: u32| {
        units().any(|g| {
            let first = u64::from(g.first_index);
            (first..first + g.count).contains(&u64::from(index))
        })
    };
    if units().all(|line| line.no_consume) {
        return wanted.count <= node.config.gres_total(&wanted.name);
    }
    if units().any(|line| line.share_of.is_some()) {
        return shares_are_free(node, wanted) && !is_in_another_form(node, wanted);
    }
    let taken = |index: u32| held().any(|g| g.indices.contains(&index));
    let count = held().map(|g| g.count).sum::<u64>() + share.gres_count(&wanted.name);
    wanted.indices.iter().all(|index| there(*index) && !taken(*index))
        && count <= node.config.gres_total(&wanted.name)
        && !is_in_another_form(node, wanted)
}

/// Whether the GPU has as many shares left as are wanted of it.
fn shares_are_free(node: &Node, wanted: &GresShare) -> bool {
    let lines = node.config.gres.iter().filter(|line| line.name == wanted.name);
    let of_gpu =
        lines.filter(|line| line.share_of.is_some_and(|gpu| wanted.indices.contains(&gpu)));
    let there: u64 = of_gpu.map(|line| line.count).sum();
    let held = node.used.gres.iter().filter(|held| held.name == wanted.name);
    let held = held.filter(|held| held.indices.iter().any(|gpu| wanted.indices.contains(gpu)));
    let held: u64 = held.map(|held| held.count).sum();
    wanted.indices.len() == 1 && held + wanted.count <= there
}

/// Whether a GPU that is wanted whole is held in shares, or one wanted in shares is held whole.
fn is_in_another_form(node: &Node, wanted: &GresShare) -> bool {
    let in_shares = |share: &GresShare| sched::gpus_shared_by(&node.config, share).to_vec();
    let whole = |share: &GresShare| match share.name.as_str() {
        GPU => share.indices.clone(),
        _ => Vec::new(),
    };
    let (wanted_whole, wanted_shares) = (whole(wanted), in_shares(wanted));
    node.used.gres.iter().any(|held| {
        in_shares(held).iter().any(|gpu| wanted_whole.contains(gpu))
            || whole(held).iter().any(|gpu| wanted_shares.contains(gpu))
    })
}

/// The batch step, which a job has from its start. `None` for an interactive job.
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
        shares: Vec::new(),
        overlap: false,
        ticket: 0,
        nodes,
        tasks: hosts as u32,
        cpus: allocation.nodes.iter().take(hosts).map(|s| s.cpus.len()).sum(),
        end: None,
        exit: Default::default(),
        usage: Default::default(),
        submit_line: String::new(),
        cpu_frequency: None,
        image: None,
    })
}
