//! The connection from a step to one client: its `srun`, dialled without blocking, or a client that comes by a stream
//! through the agent: an `srun` that cannot be dialled, or an observer (`sattach`). A dialled connection is encrypted and
//! proven by the step's key before it counts as open; a stream is authenticated by agent and server.

use crate::network_stack::network_stack;
use crate::supervisor::step::dial::{Dials, ProvenConnection};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer, ResumeGap};
use wire::step::{STEP_PAYLOAD_MAX, StepLaunch, StepMessage, channel};
use wire::step_channel::StepChannel;

/// How long the addresses, dialled together, may take to answer and to prove the key. An `srun` that is not reached sooner
/// connects by a stream meanwhile.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an `srun` that could not be dialled may take to connect by a stream, and one whose stream broke to
/// reconnect.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Tasks' output is not read while this many bytes wait to be sent or acknowledged.
const OUT_BYTES_MAX: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

enum State {
    Dialling {
        dials: Dials,
        until: Instant,
    },
    Open {
        connection: Connection,
        decoder: Decoder,
    },
    /// No client is connected, but one may connect by a stream.
    Awaiting {
        until: Instant,
    },
    Closed,
}

enum Connection {
    /// Dialled, encrypted and proven.
    Direct { stream: TcpStream, channel: Box<StepChannel> },
    /// Forwarded by the agent and the server.
    Stream(UnixStream),
}

