//! The groups of a task as one run.
//!
//! Groups of different resources are jobs that start together, the components of a het job. dstack's language shows
//! one run: its nodes are those of all groups, and it has ended when all of them have.

use model::id::{JobId, RunId};
use model::record::{JobRecord, RecordState};
use model::run::{HetComponent, JobState, LaunchKind, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::view::JobView;

/// The place of a job among the groups of its task; `None` for what is a run by itself.
pub fn group_of(kind: LaunchKind, het: Option<HetComponent>) -> Option<HetComponent> {
    het.filter(|_| kind == LaunchKind::Task)
}

/// Each run once: a task goes by the number of its first group, and has the place of the first that is found.
pub fn merge_views(jobs: Vec<JobView>) -> Vec<JobView> {
    let group = |job: &JobView| group_of(job.spec.launch.kind, job.het);
    merge(jobs, |job| group(job).map(|het| (het.first, 0)), |job| job.id, merged_view)
}

/// The same for records: each attempt of a run once.
pub fn merge_records(records: Vec<JobRecord>) -> Vec<JobRecord> {
    let group = |record: &JobRecord| group_of(record.kind, record.het);
    let key = |record: &JobRecord| group(record).map(|het| (het.first, record.attempt));
    merge(records, key, |record| record.job, merged_record)
}

/// Runs of which some groups are missing among records that were read up to a limit.
pub struct IncompleteRuns {
    pub runs: Vec<RunId>,
    /// How many groups they have, all together.
    pub groups: usize,
}

impl IncompleteRuns {
    pub fn among(records: &[JobRecord]) -> Self {
        let mut found: BTreeMap<RunId, (HetComponent, usize)> = BTreeMap::new();
        for record in records {
            if let Some(het) = group_of(record.kind, record.het) {
                found.entry(record.run).or_insert((het, 0)).1 += 1;
            }
        }
        found.retain(|_, (het, count)| *count < het.size as usize);
        let groups = found.values().map(|(het, _)| het.size as usize).sum();
        Self { runs: found.into_keys().collect(), groups }
    }
}

/// Puts the records of whole runs in the place of those that were found of them.
pub fn replace_runs(mut found: Vec<JobRecord>, whole: Vec<JobRecord>) -> Vec<JobRecord> {
    let runs: BTreeSet<RunId> = whole.iter().map(|record| record.run).collect();
    found.retain(|record| !runs.contains(&record.run));
    found.extend(whole);
    found
}

fn merge<T>(
    all: Vec<T>,
    key: impl Fn(&T) -> Option<(JobId, u32)>,
    id: impl Fn(&T) -> JobId,
    merged: impl Fn(Vec<T>) -> Option<T>,
) -> Vec<T> {
    let mut runs: Vec<Vec<T>> = Vec::with_capacity(all.len());
    let mut places = std::collections::HashMap::new();
    for one in all {
        match key(&one).map(|key| *places.entry(key).or_insert(runs.len())) {
            Some(place) if place < runs.len() => runs[place].push(one),
            _ => runs.push(vec![one]),
        }
    }
    runs.into_iter()
        .filter_map(|mut groups| {
            groups.sort_by_key(&id);
            if groups.len() == 1 && key(&groups[0]).is_none() {
                groups.pop()
            } else {
                merged(groups)
            }
        })
        .collect()
}

/// A group that decides how the run is shown: one that has not ended, else one that failed, by its own exit before others.
fn deciding<T>(
    groups: &[T],
    is_ended: impl Fn(&T) -> bool,
    is_done: impl Fn(&T) -> bool,
    has_exit: impl Fn(&T) -> bool,
) -> Option<&T> {
    groups.iter().min_by_key(|one| (is_ended(one), is_done(one), !has_exit(one)))
}

fn merged_view(groups: Vec<JobView>) -> Option<JobView> {
    let own_exit = |job: &JobView| job.exit != Default::default();
    let is_done = |job: &JobView| job.state == JobState::Completed;
    let shown = deciding(&groups, |job| job.state.is_ended(), is_done, own_exit)?.clone();
    let mut groups = groups.into_iter();
    let first = groups.next()?;
    let mut run = JobView {
        id: first.het.map_or(first.id, |het| het.first),
        state: shown.state,
        reason: shown.reason,
        exit: shown.exit,
        cancelled_by: shown.cancelled_by,
        ..first
    };
    for group in groups {
        run.nodes.min = run.nodes.min.saturating_add(group.nodes.min);
        run.nodes.max = run.nodes.max.zip(group.nodes.max).map(|(a, b)| a.saturating_add(b));
        run.cpus = run.cpus.saturating_add(group.cpus);
        Arc::make_mut(&mut run.tres).merge(&group.tres);
        run.end = run.end.max(group.end);
        run.restarts = run.restarts.max(group.restarts);
        match (&mut run.allocation, group.allocation) {
            (Some(granted), Some(more)) => granted.nodes.extend(more.nodes),
            (None, more) => run.allocation = more,
            (Some(_), None) => {}
        }
    }
    Some(run)
}

fn merged_record(groups: Vec<JobRecord>) -> Option<JobRecord> {
    let own_exit = |record: &JobRecord| record.exit != Default::default();
    let is_done = |record: &JobRecord| record.state == RecordState::Ended(Outcome::Completed);
    let is_ended = |record: &JobRecord| matches!(record.state, RecordState::Ended(_));
    let shown = deciding(&groups, is_ended, is_done, own_exit)?;
    let (state, exit, reason) = (shown.state, shown.exit, shown.reason.clone());
    let all_ended = groups.iter().all(is_ended);
    let mut groups = groups.into_iter();
    let first = groups.next()?;
    let job = first.het.map_or(first.job, |het| het.first);
    let mut run = JobRecord { job, state, exit, reason, ..first };
    for group in groups {
        run.nodes.extend(group.nodes);
        run.node_count = run.node_count.saturating_add(group.node_count);
        run.cpus = run.cpus.saturating_add(group.cpus);
        run.req_cpus = run.req_cpus.saturating_add(group.req_cpus);
        run.req_nodes = run.req_nodes.saturating_add(group.req_nodes);
        run.req_tres.merge(&group.req_tres);
        run.alloc_tres.merge(&group.alloc_tres);
        run.gpus.extend(group.gpus);
        run.end = run.end.max(group.end);
    }
    run.end = run.end.filter(|_| all_ended);
    Some(run)
}
