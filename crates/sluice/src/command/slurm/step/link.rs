//! One supervisor's connection to the client: framed both ways, never blocking, bounded.

use super::door::Door;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer};
use wire::step::{StepMessage, channel};
use wire::stream::SendCredit;

/// How long one that knocks may take to say who it is, and how many bytes that may take.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
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

/// Which way a link goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The supervisor dialled, and must show the key.
    Direct,
    /// Through the server and the agent, who know who asks.
    Stream,
}

pub struct Link {
    way: Way,
    stream: Option<File>,
    decoder: Decoder,
    out: ResendBuffer,
    incoming: ReceiveCounter,
    /// How much input the tasks may be sent.
    input: SendCredit,
    strange_bytes: usize,
    since: Instant,
    /// The other end has said who it is, and on a stream what it has had.
    greeted: bool,
    /// None until it has shown the key.
    pub peer: Option<Peer>,
    /// Its tasks start when it is told so.
    pub waits: bool,
    /// Nothing of the step is left on its node.
    pub gone: bool,
    /// Why there is nothing at the other end of a stream, and whether there may be yet.
    pub refused: Option<(String, bool)>,
    /// The node that a stream was asked for.
    pub asked_for: Option<String>,
}

impl Link {
    /// One that knocked at the door.
    pub fn new(stream: TcpStream) -> Self {
        Self::over(Way::Direct, File::from(OwnedFd::from(stream)))
    }

    /// A stream that was asked for under this node's name.
    pub fn by_stream(stream: File, node: &str) -> Self {
        Self { asked_for: Some(node.to_owned()), ..Self::over(Way::Stream, stream) }
    }

    fn over(way: Way, stream: File) -> Self {
        Self {
            way,
            stream: Some(stream),
            decoder: Decoder::default(),
            out: ResendBuffer::default(),
            incoming: ReceiveCounter::default(),
            input: SendCredit::default(),
            strange_bytes: 0,
            since: Instant::now(),
            greeted: false,
            peer: None,
            waits: false,
            gone: false,
            refused: None,
            asked_for: None,
        }
    }

    /// The stream broke, and this is the next one: it goes on where the last one stopped.
    pub fn go_on(&mut self, stream: File) {
        self.stream = Some(stream);
        self.decoder = Decoder::default();
        self.greeted = false;
        self.refused = None;
    }

    /// What has come in all, for the other end to go on from.
    pub fn received(&self) -> u64 {
        self.incoming.received()
    }

