//! Finds runs: in memory, or once they have left it in the books. Those that were deleted are not found.

use super::answer::Refused;
use super::project::account_of;
use super::run_facts::RunFacts;
use crate::http::calls;
use crate::shared::Shared;
use crate::show::history;
use crate::show::job_list::ListedJob;
use dstack::api::run::ListRuns;
use model::change::{JobFilter, JobRef};
use model::id::{JobId, RunId};
use model::principal::Principal;
use model::reason::Refusal;
use model::record::{HistoryFilter, JobRecord};
use model::run::LaunchKind;
use model::time::Timestamp;
use std::collections::HashSet;
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
    let before = before.map(|id| place_of(shared, by, id)).transpose()?.flatten();
    // The run to go on after may have been deleted: then its time says where that is.
    let before_at = wanted.prev_submitted_at.map(Timestamp::from);
    let in_order =
        |order: std::cmp::Ordering| if wanted.ascending { order } else { order.reverse() };
    let is_after = |place: (Timestamp, JobId)| match (before, before_at) {
        (Some(last), _) => in_order(place.cmp(&last)).is_gt(),
        (None, Some(at)) => in_order(place.0.cmp(&at)).is_gt(),
        (None, None) => true,
    };
    let page = |jobs: &mut Vec<ListedJob>| {
        jobs.sort_by(|(one, _), (other, _)| {
            in_order((one.shown_submit(), one.id).cmp(&(other.shown_submit(), other.id)))
        });
        jobs.retain(|(job, _)| is_after((job.shown_submit(), job.id)));
        jobs.truncate(limit);
    };
    let mut found: Vec<RunFacts> =
        in_memory(shared, by, filter, page)?.iter().map(RunFacts::of_job).collect();
    if all_states {
        let known: HashSet<JobId> = shared.read().jobs.keys().copied().collect();
        let booked = HistoryFilter {
            users,
            accounts,
            until: before_at.filter(|_| !wanted.ascending),
            submitted_from: before_at.filter(|_| wanted.ascending),
            first_submitted: wanted.ascending,
            ..HistoryFilter::default()
        };
        // Records of jobs that are in memory too are left out below, so as many more are asked for.
        let most = limit + known.len().min(RUNS_MAX);
        let booked = records(shared, by, booked, most)?.into_iter();
        let booked = booked
            .filter(|record| !known.contains(&record.job) && is_after((record.submit, record.job)));
        found.extend(booked.map(|record| RunFacts::of_record(&record)));
        found.sort_by(|one, other| in_order((one.submit, one.job).cmp(&(other.submit, other.job))));
        found.truncate(limit);
    }
    Ok(found)
}

/// Where a run is in the order of all.
fn place_of(
    shared: &Shared,
    by: &Principal,
    run: RunId,
) -> Result<Option<(Timestamp, JobId)>, Refusal> {
    let in_memory = {
        let state = shared.read();
        let jobs = state.jobs.values().filter(|job| job.run == run);
        jobs.map(|job| (job.shown_submit(), job.id)).min()
    };
    if in_memory.is_some() {
        return Ok(in_memory);
    }
    let of_run = HistoryFilter { runs: vec![run], ..HistoryFilter::default() };
    Ok(records(shared, by, of_run, 1)?.last().map(|record| (record.submit, record.job)))
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
    if let Some(job) = in_memory(shared, by, filter, of_run)?.first() {
        return Ok(Some(RunFacts::of_job(job)));
    }
    let of_run = HistoryFilter { accounts, runs: vec![id], ..HistoryFilter::default() };
    Ok(records(shared, by, of_run, 1)?.last().map(RunFacts::of_record))
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
    let mut runs: Vec<RunFacts> = runs.map(|job| RunFacts::of_job(&job)).collect();
    if !runs.iter().any(|run| run.owner_uid == by.uid) {
        let booked =
            HistoryFilter { names, accounts: accounts.clone(), ..HistoryFilter::default() };
        let booked = records(shared, by, booked, RUNS_MAX)?.into_iter();
        let booked = booked.filter(|record| record.kind == LaunchKind::Task);
        runs.extend(booked.map(|record| RunFacts::of_record(&record)));
    }
    let is_own = |run: &RunFacts| run.owner_uid == by.uid;
    let newest =
        runs.into_iter().max_by_key(|run| (is_own(run), run.ended.is_none(), run.submit, run.job));
    match newest {
        Some(run) => Ok(Some(run)),
        None => by_number(shared, by, accounts, name),
    }
}

/// The caller's own run of this name that has not ended. Others may have runs of the same name.
pub fn own_active(
    shared: &Shared,
    by: &Principal,
    project: &str,
    name: &str,
) -> Result<Option<JobView>, Refused> {
    let names = vec![name.to_owned()];
    let filter = JobFilter { names, accounts: accounts(project), ..JobFilter::default() };
    let own = |jobs: &mut Vec<ListedJob>| {
        jobs.retain(|(job, _)| {
            job.spec.owner.uid == by.uid && job.spec.launch.kind == LaunchKind::Task
        });
    };
    Ok(in_memory(shared, by, filter, own)?.into_iter().max_by_key(|job| (job.submit, job.id)))
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
        Ok(jobs) => jobs.first().map(RunFacts::of_job),
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

/// The newest so many of the books, the last of them the newest.
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
