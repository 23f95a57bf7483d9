//! Standard output for the log of a run: as it is, or as JSON with an object for each line.

use super::write_out;
use model::id::JobId;
use serde_json::json;
use std::io;

/// A longer line is printed in several objects.
const LINE_BYTES_MAX: usize = 1 << 20;

pub enum LogOutput {
    Plain,
    Json {
        job: JobId,
        node: usize,
        /// What has come of a line whose end has not.
        line: Vec<u8>,
    },
}

impl LogOutput {
    pub fn json(job: JobId, node: usize) -> Self {
        Self::Json { job, node, line: Vec::new() }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self::Json { job, node, line } = self else { return write_out(bytes) };
        let mut text = String::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if line.last() == Some(&b'\n') {
                line.pop();
            } else if line.len() < LINE_BYTES_MAX {
                continue;
            }
            text += &object(*job, *node, line);
            line.clear();
        }
        write_out(text.as_bytes())
    }

    /// Prints a last line that has no end.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Json { job, node, line } if !line.is_empty() => {
                let text = object(*job, *node, line);
                line.clear();
                write_out(text.as_bytes())
            }
            _ => Ok(()),
        }
    }
}

/// Bytes that are no UTF-8 are replaced: JSON has no others.
fn object(job: JobId, node: usize, line: &[u8]) -> String {
    let message = String::from_utf8_lossy(line);
    format!("{}\n", json!({ "job_id": job, "node": node, "message": message }))
}
