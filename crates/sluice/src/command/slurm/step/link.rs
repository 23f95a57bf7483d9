//! One supervisor's connection to the client: frames both ways, non-blocking, with bounded buffers.

use super::listener::StepListener;
use crate::client::UpgradedStream;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer};
use wire::step::{StepMessage, channel};
use wire::stream::SendCredit;

/// How long a new connection may take to send its hello, and how many bytes that may be.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
const HELLO_BYTES_MAX: usize = 4 << 10;
/// Input is not read while this much waits to be sent.
const OUT_BYTES_MAX: usize = 256 << 10;
const READ_BYTES: usize = 64 << 10;

/// The node at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub node: String,
    pub node_index: u32,
}

/// How the bytes of a link travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    /// The supervisor dialled, and must show the key.
    Direct,
    /// Through the server and the agent, which have authenticated the client.
    Stream,
}

pub struct Link {
    way: Transport,
    stream: Option<File>,
    /// Bytes that arrived together with the response that opened the stream.
    early: Vec<u8>,
    decoder: Decoder,
    out: ResendBuffer,
    incoming: ReceiveCounter,
    /// Credit for input to the tasks.
    input: SendCredit,
    hello_bytes: usize,
    since: Instant,
    /// The other end has sent its hello, and on a stream how many bytes it has received.
    handshake_done: bool,
    /// `None` until it has shown the key.
    pub peer: Option<Peer>,
    /// Its tasks wait for a message to start.
    pub waits: bool,
    /// The step has ended on its node.
    pub gone: bool,
    /// Why the node refused a stream, and whether asking again makes sense.
    pub refused: Option<(String, bool)>,
    /// The node to which a stream was asked for.
    pub asked_for: Option<String>,
}

impl Link {
    /// A connection that the listener accepted.
    pub fn new(stream: TcpStream) -> Self {
        Self::over(Transport::Direct, File::from(OwnedFd::from(stream)))
    }

    /// A stream through the server to this node.
    pub fn by_stream(opened: UpgradedStream, node: &str) -> Self {
        let UpgradedStream { stream, early } = opened;
        Self { asked_for: Some(node.to_owned()), early, ..Self::over(Transport::Stream, stream) }
    }

    fn over(way: Transport, stream: File) -> Self {
        Self {
            way,
            stream: Some(stream),
            early: Vec::new(),
            decoder: Decoder::default(),
            out: ResendBuffer::default(),
            incoming: ReceiveCounter::default(),
            input: SendCredit::default(),
            hello_bytes: 0,
            since: Instant::now(),
            handshake_done: false,
            peer: None,
            waits: false,
            gone: false,
            refused: None,
            asked_for: None,
        }
    }

    /// Replaces a stream that broke. The new one goes on where the last one stopped.
    pub fn resume(&mut self, opened: UpgradedStream) {
        self.stream = Some(opened.stream);
        self.early = opened.early;
        self.decoder = Decoder::default();
        self.handshake_done = false;
        self.refused = None;
    }

    /// The number of bytes received in all, from which the other end goes on.
    pub fn received(&self) -> u64 {
        self.incoming.received()
    }

