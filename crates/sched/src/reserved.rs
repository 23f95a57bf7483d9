//! Reservations: windows of time in which nodes are kept for somebody.
//!
//! A job that may not use a reservation runs only before or after its windows. One that asked for a
//! reservation runs only within one of its windows and on its nodes, unless the reservation is FLEX.

use crate::timeline::{CORES, GRES, Millis, NEVER};
use crate::view::{View, Waiting};
use model::reason::Reason;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// Windows of one reservation that are looked at.
const WINDOWS_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    reservations: Vec<Arc<Reservation>>,
    times: Vec<Vec<(Millis, Millis)>>,
    /// The reservations of each node that has any, by position, with what they take of it by column;
    /// none: all.
    by_node: HashMap<u32, Vec<OnNode>>,
}

/// A reservation, and what it takes of one node.
type OnNode = (u32, Option<Vec<u64>>);

/// A part of a node that is kept: for which reservation, how much by column, and when.
pub type KeptPart<'w> = (u32, &'w [u64], &'w [(Millis, Millis)]);

/// Which windows a job may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Pass {
    /// Positions of reservations.
    open: Vec<u32>,
    /// It asked for this one.
    asked: Option<u32>,
}

impl Pass {
    /// Whether it may not run just anywhere at any time.
    pub fn is_confined(&self) -> bool {
        self.asked.is_some()
    }

    pub fn asked(&self) -> Option<u32> {
        self.asked
    }
}

impl Windows {
    pub fn of(view: &View, now: Millis) -> Self {
        if view.reservations.is_empty() {
            return Self::default();
        }
        let index: HashMap<&str, u32> = view
            .nodes
            .iter()
            .zip(0u32..)
            .map(|(node, at)| (node.config.name.as_str(), at))
            .collect();
        let mut by_node: HashMap<u32, Vec<OnNode>> = HashMap::new();
        for (reservation, at) in view.reservations.iter().zip(0u32..) {
            for node in reservation.nodes.iter().filter_map(|name| index.get(name.as_str())) {
                let config = &view.nodes[*node as usize].config;
                by_node.entry(*node).or_default().push((at, columns(reservation, config)));
            }
        }
        let times = |reservation: &Arc<Reservation>| {
            let windows = reservation.windows(Timestamp(now), WINDOWS_MAX);
            windows.into_iter().map(|(start, end)| (start.millis(), end.millis())).collect()
        };
        Self {
            times: view.reservations.iter().map(times).collect(),
            reservations: view.reservations.clone(),
            by_node,
        }
    }

    /// The windows that a job may use: the one it asked for, else those that draw jobs in.
    pub fn pass(&self, waiting: &Waiting) -> Pass {
        if self.reservations.is_empty() {
            return Pass::default();
        }
        let (owner, request) = (&waiting.spec.owner.name, waiting.spec.request());
        let positions = || self.reservations.iter().zip(0u32..);
        if let Some(name) = &request.reservation {
            let asked = positions().find(|(r, _)| r.name == *name).map(|(_, at)| at);
            return Pass { open: asked.into_iter().collect(), asked };
        }
        let drawn =
            positions().filter(|(r, _)| r.has(Flag::Magnetic) && r.admits(owner, &waiting.account));
        Pass { open: drawn.map(|(_, at)| at).collect(), asked: None }
    }

    /// What keeps the job from its reservation, whatever the nodes.
    pub fn gate(&self, waiting: &Waiting, now: Millis) -> Option<Reason> {
        let name = waiting.spec.request().reservation.as_ref()?;
        let Some(at) = self.reservations.iter().position(|r| r.name == *name) else {
            return Some(Reason::Reservation);
        };
        let reservation = &self.reservations[at];
        if !reservation.admits(&waiting.spec.owner.name, &waiting.account) {
            return Some(Reason::Reservation);
        }
        let begun = self.times[at].iter().any(|(start, end)| *start <= now && now < *end);
        (!begun && !reservation.has(Flag::Flex)).then_some(Reason::Reservation)
    }

    /// When the reservation that the job asked for next begins.
    pub fn begins(&self, pass: &Pass, now: Millis) -> Option<Millis> {
        let times = &self.times[pass.asked? as usize];
        times.iter().find(|(_, end)| *end > now).map(|(start, _)| (*start).max(now))
    }

    pub fn touch(&self, node: u32) -> bool {
        !self.by_node.is_empty() && self.by_node.contains_key(&node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_node.keys().copied()
    }

    /// Parts of the node that are kept for others than the job, and from when to when.
    pub fn parts_of(&self, node: u32) -> impl Iterator<Item = KeptPart<'_>> {
        let on_node = self.by_node.get(&node).into_iter().flatten();
        on_node.filter_map(|(at, columns)| {
            Some((*at, columns.as_deref()?, self.times[*at as usize].as_slice()))
        })
    }

