//! The state as clients see it.

use crate::foresight::Estimates;
use crate::shapes::{self, Asked, Shapes};
use crate::shared::{Outlook, Shared};
use cluster::Job;
use cluster::billing::bill;
use cluster::requested;
use cluster::view::priority::Ranking;
use cluster::{State, dependency};
use model::allocation::{Allocation, GresShare};
use model::array::IndexSet;
use model::attempt::suspended_whole_s;
use model::reason::Reason;
use model::run::{Hold, JobState, Outcome};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::client::Detail;
use wire::view::{AccountsView, ArrayView, ClusterView, ConfigView, JobExtras, JobView, NodeView};

/// What the views need beside the state, taken once for an answer.
pub struct Lens<'a> {
    state: &'a State,
    outlook: Arc<Outlook>,
    ranking: Ranking<'a>,
    now: Timestamp,
    detail: Detail,
    shapes: &'a RefCell<Shapes>,
    /// When jobs are expected to start, for who asks.
    estimates: Option<&'a Estimates>,
}

impl<'a> Lens<'a> {
    pub fn new(
        shared: &Shared,
        state: &'a State,
        now: Timestamp,
        detail: Detail,
        shapes: &'a RefCell<Shapes>,
    ) -> Self {
        let (outlook, ranking) = (shared.volatile.outlook(), Ranking::new(state, now));
        Self { state, outlook, ranking, now, detail, shapes, estimates: None }
    }

    pub fn with_estimates(self, estimates: Option<&'a Estimates>) -> Self {
        Self { estimates, ..self }
    }

    fn reason(&self, job: &Job) -> Reason {
        if let Some(ended) = job.ended() {
            return ended.reason.clone();
        }
        if !job.is_waiting() {
            let prepares = job
                .attempt()
                .is_some_and(|a| !a.prolog_nodes.is_empty() && !a.is_ending_or_preempted());
            return if prepares { Reason::Prolog } else { Reason::None };
        }
        let fixed = job.fixed_reason.as_deref();
        match job.hold {
            // Held since it came to wait again: that says more.
            Some(_) if fixed == Some(&Reason::RequeuedHeld) => return Reason::RequeuedHeld,
            Some(_) if job.lost_reservation() => return fixed.cloned().unwrap_or_default(),
            Some(Hold::User) => return Reason::HeldByUser,
            Some(Hold::Admin) => {
                return job.fixed_reason.as_deref().cloned().unwrap_or(Reason::HeldByAdmin);
            }
            None => {}
        }
        fixed.or_else(|| self.outlook.reasons.get(&job.id)).cloned().unwrap_or_default()
    }

    /// As [`Shapes::asked`], of a job that has or had an allocation.
    fn granted(&self, job: &Job, allocation: &Allocation) -> Asked {
        let mut tres = allocation.tres();
        tres.set(TresKind::Billing, bill(self.state, &allocation.partition, &tres));
        Asked {
            partition: allocation.partition.as_str().into(),
            limit: requested::effective_limit(self.state, job),
            tres: Arc::new(tres),
            default_memory: shapes::default_memory(self.state, job),
        }
    }

