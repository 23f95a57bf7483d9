//! The state as clients see it.

use crate::shared::Shared;
use cluster::books;
use cluster::job::Job;
use cluster::priority::Ranking;
use cluster::spending::bill;
use cluster::{State, dependency, select};
use model::array::IndexSet;
use model::id::JobId;
use model::reason::Reason;
use model::request::Memory;
use model::run::{Hold, JobState, Outcome};
use model::time::{TimeLimit, Timestamp};
use model::tres::TresKind;
use std::collections::{BTreeMap, HashMap};
use wire::client::JobsWanted;
use wire::view::{AccountsView, ArrayView, ClusterView, ConfigView, JobView, NodeView};

/// The most rows that one answer expands pending array tasks into.
const EXPANDED_MAX: usize = 1_000_000;

/// What the views need beside the state, taken once for an answer.
pub struct Lens<'a> {
    state: &'a State,
    reasons: HashMap<JobId, Reason>,
    estimates: HashMap<JobId, Timestamp>,
    planned: Option<Timestamp>,
    ranking: Ranking<'a>,
    now: Timestamp,
}

impl<'a> Lens<'a> {
    pub fn new(shared: &Shared, state: &'a State, now: Timestamp) -> Self {
        let volatile = &shared.volatile;
        let poisoned = "no panic while writing what a plan found";
        Self {
            state,
            reasons: volatile.reasons.read().expect(poisoned).clone(),
            estimates: volatile.estimates.read().expect(poisoned).clone(),
            planned: *volatile.last_plan.read().expect(poisoned),
            ranking: Ranking::new(state, now),
            now,
        }
    }

    pub fn jobs(&self, wanted: &JobsWanted) -> Vec<JobView> {
        let mut views = Vec::new();
        for chosen in select::matching(self.state, &wanted.filter) {
            let tasks = chosen.tasks.as_ref();
            let indices = match (&chosen.job.pending, wanted.expand_arrays) {
                (Some(pending), true) => tasks.or(Some(&pending.indices)),
                _ => None,
            };
            match indices {
                None => views.push(self.job(chosen.job, tasks)),
                Some(indices) => {
                    let room = EXPANDED_MAX.saturating_sub(views.len());
                    views.extend(indices.iter().take(room).map(|index| {
                        let mut view = self.job(chosen.job, None);
                        view.array = Some(ArrayView {
                            array: chosen.job.id,
                            index: Some(index),
                            pending: None,
                            throttle: None,
                        });
                        view
                    }));
                }
            }
        }
        views
    }

    fn reason(&self, job: &Job) -> Reason {
        if let Some(ended) = job.ended() {
            return ended.reason.clone();
        }
        if !job.is_waiting() {
            return Reason::None;
        }
        match job.hold {
            Some(Hold::User) => return Reason::HeldByUser,
            Some(Hold::Admin) => return Reason::HeldByAdmin,
            None => {}
        }
        job.fixed_reason.clone().or_else(|| self.reasons.get(&job.id).cloned()).unwrap_or_default()
    }

    /// One job; `tasks` narrows which pending tasks of an array are shown.
    pub fn job(&self, job: &Job, tasks: Option<&IndexSet>) -> JobView {
        let state = self.state;
        let request = job.spec.request();
        let (attempt, ended) = (job.attempt(), job.ended());
        let allocation =
            attempt.map(|a| &a.allocation).or(ended.and_then(|e| e.allocation.as_ref()));
        let limit = books::effective_limit(state, job);
        let estimate = self.estimates.get(&job.id).copied();
        let start = attempt.map(|a| a.start).or(ended.and_then(|e| e.start)).or(estimate);
        let mut tres = match allocation {
            Some(allocation) => allocation.tres(),
            None => books::requested_tres(state, job),
        };
        let cpus = tres.amount(&TresKind::Cpu);
        let shown = books::shown_partition(state, job);
        let first = shown.split(',').next().unwrap_or_default();
        let billed = bill(state, first, &tres);
        tres.set(TresKind::Billing, billed);
        JobView {
            id: job.id,
            run: job.run,
            array: array_view(job, tasks),
            spec: job.spec.clone(),
            state: job.state(),
            reason: self.reason(job),
            hold: job.hold,
            partition: shown,
            account: job.account.to_string(),
            qos: job.qos.to_string(),
            priority: if job.hold.is_some() { 0 } else { self.ranking.shown(job, self.now) },
            submit: job.submit,
            eligible: eligible(job, state, self.now),
            start,
            end: end_of(job, start, limit),
            time_limit: limit,
            restarts: job.restarts(),
            exit: ended.map(|e| e.exit).unwrap_or_default(),
            derived_exit: ended.map(|e| e.derived_exit).unwrap_or_default(),
            allocation: allocation.cloned(),
            nodes: request.nodes,
            cpus: cpus as u32,
            tasks: request.task_count(),
            tres,
            steps: attempt
                .map(|a| &a.steps)
                .or(ended.map(|e| &e.steps))
                .cloned()
                .unwrap_or_default(),
            usage: ended.map(|e| e.usage).unwrap_or_default(),
            suspended_s: 0,
            dependency: dependency::shown(state, job, self.now),
            last_planned: self.planned,
            default_memory: match request.memory {
                Memory::Default => books::default_memory(state, job),
                _ => None,
            },
            cancelled_by: match ended.map(|e| e.outcome) {
                Some(Outcome::Cancelled { by }) => Some(by),
                _ => None,
            },
        }
    }
}

pub(crate) fn array_view(job: &Job, tasks: Option<&IndexSet>) -> Option<ArrayView> {
    if let Some(task) = job.task {
        let index = Some(task.index);
        return Some(ArrayView { array: task.array, index, pending: None, throttle: None });
    }
    let pending = job.pending.as_ref()?;
    let shown = tasks.unwrap_or(&pending.indices);
    let single = tasks.filter(|t| t.len() == 1).and_then(IndexSet::first);
    Some(ArrayView {
        array: job.id,
        index: single,
        pending: single.is_none().then(|| shown.clone()),
        throttle: pending.throttle,
    })
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
        (None, Some(attempt)) => attempt.end_limit,
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
            gres_used: node.used.gres.clone(),
            job_count: node.used.jobs,
            completing: completing || !node.stale.is_empty(),
            partitions: partitions_of.get(name.as_str()).cloned().unwrap_or_default(),
            last_busy: node.last_busy,
        }
    });
    ClusterView {
        name: state.config.name.clone(),
        now,
        nodes: nodes.collect(),
        partitions: state.partitions.iter().map(|p| (**p).clone()).collect(),
    }
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
