//! What can go wrong with the database, each in one line without a secret.

use std::error::Error;
use std::io;
use std::time::Duration;

use tokio_postgres::error::SqlState;

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

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(refused) = error.as_db_error() else {
            return match certificate_fault(&error) {
                Some(why) => Self::Unfit(format!("the certificate of the database: {why}")),
                None => Self::Unreachable(describe(&error)),
            };
        };
        let message = refused.message().replace('\n', " ");
        if AWAY.contains(refused.code()) {
            return Self::Unreachable(message);
        }
        Self::Refused { message, is_full: *refused.code() == SqlState::DISK_FULL }
    }
}

/// What a database says that is there and takes no sessions: while it starts or stops, and when it has too many.
const AWAY: [SqlState; 4] = [
    SqlState::CANNOT_CONNECT_NOW,
    SqlState::ADMIN_SHUTDOWN,
    SqlState::CRASH_SHUTDOWN,
    SqlState::TOO_MANY_CONNECTIONS,
];

impl DatabaseError {
    /// Whether the same may work later, with nothing changed here.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Late(_) | Self::Backlog { .. })
    }

    /// The database's error among the causes of another, where one of them is an error of a file in the database too.
    pub fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            let of_file = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let of_file = of_file.and_then(|inner| inner.downcast_ref::<Self>());
            if let Some(found) = error.downcast_ref::<Self>().or(of_file) {
                return Some(found);
            }
            next = error.source();
        }
        None
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

/// Why the certificate of the database was not accepted, where that is what is wrong: waiting does not help.
fn certificate_fault(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        let of_stream = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let of_stream = of_stream.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let found = error.downcast_ref::<rustls::Error>().or(of_stream);
        if let Some(fault) = found
            && matches!(fault, rustls::Error::InvalidCertificate(_))
        {
            return Some(fault.to_string().replace('\n', " "));
        }
        next = error.source();
    }
    None
}

/// An error and its cause in one line: the library's own text leaves the cause out.
pub(super) fn describe(error: &dyn Error) -> String {
    let text = match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::BlobError;
    use crate::journal::JournalError;

    #[test]
    fn bad_certificate_is_told_from_a_lost_connection() {
        let fault = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let of_stream = io::Error::new(io::ErrorKind::InvalidData, fault.clone());
        assert!(certificate_fault(&of_stream).is_some_and(|why| why.contains("UnknownIssuer")));
        assert!(certificate_fault(&fault).is_some());
        let lost = io::Error::new(io::ErrorKind::ConnectionReset, "reset");
        assert_eq!(certificate_fault(&lost), None);
    }

    #[test]
    fn error_of_the_database_is_found_behind_journals_and_files() {
        let of_journal = JournalError::from(DatabaseError::Deposed);
        let source = io::Error::from(DatabaseError::Unreachable("no route".into()));
        let of_blob = BlobError::Io { action: "write", file: "packs/1".into(), source };
        let other = JournalError::Poisoned;
        let text =
            |error: &(dyn Error + 'static)| DatabaseError::cause_of(error).map(|e| e.to_string());
        assert_eq!(text(&of_journal), Some(DatabaseError::Deposed.to_string()));
        assert_eq!(text(&of_blob), Some("the database cannot be reached: no route".into()));
        assert_eq!(text(&other), None);
    }
}
