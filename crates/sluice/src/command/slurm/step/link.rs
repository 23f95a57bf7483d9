//! One supervisor's connection to the client: frames both ways, non-blocking, with bounded buffers.
//!
//! A connection that the listener accepted is encrypted, and gives no frame before its other end has proven the key.

mod cipher;

use crate::client::{TlsTunnel, UpgradedStream};
use cipher::Cipher;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::frame::{self, Decoder, Frame};
use wire::resume::{ReceiveCounter, ResendBuffer};
use wire::step::{STEP_PAYLOAD_MAX, StepMessage, channel};
use wire::step_channel::StepChannel;
use wire::stream::SendCredit;

/// How long a new connection may take to prove the key and to send its hello, and how many bytes that may be.
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
enum Transport {
    /// The supervisor dialled, and proves the key.
    Direct(Box<StepChannel>),
    /// Through the server and the agent, which have authenticated the client; to a server elsewhere under TLS.
    Stream(Option<Box<TlsTunnel>>),
}

impl Transport {
    fn cipher(&self) -> Option<&dyn Cipher> {
        match self {
            Self::Direct(channel) => Some(&**channel),
            Self::Stream(tls) => tls.as_deref().map(|tls| tls as &dyn Cipher),
        }
    }

    fn cipher_mut(&mut self) -> Option<&mut dyn Cipher> {
        match self {
            Self::Direct(channel) => Some(&mut **channel),
            Self::Stream(tls) => tls.as_deref_mut().map(|tls| tls as &mut dyn Cipher),
        }
    }
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
    /// The other end takes no more. What it has sent is still read, to its end.
    write_failed: bool,
    hello_bytes: usize,
    since: Instant,
    /// The other end has sent its hello, and on a stream how many bytes it has received.
    handshake_done: bool,
    /// `None` until it has proven the key and sent its hello.
    pub peer: Option<Peer>,
    /// How many tasks the step has on all its nodes, if the node says it.
    pub step_tasks: Option<NonZeroU32>,
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
    pub fn new(stream: TcpStream, channel: StepChannel) -> Self {
        let way = Transport::Direct(Box::new(channel));
        Self::over(way, File::from(OwnedFd::from(stream)))
    }

    /// A stream through the server to this node.
    pub fn by_stream(opened: UpgradedStream, node: &str) -> Self {
        let UpgradedStream { stream, early, tls } = opened;
        let way = Transport::Stream(tls);
        Self { asked_for: Some(node.to_owned()), early, ..Self::over(way, stream) }
    }

    fn over(way: Transport, stream: File) -> Self {
        Self {
            way,
            stream: Some(stream),
            early: Vec::new(),
            decoder: Decoder::bounded(STEP_PAYLOAD_MAX),
            out: ResendBuffer::default(),
            incoming: ReceiveCounter::default(),
            input: SendCredit::default(),
            write_failed: false,
            hello_bytes: 0,
            since: Instant::now(),
            handshake_done: false,
            peer: None,
            step_tasks: None,
            waits: false,
            gone: false,
            refused: None,
            asked_for: None,
        }
    }

    /// Replaces a stream that broke. The new one goes on where the last one stopped.
    pub fn resume(&mut self, opened: UpgradedStream) {
        self.way = Transport::Stream(opened.tls);
        self.stream = Some(opened.stream);
        self.early = opened.early;
        self.decoder = Decoder::bounded(STEP_PAYLOAD_MAX);
        self.handshake_done = false;
        self.write_failed = false;
        self.refused = None;
    }

    /// The number of bytes received in all, from which the other end goes on.
    pub fn received(&self) -> u64 {
        self.incoming.received()
    }

    /// Whether a broken stream may be replaced by another.
    pub fn may_resume(&self) -> bool {
        self.is_stream() && !self.gone
    }

    /// Whether the node was linked and is so no more, though its step has not ended there.
    pub fn is_broken(&self) -> bool {
        self.peer.is_some() && !self.is_open() && !self.gone && !self.may_resume()
    }

    fn is_stream(&self) -> bool {
        matches!(self.way, Transport::Stream(_))
    }

