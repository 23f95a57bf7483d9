//! Jobs: listed, submitted, allocated, changed and cancelled.

use super::client::{Client, Refused, RestResult};
use super::query::{self, Query};
use crate::http::batch_script::{self, BatchScript, Origin};
use crate::http::body_limits::HeldRequest;
use crate::http::calls;
use crate::shared::long_calls::LongWork;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use model::change::{JobFilter, JobRef};
use model::hostlist;
use serde::Deserialize;
use serde_json::Value;
use slurm::openapi::{rest, submit, update};
use slurm::option::signal;
use slurm::request::Draft;
use slurm::words;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Cancel, CancelResult, JobsQuery};
use wire::diagnostics::CallKind;

/// Everything is shown as it is now, with everything that there is to show.
const LISTING: &[&str] = &["update_time", "flags"];

pub async fn all(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, LISTING)?;
    every(&client).await
}

async fn every(client: &Client) -> RestResult {
    let _timer = client.shared.volatile.counters.begin_call(CallKind::Jobs, &client.by);
    listed(client, Vec::new()).await
}

/// The jobs of `?job_id=1,2_3`, or all. Slurm describes whole jobs here too.
pub async fn states(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, &["job_id"])?;
    let ids = query::list(&query, "job_id");
    let jobs: Vec<JobRef> = ids.iter().map(|id| job_ref(&client, id)).collect::<Result<_, _>>()?;
    if jobs.is_empty() {
        return every(&client).await;
    }
    let _timer = client.shared.volatile.counters.begin_call(CallKind::Jobs, &client.by);
    listed(&client, jobs).await
}

pub async fn one(client: Client, Path(job): Path<String>) -> RestResult {
    let job = job_ref(&client, &job)?;
    let _timer = client.shared.volatile.counters.begin_call(CallKind::OneJob, &client.by);
    listed(&client, vec![job]).await
}

/// The job that a path names: `12`, the task `12_3` of an array, the component `12+1`. A set of tasks is not taken: a short text could
/// stand for more of them than the server would hold.
pub fn job_ref(client: &Client, job: &str) -> Result<JobRef, Refused> {
    let is_one = job.chars().all(|c| c.is_ascii_digit() || "_+".contains(c));
    let named = Some(job).filter(|_| is_one).and_then(JobRef::parse);
    named.ok_or_else(|| client.bad(&format!("{job}: expected the number of a job")))
}

/// All jobs that are in memory, or those named: an array with each of its tasks. Many of them are looked through and written: that is as
/// much work as a plan.
async fn listed(client: &Client, jobs: Vec<JobRef>) -> RestResult {
    let _long = if calls::names_few(&client.shared, &jobs) {
        None
    } else {
        let begun = calls::begin_long(&client.shared, &client.by, LongWork::Plan).await;
        Some(begun.map_err(|why| client.refusal(&why))?)
    };
    let filter = JobFilter { jobs, all_states: true, ..JobFilter::default() };
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    let views = calls::jobs(&client.shared, &client.by, &wanted, |_| ());
    let views = views.map_err(|why| client.refusal(&why))?;
    let context = client.context();
    client.send(block_in_place(|| rest::jobs(&context, &views)))
}

/// A job with its script beside it, or in it.
#[derive(Deserialize)]
struct Submit {
    #[serde(default)]
    script: Option<String>,
    #[serde(default)]
    job: Option<Value>,
    #[serde(default)]
    jobs: Option<Vec<Value>>,
}

impl Submit {
    /// The script, and the properties of the job, or of each component of a heterogeneous one.
    fn parts(self) -> Result<(String, Vec<Value>), String> {
        let jobs = match (self.job, self.jobs) {
            (job, None) => vec![job.unwrap_or_default()],
            (None, Some(jobs)) => jobs,
            (Some(_), Some(_)) => return Err("job and jobs: expected one of the two".to_owned()),
        };
        let own = jobs.first().map(submit::script).transpose()?.flatten().map(str::to_owned);
        let script = own.or(self.script).ok_or("script: expected the text of a batch script")?;
        Ok((script, jobs))
    }
}

