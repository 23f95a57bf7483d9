//! What `sluice top` asks of the server, on a thread of its own, so that a slow answer holds up no key.

use super::log_lines;
use super::snapshot::Snapshot;
use crate::client::Client;
use crate::command::dstack::{ask, unexpected};
use crate::command::explain;
use crate::command::verb::VerbError;
use model::change::{JobChange, JobFilter, JobRef};
use model::id::JobId;
use model::run::Hold;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel, Detail, JobsQuery};
use wire::job_list::JobList;

/// A look that took long is followed by a pause of so many times as long: looking takes neither side more than a small part
/// of a core, however large the cluster is.
const PAUSE_FACTOR: u32 = 40;
/// One slow answer, as of a server that just came back, leaves no screen without news for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How much of the end of a log is asked for.
const LOG_BYTES: usize = 32 << 10;

/// What is shown, and so asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The user whose jobs alone are shown.
    pub user: Option<String>,
    /// The job whose log is shown.
    pub log: Option<JobId>,
}

#[derive(Debug, PartialEq)]
pub enum Request {
    Look(Scope),
    Cancel {
        job: JobRef,
        shown: String,
    },
    Hold {
        job: JobRef,
        shown: String,
    },
    Release {
        job: JobRef,
        shown: String,
    },
    /// By the word that `sluice explain` takes.
    Explain(String),
}

pub enum Reply {
    Snapshot(Box<Snapshot>),
    Log {
        job: JobId,
        lines: Vec<String>,
    },
    Explained(String),
    /// How an action went.
    Told(String),
    /// The server did not answer.
    Lost(String),
}

/// Looks again and again, and does what is asked for, until whoever takes the replies is gone.
pub fn run(
    mut client: Client,
    mut scope: Scope,
    every: Duration,
    requests: &Receiver<Request>,
    reply: &dyn Fn(Reply) -> bool,
) {
    let mut is_first = true;
    loop {
        let mut pause = every;
        // The first look was made before the screen was taken.
        if !std::mem::take(&mut is_first) {
            let begun = Instant::now();
            let looked = match snapshot(&mut client, scope.clone()) {
                Ok(snapshot) => {
                    pause = every.max((begun.elapsed() * PAUSE_FACTOR).min(LONGEST_PAUSE));
                    Reply::Snapshot(Box::new(snapshot))
                }
                Err(error) => Reply::Lost(error.to_string()),
            };
            if !reply(looked) {
                return;
            }
        }
        if let Some(job) = scope.log {
            reply(Reply::Log { job, lines: log(&client, job) });
        }
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let first = match requests.recv_timeout(left) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let before = scope.clone();
            let mut changed = false;
            for request in std::iter::once(first).chain(requests.try_iter()) {
                match request {
                    Request::Look(next) => scope = next,
                    other => {
                        let (said, changes) = act(&mut client, other);
                        changed |= changes;
                        reply(said);
                    }
                }
            }
            if changed || before.user != scope.user {
                break;
            }
            if let Some(job) = scope.log.filter(|_| before.log != scope.log) {
                reply(Reply::Log { job, lines: log(&client, job) });
            }
        }
    }
}

/// Does one thing, and says how it went, and whether the cluster may look different afterwards.
fn act(client: &mut Client, request: Request) -> (Reply, bool) {
    let done = match request {
        Request::Look(_) => return (Reply::Told(String::new()), true),
        Request::Explain(word) => {
            let text = explain::text_of(client, &word).unwrap_or_else(|error| error.to_string());
            return (Reply::Explained(text), false);
        }
        Request::Cancel { job, shown } => {
            let filter = JobFilter { jobs: vec![job], ..JobFilter::default() };
            let cancel =
                Cancel { filter, step: None, signal: None, batch_only: false, full: false };
            (shown, "cancelled", client.call(Call::Cancel(cancel)))
        }
        Request::Hold { job, shown } => {
            let change = JobChange::Hold { by: Hold::Admin };
            (shown, "held", client.call(Call::UpdateJob { job, change }))
        }
        Request::Release { job, shown } => {
            let change = JobChange::Release;
            (shown, "released", client.call(Call::UpdateJob { job, change }))
        }
    };
    let (shown, word, answer) = done;
    let refusal = match answer {
        Ok(Answer::Cancelled(results)) => results.into_iter().find_map(|result| result.refusal),
        Ok(Answer::Updated(results)) => results.into_iter().find_map(|(_, result)| result.err()),
        Ok(Answer::Refused(why)) => Some(why),
        Ok(_) => None,
        Err(error) => return (Reply::Lost(error.to_string()), false),
    };
    let told = match refusal {
        Some(why) => format!("Job {shown}: {why}"),
        None => format!("Job {shown} {word}"),
    };
    (Reply::Told(told), true)
}

pub fn snapshot(client: &mut Client, scope: Scope) -> Result<Snapshot, VerbError> {
    let filter = JobFilter { users: scope.user.into_iter().collect(), ..JobFilter::default() };
    // Starts are those of the last plan: a forecast of each look would be work for the server.
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    let jobs = match ask(client, Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => jobs,
        other => return Err(unexpected(&other)),
    };
    match ask(client, Call::Cluster)? {
        Answer::Cluster(cluster) => Ok(Snapshot::new(cluster, jobs)),
        other => Err(unexpected(&other)),
    }
}

/// The last lines that a job wrote on its first node, or one that says why there are none.
pub fn log(client: &Client, job: JobId) -> Vec<String> {
    let path = format!("/api/v1/logs?job={job}&node=0&last={LOG_BYTES}");
    let mut bytes: Vec<u8> = Vec::new();
    let answer = client.stream(&path, |piece| {
        bytes.extend_from_slice(piece);
        // An agent of an earlier version sends all of it.
        let beyond = bytes.len().saturating_sub(LOG_BYTES);
        bytes.drain(..beyond);
        true
    });
    match answer {
        Ok(None) => log_lines::of(&bytes),
        Ok(Some(Answer::Refused(why))) => vec![format!("({why})")],
        Ok(Some(other)) => vec![format!("({})", unexpected(&other))],
        Err(error) => vec![format!("({error})")],
    }
}
