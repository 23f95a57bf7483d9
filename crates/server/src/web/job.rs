//! One job: what it asked for and was given, why it waits, what it uses; and the changes that a page makes to it.

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::{ask, first_refusal};
use crate::web::explanation;
use crate::web::job_rows::{self, JobRow};
use crate::web::shell;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cluster::authorise::{Act, authorise};
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::id::JobId;
use model::partition::DefaultMemory;
use model::principal::Principal;
use model::reason::Refusal;
use model::request::Per;
use model::run::Hold;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use slurm::output::text::job_text;
use std::sync::Arc;
use wire::client::{Answer, Call, Cancel};
use wire::explain::{ExplainQuery, ExplainedJob};
use wire::view::JobView;

#[derive(Serialize, JsonSchema)]
pub(super) struct JobPage {
    job: JobRow,
    /// The caller may cancel, hold and requeue it.
    may_manage: bool,
    /// The caller may read its script and output.
    may_read: bool,
    /// The caller may open a shell in it now.
    may_enter: bool,
    comment: Option<String>,
    submit_line: Arc<str>,
    dependency: Option<String>,
    exit_code: i32,
    exit_signal: i32,
    restarts: u32,
    /// What it asked for, in words.
    request: Vec<(&'static str, String)>,
    /// What it asked for, or was given, of each resource.
    tres: Vec<(String, u64)>,
    allocation: Vec<NodePart>,
    steps: Vec<StepRow>,
    /// Why it waits, a sentence each; empty for others.
    explanation: Vec<String>,
    /// When and where it is expected to start.
    expected: Option<Expected>,
}

#[derive(Serialize, JsonSchema)]
struct Expected {
    start: Timestamp,
    nodes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct NodePart {
    node: String,
    cpus: String,
    memory: u64,
    gres: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct StepRow {
    id: String,
    name: String,
    tasks: u32,
    start: Timestamp,
    end: Option<Timestamp>,
}

/// `GET /api/web/jobs/{job}`
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(id): Path<u32>,
) -> WebResult {
    let wanted = ExplainQuery { jobs: vec![JobRef::whole(JobId(id))], names: Vec::new() };
    let Answer::Explained(found) = ask(&shared, &by, Call::Explain(wanted)).await? else {
        return Err(WebRefusal::unexpected());
    };
    // A number of an array is that of all its tasks.
    let place = found.iter().position(|one| one.job.id == JobId(id)).unwrap_or(0);
    let explained = found.into_iter().nth(place);
    let explained = explained.ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
    Ok(json_answer(&page(&shared, &by, &explained)))
}

fn page(shared: &Shared, by: &Principal, explained: &ExplainedJob) -> JobPage {
    let (view, wait) = (&explained.job, explained.wait.as_deref());
    let state = shared.read();
    let job = state.jobs.get(&view.id);
    let may_manage = job.is_some_and(|job| authorise(&state, by, Act::ManageJob(job)).is_ok());
    let may_read = job.is_some_and(|job| authorise(&state, by, Act::ActAsOwner(job)).is_ok());
    let running = job.filter(|job| job.attempt().is_some());
    let may_enter = running.is_some_and(|job| shell::may_enter(&state, by, job));
    let expected = wait.and_then(|wait| wait.expected.as_ref());
    let mut row = JobRow::of(view);
    job_rows::mark_services(shared, &state, std::slice::from_mut(&mut row));
    JobPage {
        job: row,
        may_manage,
        may_read,
        may_enter,
        comment: view.spec.comment.clone(),
        submit_line: view.spec.submit_line.clone(),
        dependency: view.dependency.clone(),
        exit_code: view.exit.code,
        exit_signal: view.exit.signal,
        restarts: view.restarts,
        request: request(view),
        tres: view.tres.iter().map(|(kind, amount)| (kind.to_string(), amount)).collect(),
        allocation: allocation(view),
        steps: steps(view),
        explanation: wait.map(|wait| explanation::sentences(wait, view.id)).unwrap_or_default(),
        expected: expected.map(|at| Expected { start: at.start, nodes: at.nodes.clone() }),
    }
}

fn request(view: &JobView) -> Vec<(&'static str, String)> {
    let asked = view.spec.request();
    let mut rows = vec![
        ("Nodes", view.nodes.to_string()),
        ("Tasks", view.tasks.to_string()),
        ("CPUs of a task", asked.cpus_per_task.to_string()),
    ];
    let (name, memory) = match job_text::memory(view) {
        DefaultMemory::PerNode(each) => ("Memory of a node", each),
        DefaultMemory::PerCpu(each) => ("Memory of a CPU", each),
        DefaultMemory::PerGpu(each) => ("Memory of a GPU", each),
    };
    // Zero is a whole node's, or what the site gives.
    if memory.0 > 0 {
        rows.push((name, format!("{} MiB", memory.mib())));
    }
    let devices = [
        (Per::Node, "Devices of a node"),
        (Per::Job, "Devices in all"),
        (Per::Task, "Devices of a task"),
        (Per::Socket, "Devices of a socket"),
    ];
    let text = |(per, name)| Some((name, job_text::gres_request(asked, per)?));
    rows.extend(devices.into_iter().filter_map(text));
    rows
}

fn allocation(view: &JobView) -> Vec<NodePart> {
    let shares = view.allocation.iter().flat_map(|allocation| &allocation.nodes);
    let part = |share: &model::allocation::NodeShare| NodePart {
        node: share.node.clone(),
        cpus: share.cpus.to_string(),
        memory: share.memory.0,
        gres: share.gres.iter().map(|gres| job_text::gres_share(gres, true)).collect(),
    };
    shares.map(part).collect()
}

fn steps(view: &JobView) -> Vec<StepRow> {
    let row = |step: &model::run::Step| StepRow {
        id: step.id.to_string(),
        name: step.name.clone(),
        tasks: step.tasks,
        start: step.start,
        end: step.end.as_ref().map(|end| end.time),
    };
    view.steps.iter().map(row).collect()
}

/// `GET /api/web/jobs/{job}/usage`: the answer of `sstat`, with the load until now.
pub async fn usage(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(id): Path<u32>,
) -> WebResult {
    let call = Call::Usage { jobs: vec![JobRef::whole(JobId(id))], load: true };
    Ok(json_answer(&ask(&shared, &by, call).await?))
}

/// `GET /api/web/jobs/{job}/script`, as characters.
pub async fn script(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(id): Path<u32>,
) -> WebResult {
    match ask(&shared, &by, Call::Script { job: JobId(id) }).await? {
        Answer::Script { text } => Ok(json_answer(&json!({ "text": text.shown() }))),
        _ => Err(WebRefusal::unexpected()),
    }
}

/// `POST /api/web/jobs/{job}/{change}`
pub async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((id, change)): Path<(u32, String)>,
) -> WebResult {
    let job = JobRef::whole(JobId(id));
    let call = match change.as_str() {
        "cancel" => {
            let filter = JobFilter { jobs: vec![job], ..JobFilter::default() };
            Call::Cancel(Cancel {
                filter,
                step: None,
                signal: None,
                batch_only: false,
                full: false,
            })
        }
        "hold" => Call::UpdateJob { job, change: JobChange::Hold { by: Hold::Admin } },
        "release" => Call::UpdateJob { job, change: JobChange::Release },
        "requeue" => Call::UpdateJob { job, change: JobChange::Requeue(Requeue::PLAIN) },
        other => {
            let text = format!("{other}: expected cancel, hold, release or requeue");
            return Err(WebRefusal::new(StatusCode::NOT_FOUND, text));
        }
    };
    let answer = ask(&shared, &by, call).await?;
    first_refusal(&answer).map_or_else(|| Ok(json_answer(&json!({}))), Err)
}