    pub fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.stream.as_ref().map(|stream| stream.as_fd())
    }

    pub fn has_to_send(&self) -> bool {
        let has_unsent = self.is_writable() && !self.unsent().is_empty();
        has_unsent || self.may_write() && self.out.has_unwritten()
    }

    fn is_writable(&self) -> bool {
        self.is_open() && !self.write_failed
    }

    /// Encrypted bytes, or bytes of the proof, that wait to be written.
    fn unsent(&self) -> &[u8] {
        self.way.cipher().map_or(&[], |cipher| cipher.unsent())
    }

    /// On a stream nothing is sent before the other end has said how many bytes it has received.
    fn may_write(&self) -> bool {
        self.is_writable() && self.handshake_done
    }

    /// How many bytes of input may be sent now.
    pub fn input_capacity(&self) -> usize {
        if self.out.len() < OUT_BYTES_MAX { self.input.left() } else { 0 }
    }

    /// Whether the hello has not come in time.
    pub fn is_overdue(&self) -> bool {
        !self.is_stream() && self.peer.is_none() && self.since.elapsed() > HELLO_TIMEOUT
    }

    /// The whole frames that have arrived. The link closes itself at the end of the stream or on invalid data.
    /// `is_srun`: whether this is the step's own `srun`, not an observer.
    pub fn read(&mut self, is_srun: bool) -> Vec<Frame> {
        let Some(stream) = &mut self.stream else { return Vec::new() };
        let mut plain = std::mem::take(&mut self.early);
        if plain.is_empty() {
            let mut bytes = vec![0; READ_BYTES];
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
            let Some(decrypted) = self.decrypt(bytes) else {
                self.close();
                return Vec::new();
            };
            plain = decrypted;
        }
        self.hello_bytes += if self.peer.is_none() { plain.len() } else { 0 };
        self.decoder.push(&plain);
        let frames = self.frames(is_srun);
        self.acknowledge(false);
        frames
    }

    /// What bytes of the connection say; `None` if the other end does not know the key, or they were changed.
    fn decrypt(&mut self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        let Some(cipher) = self.way.cipher_mut() else { return Some(bytes) };
        let mut plain = Vec::new();
        cipher.receive(&bytes, &mut plain).ok()?;
        // The answer to a greeting.
        self.flush();
        Some(plain)
    }

    fn frames(&mut self, is_srun: bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) if self.handshake_done => {
                    self.incoming.count(&frame);
                    frames.push(frame);
                }
                Ok(Some(frame)) => {
                    if !self.handshake(&frame, is_srun) {
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
    fn handshake(&mut self, frame: &Frame, is_srun: bool) -> bool {
        let message = match frame::decode_message(&frame.payload) {
            Ok(message) if frame.channel == channel::CONTROL => message,
            _ => return false,
        };
        match (message, self.is_stream()) {
            (StepMessage::Hello { node, node_index, waits, step_tasks, .. }, stream) => {
                self.peer = Some(Peer { node, node_index });
                self.step_tasks = step_tasks;
                // `sattach` starts nothing, and does not say how many bytes it has received.
                self.waits = waits && is_srun;
                self.handshake_done = !stream || !is_srun;
                true
            }
            (StepMessage::Received { bytes }, true) if self.peer.is_some() => {
                self.handshake_done = self.out.resume(bytes).is_ok();
                self.flush();
                self.handshake_done
            }
            (StepMessage::Refused { why, again }, true) => {
                self.refused = Some((why, again));
                false
            }
            _ => false,
        }
    }

    /// Acknowledges received bytes, so that the other end need not keep them; with `all`, also a small amount.
    pub fn acknowledge(&mut self, all: bool) {
        if self.is_stream()
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
        if frame::encode_bounded(channel, payload, STEP_PAYLOAD_MAX, &mut encoded).is_ok() {
            self.out.push(&encoded);
        }
    }

    /// Encrypts the next bytes, if those before are written. Returns false if the channel cannot carry more.
    fn encrypt(&mut self) -> bool {
        let may_write = self.may_write() && self.out.has_unwritten();
        let Some(cipher) = self.way.cipher_mut() else { return true };
        if !may_write || !cipher.unsent().is_empty() {
            return true;
        }
        let sealed = cipher.seal(self.out.next_chunk());
        sealed.map(|taken| self.out.mark_written(taken)).is_ok()
    }

    pub fn flush(&mut self) {
        while self.has_to_send() {
            if !self.encrypt() {
                return self.close();
            }
            let Some(stream) = &mut self.stream else { return };
            let written = match self.way.cipher() {
                Some(cipher) => stream.write(cipher.unsent()),
                None => stream.write(self.out.next_chunk()),
            };
            match (written, self.way.cipher_mut()) {
                (Ok(written), Some(cipher)) if written > 0 => cipher.mark_sent(written),
                (Ok(written), None) if written > 0 => self.out.mark_written(written),
                (Err(e), _) if e.kind() == ErrorKind::Interrupted => {}
                (Err(e), _) if e.kind() == ErrorKind::WouldBlock => return,
                (Ok(_) | Err(_), _) => self.write_failed = true,
            }
        }
    }

    pub fn close(&mut self) {
        self.stream = None;
        if !self.is_stream() {
            self.out.clear();
        }
    }
}

#[cfg(test)]
mod tests;
