//! A step's bytes through the server and the node's agent, for a client that the node cannot reach, or that looks on.
//!
//! A connection to the server is opened on a thread of its own and then becomes the step's frames.

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

/// How long the server may take to answer.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What came of asking for a stream.
#[derive(Debug)]
pub enum StreamReply {
    Connected(UpgradedStream),
    Refused(Refusal),
    /// The server does not answer, or not in these words.
    Unreachable,
}

/// Asks for streams of one step; answers come with a descriptor to wait on.
pub struct ServerStreams {
    location: ServerLocation,
    job: JobId,
    step: StepId,
    /// Shown by the step's own `srun`; one that looks on has none.
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

    /// Asks for the stream of one node after a pause; `received` bytes have come over earlier ones.
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

    /// Says the launch again, to a server that may have been restarted since it was told.
    pub fn launch_again(&self, launch: &StepLaunch) -> io::Result<()> {
        let call =
            Call::LaunchStep { job: self.job, step: self.step, launch: Box::new(launch.clone()) };
        let mut client = Client::at(self.location.clone());
        // Whether it helped shows when the stream is asked for the next time.
        let say = move || drop(client.call(call));
        std::thread::Builder::new().name("again".into()).spawn(say).map(drop)
    }

    /// What the configuration says of tasks that fail; a server that cannot be asked says nothing.
    pub fn kill_on_bad_exit(&self) -> bool {
        configured(self.location.clone(), "KillOnBadExit") == Some(1)
    }

    /// Asks what the configuration says of tasks that outlive the first, without waiting: the step's bytes go on, also
    /// where the server is away.
    pub fn ask_wait_time(&self) -> io::Result<Receiver<Duration>> {
        let (location, (sender, answer)) = (self.location.clone(), channel());
        let ask = move || {
            let secs = configured(location, "WaitTime").unwrap_or(0);
            // When nobody listens any more, the step is over.
            let _ = sender.send(Duration::from_secs(secs));
        };
        std::thread::Builder::new().name("config".into()).spawn(ask)?;
        Ok(answer)
    }

    /// The next answer, if there is one: the node's name, and what came of it.
    pub fn take(&mut self) -> Option<(String, StreamReply)> {
        self.replies.try_recv().ok()
    }
}

impl AsFd for ServerStreams {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.replies.as_fd()
    }
}

/// A number of the configuration, with its unit or without.
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
