//! Standard output for the log of a run: as it is, with a prefix before each line, or as JSON with an object for each line.

use super::write_out;
use model::id::JobId;
use serde_json::json;
use std::io;

/// A longer line is printed in several.
const LINE_BYTES_MAX: usize = 1 << 20;

pub enum LogOutput {
    Plain,
    Prefixed {
        prefix: String,
        /// What has come of a line whose end has not.
        line: Vec<u8>,
    },
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

    pub fn prefixed(prefix: String) -> Self {
        Self::Prefixed { prefix, line: Vec::new() }
    }

    /// Lines of several logs are not mixed: what is written at once is whole lines.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out: Vec<u8> = Vec::new();
        match self {
            Self::Plain => return write_out(bytes),
            Self::Prefixed { prefix, line } => {
                whole_lines(line, bytes, |line| prefix_line(&mut out, prefix, line));
            }
            Self::Json { job, node, line } => {
                whole_lines(line, bytes, |line| out.extend(object(*job, *node, line).bytes()));
            }
        }
        write_out(&out)
    }

    /// Prints a last line that has no end.
    pub fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Prefixed { prefix, line } if !line.is_empty() => {
                let mut out = Vec::new();
                prefix_line(&mut out, prefix, line);
                line.clear();
                write_out(&out)
            }
            Self::Json { job, node, line } if !line.is_empty() => {
                let text = object(*job, *node, line);
                line.clear();
                write_out(text.as_bytes())
            }
            _ => Ok(()),
        }
    }
}

/// Hands each whole line of what has come to `take`, without its end, and keeps the rest.
fn whole_lines(line: &mut Vec<u8>, bytes: &[u8], mut take: impl FnMut(&[u8])) {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(piece);
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if line.len() < LINE_BYTES_MAX {
            continue;
        }
        take(line);
        line.clear();
    }
}

fn prefix_line(out: &mut Vec<u8>, prefix: &str, line: &[u8]) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(line);
    out.push(b'\n');
}

/// Bytes that are no UTF-8 are replaced: JSON has no others.
fn object(job: JobId, node: usize, line: &[u8]) -> String {
    let message = String::from_utf8_lossy(line);
    format!("{}\n", json!({ "job_id": job, "node": node, "message": message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_handed_on_once_its_end_has_come() {
        let (mut line, mut out) = (Vec::new(), Vec::new());
        for piece in ["one\ntw", "o\n\nthr"] {
            whole_lines(&mut line, piece.as_bytes(), |line| prefix_line(&mut out, "7_1 | ", line));
        }
        assert_eq!(String::from_utf8_lossy(&out), "7_1 | one\n7_1 | two\n7_1 | \n");
        assert_eq!(line, b"thr");
    }
}
