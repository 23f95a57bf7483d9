//! What every store promises, run against files and against PostgreSQL; and what the lease of a database promises.

mod database;
#[path = "both_stores/ended.rs"]
mod ended;
#[path = "both_stores/no_session_left.rs"]
mod no_session_left;

use std::sync::Arc;
use std::time::Duration;

use database::TestDatabase;
use store::postgres::{
    Database, DatabaseError, DatabaseUrl, EndedLog, Leader, Lease, Notifier, PostgresFolder,
    PostgresJournal, PostgresReader, SeenServer, ServerAddress, Taken, check_cluster, mark_moved,
    prepare, prepare_to_leave,
};
use store::{
    BlobId, BlobIndex, Blobs, Disk, FaultyDisk, Journal, JournalError, LogFile, LogOptions,
    Position, Recovery, Snapshots,
};

const CLUSTER: &str = "a cluster";

/// A place for one cluster's state, which can be opened again and again.
enum Place {
    Files { journal: FaultyDisk, others: FaultyDisk },
    Postgres { _server: TestDatabase, database: Arc<Database>, epoch: i64 },
}

type Opened = Result<(Box<dyn Journal>, Recovery, Vec<String>), JournalError>;

impl Place {
    fn files() -> Self {
        Self::Files { journal: FaultyDisk::default(), others: FaultyDisk::default() }
    }

    fn postgres() -> Self {
        let server = TestDatabase::start();
        let database = connect(&server.url());
        prepare(&database, CLUSTER).expect("a schema");
        let epoch = lead(&database, "one").epoch();
        Self::Postgres { _server: server, database, epoch }
    }

    fn open(&self, snapshot: Position) -> Opened {
        let mut events = Vec::new();
        let replay = |record: store::Record<'_>| {
            assert_eq!(record.seq, snapshot.seq + events.len() as u64 + 1);
            events.push(String::from_utf8_lossy(record.event).into_owned());
            Ok(())
        };
        let (journal, recovery): (Box<dyn Journal>, Recovery) = match self {
            Self::Files { journal, .. } => {
                let disk = Arc::new(journal.clone());
                let (journal, recovery) =
                    LogFile::open(disk, LogOptions::default(), snapshot, replay)?;
                (Box::new(journal), recovery)
            }
            Self::Postgres { database, epoch, .. } => {
                let (journal, recovery) =
                    PostgresJournal::open(database.clone(), *epoch, snapshot, replay)?;
                (Box::new(journal), recovery)
            }
        };
        Ok((journal, recovery, events))
    }

    fn folder(&self, name: &'static str) -> Arc<dyn Disk> {
        match self {
            Self::Files { others, .. } => Arc::new(others.clone()),
            Self::Postgres { database, epoch, .. } => {
                Arc::new(PostgresFolder::new(database.clone(), name, *epoch))
            }
        }
    }
}

fn connect(url: &str) -> Arc<Database> {
    let url = DatabaseUrl::parse(url, None).expect("an address");
    Database::new(url).expect("a thread")
}

/// The lease, taken for a time that no test outlives.
fn lead(database: &Arc<Database>, holder: &str) -> Lease {
    match Lease::take(database, holder, Duration::from_secs(3600)).expect("a lease") {
        Taken::Leading(lease) => lease,
        Taken::Waiting(leader) => panic!("{holder} waits for {leader:?}"),
    }
}

fn event(number: u64) -> String {
    format!("event {number} {}", "x".repeat(number as usize % 40))
}

/// Commits of one to three events, until the journal ends at `upto`.
fn fill(journal: &mut dyn Journal, upto: u64) {
    while journal.last_seq() < upto {
        let first = journal.last_seq() + 1;
        let events: Vec<String> = (first..=upto.min(first + first % 3)).map(event).collect();
        let events: Vec<&[u8]> = events.iter().map(String::as_bytes).collect();
        journal.append(1, first - 1, &events).expect("kept");
    }
}

