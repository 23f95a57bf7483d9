//! A leader whose database takes no more sessions of its role: it goes on by those that it has. One that it has lost is refused with
//! the reason and deposes nobody, and it goes on where it was once there is room.

use std::fmt::Display;
use std::time::{Duration, Instant};

use store::postgres::{DatabaseError, Leader, PostgresJournal, prepare};
use store::{Journal, JournalError, Position};

use crate::database::TestDatabase;
use crate::{CLUSTER, connect, fill, lead};

/// The sessions of the leader here: for its state, and for its lease.
const OWN: usize = 2;
const LIMIT: usize = 4;
const ROOM_TIMEOUT: Duration = Duration::from_secs(60);

fn is_out_of_sessions(error: &DatabaseError) -> bool {
    error.may_pass() && error.to_string().contains("too many connections for role")
}

/// Asks until it is answered: a session that is dropped has its place for a moment longer.
fn once_there_is_room<T, E: Display>(mut ask: impl FnMut() -> Result<T, E>) -> T {
    let began = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) => assert!(began.elapsed() < ROOM_TIMEOUT, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn up_leader_goes_on_by_its_sessions_and_without_them_once_there_is_room() {
    let server = TestDatabase::start();
    let role = format!("CREATE ROLE ordinary LOGIN CONNECTION LIMIT {LIMIT}");
    server.execute("postgres", &role);
    server.execute("postgres", "ALTER DATABASE sluice OWNER TO ordinary");
    let url = server.url_as("ordinary");
    let (database, for_lease) = (connect(&url), connect(&url));
    prepare(&database, CLUSTER).expect("a schema");
    let lease = lead(&for_lease, "leader");
    let epoch = lease.epoch();
    let open = || PostgresJournal::open(database.clone(), epoch, Position::START, |_| Ok(()));
    let mut journal = open().expect("a journal").0;
    fill(&mut journal, 10);

    let mut held = server.take_sessions("ordinary", LIMIT - OWN);
    let refused = Leader::read(&connect(&url)).expect_err("there is no room for another");
    assert!(is_out_of_sessions(&refused), "{refused}");
    fill(&mut journal, 20);
    lease.renew().expect("it has its session");
    let end = journal.position();

    let lose = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE usename = 'ordinary' AND application_name = 'sluice'";
    server.execute("postgres", lose);
    held.extend(server.take_sessions("ordinary", OWN));
    let lost = journal.append(1, end.seq, &[b"lost"]).expect_err("its session is lost");
    assert!(matches!(&lost, JournalError::Database(why) if why.may_pass()), "{lost}");
    let unread = open().err().expect("there is no room");
    assert!(matches!(&unread, JournalError::Database(why) if is_out_of_sessions(why)), "{unread}");
    // What is found first is the end of the lost session.
    let unrenewed = lease.renew().expect_err("its session is lost");
    assert!(unrenewed.may_pass(), "{unrenewed}");
    let unrenewed = lease.renew().expect_err("there is no room");
    assert!(is_out_of_sessions(&unrenewed), "{unrenewed}");
    let leader = Leader::read(&connect(&server.url())).expect("a superuser has room");
    assert_eq!((leader.holder.as_str(), leader.epoch, leader.is_valid), ("leader", epoch, true));

    drop(held);
    let mut journal = once_there_is_room(open).0;
    assert_eq!(journal.position(), end, "nothing that was refused is there");
    journal.append(1, end.seq, &[b"on"]).expect("kept");
    once_there_is_room(|| lease.renew());
}
