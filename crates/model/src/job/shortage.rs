//! What the nodes of a partition lack for a job that waits.

use crate::reason::NeverFits;
use serde::{Deserialize, Serialize};

/// Nodes of equal hardware in one partition, as the job finds them at its turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClassReport {
    pub partition: String,
    pub nodes: Vec<String>,
    /// How many nodes of the class must serve at once.
    pub wanted: u32,
    /// Why not even an empty node of the class could serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub never: Option<NeverFits>,
    /// Nodes that are free for the job from now until it would end.
    pub free: Vec<String>,
    /// Each node that is not free is listed under the first resource that it lacks.
    pub missing: Vec<Shortage>,
}

/// Nodes that lack the same resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    pub what: MissingResource,
    pub nodes: Vec<String>,
    /// The amount that is asked of each node; zero where the resource is no amount.
    pub asked: u64,
    /// The most that one of the nodes has free.
    pub most_free: u64,
    /// What such a node has in all.
    pub total: u64,
}

/// The first thing that a node lacks for a job. Reports list them in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingResource {
    Drained,
    Down,
    /// The node does not answer just now, or must end something first.
    Silent,
    /// The node is named by `-x`, or not by `-w`.
    Name,
    /// A feature, a device or a size that no node of the class has.
    Sort,
    Cpus,
    MemoryMib,
    Gres(String),
    /// A job there has the node to itself, or wants no other user beside it.
    Company,
    /// The node is in a reservation that the job may not use, or not in the one that it asked for.
    Reservation,
    /// The node is free now, but reserved for jobs before this one, or not free for as long as its time limit.
    KeptForOthers,
}

#[cfg(test)]
mod tests {
    use super::MissingResource;

    /// Clients of the neighbouring version read these words.
    #[test]
    fn missing_resources_keep_their_serialised_words() {
        let words = |what: MissingResource| serde_json::to_string(&what).expect("it serialises");
        assert_eq!(words(MissingResource::MemoryMib), r#""memory_mib""#);
        assert_eq!(words(MissingResource::KeptForOthers), r#""kept_for_others""#);
        assert_eq!(words(MissingResource::Gres("gpu".into())), r#"{"gres":"gpu"}"#);
    }
}
