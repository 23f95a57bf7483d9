//! The needs of the demands in the queue, each with its nodes in the order in which they come free.

use super::Baseline;
use crate::free::needs::{FreeOrder, NeedsScope, NodeNeeds, resort};
use crate::free::timeline::{Millis, now_key};
use crate::index::{ClassIndex, Rank};
use crate::place::candidates;
use crate::place::demand::Demand;
use crate::view::View;
use foldhash::fast::RandomState;
use model::request::Request;
use std::collections::HashMap;
use std::sync::Arc;

/// Beyond this many, needs that no job of the last plan had are dropped.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Clone, Default)]
pub struct NeedsCache {
    known: HashMap<NeedsKey, CachedNeeds, RandomState>,
    /// One for all requests that take the same of a node: jobs on two and on twenty nodes differ in how many they take. By the hash
    /// of what is taken: where nodes are for one user at a time, there are as many as users and requests.
    orders: HashMap<u64, Vec<CachedOrder>, RandomState>,
    partitions: Vec<PartitionNodes>,
    /// Nodes that changed, in order. An order is brought up to date when it is asked for.
    log: Vec<u32>,
    /// How often the log was cleared.
    volume: u64,
    /// How many plans were made.
    plan_count: u64,
}

/// An order is sorted again, instead of merged, where more than this fraction of the nodes changed since it was asked for.
const LOG_SHARE: usize = 4;

/// The log is cleared, and all orders are sorted again, once it has so many entries for each node.
const LOG_ENTRIES_PER_NODE: usize = 4;

/// The nodes of one partition.
#[derive(Debug, Clone, Default)]
struct PartitionNodes {
    /// In the order in which they are tried.
    nodes: Arc<[u32]>,
    /// Each node's rank among them.
    ranks: Vec<Option<Rank>>,
    /// For each class how many nodes are in service, and how many there are.
    by_class: Vec<(u32, u32)>,
}

#[derive(Debug, Clone)]
struct CachedNeeds {
    needs: Arc<NodeNeeds>,
    /// The last plan that asked for them.
    used: u64,
}

/// The nodes in the order in which they come free for some needs.
#[derive(Debug, Clone)]
struct CachedOrder {
    needs: Arc<NodeNeeds>,
    /// Set only where it makes a difference.
    uid: Option<u32>,
    order: Arc<FreeOrder>,
    /// By rank the time that the order has of the node; `None` of one that is not in it.
    times: Vec<Option<Millis>>,
    /// The log's volume and length as of which the order is right; `None` while it is not sorted.
    as_of: Option<(u64, usize)>,
}

/// What the needs depend on. Times, reservations and switches do not change what a job takes of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct NeedsKey {
    request: Request,
    partition: u32,
    part: NeedsScope,
    uid: Option<u32>,
    project: Option<String>,
}

impl NeedsCache {
    pub fn over(view: &View, baseline: &Baseline) -> Self {
        let partition = |at: u32| {
            let nodes = candidates(view, at);
            let mut ranks = vec![None; view.nodes.len()];
            for (rank, &node) in Rank::all().zip(nodes.iter()) {
                ranks[node as usize] = Some(rank);
            }
            PartitionNodes { nodes, ranks, by_class: Vec::new() }
        };
        let partitions = (0..view.partitions.len() as u32).map(partition).collect();
        let mut needs_cache = Self { partitions, ..Self::default() };
        needs_cache.count(baseline);
        needs_cache
    }

    fn count(&mut self, baseline: &Baseline) {
        for members in &mut self.partitions {
            members.by_class = vec![(0, 0); baseline.classes.samples.len()];
            for &node in members.nodes.iter() {
                let counts = &mut members.by_class[baseline.classes.of[node as usize].at()];
                let availability = baseline.availability[node as usize];
                counts.0 += u32::from(availability.is_in_service());
                counts.1 += 1;
            }
        }
    }

