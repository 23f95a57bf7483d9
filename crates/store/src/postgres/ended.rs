//! What ended, as the books take it in: every server makes its own books from these entries, whoever led when they were
//! written. They are opaque here, as events are to the journal.
//!
//! An entry is kept in the partition of the month of its newest end. A partition whose month is purged is dropped as a whole; what
//! in it outlives its records is moved to the partition of entries without a time before.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use model::time::Timestamp;

use super::connection::Database;
use super::error::DatabaseError;
use super::{from_bigint, to_bigint};

/// The time of an entry that has none, in the columns of ends.
const NO_TIME: i64 = i64::MAX;
/// Months have partitions from 1970 to the year 9999. An end beyond that is a clock that is wrong.
const DATED: Range<i64> = 0..253_402_300_800_000;

const ADD: &str = "WITH leads AS (SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE)
    INSERT INTO sluice.ended (seq, entry, oldest_end, newest_end, records, outlives_records)
    SELECT $2::bigint, $3::bytea, $4::bigint, $5::bigint, $6::integer, $7::boolean FROM leads";
/// A page is in memory as a whole, and an entry has the records of many jobs.
const AFTER: &str = "SELECT seq, number, entry FROM sluice.ended
    WHERE (seq, number) > ($1::bigint, $2::bigint) ORDER BY seq, number LIMIT 4";
/// Entries of months that are purged as a whole are left to that, unless they outlive their records.
const OLDER: &str = "SELECT number, newest_end, entry FROM sluice.ended
    WHERE oldest_end < $1 AND (outlives_records OR newest_end >= coalesce(
        (SELECT max(ends) FROM sluice.ended_month WHERE ends <= $1), 0))
    ORDER BY oldest_end, number LIMIT 16";
/// Entries without an attempt have an end that is far away.
const OLDEST: &str = "SELECT min(oldest_end) FROM sluice.ended WHERE oldest_end < $1";
/// Entries of a program that knew no months.
const UNREAD: &str = "SELECT number, newest_end, entry FROM sluice.ended_undated
    WHERE records IS NULL ORDER BY number LIMIT 4";
const REPLACE: &str = "UPDATE sluice.ended
    SET entry = $4, oldest_end = $5, newest_end = $6, records = $7, outlives_records = $8
    WHERE number = $2 AND newest_end = $3
        AND EXISTS (SELECT 1 FROM sluice.lease WHERE epoch = $1)";
const DESCRIBE: &str = "UPDATE sluice.ended
    SET oldest_end = $4, newest_end = $5, records = $6, outlives_records = $7
    WHERE number = $2 AND newest_end = $3
        AND EXISTS (SELECT 1 FROM sluice.lease WHERE epoch = $1)";
const REMOVE: &str = "DELETE FROM sluice.ended WHERE number = $2 AND newest_end = $3
        AND EXISTS (SELECT 1 FROM sluice.lease WHERE epoch = $1)";
const LAST: &str = "SELECT coalesce(max(seq), 0) FROM sluice.ended";
const MAKE_MONTH: &str = "SELECT sluice.make_ended_month($2) FROM sluice.lease WHERE epoch = $1";
const DROP_MONTHS: &str = "SELECT sluice.drop_ended_months($2) FROM sluice.lease WHERE epoch = $1";

/// What the database knows of an entry beside its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySummary {
    /// The end of its oldest attempt; far away where it has none.
    pub oldest_end: Timestamp,
    /// The end of its newest attempt; far away where it has none, and where that of one is not known.
    pub newest_end: Timestamp,
    pub records: u32,
    /// Whether something in it stays when its records are purged.
    pub outlives_records: bool,
}

impl EntrySummary {
    /// That of an entry with records of attempts with these ends.
    pub fn of(ends: impl IntoIterator<Item = Option<Timestamp>>, outlives_records: bool) -> Self {
        let far_away = Timestamp(NO_TIME);
        let (mut oldest_end, mut newest_end, mut records) = (far_away, None, 0_u32);
        for end in ends {
            records = records.saturating_add(1);
            let end = end.unwrap_or(far_away);
            oldest_end = oldest_end.min(end);
            newest_end = newest_end.max(Some(end));
        }
        Self { oldest_end, newest_end: newest_end.unwrap_or(far_away), records, outlives_records }
    }

