//! Runs: planned, applied, listed and stopped.

use super::answer::{ApiResult, Json, Refused};
use super::kept_spec::{KeptSpec, UPDATED_IN_PLACE, raw};
use super::run_bodies::{RunBodies, RunBody, RunPage};
use super::run_body::Bodies;
use super::run_list::ActiveRun;
use super::run_request::{self, KeptRequest, Purpose, RunRequest};
use super::{project, run_list};
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::service_address;
use crate::writer::submission::stored_form;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::gpu::{Gpus, ListGpus};
use dstack::api::plan::{JobPlan, RunPlan};
use dstack::api::run::{
    ApplyRunPlan, DeleteRuns, GetRun, GetRunPlan, ListRuns, Run, RunSpec, StopRuns,
};
use dstack::no_offer;
use dstack::request::{
    for_offers, group_requests, is_same_run, next_deployment, set_deployment, update_in_place,
};
use dstack::status::ApplyAction;
use model::change::{JobChange, JobFilter, JobRef};
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use model::reason::Refusal;
use model::run::JobSpec;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Cancel, Offer, Submission};

/// The most offers of one answer; the client asks for as many at most.
const OFFERS_MAX: usize = 50;

const SIGKILL: i32 = 9;

/// Every job of the cluster, whichever language it came in: those in memory, and where those that have ended are wanted
/// also those that only the books have.
pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(held): Extension<Arc<RunBodies>>,
    Json(wanted): Json<ListRuns>,
) -> Result<RunPage, Refused> {
    if let Some(project) = &wanted.project_name {
        project::check_member(&shared, &by, project)?;
    }
    let project = wanted.project_name.as_deref().unwrap_or(MAIN_PROJECT);
    let _long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    let bodies = Bodies::new(&shared, &by, project);
    let list = || -> Result<Vec<RunBody>, Refused> {
        let found = run_list::list(&shared, &by, &wanted)?;
        found.iter().map(|run| bodies.listed_run(run, &held)).collect()
    };
    // A few jobs of memory are listed sooner than the thread's other work is handed to another thread. The books may be slow, and
    // the database from which a standby reads texts.
    let is_short =
        wanted.only_active && !shared.is_standby() && shared.read().jobs.len() <= calls::SHORT_LIST;
    let listed = if is_short { list() } else { block_in_place(list) };
    Ok(RunPage(listed?))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetRun>,
) -> ApiResult<Run> {
    let _long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    let found = match (&wanted.id, &wanted.run_name) {
        (Some(id), _) => run_list::by_id(&shared, &by, &project, id)?,
        (None, Some(name)) => run_list::by_name(&shared, &by, &project, name)?,
        (None, None) => None,
    };
    let run = found.ok_or_else(|| Refused::not_found("Run not found"))?;
    let bodies = Bodies::new(&shared, &by, &project);
    let show = || bodies.shown_run(&run);
    let shown = if shared.is_standby() { block_in_place(show) } else { show() };
    Ok(Json(shown?))
}

