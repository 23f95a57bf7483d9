//! What later plans may know of a shape that waited for nodes.

use crate::free::needs::NodeNeeds;
use crate::free::timeline::Millis;
use std::sync::Arc;

/// A shape that nothing but nodes kept from starting in an earlier plan. That stays so while partitions, policy, network and the
/// availability of nodes are the same, and no advance reservation is there.
#[derive(Debug, Clone)]
pub struct WaitingShape {
    pub partition: u32,
    /// What each of its nodes must hold, and a core at least.
    pub needs: Arc<NodeNeeds>,
    /// The fewest nodes that it starts on; one at least.
    pub node_count: u32,
    /// The shortest time that it may be given.
    pub length: Millis,
}
