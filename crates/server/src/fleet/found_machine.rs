//! The machine of a fleet's host, within what a machine may have: its agent says it, and the scheduler counts on it.

use model::amount::Bytes;
use model::bounds;
use model::cpuset::CpuSet;
use model::node::{NodeConfig, NodeGres};
use model::printable::is_unprintable;

const CPUS_MAX: u32 = 8192;
const MEMORY_MAX: Bytes = Bytes(1 << 50);

/// What is believed of what an agent found.
pub fn believed(found: &NodeConfig) -> NodeConfig {
    let cpus = found.cpus.clamp(1, CPUS_MAX);
    let parts = [found.sockets, found.cores_per_socket, found.threads_per_core];
    let product = parts.iter().try_fold(1_u32, |product, part| product.checked_mul(*part));
    // Parts that do not make up the whole are not known.
    let [sockets, cores, threads] = if product == Some(cpus) { parts } else { [1, cpus, 1] };
    let fits = |line: &NodeGres| !line.name.is_empty() && !line.name.contains(is_unprintable);
    let most = bounds::NODE_DEVICES.most as u64;
    let gres = found.gres.iter().filter(|line| fits(line));
    NodeConfig {
        boards: 1,
        sockets,
        cores_per_socket: cores,
        threads_per_core: threads,
        tmp_disk: Bytes(found.tmp_disk.0.min(MEMORY_MAX.0)),
        gres: gres.map(|line| NodeGres { count: line.count.min(most), ..line.clone() }).collect(),
        hostname: found.hostname.chars().filter(|c| !is_unprintable(*c)).take(255).collect(),
        cpus_reserved: CpuSet::new(),
        ..NodeConfig::plain(&found.name, cpus, Bytes(found.memory.0.min(MEMORY_MAX.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_that_cannot_be_is_held_to_what_can() {
        let plain = NodeConfig::plain("a", 8, Bytes::from_gib(4));
        assert_eq!(believed(&plain), plain);
        let mut odd = NodeConfig { sockets: u32::MAX, threads_per_core: 2, ..plain.clone() };
        odd.cpus = 0;
        odd.memory = Bytes(u64::MAX);
        odd.gres = vec![NodeGres::plain("gpu", None, u64::MAX), NodeGres::plain("a\nb", None, 1)];
        let held = believed(&odd);
        assert_eq!((held.cpus, held.sockets, held.threads_per_core), (1, 1, 1));
        assert_eq!(held.memory, MEMORY_MAX);
        let counts: Vec<u64> = held.gres.iter().map(|line| line.count).collect();
        assert_eq!(counts, [bounds::NODE_DEVICES.most as u64]);
    }
}
