//! dstack's offer: a node is divided into equal blocks, as many as its fleet says, or one for each GPU (or, without GPUs, for
//! each core). The offer is the smallest number of blocks whose share reaches the lower end of every range. What a block has beyond the upper end
//! of a range is not granted, but a core is never split.

use super::amounts::Amounts;
use super::demand::Demand;
use super::gres;
use super::memory::portion;
use crate::free::cores;
use model::amount::Bytes;
use model::gres::GPU;
use model::node::NodeConfig;
use model::request::Memory;

/// The share of the node as if it were empty; `None` if all its blocks do not suffice.
pub fn share(
    demand: &Demand<'_>,
    config: &NodeConfig,
    tasks: u32,
    of_totals: &[u64],
) -> Option<Amounts> {
    let threads = cores::threads(config);
    let cores_total = u64::from(cores::count(&config.usable_cpus(), threads));
    let gpus_total = config.gres_total(GPU);
    let blocks_total = config.blocks_total(cores_total, gpus_total);

    let asked = &demand.request.cpus_per_task;
    let cpus_min =
        asked.min.saturating_mul(tasks).max(demand.request.cpus_per_node.unwrap_or(1)).max(1);
    let cores_min = u64::from(cpus_min.div_ceil(threads));
    let least = demand.gres.iter().zip(of_totals);
    let least = least.map(|(g, part)| gres::fewest(config, g, g.on_node(tasks, *part)));
    let least: Vec<u64> = least.collect::<Option<_>>()?;
    let gpus = demand.gres.iter().zip(&least).filter(|(g, _)| g.name == GPU);
    let gpus_min: u64 = gpus.map(|(_, count)| count).sum();
    let memory_min = memory_min(demand, config, cpus_min, gpus_min);

    // A job that takes the whole node takes all its blocks.
    let fewest = if demand.holder.whole_node { blocks_total.max(1) } else { 1 };
    let blocks = (fewest..=blocks_total).find(|&blocks| {
        cores_total * blocks / blocks_total >= cores_min
            && portion(config.usable_memory(), blocks, blocks_total) >= memory_min
            && gpus_total * blocks / blocks_total >= gpus_min
    })?;

    let cores_max =
        asked.max.map_or(u64::MAX, |most| u64::from(most.saturating_mul(tasks) / threads));
    let cores = (cores_total * blocks / blocks_total).min(cores_max).max(cores_min);
    let memory = portion(config.usable_memory(), blocks, blocks_total);
    let memory = match &demand.request.memory {
        Memory::PerNode(range) => range.max.map_or(memory, |most| memory.min(most)),
        _ => memory,
    };
    let gres = demand.gres.iter().zip(least).map(|(g, least)| {
        // A request whose minimum is zero gets no GPU: others can use it.
        let is_gpu = g.name == GPU && least > 0;
        let of_blocks = gpus_total * blocks / blocks_total;
        if !is_gpu {
            return least;
        }
        let most = of_blocks.min(g.most.unwrap_or(u64::MAX)).max(least);
        gres::most(config, g, least, most)
    });
    let cores = u32::try_from(cores).ok()?;
    Some(Amounts { tasks, cores, cpus: cores * threads, memory, gres: gres.collect() })
}

/// A request without memory takes what comes with its blocks.
fn memory_min(demand: &Demand<'_>, config: &NodeConfig, cpus: u32, gpus: u64) -> Bytes {
    match demand.request.memory {
        Memory::Default => Bytes(0),
        _ => demand.memory.on_node(config, cpus, gpus),
    }
}
