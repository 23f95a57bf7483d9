//! The nodes before a plan: what runs on each, and when it ends.

use super::same_run::{are_same, same_run};
use crate::free::class::NodeClasses;
use crate::free::node_free::{NodeFree, gpus_shared_by};
use crate::free::timeline::{
    CORES, GRES, Millis, NEVER, Occupancy, Timeline, Users, columns_free, columns_of,
};
use crate::view::{Availability, NodeInfo, NodeUse, RunningJob, View};
use model::gres::GPU;
use model::node::NodeConfig;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many nodes are looked at together whether anything of them changed: in most plans nothing of most of them has.
const NODES_AT_ONCE: usize = 32;

/// With more jobs that came or left than this, their list is copied as a whole.
const MOVED_ONE_BY_ONE: usize = 32;

#[derive(Debug, Clone, Default)]
pub struct Baseline {
    /// A view was taken over.
    has_view: bool,
    pub nodes: Vec<Arc<NodeInfo>>,
    /// The names of the nodes.
    pub names: Arc<[String]>,
    pub classes: NodeClasses,
    pub timelines: Vec<Timeline>,
    /// Of each node. A list of its own, as below: every search asks it of each node that it looks at.
    pub availability: Vec<Availability>,
    /// A node's availability is another than in the last view.
    pub availability_changed: bool,
    /// How many nodes take jobs of one user only.
    user_exclusive_nodes: usize,
    /// How many jobs resume once their cores are free.
    resumable_jobs: usize,
    /// When each node's timeline next changes, and what is free of its cores now. Lists of their own: every plan looks at all of them.
    next_changes: Vec<Millis>,
    free_cores: Vec<u64>,
    running: Vec<Arc<RunningJob>>,
    /// For each node the jobs on it, with the index of the node's share in the job's shares.
    on_node: Vec<Vec<(Arc<RunningJob>, u32)>>,
}

impl Baseline {
    /// Whether it has seen no view yet.
    pub fn is_new(&self) -> bool {
        !self.has_view
    }

    /// Whether a node takes jobs of one user only.
    pub fn has_user_exclusive_nodes(&self) -> bool {
        self.user_exclusive_nodes > 0
    }

    /// The projects that have nodes for their jobs alone.
    pub fn projects_with_nodes(&self) -> BTreeSet<String> {
        let machines = self.classes.samples.iter().filter_map(|config| config.machine.as_ref());
        machines.filter_map(|kind| kind.project.clone()).collect()
    }

    /// Whether a job was suspended by a preemption and resumes once its cores are free.
    pub fn has_resumable_jobs(&self) -> bool {
        self.resumable_jobs > 0
    }

