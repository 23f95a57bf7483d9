//! From disk to state: the newest good snapshot, then every event after it.

use crate::error::ServerError;
use cluster::books::deleted_runs;
use cluster::{Event, State};
use model::activity::Activity;
use model::id::RunId;
use model::record::JobRecord;
use std::path::Path;
use std::sync::Arc;
use store::postgres::{Database, PostgresFolder, PostgresJournal};
use store::{Blobs, Disk, Journal, LogFile, LogOptions, Position, RealDisk, Recovery, Snapshots};

pub struct Recovered {
    pub state: State,
    pub journal: Box<dyn Journal>,
    pub snapshots: Snapshots,
    pub recovery: Recovery,
    /// For the books.
    pub records: Vec<ReplayedEntry>,
    pub snapshot_seq: u64,
}

/// What a replayed event of this seq says to the books: an attempt that ended, runs that were deleted, or what was
/// done beside the jobs.
pub struct ReplayedEntry {
    pub seq: u64,
    pub record: Option<JobRecord>,
    pub deleted: Vec<RunId>,
    pub activities: Vec<Activity>,
}

/// Where the journal is.
pub enum JournalPlace {
    Files(Arc<dyn Disk>),
    /// Under the lease of this epoch.
    Postgres {
        database: Arc<Database>,
        epoch: i64,
    },
}

/// Where the state is: the journal and the snapshots. Folders stay open, and locked, for as long as the server runs.
pub struct StateDisks {
    pub journal: JournalPlace,
    pub snapshots: Arc<dyn Disk>,
}

impl StateDisks {
    pub fn open(dir: &Path) -> Result<Self, ServerError> {
        let disk = |name: &str| -> Result<Arc<dyn Disk>, ServerError> {
            let path = dir.join(name);
            let disk = RealDisk::open(&path).map_err(ServerError::file(&path))?;
            Ok(Arc::new(disk))
        };
        Ok(Self { snapshots: disk("snapshots")?, journal: JournalPlace::Files(disk("journal")?) })
    }

    /// The state in a database, for the server that holds the lease of this epoch.
    pub fn in_database(database: &Arc<Database>, epoch: i64) -> Self {
        Self {
            snapshots: Arc::new(PostgresFolder::new(database.clone(), "snapshots", epoch)),
            journal: JournalPlace::Postgres { database: database.clone(), epoch },
        }
    }

    /// Refuses a journal of a newer program, and changes nothing. The schema of a database has its own check.
    pub fn refuse_newer(&self) -> Result<(), ServerError> {
        match &self.journal {
            JournalPlace::Files(disk) => Ok(store::refuse_newer(&**disk)?),
            JournalPlace::Postgres { .. } => Ok(()),
        }
    }

    /// Reads the state: at the start, and again after a commit that did not reach the disk.
    pub fn recover(&self) -> Result<Recovered, ServerError> {
        let mut snapshots = Snapshots::new(self.snapshots.clone());
        let (mut state, position) = newest_state(&mut snapshots)?;
        let mut records = Vec::new();
        let replay = |record: store::Record<'_>| replay(&mut state, &mut records, record);
        let (journal, recovery): (Box<dyn Journal>, Recovery) = match &self.journal {
            JournalPlace::Files(disk) => {
                let options = LogOptions::default();
                let (journal, recovery) = LogFile::open(disk.clone(), options, position, replay)?;
                (Box::new(journal), recovery)
            }
            JournalPlace::Postgres { database, epoch } => {
                let (journal, recovery) =
                    PostgresJournal::open(database.clone(), *epoch, position, replay)?;
                (Box::new(journal), recovery)
            }
        };
        Ok(Recovered { state, journal, snapshots, recovery, records, snapshot_seq: position.seq })
    }

    /// Reads on from a state that this server has followed to this position: what was committed since.
    pub fn recover_from(
        &self,
        mut state: State,
        position: Position,
        mut records: Vec<ReplayedEntry>,
    ) -> Result<Recovered, ServerError> {
        let JournalPlace::Postgres { database, epoch } = &self.journal else {
            return self.recover();
        };
        let mut snapshots = Snapshots::new(self.snapshots.clone());
        let snapshot_seq = snapshots.trust_newest()?;
        let replay = |record: store::Record<'_>| replay(&mut state, &mut records, record);
        let (journal, recovery) =
            PostgresJournal::open(database.clone(), *epoch, position, replay)?;
        let journal = Box::new(journal);
        Ok(Recovered { state, journal, snapshots, recovery, records, snapshot_seq })
    }
}

/// The state of the newest good snapshot, and its position; an empty one where there is none.
pub fn newest_state(snapshots: &mut Snapshots) -> Result<(State, Position), ServerError> {
    let found = snapshots.newest_good()?;
    let position = found.position();
    let Some(snapshot) = &found.snapshot else { return Ok((State::default(), position)) };
    let mut state: State = serde_json::from_slice(&snapshot.body)
        .map_err(|e| ServerError::Snapshot { seq: position.seq, reason: e.to_string() })?;
    state.rebuild_derived();
    Ok((state, position))
}

/// Applies one stored event, and notes what the books are to have of it.
pub fn replay(
    state: &mut State,
    records: &mut Vec<ReplayedEntry>,
    record: store::Record<'_>,
) -> Result<(), String> {
    let event: Event = serde_json::from_slice(record.event).map_err(|e| e.to_string())?;
    let noted = state.activities.noted();
    let ended = state.apply(&event);
    let deleted = deleted_runs(&event);
    let activities: Vec<Activity> = state.activities.after(noted).cloned().collect();
    if ended.is_some() || !deleted.is_empty() || !activities.is_empty() {
        let (seq, deleted) = (record.seq, deleted.to_vec());
        records.push(ReplayedEntry { seq, record: ended, deleted, activities });
    }
    Ok(())
}

/// The state, and the blobs with what the journal's commits carry of them: a crash may have kept it from the packs. The blobs are opened
/// last: opening them writes, and a state that this program cannot read is left as it is.
pub fn recover_with_blobs(
    disks: &StateDisks,
    blobs_disk: Arc<dyn Disk>,
) -> Result<(Recovered, Blobs), ServerError> {
    let recovered = disks.recover()?;
    let (mut blobs, _) = Blobs::open(blobs_disk, Default::default())?;
    if let JournalPlace::Files(disk) = &disks.journal {
        blobs.write_again()?;
        let put_back = |texts: &[u8]| blobs.restore(texts).map_err(|error| error.to_string());
        store::carried_texts(&**disk, recovered.snapshot_seq, put_back)?;
    }
    blobs.commit_staged()?;
    Ok((recovered, blobs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{FaultyDisk, JournalError};

    #[test]
    fn state_that_cannot_be_read_leaves_the_blobs_as_they_are() {
        let journal = JournalPlace::Files(Arc::new(FaultyDisk::default()));
        let disks = StateDisks { journal, snapshots: Arc::new(FaultyDisk::default()) };
        let mut opened = disks.recover().expect("a new journal").journal;
        opened.append(1, 0, &[b"{\"OfANewerProgram\":{}}"]).expect("kept");
        drop(opened);
        let blobs = FaultyDisk::default();
        let refused = recover_with_blobs(&disks, Arc::new(blobs.clone()));
        assert!(matches!(refused, Err(ServerError::Journal(JournalError::Replay { seq: 1, .. }))));
        assert!(blobs.list("").expect("a folder").is_empty(), "nothing was made there");
    }
}
