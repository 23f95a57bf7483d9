//! Refusals at submit: requests that no nodes of their partitions could ever hold, even empty and all in service.

use crate::free::cores;
use crate::free::node_free::NodeFree;
use crate::free::shape::EmptyNodes;
use crate::gate;
use crate::place::demand::{Demand, GresDemand, Tasks};
use crate::place::{candidates, fit, gres, place, settle_switch_level};
use crate::topology::Switches;
use crate::view::View;
use model::amount::Bytes;
use model::gpu_model;
use model::hostlist;
use model::node::{NodeConfig, NodeGres};
use model::reason::{NeverFits, Refusal, UnmetConstraint};
use model::request::{Grant, Request};
use model::run::JobSpec;
use std::collections::{BTreeSet, HashSet};

/// Whether the job can start one day in at least one of the partitions (positions in
/// `View::partitions`). More nodes than a partition has are no refusal in Slurm's language: the job waits with
/// `PartitionNodeLimit`, as in Slurm. `project`: the job's, which is its account.
pub fn check(
    view: &View,
    spec: &JobSpec,
    project: &str,
    partitions: &[u32],
) -> Result<(), Refusal> {
    if spec.components.len() != 1 {
        return Err(Refusal::Other(format!(
            "a job of {} components cannot be started together yet: one is right",
            spec.components.len()
        )));
    }
    let request = spec.request();
    check_names(view, request)?;
    let mut why = None;
    for &partition in partitions {
        match never_fits(view, request, partition, (spec.owner.uid, project)) {
            None => return Ok(()),
            Some(never) => why = why.or(Some((partition, never))),
        }
    }
    let Some((partition, why)) = why else { return Ok(()) };
    let partition = view.partitions.get(partition as usize).map(|p| p.partition.name.clone());
    Err(Refusal::NodeConfiguration(UnmetConstraint { partition, ..why.into() }))
}

/// Refuses names that are nowhere in the cluster: a typing error more often than not.
fn check_names(view: &View, request: &Request) -> Result<(), Refusal> {
    let configs = || view.nodes.iter().map(|node| &*node.config);
    let lists = [&request.node_list, &request.exclude, &request.node_pool];
    if lists.iter().any(|names| !names.is_empty()) {
        let known: HashSet<&str> = configs().map(|config| config.name.as_str()).collect();
        let mut named = lists.into_iter().flatten();
        if let Some(name) = named.find(|name| !known.contains(name.as_str())) {
            return Err(Refusal::UnknownNode(name.clone()));
        }
        if let Some(names) = lists.into_iter().find(|names| names.len() > known.len()) {
            let (said, there) = (names.len(), known.len());
            let text = format!("{said} names of nodes: expected each once, there are {there}");
            return Err(Refusal::Other(text));
        }
    }
    let asked = request.constraint.iter().chain(&request.prefer).flat_map(|c| c.features());
    let mut unknown: HashSet<&str> = asked.collect();
    // Each node is looked at once, however many features are named.
    for config in configs() {
        if unknown.is_empty() {
            break;
        }
        for has in &config.features {
            unknown.remove(has.as_str());
        }
    }
    let is_unknown = |name: &&str| unknown.contains(name);
    if let Some(name) = request.constraint.iter().flat_map(|c| c.features()).find(is_unknown) {
        return Err(Refusal::UnknownFeature(name.to_owned()));
    }
    if let Some(name) = request.prefer.iter().flat_map(|c| c.features()).find(is_unknown) {
        return Err(Refusal::UnknownPreference(name.to_owned()));
    }
    let nowhere =
        |name: &String| !configs().any(|config| config.gres.iter().any(|line| line.name == *name));
    match request.gres.iter().find(|gres| nowhere(&gres.name)) {
        Some(gres) => Err(Refusal::UnknownGres(gres.name.clone())),
        None => Ok(()),
    }
}

