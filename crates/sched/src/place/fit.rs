//! One node and one demand: may it serve, what would it give, does that fit in what is free.

use super::demand::{Demand, Tasks};
use super::gres::{self, GPU};
use super::{cores, offer};
use crate::free::NodeFree;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::node::NodeConfig;
use model::request::{Grant, GresBinding};

/// What a demand takes of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amounts {
    pub tasks: u32,
    pub cores: u32,
    pub memory: Bytes,
    /// One for each GRES demand.
    pub gres: Vec<u64>,
}

/// Whether the node is of the right sort, whatever is free of it.
pub fn is_of_sort(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    !demand.request.exclude.contains(&config.name) && is_of_class(demand, config)
}

/// The same, names apart.
pub fn is_of_class(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    let request = demand.request;
    request.constraint.as_ref().is_none_or(|c| c.matches(&config.features))
        && request.disk.is_none_or(|disk| disk <= config.tmp_disk)
        && request.sockets_per_node.is_none_or(|sockets| sockets <= config.sockets)
        && request.cores_per_socket.is_none_or(|cores| cores <= config.cores_per_socket)
        && request.threads_per_core.is_none_or(|threads| threads <= config.threads_per_core)
}

/// What so many tasks take here, with so many units of the job's totals; none if no part of the
/// node is enough.
pub fn amounts(
    demand: &Demand<'_>,
    config: &NodeConfig,
    tasks: u32,
    of_totals: &[u64],
) -> Option<Amounts> {
    let mut amounts = match demand.request.grant {
        Grant::Asked => asked(demand, config, tasks, of_totals),
        Grant::Offer => offer::share(demand, config, tasks, of_totals)?,
    };
    if demand.holder.whole_node {
        let threads = cores::threads(config);
        amounts.cores = cores::count(&config.usable_cpus(), threads).max(amounts.cores);
        if demand.request.grant == Grant::Asked {
            let gpus = config.gres_total(GPU);
            amounts.memory = demand.memory.on_node(config, amounts.cores * threads, gpus);
        }
    }
    Some(amounts)
}

pub fn asked(demand: &Demand<'_>, config: &NodeConfig, tasks: u32, of_totals: &[u64]) -> Amounts {
    let request = demand.request;
    let threads = cores::threads(config);
    let threads_used = request.threads_per_core.map_or(threads, |t| t.clamp(1, threads));
    let by_tasks = match request.overcommit {
        true => 1,
        false => tasks.saturating_mul(request.cpus_per_task.min),
    };
    let cores_for = |gpus: u64| {
        let by_gpus = gpus.saturating_mul(u64::from(request.cpus_per_gpu.unwrap_or(0)));
        let by_gpus = u32::try_from(by_gpus).unwrap_or(u32::MAX);
        let cpus = by_tasks.max(request.cpus_per_node.unwrap_or(0)).max(by_gpus).max(1);
        let by_core = request.tasks_per_core.map_or(0, |most| tasks.div_ceil(most.max(1)));
        cpus.div_ceil(threads_used).max(by_core)
    };
    let mut gres: Vec<u64> =
        demand.gres.iter().zip(of_totals).map(|(g, part)| g.on_node(tasks, *part)).collect();
    let gpus = |gres: &[u64]| -> u64 {
        demand.gres.iter().zip(gres).filter(|(g, _)| g.name == GPU).map(|(_, count)| count).sum()
    };
    let mut cores = cores_for(gpus(&gres));
    if demand.gres.iter().any(|g| g.per_socket > 0) {
        let spanned = cores.div_ceil(config.cores_per_socket.max(1));
        let sockets = u64::from(request.sockets_per_node.unwrap_or(spanned));
        for (count, g) in gres.iter_mut().zip(&demand.gres) {
            *count = (*count).max(g.per_socket.saturating_mul(sockets));
        }
        cores = cores_for(gpus(&gres));
    }
    let memory = demand.memory.on_node(config, cores.saturating_mul(threads), gpus(&gres));
    Amounts { tasks, cores, memory, gres }
}

/// Whether so many tasks can have what they take, beside what is there.
pub fn fits(
    demand: &Demand<'_>,
    config: &NodeConfig,
    free: &NodeFree,
    tasks: u32,
    of_totals: &[u64],
) -> bool {
    tasks <= tasks_max(demand, config)
        && may_join(demand, free)
        && amounts(demand, config, tasks, of_totals)
            .is_some_and(|amounts| has(demand, config, free, &amounts))
}

fn has(demand: &Demand<'_>, config: &NodeConfig, free: &NodeFree, amounts: &Amounts) -> bool {
    let threads = cores::threads(config);
    amounts.cores <= cores::count(&free.cpus, threads)
        && amounts.memory <= free.memory
        && is_within_partition(demand, config, amounts)
        && (demand.gres.is_empty() || {
            let counts = |line: usize| free.gres[line].count;
            gres::divide(config, counts, &demand.gres, &amounts.gres, &CpuSet::new()).is_some()
        })
}

/// Whether it is no more than the partition gives one job of a node.
pub fn is_within_partition(demand: &Demand<'_>, config: &NodeConfig, amounts: &Amounts) -> bool {
    let cpus = amounts.cores.saturating_mul(cores::threads(config));
    demand.cpus_max.is_none_or(|most| cpus <= most)
        && demand.memory_max.is_none_or(|most| amounts.memory <= most)
}