#[test]
fn up_history_has_the_same_positions_in_both_stores() {
    let mut ends = Vec::new();
    for place in [Place::files(), Place::postgres()] {
        let (mut journal, _, events) = place.open(Position::START).expect("an empty journal");
        assert_eq!((journal.position(), events.len()), (Position::START, 0));
        fill(&mut *journal, 50);
        let middle = journal.position();
        fill(&mut *journal, 200);
        let end = journal.position();
        drop(journal);

        let (journal, recovery, events) = place.open(Position::START).expect("read back");
        assert_eq!(events, (1..=200).map(event).collect::<Vec<_>>());
        assert_eq!((journal.position(), recovery.replayed, recovery.loss), (end, 200, None));
        let (_, _, later) = place.open(middle).expect("read back from a snapshot");
        assert_eq!(later, (51..=200).map(event).collect::<Vec<_>>());
        let other = Position { seq: middle.seq, chain: [9; 32] };
        let refused = place.open(other).err().expect("another history");
        assert!(matches!(refused, JournalError::Damaged { .. }), "{refused}");
        ends.push((middle, end));
    }
    assert_eq!(ends[0], ends[1]);
}

#[test]
fn up_append_is_refused_after_a_newer_term_or_another_end() {
    for place in [Place::files(), Place::postgres()] {
        let (mut journal, ..) = place.open(Position::START).expect("a journal");
        assert_eq!(journal.append(7, 0, &[b"a", b"b"]).expect("kept"), 2);
        let old = journal.append(6, 2, &[b"c"]);
        assert!(matches!(old, Err(JournalError::OldTerm { given: 6, current: 7 })), "{old:?}");
        let wrong = journal.append(7, 1, &[b"c"]);
        assert!(
            matches!(wrong, Err(JournalError::WrongSeq { expected: 1, found: 2 })),
            "{wrong:?}"
        );
        assert_eq!(journal.append(7, 2, &[]).expect("nothing"), 2);
        let large = vec![0; 17 << 20];
        let large = journal.append(7, 2, &[&large]);
        assert!(matches!(large, Err(JournalError::TooLarge { .. })), "{large:?}");
        assert_eq!(journal.append(8, 2, &[b"c"]).expect("kept"), 3);
        let (journal, _, events) = place.open(Position::START).expect("read back");
        assert_eq!((journal.term(), events), (8, vec!["a".into(), "b".into(), "c".into()]));
    }
}

#[test]
fn up_leased_ids_never_go_back_and_compaction_keeps_what_a_snapshot_needs() {
    for place in [Place::files(), Place::postgres()] {
        let (mut journal, ..) = place.open(Position::START).expect("a journal");
        fill(&mut *journal, 40);
        let snapshot = journal.position();
        journal.lease(2000).expect("leased");
        journal.lease(1000).expect("leased");
        fill(&mut *journal, 60);
        journal.compact(snapshot.seq).expect("compacted");
        let (journal, recovery, events) = place.open(snapshot).expect("read back");
        assert_eq!(journal.high_water().leased_ids, 2000);
        assert_eq!((recovery.loss, events.len()), (None, 20));
    }
}

#[test]
fn up_snapshots_and_blobs_are_read_back() {
    for place in [Place::files(), Place::postgres()] {
        let body: Vec<u8> = (0..5_000_000_u32).map(|n| n as u8).collect();
        let at = |seq| Position { seq, chain: [seq as u8; 32] };
        let mut snapshots = Snapshots::new(place.folder("snapshots"));
        let bounds: Vec<u64> = [5, 9, 14]
            .iter()
            .map(|seq| snapshots.write(at(*seq), &body).expect("written"))
            .collect();
        assert_eq!(bounds, [0, 5, 9]);
        let found = Snapshots::new(place.folder("snapshots")).newest_good().expect("read");
        assert_eq!(found.position(), at(14));
        assert!(found.snapshot.expect("a snapshot").body == body);

        let (mut blobs, _) = Blobs::open(place.folder("blobs"), Default::default()).expect("blobs");
        let (small, large) = (b"#!/bin/sh\n".to_vec(), vec![7; 3 << 20]);
        let ids = blobs.put_many(&[&small, &large], 1).expect("stored");
        let later = blobs.put(b"later", 2).expect("stored");
        drop(blobs);
        let (mut blobs, _) = Blobs::open(place.folder("blobs"), Default::default()).expect("blobs");
        let content = |id: &BlobId| blobs.get(id).expect("read").expect("it is there");
        assert!(content(&ids[0]) == small && content(&ids[1]) == large);
        assert_eq!(content(&later), b"later");
        // The pack is taken up where it ended.
        let last = blobs.put(b"last", 3).expect("stored");
        assert_eq!(blobs.get(&last).expect("read").expect("it is there"), b"last");
    }
}

