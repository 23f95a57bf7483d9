//! Finds runs: in memory, or once they have left it in the books. Those that were deleted are not found.

use super::answer::Refused;
use super::project::account_of;
use super::run_facts::RunFacts;
use crate::http::calls;
use crate::shared::Shared;
use crate::show::history;
use crate::show::job_list::ListedJob;
use cluster::{Job, State};
use dstack::api::run::ListRuns;
use dstack::node_groups::{IncompleteRuns, group_of, merge_records, merge_views, replace_runs};
use model::change::{JobFilter, JobRef};
use model::id::{JobId, RunId};
use model::principal::Principal;
use model::reason::Refusal;
use model::record::{HistoryFilter, HistoryOrder, JobRecord};
use model::run::{HetComponent, JobSpec, LaunchKind};
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::JobsQuery;
use wire::view::JobView;

/// The most runs of one answer; the client asks for as many at most.
const RUNS_MAX: usize = 100;

/// One page of the runs, in the order of their submission.
pub fn list(shared: &Shared, by: &Principal, wanted: &ListRuns) -> Result<Vec<RunFacts>, Refusal> {
    let limit = wanted.limit.map_or(RUNS_MAX, |limit| limit as usize).min(RUNS_MAX);
    let users: Vec<String> = wanted.username.iter().cloned().collect();
    let all_states = !wanted.only_active;
    let accounts = wanted.project_name.as_deref().map(accounts).unwrap_or_default();
    let filter = JobFilter {
        users: users.clone(),
        accounts: accounts.clone(),
        all_states,
        ..JobFilter::default()
    };
    let before = wanted.prev_run_id.as_ref().and_then(|id| id.parse::<RunId>().ok());
    let before = before.map(|id| place_of(shared, by, id, wanted.ascending)).transpose()?.flatten();
    // The run to go on after may have been deleted: then its time says where that is.
    let before_at = wanted.prev_submitted_at.map(Timestamp::from);
    let go_on_at = before.map(|(at, _)| at).or(before_at);
    let in_order =
        |order: std::cmp::Ordering| if wanted.ascending { order } else { order.reverse() };
    let is_after = |place: (Timestamp, JobId)| match (before, before_at) {
        (Some(last), _) => in_order(place.cmp(&last)).is_gt(),
        (None, Some(at)) => in_order(place.0.cmp(&at)).is_gt(),
        (None, None) => true,
    };
    let page = |jobs: &mut Vec<ListedJob>| {
        let state = shared.read();
        let place = |job: &Job| place(&state, job);
        jobs.retain(|(job, _)| is_after(place(job)));
        jobs.sort_by_cached_key(|(job, _)| place(job));
        if !wanted.ascending {
            jobs.reverse();
        }
        // The groups of a task are one run, and the replicas of a service.
        jobs.dedup_by_key(|(job, tasks)| {
            (place(job), tasks.clone().filter(|_| job.spec.launch.service.is_none()))
        });
        jobs.truncate(limit);
    };
    let mut found = Vec::new();
    for job in in_memory(shared, by, filter, page)? {
        found.extend(whole(shared, by, job)?);
    }
    if all_states {
        // A run may have left memory since it was found there.
        let mut known: HashSet<JobId> = shared.read().jobs.keys().copied().collect();
        known.extend(found.iter().map(|run: &RunFacts| run.job));
        let booked = HistoryFilter {
            users,
            accounts,
            ended: true,
            until: go_on_at.filter(|_| !wanted.ascending),
            submitted_from: go_on_at.filter(|_| wanted.ascending),
            order: if wanted.ascending {
                HistoryOrder::FirstSubmitted
            } else {
                HistoryOrder::LastSubmitted
            },
            ..HistoryFilter::default()
        };
        let is_wanted = |record: &JobRecord| {
            !known.contains(&record.job) && is_after((record.submit, record.job))
        };
        // Records of one run, and of jobs that are in memory too, make fewer than were asked for.
        let mut most = limit + known.len().min(RUNS_MAX);
        let booked = loop {
            let records = records(shared, by, booked.clone(), most)?;
            let is_all = records.len() < most;
            let mut runs = merge_records(with_all_groups(shared, by, records)?);
            runs.retain(is_wanted);
            if is_all || runs.len() >= limit {
                break runs;
            }
            most *= 2;
        };
        found.extend(booked.iter().map(RunFacts::of_record));
        found.sort_by(|one, other| in_order((one.submit, one.job).cmp(&(other.submit, other.job))));
        found.truncate(limit);
    }
    Ok(found)
}

