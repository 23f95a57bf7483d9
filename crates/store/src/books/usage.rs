//! When attempts waited and ran, apart from their records: what lies in a window of time, and what was used in it.
//!
//! The table is in the order of ends. A window asks for what was submitted before its end and ended after its beginning: by the ends
//! alone, everything that ended since. So attempts are in classes by the time from submit to end: one of a class ended at most that
//! much later than the window, and each class is read for no longer than that.

use model::record::JobRecord;
use model::time::Timestamp;
use model::usage_report::{UsageKey, UsageTimes, UsageTotal};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use std::collections::HashMap;

use super::{BooksError, NOT_ENDED_MS};

/// The bounds of the classes; what took longer than all is of one more. The schema has the same numbers.
const SPANS_MS: [i64; 4] = [600_000, 10_800_000, 172_800_000, 2_592_000_000];

/// Rows that are summed up at once: others read the books in between.
const PAGE: u32 = 50_000;

const ADD_KEY: &str = "INSERT OR IGNORE INTO usage_keys (content) VALUES (?1)";
const FIND_KEY: &str = "SELECT id FROM usage_keys WHERE content = ?1";
const ADD: &str = "INSERT OR REPLACE INTO usage (span, end_ms, entry, submit_ms, eligible_ms,
        start_ms, suspended_s, usage_key)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
/// The rows of one class behind a place, in order.
const NEXT: &str = "SELECT end_ms, entry, submit_ms, eligible_ms, start_ms, suspended_s, usage_key
    FROM usage WHERE span = ?1 AND (end_ms, entry) > (?2, ?3) AND end_ms <= ?4
    ORDER BY end_ms, entry LIMIT ?5";
const LAST_ENTRY: &str = "SELECT ifnull(max(entry), 0) FROM jobs";
const IS_BOOKED: &str = "SELECT 1 FROM jobs
    WHERE job_id = ?1 AND array_pending = ?2 AND attempt = ?3";
const KEY: &str = "SELECT content FROM usage_keys WHERE id = ?1";

fn span_of(submit_ms: i64, end_ms: i64) -> usize {
    let took = end_ms.saturating_sub(submit_ms);
    SPANS_MS.iter().position(|most| took < *most).unwrap_or(SPANS_MS.len())
}

/// For each class the ends that attempts in this window may have: the class, the first and the last.
pub(super) fn ends_in(from: Timestamp, until: Timestamp) -> Vec<(usize, i64, i64)> {
    let last = |span: usize| match SPANS_MS.get(span) {
        Some(most) => until.millis().saturating_add(*most),
        None => NOT_ENDED_MS,
    };
    (0..=SPANS_MS.len()).map(|span| (span, from.millis(), last(span))).collect()
}

/// Notes the times of a record that the books have under this entry.
pub(super) fn put(
    transaction: &Transaction<'_>,
    entry: i64,
    record: &JobRecord,
) -> Result<(), BooksError> {
    let write = || BooksError::sql("write");
    let content = serde_json::to_string(&UsageKey::of(record))
        .map_err(|source| BooksError::Record { job: record.job.0, source })?;
    let times = UsageTimes::of(record);
    let (submit, end) = (record.submit.millis(), times.end.map_or(NOT_ENDED_MS, Timestamp::millis));
    let noted = || -> rusqlite::Result<()> {
        let mut find = transaction.prepare_cached(FIND_KEY)?;
        let known: Option<i64> = find.query_row([&content], |row| row.get(0)).optional()?;
        let key = match known {
            Some(key) => key,
            None => {
                transaction.prepare_cached(ADD_KEY)?.execute([&content])?;
                find.query_row([&content], |row| row.get(0))?
            }
        };
        transaction.prepare_cached(ADD)?.execute(params![
            span_of(submit, end),
            end,
            entry,
            submit,
            times.eligible.millis(),
            times.start.map(Timestamp::millis),
            times.suspended_s,
            key,
        ])?;
        Ok(())
    };
    noted().map_err(write())
}

/// Which attempt a record is of, as the books tell them apart.
pub type AttemptKey = (u32, String, u32);

