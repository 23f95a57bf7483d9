//! Shapes: jobs that ask for the same in the same partition fare the same, so each shape is worked
//! out once a plan.

use crate::footprint::{Footprint, Part};
use crate::free::NodeFree;
use crate::gate;
use crate::memo::{Footprints, ShapeKey, Standing};
use crate::place::demand::{Demand, Tasks};
use crate::place::{Space, place};
use crate::reserved::Pass;
use crate::search::Search;
use crate::timeline::{Millis, NEVER};
use crate::topology::Switches;
use crate::view::{Availability, SchedulerPolicy, View};
use model::node::NodeConfig;
use model::reason::Reason;
use model::time::TimeLimit;
use model::tres::Tres;
use std::borrow::Cow;
use std::sync::Arc;

pub struct Shape<'a> {
    pub demand: Demand<'a>,
    pub partition: u32,
    pub uid: Option<u32>,
    pub pass: Pass,
    /// What the partition's policy says to it, once and for all.
    pub gate: Option<Reason>,
    pub least: Tres,
    pub time_limit: TimeLimit,
    pub mode: Mode,
    pub full: Lane,
    /// With `--time-min` the shortest that it may be cut to.
    pub short: Option<Lane>,
    whole: Option<Arc<Footprint>>,
    each: Option<Arc<Footprint>>,
    /// Why it could not start even on empty nodes; worked out when first wanted.
    prospect: Option<Option<Reason>>,
}

/// How the nodes of a job are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It fits on one node or nowhere.
    One,
    /// One node if it can be, else several.
    OneFirst,
    /// So many nodes, with the same on each.
    Alike(u32),
    /// A set that is right only as a whole.
    Set,
}

/// The search for places for jobs of one length.
#[derive(Default)]
pub struct Lane {
    pub length: Millis,
    pub whole: Option<Search>,
    pub each: Option<Search>,
    /// One of it found no place now. Within a plan nothing comes free, so none of it will.
    pub failed: bool,
    /// No set of nodes serves before this moment, as of the board's count of gives.
    pub none_before: (u32, Millis),
    pub differing: Differing,
}

/// What the nodes that differ from the last plan have to offer, in their order: the version of each
/// that was asked, and when it serves, with its rank.
#[derive(Default)]
pub struct Differing {
    pub from: Millis,
    pub answers: Vec<(u32, Option<(Millis, u32)>)>,
}

impl Lane {
    fn of(limit: TimeLimit, policy: &SchedulerPolicy) -> Self {
        Self { length: length(limit, policy), ..Self::default() }
    }
}

/// The time that a job with this limit is sure to be gone after, counted from its start.
pub fn length(limit: TimeLimit, policy: &SchedulerPolicy) -> Millis {
    let over_time = 60_000 * i64::from(policy.over_time_min);
    limit.duration().map_or(NEVER, |length| {
        i64::try_from(length.as_millis()).unwrap_or(NEVER).saturating_add(over_time)
    })
}

impl<'a> Shape<'a> {
    pub fn new(view: &'a View, key: &'a ShapeKey, switches: Option<&Arc<Switches>>) -> Self {
        let info = &view.partitions[key.partition as usize];
        let request = key.request();
        let uid = key.uid.unwrap_or(key.spec.owner.uid);
        let mut demand = Demand::new(request, &info.partition, &view.policy, uid);
        demand.switches = switches.filter(|known| known.matter_to(request)).cloned();
        let most = request.switches.filter(|_| !key.switches_waived);
        demand.switches_max = most.map(|most| most.count);
        let time_limit = gate::time_limit(request, &info.partition);
        let short = request.time_min.filter(|least| *least < time_limit);
        Self {
            partition: key.partition,
            uid: key.uid,
            pass: key.pass.clone(),
            gate: gate::partition(info, &demand),
            least: demand.least(),
            time_limit,
            mode: mode(&demand),
            full: Lane::of(time_limit, &view.policy),
            short: short.map(|least| Lane::of(least, &view.policy)),
            whole: None,
            each: None,
            prospect: None,
            demand,
        }
    }

