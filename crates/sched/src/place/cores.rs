//! Cores: granted whole, so that the hardware threads of one core never serve two jobs.

use model::cpuset::CpuSet;
use model::node::NodeConfig;

/// CPUs to a core. CPU ids `c * threads ..` are those of core `c`; a node that declares one CPU a
/// core has one.
pub fn threads(config: &NodeConfig) -> u32 {
    let cores = config.sockets.saturating_mul(config.cores_per_socket).max(1);
    (config.cpus / cores).max(1)
}

/// Without the CPUs of cores that are not in the set as a whole.
pub fn whole(cpus: &CpuSet, threads: u32) -> CpuSet {
    if threads == 1 {
        return cpus.clone();
    }
    cpus.iter()
        .filter(|cpu| {
            let first = cpu / threads * threads;
            (first..first + threads).all(|sibling| cpus.contains(sibling))
        })
        .collect()
}

pub fn count(free: &CpuSet, threads: u32) -> u32 {
    free.len() / threads
}

/// The lowest so many cores of those that are free.
pub fn lowest(free: &CpuSet, threads: u32, cores: u32) -> CpuSet {
    free.iter().take((cores as usize).saturating_mul(threads as usize)).collect()
}