    /// Whether a broken stream may be replaced by another.
    pub fn may_resume(&self) -> bool {
        self.way == Transport::Stream && !self.gone
    }

    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(|stream| stream.as_fd())
    }

    pub fn has_to_send(&self) -> bool {
        self.may_write() && self.out.has_unwritten()
    }

    /// On a stream nothing is sent before the other end has said how many bytes it has received.
    fn may_write(&self) -> bool {
        self.is_open() && self.handshake_done
    }

    /// How many bytes of input may be sent now.
    pub fn input_capacity(&self) -> usize {
        if self.out.len() < OUT_BYTES_MAX { self.input.left() } else { 0 }
    }

    /// Whether the hello has not come in time.
    pub fn is_overdue(&self) -> bool {
        self.way == Transport::Direct && self.peer.is_none() && self.since.elapsed() > HELLO_TIMEOUT
    }

    /// The whole frames that have arrived. The link closes itself at the end of the stream or on invalid data.
    pub fn read(&mut self, listener: Option<&StepListener>) -> Vec<Frame> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut bytes = std::mem::take(&mut self.early);
        if bytes.is_empty() {
            bytes.resize(READ_BYTES, 0);
            match stream.read(&mut bytes) {
                Ok(length) if length > 0 => bytes.truncate(length),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Vec::new();
                }
                Ok(_) | Err(_) => {
                    self.close();
                    return Vec::new();
                }
            }
        }
        self.hello_bytes += if self.peer.is_none() { bytes.len() } else { 0 };
        self.decoder.push(&bytes);
        let frames = self.frames(listener);
        self.acknowledge(false);
        frames
    }

    fn frames(&mut self, listener: Option<&StepListener>) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if self.handshake_done => {
                    self.incoming.count(&frame);
                    frames.push(frame);
                }
                Ok(Some(frame)) => {
                    if !self.handshake(&frame, listener) {
                        self.close();
                        return frames;
                    }
                }
                Ok(None) if self.peer.is_none() && self.hello_bytes > HELLO_BYTES_MAX => {
                    self.close();
                    return frames;
                }
                Ok(None) => return frames,
                Err(_) => {
                    self.close();
                    return frames;
                }
            }
        }
    }

    /// Handles what precedes the step's own frames; false if it is invalid.
    fn handshake(&mut self, frame: &Frame, listener: Option<&StepListener>) -> bool {
        let message = match frame::decode_message(&frame.payload) {
            Ok(message) if frame.channel == channel::CONTROL => message,
            _ => return false,
        };
        match (message, self.way) {
            (StepMessage::Hello { key, node, node_index, waits }, way) => {
                let admitted = way == Transport::Stream
                    || listener.is_some_and(|listener| listener.admits(&key));
                if admitted {
                    self.peer = Some(Peer { node, node_index });
                    // `sattach` starts nothing, and does not say how many bytes it has received.
                    self.waits = waits && listener.is_some();
                    self.handshake_done = way == Transport::Direct || listener.is_none();
                }
                admitted
            }
            (StepMessage::Received { bytes }, Transport::Stream) if self.peer.is_some() => {
                self.handshake_done = self.out.resume(bytes).is_ok();
                self.flush();
                self.handshake_done
            }
            (StepMessage::Refused { why, again }, Transport::Stream) => {
                self.refused = Some((why, again));
                false
            }
            _ => false,
        }
    }

    /// Acknowledges received bytes, so that the other end need not keep them; with `all`, also a small amount.
    pub fn acknowledge(&mut self, all: bool) {
        if self.way == Transport::Stream
            && let Some(bytes) = self.incoming.due_acknowledgement(all)
        {
            self.send(&StepMessage::Received { bytes });
        }
    }

    /// The tasks have consumed this much input.
    pub fn credit(&mut self, bytes: u32) {
        self.input.grant(bytes);
    }

    pub fn acknowledged(&mut self, bytes: u64) {
        self.out.acknowledge(bytes);
    }

    pub fn send(&mut self, message: &StepMessage) {
        self.queue(message);
        self.flush();
    }

    /// Queues a message that goes out together with the next one.
    pub fn queue(&mut self, message: &StepMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            self.push(channel::CONTROL, &json);
        }
    }

    /// Sends input, for which there was credit.
    pub fn send_input(&mut self, channel: u8, payload: &[u8], length: usize) {
        self.input.take(length);
        self.push(channel, payload);
        self.flush();
    }

    fn push(&mut self, channel: u8, payload: &[u8]) {
        let kept = self.is_open() || self.may_resume();
        if !kept || self.peer.is_none() {
            return;
        }
        let mut encoded = Vec::with_capacity(frame::HEADER + payload.len());
        if frame::encode(channel, payload, &mut encoded).is_ok() {
            self.out.push(&encoded);
        }
    }

    pub fn flush(&mut self) {
        while self.has_to_send() {
            let Some(stream) = &mut self.stream else { return };
            match stream.write(self.out.next_chunk()) {
                Ok(written) if written > 0 => self.out.mark_written(written),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => return self.close(),
            }
        }
    }

    pub fn close(&mut self) {
        self.stream = None;
        if self.way == Transport::Direct {
            self.out.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor's end and ours.
    fn connect(listener: &StepListener) -> (TcpStream, Link) {
        let endpoint = listener.endpoint().expect("addresses");
        let theirs = TcpStream::connect(endpoint.listen.last().expect("loopback").as_str());
        let theirs = theirs.expect("the listener is open");
        wait_for(listener.as_fd());
        (theirs, Link::new(listener.accept().expect("one knocks")))
    }

    fn wait_for(fd: BorrowedFd<'_>) {
        let mut fds = [nix::poll::PollFd::new(fd, nix::poll::PollFlags::POLLIN)];
        assert_eq!(nix::poll::poll(&mut fds, 5_000u16), Ok(1));
    }

    fn hello(key: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (key, node) = (key.into(), "n1".into());
        let message = StepMessage::Hello { key, node, node_index: 0, waits: false };
        frame::encode_message(channel::CONTROL, &message, &mut bytes).expect("small");
        bytes
    }

    fn read(link: &mut Link, listener: &StepListener) -> Vec<Frame> {
        wait_for(link.fd().expect("open"));
        link.read(Some(listener))
    }

    #[test]
    fn a_connection_without_the_key_is_closed() {
        let listener = StepListener::open().expect("a port");
        let key = listener.endpoint().expect("addresses").key;
        let (mut theirs, mut link) = connect(&listener);
        let mut bytes = hello(&key);
        frame::encode(channel::STDOUT, b"\0\0\0\0hi", &mut bytes).expect("small");
        theirs.write_all(&bytes).expect("sent");
        let frames = read(&mut link, &listener);
        assert_eq!(frames.len(), 1, "what follows the hello");
        assert_eq!(link.peer.as_ref().map(|peer| peer.node.as_str()), Some("n1"));

        for wrong in [hello("wrong"), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 8192]] {
            let (mut theirs, mut link) = connect(&listener);
            theirs.write_all(&wrong).expect("sent");
            while link.is_open() {
                assert!(read(&mut link, &listener).is_empty());
                assert!(link.peer.is_none());
            }
        }
    }

    #[test]
    fn the_link_closes_when_the_other_end_does() {
        let listener = StepListener::open().expect("a port");
        let (theirs, mut link) = connect(&listener);
        drop(theirs);
        assert!(read(&mut link, &listener).is_empty());
        assert!(!link.is_open());
    }
}
