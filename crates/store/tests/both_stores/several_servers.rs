//! Several servers at one database: who leads, and what those that wait read.

use crate::database::TestDatabase;
use crate::{CLUSTER, connect, ended, lead};
use std::time::Duration;
use store::postgres::{
    DatabaseError, EndedLog, Leader, Lease, Notifier, PostgresFolder, PostgresJournal,
    PostgresReader, SeenServer, ServerAddress, Taken, check_cluster, mark_moved, prepare,
    prepare_to_leave,
};
use store::{Disk, Journal, JournalError, Position};

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
fn up_lease_is_given_up_also_where_its_session_was_lost() {
    let server = TestDatabase::start();
    let (database, other) = (connect(&server.url()), connect(&server.url()));
    prepare(&database, CLUSTER).expect("a schema");
    let lease = lead(&database, "first");
    server.execute(
        "postgres",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'sluice'",
    );
    lease.release().expect("released");
    assert!(!Leader::read(&other).expect("an answer").is_valid, "the next may lead at once");
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
