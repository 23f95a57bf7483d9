//! Cores: granted whole, so that the hardware threads of one core never serve two jobs.

use model::cpuset::CpuSet;
use model::node::NodeConfig;
use model::select::Unit;
use std::borrow::Cow;

/// CPUs to a core. Core `c` has the CPU ids from `c * threads` on. A node that declares one CPU a core has one thread.
pub fn threads(config: &NodeConfig) -> u32 {
    let cores = config.sockets.saturating_mul(config.cores_per_socket).max(1);
    (config.cpus / cores).max(1)
}

/// The CPUs of those cores that are in the set as a whole.
pub fn whole_cores(cpus: &CpuSet, threads: u32) -> CpuSet {
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

/// The CPUs of the lowest `cores` free cores.
pub fn lowest_cores(free: &CpuSet, threads: u32, cores: u32) -> CpuSet {
    free.iter().take((cores as usize).saturating_mul(threads as usize)).collect()
}

/// The lowest `count` CPUs.
pub fn lowest_cpus(cpus: &CpuSet, count: u32) -> CpuSet {
    cpus.iter().take(count as usize).collect()
}

/// CPUs to a socket.
pub fn socket_cpus(config: &NodeConfig) -> u32 {
    config.cores_per_socket.max(1).saturating_mul(threads(config))
}

/// The free CPUs that can be granted. Where sockets are granted whole, a socket counts only if nothing of it is taken.
pub fn grantable<'c>(free: &'c CpuSet, config: &NodeConfig, unit: Unit) -> Cow<'c, CpuSet> {
    if unit != Unit::Socket {
        return Cow::Borrowed(free);
    }
    let usable = config.usable_cpus();
    let each = socket_cpus(config);
    let is_whole = |cpu: &u32| {
        let first = cpu / each * each;
        (first..first + each).all(|other| free.contains(other) || !usable.contains(other))
    };
    Cow::Owned(free.iter().filter(is_whole).collect())
}

/// Rounds a number of cores up to whole units of granting.
pub fn rounded(cores: u32, config: &NodeConfig, unit: Unit) -> u32 {
    let all = || count(&config.usable_cpus(), threads(config));
    match unit {
        Unit::Cpu | Unit::Core => cores,
        Unit::Socket => {
            let each = config.cores_per_socket.max(1);
            // A demand beyond the node is not rounded down to the node: it must be seen to be too much.
            cores.div_ceil(each).saturating_mul(each).min(all().max(cores))
        }
        Unit::Node => cores.max(all()),
    }
}

/// At most `most` CPUs of each socket.
pub fn capped_per_socket(cpus: &CpuSet, config: &NodeConfig, most: u32) -> CpuSet {
    let each = socket_cpus(config);
    let threads = threads(config);
    let most = most / threads * threads;
    let mut taken = vec![0u32; config.sockets.max(1) as usize];
    let takes = |cpu: &u32| {
        let Some(count) = taken.get_mut((cpu / each) as usize) else { return false };
        *count += 1;
        *count <= most
    };
    cpus.iter().filter(takes).collect()
}
