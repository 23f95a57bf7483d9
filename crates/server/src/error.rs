//! The errors that keep the server from starting or going on.

use model::reason::Refusal;
use std::io;
use std::path::PathBuf;
use store::JournalError;
use store::postgres::DatabaseError;

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cannot listen at {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("the journal: {0}")]
    Journal(#[from] JournalError),
    #[error("the blobs: {0}")]
    Blobs(#[from] store::BlobError),
    #[error("the books: {0}")]
    Books(#[from] store::BooksError),
    #[error("{0}")]
    Database(#[from] DatabaseError),
    #[error("the snapshot of seq {seq} cannot be read: {reason}")]
    Snapshot { seq: u64, reason: String },
    #[error("{0}")]
    Configuration(String),
    /// A volume of a job that cannot be shown to it.
    #[error("{0}")]
    Volume(String),
    #[error("the server's keys: {0}")]
    Identity(String),
    #[error("{0}")]
    Other(String),
}

impl ServerError {
    /// What a caller is told whose change was not kept.
    pub(crate) fn not_kept(&self) -> Refusal {
        if let Some(of_database) = DatabaseError::cause_of(self) {
            return Refusal::Other(of_database.to_string());
        }
        Refusal::DiskFull(match self {
            Self::Journal(JournalError::Full { .. }) => "no space left on device".to_string(),
            other => other.to_string(),
        })
    }

    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
