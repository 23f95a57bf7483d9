//! How nodes joined, as the state keeps it.

use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a join token for several nodes is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGroup {
    /// The names that fit, as a host list.
    pub pattern: String,
    /// How many joins it is good for.
    pub count: u32,
    #[serde(default)]
    pub used: u32,
}

/// What a node joined with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMethod {
    /// A join file for this node.
    File,
    /// A join file for every node of a pattern.
    Group,
    /// The server installed its agent over SSH.
    Fleet,
}

/// A node that joined. `State::agents` has the fingerprint of its certificate; nodes that joined before there were records
/// have no record, and a certificate that ends in 2100.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRecord {
    pub at: Timestamp,
    pub method: JoinMethod,
    /// The name of the token, as `sluice token list` showed it.
    pub token: String,
    /// When its certificate ends.
    pub certificate_end: Timestamp,
    /// The certificate before the last renewal: the agent may not have got the new one, and connections that it opened before
    /// go on. It is good until its own end, or the next renewal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<String>,
}
