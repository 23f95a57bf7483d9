//! The queue of ended attempts to the books' thread, and the reading side of the books.

use model::activity::Activity;
use model::id::RunId;
use model::record::JobRecord;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::BookReader;
use store::books::{JobPurge, Retention};
use tokio::sync::watch;
use tokio::time::timeout;

/// Batches under way to the books; the writer waits when there are more.
const QUEUE: usize = 1024;

/// How long an answer waits for the books: a disk that is full does not hold callers back for good.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the books' thread is to do.
pub enum BooksTask {
    Add(Batch),
    Expire(Retention),
    Purge(JobPurge),
}

/// Attempts that ended with the journal's event `seq`, or before it, runs that were deleted, and what was done beside the jobs.
pub struct Batch {
    pub seq: u64,
    pub records: Vec<JobRecord>,
    pub deleted: Vec<RunId>,
    pub activities: Vec<Activity>,
}

pub struct BooksQueue {
    sender: SyncSender<BooksTask>,
    written: watch::Receiver<u64>,
    expired: Arc<AtomicBool>,
    queued: AtomicU64,
    reusable: Arc<AtomicU64>,
    pub reader: Mutex<BookReader>,
}

/// The thread's end of the queue.
pub struct BooksWork {
    pub tasks: Receiver<BooksTask>,
    /// The seq up to which the books are on disk; the thread moves it on.
    pub written: watch::Sender<u64>,
    /// Set when kept texts were let go.
    pub expired: Arc<AtomicBool>,
    /// The bytes of the books that are free for new records: those that were purged left them.
    pub reusable: Arc<AtomicU64>,
}

impl BooksQueue {
    /// `applied_seq` is how far the books had come when they were opened.
    pub fn new(applied_seq: u64, reader: BookReader) -> (Self, BooksWork) {
        let (sender, tasks) = sync_channel(QUEUE);
        let (written_sender, written) = watch::channel(applied_seq);
        let expired = Arc::new(AtomicBool::new(false));
        let (queued, reusable) = (AtomicU64::new(applied_seq), Arc::new(AtomicU64::new(0)));
        let work = BooksWork {
            tasks,
            written: written_sender,
            expired: expired.clone(),
            reusable: reusable.clone(),
        };
        (Self { sender, written, expired, queued, reusable, reader: Mutex::new(reader) }, work)
    }

    /// Hands ended attempts over; they are in the books a moment later. What the books already have is left out.
    pub fn add(
        &self,
        seq: u64,
        records: Vec<JobRecord>,
        deleted: Vec<RunId>,
        activities: Vec<Activity>,
    ) {
        let nothing = records.is_empty() && deleted.is_empty() && activities.is_empty();
        if nothing || seq <= self.queued.load(Ordering::Acquire) {
            return;
        }
        self.queued.store(seq, Ordering::Release);
        // The thread only ends with the process.
        let _ = self.sender.send(BooksTask::Add(Batch { seq, records, deleted, activities }));
    }

    /// Lets kept texts go, a moment later. A queue that is full has no time for it now.
    pub fn expire(&self, retention: Retention) {
        let _ = self.sender.try_send(BooksTask::Expire(retention));
    }

    /// Removes old records of jobs, a moment later.
    pub fn purge(&self, purge: JobPurge) {
        let _ = self.sender.try_send(BooksTask::Purge(purge));
    }

    /// Whether kept texts were let go since the last call.
    pub fn take_expired(&self) -> bool {
        self.expired.swap(false, Ordering::AcqRel)
    }

    /// The bytes of the books that are free for new records, as their thread said last.
    pub fn reusable_bytes(&self) -> u64 {
        self.reusable.load(Ordering::Acquire)
    }

    /// Whether everything handed over is on disk.
    pub fn is_settled(&self) -> bool {
        *self.written.borrow() >= self.queued.load(Ordering::Acquire)
    }

    /// Waits until what was handed over before this call is on disk, so that whoever asks next finds it there.
    pub async fn wait_settled(&self) {
        let queued = self.queued.load(Ordering::Acquire);
        let mut written = self.written.clone();
        if timeout(SETTLE_TIMEOUT, written.wait_for(|seq| *seq >= queued)).await.is_err() {
            tracing::warn!("the books are late: lists may show for a while what has been deleted");
        }
    }
}
