//! Machines on demand, as clients are shown them.

use model::machine::{Machine, SourcePause};
use model::price::{Cost, Price};
use serde::{Deserialize, Serialize};

/// The most machines that are gone in one answer: the newest.
pub const GONE_SHOWN_MAX: usize = 200;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinesView {
    pub sources: Vec<SourceView>,
    /// In the order in which they were asked for.
    pub machines: Vec<MachineView>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetView>,
}

/// What the jobs of an account may cost in this month, and have cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetView {
    pub account: String,
    pub month: Cost,
    pub spent: Cost,
    /// What its jobs cost in an hour now.
    pub price_hour: Price,
    /// So much is spent that it is warned of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    pub name: String,
    /// `aws`, `gcp`, `lambda`, `kubernetes` or `program`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The project whose backend it is; `None` for a source of sluice.toml.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub regions: Vec<String>,
    pub offers: u32,
    /// Machines that there are or may be, and what they cost in an hour.
    pub machines: u32,
    pub machines_max: u32,
    pub price_hour: Price,
    /// What its machines have cost in this month.
    pub month: Cost,
    /// The part of it that no job was charged for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Cost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Cost>,
    /// What its last call failed with, where that was a call for its offers or its machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// What keeps its machines from joining, and its costs from an account.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// It is left alone after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<SourcePause>,
    /// Ids of machines with the cluster's tag that nobody asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    pub machine: Machine,
    /// It has joined and has no job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub idle: bool,
    /// What it has cost until now.
    pub cost: Cost,
}
