//! Snapshots of the state, written by a thread of their own beside the writer.

use cluster::State;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::{Position, Snapshots};

/// A snapshot is due, whatever the number of events, when the journal has grown by this much since the last.
const JOURNAL_BYTES: u64 = 256 << 20;

/// How long the journal carries texts before a snapshot is due for them. Of two snapshots the older says what the journal keeps: two
/// such times after a submit at the latest its texts are in the blobs alone, which are removed when nothing needs them.
const TEXTS_PERIOD: Duration = Duration::from_secs(8 * 3600);

/// The same after a start, which does not know for how long the journal has had what it carries.
const TEXTS_PERIOD_AT_START: Duration = Duration::from_secs(3600);

/// How long after a snapshot for texts that could not be made the next is due.
const TEXTS_PAUSE: Duration = Duration::from_secs(3600);

pub struct SnapshotWriter {
    snapshots: Arc<Mutex<Snapshots>>,
    /// The seq of the last snapshot that was begun.
    begun_seq: u64,
    /// The journal's size when it was begun; compaction makes the journal smaller again.
    begun_bytes: u64,
    /// The seq up to which the journal may be compacted; zero while there is none.
    finished: Arc<AtomicU64>,
    /// The last snapshot that was begun could not be written, and nobody has taken note of it.
    failed: Arc<AtomicBool>,
    /// The last snapshot that was begun is not on the disk.
    is_unwritten: bool,
    /// Whether the journal is one that carries texts.
    carries_texts: bool,
    /// When a snapshot is due for the texts that the journal carries; `None` while it carries none.
    texts_due: Option<Instant>,
    /// A snapshot was begun for texts, and the one before it still needs them: another has to follow.
    texts_left: bool,
}

