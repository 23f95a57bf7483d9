//! One node through time: how many cores, bytes and units of each GRES line are free from when to when.
//!
//! A timeline counts amounts, not ids. Which cores and devices a job gets is settled when it starts: equal units can
//! always be handed out one start at a time if no more are promised than there are.

use crate::free::cores;
use crate::free::node_free::{NodeFree, ShareHolder};
use crate::view::Availability;
use model::allocation::{GresShare, NodeShare};
use model::cpuset::CpuSet;
use model::gres::GPU;
use model::node::{NodeConfig, NodeGres};
use smallvec::{SmallVec, smallvec};

/// Milliseconds, as in `Timestamp`. A segment begins at its start and ends before the next segment's.
pub type Millis = i64;

/// The start of the first segment: now, and anything before.
pub const BEGINNING: Millis = Millis::MIN;

/// The keys of nodes that are free now, in the order in which they are used: those that are up, those that are being powered
/// up, and those that have to be.
const NOW_UP: Millis = BEGINNING;
const NOW_POWERING_UP: Millis = BEGINNING + 1;
const NOW_POWERED_DOWN: Millis = BEGINNING + 2;

/// The key of a node that is free now.
pub fn now_key(availability: Availability) -> Millis {
    match availability {
        Availability::PoweredDown => NOW_POWERED_DOWN,
        Availability::PoweringUp => NOW_POWERING_UP,
        _ => NOW_UP,
    }
}

/// Whether the key says that the node is free now.
pub fn is_now(key: Millis) -> bool {
    key <= NOW_POWERED_DOWN
}
/// The end of a job without a time limit.
pub const NEVER: Millis = Millis::MAX;

/// Columns of cores and memory; GRES lines follow in the node's order.
pub const CORES: usize = 0;
pub const MEMORY: usize = 1;
pub const GRES: usize = 2;

/// Amounts by column. Nodes with up to two GRES lines need no allocation: a plan makes one for every node that it looks into.
pub type Columns = SmallVec<[u64; 4]>;

/// What one core counts for in its column. A core that `n` jobs may share counts for an `n`-th for each of them.
pub const CORE: u64 = 1_000_000;

/// The amount in the column of cores for cores that `sharers` jobs may share.
pub fn cores_shared(cores: u32, sharers: u32) -> u64 {
    u64::from(cores) * (CORE / u64::from(sharers.max(1)))
}

#[derive(Debug, PartialEq, Eq)]
pub struct Timeline {
    width: usize,
    starts: Vec<Millis>,
    /// `width` amounts for each segment.
    free: Vec<u64>,
    presence: Vec<Occupancy>,
}

/// Which jobs are on the node, as far as it decides who may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Occupancy {
    pub jobs: u32,
    /// A job has the whole node.
    pub exclusive: bool,
    pub users: Users,
    /// Set while a job with `--exclusive=user` runs: only this user's jobs may join.
    pub owner: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Users {
    #[default]
    Nobody,
    One(u32),
    Several,
}

impl Users {
    pub fn and(self, uid: u32) -> Self {
        match self {
            Self::Nobody => Self::One(uid),
            Self::One(one) if one == uid => self,
            _ => Self::Several,
        }
    }
}

impl Occupancy {
    pub fn admits(&self, holder: ShareHolder) -> bool {
        !self.exclusive
            && (!holder.whole_node || self.jobs == 0)
            && self.owner.is_none_or(|owner| owner == holder.uid)
            && (!holder.user_exclusive
                || matches!(self.users, Users::Nobody)
                || self.users == Users::One(holder.uid))
    }

    fn join(&mut self, holder: ShareHolder) {
        self.jobs += 1;
        self.exclusive |= holder.whole_node;
        self.users = self.users.and(holder.uid);
        if holder.user_exclusive {
            self.owner = Some(holder.uid);
        }
    }
}

/// The amounts of a share in the columns of its node.
pub fn columns_of(config: &NodeConfig, share: &NodeShare) -> Columns {
    let mut columns: Columns = smallvec![0; GRES + config.gres.len()];
    let cores = share.cpus.len().div_ceil(cores::threads(config));
    columns[CORES] = cores_shared(cores, share.sharers);
    columns[MEMORY] = share.memory.0;
    for gres in share.gres.iter().filter(|gres| gres.name == GPU) {
        // A GPU that is granted whole cannot be granted in shares as well.
        for (at, line) in config.gres.iter().enumerate() {
            if line.share_of.is_some_and(|gpu| gres.indices.contains(&gpu)) {
                columns[GRES + at] += line.count;
            }
        }
    }
    for gres in &share.gres {
        let mut left = gres.count;
        for (at, line) in config.gres.iter().enumerate() {
            let other = line.name != gres.name || (gres.kind.is_some() && line.kind != gres.kind);
            if other || line.no_consume {
                continue;
            }
            let units = match line.share_of {
                Some(gpu) if gres.indices.contains(&gpu) => gres.count,
                Some(_) => 0,
                None => units_of(line, gres, left),
            };
            columns[GRES + at] += units;
            left = left.saturating_sub(units);
        }
    }
    columns
}