#[test]
fn up_scripts_are_there_with_the_commit_that_needs_them_or_can_be_stored_again() {
    for place in [Place::files(), Place::postgres()] {
        let open = || Blobs::open(place.folder("blobs"), Default::default()).expect("blobs").0;
        let (mut journal, ..) = place.open(Position::START).expect("a journal");
        let mut blobs = open();
        let first = blobs.stage(b"first", 1).expect("staged");
        blobs.commit_staged_with_journal().expect("written");
        journal.append(1, 0, &[b"a"]).expect("kept");
        blobs.note_journal(true);
        assert_eq!(open().get(&first).expect("read").as_deref(), Some(&b"first"[..]));

        // A commit that fails takes the bytes with it, where they were a part of it.
        let second = blobs.stage(b"second", 2).expect("staged");
        blobs.commit_staged_with_journal().expect("written");
        journal.append(1, 9, &[b"b"]).expect_err("another end");
        blobs.note_journal(false);
        assert_eq!(blobs.contains(&second), open().contains(&second), "known as it is stored");
        assert_eq!(blobs.stage(b"second", 3).expect("staged"), second);
        let third = blobs.stage(b"third", 3).expect("staged");
        blobs.commit_staged_with_journal().expect("written");
        journal.append(1, 1, &[b"b"]).expect("kept");
        blobs.note_journal(true);
        for (id, content) in [(first, "first"), (second, "second"), (third, "third")] {
            let stored = open().get(&id).expect("read");
            assert_eq!(stored.as_deref(), Some(content.as_bytes()));
        }
    }
}

#[test]
fn up_script_and_its_event_are_one_transaction_of_the_database() {
    let mut server = TestDatabase::start();
    // Nothing else takes the number of a transaction meanwhile.
    server.serve_with(&["autovacuum=off"], None);
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let folder = Arc::new(PostgresFolder::new(database.clone(), "blobs", epoch));
    let mut blobs = Blobs::open(folder, Default::default()).expect("blobs").0;
    let journal = PostgresJournal::open(database, epoch, Position::START, |_| Ok(()));
    let mut journal = journal.expect("empty").0;
    let mut submit = |seq: u64| {
        blobs.stage(format!("script {seq}").as_bytes(), 1).expect("staged");
        blobs.commit_staged_with_journal().expect("written");
        journal.append(1, seq, &[b"event"]).expect("kept");
        blobs.note_journal(true);
    };
    let observer = postgres::Client::connect(&server.url(), postgres::NoTls);
    let mut observer = observer.expect("a session");
    let mut number = || -> i64 {
        let row = observer.query_one("SELECT txid_current()", &[]);
        row.expect("a number").get(0)
    };
    // The first makes the pack.
    submit(0);
    let before = number();
    (1..=10).for_each(submit);
    assert_eq!(number() - before, 11, "ten, and the one that asks");
}

