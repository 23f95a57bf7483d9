//! Why one job waits: what each class of nodes lacks, which limit holds it back and which jobs hold that, and when it is
//! expected to start. The dialects have the words for it.

use crate::free::backfill_slot::end_of;
use crate::free::needs::{NeedsScope, NodeNeeds};
use crate::free::node_timelines::NodeTimelines;
use crate::free::shape::{PlacementMode, Shape};
use crate::free::timeline::{CORE, CORES, GRES, MEMORY};
use crate::gate::limits::{Claimant, holders, limit_never_met};
use crate::memo::{Memo, Replay};
use crate::plan::{Planner, Purpose};
use crate::query::feasible;
use crate::view::{Availability, Estimate, Plan, View};
use model::id::JobId;
use model::reason::{Limit, Reason};
use model::shortage::{MissingResource, NodeClassReport, Shortage};
use model::time::Timestamp;

/// How many of the jobs before it are named.
const FIRST_MAX: usize = 5;

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub job: JobId,
    /// `None` if the plan starts the job now.
    pub reason: Option<Reason>,
    /// How many entries that can start are before it in the queue of the first of its partitions to have its turn.
    pub before: u32,
    /// The first few of those.
    pub first: Vec<JobId>,
    /// The limit that it waits for, with the jobs that hold it.
    pub limit: Option<LimitUsage>,
    /// The limit that it breaks by itself. Nothing is expected then, and nobody is before it: it does not start as it is.
    pub limit_never_met: Option<Limit>,
    /// The backfill slot that the plan reserves for it.
    pub kept: Option<Estimate>,
    /// When it is expected to start, if it ever can.
    pub expected: Option<Estimate>,
    /// What the nodes lack, for each of its partitions and each class of nodes there.
    pub classes: Vec<NodeClassReport>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitUsage {
    pub limit: Limit,
    /// Running jobs that count against it, with how much each counts for; the most first.
    pub holders: Vec<(JobId, u64)>,
}

/// Explains why a job waits. Returns `None` if it does not.
pub fn explain(view: &View, now: Timestamp, memo: &mut Memo, job: JobId) -> Option<Explanation> {
    view.queue.iter().any(|waiting| waiting.job == job).then_some(())?;
    let plan = crate::plan(view, now, memo);
    explain_planned(view, now, memo, &plan, job)
}

/// The same for who has the plan of this view and time already, which has just been made with this memo.
pub fn explain_planned(
    view: &View,
    now: Timestamp,
    memo: &mut Memo,
    plan: &Plan,
    job: JobId,
) -> Option<Explanation> {
    let at = view.queue.iter().position(|waiting| waiting.job == job)?;
    let reason = plan.reasons.iter().find(|(of, _)| *of == job).map(|(_, reason)| reason.clone());
    let limit = match &reason {
        Some(Reason::Limit(limit)) => {
            // A limit counts the same running jobs through each of the job's partitions, unless it is the partition's.
            let of_partition = |partition: &u32| {
                let claimant = Claimant::pending(view, &view.queue[at], *partition);
                Some(holders(view, now, limit, claimant)).filter(|holders| !holders.is_empty())
            };
            let holders = view.queue[at].partitions.iter().find_map(of_partition);
            Some(LimitUsage { limit: (**limit).clone(), holders: holders.unwrap_or_default() })
        }
        _ => None,
    };
    if limit.is_some()
        && let Some(never) = limit_never_met(view, &view.queue[at])
    {
        return Some(Explanation {
            job,
            reason,
            before: 0,
            first: Vec::new(),
            limit,
            limit_never_met: Some(never),
            kept: None,
            expected: None,
            classes: Vec::new(),
        });
    }
    let kept = plan.estimates.iter().find(|estimate| estimate.job == job).cloned();
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Estimates);
    let expected = planner.expect(job);
    drop(planner);
    let mut planner = Planner::new(view, now, memo, Replay::default(), Purpose::Starts);
    let slots = planner.slots_of(job);
    let ahead = slots.first().map(|slot| planner.jobs_ahead_of(*slot, FIRST_MAX));
    let (before, first) = ahead.unwrap_or_default();
    let (mut classes, mut walked) = (Vec::new(), 0);
    // What a job that waits has reserved in one of its partitions decides where others start, and so what it lacks in the next.
    let left_out = reason.is_none().then_some(job);
    for slot in slots {
        planner.walk_range(walked..slot, left_out);
        classes.extend(classes_at(view, &mut planner, slot));
        walked = slot;
    }
    Some(Explanation {
        job,
        reason,
        before,
        first,
        limit,
        limit_never_met: None,
        kept,
        expected,
        classes,
    })
}

