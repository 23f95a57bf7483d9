//! `GET /api/web/jobs`: the queue as rows, all of it or what changed since a page looked last.

mod of_record;

pub use of_record::shown as shown_record;

use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::change_log::ChangeSeq;
use crate::shared::forecast_queue::Estimates;
use crate::shared::long_calls::LongWork;
use crate::show::{job_list, service_address};
use crate::web::answer::{WebResult, json_answer};
use axum::Extension;
use axum::extract::{Query, State};
use cluster::State as ClusterState;
use cluster::visibility::Viewer;
use model::id::JobId;
use model::principal::Principal;
use model::private_data::PrivateKind;
use model::run::LaunchKind;
use model::service::Service;
use model::time::Timestamp;
use model::tres::TresKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use slurm::output::text::job_text;
use slurm::words;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use wire::client::{Detail, JobsQuery};
use wire::diagnostics::CallKind;
use wire::view::JobView;

/// The most rows of one answer; a page says that there are more.
const ROWS_MAX: usize = 50_000;

/// How long an answer waits for expected starts; they come with a later one else.
const ESTIMATES_TIMEOUT: Duration = Duration::from_millis(500);

/// Beyond so many changes all rows are sent: that is no more work than finding each.
const CHANGES_MAX: usize = 2_000;

#[derive(Deserialize, JsonSchema)]
pub struct RowsQuery {
    /// The place that an earlier answer gave: only what changed since.
    since: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Rows {
    /// The place to ask from the next time.
    seq: u64,
    now: Timestamp,
    /// The rows are all there are, and not what changed alone.
    whole: bool,
    /// There are more than an answer holds.
    cut: bool,
    rows: Vec<JobRow>,
    /// Jobs that are in the queue no longer.
    gone: Vec<JobId>,
}

/// A job as a line of the queue, in Slurm's words.
#[derive(Serialize, JsonSchema)]
pub struct JobRow {
    id: JobId,
    /// `12`, `14_3`, `14_[16-23]`
    shown: String,
    name: Arc<str>,
    user: String,
    account: Arc<str>,
    partition: Arc<str>,
    qos: Arc<str>,
    state: &'static str,
    /// Why it waits; empty for others.
    reason: String,
    /// `node[1-2]`; empty before it has nodes.
    nodes: String,
    node_count: u32,
    cpus: u32,
    gpus: u64,
    priority: u64,
    submit: Timestamp,
    /// When it started, or is expected to.
    start: Option<Timestamp>,
    /// When it ended, or will be ended by its limit.
    end: Option<Timestamp>,
    limit_s: Option<u64>,
    waiting: bool,
    ended: bool,
    /// It came in dstack's language.
    run: bool,
    /// Where requests to the service go that it is a replica of: an address, or a path of this server.
    service: Option<String>,
}

impl JobRow {
    pub fn of(job: &JobView) -> Self {
        let mut shown = String::new();
        job_text::push_id(&mut shown, job, None);
        let waiting = job.state.is_waiting();
        let reason = waiting.then(|| words::reason::text(&job.reason).into_owned());
        Self {
            id: job.id,
            shown,
            name: job.name.clone(),
            user: job.spec.owner.name.clone(),
            account: job.account.clone(),
            partition: job.partition.clone(),
            qos: job.qos.clone(),
            state: words::job::long(job.state),
            reason: reason.unwrap_or_default(),
            nodes: job_text::node_list(job),
            node_count: job_text::node_count(job),
            cpus: job.cpus,
            gpus: job.tres.amount(&TresKind::gpu()),
            priority: job.priority,
            submit: job.submit,
            start: job.start,
            end: job.end,
            limit_s: job.time_limit.secs(),
            waiting,
            ended: job.state.is_ended(),
            run: job.spec.launch.kind == LaunchKind::Task,
            // A listing does not say it: see `mark_services`.
            service: None,
        }
    }
}

pub async fn rows(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Query(wanted): Query<RowsQuery>,
) -> WebResult {
    let _timer = shared.volatile.counters.begin_call(CallKind::Jobs, &by);
    // The place is taken before the state is read: what changes in between is sent twice, and not left out.
    let seq = shared.volatile.changes.last().newest().0;
    let changed = wanted.since.and_then(|seq| shared.volatile.changes.jobs_since(ChangeSeq(seq)));
    let changed = changed.filter(|jobs| jobs.len() <= CHANGES_MAX);
    // Before the turn is taken: nobody waits for this caller's estimates.
    let estimates = shared.forecasts.recent(ESTIMATES_TIMEOUT).await;
    let estimates = Some(&*estimates);
    // The whole queue is as much work as a plan; a few rows are not.
    let _long = match changed {
        Some(_) => None,
        None => Some(calls::begin_long(&shared, &by, LongWork::Plan).await?),
    };
    let (mut cut, now) = (false, clock::now());
    let views = match &changed {
        Some(jobs) => changed_jobs(&shared, &by, jobs, estimates),
        None => {
            let wanted = JobsQuery { detail: Detail::Listing, ..JobsQuery::default() };
            calls::jobs_with(&shared, &by, &wanted, estimates, |jobs| {
                cut = jobs.len() > ROWS_MAX;
                jobs.truncate(ROWS_MAX);
            })?
        }
    };
    let answer = || {
        let listed: HashSet<JobId> = views.iter().map(|job| job.id).collect();
        let unlisted = changed.iter().flatten().filter(|job| !listed.contains(*job));
        let gone = known_jobs(&shared, &by, unlisted);
        let mut rows: Vec<JobRow> = views.iter().map(JobRow::of).collect();
        mark_services(&shared, &shared.read(), &mut rows);
        json_answer(&Rows { seq, now, whole: changed.is_none(), cut, rows, gone })
    };
    // Many rows take long to write: connections of others that are on this thread do not wait for it.
    Ok(if views.len() > calls::SHORT_LIST { block_in_place(answer) } else { answer() })
}

/// Fills in where replicas of services are reached.
pub fn mark_services(shared: &Shared, state: &ClusterState, rows: &mut [JobRow]) {
    let gateways = shared.volatile.gateways.list(Instant::now());
    for row in rows.iter_mut().filter(|row| row.run) {
        let spec = state.jobs.get(&row.id).map(|job| &job.spec);
        row.service = spec.and_then(|spec| {
            let service = spec.launch.service.as_deref()?;
            let path = Service::path(spec.project(), &spec.name);
            Some(service_address::address(state, &gateways, service, &path))
        });
    }
}

/// Which of the jobs the caller may know of. The owner of a job that has left memory cannot be looked up: where jobs are
/// private, its number is told to nobody.
fn known_jobs<'j>(
    shared: &Shared,
    by: &Principal,
    jobs: impl Iterator<Item = &'j JobId>,
) -> Vec<JobId> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let is_known = |id: &&JobId| match state.jobs.get(*id) {
        Some(job) => viewer.job(job),
        None => !viewer.is_denied(PrivateKind::Jobs),
    };
    jobs.filter(is_known).copied().collect()
}

/// Which of the jobs are in the queue and shown to the caller, in the order of their numbers.
fn changed_jobs(
    shared: &Shared,
    by: &Principal,
    jobs: &HashSet<JobId>,
    estimates: Option<&Estimates>,
) -> Vec<JobView> {
    let mut records: Vec<JobId> = jobs.iter().copied().collect();
    records.sort_unstable();
    let mut listed = job_list::queued_records(shared, by, records, estimates, clock::now());
    listed.retain(|job| !job.state.is_ended());
    listed
}