/// The units of one line that a share has, at most `left` where the share has no indices.
fn units_of(line: &NodeGres, gres: &GresShare, left: u64) -> u64 {
    let first = u64::from(line.first_index);
    let mine = |index: &&u32| (first..first + line.count).contains(&u64::from(**index));
    if gres.indices.is_empty() {
        left.min(line.count)
    } else {
        gres.indices.iter().filter(mine).count() as u64
    }
}

/// The amounts in the columns of a node with so much free.
pub fn columns_free(free: &NodeFree, config: &NodeConfig) -> Columns {
    let mut columns = Columns::with_capacity(GRES + free.gres.len());
    let threads = cores::threads(config);
    let unused = u64::from(cores::count(&free.cpus, threads)) * CORE;
    columns.push(unused + left_of_shared(&free.shared, threads));
    columns.push(free.memory.0);
    columns.extend(free.gres.iter().map(|line| line.count));
    columns
}

/// The amount left of the cores that jobs share.
fn left_of_shared(shared: &[(CpuSet, u32)], threads: u32) -> u64 {
    let mut cpus = CpuSet::new();
    shared.iter().for_each(|(of_job, _)| cpus.union(of_job));
    let taken: u64 = shared
        .iter()
        .map(|(of_job, sharers)| cores_shared(of_job.len().div_ceil(threads), *sharers))
        .sum();
    (u64::from(cpus.len().div_ceil(threads)) * CORE).saturating_sub(taken)
}

impl Clone for Timeline {
    fn clone(&self) -> Self {
        Self {
            width: self.width,
            starts: self.starts.clone(),
            free: self.free.clone(),
            presence: self.presence.clone(),
        }
    }

    /// Reuses the allocations of `self`.
    fn clone_from(&mut self, other: &Self) {
        self.width = other.width;
        self.starts.clone_from(&other.starts);
        self.free.clone_from(&other.free);
        self.presence.clone_from(&other.presence);
    }
}

impl Timeline {
    /// A timeline that never changes.
    pub fn constant(free: &[u64], presence: Occupancy) -> Self {
        Self {
            width: free.len(),
            starts: vec![BEGINNING],
            free: free.to_vec(),
            presence: vec![presence],
        }
    }

    /// The same, with the allocations of `self`.
    pub fn reset(&mut self, free: &[u64], presence: Occupancy) {
        self.width = free.len();
        self.starts.clear();
        self.starts.push(BEGINNING);
        self.free.clear();
        self.free.extend_from_slice(free);
        self.presence.clear();
        self.presence.push(presence);
    }

    /// Appends a segment.
    pub fn push(&mut self, start: Millis, free: &[u64], presence: Occupancy) {
        if self.starts.last() == Some(&start) {
            let at = self.free.len() - self.width;
            self.free[at..].copy_from_slice(free);
            *self.presence.last_mut().expect("there is one segment at least") = presence;
            return;
        }
        debug_assert!(self.starts.last().is_some_and(|last| *last < start), "segments are sorted");
        debug_assert_eq!(free.len(), self.width, "one amount for each column");
        self.starts.push(start);
        self.free.extend_from_slice(free);
        self.presence.push(presence);
    }

    /// When the node next changes.
    pub fn next_change(&self) -> Option<Millis> {
        self.starts.get(1).copied()
    }

    /// When the node changes for the last time.
    pub fn last_change(&self) -> Millis {
        self.starts.last().copied().unwrap_or(BEGINNING)
    }