#[test]
fn up_any_part_of_a_file_is_read_as_it_was_written() {
    for place in [Place::files(), Place::postgres()] {
        let file = place.folder("blobs").create("parts").expect("a file");
        file.preallocate(16).expect("set aside");
        file.write_at(0, b"abcdefgh").expect("written");
        file.write_at(10, b"xyz").expect("written");
        let whole = b"abcdefgh\0\0xyz\0\0\0";
        for start in 0..=whole.len() {
            for len in 1..=8 {
                let mut part = vec![7; len];
                let read = file.read_at(start as u64, &mut part).expect("read");
                let expected = &whole[start..whole.len().min(start + len)];
                assert_eq!(&part[..read], expected, "{len} bytes at {start}");
            }
        }
        // As the unfinished end of a pack is cleared at a start: what goes with a commit takes its place.
        file.write_at(10, &[0; 3]).expect("cleared");
        let (mut journal, ..) = place.open(Position::START).expect("a journal");
        file.write_with_journal(9, b"tail").expect("written");
        journal.append(1, 0, &[b"a"]).expect("kept");
        assert_eq!(file.read_all().expect("read"), b"abcdefgh\0tail\0\0\0");
    }
}

#[test]
fn up_file_grows_by_what_a_commit_needs() {
    for place in [Place::files(), Place::postgres()] {
        let (mut journal, ..) = place.open(Position::START).expect("a journal");
        // As a pack that was cut after a failed write, and is the newest at the next start.
        let file = place.folder("blobs").create("cut").expect("a file");
        file.write_with_journal(0, b"script").expect("written");
        journal.append(1, 0, &[b"a"]).expect("kept");
        assert_eq!(file.read_all().expect("read"), b"script");
        assert_eq!(file.written_end().expect("its end"), 6);
    }
}

#[test]
fn up_standby_reads_of_a_pack_what_is_written_and_not_what_is_set_aside() {
    let place = Place::postgres();
    let folder = place.folder("blobs");
    let (mut blobs, _) = Blobs::open(folder.clone(), Default::default()).expect("blobs");
    let mut index = BlobIndex::default();
    let mut known = Vec::new();
    for content in [&b"first"[..], b"second"] {
        known.push(blobs.put(content, 1).expect("stored"));
        // A pack is many times as long from the beginning.
        assert!(!index.read_on(&*folder, 1 << 10).expect("read"), "that was all");
    }
    drop(blobs);
    let (blobs, recovery) = Blobs::open_indexed(folder, Default::default(), index).expect("blobs");
    assert!(known.iter().all(|id| blobs.contains(id)));
    assert!(recovery.damaged.is_empty() && recovery.torn_tail.is_none(), "{recovery:?}");
}

#[test]
fn up_record_that_ends_in_zeros_nobody_wrote_is_read() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let open = || {
        let folder = Arc::new(PostgresFolder::new(database.clone(), "blobs", epoch));
        Blobs::open(folder, Default::default()).expect("blobs")
    };
    let content = [&b"text"[..], &[0; 16]].concat();
    let known = open().0.put(&content, 1).expect("stored");
    // As a state is moved there: its zeros at the end, and those that fill the record up.
    let cut = "UPDATE sluice.extent SET bytes = substring(bytes for octet_length(bytes) - 20)";
    server.execute("sluice", cut);
    let (mut blobs, recovery) = open();
    assert_eq!(blobs.get(&known).expect("read").as_deref(), Some(&content[..]));
    assert!(recovery.damaged.is_empty() && recovery.torn_tail.is_none(), "{recovery:?}");
    let later = blobs.put(b"later", 2).expect("stored");
    assert!(open().0.contains(&later) && open().0.contains(&known));
}

