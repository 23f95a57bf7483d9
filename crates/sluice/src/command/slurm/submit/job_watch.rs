//! Watching and holding a job: events until it ends, and a connection that keeps its allocation while the client lives.

use crate::client::{Client, ClientError, ServerLocation};
use crate::command::slurm::pollable_channel::{PollableReceiver, PollableSender, pollable_channel};
use model::change::JobRef;
use model::id::JobId;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Outcome};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call};
use wire::explain::{ExplainQuery, WaitView};
use wire::view::JobView;

/// A step that ends sooner is neither watched nor held: its nodes say all that there is to say of it.
pub const SHORT_STEP: Duration = Duration::from_millis(50);
/// A job that has not started by then is reported as queued.
const QUEUED_AFTER_MS: u64 = 200;
/// A job that has not started so long after that is explained, and then again in intervals.
const EXPLAINED_AFTER_MS: u64 = 800;
const EXPLAIN_INTERVAL_MS: u64 = 30_000;
/// How long one request may wait in the server before it is repeated.
const AWAIT_MS: u64 = 60_000;
/// How often a broken hold is taken up again, and after which pause: for a day at least. A server that comes back and finds
/// no hold takes the allocation from a client that still runs.
const HOLD_RETRIES_MAX: u32 = 86_400;
const HOLD_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// An event of the watched job.
#[derive(Debug)]
pub enum JobEvent {
    /// It has not started at once.
    Queued,
    /// Why it waits, for a watch that explains; more than once.
    Waits(Box<WaitView>),
    Started(Box<JobView>),
    /// The prolog has ended on every node, if the job had to wait for it.
    Ready,
    Ended {
        exit: ExitStatus,
        outcome: Option<Outcome>,
        reason: Reason,
    },
    Refused(Refusal),
    Unreachable(ClientError),
}

/// A job to watch, and from which event on.
pub struct Watched {
    pub location: ServerLocation,
    pub job: JobId,
    /// The start is an event too.
    pub from_start: bool,
    /// While it waits for its start, why is an event too.
    pub explains: bool,
}

/// Events of one job as they come, with a descriptor to wait on.
pub struct Watch {
    events: PollableReceiver<JobEvent>,
    /// No event will come any more.
    is_over: bool,
    /// The watch has not begun.
    later: Option<LaterWatch>,
}

struct LaterWatch {
    at: Instant,
    watched: Watched,
    sender: PollableSender<JobEvent>,
}

impl Watch {
    /// Watches on a connection of its own.
    pub fn begin(watched: Watched) -> io::Result<Self> {
        let (sender, events) = pollable_channel()?;
        start(watched, sender)?;
        Ok(Self { events, is_over: false, later: None })
    }

    /// Begins after a delay.
    pub fn begin_after(delay: Duration, watched: Watched) -> io::Result<Self> {
        let (sender, events) = pollable_channel()?;
        let later = Some(LaterWatch { at: Instant::now() + delay, watched, sender });
        Ok(Self { events, is_over: false, later })
    }

    /// How long it is until the watch begins; `None` once it has.
    pub fn begins_in(&self) -> Option<Duration> {
        self.later.as_ref().map(|later| later.at.saturating_duration_since(Instant::now()))
    }

    pub fn begin_if_due(&mut self) -> io::Result<()> {
        match self.later.take_if(|later| later.at <= Instant::now()) {
            Some(later) => start(later.watched, later.sender),
            None => Ok(()),
        }
    }

    /// The next event, if there is one.
    pub fn take(&mut self) -> Option<JobEvent> {
        let next = self.events.try_recv();
        self.is_over = matches!(next, Err(TryRecvError::Disconnected));
        next.ok()
    }

    /// Readable when there is an event; `None` when there will be no more. The descriptor of a closed channel is always
    /// readable, and `poll` would not wait.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_over).then(|| self.events.as_fd())
    }

    /// Waits for the next event; `None` when there will be no more.
    pub fn wait(&mut self) -> Option<JobEvent> {
        self.events.recv()
    }

    pub fn wait_for(&mut self, timeout: Duration) -> Option<JobEvent> {
        self.events.recv_timeout(timeout).ok()
    }
}

fn start(watched: Watched, sender: PollableSender<JobEvent>) -> io::Result<()> {
    let watch = move || {
        if let Err(error) = follow(watched, &sender) {
            sender.send(JobEvent::Unreachable(error));
        }
    };
    std::thread::Builder::new().name("watch".into()).spawn(watch).map(drop)
}

