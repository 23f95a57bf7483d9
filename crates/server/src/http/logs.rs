//! `GET /api/v1/logs`: the output of a run: from its node while it runs, afterwards as the server keeps it. That of a batch
//! job is its output file, which is read on its node; where that was, the books say once the job has left memory.

use crate::clock;
use crate::http::answer::answer_json;
use crate::logs::collector;
use crate::logs::log_key::{booked_attempt, booked_owner, log_key};
use crate::per_user::CountedUser;
use crate::shared::Shared;
use crate::show::job_view::{JobViews, ShownSteps};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use futures_util::{Stream, StreamExt};
use model::bounds::LOG_READERS;
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::reason::Refusal;
use model::record::JobRecord;
use model::run::LaunchKind;
use model::time::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use slurm::output::text::job_text;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{LogKey, RunLogs};
use tokio::task::block_in_place;
use tokio::time::timeout;
use wire::client::{Answer, Detail};
use wire::order::UserIds;
use wire::stream::StreamKind;

#[derive(Deserialize, JsonSchema)]
pub struct LogsQuery {
    job: u32,
    /// Counts from 1; the last attempt without it.
    attempt: Option<u32>,
    /// The node's index in the allocation.
    #[serde(default)]
    node: usize,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: bool,
    /// Only what came later, by the server's clock, of a log that the server keeps. In milliseconds since 1970.
    since_ms: Option<i64>,
    /// No more than so many bytes at the end of what is there now; not of a log that is followed.
    last: Option<u64>,
}

/// The bytes that one read of a kept log takes.
const PAGE_BYTES: usize = 256 << 10;

/// How long a node may take for the first bytes: an agent of an earlier version does not answer.
const FIRST_TIMEOUT: Duration = Duration::from_secs(20);

pub async fn logs(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<LogsQuery>,
) -> Response {
    let answered = output(&shared, &by, &query).await;
    answered.unwrap_or_else(|why| answer_json(&Answer::Refused(why)))
}

/// The output that is asked for, as bytes.
pub async fn output(
    shared: &Shared,
    by: &Principal,
    query: &LogsQuery,
) -> Result<Response, Refusal> {
    // An ended job is looked up in the books, which others may be reading.
    let key = block_in_place(|| asked_log(shared, by, query))?;
    let output_file = output_file(shared, key.attempt, &key.node)?;
    let since = query.since_ms.map(Timestamp::from_millis);
    if since.is_some() && output_file.is_some() {
        let why = "an output file does not say when a line was written: leave out the time";
        return Err(Refusal::Other(why.into()));
    }
    if since.is_some() || output_file.is_none() && !collector::is_running(shared, &key) {
        let reading = begin_reading(shared, by)?;
        shared.logs.pull(key.clone()).await;
        let length = block_in_place(|| shared.logs.store.len(&key)).unwrap_or(0);
        let from = query.last.map_or(0, |last| length.saturating_sub(last));
        let from = query.offset.max(from);
        return Ok(octets(kept(shared.logs.store.clone(), key, from, since, reading)));
    }
    let (offset, follow) = (query.offset, query.follow);
    let last = query.last.filter(|_| !follow);
    let kind = match output_file {
        Some((path, owner)) => StreamKind::OutputFile { path, owner, offset, follow, last },
        None => StreamKind::Log { offset, follow, last },
    };
    let Some((mut log, _)) = shared.agents.open_stream(&key.node, key.attempt, kind, by.uid) else {
        let why = format!("node {} does not answer; its logs are there", key.node);
        return Err(Refusal::Other(why));
    };

    // What cannot be read at all is said in the answer; a stream can only break off.
    let first = if follow { Ok(None) } else { timeout(FIRST_TIMEOUT, log.next()).await };
    let Ok(first) = first else {
        let why = format!("node {} did not read it within {} s", key.node, FIRST_TIMEOUT.as_secs());
        return Err(Refusal::Other(why));
    };
    if let Some(Err(why)) = first {
        return Err(Refusal::Other(why.to_string()));
    }
    let rest = futures_util::stream::unfold(log, |mut log| async move {
        let chunk = log.next().await?;
        Some((chunk.map_err(io::Error::other), log))
    });
    let first = first.into_iter().map(|chunk| chunk.map_err(io::Error::other));
    Ok(octets(futures_util::stream::iter(first).chain(rest)))
}

