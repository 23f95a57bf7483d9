//! What jobs hold of nodes, counted anew from the jobs.
//!
//! Whether a job has its nodes to itself, or keeps other users off them, is worked out from its request and from its partition as it is
//! configured now; views and starts work it out in the same way. So the marks on nodes follow each change of the configuration: one of
//! before would stay for as long as the job runs, and no plan would know when it ends.

use crate::state::State;
use model::id::JobId;
use std::sync::Arc;

impl State {
    /// Counts the use of every node anew.
    pub(crate) fn count_node_use(&mut self) {
        for node in self.nodes.values_mut() {
            node.used = Default::default();
            node.holders.clear();
        }
        let active: Vec<JobId> = self.active.iter().copied().collect();
        for id in active {
            let attempt = self.attempt_of(id);
            let (allocation, held) = (Arc::clone(&attempt.allocation), attempt.held_nodes.clone());
            self.occupy(id, &allocation, Some(&held[..]));
        }
    }
}
