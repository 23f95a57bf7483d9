//! `GET /api/web/history`: jobs that have ended, the newest first, as `sacct` shows them to the same user.

use crate::clock;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use crate::web::job_rows::JobRow;
use axum::Extension;
use axum::extract::{Query, State};
use model::principal::Principal;
use model::record::JobRecord;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, Call, HistoryFilter};

/// How far back it goes, in days; what is older is `sacct`'s.
const DAYS: u32 = 7;
const DAY: Duration = Duration::from_secs(86_400);

/// The rows of a page of it, and the most of one answer.
const ROWS: u32 = 200;
const ROWS_MAX: u32 = 2_000;

#[derive(Deserialize, JsonSchema)]
pub struct HistoryQuery {
    /// How many of one's own, and of all, at most.
    rows: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct History {
    now: Timestamp,
    /// How many days back it goes.
    days: u32,
    /// There are more than were asked for.
    more: bool,
    /// There are, and an answer holds no more.
    cut: bool,
    rows: Vec<JobRow>,
}

pub async fn history(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(wanted): Query<HistoryQuery>,
) -> WebResult {
    let rows = wanted.rows.unwrap_or(ROWS).clamp(1, ROWS_MAX);
    // One's own are there, however many others have ended since.
    let own = ended(&shared, &by, vec![by.name.clone()], rows).await?;
    let all = ended(&shared, &by, Vec::new(), rows).await?;
    let is_full = [&own, &all].iter().any(|found| found.len() >= rows as usize);
    let mut seen = HashSet::new();
    let mut records: Vec<JobRecord> = own.into_iter().chain(all).collect();
    records.retain(|record| seen.insert(record.job));
    records.sort_by_key(|record| std::cmp::Reverse((record.end, record.job)));
    Ok(json_answer(&History {
        now: clock::now(),
        days: DAYS,
        more: is_full && rows < ROWS_MAX,
        cut: is_full && rows == ROWS_MAX,
        rows: records.iter().map(JobRow::of_record).collect(),
    }))
}

async fn ended(
    shared: &Arc<Shared>,
    by: &Principal,
    users: Vec<String>,
    rows: u32,
) -> Result<Vec<JobRecord>, WebRefusal> {
    let filter = HistoryFilter {
        users,
        from: Some(clock::now() - DAY * DAYS),
        ended: true,
        limit: Some(rows),
        ..HistoryFilter::default()
    };
    match ask(shared, by, Call::History(filter)).await? {
        Answer::History(records) => Ok(records),
        _ => Err(WebRefusal::unexpected()),
    }
}
