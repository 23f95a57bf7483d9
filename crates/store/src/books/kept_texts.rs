//! The scripts, environments and configurations of ended jobs that are kept with the books, until they are too old or too many.

use model::id::BlobRef;
use model::record::JobRecord;
use model::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::{BookReader, Books, BooksError};

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// What only jobs that ended before this had goes.
    pub before: Timestamp,
    /// The most bytes of all together; the oldest go first.
    pub bytes_max: u64,
}

/// Texts that one statement removes: the books are locked no longer than that takes.
const REMOVED_MAX: u32 = 10_000;

pub(super) fn put(transaction: &Transaction<'_>, record: &JobRecord) -> rusqlite::Result<()> {
    let end = record.end.map_or(i64::MAX, Timestamp::millis);
    let bytes = record.blob_bytes;
    let texts = [
        (record.script, bytes.script),
        (record.environment, bytes.environment),
        (record.configuration, bytes.configuration),
    ];
    for (blob, bytes) in texts.into_iter().filter_map(|(blob, bytes)| Some((blob?, bytes))) {
        transaction
            .prepare_cached(
                "INSERT INTO kept_texts (blob, bytes, last_end_ms) VALUES (?1, ?2, ?3)
                 ON CONFLICT (blob) DO UPDATE SET last_end_ms = max(last_end_ms, ?3)",
            )?
            .execute(params![blob.to_string(), bytes, end])?;
    }
    Ok(())
}

fn kept_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT ifnull(sum(bytes), 0) FROM kept_texts", [], |row| row.get(0))
}

impl Books {
    /// Lets go of texts that are too old or too many; returns how many.
    pub fn expire_texts(&mut self, retention: Retention) -> Result<usize, BooksError> {
        let expire = || BooksError::sql("purge");
        let mut gone = self
            .connection
            .execute(
                "DELETE FROM kept_texts WHERE blob IN
                 (SELECT blob FROM kept_texts WHERE last_end_ms < ?1 LIMIT ?2)",
                params![retention.before.millis(), REMOVED_MAX],
            )
            .map_err(expire())?;
        let kept = kept_bytes(&self.connection).map_err(expire())?;
        if kept > retention.bytes_max {
            // Texts without a size take some space too.
            gone += self
                .connection
                .execute(
                    "DELETE FROM kept_texts WHERE blob IN (SELECT blob FROM
                     (SELECT blob, sum(bytes) OVER (ORDER BY last_end_ms, blob) - bytes AS before
                      FROM kept_texts) WHERE before < ?1 LIMIT ?2)",
                    params![kept - retention.bytes_max, REMOVED_MAX],
                )
                .map_err(expire())?;
        }
        Ok(gone)
    }
}

impl BookReader {
    /// Whether a script or environment is kept for an ended job.
    pub fn keeps(&self, blob: &BlobRef) -> Result<bool, BooksError> {
        let found: rusqlite::Result<Option<i64>> =
            self.connection.prepare_cached("SELECT 1 FROM kept_texts WHERE blob = ?1").and_then(
                |mut wanted| wanted.query_row([blob.to_string()], |row| row.get(0)).optional(),
            );
        Ok(found.map_err(BooksError::sql("read"))?.is_some())
    }
}
