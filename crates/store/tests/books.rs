//! What the books promise: nothing twice, everything found, nothing broken by odd names.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use model::array::IndexSet;
use model::change::JobRef;
use model::id::{BlobRef, JobId, RunId, StepId};
use model::record::{HistoryFilter, JobRecord, RecordState, StepRecord};
use model::run::{ExitStatus, JobState, LaunchKind, Outcome, Usage};
use model::streams::Streams;
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use model::usage_report::{UsageRow, UsageSum};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use store::books::{ANSWER_BYTES_MAX, JobPurge, RecordTest};
use store::{BlobId, BookReader, Books, BooksError};

struct Fixture {
    _folder: tempfile::TempDir,
    path: PathBuf,
    books: Books,
}

fn fixture(records: &[JobRecord]) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("books/books.db");
    let mut books = Books::open(&path).unwrap();
    assert!(books.apply(10, records).unwrap());
    Fixture { _folder: folder, path, books }
}

fn step(id: StepId, start: Timestamp) -> StepRecord {
    StepRecord {
        id,
        name: id.to_string(),
        state: RecordState::Ended(Outcome::Completed),
        exit: ExitStatus::default(),
        start,
        end: Some(Timestamp(start.0 + 300)),
        nodes: vec!["n9".into()],
        cpus: 2,
        tasks: 1,
        usage: Usage { memory_peak_bytes: u64::MAX, ..Usage::default() },
        submit_line: "srun 'a \"b\"'".into(),
        cpu_frequency: None,
        container: None,
    }
}

/// Submitted at `id` seconds, over half a second later, on node `n9` and one of three others.
fn job(id: u32, user: &str, outcome: Outcome) -> JobRecord {
    let submit = Timestamp::from_secs(i64::from(id));
    let start = Timestamp(submit.0 + 100);
    JobRecord {
        job: JobId(id),
        attempt: 1,
        run: RunId::from_random(u128::from(id)),
        array_job: None,
        array_task: None,
        array_pending: None,
        het: None,
        name: format!("job{id}"),
        user: user.into(),
        uid: 1000,
        gid: 1000,
        group: "users".into(),
        account: "physics".into(),
        partition: if id.is_multiple_of(2) { "gpu".into() } else { "cpu".into() },
        qos: "normal".into(),
        state: RecordState::Ended(outcome),
        exit: ExitStatus { code: 3, signal: 0 },
        derived_exit: ExitStatus { code: 0, signal: 9 },
        submit,
        eligible: Some(submit),
        start: Some(start),
        end: Some(Timestamp(submit.0 + 500)),
        suspended_s: 0,
        time_limit: TimeLimit::Minutes(60),
        nodes: vec![format!("n{}", id % 3), "n9".into()],
        node_count: 2,
        cpus: 4,
        tasks: 1,
        req_cpus: 4,
        req_nodes: 2,
        req_mem: model::amount::Bytes::from_gib(8),
        req_tres: [(TresKind::Cpu, 4), (TresKind::gpu(), 1)].into_iter().fold(
            Tres::default(),
            |mut tres, (kind, count)| {
                tres.set(kind, count);
                tres
            },
        ),
        alloc_tres: Tres::default(),
        priority: u64::MAX,
        restarts: 0,
        retry: None,
        work_dir: "/home/ann".into(),
        streams: Some(Streams {
            stdin: "/dev/null".into(),
            stdout: "/home/ann/out".into(),
            stderr: "/home/ann/err".into(),
        }),
        submit_line: "sbatch job.sh".into(),
        comment: None,
        wckey: Some("paper".into()),
        reservation: None,
        reservation_id: None,
        constraint: None,
        dependency: None,
        container: None,
        reason: Default::default(),
        kind: LaunchKind::Batch,
        script: Some(BlobRef::from(&BlobId::of(b"#!/bin/sh"))),
        environment: None,
        configuration: None,
        blob_bytes: Default::default(),
        memory_limit: None,
        failed_node: None,
        gpus: Vec::new(),
        usage: Usage::default(),
        steps: vec![step(StepId::Batch, start), step(StepId::Number(0), start)],
    }
}

fn done(id: u32) -> JobRecord {
    job(id, "ann", Outcome::Completed)
}

