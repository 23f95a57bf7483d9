//! The board: every node through time, with what runs and with what this plan has started or kept.
//!
//! A plan only takes. The nodes as they stand are the memo's; the first to take something of a node
//! gets a copy of its timeline.

use crate::class::Classes;
use crate::footprint::Footprint;
use crate::free::{Holder, LineFree, NodeFree, devices_of};
use crate::memo::Standing;
use crate::place::gres::GPU;
use crate::place::{Placement, Space, cores};
use crate::reserved::{Pass, Windows};
use crate::timeline::{BEGINNING, GRES, MEMORY, Millis, Presence, Timeline, Users, columns_of};
use crate::timeline::{CORE, CORES, NEVER};
use crate::view::{Availability, Running, View};
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::node::NodeConfig;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub struct Board<'a> {
    pub view: &'a View,
    pub now: Millis,
    pub classes: &'a Classes,
    base: &'a [Timeline],
    /// For each node where its own timeline is, counted from one; zero: it has none.
    own_at: Vec<u32>,
    own: &'a mut Vec<Timeline>,
    own_used: usize,
    /// For each node how often this plan has taken of it.
    versions: Vec<u32>,
    /// The very cores and devices that are free now, of nodes that this plan looked into.
    exact: Vec<Option<Box<NodeFree>>>,
    /// How often something was given back: times found before may be too late.
    pub gives: u32,
    /// Nodes that somebody will leave before his time.
    pub left: HashSet<u32>,
    pub windows: &'a Windows,
    /// What is left of the parts of nodes that reservations keep, by node and reservation.
    parts_left: HashMap<(u32, u32), Vec<u64>>,
}

/// What a job keeps of the nodes for later: of each node so much, by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub start: Millis,
    pub end: Millis,
    pub parts: Vec<(u32, Vec<u64>)>,
}

impl Kept {
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.iter().map(|(node, _)| *node)
    }
}

/// Who keeps a part of a node for a reservation.
const NOBODY: Holder = Holder { uid: u32::MAX, whole_node: false, user_exclusive: false };

/// The end of what starts then and lasts so long.
pub fn end_of(start: Millis, length: Millis) -> Millis {
    if length == NEVER { NEVER } else { start.saturating_add(length) }
}

impl<'a> Board<'a> {
    pub fn new(
        view: &'a View,
        now: Millis,
        standing: &'a Standing,
        own: &'a mut Vec<Timeline>,
        windows: &'a Windows,
    ) -> Self {
        let (classes, base) = (&standing.classes, &standing.timelines);
        let mut board = Self {
            view,
            now,
            classes,
            base,
            own_at: vec![0; base.len()],
            own,
            own_used: 0,
            versions: vec![0; base.len()],
            exact: vec![None; base.len()],
            gives: 0,
            left: HashSet::new(),
            windows,
            parts_left: HashMap::new(),
        };
        board.keep_parts();
        board
    }

    /// Reservations of parts of nodes keep what their own jobs do not use.
    fn keep_parts(&mut self) {
        let windows = self.windows;
        for node in windows.nodes() {
            for (at, columns, times) in windows.parts_of(node) {
                let left = self.unused_part(node, at, columns);
                for &(start, end) in times {
                    let start = if start <= self.now { BEGINNING } else { start };
                    self.own(node).take(start, end, &left, NOBODY);
                }
                self.parts_left.insert((node, at), left);
            }
        }
    }

