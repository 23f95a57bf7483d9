//! What the books of every server on a database are made from: entries by the month of their newest end.

use std::sync::Arc;

use model::time::Timestamp;
use store::postgres::{Database, DatabaseError, EndedLog, EntrySummary, Lease, prepare};

use crate::database::TestDatabase;
use crate::{CLUSTER, connect, lead};

const DAY_MS: i64 = 86_400_000;

/// What the database is told of an entry with attempts of these ends.
pub fn of_ends(oldest: i64, newest: i64) -> EntrySummary {
    EntrySummary {
        oldest_end: Timestamp(oldest),
        newest_end: Timestamp(newest),
        records: 1,
        outlives_records: false,
    }
}

/// An entry without an attempt.
fn without_records() -> EntrySummary {
    EntrySummary { records: 0, outlives_records: true, ..of_ends(i64::MAX, i64::MAX) }
}

struct Entries {
    server: TestDatabase,
    database: Arc<Database>,
    lease: Lease,
    ended: EndedLog,
}

impl Entries {
    /// Those of a database whose schema is brought up to date.
    fn of(server: TestDatabase) -> Self {
        let database = connect(&server.url());
        prepare(&database, CLUSTER).expect("a schema");
        let lease = lead(&database, "one");
        let ended = EndedLog::new(database.clone(), lease.epoch());
        Self { server, database, lease, ended }
    }

    fn add(&self, seq: u64, summary: EntrySummary) {
        self.ended.add(seq, vec![seq as u8], summary).expect("added");
    }

    /// The contents of all entries behind a seq, each with its own.
    fn after(&self, seq: u64) -> Vec<(u64, Vec<u8>)> {
        let mut found = Vec::new();
        let take = |seq: u64, content: &[u8]| -> Result<(), DatabaseError> {
            found.push((seq, content.to_vec()));
            Ok(())
        };
        self.ended.read_after(seq, take).expect("read");
        found
    }

    fn older_than(&self, before: i64) -> Vec<Vec<u8>> {
        let found = self.ended.older_than(Timestamp(before)).expect("read");
        found.into_iter().map(|entry| entry.content).collect()
    }

    /// Fails unless this holds in the database.
    fn holds(&self, condition: &str) {
        let sql = format!("DO $$ BEGIN ASSERT {condition}; END $$");
        self.server.execute("sluice", &sql);
    }
}

#[test]
fn up_old_entries_of_the_books_are_found_replaced_and_removed() {
    let entries = Entries::of(TestDatabase::start());
    for (seq, oldest) in [(1, 500), (2, 100), (3, 900)] {
        entries.add(seq, of_ends(oldest, oldest));
    }
    let ended = &entries.ended;
    assert_eq!(entries.older_than(600), [[2], [1]], "the oldest first");
    let oldest = || ended.oldest_end().expect("read");
    assert_eq!(oldest(), Some(Timestamp(100)));
    let found = ended.older_than(Timestamp(600)).expect("read");
    ended.replace(&found[0], None).expect("removed");
    ended.replace(&found[1], Some((vec![7], without_records()))).expect("replaced");
    assert_eq!(entries.older_than(600), Vec::<Vec<u8>>::new());
    assert_eq!(oldest(), Some(Timestamp(900)), "one without an attempt has none");
    assert_eq!(entries.after(0), [(1, vec![7]), (3, vec![3])]);
    // One that was deposed changes nothing.
    let last = ended.older_than(Timestamp(1000)).expect("read");
    entries.lease.release().expect("released");
    lead(&entries.database, "two");
    let late = ended.replace(&last[0], None).expect_err("another server leads");
    assert!(matches!(late, DatabaseError::Deposed), "{late}");
    let late = ended.drop_months(Timestamp(1000)).expect_err("another server leads");
    assert!(matches!(late, DatabaseError::Deposed), "{late}");
}

#[test]
fn up_ended_entries_are_read_after_a_seq_in_order() {
    let entries = Entries::of(TestDatabase::start());
    for seq in 1..=150_u64 {
        // Some weeks later, and every tenth without a time: the partitions are not in the order of the history.
        let end = 20 * DAY_MS * (seq % 30) as i64;
        entries.add(seq, if seq % 10 == 0 { without_records() } else { of_ends(end, end) });
    }
    assert_eq!(entries.ended.last_seq().expect("read"), 150);
    let expected: Vec<_> = (21..=150).map(|seq| (seq, vec![seq as u8])).collect();
    assert_eq!(entries.after(20), expected);
}

