//! The books: ended jobs in indexed SQLite tables, for `sacct`, `sreport` and their like.
//!
//! The journal is what is true; the books are made from it, and how far they have come is stored in
//! the same transaction as the rows. So replaying a stretch of history twice bills nothing twice.
//! One [`Books`] writes; any number of [`BookReader`]s, each with a connection of its own, read
//! beside it.

mod activity;
mod copy;
mod export;
mod kept_texts;
mod predicate;
mod purge;
mod query;
mod schema;
mod usage;

use std::fs::{DirBuilder, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use model::activity::{Activity, ActivityFilter};
use model::id::RunId;
use model::record::{HistoryFilter, JobRecord};
use model::time::Timestamp;
use model::usage_report::{UsageKey, UsageTotal};
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

pub use activity::{ACTIVITIES_MAX, ActivityPage};
pub use copy::BooksCopy;
pub use export::BooksPart;
pub use kept_texts::Retention;
pub use predicate::{RecordTest, state_of};
pub use purge::JobPurge;
pub use query::{ANSWER_BYTES_MAX, RECORDS_MAX};
pub use usage::{AttemptKey, UsageScan};

/// How long a connection waits for another's lock before it gives up.
const BUSY_TIMEOUT_MS: u32 = 5_000;

/// The column for the end of what has not ended: after the opening of every window.
const NOT_ENDED_MS: i64 = i64::MAX;

#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    #[error("the books have schema {found}, written by a newer program; this one knows {known}")]
    Newer { found: i64, known: i64 },
    #[error("the books cannot be made at {path}")]
    File { path: String, source: std::io::Error },
    #[error("cannot {action} the books")]
    Sql { action: &'static str, source: rusqlite::Error },
    #[error("activity {number} in the books is not one that this program can read or write")]
    Activity { number: u64, source: serde_json::Error },
    #[error("job {job} in the books is not a record that this program can read or write")]
    Record { job: u32, source: serde_json::Error },
    #[error(
        "the records that are asked for take more than {mebibytes} MiB: name a shorter period, or fewer jobs"
    )]
    TooLong { mebibytes: usize },
    #[error("sum {id} of the books is not one that this program can read")]
    UsageKey { id: i64, source: serde_json::Error },
}

impl BooksError {
    fn sql(action: &'static str) -> impl FnOnce(rusqlite::Error) -> Self {
        move |source| Self::Sql { action, source }
    }

    /// An answer would be longer than [`ANSWER_BYTES_MAX`].
    pub fn too_long() -> Self {
        Self::TooLong { mebibytes: ANSWER_BYTES_MAX >> 20 }
    }
}

/// The writer.
pub struct Books {
    connection: Connection,
    applied_seq: u64,
}

impl Books {
    /// Opens the books, making or upgrading them as needed.
    pub fn open(path: &Path) -> Result<Self, BooksError> {
        make_private(path)
            .map_err(|source| BooksError::File { path: path.display().to_string(), source })?;
        let mut connection = Connection::open(path).map_err(BooksError::sql("open"))?;
        connection
            .execute_batch(&format!(
                "PRAGMA busy_timeout = {BUSY_TIMEOUT_MS};
                 PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = FULL;
                 PRAGMA foreign_keys = ON;"
            ))
            .map_err(BooksError::sql("set up"))?;
        schema::upgrade(&mut connection)?;
        let applied_seq = applied_seq(&connection)?;
        Ok(Self { connection, applied_seq })
    }

    /// How far in the journal the books have come.
    pub fn applied_seq(&self) -> u64 {
        self.applied_seq
    }

    /// Goes back to `seq`, where the journal ends that has lost its end: what ends from now on is booked, under numbers of the
    /// journal that the books have seen once before. The rows stay.
    pub fn rewind(&mut self, seq: u64) -> Result<(), BooksError> {
        self.connection
            .execute("UPDATE progress SET applied_seq = ?1", params![seq])
            .map_err(BooksError::sql("write"))?;
        self.applied_seq = seq;
        Ok(())
    }

