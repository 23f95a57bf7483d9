//! The protocol's version, and which neighbours it works with.

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// The version that this program speaks.
pub const PROTOCOL: u32 = 1;

/// The oldest version that it still answers: one release apart.
pub const PROTOCOL_OLDEST: u32 = 1;

/// The version of this program's release, and the commit that it was built from where that is known.
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Says once, at the start, which build this program is.
pub fn set_program(version: String) {
    let _ = PROGRAM.set(version);
}

/// This program's version, as people and other machines are told it.
pub fn program() -> String {
    PROGRAM.get().cloned().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned())
}

/// Whether two sides, each naming its own version, work together.
pub fn compatible(theirs: u32) -> bool {
    (PROTOCOL_OLDEST..=PROTOCOL + 1).contains(&theirs)
}

/// Which versions run where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionsView {
    pub server: String,
    pub protocol: u32,
    /// The format of the journal that the server writes.
    pub journal: u32,
    /// Those that are connected, by version.
    pub agents: Vec<AgentVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentVersion {
    pub version: String,
    pub protocol: u32,
    /// Sorted.
    pub nodes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_versions_work_together_and_no_others_do() {
        assert!(compatible(PROTOCOL) && compatible(PROTOCOL_OLDEST));
        assert!(compatible(PROTOCOL + 1), "the next release answers this one");
        assert!(!compatible(PROTOCOL + 2) && !compatible(PROTOCOL_OLDEST - 1));
    }
}
