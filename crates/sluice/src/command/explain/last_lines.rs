//! The last lines that a job wrote, as far as whoever asks may read them: of a file on this machine, or as the server has them.

use crate::client::Client;
use model::id::JobId;
use model::printable::printable;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// How much of the file's end is read, and how many lines and characters of each are shown.
const READ_BYTES: usize = 8 << 10;
const LINES: usize = 5;
const LINE_CHARS: usize = 160;

/// Empty if the file cannot be read here, is no file, or is empty.
pub fn of(path: &Path) -> Vec<String> {
    // A pipe would have to be waited for.
    let is_file = std::fs::metadata(path).is_ok_and(|known| known.is_file());
    let bytes = if is_file { end_of(path).unwrap_or_default() } else { Vec::new() };
    lines_of(&bytes)
}

/// From the server: the log of a run, or the output file of a batch job as its first node reads it. Empty if the server has
/// neither, or does not give it to the caller.
pub fn told(client: &Client, job: JobId) -> Vec<String> {
    let path = format!("/api/v1/logs?job={job}&node=0&last={READ_BYTES}");
    let mut bytes: Vec<u8> = Vec::new();
    let answer = client.stream(&path, |piece| {
        bytes.extend_from_slice(piece);
        // An agent of an earlier version sends all of it.
        let beyond = bytes.len().saturating_sub(READ_BYTES);
        bytes.drain(..beyond);
        true
    });
    if matches!(answer, Ok(None)) { lines_of(&bytes) } else { Vec::new() }
}

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(LINES);
    lines[from..].iter().map(|line| shown(line)).collect()
}

fn end_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(READ_BYTES as u64)))?;
    let mut bytes = Vec::new();
    file.take(READ_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Without control characters, which a terminal would obey.
fn shown(line: &str) -> String {
    let line: String = line.chars().take(LINE_CHARS).collect();
    printable(&line.replace('\t', "    ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_shown_without_control_characters() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let text: String = (0..2000).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&path, text + "\n\x1b[31mred\n\n").expect("a file");
        let lines = of(&path);
        assert_eq!(lines, ["line 1996", "line 1997", "line 1998", "line 1999", "\\u{1b}[31mred"]);
        assert!(of(folder.path()).is_empty() && of(&folder.path().join("none")).is_empty());
    }
}