#[test]
fn up_nothing_is_stored_behind_bytes_whose_commit_is_under_way() {
    let place = Place::postgres();
    let open = || Blobs::open(place.folder("blobs"), Default::default()).expect("blobs");
    let (mut journal, ..) = place.open(Position::START).expect("a journal");
    let (mut blobs, _) = open();
    blobs.put(b"before", 1).expect("stored");
    let script = blobs.stage(b"script", 1).expect("staged");
    blobs.commit_staged_with_journal().expect("written");
    // As a collection does that moves a blob meanwhile; and a standby reads on.
    let moved = blobs.put(b"moved", 1).expect("stored");
    let mut index = BlobIndex::default();
    while index.read_on(&*place.folder("blobs"), 1 << 20).expect("read") {}
    journal.append(1, 0, &[b"a"]).expect("kept");
    blobs.note_journal(true);
    let (taken_over, recovery) =
        Blobs::open_indexed(place.folder("blobs"), Default::default(), index).expect("blobs");
    assert!(taken_over.contains(&script) && taken_over.contains(&moved));

    // One that fails leaves no gap.
    blobs.stage(b"lost", 2).expect("staged");
    blobs.commit_staged_with_journal().expect("written");
    blobs.put(b"moved as well", 2).expect("stored");
    journal.append(1, 9, &[b"b"]).expect_err("another end");
    blobs.note_journal(false);
    let gaps = [recovery.damaged, open().1.damaged].concat();
    assert!(gaps.is_empty(), "{gaps:?}");
}

#[test]
fn up_file_that_is_removed_takes_its_bytes_along_and_gets_no_more() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let folder = PostgresFolder::new(database.clone(), "blobs", epoch);
    let [kept, gone] = ["kept", "gone"].map(|name| folder.create(name).expect("a file"));
    for file in [&kept, &gone] {
        file.write_at(0, b"written").expect("written");
        // Over what is there.
        file.write_at(3, b"over").expect("written");
    }
    gone.preallocate(64).expect("set aside");
    folder.remove("gone").expect("removed");
    gone.write_at(7, b"late").expect_err("it is gone");
    let journal =
        PostgresJournal::open(database.clone(), epoch, Position::START, |_| Ok(())).expect("empty");
    let mut journal = journal.0;
    assert!(gone.write_with_journal(7, b"late").expect("left to the journal"));
    journal.append(1, 0, &[b"a"]).expect_err("its text has no place");
    assert_eq!(kept.read_all().expect("read"), b"wriover");
    let left = "(SELECT bool_and(f.id IS NOT NULL) FROM sluice.extent e
        LEFT JOIN sluice.file f ON f.id = e.file)";
    server.execute("sluice", &format!("DO $$ BEGIN ASSERT {left}; END $$"));
}

#[test]
fn up_deposed_server_writes_nothing_more() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let first = lead(&database, "first");
    let open = |epoch| PostgresJournal::open(database.clone(), epoch, Position::START, |_| Ok(()));
    let mut old = open(first.epoch()).expect("a journal").0;
    old.append(1, 0, &[b"kept"]).expect("kept");
    let folder = |epoch| PostgresFolder::new(database.clone(), "blobs", epoch);
    let file = folder(first.epoch()).create("a").expect("a file");
    file.write_at(0, b"kept").expect("written");

    let other = connect(&server.url());
    let held = Lease::take(&other, "second", Duration::from_secs(3600)).expect("an answer");
    assert!(matches!(held, Taken::Waiting(leader) if leader.holder == "first" && leader.is_valid));
    server.execute("sluice", "UPDATE sluice.lease SET valid_until = '-infinity'");
    let second = lead(&other, "second");
    assert!(second.epoch() > first.epoch());

    assert!(matches!(first.renew(), Err(DatabaseError::Deposed)));
    second.renew().expect("renewed");
    let is_deposed = |error: JournalError| {
        assert!(matches!(error, JournalError::Database(DatabaseError::Deposed)), "{error}");
    };
    is_deposed(old.lease(5000).expect_err("another server leads"));
    is_deposed(old.append(1, 1, &[b"lost"]).expect_err("another server leads"));
    is_deposed(open(first.epoch()).err().expect("another server leads"));
    let late = file.write_at(4, b"lost").expect_err("another server leads");
    assert!(late.to_string().contains("taken over"), "{late}");
    folder(first.epoch()).remove("a").expect_err("another server leads");
    EndedLog::new(database.clone(), first.epoch())
        .add(1, vec![1], ended::of_ends(5, 5))
        .expect_err("another server leads");

    let (mut new, recovery) = open(second.epoch()).expect("a journal");
    assert_eq!((new.last_seq(), recovery.replayed), (1, 1));
    new.append(2, 1, &[b"on"]).expect("kept");
    second.release().expect("released");
    second.renew().expect("it stays given up");
    let third = lead(&database, "third");
    assert_eq!(folder(third.epoch()).open("a").expect("a file").read_all().expect("read"), b"kept");
}