fn array_task(id: u32, array: u32, task: u32) -> JobRecord {
    JobRecord { array_job: Some(JobId(array)), array_task: Some(task), ..done(id) }
}

/// Tasks of an array that were cancelled while they waited.
fn cancelled_waiting(array: u32, pending: &str) -> JobRecord {
    JobRecord {
        attempt: 0,
        array_job: Some(JobId(array)),
        array_pending: Some(pending.into()),
        partition: "cpu,gpu".into(),
        start: None,
        nodes: Vec::new(),
        steps: Vec::new(),
        ..job(array, "ann", Outcome::Cancelled { by: 1000 })
    }
}

fn requeued_then_done(id: u32) -> [JobRecord; 2] {
    [job(id, "ann", Outcome::Requeued), JobRecord { attempt: 2, ..done(id) }]
}

fn ids(reader: &BookReader, filter: &HistoryFilter) -> Vec<u32> {
    reader.query(filter).unwrap().iter().map(|record| record.job.0).collect()
}

fn all() -> HistoryFilter {
    HistoryFilter::default()
}

fn task(id: u32, first: u32, last: u32) -> JobRef {
    JobRef::tasks(JobId(id), IndexSet::from_range(first, last))
}

fn component(id: u32, first: u32) -> JobRef {
    JobRef { component_of: Some(JobId(first)), ..whole(id) }
}

fn whole(id: u32) -> JobRef {
    JobRef::whole(JobId(id))
}

#[test]
fn what_went_in_comes_out_and_replays_bill_nothing_twice() {
    let jobs = [done(1), job(2, "bob", Outcome::Failed)];
    let mut f = fixture(&jobs);
    let reader = BookReader::open(&f.path).unwrap();
    assert_eq!(reader.query(&all()).unwrap(), jobs);

    for seq in [10, 3] {
        assert!(!f.books.apply(seq, &[done(7)]).unwrap(), "{seq} is known");
    }
    // A replay from a snapshot covers old ground and new ground in one go.
    let mut again = jobs.to_vec();
    again[0].nodes = vec!["n7".into()];
    again.push(done(3));
    assert!(f.books.apply(12, &again).unwrap());
    let every = HistoryFilter { duplicates: true, ..all() };
    assert_eq!(reader.query(&every).unwrap(), again);
    let on_n9 = HistoryFilter { nodes: vec!["n9".into()], ..all() };
    assert_eq!(ids(&reader, &on_n9), [2, 3], "the old nodes of job 1 are gone");
    assert_eq!((f.books.applied_seq(), reader.applied_seq().unwrap()), (12, 12));
    drop(f.books);
    assert_eq!(Books::open(&f.path).unwrap().applied_seq(), 12);
}

#[test]
fn old_records_are_archived_before_they_leave_the_books() {
    let ended = |id: u32, end: i64| JobRecord { end: Some(Timestamp(end)), ..done(id) };
    let runs = JobRecord { end: None, ..done(4) };
    let records = [ended(1, 1000), ended(2, 3000), ended(3, 2000), runs];
    let mut f = fixture(&records);
    let archive = tempfile::tempdir().unwrap();
    let purge = |before: i64, folder: &std::path::Path| JobPurge {
        before: Timestamp(before),
        archive: Some(folder.to_owned()),
        cluster: "test".into(),
    };
    let reader = BookReader::open(&f.path).unwrap();
    // What cannot be archived stays.
    let absent = archive.path().join("absent");
    assert!(f.books.purge_jobs(&purge(3000, &absent)).is_err());
    assert_eq!(ids(&reader, &all()).len(), 4);
    assert_eq!(f.books.purge_jobs(&purge(3000, archive.path())).unwrap(), 2);
    assert_eq!(ids(&reader, &all()), [2, 4]);
    assert_eq!(f.books.purge_jobs(&purge(3000, archive.path())).unwrap(), 0);
    let files: Vec<PathBuf> =
        std::fs::read_dir(archive.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("test_job_archive_1000_2000_"), "{name}");
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(file).unwrap();
    let kept: Vec<JobRecord> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kept, [records[0].clone(), records[2].clone()]);
    // Without an archive they are gone.
    let gone = JobPurge { before: Timestamp(9000), archive: None, cluster: "test".into() };
    assert_eq!(f.books.purge_jobs(&gone).unwrap(), 1);
    assert_eq!(ids(&reader, &all()), [4], "what has not ended stays");
}

