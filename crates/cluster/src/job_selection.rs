//! Which jobs a filter selects.

use crate::requested;
use crate::state::State;
use crate::state::job::Job;
use model::array::IndexSet;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use std::collections::BTreeMap;
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
            let of_array = state.array_jobs(wanted.id);
            if !of_array.is_empty() && wanted.component_of.is_none() {
                return of_array.into_iter().map(|job| SelectedJob { job, tasks: None }).collect();
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
    let apart = state.arrays.get(&array).into_iter().flatten();
    for (_, id) in apart.filter(|(index, _)| tasks.contains(**index)) {
        chosen.extend(state.jobs.get(id).map(|job| SelectedJob { job, tasks: None }));
    }
    chosen
}

/// Every job that the filter selects: those named by id, or all that match. A job that is named twice is selected once.
pub fn matching<'a>(state: &'a State, filter: &JobFilter) -> Vec<SelectedJob<'a>> {
    let meant = |chosen: &SelectedJob<'a>| matches(state, chosen.job, filter);
    if filter.jobs.is_empty() {
        let all = state.jobs.values().map(|job| SelectedJob { job, tasks: None });
        return all.filter(meant).collect();
    }
    let named = each_once(filter.jobs.iter().flat_map(|wanted| resolve(state, wanted)));
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

fn matches(state: &State, job: &Job, filter: &JobFilter) -> bool {
    let any = |list: &[String], value: &str| list.is_empty() || list.iter().any(|v| v == value);
    let state_ok = match (filter.all_states, filter.states.is_empty()) {
        (true, _) => true,
        (false, true) => !job.has_ended(),
        (false, false) => filter.states.contains(&job.state()),
    };
    state_ok
        && any(&filter.users, &job.spec.owner.name)
        && any(&filter.accounts, &job.account)
        && any(&filter.names, &job.spec.name)
        && any(&filter.qos, &job.qos)
        && (filter.partitions.is_empty()
            || requested::partitions(state, job).any(|p| filter.partitions.iter().any(|f| f == p)))
        && (filter.reservations.is_empty()
            || filter.reservations.iter().any(|name| job.is_of_reservation(name)))
        && (filter.nodes.is_empty()
            || job.attempt().is_some_and(|a| {
                a.allocation.node_names().any(|n| filter.nodes.iter().any(|f| f == n))
            }))
}