    /// Whether another stream may take the place of one that broke.
    pub fn may_go_on(&self) -> bool {
        self.way == Way::Stream && !self.gone
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

    /// On a stream what is to be said depends on what the other end has had.
    fn may_write(&self) -> bool {
        self.is_open() && self.greeted
    }

    /// How much input may be sent to it now.
    pub fn input_room(&self) -> usize {
        if self.out.len() < OUT_BYTES_MAX { self.input.left() } else { 0 }
    }

    /// One that has not said who it is in time is sent away.
    pub fn is_overdue(&self) -> bool {
        self.way == Way::Direct && self.peer.is_none() && self.since.elapsed() > HELLO_PATIENCE
    }

    /// The whole frames that have come; the connection closes itself at its end or on nonsense.
    pub fn read(&mut self, door: Option<&Door>) -> Vec<Frame> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut buffer = vec![0; READ_BYTES];
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => {
                self.strange_bytes += if self.peer.is_none() { length } else { 0 };
                self.decoder.push(&buffer[..length]);
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Vec::new();
            }
            Ok(_) | Err(_) => {
                self.close();
                return Vec::new();
            }
        }
        let frames = self.frames(door);
        self.acknowledge(false);
        frames
    }

    fn frames(&mut self, door: Option<&Door>) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if self.greeted => {
                    self.incoming.count(&frame);
                    frames.push(frame);
                }
                Ok(Some(frame)) => {
                    if !self.greet(&frame, door) {
                        self.close();
                        return frames;
                    }
                }
                Ok(None) if self.peer.is_none() && self.strange_bytes > HELLO_BYTES_MAX => {
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

    /// What comes before the step's own frames; false if it is not what it should be.
    fn greet(&mut self, frame: &Frame, door: Option<&Door>) -> bool {
        let message = match frame::decode_message(&frame.payload) {
            Ok(message) if frame.channel == channel::CONTROL => message,
            _ => return false,
        };
        match (message, self.way) {
            (StepMessage::Hello { key, node, node_index, waits }, way) => {
                let admitted = way == Way::Stream || door.is_some_and(|door| door.admits(&key));
                if admitted {
                    self.peer = Some(Peer { node, node_index });
                    // Who looks on starts nothing, and is never asked what it has had.
                    self.waits = waits && door.is_some();
                    self.greeted = way == Way::Direct || door.is_none();
                }
                admitted
            }
            (StepMessage::Received { bytes }, Way::Stream) if self.peer.is_some() => {
                self.greeted = self.out.resume(bytes).is_ok();
                self.flush();
                self.greeted
            }
            (StepMessage::Refused { why, again }, Way::Stream) => {
                self.refused = Some((why, again));
                false
            }
            _ => false,
        }
    }

    /// Tells the other end what has come, so that it need not keep it; `all` when nothing more will.
    pub fn acknowledge(&mut self, all: bool) {
        if self.way == Way::Stream
            && let Some(bytes) = self.incoming.due_acknowledgement(all)
        {
            self.send(&StepMessage::Received { bytes });
        }
    }

    /// The tasks have taken so much input.
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

    /// Goes out together with what is sent next.
    pub fn queue(&mut self, message: &StepMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            self.push(channel::CONTROL, &json);
        }
    }

    /// Input, which there was room for.
    pub fn send_input(&mut self, channel: u8, payload: &[u8], length: usize) {
        self.input.take(length);
        self.push(channel, payload);
        self.flush();
    }

    fn push(&mut self, channel: u8, payload: &[u8]) {
        let kept = self.is_open() || self.may_go_on();
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
        if self.way == Way::Direct {
            self.out.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A supervisor's end and ours.
    fn knock(door: &Door) -> (TcpStream, Link) {
        let endpoint = door.endpoint().expect("addresses");
        let theirs = TcpStream::connect(endpoint.listen.last().expect("loopback").as_str());
        let theirs = theirs.expect("the door is open");
        wait_for(door.as_fd());
        (theirs, Link::new(door.accept().expect("one knocks")))
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

    fn read(link: &mut Link, door: &Door) -> Vec<Frame> {
        wait_for(link.fd().expect("open"));
        link.read(Some(door))
    }

    #[test]
    fn only_who_shows_the_key_is_heard() {
        let door = Door::open().expect("a port");
        let key = door.endpoint().expect("addresses").key;
        let (mut theirs, mut link) = knock(&door);
        let mut bytes = hello(&key);
        frame::encode(channel::STDOUT, b"\0\0\0\0hi", &mut bytes).expect("small");
        theirs.write_all(&bytes).expect("sent");
        let frames = read(&mut link, &door);
        assert_eq!(frames.len(), 1, "what follows the hello");
        assert_eq!(link.peer.as_ref().map(|peer| peer.node.as_str()), Some("n1"));

        for wrong in [hello("wrong"), b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 8192]] {
            let (mut theirs, mut link) = knock(&door);
            theirs.write_all(&wrong).expect("sent");
            while link.is_open() {
                assert!(read(&mut link, &door).is_empty());
                assert!(link.peer.is_none());
            }
        }
    }

    #[test]
    fn the_other_end_going_closes_the_link() {
        let door = Door::open().expect("a port");
        let (theirs, mut link) = knock(&door);
        drop(theirs);
        assert!(read(&mut link, &door).is_empty());
        assert!(!link.is_open());
    }
}