    /// The nodes on which a core is free now.
    pub fn nodes_with_free_cores(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.free_cores).filter(|(_, free)| **free > 0).map(|(node, _)| node)
    }

    /// The jobs on a node, with the index of the node's share in the job's shares.
    pub fn on_node(&self, node: u32) -> &[(Arc<RunningJob>, u32)] {
        &self.on_node[node as usize]
    }

    /// Takes over the view's nodes and jobs. Returns the nodes that changed, in order. `None` if the view has other nodes than the
    /// one before, whatever runs on them: nothing of it is good any more then.
    pub fn refresh(&mut self, view: &View, now: Millis) -> Option<Vec<u32>> {
        if !self.is_new() && self.nodes.len() != view.nodes.len() {
            return None;
        }
        if self.is_new() {
            let user_exclusive = view.nodes.iter().filter(|node| is_user_exclusive(node));
            *self = Self {
                has_view: true,
                classes: NodeClasses::of_nodes(&view.nodes),
                nodes: view.nodes.clone(),
                names: view.nodes.iter().map(|node| node.config.name.clone()).collect(),
                availability: view.nodes.iter().map(|node| node.availability).collect(),
                on_node: vec![Vec::new(); view.nodes.len()],
                user_exclusive_nodes: user_exclusive.count(),
                ..Self::default()
            };
        }
        let mut is_changed = vec![self.timelines.is_empty(); view.nodes.len()];
        if self.timelines.is_empty() {
            let nothing = Timeline::constant(&[], Occupancy::default());
            self.timelines = vec![nothing; view.nodes.len()];
            self.next_changes = vec![NEVER; view.nodes.len()];
            self.free_cores = vec![0; view.nodes.len()];
        }
        self.take_running(view, &mut is_changed);
        self.availability_changed = false;
        let mut changed = Vec::new();
        // One pass over all nodes: every plan makes it, and few nodes have changed.
        for first in (0..view.nodes.len()).step_by(NODES_AT_ONCE) {
            let part = first..(first + NODES_AT_ONCE).min(view.nodes.len());
            let is_touched = is_changed[part.clone()].iter().fold(false, |any, is| any | is)
                || !are_same(&self.nodes[part.clone()], &view.nodes[part.clone()])
                || is_any_due(&self.next_changes[part.clone()], now);
            if !is_touched {
                continue;
            }
            for at in part {
                let (node, known) = (&view.nodes[at], &mut self.nodes[at]);
                let mut is_changed = is_changed[at];
                if !Arc::ptr_eq(known, node) {
                    let (old, new) = (&known.config, &node.config);
                    if !Arc::ptr_eq(old, new) && old != new {
                        return None;
                    }
                    let availability_changed = known.availability != node.availability;
                    self.availability_changed |= availability_changed;
                    self.availability[at] = node.availability;
                    is_changed |= availability_changed || known.used != node.used;
                    self.user_exclusive_nodes += usize::from(is_user_exclusive(node));
                    self.user_exclusive_nodes -= usize::from(is_user_exclusive(known));
                    *known = node.clone();
                }
                // Where a job should have ended by now, the timeline is another too.
                if is_changed || self.next_changes[at] <= now {
                    changed.push(at as u32);
                }
            }
        }
        for at in changed.iter().map(|node| *node as usize) {
            let class = self.classes.of[at].at();
            let empty = EmptyNode {
                columns: &self.classes.empty[class],
                free: &self.classes.empty_nodes[class],
            };
            let timeline = &mut self.timelines[at];
            set_timeline(timeline, &self.nodes[at], &empty, &self.on_node[at], now);
            self.next_changes[at] = timeline.next_change().unwrap_or(NEVER);
            self.free_cores[at] = timeline.free(0)[CORES];
        }
        Some(changed)
    }

    /// Takes over the running jobs. Lists sorted by job id are compared fastest.
    fn take_running(&mut self, view: &View, changed: &mut [bool]) {
        let (left, came) = running_moves(&self.running, &view.running);
        let (mut gone, mut come) = (Vec::new(), Vec::new());
        if left.len() + came.len() <= MOVED_ONE_BY_ONE {
            gone.extend(left.iter().rev().map(|at| self.running.remove(*at)));
            for at in came {
                let running = &view.running[at];
                self.running.insert(at, running.clone());
                come.push(running);
            }
        } else {
            gone.extend(left.iter().map(|at| self.running[*at].clone()));
            come.extend(came.iter().map(|at| &view.running[*at]));
            self.running.clone_from(&view.running);
        }
        for old in &gone {
            self.resumable_jobs -= usize::from(is_resumable(old));
            for node in old.shares.nodes() {
                let Some(on) = self.on_node.get_mut(node as usize) else { continue };
                on.retain(|(other, _)| !Arc::ptr_eq(other, old));
                changed[node as usize] = true;
            }
        }
        for new in come {
            self.resumable_jobs += usize::from(is_resumable(new));
            for (node, at) in new.shares.nodes().zip(0u32..) {
                let Some(on) = self.on_node.get_mut(node as usize) else { continue };
                on.push((new.clone(), at));
                changed[node as usize] = true;
            }
        }
    }
}