/// Whether those who are on the node, and those who ask, may be together.
fn may_join(demand: &Demand<'_>, free: &NodeFree) -> bool {
    let holder = demand.holder;
    !free.exclusive
        && (!holder.whole_node || free.jobs == 0)
        && free.owner.is_none_or(|(owner, _)| owner == holder.uid)
        && (!holder.user_exclusive || free.users.iter().all(|(uid, _)| *uid == holder.uid))
}

/// The bound that the request itself puts on the tasks of one node.
pub fn tasks_max(demand: &Demand<'_>, config: &NodeConfig) -> u32 {
    let request = demand.request;
    let by_node = match demand.tasks {
        Tasks::Total { per_node_max, .. } => per_node_max,
        Tasks::PerNode(count) => count,
    };
    let by_socket =
        request.tasks_per_socket.map_or(u32::MAX, |most| most.saturating_mul(config.sockets));
    by_node.min(by_socket)
}

/// The most tasks up to `limit` that fit here now, with `of_totals` units of each of the job's
/// totals.
pub fn capacity(
    demand: &Demand<'_>,
    config: &NodeConfig,
    free: &NodeFree,
    limit: u32,
    of_totals: &[u64],
) -> u32 {
    let limit = limit.min(tasks_max(demand, config));
    most_that(u64::from(limit), |tasks| fits(demand, config, free, tasks as u32, of_totals)) as u32
}

/// The largest of `1..=limit` that holds, where one that holds means that all smaller do; else
/// zero.
pub fn most_that(limit: u64, holds: impl Fn(u64) -> bool) -> u64 {
    if limit == 0 || !holds(1) {
        return 0;
    }
    let (mut held, mut beyond) = (1, limit.saturating_add(1));
    while beyond - held > 1 {
        let middle = held + (beyond - held) / 2;
        if holds(middle) {
            held = middle;
        } else {
            beyond = middle;
        }
    }
    held
}

/// The very CPUs, bytes and devices; none if they do not fit.
pub fn grant(
    demand: &Demand<'_>,
    config: &NodeConfig,
    free: &NodeFree,
    tasks: u32,
    of_totals: &[u64],
) -> Option<NodeShare> {
    if !fits(demand, config, free, tasks, of_totals) {
        return None;
    }
    let amounts = amounts(demand, config, tasks, of_totals)?;
    let cpus = cpus_near(demand, config, free, &amounts)?;
    let counts = |line: usize| free.gres[line].count;
    let units = match demand.holder.whole_node {
        true => free.gres.iter().map(|line| line.count).collect(),
        false => gres::divide(config, counts, &demand.gres, &amounts.gres, &cpus)?,
    };
    let gres = gres::pick(config, &free.gres, &units);
    Some(NodeShare { node: config.name.clone(), cpus, memory: amounts.memory, gres, tasks })
}

/// The lowest cores that will do: all of them close to enough of the devices, where there are such.
fn cpus_near(
    demand: &Demand<'_>,
    config: &NodeConfig,
    free: &NodeFree,
    amounts: &Amounts,
) -> Option<CpuSet> {
    let threads = cores::threads(config);
    let lowest = || Some(cores::lowest(&free.cpus, threads, amounts.cores));
    let binding = demand.request.gres_binding;
    let is_bound = |line: &model::node::NodeGres| {
        line.cores.is_some() && demand.gres.iter().any(|wanted| gres::serves(line, wanted))
    };
    let wanted = amounts.gres.iter().any(|count| *count > 0);
    let has_places = config.gres.iter().any(is_bound);
    if !wanted || !has_places || binding == GresBinding::Ignore || demand.holder.whole_node {
        return lowest();
    }
    let mut places: Vec<&CpuSet> =
        config.gres.iter().filter(|line| is_bound(line)).filter_map(|l| l.cores.as_ref()).collect();
    places.dedup();
    let near = |place: &&CpuSet| {
        let mut far = free.cpus.clone();
        far.subtract(place);
        let mut cpus = free.cpus.clone();
        cpus.subtract(&far);
        let cpus = cores::whole(&cpus, threads);
        let enough = cores::count(&cpus, threads) >= amounts.cores;
        let count = |line: usize| match &config.gres[line].cores {
            Some(cores) if !cores.intersects(place) => 0,
            _ => free.gres[line].count,
        };
        let units = gres::divide(config, count, &demand.gres, &amounts.gres, &CpuSet::new());
        (enough && units.is_some()).then(|| cores::lowest(&cpus, threads, amounts.cores))
    };
    let best = places.iter().filter_map(near).min_by_key(|cpus| cpus.iter().next());
    match (best, binding) {
        (Some(cpus), _) => Some(cpus),
        (None, GresBinding::Enforce) => {
            // Spread over several places at once: every core close to some device that is granted.
            let mut all = CpuSet::new();
            places.iter().for_each(|place| all.union(place));
            let mut far = free.cpus.clone();
            far.subtract(&all);
            let mut cpus = free.cpus.clone();
            cpus.subtract(&far);
            let one_place_has_all = places.len() == 1;
            let enough = cores::count(&cpus, threads) >= amounts.cores && !one_place_has_all;
            let total: u64 = amounts.gres.iter().sum();
            let most = config.gres.iter().map(|line| line.count).max().unwrap_or(0);
            // Only what no single place could hold even when empty may be spread.
            (enough && total > most).then(|| cores::lowest(&cpus, threads, amounts.cores))
        }
        (None, _) => lowest(),
    }
}
