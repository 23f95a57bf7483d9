//! Runs: planned, applied, listed, stopped and deleted.

use super::check_project;
use super::error::{ApiError, ApiResult};
use super::run_body::{Bodies, job_spec};
use super::run_request::{self, RunRequest};
use crate::http::calls;
use crate::shared::Shared;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::{Extension, Json};
use dstack::request::{for_offers, is_same_run};
use model::change::{JobFilter, JobRef};
use model::id::{JobId, RunId};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::LaunchKind;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::{Answer, Call, Cancel, JobsQuery, Offer};
use wire::view::JobView;

/// The client's own bound on a list, and the most that one answer has.
const RUNS_MAX: usize = 100;
const OFFERS_MAX: usize = 50;

#[derive(Deserialize)]
pub struct ListRequest {
    #[serde(default)]
    project_name: Option<String>,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    only_active: bool,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    ascending: bool,
    #[serde(default)]
    prev_run_id: Option<String>,
}

/// Every job of the cluster, whichever language it came in.
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ListRequest>,
) -> ApiResult {
    if let Some(project) = &wanted.project_name {
        check_project(project)?;
    }
    let filter = JobFilter {
        users: wanted.username.into_iter().collect(),
        all_states: !wanted.only_active,
        ..JobFilter::default()
    };
    let mut jobs = jobs(&shared, &by, filter).await?;
    jobs.sort_by_key(|job| (job.submit, job.id));
    if !wanted.ascending {
        jobs.reverse();
    }
    let before = wanted.prev_run_id.and_then(|id| id.parse::<RunId>().ok());
    let skip = before.and_then(|id| jobs.iter().position(|job| job.run == Some(id)));
    let limit = wanted.limit.unwrap_or(RUNS_MAX).min(RUNS_MAX);
    let shown = jobs.iter().skip(skip.map_or(0, |at| at + 1)).take(limit);
    let bodies = Bodies::new(&shared);
    Ok(Json(shown.map(|job| bodies.run(job)).collect()))
}

#[derive(Deserialize)]
pub struct GetRequest {
    #[serde(default)]
    run_name: Option<String>,
    #[serde(default)]
    id: Option<String>,
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetRequest>,
) -> ApiResult {
    check_project(&project)?;
    let found = match (&wanted.id, &wanted.run_name) {
        (Some(id), _) => by_id(&shared, &by, id).await?,
        (None, Some(name)) => by_name(&shared, &by, name).await?,
        (None, None) => None,
    };
    let job = found.ok_or_else(|| ApiError::missing("Run not found"))?;
    Ok(Json(Bodies::new(&shared).run(&job)))
}

#[derive(Deserialize)]
pub struct PlanRequest {
    run_spec: Value,
    #[serde(default)]
    max_offers: Option<usize>,
}

pub async fn plan(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(wanted): Json<PlanRequest>,
) -> ApiResult {
    check_project(&project)?;
    let asked = run_request::read(&shared, &by, &wanted.run_spec, &headers)?;
    let found = offers(&shared, &by, &asked).await?;
    let bodies = Bodies::new(&shared);
    let most = wanted.max_offers.unwrap_or(OFFERS_MAX).min(OFFERS_MAX);
    let shown: Vec<Value> = found.iter().take(most).map(|offer| bodies.offer(offer)).collect();
    let name = asked.run_spec["run_name"].as_str().unwrap_or_default();
    let active = by_name(&shared, &by, name).await?.filter(|job| !job.state.is_ended());
    let plans: Vec<Value> = (0..asked.task.nodes)
        .map(|rank| {
            json!({
                "job_spec": job_spec(&asked.effective, name, rank, asked.task.nodes),
                "offers": shown,
                "total_offers": found.len(),
                "max_price": found.first().map(|_| 0.0),
            })
        })
        .collect();
    Ok(Json(json!({
        "project_name": project,
        "user": by.name,
        "run_spec": asked.run_spec,
        "effective_run_spec": asked.effective,
        "job_plans": plans,
        "current_resource": active.as_ref().map(|job| bodies.run(job)),
        "action": if active.is_some() { "update" } else { "create" },
    })))
}

#[derive(Deserialize)]
pub struct ApplyRequest {
    plan: ApplyPlan,
    #[serde(default)]
    force: bool,
}

#[derive(Deserialize)]
struct ApplyPlan {
    run_spec: Value,
    #[serde(default)]
    current_resource: Option<Value>,
}

/// Submits. The client repeats a call whose answer was lost: the same run that is active already is the answer then.
pub async fn apply(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(wanted): Json<ApplyRequest>,
) -> ApiResult {
    check_project(&project)?;
    let RunRequest { mut submission, run_spec, effective, .. } =
        run_request::read(&shared, &by, &wanted.plan.run_spec, &headers)?;
    let name = run_spec["run_name"].as_str().unwrap_or_default().to_owned();
    let active = by_name(&shared, &by, &name).await?.filter(|job| !job.state.is_ended());
    if let Some(active) = active {
        if is_same_run(&active.spec, &calls::stored_form(&submission)) {
            return Ok(Json(Bodies::new(&shared).run(&active)));
        }
        let expected = wanted.plan.current_resource.as_ref().and_then(|run| run["id"].as_str());
        let unchanged = expected == active.run.map(|id| id.to_string()).as_deref();
        let text = match wanted.force || unchanged {
            true => format!("Failed to apply plan. Run {name} is active. Stop it first"),
            false => "Failed to apply plan. Resource has been changed. Try again or use force apply."
                .to_owned(),
        };
        return Err(ApiError::refused(text));
    }
    submission.configuration = Some(effective.to_string());
    match calls::answer(&shared, by.clone(), Call::Submit(Box::new(submission))).await? {
        Answer::Submitted { job, .. } => {
            let found = one(&shared, &by, job).await?;
            let found = found.ok_or_else(|| ApiError::missing("Run not found"))?;
            Ok(Json(Bodies::new(&shared).run(&found)))
        }
        _ => Err(ApiError::refused("the run was not submitted")),
    }
}