#[test]
fn up_page_of_commits_is_the_last_only_where_nothing_follows() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let leader = lead(&database, "leader");
    let open = PostgresJournal::open(database.clone(), leader.epoch(), Position::START, |_| Ok(()));
    let mut journal = open.expect("a journal").0;
    // As many as go into one page, and then as few as are too long for one.
    let most = PostgresReader::PAGE as u64;
    let long = vec![b'x'; 3 << 20];
    for seq in 0..most + 3 {
        let event: &[u8] = if seq < most { b"one" } else { &long };
        journal.append(1, seq, &[event]).expect("kept");
    }
    let mut reader = PostgresReader::new(database.clone(), Position::START);
    for expected in [(PostgresReader::PAGE, false), (2, false), (1, true), (0, true)] {
        let page = reader.fetch().expect("read");
        assert_eq!((page.frames.len(), page.is_last), expected);
        for frame in &page.frames {
            reader.take_in(frame, |_| Ok(())).expect("taken in");
        }
    }
    let mut recovered = 0;
    let replay = |_: store::Record<'_>| {
        recovered += 1;
        Ok(())
    };
    PostgresJournal::open(database, leader.epoch(), Position::START, replay).expect("a journal");
    assert_eq!(recovered, most + 3, "a recovery reads the same pages");
}

#[test]
fn up_database_whose_state_was_moved_to_files_is_led_by_nobody() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let lease = lead(&database, "migrate");
    mark_moved(&database, lease.epoch() + 1).expect_err("under its own lease alone");
    check_cluster(&database, CLUSTER).expect("nothing was marked");
    for _ in 0..2 {
        mark_moved(&database, lease.epoch()).expect("marked");
        let refused = prepare(&database, CLUSTER).expect_err("it was moved").to_string();
        assert!(refused.contains("the state was moved from it to files"), "{refused}");
        check_cluster(&database, CLUSTER).expect_err("a server that has waited");
        prepare_to_leave(&database, CLUSTER).expect("a second attempt");
    }
    prepare_to_leave(&database, "another").expect_err("of another cluster");
}

#[test]
fn up_standby_reads_what_the_leader_commits_and_is_told_of_it() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let leader = lead(&database, "leader");
    let open = PostgresJournal::open(database.clone(), leader.epoch(), Position::START, |_| Ok(()));
    let mut journal = open.expect("a journal").0;
    journal.append(1, 0, &[b"a", b"b"]).expect("kept");

    let mut reader = PostgresReader::new(connect(&server.url()), Position::START);
    let mut seen = Vec::new();
    let mut read = |reader: &mut PostgresReader| {
        for frame in &reader.fetch().expect("frames").frames {
            let take = |record: store::Record<'_>| {
                seen.push(String::from_utf8_lossy(record.event).into_owned());
                Ok(())
            };
            reader.take_in(frame, take).expect("it follows");
        }
        seen.clone()
    };
    assert_eq!(read(&mut reader), ["a", "b"]);
    assert_eq!(reader.end_seq().expect("read"), 2);
    assert!(!reader.await_commit(Duration::ZERO).expect("it listens"));
    let notifier = Notifier::start(&database, connect(&server.url()), || true).expect("a thread");
    journal.append(1, 2, &[b"c"]).expect("kept");
    // No answer of the database is waited for as long: who is not told gets an error.
    let long = Duration::from_secs(60);
    assert!(!reader.await_commit(long).expect("told"), "a commit is no end of a lease");
    assert_eq!(read(&mut reader), ["a", "b", "c"]);
    assert_eq!(reader.position(), journal.position());
    drop(notifier);
    leader.release().expect("released");
    assert!(reader.await_commit(long).expect("told"), "the lease is free");

    // A reader that is behind what was removed finds out.
    journal.compact(3).expect("removed");
    let next = lead(&database, "next");
    let (epoch, end) = (next.epoch(), journal.position());
    let open = PostgresJournal::open(database.clone(), epoch, end, |_| Ok(()));
    open.expect("a journal").0.append(2, 3, &[b"d"]).expect("kept");
    let mut late = PostgresReader::new(connect(&server.url()), Position::START);
    let frames = late.fetch().expect("frames").frames;
    let gap = late.take_in(&frames[0], |_| Ok(())).expect_err("events are missing");
    assert!(matches!(gap, JournalError::Damaged { .. }), "{gap}");
}

