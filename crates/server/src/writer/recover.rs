//! From disk to state: the newest good snapshot, then every event after it.

use crate::error::ServerError;
use cluster::books::deleted_runs;
use cluster::{Event, State};
use model::activity::Activity;
use model::id::RunId;
use model::record::JobRecord;
use std::path::Path;
use std::sync::Arc;
use store::{Disk, LogFile, LogOptions, RealDisk, Recovery, Snapshots};

pub struct Recovered {
    pub state: State,
    pub journal: LogFile,
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

/// The disks that the state is on: the journal's and the snapshots'. They stay open, and locked, for as long as the
/// server runs.
pub struct StateDisks {
    pub journal: Arc<dyn Disk>,
    pub snapshots: Arc<dyn Disk>,
}

impl StateDisks {
    pub fn open(dir: &Path) -> Result<Self, ServerError> {
        let disk = |name: &str| -> Result<Arc<dyn Disk>, ServerError> {
            let path = dir.join(name);
            let disk = RealDisk::open(&path).map_err(ServerError::file(&path))?;
            Ok(Arc::new(disk))
        };
        Ok(Self { snapshots: disk("snapshots")?, journal: disk("journal")? })
    }

    /// Reads the state: at the start, and again after a commit that did not reach the disk.
    pub fn recover(&self) -> Result<Recovered, ServerError> {
        let mut snapshots = Snapshots::new(self.snapshots.clone());
        let found = snapshots.newest_good()?;
        let position = found.position();
        let mut state = match &found.snapshot {
            None => State::default(),
            Some(snapshot) => {
                let mut state: State = serde_json::from_slice(&snapshot.body).map_err(|e| {
                    ServerError::Snapshot { seq: position.seq, reason: e.to_string() }
                })?;
                state.rebuild_derived();
                state
            }
        };
        let mut records = Vec::new();
        let replay = |record: store::Record<'_>| -> Result<(), String> {
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
        };
        let options = LogOptions::default();
        let (journal, recovery) = LogFile::open(self.journal.clone(), options, position, replay)?;
        Ok(Recovered { state, journal, snapshots, recovery, records, snapshot_seq: position.seq })
    }
}
