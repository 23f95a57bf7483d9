//! The output of runs, as the server keeps it: a file for each attempt on each node, on a disk or in the servers' database.
//!
//! A file is a row of records: the time of arrival, the position in the output, and the bytes, with a checksum. A record that
//! a crash cut short is dropped when the file is opened again, and its bytes are asked for once more. One that the disk has
//! damaged is left out where it is read, and that is said in its place.

mod eviction;
mod read_ahead;
mod record;

use crate::disk::{Disk, DiskFile};
use model::id::AttemptId;
use model::time::Timestamp;
use read_ahead::ReadAhead;
use record::{HEADER_BYTES, Header, Next};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Which output: what an attempt wrote on one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogKey {
    pub attempt: AttemptId,
    /// The user whose output it is, to whose share it counts.
    pub owner: u32,
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
    /// Where all together take more than `bytes_max`, removes logs of whoever has most, the oldest first and those that are
    /// written to last, until there is some room again. Returns how many were removed.
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
    /// How far in the output it has come.
    len: u64,
    /// What came before was removed to make room.
    evicted: bool,
}

const EVICTED_NOTICE: &[u8] =
    b"[sluice: what came before was removed to make room for other logs]\n";

impl LogFiles {
    pub fn new(disk: Arc<dyn Disk>) -> io::Result<Self> {
        let total = disk.list("")?.iter().map(|entry| entry.len).sum();
        Ok(Self { disk, tails: Mutex::default(), total: AtomicU64::new(total) })
    }

    fn tails(&self) -> MutexGuard<'_, HashMap<LogKey, Tail>> {
        self.tails.lock().expect("no panic with the logs held")
    }

    /// The file, under its own name or the one that a build before gave it.
    fn file(&self, key: &LogKey) -> io::Result<Option<Box<dyn DiskFile>>> {
        for name in [file_name(key), old_file_name(key)] {
            match self.disk.open(&name) {
                Ok(file) => return Ok(Some(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Opens the file and drops what a crash left unfinished at its end.
    fn tail(&self, key: &LogKey) -> io::Result<Option<Tail>> {
        let Some(file) = self.file(key)? else { return Ok(None) };
        let ahead = ReadAhead::new(&*file);
        let mut tail = Tail::default();
        loop {
            match record::next(&ahead, tail.place, Some(tail.len))? {
                Next::Record(header, _) => {
                    tail.place = header.end(tail.place);
                    tail.len = header.offset + u64::from(header.len);
                }
                Next::Damage { until } => {
                    tracing::warn!("the log {} is damaged at byte {}", file_name(key), tail.place);
                    tail.place = until;
                }
                Next::End => break,
            }
        }
        if file.len()? > tail.place {
            file.truncate(tail.place)?;
        }
        Ok(Some(tail))
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
        let mut tail = known.unwrap_or_default();
        let file = match self.file(key)? {
            Some(file) => file,
            None => self.disk.create(&file_name(key))?,
        };
        if tail.evicted {
            // It ends where the output goes on, so that positions stay right.
            let offset = tail.len.saturating_sub(EVICTED_NOTICE.len() as u64);
            let header = Header { at, offset, len: EVICTED_NOTICE.len() as u32 };
            file.write_at(tail.place, &record::encode(&header, EVICTED_NOTICE))?;
            self.total.fetch_add(header.end(0), Ordering::Relaxed);
            (tail.place, tail.evicted) = (header.end(tail.place), false);
        }
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
        let Some(file) = self.file(key)? else { return Ok(()) };
        file.sync_data()?;
        self.disk.sync_dir("")
    }

    fn read(&self, key: &LogKey, place: u64, bytes_max: usize) -> io::Result<LogPage> {
        let Some(file) = self.file(key)? else { return Ok(LogPage::default()) };
        let ahead = ReadAhead::new(&*file);
        let mut page = LogPage { chunks: Vec::new(), next: place };
        let (mut taken, mut at, mut len) = (0, Timestamp::default(), None);
        while taken < bytes_max {
            let bytes = match record::next(&ahead, page.next, len)? {
                Next::Record(header, bytes) => {
                    page.next = header.end(page.next);
                    (at, len) = (header.at, Some(header.offset + u64::from(header.len)));
                    bytes
                }
                Next::Damage { until } => {
                    let lost = until - page.next;
                    page.next = until;
                    format!("\n[sluice: about {lost} bytes of this log were damaged on the server's disk]\n")
                        .into_bytes()
                }
                Next::End => break,
            };
            taken += bytes.len() + HEADER_BYTES;
            page.chunks.push(LogChunk { at, bytes });
        }
        Ok(page)
    }

    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn shrink(&self, bytes_max: u64) -> io::Result<usize> {
        if self.total() <= bytes_max {
            return Ok(0);
        }
        // No log is opened for writing meanwhile.
        let mut tails = self.tails();
        let written: HashMap<String, LogKey> =
            tails.keys().map(|key| (file_name(key), key.clone())).collect();
        let mut logs = Vec::new();
        for entry in self.disk.list("")? {
            logs.extend(eviction::Log::of(&entry, |name| written.contains_key(name)));
        }
        let mut total: u64 = logs.iter().map(|log| log.bytes).sum();
        let mut removed = 0;
        for log in eviction::choose(logs, bytes_max) {
            self.disk.remove(&log.name)?;
            if let Some(tail) = written.get(&log.name).and_then(|key| tails.get_mut(key)) {
                *tail = Tail { place: 0, evicted: true, ..*tail };
            }
            total -= log.bytes;
            removed += 1;
        }
        self.total.store(total, Ordering::Relaxed);
        Ok(removed)
    }
}

/// `12-1-node.1000.log`: the job, the attempt, the node and the owner.
fn file_name(key: &LogKey) -> String {
    let LogKey { attempt: AttemptId { job, number }, owner, node } = key;
    format!("{job}-{number}-{node}.{owner}.log")
}

/// The name before logs had owners.
fn old_file_name(key: &LogKey) -> String {
    let LogKey { attempt: AttemptId { job, number }, node, .. } = key;
    format!("{job}-{number}-{node}.log")
}

#[cfg(test)]
mod tests;
