//! What can go wrong with the database, each in one line without a secret.

use std::io;
use std::time::Duration;

use postgres::error::SqlState;

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// An address, a database or a schema that cannot be used.
    #[error("{0}")]
    Unfit(String),
    #[error("the database cannot be reached: {0}")]
    Unreachable(String),
    #[error("the database has not answered for {} seconds", .0.as_secs())]
    Late(Duration),
    #[error("more than {max} questions wait for the database")]
    Backlog { max: usize },
    #[error("the database refused: {message}")]
    Refused { message: String, is_full: bool },
    #[error("another server has taken over; this one writes nothing more")]
    Deposed,
}

impl From<postgres::Error> for DatabaseError {
    fn from(error: postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refused) => Self::Refused {
                message: refused.message().replace('\n', " "),
                is_full: *refused.code() == SqlState::DISK_FULL,
            },
            None => Self::Unreachable(describe(&error)),
        }
    }
}

impl From<DatabaseError> for io::Error {
    fn from(error: DatabaseError) -> Self {
        let kind = match &error {
            DatabaseError::Refused { is_full: true, .. } => io::ErrorKind::StorageFull,
            DatabaseError::Late(_) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// An error and its cause in one line: the library's own text leaves the cause out.
pub(super) fn describe(error: &dyn std::error::Error) -> String {
    let text = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    text.replace('\n', " ")
}
