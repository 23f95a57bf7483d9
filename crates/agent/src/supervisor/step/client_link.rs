//! The connection from a step to one client: its `srun`, dialled without blocking, or a client that comes by a stream
//! through the agent: an `srun` that cannot be dialled, or an observer (`sattach`).

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket,
    sockopt,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer, ResumeGap};
use wire::step::{StepMessage, channel};

/// How long the addresses, dialled together, may take to answer.
const DIAL_TIMEOUT: Duration = Duration::from_millis(2500);
/// How long an `srun` that could not be dialled may take to connect by a stream, and one whose stream broke to
/// reconnect.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);
const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Addresses that are dialled at most.
const ADDRESSES_MAX: usize = 16;
/// Tasks' output is not read while this many bytes wait to be sent or acknowledged.
const OUT_BYTES_MAX: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

enum State {
    Dialling {
        dials: Vec<OwnedFd>,
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
    Direct(TcpStream),
    /// Forwarded by the agent and the server.
    Stream(UnixStream),
}

impl Connection {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Connection::Direct(stream) => stream.as_fd(),
            Connection::Stream(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Connection::Direct(stream) => stream.read(buffer),
            Connection::Stream(stream) => stream.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Connection::Direct(stream) => stream.write(bytes),
            Connection::Stream(stream) => stream.write(bytes),
        }
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
    /// Starts to dial an `srun` at all its addresses. Only `IP:PORT` is accepted: a supervisor resolves no names.
    pub fn dial(addresses: &[String]) -> ClientLink {
        let addresses = addresses.iter().filter_map(|text| text.parse().ok()).take(ADDRESSES_MAX);
        let dials: Vec<OwnedFd> =
            addresses.filter_map(|address| begin_dial(&address).ok()).collect();
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
            State::Open { connection: Connection::Direct(_), .. } => {
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
        let direct = matches!(&self.state, State::Open { connection: Connection::Direct(_), .. });
        let mine = self.last_stream == Some(number) && !direct && !self.is_closed();
        if mine {
            self.close();
        }
        mine
    }

    /// The descriptors to poll, and whether for writing.
    pub fn interests(&self) -> Vec<(BorrowedFd<'_>, bool)> {
        match &self.state {
            State::Dialling { dials, .. } => dials.iter().map(|fd| (fd.as_fd(), true)).collect(),
            State::Open { connection, .. } => vec![(connection.fd(), self.has_unwritten())],
            State::Awaiting { .. } | State::Closed => Vec::new(),
        }
    }

    fn has_unwritten(&self) -> bool {
        !self.preface.is_empty() || self.out.has_unwritten()
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
        self.out.is_empty() && self.preface.is_empty()
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
        let mut index = 0;
        while index < dials.len() {
            match dial_result(&dials[index]) {
                Ok(true) => {
                    let stream = TcpStream::from(dials.swap_remove(index));
                    // Without this small frames wait for an acknowledgement and the step is slower, but works.
                    let _ = stream.set_nodelay(true);
                    let connection = Connection::Direct(stream);
                    self.state = State::Open { connection, decoder: Decoder::default() };
                    return Progress::Opened;
                }
                Ok(false) => index += 1,
                Err(_) => drop(dials.swap_remove(index)),
            }
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
        if frame::encode(channel, payload, &mut encoded).is_ok() {
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
            let piece = if first { &self.preface } else { self.out.next_chunk() };
            match connection.write(piece) {
                Ok(written) if written > 0 && first => drop(self.preface.drain(..written)),
                Ok(written) if written > 0 => self.out.mark_written(written),
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
        let mut buffer = vec![0; READ_BYTES];
        let ended = match connection.read(&mut buffer) {
            Ok(length) if length > 0 => {
                decoder.push(&buffer[..length]);
                false
            }
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            Ok(_) => true,
        };
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

fn begin_dial(address: &SocketAddr) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, None)?;
    // Keepalive detects a host that vanished without closing the connection.
    setsockopt(&fd, sockopt::KeepAlive, &true)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(*address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd),
        Err(errno) => Err(errno),
    }
}

/// Whether the connection is established; an error if it was refused.
fn dial_result(fd: &OwnedFd) -> nix::Result<bool> {
    let error = getsockopt(fd, sockopt::SocketError)?;
    if error != 0 {
        return Err(Errno::from_raw(error));
    }
    match nix::sys::socket::getpeername::<SockaddrStorage>(fd.as_raw_fd()) {
        Ok(_) => Ok(true),
        Err(Errno::ENOTCONN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests;