    fn unused_part(&self, node: u32, reservation: u32, columns: &[u64]) -> Vec<u64> {
        let name = &self.view.reservations[reservation as usize].name;
        let inside = |running: &&Arc<Running>| running.reservation.as_ref() == Some(name);
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

    /// What the job may use of the node beyond what is free for everybody.
    fn extra(&self, node: u32, pass: &Pass) -> Option<&Vec<u64>> {
        pass.asked().iter().find_map(|at| self.parts_left.get(&(node, *at)))
    }

    /// A job takes of its reservation's part what there is.
    fn use_part(&mut self, node: u32, pass: &Pass, amounts: &[u64]) {
        let mut asked = pass.asked().iter().copied();
        let Some(at) = asked.find(|at| self.parts_left.contains_key(&(node, *at))) else { return };
        let Some(left) = self.parts_left.get_mut(&(node, at)) else { return };
        let back: Vec<u64> = left.iter().zip(amounts).map(|(l, amount)| *l.min(amount)).collect();
        left.iter_mut().zip(&back).for_each(|(l, back)| *l -= back);
        let now = self.now;
        let times: Vec<(Millis, Millis)> = self
            .windows
            .parts_of(node)
            .filter(|(other, _, _)| *other == at)
            .flat_map(|(_, _, times)| times.iter().copied())
            .collect();
        for (start, end) in times {
            let start = if start <= now { BEGINNING } else { start };
            self.own(node).give(start, end, &back);
        }
    }

    pub fn timeline(&self, node: u32) -> &Timeline {
        match self.own_at[node as usize] {
            0 => &self.base[node as usize],
            at => &self.own[at as usize - 1],
        }
    }

    /// Whether the memo's order of candidates is right for the node as it is.
    pub fn is_as_it_stands(&self, node: u32) -> bool {
        self.own_at[node as usize] == 0 && !self.windows.touch(node)
    }

    pub fn version(&self, node: u32) -> u32 {
        self.versions[node as usize]
    }

    pub fn class(&self, node: u32) -> u32 {
        self.classes.of[node as usize]
    }

    pub fn config(&self, node: u32) -> &'a NodeConfig {
        &self.view.nodes[node as usize].config
    }

    pub fn is_available(&self, node: u32) -> bool {
        self.view.nodes[node as usize].availability == Availability::Available
    }

    /// When the footprint fits on the node from `from` on, for `length`; none: never.
    pub fn earliest(
        &self,
        node: u32,
        footprint: &Footprint,
        pass: &Pass,
        from: Millis,
        length: Millis,
    ) -> Option<Millis> {
        if !self.is_available(node) {
            return None;
        }
        let class = self.class(node);
        let timeline = self.timeline(node);
        let extra = self.extra(node, pass);
        let fits = |free: &[u64], there: &Presence| match extra {
            None => footprint.fits(class, free, there),
            Some(extra) => {
                let more: Vec<u64> = free.iter().zip(extra).map(|(free, e)| free + e).collect();
                footprint.fits(class, &more, there)
            }
        };
        let mut from = from;
        loop {
            let start = timeline.earliest(from, length, fits)?;
            // Each turn leaves one window behind.
            match self.windows.in_the_way(node, pass, start, end_of(start, length)) {
                None => return Some(start),
                Some(NEVER) => return None,
                Some(over) => from = over,
            }
        }
    }

    /// The very cores and devices that are free now.
    pub fn exact(&mut self, node: u32) -> &NodeFree {
        let info = &self.view.nodes[node as usize];
        self.exact[node as usize].get_or_insert_with(|| Box::new(NodeFree::of(info)))
    }

    /// What a job that starts at `start` may use of a node until its end.
    pub fn free_through(
        &mut self,
        node: u32,
        pass: &Pass,
        start: Millis,
        length: Millis,
    ) -> NodeFree {
        let (mut least, there) = self.timeline(node).least(start, end_of(start, length));
        if let Some(extra) = self.extra(node, pass) {
            least.iter_mut().zip(extra).for_each(|(least, extra)| *least += extra);
        }
        match start <= self.now {
            true => clipped(self.exact(node).clone(), &least, &there, self.config(node)),
            false => clipped(NodeFree::empty(self.config(node)), &least, &there, self.config(node)),
        }
    }

    /// What a timeline of the node leaves from now on, in no particular cores and devices.
    pub fn numbers(&self, node: u32, timeline: &Timeline, length: Millis) -> NodeFree {
        let (least, there) = timeline.least(self.now, end_of(self.now, length));
        clipped(NodeFree::empty(self.config(node)), &least, &there, self.config(node))
    }

    /// The job runs from now on.
    pub fn start(&mut self, placement: &Placement, holder: Holder, pass: &Pass, length: Millis) {
        let end = end_of(self.now, length);
        for (node, share) in &placement.shares {
            let config = self.config(*node);
            let mut amounts = columns_of(config, share);
            add_first_shares(&mut amounts, config, share, self.exact(*node));
            if let Some(exact) = &mut self.exact[*node as usize] {
                exact.take(config, share, holder);
            }
            self.use_part(*node, pass, &amounts);
            self.own(*node).take(BEGINNING, end, &amounts, holder);
        }
    }

    /// Somebody will go who holds so much of the node until then; the very cores and devices are not
    /// free before that.
    pub fn leave(&mut self, node: u32, until: Millis, amounts: &[u64]) {
        self.gives += 1;
        self.left.insert(node);
        self.own(node).give(BEGINNING, until, amounts);
    }