fn never_fits(
    view: &View,
    request: &Request,
    partition: u32,
    (uid, project): (u32, &str),
) -> Option<NeverFits> {
    let info = view.partitions.get(partition as usize)?;
    let mut demand = Demand::new(request, &info.partition, &view.policy, uid).of_project(project);
    let candidates = candidates(view, partition);
    if gate::exceeds_nodes(info, &demand) && !lacks_nodes_for_offer(view, request, &candidates) {
        demand.nodes_min = demand.nodes_min.min(info.nodes.len() as u32).max(1);
        demand.nodes_max = demand.nodes_max.max(demand.nodes_min);
        demand.tasks = Tasks::PerNode(demand.tasks_on_each());
    }
    let space = EmptyNodes { view, in_service_only: false };
    if place(&demand, &space, &candidates).is_none() {
        let why = diagnose(view, &demand, &candidates);
        let elsewhere = || named_elsewhere(view, request, &candidates);
        return match why {
            NeverFits::NamedNodes => elsewhere().or(Some(why)),
            _ => Some(why),
        };
    }
    if !request.one_switch {
        return None;
    }
    let switches = Switches::of(view)?;
    demand.switches = Some(switches.clone());
    settle_switch_level(&mut demand, &space, &candidates);
    if place(&demand, &space, &candidates).is_some() {
        return None;
    }
    let (each, nothing) = (demand.tasks_on_each(), vec![0; demand.gres.len()]);
    let holds_part = |node: &u32| {
        let config = &*view.nodes[*node as usize].config;
        let fits = || fit::fits(&demand, config, &NodeFree::empty(config), each, &nothing);
        fit::is_of_sort(&demand, config) && fits()
    };
    let fits: Vec<u32> = candidates.iter().copied().filter(holds_part).collect();
    let most = switches.narrowed(&fits, None).map(|nodes| nodes.len() as u64).max();
    Some(NeverFits::Switch { asked: u64::from(demand.nodes_min), most: most.unwrap_or(0) })
}

/// Whether a run of dstack's language asks for more nodes than there are: it is offered nothing, and does not wait as a job of Slurm's
/// language does. Of machines there may be any number, and one stands for all of its sort.
fn lacks_nodes_for_offer(view: &View, request: &Request, candidates: &[u32]) -> bool {
    let is_machine = |node: &u32| view.nodes[*node as usize].config.machine.is_some();
    request.grant == Grant::Offer
        && request.nodes.min as usize > candidates.len()
        && !candidates.iter().any(is_machine)
}

/// The nodes that `-w` names and that are not among those of the partition.
fn named_elsewhere(view: &View, request: &Request, candidates: &[u32]) -> Option<NeverFits> {
    let name = |node: &u32| view.nodes[*node as usize].config.name.as_str();
    let there: HashSet<&str> = candidates.iter().map(name).collect();
    let is_elsewhere = |name: &&String| !there.contains(name.as_str());
    let elsewhere: Vec<&String> = request.node_list.iter().filter(is_elsewhere).collect();
    (!elsewhere.is_empty()).then(|| NeverFits::NamedElsewhere(hostlist::compress(elsewhere)))
}

/// Why an empty node of this kind could not hold its part of the job.
pub(crate) fn never_fits_on(view: &View, demand: &Demand<'_>, node: u32) -> NeverFits {
    diagnose(view, demand, &[node])
}

/// The first thing that no node, or not enough nodes, of the partition have.
fn diagnose(view: &View, demand: &Demand<'_>, candidates: &[u32]) -> NeverFits {
    let request = demand.request;
    let all = || candidates.iter().map(|&node| &*view.nodes[node as usize].config);
    if let Some(constraint) = &request.constraint
        && !all().any(|config| constraint.matches(&config.features))
    {
        return NeverFits::Features(constraint.to_string());
    }
    if let Some(disk) = request.disk
        && !all().any(|config| config.tmp_disk >= disk)
    {
        let most = all().map(|config| config.tmp_disk.mib_floor()).max().unwrap_or(0);
        return NeverFits::Disk { asked_mib: disk.mib(), most_mib: most };
    }
    if let Some(asked) = request.architecture
        && !all().any(|config| fit::is_of_architecture(request, config))
    {
        return NeverFits::Architecture(asked);
    }
    if let Some(most) = request.price_max
        && !all().any(|config| fit::is_within_price(request, config))
    {
        return NeverFits::Price { most };
    }
    if all().next().is_some()
        && !all().any(|config| request.allows_machine(config.machine.as_deref()))
    {
        return NeverFits::Machines;
    }
    if all().next().is_some() && !all().any(|config| fit::is_for_project(demand, config)) {
        return NeverFits::OtherProject;
    }
    if let Some(layout) = layout_nowhere(request, all()) {
        return layout;
    }
    let of_sort: Vec<&NodeConfig> =
        all().filter(|config| fit::is_of_sort(demand, config)).collect();
    if of_sort.is_empty() && all().all(|config| demand.excluded.contains(config.name.as_str())) {
        return NeverFits::Nodes { asked: u64::from(demand.nodes_min), most: 0 };
    }
    if let Some(lack) = lack_on_every_node(demand, &of_sort).or(gres_nowhere(demand, &of_sort)) {
        return lack;
    }
    if !request.node_list.is_empty() || !request.node_pool.is_empty() {
        return NeverFits::NamedNodes;
    }
    nodes_short(demand, &of_sort)
}

