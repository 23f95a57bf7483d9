//! Scripts and other texts, and the files that keep them, in both stores.

use crate::database::TestDatabase;
use crate::{CLUSTER, Place, connect, lead};
use std::sync::Arc;
use store::postgres::{PostgresFolder, PostgresJournal, prepare};
use store::{BlobId, BlobIndex, Blobs, Disk, Journal, Position, Snapshots};

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
fn up_long_texts_of_a_commit_stay_in_the_pages_of_their_table() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let folder = PostgresFolder::new(database.clone(), "blobs", epoch);
    let file = folder.create("pack").expect("a file");
    file.preallocate(1 << 20).expect("set aside");
    let journal = PostgresJournal::open(database, epoch, Position::START, |_| Ok(()));
    let mut journal = journal.expect("empty").0;
    let mut written = b"before".to_vec();
    file.write_at(0, &written).expect("written");
    // As many jobs bring them that are submitted together: of one row and of several, to the last byte of a row and beyond it.
    for (seq, len) in [7999, 8000, 8001, 16_000, 100_000].into_iter().enumerate() {
        let texts: Vec<u8> = (0..len).map(|n: u32| (n % 251) as u8).collect();
        let begins = written.len() as u64;
        assert!(file.write_with_journal(begins, &texts).expect("left to the journal"));
        journal.append(1, seq as u64, &[b"a"]).expect("kept");
        written.extend(texts);
        assert_eq!(file.written_end().expect("its end"), written.len() as u64);
    }
    assert!(file.read_all().expect("read")[..written.len()] == written);
    let apart = "(SELECT pg_relation_size(reltoastrelid) FROM pg_class
        WHERE oid = 'sluice.extent'::regclass)";
    server.execute("sluice", &format!("DO $$ BEGIN ASSERT {apart} = 0; END $$"));
    // What would lie over the last byte is refused as a whole.
    let last = written.len() as u64 - 1;
    assert!(file.write_with_journal(last, &[1; 20_000]).expect("left to the journal"));
    journal.append(1, 5, &[b"b"]).expect_err("its place is taken");
    assert_eq!(file.written_end().expect("its end"), last + 1);
}

#[test]
fn up_place_noted_by_a_commit_is_free_no_more_once_its_file_changes() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let lease = lead(&database, "one");
    let open = |epoch| {
        let journal = PostgresJournal::open(database.clone(), epoch, Position::START, |_| Ok(()));
        journal.expect("a journal").0
    };
    let holds = |what: &str| {
        server.execute("sluice", &format!("DO $$ BEGIN ASSERT ({what} FROM sluice.head); END $$"));
    };
    let folder = PostgresFolder::new(database.clone(), "blobs", lease.epoch());
    let file = folder.create("pack").expect("a file");
    file.preallocate(64).expect("set aside");
    let put = |journal: &mut PostgresJournal, begins| {
        assert!(file.write_with_journal(begins, b"text").expect("left to the journal"));
        journal.append(1, journal.last_seq(), &[b"a"])
    };
    let mut journal = open(lease.epoch());
    for begins in [0, 4, 10] {
        put(&mut journal, begins).expect("kept");
        holds(&format!("SELECT free_begin = {} AND free_end = 64", begins + 4));
    }
    // Behind the note: its place is found anew.
    file.write_at(14, b"other").expect("written");
    holds("SELECT free_file = 0");
    put(&mut journal, 19).expect("kept");
    holds("SELECT free_file > 0");
    // Over what was noted.
    put(&mut journal, 20).expect_err("its place is taken");
    let mut journal = open(lease.epoch());
    put(&mut journal, 23).expect("kept");
    file.truncate(40).expect("cut");
    file.write_with_journal(50, b"text").expect("written by itself: it lies beyond the end");
    put(&mut journal, 27).expect("kept");
    // One that lies before another extent has no free place behind it.
    put(&mut journal, 31).expect("kept");
    holds("SELECT free_file = 0");

    folder.remove("pack").expect("removed");
    put(&mut journal, 35).expect_err("its file is gone");
    let file = folder.create("next").expect("a file");
    file.preallocate(64).expect("set aside");
    let mut journal = open(lease.epoch());
    assert!(file.write_with_journal(0, b"text").expect("left to the journal"));
    journal.append(1, journal.last_seq(), &[b"a"]).expect("kept");
    holds("SELECT free_file > 0");
    lease.release().expect("given up");
    lead(&database, "two");
    holds("SELECT free_file = 0");
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
