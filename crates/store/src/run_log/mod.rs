//! The output of runs, as the server keeps it: a file for each attempt on each node.
//!
//! A file is a row of records: the time of arrival, the position in the output, and the bytes, with a checksum. A record that
//! a crash cut short is dropped when the file is opened again, and its bytes are asked for once more.

mod record;

use crate::disk::Disk;
use model::id::AttemptId;
use model::time::Timestamp;
use record::{HEADER_BYTES, Header};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Which output: what an attempt wrote on one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogKey {
    pub attempt: AttemptId,
    pub node: String,
}

/// Bytes that arrived together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogChunk {
    pub at: Timestamp,
    pub bytes: Vec<u8>,
}

/// A part of a log, and the place in the file where the next part begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPage {
    pub chunks: Vec<LogChunk>,
    pub next: u64,
}

/// Where the output of runs is kept.
pub trait RunLogs: Send + Sync {
    /// How many bytes of the output are kept: where to go on.
    fn len(&self, key: &LogKey) -> io::Result<u64>;
    fn append(&self, key: &LogKey, at: Timestamp, bytes: &[u8]) -> io::Result<()>;
    /// Makes what was appended durable; nothing more is appended.
    fn close(&self, key: &LogKey) -> io::Result<()>;
    /// Reads from a place that an earlier page named, 0 at first: at least one chunk if there is one, and about `bytes_max`.
    fn read(&self, key: &LogKey, place: u64, bytes_max: usize) -> io::Result<LogPage>;
    /// What all logs together take on the disk.
    fn total(&self) -> u64;
    /// Removes the oldest logs until all together take at most `bytes_max`. Returns how many were removed.
    fn shrink(&self, bytes_max: u64) -> io::Result<usize>;
}

/// Logs as files of a folder.
pub struct LogFiles {
    disk: Arc<dyn Disk>,
    /// The ends of the files that are written to. No file is held open: a cluster may run more tasks than a process may have
    /// descriptors.
    tails: Mutex<HashMap<LogKey, Tail>>,
    total: AtomicU64,
}

/// The end of a file that is written to.
#[derive(Clone, Copy, Default)]
struct Tail {
    /// Where the next record goes.
    place: u64,
    /// The bytes of output in the file.
    len: u64,
}

impl LogFiles {
    pub fn new(disk: Arc<dyn Disk>) -> io::Result<Self> {
        let total = disk.list("")?.iter().map(|entry| entry.len).sum();
        Ok(Self { disk, tails: Mutex::default(), total: AtomicU64::new(total) })
    }

    fn tails(&self) -> MutexGuard<'_, HashMap<LogKey, Tail>> {
        self.tails.lock().expect("no panic with the logs held")
    }

    /// Opens the file and drops what a crash left unfinished at its end.
    fn tail(&self, key: &LogKey) -> io::Result<Option<Tail>> {
        let file = match self.disk.open(&file_name(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let (mut place, mut len) = (0, 0);
        while let Some((header, _)) = record::read(&*file, place)? {
            place = header.end(place);
            len = header.offset + u64::from(header.len);
        }
        if file.len()? > place {
            file.truncate(place)?;
        }
        Ok(Some(Tail { place, len }))
    }
}

impl RunLogs for LogFiles {
    fn len(&self, key: &LogKey) -> io::Result<u64> {
        let mut tails = self.tails();
        if let Some(tail) = tails.get(key) {
            return Ok(tail.len);
        }
        let Some(tail) = self.tail(key)? else { return Ok(0) };
        let len = tail.len;
        tails.insert(key.clone(), tail);
        Ok(len)
    }

    fn append(&self, key: &LogKey, at: Timestamp, bytes: &[u8]) -> io::Result<()> {
        let mut tails = self.tails();
        let known = match tails.get(key) {
            Some(tail) => Some(*tail),
            None => self.tail(key)?,
        };
        let (file, mut tail) = match known {
            Some(tail) => (self.disk.open(&file_name(key))?, tail),
            None => (self.disk.create(&file_name(key))?, Tail::default()),
        };
        let header = Header { at, offset: tail.len, len: bytes.len() as u32 };
        // A record that was written in part is overwritten by the next one, or dropped when the file is opened.
        let record = record::encode(&header, bytes);
        file.write_at(tail.place, &record)?;
        self.total.fetch_add(record.len() as u64, Ordering::Relaxed);
        tail.place = header.end(tail.place);
        tail.len += bytes.len() as u64;
        tails.insert(key.clone(), tail);
        Ok(())
    }

    fn close(&self, key: &LogKey) -> io::Result<()> {
        if self.tails().remove(key).is_none() {
            return Ok(());
        }
        self.disk.open(&file_name(key))?.sync_data()?;
        self.disk.sync_dir("")
    }

    fn read(&self, key: &LogKey, place: u64, bytes_max: usize) -> io::Result<LogPage> {
        let file = match self.disk.open(&file_name(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LogPage::default()),
            Err(error) => return Err(error),
        };
        let mut page = LogPage { chunks: Vec::new(), next: place };
        let mut taken = 0;
        while taken < bytes_max
            && let Some((header, bytes)) = record::read(&*file, page.next)?
        {
            page.next = header.end(page.next);
            taken += bytes.len() + HEADER_BYTES;
            page.chunks.push(LogChunk { at: header.at, bytes });
        }
        Ok(page)
    }

    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn shrink(&self, bytes_max: u64) -> io::Result<usize> {
        // No log is opened for writing meanwhile, so none that is written to is removed.
        let tails = self.tails();
        let mut files: Vec<(AttemptId, String, u64)> = Vec::new();
        for entry in self.disk.list("")? {
            if let Some(attempt) = attempt_of(&entry.name) {
                files.push((attempt, entry.name, entry.len));
            }
        }
        files.sort();
        let mut total: u64 = files.iter().map(|(_, _, len)| len).sum();
        let mut removed = 0;
        let written: HashSet<String> = tails.keys().map(file_name).collect();
        for (_, name, len) in files {
            if total <= bytes_max {
                break;
            }
            if !written.contains(&name) {
                self.disk.remove(&name)?;
                total -= len;
                removed += 1;
            }
        }
        self.total.store(total, Ordering::Relaxed);
        Ok(removed)
    }
}

/// `12-1-node.log`: the job, the attempt and the node.
fn file_name(key: &LogKey) -> String {
    let LogKey { attempt: AttemptId { job, number }, node } = key;
    format!("{job}-{number}-{node}.log")
}

fn attempt_of(name: &str) -> Option<AttemptId> {
    let mut parts = name.strip_suffix(".log")?.splitn(3, '-');
    let job = parts.next()?.parse().ok()?;
    let number = parts.next()?.parse().ok()?;
    parts.next().map(|_| AttemptId { job: model::id::JobId(job), number })
}

#[cfg(test)]
mod tests;