#[test]
fn a_batch_that_fails_leaves_no_part_of_itself() {
    let mut f = fixture(&[done(1)]);
    let beyond_what_sqlite_stores = u64::MAX;
    assert!(f.books.apply(beyond_what_sqlite_stores, &[done(2), done(3)]).is_err());
    assert_eq!(f.books.applied_seq(), 10);
    let reader = BookReader::open(&f.path).unwrap();
    assert_eq!(ids(&reader, &all()), [1]);
    assert!(f.books.apply(11, &[done(2)]).unwrap());
    assert_eq!(ids(&reader, &all()), [1, 2]);
}

const ODD_NAME: &str = "x'; DROP TABLE jobs; --";

fn sample() -> Vec<JobRecord> {
    vec![
        done(1),
        job(2, "bob", Outcome::Failed),
        job(3, "ann", Outcome::Cancelled { by: 0 }),
        JobRecord { name: ODD_NAME.into(), ..job(4, ODD_NAME, Outcome::Timeout) },
        array_task(100, 102, 1),
        array_task(101, 102, 2),
        cancelled_waiting(102, "7-9"),
        cancelled_waiting(102, "20,22"),
        array_task(102, 102, 3),
    ]
}

#[test]
fn each_filter_finds_its_jobs() {
    let f = fixture(&sample());
    let reader = BookReader::open(&f.path).unwrap();
    let one = |text: &str| vec![text.to_owned()];
    let at = |millis| Some(Timestamp(millis));
    let table: Vec<(HistoryFilter, Vec<u32>)> = vec![
        (all(), vec![1, 2, 3, 4, 100, 101, 102, 102, 102]),
        (HistoryFilter { users: one("ann"), until: at(9000), ..all() }, vec![1, 3]),
        (HistoryFilter { users: one(ODD_NAME), ..all() }, vec![4]),
        (HistoryFilter { names: one(ODD_NAME), ..all() }, vec![4]),
        (HistoryFilter { accounts: one("chemistry"), ..all() }, vec![]),
        (HistoryFilter { partitions: one("gpu"), users: one("bob"), ..all() }, vec![2]),
        (HistoryFilter { partitions: one("cpu"), ..all() }, vec![1, 3, 101, 102, 102]),
        (HistoryFilter { qos: one("normal"), names: one("job3"), ..all() }, vec![3]),
        (HistoryFilter { states: vec![JobState::Failed, JobState::Timeout], ..all() }, vec![2, 4]),
        (HistoryFilter { states: vec![JobState::Cancelled], ..all() }, vec![3, 102, 102]),
        (HistoryFilter { nodes: one("n2"), ..all() }, vec![2, 101]),
        (
            HistoryFilter { nodes: vec!["n9".into(), "n0".into()], ..all() },
            vec![1, 2, 3, 4, 100, 101, 102],
        ),
        (HistoryFilter { limit: Some(2), until: at(4000), ..all() }, vec![3, 4]),
        (HistoryFilter { limit: Some(0), ..all() }, vec![]),
        (HistoryFilter { from: at(2500), until: at(3000), ..all() }, vec![2, 3]),
        (HistoryFilter { from: at(2501), until: at(2999), ..all() }, vec![]),
        (HistoryFilter { jobs: vec![whole(3), whole(1), whole(3)], ..all() }, vec![1, 3]),
        (HistoryFilter { jobs: vec![whole(102)], ..all() }, vec![100, 101, 102, 102, 102]),
        (HistoryFilter { jobs: vec![whole(101)], ..all() }, vec![101]),
        (HistoryFilter { jobs: vec![whole(102)], own_records: true, ..all() }, vec![102, 102, 102]),
        (HistoryFilter { jobs: vec![task(102, 1, 1)], own_records: true, ..all() }, vec![100]),
        // The job 3 is no component of the job 2.
        (HistoryFilter { jobs: vec![component(3, 2), whole(1)], ..all() }, vec![1]),
        (HistoryFilter { jobs: vec![task(102, 2, 3), whole(2)], ..all() }, vec![2, 101, 102]),
        (HistoryFilter { jobs: vec![task(102, 22, 22)], ..all() }, vec![102]),
        (HistoryFilter { jobs: vec![task(102, 21, 21), task(3, 0, 9)], ..all() }, vec![]),
        // Nor is an array a component, of however many jobs.
        (
            HistoryFilter {
                jobs: (1..40_000).map(|first| component(102, 1_000 + first)).collect(),
                ..all()
            },
            vec![],
        ),
        (
            HistoryFilter { jobs: (1..40_000).map(whole).collect(), ..all() },
            vec![1, 2, 3, 4, 100, 101, 102, 102, 102],
        ),
    ];
    for (filter, expected) in table {
        let shown =
            HistoryFilter { jobs: filter.jobs.iter().take(4).cloned().collect(), ..filter.clone() };
        assert_eq!(ids(&reader, &filter), expected, "{shown:?}");
    }
}

