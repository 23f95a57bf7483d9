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

    /// What follows the frames that were given back.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.start)
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
        fn frames_are_decoded_however_the_bytes_are_cut(
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
        fn garbage_never_makes_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_frame() {}
        }
    }

    #[test]
    fn length_beyond_the_bound_is_an_error_and_not_an_allocation() {
        let mut decoder = Decoder::default();
        decoder.push(&[0xff, 0xff, 0xff, 0xff, 0]);
        let (length, bound) = (u32::MAX as usize, PAYLOAD_MAX);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong { length, bound }));
        let mut decoder = Decoder::bounded(10);
        decoder.push(&[11, 0, 0, 0, 0]);
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong { length: 11, bound: 10 }));
        assert!(encode_bounded(0, &[0; 11], 10, &mut Vec::new()).is_err());
    }

    #[test]
    fn largest_payload_travels_and_a_larger_one_is_refused_unwritten() {
        let mut bytes = Vec::new();
        encode(7, &vec![1; PAYLOAD_MAX], &mut bytes).unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let frame = decoder.next_frame().unwrap().expect("a whole frame");
        assert_eq!((frame.channel, frame.payload.len()), (7, PAYLOAD_MAX));
        let mut bytes = Vec::new();
        let error = encode(7, &vec![1; PAYLOAD_MAX + 1], &mut bytes);
        assert_eq!(
            (error, bytes.len()),
            (Err(FrameError::TooLong { length: PAYLOAD_MAX + 1, bound: PAYLOAD_MAX }), 0)
        );
    }

    #[test]
    fn truncated_frame_waits_for_its_last_byte() {
        let mut bytes = Vec::new();
        encode(1, b"abc", &mut bytes).unwrap();
        let mut decoder = Decoder::default();
        for byte in &bytes[..bytes.len() - 1] {
            decoder.push(&[*byte]);
            assert_eq!(decoder.next_frame(), Ok(None));
        }
        decoder.push(&bytes[bytes.len() - 1..]);
        let frame = Frame { channel: 1, payload: b"abc".to_vec() };
        assert_eq!(decoder.next_frame(), Ok(Some(frame)));
        assert_eq!(decoder.next_frame(), Ok(None));
    }

    #[test]
    fn decoded_bytes_are_dropped_from_the_buffer() {
        let mut bytes = Vec::new();
        encode(1, &vec![5; COMPACT_AT / 4], &mut bytes).unwrap();
        let mut decoder = Decoder::default();
        for _ in 0..20 {
            decoder.push(&bytes);
            decoder.push(&bytes[..HEADER]);
            assert!(decoder.next_frame().unwrap().is_some());
            assert_eq!(decoder.next_frame(), Ok(None));
            decoder.push(&bytes[HEADER..]);
            assert!(decoder.next_frame().unwrap().is_some());
        }
        assert!(decoder.buffer.len() <= COMPACT_AT + 2 * bytes.len(), "{}", decoder.buffer.len());
    }

    #[test]
    fn message_that_is_no_json_of_its_type_is_malformed() {
        let mut bytes = Vec::new();
        encode_message(0, &vec![1, 2], &mut bytes).unwrap();
        assert_eq!(decode_message::<Vec<u8>>(&bytes[HEADER..]), Ok(vec![1, 2]));
        for payload in [&b""[..], b"[1,", b"{}", b"\xff"] {
            let error = decode_message::<Vec<u8>>(payload).unwrap_err();
            assert!(matches!(error, FrameError::Malformed(_)), "{error}");
        }
    }
}
