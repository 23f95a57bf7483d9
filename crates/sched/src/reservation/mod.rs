//! Reservations: windows of time in which nodes are kept for somebody.
//!
//! A job that may not use a reservation runs only before or after its windows. One that asked for a
//! reservation starts only within one of its windows and on its nodes, unless the reservation is FLEX; with the window
//! it is ended, however long its limit.

mod choose;

pub use choose::{ReservationDemand, ReservedNode, choose_nodes};

use crate::free::timeline::{CORE, CORES, GRES, Millis, NEVER};
use crate::view::{PendingJob, View};
use model::reason::Reason;
use model::reservation::{Reservation, ReservationFlag as Flag, split_names};
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// Windows of one reservation that are looked at.
const WINDOWS_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationWindows {
    reservations: Vec<Arc<Reservation>>,
    times: Vec<Vec<(Millis, Millis)>>,
    /// The reservations of each node that has any, by position, with what they take of it by column;
    /// none: all.
    by_node: HashMap<u32, Vec<NodeReservation>>,
}

/// A reservation, and what it takes of one node.
type NodeReservation = (u32, Option<Vec<u64>>);

/// A part of a node that is kept: for which reservation, how much by column, and when.
pub type ReservedPortion<'w> = (u32, &'w [u64], &'w [(Millis, Millis)]);

/// Which windows a job may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ReservationAccess {
    /// Positions of reservations.
    open: Vec<u32>,
    /// It asked for these; any of them will do.
    asked: Vec<u32>,
    /// It may run into windows whose jobs can wait a little for it.
    overlaps: bool,
}

impl ReservationAccess {
    /// Whether it may not run just anywhere at any time.
    pub fn is_confined(&self) -> bool {
        !self.asked.is_empty()
    }

    pub fn asked(&self) -> &[u32] {
        &self.asked
    }
}

impl ReservationWindows {
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
        let mut by_node: HashMap<u32, Vec<NodeReservation>> = HashMap::new();
        for (reservation, at) in view.reservations.iter().zip(0u32..) {
            let nodes = reservation.nodes.iter().filter(|_| reservation.has_nodes());
            for node in nodes.filter_map(|name| index.get(name.as_str())) {
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
    pub fn access_of(&self, waiting: &PendingJob) -> ReservationAccess {
        if self.reservations.is_empty() {
            return ReservationAccess::default();
        }
        let (owner, request) = (&waiting.spec.owner, waiting.spec.request());
        let overlaps = waiting.spec.signal.is_some_and(|signal| signal.overlaps);
        let positions = || self.reservations.iter().zip(0u32..);
        if let Some(list) = &request.reservation {
            let position = |name: &str| positions().find(|(r, _)| r.name == name);
            let usable = split_names(list)
                .filter_map(position)
                .filter(|(r, _)| r.admits(owner, &waiting.account));
            let asked: Vec<u32> = usable.map(|(_, at)| at).collect();
            return ReservationAccess { open: asked.clone(), asked, overlaps };
        }
        let drawn =
            positions().filter(|(r, _)| r.has(Flag::Magnetic) && r.admits(owner, &waiting.account));
        ReservationAccess { open: drawn.map(|(_, at)| at).collect(), asked: Vec::new(), overlaps }
    }

    /// What keeps the job from its reservation, whatever the nodes.
    pub fn gate(&self, waiting: &PendingJob, now: Millis) -> Option<Reason> {
        waiting.spec.request().reservation.as_ref()?;
        let lasts = |at: &u32| {
            let mut times = self.times[*at as usize].iter();
            self.is_flex(*at) || times.any(|(start, end)| *start <= now && now < *end)
        };
        let open = self.access_of(waiting).asked.iter().any(lasts);
        (!open).then_some(Reason::Reservation)
    }

    /// When the first of the reservations that the job asked for begins.
    pub fn next_begin(&self, access: &ReservationAccess, now: Millis) -> Option<Millis> {
        let next = |at: &u32| {
            let times = &self.times[*at as usize];
            times.iter().find(|(_, end)| *end > now).map(|(start, _)| (*start).max(now))
        };
        access.asked.iter().filter_map(next).min()
    }

    pub fn touch(&self, node: u32) -> bool {
        !self.by_node.is_empty() && self.by_node.contains_key(&node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_node.keys().copied()
    }

    /// Parts of the node that are kept for others than the job, and from when to when.
    pub fn portions_of(&self, node: u32) -> impl Iterator<Item = ReservedPortion<'_>> {
        let on_node = self.by_node.get(&node).into_iter().flatten();
        on_node.filter_map(|(at, columns)| {
            Some((*at, columns.as_deref()?, self.times[*at as usize].as_slice()))
        })
    }

    /// When the next window of whole nodes begins that the job may not use, or its own ends.
    pub fn next_closed(&self, node: u32, access: &ReservationAccess, time: Millis) -> Millis {
        let own_end =
            self.is_bound(access).then(|| self.own_end(node, access, time).unwrap_or(time));
        let windows = self.closed(node, access, time);
        let others = windows.map(|(start, _)| start).filter(|start| *start > time);
        others.chain(own_end).min().unwrap_or(NEVER)
    }

    /// Whether the job may run in the windows that it asked for alone.
    fn is_bound(&self, access: &ReservationAccess) -> bool {
        access.is_confined() && !access.asked.iter().any(|at| self.is_flex(*at))
    }

    /// Those that the job asked for and that the node is of; one without nodes is everywhere.
    fn own<'p>(
        &'p self,
        node: u32,
        access: &'p ReservationAccess,
    ) -> impl Iterator<Item = u32> + 'p {
        let of_node = move |at: &u32| {
            let mut on_node = self.by_node.get(&node).into_iter().flatten();
            !self.reservations[*at as usize].has_nodes() || on_node.any(|(own, _)| own == at)
        };
        access.asked.iter().copied().filter(of_node)
    }

