//! Shapes: jobs that ask for the same in the same partition get the same answer, so each shape is worked out once a
//! plan.

use crate::free::needs::{NeedsScope, NodeNeeds};
use crate::free::node_free::NodeFree;
use crate::free::search::Search;
use crate::free::timeline::{Millis, NEVER};
use crate::free::waiting_shape::WaitingShape;
use crate::gate;
use crate::index::Rank;
use crate::memo::{Baseline, NeedsCache, ShapeKey};
use crate::place::demand::{Demand, Tasks};
use crate::place::{FreeNodes, candidates, place, settle_switch_level};
use crate::reservation::ReservationAccess;
use crate::topology::Switches;
use crate::view::{SchedulerPolicy, View};
use model::node::NodeConfig;
use model::reason::Reason;
use model::run::Launch;
use model::time::TimeLimit;
use model::tres::Tres;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

pub struct Shape<'a> {
    pub demand: Demand<'a>,
    pub partition: u32,
    pub access: ReservationAccess,
    /// Why the partition's policy holds the shape back, if it does.
    pub gate: Option<Reason>,
    /// The least that it is charged for; worked out when first asked for.
    least: OnceCell<Tres>,
    pub time_limit: TimeLimit,
    key: &'a ShapeKey,
    pub mode: PlacementMode,
    pub full: DurationSearch,
    /// With `--time-min` the shortest time limit that it may be cut to.
    pub short: Option<DurationSearch>,
    /// Why it could not start even on empty nodes; worked out when first asked for.
    never: Option<Option<Reason>>,
}

/// How the nodes of a job are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlacementMode {
    /// One node or nothing.
    Single,
    /// One node if it can be, else several.
    SingleFirst,
    /// This many nodes, with the same amounts on each.
    EqualNodes(u32),
    /// A set of nodes that must be chosen as a whole.
    NodeSet,
}

/// The search for jobs of one length.
#[derive(Default)]
pub struct DurationSearch {
    pub length: Millis,
    pub whole: Option<Search>,
    pub each: Option<Search>,
    /// No node was free now for one job of the shape. Nothing comes free within a plan, so none is for the others.
    pub failed: bool,
    /// The same, because nodes were looked for and not because none may start: no slot of one node begins now.
    pub nothing_free: bool,
    /// No set of nodes serves before this moment, as of a number of releases.
    pub none_before: (u32, Millis),
    pub differing: ChangedNodes,
}

/// When the nodes that changed since the last plan could serve: for each the version that was asked, and the time with
/// its rank.
#[derive(Default)]
pub struct ChangedNodes {
    pub from: Millis,
    pub answers: Vec<(u32, Option<(Millis, Rank)>)>,
}

impl DurationSearch {
    fn of(length: Millis) -> Self {
        Self { length, ..Self::default() }
    }
}

/// `OverTimeLimit`: how much longer than its limit a job may run.
pub fn over_time(policy: &SchedulerPolicy) -> Millis {
    60_000 * i64::from(policy.over_time_min)
}

/// How long after its start a job with this limit is sure to be gone.
fn length(launch: &Launch, limit: TimeLimit, policy: &SchedulerPolicy) -> Millis {
    let length = launch.exact_limit(limit).or(limit.duration());
    length.map_or(NEVER, |length| {
        i64::try_from(length.as_millis()).unwrap_or(NEVER).saturating_add(over_time(policy))
    })
}

impl<'a> Shape<'a> {
    pub fn new(view: &'a View, key: &'a ShapeKey, switches: Option<&Arc<Switches>>) -> Self {
        let info = &view.partitions[key.partition as usize];
        let request = key.request();
        let uid = key.uid.unwrap_or(key.spec.owner.uid);
        let mut demand = Demand::new(request, &info.partition, &view.policy, uid);
        demand.project = key.project.as_deref();
        demand.switches = switches.filter(|known| known.matter_to(request)).cloned();
        let most = request.switches.filter(|_| !key.switches_waived);
        demand.switches_max = most.map(|most| most.count);
        if request.one_switch {
            let empty = EmptyNodes { view, in_service_only: false };
            settle_switch_level(&mut demand, &empty, &candidates(view, key.partition));
        }
        let time_limit = gate::time_limit(request, &info.partition);
        let short = request.time_min.filter(|least| *least < time_limit);
        let launch = &*key.spec.launch;
        let search = |limit| DurationSearch::of(length(launch, limit, &view.policy));
        Self {
            partition: key.partition,
            access: key.access.clone(),
            gate: gate::partition(info, &demand),
            least: OnceCell::new(),
            time_limit,
            mode: mode(&demand),
            full: search(time_limit),
            short: short.map(search),
            key,
            never: None,
            demand,
        }
    }

