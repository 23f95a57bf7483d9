//! The logs of runs, as the server keeps them; of a batch job, the end of its output file.

use super::answer::{ApiResult, Json, Refused};
use super::run_facts::RunFacts;
use super::run_list;
use crate::clock;
use crate::http::calls;
use crate::http::logs::batch_output;
use crate::logs::log_key::log_key;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::dstack_id::submission_id;
use crate::show::history;
use axum::Extension;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::authorise::{Act, authorise};
use dstack::api::error::ApiError;
use dstack::api::stored::{LogEvent, Logs, PollLogs};
use dstack::occurrence::{self, Target};
use model::principal::Principal;
use model::reason::Refusal;
use model::record::HistoryFilter;
use model::time::Timestamp;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use store::{LogChunk, LogKey, LogPage, RunLogs};
use tokio::task::block_in_place;

/// The most lines of an answer.
const LINES_MAX: usize = 1000;

/// About how much one answer reads.
const PAGE_BYTES: usize = 1 << 20;

pub async fn poll(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<PollLogs>,
) -> ApiResult<Logs> {
    let long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    let run = run_list::by_name(&shared, &by, &project, &wanted.run_name)?;
    let run = run.ok_or_else(|| Refused::not_found("Run not found"))?;
    authorise(&shared.read(), &by, Act::ReadTextsOf(run.owner_uid))?;
    if wanted.diagnose {
        return Ok(Json(block_in_place(|| diagnosis(&shared, &by, &run, &wanted))?));
    }
    // What follows may wait for a node.
    drop(long);
    let Some(key) = log_of(&shared, &run, &wanted.job_submission_id) else {
        return Ok(Json(Logs::default()));
    };
    match batch_output(&shared, &by, &key, PAGE_BYTES as u64).await {
        Ok(None) => {}
        Ok(Some(bytes)) => return Ok(Json(of_output_file(&bytes, &wanted))),
        Err(why) => return Ok(Json(of_output_file(format!("{why}\n").as_bytes(), &wanted))),
    }
    let from = match &wanted.next_token {
        Some(token) => token.parse().map_err(|()| {
            let text = format!("{token:?}: expected the token of an earlier answer");
            ApiError::invalid_body(&["next_token"], text)
        })?,
        None => {
            shared.logs.pull(key.clone()).await;
            LinePlace::default()
        }
    };
    let lines = Lines::of(&wanted);
    let store = &*shared.logs.store;
    // A page may be of a million lines, and the whole log is read for its last ones.
    let _reading = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    let read = block_in_place(|| {
        if wanted.descending { lines.last(store, &key) } else { lines.first(store, &key, from) }
    });
    let read =
        read.map_err(|error| Refused::because(format!("the log cannot be read: {error}")))?;
    Ok(Json(read))
}

/// A place in a kept log: where a page begins, and how many of its lines were answered already. A token of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LinePlace {
    page: u64,
    lines: usize,
}

impl std::str::FromStr for LinePlace {
    type Err = ();

    fn from_str(token: &str) -> Result<Self, ()> {
        let (page, lines) = token.split_once('.').unwrap_or((token, "0"));
        let number = |text: &str| text.parse().map_err(|_| ());
        Ok(Self { page: page.parse().map_err(|_| ())?, lines: number(lines)? })
    }
}

impl std::fmt::Display for LinePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.page, self.lines)
    }
}

/// Which lines of a log are wanted, and how many.
struct Lines {
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    most: usize,
}

impl Lines {
    fn of(wanted: &PollLogs) -> Self {
        Self {
            since: wanted.start_time.map(Timestamp::from),
            until: wanted.end_time.map(Timestamp::from),
            most: wanted.limit.map_or(LINES_MAX, |limit| limit as usize).min(LINES_MAX),
        }
    }

