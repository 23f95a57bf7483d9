//! A copy of the books as they were at one moment, made while they are written to.

use std::path::Path;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::{BUSY_TIMEOUT_MS, BooksError, applied_seq, make_private, schema};

const BUSY: rusqlite::ffi::Error =
    rusqlite::ffi::Error { code: rusqlite::ErrorCode::DatabaseBusy, extended_code: 5 };

/// Pages copied in one call.
const STEP_PAGES: i32 = 256;

/// The books of a moment: a read transaction, beside which the writer goes on.
pub struct BooksCopy {
    connection: Connection,
    applied_seq: u64,
}

impl BooksCopy {
    /// Holds the books as they are now.
    pub fn begin(path: &Path) -> Result<Self, BooksError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(BooksError::sql("open"))?;
        connection
            .execute_batch(&format!("PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}; BEGIN;"))
            .map_err(BooksError::sql("set up"))?;
        schema::check(&connection)?;
        // The transaction begins with its first read.
        let applied_seq = applied_seq(&connection)?;
        Ok(Self { connection, applied_seq })
    }

    /// How far in the journal they had come.
    pub fn applied_seq(&self) -> u64 {
        self.applied_seq
    }

    /// Writes them to a new file, and holds them no longer.
    pub fn write(self, path: &Path) -> Result<(), BooksError> {
        make_private(path)
            .map_err(|source| BooksError::File { path: path.display().to_string(), source })?;
        let copy = || BooksError::sql("copy");
        let mut target = Connection::open(path).map_err(copy())?;
        let backup = Backup::new(&self.connection, &mut target).map_err(copy())?;
        loop {
            match backup.step(STEP_PAGES).map_err(copy())? {
                StepResult::Done => return Ok(()),
                StepResult::More => {}
                // Nobody else has the new file, and the transaction is open: there is nothing to wait for.
                _ => return Err(copy()(rusqlite::Error::SqliteFailure(BUSY, None))),
            }
        }
    }

    /// Whether a file holds sound books that have come no further than `seq`; else what is wrong.
    pub fn check(path: &Path, seq: u64) -> Result<(), String> {
        let found = || -> Result<(u64, String), BooksError> {
            let connection = Connection::open(path).map_err(BooksError::sql("open"))?;
            schema::check(&connection)?;
            let sound = connection
                .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
                .map_err(BooksError::sql("check"))?;
            Ok((applied_seq(&connection)?, sound))
        };
        let (applied, sound) = found().map_err(|error| error.to_string())?;
        if sound != "ok" {
            return Err(format!("the books are damaged: {sound}"));
        }
        if applied > seq {
            return Err(format!("the books know seq {applied}, and the journal ends at {seq}"));
        }
        Ok(())
    }
}
