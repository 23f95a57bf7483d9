//! Resumption of a byte stream after its connection broke: what was sent is kept until it is acknowledged.
//!
//! Both ends count the bytes of the frames that they were sent. On a new connection each says its count, and the other
//! goes on from there: nothing is lost and nothing comes twice.

use crate::frame::{Frame, HEADER};
use std::collections::VecDeque;

/// An acknowledgement is due after this many bytes; far below what a sender keeps.
const ACKNOWLEDGE_EVERY: u64 = 64 << 10;

/// The sending end.
#[derive(Debug, Default)]
pub struct ResendBuffer {
    /// Bytes that are not acknowledged, then bytes that are not written yet.
    kept: VecDeque<u8>,
    /// The number of the first byte kept.
    base: u64,
    written: usize,
    /// Whether written bytes are kept for another connection.
    resumable: bool,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the other end has {said} bytes, and those from {from} to {to} are here")]
pub struct ResumeGap {
    said: u64,
    from: u64,
    to: u64,
}

impl ResendBuffer {
    pub fn push(&mut self, bytes: &[u8]) {
        self.kept.extend(bytes);
    }

    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether nothing is left to write, nor to be acknowledged.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn has_unwritten(&self) -> bool {
        self.written < self.kept.len()
    }

    /// The next bytes to write; there may be more behind them.
    pub fn next_chunk(&self) -> &[u8] {
        let (front, back) = self.kept.as_slices();
        match front.get(self.written..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => &back[self.written - front.len()..],
        }
    }

    pub fn mark_written(&mut self, bytes: usize) {
        self.written = (self.written + bytes).min(self.kept.len());
        if !self.resumable {
            self.drop_first(self.written);
        }
    }

    /// The other end has this many bytes in all.
    pub fn acknowledge(&mut self, received: u64) {
        let count = received.saturating_sub(self.base) as usize;
        self.drop_first(count.min(self.written));
    }

    /// A new connection, whose other end has `received` bytes: the rest is written again.
    pub fn resume(&mut self, received: u64) -> Result<(), ResumeGap> {
        let (from, to) = (self.base, self.base + self.kept.len() as u64);
        if !(from..=to).contains(&received) {
            return Err(ResumeGap { said: received, from, to });
        }
        self.written = self.kept.len();
        self.drop_first((received - from) as usize);
        self.written = 0;
        self.resumable = true;
        Ok(())
    }

    pub fn clear(&mut self) {
        self.base += self.kept.len() as u64;
        self.kept.clear();
        self.written = 0;
    }

    fn drop_first(&mut self, count: usize) {
        self.kept.drain(..count);
        self.base += count as u64;
        self.written -= count;
    }
}

/// The receiving end.
#[derive(Debug, Default, Clone, Copy)]
pub struct ReceiveCounter {
    received: u64,
    acknowledged: u64,
}

impl ReceiveCounter {
    pub fn received(&self) -> u64 {
        self.received
    }

    pub fn count(&mut self, frame: &Frame) {
        self.received += (HEADER + frame.payload.len()) as u64;
    }

