//! The program itself, as it is uploaded to hosts: opened before root is given up, since the server's user may not read it.

use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// How much is read at once.
const CHUNK_BYTES: usize = 256 << 10;

pub struct Program {
    file: File,
    pub bytes: u64,
    /// SHA-256, as `sha256sum` prints it.
    pub digest: String,
}

impl Program {
    /// Reads it once, for its digest.
    pub fn open(file: File) -> io::Result<Self> {
        let mut program = Self { bytes: file.metadata()?.len(), file, digest: String::new() };
        let mut context = Context::new(&SHA256);
        let mut at = 0;
        loop {
            let chunk = program.chunk(at)?;
            if chunk.is_empty() {
                break;
            }
            at += chunk.len() as u64;
            context.update(&chunk);
        }
        let digest = context.finish();
        program.digest = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(program)
    }

    /// The bytes from here on, up to a chunk; none at the end.
    pub fn chunk(&self, at: u64) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let read = self.file.read_at(&mut buffer, at)?;
        buffer.truncate(read);
        Ok(buffer)
    }
}
