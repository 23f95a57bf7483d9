//! Why one job waits: what each class of nodes lacks, which limit holds it and who holds that, and
//! when it is expected to start. No words: the dialects have them.

use crate::free::backfill_slot::end_of;
use crate::free::needs::{NeedsScope, NodeNeeds};
use crate::free::shape::{PlacementMode, Shape};
use crate::free::timeline::{CORE, CORES, GRES, MEMORY};
use crate::memo::{Memo, Replay};
use crate::plan::{Planner, Purpose};
use crate::query::feasible;
use crate::view::{Availability, Estimate, View};
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope, NeverFits, Reason};
use model::time::Timestamp;

/// How many of those before it are named.
const FIRST_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub job: JobId,
    /// None: the plan starts it now.
    pub reason: Option<Reason>,
    /// Entries of the queue before it in the first of its partitions to have its turn, and the first few of them.
    pub before: u32,
    pub first: Vec<JobId>,
    /// Who holds the limit that it waits for.
    pub limit: Option<LimitUsage>,
    /// The place that the plan keeps for it.
    pub kept: Option<Estimate>,
    /// When it is expected to start, if it ever can.
    pub expected: Option<Estimate>,
    /// What its nodes lack, for each of its partitions and each class of nodes there.
    pub classes: Vec<ClassReport>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitUsage {
    pub limit: Limit,
    /// Running jobs that count against it, with how much each holds; the most first.
    pub holders: Vec<(JobId, u64)>,
}

/// The nodes of one class in one partition, as the job finds them at its turn. Nodes are positions in `View::nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// Position in `View::partitions`.
    pub partition: u32,
    pub nodes: Vec<u32>,
    /// Nodes of the class that must serve at once.
    pub wanted: u32,
    /// Why not even an empty node of the class could serve.
    pub never: Option<NeverFits>,
    /// Free for it from now until it would end.
    pub free: Vec<u32>,
    /// Each node that is not free is counted under the first of these that it lacks.
    pub missing: Vec<Missing>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub what: Resource,
    pub nodes: Vec<u32>,
    /// What is asked of each node, the most that one of these nodes has free, and what it has in all; zero where it
    /// is no amount.
    pub asked: u64,
    pub most_free: u64,
    pub total: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    Drained,
    Down,
    /// It does not answer just now, or must end something first.
    Silent,
    /// It is named by `-x`, or not by `-w`.
    Name,
    /// A feature, a device or a size that no node of the class has.
    Sort,
    Cpus,
    MemoryMib,
    Gres(String),
    /// Somebody there has the node, or wants nobody beside them.
    Company,
    /// A reservation that it may not use, or not being in the one that it asked for.
    Reservation,
    /// Free now, but kept for jobs before it, or running out before its time limit.
    KeptForOthers,
}

/// None if the job does not wait.
pub fn explain(view: &View, now: Timestamp, memo: &mut Memo, job: JobId) -> Option<Explanation> {
    let at = view.queue.iter().position(|waiting| waiting.job == job)?;
    let plan = crate::plan(view, now, memo);
    let reason = plan.reasons.iter().find(|(of, _)| *of == job).map(|(_, reason)| reason.clone());
    let limit = match &reason {
        Some(Reason::Limit(limit)) => Some(held(view, now, at, limit)),
        _ => None,
    };
    let kept = plan.estimates.into_iter().find(|estimate| estimate.job == job);
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Estimates);
    let expected = planner.expect(job);
    drop(planner);
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Starts);
    let turns = planner.slots_of(job);
    let ahead = turns.first().map(|turn| planner.jobs_ahead_of(*turn, FIRST_MAX));
    let (before, first) = ahead.unwrap_or_default();
    let (mut classes, mut walked) = (Vec::new(), 0);
    for turn in turns {
        planner.walk_others(walked..turn, job);
        classes.extend(classes_at(view, &mut planner, turn));
        walked = turn;
    }
    Some(Explanation { job, reason, before, first, limit, kept, expected, classes })
}

fn classes_at(view: &View, planner: &mut Planner<'_>, turn: usize) -> Vec<ClassReport> {
    let (shape, finder) = planner.finder_at(turn);
    let (part, mut wanted) = match shape.mode {
        PlacementMode::Single | PlacementMode::SingleFirst => (NeedsScope::WholeJob, 1),
        PlacementMode::EqualNodes(count) => (NeedsScope::EachNode, count),
        PlacementMode::NodeSet => (NeedsScope::EachNode, shape.demand.nodes_min),
    };
    let mut needs = shape.needs(part, finder.needs_cache, finder.baseline);
    let timelines = &*finder.timelines;
    let on_one = |node: &u32| needs.fits_empty(timelines.class(*node));
    if shape.mode == PlacementMode::SingleFirst && !needs.candidates.iter().any(on_one) {
        // Too much for any one node: it spreads, and each of several must hold a part.
        needs = shape.needs(NeedsScope::EachNode, finder.needs_cache, finder.baseline);
        wanted = shape.demand.nodes_min.max(2);
    }
    let mut reports: Vec<ClassReport> = Vec::new();
    let mut by_class = vec![usize::MAX; timelines.classes.samples.len()];
    for &node in needs.candidates.iter() {
        let class = timelines.class(node) as usize;
        if by_class[class] == usize::MAX {
            by_class[class] = reports.len();
            let never = (!needs.fits_empty(class as u32))
                .then(|| feasible::lack_on(view, &shape.demand, node));
            reports.push(ClassReport {
                partition: shape.partition,
                nodes: Vec::new(),
                wanted,
                never,
                free: Vec::new(),
                missing: Vec::new(),
            });
        }
        let report = &mut reports[by_class[class]];
        report.nodes.push(node);
        match lack(timelines, shape, &needs, node) {
            None => report.free.push(node),
            Some(missing) => add(&mut report.missing, missing),
        }
    }
    reports.iter_mut().for_each(|report| report.missing.sort_by(|a, b| a.what.cmp(&b.what)));
    reports
}

