//! Streams of a step's frames through the server and the node's agent: for an `srun` that the node cannot dial, and for
//! `sattach`.
//!
//! A connection to the server is opened on a thread of its own, and upgraded to the step's frames.

use crate::client::{Client, ServerLocation, UpgradeReply, UpgradedStream};
use crate::command::slurm::pollable_channel::{PollableReceiver, PollableSender, pollable_channel};
use model::id::{JobId, StepId};
use model::reason::Refusal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::step::StepLaunch;
use wire::stream::PROTOCOL_NAME;

/// How long the server may take to answer a request for a stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The reply to a request for a stream.
#[derive(Debug)]
pub enum StreamReply {
    Connected(UpgradedStream),
    Refused(Refusal),
    /// The server does not answer, or answers with something else.
    Unreachable,
}

/// Asks for streams of one step. Replies come with a descriptor to wait on.
pub struct ServerStreams {
    location: ServerLocation,
    job: JobId,
    step: StepId,
    /// The key of the step's own `srun`; `sattach` has none.
    key: Option<String>,
    sender: PollableSender<(String, StreamReply)>,
    replies: PollableReceiver<(String, StreamReply)>,
}

impl ServerStreams {
    pub fn new(
        location: ServerLocation,
        job: JobId,
        step: StepId,
        key: Option<String>,
    ) -> io::Result<Self> {
        let (sender, replies) = pollable_channel()?;
        Ok(Self { location, job, step, key, sender, replies })
    }

    /// Asks for the stream of one node after a pause. `received` is the number of bytes that came over earlier streams.
    pub fn open(&self, node: &str, received: u64, after: Duration) -> io::Result<()> {
        let mut path = format!("/api/v1/step?job={}&step={}&node={node}", self.job, self.step);
        if let Some(key) = &self.key {
            path.push_str(&format!("&key={key}&received={received}"));
        }
        let (client, node, sender) =
            (Client::at(self.location.clone()), node.to_owned(), self.sender.clone());
        let ask = move || {
            std::thread::sleep(after);
            sender.send((node, open(&client, &path)));
        };
        std::thread::Builder::new().name("stream".into()).spawn(ask).map(drop)
    }

    /// Sends the launch again, to a server that may have been restarted since.
    pub fn launch_again(&self, launch: &StepLaunch) -> io::Result<()> {
        let call =
            Call::LaunchStep { job: self.job, step: self.step, launch: Box::new(launch.clone()) };
        let mut client = Client::at(self.location.clone());
        // If it fails, the next request for a stream is refused again.
        let say = move || drop(client.call(call));
        std::thread::Builder::new().name("again".into()).spawn(say).map(drop)
    }

    /// `KillOnBadExit` of the configuration; false if the server does not answer.
    pub fn kill_on_bad_exit(&self) -> bool {
        configured(self.location.clone(), "KillOnBadExit") == Some(1)
    }

    /// Asks for `WaitTime` of the configuration without waiting for it: the step's bytes go on while the server is away.
    pub fn ask_wait_time(&self) -> io::Result<Receiver<Duration>> {
        let (location, (sender, answer)) = (self.location.clone(), channel());
        let ask = move || {
            let secs = configured(location, "WaitTime").unwrap_or(0);
            // Without a receiver the step is over.
            let _ = sender.send(Duration::from_secs(secs));
        };
        std::thread::Builder::new().name("config".into()).spawn(ask)?;
        Ok(answer)
    }

    /// The next reply, if there is one, with the node's name.
    pub fn take(&mut self) -> Option<(String, StreamReply)> {
        self.replies.try_recv().ok()
    }
}

impl AsFd for ServerStreams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.replies.as_fd()
    }
}

/// A number of the configuration, which may have a unit behind it.
fn configured(location: ServerLocation, key: &str) -> Option<u64> {
    match Client::at(location).call(Call::Config) {
        Ok(Answer::Config(config)) => {
            config.values.get(key)?.split_whitespace().next()?.parse().ok()
        }
        _ => None,
    }
}

fn open(client: &Client, path: &str) -> StreamReply {
    match client.upgrade(path, PROTOCOL_NAME, OPEN_TIMEOUT) {
        Ok(UpgradeReply::Upgraded(stream)) => StreamReply::Connected(stream),
        Ok(UpgradeReply::Answer(answer)) => match *answer {
            Answer::Refused(why) => StreamReply::Refused(why),
            _ => StreamReply::Unreachable,
        },
        Err(_) => StreamReply::Unreachable,
    }
}