/// The layout of sockets, cores and threads that was asked for, if no node has it.
fn layout_nowhere<'a>(
    request: &Request,
    mut nodes: impl Iterator<Item = &'a NodeConfig>,
) -> Option<NeverFits> {
    let has = |asked: Option<u32>, count: u32| asked.is_none_or(|least| least <= count);
    let fits = |config: &NodeConfig| {
        has(request.sockets_per_node, config.sockets)
            && has(request.cores_per_socket, config.cores_per_socket)
            && has(request.threads_per_core, config.threads_per_core)
    };
    let words = [
        (request.sockets_per_node, "sockets"),
        (request.cores_per_socket, "cores a socket"),
        (request.threads_per_core, "threads a core"),
    ];
    let asked: Vec<String> =
        words.iter().filter_map(|(count, word)| count.map(|n| format!("{n} {word}"))).collect();
    (!asked.is_empty() && !nodes.any(fits)).then(|| NeverFits::Layout(asked.join(", ")))
}

/// A GRES of which the job asks for a total, and of which no node has any.
fn gres_nowhere(demand: &Demand<'_>, nodes: &[&NodeConfig]) -> Option<NeverFits> {
    let served = |wanted: &&GresDemand| {
        let serves = |config: &&NodeConfig| {
            config.gres.iter().any(|line| line.count > 0 && gres::serves(line, wanted))
        };
        wanted.per_job == 0 || nodes.iter().any(serves)
    };
    let wanted = demand.gres.iter().find(|wanted| !served(wanted))?;
    Some(gres_lack(wanted, nodes, wanted.per_job, 0))
}

/// The sizes of memory that are named where none is what was asked for.
const SIZES_NAMED: usize = 4;

/// The same of kinds.
const KINDS_NAMED: usize = 8;

/// The refusal for a GRES of which no node has as many as are asked of one.
fn gres_lack(wanted: &GresDemand, nodes: &[&NodeConfig], asked: u64, most: u64) -> NeverFits {
    let mut unbounded = wanted.clone();
    if let Some(memory) = &mut unbounded.device_memory {
        memory.max = None;
    }
    let mut lines = nodes.iter().flat_map(|config| &config.gres).filter(|line| line.count > 0);
    let larger_memory =
        lines.any(|line| gres::serves(line, &unbounded) && !gres::serves(line, wanted));
    let kinds_there = if most == 0 { kinds_instead(wanted, nodes) } else { Vec::new() };
    NeverFits::Gres { name: gres_name(wanted, nodes), asked, most, larger_memory, kinds_there }
}

/// The kinds that there are of what was asked for by kinds, the first few; none where one of them is there.
fn kinds_instead(wanted: &GresDemand, nodes: &[&NodeConfig]) -> Vec<String> {
    if wanted.kinds.is_empty() {
        return Vec::new();
    }
    let any = GresDemand { kinds: Vec::new(), ..wanted.clone() };
    let lines = nodes.iter().flat_map(|config| &config.gres);
    let lines = lines.filter(|line| line.count > 0 && gres::serves(line, &any));
    let kinds: BTreeSet<&str> = lines.filter_map(|line| line.kind.as_deref()).collect();
    kinds.into_iter().take(KINDS_NAMED).map(str::to_owned).collect()
}

/// What the devices of this name have, where there are some and how much memory each has was asked for: the number that fit is zero
/// then, and does not say why.
fn memory_there(wanted: &GresDemand, nodes: &[&NodeConfig]) -> Option<String> {
    let lines = nodes.iter().flat_map(|config| &config.gres);
    let lines: Vec<&NodeGres> =
        lines.filter(|line| line.name == wanted.name && line.count > 0).collect();
    if lines.is_empty() {
        return None;
    }
    let sizes = lines.iter().flat_map(|line| {
        gpu_model::memory_sizes(line.kind.as_deref().unwrap_or_default(), line.device_memory)
    });
    let sizes: BTreeSet<Bytes> = sizes.collect();
    if sizes.is_empty() {
        return Some("how much those here have is not known".to_owned());
    }
    let named = sizes.iter().take(SIZES_NAMED).map(|size| size.format_dstack());
    let more = if sizes.len() > SIZES_NAMED { " or others" } else { "" };
    Some(format!("those here have {}{more}", named.collect::<Vec<_>>().join(" or ")))
}