/// What was used in a period, while it is summed up page by page.
pub struct UsageScan {
    period: (Timestamp, Timestamp),
    /// Attempts that were booked later are not counted.
    last_entry: i64,
    /// What is still to be read: for each class the place behind which, and the last end.
    left: Vec<(usize, (i64, i64), i64)>,
    totals: HashMap<i64, UsageTotal>,
}

impl UsageScan {
    /// Begins a sum, and says which of these attempts are in it.
    pub(super) fn begin(
        connection: &Connection,
        period: (Timestamp, Timestamp),
        asked: &[AttemptKey],
    ) -> Result<(Self, Vec<bool>), BooksError> {
        let read = || BooksError::sql("read");
        let moment = connection.unchecked_transaction().map_err(read())?;
        let last_entry = moment.query_row(LAST_ENTRY, [], |row| row.get(0)).map_err(read())?;
        let mut is_booked = moment.prepare_cached(IS_BOOKED).map_err(read())?;
        let mut booked = Vec::with_capacity(asked.len());
        for (job, pending, attempt) in asked {
            booked.push(is_booked.exists(params![job, pending, attempt]).map_err(read())?);
        }
        let left = ends_in(period.0, period.1);
        let left = left.into_iter().map(|(span, first, last)| (span, (first, i64::MIN), last));
        let scan = Self { period, last_entry, left: left.collect(), totals: HashMap::new() };
        Ok((scan, booked))
    }

    /// Adds a page; false when all was added.
    pub(super) fn turn(&mut self, connection: &Connection) -> Result<bool, BooksError> {
        let read = || BooksError::sql("read");
        let Some((span, (end, entry), last)) = self.left.pop() else { return Ok(false) };
        let mut next = connection.prepare_cached(NEXT).map_err(read())?;
        let mut rows = next.query(params![span, end, entry, last, PAGE]).map_err(read())?;
        let (mut place, mut count) = ((end, entry), 0);
        while let Some(row) = rows.next().map_err(read())? {
            count += 1;
            place = self.add(row).map_err(read())?;
        }
        if count == PAGE {
            self.left.push((span, place, last));
        }
        Ok(true)
    }

    /// Adds a row; returns its place.
    fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<(i64, i64)> {
        let (end, entry, submit): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if entry <= self.last_entry && submit <= self.period.1.millis() {
            let times = UsageTimes {
                eligible: Timestamp(row.get(3)?),
                start: row.get::<_, Option<i64>>(4)?.map(Timestamp),
                end: Some(end).filter(|end| *end != NOT_ENDED_MS).map(Timestamp),
                suspended_s: row.get(5)?,
            };
            self.totals.entry(row.get(6)?).or_default().add(&times, self.period);
        }
        Ok((end, entry))
    }

    /// The sums, each with what its attempts have in common.
    pub(super) fn finish(
        self,
        connection: &Connection,
    ) -> Result<Vec<(UsageKey, UsageTotal)>, BooksError> {
        let read = || BooksError::sql("read");
        let mut select = connection.prepare_cached(KEY).map_err(read())?;
        let mut sums = Vec::with_capacity(self.totals.len());
        for (id, total) in self.totals {
            let content: String = select.query_row([id], |row| row.get(0)).map_err(read())?;
            let key = serde_json::from_str(&content)
                .map_err(|source| BooksError::UsageKey { id, source })?;
            sums.push((key, total));
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempt_of_a_window_is_among_the_ends_of_its_class() {
        let window = (Timestamp(50_000_000_000), Timestamp(50_100_000_000));
        let ends = ends_in(window.0, window.1);
        let mut took = 1;
        while took < 40_000_000_000 {
            // Submitted at the window's last moment, and the same ended at its first.
            for submit in [window.1.millis(), window.0.millis() - took] {
                let end = submit + took;
                let (_, first, last) = ends[span_of(submit, end)];
                assert!((first..=last).contains(&end), "{took} ms");
            }
            took = took * 7 / 3 + 1;
        }
        assert_eq!(span_of(0, NOT_ENDED_MS), SPANS_MS.len(), "what has not ended");
    }
}