/// The output file of a batch job, and its owner; `None` for any other. A file in a folder that the job has for itself is not on the
/// node's own file system, where another's may have its name.
fn output_file(
    shared: &Shared,
    attempt: AttemptId,
    node: &str,
) -> Result<Option<(String, UserIds)>, Refusal> {
    let found = match file_in_memory(shared, attempt.job) {
        Some(found) => found,
        None => booked_file(shared, attempt)?,
    };
    let Some((stdout, owner)) = found else { return Ok(None) };
    let private = shared.read().config.site.on(node).private;
    let path = Path::new(&stdout);
    if private.iter().flat_map(|own| &own.dirs).any(|folder| path.starts_with(folder)) {
        let text = format!("{stdout} is in a folder that the job has for itself");
        return Err(Refusal::Other(text));
    }
    Ok(Some((stdout, owner)))
}

/// What a job that is in memory has as its output file, if it has one; `None` of a job that is not there.
fn file_in_memory(shared: &Shared, job: JobId) -> Option<Option<(String, UserIds)>> {
    let state = shared.read();
    let job = state.jobs.get(&job)?;
    if job.spec.launch.kind != LaunchKind::Batch {
        return Some(None);
    }
    let cache = RefCell::default();
    let views = JobViews::new(shared, &state, clock::now(), Detail::Full, &cache);
    let view = views.with_steps(ShownSteps::None).job(job, None);
    let owner = &job.spec.owner;
    let ids = UserIds {
        name: owner.name.clone(),
        uid: owner.uid,
        gid: owner.gid,
        groups: owner.groups.clone(),
    };
    Some(job_text::streams(&view).map(|streams| (streams.stdout, ids)))
}

/// The output file of an attempt that only the books have. Its owner's groups are the node's own.
fn booked_file(shared: &Shared, attempt: AttemptId) -> Result<Option<(String, UserIds)>, Refusal> {
    let record = booked_attempt(shared, attempt)?;
    let Some(record) = record.filter(|record| record.kind == LaunchKind::Batch) else {
        return Ok(None);
    };
    let JobRecord { user, uid, gid, streams, .. } = record;
    let owner = UserIds { name: user, uid, gid, groups: vec![gid] };
    Ok(streams.map(|streams| (streams.stdout, owner)))
}

/// No more than `last` bytes at the end of the output file of a batch job; `None` of any other run. It is read with the rights of
/// the job's owner, for those who may act as the owner, or may read the owner's texts once the job has left memory.
pub async fn batch_output(
    shared: &Shared,
    by: &Principal,
    key: &LogKey,
    last: u64,
) -> Result<Option<Vec<u8>>, Refusal> {
    let known = shared.read().jobs.get(&key.attempt.job).cloned();
    let act = known.as_deref().map_or(Act::ReadTextsOf(key.owner), Act::ActAsOwner);
    authorise(&shared.read(), by, act)?;
    let Some((path, owner)) = output_file(shared, key.attempt, &key.node)? else {
        return Ok(None);
    };
    let unread = |why: String| {
        Refusal::Other(format!("the output of this job is in {path} on {}: {why}", key.node))
    };
    let file = path.clone();
    let kind =
        StreamKind::OutputFile { path: file, owner, offset: 0, follow: false, last: Some(last) };
    let Some((mut log, _)) = shared.agents.open_stream(&key.node, key.attempt, kind, by.uid) else {
        return Err(unread("the node does not answer".to_owned()));
    };
    let mut bytes = Vec::new();
    // The file may grow meanwhile.
    while (bytes.len() as u64) < last {
        match timeout(FIRST_TIMEOUT, log.next()).await {
            Ok(Some(Ok(chunk))) => bytes.extend(chunk),
            Ok(Some(Err(why))) => return Err(unread(why)),
            Ok(None) => break,
            Err(_) => return Err(unread("the node did not read it in time".to_owned())),
        }
    }
    Ok(Some(bytes))
}