    /// How many nodes would hold the job if they were empty: in service, and in all.
    pub fn hold_empty(&self, of: &NodeNeeds, partition: u32, baseline: &Baseline) -> (u32, u32) {
        let members = &self.partitions[partition as usize];
        if of.is_for_any_name() {
            let classes = members.by_class.iter().zip(ClassIndex::all());
            let fitting = classes.filter(|(_, class)| of.fits_empty(*class));
            return fitting.fold((0, 0), |sum, (counts, _)| (sum.0 + counts.0, sum.1 + counts.1));
        }
        let fits =
            |node: &&u32| of.admits(**node) && of.fits_empty(baseline.classes.of[**node as usize]);
        members.nodes.iter().filter(fits).fold((0, 0), |sum, &node| {
            let availability = baseline.availability[node as usize];
            (sum.0 + u32::from(availability.is_in_service()), sum.1 + 1)
        })
    }

    pub fn candidates(&self, partition: u32) -> &Arc<[u32]> {
        &self.partitions[partition as usize].nodes
    }

    /// A node's position among the candidates of a partition.
    pub fn rank(&self, partition: u32, node: u32) -> Option<Rank> {
        *self.partitions[partition as usize].ranks.get(node as usize)?
    }

    /// Notes the nodes that changed since the last plan.
    pub fn refresh(&mut self, baseline: &Baseline, changed: Vec<u32>) {
        self.plan_count += 1;
        let plan_count = self.plan_count;
        if self.known.len() > KEPT_MAX {
            self.known.retain(|_, known| known.used + 1 >= plan_count);
            self.orders.retain(|_, orders| {
                orders.retain(|known| Arc::strong_count(&known.needs) > 1);
                !orders.is_empty()
            });
        }
        if changed.is_empty() {
            return;
        }
        if baseline.availability_changed {
            self.count(baseline);
        }
        self.log.extend(changed);
        if self.log.len() > LOG_ENTRIES_PER_NODE * baseline.nodes.len() {
            self.log.clear();
            self.volume += 1;
        }
    }

    pub fn get(
        &mut self,
        demand: &Demand<'_>,
        part: NeedsScope,
        partition: u32,
        uid: Option<u32>,
        baseline: &Baseline,
    ) -> Arc<NodeNeeds> {
        let key = NeedsKey {
            request: Request {
                partitions: Vec::new(),
                reservation: None,
                switches: None,
                ..demand.request.without_times()
            },
            partition,
            part,
            uid,
            project: demand.project.map(str::to_owned),
        };
        let Self { known, orders, partitions, plan_count, .. } = self;
        let candidates = &partitions[partition as usize].nodes;
        let known = known.entry(key).or_insert_with(|| {
            let classes = &baseline.classes;
            let needs = NodeNeeds::new(demand, part, classes, candidates, &baseline.nodes);
            CachedNeeds { needs: shared(orders, needs, uid), used: *plan_count }
        });
        known.used = *plan_count;
        known.needs.clone()
    }

    /// The nodes in the order in which they come free for these needs.
    pub fn order(&mut self, needs: &Arc<NodeNeeds>, baseline: &Baseline) -> Arc<FreeOrder> {
        let (volume, page, log) = (self.volume, self.log.len(), &self.log);
        let sorted = || Arc::new(needs.sorted(|needs, node| first_free(needs, baseline, node)));
        let mut members = self.partitions.iter();
        let members = members.find(|members| Arc::ptr_eq(&members.nodes, &needs.candidates));
        let mut of_hash = self.orders.get_mut(&needs.taken_hash()).into_iter().flatten();
        let known = of_hash.find(|known| Arc::ptr_eq(&known.needs, needs));
        let Some((known, members)) = known.zip(members) else { return sorted() };
        match known.as_of {
            Some(as_of) if as_of == (volume, page) => {}
            Some((of, from))
                if of == volume && (page - from) * LOG_SHARE <= baseline.nodes.len() =>
            {
                let mut changed = log[from..].to_vec();
                changed.sort_unstable();
                changed.dedup();
                let ranks = changed.into_iter().filter_map(|node| members.ranks[node as usize]);
                known.resort(ranks, baseline);
            }
            _ => known.take_order(sorted()),
        }
        known.as_of = Some((volume, page));
        known.order.clone()
    }
}

/// These needs, or the same ones that another request has.
fn shared(
    orders: &mut HashMap<u64, Vec<CachedOrder>, RandomState>,
    needs: NodeNeeds,
    uid: Option<u32>,
) -> Arc<NodeNeeds> {
    let orders = orders.entry(needs.taken_hash()).or_default();
    let is_same = |known: &&CachedOrder| known.uid == uid && known.needs.takes_the_same_as(&needs);
    if let Some(known) = orders.iter().find(is_same) {
        return known.needs.clone();
    }
    let needs = Arc::new(needs);
    let (order, times) = (Arc::default(), Vec::new());
    orders.push(CachedOrder { needs: needs.clone(), uid, order, times, as_of: None });
    needs
}

