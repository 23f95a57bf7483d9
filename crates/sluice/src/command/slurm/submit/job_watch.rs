//! A job that a client holds: kept alive while the client lives, and watched until it ends.

use crate::connect::{Client, ClientError, Place};
use model::id::JobId;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Outcome};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::view::JobView;

/// A job that has not started by then is said to wait.
const QUEUED_AFTER_MS: u64 = 200;
/// How long one question stays open before it is asked again.
const AWAIT_MS: u64 = 60_000;
/// A hold that breaks is taken up again so often, after so long: for a day at least, since a server that comes back and
/// finds no hold gives the allocation away under a client that lives.
const HOLD_RETRIES_MAX: u32 = 86_400;
const HOLD_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What the watched job did.
#[derive(Debug)]
pub enum Notice {
    /// It does not start at once.
    Queued,
    Started(Box<JobView>),
    /// The site's programs before it are over, where it had to wait for them.
    Ready,
    Ended {
        exit: ExitStatus,
        outcome: Option<Outcome>,
    },
    Refused(Refusal),
    Unreachable(ClientError),
}

/// Notices of one job as they come, with a descriptor to wait on.
pub struct Watch {
    notices: Receiver<Notice>,
    bell: UnixStream,
}

impl Watch {
    /// Watches on a connection of its own. `from_start`: tells of the start as well as of the end.
    pub fn begin(place: Place, job: JobId, from_start: bool) -> io::Result<Self> {
        let (sender, notices) = channel();
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let teller = Teller { sender, rope };
        std::thread::Builder::new().name("watch".into()).spawn(move || {
            if let Err(error) = follow(place, job, from_start, &teller) {
                teller.tell(Notice::Unreachable(error));
            }
        })?;
        Ok(Self { notices, bell })
    }

    /// The next notice, if there is one.
    pub fn take(&mut self) -> Option<Notice> {
        let mut rung = [0; 16];
        // Only empties the bell; that it was empty already is no matter.
        let _ = self.bell.read(&mut rung);
        self.notices.try_recv().ok()
    }

    /// Waits for the next notice; none when there will be no more.
    pub fn wait(&mut self) -> Option<Notice> {
        self.notices.recv().ok()
    }

    pub fn wait_for(&mut self, patience: Duration) -> Option<Notice> {
        self.notices.recv_timeout(patience).ok()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

struct Teller {
    sender: Sender<Notice>,
    rope: UnixStream,
}

impl Teller {
    fn tell(&self, notice: Notice) {
        // When nobody listens any more, the command is at its end.
        if self.sender.send(notice).is_ok() {
            let _ = (&self.rope).write(b"!");
        }
    }
}

fn follow(place: Place, job: JobId, from_start: bool, teller: &Teller) -> Result<(), ClientError> {
    let mut client = Client::at(place)?;
    if from_start && !follow_to_start(&mut client, job, teller)? {
        return Ok(());
    }
    loop {
        match client.call_again(Call::AwaitEnd { job, timeout_ms: AWAIT_MS })? {
            Answer::End { ended: false, .. } => {}
            Answer::End { exit, outcome, .. } => {
                teller.tell(Notice::Ended { exit, outcome });
                return Ok(());
            }
            Answer::Refused(why) => {
                teller.tell(Notice::Refused(why));
                return Ok(());
            }
            other => return Err(unexpected(&other)),
        }
    }
}

/// Whether there is an end to wait for.
fn follow_to_start(client: &mut Client, job: JobId, teller: &Teller) -> Result<bool, ClientError> {
    let mut patience = QUEUED_AFTER_MS;
    loop {
        let ask = Call::AwaitStart { job, timeout_ms: patience, ready: false };
        match client.call_again(ask)? {
            Answer::Start { allocation: Some(_), view, .. } => {
                let prepares = view.reason == Reason::Prolog;
                teller.tell(Notice::Started(view));
                return if prepares { follow_to_ready(client, job, teller) } else { Ok(true) };
            }
            Answer::Start { state, .. } if state.is_ended() => return Ok(true),
            Answer::Start { .. } if patience == QUEUED_AFTER_MS => teller.tell(Notice::Queued),
            Answer::Start { .. } => {}
            Answer::Refused(why) => {
                teller.tell(Notice::Refused(why));
                return Ok(false);
            }
            other => return Err(unexpected(&other)),
        }
        patience = AWAIT_MS;
    }
}

/// The job has its nodes, and the site's programs before it run there.
fn follow_to_ready(client: &mut Client, job: JobId, teller: &Teller) -> Result<bool, ClientError> {
    loop {
        let ask = Call::AwaitStart { job, timeout_ms: AWAIT_MS, ready: true };
        match client.call_again(ask)? {
            Answer::Start { reason: Reason::Prolog, .. } => {}
            Answer::Start { allocation: Some(_), state, .. } if !state.is_ended() => {
                teller.tell(Notice::Ready);
                return Ok(true);
            }
            // Its end, or its wait for other nodes, is told as such.
            Answer::Start { .. } => return Ok(true),
            Answer::Refused(why) => {
                teller.tell(Notice::Refused(why));
                return Ok(false);
            }
            other => return Err(unexpected(&other)),
        }
    }
}

fn unexpected(answer: &Answer) -> ClientError {
    ClientError::Protocol(format!("the server's answer was not expected: {answer:?}"))
}

/// Holds the allocation for as long as this process lives: the server gives it up when the connection ends.
/// A server that restarts finds the hold again.
pub fn hold(place: Place, job: JobId) -> io::Result<()> {
    let keep = move || {
        let path = format!("/api/v1/hold?job={job}");
        for _ in 0..HOLD_RETRIES_MAX {
            let Ok(mut client) = Client::at(place.clone()) else { return };
            // An answer instead of a stream says that there is nothing to hold any more.
            if let Ok(Some(_)) = client.stream(&path, |_| true) {
                return;
            }
            std::thread::sleep(HOLD_RETRY_PAUSE);
        }
    };
    std::thread::Builder::new().name("hold".into()).spawn(keep).map(drop)
}
