//! Advance reservations: windows of time in which nodes are for certain users only.
//!
//! A job that may not use a reservation runs only before or after its windows. A job that asked for a reservation starts
//! only within one of its windows and on its nodes, unless the reservation is FLEX; it is ended with the window, however
//! long its time limit.

mod choose;

pub use choose::{ReservationDemand, ReservedNode, choose_nodes};

use crate::free::timeline::{CORE, CORES, GRES, Millis, NEVER};
use crate::index::ReservationIndex;
use crate::view::{PendingJob, View};
use foldhash::fast::RandomState;
use model::reason::Reason;
use model::reservation::{Reservation, ReservationFlag as Flag, split_names};
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;

/// How many windows of one reservation are looked at.
const WINDOWS_MAX: usize = 16;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationWindows {
    reservations: Vec<Arc<Reservation>>,
    times: Vec<Vec<(Millis, Millis)>>,
    /// For each node its reservations, by index, with what each takes of the node.
    by_node: HashMap<u32, Vec<NodeReservation>, RandomState>,
}

/// A reservation by index, and what it takes of one node by column; `None` for all of it.
type NodeReservation = (ReservationIndex, Option<Vec<u64>>);

/// A reservation of a part of a node: the reservation by index, how much by column, and when.
pub type ReservedPortion<'w> = (ReservationIndex, &'w [u64], &'w [(Millis, Millis)]);

/// Which reservations a job may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ReservationAccess {
    /// Indices of the reservations that it may use.
    open: Vec<ReservationIndex>,
    /// The reservations that it asked for; any of them will do.
    asked: Vec<ReservationIndex>,
    /// The job may run into windows with a `MaxStartDelay`.
    overlaps: bool,
}

impl ReservationAccess {
    /// Whether the job asked for a reservation.
    pub fn is_confined(&self) -> bool {
        !self.asked.is_empty()
    }

    pub fn asked(&self) -> &[ReservationIndex] {
        &self.asked
    }
}

impl ReservationWindows {
    pub fn of(view: &View, now: Millis) -> Self {
        if view.reservations.is_empty() {
            return Self::default();
        }
        let index: HashMap<&str, u32, RandomState> = view
            .nodes
            .iter()
            .zip(0u32..)
            .map(|(node, at)| (node.config.name.as_str(), at))
            .collect();
        let mut by_node: HashMap<u32, Vec<NodeReservation>, RandomState> = HashMap::default();
        for (reservation, at) in view.reservations.iter().zip(ReservationIndex::all()) {
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

    /// The reservations that a job may use: those that it asked for, else the MAGNETIC ones that admit it.
    pub fn access_of(&self, waiting: &PendingJob) -> ReservationAccess {
        if self.reservations.is_empty() {
            return ReservationAccess::default();
        }
        let (owner, request) = (&waiting.spec.owner, waiting.spec.request());
        let overlaps = waiting.spec.signal.is_some_and(|signal| signal.overlaps);
        let positions = || self.reservations.iter().zip(ReservationIndex::all());
        if let Some(list) = &request.reservation {
            let position = |name: &str| positions().find(|(r, _)| r.name == name);
            let usable = split_names(list)
                .filter_map(position)
                .filter(|(r, _)| r.admits(owner, &waiting.account));
            let asked: Vec<ReservationIndex> = usable.map(|(_, at)| at).collect();
            return ReservationAccess { open: asked.clone(), asked, overlaps };
        }
        let drawn =
            positions().filter(|(r, _)| r.has(Flag::Magnetic) && r.admits(owner, &waiting.account));
        ReservationAccess { open: drawn.map(|(_, at)| at).collect(), asked: Vec::new(), overlaps }
    }

    /// Why the job cannot start in the reservation that it asked for now, whatever nodes are free.
    pub fn gate(&self, waiting: &PendingJob, now: Millis) -> Option<Reason> {
        waiting.spec.request().reservation.as_ref()?;
        let lasts = |at: &ReservationIndex| {
            let mut times = self.times[at.at()].iter();
            self.is_flex(*at) || times.any(|(start, end)| *start <= now && now < *end)
        };
        let open = self.access_of(waiting).asked.iter().any(lasts);
        (!open).then_some(Reason::Reservation)
    }

    /// When the next window of the reservations that the job asked for begins, or now within one.
    pub fn next_begin(&self, access: &ReservationAccess, now: Millis) -> Option<Millis> {
        let next = |at: &ReservationIndex| {
            let times = &self.times[at.at()];
            times.iter().find(|(_, end)| *end > now).map(|(start, _)| (*start).max(now))
        };
        access.asked.iter().filter_map(next).min()
    }

    /// When the last of the windows that are known ends, or those that are not known begin.
    pub fn last_change(&self) -> Millis {
        let last_of = |(reservation, times): (&Arc<Reservation>, &Vec<(Millis, Millis)>)| {
            let end = times.iter().map(|(_, end)| *end).max()?;
            let beyond = times.last().zip(reservation.period_ms());
            Some(beyond.map_or(end, |((last, _), ms)| end.max(last + ms)))
        };
        let all = self.reservations.iter().zip(&self.times);
        all.filter_map(last_of).max().unwrap_or(Millis::MIN)
    }

    pub fn touch(&self, node: u32) -> bool {
        !self.by_node.is_empty() && self.by_node.contains_key(&node)
    }

    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_node.keys().copied()
    }

    /// The reservations of parts of the node.
    pub fn portions_of(&self, node: u32) -> impl Iterator<Item = ReservedPortion<'_>> {
        let on_node = self.by_node.get(&node).into_iter().flatten();
        on_node.filter_map(|(at, columns)| {
            Some((*at, columns.as_deref()?, self.times[at.at()].as_slice()))
        })
    }

