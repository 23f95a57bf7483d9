//! Generic resources: which units of which lines a share gets, close to its CPUs where there is a choice.

use super::demand::GresDemand;
use crate::free::cores;
use crate::free::node_free::GresLineFree;
use model::allocation::GresShare;
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::gpu_model;
use model::node::{NodeConfig, NodeGres};
use std::ops::RangeInclusive;

/// Whether units of this line serve the demand. A demand for memory is served if one of the sizes that the devices may
/// have fits: what was measured, or what their kind says. Devices whose size or compute capability nobody knows serve no
/// demand for one; devices whose vendor nobody knows, as those that are only counted, serve any.
pub fn serves(line: &NodeGres, demand: &GresDemand) -> bool {
    let kind = line.kind.as_deref().unwrap_or_default();
    let kind_fits = || {
        let is_kind = |wanted: &String| {
            wanted.eq_ignore_ascii_case(kind)
                || (demand.by_model && gpu_model::is_model(kind, wanted))
        };
        demand.kinds.is_empty() || demand.kinds.iter().any(is_kind)
    };
    let memory_fits = || demand.device_memory.is_none() || sizes(line, demand).next().is_some();
    let make_fits = || {
        // Most demands name no vendor: whose a device is takes a look at all its words.
        let is_of = |wanted| gpu_model::vendor(kind, &line.files).is_none_or(|has| has == wanted);
        let capability = demand.make.compute_capability;
        demand.make.vendor.is_none_or(is_of)
            && capability.is_none_or(|least| {
                let known = line.compute_capability.or_else(|| gpu_model::compute_capability(kind));
                known.is_some_and(|has| has >= least)
            })
    };
    line.name == demand.name && kind_fits() && memory_fits() && make_fits()
}

/// The sizes that the devices of a line may have, as far as the demand takes them.
fn sizes<'a>(line: &'a NodeGres, demand: &'a GresDemand) -> impl Iterator<Item = Bytes> + 'a {
    let kind = line.kind.as_deref().unwrap_or_default();
    let fits =
        |size: &Bytes| demand.device_memory.as_ref().is_none_or(|range| range.contains(size));
    gpu_model::memory_sizes(kind, line.device_memory).filter(fits)
}

/// Whether so many units of the line have the memory together that the demand asks for.
fn has_total_memory(line: &NodeGres, demand: &GresDemand, count: u64) -> bool {
    demand.total_memory.as_ref().is_none_or(|total| {
        sizes(line, demand).any(|each| total.contains(&Bytes(each.0.saturating_mul(count))))
    })
}

/// The most units of a node that are tried for a total of memory.
const COUNTS_MAX: u64 = 1024;

/// The counts within `range` with which the units of an empty node have the memory together that the demand asks for. Units of
/// different sizes may be mixed: each of these counts fits with every size alone, so with any mixture.
fn counts_by_memory<'a>(
    config: &'a NodeConfig,
    demand: &'a GresDemand,
    range: RangeInclusive<u64>,
) -> impl DoubleEndedIterator<Item = u64> + 'a {
    let serving = |line: &&NodeGres| serves(line, demand);
    let all: u64 = config.gres.iter().filter(serving).map(|line| line.count).sum();
    let most = (*range.end()).min(all).min(COUNTS_MAX);
    (*range.start()..=most).filter(move |&count| {
        let lines = config.gres.iter().filter(serving);
        let fitting = lines.filter(|line| has_total_memory(line, demand, count));
        fitting.map(|line| line.count).sum::<u64>() >= count
    })
}

/// The fewest units of an empty node, at least `least`, that serve the demand; `None` where no count has the memory.
pub fn fewest(config: &NodeConfig, demand: &GresDemand, least: u64) -> Option<u64> {
    if demand.total_memory.is_none() || least == 0 {
        return Some(least);
    }
    counts_by_memory(config, demand, least..=demand.most.unwrap_or(u64::MAX)).next()
}

/// The most units of an empty node, from `least` to `most`, that serve the demand; `least` is known to.
pub fn most(config: &NodeConfig, demand: &GresDemand, least: u64, most: u64) -> u64 {
    if demand.total_memory.is_none() {
        return most;
    }
    counts_by_memory(config, demand, least..=most).next_back().unwrap_or(least)
}

/// How many units each line gives so that every demand has its count; `None` if they do not suffice. The most particular
/// demands come first, so that `gpu:h100:1,gpu:1` leaves the H100 to the one that needs it.
pub fn divide(
    config: &NodeConfig,
    free: impl Fn(usize) -> u64,
    demands: &[GresDemand],
    counts: &[u64],
    near: &CpuSet,
) -> Option<Vec<u64>> {
    let mut taken = vec![0; config.gres.len()];
    for (demand, &count) in demands.iter().zip(counts).filter(|(_, count)| **count > 0) {
        let mut lines: Vec<usize> =
            (0..config.gres.len()).filter(|&at| serves(&config.gres[at], demand)).collect();
        lines.retain(|&at| has_total_memory(&config.gres[at], demand, count));
        let left = |taken: &[u64], at: usize| free(at) - taken[at];
        if demand.per_socket > 0 && lines.iter().all(|&at| config.gres[at].cores.is_some()) {
            take_by_socket(config, &lines, &free, &mut taken, (demand.per_socket, count))?;
            continue;
        }
        if lines.iter().any(|&at| config.gres[at].share_of.is_some()) {
            lines = one_device(&lines, |at| left(&taken, at), count)?;
        }
        if demand.kinds.len() > 1 {
            lines = one_kind(config, &lines, |at| left(&taken, at), count)?;
        }
        lines.sort_by_key(|&at| !is_near(&config.gres[at], near));
        if count > 1 && lines.iter().any(|&at| !config.gres[at].links.is_empty()) {
            lines = linked(config, &lines, |at| left(&taken, at), count);
        }
        let mut missing = count;
        for at in lines {
            let units = left(&taken, at).min(missing);
            taken[at] += units;
            missing -= units;
        }
        if missing > 0 {
            return None;
        }
    }
    Some(taken)
}

