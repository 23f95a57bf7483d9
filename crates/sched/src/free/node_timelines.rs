//! The timelines of all nodes during one plan: what runs, and what this plan has started or reserved.
//!
//! The timelines of what runs belong to the memo. A node's timeline is copied when the plan first changes it.

use crate::free::backfill_slot::{BackfillSlot, end_of};
use crate::free::class::NodeClasses;
use crate::free::cores;
use crate::free::needs::NodeNeeds;
use crate::free::node_free::{GresLineFree, NodeFree, ShareHolder, gpus_shared_by};
use crate::free::timeline::{
    BEGINNING, GRES, MEMORY, Millis, Occupancy, Timeline, Users, columns_of,
};
use crate::free::timeline::{CORE, CORES, NEVER};
use crate::index::{ClassIndex, Rank, ReservationIndex};
use crate::memo::{Baseline, NodeNow, NodeScratch};
use crate::place::{FreeNodes, Placement};
use crate::reservation::{ReservationAccess, ReservationWindows};
use crate::view::{Availability, RunningJob, View};
use foldhash::fast::RandomState;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::gres::GPU;
use model::node::NodeConfig;
use model::price::Price;
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct NodeTimelines<'a> {
    pub view: &'a View,
    pub now: Millis,
    baseline: &'a Baseline,
    pub classes: &'a NodeClasses,
    base: &'a [Timeline],
    /// For each node the position of its timeline in `modified`, counted from one; zero while it is not modified.
    modified_at: &'a mut Vec<u32>,
    modified: &'a mut Vec<Timeline>,
    modified_used: usize,
    /// For each node how often this plan has changed its timeline.
    versions: &'a mut Vec<u32>,
    /// How often this plan has changed any timeline.
    pub modifications: u64,
    /// The nodes that were compared for all jobs that this plan starts.
    pub compared_nodes: usize,
    /// The very cores and devices that are free now, for nodes that this plan has looked into.
    free_now: HashMap<u32, NodeFree, RandomState>,
    /// How often something was released. A release makes times that were found before it possibly too late.
    pub releases: u32,
    /// Nodes that a preempted job will leave before its time limit.
    pub vacated: HashSet<u32>,
    pub windows: &'a ReservationWindows,
    /// The unused amounts of reservations of parts of nodes, by node and reservation.
    unused_portions: HashMap<(u32, ReservationIndex), Vec<u64>>,
    /// The nodes that this plan has reserved for backfill slots, in the order of the queue; some slots may be released since.
    reserved: Vec<u32>,
    is_reserved: &'a mut Vec<bool>,
    /// Where narrow jobs count as ended first: for each node the job that this plan starts there, and its end.
    started: HashMap<u32, Vec<(Millis, EndingJob)>>,
}

/// A job whose expected end frees a node, in the order in which jobs with the same end count as ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndingJob {
    node_count: u32,
    /// Jobs that run have their ids; those that this plan starts are counted.
    is_started_now: bool,
    number: u64,
}

/// The order in which a backfill slot takes the nodes that serve at its start: by weight and price as every placement does,
/// then those that are busy now. What is free now is left to jobs that start now and run on into the slot's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRank {
    weight: u32,
    price: Price,
    free_now: bool,
    pub rank: Rank,
}

impl SlotRank {
    /// The rank that the node would have if it were busy now.
    pub fn if_busy(self) -> Self {
        Self { free_now: false, ..self }
    }
}

/// The state of some nodes, to go back to.
pub struct Checkpoint {
    nodes: Vec<(u32, Timeline, Option<NodeFree>)>,
    unused_portions: HashMap<(u32, ReservationIndex), Vec<u64>>,
}

/// The holder of amounts that are reserved for an advance reservation.
const NOBODY: ShareHolder = ShareHolder { uid: u32::MAX, whole_node: false, user_exclusive: false };

impl<'a> NodeTimelines<'a> {
    pub fn new(
        view: &'a View,
        now: Millis,
        baseline: &'a Baseline,
        scratch: &'a mut NodeScratch,
        windows: &'a ReservationWindows,
    ) -> Self {
        let (classes, base) = (&baseline.classes, &baseline.timelines);
        let NodeScratch { modified, modified_at, versions, is_reserved } = scratch;
        for list in [&mut *modified_at, &mut *versions] {
            list.clear();
            list.resize(base.len(), 0);
        }
        is_reserved.clear();
        is_reserved.resize(base.len(), false);
        let mut timelines = Self {
            view,
            now,
            baseline,
            classes,
            base,
            modified_at,
            modified,
            modified_used: 0,
            versions,
            modifications: 0,
            compared_nodes: 0,
            free_now: HashMap::default(),
            releases: 0,
            vacated: HashSet::new(),
            windows,
            unused_portions: HashMap::new(),
            reserved: Vec::new(),
            is_reserved,
            started: HashMap::new(),
        };
        timelines.reserve_portions();
        timelines
    }

