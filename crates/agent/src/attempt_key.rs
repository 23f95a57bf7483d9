//! Which attempt on which node of this agent: an agent may be several nodes.

use model::id::AttemptId;

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AttemptKey {
    pub node: String,
    pub attempt: AttemptId,
}
