//! What was done to projects, users, runs, nodes and other people's jobs, and by whom: for the list of events and, from the
//! books, for `sacctmgr show transactions` and `show event`.

use crate::id::{JobId, RunId};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Counts all that were ever noted: two at the same moment stay in order.
    #[serde(default)]
    pub number: u64,
    pub at: Timestamp,
    /// `None` for what the cluster did by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    pub target: ActivityTarget,
    pub what: ActivityKind,
    /// What was changed, in words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub info: String,
}

/// Which activities the books are asked for; the newest where there are too many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActivityFilter {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actors: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only what became of nodes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub about_nodes: bool,
    /// Only what became of these nodes; of all where it is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityTarget {
    Project(String),
    User(String),
    Node(String),
    Fleet {
        project: String,
        name: String,
    },
    Secret {
        project: String,
        name: String,
    },
    /// The time tells it from others of its name before and after it.
    Volume {
        project: String,
        name: String,
        created: Timestamp,
        owner: String,
    },
    Run {
        run: RunId,
        name: String,
        owner: u32,
        account: String,
    },
    /// A job of somebody else than the actor.
    Job {
        job: JobId,
        owner: u32,
        account: String,
    },
    Site {
        kind: SiteThing,
        name: String,
    },
}

/// What a site has beside accounts, users and nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteThing {
    Qos,
    Reservation,
    Partition,
    Token,
    Configuration,
    Trigger,
    Backend,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    Created,
    Changed,
    Deleted,
    /// A user became a member of the project or account, or got another role in it.
    MemberSet(String),
    MemberRemoved(String),
    NodeUp,
    NodeSilent,
    NodeDown,
    /// Taken out of service, with the reason.
    NodeDrained(String),
    NodeSetDown(String),
    NodeFailing(String),
    /// It has another reason, in the same state.
    NodeReasonSet(String),
    NodeResumed,
}

/// The newest so many; the oldest are forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Activities {
    noted: u64,
    newest: VecDeque<Activity>,
}

impl Activities {
    pub fn note(&mut self, activity: Activity) {
        self.noted += 1;
        self.newest.push_back(Activity { number: self.noted, ..activity });
        if self.newest.len() > crate::bounds::ACTIVITIES.most {
            self.newest.pop_front();
        }
    }

    /// How many were ever noted.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// The next number is greater than this one.
    pub fn go_on_after(&mut self, number: u64) {
        self.noted = self.noted.max(number);
    }

    /// The activities whose number is greater than `noted`, the oldest first.
    pub fn after(&self, noted: u64) -> impl Iterator<Item = &Activity> {
        self.newest
            .iter()
            .rev()
            .take_while(move |activity| activity.number > noted)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
    }

    /// The oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Activity> {
        self.newest.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_numbers_go_on() {
        let mut activities = Activities::default();
        let most = crate::bounds::ACTIVITIES.most as u64;
        for second in 0..most + 5 {
            activities.note(Activity {
                number: 0,
                at: Timestamp(second as i64),
                actor: None,
                target: ActivityTarget::Node("n1".into()),
                what: ActivityKind::NodeUp,
                info: String::new(),
            });
        }
        assert_eq!(activities.iter().count() as u64, most);
        assert_eq!(activities.iter().next_back().map(|last| last.number), Some(most + 5));
    }
}
