//! What Sluice keeps on disk: the journal of events, snapshots of the state, blobs by content, and
//! the books of ended jobs.
//!
//! `postgres` has the same in a database, for several servers.
//!
//! The journal, the snapshots and the blobs reach the disk only through [`disk::Disk`], so that a
//! test or the simulator can make any access fail or crash there. The journal carries opaque bytes:
//! this crate knows no event type and reads no clock; times come in from the caller.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod blob;
pub mod books;
pub mod copy;
pub mod disk;
pub mod faulty_disk;
mod frame;
mod high_water;
pub mod journal;
pub mod log_file;
pub mod postgres;
pub mod real_disk;
mod recovery;
pub mod run_log;
mod sha256;
pub mod snapshot;

pub use blob::{BlobError, BlobId, BlobIndex, BlobInspection, Blobs, FollowedBlobs, carried_ids};
pub use books::{BookReader, Books, BooksCopy, BooksError};
pub use copy::{CopiedFile, CopyReader};
pub use disk::{Disk, DiskFile};
pub use faulty_disk::FaultyDisk;
pub use frame::JOURNAL_FORMAT;
pub use high_water::FILE as HIGH_WATER_FILE;
pub use journal::{
    EVENT_OVERHEAD, HighWater, Journal, JournalCopy, JournalError, Loss, Position, Record,
    Recovery, TornTail,
};
pub use log_file::{LogFile, LogOptions};
pub use real_disk::RealDisk;
pub use recovery::{carried_texts, refuse_newer};
pub use run_log::{LogChunk, LogFiles, LogKey, LogPage, RunLogs};
pub use snapshot::{Snapshot, Snapshots};
