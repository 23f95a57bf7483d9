//! Accounts and associations: who may use how much. Qualities of service are in [`crate::qos`].

pub use crate::qos::{NORMAL_QOS, Qos, QosFlag};
use crate::time::TimeLimit;
use crate::tres::Tres;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The root of the tree of accounts.
pub const ROOT_ACCOUNT: &str = "root";

/// Slurm's account; dstack's project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub organization: String,
    /// `None` for `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Users who may manage its users, the accounts below it, and the jobs of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coordinators: Vec<String>,
}

/// A user in an account (or an account itself, with `user: None`), its share and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Association {
    pub account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(default)]
    pub shares: Shares,
    /// The association factor of its jobs' priority; `None` for the account's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
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

impl Association {
    /// An association with no limits and one share.
    pub fn plain(account: &str, user: Option<&str>) -> Self {
        Self {
            account: account.to_owned(),
            user: user.map(str::to_owned),
            partition: None,
            shares: Shares::default(),
            priority: None,
            default: false,
            qos: Vec::new(),
            default_qos: None,
            limits: AssociationLimits::default(),
        }
    }

    /// The association's identity.
    pub fn key(&self) -> AssociationKey {
        AssociationKey {
            account: self.account.clone(),
            user: self.user.clone(),
            partition: self.partition.clone(),
        }
    }
}

/// The associations that are not there yet, of each user in each account, for each of the partitions or for all of them. A user's
/// first account is its default unless another is given.
pub fn missing_associations(
    known: &[Association],
    users: &[String],
    accounts: &[String],
    partitions: &[String],
    default: Option<&str>,
) -> Vec<Association> {
    let mut added: Vec<Association> = Vec::new();
    let partitions: Vec<Option<&String>> = match partitions {
        [] => vec![None],
        named => named.iter().map(Some).collect(),
    };
    let each = accounts.iter().flat_map(|a| partitions.iter().map(move |p| (a, *p)));
    for (user, (account, partition)) in
        users.iter().flat_map(|user| each.clone().map(move |pair| (user, pair)))
    {
        let of_user = |a: &&Association| a.user.as_deref() == Some(user);
        let mut own = known.iter().chain(&added).filter(of_user).peekable();
        let is_first = own.peek().is_none();
        if own.any(|a| a.account == *account && a.partition.as_ref() == partition) {
            continue;
        }
        let default = default.map_or(is_first, |default| default == account);
        let partition = partition.cloned();
        added.push(Association { default, partition, ..Association::plain(account, Some(user)) });
    }
    added
}

/// Account, user and partition: there is one association of each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AssociationKey {
    pub account: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
}

/// An association's fair share of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Shares {
    /// Counted against the shares of its siblings.
    Count(u32),
    /// The association counts as its parent does.
    Parent(ParentWord),
}

/// The word `parent` in place of a number of shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentWord {
    Parent,
}

impl Shares {
    pub const PARENT: Shares = Shares::Parent(ParentWord::Parent);
}

impl Default for Shares {
    fn default() -> Self {
        Shares::Count(1)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shares::Count(count) => write!(f, "{count}"),
            Shares::Parent(_) => f.write_str("parent"),
        }
    }
}

/// `group_*` holds for the association and all below it together; `max_*` for each job, or for each
/// user, and is inherited from the nearest account above that has one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssociationLimits {
    pub group_tres: Tres,
    pub group_tres_minutes: Tres,
    pub group_tres_run_minutes: Tres,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_jobs_accrue: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_submit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_wall: Option<TimeLimit>,
    pub max_tres_per_job: Tres,
    pub max_tres_per_node: Tres,
    pub max_tres_minutes_per_job: Tres,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_jobs: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_jobs_accrue: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_submit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wall: Option<TimeLimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_priority_threshold: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_association_of_the_release_before_is_read() {
        let old = r#"{"account":"physics","user":"alice","shares":3,"limits":{"group_tres":{"cpu":4},"max_jobs":2}}"#;
        let read: Association = serde_json::from_str(old).expect("reads");
        assert_eq!(read.shares, Shares::Count(3));
        assert_eq!(read.limits.max_jobs, Some(2));
        let parent = Association { shares: Shares::PARENT, ..read };
        let text = serde_json::to_string(&parent).expect("writes");
        assert!(text.contains(r#""shares":"parent""#), "{text}");
        assert_eq!(serde_json::from_str::<Association>(&text).expect("reads"), parent);
    }
}