    /// Takes what reservations of parts of nodes do not use themselves.
    fn reserve_portions(&mut self) {
        let windows = self.windows;
        for node in windows.nodes() {
            for (at, columns, times) in windows.portions_of(node) {
                let left = self.unused_portion(node, at, columns);
                for &(start, end) in times {
                    let start = if start <= self.now { BEGINNING } else { start };
                    self.modified(node).take(start, end, &left, NOBODY);
                }
                self.unused_portions.insert((node, at), left);
            }
        }
    }

    fn unused_portion(
        &self,
        node: u32,
        reservation: ReservationIndex,
        columns: &[u64],
    ) -> Vec<u64> {
        let name = &self.view.reservations[reservation.at()].name;
        let inside = |running: &&Arc<RunningJob>| running.reservation.as_ref() == Some(name);
        let mut left = columns.to_vec();
        for running in self.view.running.iter().filter(inside) {
            for (_, share) in running.shares.iter().filter(|(on, _)| *on == node) {
                let used = columns_of(self.config(node), share);
                left.iter_mut()
                    .zip(used)
                    .for_each(|(left, used)| *left = left.saturating_sub(used));
            }
        }
        left
    }

    /// What a job in a reservation may use of the node beyond what is free for everybody.
    fn reserved_extra(&self, node: u32, access: &ReservationAccess) -> Option<&Vec<u64>> {
        access.asked().iter().find_map(|at| self.unused_portions.get(&(node, *at)))
    }

    /// A job uses its reservation's unused amounts first.
    fn use_reserved_portion(&mut self, node: u32, access: &ReservationAccess, amounts: &[u64]) {
        let mut asked = access.asked().iter().copied();
        let Some(at) = asked.find(|at| self.unused_portions.contains_key(&(node, *at))) else {
            return;
        };
        let Some(left) = self.unused_portions.get_mut(&(node, at)) else { return };
        let back: Vec<u64> = left.iter().zip(amounts).map(|(l, amount)| *l.min(amount)).collect();
        left.iter_mut().zip(&back).for_each(|(l, back)| *l -= back);
        let now = self.now;
        let times: Vec<(Millis, Millis)> = self
            .windows
            .portions_of(node)
            .filter(|(other, _, _)| *other == at)
            .flat_map(|(_, _, times)| times.iter().copied())
            .collect();
        for (start, end) in times {
            let start = if start <= now { BEGINNING } else { start };
            self.modified(node).give(start, end, &back);
        }
    }

    pub fn of_node(&self, node: u32) -> &Timeline {
        match self.modified_at[node as usize] {
            0 => &self.base[node as usize],
            at => &self.modified[at as usize - 1],
        }
    }

    /// Whether the memo's times for the node hold in this plan.
    pub fn is_unchanged(&self, node: u32) -> bool {
        self.modified_at[node as usize] == 0 && !self.windows.touch(node)
    }