impl Connection {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Direct { stream, .. } => stream.as_fd(),
            Connection::Stream(stream) => stream.as_fd(),
        }
    }

    /// Appends what has arrived to `plain`. Returns false if nothing more can come: the other end has closed the
    /// connection, or it was tampered with.
    fn read(&mut self, plain: &mut Vec<u8>) -> bool {
        let mut buffer = vec![0; READ_BYTES];
        let read = match self {
            Connection::Direct { stream, .. } => stream.read(&mut buffer),
            Connection::Stream(stream) => stream.read(&mut buffer),
        };
        match (read, self) {
            (Ok(0), _) => false,
            (Ok(length), Connection::Direct { channel, .. }) => {
                channel.receive(&buffer[..length], plain).is_ok()
            }
            (Ok(length), Connection::Stream(_)) => {
                plain.extend_from_slice(&buffer[..length]);
                true
            }
            (Err(e), _) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Writes from the front of `plain`, and what is left of earlier writes first. Returns how many bytes it has taken
    /// over: with an empty `plain` none.
    fn write(&mut self, plain: &[u8]) -> std::io::Result<usize> {
        let (stream, channel) = match self {
            Connection::Stream(stream) => return stream.write(plain),
            Connection::Direct { stream, channel } => (stream, channel),
        };
        let taken = match channel.unsent() {
            [] => channel.seal(plain).map_err(std::io::Error::other)?,
            _ => 0,
        };
        while !channel.unsent().is_empty() {
            match stream.write(channel.unsent()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => channel.mark_sent(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock && taken > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok(taken)
    }

    fn is_direct(&self) -> bool {
        matches!(self, Connection::Direct { .. })
    }

    /// Whether encrypted bytes wait to be written.
    fn has_unsent(&self) -> bool {
        matches!(self, Connection::Direct { channel, .. } if !channel.unsent().is_empty())
    }
}

/// The link to one client of a step: its `srun`, or an observer.
pub(crate) struct ClientLink {
    state: State,
    /// Sent first on a new connection; its bytes are not counted.
    preface: Vec<u8>,
    out: ResendBuffer,
    incoming: ReceiveCounter,
    /// Whether a broken stream may be resumed: only that of an `srun`.
    resumes: bool,
    /// The number of the last stream.
    last_stream: Option<u32>,
}

/// The result of advancing a link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    /// The link has just become usable; returned once.
    Opened,
    Frames(Vec<Frame>),
    /// The client has disconnected, or was never reached.
    Lost,
}

impl ClientLink {
    /// Starts to dial an `srun` at all its addresses.
    pub fn dial(launch: &StepLaunch) -> ClientLink {
        let dials = Dials::start(launch, network_stack().as_deref());
        let until = Instant::now() + DIAL_TIMEOUT;
        ClientLink::new(State::Dialling { dials, until }, true)
    }

    /// The link to an observer, by a stream.
    pub fn attached(stream: UnixStream, decoder: Decoder, number: u32) -> ClientLink {
        let connection = Connection::Stream(stream);
        let mut link = ClientLink::new(State::Open { connection, decoder }, false);
        link.last_stream = Some(number);
        link
    }

    fn new(state: State, resumes: bool) -> ClientLink {
        ClientLink {
            state,
            preface: Vec::new(),
            out: ResendBuffer::default(),
            incoming: ReceiveCounter::default(),
            resumes,
            last_stream: None,
        }
    }

    /// Whether an `srun` that has received so many bytes may connect by a stream now.
    pub fn check_resume(&self, received: u64) -> Result<(), &'static str> {
        match &self.state {
            State::Open { connection: Connection::Direct { .. }, .. } => {
                Err("the step has its srun already")
            }
            State::Closed => Err("the step is ending"),
            _ if self.last_stream.is_none() && received > 0 => Err("the step was never there"),
            _ => Ok(()),
        }
    }

    /// Connects the `srun` by a stream, for the first time or again; `hello` is sent first.
    pub fn resume_srun(
        &mut self,
        stream: UnixStream,
        decoder: Decoder,
        number: u32,
        received: u64,
        hello: &StepMessage,
    ) -> Result<(), ResumeGap> {
        self.out.resume(received)?;
        let count = StepMessage::Received { bytes: self.incoming.received() };
        self.preface.clear();
        for message in [hello, &count] {
            // Encoding fails only for messages larger than a frame; both are small.
            let _ = frame::encode_message(channel::CONTROL, message, &mut self.preface);
        }
        self.last_stream = Some(number);
        self.state = State::Open { connection: Connection::Stream(stream), decoder };
        Ok(())
    }

    /// Closes the link if this stream is its own: the client does not come back. Returns whether it was.
    pub fn client_gone(&mut self, number: u32) -> bool {
        let direct =
            matches!(&self.state, State::Open { connection: Connection::Direct { .. }, .. });
        let mine = self.last_stream == Some(number) && !direct && !self.is_closed();
        if mine {
            self.close();
        }
        mine
    }

    /// The descriptors to poll, and whether for writing.
    pub fn interests(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        match &self.state {
            State::Dialling { dials, .. } => dials.interests(),
            State::Open { connection, .. } => vec![(connection.fd(), self.has_unwritten())],
            State::Awaiting { .. } | State::Closed => Vec::new(),
        }
    }

    fn has_unwritten(&self) -> bool {
        !self.preface.is_empty() || self.out.has_unwritten() || self.has_unsent()
    }

    fn has_unsent(&self) -> bool {
        matches!(&self.state, State::Open { connection, .. } if connection.has_unsent())
    }

    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Dialling { until, .. } | State::Awaiting { until } => Some(*until),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    pub fn can_take_output(&self) -> bool {
        self.out.len() < OUT_BYTES_MAX
    }

    /// Whether everything was sent, and acknowledged where the client does that.
    pub fn is_flushed(&self) -> bool {
        self.out.is_empty() && self.preface.is_empty() && !self.has_unsent()
    }

    /// Advances the connection without blocking.
    pub fn advance(&mut self) -> Progress {
        match &mut self.state {
            State::Closed => Progress::Lost,
            State::Dialling { .. } => self.advance_dials(),
            State::Awaiting { until } if Instant::now() >= *until => {
                self.close();
                Progress::Lost
            }
            State::Awaiting { .. } => Progress::Waiting,
            State::Open { .. } => {
                self.flush();
                self.read()
            }
        }
    }

    fn advance_dials(&mut self) -> Progress {
        let State::Dialling { dials, until } = &mut self.state else { return Progress::Waiting };
        if let Some(ProvenConnection { stream, channel }) = dials.advance() {
            let connection = Connection::Direct { stream, channel: Box::new(channel) };
            let decoder = Decoder::bounded(STEP_PAYLOAD_MAX);
            self.state = State::Open { connection, decoder };
            return Progress::Opened;
        }
        if dials.is_empty() || Instant::now() >= *until {
            self.state = State::Awaiting { until: Instant::now() + STREAM_TIMEOUT };
        }
        Progress::Waiting
    }

    pub fn send(&mut self, message: &StepMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            self.send_bytes(channel::CONTROL, &json);
        }
    }

    /// Sends a frame; a task's output begins with its rank.
    pub fn send_bytes(&mut self, channel: u8, payload: &[u8]) {
        if self.is_closed() {
            return;
        }
        let mut encoded = Vec::with_capacity(frame::HEADER + payload.len());
        if frame::encode_bounded(channel, payload, STEP_PAYLOAD_MAX, &mut encoded).is_ok() {
            self.out.push(&encoded);
        }
    }

    /// The client has received this many bytes.
    pub fn acknowledged(&mut self, bytes: u64) {
        self.out.acknowledge(bytes);
    }

    pub fn flush(&mut self) {
        while self.has_unwritten() {
            let State::Open { connection, .. } = &mut self.state else { return };
            let first = !self.preface.is_empty();
            let piece = match self.out.has_unwritten() {
                _ if first => self.preface.as_slice(),
                true => self.out.next_chunk(),
                false => &[],
            };
            match connection.write(piece) {
                Ok(taken) if taken > 0 && first => drop(self.preface.drain(..taken)),
                Ok(taken) if taken > 0 => self.out.mark_written(taken),
                // The rest of an earlier record was written.
                Ok(_) if connection.is_direct() => {}
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                // The client's last messages may still be read.
                Ok(_) | Err(_) => return self.broken(),
            }
        }
    }

    fn read(&mut self) -> Progress {
        let State::Open { connection, decoder } = &mut self.state else {
            return if self.is_closed() { Progress::Lost } else { Progress::Waiting };
        };
        let mut plain = Vec::new();
        let ended = !connection.read(&mut plain);
        decoder.push(&plain);
        let mut frames = Vec::new();
        let sound = loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        frames.iter().for_each(|frame| self.incoming.count(frame));
        if !sound {
            self.close();
        } else if ended {
            self.broken();
        } else if self.resumes
            && self.last_stream.is_some()
            && let Some(bytes) = self.incoming.due_acknowledgement(false)
        {
            self.send(&StepMessage::Received { bytes });
        }
        if !frames.is_empty() {
            Progress::Frames(frames)
        } else if self.is_closed() {
            Progress::Lost
        } else {
            Progress::Waiting
        }
    }

    /// Handles a lost connection. A stream may break without its client being gone, so an `srun` may resume it.
    fn broken(&mut self) {
        let stream = matches!(&self.state, State::Open { connection: Connection::Stream(..), .. });
        if stream && self.resumes {
            self.state = State::Awaiting { until: Instant::now() + RESUME_TIMEOUT }
        } else {
            self.close()
        }
    }

    pub fn close(&mut self) {
        self.state = State::Closed;
        self.out.clear();
        self.preface.clear();
    }
}

#[cfg(test)]
mod tests;