/// The most components of a heterogeneous job.
const COMPONENTS_MAX: usize = 128;

/// The options of a job, or of several components, which a command line has a `:` between.
fn options(jobs: &[Value]) -> Result<Vec<String>, String> {
    if jobs.is_empty() || jobs.len() > COMPONENTS_MAX {
        return Err(format!("jobs: {}: expected from 1 to {COMPONENTS_MAX}", jobs.len()));
    }
    let mut options = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        if at > 0 {
            options.push(":".to_owned());
        }
        options.extend(submit::options(job)?);
    }
    Ok(options)
}

pub async fn submit(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let wanted: Submit = client.read(&body)?;
    let (script, jobs) = wanted.parts().map_err(|why| client.bad(&why))?;
    let read = || -> Result<Draft, String> {
        let options = options(&jobs)?;
        submit::check_components(&script, &jobs)?;
        let variables = submit::environment(jobs.first().unwrap_or(&Value::Null))?;
        let script = BatchScript { script: &script, options, variables };
        let draft = batch_script::read(&script, Origin::of(&client.shared, &client.by));
        draft.map_err(|lines| lines.join("; "))
    };
    let draft = block_in_place(read).map_err(|why| client.bad(&why))?;
    let call = Call::Submit(Box::new(draft.submission));
    match client.ask_with(Some(held), call).await? {
        Answer::Submitted { job, .. } => {
            Ok(client.document(&rest::submitted(&client.context(), job)))
        }
        _ => Err(client.unexpected()),
    }
}

/// The job of an allocation, or its components.
#[derive(Deserialize)]
struct Allocate {
    #[serde(default)]
    job: Option<Value>,
    #[serde(default)]
    hetjob: Option<Vec<Value>>,
}

pub async fn allocate(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let wanted: Allocate = client.read(&body)?;
    let jobs = match (wanted.job, wanted.hetjob) {
        (job, None) => vec![job.unwrap_or_default()],
        (None, Some(jobs)) => jobs,
        (Some(_), Some(_)) => return Err(client.bad("job and hetjob: expected one of the two")),
    };
    let read = || -> Result<Draft, String> {
        submit::check_allocation(&jobs)?;
        let options = options(&jobs)?;
        let draft = batch_script::allocation(options, Origin::of(&client.shared, &client.by));
        draft.map_err(|lines| lines.join("; "))
    };
    let draft = block_in_place(read).map_err(|why| client.bad(&why))?;
    let call = Call::Submit(Box::new(draft.submission));
    match client.ask_with(Some(held), call).await? {
        Answer::Submitted { job, .. } => {
            Ok(client.document(&rest::allocated(&client.context(), job)))
        }
        _ => Err(client.unexpected()),
    }
}

pub async fn update(
    client: Client,
    Path(job): Path<String>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let named = job_ref(&client, &job)?;
    let properties: Value = client.read(&body)?;
    let changes = update::changes(&properties).map_err(|why| client.bad(&why))?;
    for change in changes {
        let call = Call::UpdateJob { job: named.clone(), change };
        if let Answer::Updated(results) = client.ask_with(Some(held.clone()), call).await?
            && let Some(why) = results.into_iter().find_map(|(_, result)| result.err())
        {
            return Err(client.refusal(&why));
        }
    }
    Ok(client.document(&rest::updated(&client.context(), named.id)))
}

/// The signal that a job is sent instead of being cancelled.
fn read_signal(client: &Client, word: Option<&str>) -> Result<Option<i32>, Refused> {
    let Some(word) = word else { return Ok(None) };
    let bad = || client.bad(&format!("signal: {word}: expected a signal, as TERM or 15"));
    Ok(Some(signal::number(word).ok_or_else(bad)?).filter(|number| *number != KILL))
}

/// Sets what the flags of a cancel ask for. Any other would do nothing here.
fn set_flags(client: &Client, flags: &[String], cancel: &mut Cancel) -> Result<(), Refused> {
    for flag in flags {
        match flag.as_str() {
            "BATCH_JOB" => cancel.batch_only = true,
            "FULL_JOB" => cancel.full = true,
            _ => {
                let text = format!("flags: {flag}: expected BATCH_JOB or FULL_JOB");
                return Err(client.bad(&text));
            }
        }
    }
    Ok(())
}