    pub fn changes(&self) -> impl Iterator<Item = Millis> + '_ {
        self.starts[1..].iter().copied()
    }

    pub fn segments(&self) -> usize {
        self.starts.len()
    }

    pub fn start(&self, at: usize) -> Millis {
        self.starts[at]
    }

    pub fn free(&self, at: usize) -> &[u64] {
        &self.free[at * self.width..(at + 1) * self.width]
    }

    pub fn presence(&self, at: usize) -> &Occupancy {
        &self.presence[at]
    }

    /// The segment that contains this moment.
    pub fn at(&self, time: Millis) -> usize {
        // With few segments a scan is quicker than a binary search.
        match self.starts.len() {
            0..=16 => self.starts.iter().rposition(|start| *start <= time).unwrap_or(0),
            _ => self.starts.partition_point(|start| *start <= time).saturating_sub(1),
        }
    }

    /// The first moment from `from` on at which `fits` holds throughout `length`; `None` if there is none.
    pub fn earliest(
        &self,
        from: Millis,
        length: Millis,
        fits: impl Fn(&[u64], &Occupancy) -> bool,
    ) -> Option<Millis> {
        let mut candidate = from;
        let mut at = self.at(from);
        loop {
            if !fits(self.free(at), &self.presence[at]) {
                candidate = *self.starts.get(at + 1)?;
            }
            at += 1;
            match self.starts.get(at) {
                Some(start) if *start < candidate.saturating_add(length) => {}
                _ => return Some(candidate),
            }
        }
    }

    /// Until when `fits` holds from `from` on; `from` itself if it does not.
    pub fn fits_until(&self, from: Millis, fits: impl Fn(&[u64], &Occupancy) -> bool) -> Millis {
        let lacks = |at: &usize| !fits(self.free(*at), &self.presence[*at]);
        (self.at(from)..self.starts.len()).find(lacks).map_or(NEVER, |at| self.starts[at].max(from))
    }

    /// The least that is free at any moment from `start` to `end`, and everybody who is on the node then.
    pub fn least_free(&self, start: Millis, end: Millis) -> (Columns, Occupancy) {
        let first = self.at(start);
        let mut least = Columns::from_slice(self.free(first));
        let mut presence = self.presence[first];
        for at in first + 1..self.starts.len() {
            if self.starts[at] >= end {
                break;
            }
            for (least, free) in least.iter_mut().zip(self.free(at)) {
                *least = (*least).min(*free);
            }
            presence = merged(presence, self.presence[at]);
        }
        (least, presence)
    }

    /// Until when these amounts stay free from `start` on.
    pub fn free_until(&self, start: Millis, amounts: &[u64], holder: ShareHolder) -> Millis {
        let lacks = |at: &usize| {
            let enough = amounts.iter().zip(self.free(*at)).all(|(amount, free)| amount <= free);
            !enough || !self.presence[*at].admits(holder)
        };
        (self.at(start)..self.starts.len()).find(lacks).map_or(NEVER, |at| self.starts[at])
    }

    /// Takes these amounts from `start` to `end`.
    pub fn take(&mut self, start: Millis, end: Millis, amounts: &[u64], holder: ShareHolder) {
        let (first, last) = self.split(start, end);
        for at in first..last {
            let free = &mut self.free[at * self.width..(at + 1) * self.width];
            for (free, amount) in free.iter_mut().zip(amounts) {
                *free = free.saturating_sub(*amount);
            }
            self.presence[at].join(holder);
        }
    }

    /// Undoes a `take`. Of the occupancy only the number of jobs is undone: users and exclusive jobs are not counted.
    pub fn give(&mut self, start: Millis, end: Millis, amounts: &[u64]) {
        let (first, last) = self.split(start, end);
        for at in first..last {
            let free = &mut self.free[at * self.width..(at + 1) * self.width];
            for (free, amount) in free.iter_mut().zip(amounts) {
                *free += *amount;
            }
            let presence = &mut self.presence[at];
            presence.jobs = presence.jobs.saturating_sub(1);
            if presence.jobs == 0 {
                *presence = Occupancy::default();
            }
        }
    }

    /// Splits the timeline at both times. Returns the range of segments between them.
    fn split(&mut self, start: Millis, end: Millis) -> (usize, usize) {
        debug_assert!(start <= end, "a job ends after its start");
        let first = self.split_at(start);
        let last = match end {
            NEVER => self.starts.len(),
            end => self.split_at(end),
        };
        (first, last)
    }

    fn split_at(&mut self, time: Millis) -> usize {
        let at = self.at(time);
        if self.starts[at] == time {
            return at;
        }
        self.starts.insert(at + 1, time);
        // One row more, and everything behind moves up.
        let (from, to) = (at * self.width, (at + 1) * self.width);
        let end = self.free.len();
        self.free.resize(end + self.width, 0);
        self.free.copy_within(from..end, to);
        self.presence.insert(at + 1, self.presence[at]);
        at + 1
    }
}

/// The occupancy of two segments taken as one.
fn merged(a: Occupancy, b: Occupancy) -> Occupancy {
    let torn = matches!((a.owner, b.owner), (Some(a), Some(b)) if a != b);
    let users = match (a.users, b.users) {
        (Users::Nobody, users) | (users, Users::Nobody) => users,
        (Users::One(one), users) => users.and(one),
        (Users::Several, _) => Users::Several,
    };
    Occupancy {
        jobs: a.jobs.max(b.jobs),
        exclusive: a.exclusive || b.exclusive || torn,
        users,
        owner: a.owner.or(b.owner),
    }
}