    /// One job; `tasks` narrows which pending tasks of an array are shown.
    pub fn job(&self, job: &Job, tasks: Option<&IndexSet>) -> JobView {
        let state = self.state;
        let request = job.spec.request();
        let (attempt, ended) = (job.attempt(), job.ended());
        let allocation =
            attempt.map(|a| &a.allocation).or(ended.and_then(|e| e.allocation.as_ref()));
        let expected = self.estimates.filter(|_| job.is_waiting()).and_then(|e| e.of(job.id));
        let planned = || self.outlook.estimates.get(&job.id).copied();
        let estimate = expected.map(|e| e.start).or_else(planned);
        let start = attempt.map(|a| a.start).or(ended.and_then(|e| e.start)).or(estimate);
        let Asked { partition, limit, tres, default_memory } = match allocation {
            Some(allocation) => self.granted(job, allocation),
            None => self.shapes.borrow_mut().asked(state, job),
        };
        JobView {
            id: job.id,
            run: (self.detail == Detail::Full).then_some(job.run),
            name: job.spec.name.clone(),
            array: array_view(job, tasks),
            het: job.het,
            spec: match self.detail {
                Detail::Full => job.spec.clone(),
                Detail::Listing => self.shapes.borrow_mut().listed(&job.spec),
            },
            state: job.state(),
            reason: self.reason(job),
            hold: job.hold,
            partition,
            account: job.account.clone(),
            qos: job.qos.clone(),
            priority: if job.hold.is_some() { 0 } else { self.ranking.shown(job, self.now) },
            submit: job.shown_submit(),
            eligible: eligible(job, state, self.now),
            start,
            end: end_of(job, start, limit),
            time_limit: limit,
            restarts: job.restarts(),
            exit: ended.map(|e| e.exit).unwrap_or_default(),
            derived_exit: ended.map(|e| e.derived_exit).unwrap_or_default(),
            allocation: allocation.cloned().map(Box::new),
            nodes: request.nodes,
            cpus: tres.amount(&TresKind::Cpu) as u32,
            tasks: request.task_count(),
            tres,
            steps: attempt
                .map(|a| &a.steps)
                .or(ended.map(|e| &e.steps))
                .cloned()
                .unwrap_or_default(),
            usage: ended.map(|e| e.usage.clone()).unwrap_or_default(),
            suspended_s: suspended_s(job, self.now),
            dependency: dependency::shown(state, job, self.now),
            last_planned: self.outlook.planned,
            default_memory,
            extras: extras(job),
            sched_nodes: expected.map(|e| e.nodes.clone()),
            cancelled_by: match ended.map(|e| e.outcome) {
                Some(Outcome::Cancelled { by }) => Some(by),
                _ => None,
            },
        }
    }
}

fn suspended_s(job: &Job, now: Timestamp) -> u64 {
    match (job.attempt(), job.ended()) {
        (Some(attempt), _) => {
            suspended_whole_s(attempt.start, now, attempt.suspended_total_ms(now))
        }
        (None, Some(ended)) => {
            ended.start.map_or(0, |start| suspended_whole_s(start, ended.end, ended.suspended_ms))
        }
        (None, None) => 0,
    }
}

fn extras(job: &Job) -> Option<Box<JobExtras>> {
    let attempt = job.attempt();
    let suspend_time = attempt.and_then(|a| a.suspend_changed);
    let pre_suspend_s = attempt.zip(suspend_time).map_or(0, |(attempt, at)| {
        let ran = at.since(attempt.start).as_millis() as u64;
        ran.saturating_sub(attempt.suspended_ms) / 1000
    });
    let preempt_time = attempt.and_then(|a| a.preemption_grace).map(|leaving| leaving.since);
    let admin_comment = job.admin_comment.clone();
    let magnetic_reservation = attempt.and_then(|a| a.reservation.clone());
    let magnetic_reservation =
        magnetic_reservation.filter(|_| job.spec.request().reservation.is_none());
    let extras = JobExtras {
        suspend_time,
        pre_suspend_s,
        preempt_time,
        admin_comment,
        magnetic_reservation,
    };
    (extras != JobExtras::default()).then(|| Box::new(extras))
}

pub(crate) fn array_view(job: &Job, tasks: Option<&IndexSet>) -> Option<Box<ArrayView>> {
    if let Some(task) = job.task {
        let index = Some(task.index);
        return Some(Box::new(ArrayView {
            array: task.array,
            index,
            pending: None,
            throttle: None,
        }));
    }
    let pending = job.pending.as_ref()?;
    let shown = tasks.unwrap_or(&pending.indices);
    let single = tasks.filter(|t| t.len() == 1).and_then(IndexSet::first);
    Some(Box::new(ArrayView {
        array: job.id,
        index: single,
        pending: single.is_none().then(|| shown.clone()),
        throttle: pending.throttle,
    }))
}

