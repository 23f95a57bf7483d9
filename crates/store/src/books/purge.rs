//! The purge of job records: those that ended long ago leave the books, some at a time, and go into files of an archive first where
//! the site keeps one.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use model::time::Timestamp;
use rusqlite::{Transaction, TransactionBehavior, params};

use super::{Books, BooksError};

/// Records that one call removes: the books are locked no longer than that takes.
const REMOVED_MAX: u32 = 10_000;

/// Which records go, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPurge {
    /// Attempts that ended before this.
    pub before: Timestamp,
    /// The folder of the archive; without one they are gone.
    pub archive: Option<PathBuf>,
    /// The cluster's name, for the names of files.
    pub cluster: String,
}

/// A record that goes.
struct OldRecord {
    entry: i64,
    end_ms: i64,
    text: String,
}

impl Books {
    /// Removes the oldest of these records; how many. What cannot be archived stays.
    pub fn purge_jobs(&mut self, purge: &JobPurge) -> Result<usize, BooksError> {
        let old = self.old_records(purge.before)?;
        let (Some(first), Some(last)) = (old.first(), old.last()) else { return Ok(0) };
        if let Some(folder) = &purge.archive {
            let name = format!("{}_job_archive_{}_{}", purge.cluster, first.end_ms, last.end_ms);
            let path = folder.join(format!("{name}_{}.jsonl", last.entry));
            write_archive(&path, &old)
                .map_err(|source| BooksError::File { path: path.display().to_string(), source })?;
        }
        let purge = || BooksError::sql("purge");
        let behaviour = TransactionBehavior::Immediate;
        let transaction =
            Transaction::new_unchecked(&self.connection, behaviour).map_err(purge())?;
        for record in &old {
            transaction
                .prepare_cached("DELETE FROM jobs WHERE entry = ?1")
                .and_then(|mut delete| delete.execute([record.entry]))
                .map_err(purge())?;
        }
        transaction.commit().map_err(purge())?;
        Ok(old.len())
    }

    fn old_records(&self, before: Timestamp) -> Result<Vec<OldRecord>, BooksError> {
        let read = || BooksError::sql("read");
        let mut select = self
            .connection
            .prepare_cached(
                "SELECT entry, end_ms, record FROM jobs WHERE end_ms < ?1
                 ORDER BY end_ms, entry LIMIT ?2",
            )
            .map_err(read())?;
        let rows = select
            .query_map(params![before.millis(), REMOVED_MAX], |row| {
                Ok(OldRecord { entry: row.get(0)?, end_ms: row.get(1)?, text: row.get(2)? })
            })
            .map_err(read())?;
        rows.collect::<rusqlite::Result<_>>().map_err(read())
    }
}

/// A record a line, whole on disk before it is there under its name. The same records have the same file: a purge that was broken
/// off writes it once more.
fn write_archive(path: &Path, records: &[OldRecord]) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let flags = nix::libc::O_NOFOLLOW;
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
    let mut file = io::BufWriter::new(options.open(&partial)?);
    for record in records {
        file.write_all(record.text.as_bytes())?;
        file.write_all(b"\n")?;
    }
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    std::fs::rename(&partial, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
