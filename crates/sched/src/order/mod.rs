//! The order in which jobs have their turn: what each job's priority is made of, and the queue by it.

pub mod fair_tree;
pub mod multifactor;
mod queue;

pub use queue::{JobInPartition, QueueKey, job_in_partitions};
