//! Lists of an earlier plan, for their allocations: each is as long as the queue or the list of nodes. A plan reads nothing of
//! them that it has not set.

use crate::free::timeline::Timeline;

#[derive(Debug, Clone, Default)]
pub struct Scratch {
    pub nodes: NodeScratch,
    pub shape_positions: Vec<u32>,
    pub left: Vec<u32>,
    pub allowed: Vec<u32>,
}

/// What the timelines of a plan have for each node.
#[derive(Debug, Clone, Default)]
pub struct NodeScratch {
    pub modified: Vec<Timeline>,
    pub modified_at: Vec<u32>,
    pub versions: Vec<u32>,
    pub is_reserved: Vec<bool>,
}