pub async fn plan(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetRunPlan>,
) -> ApiResult<RunPlan> {
    let _long = calls::begin_long(&shared, &by, LongWork::Plan).await?;
    let purpose = if wanted.for_offers_only { Purpose::Offers } else { Purpose::Plan };
    let read = || run_request::read(&shared, &by, &project, wanted.run_spec, purpose);
    let asked = block_in_place(read)?;
    service_address::check(&shared, &asked.submission).await?;
    let found = offers(&shared, &by, &asked.submission).await?;
    let groups = group_requests(&asked.submission);
    // A group of replicas is planned as one job.
    let nodes_of = |index: usize| match asked.task.replica_groups.get(index) {
        Some(_) => Some(1),
        None => asked.task.groups.get(index).map(|group| group.nodes),
    };
    let mut of_groups = vec![(nodes_of(0).unwrap_or(0), found)];
    for (index, submission) in groups.iter().enumerate().skip(1) {
        if let Some(nodes) = nodes_of(index) {
            of_groups.push((nodes, offers(&shared, &by, submission).await?));
        }
    }
    let active = run_list::own_active(&shared, &by, &project, &asked.name)?;
    let bodies = Bodies::new(&shared, &by, &project);
    let most = wanted.max_offers.map_or(OFFERS_MAX, |most| most as usize).min(OFFERS_MAX);
    let replica_groups = &asked.task.replica_groups;
    let nodes = match u32::try_from(replica_groups.len()) {
        Ok(count @ 1..) => count,
        _ => bodies.shown_nodes(asked.task.nodes.min),
    };
    let effective = asked.effective();
    let text = raw(&effective);
    let jobs_of = KeptSpec::of(&text).unwrap_or_default();
    let job_plan = |rank: u32| {
        let found = offers_of_rank(&of_groups, rank);
        JobPlan {
            job_spec: match replica_groups.get(rank as usize) {
                Some(group) => {
                    let place = group.service.as_ref().and_then(|service| service.group.as_ref());
                    let first = place.map_or(0, |place| place.first_replica);
                    jobs_of.replica_spec(&asked.name, first, place)
                }
                None => jobs_of.job_spec(&asked.name, rank, nodes),
            },
            offers: found.iter().take(most).map(|offer| bodies.offer(offer)).collect(),
            total_offers: u32::try_from(found.len()).unwrap_or(u32::MAX),
            max_price: bodies.max_price(found),
        }
    };
    let shown = bodies.room.shown(nodes as usize, text.get().len());
    let becomes_it = active.as_ref().is_some_and(|active| becomes(&shared, active, &asked));
    Ok(Json(RunPlan {
        project_name: project.clone(),
        user: by.name.clone(),
        job_plans: (0..nodes).take(shown).map(job_plan).collect(),
        run_spec: asked.run_spec(),
        effective_run_spec: Some(effective),
        // A client that is told to create one beside an active one offers to stop that first.
        action: if becomes_it { ApplyAction::Update } else { ApplyAction::Create },
        current_resource: active.map(|active| Box::new(bodies.run(&active.facts))),
    }))
}

/// Submits. The client repeats a call whose answer was lost: the answer is then the run that is active already.
pub async fn apply(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<ApplyRunPlan>,
) -> ApiResult<Run> {
    let run = wanted.plan.run_spec;
    let brings = !run.file_archives.is_empty() || run.repo_code_hash.is_some();
    // What the run brings along is in memory until it is submitted: that of one run of each user.
    let _own = if brings { Some(shared.uploads.own_turn(by.uid).await) } else { None };
    let read = || run_request::read(&shared, &by, &project, run, Purpose::Run);
    let asked = if brings { block_in_place(read)? } else { read()? };
    let KeptRequest { name, task, mut submission, text: kept } = asked.kept();
    let asked = stored_form(&submission);
    if let Some(active) = run_list::own_active(&shared, &by, &project, &name)? {
        match replacement(&active, &asked) {
            Some(deployment) => set_deployment(&mut submission, deployment),
            None => return same_run(&shared, &by, &project, &active, &asked).await,
        }
    }
    submission.unique_name = true;
    submission.configuration = Some(kept.get().to_owned());
    match calls::submit_run(&shared, by.clone(), submission).await {
        Ok(Answer::Submitted { job, .. }) => {
            let found = run_list::of_job(&shared, &by, job)?;
            let found = found.ok_or_else(|| Refused::not_found("Run not found"))?;
            Ok(Json(Bodies::new(&shared, &by, &project).run_with(&found.facts, Some(kept))))
        }
        // Another call has submitted it meanwhile.
        Err(Refusal::AlreadyExists { .. }) => {
            let active = run_list::own_active(&shared, &by, &project, &name)?;
            let active = active.ok_or_else(|| {
                Refused::because(format!("a run {name} of yours is active in another project"))
            })?;
            same_run(&shared, &by, &project, &active, &asked).await
        }
        // The plan has no place for it: what it said was that there are no offers.
        Err(why @ (Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_))) => {
            Err(Refused::because(no_offer::explained(&why, &task.resources)))
        }
        Err(Refusal::NoCapacityNow) => Err(Refused::because(no_offer::WOULD_WAIT)),
        Err(why) => Err(why.into()),
        Ok(_) => Err(Refused::because("the run was not submitted")),
    }
}

