//! The queue in the order of the plan, and the shape of each of its entries.

use super::same_run::{are_same, same_run};
use crate::free::needs::{NeedsScope, NodeNeeds};
use crate::free::waiting_shape::WaitingShape;
use crate::index::ShapeIndex;
use crate::order::{self, JobInPartition, QueueKey};
use crate::reservation::{ReservationAccess, ReservationWindows};
use crate::topology::is_waived;
use crate::view::{DependencyState, PendingJob, View};
use foldhash::fast::RandomState;
use model::id::JobId;
use model::request::{Request, Sharing};
use model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

#[derive(Debug, Clone, Default)]
pub struct OrderedQueue {
    /// The queue of the last view.
    queue: Vec<Arc<PendingJob>>,
    pub summaries: Vec<EntrySummary>,
    /// One for each partition of each entry, in the order of the plan.
    pub slots: Vec<QueueSlot>,
    pub traits: QueueTraits,
    /// Entries that are in no partition.
    pub without_partition: Vec<u32>,
    pub shapes: Vec<ShapeKey>,
    /// By the index of the shape; shorter than `shapes` while nothing is known of the last ones.
    waiting_shapes: Vec<Option<WaitingShape>>,
    by_hash: HashMap<u64, Vec<ShapeIndex>, RandomState>,
    hasher: RandomState,
    /// Whether jobs of different users can have different answers.
    by_user: bool,
    /// Projects that have nodes for their jobs alone.
    projects: BTreeSet<String>,
    now: Timestamp,
    switch_wait_s: u32,
}

/// What some entries of the queue have, and most queues do not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueTraits {
    /// Some entry is a component of a heterogeneous job.
    pub has_het_jobs: bool,
    wants_own_nodes: bool,
    is_volatile: bool,
}

/// What the plan needs of an entry, in little memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntrySummary {
    pub job: JobId,
    pub tasks: u32,
    /// How many tasks the throttle lets start now.
    pub tasks_allowed: u32,
    /// Neither hold, begin time, dependency nor reservation keeps it from starting.
    pub is_open: bool,
    wants_own_nodes: bool,
    pub partition_count: u32,
    /// The entry is a component of a heterogeneous job.
    pub is_het: bool,
    /// One task, in one partition, that nothing but resources and limits holds back.
    is_plain: bool,
    /// What the entry asks for changes as time passes, so that it counts as new each time.
    is_volatile: bool,
}

/// The turn of one entry in one of its partitions.
#[derive(Debug, Clone, Copy)]
pub struct QueueSlot {
    pub key: QueueKey,
    pub entry: JobInPartition,
    pub shape: ShapeIndex,
    /// One task, in one partition, that nothing but resources and limits holds back.
    pub is_plain: bool,
    /// In the last plan nothing was free for it.
    pub nothing_free: bool,
    /// In the last plan it looked for a backfill slot, and the replay log has the result.
    pub is_recorded: bool,
}

impl QueueSlot {
    pub fn job(&self) -> JobId {
        self.key.3
    }
}

/// What the answer to a job depends on. Jobs with equal keys get the same answer.
#[derive(Debug, Clone)]
pub struct ShapeKey {
    pub spec: Arc<model::run::JobSpec>,
    pub partition: u32,
    /// Set only where it makes a difference.
    pub uid: Option<u32>,
    /// The job's project, where nodes are for its jobs alone.
    pub project: Option<String>,
    pub access: ReservationAccess,
    /// The job has waited for its `--switches` long enough.
    pub switches_waived: bool,
    /// What the whole job takes of a node, and what the least part of it does; found when first asked for. They are as long the
    /// same as the key is known: with other nodes, partitions or policies everything is forgotten.
    needs: [OnceLock<Arc<NodeNeeds>>; 2],
}

impl ShapeKey {
    pub fn needs(&self, scope: NeedsScope) -> &OnceLock<Arc<NodeNeeds>> {
        match scope {
            NeedsScope::WholeJob => &self.needs[0],
            NeedsScope::EachNode => &self.needs[1],
        }
    }

    pub fn request(&self) -> &Request {
        self.spec.request()
    }
}

/// With more entries that have left than this, all are compared one by one.
const LEFT_MAX: usize = 64;

/// How the queue of the view came about from the last one.
enum QueueChange {
    /// Some entries have left, and others have come behind all.
    LeftAndCame(LeftAndCame),
    Moved(Moved),
}

struct LeftAndCame {
    /// The positions in the last queue of those that have left, in order.
    left: Vec<u32>,
    /// How many of the last queue stay.
    stay: usize,
}

