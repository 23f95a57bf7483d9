//! Projects of dstack's language: an account, its members with their roles; and what is known of a user beside tokens.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a member may do in a project; each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProjectRole {
    /// Has an association with the account.
    User,
    /// Is a coordinator of the account: manages its runs and members.
    Manager,
    /// A manager who also appoints administrators, and may delete the project.
    Admin,
}

impl ProjectRole {
    pub const ALL: [Self; 3] = [Self::User, Self::Manager, Self::Admin];

    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Manager => "manager",
            Self::Admin => "admin",
        }
    }
}

pub type Members = BTreeMap<String, ProjectRole>;

/// What a project has that an account has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Project {
    pub owner: String,
    pub created: Timestamp,
    /// The coordinators who are also its administrators.
    #[serde(default)]
    pub admins: BTreeSet<String>,
}

/// How a list of members is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MembersChange {
    /// These and no others.
    Replace,
    /// These also, with these roles.
    Add,
    /// These no more, whatever their role.
    Remove,
}

/// What is kept of a user whom an administrator has made known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownUser {
    pub created: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Tokens of a user who is not active are refused.
    pub active: bool,
}

/// As the user is told of it.
pub const PROJECT_NAME_RULE: &str = "1 to 50 letters, digits, - and _";

pub fn is_project_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=50).contains(&name.len()) && name.bytes().all(plain)
}