    /// When the next window of whole nodes begins that the job may not use, or its own ends.
    pub fn next(&self, node: u32, pass: &Pass, time: Millis) -> Millis {
        let own_end = pass.asked.filter(|at| !self.is_flex(*at)).map(|at| {
            let times = &self.times[at as usize];
            times.iter().find(|(start, end)| *start <= time && time < *end).map_or(time, |w| w.1)
        });
        let others = self.closed(node, pass).map(|(start, _)| start).filter(|start| *start > time);
        others.chain(own_end).min().unwrap_or(NEVER)
    }

    /// Windows of the node that the job may not use.
    fn closed(&self, node: u32, pass: &Pass) -> impl Iterator<Item = (Millis, Millis)> + '_ {
        let open = pass.open.clone();
        let on_node = self.by_node.get(&node).into_iter().flatten();
        on_node.filter(move |(at, columns)| columns.is_none() && !open.contains(at)).flat_map(
            |(at, _)| {
                let times = &self.times[*at as usize];
                // Beyond the windows that are looked at nothing is promised.
                let recurs = self.reservations[*at as usize].period_ms();
                let beyond = times.last().zip(recurs).map(|((last, _), ms)| (last + ms, NEVER));
                times.iter().copied().chain(beyond)
            },
        )
    }

    fn is_flex(&self, at: u32) -> bool {
        self.reservations[at as usize].has(Flag::Flex)
    }

    /// Until when something keeps the job from running on the node from `start` to `end`; `NEVER` if
    /// for good.
    pub fn in_the_way(&self, node: u32, pass: &Pass, start: Millis, end: Millis) -> Option<Millis> {
        if self.reservations.is_empty() {
            return None;
        }
        if let Some(asked) = pass.asked.filter(|at| !self.is_flex(*at)) {
            let on_node = self.by_node.get(&node).into_iter().flatten();
            if !on_node.into_iter().any(|(at, _)| *at == asked) {
                return Some(NEVER);
            }
            let times = &self.times[asked as usize];
            if !times.iter().any(|(from, to)| *from <= start && end <= *to) {
                let next = times.iter().find(|(from, _)| *from > start).map(|(from, _)| *from);
                return Some(next.unwrap_or(NEVER));
            }
        }
        self.closed(node, pass)
            .filter(|(from, to)| *from < end && start < *to)
            .map(|(_, to)| to)
            .max()
    }
}

/// What a reservation of cores takes of one node; none: all of it.
fn columns(reservation: &Reservation, config: &model::node::NodeConfig) -> Option<Vec<u64>> {
    let cores = *reservation.cores.get(&config.name)?;
    let mut columns = vec![0; GRES + config.gres.len()];
    columns[CORES] = u64::from(cores);
    for (name, count) in reservation.gres.get(&config.name).into_iter().flatten() {
        let line = config.gres.iter().position(|line| line.name == *name);
        line.into_iter().for_each(|line| columns[GRES + line] = *count);
    }
    Some(columns)
}

/// What `scontrol create reservation` asks for where it names no nodes.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub start: Timestamp,
    pub end: Timestamp,
    pub nodes: u32,
    /// Cores in all, spread over as few nodes as will do; zero: whole nodes.
    pub cores: u32,
    /// Position in `View::partitions`.
    pub partition: u32,
    pub features: Option<model::constraint::Constraint>,
    pub ignore_jobs: bool,
    pub overlap: bool,
}

/// Nodes for a reservation: in service, free of jobs when it begins, and in no other reservation
/// then; lowest weight first. With cores, how many of each. None: there are not enough.
pub fn choose(view: &View, now: Timestamp, wanted: &Wanted) -> Option<Vec<(String, u32)>> {
    let windows = Windows::of(view, now.millis());
    let (start, end) = (wanted.start.millis(), wanted.end.millis());
    let mut busy_until = vec![Millis::MIN; view.nodes.len()];
    for running in &view.running {
        let over = running.end.map_or(NEVER, |end| end.millis());
        for (node, _) in &running.shares {
            let until = &mut busy_until[*node as usize];
            *until = (*until).max(over);
        }
    }
    let serves = |node: &u32| {
        let info = &view.nodes[*node as usize];
        let fits = wanted.features.as_ref().is_none_or(|f| f.matches(&info.config.features));
        let idle = wanted.ignore_jobs || busy_until[*node as usize] <= start;
        let apart =
            wanted.overlap || windows.in_the_way(*node, &Pass::default(), start, end).is_none();
        crate::shape::is_in_service(info.availability) && fits && idle && apart
    };
    let mut chosen = Vec::new();
    let mut cores_left = wanted.cores;
    for &node in crate::place::candidates(view, wanted.partition).iter().filter(|n| serves(n)) {
        let config = &view.nodes[node as usize].config;
        let cores = config.usable_cpus().len() / crate::place::cores::threads(config);
        let part = if wanted.cores == 0 { cores } else { cores.min(cores_left) };
        chosen.push((config.name.clone(), part));
        cores_left = cores_left.saturating_sub(cores);
        if chosen.len() as u32 >= wanted.nodes.max(1) && cores_left == 0 {
            return Some(chosen);
        }
    }
    None
}