#[test]
fn the_last_attempt_stands_for_the_job_unless_all_are_asked_for() {
    // Job 2 was requeued and then cancelled while it waited: the later entry has attempt 0.
    let given_up = JobRecord { attempt: 0, ..job(2, "ann", Outcome::Cancelled { by: 1000 }) };
    let mut records = requeued_then_done(1).to_vec();
    records.extend([job(2, "ann", Outcome::Requeued), given_up]);
    let f = fixture(&records);
    let reader = BookReader::open(&f.path).unwrap();
    let last = [records[1].clone(), records[3].clone()];
    assert_eq!(reader.query(&all()).unwrap(), last);
    let requeued = HistoryFilter { states: vec![JobState::Requeued], ..all() };
    assert_eq!(reader.query(&requeued).unwrap(), []);
    assert_eq!(reader.query(&HistoryFilter { duplicates: true, ..requeued }).unwrap().len(), 2);
    assert_eq!(reader.query(&HistoryFilter { duplicates: true, ..all() }).unwrap(), records);
}

fn any_filter() -> impl Strategy<Value = HistoryFilter> {
    let words = |words: &'static [&'static str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        prop_oneof![2 => Just(Vec::new()), 1 => subsequence(words, 1..=2)]
    };
    let refs =
        vec![whole(1), whole(102), whole(100), task(102, 2, 8), task(102, 22, 40), task(2, 0, 1)];
    let states =
        vec![JobState::Completed, JobState::Requeued, JobState::Cancelled, JobState::Failed];
    let moment = || prop::option::of((0i64..7_000).prop_map(Timestamp));
    (
        (subsequence(refs, 0..=3), subsequence(states, 0..=3)),
        (words(&["ann", "bob", "eve"]), words(&["physics", "chemistry"]), words(&["cpu", "gpu"])),
        (
            words(&["job1", "job2", "job100"]),
            words(&["normal", "high"]),
            words(&["n0", "n1", "n9"]),
        ),
        (
            (moment(), moment()),
            (any::<bool>(), any::<bool>(), any::<bool>()),
            prop::option::of(select(vec![0u32, 1, 3, 20])),
        ),
    )
        .prop_map(
            |((jobs, states), (users, accounts, partitions), (names, qos, nodes), rest)| {
                let ((from, until), (duplicates, ended, own_records), limit) = rest;
                HistoryFilter {
                    jobs,
                    users,
                    accounts,
                    partitions,
                    names,
                    qos,
                    nodes,
                    states,
                    from,
                    until,
                    duplicates,
                    ended,
                    own_records,
                    limit,
                    ..HistoryFilter::default()
                }
            },
        )
}

/// What the books must answer, by going through all records.
fn answer(records: &[JobRecord], filter: &HistoryFilter) -> Vec<JobRecord> {
    let key = |record: &JobRecord| (record.job, record.array_pending.clone());
    let last: HashMap<_, _> =
        records.iter().enumerate().map(|(at, record)| (key(record), at)).collect();
    let mut found: Vec<JobRecord> = records
        .iter()
        .enumerate()
        .filter(|(at, record)| filter.duplicates || last[&key(record)] == *at)
        .filter(|(_, record)| RecordTest::new(filter).matches(record))
        .map(|(_, record)| record.clone())
        .collect();
    found.sort_by_key(|record| record.end.unwrap_or(Timestamp(i64::MAX)));
    let limit = filter.limit.map_or(found.len(), |limit| limit as usize);
    found.split_off(found.len().saturating_sub(limit))
}

