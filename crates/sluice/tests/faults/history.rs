//! What the clients of a storm were told, and its check against the journal: what was acknowledged is there, once, and as it was told;
//! and nothing happened afterwards that an answer had ruled out.

use cluster::Event;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use store::Position;
use store::postgres::{Database, DatabaseUrl, PostgresReader};

/// The answers of a storm.
#[derive(Default)]
pub struct History {
    /// The ids by the names that tell the submits apart.
    acknowledged: BTreeMap<String, u32>,
    /// When the cancellation of a job was acknowledged first.
    cancelled: BTreeMap<u32, Timestamp>,
}

impl History {
    /// A submit was answered with this id.
    pub fn submitted(&mut self, name: &str, id: u32) {
        let is_new = self.acknowledged.values().all(|known| *known != id);
        assert!(is_new, "id {id} was told twice, the second time to {name}");
        let before = self.acknowledged.insert(name.to_owned(), id);
        assert_eq!(before, None, "{name} was answered twice");
    }

    /// The cancellation of a job was answered: it runs, or has ended, or never starts.
    pub fn cancelled(&mut self, id: u32) {
        self.cancelled.entry(id).or_insert_with(now);
    }

    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.acknowledged.values().copied()
    }

    /// Compares the answers with the journal of this database, which has every event since the cluster began.
    pub fn check(&self, url: &str) {
        let journal = Committed::read(url);
        for (name, id) in &self.acknowledged {
            let ids = journal.submits.get(name).map_or(&[][..], Vec::as_slice);
            assert_eq!(ids, [*id], "{name} was answered with {id}");
        }
        for (name, ids) in &journal.submits {
            assert_eq!(ids.len(), 1, "{name} has become the jobs {ids:?}");
        }
        for (id, answered) in &self.cancelled {
            let late = journal.starts.get(id).and_then(|starts| starts.last());
            let is_late = late.is_some_and(|start| start > answered);
            assert!(!is_late, "job {id} started at {late:?}, and was cancelled at {answered:?}");
        }
    }
}

fn now() -> Timestamp {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(now.expect("after 1970").as_millis() as i64)
}

/// What the journal says.
#[derive(Default)]
struct Committed {
    /// The ids of the jobs that were submitted under each name.
    submits: BTreeMap<String, Vec<u32>>,
    /// When each job of its own id was started.
    starts: BTreeMap<u32, Vec<Timestamp>>,
}

impl Committed {
    fn read(url: &str) -> Self {
        let url = DatabaseUrl::parse(url, None).expect("an address");
        let database = Database::new(url).expect("a thread");
        let mut reader = PostgresReader::new(database, Position::START);
        let mut found = Self::default();
        let (mut ids, mut attempts) = (BTreeSet::new(), BTreeSet::new());
        let mut terms = BTreeSet::new();
        loop {
            let frames = reader.fetch().expect("frames").frames;
            if frames.is_empty() {
                return found;
            }
            for frame in &frames {
                let take = |record: store::Record<'_>| -> Result<(), String> {
                    let event: Event =
                        serde_json::from_slice(record.event).map_err(|e| e.to_string())?;
                    match &event {
                        Event::TermStarted { term, .. } => {
                            assert!(terms.insert(*term), "term {term} began twice");
                        }
                        Event::Submitted(submitted) => {
                            let id = submitted.job.0;
                            assert!(ids.insert(id), "id {id} was given out twice");
                            let name = submitted.spec.name.to_string();
                            found.submits.entry(name).or_default().push(id);
                        }
                        Event::Started(started) => {
                            let attempt = started.attempt;
                            assert!(attempts.insert(attempt), "{attempt} was started twice");
                            found.starts.entry(attempt.job.0).or_default().push(started.at);
                        }
                        _ => {}
                    }
                    Ok(())
                };
                reader.take_in(frame, take).expect("the history is whole");
            }
        }
    }
}