#[derive(Deserialize)]
pub struct StopRequest {
    runs_names: Vec<String>,
    #[serde(default)]
    abort: bool,
}

pub async fn stop(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<StopRequest>,
) -> ApiResult {
    check_project(&project)?;
    let mut jobs = Vec::new();
    for name in &wanted.runs_names {
        let job = by_name(&shared, &by, name).await?;
        let job = job.ok_or_else(|| ApiError::missing(format!("Run {name} not found")))?;
        if !job.state.is_ended() {
            jobs.push(JobRef::whole(job.id));
        }
    }
    if jobs.is_empty() {
        return Ok(Json(Value::Null));
    }
    let signal = wanted.abort.then_some(SIGKILL);
    let filter = JobFilter { jobs, ..JobFilter::default() };
    let cancel = |signal| {
        let filter = filter.clone();
        Call::Cancel(Cancel { filter, step: None, signal, batch_only: false, full: true })
    };
    // An abort does not wait for the commands to end by themselves.
    if signal.is_some() {
        calls::answer(&shared, by.clone(), cancel(signal)).await?;
    }
    let ended = calls::answer(&shared, by, cancel(None)).await?;
    let Answer::Cancelled(results) = ended else { return Ok(Json(Value::Null)) };
    match results.into_iter().find_map(|result| result.refusal) {
        Some(why) => Err(why.into()),
        None => Ok(Json(Value::Null)),
    }
}

const SIGKILL: i32 = 9;

#[derive(Deserialize)]
pub struct DeleteRequest {
    runs_names: Vec<String>,
}

pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<DeleteRequest>,
) -> ApiResult {
    check_project(&project)?;
    for name in &wanted.runs_names {
        let job = by_name(&shared, &by, name).await?;
        let job = job.ok_or_else(|| ApiError::missing(format!("Run {name} not found")))?;
        if !job.state.is_ended() {
            let text = format!("Cannot delete active runs: {name}. Stop the runs first");
            return Err(ApiError::refused(text));
        }
    }
    Err(ApiError::later("deleting runs"))
}

/// The offers by kind of GPU: `dstack offer --group-by gpu`.
pub async fn gpus(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    headers: HeaderMap,
    Json(wanted): Json<PlanRequest>,
) -> ApiResult {
    check_project(&project)?;
    let asked = run_request::read(&shared, &by, &wanted.run_spec, &headers)?;
    let found = offers(&shared, &by, &asked).await?;
    Ok(Json(json!({"gpus": Bodies::new(&shared).gpu_groups(&found)})))
}

/// The offers, those on free nodes first. None if no node can ever run it.
async fn offers(
    shared: &Arc<Shared>,
    by: &Principal,
    asked: &RunRequest,
) -> Result<Vec<Offer>, ApiError> {
    let patient = Box::new(for_offers(&asked.submission));
    match calls::answer(shared, by.clone(), Call::Offers(patient)).await {
        Ok(Answer::Offers(mut found)) => {
            found.sort_by_key(|offer| !offer.available);
            Ok(found)
        }
        Err(Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_)) => Ok(Vec::new()),
        Err(Refusal::UnknownPartition(name)) => {
            Err(ApiError::missing(format!("Fleet {name} does not exist")))
        }
        Err(why) => Err(why.into()),
        Ok(_) => Ok(Vec::new()),
    }
}

async fn jobs(
    shared: &Arc<Shared>,
    by: &Principal,
    filter: JobFilter,
) -> Result<Vec<JobView>, Refusal> {
    calls::jobs(shared, by, JobsQuery { filter, ..JobsQuery::default() }).await
}

async fn one(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
) -> Result<Option<JobView>, Refusal> {
    let refs = vec![JobRef::whole(job)];
    let filter = JobFilter { jobs: refs, all_states: true, ..JobFilter::default() };
    Ok(jobs(shared, by, filter).await?.into_iter().next())
}

async fn by_id(
    shared: &Arc<Shared>,
    by: &Principal,
    id: &str,
) -> Result<Option<JobView>, ApiError> {
    let Ok(id) = id.parse::<RunId>() else { return Ok(None) };
    let filter = JobFilter { all_states: true, ..JobFilter::default() };
    Ok(jobs(shared, by, filter).await?.into_iter().find(|job| job.run == Some(id)))
}

/// The newest run of this name that has not ended, or else the newest. A job of `sbatch` goes by its name and its number.
pub async fn by_name(
    shared: &Arc<Shared>,
    by: &Principal,
    name: &str,
) -> Result<Option<JobView>, ApiError> {
    let names = vec![name.to_owned()];
    let filter = JobFilter { names, all_states: true, ..JobFilter::default() };
    let runs = jobs(shared, by, filter).await?.into_iter();
    let runs = runs.filter(|job| job.spec.launch.kind == LaunchKind::Task);
    if let Some(found) = runs.max_by_key(|job| (!job.state.is_ended(), job.submit, job.id)) {
        return Ok(Some(found));
    }
    let Some((stem, number)) = name.rsplit_once('-') else { return Ok(None) };
    let Ok(number) = number.parse() else { return Ok(None) };
    match one(shared, by, JobId(number)).await {
        Ok(found) => Ok(found.filter(|job| &*job.spec.name == stem)),
        Err(Refusal::UnknownJob(_)) => Ok(None),
        Err(why) => Err(why.into()),
    }
}
