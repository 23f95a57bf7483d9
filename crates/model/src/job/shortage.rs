//! Resources that the nodes of a partition lack for a waiting job, for `sluice explain`.

use crate::reason::NeverFits;
use serde::{Deserialize, Serialize};

/// The nodes of one hardware class in a partition, at the job's turn in the plan.
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
    /// The total of a node of the class.
    pub total: u64,
}

/// The first thing that a node lacks for a job. Reports list them in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingResource {
    Drained,
    Down,
    /// The node does not answer just now, or must end something first.
    #[serde(rename = "silent")]
    NotResponding,
    /// The node is named by `-x`, or not by `-w`.
    #[serde(rename = "name")]
    NodeList,
    /// A feature, a device or a size that no node of the class has.
    #[serde(rename = "sort")]
    Hardware,
    Cpus,
    MemoryMib,
    Gres(String),
    /// A job there has the node to itself, or wants no other user beside it.
    #[serde(rename = "company")]
    Exclusive,
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
        assert_eq!(words(MissingResource::NotResponding), r#""silent""#);
        assert_eq!(words(MissingResource::NodeList), r#""name""#);
        assert_eq!(words(MissingResource::Hardware), r#""sort""#);
        assert_eq!(words(MissingResource::Exclusive), r#""company""#);
    }
}
