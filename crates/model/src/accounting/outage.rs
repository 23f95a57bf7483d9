//! Times in which nodes were out of service, from what the audit trail says of them: for `sacctmgr show event` and `sreport`.

use crate::activity::{Activity, ActivityKind, ActivityTarget};
use crate::time::Timestamp;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutageKind {
    Down,
    Drain,
    Fail,
}

impl OutageKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Down => "DOWN",
            Self::Drain => "DRAIN",
            Self::Fail => "FAIL",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    pub node: String,
    pub start: Timestamp,
    /// `None` while it lasts.
    pub end: Option<Timestamp>,
    pub kind: OutageKind,
    pub reason: String,
    /// `None` for what the cluster saw by itself.
    pub actor: Option<String>,
}

/// The outages of all nodes; `activities` has the oldest first. A node that goes down while it is drained, or is drained while it
/// is down, begins another.
pub fn outages(activities: &[Activity]) -> Vec<Outage> {
    let mut found: Vec<Outage> = Vec::new();
    let mut open: BTreeMap<&str, usize> = BTreeMap::new();
    for activity in activities {
        let ActivityTarget::Node(node) = &activity.target else { continue };
        let begins = match &activity.what {
            ActivityKind::NodeDown => Some((OutageKind::Down, activity.info.clone())),
            ActivityKind::NodeDrained(why) => Some((OutageKind::Drain, given(why, activity))),
            ActivityKind::NodeSetDown(why) => Some((OutageKind::Down, given(why, activity))),
            ActivityKind::NodeFailing(why) => Some((OutageKind::Fail, given(why, activity))),
            ActivityKind::NodeResumed => None,
            // It answers again; what an administrator drained stays so.
            ActivityKind::NodeUp
                if open
                    .get(node.as_str())
                    .is_some_and(|at| found[*at].kind == OutageKind::Down) =>
            {
                None
            }
            _ => continue,
        };
        if let Some(at) = open.remove(node.as_str()) {
            found[at].end = Some(activity.at);
        }
        if let Some((kind, reason)) = begins {
            open.insert(node, found.len());
            found.push(Outage {
                node: node.clone(),
                start: activity.at,
                end: None,
                kind,
                reason,
                actor: activity.actor.clone(),
            });
        }
    }
    found
}

/// The reason as it was given, else what the server says of it.
fn given(why: &str, activity: &Activity) -> String {
    if why.is_empty() { activity.info.clone() } else { why.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_last_until_the_node_is_back() {
        let activity = |second: i64, actor: Option<&str>, what: ActivityKind| Activity {
            number: second as u64,
            at: Timestamp(second * 1000),
            actor: actor.map(str::to_owned),
            target: ActivityTarget::Node("n1".into()),
            what,
            info: String::new(),
        };
        let list = [
            activity(1, None, ActivityKind::NodeUp),
            activity(2, None, ActivityKind::NodeDown),
            activity(3, None, ActivityKind::NodeUp),
            activity(4, Some("ann"), ActivityKind::NodeDrained("disk".into())),
            activity(5, None, ActivityKind::NodeUp),
        ];
        let found = outages(&list);
        let short: Vec<_> =
            found.iter().map(|o| (o.kind.word(), o.start.0, o.end.map(|end| end.0))).collect();
        assert_eq!(short, [("DOWN", 2000, Some(3000)), ("DRAIN", 4000, None)]);
        assert_eq!((found[0].actor.as_deref(), found[1].actor.as_deref()), (None, Some("ann")));
    }
}