fn gres_name(wanted: &GresDemand, nodes: &[&NodeConfig]) -> String {
    let mut name = wanted.name.clone();
    if let Some(kind) = wanted.kinds.first() {
        name.push_str(&format!(":{kind}"));
    }
    if let Some(memory) = &wanted.device_memory {
        name.push_str(&format!(" with {} of memory", memory.map(|bytes| bytes.format_dstack())));
        if let Some(there) = memory_there(wanted, nodes) {
            name.push_str(&format!(" ({there})"));
        }
    }
    if let Some(memory) = &wanted.total_memory {
        let memory = memory.map(|bytes| bytes.format_dstack());
        name.push_str(&format!(" with {memory} of memory together"));
    }
    if let Some(vendor) = wanted.make.vendor {
        name.push_str(&format!(" of {}", vendor.as_str()));
    }
    if let Some(least) = wanted.make.compute_capability {
        name.push_str(&format!(" with compute capability {least}.."));
    }
    name
}

/// A resource of which every node has less than the least that one node must hold.
fn lack_on_every_node(demand: &Demand<'_>, nodes: &[&NodeConfig]) -> Option<NeverFits> {
    let tasks = match demand.nodes_max {
        1 => demand.task_count(),
        _ => demand.tasks_on_each(),
    };
    let totals = match demand.nodes_max {
        1 => demand.job_totals(),
        _ => vec![0; demand.gres.len()],
    };
    let asked = |config: &NodeConfig| fit::asked(demand, config, tasks, &totals);
    let cpus_max = demand.cpus_max.unwrap_or(u32::MAX);
    let cpus = |config: &NodeConfig| u64::from(config.usable_cpus().len().min(cpus_max));
    let cpus_asked = |config: &NodeConfig| u64::from(asked(config).cores * cores::threads(config));
    if nodes.iter().all(|config| cpus_asked(config) > cpus(config)) {
        return Some(NeverFits::Cpus {
            asked: nodes.iter().map(|config| cpus_asked(config)).min().unwrap_or(0),
            most: nodes.iter().map(|config| cpus(config)).max().unwrap_or(0),
        });
    }
    let memory = |config: &NodeConfig| {
        demand.memory_max.map_or(config.usable_memory(), |most| most.min(config.usable_memory()))
    };
    if nodes.iter().all(|config| asked(config).memory > memory(config)) {
        return Some(NeverFits::Memory {
            asked_mib: nodes.iter().map(|config| asked(config).memory.mib()).min().unwrap_or(0),
            most_mib: nodes.iter().map(|config| memory(config).mib_floor()).max().unwrap_or(0),
        });
    }
    demand.gres.iter().enumerate().find_map(|(at, wanted)| {
        let has = |config: &NodeConfig| -> u64 {
            let least = asked(config).gres[at];
            // No number of them has the memory together: there is none that serves.
            if gres::fewest(config, wanted, least).is_none() {
                return 0;
            }
            let lines = config.gres.iter().filter(|line| gres::serves(line, wanted));
            lines.map(|line| line.count).sum()
        };
        nodes.iter().all(|config| asked(config).gres[at] > has(config)).then(|| {
            let asked = nodes.iter().map(|config| asked(config).gres[at]).min();
            let most = nodes.iter().map(|config| has(config)).max();
            gres_lack(wanted, nodes, asked.unwrap_or(0), most.unwrap_or(0))
        })
    })
}

/// Each node can hold a part, but there are too few of them for the whole job.
fn nodes_short(demand: &Demand<'_>, nodes: &[&NodeConfig]) -> NeverFits {
    let nothing = vec![0; demand.gres.len()];
    let each = demand.tasks_on_each();
    let fits: Vec<&&NodeConfig> = nodes
        .iter()
        .filter(|config| fit::fits(demand, config, &NodeFree::empty(config), each, &nothing))
        .collect();
    let most = fits.len().min(demand.nodes_max as usize) as u64;
    let tasks_on = |config: &NodeConfig| {
        let free = NodeFree::empty(config);
        u64::from(fit::capacity(demand, config, &free, demand.task_count(), &nothing))
    };
    let by_tasks = match fits.iter().map(|config| tasks_on(config)).max() {
        Some(largest) if largest > 0 => u64::from(demand.task_count()).div_ceil(largest),
        _ => 1,
    };
    let by_totals = demand.gres.iter().filter(|wanted| wanted.per_job > 0).map(|wanted| {
        let has = |config: &NodeConfig| -> u64 {
            config
                .gres
                .iter()
                .filter(|line| gres::serves(line, wanted))
                .map(|line| line.count)
                .sum()
        };
        let largest = nodes.iter().map(|config| has(config)).max().unwrap_or(0).max(1);
        wanted.per_job.div_ceil(largest)
    });
    let asked = by_totals.max().unwrap_or(1).max(by_tasks).max(u64::from(demand.nodes_min));
    NeverFits::Nodes { asked: asked.max(most + 1), most }
}
