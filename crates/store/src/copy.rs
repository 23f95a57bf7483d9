//! Files as a backup copies them: each opened, with the length that counts. What is written behind it later is not copied.

use std::io::{self, Read};

use crate::disk::DiskFile;

pub struct CopiedFile {
    pub name: String,
    pub file: Box<dyn DiskFile>,
    pub len: u64,
}

/// Reads the counted bytes of a file from its beginning; one that has become shorter is an error.
pub struct CopyReader<'a> {
    file: &'a dyn DiskFile,
    at: u64,
    end: u64,
}

impl<'a> CopyReader<'a> {
    pub fn new(file: &'a dyn DiskFile, len: u64) -> Self {
        Self { file, at: 0, end: len }
    }
}

impl Read for CopyReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let wanted = left.min(buffer.len());
        if wanted == 0 {
            return Ok(0);
        }
        match self.file.read_at(self.at, &mut buffer[..wanted])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.at += read as u64;
                Ok(read)
            }
        }
    }
}
