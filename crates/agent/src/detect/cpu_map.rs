//! Maps a node's CPUs to the kernel's. An allocation counts CPUs by socket, core and thread; the kernel numbers them
//! otherwise.

use crate::detect::CpuTopology;
use model::binding::CpuPlace;
use model::cpuset::CpuSet;
use std::collections::BTreeSet;

/// The socket, core and kernel numbers of each CPU of a share; empty if one of them does not exist in the machine.
///
/// On a node that is configured with one CPU for each core, a CPU stands for all threads of its core.
pub(crate) fn places(machine: &CpuTopology, node_cpus: u32, share: &CpuSet) -> Vec<CpuPlace> {
    let all = all_places(machine, node_cpus);
    let found: Vec<CpuPlace> =
        share.iter().filter_map(|id| all.get(id as usize).cloned()).collect();
    if found.len() == share.len() as usize { found } else { Vec::new() }
}

fn all_places(machine: &CpuTopology, node_cpus: u32) -> Vec<CpuPlace> {
    let cores: BTreeSet<(u32, u32)> =
        machine.cpus.iter().map(|cpu| (cpu.socket, cpu.core)).collect();
    let by_core = node_cpus as usize == cores.len() && cores.len() < machine.cpus.len();
    let mut all: Vec<CpuPlace> = Vec::new();
    let (mut core, mut last) = (0, None);
    for cpu in &machine.cpus {
        let place = (cpu.socket, cpu.core);
        let same = last == Some(place);
        if last.is_some() && !same {
            core += 1;
        }
        last = Some(place);
        match all.last_mut() {
            Some(one) if by_core && same => one.kernel.push(cpu.id),
            _ => all.push(CpuPlace {
                id: all.len() as u32,
                kernel: vec![cpu.id],
                socket: cpu.socket,
                core,
                // Without NUMA domains each socket counts as one.
                ldom: cpu.numa_node.unwrap_or(cpu.socket),
            }),
        }
    }
    all
}

/// The kernel's numbers of these CPUs.
pub(crate) fn kernel_cpus(places: &[CpuPlace]) -> CpuSet {
    places.iter().flat_map(|place| place.kernel.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Cpu;

    /// One socket of two cores, whose second threads have the numbers after all first ones.
    fn machine() -> CpuTopology {
        let cpu = |id, core, thread| Cpu { id, socket: 0, core, thread, numa_node: None };
        CpuTopology {
            sockets: 1,
            cores_per_socket: 2,
            threads_per_core: 2,
            cpus: vec![cpu(0, 0, 0), cpu(2, 0, 1), cpu(1, 1, 0), cpu(3, 1, 1)],
        }
    }

    #[test]
    fn threads_of_a_core_are_neighbours_whatever_their_kernel_numbers() {
        let share = |text: &str| text.parse::<CpuSet>().expect("a list of a test");
        let kernel = |cpus, text: &str| kernel_cpus(&places(&machine(), cpus, &share(text)));
        assert_eq!(kernel(4, "0-1").to_string(), "0,2");
        assert_eq!(kernel(4, "2").to_string(), "1");
        assert_eq!(kernel(2, "1").to_string(), "1,3", "a CPU is a core");
        assert_eq!(kernel(0, "0-3").to_string(), "0-3");
        assert!(places(&machine(), 4, &share("3-4")).is_empty(), "there is no CPU 4");
        let cores: Vec<u32> =
            places(&machine(), 4, &share("0-3")).iter().map(|place| place.core).collect();
        assert_eq!(cores, [0, 0, 1, 1]);
    }
}