    /// The search for all of it on one node, in the lane of the full length or the short one.
    pub fn search<'s>(
        &'s mut self,
        part: Part,
        short: bool,
        footprints: &mut Footprints,
        standing: &Standing,
    ) -> &'s mut Search {
        let lane = match (&mut self.short, short) {
            (Some(lane), true) => lane,
            _ => &mut self.full,
        };
        let length = lane.length;
        let slot = match part {
            Part::Whole => &mut lane.whole,
            Part::Each => &mut lane.each,
        };
        slot.get_or_insert_with(|| {
            let (demand, partition, uid) = (&self.demand, self.partition, self.uid);
            let footprint = footprints.get(demand, part, partition, uid, standing);
            let order = footprints.order(demand, part, partition, uid, standing);
            Search::new(footprint, order, self.pass.clone(), length)
        })
    }

    /// What it takes, without a search.
    pub fn footprint(
        &mut self,
        part: Part,
        footprints: &mut Footprints,
        standing: &Standing,
    ) -> Arc<Footprint> {
        let slot = match part {
            Part::Whole => &mut self.whole,
            Part::Each => &mut self.each,
        };
        let (demand, partition, uid) = (&self.demand, self.partition, self.uid);
        slot.get_or_insert_with(|| footprints.get(demand, part, partition, uid, standing)).clone()
    }

    /// Nothing more is to be found out about it in this plan: it passes its gates, has no place now
    /// and could have one later.
    pub fn is_settled(&self) -> bool {
        self.gate.is_none()
            && self.full.failed
            && self.short.as_ref().is_none_or(|short| short.failed)
            && matches!(self.prospect, Some(None))
    }

    /// The last moment at which it can start and end before its deadline.
    pub fn latest_start(&self) -> Millis {
        let Some(deadline) = self.demand.request.deadline else { return NEVER };
        let least = self.demand.request.time_min.unwrap_or(self.time_limit).min(self.time_limit);
        let least_ms = least.secs().map_or(NEVER, |s| i64::try_from(s).unwrap_or(NEVER) * 1_000);
        deadline.millis().saturating_sub(least_ms)
    }

    /// The limit with which it ends before its deadline if it starts now.
    pub fn limit_until_deadline(&self, limit: TimeLimit, now: Millis) -> TimeLimit {
        let Some(deadline) = self.demand.request.deadline else { return limit };
        let minutes = (deadline.millis() - now).max(0) / 60_000;
        limit.min(TimeLimit::Minutes(u32::try_from(minutes).unwrap_or(u32::MAX)))
    }

    pub fn lane(&mut self, short: bool) -> &mut Lane {
        match (&mut self.short, short) {
            (Some(lane), true) => lane,
            _ => &mut self.full,
        }
    }

    /// Why the shape could not start whoever else left: nodes out of service, or a demand that no
    /// nodes meet.
    pub fn hopeless(
        &mut self,
        view: &View,
        footprints: &mut Footprints,
        standing: &Standing,
    ) -> Option<&Reason> {
        if self.prospect.is_none() {
            self.prospect = Some(self.find_hopeless(view, footprints, standing));
        }
        self.prospect.as_ref().and_then(Option::as_ref)
    }

    fn find_hopeless(
        &mut self,
        view: &View,
        footprints: &mut Footprints,
        standing: &Standing,
    ) -> Option<Reason> {
        let named = &self.demand.request.node_list;
        if !named.is_empty() {
            let away = |node: &&std::sync::Arc<crate::view::NodeInfo>| {
                !is_in_service(node.availability) && named.contains(&node.config.name)
            };
            let away: Vec<String> =
                view.nodes.iter().filter(away).map(|node| node.config.name.clone()).collect();
            if !away.is_empty() {
                return Some(Reason::RequiredNodesUnavailable { nodes: away });
            }
        }
        let fits = match self.mode {
            Mode::One => self.fits_empty(Part::Whole, 1, footprints, standing),
            Mode::Alike(count) => self.fits_empty(Part::Each, count, footprints, standing),
            Mode::OneFirst | Mode::Set => {
                // Most fit on one node: that is quickly seen.
                let one = self.mode == Mode::OneFirst
                    && self.fits_empty(Part::Whole, 1, footprints, standing).0;
                let candidates = footprints.candidates(self.partition);
                let fits = |in_service_only| {
                    let space = Emptied { view, in_service_only };
                    // Few switches are waited for, not for ever.
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

    /// Whether enough nodes would hold it if they were empty: of those in service, and of all.
    fn fits_empty(
        &mut self,
        part: Part,
        count: u32,
        footprints: &mut Footprints,
        standing: &Standing,
    ) -> (bool, bool) {
        let footprint = self.footprint(part, footprints, standing);
        let (in_service, all) = footprints.hold_empty(&footprint, self.partition, standing);
        (in_service >= count, all >= count)
    }
}

fn mode(demand: &Demand<'_>) -> Mode {
    let request = demand.request;
    let constraint = request.constraint.as_ref();
    let as_a_whole = request.contiguous || demand.switches.is_some() || demand.is_choosy();
    let (least, most) = (demand.nodes_min, demand.nodes_max);
    let is_ranked = demand.select.least_loaded || request.prefer.is_some();
    if is_ranked {
        return Mode::Set;
    }
    if most == 1 && !constraint.is_some_and(|c| c.has_counts()) {
        return Mode::One;
    }
    let by_network_only = !request.contiguous && !demand.is_choosy();
    if least > most || (as_a_whole && !by_network_only) {
        return Mode::Set;
    }
    if !demand.wants_many_nodes() && least == 1 {
        return Mode::OneFirst;
    }
    if as_a_whole {
        return Mode::Set;
    }
    let alike = match demand.tasks {
        Tasks::PerNode(_) => true,
        Tasks::Total { count, .. } => count <= least,
    };
    let named = request.node_list.len();
    let by_name = named == 0 || named == least as usize;
    if least == most && alike && by_name && !demand.has_job_totals() {
        return Mode::Alike(least);
    }
    Mode::Set
}

/// A node that is silent or ends something first is expected back.
pub fn is_in_service(availability: Availability) -> bool {
    !matches!(availability, Availability::Drained | Availability::Down)
}

/// The nodes with nothing on them: all, or those in service.
pub struct Emptied<'a> {
    pub view: &'a View,
    pub in_service_only: bool,
}

impl Space for Emptied<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let info = &self.view.nodes[node as usize];
        let usable = !self.in_service_only || is_in_service(info.availability);
        usable.then(|| Cow::Owned(NodeFree::empty(&info.config)))
    }
}
