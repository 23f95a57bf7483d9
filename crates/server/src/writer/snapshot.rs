//! Snapshots of the state, written by a thread of their own beside the writer.

use cluster::State;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use store::{Position, Snapshots};

/// A snapshot is due, whatever the number of events, when the journal has grown by this much since the last.
const JOURNAL_BYTES: u64 = 256 << 20;

pub struct SnapshotWriter {
    snapshots: Arc<Mutex<Snapshots>>,
    /// The seq of the last snapshot that was begun.
    begun_seq: u64,
    /// The journal's size when it was begun; compaction makes the journal smaller again.
    begun_bytes: u64,
    /// The seq up to which the journal may be compacted; zero while there is none.
    finished: Arc<AtomicU64>,
}

impl SnapshotWriter {
    /// `seq` is that of the snapshot which the state was recovered from.
    pub fn new(snapshots: Snapshots, seq: u64) -> Self {
        let snapshots = Arc::new(Mutex::new(snapshots));
        Self { snapshots, begun_seq: seq, begun_bytes: 0, finished: Arc::default() }
    }

    /// Goes on with the snapshots as a recovery found them.
    pub fn reopen(&mut self, snapshots: Snapshots) {
        self.snapshots = Arc::new(Mutex::new(snapshots));
    }

    /// `bytes` is the size of the journal.
    pub fn is_due(&mut self, last_seq: u64, every_events: u64, bytes: u64) -> bool {
        self.begun_bytes = self.begun_bytes.min(bytes);
        last_seq - self.begun_seq >= every_events || bytes - self.begun_bytes >= JOURNAL_BYTES
    }

    /// The seq up to which a snapshot finished since the last call makes the journal superfluous.
    pub fn take_finished(&self) -> Option<u64> {
        Some(self.finished.swap(0, Ordering::AcqRel)).filter(|seq| *seq > 0)
    }

    pub fn start(&mut self, position: Position, bytes: u64, state: State) {
        self.begun_seq = position.seq;
        self.begun_bytes = bytes;
        let (snapshots, finished) = (self.snapshots.clone(), self.finished.clone());
        let write = move || {
            let body = match serde_json::to_vec(&state) {
                Ok(body) => body,
                Err(error) => return tracing::error!("no snapshot was written: {error}"),
            };
            let mut snapshots = snapshots.lock().expect("no panic with the snapshots held");
            match snapshots.write(position, &body) {
                Ok(upto) => finished.store(upto, Ordering::Release),
                Err(error) => tracing::error!("no snapshot was written: {error}"),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            tracing::error!("no snapshot was written: {error}");
        }
    }
}
