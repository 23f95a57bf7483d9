//! The amounts that a job takes of one node.

use model::amount::Bytes;

/// What a demand takes of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amounts {
    pub tasks: u32,
    pub cores: u32,
    /// CPUs of those cores.
    pub cpus: u32,
    pub memory: Bytes,
    /// One for each GRES demand.
    pub gres: Vec<u64>,
}
