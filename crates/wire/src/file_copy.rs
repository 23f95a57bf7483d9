//! A file on its way to the nodes of a job: a header, the bytes, and their digest. `sbcast` sends it as the input of a step
//! whose tasks are [`crate::step::OwnProgram::ReceiveFile`]. The digest comes last: a copy without it is not whole.

use ring::digest::{Context, Digest, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, Read, Write};

/// The largest header that is read: a path has no more than 4096 bytes, and six characters of JSON for each at most.
const HEADER_BYTES_MAX: usize = 32 << 10;
const PIECE_BYTES: usize = 64 << 10;

/// What is copied, and to which place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCopy {
    /// The path on each node, absolute.
    pub destination: String,
    pub length: u64,
    /// The permission bits of the source.
    pub mode: u32,
    /// Set if mode and times are kept as they are, whatever the umask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preserved: Option<FileTimes>,
    /// A file that is there is replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
}

/// Seconds since 1970 and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTimes {
    pub accessed: (i64, i64),
    pub modified: (i64, i64),
}

/// Sends the whole file. A source that has changed its length since is an error, and no digest is sent.
pub fn send(copy: &FileCopy, mut source: impl Read, mut to: impl Write) -> io::Result<()> {
    let header = serde_json::to_vec(copy)?;
    to.write_all(&(header.len() as u32).to_le_bytes())?;
    to.write_all(&header)?;
    let digest = pass_on(&mut source, copy.length, &mut to)?;
    if source.read(&mut [0])? > 0 {
        return Err(io::Error::other("it has grown while it was read"));
    }
    to.write_all(digest.as_ref())
}

pub fn receive_header(mut from: impl Read) -> io::Result<FileCopy> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > HEADER_BYTES_MAX {
        return Err(io::Error::other(format!("a header of {length} bytes")));
    }
    let mut header = vec![0; length];
    from.read_exact(&mut header)?;
    Ok(serde_json::from_slice(&header)?)
}

/// Writes the bytes that follow the header, and checks their number and their digest.
pub fn receive_bytes(copy: &FileCopy, mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let digest = pass_on(&mut from, copy.length, &mut to)?;
    let mut said = [0; SHA256_OUTPUT_LEN];
    from.read_exact(&mut said)?;
    if digest.as_ref() != said {
        return Err(io::Error::other("the bytes are not those that were sent"));
    }
    Ok(())
}

/// Passes so many bytes on; their digest.
fn pass_on(from: &mut impl Read, length: u64, to: &mut impl Write) -> io::Result<Digest> {
    let mut digest = Context::new(&SHA256);
    let mut buffer = vec![0; PIECE_BYTES];
    let mut left = length;
    while left > 0 {
        let most = left.min(PIECE_BYTES as u64) as usize;
        let read = match from.read(&mut buffer[..most]) {
            Ok(0) => {
                let words = format!("it ended {left} bytes too early");
                return Err(io::Error::new(ErrorKind::UnexpectedEof, words));
            }
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digest.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(digest.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(length: usize) -> FileCopy {
        let times = FileTimes { accessed: (1, 2), modified: (3, 4) };
        let destination = "/tmp/x \"y\"".to_owned();
        let (length, preserved) = (length as u64, Some(times));
        FileCopy { destination, length, mode: 0o640, preserved, replace: true }
    }

    fn sent(bytes: &[u8]) -> Vec<u8> {
        let mut stream = Vec::new();
        send(&copy(bytes.len()), bytes, &mut stream).expect("sent");
        stream
    }

    fn received(mut stream: &[u8]) -> io::Result<(FileCopy, Vec<u8>)> {
        let header = receive_header(&mut stream)?;
        let mut bytes = Vec::new();
        receive_bytes(&header, &mut stream, &mut bytes)?;
        Ok((header, bytes))
    }

    #[test]
    fn a_file_arrives_as_it_was_sent() {
        let bytes: Vec<u8> = (0..3 * PIECE_BYTES + 7).map(|at| (at % 251) as u8).collect();
        for length in [0, 1, PIECE_BYTES, bytes.len()] {
            let (header, arrived) = received(&sent(&bytes[..length])).expect("whole");
            assert_eq!(header, copy(length));
            assert!(arrived == bytes[..length], "{length} bytes");
        }
    }

    #[test]
    fn a_copy_that_is_cut_or_changed_anywhere_is_refused() {
        let whole = sent(b"a few bytes");
        for length in 0..whole.len() {
            assert!(received(&whole[..length]).is_err(), "cut after {length} bytes");
        }
        let body = whole.len() - SHA256_OUTPUT_LEN - 1;
        for at in [body, body + 1, whole.len() - 1] {
            let mut other = whole.clone();
            other[at] ^= 1;
            assert!(received(&other).is_err(), "byte {at} changed");
        }
        assert!(received(&[0xff; 64]).is_err(), "a header beyond all bounds");
    }

    #[test]
    fn a_source_that_changes_its_length_is_never_sent_whole() {
        for bytes in [&b"short"[..], b"longer than it was said to be"] {
            let mut stream = Vec::new();
            send(&copy(10), bytes, &mut stream).expect_err("another length");
            assert!(received(&stream).is_err());
        }
    }
}