    /// The node with what is free of it now.
    pub fn node_now(&self, node: u32) -> NodeNow<'_> {
        let timeline = self.of_node(node);
        NodeNow {
            node,
            is_unchanged: self.modified_at[node as usize] == 0,
            class: self.class(node),
            free: timeline.free(timeline.at(self.now)),
        }
    }

    pub fn version(&self, node: u32) -> u32 {
        self.versions[node as usize]
    }

    pub fn class(&self, node: u32) -> ClassIndex {
        self.classes.of[node as usize]
    }

    pub fn config(&self, node: u32) -> &'a NodeConfig {
        &self.view.nodes[node as usize].config
    }

    pub fn is_available(&self, node: u32) -> bool {
        self.availability(node).takes_jobs()
    }

    pub fn availability(&self, node: u32) -> Availability {
        self.baseline.availability[node as usize]
    }

    /// The nodes on which a core is free now, before this plan takes any.
    pub fn nodes_with_free_cores(&self) -> Vec<u32> {
        self.baseline.nodes_with_free_cores().filter(|node| self.is_available(*node)).collect()
    }

    /// Whether of jobs that are expected to end at the same moment the narrow ones count as ended first.
    pub fn narrow_jobs_end_first(&self) -> bool {
        self.view.policy.backfill_limits.narrow_jobs_end_first
    }

    /// The job on the node that is expected to end at this moment, if there is one; of several the last that counts as ended.
    pub fn ending_job(&self, node: u32, time: Millis) -> Option<EndingJob> {
        let started = self.started.get(&node).into_iter().flatten();
        let started = started.filter(|(end, _)| *end == time).map(|(_, job)| *job);
        let on_node = self.baseline.on_node(node).iter().map(|(running, _)| running);
        let ends_then =
            |running: &&Arc<RunningJob>| running.end.map(|end| end.millis()) == Some(time);
        let running = on_node.filter(ends_then).map(|running| EndingJob {
            node_count: running.shares.count() as u32,
            is_started_now: false,
            number: u64::from(running.job.0),
        });
        started.chain(running).max()
    }

    /// When the last of all nodes or reservations changes: after it, everything stays as it is.
    pub fn last_change(&self) -> Millis {
        let of_nodes = (0..self.base.len() as u32).map(|node| self.of_node(node).last_change());
        of_nodes.max().unwrap_or(BEGINNING).max(self.windows.last_change())
    }

    /// The nodes that this plan has reserved for backfill slots.
    pub fn reserved_nodes(&self) -> &[u32] {
        &self.reserved
    }

    pub fn weight_and_price(&self, node: u32) -> (u32, Price) {
        let config = &self.classes.samples[self.class(node).at()];
        (config.weight, config.price.unwrap_or_default())
    }

    /// Until when the job could stay on the node if it started now: until a slot or an advance reservation needs it.
    pub fn free_until(&self, node: u32, needs: &NodeNeeds, access: &ReservationAccess) -> Millis {
        let class = self.class(node);
        let fits = |free: &[u64], there: &Occupancy| needs.fits(class, free, there);
        let until = self.of_node(node).fits_until(self.now, fits);
        until.min(self.windows.next_closed(node, access, self.now))
    }

    /// The node's rank among those that serve at the start of a slot. It does not change as time passes, as long as the
    /// node's timeline is the same: the first segment is what is there now.
    pub fn slot_rank(&self, node: u32, needs: &NodeNeeds, rank: Rank) -> SlotRank {
        let timeline = self.of_node(node);
        let free_now = needs.fits(self.class(node), timeline.free(0), timeline.presence(0));
        let (weight, price) = self.weight_and_price(node);
        SlotRank { weight, price, free_now, rank }
    }

    /// When the job fits on the node from `from` on, for `length`; `None` if never.
    pub fn earliest(
        &self,
        node: u32,
        needs: &NodeNeeds,
        access: &ReservationAccess,
        from: Millis,
        length: Millis,
    ) -> Option<Millis> {
        if !self.is_available(node) {
            return None;
        }
        let class = self.class(node);
        let timeline = self.of_node(node);
        let extra = self.reserved_extra(node, access);
        let fits = |free: &[u64], there: &Occupancy| match extra {
            None => needs.fits(class, free, there),
            Some(extra) => {
                let more: Vec<u64> = free.iter().zip(extra).map(|(free, e)| free + e).collect();
                needs.fits(class, &more, there)
            }
        };
        let mut from = from;
        loop {
            let start = timeline.earliest(from, length, fits)?;
            // Each round passes one window, so the loop ends.
            match self.windows.blocked_until(node, access, start, end_of(start, length)) {
                None => return Some(start),
                Some(NEVER) => return None,
                Some(over) => from = over,
            }
        }
    }

    /// Whether the job fits on the node from now on, for `length`. When it fits later is not looked for: most nodes that are
    /// asked are busy.
    pub fn serves_now(
        &self,
        node: u32,
        needs: &NodeNeeds,
        access: &ReservationAccess,
        length: Millis,
    ) -> bool {
        let timeline = self.of_node(node);
        let at = timeline.at(self.now);
        let fits_now = || needs.fits(self.class(node), timeline.free(at), timeline.presence(at));
        // A job may have more of a node than what is free for everybody where a reservation lets it.
        (self.windows.touch(node) || fits_now())
            && self.earliest(node, needs, access, self.now, length) == Some(self.now)
    }

    /// The very cores and devices that are free now.
    pub fn free_now(&mut self, node: u32) -> &NodeFree {
        let info = &self.view.nodes[node as usize];
        let empty = &self.classes.empty_nodes[self.classes.of[node as usize].at()];
        self.free_now.entry(node).or_insert_with(|| empty.clone().without_used(info))
    }

    /// What a job that starts at `start` may use of a node until its end.
    pub fn free_through(
        &mut self,
        node: u32,
        access: &ReservationAccess,
        start: Millis,
        length: Millis,
    ) -> NodeFree {
        let (mut least, there) = self.of_node(node).least_free(start, end_of(start, length));
        if let Some(extra) = self.reserved_extra(node, access) {
            least.iter_mut().zip(extra).for_each(|(least, extra)| *least += extra);
        }
        let free = if start <= self.now {
            self.free_now(node).clone()
        } else {
            self.classes.empty_nodes[self.class(node).at()].clone()
        };
        limited_to_amounts(free, &least, &there, self.config(node))
    }

    /// What a timeline of the node leaves free from now on, as on an empty node: the ids mean nothing.
    pub fn free_by_amounts(&self, node: u32, timeline: &Timeline, length: Millis) -> NodeFree {
        let (least, there) = timeline.least_free(self.now, end_of(self.now, length));
        limited_to_amounts(NodeFree::empty(self.config(node)), &least, &there, self.config(node))
    }

    /// How much later than it is granted them a job on these nodes may begin.
    pub fn boot_delay(&self, mut nodes: impl Iterator<Item = u32>) -> Millis {
        let boots = |node: u32| {
            matches!(self.availability(node), Availability::PoweringUp | Availability::PoweredDown)
        };
        if nodes.any(boots) { 1000 * Millis::from(self.view.policy.resume_timeout_s) } else { 0 }
    }

    /// Takes the placement from now on.
    pub fn start(
        &mut self,
        placement: &Placement,
        holder: ShareHolder,
        access: &ReservationAccess,
        length: Millis,
    ) {
        let end = end_of(self.now, length);
        if self.narrow_jobs_end_first() {
            let job = EndingJob {
                node_count: placement.shares.len() as u32,
                is_started_now: true,
                number: self.modifications,
            };
            for (node, _) in &placement.shares {
                self.started.entry(*node).or_default().push((end, job));
            }
        }
        for (node, share) in &placement.shares {
            assert!(self.is_available(*node), "a job starts on an available node");
            let config = self.config(*node);
            let mut amounts = columns_of(config, share);
            add_first_gpu_shares(&mut amounts, config, share, self.free_now(*node));
            if let Some(exact) = self.free_now.get_mut(node) {
                exact.take(config, share, holder);
            }
            self.use_reserved_portion(*node, access, &amounts);
            self.modified(*node).take(BEGINNING, end, &amounts, holder);
        }
    }

    /// A job that holds these amounts until `until` will leave early. Its very cores and devices are not free before it
    /// has left.
    pub fn vacate(&mut self, node: u32, until: Millis, amounts: &[u64]) {
        self.releases += 1;
        self.vacated.insert(node);
        self.modified(node).give(BEGINNING, until, amounts);
    }

    /// A suspended job takes its cores again.
    pub fn resume(&mut self, running: &RunningJob, end: Millis) {
        for (node, share) in running.shares.iter() {
            let config = self.config(node);
            self.free_now(node);
            if let Some(exact) = self.free_now.get_mut(&node) {
                exact.cpus.subtract(&share.cpus);
            }
            let mut amounts = columns_of(config, share);
            amounts[CORES + 1..].fill(0);
            let end = end.max(self.now + 1);
            self.modified(node).take(BEGINNING, end, &amounts, NOBODY);
        }
    }

    pub fn reserve(&mut self, kept: &BackfillSlot, holder: ShareHolder) {
        self.reserved.reserve(kept.amounts.len());
        for (node, amounts) in &kept.amounts {
            if !std::mem::replace(&mut self.is_reserved[*node as usize], true) {
                self.reserved.push(*node);
            }
            self.modified(*node).take(kept.start, kept.end, amounts, holder);
        }
    }

    pub fn release(&mut self, kept: &BackfillSlot) {
        self.releases += 1;
        for (node, amounts) in &kept.amounts {
            self.modified(*node).give(kept.start, kept.end, amounts);
        }
    }

    /// Saves the state of these nodes.
    pub fn checkpoint(&self, nodes: impl Iterator<Item = u32>) -> Checkpoint {
        let one = |node| (node, self.of_node(node).clone(), self.free_now.get(&node).cloned());
        Checkpoint {
            nodes: nodes.map(one).collect(),
            unused_portions: self.unused_portions.clone(),
        }
    }

    /// Undoes everything that was taken of these nodes since the checkpoint.
    pub fn restore(&mut self, saved: Checkpoint) {
        self.releases += 1;
        for (node, timeline, exact) in saved.nodes {
            self.modified(node).clone_from(&timeline);
            match exact {
                Some(exact) => self.free_now.insert(node, exact),
                None => self.free_now.remove(&node),
            };
        }
        self.unused_portions = saved.unused_portions;
    }

    fn modified(&mut self, node: u32) -> &mut Timeline {
        self.versions[node as usize] += 1;
        self.modifications += 1;
        if self.modified_at[node as usize] == 0 {
            // The timeline of an earlier plan has its allocations already.
            let base = &self.base[node as usize];
            match self.modified.get_mut(self.modified_used) {
                Some(spare) => spare.clone_from(base),
                None => self.modified.push(base.clone()),
            }
            self.modified_used += 1;
            self.modified_at[node as usize] = self.modified_used as u32;
        }
        &mut self.modified[self.modified_at[node as usize] as usize - 1]
    }
}

