//! Cores: granted whole, so that the hardware threads of one core never serve two jobs.

use model::cpuset::CpuSet;
use model::node::NodeConfig;
use model::select::Unit;
use std::borrow::Cow;

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

/// The lowest so many CPUs.
pub fn few(cpus: &CpuSet, count: u32) -> CpuSet {
    cpus.iter().take(count as usize).collect()
}

/// CPUs to a socket.
pub fn socket_cpus(config: &NodeConfig) -> u32 {
    config.cores_per_socket.max(1).saturating_mul(threads(config))
}

/// Of what is free that which can be granted: where sockets go as a whole, those of which nothing is taken.
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

/// Rounded up to what is granted as a whole.
pub fn rounded(cores: u32, config: &NodeConfig, unit: Unit) -> u32 {
    let all = || count(&config.usable_cpus(), threads(config));
    match unit {
        Unit::Cpu | Unit::Core => cores,
        Unit::Socket => {
            let each = config.cores_per_socket.max(1);
            // Beyond what there is it stays as it was, so that it is seen to be too much.
            cores.div_ceil(each).saturating_mul(each).min(all().max(cores))
        }
        Unit::Node => cores.max(all()),
    }
}

/// No more than so many CPUs of each socket.
pub fn capped(cpus: &CpuSet, config: &NodeConfig, most: u32) -> CpuSet {
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
