//! Groups of replicas: a service may have replicas of several kinds, and one of them may be the router of the others.

use crate::id::JobId;
use serde::{Deserialize, Serialize};

/// Groups of replicas of one service, and bytes of the name of one.
pub const GROUPS_MAX: usize = 16;
const NAME_BYTES_MAX: usize = 64;

/// One of several groups of replicas. Each group is an array of its own, with its own request, commands and scaling; the arrays of all
/// groups have consecutive job numbers, in the order of the groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplicaGroup {
    /// Its place among the groups, from 0 on.
    pub index: u32,
    /// How many groups there are.
    pub count: u32,
    /// The number of its first replica among those of all groups.
    pub first_replica: u32,
    pub name: String,
    pub role: GroupRole,
    /// Its replicas are held until the router runs, whose address they are told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_router: bool,
}

/// What the replicas of a group do for the clients of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupRole {
    /// They answer requests.
    Serves,
    /// All requests go to its one replica, which passes them on to the workers.
    Router(RouterKind),
    /// They answer the router, and get no request from the proxy.
    Worker,
}

/// The program that a router is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RouterKind {
    /// SGLang's model gateway, and its earlier name: the server tells it its workers by its API.
    Smg,
    Sglang,
    /// NVIDIA's Dynamo: its workers find it themselves.
    Dynamo,
}

impl RouterKind {
    pub const ALL: [(&'static str, Self); 3] =
        [("smg", Self::Smg), ("sglang", Self::Sglang), ("dynamo", Self::Dynamo)];

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    }

    /// Whether the server tells it which workers there are.
    pub fn is_told_workers(self) -> bool {
        match self {
            Self::Smg | Self::Sglang => true,
            Self::Dynamo => false,
        }
    }
}

impl ReplicaGroup {
    /// The array of the first group, of which this group has the array `own`.
    pub fn first_array(&self, own: JobId) -> JobId {
        JobId(own.0.saturating_sub(self.index))
    }

    /// What is wrong with it, in one line. `is_one`: it has one replica, and is not scaled.
    pub(super) fn check(&self, is_one: bool) -> Result<(), String> {
        let Self { index, count, name, .. } = self;
        if *count as usize > GROUPS_MAX || index >= count {
            return Err(format!("a service has at most {GROUPS_MAX} groups"));
        }
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_word) {
            return Err(format!("group {name:?}: expected a name of letters, digits, -, _ and ."));
        }
        if matches!(self.role, GroupRole::Router(_)) && !is_one {
            return Err(format!("group {name}: a group with a `router` has one replica"));
        }
        Ok(())
    }
}
