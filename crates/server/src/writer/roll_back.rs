//! Rolls back a commit that did not reach the disk: the state is read back, and every waiting caller gets the error.

use crate::error::ServerError;
use crate::shared::Shared;
use crate::writer::commit::PendingCommit;
use crate::writer::recover::Recovered;
use crate::writer::thread::WriterThread;
use cluster::State;
use model::reason::Refusal;
use std::sync::Arc;
use std::time::Duration;
use store::{Journal, JournalError};

/// How often the state is read back from a disk that fails, and the pause after the first time.
const RECOVERY_TRIES: u32 = 5;
const RECOVERY_PAUSE: Duration = Duration::from_millis(100);

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
        let events: usize = lost.iter().map(|commit| commit.events.len()).sum();
        self.failed_commits.failed(&format!("nothing of {events} events was kept"), &error);
        shared.blobs.lock().expect("no panic with the blobs held").discard_staged();
        let recovered = self.recover_again()?;
        self.journal = recovered.journal;
        self.snapshots.reopen(recovered.snapshots);
        self.leased = self.leased.max(self.journal.high_water().leased_ids);
        *state = recovered.state;
        state.next_job = state.next_job.max(self.id_floor);
        let why = match &error {
            ServerError::Journal(JournalError::Full { .. }) => {
                "no space left on device".to_string()
            }
            other => other.to_string(),
        };
        for (reply, answer) in lost.into_iter().flat_map(|commit| commit.answers) {
            let answer = match answer {
                Ok(_) => Err(Refusal::DiskFull(why.clone())),
                refused => refused,
            };
            if let Some(reply) = reply {
                let _ = reply.send(answer);
            }
        }
        Ok(())
    }

    /// Reads the state back. A disk that has failed once may fail again for a moment.
    fn recover_again(&self) -> Result<Recovered, ServerError> {
        let mut tries = 1;
        loop {
            match self.disks.recover() {
                Err(error) if tries < RECOVERY_TRIES => {
                    tracing::error!("the state cannot be read back yet: {error}");
                    std::thread::sleep(RECOVERY_PAUSE * tries);
                    tries += 1;
                }
                recovered => return recovered,
            }
        }
    }
}