    /// How long after its start a job of the shape is sure to be gone if it starts with this limit.
    pub fn length_of(&self, limit: TimeLimit, policy: &SchedulerPolicy) -> Millis {
        length(&self.key.spec.launch, limit, policy)
    }

    /// The search for nodes for this part of the job, for its full length or the short one.
    pub fn search<'s>(
        &'s mut self,
        scope: NeedsScope,
        short: bool,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> &'s mut Search {
        let needs = self.needs(scope, needs_cache, baseline);
        let of_length = match (&mut self.short, short) {
            (Some(search), true) => search,
            _ => &mut self.full,
        };
        let length = of_length.length;
        let slot = match scope {
            NeedsScope::WholeJob => &mut of_length.whole,
            NeedsScope::EachNode => &mut of_length.each,
        };
        slot.get_or_insert_with(|| {
            let order = needs_cache.order(&needs, baseline);
            Search::new(needs, order, self.access.clone(), length)
        })
    }

    /// The least that a job of the shape is charged for. Limits are checked against it before nodes are looked for.
    pub fn least(&self) -> &Tres {
        self.least.get_or_init(|| self.demand.least())
    }

    /// What this part of the job takes of a node, without a search.
    pub fn needs(
        &self,
        scope: NeedsScope,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> Arc<NodeNeeds> {
        let ShapeKey { partition, uid, .. } = *self.key;
        let known = self.key.needs(scope);
        let find = || needs_cache.get(&self.demand, scope, partition, uid, baseline);
        known.get_or_init(find).clone()
    }

    /// No job of the shape starts in this plan.
    pub fn fail(&mut self) {
        self.full.failed = true;
        self.short.iter_mut().for_each(|search| search.failed = true);
    }

    /// No job of the shape starts in this plan, because nothing is free for it.
    pub fn fail_for_nodes(&mut self) {
        self.fail();
        self.full.nothing_free = true;
    }

    /// Whether everything is known about the shape in this plan: its partition lets it start, nothing is free for it now,
    /// and something could be later.
    pub fn is_settled(&self) -> bool {
        self.gate.is_none()
            && self.full.failed
            && self.short.as_ref().is_none_or(|short| short.failed)
            && matches!(self.never, Some(None))
    }

    /// What later plans may know of the shape. `None` unless all that it waits for, now and as time passes, is nodes.
    pub fn waiting(
        &mut self,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> Option<WaitingShape> {
        let request = self.demand.request;
        let waits_for_more = self.gate.is_some()
            || request.deadline.is_some()
            || !request.licenses.is_empty()
            || !matches!(self.never, Some(None));
        if waits_for_more {
            return None;
        }
        let (scope, node_count) = match self.mode {
            PlacementMode::Single => (NeedsScope::WholeJob, 1),
            PlacementMode::SingleFirst => (NeedsScope::EachNode, 1),
            PlacementMode::EqualNodes(count) => (NeedsScope::EachNode, count.max(1)),
            PlacementMode::NodeSet => (NeedsScope::EachNode, self.demand.nodes_min.max(1)),
        };
        let length = self.short.as_ref().unwrap_or(&self.full).length;
        let needs = self.needs(scope, needs_cache, baseline);
        let partition = self.partition;
        needs.takes_cores().then_some(WaitingShape { partition, needs, node_count, length })
    }

    /// The last moment at which it can start and still end before its deadline.
    pub fn latest_start(&self) -> Millis {
        let Some(deadline) = self.demand.request.deadline else { return NEVER };
        let least = self.demand.request.time_min.unwrap_or(self.time_limit).min(self.time_limit);
        let least_ms = least.secs().map_or(NEVER, |s| i64::try_from(s).unwrap_or(NEVER) * 1_000);
        deadline.millis().saturating_sub(least_ms)
    }

    /// The time limit with which it ends before its deadline if it starts now.
    pub fn limit_until_deadline(&self, limit: TimeLimit, now: Millis) -> TimeLimit {
        let Some(deadline) = self.demand.request.deadline else { return limit };
        let minutes = (deadline.millis() - now).max(0) / 60_000;
        limit.min(TimeLimit::Minutes(u32::try_from(minutes).unwrap_or(u32::MAX)))
    }

    pub fn search_of_length(&mut self, short: bool) -> &mut DurationSearch {
        match (&mut self.short, short) {
            (Some(search), true) => search,
            _ => &mut self.full,
        }
    }

    /// Why the shape could not start even on empty nodes: nodes are out of service, or none meet the demand.
    pub fn reason_never(
        &mut self,
        view: &View,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> Option<&Reason> {
        if self.never.is_none() {
            self.never = Some(self.find_reason_never(view, needs_cache, baseline));
        }
        self.never.as_ref().and_then(Option::as_ref)
    }

    fn find_reason_never(
        &mut self,
        view: &View,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> Option<Reason> {
        let named = &self.demand.request.node_list;
        if !named.is_empty() {
            let names: HashSet<&str> = named.iter().map(String::as_str).collect();
            let away = |node: &&std::sync::Arc<crate::view::NodeInfo>| {
                !node.availability.is_in_service() && names.contains(node.config.name.as_str())
            };
            let away: Vec<String> =
                view.nodes.iter().filter(away).map(|node| node.config.name.clone()).collect();
            if !away.is_empty() {
                return Some(Reason::RequiredNodesUnavailable { nodes: away });
            }
        }
        let fits = match self.mode {
            PlacementMode::Single => {
                self.fits_empty(NeedsScope::WholeJob, 1, needs_cache, baseline)
            }
            PlacementMode::EqualNodes(count) => {
                self.fits_empty(NeedsScope::EachNode, count, needs_cache, baseline)
            }
            PlacementMode::SingleFirst | PlacementMode::NodeSet => {
                // Most fit on one node, which is quickly found out.
                let one = self.mode == PlacementMode::SingleFirst
                    && self.fits_empty(NeedsScope::WholeJob, 1, needs_cache, baseline).0;
                let candidates = needs_cache.candidates(self.partition);
                let fits = |in_service_only| {
                    let space = EmptyNodes { view, in_service_only };
                    // `--switches` is waited for only so long: it is no reason never to start.
                    let anywhere = Demand { switches_max: None, ..self.demand.clone() };
                    place(&anywhere, &space, candidates).is_some()
                };
                if one { (true, true) } else { (fits(true), fits(false)) }
            }
        };
        match fits {
            (true, _) => None,
            (false, true) => Some(Reason::NodesDown),
            (false, false) => Some(Reason::BadConstraints),
        }
    }

    /// Whether enough nodes would hold it if they were empty: among those in service, and among all.
    fn fits_empty(
        &mut self,
        scope: NeedsScope,
        count: u32,
        needs_cache: &mut NeedsCache,
        baseline: &Baseline,
    ) -> (bool, bool) {
        let needs = self.needs(scope, needs_cache, baseline);
        let (in_service, all) = needs_cache.hold_empty(&needs, self.partition, baseline);
        (in_service >= count, all >= count)
    }
}

fn mode(demand: &Demand<'_>) -> PlacementMode {
    let request = demand.request;
    let constraint = request.constraint.as_ref();
    let as_a_whole =
        request.contiguous || demand.switches.is_some() || demand.needs_matching_nodes();
    let (least, most) = (demand.nodes_min, demand.nodes_max);
    let is_ranked = demand.select.least_loaded || request.prefer.is_some();
    if is_ranked {
        return PlacementMode::NodeSet;
    }
    if most == 1 && !constraint.is_some_and(|c| c.has_counts()) {
        return PlacementMode::Single;
    }
    let by_network_only = !request.contiguous && !demand.needs_matching_nodes();
    if least > most || (as_a_whole && !by_network_only) {
        return PlacementMode::NodeSet;
    }
    if !demand.wants_many_nodes() && least == 1 {
        return PlacementMode::SingleFirst;
    }
    if as_a_whole {
        return PlacementMode::NodeSet;
    }
    let alike = match demand.tasks {
        Tasks::PerNode(_) => true,
        Tasks::Total { count, .. } => count <= least,
    };
    let named = request.node_list.len();
    let by_name = named == 0 || named == least as usize;
    if least == most && alike && by_name && !demand.has_job_totals() {
        return PlacementMode::EqualNodes(least);
    }
    PlacementMode::NodeSet
}

/// All nodes, or those in service, as if nothing ran on them.
pub struct EmptyNodes<'a> {
    pub view: &'a View,
    pub in_service_only: bool,
}

impl FreeNodes for EmptyNodes<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let info = &self.view.nodes[node as usize];
        let usable = !self.in_service_only || info.availability.is_in_service();
        usable.then(|| Cow::Owned(NodeFree::empty(&info.config)))
    }
}
