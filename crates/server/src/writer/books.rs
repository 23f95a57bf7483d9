//! The books' thread: takes in ended attempts in batches, behind the writer.
//!
//! Of several servers on a database, each has books of its own on its disk. What they are made from is in the database: the
//! leader writes it there before its own books, and a server that takes over reads what its books lack.

use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::books_queue::{BooksQueue, BooksTask, BooksWork};
use crate::writer::recover::ReplayedEntry;
use model::activity::Activity;
use model::id::RunId;
use model::record::JobRecord;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::books::{BooksPart, JobPurge};
use store::postgres::{EndedLog, EntrySummary, StoredEntry};
use store::{BookReader, Books};

/// Records taken into one transaction.
const BATCH: usize = 4096;
/// The same where they are also one row of a database, which goes over the network and is read back as a whole.
const SHARED_BATCH: usize = 512;
/// How long entries of an earlier program are moved in a row: what ends meanwhile waits for the books.
const DESCRIBE_TIME: Duration = Duration::from_secs(1);

/// What one transaction takes into the books, as it is in the database.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct EndedEntry {
    records: Vec<JobRecord>,
    deleted: Vec<RunId>,
    activities: Vec<Activity>,
}

impl EndedEntry {
    fn encode(&self) -> Result<Vec<u8>, ServerError> {
        serde_json::to_vec(self).map_err(|e| ServerError::Other(e.to_string()))
    }

    fn is_empty(&self) -> bool {
        self.records.is_empty() && self.deleted.is_empty() && self.activities.is_empty()
    }

    fn read(seq: u64, bytes: &[u8]) -> Result<Self, ServerError> {
        serde_json::from_slice(bytes)
            .map_err(|e| ServerError::Other(format!("the ended jobs of seq {seq}: {e}")))
    }

    fn decode(stored: &StoredEntry) -> Result<Self, ServerError> {
        let number = stored.number;
        serde_json::from_slice(&stored.content)
            .map_err(|e| ServerError::Other(format!("the ended jobs of entry {number}: {e}")))
    }

    fn summary(&self) -> EntrySummary {
        let ends = self.records.iter().map(|record| record.end);
        EntrySummary::of(ends, !self.deleted.is_empty() || !self.activities.is_empty())
    }
}

/// Takes records of jobs that ended before this out of what new books are made from, whole months at once and some of the others;
/// how many. What outlives its records leaves its month first, which is dropped by the next call.
fn purge_shared(ended: &EndedLog, before: Timestamp) -> Result<usize, ServerError> {
    let mut removed = usize::try_from(ended.drop_months(before)?).unwrap_or(usize::MAX);
    for stored in ended.older_than(before)? {
        let mut entry = EndedEntry::decode(&stored)?;
        let there = entry.records.len();
        entry.records.retain(|record| record.end.is_none_or(|end| end >= before));
        removed = removed.saturating_add(there - entry.records.len());
        // One without a record stays for the runs that were deleted, and what was done beside the jobs.
        let kept = if entry.is_empty() { None } else { Some((entry.encode()?, entry.summary())) };
        ended.replace(&stored, kept)?;
    }
    Ok(removed)
}

/// Moves entries of an earlier program to the months of their ends, for a bounded time.
fn describe_entries(ended: &EndedLog) -> Result<(), ServerError> {
    let begun = Instant::now();
    while begun.elapsed() < DESCRIBE_TIME {
        let page = ended.undescribed()?;
        if page.is_empty() {
            return Ok(());
        }
        for stored in page {
            ended.describe(&stored, EndedEntry::decode(&stored)?.summary())?;
        }
    }
    Ok(())
}

/// Opens the books of a server on a database whose history ends at this seq. Books that have come further are of a history that the
/// database no longer has, as after a restore: they would pass over what it gets instead, and are made anew.
pub fn open_shared(path: &Path, end_seq: u64) -> Result<Books, ServerError> {
    let books = Books::open(path)?;
    let booked = books.applied_seq();
    if booked <= end_seq {
        return Ok(books);
    }
    tracing::warn!(booked, end_seq, "the books have what the database no longer has: made anew");
    drop(books);
    remove(path)?;
    Ok(Books::open(path)?)
}