    /// What to acknowledge now, if it is time; `all`: whatever is not acknowledged yet.
    pub fn due_acknowledgement(&mut self, all: bool) -> Option<u64> {
        let open = self.received - self.acknowledged;
        (open >= ACKNOWLEDGE_EVERY || (all && open > 0)).then(|| {
            self.acknowledged = self.received;
            self.received
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, Decoder};
    use proptest::prelude::*;

    proptest! {
        /// Frames over connections that break anywhere, after any part was written and any part of that arrived.
        #[test]
        fn nothing_is_lost_and_nothing_comes_twice(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..30),
            turns in prop::collection::vec((0usize..60, 0usize..60, any::<bool>()), 0..40),
        ) {
            let mut out = ResendBuffer::default();
            out.resume(0).unwrap();
            let mut incoming = ReceiveCounter::default();
            let mut seen = Vec::new();
            for payload in &frames {
                let mut bytes = Vec::new();
                frame::encode(3, payload, &mut bytes).unwrap();
                out.push(&bytes);
            }
            let everything = (usize::MAX, usize::MAX, false);
            for (write, arrive, acknowledge) in turns.into_iter().chain([everything]) {
                let mut under_way = Vec::new();
                while out.has_unwritten() && under_way.len() < write {
                    let piece = out.next_chunk().to_vec();
                    let piece = &piece[..piece.len().min(write - under_way.len())];
                    under_way.extend_from_slice(piece);
                    out.mark_written(piece.len());
                }
                under_way.truncate(arrive);
                let mut decoder = Decoder::default();
                decoder.push(&under_way);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    incoming.count(&frame);
                    seen.push(frame.payload);
                }
                if acknowledge && let Some(count) = incoming.due_acknowledgement(true) {
                    out.acknowledge(count);
                }
                out.resume(incoming.received()).unwrap();
            }
            prop_assert_eq!(seen, frames);
            prop_assert!(out.is_empty());
        }
    }

    #[test]
    fn written_bytes_are_kept_only_once_the_connection_is_resumable() {
        let mut out = ResendBuffer::default();
        out.push(b"hello");
        out.mark_written(2);
        assert_eq!((out.next_chunk(), out.len()), (b"llo".as_slice(), 3));
        assert!(out.resume(1).is_err());
        assert_eq!(out.resume(2), Ok(()));
        assert_eq!(out.next_chunk(), b"llo");
    }

    #[test]
    fn acknowledgement_is_due_after_each_64_kib_and_on_request() {
        let mut incoming = ReceiveCounter::default();
        let frame = Frame { channel: 0, payload: vec![0; 1000] };
        let told = (0..200).filter(|_| {
            incoming.count(&frame);
            incoming.due_acknowledgement(false).is_some()
        });
        assert_eq!(told.count(), 3);
        assert!(incoming.due_acknowledgement(true).is_some());
    }

    fn resumable(bytes: &[u8]) -> ResendBuffer {
        let mut out = ResendBuffer::default();
        out.resume(0).unwrap();
        out.push(bytes);
        out
    }

    #[test]
    fn acknowledged_bytes_are_dropped_and_the_rest_is_sent_again_after_a_loss() {
        let mut out = resumable(b"abcdef");
        out.mark_written(4);
        out.acknowledge(2);
        assert_eq!((out.len(), out.next_chunk()), (4, b"ef".as_slice()));
        // The connection broke; the other end had three bytes.
        assert_eq!(out.resume(3), Ok(()));
        assert_eq!((out.has_unwritten(), out.next_chunk()), (true, b"def".as_slice()));
        out.mark_written(3);
        assert!(!out.has_unwritten() && !out.is_empty());
        out.acknowledge(6);
        assert!(out.is_empty());
    }

    #[test]
    fn acknowledgement_of_what_was_never_written_drops_nothing_unwritten() {
        let mut out = resumable(b"abcdef");
        out.mark_written(2);
        out.acknowledge(u64::MAX);
        assert_eq!(out.next_chunk(), b"cdef");
        out.acknowledge(1);
        assert_eq!(out.len(), 4, "an old acknowledgement changes nothing");
    }

    #[test]
    fn resuming_before_or_behind_the_kept_bytes_is_a_gap() {
        let mut out = resumable(b"abcdef");
        out.mark_written(6);
        out.acknowledge(4);
        assert_eq!(out.resume(3), Err(ResumeGap { said: 3, from: 4, to: 6 }));
        assert_eq!(out.resume(7), Err(ResumeGap { said: 7, from: 4, to: 6 }));
        assert_eq!(out.resume(4), Ok(()));
        assert_eq!(out.next_chunk(), b"ef", "a gap has changed nothing");
    }

    #[test]
    fn cleared_bytes_count_as_sent() {
        let mut out = resumable(b"abc");
        out.clear();
        out.push(b"de");
        assert!(out.resume(2).is_err());
        assert_eq!((out.resume(3), out.next_chunk()), (Ok(()), b"de".as_slice()));
    }
}