/// Counts the reading of a kept log: a client that does not take its page has it held in memory.
fn begin_reading(shared: &Shared, by: &Principal) -> Result<CountedUser, Refusal> {
    let most = LOG_READERS.most;
    let counted = shared.volatile.log_readers.enter(shared.counted_user(by.uid), most);
    counted.ok_or_else(|| Refusal::InvalidValue {
        what: LOG_READERS.what.into(),
        value: (most + 1).to_string(),
        expected: format!("at most {most}"),
    })
}

/// The kept log since a time, without its first `skip` bytes, page by page as the client takes it. It counts as being read
/// until the stream is dropped.
fn kept(
    store: Arc<dyn RunLogs>,
    key: LogKey,
    skip: u64,
    since: Option<Timestamp>,
    reading: CountedUser,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    futures_util::stream::unfold((0, skip, reading), move |(place, skip, reading)| {
        let (store, key) = (store.clone(), key.clone());
        async move {
            let page = match block_in_place(|| store.read(&key, place, PAGE_BYTES)) {
                Ok(page) if page.chunks.is_empty() => return None,
                Ok(page) => page,
                Err(error) => return Some((Err(error), (place, skip, reading))),
            };
            let chunks = page.chunks.into_iter();
            let chunks = chunks.filter(|chunk| since.is_none_or(|since| chunk.at > since));
            let mut bytes: Vec<u8> = chunks.flat_map(|chunk| chunk.bytes).collect();
            let beyond = skip.saturating_sub(bytes.len() as u64);
            bytes.drain(..(skip - beyond) as usize);
            Some((Ok(bytes), (page.next, beyond, reading)))
        }
    })
}

fn octets(stream: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(stream));
    let kind = header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The log that is asked for, if this principal may have it.
fn asked_log(shared: &Shared, by: &Principal, query: &LogsQuery) -> Result<LogKey, Refusal> {
    let id = JobId(query.job);
    let known = shared.read().jobs.get(&id).cloned();
    match known {
        Some(job) => authorise(&shared.read(), by, Act::ActAsOwner(&job))?,
        None => {
            let owner = booked_owner(shared, id)?;
            let allowed = authorise(&shared.read(), by, Act::ReadTextsOf(owner));
            allowed.map_err(|_| Refusal::UnknownJob(id.to_string()))?;
        }
    }
    log_key(shared, id, query.attempt, query.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};
    use model::id::AttemptId;

    #[test]
    fn kept_logs_that_one_user_reads_at_once_have_a_bound_and_each_counts_until_its_stream_ends() {
        let server = TestServer::without_writer();
        let (shared, ada) = (&server.shared, user());
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let key = LogKey { attempt, owner: ada.uid, node: "n1".into() };
        let begin = || begin_reading(shared, &ada);
        let open = |reading| kept(shared.logs.store.clone(), key.clone(), 0, None, reading);
        let mut streams: Vec<_> =
            (0..LOG_READERS.most).map(|_| open(begin().expect("a reader"))).collect();
        let refused = begin().err().expect("one too many");
        assert!(refused.to_string().contains(LOG_READERS.what), "{refused}");
        let bob = Principal { uid: ada.uid + 1, ..ada.clone() };
        assert!(begin_reading(shared, &bob).is_ok(), "another user has his own");
        streams.pop();
        assert!(begin().is_ok(), "one has ended");
    }
}
