//! A step of a job whose `srun` is the server itself: its input, output and end, over the agent's stream.
//!
//! A stream that breaks is taken up again where it stopped, as an `srun` does it. Nothing is held beyond the stream's
//! windows and a few chunks: where the client does not read, the task waits.

use crate::shared::Shared;
use crate::shared::agent_streams::{StreamReader, StreamWriter};
use crate::step::create;
use bytes::Bytes;
use model::id::{AttemptId, JobId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::ExitStatus;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use wire::client::{Answer, CreateStep};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer};
use wire::step::{STEP_PAYLOAD_MAX, StepLaunch, StepMessage, channel};
use wire::stream::{SendCredit, StepRole, StreamKind};

/// Messages each way that wait for the other side.
const QUEUE_MAX: usize = 8;
/// The most bytes of input in a frame, and of frames in one chunk of the stream.
const CHUNK_BYTES: usize = 32 << 10;
/// No more input is taken while this much waits to be sent.
const OUT_BYTES_MAX: usize = 256 << 10;
/// How long a stream is asked for: at first the step's order is on its way, later an agent may be starting anew.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause between two requests, which doubles up to the longest.
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long the node may take to greet on a new stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a step may take to end once its client is gone. Then it is killed.
const HANGUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepPlace {
    pub node: String,
    pub attempt: AttemptId,
    pub step: StepId,
}

#[derive(Debug)]
pub enum ToStep {
    Input(Bytes),
    InputEnd,
    Resize { rows: u16, columns: u16 },
    Signal(i32),
}

#[derive(Debug, PartialEq, Eq)]
pub enum FromStep {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last message.
    Ended(StepEnd),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepEnd {
    Exited(ExitStatus),
    /// It was never started, or its node is lost.
    Failed(String),
}

/// A running step. Dropping `from` hangs up: the step is asked to end, and killed where it does not.
pub struct StepClient {
    pub to: mpsc::Sender<ToStep>,
    pub from: mpsc::Receiver<FromStep>,
}

/// Creates a step of one task, and starts it.
pub async fn start(
    shared: &Arc<Shared>,
    by: Principal,
    job: JobId,
    launch: StepLaunch,
) -> Result<StepClient, Refusal> {
    let (key, owner) = (launch.key.clone(), by.uid);
    let created = create::create(shared, by, CreateStep { job, launch, wait_ms: 0 }).await?;
    let Answer::Step(layout) = created else {
        return Err(Refusal::Other("the step was not created".into()));
    };
    let node = layout.nodes.first().map(|node| node.node.clone());
    let node = node.ok_or_else(|| Refusal::Other("the step has no node".into()))?;
    let attempt = AttemptId { job, number: layout.attempt };
    let place = StepPlace { node, attempt, step: layout.step };
    let (to, messages) = mpsc::channel(QUEUE_MAX);
    let (reports, from) = mpsc::channel(QUEUE_MAX);
    let relay = Relay {
        shared: shared.clone(),
        owner,
        place,
        key,
        decoder: Decoder::bounded(STEP_PAYLOAD_MAX),
        out: ResendBuffer::default(),
        incoming: ReceiveCounter::default(),
        credit: SendCredit::default(),
        input: Bytes::new(),
        outgoing: VecDeque::new(),
        end: None,
        gone: false,
    };
    tokio::spawn(relay.run(messages, reports));
    Ok(StepClient { to, from })
}

struct Relay {
    shared: Arc<Shared>,
    /// Who came in.
    owner: u32,
    place: StepPlace,
    key: String,
    decoder: Decoder,
    out: ResendBuffer,
    incoming: ReceiveCounter,
    /// For input to the task.
    credit: SendCredit,
    /// Input that there was no credit for.
    input: Bytes,
    outgoing: VecDeque<FromStep>,
    end: Option<StepEnd>,
    /// Nothing of the step is left on its node.
    gone: bool,
}

/// Why a stream did not come about.
enum NotConnected {
    /// It may yet.
    Again(String),
    Never(String),
}

type Stream = (StreamReader, StreamWriter);

impl Relay {
    async fn run(mut self, mut messages: mpsc::Receiver<ToStep>, reports: mpsc::Sender<FromStep>) {
        let mut hung_up = None;
        let lost = loop {
            let mut stream = tokio::select! {
                connected = self.connect() => match connected {
                    Ok(stream) => stream,
                    Err(why) => break Some(why),
                },
                () = reports.closed(), if hung_up.is_none() => {
                    self.hang_up(&mut hung_up);
                    continue;
                }
            };
            let over = self.relay(&mut stream, &mut messages, &reports, &mut hung_up).await;
            let overdue = hung_up.is_some_and(|until| Instant::now() >= until);
            if over || overdue {
                if !self.gone {
                    stream.0.client_gone();
                }
                break None;
            }
        };
        let end = match (self.end, lost) {
            (Some(end), _) => end,
            (None, Some(why)) => StepEnd::Failed(why),
            (None, None) => StepEnd::Failed("the step ended without a word".into()),
        };
        for report in self.outgoing.into_iter().chain([FromStep::Ended(end)]) {
            if reports.send(report).await.is_err() {
                return;
            }
        }
    }