fn follow(watched: Watched, events: &PollableSender<JobEvent>) -> Result<(), ClientError> {
    let Watched { location, job, from_start, explains } = watched;
    let mut client = Client::at(location);
    if from_start && !follow_to_start(&mut client, job, explains, events)? {
        return Ok(());
    }
    loop {
        match client.call_again(Call::AwaitEnd { job, timeout_ms: AWAIT_MS })? {
            Answer::End { ended: false, .. } => {}
            Answer::End { exit, outcome, reason, .. } => {
                events.send(JobEvent::Ended { exit, outcome, reason });
                return Ok(());
            }
            Answer::Refused(why) => {
                events.send(JobEvent::Refused(why));
                return Ok(());
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Waits for the start. Returns whether there is an end to wait for.
fn follow_to_start(
    client: &mut Client,
    job: JobId,
    explains: bool,
    events: &PollableSender<JobEvent>,
) -> Result<bool, ClientError> {
    let mut is_queued = false;
    let mut timeout_ms = QUEUED_AFTER_MS;
    loop {
        let ask = Call::AwaitStart { job, timeout_ms, ready: false };
        match client.call_again(ask)? {
            Answer::Start { allocation: Some(_), view, .. } => {
                let prepares = view.reason == Reason::Prolog;
                events.send(JobEvent::Started(view));
                return if prepares { follow_to_ready(client, job, events) } else { Ok(true) };
            }
            Answer::Start { state, .. } if state.is_ended() => return Ok(true),
            Answer::Start { .. } if !is_queued => {
                is_queued = true;
                events.send(JobEvent::Queued);
                timeout_ms = if explains { EXPLAINED_AFTER_MS } else { AWAIT_MS };
            }
            Answer::Start { .. } if explains => {
                explain(client, job, events);
                timeout_ms = EXPLAIN_INTERVAL_MS;
            }
            Answer::Start { .. } => {}
            Answer::Refused(why) => {
                events.send(JobEvent::Refused(why));
                return Ok(false);
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Asks why the job waits. Without an answer there is no event: what the watch is for goes on.
fn explain(client: &mut Client, job: JobId, events: &PollableSender<JobEvent>) {
    let query = ExplainQuery { jobs: vec![JobRef::whole(job)], ..ExplainQuery::default() };
    if let Ok(Answer::Explained(explained)) = client.call(Call::Explain(query))
        && let Some(wait) = explained.into_iter().find_map(|one| one.wait)
    {
        events.send(JobEvent::Waits(wait));
    }
}

/// Waits for the prolog on the job's nodes.
fn follow_to_ready(
    client: &mut Client,
    job: JobId,
    events: &PollableSender<JobEvent>,
) -> Result<bool, ClientError> {
    loop {
        let ask = Call::AwaitStart { job, timeout_ms: AWAIT_MS, ready: true };
        match client.call_again(ask)? {
            Answer::Start { reason: Reason::Prolog, .. } => {}
            Answer::Start { allocation: Some(_), state, .. } if !state.is_ended() => {
                events.send(JobEvent::Ready);
                return Ok(true);
            }
            // It has ended, or waits for other nodes; both are separate events.
            Answer::Start { .. } => return Ok(true),
            Answer::Refused(why) => {
                events.send(JobEvent::Refused(why));
                return Ok(false);
            }
            other => return Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &Answer) -> ClientError {
    ClientError::Protocol(format!("the server's answer was not expected: {answer:?}"))
}

/// Holds the allocation for as long as this process lives: the server ends it after the connection has closed. The hold is
/// renewed when the server restarts. It begins after a delay, on a thread of its own: whatever this process waits for then.
pub fn hold(location: ServerLocation, job: JobId, delay: Duration) -> io::Result<()> {
    let client = Client::at(location);
    let keep = move || {
        std::thread::sleep(delay);
        let path = format!("/api/v1/hold?job={job}");
        for _ in 0..HOLD_RETRIES_MAX {
            // An answer instead of a stream means that there is nothing to hold any more.
            if let Ok(Some(_)) = client.stream(&path, |_| true) {
                return;
            }
            std::thread::sleep(HOLD_RETRY_PAUSE);
        }
    };
    std::thread::Builder::new().name("hold".into()).spawn(keep).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_that_is_over_gives_nothing_to_wait_on() {
        let (sender, events) = pollable_channel().expect("a channel");
        let mut watch = Watch { events, is_over: false, later: None };
        let (exit, reason) = (ExitStatus::default(), Reason::None);
        sender.send(JobEvent::Ended { exit, outcome: None, reason });
        drop(sender);
        assert!(watch.fd().is_some(), "the end is still to be taken");
        assert!(matches!(watch.take(), Some(JobEvent::Ended { .. })));
        assert!(watch.take().is_none());
        assert!(watch.fd().is_none(), "its descriptor would be readable for ever");
    }
}
