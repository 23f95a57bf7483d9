//! What is free now and later: the nodes as they stand, the ends of what runs, and the reservations
//! made in this plan.
//!
//! A job that starts now and runs until `e` may use of a node what is free now and, at the start of
//! every reservation before `e`, would still be left beside it. Between those moments resources
//! only come free.

use crate::free::{Holder, NodeFree};
use crate::place::{Placement, Space};
use crate::view::{Availability, Running, View};
use model::allocation::NodeShare;
use model::id::JobId;
use model::node::NodeConfig;
use model::time::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// When something ends; none is never, and later than any time.
pub type End = Option<Timestamp>;

fn is_before(time: Timestamp, end: End) -> bool {
    end.is_none_or(|end| time < end)
}

pub struct Profile<'a> {
    view: &'a View,
    now: Timestamp,
    free: Vec<NodeFree>,
    /// Those that have an end, by when it comes.
    releases: BTreeMap<Timestamp, Vec<Release<'a>>>,
    reservations: Vec<Reservation>,
    /// For each node the positions of the reservations on it.
    reserved_on: Vec<Vec<usize>>,
    /// For each partition how many of its nodes could still start something.
    open: Vec<u32>,
    partitions_of: Vec<Vec<u32>>,
}

struct Release<'a> {
    shares: Cow<'a, [(u32, NodeShare)]>,
    holder: Holder,
}

struct Reservation {
    job: JobId,
    start: Timestamp,
    end: End,
    placement: Placement,
    holder: Holder,
    /// For each of its nodes what is left beside it, and beside the others that hold then, at its
    /// start.
    left: BTreeMap<u32, NodeFree>,
}

impl Reservation {
    fn holds_at(&self, time: Timestamp) -> bool {
        self.start <= time && is_before(time, self.end)
    }
}

impl<'a> Profile<'a> {
    pub fn new(view: &'a View, now: Timestamp) -> Self {
        let free = free_now(view);
        let mut releases: BTreeMap<Timestamp, Vec<Release<'a>>> = BTreeMap::new();
        for running in &view.running {
            if let Some(end) = running.end {
                let shares = Cow::Borrowed(running.shares.as_slice());
                let release = Release { shares, holder: holder_of(view, running) };
                // One that is over its time will end, but has not yet.
                releases.entry(end.max(now)).or_default().push(release);
            }
        }
        let mut partitions_of = vec![Vec::new(); view.nodes.len()];
        let mut open = vec![0; view.partitions.len()];
        for (at, partition) in view.partitions.iter().enumerate() {
            for &node in &partition.nodes {
                let Some(info) = view.nodes.get(node as usize) else { continue };
                if info.availability == Availability::Available && !free[node as usize].is_closed()
                {
                    open[at] += 1;
                    partitions_of[node as usize].push(at as u32);
                }
            }
        }
        let reserved_on = vec![Vec::new(); view.nodes.len()];
        Self {
            view,
            now,
            free,
            releases,
            reservations: Vec::new(),
            reserved_on,
            open,
            partitions_of,
        }
    }

    /// Whether any node of the partition could start anything.
    pub fn has_open_nodes(&self, partition: u32) -> bool {
        self.open.get(partition as usize).is_some_and(|count| *count > 0)
    }

    pub fn holds_reservation(&self, job: JobId) -> bool {
        self.reservations.iter().any(|r| r.job == job && !r.left.is_empty())
    }

    /// The space for `job` from now to `end`; what is reserved for the job itself is not in its
    /// way.
    pub fn until(&self, job: JobId, end: End) -> Until<'_, 'a> {
        Until { profile: self, job, end }
    }

    /// The job runs from now to `end`.
    pub fn start(&mut self, placement: &Placement, holder: Holder, end: End) {
        for (node, share) in &placement.shares {
            let config = &self.view.nodes[*node as usize].config;
            let free = &mut self.free[*node as usize];
            free.take(config, share, holder);
            if free.is_closed() {
                for partition in std::mem::take(&mut self.partitions_of[*node as usize]) {
                    self.open[partition as usize] -= 1;
                }
            }
        }
        if let Some(end) = end {
            let shares = Cow::Owned(placement.shares.clone());
            self.releases.entry(end).or_default().push(Release { shares, holder });
        }
        self.leave_less(placement, holder, self.now, end);
    }

    /// Takes the place of a job that will start later.
    pub fn reserve(
        &mut self,
        job: JobId,
        start: Timestamp,
        end: End,
        placement: Placement,
        holder: Holder,
    ) {
        let mut at_start = self.at(start, placement.shares.iter().map(|(node, _)| *node));
        at_start.take_active(start, job);
        let left = placement.shares.iter().filter_map(|(node, share)| {
            let mut free = at_start.free[*node as usize].take()?;
            free.take(&self.view.nodes[*node as usize].config, share, holder);
            Some((*node, free))
        });
        let left = left.collect();
        self.leave_less(&placement, holder, start, end);
        for (node, _) in &placement.shares {
            self.reserved_on[*node as usize].push(self.reservations.len());
        }
        self.reservations.push(Reservation { job, start, end, placement, holder, left });
    }