fn add(known: &mut Vec<Missing>, missing: Missing) {
    match known.iter_mut().find(|known| known.what == missing.what) {
        Some(known) => {
            known.nodes.extend(missing.nodes);
            known.most_free = known.most_free.max(missing.most_free);
            known.asked = known.asked.min(missing.asked);
        }
        None => known.push(missing),
    }
}

/// The first thing that the node lacks for the job now.
fn lack(
    timelines: &crate::free::node_timelines::NodeTimelines<'_>,
    shape: &Shape<'_>,
    needs: &NodeNeeds,
    node: u32,
) -> Option<Missing> {
    let missing = |what, (asked, most_free, total)| {
        Some(Missing { what, nodes: vec![node], asked, most_free, total })
    };
    let plain = |what| missing(what, (0, 0, 0));
    let info = &timelines.view.nodes[node as usize];
    let class = timelines.class(node);
    if !needs.admits(node) {
        return plain(Resource::Name);
    }
    match info.availability {
        Availability::Available => {}
        Availability::Drained => return plain(Resource::Drained),
        Availability::Down => return plain(Resource::Down),
        Availability::Silent | Availability::Reconciling => return plain(Resource::Silent),
    }
    let timeline = timelines.of_node(node);
    let now = timeline.at(timelines.now);
    let (free, there) = (timeline.free(now), timeline.presence(now));
    let threads = u64::from(crate::free::cores::threads(&info.config));
    let asked = needs.amounts(class, free);
    if asked.is_empty() {
        return plain(Resource::Sort);
    }
    for (column, (&asked, &free)) in asked.iter().zip(free).enumerate() {
        if asked > free {
            return match column {
                CORES => {
                    let total = u64::from(info.config.usable_cpus().len());
                    let (asked, free) = (asked.div_ceil(CORE), free / CORE);
                    missing(Resource::Cpus, (asked * threads, free * threads, total))
                }
                MEMORY => {
                    let total = info.config.usable_memory().mib_floor();
                    missing(Resource::MemoryMib, (asked >> 20, free >> 20, total))
                }
                line => {
                    let gres = &info.config.gres[line - GRES];
                    missing(Resource::Gres(gres.name.clone()), (asked, free, gres.count))
                }
            };
        }
    }
    if !there.admits(needs.holder) {
        return plain(Resource::Company);
    }
    if !needs.fits(class, free, there) {
        let gres = shape.demand.gres.first().map(|wanted| wanted.name.clone());
        return plain(Resource::Gres(gres.unwrap_or_default()));
    }
    let end = end_of(timelines.now, shape.full.length);
    if timelines.windows.blocked_until(node, &shape.access, timelines.now, end).is_some() {
        return plain(Resource::Reservation);
    }
    let starts = timelines.earliest(node, needs, &shape.access, timelines.now, shape.full.length);
    if starts == Some(timelines.now) { None } else { plain(Resource::KeptForOthers) }
}

/// Who holds what the limit counts.
fn held(view: &View, now: Timestamp, at: usize, limit: &Limit) -> LimitUsage {
    let waiting = &view.queue[at];
    let (uid, account) = (waiting.spec.owner.uid, &waiting.account);
    let partition_qos = |partition: u32| {
        view.partitions.get(partition as usize).and_then(|info| info.partition.qos.as_deref())
    };
    let association = |member: &crate::accounting::Member| {
        let association = &member.association;
        association.user.as_ref().unwrap_or(&association.account) == &limit.holder
    };
    let chain = || view.accounting.chain(waiting.association);
    let carrier = chain().find(|(_, member)| association(member)).map(|(at, _)| at);
    let counts = |running: &crate::view::RunningJob| {
        let under_qos = running.qos == limit.holder
            || partition_qos(running.partition) == Some(limit.holder.as_str());
        let below = || {
            let mut above = view.accounting.chain(running.association);
            carrier.is_some() && above.any(|(at, _)| Some(at) == carrier)
        };
        match limit.scope {
            LimitScope::QosPerUser => under_qos && running.uid == uid,
            LimitScope::QosPerAccount => under_qos && running.account == *account,
            LimitScope::QosGroup => under_qos,
            LimitScope::AssociationGroup => below(),
            LimitScope::AssociationPerJob => running.association == waiting.association,
            _ => false,
        }
    };
    let held_now =
        matches!(limit.kind, LimitKind::Tres(_) | LimitKind::TresRunMinutes(_) | LimitKind::Jobs);
    // A limit of one job by itself is held by nobody.
    let shared =
        held_now && (limit.scope != LimitScope::AssociationPerJob || limit.kind == LimitKind::Jobs);
    let amount = |running: &crate::view::RunningJob| {
        let tres = || {
            let shares = running.shares.iter().map(|(_, share)| share);
            crate::gate::limits::tres_of(shares)
        };
        match &limit.kind {
            LimitKind::Tres(kind) => tres().amount(kind),
            LimitKind::TresRunMinutes(kind) => {
                let left = running.end.map_or(0, |end| (end.secs() - now.secs()).max(0) / 60);
                tres().amount(kind) * left as u64
            }
            _ => 1,
        }
    };
    let mut holders: Vec<(JobId, u64)> = view
        .running
        .iter()
        .filter(|running| shared && counts(running))
        .map(|running| (running.job, amount(running)))
        .filter(|(_, amount)| *amount > 0)
        .collect();
    holders.sort_by_key(|(job, amount)| (std::cmp::Reverse(*amount), *job));
    LimitUsage { limit: limit.clone(), holders }
}
