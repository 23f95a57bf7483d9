//! The store in PostgreSQL, for several servers: one leads, and the others take over from it.
//!
//! `url` is what the administrator names, `connect` how a session begins, `connection` who has it, `session` its statements, `answer` and
//! `socket` its bounded waits, `commit_signal` and `notifier` how other servers hear of commits, `schema` the tables and their versions,
//! `lease` who leads, `server` who else is there, `journal` the history, `frames` its pages, `reader` the history as a standby follows it,
//! `folder` the files (snapshots and blobs), `ended` what the books are rebuilt from, `shared_file` the servers' keys, which they seal.
//! Everything that writes is fenced by the lease's epoch: what a deposed server sends changes nothing.

mod answer;
mod commit_signal;
mod connect;
mod connection;
mod ended;
mod error;
mod folder;
mod frames;
mod journal;
mod lease;
mod notifier;
mod reader;
mod schema;
mod server;
mod session;
mod shared_file;
mod socket;
mod url;

pub use connection::Database;
pub use ended::{EndedLog, EntrySummary, StoredEntry};
pub use error::DatabaseError;
pub use folder::PostgresFolder;
pub use frames::{FetchedFrame, FramePage};
pub use journal::PostgresJournal;
pub use lease::{Leader, Lease, Taken};
pub use notifier::Notifier;
pub use reader::PostgresReader;
pub use schema::{
    bring_up_to_date, check, check_cluster, mark_moved, prepare, prepare_to_leave, refuse_moved,
};
pub use server::{SeenServer, ServerAddress};
pub use shared_file::SharedFile;
pub use url::DatabaseUrl;

/// Counts and places are stored as `bigint`; none of them comes near its end.
fn to_bigint(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A negative number is never written: one that is read reads as zero, and the checks of the chain find it.
fn from_bigint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