impl LeftAndCame {
    /// The present position of the entry that was at this one; `None` if it has left.
    fn position(&self, before: u32) -> Option<u32> {
        let left_before = self.left.partition_point(|left| *left < before);
        (self.left.get(left_before) != Some(&before)).then(|| before - left_before as u32)
    }
}

/// Where the entries of the view were in the last queue.
struct Moved {
    /// For each entry of the view its position in the last queue, if it was there and is the same but for its priority.
    from: Vec<Option<u32>>,
    /// Some of them have another priority.
    is_rekeyed: bool,
}

impl OrderedQueue {
    /// Takes over the view's queue. Unchanged entries keep what is known of them. `projects`: those with nodes of their own.
    pub fn refresh(
        &mut self,
        view: &View,
        owned_nodes: bool,
        projects: BTreeSet<String>,
        windows: &ReservationWindows,
        now: Timestamp,
    ) {
        self.now = now;
        self.switch_wait_s = view.policy.switch_wait_s;
        let change = self.compare(view);
        match &change {
            None => {}
            Some(QueueChange::LeftAndCame(change)) => self.take_few_entries(view, change),
            Some(QueueChange::Moved(moved)) => self.take_entries(view, moved),
        }
        let by_user = owned_nodes
            || view.partitions.iter().any(|p| p.partition.exclusive_user)
            || self.traits.wants_own_nodes;
        let is_other = by_user != self.by_user || projects != self.projects;
        if is_other || self.shapes.len() > 2 * view.queue.len() + 1_024 {
            let Self { queue, summaries, traits, without_partition, .. } = std::mem::take(self);
            let switch_wait_s = view.policy.switch_wait_s;
            *self = Self {
                by_user,
                projects,
                queue,
                summaries,
                traits,
                without_partition,
                now,
                switch_wait_s,
                ..Self::default()
            };
            let all_new = Moved { from: vec![None; view.queue.len()], is_rekeyed: false };
            self.move_slots(view, &all_new, windows);
            return;
        }
        match &change {
            None => {}
            Some(QueueChange::LeftAndCame(change)) => self.move_few_slots(view, change, windows),
            Some(QueueChange::Moved(moved)) => self.move_slots(view, moved, windows),
        }
    }

    /// What earlier plans know of a shape that waited for nodes alone.
    pub fn waiting_shape(&self, shape: ShapeIndex) -> Option<&WaitingShape> {
        self.waiting_shapes.get(shape.at())?.as_ref()
    }

    pub fn add_waiting_shapes(&mut self, shapes: Vec<(ShapeIndex, WaitingShape)>) {
        self.waiting_shapes.resize(self.shapes.len(), None);
        for (at, shape) in shapes {
            self.waiting_shapes[at.at()] = Some(shape);
        }
    }

    /// Whether the shapes wait for nodes alone has to be worked out again.
    pub fn forget_waiting_shapes(&mut self) {
        self.waiting_shapes.clear();
    }

    /// `None` if nothing changed.
    fn compare(&self, view: &View) -> Option<QueueChange> {
        if !self.traits.is_volatile {
            if are_same(&self.queue, &view.queue) {
                return None;
            }
            if let Some(change) = self.left_and_came(view) {
                return Some(QueueChange::LeftAndCame(change));
            }
        }
        let (mut at, mut is_rekeyed) = (0, false);
        let find = |waiting: &Arc<PendingJob>| {
            while let Some(old) = self.queue.get(at) {
                let is_same = Arc::ptr_eq(old, waiting);
                if is_same || old.differs_in_priority_at_most(waiting) {
                    is_rekeyed |= !is_same;
                    at += 1;
                    return Some(at as u32 - 1)
                        .filter(|at| !self.summaries[*at as usize].is_volatile);
                }
                if old.job > waiting.job {
                    return None;
                }
                at += 1;
            }
            None
        };
        let from = view.queue.iter().map(find).collect();
        Some(QueueChange::Moved(Moved { from, is_rekeyed }))
    }

    /// The usual change: few entries have left, all others are the very same, and what is new comes behind them.
    fn left_and_came(&self, view: &View) -> Option<LeftAndCame> {
        let (mut left, mut stay) = (Vec::new(), 0);
        let mut at = 0;
        while at < self.queue.len() {
            let same = same_run(&self.queue[at..], &view.queue[stay..]);
            (at, stay) = (at + same, stay + same);
            if at == self.queue.len() {
                break;
            }
            if left.len() == LEFT_MAX {
                return None;
            }
            left.push(at as u32);
            at += 1;
        }
        let last = self.queue.last().map(|last| last.job);
        let is_behind = view.queue.get(stay).is_none_or(|new| last < Some(new.job));
        is_behind.then_some(LeftAndCame { left, stay })
    }