fn eligible(job: &Job, state: &State, now: Timestamp) -> Option<Timestamp> {
    if job.is_waiting() && (job.hold.is_some() || dependency::shown(state, job, now).is_some()) {
        return None;
    }
    Some(job.begin.map_or(job.submit, |begin| begin.max(job.submit)))
}

fn end_of(job: &Job, start: Option<Timestamp>, limit: TimeLimit) -> Option<Timestamp> {
    match (job.ended(), job.attempt()) {
        (Some(ended), _) => Some(ended.end),
        (None, Some(attempt)) => match attempt.preemption_grace {
            Some(leaving) => Some(leaving.until),
            None => attempt.end_limit,
        },
        (None, None) => Some(start? + limit.duration()?),
    }
}

pub fn cluster(shared: &Shared, now: Timestamp) -> ClusterView {
    let state = shared.read();
    let facts = shared.volatile.facts.read().expect("no panic while writing facts");
    let mut partitions_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for partition in &state.partitions {
        for node in &partition.nodes {
            partitions_of.entry(node).or_default().push(partition.name.clone());
        }
    }
    let kept = crate::reservations::kept(&state, now);
    let nodes = state.nodes.iter().map(|(name, node)| {
        let completing = node
            .holders
            .iter()
            .any(|a| state.jobs.get(&a.job).is_some_and(|j| j.state() == JobState::Completing));
        NodeView {
            config: (*node.config).clone(),
            slot: node.slot,
            admin: node.admin,
            reason: node.reason.clone(),
            facts: facts.get(name).cloned().unwrap_or_else(|| node.facts.clone()),
            cpus_allocated: node.used.cpus.len(),
            memory_allocated: node.used.memory,
            gres_used: gres_used(node),
            job_count: node.used.jobs,
            completing: completing || !node.stale.is_empty(),
            partitions: partitions_of.get(name.as_str()).cloned().unwrap_or_default(),
            last_busy: node.last_busy,
            reserved_for: kept.get(name.as_str()).copied(),
        }
    });
    ClusterView {
        name: state.config.name.clone(),
        now,
        nodes: nodes.collect(),
        partitions: state.partitions.iter().map(|p| (**p).clone()).collect(),
        topology: state.config.topology.clone(),
    }
}

/// What jobs have of each resource of the node, by name and kind.
fn gres_used(node: &cluster::Node) -> Vec<GresShare> {
    let mut used: Vec<GresShare> = Vec::new();
    for share in &node.used.gres {
        match used.iter_mut().find(|u| u.name == share.name && u.kind == share.kind) {
            Some(known) => {
                known.count += share.count;
                known.indices.extend(&share.indices);
            }
            None => used.push(share.clone()),
        }
    }
    for share in &mut used {
        share.indices.sort_unstable();
        share.indices.dedup();
    }
    used
}

pub fn config(shared: &Shared, now: Timestamp) -> ConfigView {
    let state = shared.read();
    let mut values = state.config.shown.clone();
    values.insert("ClusterName".into(), state.config.name.clone());
    values.insert("NEXT_JOB_ID".into(), state.next_job.to_string());
    let zone = jiff::tz::TimeZone::system();
    let started = model::time::format_iso(shared.setup.started, &zone);
    values.insert("BOOT_TIME".into(), started);
    ConfigView { now, values }
}

pub fn accounts(shared: &Shared) -> AccountsView {
    let state = shared.read();
    AccountsView {
        cluster: state.config.name.clone(),
        accounts: state.accounts.values().cloned().collect(),
        associations: state.associations.clone(),
        qos: state.qos.values().map(|q| (**q).clone()).collect(),
        roles: state.roles.clone(),
    }
}
