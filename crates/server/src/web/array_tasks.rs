//! `GET /api/web/jobs/{job}/tasks`: the tasks of an array: how many are in each state, and those that have a record of their own.

use crate::explanation::ended;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use crate::web::job_name;
use crate::web::job_rows::shown_record;
use axum::Extension;
use axum::extract::{Path, State};
use cluster::visibility::Viewer;
use model::array::IndexSet;
use model::change::JobRef;
use model::hostlist::compress;
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::{JobRecord, RecordState};
use model::run::JobState;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use slurm::words;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::client::{Answer, Call, HistoryFilter};

/// The records that are counted, and those of them that are listed.
pub(super) const COUNTED_MAX: u32 = 5_000;
const LISTED_MAX: usize = 500;

#[derive(Serialize, JsonSchema)]
pub(super) struct ArrayTasks {
    array: JobId,
    /// How many tasks are in each state, in Slurm's words.
    states: Vec<(&'static str, u64)>,
    /// There are more than are counted: the first of those that have ended are left out.
    cut: bool,
    /// The tasks that have begun, or wait by themselves; tasks that have not ended come first.
    tasks: Vec<TaskRow>,
    /// The indices of those that wait together; empty where none do.
    waiting: String,
}

#[derive(Serialize, JsonSchema)]
struct TaskRow {
    /// `12_3`
    shown: String,
    state: &'static str,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    /// `node[1-2]`
    nodes: String,
    ended: bool,
    exit_code: i32,
    exit_signal: i32,
}

impl TaskRow {
    fn of(record: &JobRecord) -> Self {
        Self {
            shown: shown_record(record),
            state: ended::state_word(record),
            start: record.start,
            end: record.end,
            nodes: compress(record.nodes.iter().map(String::as_str)),
            ended: has_ended(record),
            exit_code: record.exit.code,
            exit_signal: record.exit.signal,
        }
    }
}

pub async fn tasks(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let array = job_name::read(&name)?.id;
    let filter = HistoryFilter {
        jobs: vec![JobRef::whole(array)],
        limit: Some(COUNTED_MAX),
        ..HistoryFilter::default()
    };
    let Answer::History(mut records) = ask(&shared, &by, Call::History(filter)).await? else {
        return Err(WebRefusal::unexpected());
    };
    let cut = records.len() >= COUNTED_MAX as usize;
    // Tasks that wait together are taken from the state: their record may be beyond those that are counted.
    records.retain(|record| record.array_job == Some(array) && !waits_with_others(record));
    let waiting = waiting_together(&shared, &by, array);
    if records.is_empty() && waiting.is_empty() {
        return Err(Refusal::UnknownJob(format!("{array}_*")).into());
    }
    records.sort_by_key(has_ended);
    Ok(json_answer(&ArrayTasks {
        array,
        states: states(&records, &waiting),
        cut,
        tasks: records.iter().take(LISTED_MAX).map(TaskRow::of).collect(),
        waiting: waiting.to_string(),
    }))
}

fn has_ended(record: &JobRecord) -> bool {
    matches!(record.state, RecordState::Ended(_))
}

fn waits_with_others(record: &JobRecord) -> bool {
    record.array_pending.is_some() && !has_ended(record)
}

/// The tasks that still have one record together, as far as the caller is shown it.
fn waiting_together(shared: &Shared, by: &Principal, array: JobId) -> IndexSet {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let job = state.jobs.get(&array).filter(|job| !job.has_ended() && viewer.job(job));
    let pending = job.and_then(|job| job.pending.as_ref());
    pending.map(|pending| pending.indices.clone()).unwrap_or_default()
}

fn states(records: &[JobRecord], waiting: &IndexSet) -> Vec<(&'static str, u64)> {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    if !waiting.is_empty() {
        counts.insert(words::job::long(JobState::Pending), waiting.len());
    }
    for record in records {
        *counts.entry(ended::state_word(record)).or_default() += task_count(record);
    }
    counts.into_iter().collect()
}

/// Tasks that ended without a start have one record: `4-7%2`.
fn task_count(record: &JobRecord) -> u64 {
    let Some(list) = &record.array_pending else { return 1 };
    let indices = list.split('%').next().unwrap_or_default();
    IndexSet::parse(indices, u32::MAX).map_or(1, |set| set.len())
}