    fn take_few_entries(&mut self, view: &View, change: &LeftAndCame) {
        let new = &view.queue[change.stay..];
        remove_at(&mut self.queue, &change.left);
        remove_at(&mut self.summaries, &change.left);
        let first_new = self.summaries.len();
        self.queue.extend_from_slice(new);
        self.summaries.extend(new.iter().map(|waiting| summary(waiting)));
        // Where no entry had any of it, only the new ones may.
        let has_none = self.traits == QueueTraits::default() && self.without_partition.is_empty();
        self.note_traits(if has_none { first_new } else { 0 });
    }

    fn take_entries(&mut self, view: &View, moved: &Moved) {
        let kept = moved.from.iter().take_while(|from| from.is_some()).count();
        let (old, new) = moved.from.split_at(kept);
        // Most often some have left and the last ones have come: those between stay where they are.
        if !moved.is_rekeyed && new.iter().all(Option::is_none) {
            self.retain_entries(old);
            self.queue.extend_from_slice(&view.queue[kept..]);
            self.summaries.extend(view.queue[kept..].iter().map(|waiting| summary(waiting)));
        } else {
            self.rebuild_entries(view, moved);
        }
        self.note_traits(0);
    }

    /// Notes what the entries from this position on have, if those before it have nothing of it.
    fn note_traits(&mut self, first: usize) {
        self.without_partition.clear();
        self.traits = QueueTraits::default();
        for (at, entry) in (first as u32..).zip(&self.summaries[first..]) {
            self.traits.has_het_jobs |= entry.is_het;
            self.traits.wants_own_nodes |= entry.wants_own_nodes;
            self.traits.is_volatile |= entry.is_volatile;
            if entry.partition_count == 0 {
                self.without_partition.push(at);
            }
        }
    }

    /// Retains the entries that were at these positions, which only grow.
    fn retain_entries(&mut self, positions: &[Option<u32>]) {
        let mut stays = vec![false; self.queue.len()];
        positions.iter().flatten().for_each(|at| stays[*at as usize] = true);
        let mut of_queue = stays.iter().copied();
        self.queue.retain(|_| of_queue.next().unwrap_or(false));
        let mut of_summaries = stays.iter().copied();
        self.summaries.retain(|_| of_summaries.next().unwrap_or(false));
    }

    fn rebuild_entries(&mut self, view: &View, moved: &Moved) {
        let mut old = std::mem::take(&mut self.queue).into_iter().zip(0u32..);
        let summaries = std::mem::take(&mut self.summaries);
        self.queue.reserve(view.queue.len());
        self.summaries.reserve(view.queue.len());
        for (waiting, from) in view.queue.iter().zip(&moved.from) {
            // Positions only grow, because both queues have the same order.
            let known = from.and_then(|from| old.find(|(_, at)| *at == from));
            match known {
                Some((known, at)) => {
                    let is_same = Arc::ptr_eq(&known, waiting);
                    self.queue.push(if is_same { known } else { waiting.clone() });
                    self.summaries.push(summaries[at as usize]);
                }
                None => {
                    self.queue.push(waiting.clone());
                    self.summaries.push(summary(waiting));
                }
            }
        }
    }

    fn move_slots(&mut self, view: &View, moved: &Moved, windows: &ReservationWindows) {
        let mut known = std::mem::take(&mut self.slots);
        let most = moved.from.iter().flatten().last().map_or(0, |last| *last as usize + 1);
        let mut now_at = vec![u32::MAX; most];
        let mut fresh = Vec::new();
        for (from, at) in moved.from.iter().zip(0u32..) {
            match from {
                Some(from) => now_at[*from as usize] = at,
                None => self.add_fresh(view, at, windows, &mut fresh),
            }
        }
        let new_at = |slot: &QueueSlot| match now_at.get(slot.entry.waiting as usize) {
            None | Some(&u32::MAX) => None,
            Some(at) => Some(*at),
        };
        known.retain_mut(|slot| {
            let at = new_at(slot);
            slot.entry.waiting = at.unwrap_or(u32::MAX);
            at.is_some()
        });
        if moved.is_rekeyed {
            rekey(&mut known, view);
        }
        self.merge_slots(known, fresh);
    }