    /// The lines of a page, none of them copied yet: a page may have a million, of which an answer has few.
    fn within<'p>(&self, page: &'p LogPage) -> impl Iterator<Item = Line<'p>> {
        let within = |chunk: &&LogChunk| {
            self.since.is_none_or(|since| chunk.at > since)
                && self.until.is_none_or(|until| chunk.at <= until)
        };
        page.chunks.iter().filter(within).flat_map(|chunk| lines(chunk.at, &chunk.bytes))
    }

    /// The lines from a place on, and where the next ones are.
    fn first(&self, store: &dyn RunLogs, key: &LogKey, from: LinePlace) -> io::Result<Logs> {
        let page = store.read(key, from.page, PAGE_BYTES)?;
        let mut left = self.within(&page).skip(from.lines).peekable();
        let logs: Vec<LogEvent> = left.by_ref().take(self.most).map(event).collect();
        let next = if left.peek().is_some() {
            Some(LinePlace { page: from.page, lines: from.lines + logs.len() })
        } else {
            let more = !store.read(key, page.next, 1)?.chunks.is_empty();
            more.then_some(LinePlace { page: page.next, lines: 0 })
        };
        Ok(Logs { logs, external_url: None, next_token: next.map(|next| next.to_string()) })
    }

    /// The last lines, the newest first.
    fn last(&self, store: &dyn RunLogs, key: &LogKey) -> io::Result<Logs> {
        let mut newest = VecDeque::new();
        let mut place = 0;
        loop {
            let page = store.read(key, place, PAGE_BYTES)?;
            if page.chunks.is_empty() {
                break;
            }
            newest.extend(last_of(self.within(&page), self.most).into_iter().map(event));
            newest.drain(..newest.len().saturating_sub(self.most));
            place = page.next;
        }
        let logs = newest.into_iter().rev().collect();
        Ok(Logs { logs, external_url: None, next_token: None })
    }
}

/// The last lines of an output file. It does not say when they were written, so that no time leaves them out.
fn of_output_file(bytes: &[u8], wanted: &PollLogs) -> Logs {
    let last = last_of(lines(clock::now(), bytes), Lines::of(wanted).most);
    let mut logs: Vec<LogEvent> = last.into_iter().map(event).collect();
    if wanted.descending {
        logs.reverse();
    }
    Logs { logs, external_url: None, next_token: None }
}

/// What happened to a submission, and why it ended: here no agent of its own writes a log about a run.
fn diagnosis(
    shared: &Shared,
    by: &Principal,
    run: &RunFacts,
    wanted: &PollLogs,
) -> Result<Logs, Refusal> {
    let filter = HistoryFilter {
        runs: run.run.into_iter().collect(),
        duplicates: true,
        ..HistoryFilter::default()
    };
    if filter.runs.is_empty() {
        return Ok(Logs::default());
    }
    let is_asked = |target: &Target| match target {
        Target::Job { run, restarts, rank, .. } => {
            submission_id(&run.to_string(), *restarts, *rank) == wanted.job_submission_id
        }
        _ => false,
    };
    let told = occurrence::of_records(history::history(shared, by, &filter)?);
    let told = told.into_iter().filter(|one| one.targets.iter().any(is_asked));
    let mut lines: Vec<(Timestamp, String)> = told.map(|one| (one.at, one.message)).collect();
    if let (Some(ended), false) = (run.ended, run.summary.error.is_empty()) {
        lines.push((ended, run.summary.error.clone()));
    }
    let event = |(at, line): (Timestamp, String)| LogEvent {
        timestamp: at.into(),
        log_source: "stdout".to_owned(),
        message: STANDARD.encode(line + "\n"),
    };
    let mut logs: Vec<LogEvent> = lines.into_iter().map(event).collect();
    if wanted.descending {
        logs.reverse();
    }
    logs.truncate(Lines::of(wanted).most);
    Ok(Logs { logs, external_url: None, next_token: None })
}

/// Attempts of a run, and ids of their parts, among which one is looked for: the newest.
const ATTEMPTS_MAX: usize = 10_000;
const IDS_MAX: usize = 1_000_000;

