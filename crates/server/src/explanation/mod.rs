//! The texts of explanations, for `sluice explain` and the web page: why a job waits and who holds what it needs, and why it ended.

pub mod ended;
pub mod lost_nodes;
pub mod wait;
