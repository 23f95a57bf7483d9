//! The lines of a trace, numbered, each of bounded length; from plain text or gzip.

use crate::error::SimError;
use flate2::bufread::MultiGzDecoder;
use std::io::{BufRead, BufReader, Cursor, Read};

/// No line of a trace is longer, bytes.
const LINE_BYTES_MAX: u64 = 4096;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

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

    /// The next line without its end, and its number; `None` at the end.
    pub fn read_line(&mut self) -> Result<Option<(u64, &str)>, SimError> {
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
        let text = std::str::from_utf8(&self.buffer);
        // Comments may be in any encoding: only what is before the first strange byte is looked at.
        let text = text.unwrap_or_else(|fault| {
            std::str::from_utf8(&self.buffer[..fault.valid_up_to()]).unwrap_or_default()
        });
        Ok(Some((line, text.trim())))
    }
}
