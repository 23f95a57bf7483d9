//! The books' thread: takes in ended attempts in batches, behind the writer.

use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::books_queue::{BooksQueue, BooksTask, BooksWork};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{BookReader, Books};

/// Records taken into one transaction.
const BATCH: usize = 4096;

/// Starts the thread of the books that are open at this path.
pub fn start(books: Books, path: &Path) -> Result<BooksQueue, ServerError> {
    let (queue, work) = BooksQueue::new(books.applied_seq(), BookReader::open(path)?);
    std::thread::Builder::new()
        .name("books".into())
        .spawn(move || run(books, &work))
        .map_err(|e| ServerError::Other(format!("cannot start the books' thread: {e}")))?;
    Ok(queue)
}

fn run(mut books: Books, work: &BooksWork) {
    let mut failures = RepeatedFailure::new("the books");
    while let Ok(first) = work.tasks.recv() {
        let (mut seq, mut records, mut deleted) = (0, Vec::new(), Vec::new());
        let (mut activities, mut expire) = (Vec::new(), None);
        let mut next = Some(first);
        while let Some(task) = next.take() {
            match task {
                BooksTask::Add(batch) => {
                    seq = batch.seq;
                    records.extend(batch.records);
                    deleted.extend(batch.deleted);
                    activities.extend(batch.activities);
                }
                BooksTask::Expire(retention) => expire = Some(retention),
            }
            if records.len() < BATCH {
                next = work.tasks.try_recv().ok();
            }
        }
        if let Some(retention) = expire {
            match books.expire_texts(retention) {
                Ok(0) => {}
                Ok(_) => work.expired.store(true, Ordering::Release),
                Err(error) => tracing::warn!("old scripts and environments stay for now: {error}"),
            }
        }
        if records.is_empty() && deleted.is_empty() && activities.is_empty() {
            continue;
        }
        // A full disk passes; until then nothing is forgotten, since nothing is settled.
        while let Err(error) = books.apply_all(seq, &records, &deleted, &activities) {
            failures.failed("nothing is booked; trying again", &error);
            std::thread::sleep(Duration::from_secs(1));
        }
        failures.succeeded();
        work.written.send_replace(seq);
    }
}