/// The deployment by which a service that is asked for replaces the active one, where it is neither the same nor changed in place.
fn replacement(active: &ActiveRun, asked: &[JobSpec]) -> Option<u32> {
    let specs: Vec<&JobSpec> = active.specs.iter().map(Arc::as_ref).collect();
    let is_changed = !active.is_array && update_in_place(&specs, asked).is_some();
    if is_changed || is_same_run(specs.iter().copied(), asked) {
        return None;
    }
    next_deployment(specs.first()?, asked.first()?)
}

/// Whether the active run is the one that is planned, or can become it in place.
fn becomes(shared: &Shared, active: &ActiveRun, planned: &RunRequest) -> bool {
    let mut asked = stored_form(&planned.submission);
    let mut specs: Vec<JobSpec> = active.specs.iter().map(|spec| (**spec).clone()).collect();
    if !planned.task.files.is_empty() || !planned.task.repos.is_empty() {
        // What it brings along is read when it is submitted: until then it goes by its ids.
        if !brings_the_same(shared, active, &planned.effective()) {
            return false;
        }
        for spec in specs.iter_mut().chain(&mut asked) {
            Arc::make_mut(&mut spec.launch).workspace = None;
        }
    }
    let specs: Vec<&JobSpec> = specs.iter().collect();
    is_same_run(specs.iter().copied(), &asked)
        || !active.is_array && update_in_place(&specs, &asked).is_some()
        || replacement(active, &asked).is_some()
}

/// Whether the active run was submitted with the same files and repository.
fn brings_the_same(shared: &Shared, active: &ActiveRun, planned: &RunSpec) -> bool {
    let kept = active.facts.configuration.and_then(|blob| shared.blob_text(&blob).ok());
    let kept = kept.and_then(|text| serde_json::from_str::<RunSpec>(&text).ok());
    let brought = |run: &RunSpec| {
        let mut configuration = run.configuration.clone();
        for updatable in UPDATED_IN_PLACE {
            configuration[updatable] = Value::Null;
        }
        let (files, code) = (run.file_archives.clone(), run.repo_code_hash.clone());
        (
            files,
            code,
            run.repo_id.clone(),
            run.repo_data.clone(),
            run.repo_dir.clone(),
            configuration,
        )
    };
    kept.is_some_and(|kept| brought(&kept) == brought(planned))
}

/// The active run of a name, if it is the one that is asked for or can become it in place.
async fn same_run(
    shared: &Arc<Shared>,
    by: &Principal,
    project: &str,
    active: &ActiveRun,
    asked: &[JobSpec],
) -> ApiResult<Run> {
    if is_same_run(active.specs.iter().map(Arc::as_ref), asked) {
        return Ok(Json(Bodies::new(shared, by, project).run(&active.facts)));
    }
    let specs: Vec<&JobSpec> = active.specs.iter().map(Arc::as_ref).collect();
    // Of an array this is one task, and others may be of another shape.
    let fields = if active.is_array { None } else { update_in_place(&specs, asked) };
    if let Some(fields) = fields {
        for job in &active.jobs {
            let change = JobChange::Fields(fields.clone());
            let update = Call::UpdateJob { job: JobRef::whole(*job), change };
            calls::answer(shared, by.clone(), update).await?;
        }
        let updated = run_list::of_job(shared, by, active.facts.job)?;
        let updated = updated.ok_or_else(|| Refused::not_found("Run not found"))?;
        return Ok(Json(Bodies::new(shared, by, project).run(&updated.facts)));
    }
    let name = &active.facts.name;
    let text = format!("Failed to apply plan. Run {name} is active. Stop it first");
    Err(Refused::because(text))
}

