//! One node and one demand: whether the node may serve, what it would give, and whether that is free.

use super::amounts::Amounts;
use super::demand::{Demand, Tasks};
use super::gres;
use super::memory::MemoryRule;
use super::offer;
use crate::free::cores;
use crate::free::node_free::NodeFree;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::gres::GPU;
use model::node::NodeConfig;
use model::request::{Grant, GresBinding, Request};
use model::select::Unit;
use std::borrow::Cow;

/// Whether the node may serve the demand when it is empty.
pub fn is_of_sort(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    let name = config.name.as_str();
    !demand.excluded.contains(name)
        && (demand.pool.is_empty() || demand.pool.contains(name))
        && is_of_class(demand, config)
}

/// Whether nodes of the class may serve the demand when they are empty, whatever their names.
pub fn is_of_class(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    let request = demand.request;
    let is_preferred = || request.prefer.as_ref().is_some_and(|c| c.matches(&config.features));
    (demand.constraint.is_none_or(|c| c.matches(&config.features)) || is_preferred())
        && has_memory(demand, config)
        && request.disk.is_none_or(|disk| disk <= config.tmp_disk)
        && is_of_architecture(request, config)
        && is_within_price(request, config)
        && request.allows_machine(config.machine.as_deref())
        && is_for_project(demand, config)
        && request.sockets_per_node.is_none_or(|sockets| sockets <= config.sockets)
        && request.cores_per_socket.is_none_or(|cores| cores <= config.cores_per_socket)
        && request.threads_per_core.is_none_or(|threads| threads <= config.threads_per_core)
}

/// A machine of a project's backend is for jobs of that project alone; any other node is for everybody's.
pub fn is_for_project(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    let project = demand.project.unwrap_or_default();
    config.machine.as_ref().is_none_or(|kind| kind.serves(project))
}

/// A node that has never answered may be of any architecture.
pub fn is_of_architecture(request: &Request, config: &NodeConfig) -> bool {
    request.architecture.zip(config.architecture).is_none_or(|(asked, has)| asked == has)
}

/// A node without a price costs nothing.
pub fn is_within_price(request: &Request, config: &NodeConfig) -> bool {
    request.price_max.is_none_or(|most| config.price.unwrap_or_default() <= most)
}

/// Where memory is not consumed, a node must still have as much as the job asks for.
fn has_memory(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    match demand.memory {
        MemoryRule::PerNode(asked) if !demand.select.memory => asked <= config.usable_memory(),
        _ => true,
    }
}

/// What so many tasks take of the node, with so many units of the job's totals; `None` if no part of the node is enough.
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
        amounts.cpus = amounts.cores * threads;
    }
    if !demand.select.memory {
        amounts.memory = Bytes(0);
    }
    Some(amounts)
}

pub fn asked(demand: &Demand<'_>, config: &NodeConfig, tasks: u32, of_totals: &[u64]) -> Amounts {
    let mut gres: Vec<u64> =
        demand.gres.iter().zip(of_totals).map(|(g, part)| g.on_node(tasks, *part)).collect();
    let gpus = |gres: &[u64]| -> u64 {
        demand.gres.iter().zip(gres).filter(|(g, _)| g.name == GPU).map(|(_, count)| count).sum()
    };
    let (mut cpus, mut cores) = cpus_and_cores(demand, config, tasks, gpus(&gres));
    if demand.gres.iter().any(|g| g.per_socket > 0) {
        let spanned = cores.div_ceil(config.cores_per_socket.max(1));
        let sockets = u64::from(demand.request.sockets_per_node.unwrap_or(spanned));
        for (count, g) in gres.iter_mut().zip(&demand.gres) {
            *count = (*count).max(g.per_socket.saturating_mul(sockets));
        }
        (cpus, cores) = cpus_and_cores(demand, config, tasks, gpus(&gres));
    }
    let unit = demand.select.unit;
    let threads = cores::threads(config);
    let granted = |cpus: u32, cores: u32| match unit {
        Unit::Cpu if demand.sharers == 1 => cpus,
        _ => cores.saturating_mul(threads),
    };
    // Threads that the job does not use bring no memory with them.
    let used = demand.request.threads_per_core.map_or(threads, |t| t.clamp(1, threads));
    let counted = if used < threads { cores.saturating_mul(used) } else { granted(cpus, cores) };
    let mut memory = demand.memory.on_node(config, counted, gpus(&gres));
    if let Some(each) = demand.memory_per_cpu_max.filter(|each| each.0 > 0) {
        // With `MaxMemPerCPU` a job that wants more memory gets the CPUs that go with it.
        let by_memory = u32::try_from(memory.0.div_ceil(each.0)).unwrap_or(u32::MAX);
        if by_memory > granted(cpus, cores) && !matches!(demand.memory, MemoryRule::PerCpu(_)) {
            let all = demand.memory == MemoryRule::WholeNode;
            cpus = if all { by_memory.min(config.usable_cpus().len()) } else { by_memory };
            cores = cores::rounded(cpus.div_ceil(threads), config, unit).max(cores);
            let most = Bytes(each.0.saturating_mul(u64::from(granted(cpus, cores))));
            memory = memory.min(most);
        }
    }
    Amounts { tasks, cores, cpus: granted(cpus, cores), memory, gres }
}