    fn move_few_slots(&mut self, view: &View, change: &LeftAndCame, windows: &ReservationWindows) {
        let mut known = std::mem::take(&mut self.slots);
        if !change.left.is_empty() {
            let mut gone = Vec::new();
            for (slot, at) in known.iter_mut().zip(0u32..) {
                match change.position(slot.entry.waiting) {
                    Some(waiting) => slot.entry.waiting = waiting,
                    None => gone.push(at),
                }
            }
            remove_at(&mut known, &gone);
        }
        let mut fresh = Vec::new();
        for at in change.stay..view.queue.len() {
            self.add_fresh(view, at as u32, windows, &mut fresh);
        }
        self.merge_slots(known, fresh);
    }

    /// Adds the slots of a new entry.
    fn add_fresh(
        &mut self,
        view: &View,
        at: u32,
        windows: &ReservationWindows,
        fresh: &mut Vec<QueueSlot>,
    ) {
        for (key, entry) in order::job_in_partitions(view, at) {
            let waiting = &view.queue[at as usize];
            let shape = self.shape(waiting, entry.partition, windows);
            let is_plain = self.summaries[at as usize].is_plain;
            let (nothing_free, is_recorded) = (false, false);
            fresh.push(QueueSlot { key, entry, shape, is_plain, nothing_free, is_recorded });
        }
    }

    /// The known slots, which are in order, and the fresh ones.
    fn merge_slots(&mut self, mut known: Vec<QueueSlot>, mut fresh: Vec<QueueSlot>) {
        fresh.sort_unstable_by_key(|slot| slot.key);
        // Where new jobs come last, nothing before them moves.
        let last = known.last().map(|last| last.key);
        if fresh.first().is_none_or(|first| last.is_none_or(|last| last < first.key)) {
            known.extend(fresh);
            self.slots = known;
            return;
        }
        let mut fresh = fresh.into_iter().peekable();
        let mut slots = Vec::with_capacity(known.len() + fresh.len());
        for slot in known {
            while let Some(new) = fresh.next_if(|new| new.key < slot.key) {
                slots.push(new);
            }
            slots.push(slot);
        }
        slots.extend(fresh);
        self.slots = slots;
    }

    fn shape(
        &mut self,
        waiting: &PendingJob,
        partition: u32,
        windows: &ReservationWindows,
    ) -> ShapeIndex {
        let uid = self.by_user.then_some(waiting.spec.owner.uid);
        let account = Some(&waiting.account);
        let project = account.filter(|account| self.projects.contains(*account)).cloned();
        let access = windows.access_of(waiting);
        let waived =
            is_waived(waiting.spec.request(), waiting.submit, self.now, self.switch_wait_s);
        let limit_s = waiting.spec.launch.limit_s;
        let request = waiting.spec.request().undated();
        let asked = (&*request, limit_s, partition, uid, &project, &access, waived);
        let same_hash = self.by_hash.entry(self.hasher.hash_one(asked)).or_default();
        let is_same = |at: &&ShapeIndex| {
            let known = &self.shapes[at.at()];
            (known.partition, known.uid, &known.access, known.switches_waived)
                == (partition, uid, &access, waived)
                && known.project == project
                && known.spec.launch.limit_s == limit_s
                && known.request().undated() == request
        };
        if let Some(known) = same_hash.iter().find(is_same) {
            return *known;
        }
        self.shapes.push(ShapeKey {
            spec: waiting.spec.clone(),
            partition,
            uid,
            project,
            access,
            switches_waived: waived,
            needs: Default::default(),
        });
        let at = ShapeIndex(self.shapes.len() as u32 - 1);
        same_hash.push(at);
        at
    }
}

/// Removes what is at these positions, which are in order. What lies between two of them moves up as a whole, not one by one.
fn remove_at<T>(list: &mut Vec<T>, positions: &[u32]) {
    for (gone, at) in positions.iter().enumerate() {
        let end = positions.get(gone + 1).map_or(list.len(), |next| *next as usize);
        // What goes gathers behind what stays.
        list[*at as usize - gone..end].rotate_left(gone + 1);
    }
    list.truncate(list.len() - positions.len());
}

/// Takes over the priorities of these slots and puts them in order. What the last plan found holds for those that are in the same
/// order among each other: a slot that comes before one which was ahead of it counts as new.
fn rekey(slots: &mut Vec<QueueSlot>, view: &View) {
    for slot in slots.iter_mut() {
        let entry = &view.queue[slot.entry.waiting as usize];
        slot.key.1 = Reverse(order::priority_in(entry, slot.key.4));
    }
    if slots.is_sorted_by_key(|slot| slot.key) {
        return;
    }
    let mut ordered: Vec<(usize, QueueSlot)> =
        std::mem::take(slots).into_iter().enumerate().collect();
    ordered.sort_unstable_by_key(|(_, slot)| slot.key);
    let mut first_behind = usize::MAX;
    for (before, slot) in ordered.iter_mut().rev() {
        if *before > first_behind {
            slot.nothing_free = false;
            slot.is_recorded = false;
        }
        first_behind = first_behind.min(*before);
    }
    slots.extend(ordered.into_iter().map(|(_, slot)| slot));
}