    /// Passes bytes on until the step is over (true), or the stream broke.
    async fn relay(
        &mut self,
        (reader, writer): &mut Stream,
        messages: &mut mpsc::Receiver<ToStep>,
        reports: &mpsc::Sender<FromStep>,
        hung_up: &mut Option<Instant>,
    ) -> bool {
        let mut has_messages = true;
        loop {
            if self.take_frames().is_err() {
                return false;
            }
            self.send_input();
            if self.gone {
                self.send_last_words(writer).await;
                return true;
            }
            let takes_message = has_messages && self.input.is_empty() && self.has_room();
            let idle = self.outgoing.is_empty();
            tokio::select! {
                chunk = reader.next(), if idle => match chunk {
                    Some(Ok(bytes)) => self.decoder.push(&bytes),
                    Some(Err(_)) | None => return false,
                },
                permit = reports.reserve(), if !idle && hung_up.is_none() => match permit {
                    Ok(permit) => {
                        if let Some(report) = self.outgoing.pop_front() {
                            permit.send(report);
                        }
                    }
                    Err(_) => self.hang_up(hung_up),
                },
                message = messages.recv(), if takes_message => match message {
                    Some(message) => self.on_message(message),
                    None => has_messages = false,
                },
                credit = writer.wait_for_credit(), if self.out.has_unwritten() => {
                    let chunk = self.out.next_chunk();
                    let length = chunk.len().min(credit).min(CHUNK_BYTES);
                    let sent = writer.send(&chunk[..length]).await;
                    self.out.mark_written(length);
                    if !sent {
                        return false;
                    }
                }
                () = reports.closed(), if hung_up.is_none() => self.hang_up(hung_up),
                () = sleep_until(hung_up.unwrap_or_else(Instant::now)), if hung_up.is_some() => return true,
            }
            if hung_up.is_some() {
                self.outgoing.clear();
            }
        }
    }

    /// The client is gone: the task gets what a terminal that was closed gives, and then the end.
    fn hang_up(&mut self, hung_up: &mut Option<Instant>) {
        *hung_up = Some(Instant::now() + HANGUP_TIMEOUT);
        self.input = Bytes::new();
        self.outgoing.clear();
        self.say(&StepMessage::Signal { signal: nix::libc::SIGHUP });
        self.say(&StepMessage::End { at_once: false });
    }

    fn has_room(&self) -> bool {
        self.credit.left() > 0 && self.out.len() < OUT_BYTES_MAX
    }

    fn say(&mut self, message: &StepMessage) {
        // Each of these messages fits into a frame.
        if let Ok(json) = serde_json::to_vec(message) {
            self.push(channel::CONTROL, &json);
        }
    }

    fn push(&mut self, channel: u8, payload: &[u8]) {
        let mut encoded = Vec::with_capacity(frame::HEADER + payload.len());
        if frame::encode_bounded(channel, payload, STEP_PAYLOAD_MAX, &mut encoded).is_ok() {
            self.out.push(&encoded);
        }
    }

    fn on_message(&mut self, message: ToStep) {
        match message {
            ToStep::Input(bytes) => self.input = bytes,
            ToStep::InputEnd => self.say(&StepMessage::InputEnd),
            ToStep::Resize { rows, columns } => self.say(&StepMessage::Resize { rows, columns }),
            ToStep::Signal(signal) => self.say(&StepMessage::Signal { signal }),
        }
    }

    fn send_input(&mut self) {
        while !self.input.is_empty() && self.has_room() {
            let length = self.credit.take(self.input.len().min(CHUNK_BYTES));
            let chunk = self.input.split_to(length);
            self.push(channel::STDIN, &chunk);
        }
    }

