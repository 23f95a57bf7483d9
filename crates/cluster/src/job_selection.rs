//! Which jobs a filter selects.

use crate::requested;
use crate::state::State;
use crate::state::job::Job;
use model::array::IndexSet;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::run::JobState;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A selected job, and for the record of an array's pending tasks which of them.
#[derive(Debug)]
pub struct SelectedJob<'a> {
    pub job: &'a Arc<Job>,
    /// None: all tasks.
    pub tasks: Option<IndexSet>,
}

/// The records that `wanted` names; empty if there is none.
pub fn resolve<'a>(state: &'a State, wanted: &JobRef) -> Vec<SelectedJob<'a>> {
    match &wanted.tasks {
        None => {
            // A component is one job. It is asked first: a list may name one array as a component of very many.
            if wanted.component_of.is_none() {
                let of_array = state.array_jobs(wanted.id);
                if !of_array.is_empty() {
                    let whole = of_array.into_iter().map(|job| SelectedJob { job, tasks: None });
                    return whole.collect();
                }
            }
            let job = state.jobs.get(&wanted.id).filter(|job| wanted.admits(job.het));
            let Some(job) = job else { return Vec::new() };
            // The leader's id names all components of a het job.
            let ids: Vec<JobId> = match job.het.filter(|of| of.is_leader()) {
                Some(het) => het.jobs().collect(),
                None => vec![job.id],
            };
            let jobs = ids.iter().filter_map(|id| state.jobs.get(id));
            jobs.map(|job| SelectedJob { job, tasks: None }).collect()
        }
        Some(tasks) => resolve_tasks(state, wanted.id, tasks),
    }
}

fn resolve_tasks<'a>(state: &'a State, array: JobId, tasks: &IndexSet) -> Vec<SelectedJob<'a>> {
    let mut chosen = Vec::new();
    if let Some(whole) = state.jobs.get(&array)
        && let Some(pending) = &whole.pending
    {
        let meant = pending.indices.intersection(tasks);
        if !meant.is_empty() {
            chosen.push(SelectedJob { job: whole, tasks: Some(meant) });
        }
    }
    let Some(apart) = state.arrays.get(&array) else { return chosen };
    for (_, id) in tasks.ranges().flat_map(|(first, last)| apart.range(first..=last)) {
        chosen.extend(state.jobs.get(id).map(|job| SelectedJob { job, tasks: None }));
    }
    chosen
}

/// How many records these references name at most: the number of an array names each of its tasks that has a record of its own.
pub fn count_named(state: &State, refs: &[JobRef]) -> usize {
    let count = |wanted: &JobRef| {
        let apart = state.arrays.get(&wanted.id).map_or(0, BTreeMap::len);
        let het = || state.jobs.get(&wanted.id)?.het.filter(|of| of.is_leader());
        let named = match &wanted.tasks {
            Some(tasks) => usize::try_from(tasks.len()).map_or(apart, |most| apart.min(most)),
            None => apart + het().map_or(0, |of| of.size as usize),
        };
        // The record that holds the pending tasks, or that is no array's.
        named + 1
    };
    refs.iter().map(count).sum()
}

/// How many steps the jobs have that these references name.
pub fn count_steps(state: &State, refs: &[JobRef]) -> usize {
    let named = refs.iter().flat_map(|wanted| resolve(state, wanted));
    let count = |job: &Job| {
        let of_job = job.attempt().map(|a| &a.steps).or(job.ended().map(|e| &e.steps));
        of_job.map_or(0, Vec::len)
    };
    named.map(|chosen| count(chosen.job)).sum()
}

/// Every job that the filter selects: those named by id, or all that match. A job that is named twice is selected once.
pub fn matching<'a>(state: &'a State, filter: &JobFilter) -> Vec<SelectedJob<'a>> {
    let test = FilterTest::new(filter);
    let meant = |chosen: &SelectedJob<'a>| test.matches(state, chosen.job);
    if filter.jobs.is_empty() && !filter.users.is_empty() {
        let of_users = state.user_jobs.of(filter.users.iter().map(String::as_str));
        let of_users = of_users.iter().filter_map(|id| state.jobs.get(id));
        return of_users.map(|job| SelectedJob { job, tasks: None }).filter(meant).collect();
    }
    if filter.jobs.is_empty() {
        let all = state.jobs.values().map(|job| SelectedJob { job, tasks: None });
        return all.filter(meant).collect();
    }
    let wanted = JobRef::distinct(&filter.jobs);
    let named = each_once(wanted.iter().flat_map(|wanted| resolve(state, wanted)));
    named.into_iter().filter(meant).collect()
}

fn each_once<'a>(named: impl Iterator<Item = SelectedJob<'a>>) -> Vec<SelectedJob<'a>> {
    let mut places: BTreeMap<JobId, usize> = BTreeMap::new();
    let mut chosen: Vec<SelectedJob<'a>> = Vec::new();
    for one in named {
        match places.get(&one.job.id).map(|at| &mut chosen[*at].tasks) {
            None => {
                places.insert(one.job.id, chosen.len());
                chosen.push(one);
            }
            Some(tasks) => {
                *tasks = tasks.take().zip(one.tasks).map(|(some, more)| some.union(&more));
            }
        }
    }
    chosen
}

/// A filter whose lists are looked up and not searched: it may name as many users as there are jobs.
struct FilterTest<'f> {
    filter: &'f JobFilter,
    users: NameSet<'f>,
    accounts: NameSet<'f>,
    names: NameSet<'f>,
    qos: NameSet<'f>,
    partitions: NameSet<'f>,
    nodes: NameSet<'f>,
    reservations: NameSet<'f>,
    states: HashSet<JobState>,
}

impl<'f> FilterTest<'f> {
    fn new(filter: &'f JobFilter) -> Self {
        Self {
            filter,
            users: NameSet::of(&filter.users),
            accounts: NameSet::of(&filter.accounts),
            names: NameSet::of(&filter.names),
            qos: NameSet::of(&filter.qos),
            partitions: NameSet::of(&filter.partitions),
            nodes: NameSet::of(&filter.nodes),
            reservations: NameSet::of(&filter.reservations),
            states: filter.states.iter().copied().collect(),
        }
    }

    fn matches(&self, state: &State, job: &Job) -> bool {
        let filter = self.filter;
        let state_ok = match (filter.all_states, self.states.is_empty()) {
            (true, _) => true,
            (false, true) => !job.has_ended(),
            (false, false) => self.states.contains(&job.state()),
        };
        state_ok
            && !(filter.without_deleted && job.deleted)
            && self.users.admits([job.spec.owner.name.as_str()])
            && self.accounts.admits([&*job.account])
            && self.names.admits([&*job.spec.name])
            && self.qos.admits([&*job.qos])
            && self.partitions.admits(requested::partitions(state, job))
            && self.reservations.admits(job.reservation_names())
            && self.nodes.admits(
                job.attempt().into_iter().flat_map(|attempt| attempt.allocation.node_names()),
            )
    }
}

/// The names that a filter wants; an empty list wants all.
struct NameSet<'f>(HashSet<&'f str>);

impl<'f> NameSet<'f> {
    fn of(names: &'f [String]) -> Self {
        Self(names.iter().map(String::as_str).collect())
    }

    /// Whether one of these is wanted.
    fn admits<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> bool {
        self.0.is_empty() || names.into_iter().any(|name| self.0.contains(name))
    }
}
