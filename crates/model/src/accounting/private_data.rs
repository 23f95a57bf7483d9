//! `PrivateData`: the kinds of information that a site hides from ordinary users.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrivateKind {
    /// Definitions of accounts.
    Accounts,
    /// Past changes of nodes' states. Nothing shows them yet.
    Events,
    /// Jobs and steps of others, running and recorded.
    Jobs,
    /// The state of nodes.
    Nodes,
    /// The state of partitions.
    Partitions,
    /// Reservations that the user may not use.
    Reservations,
    /// What others have used.
    Usage,
    /// Other users, and associations that the user has no part in.
    Users,
}

impl PrivateKind {
    pub const ALL: [Self; 8] = [
        Self::Accounts,
        Self::Events,
        Self::Jobs,
        Self::Nodes,
        Self::Partitions,
        Self::Reservations,
        Self::Usage,
        Self::Users,
    ];
}

/// The kinds that are hidden.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateData(BTreeSet<PrivateKind>);

impl PrivateData {
    pub fn hides(&self, kind: PrivateKind) -> bool {
        self.0.contains(&kind)
    }
}

impl FromIterator<PrivateKind> for PrivateData {
    fn from_iter<I: IntoIterator<Item = PrivateKind>>(kinds: I) -> Self {
        Self(kinds.into_iter().collect())
    }
}