    /// The bytes of the file that are free for new rows: it does not get smaller when records are purged.
    pub fn reusable_bytes(&self) -> Result<u64, BooksError> {
        let number = |pragma| {
            let read = self.connection.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
            read.map_err(BooksError::sql("read"))
        };
        Ok(number("freelist_count")?.saturating_mul(number("page_size")?))
    }

    /// The highest number of an activity, 0 without one.
    pub fn last_activity(&self) -> Result<u64, BooksError> {
        activity::last_number(&self.connection)
    }

    /// Takes in the attempts that ended up to `seq` of the journal, durably and all at once. What the
    /// books have already seen is left alone; false says that this was the case.
    pub fn apply(&mut self, seq: u64, records: &[JobRecord]) -> Result<bool, BooksError> {
        self.apply_all(seq, records, &[], &[])
    }

    /// The same, with the runs that were deleted up to `seq`, and what was done beside the jobs.
    pub fn apply_all(
        &mut self,
        seq: u64,
        records: &[JobRecord],
        deleted: &[RunId],
        activities: &[Activity],
    ) -> Result<bool, BooksError> {
        if seq <= self.applied_seq {
            return Ok(false);
        }
        let write = || BooksError::sql("write");
        let behaviour = TransactionBehavior::Immediate;
        let transaction =
            Transaction::new_unchecked(&self.connection, behaviour).map_err(write())?;
        for record in records {
            let text = serde_json::to_string(record)
                .map_err(|source| BooksError::Record { job: record.job.0, source })?;
            let entry = put(&transaction, record, &text).map_err(write())?;
            usage::put(&transaction, entry, record)?;
            kept_texts::put(&transaction, record).map_err(write())?;
        }
        for run in deleted {
            transaction
                .prepare_cached("INSERT OR IGNORE INTO deleted_runs (run) VALUES (?1)")
                .and_then(|mut insert| insert.execute([run.to_string()]))
                .map_err(write())?;
        }
        activity::put(&transaction, activities)?;
        transaction
            .execute("UPDATE progress SET applied_seq = ?1", params![seq])
            .map_err(write())?;
        transaction.commit().map_err(write())?;
        self.applied_seq = seq;
        Ok(true)
    }
}

/// Makes the file, readable by its owner alone, if it is not there; SQLite gives its side files the
/// same mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

/// Replaces whatever the books hold under this record's key; returns its entry.
fn put(transaction: &Transaction<'_>, record: &JobRecord, text: &str) -> rusqlite::Result<i64> {
    let pending = record.array_pending.as_deref().unwrap_or_default();
    // In the word that the states of a filter have when they are bound.
    let state = serde_json::json!(state_of(record.state));
    // The nodes go with their job.
    transaction
        .prepare_cached(
            "DELETE FROM jobs WHERE job_id = ?1 AND array_pending = ?2 AND attempt = ?3",
        )?
        .execute(params![record.job.0, pending, record.attempt])?;
    let entry = transaction
        .prepare_cached(
            "INSERT INTO jobs (job_id, array_pending, attempt, array_job_id, array_task_id, name,
                 user, account, partition, qos, state, submit_ms, end_ms, record)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .insert(params![
            record.job.0,
            pending,
            record.attempt,
            record.array_job.or(record.het.map(|of| of.first)).map(|id| id.0),
            record.array_task,
            record.name,
            record.user,
            record.account,
            Some(&record.partition).filter(|names| !names.contains(',')),
            record.qos,
            state.as_str(),
            record.submit.millis(),
            record.end.map_or(NOT_ENDED_MS, Timestamp::millis),
            text,
        ])?;
    let mut insert = transaction
        .prepare_cached("INSERT OR IGNORE INTO job_nodes (node, entry) VALUES (?1, ?2)")?;
    for node in &record.nodes {
        insert.execute(params![node, entry])?;
    }
    Ok(entry)
}

fn applied_seq(connection: &Connection) -> Result<u64, BooksError> {
    connection
        .query_row("SELECT applied_seq FROM progress", [], |row| row.get(0))
        .map_err(BooksError::sql("read"))
}

