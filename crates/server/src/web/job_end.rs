//! How a job ended, by the books, with the rights of `sacct`: why, what it used beside what it had, and its earlier attempts.

use crate::clock;
use crate::explanation::ended;
use crate::explanation::lost_nodes::LostNodes;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::ask::ask;
use crate::web::job_name;
use axum::http::StatusCode;
use jiff::tz::TimeZone;
use model::change::JobRef;
use model::dependency::Dependency;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::{JobRecord, RecordState};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use slurm::output::Moment;
use slurm::output::time_format::TimeFormat;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, HistoryFilter, KeptText};

/// The most records that are looked through for those of one job: the number of an array names all of its tasks.
pub(super) const RECORDS_MAX: u32 = 2_000;

/// Times in texts: whoever shows them puts them on the person's own clock.
const TIME_FORMAT: &str = "%Y-%m-%dT%H:%M:%SZ";

/// The moment of texts that are made now.
pub fn moment() -> Moment<'static> {
    static UTC: TimeZone = TimeZone::UTC;
    Moment::at(clock::now(), &UTC).in_format(TimeFormat::Strftime(TIME_FORMAT))
}

#[derive(Default, Serialize, JsonSchema)]
pub struct JobEnd {
    /// Why it ended, a sentence each; empty for one that has not.
    why: Vec<String>,
    /// How its attempts before the present or last one ended.
    earlier: Vec<String>,
    used: Vec<UsedRow>,
}

/// What it used of something, and what it had of that.
#[derive(Serialize, JsonSchema)]
struct UsedRow {
    what: &'static str,
    used: String,
    of: Option<String>,
}

/// The attempts of one job in their order: of the one that has this number or name, else of the last of an array's. Empty where the
/// books have none that the caller is shown.
pub async fn attempts(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobRef,
) -> Result<Vec<JobRecord>, WebRefusal> {
    // Among those of all tasks of an array the limit could leave out the record of the array's own number.
    let mut records = named(shared, by, wanted, true).await?;
    if records.is_empty() && wanted.tasks.is_none() {
        records = named(shared, by, wanted, false).await?;
    }
    let last = records.iter().max_by_key(|record| (record.submit, record.job));
    let job = last.map(|record| record.job);
    records.retain(|record| Some(record.job) == job);
    records.sort_by_key(|record| record.attempt);
    Ok(records)
}

async fn named(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobRef,
    own_records: bool,
) -> Result<Vec<JobRecord>, WebRefusal> {
    let filter = HistoryFilter {
        jobs: vec![wanted.clone()],
        duplicates: true,
        own_records,
        limit: Some(RECORDS_MAX),
        ..HistoryFilter::default()
    };
    match ask(shared, by, Call::History(filter)).await? {
        Answer::History(records) => Ok(records),
        _ => Err(WebRefusal::unexpected()),
    }
}

/// As [`attempts`], where a job that the books do not have is refused.
pub async fn booked(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobRef,
) -> Result<Vec<JobRecord>, WebRefusal> {
    let records = attempts(shared, by, wanted).await?;
    if records.is_empty() {
        return Err(Refusal::UnknownJob(job_name::shown(wanted)).into());
    }
    Ok(records)
}

impl JobEnd {
    /// `known`: what the server knows of the job's dependency.
    pub async fn of(
        shared: &Arc<Shared>,
        by: &Principal,
        attempts: &[JobRecord],
        known: Option<&Dependency>,
    ) -> Result<Self, WebRefusal> {
        let mut lost = LostNodes::default();
        for (record, question) in LostNodes::questions(attempts) {
            // Whoever is not shown what became of nodes is told that one was lost.
            let Ok(answer) = ask(shared, by, Call::ActivityHistory(question)).await else { break };
            let Answer::Activities(found) = answer else { break };
            lost.note(record, &found);
        }
        // The names of users are looked up.
        Ok(block_in_place(|| Self::with(attempts, &lost, known)))
    }

    fn with(attempts: &[JobRecord], lost: &LostNodes, known: Option<&Dependency>) -> Self {
        let (moment, mut end) = (moment(), Self::default());
        let Some(last) = attempts.last() else { return end };
        end.earlier = ended::earlier(attempts, lost, moment);
        if !matches!(last.state, RecordState::Ended(_)) {
            return end;
        }
        end.why.push(format!("It {}", ended::headline(last, moment)));
        // What it used has a table of its own.
        end.why.extend(ended::causes(last, lost, moment));
        end.why.extend(ended::depended_on(last, known));
        end.why.extend(ended::advice(last));
        let row = |amount: ended::UsedAmount| UsedRow {
            what: amount.what.title(),
            used: amount.used + &amount.note,
            of: amount.of,
        };
        end.used = ended::used(last).into_iter().map(row).collect();
        end
    }
}

/// The script of a job that has left the server's memory, where the books keep it.
pub async fn kept_script(shared: &Arc<Shared>, by: &Principal, job: JobRef) -> WebResult {
    let call = Call::KeptText { job, of: KeptText::Script };
    match ask(shared, by, call).await? {
        Answer::KeptText { text: Some(text) } => Ok(json_answer(&json!({ "text": text.shown() }))),
        Answer::KeptText { text: None } => {
            let why =
                "the books have no script of it: AccountingStoreFlags=job_script has them kept";
            Err(WebRefusal::new(StatusCode::NOT_FOUND, why))
        }
        _ => Err(WebRefusal::unexpected()),
    }
}
