//! Frames: a length, a channel and a payload. The same form on every byte stream of ours.

use serde::{Deserialize, Serialize};

/// The largest payload; a longer one is an error, never an allocation.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// Consumed bytes are dropped from the front once there are this many, or as many as the largest payload.
const COMPACT_AT: usize = 1 << 20;

/// Length (4 bytes little-endian, of the payload), channel (1 byte).
pub const HEADER: usize = 5;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("a frame of {length} bytes is longer than the bound of {bound}")]
    TooLong { length: usize, bound: usize },
    #[error("a message cannot be read: {0}")]
    Malformed(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    pub channel: u8,
    pub payload: Vec<u8>,
}

/// Appends one frame to `out`.
pub fn encode(channel: u8, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    encode_bounded(channel, payload, PAYLOAD_MAX, out)
}

/// As [`encode`], on a stream whose frames have a smaller bound.
pub fn encode_bounded(
    channel: u8,
    payload: &[u8],
    bound: usize,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    if payload.len() > bound {
        return Err(FrameError::TooLong { length: payload.len(), bound });
    }
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.push(channel);
    out.extend_from_slice(payload);
    Ok(())
}

/// Appends one message as JSON on `channel`.
pub fn encode_message<T: Serialize>(
    channel: u8,
    message: &T,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let json = serde_json::to_vec(message).map_err(|e| FrameError::Malformed(e.to_string()))?;
    encode(channel, &json, out)
}

pub fn decode_message<'a, T: Deserialize<'a>>(payload: &'a [u8]) -> Result<T, FrameError> {
    serde_json::from_slice(payload).map_err(|e| FrameError::Malformed(e.to_string()))
}

/// Takes bytes as they come and gives whole frames back.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
    payload_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::bounded(PAYLOAD_MAX)
    }
}

impl Decoder {
    /// A decoder that refuses payloads beyond this bound. It holds little more than one such frame.
    pub fn bounded(payload_max: usize) -> Self {
        Self { buffer: Vec::new(), start: 0, payload_max }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && self.start == self.buffer.len() {
            self.buffer.clear();
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some((head, body)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > self.payload_max {
            return Err(FrameError::TooLong { length, bound: self.payload_max });
        }
        if body.len() < length {
            return Ok(None);
        }
        let frame = Frame { channel: head[4], payload: body[..length].to_vec() };
        self.start += HEADER + length;
        if self.start > COMPACT_AT.min(self.payload_max) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back_whole_however_the_bytes_are_cut(
            frames in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..50)), 0..20),
            cut in 1usize..17,
        ) {
            let mut bytes = Vec::new();
            for (channel, payload) in &frames {
                encode(*channel, payload, &mut bytes).unwrap();
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(cut) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    seen.push((frame.channel, frame.payload));
                }
            }
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_an_error_and_not_an_allocation() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff, 0xff, 0xff, 0xff, 0]);
        let (length, bound) = (u32::MAX as usize, PAYLOAD_MAX);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong { length, bound }));
        let mut decoder = Decoder::bounded(10);
        decoder.push(&[11, 0, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong { length: 11, bound: 10 }));
        assert!(encode_bounded(0, &[0; 11], 10, &mut Vec::new()).is_err());
    }
}