/// Where the run of a job is in the order of all: groups that wait for a retry were submitted anew at times of their own, and
/// go by the first.
fn place(state: &State, job: &Job) -> (Timestamp, JobId) {
    let array = job.task.map(|task| task.array).or(job.pending.as_ref().map(|_| job.id));
    if let Some(first) = first_array(&job.spec, array) {
        return (job.submit, first);
    }
    let group = group_of(job.spec.launch.kind, job.het);
    let first = group.and_then(|het| state.job(het.first)).unwrap_or(job);
    (first.shown_submit(), group.map_or(job.id, |het| het.first))
}

/// The run that the job is, or is a group or a replica of.
fn whole(shared: &Shared, by: &Principal, job: JobView) -> Result<Option<RunFacts>, Refusal> {
    Ok(runs_of(all_of(shared, by, job)?).into_iter().next())
}

/// All jobs of the run that the job is, or is a group or a replica of.
fn all_of(shared: &Shared, by: &Principal, job: JobView) -> Result<Vec<JobView>, Refusal> {
    match first_of(&job) {
        Some(first) if is_replica_group(&job.spec) => {
            replicas_of_all_groups(shared, by, &job, first)
        }
        Some(first) => groups(shared, by, first),
        None => Ok(vec![job]),
    }
}

/// The array whose tasks are the replicas of a service, the first of them where its groups have one each; `None` for what is no replica, or
/// the only one.
fn first_array(spec: &JobSpec, array: Option<JobId>) -> Option<JobId> {
    let service = spec.launch.service.as_ref()?;
    let array = array?;
    Some(service.group.as_ref().map_or(array, |group| group.first_array(array)))
}

fn is_replica_group(spec: &JobSpec) -> bool {
    spec.launch.service.as_ref().is_some_and(|service| service.group.is_some())
}

/// The number that the whole run goes by, of a job that is a group or a replica of one.
fn first_of(job: &JobView) -> Option<JobId> {
    let array = job.array.as_ref().map(|array| array.array);
    let group = || group_of(job.spec.launch.kind, job.het).map(|het| het.first);
    first_array(&job.spec, array).or_else(group)
}

/// The replicas of all groups of a service. A group may have left memory, so they are found by their name and not by their numbers.
fn replicas_of_all_groups(
    shared: &Shared,
    by: &Principal,
    one: &JobView,
    first: JobId,
) -> Result<Vec<JobView>, Refusal> {
    let names = vec![one.spec.name.to_string()];
    let filter = JobFilter { names, all_states: true, ..JobFilter::default() };
    let mut found = in_memory(shared, by, filter, |_| ())?;
    found.retain(|job| is_replica_group(&job.spec) && first_of(job) == Some(first));
    Ok(found)
}

/// The runs among these jobs: the groups of a task are one, and the replicas of a service.
fn runs_of(jobs: Vec<JobView>) -> Vec<RunFacts> {
    let mut services: BTreeMap<JobId, Vec<JobView>> = BTreeMap::new();
    let mut others = Vec::new();
    for job in jobs {
        let array = job.array.as_ref().map(|array| array.array);
        match first_array(&job.spec, array) {
            Some(first) => services.entry(first).or_default().push(job),
            None => others.push(job),
        }
    }
    let mut runs: Vec<RunFacts> = merge_views(others).iter().map(RunFacts::of_job).collect();
    runs.extend(services.values().filter_map(|replicas| RunFacts::of_replicas(replicas)));
    runs
}