/// A reader with its own connection; it cannot write.
pub struct BookReader {
    connection: Connection,
}

impl BookReader {
    pub fn open(path: &Path) -> Result<Self, BooksError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(BooksError::sql("open"))?;
        connection
            .execute_batch(&format!("PRAGMA busy_timeout = {BUSY_TIMEOUT_MS};"))
            .map_err(BooksError::sql("set up"))?;
        schema::check(&connection)?;
        Ok(Self { connection })
    }

    pub fn applied_seq(&self) -> Result<u64, BooksError> {
        applied_seq(&self.connection)
    }

    /// Whether there is a record of this attempt.
    pub fn has(&self, record: &JobRecord) -> Result<bool, BooksError> {
        let read = || BooksError::sql("read");
        let sql = "SELECT 1 FROM jobs WHERE job_id = ?1 AND array_pending = ?2 AND attempt = ?3";
        let mut select = self.connection.prepare_cached(sql).map_err(read())?;
        let pending = record.array_pending.as_deref().unwrap_or_default();
        select.exists(params![record.job.0, pending, record.attempt]).map_err(read())
    }

    /// How many records there are.
    pub fn count(&self) -> Result<usize, BooksError> {
        export::rows(&self.connection, "jobs")
            .map(|rows| usize::try_from(rows).unwrap_or(usize::MAX))
    }

    /// How many parts [`BookReader::each_part`] hands out.
    pub fn parts(&self) -> Result<u64, BooksError> {
        export::parts(&self.connection)
    }

    /// Hands out all that the books have, part by part.
    pub fn each_part<E: From<BooksError>>(
        &self,
        take: impl FnMut(BooksPart) -> Result<(), E>,
    ) -> Result<(), E> {
        export::each_part(&self.connection, take)
    }

    /// The ended attempts that the filter wants, in the order in which they ended; under a limit
    /// ([`RECORDS_MAX`] if the filter has none) the last of them.
    pub fn query(&self, filter: &HistoryFilter) -> Result<Vec<JobRecord>, BooksError> {
        query::run(&self.connection, filter)
    }

    /// The entries of all attempts that the filter may want, for [`BookReader::records`]: a long answer is read in parts.
    pub fn entries(&self, filter: &HistoryFilter) -> Result<Vec<i64>, BooksError> {
        query::entries(&self.connection, filter)
    }

    /// The records of these entries that the filter wants. They are taken off `bytes_left`, at first [`ANSWER_BYTES_MAX`], and
    /// refused where it does not suffice.
    pub fn records(
        &self,
        filter: &HistoryFilter,
        entries: &[i64],
        bytes_left: &mut usize,
    ) -> Result<Vec<JobRecord>, BooksError> {
        query::records(&self.connection, filter, entries, bytes_left)
    }

    /// Begins to sum up what was used in a period, and says which of these attempts are in the sum.
    pub fn begin_usage(
        &self,
        period: (Timestamp, Timestamp),
        asked: &[AttemptKey],
    ) -> Result<(UsageScan, Vec<bool>), BooksError> {
        UsageScan::begin(&self.connection, period, asked)
    }

    /// Adds a page to the sum; false when all was added.
    pub fn add_usage(&self, scan: &mut UsageScan) -> Result<bool, BooksError> {
        scan.turn(&self.connection)
    }

    /// The sums, each with what its attempts have in common.
    pub fn end_usage(&self, scan: UsageScan) -> Result<Vec<(UsageKey, UsageTotal)>, BooksError> {
        scan.finish(&self.connection)
    }

    /// What was done beside the jobs, a page of it: of the newest entries whose number is below `before`, those that are wanted.
    /// `shown_to`: only what this user did, and what became of nodes.
    pub fn activities(
        &self,
        filter: &ActivityFilter,
        shown_to: Option<&str>,
        before: Option<u64>,
    ) -> Result<ActivityPage, BooksError> {
        activity::query(&self.connection, filter, shown_to, before, activity::ACTIVITIES_PAGE)
    }
}
