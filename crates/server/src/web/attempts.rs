//! `GET /api/web/jobs/{job}/attempts`: every start of a job, as `sacct -D` is answered.

use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use crate::web::job_name;
use crate::web::job_rows::shown_record;
use axum::Extension;
use axum::extract::{Path, State};
use model::hostlist::compress;
use model::principal::Principal;
use model::time::Timestamp;
use serde::Serialize;
use serde_json::json;
use slurm::words;
use std::sync::Arc;
use wire::client::{Answer, Call, HistoryFilter};

/// The most of one answer.
const ATTEMPTS_MAX: u32 = 200;

#[derive(Serialize)]
struct AttemptRow {
    /// The task of an array that it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    /// `12_3`
    job: String,
    attempt: u32,
    state: String,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    /// `node[1-2]`
    nodes: String,
    exit_code: i32,
    exit_signal: i32,
}

pub async fn attempts(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> WebResult {
    let filter = HistoryFilter {
        jobs: vec![job_name::read(&name)?],
        duplicates: true,
        limit: Some(ATTEMPTS_MAX),
        ..HistoryFilter::default()
    };
    let Answer::History(records) = ask(&shared, &by, Call::History(filter)).await? else {
        return Err(WebRefusal::unexpected());
    };
    let rows = records.iter().map(|record| AttemptRow {
        task: record.array_task,
        job: shown_record(record),
        attempt: record.attempt,
        state: words::job::in_books(record.state),
        start: record.start,
        end: record.end,
        nodes: compress(record.nodes.iter().map(String::as_str)),
        exit_code: record.exit.code,
        exit_signal: record.exit.signal,
    });
    let rows: Vec<AttemptRow> = rows.collect();
    Ok(json_answer(&json!({ "attempts": rows })))
}
