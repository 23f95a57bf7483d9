//! Which nodes of an attempt were lost under it, by what the audit trail says of nodes.

use crate::client::Client;
use crate::command::verb::{VerbError, unexpected};
use model::activity::{Activity, ActivityFilter, ActivityKind, ActivityTarget};
use model::record::{JobRecord, RecordState};
use model::run::Outcome;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use wire::client::{Answer, Call};

/// How many of the last attempts the trail is asked about.
const ASKED_MAX: usize = 6;

/// The names of the lost nodes, by the numbers of the attempts.
#[derive(Debug, Default, Serialize)]
pub struct LostNodes(BTreeMap<u32, Vec<String>>);

impl LostNodes {
    /// An attempt on one node lost that one: the trail is asked only about attempts on several.
    pub fn of(client: &mut Client, attempts: &[JobRecord]) -> Result<Self, VerbError> {
        let mut found = Self::default();
        for record in attempts.iter().rev().filter(|record| lost_one_of_several(record)) {
            if found.0.len() == ASKED_MAX {
                break;
            }
            let filter = ActivityFilter {
                from: record.start,
                until: record.end,
                about_nodes: true,
                nodes: record.nodes.clone(),
                ..ActivityFilter::default()
            };
            match client.call(Call::ActivityHistory(filter))? {
                Answer::Activities(activities) => found.note(record, &activities),
                // Whoever is not shown what became of nodes is told that one was lost.
                Answer::Refused(_) => break,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(found)
    }

    /// Notes the nodes that went down in these activities, which are those of the attempt's time.
    fn note(&mut self, record: &JobRecord, activities: &[Activity]) {
        use ActivityKind::{NodeDown, NodeSetDown};
        let gone = |activity: &Activity| match (&activity.target, &activity.what) {
            (ActivityTarget::Node(node), NodeDown | NodeSetDown(_)) => Some(node.clone()),
            _ => None,
        };
        let gone = activities.iter().filter_map(gone);
        let names: BTreeSet<String> = gone.filter(|node| record.nodes.contains(node)).collect();
        self.0.insert(record.attempt, names.into_iter().collect());
    }

    /// Empty where it is not known which node was lost, or where there was one alone.
    pub fn of_attempt(&self, record: &JobRecord) -> &[String] {
        self.0.get(&record.attempt).map_or(&[], Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub fn noted(record: &JobRecord, activities: &[Activity]) -> Self {
        let mut found = Self::default();
        found.note(record, activities);
        found
    }
}

fn lost_one_of_several(record: &JobRecord) -> bool {
    record.state == RecordState::Ended(Outcome::NodeFail) && record.nodes.len() > 1
}
