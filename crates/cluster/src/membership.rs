//! How nodes joined, as the state keeps it.

use model::id::AttemptId;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a join token for several nodes is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinGroup {
    /// The names that fit, as a host list.
    pub pattern: String,
    /// How many joins it is good for.
    pub count: u32,
    #[serde(default)]
    pub used: u32,
    /// Machines that no configuration file names may become nodes with it. Join files of before there was this mark were
    /// made for nodes of the configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
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

/// A join that has just been, by its certificate request. The agent may not have got the answer: the server was killed, or the
/// connection broke, after the commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecentJoin {
    /// The hash of the token.
    pub token: String,
    pub nodes: Vec<String>,
    /// The certificate that it was given last.
    pub fingerprint: String,
    pub at: Timestamp,
    /// How often it was asked for again.
    #[serde(default)]
    pub repeats: u32,
}

/// How long after a join the same request is answered again.
pub const JOIN_REPEAT_LIFE: Duration = Duration::from_secs(600);

/// How often a join may be repeated: each time is an event, and an entry of the audit trail.
pub const JOIN_REPEATS_MAX: u32 = 10;

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
    /// The machine asked for whichever FUTURE node it is like (`slurmd -F`), and became this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub future: bool,
    /// What the node's agent before may have been told to start: the new one may have another spool, and does not start it again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_attempts: Vec<AttemptId>,
}