fn classes_at(view: &View, planner: &mut Planner<'_>, slot: usize) -> Vec<NodeClassReport> {
    let (shape, finder) = planner.finder_at(slot);
    let (scope, mut wanted) = match shape.mode {
        PlacementMode::Single | PlacementMode::SingleFirst => (NeedsScope::WholeJob, 1),
        PlacementMode::EqualNodes(count) => (NeedsScope::EachNode, count),
        PlacementMode::NodeSet => (NeedsScope::EachNode, shape.demand.nodes_min),
    };
    let mut needs = shape.needs(scope, finder.needs_cache, finder.baseline);
    let timelines = &*finder.timelines;
    let on_one = |node: &u32| needs.fits_empty(timelines.class(*node));
    if shape.mode == PlacementMode::SingleFirst && !needs.candidates.iter().any(on_one) {
        // The job is too much for any one node: each of several must hold a part.
        needs = shape.needs(NeedsScope::EachNode, finder.needs_cache, finder.baseline);
        wanted = shape.demand.nodes_min.max(2);
    }
    let mut reports: Vec<NodeClassReport> = Vec::new();
    let mut by_class = vec![usize::MAX; timelines.classes.samples.len()];
    for &node in needs.candidates.iter() {
        let class = timelines.class(node);
        if by_class[class.at()] == usize::MAX {
            by_class[class.at()] = reports.len();
            let never = (!needs.fits_empty(class))
                .then(|| feasible::never_fits_on(view, &shape.demand, node));
            reports.push(NodeClassReport {
                partition: view.partitions[shape.partition as usize].partition.name.clone(),
                nodes: Vec::new(),
                wanted,
                never,
                free: Vec::new(),
                missing: Vec::new(),
            });
        }
        let report = &mut reports[by_class[class.at()]];
        let name = || view.nodes[node as usize].config.name.clone();
        report.nodes.push(name());
        match shortage_on(timelines, shape, &needs, node) {
            None => report.free.push(name()),
            Some(shortage) => add_shortage(&mut report.missing, shortage),
        }
    }
    reports.iter_mut().for_each(|report| report.missing.sort_by(|a, b| a.what.cmp(&b.what)));
    reports
}

fn add_shortage(known: &mut Vec<Shortage>, shortage: Shortage) {
    match known.iter_mut().find(|known| known.what == shortage.what) {
        Some(known) => {
            known.nodes.extend(shortage.nodes);
            known.most_free = known.most_free.max(shortage.most_free);
            known.asked = known.asked.min(shortage.asked);
        }
        None => known.push(shortage),
    }
}

/// The first thing that the node lacks for the job now.
fn shortage_on(
    timelines: &NodeTimelines<'_>,
    shape: &Shape<'_>,
    needs: &NodeNeeds,
    node: u32,
) -> Option<Shortage> {
    let info = &timelines.view.nodes[node as usize];
    let missing = |what, (asked, most_free, total)| {
        Some(Shortage { what, nodes: vec![info.config.name.clone()], asked, most_free, total })
    };
    let plain = |what| missing(what, (0, 0, 0));
    let class = timelines.class(node);
    if !needs.admits(node) {
        return plain(MissingResource::NodeList);
    }
    match info.availability {
        Availability::Available | Availability::PoweringUp | Availability::PoweredDown => {}
        Availability::Drained => return plain(MissingResource::Drained),
        Availability::Down => return plain(MissingResource::Down),
        Availability::Silent | Availability::Reconciling => {
            return plain(MissingResource::NotResponding);
        }
    }
    let timeline = timelines.of_node(node);
    let now = timeline.at(timelines.now);
    let (free, there) = (timeline.free(now), timeline.presence(now));
    let threads = u64::from(crate::free::cores::threads(&info.config));
    let asked = needs.amounts(class, free);
    if asked.is_empty() {
        return plain(MissingResource::Hardware);
    }
    for (column, (&asked, &free)) in asked.iter().zip(free).enumerate() {
        if asked > free {
            return match column {
                CORES => {
                    let total = u64::from(info.config.usable_cpus().len());
                    let (asked, free) = (asked.div_ceil(CORE), free / CORE);
                    missing(MissingResource::Cpus, (asked * threads, free * threads, total))
                }
                MEMORY => {
                    let total = info.config.usable_memory().mib_floor();
                    missing(MissingResource::MemoryMib, (asked >> 20, free >> 20, total))
                }
                line => {
                    let gres = &info.config.gres[line - GRES];
                    missing(MissingResource::Gres(gres.name.clone()), (asked, free, gres.count))
                }
            };
        }
    }
    if !there.admits(needs.holder) {
        return plain(MissingResource::Exclusive);
    }
    if !needs.fits(class, free, there) {
        let gres = shape.demand.gres.first().map(|wanted| wanted.name.clone());
        return plain(MissingResource::Gres(gres.unwrap_or_default()));
    }
    let end = end_of(timelines.now, shape.full.length);
    if timelines.windows.blocked_until(node, &shape.access, timelines.now, end).is_some() {
        return plain(MissingResource::Reservation);
    }
    let starts = timelines.earliest(node, needs, &shape.access, timelines.now, shape.full.length);
    if starts == Some(timelines.now) { None } else { plain(MissingResource::KeptForOthers) }
}