/// All groups of a task, or replicas of a service; those that have ended are in memory as long as one that has not.
fn groups(shared: &Shared, by: &Principal, first: JobId) -> Result<Vec<JobView>, Refusal> {
    let jobs = vec![JobRef::whole(first)];
    let filter = JobFilter { jobs, all_states: true, ..JobFilter::default() };
    in_memory(shared, by, filter, |_| ())
}

/// Where a run is in the order of all.
fn place_of(
    shared: &Shared,
    by: &Principal,
    run: RunId,
    ascending: bool,
) -> Result<Option<(Timestamp, JobId)>, Refusal> {
    let in_memory = {
        let state = shared.read();
        let jobs = state.jobs.values().filter(|job| job.run == run);
        let places = jobs.map(|job| place(&state, job));
        if ascending { places.max() } else { places.min() }
    };
    if in_memory.is_some() {
        return Ok(in_memory);
    }
    let of_run = HistoryFilter { runs: vec![run], ..HistoryFilter::default() };
    let booked = with_all_groups(shared, by, records(shared, by, of_run, RUNS_MAX)?)?;
    Ok(merge_records(booked).last().map(|record| (record.submit, record.job)))
}

pub fn by_id(
    shared: &Shared,
    by: &Principal,
    project: &str,
    id: &str,
) -> Result<Option<RunFacts>, Refused> {
    let accounts = accounts(project);
    let Ok(id) = id.parse::<RunId>() else { return Ok(None) };
    let filter = JobFilter { accounts: accounts.clone(), all_states: true, ..JobFilter::default() };
    let of_run = |jobs: &mut Vec<ListedJob>| jobs.retain(|(job, _)| job.run == id);
    let mut jobs = in_memory(shared, by, filter, of_run)?;
    if jobs.first().is_some_and(|job| is_replica_group(&job.spec)) {
        jobs = all_of(shared, by, jobs.swap_remove(0))?;
    }
    if let Some(run) = runs_of(jobs).into_iter().next() {
        return Ok(Some(run));
    }
    let of_run = HistoryFilter { accounts, runs: vec![id], ..HistoryFilter::default() };
    let booked = with_all_groups(shared, by, records(shared, by, of_run, RUNS_MAX)?)?;
    Ok(merge_records(booked).last().map(RunFacts::of_record))
}

/// The newest run of this name that has not ended, or else the newest; the caller's own before those of others. A job of
/// `sbatch` goes by its name and its number.
pub fn by_name(
    shared: &Shared,
    by: &Principal,
    project: &str,
    name: &str,
) -> Result<Option<RunFacts>, Refused> {
    let accounts = accounts(project);
    let names = vec![name.to_owned()];
    let filter = JobFilter {
        names: names.clone(),
        accounts: accounts.clone(),
        all_states: true,
        ..JobFilter::default()
    };
    let runs = in_memory(shared, by, filter, |_| ())?.into_iter();
    let runs = runs.filter(|job| job.spec.launch.kind == LaunchKind::Task);
    let mut runs = runs_of(runs.collect());
    if !runs.iter().any(|run| run.owner_uid == by.uid) {
        let booked =
            HistoryFilter { names, accounts: accounts.clone(), ..HistoryFilter::default() };
        let mut booked = records(shared, by, booked, RUNS_MAX)?;
        booked.retain(|record| record.kind == LaunchKind::Task);
        let booked = with_all_groups(shared, by, booked)?;
        runs.extend(merge_records(booked).iter().map(RunFacts::of_record));
    }
    let is_own = |run: &RunFacts| run.owner_uid == by.uid;
    let deployment = |run: &RunFacts| Some(run.deployment).filter(|_| run.ended.is_none());
    let newest =
        runs.into_iter().max_by_key(|run| (is_own(run), deployment(run), run.submit, run.job));
    match newest {
        Some(run) => Ok(Some(run)),
        None => by_number(shared, by, accounts, name),
    }
}

