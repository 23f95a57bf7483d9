//! The lines of a trace, numbered, each of bounded length; from plain text or gzip.

use crate::error::SimError;
use flate2::bufread::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Cursor, Read};

/// No line of a trace is longer, bytes.
const LINE_BYTES_MAX: u64 = 4096;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// What some editors put before the first line of a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

pub struct Lines<'r> {
    input: Box<dyn BufRead + 'r>,
    /// The number of the last line that was read, counted from one.
    number: u64,
    buffer: Vec<u8>,
}

impl<'r> Lines<'r> {
    pub fn new(mut input: impl Read + 'r) -> Result<Self, SimError> {
        let mut magic = Vec::new();
        let read = input.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic);
        read.map_err(|source| SimError::Read { line: 1, source })?;
        let is_gzip = magic == GZIP_MAGIC;
        let whole = BufReader::new(Cursor::new(magic).chain(input));
        let input: Box<dyn BufRead + 'r> = if is_gzip {
            Box::new(BufReader::new(MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self { input, number: 0, buffer: Vec::new() })
    }

    /// The next line without its end, and its number; `None` at the end. Comments may be in any encoding: what is not UTF-8 is
    /// replaced by characters that no number or name has.
    pub fn read_line(&mut self) -> Result<Option<(u64, Cow<'_, str>)>, SimError> {
        self.number += 1;
        let line = self.number;
        self.buffer.clear();
        let mut bounded = self.input.by_ref().take(LINE_BYTES_MAX);
        bounded
            .read_until(b'\n', &mut self.buffer)
            .map_err(|source| SimError::Read { line, source })?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if self.buffer.len() as u64 == LINE_BYTES_MAX {
            let fault = format!("expected at most {} bytes in a line", LINE_BYTES_MAX - 1);
            return Err(SimError::line(line, fault));
        }
        let marked = self.buffer.strip_prefix(BYTE_ORDER_MARK).filter(|_| line == 1);
        let text = marked.unwrap_or(&self.buffer);
        Ok(Some((line, String::from_utf8_lossy(text.trim_ascii()))))
    }
}
