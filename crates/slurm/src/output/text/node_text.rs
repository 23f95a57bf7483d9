//! The parts of a node that more than one command prints, in Slurm's notation.

use super::job_text;
use model::allocation::GresShare;
use model::array::IndexSet;
use model::gres::{DeclaredGres, GresCount};
use model::node::{NodeConfig, NodeGres};
use model::tres::{Tres, TresKind};
use wire::view::NodeView;

/// `gpu:h100:8,fpga:1`; `(null)` for none.
pub fn gres(config: &NodeConfig) -> String {
    let one = |gres: &NodeGres| {
        let count = GresCount::new(&gres.name, gres.kind.as_deref(), gres.count);
        let sockets = sockets(config, gres);
        DeclaredGres { gres: count, no_consume: gres.no_consume, sockets }.to_string()
    };
    or_null(kinds(config).iter().map(one).collect())
}

/// The GRES lines of a node, with lines of the same name and kind added up.
fn kinds(config: &NodeConfig) -> Vec<NodeGres> {
    let mut kinds: Vec<NodeGres> = Vec::new();
    for line in &config.gres {
        match kinds.iter_mut().find(|known| known.name == line.name && known.kind == line.kind) {
            Some(known) => {
                known.count += line.count;
                match (&mut known.cores, &line.cores) {
                    (Some(cores), Some(more)) => cores.union(more),
                    (cores, _) => *cores = None,
                }
            }
            None => kinds.push(line.clone()),
        }
    }
    kinds
}

/// The sockets that a GRES line belongs to; `None` if its cores are not known.
fn sockets(config: &NodeConfig, gres: &NodeGres) -> Option<IndexSet> {
    let cores = gres.cores.as_ref()?;
    let per_socket = (config.cores_per_socket * config.threads_per_core).max(1);
    let sockets: IndexSet = cores.iter().map(|cpu| cpu / per_socket).collect();
    (!sockets.is_empty()).then_some(sockets)
}

/// `gpu:h100:2(IDX:0-1)`: one entry for each kind of the node's GRES, used or not.
pub fn gres_used(node: &NodeView) -> String {
    let one = |gres: &NodeGres| {
        let none = GresShare {
            name: gres.name.clone(),
            kind: gres.kind.clone(),
            count: 0,
            indices: Vec::new(),
        };
        let same = |used: &&GresShare| used.name == gres.name && used.kind == gres.kind;
        job_text::gres_share(node.gres_used.iter().find(same).unwrap_or(&none), true)
    };
    or_null(kinds(&node.config).iter().map(one).collect())
}

fn or_null(parts: Vec<String>) -> String {
    if parts.is_empty() { crate::words::NULL.to_owned() } else { parts.join(",") }
}

/// The resources of a node: `cpu=32,mem=125G,billing=32,gres/gpu=8`.
pub fn configured_tres(config: &NodeConfig) -> Tres {
    let mut tres = Tres::new();
    tres.set(TresKind::Cpu, u64::from(config.cpus));
    tres.set(TresKind::Mem, config.memory.mib_floor());
    tres.set(TresKind::Billing, u64::from(config.cpus));
    for gres in &config.gres {
        tres.add(TresKind::gres(&gres.name, None), gres.count);
    }
    tres
}

/// The resources of a node that jobs hold: `cpu=4,mem=8G,gres/gpu=2`; empty for an idle node.
pub fn allocated_tres(node: &NodeView) -> Tres {
    let mut tres = Tres::new();
    if node.cpus_allocated == 0 {
        return tres;
    }
    tres.set(TresKind::Cpu, u64::from(node.cpus_allocated));
    if node.memory_allocated.0 > 0 {
        tres.set(TresKind::Mem, node.memory_allocated.mib());
    }
    for used in node.gres_used.iter().filter(|used| used.count > 0) {
        tres.add(TresKind::gres(&used.name, None), used.count);
    }
    tres
}

/// The load average with two decimals.
pub fn cpu_load(node: &NodeView) -> String {
    format!("{}.{:02}", node.facts.cpu_load / 100, node.facts.cpu_load % 100)
}

pub fn address(node: &NodeView) -> &str {
    first_nonempty([&node.config.address, &node.facts.address, &node.config.name])
}

pub fn hostname(node: &NodeView) -> &str {
    first_nonempty([&node.config.hostname, &node.facts.hostname, &node.config.name])
}

fn first_nonempty<const N: usize>(candidates: [&str; N]) -> &str {
    candidates.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// The features with commas between them; `(null)` for none.
pub fn features(config: &NodeConfig) -> String {
    or_null(config.features.clone())
}

/// The CPUs that are allocated, idle, other, and all. Free CPUs of a node that takes no jobs are `other`.
pub fn cpu_counts(node: &NodeView) -> [u32; 4] {
    let total = node.config.usable_cpus().len();
    let allocated = node.cpus_allocated.min(total);
    let free = total - allocated;
    if crate::words::node::NodeState::of(node).is_available() {
        [allocated, free, 0, total]
    } else {
        [allocated, 0, free, total]
    }
}