    /// When the job's own window on the node ends that lasts at this time.
    fn own_end(&self, node: u32, access: &ReservationAccess, time: Millis) -> Option<Millis> {
        let windows = self.own(node, access).flat_map(|at| &self.times[at as usize]);
        windows.filter(|(from, to)| *from <= time && time < *to).map(|(_, to)| *to).max()
    }

    /// Windows of the node that are closed to a job which starts at this time. Before a window that it may run into it
    /// has until the end of the delay, which its start sees to; once that has begun it is closed.
    fn closed(
        &self,
        node: u32,
        access: &ReservationAccess,
        start: Millis,
    ) -> impl Iterator<Item = (Millis, Millis)> + '_ {
        let (open, overlaps) = (access.open.clone(), access.overlaps);
        let on_node = self.by_node.get(&node).into_iter().flatten();
        on_node.filter(move |(at, columns)| columns.is_none() && !open.contains(at)).flat_map(
            move |(at, _)| {
                let (times, reservation) =
                    (&self.times[*at as usize], &self.reservations[*at as usize]);
                // Beyond the windows that are looked at nothing is promised.
                let recurs = reservation.period_ms();
                let beyond = times.last().zip(recurs).map(|((last, _), ms)| (last + ms, NEVER));
                let waits = overlaps && reservation.max_start_delay_s.is_some();
                times
                    .iter()
                    .copied()
                    .chain(beyond)
                    .filter(move |(from, _)| !waits || *from <= start)
            },
        )
    }

    /// How many of this licence are kept from the job that would run from `now` to `end`.
    pub fn licenses_reserved(
        &self,
        view: &View,
        access: &ReservationAccess,
        name: &str,
        now: Millis,
        end: Millis,
    ) -> u64 {
        let positions = self.reservations.iter().zip(&self.times).zip(0u32..);
        let closed = positions.filter(|((r, times), at)| {
            let meets = || times.iter().any(|(from, to)| *from < end && now < *to);
            !r.licenses.is_empty() && !access.open.contains(at) && meets()
        });
        closed
            .map(|((r, _), _)| {
                let own = view.running.iter().filter(|j| j.reservation.as_ref() == Some(&r.name));
                let used: u64 = own.map(|j| count(&j.licenses, name)).sum();
                count(&r.licenses, name).saturating_sub(used)
            })
            .sum()
    }

    /// Whether the node is kept from the job at this moment.
    pub fn is_closed(
        &self,
        node: u32,
        access: &ReservationAccess,
        now: Millis,
        end: Millis,
    ) -> bool {
        self.touch(node) && self.closed(node, access, now).any(|(from, to)| from < end && now < to)
    }

    pub fn is_empty(&self) -> bool {
        self.reservations.is_empty()
    }

    fn is_flex(&self, at: u32) -> bool {
        self.reservations[at as usize].has(Flag::Flex)
    }

    /// Until when something keeps the job from running on the node from `start` to `end`; `NEVER` if
    /// for good.
    pub fn blocked_until(
        &self,
        node: u32,
        access: &ReservationAccess,
        start: Millis,
        end: Millis,
    ) -> Option<Millis> {
        if self.reservations.is_empty() {
            return None;
        }
        let mut end = end;
        if self.is_bound(access) {
            let Some(own_end) = self.own_end(node, access, start) else {
                let later = self.own(node, access).flat_map(|at| &self.times[at as usize]);
                return later
                    .map(|(from, _)| *from)
                    .filter(|from| *from > start)
                    .min()
                    .or(Some(NEVER));
            };
            end = end.min(own_end);
        }
        self.closed(node, access, start)
            .filter(|(from, to)| *from < end && start < *to)
            .map(|(_, to)| to)
            .max()
    }
}

/// How many of this licence a list names.
fn count(list: &[(String, u32)], name: &str) -> u64 {
    list.iter().filter(|(own, _)| own == name).map(|(_, count)| u64::from(*count)).sum()
}

/// What a reservation of cores takes of one node; none: all of it.
fn columns(reservation: &Reservation, config: &model::node::NodeConfig) -> Option<Vec<u64>> {
    let cores = *reservation.cores.get(&config.name)?;
    let mut columns = vec![0; GRES + config.gres.len()];
    columns[CORES] = u64::from(cores) * CORE;
    for (name, count) in reservation.gres.get(&config.name).into_iter().flatten() {
        let line = config.gres.iter().position(|line| line.name == *name);
        line.into_iter().for_each(|line| columns[GRES + line] = *count);
    }
    Some(columns)
}
