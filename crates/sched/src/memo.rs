//! What `plan` may remember between calls. An empty one gives the same plan.

/// Nothing is remembered yet: every plan is made from the view alone.
#[derive(Debug, Clone, Default)]
pub struct Memo {}