#[test]
fn the_books_and_the_predicate_agree_on_every_filter() {
    let mut records = sample();
    records.extend(requeued_then_done(5));
    records.push(JobRecord { end: None, state: RecordState::Running, ..done(6) });
    let f = fixture(&records);
    let reader = BookReader::open(&f.path).unwrap();
    let config = ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() };
    proptest!(config, |(filter in any_filter())| {
        prop_assert_eq!(reader.query(&filter).unwrap(), answer(&records, &filter));
    });
}

/// Ended after a time that grows with its number, some of it after the window of others.
fn long(id: u32, user: &str) -> JobRecord {
    let submit = Timestamp::from_secs(i64::from(id) * 10_000);
    let start = (!id.is_multiple_of(7)).then(|| Timestamp(submit.0 + 3_000_000));
    let end = Timestamp(submit.0 + i64::from(id % 11).pow(3) * 5_000_000 + 4_000_000);
    let suspended_s = if id.is_multiple_of(5) { 100 } else { 0 };
    let mut alloc_tres = Tres::default();
    alloc_tres.set(TresKind::Cpu, u64::from(id % 3 + 1));
    let (eligible, end) = (Some(submit), Some(end));
    let record = job(id, user, Outcome::Completed);
    JobRecord { submit, eligible, start, end, suspended_s, alloc_tres, ..record }
}

fn totals(reader: &BookReader, period: (Timestamp, Timestamp)) -> Vec<UsageRow> {
    let (mut scan, _) = reader.begin_usage(period, &[]).unwrap();
    while reader.add_usage(&mut scan).unwrap() {}
    let mut sum = UsageSum::new(period.0, period.1, false);
    for (key, total) in &reader.end_usage(scan).unwrap() {
        sum.add_total(key, total);
    }
    sum.into_rows()
}

/// The same to the millisecond: seconds are summed up in another order.
fn assert_same(found: &[UsageRow], expected: &[UsageRow], what: &str) {
    let row = |row: &UsageRow| {
        let held = (row.used.seconds(&TresKind::Cpu) * 1000.0).round() as i64;
        (row.account.clone(), row.user.clone(), row.wckey.clone(), row.jobs, held)
    };
    let rows = |rows: &[UsageRow]| rows.iter().map(row).collect::<Vec<_>>();
    assert_eq!(rows(found), rows(expected), "{what}");
}

#[test]
fn usage_of_a_period_is_the_sum_over_its_records_also_after_an_upgrade_and_a_purge() {
    let records: Vec<JobRecord> =
        (1..400).map(|id| long(id, if id.is_multiple_of(2) { "ann" } else { "bob" })).collect();
    let Fixture { _folder, path, mut books } = fixture(&records);
    let expected = |records: &[JobRecord], period: (Timestamp, Timestamp)| {
        let mut sum = UsageSum::new(period.0, period.1, false);
        records.iter().for_each(|record| sum.add(record));
        sum.into_rows()
    };
    let period = |from: i64, until: i64| (Timestamp::from_secs(from), Timestamp::from_secs(until));
    let periods = [
        period(0, 1 << 40),
        period(1_000_000, 1_500_000),
        period(3_990_000, 3_991_000),
        period(1, 9),
    ];
    let check = |records: &[JobRecord], what: &str| {
        let reader = BookReader::open(&path).unwrap();
        for period in periods {
            assert_same(&totals(&reader, period), &expected(records, period), what);
        }
    };
    check(&records, "as booked");
    // Written once more, it counts once; and the sum says what it has.
    books.apply(11, &records[..50]).unwrap();
    check(&records, "booked twice");
    let reader = BookReader::open(&path).unwrap();
    let asked = [(7, String::new(), 1), (7, String::new(), 2), (900, String::new(), 1)];
    assert_eq!(reader.begin_usage(periods[0], &asked).unwrap().1, [true, false, false]);
    drop((reader, books));

    let raw = rusqlite::Connection::open(&path).unwrap();
    let older = "DROP TRIGGER jobs_usage; DROP TABLE usage; DROP TABLE usage_keys;
                 DROP TABLE usage_backfill; PRAGMA user_version = 5;";
    raw.execute_batch(older).unwrap();
    drop(Books::open(&path).unwrap());
    check(&records, "upgraded");
    // An upgrade that was broken off goes on where it was.
    let half = "DELETE FROM usage WHERE entry > 200; UPDATE usage_backfill SET done = 200;";
    raw.execute_batch(half).unwrap();
    drop(raw);
    let mut books = Books::open(&path).unwrap();
    check(&records, "upgraded in two goes");
    let before = Timestamp::from_secs(2_000_000);
    let purge = JobPurge { before, archive: None, cluster: "c".into() };
    let reusable = books.reusable_bytes().unwrap();
    while books.purge_jobs(&purge).unwrap() > 0 {}
    assert!(books.reusable_bytes().unwrap() > reusable, "new records take the place of those");
    let left: Vec<JobRecord> =
        records.iter().filter(|record| record.end >= Some(before)).cloned().collect();
    assert!(left.len() < records.len());
    check(&left, "purged");
}