/// The positions of the jobs that are in the known list alone, and of those that are in the new one alone. A job whose record is
/// another is in both.
fn running_moves(known: &[Arc<RunningJob>], new: &[Arc<RunningJob>]) -> (Vec<usize>, Vec<usize>) {
    let (mut left, mut came) = (Vec::new(), Vec::new());
    let (mut old_at, mut at) = (0, 0);
    loop {
        let same = same_run(&known[old_at..], &new[at..]);
        (old_at, at) = (old_at + same, at + same);
        match (known.get(old_at), new.get(at)) {
            (None, None) => return (left, came),
            (Some(old), new) if new.is_none_or(|new| old.job <= new.job) => {
                left.push(old_at);
                old_at += 1;
            }
            _ => {
                came.push(at);
                at += 1;
            }
        }
    }
}

fn is_any_due(times: &[Millis], now: Millis) -> bool {
    times.iter().fold(false, |any, time| any | (*time <= now))
}

fn is_user_exclusive(node: &NodeInfo) -> bool {
    !node.used.user_exclusive.is_empty()
}

/// Whether the job was suspended by a preemption and resumes once its cores are free.
pub fn is_resumable(running: &RunningJob) -> bool {
    running.resume_when_free && !running.is_ending
}

/// What a node has when it is empty.
struct EmptyNode<'c> {
    /// By column of its timeline.
    columns: &'c [u64],
    free: &'c NodeFree,
}

/// Sets one node's timeline: free now what is not used, and more as each job ends. The timeline of before gives its allocations.
fn set_timeline(
    timeline: &mut Timeline,
    info: &NodeInfo,
    empty: &EmptyNode<'_>,
    on: &[(Arc<RunningJob>, u32)],
    now: Millis,
) {
    let (config, whole) = (&*info.config, empty.columns);
    if on.is_empty() && info.used == NodeUse::default() {
        timeline.reset(whole, Occupancy::default());
        return;
    }
    let mut free = columns_free(&empty.free.clone().without_used(info), config);
    let mut there = Occupancy {
        jobs: info.used.jobs,
        exclusive: info.used.is_closed_to_all(),
        users: info.used.users.iter().fold(Users::Nobody, |users, uid| users.and(*uid)),
        owner: info.used.user_exclusive.first().map(|(_, uid)| *uid),
    };
    let in_shares = config.gres.iter().any(|line| line.share_of.is_some());
    // There are several where the configuration changed under running jobs.
    let has_whole = |running: &RunningJob| running.exclusive && !running.suspended;
    let mut whole_jobs = on.iter().filter(|(running, _)| has_whole(running)).count();
    let mut is_whole = info.used.exclusive;
    timeline.reset(&free, there);
    let mut ends: SmallVec<[(Millis, &OnNode); 4]> = on
        .iter()
        // A job over its time limit will end, but has not yet.
        .filter_map(|on| Some((on.0.end?.millis().max(now + 1), on)))
        .collect();
    ends.sort_unstable_by_key(|(end, (running, _))| (*end, running.job));
    for (end, (running, share)) in &ends {
        let mut given = columns_of(config, running.shares.get(*share));
        if running.suspended {
            given[CORES] = 0;
        }
        if in_shares {
            release_shared_gpus(&mut given, config, running, *share, &staying_at(on, *end));
        }
        for ((free, given), whole) in free.iter_mut().zip(given).zip(whole) {
            *free = (*free + given).min(*whole);
        }
        // A suspended job is not counted in the occupancy.
        if !running.suspended {
            there.jobs = there.jobs.saturating_sub(1);
            whole_jobs -= usize::from(running.exclusive);
            is_whole &= !running.exclusive || whole_jobs > 0;
        }
        let (users, owner, is_torn) = users_after(info, on, *end);
        (there.users, there.owner) = (users, owner);
        there.exclusive = is_whole || is_torn;
        timeline.push(*end, &free, there);
    }
}

type OnNode = (Arc<RunningJob>, u32);

fn staying_at(on: &[OnNode], time: Millis) -> Vec<&OnNode> {
    on.iter().filter(|(r, _)| r.end.is_none_or(|end| end.millis() > time)).collect()
}