    /// Handles the frames that are there, as long as their output can be handed on.
    fn take_frames(&mut self) -> Result<(), frame::FrameError> {
        while self.outgoing.is_empty()
            && !self.gone
            && let Some(frame) = self.decoder.next_frame()?
        {
            self.incoming.count(&frame);
            self.on_frame(frame);
        }
        if let Some(bytes) = self.incoming.due_acknowledgement(false) {
            self.say(&StepMessage::Received { bytes });
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: Frame) {
        let output = |payload: Vec<u8>| {
            let rank = payload.len().min(size_of::<u32>());
            Bytes::from(payload).slice(rank..)
        };
        match frame.channel {
            channel::STDOUT => self.outgoing.push_back(FromStep::Stdout(output(frame.payload))),
            channel::STDERR => self.outgoing.push_back(FromStep::Stderr(output(frame.payload))),
            channel::CONTROL => {
                // A newer supervisor may send messages that this version does not know.
                if let Ok(message) = frame::decode_message(&frame.payload) {
                    self.on_step_message(message);
                }
            }
            _ => {}
        }
    }

    fn on_step_message(&mut self, message: StepMessage) {
        match message {
            StepMessage::Failed { what, .. } => self.end = Some(StepEnd::Failed(what)),
            StepMessage::Exited { exit, .. } => self.end = Some(StepEnd::Exited(exit)),
            StepMessage::Gone => self.gone = true,
            StepMessage::Received { bytes } => self.out.acknowledge(bytes),
            StepMessage::InputCredit { bytes } => self.credit.grant(bytes),
            _ => {}
        }
    }

    /// Acknowledges everything, so that the node need not keep it.
    async fn send_last_words(&mut self, writer: &StreamWriter) {
        if let Some(bytes) = self.incoming.due_acknowledgement(true) {
            self.say(&StepMessage::Received { bytes });
        }
        let flush = async {
            while self.out.has_unwritten() {
                let credit = writer.wait_for_credit().await;
                let chunk = self.out.next_chunk();
                let length = chunk.len().min(credit);
                if !writer.send(&chunk[..length]).await {
                    return;
                }
                self.out.mark_written(length);
            }
        };
        // Without it the node waits a little longer.
        let _ = timeout(Duration::from_secs(1), flush).await;
    }

    /// Opens the step's stream, for the first time or again.
    async fn connect(&mut self) -> Result<Stream, String> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        let mut pause = PAUSE_MIN;
        loop {
            let why = match self.try_connect().await {
                Ok(stream) => return Ok(stream),
                Err(NotConnected::Never(why)) => return Err(why),
                Err(NotConnected::Again(why)) => why,
            };
            if Instant::now() >= until || !self.is_known() {
                return Err(why);
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether the step has not ended, as far as the server knows.
    fn is_known(&self) -> bool {
        let state = self.shared.read();
        let attempt = state.jobs.get(&self.place.attempt.job).and_then(|job| job.attempt());
        let attempt = attempt.filter(|attempt| attempt.number == self.place.attempt.number);
        let step = attempt.and_then(|a| a.steps.iter().find(|s| s.id == self.place.step));
        step.is_some_and(|step| step.end.is_none())
    }

    async fn try_connect(&mut self) -> Result<Stream, NotConnected> {
        let role = StepRole::Srun { key: self.key.clone(), received: self.incoming.received() };
        let StepPlace { node, attempt, step } = &self.place;
        let kind = StreamKind::Step { step: *step, role };
        let opened = self.shared.agents.open_stream(node, *attempt, kind, self.owner);
        let silent = || NotConnected::Again(format!("node {} does not answer", self.place.node));
        let (mut reader, writer) = opened.ok_or_else(silent)?;
        let mut decoder = Decoder::bounded(STEP_PAYLOAD_MAX);
        let greeted = timeout(HELLO_TIMEOUT, greeting(&mut reader, &mut decoder)).await;
        let received = greeted.map_err(|_| silent())??;
        self.out.resume(received).map_err(|gap| NotConnected::Never(gap.to_string()))?;
        self.decoder = decoder;
        Ok((reader, writer))
    }
}

/// What precedes the step's own frames; returns how many bytes the node has had.
async fn greeting(reader: &mut StreamReader, decoder: &mut Decoder) -> Result<u64, NotConnected> {
    loop {
        while let Some(frame) =
            decoder.next_frame().map_err(|error| NotConnected::Never(error.to_string()))?
        {
            match frame::decode_message(&frame.payload) {
                Ok(StepMessage::Received { bytes }) => return Ok(bytes),
                Ok(StepMessage::Refused { why, again: true }) => {
                    return Err(NotConnected::Again(why));
                }
                Ok(StepMessage::Refused { why, again: false }) => {
                    return Err(NotConnected::Never(why));
                }
                Ok(StepMessage::Hello { .. }) => {}
                Ok(_) | Err(_) => {
                    return Err(NotConnected::Never("the node's greeting cannot be read".into()));
                }
            }
        }
        match reader.next().await {
            Some(Ok(bytes)) => decoder.push(&bytes),
            Some(Err(why)) => return Err(NotConnected::Again(why)),
            None => return Err(NotConnected::Again("the link to the node broke".into())),
        }
    }
}
