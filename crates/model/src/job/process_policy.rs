//! What processes of jobs take over from the command that submitted them: soft limits, and the nice value.

use serde::{Deserialize, Serialize};

/// `PropagateResourceLimits`: the limits that are carried over where the user named none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RlimitPolicy {
    /// Empty means all. `ALL` and `NONE` stand for themselves.
    pub only: Vec<String>,
    /// If not empty, all limits but these are carried over.
    pub except: Vec<String>,
}

impl RlimitPolicy {
    pub fn narrow(&self, limits: Rlimits) -> Rlimits {
        if limits.asked {
            return limits;
        }
        let named = |list: &[String], name: &str| {
            list.iter().any(|word| {
                let bare = word.strip_prefix("RLIMIT_").unwrap_or(word);
                bare.eq_ignore_ascii_case(name) || bare.eq_ignore_ascii_case("ALL")
            })
        };
        let is_carried = |name: &str| {
            if self.except.is_empty() {
                self.only.is_empty() || named(&self.only, name)
            } else {
                !named(&self.except, name)
            }
        };
        let soft = limits.soft.into_iter().filter(|(name, _)| is_carried(name)).collect();
        Rlimits { soft, asked: false }
    }
}

/// `PropagatePrioProcess`: the nice value that processes run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NicePolicy {
    /// The nice value of the node's own daemon.
    #[default]
    Daemon,
    /// The nice value of the command that submitted.
    Submitter,
    /// The submitter's, but at least one more than the daemon's.
    BelowDaemon,
}

/// Soft limits that processes take over from the submitting command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rlimits {
    pub soft: Vec<(String, u64)>,
    /// The user named them: a limit that cannot be set is reported.
    #[serde(default)]
    pub asked: bool,
}