    /// When the next window of the whole node begins that the job may not use, or its own ends.
    pub fn next_closed(&self, node: u32, access: &ReservationAccess, time: Millis) -> Millis {
        if self.reservations.is_empty() {
            return NEVER;
        }
        let own_end =
            self.is_bound(access).then(|| self.own_end(node, access, time).unwrap_or(time));
        let windows = self.closed(node, access, time);
        let others = windows.map(|(start, _)| start).filter(|start| *start > time);
        others.chain(own_end).min().unwrap_or(NEVER)
    }

    /// Whether the job may run only in the windows that it asked for.
    fn is_bound(&self, access: &ReservationAccess) -> bool {
        access.is_confined() && !access.asked.iter().any(|at| self.is_flex(*at))
    }

    /// The reservations that the job asked for and that have the node. A reservation without nodes has all.
    fn own<'p>(
        &'p self,
        node: u32,
        access: &'p ReservationAccess,
    ) -> impl Iterator<Item = ReservationIndex> + 'p {
        let of_node = move |at: &ReservationIndex| {
            let mut on_node = self.by_node.get(&node).into_iter().flatten();
            !self.reservations[at.at()].has_nodes() || on_node.any(|(own, _)| own == at)
        };
        access.asked.iter().copied().filter(of_node)
    }

    /// When the job's own window on the node ends, if there is one at this time.
    fn own_end(&self, node: u32, access: &ReservationAccess, time: Millis) -> Option<Millis> {
        let windows = self.own(node, access).flat_map(|at| &self.times[at.at()]);
        windows.filter(|(from, to)| *from <= time && time < *to).map(|(_, to)| *to).max()
    }

    /// Windows of the node that are closed to a job which starts at this time. A window with a `MaxStartDelay` that the
    /// job may run into is closed only once it has begun: the job's start sees to it that it ends within the delay.
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
                let (times, reservation) = (&self.times[at.at()], &self.reservations[at.at()]);
                // A recurring reservation counts as closed for good after the windows that are looked at.
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

    /// How many of this license are reserved for others while the job would run from `now` to `end`.
    pub fn licenses_reserved(
        &self,
        view: &View,
        access: &ReservationAccess,
        name: &str,
        now: Millis,
        end: Millis,
    ) -> u64 {
        let positions = self.reservations.iter().zip(&self.times).zip(ReservationIndex::all());
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

    /// Whether a window closes the node to a job that would run from `now` to `end`.
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

    fn is_flex(&self, at: ReservationIndex) -> bool {
        self.reservations[at.at()].has(Flag::Flex)
    }

    /// Until when a window keeps the job from running on the node from `start` to `end`; `NEVER` if for good, `None` if
    /// nothing does.
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
                let later = self.own(node, access).flat_map(|at| &self.times[at.at()]);
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

/// How many of this license a list names.
fn count(list: &[(String, u32)], name: &str) -> u64 {
    list.iter().filter(|(own, _)| own == name).map(|(_, count)| u64::from(*count)).sum()
}

/// What a reservation takes of one node by column; `None` for all of it.
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