/// How many CPUs so many tasks and GPUs take, and how many cores.
fn cpus_and_cores(demand: &Demand<'_>, config: &NodeConfig, tasks: u32, gpus: u64) -> (u32, u32) {
    let request = demand.request;
    let threads = cores::threads(config);
    let threads_used = request.threads_per_core.map_or(threads, |t| t.clamp(1, threads));
    let by_tasks = if request.overcommit { 1 } else { tasks.saturating_mul(demand.cpus_per_task) };
    let by_gpus = gpus.saturating_mul(u64::from(demand.cpus_per_gpu.unwrap_or(0)));
    let by_gpus = u32::try_from(by_gpus).unwrap_or(u32::MAX);
    let cpus = by_tasks.max(request.cpus_per_node.unwrap_or(0)).max(by_gpus).max(1);
    let one_each = demand.select.one_task_per_core.then_some(1).filter(|_| !request.overcommit);
    let by_core = request.tasks_per_core.or(one_each);
    let by_core = by_core.map_or(0, |most| tasks.div_ceil(most.max(1)));
    let cores = cpus.div_ceil(threads_used).max(by_core);
    (cpus.max(by_core), cores::rounded(cores, config, demand.select.unit))
}

/// Whether so many tasks fit in what is free.
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
    amounts.cores <= cores::count(&cpus_open(demand, config, free), cores::threads(config))
        && amounts.memory <= free.memory
        && is_within_partition(demand, config, amounts)
        && (demand.gres.is_empty() || {
            let counts = |line: usize| free.gres[line].count;
            gres::divide(config, counts, &demand.gres, &amounts.gres, &CpuSet::new()).is_some()
        })
}

/// The CPUs of the node that the job could have.
fn cpus_open<'f>(demand: &Demand<'_>, config: &NodeConfig, free: &'f NodeFree) -> Cow<'f, CpuSet> {
    let open = match demand.sharers {
        0 | 1 => cores::grantable(&free.cpus, config, demand.select.unit),
        sharers => {
            let mut open = CpuSet::new();
            free.cpus_to_share(sharers).iter().for_each(|cpus| open.union(cpus));
            Cow::Owned(open)
        }
    };
    match demand.cpus_per_socket_max {
        Some(most) => Cow::Owned(cores::capped_per_socket(&open, config, most)),
        None => open,
    }
}

/// The CPUs to choose from: those that the job could have, but of shared CPUs no more than are needed, idle ones first.
fn cpus_chosen(demand: &Demand<'_>, config: &NodeConfig, free: &NodeFree, wanted: u32) -> CpuSet {
    if demand.sharers <= 1 {
        return cpus_open(demand, config, free).into_owned();
    }
    let threads = cores::threads(config);
    let mut chosen = CpuSet::new();
    for level in free.cpus_to_share(demand.sharers) {
        let missing = wanted.saturating_sub(cores::count(&chosen, threads));
        chosen.union(&cores::lowest_cores(&level, threads, missing));
    }
    chosen
}

/// Whether the amounts are within what the partition gives one job of a node.
pub fn is_within_partition(demand: &Demand<'_>, config: &NodeConfig, amounts: &Amounts) -> bool {
    let cpus = amounts.cores.saturating_mul(cores::threads(config));
    demand.cpus_max.is_none_or(|most| cpus <= most)
        && demand.memory_max.is_none_or(|most| amounts.memory <= most)
}

