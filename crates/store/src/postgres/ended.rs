//! What ended, as the books take it in: every server makes its own books from these entries, whoever led when they were
//! written. They are opaque here, as events are to the journal.

use std::sync::Arc;

use model::time::Timestamp;

use super::connection::Database;
use super::error::DatabaseError;
use super::{from_bigint, to_bigint};

const ADD: &str = "WITH leads AS (SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE)
    INSERT INTO sluice.ended (seq, entry, oldest_end)
    SELECT $2::bigint, $3::bytea, $4::bigint FROM leads";
/// A page is in memory as a whole, and an entry has the records of many jobs.
const AFTER: &str = "SELECT number, seq, entry FROM sluice.ended
    WHERE seq > $1 AND number > $2 ORDER BY number LIMIT 4";
/// A page is in memory as a whole.
const OLDER: &str = "SELECT number, entry FROM sluice.ended
    WHERE oldest_end < $1 ORDER BY oldest_end, number LIMIT 16";
/// Entries without an attempt have an end that is far away.
const OLDEST: &str = "SELECT min(oldest_end) FROM sluice.ended WHERE oldest_end < $1";
const REPLACE: &str = "UPDATE sluice.ended SET entry = $3, oldest_end = $4
    WHERE number = $2 AND EXISTS (SELECT 1 FROM sluice.lease WHERE epoch = $1)";
const REMOVE: &str = "DELETE FROM sluice.ended
    WHERE number = $2 AND EXISTS (SELECT 1 FROM sluice.lease WHERE epoch = $1)";
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

    /// The end of the oldest attempt that an entry has, if there is one; long ago where it is not known of some.
    pub fn oldest_end(&self) -> Result<Option<Timestamp>, DatabaseError> {
        let rows = self.database.ask(|session| session.query(OLDEST, &[&i64::MAX]))?;
        let oldest = rows.first().and_then(|row| row.get::<_, Option<i64>>(0));
        Ok(oldest.map(Timestamp))
    }

    /// Durably adds what the history up to `seq` ended; `oldest_end` is that of the oldest attempt in it.
    pub fn add(
        &self,
        seq: u64,
        entry: Vec<u8>,
        oldest_end: Timestamp,
    ) -> Result<(), DatabaseError> {
        let (epoch, seq, oldest) = (self.epoch, to_bigint(seq), oldest_end.millis());
        let added = self
            .database
            .ask(move |session| session.execute(ADD, &[&epoch, &seq, &entry, &oldest]))?;
        if added == 1 { Ok(()) } else { Err(DatabaseError::Deposed) }
    }

    /// Some entries that have an attempt which ended before this, or may have one: numbers and contents.
    pub fn older_than(&self, before: Timestamp) -> Result<Vec<(i64, Vec<u8>)>, DatabaseError> {
        let before = before.millis();
        let rows = self.database.ask(move |session| session.query(OLDER, &[&before]))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Puts another content in the place of an entry's, with its oldest end; without one the entry is removed.
    pub fn replace(
        &self,
        number: i64,
        entry: Option<(Vec<u8>, Timestamp)>,
    ) -> Result<(), DatabaseError> {
        let epoch = self.epoch;
        let changed = self.database.ask(move |session| match entry {
            Some((entry, oldest)) => {
                session.execute(REPLACE, &[&epoch, &number, &entry, &oldest.millis()])
            }
            None => session.execute(REMOVE, &[&epoch, &number]),
        })?;
        if changed == 1 { Ok(()) } else { Err(DatabaseError::Deposed) }
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
