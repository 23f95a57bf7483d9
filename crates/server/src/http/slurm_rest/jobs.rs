//! Jobs: listed, submitted, changed and cancelled.

use super::client::{Client, RestResult};
use super::query::{self, Query};
use crate::http::batch_script::{self, BatchScript};
use crate::http::body_limits::HeldRequest;
use crate::http::{call_bounds, calls};
use crate::shared::long_calls::LongWork;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use serde::Deserialize;
use serde_json::Value;
use slurm::openapi::{rest, submit, update};
use slurm::option::signal;
use slurm::request::Draft;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Cancel, JobsQuery};
use wire::diagnostics::CallKind;

/// Everything is shown as it is now, with everything that there is to show.
const LISTING: &[&str] = &["update_time", "flags"];

pub async fn all(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, LISTING)?;
    let _timer = client.shared.volatile.counters.begin_call(CallKind::Jobs, &client.by);
    // All of them are looked through and written: that is as much work as a plan.
    let begun = calls::begin_long(&client.shared, &client.by, LongWork::Plan).await;
    let _long = begun.map_err(|why| client.refusal(&why))?;
    listed(&client, Vec::new())
}

pub async fn one(client: Client, Path(job): Path<String>) -> RestResult {
    let job = job_ref(&client, &job)?;
    let _timer = client.shared.volatile.counters.begin_call(CallKind::OneJob, &client.by);
    listed(&client, vec![job])
}

/// The job that a path names.
pub fn job_ref(client: &Client, job: &str) -> Result<JobRef, super::client::Refused> {
    let id = job.parse::<u32>().ok();
    let bad = || client.bad(&format!("{job}: expected the number of a job"));
    Ok(JobRef::whole(JobId(id.ok_or_else(bad)?)))
}

/// All jobs that are in memory, or those named.
fn listed(client: &Client, jobs: Vec<JobRef>) -> RestResult {
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
    /// The script, and the properties of the one job.
    fn parts(self) -> Result<(String, Value), String> {
        let job = match (self.job, self.jobs) {
            (job, None) => job.unwrap_or_default(),
            (None, Some(mut jobs)) if jobs.len() == 1 => jobs.remove(0),
            (None, Some(_)) => {
                return Err("jobs: several jobs at once are submitted by sbatch alone".to_owned());
            }
            (Some(_), Some(_)) => return Err("job and jobs: expected one of the two".to_owned()),
        };
        let own = job["script"].as_str().map(str::to_owned);
        let script = own.or(self.script).ok_or("script: expected the text of a batch script")?;
        Ok((script, job))
    }
}

pub async fn submit(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let wanted: Submit = read(&client, &body)?;
    let (script, job) = wanted.parts().map_err(|why| client.bad(&why))?;
    let read = || -> Result<Draft, String> {
        let options = submit::options(&job)?;
        let variables = submit::environment(&job)?;
        let script = BatchScript { script: &script, options, variables };
        let draft = batch_script::read(&script, &client.by, &client.shared.setup.hostname);
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

fn read<T: serde::de::DeserializeOwned>(
    client: &Client,
    body: &Bytes,
) -> Result<T, super::client::Refused> {
    call_bounds::check(body).map_err(|why| client.refusal(&why))?;
    serde_json::from_slice(body)
        .map_err(|error| client.bad(&format!("the request cannot be read: {error}")))
}

pub async fn update(
    client: Client,
    Path(job): Path<String>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let named = job_ref(&client, &job)?;
    let properties: Value = read(&client, &body)?;
    let changes = update::changes(&properties).map_err(|why| client.bad(&why))?;
    for change in changes {
        let call = Call::UpdateJob { job: named.clone(), change };
        if let Answer::Updated(results) = client.ask_with(Some(held.clone()), call).await?
            && let Some(why) = results.into_iter().find_map(|(_, result)| result.err())
        {
            return Err(client.refusal(&why));
        }
    }
    Ok(client.document(&rest::updated(&client.context(), &job)))
}

/// `?signal=` sends a signal instead; SIGKILL ends the job, as without it.
pub async fn cancel(client: Client, Path(job): Path<String>, query: Query) -> RestResult {
    query::check(&client, &query, &["signal", "flags"])?;
    let named = job_ref(&client, &job)?;
    let signal = match query.get("signal") {
        None => None,
        Some(word) => {
            let bad = || client.bad(&format!("signal: {word}: expected a signal, as TERM or 15"));
            Some(signal::number(word).ok_or_else(bad)?).filter(|number| *number != KILL)
        }
    };
    let id = named.id;
    let filter = JobFilter { jobs: vec![named], ..JobFilter::default() };
    let cancel = Cancel { filter, step: None, signal, batch_only: false, full: false };
    if let Answer::Cancelled(results) = client.ask(Call::Cancel(cancel)).await?
        && let Some(why) = results.into_iter().find_map(|result| result.refusal)
    {
        return Err(client.refusal(&why));
    }
    Ok(client.document(&rest::cancelled(&client.context(), id)))
}

const KILL: i32 = 9;