/// Whether the job may run beside those on the node.
fn may_join(demand: &Demand<'_>, free: &NodeFree) -> bool {
    let holder = demand.holder;
    !free.exclusive
        && (!holder.whole_node || free.jobs == 0)
        && free.owner.is_none_or(|(owner, _)| owner == holder.uid)
        && (!holder.user_exclusive || free.users.iter().all(|(uid, _)| *uid == holder.uid))
}

/// The most tasks that the request itself allows on one node.
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

/// The most tasks up to `limit` that fit in what is free, with `of_totals` units of each of the job's totals.
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

/// The largest of `1..=limit` for which `holds` is true, or zero. If it is true for a number, it must be for all smaller
/// ones.
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

/// The very CPUs, bytes and devices for so many tasks; `None` if they do not fit.
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
    // A job that gets whole nodes because nothing less is granted has only the devices that it asked for.
    let all_devices = demand.holder.whole_node && demand.select.unit != Unit::Node;
    let units = if all_devices {
        // A GPU that is granted whole is not granted in shares as well.
        let lines = config.gres.iter().zip(&free.gres);
        lines.map(|(line, free)| if line.share_of.is_some() { 0 } else { free.count }).collect()
    } else {
        gres::divide(config, counts, &demand.gres, &amounts.gres, &cpus)?
    };
    let gres = gres::pick(config, &free.gres, &units);
    let cpus =
        if amounts.cpus < cpus.len() { cores::lowest_cpus(&cpus, amounts.cpus) } else { cpus };
    let (node, memory, sharers) = (config.name.clone(), amounts.memory, demand.sharers);
    let disk = demand.request.disk.unwrap_or_default();
    let mut share = NodeShare { node, cpus, memory, gres, tasks, sharers, disk, price: None };
    share.price = share.price_on(config);
    Some(share)
}

/// The lowest cores that will do: close to enough of the devices, where devices are bound to cores.
fn cpus_near(
    demand: &Demand<'_>,
    config: &NodeConfig,
    free: &NodeFree,
    amounts: &Amounts,
) -> Option<CpuSet> {
    let threads = cores::threads(config);
    let open = cpus_chosen(demand, config, free, amounts.cores);
    let lowest = || Some(cores::lowest_cores(&open, threads, amounts.cores));
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
        let cpus = cores::whole_cores(&common(&open, place), threads);
        let enough = cores::count(&cpus, threads) >= amounts.cores;
        let count = |line: usize| match &config.gres[line].cores {
            Some(cores) if !cores.intersects(place) => 0,
            _ => free.gres[line].count,
        };
        let units = gres::divide(config, count, &demand.gres, &amounts.gres, &CpuSet::new());
        (enough && units.is_some()).then(|| cores::lowest_cores(&cpus, threads, amounts.cores))
    };
    let best = places.iter().filter_map(near).min_by_key(|cpus| cpus.iter().next());
    match (best, binding) {
        (Some(cpus), _) => Some(cpus),
        (None, GresBinding::Enforce) => {
            let mut all = CpuSet::new();
            places.iter().for_each(|place| all.union(place));
            let (near, far) = (common(&open, &all), without(&open, &all));
            let most = places.iter().map(|place| cores::count(place, threads)).max().unwrap_or(0);
            let units = config.gres.iter().filter(|line| is_bound(line)).map(|line| line.count);
            let is_large =
                amounts.cores > most || amounts.gres.iter().sum::<u64>() > units.max().unwrap_or(0);
            // A demand that no group of cores could hold even when empty may be spread, close cores first.
            let missing = amounts.cores.saturating_sub(cores::count(&near, threads));
            let mut cpus = cores::lowest_cores(&near, threads, amounts.cores);
            cpus.union(&cores::lowest_cores(&far, threads, missing));
            (is_large && cores::count(&cpus, threads) >= amounts.cores).then_some(cpus)
        }
        (None, _) => lowest(),
    }
}

fn without(cpus: &CpuSet, others: &CpuSet) -> CpuSet {
    let mut left = cpus.clone();
    left.subtract(others);
    left
}

fn common(cpus: &CpuSet, others: &CpuSet) -> CpuSet {
    without(cpus, &without(cpus, others))
}
