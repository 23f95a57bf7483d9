//! Errors of control groups. Each is one line with the path or group.

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("CgroupPlugin={plugin}: {reason}")]
    Unavailable { plugin: &'static str, reason: String },
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: String, source: io::Error },
    #[error("cannot write {value:?} to {path}: {source}")]
    Write { path: String, value: String, source: io::Error },
    #[error(
        "group name {name:?}: use 1 to 200 letters, digits, '_', '-' or '.', not starting with '.'"
    )]
    Name { name: String },
    #[error("group {path} exists already: a group is never used twice")]
    Exists { path: String },
    #[error("no group {name} under {root}")]
    NotFound { name: String, root: String },
    #[error("cannot limit {what}: {reason}")]
    CannotEnforce { what: &'static str, reason: String },
    #[error("group {name} is not {wanted} after {waited_ms} ms; still there: {pids:?}")]
    Stuck { name: String, wanted: &'static str, waited_ms: u128, pids: Vec<i32> },
}

impl CgroupError {
    pub(super) fn io(
        action: &'static str,
        path: impl Into<String>,
        source: impl Into<io::Error>,
    ) -> CgroupError {
        CgroupError::Io { action, path: path.into(), source: source.into() }
    }

    /// The kernel's errno behind this error, where there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            CgroupError::Io { source, .. } | CgroupError::Write { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }
}
