//! What a backup copies: the files of the state as they are between two commits, which is what a crash would leave.
//!
//! The books may lack what ended last, as after a crash: a start adds it from the journal. They know nothing later than it.

use crate::error::ServerError;
use crate::shared::Shared;
use crate::shared::writer_queue::StateCopy;
use crate::writer::thread::WriterThread;
use std::path::Path;
use store::{BooksCopy, Snapshots};

impl WriterThread {
    /// Called between two batches.
    pub(super) fn copy(&self, books: &Path, shared: &Shared) -> Result<StateCopy, ServerError> {
        Ok(StateCopy {
            // Before the journal: a snapshot that is written meanwhile has its part of the journal removed only after it.
            snapshots: Snapshots::open_files(&self.disks.snapshots)?,
            journal: self.journal.copy()?,
            blobs: shared.blobs.lock().expect("no panic with the blobs held").files(),
            books: BooksCopy::begin(books)?,
            next_job: shared.read().next_job,
        })
    }
}