#[test]
fn up_months_that_are_purged_are_dropped_whole_and_what_outlives_its_records_is_kept() {
    let entries = Entries::of(TestDatabase::start());
    // In January, at its end, in February with what stays, and in March 1970.
    entries.add(1, of_ends(0, DAY_MS));
    entries.add(2, of_ends(30 * DAY_MS, 31 * DAY_MS - 1));
    entries.add(3, EntrySummary { outlives_records: true, ..of_ends(40 * DAY_MS, 41 * DAY_MS) });
    entries.add(4, of_ends(58 * DAY_MS, 60 * DAY_MS));
    entries.add(5, without_records());
    let of_month = |name: &str, rows: u32| {
        entries.holds(&format!("(SELECT count(*) FROM sluice.{name}) = {rows}"));
    };
    for (name, rows) in [("ended_1970_01", 2), ("ended_1970_02", 1), ("ended_1970_03", 1)] {
        of_month(name, rows);
    }
    of_month("ended_undated", 1);
    entries.holds("to_regclass('sluice.ended_1970_04') IS NOT NULL");

    // In the middle of January no month is over, and in that of March two are.
    assert_eq!(entries.ended.drop_months(Timestamp(15 * DAY_MS)).expect("asked"), 0);
    assert_eq!(entries.older_than(15 * DAY_MS), [[1]], "entry by entry");
    let middle = Timestamp(70 * DAY_MS);
    assert_eq!(entries.ended.drop_months(middle).expect("dropped"), 2, "records of January");
    entries.holds("to_regclass('sluice.ended_1970_01') IS NULL");
    assert_eq!(entries.after(0).len(), 3, "February has what stays");
    let left = entries.ended.older_than(middle).expect("read");
    let contents: Vec<_> = left.iter().map(|entry| entry.content.clone()).collect();
    assert_eq!(contents, [[3], [4]]);
    entries.ended.replace(&left[0], Some((vec![33], without_records()))).expect("moved");
    assert_eq!(entries.ended.drop_months(middle).expect("dropped"), 0, "no record was left");
    entries.holds("to_regclass('sluice.ended_1970_02') IS NULL");
    assert_eq!(entries.after(0), [(3, vec![33]), (4, vec![4]), (5, vec![5])]);

    // A month that is gone is made again for a job that ended long ago and is booked late.
    entries.add(6, of_ends(DAY_MS, DAY_MS));
    assert_eq!(entries.after(5), [(6, vec![6])]);
}

/// The schema of the program before, and an entry of it.
const EARLIER: [&str; 4] = [
    include_str!("../../src/postgres/migration_1.sql"),
    include_str!("../../src/postgres/migration_2.sql"),
    include_str!("../../src/postgres/migration_3.sql"),
    include_str!("../../src/postgres/migration_4.sql"),
];

#[test]
fn up_entries_of_an_earlier_schema_move_to_their_months_and_are_read_meanwhile() {
    let server = TestDatabase::start();
    let insert = |seq: i64| {
        let values = format!("({seq}, '\\x0{seq}', {})", seq * DAY_MS);
        server.execute(
            "sluice",
            &format!("INSERT INTO sluice.ended (seq, entry, oldest_end) VALUES {values}"),
        );
    };
    for step in EARLIER {
        server.execute("sluice", step);
    }
    server.execute("sluice", "UPDATE sluice.schema_version SET version = 4");
    (1..=5).for_each(insert);
    prepare(&connect(&server.url()), CLUSTER).expect("the schema of this program");
    // The earlier program leads until the lead is handed over, and books what ends.
    insert(6);
    let entries = Entries::of(server);
    let whole: Vec<_> = (1..=6).map(|seq| (seq, vec![seq as u8])).collect();
    assert_eq!(entries.after(0), whole);
    assert_eq!(entries.older_than(3 * DAY_MS), [[1], [2]], "they are purged entry by entry");
    let mut moved = 0;
    loop {
        let page = entries.ended.undescribed().expect("read");
        let Some(first) = page.first() else { break };
        let end = i64::from(first.content[0]) * DAY_MS;
        entries.ended.describe(first, of_ends(end, end)).expect("moved");
        assert_eq!(entries.after(0), whole, "none is missing, none is there twice");
        moved += 1;
    }
    assert_eq!(moved, 6);
    entries.holds("(SELECT count(*) FROM sluice.ended_1970_01) = 6");
    entries.add(7, of_ends(7 * DAY_MS, 7 * DAY_MS));
    assert_eq!(entries.after(6), [(7, vec![7])]);
}