fn summary(waiting: &PendingJob) -> EntrySummary {
    let is_open = waiting.hold.is_none()
        && waiting.fixed_reason.is_none()
        && waiting.dependency == DependencyState::Met
        && waiting.begin.is_none()
        && waiting.spec.request().reservation.is_none()
        && waiting.spec.components.len() == 1;
    let is_single =
        waiting.tasks == 1 && waiting.tasks_allowed.is_none() && waiting.partitions.len() == 1;
    EntrySummary {
        job: waiting.job,
        tasks: waiting.tasks,
        tasks_allowed: waiting.tasks_allowed.unwrap_or(u32::MAX),
        partition_count: waiting.partitions.len() as u32,
        is_open,
        is_het: waiting.het.is_some(),
        is_plain: is_open && is_single && waiting.het.is_none(),
        is_volatile: waiting.spec.request().switches.is_some(),
        wants_own_nodes: waiting.spec.request().sharing == Sharing::User,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::job;

    #[test]
    fn entries_that_stay_move_up_for_those_that_left() {
        let change = LeftAndCame { left: vec![1, 4], stay: 4 };
        let positions: Vec<Option<u32>> = (0..6).map(|before| change.position(before)).collect();
        assert_eq!(positions, [Some(0), None, Some(1), Some(2), None, Some(3)]);
        let mut list: Vec<u32> = (0..6).collect();
        remove_at(&mut list, &change.left);
        assert_eq!(list, [0, 2, 3, 5]);
    }

    #[test]
    fn entries_are_removed_from_any_places() {
        for chosen in 0..1_u32 << 7 {
            let goes = |at: &u32| (chosen >> *at) & 1 == 1;
            let positions: Vec<u32> = (0..7).filter(goes).collect();
            let expected: Vec<String> =
                (0..7).filter(|at| !goes(at)).map(|at| at.to_string()).collect();
            let mut list: Vec<String> = (0..7).map(|at: u32| at.to_string()).collect();
            remove_at(&mut list, &positions);
            assert_eq!(list, expected, "{chosen:b}");
        }
    }

    /// The change of a queue of these ids to the view's. Ids from 1,000 on are new records of those below.
    fn change_to(known: &[u32], new: &[u32]) -> Option<(Vec<u32>, usize)> {
        let entries: Vec<Arc<PendingJob>> = (0..200).map(|id| Arc::new(job(id))).collect();
        let entry = |id: &u32| match id.checked_sub(1_000) {
            Some(id) => Arc::new(job(id)),
            None => entries[*id as usize].clone(),
        };
        let queue =
            OrderedQueue { queue: known.iter().map(entry).collect(), ..OrderedQueue::default() };
        let view = View { queue: new.iter().map(entry).collect(), ..View::default() };
        queue.left_and_came(&view).map(|LeftAndCame { left, stay }| (left, stay))
    }

    #[test]
    fn few_that_left_and_others_behind_all_are_told_from_any_other_change() {
        assert_eq!(change_to(&[1, 2, 3, 4], &[1, 3, 4]), Some((vec![1], 3)));
        assert_eq!(change_to(&[1, 2, 3, 4], &[2, 3, 7]), Some((vec![0, 3], 2)));
        assert_eq!(change_to(&[], &[5]), Some((vec![], 0)));
        assert_eq!(change_to(&[1, 2], &[]), Some((vec![0, 1], 0)));
        // Another record in the middle and in the last place, and one that comes between others.
        assert_eq!(change_to(&[1, 2, 3], &[1, 1_002, 3]), None);
        assert_eq!(change_to(&[1, 2, 3], &[1, 2, 1_003]), None);
        assert_eq!(change_to(&[1, 2, 3], &[1, 2, 1_003, 4]), None);
        assert_eq!(change_to(&[1, 3], &[1, 2, 3]), None);
        let all: Vec<u32> = (0..200).collect();
        let most = LEFT_MAX as u32;
        assert_eq!(change_to(&all, &all[LEFT_MAX..]), Some(((0..most).collect(), 136)));
        assert_eq!(change_to(&all, &all[LEFT_MAX + 1..]), None);
    }
}
