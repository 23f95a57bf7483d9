//! Whether a stored state can be read back whole: every checksum, every link of the chain from the newest good snapshot on, and every
//! event. Nothing is changed in a database, which may be in use; a folder's must not be, and its unfinished last commit is cut off, as a
//! start would.

use crate::error::ServerError;
use crate::writer::recover::{Recovered, StateDisks};
use std::path::Path;
use store::postgres::{self, Database, DatabaseUrl, Leader};

/// What a sound state has.
#[derive(Debug)]
pub struct StoreReport {
    pub jobs: usize,
    /// Where the history ends, and in which term.
    pub seq: u64,
    pub term: u64,
    pub snapshot_seq: u64,
    /// Events after the snapshot.
    pub replayed: u64,
    /// Who leads, where several servers may.
    pub leader: Option<Leader>,
}

/// Checks the state in the server's part of a state folder.
pub fn check_folder(dir: &Path) -> Result<StoreReport, ServerError> {
    if !dir.join("journal").exists() {
        let text = format!("{}: there is no journal", dir.display());
        return Err(ServerError::Other(text));
    }
    let disks = StateDisks::open(dir)?;
    disks.refuse_newer()?;
    report(disks.recover()?, None)
}

/// Checks the state in a database, also while a server leads.
pub fn check_database(url: DatabaseUrl) -> Result<StoreReport, ServerError> {
    let database = Database::new(url)
        .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
    postgres::check(&database)?;
    let leader = Leader::read(&database)?;
    // What this epoch's leader may write is what is read; nothing is written.
    let recovered = StateDisks::in_database(&database, leader.epoch).recover()?;
    report(recovered, Some(leader))
}

fn report(recovered: Recovered, leader: Option<Leader>) -> Result<StoreReport, ServerError> {
    if let Some(loss) = recovered.recovery.loss {
        return Err(ServerError::Other(loss.to_string()));
    }
    Ok(StoreReport {
        jobs: recovered.state.jobs.len(),
        seq: recovered.journal.last_seq(),
        term: recovered.journal.term(),
        snapshot_seq: recovered.snapshot_seq,
        replayed: recovered.recovery.replayed,
        leader,
    })
}