#[test]
fn up_servers_see_one_another_and_who_leads() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let address = |name: &str| ServerAddress {
        name: name.into(),
        clients: vec![format!("{name}:6820"), "10.0.0.1:6820".into()],
        agents: vec![format!("{name}:6821")],
        version: "1.0".into(),
    };
    let lease = lead(&database, "a");
    let (leader, standby) = (address("a"), address("b"));
    leader.note(&database, lease.epoch(), 0).expect("noted");
    standby.note(&database, 0, 0).expect("noted");
    let seen = SeenServer::list(&database).expect("a list");
    let named: Vec<_> = seen.iter().map(|s| (&s.address, s.is_leader)).collect();
    assert_eq!(named, [(&leader, true), (&standby, false)]);
    let ago = |name: &str| {
        let seen = SeenServer::list(&database).expect("a list");
        seen.into_iter().find(|server| server.address.name == name).expect(name).seen_ago
    };
    assert!(ago("b") < Duration::from_secs(1800));
    // As where the clock was set back since: one that is gone does not seem to be there.
    server.execute("sluice", "UPDATE sluice.server SET seen = seen + interval '1 hour'");
    standby.note(&database, 0, 0).expect("noted");
    assert!(ago("a") > Duration::from_secs(1800) && ago("b") < Duration::from_secs(1800));
    lease.release().expect("released");
    leader.remove(&database).expect("removed");
    let seen = SeenServer::list(&database).expect("a list");
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(!seen[0].is_leader, "{seen:?}");
}

#[test]
fn up_lease_of_a_clock_that_was_set_back_is_taken() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let first = lead(&database, "first");
    let later = |seconds: u32| {
        let until = format!("clock_timestamp() + {seconds} * interval '1 second'");
        server.execute("sluice", &format!("UPDATE sluice.lease SET valid_until = {until}"));
    };
    let take = || Lease::take(&database, "second", Duration::from_secs(1000)).expect("an answer");
    later(1500);
    assert!(matches!(take(), Taken::Waiting(leader) if leader.holder == "first"));
    later(86400);
    assert!(matches!(take(), Taken::Leading(lease) if lease.epoch() > first.epoch()));
}

#[test]
fn up_acknowledged_commits_survive_a_crash_of_the_database() {
    let mut server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let open = || PostgresJournal::open(database.clone(), epoch, Position::START, |_| Ok(()));
    let mut journal = open().expect("a journal").0;
    fill(&mut journal, 30);
    let end = journal.position();
    server.crash();
    server.restart();
    // The connection is lost: whether the commit is there is not known, so the journal has to be opened again.
    let lost = journal.append(1, end.seq, &[b"unknown"]).expect_err("the connection is lost");
    assert!(matches!(lost, JournalError::Database(_)), "{lost}");
    let poisoned = journal.append(1, end.seq, &[b"later"]);
    assert!(matches!(poisoned, Err(JournalError::Poisoned)), "{poisoned:?}");
    let mut journal = open().expect("a journal").0;
    assert_eq!(journal.position(), end);
    journal.append(1, end.seq, &[b"on"]).expect("kept");
}

/// A statement that makes inserts into a table take so long.
fn slow_inserts(table: &str, seconds: u32) -> String {
    format!(
        "CREATE FUNCTION public.sleep() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END $$;
         CREATE TRIGGER sleep BEFORE INSERT ON {table}
         FOR EACH STATEMENT EXECUTE FUNCTION public.sleep()"
    )
}