/// Takes `each` units close to each of as many sockets as make up the count: the first sockets that have them.
fn take_by_socket(
    config: &NodeConfig,
    lines: &[usize],
    free: impl Fn(usize) -> u64,
    taken: &mut [u64],
    (each, count): (u64, u64),
) -> Option<()> {
    let width = cores::socket_cpus(config);
    let mut sockets = count.div_ceil(each);
    for socket in 0..config.sockets {
        let cpus: CpuSet = (socket * width..(socket + 1) * width).collect();
        let close: Vec<usize> =
            lines.iter().copied().filter(|&at| is_near(&config.gres[at], &cpus)).collect();
        let there: u64 = close.iter().map(|&at| free(at) - taken[at]).sum();
        if sockets == 0 || there < each {
            continue;
        }
        sockets -= 1;
        let mut missing = each;
        for at in close {
            let units = (free(at) - taken[at]).min(missing);
            taken[at] += units;
            missing -= units;
        }
    }
    (sockets == 0).then_some(())
}

/// The most devices whose connections are compared.
const LINKED_MAX: usize = 64;

/// The lines with the best connected devices first: beginning with each device, the one with the most connections to
/// those chosen before comes next. Equal devices keep their order, so that near ones stay first.
fn linked(
    config: &NodeConfig,
    lines: &[usize],
    left: impl Fn(usize) -> u64,
    count: u64,
) -> Vec<usize> {
    let free: Vec<usize> =
        lines.iter().copied().filter(|&at| left(at) > 0).take(LINKED_MAX).collect();
    let wanted = usize::try_from(count).unwrap_or(usize::MAX).min(free.len());
    let mut best: (i64, Vec<usize>) = (-1, Vec::new());
    for &first in &free {
        let (mut chosen, mut sum) = (vec![first], 0);
        while chosen.len() < wanted {
            let others = free.iter().copied().filter(|at| !chosen.contains(at));
            let of = |at: usize| chosen.iter().map(|&other| links(config, at, other)).sum::<i64>();
            // Reversed, because `max_by_key` returns the last of equals.
            let next = others.rev().map(|at| (of(at), at)).max_by_key(|(links, _)| *links);
            let Some((links, at)) = next else { break };
            sum += links;
            chosen.push(at);
        }
        if sum > best.0 {
            best = (sum, chosen);
        }
    }
    let rest = lines.iter().copied().filter(|at| !best.1.contains(at));
    best.1.iter().copied().chain(rest).collect()
}

/// The connections between two devices, as either of them lists them; -1 stands for the device itself.
fn links(config: &NodeConfig, one: usize, other: usize) -> i64 {
    let said = |from: usize, to: usize| {
        let at = config.gres[to].first_index as usize;
        config.gres[from].links.get(at).copied().unwrap_or(0)
    };
    i64::from(said(one, other).max(said(other, one)).max(0))
}

/// All shares that a job has on a node are of one GPU: the one with the fewest left that suffice, so that other GPUs stay
/// whole.
fn one_device(lines: &[usize], left: impl Fn(usize) -> u64, count: u64) -> Option<Vec<usize>> {
    let enough = lines.iter().copied().filter(|&at| left(at) >= count);
    enough.min_by_key(|&at| (left(at), at)).map(|at| vec![at])
}

/// Where several kinds would do, all units are of one kind: the first that has enough.
fn one_kind(
    config: &NodeConfig,
    lines: &[usize],
    left: impl Fn(usize) -> u64,
    count: u64,
) -> Option<Vec<usize>> {
    let of_kind_of = |first: usize| -> Vec<usize> {
        lines
            .iter()
            .copied()
            .filter(|&at| config.gres[at].kind == config.gres[first].kind)
            .collect()
    };
    lines
        .iter()
        .map(|&first| of_kind_of(first))
        .find(|same| same.iter().map(|&at| left(at)).sum::<u64>() >= count)
}

fn is_near(line: &NodeGres, cpus: &CpuSet) -> bool {
    line.cores.as_ref().is_some_and(|cores| cores.intersects(cpus))
}

/// The lowest `units` free units of each line. Lines of one name and kind become one share.
pub fn pick(config: &NodeConfig, free: &[GresLineFree], units: &[u64]) -> Vec<GresShare> {
    let mut shares: Vec<GresShare> = Vec::new();
    for ((line, free), &count) in config.gres.iter().zip(free).zip(units) {
        if count == 0 {
            continue;
        }
        // A share of a GPU has the index of the GPU.
        let indices: Vec<u32> = match line.share_of {
            Some(gpu) => vec![gpu],
            None => free.indices.iter().copied().take(count as usize).collect(),
        };
        match shares.iter_mut().find(|s| s.name == line.name && s.kind == line.kind) {
            Some(share) => {
                share.count += count;
                share.indices.extend(indices);
                share.indices.sort_unstable();
            }
            None => shares.push(GresShare {
                name: line.name.clone(),
                kind: line.kind.clone(),
                count,
                indices,
            }),
        }
    }
    shares
}
