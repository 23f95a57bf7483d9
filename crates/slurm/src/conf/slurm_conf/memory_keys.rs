//! Memory by CPU, by node or by GPU: groups of keys of which only one may be given, alike for the
//! cluster and for a partition.

use model::amount::Bytes;
use model::partition::DefaultMemory;

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;

/// A key, and what its amount is for.
pub type MemoryKey = (&'static str, fn(Bytes) -> DefaultMemory);

// The order in a group is that in which a contradiction is told.
pub const DEFAULT_MEMORY: [MemoryKey; 3] = [
    ("DefMemPerCPU", DefaultMemory::PerCpu),
    ("DefMemPerNode", DefaultMemory::PerNode),
    ("DefMemPerGPU", DefaultMemory::PerGpu),
];

pub const MAX_MEMORY: [MemoryKey; 2] =
    [("MaxMemPerCPU", DefaultMemory::PerCpu), ("MaxMemPerNode", DefaultMemory::PerNode)];

/// The memory that a group's keys say. Zero and `UNLIMITED` are none, as is a contradiction, which is
/// told at its second key.
pub fn read(
    record: &Record,
    group: &[MemoryKey],
    findings: &mut Findings,
) -> Option<DefaultMemory> {
    let mut given = group.iter().filter(|(key, _)| record.has(key));
    let (key, per) = given.next()?;
    if let Some((second, _)) = given.next() {
        let names: Vec<&str> = group.iter().map(|(key, _)| *key).collect();
        let expected = format!("excludes {key}; expected only one of {}", names.join(", "));
        let entry = record.entry(second)?;
        findings.wrong(&entry.place, *second, &entry.text, expected);
        return None;
    }
    let mib: u64 = record.limit(key)??;
    (mib > 0).then(|| per(Bytes::from_mib(mib)))
}