    /// A suspended job has its cores again.
    pub fn resume(&mut self, running: &Running, end: Millis) {
        for (node, share) in &running.shares {
            let config = self.config(*node);
            self.exact(*node);
            if let Some(exact) = &mut self.exact[*node as usize] {
                exact.cpus.subtract(&share.cpus);
            }
            let mut amounts = columns_of(config, share);
            amounts[CORES + 1..].fill(0);
            let end = end.max(self.now + 1);
            self.own(*node).take(BEGINNING, end, &amounts, NOBODY);
        }
    }

    pub fn keep(&mut self, kept: &Kept, holder: Holder) {
        for (node, amounts) in &kept.parts {
            self.own(*node).take(kept.start, kept.end, amounts, holder);
        }
    }

    pub fn give_up(&mut self, kept: &Kept) {
        self.gives += 1;
        for (node, amounts) in &kept.parts {
            self.own(*node).give(kept.start, kept.end, amounts);
        }
    }

    fn own(&mut self, node: u32) -> &mut Timeline {
        self.versions[node as usize] += 1;
        if self.own_at[node as usize] == 0 {
            // One of an earlier plan has room already.
            let base = &self.base[node as usize];
            match self.own.get_mut(self.own_used) {
                Some(spare) => spare.clone_from(base),
                None => self.own.push(base.clone()),
            }
            self.own_used += 1;
            self.own_at[node as usize] = self.own_used as u32;
        }
        &mut self.own[self.own_at[node as usize] as usize - 1]
    }
}

/// Who has the first share of a GPU takes it from those who want it whole. The last to leave gives it back, which may
/// be somebody else: until then the numbers say a little too much, and the very devices decide.
fn add_first_shares(amounts: &mut [u64], config: &NodeConfig, share: &NodeShare, free: &NodeFree) {
    for &gpu in share.gres.iter().flat_map(|gres| devices_of(config, gres)) {
        let lines = config.gres.iter().zip(&free.gres).enumerate();
        let whole = lines.filter(|(_, (line, _))| line.name == GPU);
        for (at, _) in whole.filter(|(_, (_, free))| free.indices.contains(&gpu)) {
            amounts[GRES + at] += 1;
        }
    }
}

/// No more than the numbers say, and no others beside than they say.
fn clipped(mut free: NodeFree, least: &[u64], there: &Presence, config: &NodeConfig) -> NodeFree {
    let threads = cores::threads(config);
    let cores = (least[CORES] / CORE) as u32;
    if cores::count(&free.cpus, threads) > cores {
        free.cpus = cores::lowest(&free.cpus, threads, cores);
    }
    free.memory = Bytes(least[MEMORY].min(free.memory.0));
    for (line, &count) in free.gres.iter_mut().zip(&least[GRES..]) {
        clip(line, count);
    }
    free.jobs = there.jobs;
    free.exclusive = there.exclusive;
    free.owner = there.owner.map(|uid| (uid, 1));
    // Who they are matters no more where there are several.
    free.users = match there.users {
        Users::Nobody => Vec::new(),
        Users::One(uid) => vec![(uid, 1)],
        Users::Several => vec![(u32::MAX - 1, 1), (u32::MAX, 1)],
    };
    free
}

fn clip(line: &mut LineFree, count: u64) {
    line.count = line.count.min(count);
    if !line.indices.is_empty() {
        line.indices.truncate(line.count as usize);
    }
}

/// Nodes as a job sees them that would run from `start` for `length`; worked out beforehand.
pub struct Through<'b> {
    pub view: &'b View,
    pub free: Vec<(u32, NodeFree)>,
}

impl<'b> Through<'b> {
    pub fn new<'a: 'b>(
        board: &mut Board<'a>,
        nodes: &[u32],
        pass: &Pass,
        start: Millis,
        length: Millis,
    ) -> Through<'a> {
        let mut through = |node: u32| (node, board.free_through(node, pass, start, length));
        let mut free: Vec<(u32, NodeFree)> = nodes.iter().map(|&node| through(node)).collect();
        free.sort_unstable_by_key(|(node, _)| *node);
        Through { view: board.view, free }
    }
}

impl Space for Through<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let at = self.free.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(Cow::Borrowed(&self.free[at].1))
    }
}
