//! Which nodes of an attempt were lost under it, by what the audit trail says of nodes.

use model::activity::{Activity, ActivityFilter, ActivityKind, ActivityTarget};
use model::record::{JobRecord, RecordState};
use model::run::Outcome;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// How many of the last attempts the trail is asked about.
const ASKED_MAX: usize = 6;

/// The names of the lost nodes, by the numbers of the attempts.
#[derive(Debug, Default, Serialize)]
pub struct LostNodes(BTreeMap<u32, Vec<String>>);

impl LostNodes {
    /// The attempts that the trail is asked about, the last first, and what it is asked. An attempt on one node lost that one.
    pub fn questions(attempts: &[JobRecord]) -> Vec<(&JobRecord, ActivityFilter)> {
        let lost = attempts.iter().rev().filter(|record| lost_one_of_several(record));
        let question = |record| (record, question(record));
        lost.take(ASKED_MAX).map(question).collect()
    }

    /// Notes the nodes that went down in these activities, which are those of the attempt's time.
    pub fn note(&mut self, record: &JobRecord, activities: &[Activity]) {
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
}

fn question(record: &JobRecord) -> ActivityFilter {
    ActivityFilter {
        from: record.start,
        until: record.end,
        about_nodes: true,
        nodes: record.nodes.clone(),
        ..ActivityFilter::default()
    }
}

fn lost_one_of_several(record: &JobRecord) -> bool {
    record.state == RecordState::Ended(Outcome::NodeFail) && record.nodes.len() > 1
}