impl CachedOrder {
    fn take_order(&mut self, order: Arc<FreeOrder>) {
        self.times.clear();
        self.times.resize(self.needs.candidates.len(), None);
        order.iter().for_each(|(time, rank)| self.times[rank.at()] = Some(*time));
        self.order = order;
    }

    /// Brings the nodes of these ranks, each of which is named once, to their new places.
    fn resort(&mut self, ranks: impl Iterator<Item = Rank>, baseline: &Baseline) {
        let (mut stale, mut fresh) = (FreeOrder::new(), FreeOrder::new());
        for rank in ranks {
            let now = first_free(&self.needs, baseline, self.needs.candidate(rank));
            let before = std::mem::replace(&mut self.times[rank.at()], now);
            if before != now {
                stale.extend(before.map(|time| (time, rank)));
                fresh.extend(now.map(|time| (time, rank)));
            }
        }
        // The searches of earlier plans are gone: nobody else has the order, and it is changed in place.
        resort(Arc::make_mut(&mut self.order), stale, fresh);
    }
}

fn first_free(needs: &NodeNeeds, baseline: &Baseline, node: u32) -> Option<i64> {
    let at = node as usize;
    let availability = baseline.availability[at];
    if !availability.takes_jobs() || !needs.admits(node) {
        return None;
    }
    let first = needs.first_free(baseline.classes.of[at], &baseline.timelines[at]);
    first.map(|first| first.max(now_key(availability)))
}

#[cfg(test)]
mod tests {
    use crate::Memo;
    use crate::free::needs::NeedsScope;
    use crate::testing::{NOW, after_min, cluster, gpu_nodes, job};
    use model::request::{Per, WaitPolicy};
    use std::sync::Arc;

    /// Wide and narrow jobs, of two users, that want whole GPUs of each of their nodes; and one that wants more.
    #[test]
    fn jobs_that_take_the_same_of_each_node_share_its_order() {
        let wide = |id: u32, nodes: u32| job(id).nodes(nodes).gpus(Per::Node, 8);
        let jobs = [wide(1, 4), wide(2, 2), wide(3, 3).of_user(1001), wide(4, 2).cpus(4)];
        let view = cluster(gpu_nodes(4)).with_jobs(jobs);
        let mut memo = Memo::default();
        let plan = crate::plan(&view, NOW, &mut memo);
        assert_eq!((plan.starts.len(), plan.reasons.len()), (1, 3));
        assert_eq!(memo.needs_cache.known.len(), 4);
        assert_eq!(memo.needs_cache.orders.values().flatten().count(), 2);
        assert_eq!(plan, view.plan());
    }

    #[test]
    fn shape_keeps_from_plan_to_plan_what_it_takes_of_a_node() {
        let jobs = [1, 2].map(|id| job(id).nodes(1).gpus(Per::Node, 8));
        let view = cluster(gpu_nodes(1)).with_jobs(jobs);
        let mut memo = Memo::default();
        let mut needs_after_plan = || {
            let plan = crate::plan(&view, NOW, &mut memo);
            assert_eq!(plan, view.plan());
            let scopes = [NeedsScope::WholeJob, NeedsScope::EachNode];
            let needs = scopes.map(|scope| memo.queue.shapes[0].needs(scope).get().cloned());
            needs.into_iter().flatten().next().expect("what the shape takes is known")
        };
        let first = needs_after_plan();
        assert!(Arc::ptr_eq(&first, &needs_after_plan()));
    }

    #[test]
    fn jobs_that_wait_until_times_of_their_own_are_of_one_shape() {
        let until = |id: u32| {
            let end = WaitPolicy::Until(after_min(i64::from(id)));
            job(id).nodes(1).asking(|request| request.wait_policy = end)
        };
        let view = cluster(gpu_nodes(1)).with_jobs([until(1), until(2), job(3).nodes(2)]);
        let mut memo = Memo::default();
        assert_eq!(crate::plan(&view, NOW, &mut memo), view.plan());
        assert_eq!(memo.queue.shapes.len(), 2);
    }
}
