//! Frames: a length, a channel and a payload. The same form on every byte stream of ours.

use serde::{Deserialize, Serialize};

/// The largest payload; a longer one is an error, never an allocation.
pub const PAYLOAD_MAX: usize = 16 << 20;

/// Consumed bytes are dropped from the front once there are this many.
const COMPACT_AT: usize = 1 << 20;

/// Length (4 bytes little-endian, of the payload), channel (1 byte).
pub const HEADER: usize = 5;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    #[error("a frame of {0} bytes is longer than the bound of {PAYLOAD_MAX}")]
    TooLong(usize),
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
    if payload.len() > PAYLOAD_MAX {
        return Err(FrameError::TooLong(payload.len()));
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
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    start: usize,
}

impl Decoder {
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
        if length > PAYLOAD_MAX {
            return Err(FrameError::TooLong(length));
        }
        if body.len() < length {
            return Ok(None);
        }
        let frame = Frame { channel: head[4], payload: body[..length].to_vec() };
        self.start += HEADER + length;
        if self.start > COMPACT_AT {
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
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLong(u32::MAX as usize)));
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
        assert_eq!((error, bytes.len()), (Err(FrameError::TooLong(PAYLOAD_MAX + 1)), 0));
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
