//! The choice of nodes, or parts of them, for a new reservation.

use super::ReservationWindows;
use crate::free::timeline::{CORE, CORES, Millis, NEVER};
use crate::index::ReservationIndex;
use crate::view::View;
use model::node::NodeConfig;
use model::time::Timestamp;
use std::collections::BTreeMap;

/// What `scontrol create reservation` asks for where it names no nodes.
#[derive(Debug, Clone, Default)]
pub struct ReservationDemand {
    pub start: Timestamp,
    pub end: Timestamp,
    pub nodes: u32,
    /// Cores in all, over `nodes` nodes, or over as few as will do.
    pub cores: u32,
    /// Units of each GRES in all, over the nodes likewise. A demand without cores and GRES is for whole nodes.
    pub gres: BTreeMap<String, u64>,
    /// Nodes that the reservation has already.
    pub besides: Vec<String>,
    /// Position in `View::partitions`.
    pub partition: u32,
    pub features: Option<model::constraint::Constraint>,
    pub ignore_jobs: bool,
    pub overlap: bool,
}

impl ReservationDemand {
    fn is_whole(&self) -> bool {
        self.cores == 0 && self.gres.is_empty()
    }
}

/// What one node gives to the reservation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservedNode {
    pub node: String,
    pub cores: u32,
    pub gres: BTreeMap<String, u64>,
}

/// Nodes for a reservation: in service, free of jobs when it begins, and in no other reservation then; lowest weight
/// first. Returns `None` if there are not enough.
pub fn choose_nodes(
    view: &View,
    now: Timestamp,
    wanted: &ReservationDemand,
) -> Option<Vec<ReservedNode>> {
    let windows = ReservationWindows::of(view, now.millis());
    let busy_until = busy_until(view);
    let mut left = wanted.clone();
    let mut parts = Vec::new();
    for &node in crate::place::candidates(view, wanted.partition).iter() {
        let info = &view.nodes[node as usize];
        let fits = wanted.features.as_ref().is_none_or(|f| f.matches(&info.config.features));
        let idle = wanted.ignore_jobs || busy_until[node as usize] <= wanted.start.millis();
        let has = wanted.besides.contains(&info.config.name);
        if !info.availability.is_in_service() || !fits || !idle || has {
            continue;
        }
        let Some(part) = part_of(view, &windows, node, wanted, &left) else { continue };
        left.cores -= part.cores.min(left.cores);
        for (name, count) in &part.gres {
            left.gres.entry(name.clone()).and_modify(|left| *left -= count);
        }
        parts.push(part);
        let done = left.cores == 0 && left.gres.values().all(|left| *left == 0);
        if done && parts.len() as u32 >= wanted.nodes.max(1) {
            return Some(parts);
        }
    }
    None
}

/// When the last job on each node ends.
fn busy_until(view: &View) -> Vec<Millis> {
    let mut busy_until = vec![Millis::MIN; view.nodes.len()];
    for running in &view.running {
        let over = running.end.map_or(NEVER, |end| end.millis());
        for node in running.shares.nodes() {
            let until = &mut busy_until[node as usize];
            *until = (*until).max(over);
        }
    }
    busy_until
}

/// What this node gives of what is left to find: its even part of a number of nodes, else as much as it has.
fn part_of(
    view: &View,
    windows: &ReservationWindows,
    node: u32,
    wanted: &ReservationDemand,
    left: &ReservationDemand,
) -> Option<ReservedNode> {
    let config = &view.nodes[node as usize].config;
    let taken = windows.taken(config, node, wanted);
    let free = cores_of(config).saturating_sub(taken.cores);
    let mut part = ReservedNode { node: config.name.clone(), ..ReservedNode::default() };
    if wanted.is_whole() {
        part.cores = cores_of(config);
        return (free == part.cores && free > 0 && taken.gres.is_empty()).then_some(part);
    }
    let count = u64::from(wanted.nodes);
    let share = |all: u64, left: u64, free: u64| match count {
        0 => Some(left.min(free)),
        nodes => Some(all.div_ceil(nodes).min(left)).filter(|share| *share <= free),
    };
    let cores = share(u64::from(wanted.cores), u64::from(left.cores), u64::from(free))?;
    part.cores = u32::try_from(cores).ok()?;
    for (name, all) in &wanted.gres {
        let used = taken.gres.get(name).copied().unwrap_or(0);
        let free = if taken.whole { 0 } else { config.gres_total(name).saturating_sub(used) };
        let left = left.gres.get(name).copied().unwrap_or(0);
        let units = share(*all, left, free)?;
        if units > 0 {
            part.gres.insert(name.clone(), units);
        }
    }
    (part.cores > 0 || !part.gres.is_empty()).then_some(part)
}

pub(super) fn cores_of(config: &NodeConfig) -> u32 {
    config.usable_cpus().len() / crate::free::cores::threads(config)
}

/// What other reservations have of a node.
#[derive(Default)]
struct ReservedAmounts {
    whole: bool,
    cores: u32,
    gres: BTreeMap<String, u64>,
}

impl ReservationWindows {
    /// What other reservations have of the node in the window of the new one.
    fn taken(&self, config: &NodeConfig, node: u32, wanted: &ReservationDemand) -> ReservedAmounts {
        let mut taken = ReservedAmounts::default();
        if wanted.overlap {
            return taken;
        }
        let (start, end) = (wanted.start.millis(), wanted.end.millis());
        let meets =
            |at: ReservationIndex| self.times[at.at()].iter().any(|(f, t)| *f < end && start < *t);
        let on_node = self.by_node.get(&node).into_iter().flatten();
        for (at, columns) in on_node.filter(|(at, _)| meets(*at)) {
            let other = &self.reservations[at.at()];
            match columns {
                _ if other.overlaps() => {}
                None => (taken.whole, taken.cores) = (true, cores_of(config)),
                Some(columns) => {
                    taken.cores += (columns[CORES] / CORE) as u32;
                    for (name, count) in other.gres.get(&config.name).into_iter().flatten() {
                        *taken.gres.entry(name.clone()).or_default() += count;
                    }
                }
            }
        }
        taken
    }
}
