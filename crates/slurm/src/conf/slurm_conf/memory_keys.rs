//! Memory by CPU, by node or by GPU: groups of keys of which only one counts, alike for the cluster and for a
//! partition.

use model::amount::Bytes;
use model::partition::DefaultMemory;

use crate::conf::error::{Findings, NoticeKind};
use crate::conf::keys::record::Record;

/// A key, and what its amount is for.
pub type MemoryKey = (&'static str, fn(Bytes) -> DefaultMemory);

// The first key of a group that is given counts.
pub const DEFAULT_MEMORY: [MemoryKey; 3] = [
    ("DefMemPerCPU", DefaultMemory::PerCpu),
    ("DefMemPerNode", DefaultMemory::PerNode),
    ("DefMemPerGPU", DefaultMemory::PerGpu),
];

pub const MAX_MEMORY: [MemoryKey; 2] =
    [("MaxMemPerCPU", DefaultMemory::PerCpu), ("MaxMemPerNode", DefaultMemory::PerNode)];

/// The memory that a group's keys say. Zero and `UNLIMITED` are none. Keys beside the one that counts are told.
pub fn read(
    record: &Record,
    group: &[MemoryKey],
    findings: &mut Findings,
) -> Option<DefaultMemory> {
    let mut given = group.iter().filter(|(key, _)| record.has(key));
    let (key, per) = given.next()?;
    for (idle, _) in given {
        if let Some(entry) = record.entry(idle) {
            let how = format!("excludes {key}, which counts; this one has no effect");
            findings.notice(&entry.place, *idle, NoticeKind::Corrected { how });
        }
    }
    let mib: u64 = record.limit(key)??;
    (mib > 0).then(|| per(Bytes::from_mib(mib)))
}
