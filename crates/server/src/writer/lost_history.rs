//! Settles a loss at the start: the journal's end is gone, and with it what clients were told had been kept.
//!
//! An event that leaves out the ids and numbers which may have been given out comes first, and the mark that ends the loss
//! after it: a server that is killed in between finds the loss again, and one that starts later goes on from the event. The
//! books are written beside the journal and may have what it lost: they go back to its end, or the next ends of jobs
//! would be taken for known ones.

use crate::clock;
use crate::error::ServerError;
use crate::writer::recover::Recovered;
use cluster::Event;
use store::Books;
use wire::term;

/// Does nothing where the high-water mark and the books find their place in the journal.
pub fn settle(recovered: &mut Recovered, books: &mut Books) -> Result<(), ServerError> {
    let Recovered { state, journal, recovery, .. } = recovered;
    let (booked, found) = (books.applied_seq(), journal.last_seq());
    let what = match &recovery.loss {
        Some(loss) => loss.to_string(),
        None if booked > found => {
            format!("LOST: the journal ends at seq {found}, but the books had come to {booked}")
        }
        None => return Ok(()),
    };
    let leased = u32::try_from(journal.high_water().leased_ids).unwrap_or(u32::MAX);
    let next_job = state.next_job.max(leased.saturating_add(1));
    tracing::error!("{what}. Jobs acknowledged since then are lost; ids go on at {next_job}");
    let at = clock::now();
    let event = Event::HistoryLost {
        // Agents may have seen terms that are lost.
        term: term::of_restored(journal.term().max(state.term), at),
        next_job,
        activities: books.last_activity()?,
        at,
    };
    let Event::HistoryLost { term, .. } = event else { unreachable!("it was made above") };
    let bytes = serde_json::to_vec(&event).map_err(|e| ServerError::Other(e.to_string()))?;
    let seq = journal.append(term, found, &[&bytes])?;
    state.apply(&event);
    if booked > seq {
        books.rewind(seq)?;
    }
    journal.lease(u64::from(next_job))?;
    recovery.loss = None;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::recover::{JournalPlace, StateDisks};
    use cluster::State;
    use model::activity::{Activity, ActivityFilter, ActivityKind, ActivityTarget};
    use std::sync::Arc;
    use store::FaultyDisk;

    const JOURNAL: &str = "journal-000000000001.log";

    struct Fixture {
        dir: tempfile::TempDir,
        disk: FaultyDisk,
    }

    impl Fixture {
        /// A journal of two terms whose second is lost.
        fn new(is_marked: bool) -> Self {
            let fixture =
                Self { dir: tempfile::tempdir().expect("a folder"), disk: FaultyDisk::default() };
            let mut journal = fixture.recover().journal;
            journal.lease(1000).expect("a mark");
            let mut kept = Vec::new();
            for term in 1..=2 {
                let event = Event::TermStarted { term, at: clock::now() };
                let bytes = serde_json::to_vec(&event).expect("JSON");
                let last = journal.last_seq();
                journal.append(term, last, &[&bytes]).expect("kept");
                if term == 1 {
                    fixture.disk.tamper(JOURNAL, |file| kept = file.clone()).expect("a copy");
                }
            }
            if is_marked {
                journal.lease(2000).expect("a mark");
            }
            fixture.disk.tamper(JOURNAL, |file| *file = kept).expect("its end is cut");
            fixture
        }

        fn recover(&self) -> Recovered {
            let journal = JournalPlace::Files(Arc::new(self.disk.clone()));
            StateDisks { journal, snapshots: Arc::new(FaultyDisk::default()) }
                .recover()
                .expect("a state")
        }

        fn books(&self) -> Books {
            Books::open(&self.dir.path().join("books.sqlite")).expect("books")
        }

        /// A start that is killed at once.
        fn start(&self) -> (State, u64) {
            let (mut recovered, mut books) = (self.recover(), self.books());
            settle(&mut recovered, &mut books).expect("settled");
            assert_eq!(recovered.recovery.loss, None);
            assert!(books.applied_seq() <= recovered.journal.last_seq());
            (recovered.state, recovered.journal.last_seq())
        }
    }

    fn activity(number: u64) -> Activity {
        Activity {
            number,
            at: clock::now(),
            actor: None,
            target: ActivityTarget::Node("n1".into()),
            what: ActivityKind::NodeUp,
            info: format!("{number}"),
        }
    }

    #[test]
    fn ids_and_numbers_of_a_lost_end_are_left_out_at_every_later_start() {
        for (is_marked, next_job) in [(true, 2001), (false, 1001)] {
            let fixture = Fixture::new(is_marked);
            let noted: Vec<_> = (1..=7).map(activity).collect();
            fixture.books().apply_all(9, &[], &[], &noted).expect("booked");
            let (first, seq) = fixture.start();
            assert_eq!((first.next_job, first.activities.noted()), (next_job, 7), "{is_marked}");
            assert!(wire::term::epoch(first.term) > 0, "beyond every term that was lost");
            // The loss is settled, and what was learned from it stays.
            let (later, same_seq) = fixture.start();
            assert_eq!((later.next_job, later.activities.noted()), (next_job, 7));
            assert_eq!(seq, same_seq, "nothing more is added");
            // What ends from now on is booked, beside what was.
            let mut books = fixture.books();
            assert!(books.apply_all(seq + 1, &[], &[], &[activity(8)]).expect("booked"));
            let reader = store::BookReader::open(&fixture.dir.path().join("books.sqlite"));
            let found =
                reader.expect("a reader").activities(&ActivityFilter::default(), None, None);
            let found = found.expect("activities").found.into_iter();
            let infos: Vec<_> = found.map(|activity| activity.info).collect();
            assert_eq!(infos, ["8", "7", "6", "5", "4", "3", "2", "1"]);
        }
    }

    #[test]
    fn whole_journal_gets_no_event() {
        let fixture =
            Fixture { dir: tempfile::tempdir().expect("a folder"), disk: FaultyDisk::default() };
        fixture.recover().journal.lease(1000).expect("a mark");
        assert_eq!((fixture.start().0.next_job, fixture.start().1), (State::default().next_job, 0));
    }
}
