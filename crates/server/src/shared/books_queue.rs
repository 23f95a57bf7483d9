//! The books' thread: takes in ended attempts in batches, behind the writer.

use crate::error::ServerError;
use model::record::JobRecord;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{BookReader, Books};

/// Batches under way to the books; the writer waits when there are more.
const QUEUE: usize = 1024;

/// Records taken into one transaction.
const BATCH: usize = 4096;

pub struct Batch {
    pub seq: u64,
    pub records: Vec<JobRecord>,
}

pub struct BooksHandle {
    sender: SyncSender<Batch>,
    written: Arc<AtomicU64>,
    queued: AtomicU64,
    pub reader: Mutex<BookReader>,
}

impl BooksHandle {
    /// Opens the books and starts their thread. `written` begins at what they already have.
    pub fn start(path: &Path) -> Result<Self, ServerError> {
        let books = Books::open(path)?;
        let reader = Mutex::new(BookReader::open(path)?);
        let written = Arc::new(AtomicU64::new(books.applied_seq()));
        let queued = AtomicU64::new(books.applied_seq());
        let (sender, receiver) = sync_channel(QUEUE);
        let progress = written.clone();
        std::thread::Builder::new()
            .name("books".into())
            .spawn(move || run(books, &receiver, &progress))
            .map_err(|e| ServerError::Other(format!("cannot start the books' thread: {e}")))?;
        Ok(Self { sender, written, queued, reader })
    }

    /// Hands ended attempts over; they are in the books a moment later.
    pub fn add(&self, seq: u64, records: Vec<JobRecord>) {
        if records.is_empty() || seq <= self.queued.load(Ordering::Acquire) {
            return;
        }
        self.queued.store(seq, Ordering::Release);
        // The thread only ends with the process.
        let _ = self.sender.send(Batch { seq, records });
    }

    /// Whether everything handed over is on disk.
    pub fn is_settled(&self) -> bool {
        self.written.load(Ordering::Acquire) >= self.queued.load(Ordering::Acquire)
    }
}

fn run(mut books: Books, batches: &Receiver<Batch>, written: &AtomicU64) {
    while let Ok(first) = batches.recv() {
        let mut seq = first.seq;
        let mut records = first.records;
        while records.len() < BATCH
            && let Ok(more) = batches.try_recv()
        {
            seq = more.seq;
            records.extend(more.records);
        }
        // A full disk passes; until then nothing is forgotten, since nothing is settled.
        while let Err(error) = books.apply(seq, &records) {
            tracing::error!("the books: {error}; trying again");
            std::thread::sleep(Duration::from_secs(1));
        }
        written.store(seq, Ordering::Release);
    }
}
