//! What every store promises, run against files and against PostgreSQL; and what the lease of a database promises.

mod blobs;
#[path = "../database/mod.rs"]
mod database;
mod database_faults;
mod ended;
mod no_session_left;
mod several_servers;

use std::sync::Arc;
use std::time::Duration;

use database::TestDatabase;
use store::postgres::{
    Database, DatabaseUrl, Lease, PostgresFolder, PostgresJournal, Taken, prepare,
};
use store::{Disk, FaultyDisk, Journal, JournalError, LogFile, LogOptions, Position, Recovery};

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
