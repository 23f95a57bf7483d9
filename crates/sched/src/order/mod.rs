//! The order of the queue: the factors of each job's priority, and the sort key.

pub mod expansion;
pub mod fair_tree;
pub mod multifactor;
mod queue;

pub use queue::{JobInPartition, QueueKey, job_in_partitions, priority_in};
