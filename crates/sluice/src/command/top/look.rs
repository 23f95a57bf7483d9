//! What `sluice top` asks of the server, on a thread of its own, so that a slow answer holds up no key. It looks when something
//! was committed, which a second thread waits for.

use super::log_lines;
use super::snapshot::{JobCounts, Snapshot};
use crate::client::Client;
use crate::command::dstack::{ask, unexpected};
use crate::command::explain;
use crate::command::verb::VerbError;
use model::change::{JobChange, JobFilter, JobRef};
use model::id::JobId;
use model::run::Hold;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel, Detail, JobsQuery, QueueHead, QueueOrder};
use wire::job_list::JobList;
use wire::view::JobView;

/// A look that took long is followed by a pause of so many times as long: looking takes neither side more than a small part
/// of a core, however large the cluster is.
const PAUSE_FACTOR: u32 = 40;
/// One slow answer, as of a server that just came back, leaves no screen without news for longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A cluster in which nothing is committed is looked at so often: how busy GPUs are is no commit.
const QUIET_INTERVAL: Duration = Duration::from_secs(30);
/// How often the log that is shown is read again.
const LOG_INTERVAL: Duration = Duration::from_secs(2);
/// How much of the end of a log is asked for.
const LOG_BYTES: usize = 32 << 10;

/// What is shown, and so asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The user whose jobs alone are shown.
    pub user: Option<String>,
    /// The job whose log is shown.
    pub log: Option<JobId>,
    /// How many jobs are enough, from the head of the queue or from its end; `None` for all.
    pub rows: Option<u32>,
    pub from_end: bool,
    /// What is found in each of these jobs; empty where all are asked for.
    pub filter: String,
    /// In which order they are.
    pub order: QueueOrder,
}

#[derive(Debug, PartialEq)]
pub enum Request {
    Look(Scope),
    /// Something was committed since the last look.
    Changed,
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

/// Says when something was committed since a look, of which the count of commits comes by `looks`; until nobody asks. Where the
/// server cannot say it, it is supposed after a pause.
pub fn watch(
    mut client: Client,
    pause: Duration,
    looks: &Receiver<Option<u64>>,
    requests: &Sender<Request>,
) {
    let timeout_ms = QUIET_INTERVAL.as_millis() as u64;
    while let Ok(first) = looks.recv() {
        // A later look has seen more.
        let seen = looks.try_iter().last().unwrap_or(first);
        let is_told = seen.is_some() && {
            let answer = client.call(Call::AwaitCommit { seen, timeout_ms });
            matches!(answer, Ok(Answer::Commits { .. }))
        };
        if !is_told {
            std::thread::sleep(pause);
        }
        if requests.send(Request::Changed).is_err() {
            return;
        }
    }
}

/// The thread that looks.
pub struct Looker<'a> {
    pub client: Client,
    pub scope: Scope,
    /// The shortest pause between two looks.
    pub pause: Duration,
    /// What `watch` takes.
    pub looks: Sender<Option<u64>>,
    /// Says whether whoever takes the replies is still there.
    pub reply: &'a dyn Fn(Reply) -> bool,
}

/// When a look and a log are next due.
struct Due {
    is_changed: bool,
    look: Instant,
    log: Instant,
}