impl SnapshotWriter {
    /// `seq` is that of the snapshot which the state was recovered from; `carries_texts`, whether the journal may have texts.
    pub fn new(snapshots: Snapshots, seq: u64, carries_texts: bool) -> Self {
        let snapshots = Arc::new(Mutex::new(snapshots));
        Self {
            snapshots,
            begun_seq: seq,
            begun_bytes: 0,
            finished: Arc::default(),
            failed: Arc::default(),
            is_unwritten: false,
            carries_texts,
            texts_due: carries_texts.then(|| Instant::now() + TEXTS_PERIOD_AT_START),
            texts_left: carries_texts,
        }
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

    /// Notes that a commit carries texts.
    pub fn note_texts(&mut self, now: Instant) {
        self.texts_left = true;
        self.texts_due.get_or_insert(now + TEXTS_PERIOD);
    }

    /// Whether a snapshot is due that lets the journal forget the texts which it carries. Where nothing has happened since the last
    /// one it would take that one's place, and the one before it would be given up: it waits until something has.
    pub fn is_due_for_texts(&self, now: Instant, last_seq: u64) -> bool {
        let is_another = last_seq > self.begun_seq || self.is_unwritten;
        is_another && self.texts_due.is_some_and(|due| now >= due)
    }

    /// Notes whether the last snapshot could not be written: the journal has forgotten nothing for it then.
    pub fn note_failure(&mut self, now: Instant) {
        if self.failed.swap(false, Ordering::AcqRel) {
            self.is_unwritten = true;
            self.put_off_texts(now);
        }
    }

    /// Has a snapshot for texts made later, since none can be made now.
    pub fn put_off_texts(&mut self, now: Instant) {
        if self.carries_texts {
            self.texts_left = true;
            self.texts_due = Some(now + TEXTS_PAUSE);
        }
    }

    /// Notes that such a snapshot is begun, with a new part of the journal behind it. The journal forgets what is before the
    /// snapshot once there is a second one.
    pub fn forget_texts(&mut self) {
        let is_second_due = std::mem::replace(&mut self.texts_left, false);
        self.texts_due = is_second_due.then(|| Instant::now() + TEXTS_PERIOD);
    }

    /// The seq up to which a snapshot finished since the last call makes the journal superfluous.
    pub fn take_finished(&self) -> Option<u64> {
        Some(self.finished.swap(0, Ordering::AcqRel)).filter(|seq| *seq > 0)
    }

    pub fn start(&mut self, position: Position, bytes: u64, state: State) {
        self.begun_seq = position.seq;
        self.begun_bytes = bytes;
        self.is_unwritten = false;
        let (snapshots, finished) = (self.snapshots.clone(), self.finished.clone());
        let failed = self.failed.clone();
        let write = move || {
            let refused = |error: &dyn Display| {
                tracing::error!("no snapshot was written: {error}");
                failed.store(true, Ordering::Release);
            };
            let body = match serde_json::to_vec(&state) {
                Ok(body) => body,
                Err(error) => return refused(&error),
            };
            let mut snapshots = snapshots.lock().expect("no panic with the snapshots held");
            match snapshots.write(position, &body) {
                Ok(upto) => finished.store(upto, Ordering::Release),
                Err(error) => refused(&error),
            }
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            tracing::error!("no snapshot was written: {error}");
            self.failed.store(true, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::FaultyDisk;

    fn new(carries_texts: bool) -> SnapshotWriter {
        SnapshotWriter::new(Snapshots::new(Arc::new(FaultyDisk::default())), 0, carries_texts)
    }

    #[test]
    fn texts_in_the_journal_make_two_snapshots_due() {
        let begin = Instant::now();
        let is_due = |writer: &SnapshotWriter, at: Instant| writer.is_due_for_texts(at, 1);
        assert!(!is_due(&new(false), begin + 9 * TEXTS_PERIOD), "a database carries none");
        let mut writer = new(true);
        assert!(!is_due(&writer, begin));
        assert!(is_due(&writer, begin + 2 * TEXTS_PERIOD_AT_START), "of before the start");
        let later = begin + 3 * TEXTS_PERIOD;
        writer.forget_texts();
        assert!(is_due(&writer, later), "the snapshot before it has them too");
        writer.forget_texts();
        assert!(!is_due(&writer, later), "nothing is carried");
        writer.note_texts(begin);
        writer.note_texts(later);
        assert!(!is_due(&writer, begin));
        assert!(is_due(&writer, begin + TEXTS_PERIOD), "by the first of them");
    }

    #[test]
    fn snapshot_for_texts_takes_no_other_ones_place() {
        let mut writer = new(true);
        writer.start(Position { seq: 5, chain: [5; 32] }, 0, State::default());
        let later = Instant::now() + 3 * TEXTS_PERIOD;
        assert!(!writer.is_due_for_texts(later, 5), "the last one is of the same seq");
        assert!(writer.is_due_for_texts(later, 6));
    }

    #[test]
    fn snapshot_that_could_not_be_made_is_made_later() {
        let disk = FaultyDisk::default();
        let mut writer = SnapshotWriter::new(Snapshots::new(Arc::new(disk.clone())), 0, true);
        disk.set_capacity(Some(0));
        writer.forget_texts();
        writer.forget_texts();
        writer.start(Position { seq: 5, chain: [5; 32] }, 0, State::default());
        // The thread that writes is over when it holds nothing of it any more.
        while Arc::strong_count(&writer.failed) > 1 {
            std::thread::yield_now();
        }
        let now = Instant::now();
        assert!(!writer.is_due_for_texts(now + 3 * TEXTS_PERIOD, 5), "nothing is noted yet");
        writer.note_failure(now);
        assert!(!writer.is_due_for_texts(now, 5), "not at once");
        assert!(writer.is_due_for_texts(now + TEXTS_PAUSE, 5), "nothing of its seq is there");
        writer.forget_texts();
        assert!(writer.is_due_for_texts(now + 3 * TEXTS_PERIOD, 6), "a second one has to follow");
        // A database's journal carries no texts, whatever fails.
        let mut of_database = new(false);
        of_database.put_off_texts(now);
        assert!(!of_database.is_due_for_texts(now + 3 * TEXTS_PERIOD, 6));
    }
}