pub async fn stop(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<StopRuns>,
) -> ApiResult<()> {
    let mut jobs = Vec::new();
    let long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    for name in &wanted.runs_names {
        let run = run_list::by_name(&shared, &by, &project, name)?;
        let run = run.ok_or_else(|| Refused::not_found(format!("Run {name} not found")))?;
        if run.ended.is_none() {
            jobs.extend(run_list::stopped_with(&shared, &by, &project, &run)?);
        }
    }
    drop(long);
    if jobs.is_empty() {
        return Ok(Json(()));
    }
    let filter = JobFilter { jobs, ..JobFilter::default() };
    // An abort does not wait for the commands to end by themselves. They may be gone when the kill comes.
    let signals = if wanted.abort { vec![None, Some(SIGKILL)] } else { vec![None] };
    for signal in signals {
        let filter = filter.clone();
        let cancel = Cancel { filter, step: None, signal, batch_only: false, full: true };
        if let Answer::Cancelled(results) =
            calls::answer(&shared, by.clone(), Call::Cancel(cancel)).await?
            && let Some(why) = results
                .into_iter()
                .filter_map(|result| result.refusal)
                .find(|why| !matches!(why, Refusal::JobEnded(_) | Refusal::JobNotRunning(_)))
        {
            return Err(why.into());
        }
    }
    Ok(Json(()))
}

/// Deletes runs that have ended: their names are in no list any more.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<DeleteRuns>,
) -> ApiResult<()> {
    let mut runs = Vec::new();
    let _long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    for name in &wanted.runs_names {
        let run = run_list::by_name(&shared, &by, &project, name)?;
        let run = run.ok_or_else(|| Refused::not_found(format!("Run {name} not found")))?;
        runs.extend(run_list::deleted_with(&shared, &by, &project, &run)?);
    }
    calls::answer(&shared, by, Call::DeleteRuns { runs }).await?;
    Ok(Json(()))
}

/// The offers for one node: those of its group. `of_groups`: how many nodes each has, and its offers.
pub(super) fn offers_of_rank(of_groups: &[(u32, Vec<Offer>)], rank: u32) -> &[Offer] {
    let mut end = 0_u32;
    let of_rank = of_groups.iter().find(|(nodes, _)| {
        end = end.saturating_add(*nodes);
        rank < end
    });
    // Groups of equal resources have the offers of one.
    of_rank.or(of_groups.first()).map_or(&[], |(_, found)| found)
}

/// The offers by kind of GPU: `dstack offer --group-by gpu`.
pub async fn gpus(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<ListGpus>,
) -> ApiResult<Gpus> {
    let _long = calls::begin_long(&shared, &by, LongWork::Plan).await?;
    let asked = run_request::read(&shared, &by, &project, wanted.run_spec, Purpose::Offers)?;
    let found = offers(&shared, &by, &asked.submission).await?;
    Ok(Json(Gpus { gpus: Bodies::new(&shared, &by, &project).gpu_groups(&found) }))
}

/// The offers, those on free nodes first. None if no node can ever run it.
async fn offers(
    shared: &Arc<Shared>,
    by: &Principal,
    asked: &Submission,
) -> Result<Vec<Offer>, Refused> {
    let patient = Box::new(for_offers(asked));
    match calls::answer(shared, by.clone(), Call::Offers(patient)).await {
        Ok(Answer::Offers(mut found)) => {
            found.sort_by_key(Offer::turn);
            Ok(found)
        }
        Err(Refusal::NodeConfiguration(_) | Refusal::UnknownGres(_)) => Ok(Vec::new()),
        Err(Refusal::UnknownPartition(name)) => {
            Err(Refused::not_found(format!("Fleet {name} does not exist")))
        }
        Err(why) => Err(why.into()),
        Ok(_) => Ok(Vec::new()),
    }
}