impl Looker<'_> {
    /// Looks when something has changed, and does what is asked for, until whoever takes the replies is gone. `commits` is the
    /// count of the look that was made before the screen was taken.
    pub fn run(mut self, commits: Option<u64>, requests: &Receiver<Request>) {
        let now = Instant::now();
        let mut due = Due { is_changed: false, look: now + self.pause, log: now };
        // The thread that waits for commits ends only with this one.
        let _ = self.looks.send(commits);
        loop {
            let now = Instant::now();
            if due.is_changed && now >= due.look && !self.look(&mut due) {
                return;
            }
            if let Some(job) = self.scope.log.filter(|_| now >= due.log) {
                (self.reply)(Reply::Log { job, lines: log(&self.client, job) });
                due.log = Instant::now() + LOG_INTERVAL;
            }
            let first = match requests.recv_timeout(self.idle_time(&due)) {
                Ok(first) => first,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for request in std::iter::once(first).chain(requests.try_iter()) {
                self.take(request, &mut due);
            }
        }
    }

    /// How long there is nothing to do but to take requests.
    fn idle_time(&self, due: &Due) -> Duration {
        let look = due.is_changed.then_some(due.look);
        let log = self.scope.log.map(|_| due.log);
        let next = look.into_iter().chain(log).min();
        next.map_or(QUIET_INTERVAL, |next| next.saturating_duration_since(Instant::now()))
    }

    fn take(&mut self, request: Request, due: &mut Due) {
        match request {
            Request::Changed => due.is_changed = true,
            Request::Look(next) => {
                // Where all jobs are loaded, any order is made here.
                let order =
                    |scope: &Scope| scope.rows.map(|rows| (rows, scope.from_end, scope.order));
                let asked =
                    |scope: &Scope| (scope.user.clone(), scope.filter.clone(), order(scope));
                if asked(&next) != asked(&self.scope) {
                    (due.is_changed, due.look) = (true, Instant::now());
                }
                if next.log != self.scope.log {
                    due.log = Instant::now();
                }
                self.scope = next;
            }
            action => {
                let (said, changes) = act(&mut self.client, action);
                if changes {
                    (due.is_changed, due.look) = (true, Instant::now());
                }
                (self.reply)(said);
            }
        }
    }

    /// Looks, and says whether anybody sees it.
    fn look(&mut self, due: &mut Due) -> bool {
        let begun = Instant::now();
        let mut pause = self.pause;
        let (looked, commits) = match snapshot(&mut self.client, self.scope.clone()) {
            Ok(snapshot) => {
                pause = pause.max((begun.elapsed() * PAUSE_FACTOR).min(LONGEST_PAUSE));
                let commits = snapshot.commits;
                (Reply::Snapshot(Box::new(snapshot)), commits)
            }
            Err(error) => (Reply::Lost(error.to_string()), None),
        };
        (due.is_changed, due.look) = (false, Instant::now() + pause);
        let _ = self.looks.send(commits);
        (self.reply)(looked)
    }
}

/// Does one thing, and says how it went, and whether the cluster may look different afterwards.
fn act(client: &mut Client, request: Request) -> (Reply, bool) {
    let done = match request {
        Request::Look(_) | Request::Changed => return (Reply::Told(String::new()), true),
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
    // Asked first: what is committed while the rest is asked for is looked at once more.
    let commits = match client.call(Call::AwaitCommit { seen: None, timeout_ms: 0 }) {
        Ok(Answer::Commits { count }) => Some(count),
        _ => None,
    };
    let Scope { user, rows, from_end, filter, order, .. } = scope;
    let users: Vec<String> = user.into_iter().collect();
    // What a server of an earlier version answers too.
    let is_plain = filter.is_empty() && order == QueueOrder::Queue;
    let head = rows.map(|rows| {
        let head = QueueHead { users: users.clone(), rows, filter, order, from_end };
        client.call(Call::QueueHead(head))
    });
    let (jobs, counts) = match head {
        Some(Ok(Answer::QueueHead {
            jobs: JobList(jobs),
            running,
            waiting,
            matching,
            from_end: is_end,
            ..
        })) if (is_plain || matching.is_some()) && is_end == from_end => {
            (jobs, Some(JobCounts { running, waiting, matching, from_end }))
        }
        // A server that does not know the call, or neither filters nor orders nor begins at the end, is asked for all jobs.
        _ => (all_jobs(client, users)?, None),
    };
    match ask(client, Call::Cluster)? {
        Answer::Cluster(cluster) => Ok(Snapshot::new(cluster, jobs, counts, commits)),
        other => Err(unexpected(&other)),
    }
}

fn all_jobs(client: &mut Client, users: Vec<String>) -> Result<Vec<JobView>, VerbError> {
    let filter = JobFilter { users, ..JobFilter::default() };
    // Starts are those of the last plan: a forecast of each look would be work for the server.
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    match ask(client, Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => Ok(jobs),
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
