//! `sluice sim --live`: what would change for the jobs that wait if nodes came or went, or under another configuration.

use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfQuery {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<AddedNodes>,
    /// Jobs on these nodes run to their ends, and nothing more starts there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Another configuration: the text of its files, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<BTreeMap<String, String>>,
}

/// Nodes like one that is there, in the same partitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddedNodes {
    pub count: u32,
    pub like: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhatIfView {
    /// Jobs that wait.
    pub jobs: u32,
    /// How many of them would start earlier, and how many later or never.
    pub earlier: u32,
    pub later: u32,
    /// The largest changes first; not all where there are many.
    #[serde(default)]
    pub changes: Vec<ChangedStart>,
}

/// The expected start of a job as things are, and as they would be; `None` where none can be foreseen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedStart {
    /// `12` or `12_[4-7]`.
    pub job: String,
    pub name: String,
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_then: Option<Timestamp>,
}