    /// Where the entry is kept: the newest end, where that is a time of this calendar.
    fn kept_at(&self) -> i64 {
        let newest = self.newest_end.millis();
        if DATED.contains(&newest) { newest } else { NO_TIME }
    }

    fn records(&self) -> i32 {
        i32::try_from(self.records).unwrap_or(i32::MAX)
    }
}

/// An entry as it is stored, and where.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    pub number: i64,
    kept_at: i64,
    pub content: Vec<u8>,
}

pub struct EndedLog {
    database: Arc<Database>,
    epoch: i64,
    /// The month whose partition is known to be there.
    month: Mutex<Option<Range<i64>>>,
}

impl EndedLog {
    pub fn new(database: Arc<Database>, epoch: i64) -> Self {
        Self { database, epoch, month: Mutex::default() }
    }

    fn month(&self) -> MutexGuard<'_, Option<Range<i64>>> {
        self.month.lock().expect("no panic with the month held")
    }

    /// The seq up to which entries were written.
    pub fn last_seq(&self) -> Result<u64, DatabaseError> {
        let rows = self.database.ask(|session| session.query(LAST, &[]))?;
        Ok(rows.first().map_or(0, |row| from_bigint(row.get(0))))
    }

    /// The end of the oldest attempt that an entry has, if there is one; long ago where it is not known of some.
    pub fn oldest_end(&self) -> Result<Option<Timestamp>, DatabaseError> {
        let rows = self.database.ask(|session| session.query(OLDEST, &[&NO_TIME]))?;
        let oldest = rows.first().and_then(|row| row.get::<_, Option<i64>>(0));
        Ok(oldest.map(Timestamp))
    }

    /// Durably adds what the history up to `seq` ended.
    pub fn add(
        &self,
        seq: u64,
        content: Vec<u8>,
        summary: EntrySummary,
    ) -> Result<(), DatabaseError> {
        self.make_month(summary.kept_at())?;
        let (epoch, seq, oldest) = (self.epoch, to_bigint(seq), summary.oldest_end.millis());
        let (kept_at, records) = (summary.kept_at(), summary.records());
        let outlives = summary.outlives_records;
        let added = self.database.ask(move |session| {
            session.execute(ADD, &[&epoch, &seq, &content, &oldest, &kept_at, &records, &outlives])
        });
        self.changed_one(added)
    }

    /// Some entries that have an attempt which ended before this, or may have one. Those that leave with their month are not among them.
    pub fn older_than(&self, before: Timestamp) -> Result<Vec<StoredEntry>, DatabaseError> {
        let before = before.millis();
        let rows = self.database.ask(move |session| session.query(OLDER, &[&before]))?;
        Ok(rows.iter().map(StoredEntry::read).collect())
    }

    /// Some entries of an earlier program, whose ends are not known.
    pub fn undescribed(&self) -> Result<Vec<StoredEntry>, DatabaseError> {
        let rows = self.database.ask(|session| session.query(UNREAD, &[]))?;
        Ok(rows.iter().map(StoredEntry::read).collect())
    }

    /// Notes what an entry has, and moves it to its month.
    pub fn describe(
        &self,
        entry: &StoredEntry,
        summary: EntrySummary,
    ) -> Result<(), DatabaseError> {
        let (epoch, number, was_at) = (self.epoch, entry.number, entry.kept_at);
        let (oldest, kept_at) = (summary.oldest_end.millis(), summary.kept_at());
        let (records, outlives) = (summary.records(), summary.outlives_records);
        self.make_month(kept_at)?;
        let changed = self.database.ask(move |session| {
            session.execute(
                DESCRIBE,
                &[&epoch, &number, &was_at, &oldest, &kept_at, &records, &outlives],
            )
        });
        self.changed_one(changed)
    }

    /// Puts another content in the place of an entry's; without one the entry is removed.
    pub fn replace(
        &self,
        entry: &StoredEntry,
        by: Option<(Vec<u8>, EntrySummary)>,
    ) -> Result<(), DatabaseError> {
        let (epoch, number, was_at) = (self.epoch, entry.number, entry.kept_at);
        if let Some((_, summary)) = &by {
            self.make_month(summary.kept_at())?;
        }
        let changed = self.database.ask(move |session| {
            let Some((content, summary)) = by else {
                return session.execute(REMOVE, &[&epoch, &number, &was_at]);
            };
            let (oldest, kept_at) = (summary.oldest_end.millis(), summary.kept_at());
            let (records, outlives) = (summary.records(), summary.outlives_records);
            session.execute(
                REPLACE,
                &[&epoch, &number, &was_at, &content, &oldest, &kept_at, &records, &outlives],
            )
        });
        self.changed_one(changed)
    }

    /// Drops the months that ended before this, but for those with an entry that outlives its records; how many records they had.
    pub fn drop_months(&self, before: Timestamp) -> Result<u64, DatabaseError> {
        let (epoch, before) = (self.epoch, before.millis());
        *self.month() = None;
        let rows =
            self.database.ask(move |session| session.query(DROP_MONTHS, &[&epoch, &before]))?;
        let row = rows.first().ok_or(DatabaseError::Deposed)?;
        Ok(from_bigint(row.get(0)))
    }

    /// Hands out every entry of a later seq, in order.
    pub fn read_after<E: From<DatabaseError>>(
        &self,
        seq: u64,
        mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        // No entry of that seq itself.
        let (mut seq, mut number) = (to_bigint(seq), i64::MAX);
        loop {
            let page = self.database.ask(move |session| session.query(AFTER, &[&seq, &number]))?;
            for row in &page {
                (seq, number) = (row.get(0), row.get(1));
                take(from_bigint(seq), row.get(2))?;
            }
            if page.is_empty() {
                return Ok(());
            }
        }
    }

    /// Makes the partition of the month of this time, and that of the next month ahead of need.
    fn make_month(&self, kept_at: i64) -> Result<(), DatabaseError> {
        let is_there = self.month().as_ref().is_some_and(|month| month.contains(&kept_at));
        if kept_at == NO_TIME || is_there {
            return Ok(());
        }
        let epoch = self.epoch;
        let rows =
            self.database.ask(move |session| session.query(MAKE_MONTH, &[&epoch, &kept_at]))?;
        let bounds: Vec<i64> = rows.first().ok_or(DatabaseError::Deposed)?.get(0);
        if let [begins, ends] = bounds[..] {
            *self.month() = Some(begins..ends);
        }
        Ok(())
    }

    fn changed_one(&self, changed: Result<u64, DatabaseError>) -> Result<(), DatabaseError> {
        match changed {
            Ok(1) => Ok(()),
            Ok(_) => Err(DatabaseError::Deposed),
            Err(error) => {
                // The month may be gone since.
                *self.month() = None;
                Err(error)
            }
        }
    }
}

impl StoredEntry {
    fn read(row: &tokio_postgres::Row) -> Self {
        Self { number: row.get(0), kept_at: row.get(1), content: row.get(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_kept_by_its_newest_end_or_in_no_month() {
        let of = |ends: &[Option<i64>]| {
            EntrySummary::of(ends.iter().map(|end| end.map(Timestamp)), false)
        };
        let whole = of(&[Some(5), Some(9), Some(7)]);
        assert_eq!((whole.oldest_end, whole.kept_at(), whole.records), (Timestamp(5), 9, 3));
        // A record without an end is purged by nobody, and neither is what is no record.
        assert_eq!(of(&[Some(5), None]).kept_at(), NO_TIME);
        assert_eq!(of(&[]).kept_at(), NO_TIME);
        // A clock that is wrong makes no month.
        assert_eq!(of(&[Some(-1)]).kept_at(), NO_TIME);
        assert_eq!(of(&[Some(DATED.end)]).kept_at(), NO_TIME);
        assert_eq!(of(&[Some(DATED.end - 1)]).kept_at(), DATED.end - 1);
    }
}