/// What is asked for until it is not late any more.
fn once_not_late<T, E: std::fmt::Display>(mut ask: impl FnMut() -> Result<T, E>) -> T {
    let mut last = String::new();
    for _ in 0..30 {
        match ask() {
            Ok(done) => return done,
            Err(error) => last = error.to_string(),
        }
    }
    panic!("{last}");
}

#[test]
fn up_commit_that_is_late_is_there_for_whoever_reads_on() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let url = DatabaseUrl::parse(&server.url(), None).expect("an address");
    let hasty = Database::with_answer_timeout(url, Duration::from_secs(2)).expect("a driver");
    let open = || PostgresJournal::open(hasty.clone(), epoch, Position::START, |_| Ok(()));
    let mut journal = once_not_late(open).0;
    server.execute("sluice", &slow_inserts("sluice.journal", 3));
    let late = journal.append(1, 0, &[b"late"]).expect_err("the commit takes longer");
    assert!(matches!(late, JournalError::Database(DatabaseError::Late(_))), "{late}");
    let journal = once_not_late(open).0;
    assert_eq!(journal.last_seq(), 1, "what is asked later is answered after the late commit");
    server.execute("sluice", "DROP FUNCTION public.sleep CASCADE");
    let patient = PostgresJournal::open(database, epoch, Position::START, |_| Ok(()));
    patient.expect("a journal").0.append(1, 1, &[b"on"]).expect("kept");
}

#[test]
fn up_transaction_that_is_late_is_rolled_back() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let url = DatabaseUrl::parse(&server.url(), None).expect("an address");
    let hasty = Database::with_answer_timeout(url, Duration::from_secs(2)).expect("a driver");
    let folder = PostgresFolder::new(hasty, "blobs", epoch);
    once_not_late(|| folder.create("before"));
    server.execute("sluice", &slow_inserts("sluice.file", 3));
    folder.create("late").err().expect("it takes longer");
    server.execute("sluice", "DROP FUNCTION public.sleep CASCADE");
    once_not_late(|| folder.create("after"));
    let seen = PostgresFolder::new(database, "blobs", epoch).list("").expect("read");
    let names: Vec<_> = seen.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["after", "before"], "and what follows is committed");
}

#[test]
fn up_database_is_asked_and_left_by_a_task_of_another_runtime() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    lead(&database, "one");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let holder = runtime.block_on(async move {
        let leader = Leader::read(&database).expect("read");
        drop(database);
        leader.holder
    });
    assert_eq!(holder, "one");
}

#[test]
fn up_database_that_cannot_be_used_is_refused_in_one_line() {
    let server = TestDatabase::start();
    let refusal = |url: &str, cluster: &str| {
        let error = prepare(&connect(url), cluster).expect_err(url).to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    };
    prepare(&connect(&server.url()), CLUSTER).expect("a schema");
    prepare(&connect(&server.url()), CLUSTER).expect("the same schema");
    let other = refusal(&server.url(), "another");
    assert!(other.contains("of another cluster") && other.contains("server/keys"), "{other}");
    server.execute("sluice", "UPDATE sluice.schema_version SET version = 9999");
    let newer = refusal(&server.url(), CLUSTER);
    assert!(newer.contains("version 9999, of a newer program"), "{newer}");
    server.execute("sluice", "ALTER DATABASE sluice SET default_transaction_read_only = on");
    let read_only = refusal(&server.url(), CLUSTER);
    assert!(read_only.contains("read-only"), "{read_only}");
    let latin = "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0";
    server.execute("postgres", latin);
    let encoding = refusal(&server.url_of("latin"), CLUSTER);
    assert!(encoding.contains("its encoding is LATIN1"), "{encoding}");
    let absent = refusal(&server.url_of("absent"), CLUSTER);
    assert!(absent.contains("\"absent\" does not exist"), "{absent}");
}