    /// The job needs its reservation no more: it starts now, or has an earlier one through another
    /// partition.
    pub fn cancel(&mut self, job: JobId) {
        for reservation in self.reservations.iter_mut().filter(|r| r.job == job) {
            reservation.placement.shares.clear();
            reservation.left.clear();
        }
    }

    /// The moments at which something comes free, in order.
    pub fn moments(&self) -> Vec<Timestamp> {
        let mut moments: Vec<Timestamp> = self.releases.keys().copied().collect();
        moments.extend(self.reservations.iter().filter_map(|r| r.end));
        moments.sort_unstable();
        moments.dedup();
        moments
    }

    /// These nodes at a later time, reservations not counted.
    pub fn at(&self, time: Timestamp, nodes: impl Iterator<Item = u32>) -> Later<'_, 'a> {
        let mut free: Vec<Option<NodeFree>> = vec![None; self.free.len()];
        for node in nodes {
            free[node as usize] = Some(self.free[node as usize].clone());
        }
        for release in self.releases.range(..=time).flat_map(|(_, releases)| releases) {
            for (node, share) in release.shares.iter() {
                if let Some(free) = free.get_mut(*node as usize).and_then(Option::as_mut) {
                    let config = &self.view.nodes[*node as usize].config;
                    free.release(config, share, release.holder);
                }
            }
        }
        Later { profile: self, free }
    }

    /// What runs from `start` to `end` is in the way of those whose time begins in between.
    fn leave_less(&mut self, placement: &Placement, holder: Holder, start: Timestamp, end: End) {
        for (node, share) in &placement.shares {
            for &at in &self.reserved_on[*node as usize] {
                let other = &mut self.reservations[at];
                if start <= other.start
                    && is_before(other.start, end)
                    && let Some(left) = other.left.get_mut(node)
                {
                    left.take(&self.view.nodes[*node as usize].config, share, holder);
                }
            }
        }
    }

    fn is_available(&self, node: u32) -> bool {
        self.view.nodes[node as usize].availability == Availability::Available
    }
}

/// The nodes as they stand, with the jobs of each user counted: the view's sets say only who is
/// there.
fn free_now(view: &View) -> Vec<NodeFree> {
    let mut free: Vec<NodeFree> = view.nodes.iter().map(|node| NodeFree::of(node)).collect();
    let mut seen: HashSet<(u32, u32)> = HashSet::new();
    for running in &view.running {
        for (node, _) in &running.shares {
            let Some(NodeFree { users, .. }) = free.get_mut(*node as usize) else { continue };
            if let Ok(at) = users.binary_search_by_key(&running.uid, |(uid, _)| *uid)
                && !seen.insert((*node, running.uid))
            {
                users[at].1 += 1;
            }
        }
    }
    free
}

fn holder_of(view: &View, running: &Running) -> Holder {
    let first = running.shares.first().and_then(|(node, _)| view.nodes.get(*node as usize));
    Holder {
        uid: running.uid,
        whole_node: running.exclusive,
        user_exclusive: first.is_some_and(|node| {
            node.used.user_exclusive.iter().any(|(job, _)| *job == running.job)
        }),
    }
}

/// The nodes as a job sees them that would run from now to an end.
pub struct Until<'p, 'a> {
    profile: &'p Profile<'a>,
    job: JobId,
    end: End,
}

impl Space for Until<'_, '_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.profile.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        if !self.profile.is_available(node) {
            return None;
        }
        let mut free = Cow::Borrowed(&self.profile.free[node as usize]);
        for &at in &self.profile.reserved_on[node as usize] {
            let reservation = &self.profile.reservations[at];
            if reservation.job != self.job
                && is_before(reservation.start, self.end)
                && let Some(left) = reservation.left.get(&node)
            {
                free.to_mut().meet(left);
            }
        }
        Some(free)
    }
}

/// Some of the nodes as they will be.
pub struct Later<'p, 'a> {
    profile: &'p Profile<'a>,
    free: Vec<Option<NodeFree>>,
}

impl Later<'_, '_> {
    /// Takes away what is reserved for others, for a job that would run from `start` to `end`.
    pub fn beside_reservations(&mut self, job: JobId, start: Timestamp, end: End) {
        self.take_active(start, job);
        for reservation in self.profile.reservations.iter().filter(|r| r.job != job) {
            if start < reservation.start && is_before(reservation.start, end) {
                for (node, left) in &reservation.left {
                    if let Some(free) = &mut self.free[*node as usize] {
                        free.meet(left);
                    }
                }
            }
        }
    }

    fn take_active(&mut self, time: Timestamp, job: JobId) {
        let others = self.profile.reservations.iter().filter(|r| r.job != job);
        for reservation in others.filter(|r| r.holds_at(time)) {
            for (node, share) in &reservation.placement.shares {
                if let Some(free) = &mut self.free[*node as usize] {
                    let config = &self.profile.view.nodes[*node as usize].config;
                    free.take(config, share, reservation.holder);
                }
            }
        }
    }
}

impl Space for Later<'_, '_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.profile.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let free = self.free[node as usize].as_ref()?;
        self.profile.is_available(node).then_some(Cow::Borrowed(free))
    }
}