/// The jobs of a run that is stopped: of a service that is being updated also those of the deployment before the newest.
pub fn stopped_with(
    shared: &Shared,
    by: &Principal,
    project: &str,
    run: &RunFacts,
) -> Result<Vec<JobRef>, Refusal> {
    let mut jobs = BTreeSet::from([run.job]);
    if run.service_url.is_some() {
        let (names, accounts) = (vec![run.name.clone()], accounts(project));
        let filter = JobFilter { names, accounts, ..JobFilter::default() };
        let found = in_memory(shared, by, filter, |_| ())?.into_iter();
        let is_deployment = |job: &JobView| {
            job.spec.owner.uid == run.owner_uid && job.spec.launch.service.is_some()
        };
        let whole = |job: JobView| job.array.as_ref().map_or(job.id, |array| array.array);
        jobs.extend(found.filter(is_deployment).map(whole));
    }
    Ok(jobs.into_iter().map(JobRef::whole).collect())
}

/// The job of a run that has this node: no two groups of a task are on one.
pub fn job_on(shared: &Shared, run: &RunFacts, node: &str) -> JobId {
    let state = shared.read();
    let first = state.jobs.get(&run.job);
    let het = first.and_then(|job| group_of(job.spec.launch.kind, job.het));
    let jobs = het.into_iter().flat_map(HetComponent::jobs);
    let is_there = |id: &JobId| {
        let granted = state.jobs.get(id).and_then(|job| job.allocation());
        granted.is_some_and(|granted| granted.node_names().any(|name| name == node))
    };
    jobs.into_iter().find(is_there).unwrap_or(run.job)
}

/// The caller's own run of this name that has not ended: the job, or all groups. Others may have runs of the same name.
pub fn own_active(
    shared: &Shared,
    by: &Principal,
    project: &str,
    name: &str,
) -> Result<Option<ActiveRun>, Refused> {
    // The name of most runs that are applied is new: nothing has to be made ready to show one.
    let is_namesake = |job: &Arc<Job>| {
        job.spec.owner.uid == by.uid && *job.spec.name == *name && !job.has_ended()
    };
    if !shared.read().jobs.values().any(is_namesake) {
        return Ok(None);
    }
    let names = vec![name.to_owned()];
    let filter = JobFilter { names, accounts: accounts(project), ..JobFilter::default() };
    let own = |jobs: &mut Vec<ListedJob>| {
        jobs.retain(|(job, _)| {
            job.spec.owner.uid == by.uid && job.spec.launch.kind == LaunchKind::Task
        });
    };
    let newest = in_memory(shared, by, filter, own)?.into_iter();
    let newest = newest.max_by_key(|job| (job.spec.deployment(), job.submit, job.id));
    let Some(newest) = newest else { return Ok(None) };
    Ok(ActiveRun::of(all_of(shared, by, newest)?))
}

/// The run of a job that was just submitted.
pub fn of_job(shared: &Shared, by: &Principal, job: JobId) -> Result<Option<ActiveRun>, Refusal> {
    let jobs = groups(shared, by, job)?;
    match jobs.first().filter(|job| is_replica_group(&job.spec)) {
        Some(one) => Ok(ActiveRun::of(all_of(shared, by, one.clone())?)),
        None => Ok(ActiveRun::of(jobs)),
    }
}

/// Every run that a deletion of this one deletes: each group of a service is a run of its own in the books.
pub fn deleted_with(
    shared: &Shared,
    by: &Principal,
    project: &str,
    run: &RunFacts,
) -> Result<Vec<RunId>, Refusal> {
    let mut runs: BTreeSet<RunId> = run.run.into_iter().collect();
    runs.extend(run.replicas.iter().filter_map(|replica| replica.run));
    let booked = HistoryFilter {
        names: vec![run.name.clone()],
        accounts: accounts(project),
        ended: true,
        ..HistoryFilter::default()
    };
    let booked = records(shared, by, booked, RUNS_MAX)?.into_iter();
    let is_group = |record: &JobRecord| {
        record.kind == LaunchKind::Task
            && record.uid == run.owner_uid
            && record.submit == run.submit
            && record.name == run.name
    };
    runs.extend(booked.filter(is_group).map(|record| record.run));
    Ok(runs.into_iter().collect())
}

