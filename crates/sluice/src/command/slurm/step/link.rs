//! One supervisor's connection to the `srun`: framed both ways, never blocking, bounded.

use super::door::Door;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::step::{StepMessage, channel};

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

pub struct Link {
    stream: Option<TcpStream>,
    decoder: Decoder,
    out: VecDeque<u8>,
    received: usize,
    since: Instant,
    /// None until it has shown the key.
    pub peer: Option<Peer>,
    /// Nothing of the step is left on its node.
    pub gone: bool,
}

impl Link {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream: Some(stream),
            decoder: Decoder::default(),
            out: VecDeque::new(),
            received: 0,
            since: Instant::now(),
            peer: None,
            gone: false,
        }
    }

    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(|stream| stream.as_fd())
    }

    pub fn has_to_send(&self) -> bool {
        !self.out.is_empty()
    }

    pub fn has_room(&self) -> bool {
        self.out.len() < OUT_BYTES_MAX
    }

    /// One that has not said who it is in time is sent away.
    pub fn is_overdue(&self) -> bool {
        self.peer.is_none() && self.since.elapsed() > HELLO_PATIENCE
    }

    /// The whole frames that have come; the connection closes itself at its end or on nonsense.
    pub fn read(&mut self, door: &Door) -> Vec<Frame> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut buffer = vec![0; READ_BYTES];
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => {
                self.received += length;
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
        self.frames(door)
    }

    fn frames(&mut self, door: &Door) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if self.peer.is_some() => frames.push(frame),
                Ok(Some(hello)) => match peer(&hello, door) {
                    Some(peer) => self.peer = Some(peer),
                    None => return self.turned_away(),
                },
                Ok(None) if self.peer.is_none() && self.received > HELLO_BYTES_MAX => {
                    return self.turned_away();
                }
                Ok(None) => return frames,
                Err(_) => {
                    self.close();
                    return frames;
                }
            }
        }
    }

    fn turned_away(&mut self) -> Vec<Frame> {
        self.close();
        Vec::new()
    }

    pub fn send(&mut self, message: &StepMessage) {
        if let Ok(json) = serde_json::to_vec(message) {
            self.send_bytes(channel::CONTROL, &json);
        }
    }

    pub fn send_bytes(&mut self, channel: u8, payload: &[u8]) {
        if !self.is_open() || self.peer.is_none() {
            return;
        }
        let mut encoded = Vec::with_capacity(frame::HEADER + payload.len());
        if frame::encode(channel, payload, &mut encoded).is_ok() {
            self.out.extend(encoded);
        }
        self.flush();
    }

    pub fn flush(&mut self) {
        while !self.out.is_empty() {
            let Some(stream) = &mut self.stream else { return self.out.clear() };
            let (front, _) = self.out.as_slices();
            match stream.write(front) {
                Ok(written) if written > 0 => drop(self.out.drain(..written)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => return self.close(),
            }
        }
    }

    pub fn close(&mut self) {
        self.stream = None;
        self.out.clear();
    }
}

fn peer(hello: &Frame, door: &Door) -> Option<Peer> {
    if hello.channel != channel::CONTROL {
        return None;
    }
    match frame::decode_message(&hello.payload).ok()? {
        StepMessage::Hello { key, node, node_index } if door.admits(&key) => {
            Some(Peer { node, node_index })
        }
        _ => None,
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
        let message = StepMessage::Hello { key: key.into(), node: "n1".into(), node_index: 0 };
        frame::encode_message(channel::CONTROL, &message, &mut bytes).expect("small");
        bytes
    }

    fn read(link: &mut Link, door: &Door) -> Vec<Frame> {
        wait_for(link.fd().expect("open"));
        link.read(door)
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
