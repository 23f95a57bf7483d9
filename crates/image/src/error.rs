//! What can go wrong with an image, as one line for the user: what, where, and what would be right. No credentials, and no
//! text of a registry or a layer that could break the line.

use std::io;
use std::path::Path;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("image {text:?}: {fault}")]
    BadReference { text: String, fault: String },
    #[error("{what} is not at {place}; check the name and the tag, or sign in if it is private")]
    NotFound { what: String, place: String },
    #[error("{registry} refuses {what}: {}", denial(.signed_in))]
    Unauthorised { what: String, registry: String, signed_in: bool },
    #[error("{what} is not for this machine ({wanted}); it has {}", .found.join(", "))]
    WrongPlatform { what: String, wanted: String, found: Vec<String> },
    #[error("{what} has the digest {found}, and should have {expected}; it was not used")]
    DigestMismatch { what: String, expected: String, found: String },
    #[error("{what} ends early: {found} of {expected} bytes; it was not used")]
    Truncated { what: String, expected: u64, found: u64 },
    #[error("{layer} is refused at {entry}: {fault}")]
    HostileLayer { layer: String, entry: String, fault: String },
    #[error("the registry {registry} cannot be reached: {fault}")]
    Unreachable { registry: String, fault: String },
    #[error("the registry {registry} stopped answering: {fault}")]
    Hangs { registry: String, fault: String },
    #[error("the registry {registry} answered wrongly: {fault}")]
    BadAnswer { registry: String, fault: String },
    #[error("the image store {store} is full: {fault}")]
    StoreFull { store: String, fault: String },
    #[error("{what} is not an image: {fault}")]
    NotAnImage { what: String, fault: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

/// The kind of an error: what a caller decides by. The names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    BadReference,
    NotFound,
    Unauthorised,
    WrongPlatform,
    DigestMismatch,
    Truncated,
    HostileLayer,
    Unreachable,
    Hangs,
    BadAnswer,
    StoreFull,
    NotAnImage,
    Io,
}

impl Error {
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BadReference { .. } => ErrorKind::BadReference,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Unauthorised { .. } => ErrorKind::Unauthorised,
            Self::WrongPlatform { .. } => ErrorKind::WrongPlatform,
            Self::DigestMismatch { .. } => ErrorKind::DigestMismatch,
            Self::Truncated { .. } => ErrorKind::Truncated,
            Self::HostileLayer { .. } => ErrorKind::HostileLayer,
            Self::Unreachable { .. } => ErrorKind::Unreachable,
            Self::Hangs { .. } => ErrorKind::Hangs,
            Self::BadAnswer { .. } => ErrorKind::BadAnswer,
            Self::StoreFull { .. } => ErrorKind::StoreFull,
            Self::NotAnImage { .. } => ErrorKind::NotAnImage,
            Self::Io { .. } => ErrorKind::Io,
        }
    }

    /// Whether the same pull may succeed later with nothing changed: the network and the disk, not the image.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind(),
            ErrorKind::Unreachable | ErrorKind::Hangs | ErrorKind::BadAnswer | ErrorKind::Truncated
        )
    }

    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::io(shown(path.as_os_str().as_encoded_bytes()))
    }
}

fn denial(signed_in: &bool) -> &'static str {
    if *signed_in {
        "the credentials are not valid for it"
    } else {
        "it needs credentials, and none were given"
    }
}

const SHOWN_BYTES_MAX: usize = 160;

/// A name from outside as it may stand in a line: control characters escaped, the middle of a long one left out.
pub fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(SHOWN_BYTES_MAX)];
    let text: String =
        String::from_utf8_lossy(cut).chars().flat_map(char::escape_default).collect();
    let text = text.replace("\\u{fffd}", "?").replace("\\'", "'").replace("\\\"", "\"");
    if cut.len() < name.len() { format!("{text}… ({} bytes)", name.len()) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_outside_cannot_break_the_line() {
        assert_eq!(shown(b"a\nb\x1b[2J"), "a\\nb\\u{1b}[2J");
        assert_eq!(shown(b"usr/it's"), "usr/it's");
        let long = shown(&[b'x'; 9000]);
        assert!(long.len() < 200 && long.ends_with("(9000 bytes)"), "{long}");
    }
}