/// Removes the books that are at this path, if there are any.
pub fn remove(path: &Path) -> Result<(), ServerError> {
    for end in ["-wal", "-shm", ""] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ServerError::file(file)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Takes into these books what the database has beyond them.
pub fn catch_up(books: &mut Books, ended: &EndedLog) -> Result<(), ServerError> {
    ended.read_after(books.applied_seq(), |seq, bytes| {
        let entry = EndedEntry::read(seq, bytes)?;
        books.apply_all(seq, &entry.records, &entry.deleted, &entry.activities)?;
        Ok(())
    })
}

/// Removes from these books what the leader has purged from the database, some at a time; it has archived that from its own.
pub fn drop_purged(books: &mut Books, ended: &EndedLog) -> Result<(), ServerError> {
    if let Some(before) = ended.oldest_end()? {
        books.purge_jobs(&JobPurge { before, archive: None, cluster: String::new() })?;
    }
    Ok(())
}

/// Writes all that these books have to the database, from which every server makes its own. The parts have the last numbers of the
/// history up to where the books have come, one each: what follows is behind them. Returns how many records they have.
pub fn share_all(books: &BookReader, ended: &EndedLog) -> Result<usize, ServerError> {
    let (applied, parts) = (books.applied_seq()?, books.parts()?);
    let (mut seq, mut shared) = (applied.saturating_sub(parts), 0);
    books.each_part(|BooksPart { records, deleted, activities }| {
        (seq, shared) = (seq + 1, shared + records.len());
        let entry = EndedEntry { records, deleted, activities };
        Ok::<_, ServerError>(ended.add(seq, entry.encode()?, entry.summary())?)
    })?;
    Ok(shared)
}

/// How many records the database has for the books; an error where one cannot be read.
pub fn count_shared(ended: &EndedLog) -> Result<usize, ServerError> {
    let mut count = 0;
    ended.read_after(0, |seq, bytes| {
        count += EndedEntry::read(seq, bytes)?.records.len();
        Ok::<_, ServerError>(())
    })?;
    Ok(count)
}

/// Whether these books have every record that the database has for them.
pub fn have_all_shared(books: &BookReader, ended: &EndedLog) -> Result<bool, ServerError> {
    let mut are_whole = true;
    ended.read_after(0, |seq, bytes| {
        for record in EndedEntry::read(seq, bytes)?.records {
            are_whole &= books.has(&record)?;
        }
        Ok::<_, ServerError>(())
    })?;
    Ok(are_whole)
}

/// Takes into these books what a replayed history has beyond them.
pub fn take_replayed(books: &mut Books, records: &[ReplayedEntry]) -> Result<(), ServerError> {
    for ReplayedEntry { seq, record, deleted, activities } in records {
        books.apply_all(*seq, record.as_slice(), deleted, activities)?;
    }
    Ok(())
}

/// Starts the thread of the books that are open at this path. With several servers, `ended` has what all their books are
/// made from.
pub fn start(
    books: Books,
    path: &Path,
    ended: Option<EndedLog>,
) -> Result<BooksQueue, ServerError> {
    let (queue, work) = BooksQueue::new(books.applied_seq(), BookReader::open(path)?);
    std::thread::Builder::new()
        .name("books".into())
        .spawn(move || run(books, ended.as_ref(), &work))
        .map_err(|e| ServerError::Other(format!("cannot start the books' thread: {e}")))?;
    Ok(queue)
}

fn run(mut books: Books, ended: Option<&EndedLog>, work: &BooksWork) {
    let mut failures = RepeatedFailure::new("the books");
    note_reusable(&books, work);
    let batch_max = if ended.is_some() { SHARED_BATCH } else { BATCH };
    while let Ok(first) = work.tasks.recv() {
        let (mut seq, mut entry) = (0, EndedEntry::default());
        let (mut expire, mut purge) = (None, None);
        let mut next = Some(first);
        while let Some(task) = next.take() {
            match task {
                BooksTask::Add(batch) => {
                    seq = batch.seq;
                    entry.records.extend(batch.records);
                    entry.deleted.extend(batch.deleted);
                    entry.activities.extend(batch.activities);
                }
                BooksTask::Expire(retention) => expire = Some(retention),
                BooksTask::Purge(wanted) => purge = Some(wanted),
            }
            if entry.records.len() < batch_max {
                next = work.tasks.try_recv().ok();
            }
        }
        if let Some(retention) = expire {
            match books.expire_texts(retention) {
                Ok(0) => {}
                Ok(_) => work.expired.store(true, Ordering::Release),
                Err(error) => tracing::warn!("old scripts and environments stay for now: {error}"),
            }
            if let Some(Err(error)) = ended.map(describe_entries) {
                tracing::warn!("what ended before the upgrade is in no month yet: {error}");
            }
        }
        if let Some(purge) = purge {
            // What other servers make their books from goes after this server's own, which are archived.
            let purged = match (books.purge_jobs(&purge), ended) {
                (Ok(0), Some(ended)) => purge_shared(ended, purge.before),
                (purged, _) => purged.map_err(ServerError::from),
            };
            match purged {
                Ok(0) => {}
                Ok(records) => tracing::info!(records, "old records of jobs left the books"),
                Err(error) => tracing::warn!("old records of jobs stay for now: {error}"),
            }
            note_reusable(&books, work);
        }
        if entry.is_empty() {
            continue;
        }
        // A full disk passes, as does a database that is away; until then nothing is forgotten, since nothing is settled.
        while let Err(error) = take_in(&mut books, ended, seq, &entry) {
            failures.failed("nothing is booked; trying again", &error);
            std::thread::sleep(Duration::from_secs(1));
        }
        failures.succeeded();
        note_reusable(&books, work);
        work.written.send_replace(seq);
    }
}

/// Tells how much new records may take before the books grow on their disk; where it cannot be read, what was said last stays.
fn note_reusable(books: &Books, work: &BooksWork) {
    if let Ok(bytes) = books.reusable_bytes() {
        work.reusable.store(bytes, Ordering::Release);
    }
}

/// Once more changes nothing: the books know how far they have come.
fn take_in(
    books: &mut Books,
    ended: Option<&EndedLog>,
    seq: u64,
    entry: &EndedEntry,
) -> Result<(), ServerError> {
    if let Some(ended) = ended {
        ended.add(seq, entry.encode()?, entry.summary())?;
    }
    books.apply_all(seq, &entry.records, &entry.deleted, &entry.activities)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_beyond_the_history_of_the_database_are_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("books.sqlite");
        let run = RunId::from_random(7);
        let mut books = Books::open(&path).expect("books");
        books.apply_all(9, &[], &[run], &[]).expect("applied");
        drop(books);
        let parts = || BookReader::open(&path).expect("a reader").parts().expect("a number");
        assert_eq!(open_shared(&path, 9).expect("books").applied_seq(), 9);
        assert_eq!(parts(), 1, "they are kept");
        assert_eq!(open_shared(&path, 8).expect("books").applied_seq(), 0);
        assert_eq!(parts(), 0, "the database was restored to an earlier time");
    }
}