#[test]
fn a_record_that_cannot_be_read_is_named() {
    let f = fixture(&[done(1), done(2)]);
    let raw = rusqlite::Connection::open(&f.path).unwrap();
    raw.execute("UPDATE jobs SET record = '{}' WHERE job_id = 2", []).unwrap();
    let reader = BookReader::open(&f.path).unwrap();
    let said = reader.query(&all()).unwrap_err().to_string();
    assert!(said.contains("job 2"), "{said}");
    assert_eq!(ids(&reader, &HistoryFilter { jobs: vec![whole(1)], ..all() }), [1]);
}

#[test]
fn the_books_are_private_and_newer_ones_are_refused() {
    let f = fixture(&[]);
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&f.path), 0o600);
    assert_eq!(mode(&f.path.with_extension("db-wal")), 0o600);
    drop(f.books);
    let raw = rusqlite::Connection::open(&f.path).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(Books::open(&f.path), Err(BooksError::Newer { found: 99, .. })));
    assert!(matches!(BookReader::open(&f.path), Err(BooksError::Newer { found: 99, .. })));
}

#[test]
fn deleted_runs_are_left_out_where_that_is_asked_for_and_stay_in_the_books() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("books.sqlite");
    let mut books = Books::open(&path).expect("books");
    let run = |id: u32| RunId::from_random(u128::from(id));
    let records = [1, 2].map(|id| JobRecord { run: run(id), ..done(id) });
    books.apply_all(1, &records, &[run(1)], &[]).expect("applied");
    let reader = BookReader::open(&path).expect("a reader");
    let found = |filter: HistoryFilter| -> Vec<u32> {
        reader.query(&filter).expect("records").iter().map(|record| record.job.0).collect()
    };
    let all = HistoryFilter::default;
    assert_eq!(found(all()), [1, 2]);
    assert_eq!(found(HistoryFilter { without_deleted: true, ..all() }), [2]);
    assert_eq!(found(HistoryFilter { runs: vec![run(1)], ..all() }), [1]);
    let none = HistoryFilter { runs: vec![run(1)], without_deleted: true, ..all() };
    assert_eq!(found(none), [0; 0]);
}

#[test]
fn records_of_one_answer_have_a_bound_in_bytes() {
    let jobs = [done(1), job(2, "bob", Outcome::Failed)];
    let f = fixture(&jobs);
    let reader = BookReader::open(&f.path).unwrap();
    let entries = reader.entries(&all()).unwrap();
    let mut left = ANSWER_BYTES_MAX;
    assert_eq!(reader.records(&all(), &entries, &mut left).unwrap().len(), jobs.len());
    let taken = ANSWER_BYTES_MAX - left;
    let mut enough = taken;
    assert_eq!(reader.records(&all(), &entries, &mut enough).unwrap().len(), jobs.len());
    let said = reader.records(&all(), &entries, &mut (taken - 1)).unwrap_err().to_string();
    assert!(said.ends_with("name a shorter period, or fewer jobs"), "{said}");
    // Those that nobody wants do not count.
    let bobs = HistoryFilter { users: vec!["bob".into()], ..all() };
    assert_eq!(reader.records(&bobs, &entries, &mut (taken - 1)).unwrap().len(), 1);
}
