//! A backup's file: a tar archive of plain files, and behind it a line with the SHA-256 of all before it. What was cut short or
//! changed is found by the line.

use crate::error::ServerError;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// The format that this program writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The archive's first file.
pub const MANIFEST: &str = "manifest.json";
pub const MANIFEST_BYTES_MAX: u64 = 64 << 10;

/// The folders and files of the server's part of the state folder that a backup may hold.
pub const JOURNAL: &str = "journal";
pub const SNAPSHOTS: &str = "snapshots";
pub const BLOBS: &str = "blobs";
pub const BOOKS: &str = "books.sqlite";
pub const KEYS: &str = "keys";
pub const UPLOADS: &str = "uploads";
pub const LOGS: &str = "logs";
/// A copy of the configuration, which the server does not read.
pub const CONFIG: &str = "config";

const LINE_START: &str = "sluice backup, sha256 ";
const HEX: usize = 64;
/// The length of the last line.
pub const LINE: usize = LINE_START.len() + HEX + 1;

/// What a backup says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The program that wrote it.
    pub program: String,
    pub cluster: String,
    pub made_ms: i64,
    /// The last event that is in it, and the journal's hash there.
    pub seq: u64,
    pub chain: String,
    pub term: u64,
    pub next_job: u32,
    pub keys: bool,
    pub logs: bool,
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds up the hash of all that is written through it.
pub struct HashedWriter<W> {
    inner: W,
    hash: Context,
}

impl<W: Write> HashedWriter<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, hash: Context::new(&SHA256) }
    }

    /// Writes the last line.
    pub fn finish(mut self) -> io::Result<W> {
        let line = last_line(self.hash);
        self.inner.write_all(line.as_bytes())?;
        self.inner.flush()?;
        Ok(self.inner)
    }
}

impl<W: Write> Write for HashedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn last_line(hash: Context) -> String {
    format!("{LINE_START}{}\n", hex(hash.finish().as_ref()))
}

/// Checks the last line against all that came before it, as the bytes come.
pub struct LineCheck {
    hash: Context,
    /// The last bytes so far, at most [`LINE`]: they may be the last line.
    held: Vec<u8>,
}

impl Default for LineCheck {
    fn default() -> Self {
        Self { hash: Context::new(&SHA256), held: Vec::with_capacity(2 * LINE) }
    }
}

impl LineCheck {
    pub fn add(&mut self, bytes: &[u8]) {
        let (early, late) = bytes.split_at(bytes.len().saturating_sub(LINE));
        if !early.is_empty() {
            self.hash.update(&std::mem::take(&mut self.held));
            self.hash.update(early);
        }
        self.held.extend_from_slice(late);
        let beyond = self.held.len().saturating_sub(LINE);
        self.hash.update(&self.held[..beyond]);
        self.held.drain(..beyond);
    }

    /// Whether all bytes came, unchanged.
    pub fn is_whole(self) -> bool {
        self.held == last_line(self.hash).as_bytes()
    }

    /// Reads to the end; whether it is a whole backup.
    pub fn of(mut reader: impl Read) -> io::Result<bool> {
        let mut check = Self::default();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match reader.read(&mut buffer)? {
                0 => return Ok(check.is_whole()),
                read => check.add(&buffer[..read]),
            }
        }
    }
}

/// The parts of a path in the archive, if it is one that a backup may hold: plain names, in a known place.
pub fn checked_path(path: &[u8]) -> Result<&str, ServerError> {
    let refused = || {
        let shown = String::from_utf8_lossy(path).escape_debug().to_string();
        ServerError::Other(format!("'{shown}' has no place in a backup; nothing was restored"))
    };
    let path = std::str::from_utf8(path).map_err(|_| refused())?;
    let is_plain = |part: &str| {
        let known = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(known)
    };
    let parts: Vec<&str> = path.split('/').collect();
    let placed = match parts[..] {
        [name] => [MANIFEST, BOOKS].contains(&name),
        [JOURNAL | SNAPSHOTS | KEYS | LOGS | CONFIG, _] => true,
        [BLOBS, "packs", _] | [BLOBS, "big", _, _] | [UPLOADS, _, _] => true,
        _ => false,
    };
    if placed && parts.iter().all(|part| is_plain(part)) { Ok(path) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(content: &[u8]) -> Vec<u8> {
        let mut writer = HashedWriter::new(Vec::new());
        writer.write_all(content).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn every_cut_and_every_changed_byte_is_found() {
        for content in [&b""[..], b"short", &[7; 300]] {
            let bytes = whole(content);
            assert!(LineCheck::of(&bytes[..]).unwrap());
            for piece in [1, 7, LINE, LINE + 1, 200] {
                let mut check = LineCheck::default();
                bytes.chunks(piece).for_each(|chunk| check.add(chunk));
                assert!(check.is_whole(), "{} bytes in pieces of {piece}", bytes.len());
            }
            for at in 0..bytes.len() {
                assert!(!LineCheck::of(&bytes[..at]).unwrap(), "cut at {at}");
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert!(!LineCheck::of(&changed[..]).unwrap(), "changed at {at}");
            }
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for good in [
            "manifest.json",
            "books.sqlite",
            "journal/journal-000000000001.log",
            "blobs/packs/pack-00000001",
            "blobs/big/ab/ab12",
            "uploads/1000/archive-ab12",
            "logs/12-1-node-1.example.1000.log",
        ] {
            assert!(checked_path(good.as_bytes()).is_ok(), "{good}");
        }
        for bad in [
            "",
            "/etc/passwd",
            "../admin.token",
            "keys/../../admin.token",
            "keys/..",
            "keys",
            "keys/a/b",
            "journal//x",
            "journal/.x",
            "blobs/packs/../../x",
            "local.join",
            "keys/a b",
            "keys/a\0",
            "keys/a\n",
        ] {
            assert!(checked_path(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(checked_path(b"keys/\xff").is_err());
    }
}