/// `?signal=` sends a signal instead; SIGKILL ends the job, as without it.
pub async fn cancel(client: Client, Path(job): Path<String>, query: Query) -> RestResult {
    query::check(&client, &query, &["signal", "flags"])?;
    let named = job_ref(&client, &job)?;
    let signal = read_signal(&client, query.get("signal").map(String::as_str))?;
    let id = named.id;
    let filter = JobFilter { jobs: vec![named], ..JobFilter::default() };
    let mut cancel = Cancel { filter, step: None, signal, batch_only: false, full: false };
    set_flags(&client, &query::list(&query, "flags"), &mut cancel)?;
    if let Answer::Cancelled(results) = client.ask(Call::Cancel(cancel)).await?
        && let Some(why) = results.into_iter().find_map(|result| result.refusal)
    {
        return Err(client.refusal(&why));
    }
    Ok(client.document(&rest::cancelled(&client.context(), id)))
}

const KILL: i32 = 9;

/// Which jobs are cancelled together. What is not known here is refused: more would be cancelled than was meant.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Chosen {
    account: Option<String>,
    job_name: Option<String>,
    jobs: Vec<Value>,
    job_state: Vec<String>,
    nodes: Option<String>,
    partition: Option<String>,
    qos: Option<String>,
    reservation: Option<String>,
    signal: Option<String>,
    user_name: Option<String>,
    flags: Vec<String>,
}

impl Chosen {
    fn filter(self, client: &Client) -> Result<JobFilter, Refused> {
        let job = |value: Value| match value {
            Value::String(text) => job_ref(client, &text),
            other => job_ref(client, &other.to_string()),
        };
        let state = |word: String| {
            let known = words::job::parse(&word);
            known.ok_or_else(|| client.bad(&format!("job_state: {word}: expected a state of jobs")))
        };
        let nodes = self.nodes.map(|nodes| hostlist::expand(&nodes)).transpose();
        let one = |name: Option<String>| name.into_iter().collect::<Vec<_>>();
        let filter = JobFilter {
            jobs: self.jobs.into_iter().map(job).collect::<Result<_, _>>()?,
            states: self.job_state.into_iter().map(state).collect::<Result<_, _>>()?,
            nodes: nodes.map_err(|error| client.bad(&error.to_string()))?.unwrap_or_default(),
            accounts: one(self.account),
            names: one(self.job_name),
            partitions: one(self.partition),
            qos: one(self.qos),
            reservations: one(self.reservation),
            users: one(self.user_name),
            ..JobFilter::default()
        };
        let chosen = [
            &filter.accounts,
            &filter.names,
            &filter.nodes,
            &filter.partitions,
            &filter.qos,
            &filter.reservations,
            &filter.users,
        ];
        let is_any = filter.jobs.is_empty() && filter.states.is_empty();
        if is_any && chosen.into_iter().all(Vec::is_empty) {
            return Err(client.bad("expected jobs, or what they are chosen by"));
        }
        Ok(filter)
    }
}

/// Cancels, or signals, all jobs that a document chooses.
pub async fn cancel_many(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let mut chosen: Chosen = client.read(&body)?;
    let flags = std::mem::take(&mut chosen.flags);
    let signal = read_signal(&client, chosen.signal.as_deref())?;
    let filter = chosen.filter(&client)?;
    let mut cancel = Cancel { filter, step: None, signal, batch_only: false, full: false };
    set_flags(&client, &flags, &mut cancel)?;
    let results = match client.ask_with(Some(held), Call::Cancel(cancel)).await? {
        Answer::Cancelled(results) => results,
        _ => return Err(client.unexpected()),
    };
    let shown = |one: CancelResult| (one.job, one.refusal.as_ref().map(words::refusal::text));
    let shown: Vec<(String, Option<String>)> = results.into_iter().map(shown).collect();
    Ok(client.document(&rest::cancelled_jobs(&client.context(), &shown)))
}
