//! Accounts, associations and QOS: who may use how much.

use crate::time::TimeLimit;
use crate::tres::Tres;
use serde::{Deserialize, Serialize};

/// Slurm's account; dstack's project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub organization: String,
    /// None for `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
}

/// A user in an account (or an account itself, with `user: None`), its share and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    pub account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(default = "one")]
    pub shares: u32,
    /// The user's account when none is named.
    #[serde(default)]
    pub default: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub qos: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_qos: Option<String>,
    #[serde(default)]
    pub limits: AssociationLimits,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AssociationLimits {
    #[serde(default)]
    pub group_tres: Tres,
    #[serde(default)]
    pub max_tres_per_job: Tres,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall: Option<TimeLimit>,
}

/// The QOS that every job has when none is named.
pub const NORMAL_QOS: &str = "normal";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Qos {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub priority: u32,
    #[serde(default)]
    pub max_tres_per_user: Tres,
    #[serde(default)]
    pub max_tres_per_job: Tres,
    #[serde(default)]
    pub max_tres_per_account: Tres,
    #[serde(default)]
    pub group_tres: Tres,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_jobs_per_user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_submit_per_user: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall: Option<TimeLimit>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preempt: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    #[serde(default)]
    pub grace_time_s: u32,
}

impl Qos {
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_string(),
            description: name.to_string(),
            priority: 0,
            max_tres_per_user: Tres::default(),
            max_tres_per_job: Tres::default(),
            max_tres_per_account: Tres::default(),
            group_tres: Tres::default(),
            max_jobs_per_user: None,
            max_submit_per_user: None,
            max_wall: None,
            preempt: Vec::new(),
            preempt_mode: None,
            flags: Vec::new(),
            grace_time_s: 0,
        }
    }
}
