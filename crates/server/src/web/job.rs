//! One job: what it asked for and was given, why it waits, what it uses; and the changes that a page makes to it.

mod booked;

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::{ask, first_refusal};
use crate::web::explanation;
use crate::web::job_end::{self, JobEnd};
use crate::web::job_name;
use crate::web::job_rows::{self, JobRow};
use crate::web::shell;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cluster::authorise::{Act, authorise};
use model::array::IndexSet;
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::partition::DefaultMemory;
use model::principal::Principal;
use model::record::StepRecord;
use model::request::Per;
use model::run::{Hold, JobState, Step};
use model::time::Timestamp;
use model::tres::Tres;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use slurm::output::text::job_text;
use slurm::words;
use std::sync::Arc;
use wire::client::{Answer, Call, Cancel};
use wire::explain::{ExplainQuery, ExplainedJob};
use wire::view::{ArrayView, JobView};

#[derive(Serialize, JsonSchema)]
pub(super) struct JobPage {
    pub(super) job: JobRow,
    /// What its parts and changes are asked for by: `12`, or `12_3` for a task of an array.
    pub(super) name: String,
    /// The caller may cancel, hold and requeue it.
    pub(super) may_manage: bool,
    /// The caller may read its script and output.
    pub(super) may_read: bool,
    /// The caller may open a shell in it now.
    pub(super) may_enter: bool,
    pub(super) comment: Option<String>,
    pub(super) submit_line: Arc<str>,
    pub(super) dependency: Option<String>,
    pub(super) exit_code: i32,
    pub(super) exit_signal: i32,
    pub(super) restarts: u32,
    /// What it asked for, in words.
    pub(super) request: Vec<(&'static str, String)>,
    /// What it asked for, or was given, of each resource.
    pub(super) tres: Vec<(String, u64)>,
    pub(super) allocation: Vec<NodePart>,
    pub(super) steps: Vec<StepRow>,
    /// Why it waits, a sentence each; empty for others.
    pub(super) explanation: Vec<String>,
    /// The jobs that these sentences name: `12`, `12_3`.
    pub(super) named: Vec<String>,
    /// When and where it is expected to start.
    pub(super) expected: Option<Expected>,
    /// Why it ended, and its attempts before.
    pub(super) end: JobEnd,
    /// It has ended and left memory: nothing of it changes any more.
    pub(super) is_final: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Expected {
    start: Timestamp,
    nodes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct NodePart {
    node: String,
    cpus: String,
    memory: u64,
    gres: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct StepRow {
    id: String,
    name: String,
    tasks: u32,
    start: Timestamp,
    end: Option<Timestamp>,
    state: &'static str,
    exit_code: i32,
    exit_signal: i32,
    /// In bytes; zero where it is not known.
    memory_peak: u64,
}

/// `GET /api/web/jobs/{job}`
pub async fn show(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let wanted = job_name::read(&name)?;
    let page = match in_memory(&shared, &by, &wanted).await? {
        Some(explained) => page(&shared, &by, &explained).await?,
        None => booked::page(&shared, &by, &wanted).await?,
    };
    Ok(json_answer(&page))
}

/// The job, where the server has it in memory.
async fn in_memory(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobRef,
) -> Result<Option<ExplainedJob>, WebRefusal> {
    let jobs = vec![job_name::of_record(shared, by, wanted)];
    let query = ExplainQuery { jobs, names: Vec::new() };
    let found = match ask(shared, by, Call::Explain(query)).await {
        Ok(Answer::Explained(found)) => found,
        Ok(_) => return Err(WebRefusal::unexpected()),
        Err(why) if why.status == StatusCode::NOT_FOUND => return Ok(None),
        Err(why) => return Err(why),
    };
    // The number of an array whose own record is in memory no more names the tasks that still are.
    let is_named = |one: &ExplainedJob| wanted.tasks.is_some() || one.job.id == wanted.id;
    let mut found = found.into_iter().find(is_named);
    if let (Some(explained), Some(tasks)) = (&mut found, &wanted.tasks) {
        show_task(explained, tasks);
    }
    Ok(found)
}

/// One task that waits is shown by its own number, although its record is that of all that do.
fn show_task(explained: &mut ExplainedJob, tasks: &IndexSet) {
    let Some(array) = &mut explained.job.array else { return };
    let only = tasks.first().filter(|_| tasks.len() == 1);
    let waits =
        |index: &u32| array.pending.as_ref().is_some_and(|pending| pending.contains(*index));
    if let Some(index) = only.filter(waits) {
        (array.index, array.pending) = (Some(index), None);
    }
}

/// What a page asks for changes of the job by: a number alone would be that of a whole array.
fn own_name(job: &JobView) -> String {
    match job.array.as_deref() {
        Some(ArrayView { array, index: Some(index), .. }) => format!("{array}_{index}"),
        _ => job.id.to_string(),
    }
}

async fn page(
    shared: &Arc<Shared>,
    by: &Principal,
    explained: &ExplainedJob,
) -> Result<JobPage, WebRefusal> {
    let (view, wait) = (&explained.job, explained.wait.as_deref());
    let name = own_name(view);
    let has_history = view.state.is_ended() || view.restarts > 0;
    let ended = if has_history {
        let wanted = job_name::read(&name)?;
        let attempts = job_end::attempts(shared, by, &wanted).await?;
        let known = view.spec.dependency.as_deref();
        JobEnd::of(shared, by, &attempts, known).await?
    } else {
        JobEnd::default()
    };
    let state = shared.read();
    let job = state.jobs.get(&view.id);
    let may_manage = job.is_some_and(|job| authorise(&state, by, Act::ManageJob(job)).is_ok());
    let may_read = job.is_some_and(|job| authorise(&state, by, Act::ActAsOwner(job)).is_ok());
    let running = job.filter(|job| job.attempt().is_some());
    let may_enter = running.is_some_and(|job| shell::may_enter(&state, by, job));
    let expected = wait.and_then(|wait| wait.expected.as_ref());
    let mut row = JobRow::of(view);
    job_rows::mark_services(shared, &state, std::slice::from_mut(&mut row));
    Ok(JobPage {
        job: row,
        name,
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
        tres: amounts(&view.tres),
        allocation: allocation(view),
        steps: view.steps.iter().map(StepRow::of).collect(),
        explanation: wait.map(|wait| explanation::sentences(view, wait)).unwrap_or_default(),
        named: wait.map(explanation::named).unwrap_or_default(),
        expected: expected.map(|at| Expected { start: at.start, nodes: at.nodes.clone() }),
        end: ended,
        // One that has ended may be requeued as long as it is in memory.
        is_final: false,
    })
}

pub(super) fn amounts(tres: &Tres) -> Vec<(String, u64)> {
    tres.iter().map(|(kind, amount)| (kind.to_string(), amount)).collect()
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

impl StepRow {
    fn of(step: &Step) -> Self {
        let end = step.end.as_ref();
        let state = end.map_or(JobState::Running, |end| end.outcome.state());
        Self {
            id: step.id.to_string(),
            name: step.name.clone(),
            tasks: step.tasks,
            start: step.start,
            end: end.map(|end| end.time),
            state: words::job::long(state),
            exit_code: step.exit.code,
            exit_signal: step.exit.signal,
            memory_peak: step.usage.memory_peak_bytes,
        }
    }

    pub(super) fn of_record(step: &StepRecord) -> Self {
        Self {
            id: step.id.to_string(),
            name: step.name.clone(),
            tasks: step.tasks,
            start: step.start,
            end: step.end,
            state: words::job::long(words::job::of_record(step.state)),
            exit_code: step.exit.code,
            exit_signal: step.exit.signal,
            memory_peak: step.usage.memory_peak_bytes,
        }
    }
}

/// `GET /api/web/jobs/{job}/usage`: the answer of `sstat`, with the load until now.
pub async fn usage(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let wanted = job_name::of_record(&shared, &by, &job_name::read(&name)?);
    let call = Call::Usage { jobs: vec![wanted], load: true };
    Ok(json_answer(&ask(&shared, &by, call).await?))
}

/// `GET /api/web/jobs/{job}/script`, as characters.
pub async fn script(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let wanted = job_name::read(&name)?;
    if wanted.tasks.is_none() {
        let in_memory = match job_name::number(&shared, &by, &wanted) {
            Ok(job) => ask(&shared, &by, Call::Script { job }).await,
            Err(unknown) => Err(unknown.into()),
        };
        match in_memory {
            Ok(Answer::Script { text }) => {
                return Ok(json_answer(&json!({ "text": text.shown() })));
            }
            Ok(_) => return Err(WebRefusal::unexpected()),
            Err(why) if why.status != StatusCode::NOT_FOUND => return Err(why),
            Err(_) => {}
        }
    }
    job_end::kept_script(&shared, &by, wanted).await
}

/// `POST /api/web/jobs/{job}/{change}`
pub async fn change(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((name, change)): Path<(String, String)>,
) -> WebResult {
    let job = job_name::of_task(&shared, &by, job_name::read(&name)?);
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