/// The first share of a GPU takes it from those who want it whole, the last to end releases it. The amounts do not know
/// which job that will be, so that they may say a little too much; the very devices decide at the start.
fn add_first_gpu_shares(
    amounts: &mut [u64],
    config: &NodeConfig,
    share: &NodeShare,
    free: &NodeFree,
) {
    for &gpu in share.gres.iter().flat_map(|gres| gpus_shared_by(config, gres)) {
        let lines = config.gres.iter().zip(&free.gres).enumerate();
        let whole = lines.filter(|(_, (line, _))| line.name == GPU);
        for (at, _) in whole.filter(|(_, (_, free))| free.indices.contains(&gpu)) {
            amounts[GRES + at] += 1;
        }
    }
}

/// What is free, limited to the amounts and the occupancy of a timeline.
fn limited_to_amounts(
    mut free: NodeFree,
    least: &[u64],
    there: &Occupancy,
    config: &NodeConfig,
) -> NodeFree {
    let threads = cores::threads(config);
    let cores = (least[CORES] / CORE) as u32;
    if cores::count(&free.cpus, threads) > cores {
        free.cpus = cores::lowest_cores(&free.cpus, threads, cores);
    }
    free.memory = Bytes(least[MEMORY].min(free.memory.0));
    for (line, &count) in free.gres.iter_mut().zip(&least[GRES..]) {
        limit_gres_line(line, count);
    }
    // Timelines let go of a job that is to leave before it has left: whoever is on the node, by either, keeps others off.
    free.jobs = free.jobs.max(there.jobs);
    free.exclusive |= there.exclusive;
    if let Some(owner) = there.owner {
        free.exclusive |= free.owner.is_some_and(|(other, _)| other != owner);
        free.owner = Some((owner, 1));
    }
    // Which users they are does not matter where there are several.
    let users: SmallVec<[u32; 2]> = match there.users {
        Users::Nobody => smallvec![],
        Users::One(uid) => smallvec![uid],
        Users::Several => smallvec![u32::MAX - 1, u32::MAX],
    };
    for uid in users {
        if let Err(at) = free.users.binary_search_by_key(&uid, |(known, _)| *known) {
            free.users.insert(at, (uid, 1));
        }
    }
    free
}

fn limit_gres_line(line: &mut GresLineFree, count: u64) {
    line.count = line.count.min(count);
    if !line.indices.is_empty() {
        line.indices.truncate(line.count as usize);
    }
}

/// What is free of some nodes for a job that would run from `start` for `length`.
pub struct FreeDuring<'b> {
    pub view: &'b View,
    pub free: Vec<(u32, NodeFree)>,
}

impl<'b> FreeDuring<'b> {
    pub fn new<'a: 'b>(
        timelines: &mut NodeTimelines<'a>,
        nodes: &[u32],
        access: &ReservationAccess,
        start: Millis,
        length: Millis,
    ) -> FreeDuring<'a> {
        let mut through = |node: u32| (node, timelines.free_through(node, access, start, length));
        let mut free: Vec<(u32, NodeFree)> = nodes.iter().map(|&node| through(node)).collect();
        free.sort_unstable_by_key(|(node, _)| *node);
        FreeDuring { view: timelines.view, free }
    }
}

impl FreeNodes for FreeDuring<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let at = self.free.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(Cow::Borrowed(&self.free[at].1))
    }
}