/// A run in memory.
pub struct ActiveRun {
    pub facts: RunFacts,
    /// Its groups, each with its specification.
    pub jobs: Vec<JobId>,
    pub specs: Vec<Arc<JobSpec>>,
    pub is_array: bool,
}

impl ActiveRun {
    pub fn of(groups: Vec<JobView>) -> Option<Self> {
        let (jobs, mut specs): (Vec<JobId>, Vec<Arc<JobSpec>>) =
            groups.iter().map(|job| (job.id, job.spec.clone())).unzip();
        let is_array = groups.iter().any(|job| job.array.is_some());
        if is_array {
            // Tasks of an array have one specification, and so have the replicas of each group.
            let places: Vec<u32> = specs.iter().map(|spec| group_index(spec)).collect();
            let mut seen = BTreeSet::new();
            let mut each: Vec<(u32, Arc<JobSpec>)> =
                places.into_iter().zip(specs).filter(|(place, _)| seen.insert(*place)).collect();
            each.sort_by_key(|(place, _)| *place);
            specs = each.into_iter().map(|(_, spec)| spec).collect();
        }
        let facts = runs_of(groups).into_iter().next()?;
        Some(Self { facts, jobs, specs, is_array })
    }
}

/// The place of a job among the groups of replicas of its service; 0 where there are none.
fn group_index(spec: &JobSpec) -> u32 {
    let group = spec.launch.service.as_ref().and_then(|service| service.group.as_ref());
    group.map_or(0, |group| group.index)
}

/// `NAME-NUMBER` of a job of `sbatch`.
fn by_number(
    shared: &Shared,
    by: &Principal,
    accounts: Vec<String>,
    name: &str,
) -> Result<Option<RunFacts>, Refused> {
    let Some((_, number)) = name.rsplit_once('-') else { return Ok(None) };
    let Ok(number) = number.parse() else { return Ok(None) };
    let jobs = vec![JobRef::whole(JobId(number))];
    let filter = JobFilter {
        jobs: jobs.clone(),
        accounts: accounts.clone(),
        all_states: true,
        ..JobFilter::default()
    };
    let found = match in_memory(shared, by, filter, |_| ()) {
        Ok(jobs) => runs_of(jobs).into_iter().next(),
        Err(Refusal::UnknownJob(_)) => {
            let booked = HistoryFilter { jobs, accounts, ..HistoryFilter::default() };
            records(shared, by, booked, 1)?.last().map(RunFacts::of_record)
        }
        Err(why) => return Err(why.into()),
    };
    Ok(found.filter(|run| run.name == name))
}

/// The accounts whose runs are a project's: the main one shows those of all.
fn accounts(project: &str) -> Vec<String> {
    account_of(project).into_iter().collect()
}

fn in_memory(
    shared: &Shared,
    by: &Principal,
    filter: JobFilter,
    pick: impl FnOnce(&mut Vec<ListedJob>),
) -> Result<Vec<JobView>, Refusal> {
    let filter = JobFilter { without_deleted: true, ..filter };
    calls::jobs(shared, by, &JobsQuery { filter, ..JobsQuery::default() }, pick)
}

/// So many of the books, in the order and from the end that the filter says.
fn records(
    shared: &Shared,
    by: &Principal,
    filter: HistoryFilter,
    most: usize,
) -> Result<Vec<JobRecord>, Refusal> {
    let limit = u32::try_from(most).ok();
    let filter = HistoryFilter { without_deleted: true, limit, ..filter };
    block_in_place(|| history::booked(shared, by, &filter))
}

/// The records with those of groups that a limit has left out.
fn with_all_groups(
    shared: &Shared,
    by: &Principal,
    found: Vec<JobRecord>,
) -> Result<Vec<JobRecord>, Refusal> {
    let IncompleteRuns { runs, groups } = IncompleteRuns::among(&found);
    if runs.is_empty() {
        return Ok(found);
    }
    let of_runs = HistoryFilter { runs, ..HistoryFilter::default() };
    Ok(replace_runs(found, records(shared, by, of_runs, groups)?))
}
