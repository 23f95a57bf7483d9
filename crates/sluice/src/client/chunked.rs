//! Chunked transfer coding: takes the framing off the bytes of a body, in whatever portions they arrive.

use std::io;

/// The longest line with a chunk's size, or of a trailer.
const LINE_BYTES_MAX: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecoderState {
    Size,
    Data {
        left: u64,
    },
    /// The line end that closes a chunk's data.
    DataEnd,
    Trailer,
    End,
}

/// What the next bytes of the body are. A number is a count of bytes of the input, to be consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkedPart {
    /// Bytes of the coding itself.
    Framing(usize),
    Data(usize),
    /// Nothing can be said before more has arrived.
    Incomplete,
    End,
}

pub struct ChunkedDecoder {
    state: DecoderState,
}

impl ChunkedDecoder {
    pub fn new() -> Self {
        Self { state: DecoderState::Size }
    }

    /// What `unread` begins with. The caller consumes those bytes and asks again.
    pub fn next_part(&mut self, unread: &[u8]) -> io::Result<ChunkedPart> {
        match self.state {
            DecoderState::Size => self.size(unread),
            DecoderState::Data { .. } if unread.is_empty() => Ok(ChunkedPart::Incomplete),
            DecoderState::Data { left } => {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(unread.len());
                let left = left - length as u64;
                self.state =
                    if left == 0 { DecoderState::DataEnd } else { DecoderState::Data { left } };
                Ok(ChunkedPart::Data(length))
            }
            DecoderState::DataEnd => match unread {
                [b'\r', b'\n', ..] => {
                    self.state = DecoderState::Size;
                    Ok(ChunkedPart::Framing(2))
                }
                [] | [b'\r'] => Ok(ChunkedPart::Incomplete),
                _ => Err(invalid("a chunk is longer than its size says")),
            },
            DecoderState::Trailer => self.trailer(unread),
            DecoderState::End => Ok(ChunkedPart::End),
        }
    }

    fn size(&mut self, unread: &[u8]) -> io::Result<ChunkedPart> {
        // `httparse` takes an empty line for a size of zero.
        if unread.first().is_some_and(|byte| !byte.is_ascii_hexdigit()) {
            return Err(invalid("a chunk has no size"));
        }
        match httparse::parse_chunk_size(unread) {
            Ok(httparse::Status::Complete((length, size))) => {
                self.state = if size == 0 {
                    DecoderState::Trailer
                } else {
                    DecoderState::Data { left: size }
                };
                Ok(ChunkedPart::Framing(length))
            }
            Ok(httparse::Status::Partial) => incomplete_line(unread),
            Err(_) => Err(invalid("a chunk has no size")),
        }
    }

    /// Trailers are skipped: the server sends none that matter here.
    fn trailer(&mut self, unread: &[u8]) -> io::Result<ChunkedPart> {
        let Some(end) = unread.iter().position(|byte| *byte == b'\n') else {
            return incomplete_line(unread);
        };
        if matches!(&unread[..end], [] | [b'\r']) {
            self.state = DecoderState::End;
        }
        Ok(ChunkedPart::Framing(end + 1))
    }
}

fn incomplete_line(unread: &[u8]) -> io::Result<ChunkedPart> {
    if unread.len() > LINE_BYTES_MAX {
        return Err(invalid("a line of the chunked answer is too long"));
    }
    Ok(ChunkedPart::Incomplete)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes pieces as they arrive; the body so far, and whether it has ended.
    fn decode(pieces: &[&[u8]]) -> io::Result<(Vec<u8>, bool)> {
        let mut decoder = ChunkedDecoder::new();
        let (mut unread, mut body) = (Vec::new(), Vec::new());
        for piece in pieces {
            unread.extend_from_slice(piece);
            loop {
                match decoder.next_part(&unread)? {
                    ChunkedPart::Framing(length) => drop(unread.drain(..length)),
                    ChunkedPart::Data(length) => body.extend(unread.drain(..length)),
                    ChunkedPart::Incomplete => break,
                    ChunkedPart::End => return Ok((body, true)),
                }
            }
        }
        Ok((body, false))
    }

    const WHOLE: &[u8] = b"5\r\nhello\r\nb;name=value\r\n, chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn a_body_is_decoded_wherever_it_is_cut() {
        let expected = (b"hello, chunked\r\n".to_vec(), true);
        for first in 0..=WHOLE.len() {
            for second in first..=WHOLE.len() {
                let pieces = [&WHOLE[..first], &WHOLE[first..second], &WHOLE[second..]];
                assert_eq!(decode(&pieces).expect("well formed"), expected, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = WHOLE.chunks(1).collect();
        assert_eq!(decode(&bytes).expect("well formed"), expected);
    }

    #[test]
    fn a_body_that_stops_early_has_not_ended() {
        for cut in 0..WHOLE.len() {
            let (body, ended) = decode(&[&WHOLE[..cut]]).expect("well formed");
            assert!(!ended && b"hello, chunked\r\n".starts_with(&body), "{cut}");
        }
    }

    #[test]
    fn what_is_not_chunked_is_an_error() {
        let long = [&b"1;"[..], &[b'x'; 2 * LINE_BYTES_MAX]].concat();
        for bad in [&b"x\r\n"[..], b"\r\n", b"2\r\nabc\r\n", b"11111111111111111\r\n", &long] {
            assert!(decode(&[bad]).is_err(), "{bad:?}");
        }
    }
}
