//! A database that crashes, is late, or cannot be used.

use crate::database::TestDatabase;
use crate::{CLUSTER, connect, fill, lead};
use std::time::Duration;
use store::postgres::{
    Database, DatabaseError, DatabaseUrl, Leader, Lease, PostgresFolder, PostgresJournal, prepare,
};
use store::{Disk, Journal, JournalError, Position};

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
    // Whether the commit is there is not known, so the journal has to be opened again.
    let lost = journal.append(1, end.seq, &[b"unknown"]).expect_err("nobody is there");
    assert!(matches!(lost, JournalError::Database(_)), "{lost}");
    server.restart();
    let poisoned = journal.append(1, end.seq, &[b"later"]);
    assert!(matches!(poisoned, Err(JournalError::Poisoned)), "{poisoned:?}");
    let mut journal = open().expect("a journal").0;
    assert_eq!(journal.position(), end);
    journal.append(1, end.seq, &[b"on"]).expect("kept");
}

#[test]
fn up_session_that_was_lost_while_nothing_was_asked_costs_no_commit() {
    let mut server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let epoch = lead(&database, "one").epoch();
    let open = PostgresJournal::open(database, epoch, Position::START, |_| Ok(()));
    let mut journal = open.expect("a journal").0;
    fill(&mut journal, 3);
    server.crash();
    server.restart();
    journal.append(1, 3, &[b"after a crash"]).expect("by another session");
    // The test's own session does not wait: this returns when the others have been told.
    let others = "pid <> pg_backend_pid() AND datname = 'sluice'";
    let end =
        format!("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE {others}");
    server.execute("sluice", &end);
    journal.append(1, 4, &[b"after an administrator's word"]).expect("by another session");
}

#[test]
fn up_site_that_ends_idle_sessions_does_not_end_ours() {
    let server = TestDatabase::start();
    server.execute("sluice", "CREATE ROLE ordinary LOGIN");
    server.execute("sluice", "GRANT CREATE ON DATABASE sluice TO ordinary");
    // PostgreSQL 13 has no such bound.
    let bound = "DO $$ BEGIN IF current_setting('idle_session_timeout', true) IS NOT NULL THEN \
                 ALTER ROLE ordinary SET idle_session_timeout = '1ms'; END IF; END $$";
    server.execute("sluice", bound);
    let database = connect(&server.url_as("ordinary"));
    prepare(&database, CLUSTER).expect("a schema");
    // It would have ended long before: the statement fails with the count of zero.
    let ours = "SELECT 1 / count(*) FROM pg_stat_activity WHERE usename = 'ordinary'";
    server.execute("sluice", &format!("SELECT pg_sleep(0.2); {ours}"));
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
fn up_lease_is_not_taken_by_a_server_that_waits_for_it_no_more() {
    let server = TestDatabase::start();
    let database = connect(&server.url());
    prepare(&database, CLUSTER).expect("a schema");
    let lease = lead(&database, "leader");
    server.execute("sluice", "UPDATE sluice.lease SET valid_until = '-infinity'");
    let url = DatabaseUrl::parse(&server.url(), None).expect("an address");
    let hasty = Database::with_nothing_late(url, Duration::from_secs(4)).expect("a driver");
    once_not_late(|| Leader::read(&hasty));
    // As by a commit of the leader that hangs.
    let mut other = server.take_sessions("sluice", 1).remove(0);
    let mut commit = other.transaction().expect("a transaction");
    commit.execute("SELECT 1 FROM sluice.head FOR UPDATE", &[]).expect("held");
    let taken = Lease::take(&hasty, "waits", Duration::from_secs(2));
    taken.err().expect("it is given up");
    commit.rollback().expect("let go");
    let leader = once_not_late(|| Leader::read(&hasty));
    assert_eq!((leader.epoch, leader.holder.as_str()), (lease.epoch(), "leader"));
    lease.renew().expect("it leads on");
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
