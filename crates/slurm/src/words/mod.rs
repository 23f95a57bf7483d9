//! Slurm's words for what the cluster answers with types: states, reasons, refusals, nodes and partitions.

pub mod job;
pub mod node;
pub mod note;
pub mod partition;
pub mod reason;
pub mod refusal;
pub mod reservation;
pub mod rpc;
pub mod step;

/// What Slurm prints for a text that is not there.
pub const NULL: &str = "(null)";
