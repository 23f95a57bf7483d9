//! Rolls back a commit that did not reach the disk: every waiting caller gets the error, and the state is read back, however
//! long the disk takes.

use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::Shared;
use crate::vital_task::CANNOT_GO_ON;
use crate::writer::commit::PendingCommit;
use crate::writer::recover::{JournalPlace, Recovered, ReplayedEntry};
use crate::writer::thread::WriterThread;
use cluster::State;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::postgres::DatabaseError;
use store::{JournalError, Position};

/// The pause after the first time that the state could not be read back, by which it grows, and its bound.
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);
const RECOVERY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a database may be away. Everybody waits for the state meanwhile; a server that is started again turns callers away until
/// the database is back.
const DATABASE_PATIENCE: Duration = Duration::from_secs(20);

impl WriterThread {
    /// A commit did not reach the disk: everybody in it and in those after it is told so, and the state goes back to what
    /// the disk has.
    pub(super) fn roll_back(
        &mut self,
        lost: Vec<PendingCommit>,
        error: ServerError,
        state: &mut State,
        shared: &Arc<Shared>,
    ) -> Result<(), ServerError> {
        if matches!(DatabaseError::cause_of(&error), Some(DatabaseError::Deposed)) {
            tracing::error!("{error}: it ends, and waits when it is started again");
            // Nobody is answered: their commands ask the server that leads now, which knows what became of them.
            std::process::exit(CANNOT_GO_ON);
        }
        let events: usize = lost.iter().map(|commit| commit.events.len()).sum();
        self.failed_commits.failed(&format!("nothing of {events} events was kept"), &error);
        // Before the state is read back: nobody waits for a disk that does not work.
        refuse(lost, &error);
        let mut blobs = shared.blobs.lock().expect("no panic with the blobs held");
        blobs.discard_staged();
        blobs.distrust_unsynced();
        drop(blobs);
        let known = self.journal.position();
        let recovered = self.recover_again()?;
        let found = recovered.journal.position();
        refuse_other_history(&self.disks.journal, known, found)?;
        if found != known {
            let later = recovered.records.into_iter().filter(|entry| entry.seq > known.seq);
            self.kept = Some(later.collect());
        }
        self.journal = recovered.journal;
        self.snapshots.reopen(recovered.snapshots);
        self.leased = self.leased.max(self.journal.high_water().leased_ids);
        *state = recovered.state;
        Ok(())
    }

    /// A commit whose sync failed and that the disk has after all: its callers were refused, and what it says holds. The books
    /// get its records, and every agent says hello again, since its orders were never sent. Its mails are lost.
    pub(super) fn publish_kept(&mut self, shared: &Shared) {
        let Some(kept) = self.kept.take() else { return };
        tracing::warn!("a commit that failed was found on the disk after all: it counts");
        for ReplayedEntry { seq, record, deleted, activities } in kept {
            shared.books.add(seq, record.into_iter().collect(), deleted, activities);
        }
        // Counts of events begin with the server's start and miss these; whoever watches looks again.
        shared.forecasts.state_changed();
        shared.volatile.unneeded_blobs.store(true, Ordering::Release);
        shared.agents.cut_all();
        shared.commits.committed();
        shared.planner.wake();
    }

    /// Reads the state back, as often as it takes: a disk that cannot be read may work again. What the disk has and cannot
    /// be used is an error at once, as is a history that has lost its end: the next start settles that.
    fn recover_again(&self) -> Result<Recovered, ServerError> {
        let mut failures = RepeatedFailure::new("the state on disk");
        let mut pause = RECOVERY_PAUSE;
        let began = Instant::now();
        loop {
            match self.disks.recover() {
                Ok(recovered) => {
                    failures.succeeded();
                    return match recovered.recovery.loss {
                        Some(loss) => Err(ServerError::Other(loss.to_string())),
                        None => Ok(recovered),
                    };
                }
                Err(error) if is_damage(&error) => return Err(error),
                Err(error) if is_away(&error) && began.elapsed() >= DATABASE_PATIENCE => {
                    return Err(error);
                }
                Err(error) => failures.failed("it cannot be read back; trying again", &error),
            }
            std::thread::sleep(pause);
            pause = (pause + RECOVERY_PAUSE).min(RECOVERY_PAUSE_MAX);
        }
    }
}

/// Tells everybody who waits for these commits that nothing was kept.
fn refuse(lost: Vec<PendingCommit>, error: &ServerError) {
    for (reply, answer) in lost.into_iter().flat_map(|commit| commit.answers) {
        let answer = answer.and_then(|_| Err(error.not_kept()));
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
    }
}

/// A database may have a commit whose connection was lost. The state that is read back has its events then, but its records
/// and its orders were dropped with it: a start makes those from the journal. Its mails are lost.
fn refuse_other_history(
    place: &JournalPlace,
    known: Position,
    found: Position,
) -> Result<(), ServerError> {
    if matches!(place, JournalPlace::Postgres { .. }) && found != known {
        let text = "the database's history is not the one this server knew: \
                    it starts again from there";
        return Err(ServerError::Other(text.into()));
    }
    Ok(())
}

/// Whether the database cannot be read. One that refuses counts too, as after a change of its password: the next start waits for
/// it without the lease, or says what is wrong.
fn is_away(error: &ServerError) -> bool {
    DatabaseError::cause_of(error).is_some()
}

/// Whether what is on the disk was read and cannot be used, whatever the disk does later; or is another server's to write.
fn is_damage(error: &ServerError) -> bool {
    matches!(
        error,
        ServerError::Snapshot { .. }
            | ServerError::Journal(
                JournalError::Damaged { .. }
                    | JournalError::Replay { .. }
                    | JournalError::Newer { .. }
                    | JournalError::Database(DatabaseError::Deposed)
            )
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::FaultyDisk;
    use store::postgres::{Database, DatabaseUrl};

    #[test]
    fn database_that_refuses_to_be_read_is_not_asked_for_ever() {
        let refused = DatabaseError::Refused { message: "canceled".into(), is_full: false };
        let lost = DatabaseError::Unreachable("no route".into());
        for error in [refused, lost] {
            assert!(is_away(&JournalError::from(error).into()));
        }
        // A disk is asked until it works.
        assert!(!is_away(&JournalError::Poisoned.into()));
    }

    #[test]
    fn commit_that_a_database_has_after_all_is_not_passed_over() {
        let url = "postgres:///sluice?host=/nowhere&user=sluice";
        let url = DatabaseUrl::parse(url, None).expect("an address");
        let database = Database::new(url).expect("a thread");
        let in_database = JournalPlace::Postgres { database, epoch: 1 };
        let in_files = JournalPlace::Files(Arc::new(FaultyDisk::default()));
        let (known, later) = (Position::START, Position { seq: 1, chain: [1; 32] });
        refuse_other_history(&in_database, known, known).expect("the history that is known");
        let refused = refuse_other_history(&in_database, known, later).expect_err("another one");
        assert!(refused.to_string().contains("it starts again from there"), "{refused}");
        // What a file has beyond the acknowledged is read back and goes on from there.
        refuse_other_history(&in_files, known, later).expect("the end of the file");
    }
}