/// The last job with a share of a GPU releases it for those that want it whole.
fn release_shared_gpus(
    given: &mut [u64],
    config: &NodeConfig,
    running: &RunningJob,
    share: u32,
    staying: &[&OnNode],
) {
    let parts = |running: &RunningJob, share: u32| -> Vec<u32> {
        let shares = &running.shares.get(share).gres;
        shares.iter().flat_map(|gres| gpus_shared_by(config, gres)).copied().collect()
    };
    for gpu in parts(running, share) {
        let still = staying.iter().any(|(other, at)| parts(other, *at).contains(&gpu));
        let of_gpu = |line: &model::node::NodeGres| {
            let first = u64::from(line.first_index);
            line.name == GPU && (first..first + line.count).contains(&u64::from(gpu))
        };
        if let Some(line) = config.gres.iter().position(of_gpu).filter(|_| !still) {
            given[GRES + line] += 1;
        }
    }
}

/// The users of the jobs that are still on the node at `time`, the user of an `--exclusive=user` job among them, and whether there are
/// such jobs of several users. A user in the node's `used` without a job in the list is taken to stay: when it leaves is not known. Suspended jobs are left out,
/// as they are of `used`: a node has no more users later than before, and searches rely on it.
fn users_after(
    info: &NodeInfo,
    on: &[(Arc<RunningJob>, u32)],
    time: Millis,
) -> (Users, Option<u32>, bool) {
    let stays = |running: &RunningJob| {
        !running.suspended && running.end.is_none_or(|end| end.millis() > time)
    };
    let staying = || on.iter().map(|(running, _)| running).filter(|running| stays(running));
    let unknown = info.used.users.iter().filter(|uid| on.iter().all(|(r, _)| r.uid != **uid));
    let users = staying().map(|running| &running.uid).chain(unknown);
    let users = users.fold(Users::Nobody, |users, uid| users.and(*uid));
    let owns = |job| info.used.user_exclusive.iter().any(|(owner, _)| *owner == job);
    let mut owners = staying().filter(|running| owns(running.job)).map(|running| running.uid);
    let owner = owners.next();
    let is_torn = owners.any(|other| Some(other) != owner);
    (users, owner, is_torn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{cluster, gpu_node, gpu_nodes, job};
    use model::cpuset::CpuSet;

    /// Some jobs end, one gets another record, and others start: one by one, and as many as are copied as a whole.
    #[test]
    fn jobs_that_left_and_came_are_told_by_their_places() {
        let mut view = cluster(gpu_nodes(8)).with_jobs((1..=100).map(|id| job(id).cpus(1)));
        view.carry_out(&view.plan());
        let all = view.running;
        assert_eq!(all.len(), 100);
        let mut other = all.clone();
        other[40] = Arc::new(RunningJob::clone(&all[40]));
        other.remove(7);
        let known = &all[..90];
        assert_eq!(running_moves(known, known), (vec![], vec![]));
        let came: Vec<usize> = [39].into_iter().chain(89..99).collect();
        assert_eq!(running_moves(known, &other), (vec![7, 40], came));
        assert_eq!(running_moves(known, &[]).0.len(), 90);
        assert_eq!(running_moves(&[], known).1.len(), 90);
    }

    #[test]
    fn idle_node_has_what_an_empty_node_of_its_class_has() {
        let mut node = gpu_node("n1");
        (node.threads_per_core, node.cores_per_socket) = (2, 8);
        node.cpus_reserved = CpuSet::first(2);
        let view = cluster(vec![node]);
        let info = &view.nodes[0];
        let classes = NodeClasses::of_nodes(&view.nodes);
        let mut idle = Timeline::constant(&[], Occupancy::default());
        let empty = EmptyNode { columns: &classes.empty[0], free: &classes.empty_nodes[0] };
        set_timeline(&mut idle, info, &empty, &[], 0);
        let free = columns_free(&NodeFree::of(info), &info.config);
        assert_eq!(idle, Timeline::constant(&free, Occupancy::default()));
    }
}