/// The log of one node's part of one attempt, by the id that the client was given for it.
fn log_of(shared: &Shared, run: &RunFacts, submission: &str) -> Option<LogKey> {
    if !run.replicas.is_empty() {
        return run.replicas.iter().find_map(|replica| log_of(shared, replica, submission));
    }
    let id = run.run?.to_string();
    // An earlier attempt may have had more nodes, but none more than there are.
    let most = shared.read().nodes.len() as u32;
    let ranks = 0..(run.parts.len() as u32).max(run.nodes_min.min(most));
    let find = || {
        (0..=run.restarts)
            .rev()
            .take(ATTEMPTS_MAX)
            .flat_map(|restarts| ranks.clone().map(move |rank| (restarts, rank)))
            .take(IDS_MAX)
            .find(|(restarts, rank)| {
                submission_id(&id, *restarts, run.replica + *rank) == submission
            })
    };
    let (restarts, rank) = block_in_place(find)?;
    block_in_place(|| log_key(shared, run.job, Some(restarts + 1), rank as usize)).ok()
}

/// When a line came, and its bytes.
type Line<'p> = (Timestamp, &'p [u8]);

/// The lines of what came together; one that goes on in the next chunk is two.
fn lines(at: Timestamp, bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(move |line| (at, line))
}

/// No more than so many, the last ones; no more are held meanwhile.
fn last_of<'p>(lines: impl Iterator<Item = Line<'p>>, most: usize) -> VecDeque<Line<'p>> {
    let mut last = VecDeque::new();
    for line in lines {
        last.push_back(line);
        if last.len() > most {
            last.pop_front();
        }
    }
    last
}

fn event((at, line): Line<'_>) -> LogEvent {
    LogEvent {
        timestamp: at.into(),
        log_source: "stdout".to_owned(),
        message: STANDARD.encode(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{AttemptId, JobId};
    use store::{FaultyDisk, LogFiles};

    fn log_of_lines(count: usize) -> (LogFiles, LogKey) {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let key = LogKey { attempt, owner: 1, node: "n1".into() };
        let logs = LogFiles::new(Arc::new(FaultyDisk::default())).expect("logs");
        // A record has many lines, and all of them more than one page.
        let lines: Vec<String> = (0..count).map(|line| format!("{line:<2047}\n")).collect();
        for piece in lines.chunks(100) {
            logs.append(&key, Timestamp(1), piece.concat().as_bytes()).expect("written");
        }
        (logs, key)
    }

    fn numbers(logs: &Logs) -> Vec<usize> {
        let text = |event: &LogEvent| STANDARD.decode(&event.message).expect("base64");
        let number = |line: Vec<u8>| String::from_utf8(line).expect("text").trim().parse();
        logs.logs.iter().map(|event| number(text(event)).expect("a number")).collect()
    }

    fn most(most: usize) -> Lines {
        Lines { since: None, until: None, most }
    }

    #[test]
    fn last_lines_are_those_at_the_end_of_a_log_of_several_pages() {
        let (logs, key) = log_of_lines(2000);
        let last = most(3).last(&logs, &key).expect("lines");
        assert_eq!(numbers(&last), [1999, 1998, 1997]);
    }

    #[test]
    fn no_more_lines_are_held_than_an_answer_has() {
        let (bytes, count) = (b"\n".repeat(1 << 20), 3);
        let last = last_of(lines(Timestamp(1), &bytes), count);
        assert_eq!(last.len(), count);
        assert!(last.capacity() <= 2 * (count + 1), "{}", last.capacity());
        assert!(last_of(lines(Timestamp(1), &bytes), 0).is_empty());
        let wanted = PollLogs { limit: Some(2), ..PollLogs::default() };
        assert_eq!(numbers(&of_output_file(b"1\n2\n3\n", &wanted)), [2, 3]);
        let wanted = PollLogs { descending: true, ..wanted };
        assert_eq!(numbers(&of_output_file(b"1\n2\n3\n", &wanted)), [3, 2]);
    }

    #[test]
    fn limit_is_kept_and_the_token_goes_on_where_it_ended() {
        let (logs, key) = log_of_lines(1200);
        let (mut from, mut read) = (LinePlace::default(), Vec::new());
        loop {
            let answer = most(70).first(&logs, &key, from).expect("lines");
            assert!(answer.logs.len() <= 70);
            read.extend(numbers(&answer));
            let Some(token) = answer.next_token else { break };
            from = token.parse().expect("our own token");
        }
        assert_eq!(read, (0..1200).collect::<Vec<_>>());
    }
}
