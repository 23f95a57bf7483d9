//! What ended, as the books take it in: every server makes its own books from these entries, whoever led when they were
//! written. They are opaque here, as events are to the journal.

use std::sync::Arc;

use super::connection::Database;
use super::error::DatabaseError;
use super::{from_bigint, to_bigint};

const ADD: &str = "WITH leads AS (SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE)
    INSERT INTO sluice.ended (seq, entry) SELECT $2::bigint, $3::bytea FROM leads";
/// A page is in memory as a whole, and an entry has the records of many jobs.
const AFTER: &str = "SELECT number, seq, entry FROM sluice.ended
    WHERE seq > $1 AND number > $2 ORDER BY number LIMIT 4";
const LAST: &str = "SELECT coalesce(max(seq), 0) FROM sluice.ended";

pub struct EndedLog {
    database: Arc<Database>,
    epoch: i64,
}

impl EndedLog {
    pub fn new(database: Arc<Database>, epoch: i64) -> Self {
        Self { database, epoch }
    }

    /// The seq up to which entries were written.
    pub fn last_seq(&self) -> Result<u64, DatabaseError> {
        let rows = self.database.ask(|session| session.query(LAST, &[]))?;
        Ok(rows.first().map_or(0, |row| from_bigint(row.get(0))))
    }

    /// Durably adds what the history up to `seq` ended.
    pub fn add(&self, seq: u64, entry: Vec<u8>) -> Result<(), DatabaseError> {
        let (epoch, seq) = (self.epoch, to_bigint(seq));
        let added =
            self.database.ask(move |session| session.execute(ADD, &[&epoch, &seq, &entry]))?;
        if added == 1 { Ok(()) } else { Err(DatabaseError::Deposed) }
    }

    /// Hands out every entry of a later seq, in order.
    pub fn read_after<E: From<DatabaseError>>(
        &self,
        seq: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (seq, mut last) = (to_bigint(seq), 0_i64);
        loop {
            let page = self.database.ask(move |session| session.query(AFTER, &[&seq, &last]))?;
            for row in &page {
                last = row.get(0);
                take(from_bigint(row.get(1)), row.get(2))?;
            }
            if page.is_empty() {
                return Ok(());
            }
        }
    }
}
