//! Why one job waits: what each class of nodes lacks, which limit holds it and who holds that, and
//! when it is expected to start. No words: the dialects have them.

use crate::board::end_of;
use crate::footprint::{Footprint, Part};
use crate::memo::{Memo, Rerun};
use crate::plan::{Planner, Purpose};
use crate::shape::{Mode, Shape, is_in_service};
use crate::timeline::{CORES, GRES, MEMORY};
use crate::view::{Estimate, View};
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope, Reason};
use model::time::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    pub job: JobId,
    /// None: the plan starts it now.
    pub reason: Option<Reason>,
    /// Entries of the queue before it in one of its partitions.
    pub before: u32,
    /// Who holds the limit that it waits for.
    pub limit: Option<LimitHeld>,
    /// The place that the plan keeps for it.
    pub kept: Option<Estimate>,
    /// When it is expected to start, if it ever can.
    pub expected: Option<Estimate>,
    /// What its nodes lack, for each of its partitions and each class of nodes there.
    pub classes: Vec<ClassReport>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LimitHeld {
    pub limit: Limit,
    /// Running jobs that count against it, with how much each holds; the most first.
    pub holders: Vec<(JobId, u64)>,
}

/// The nodes of one class in one partition, as the job finds them at its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassReport {
    /// Position in `View::partitions`.
    pub partition: u32,
    /// One of them.
    pub sample: String,
    pub nodes: u32,
    /// Nodes of the class that must serve at once.
    pub wanted: u32,
    /// An empty node of the class could serve.
    pub could_serve: bool,
    /// Free for it from now until it would end.
    pub free: u32,
    /// Each node that is not free is counted under the first of these that it lacks.
    pub missing: Vec<Missing>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub what: Resource,
    pub nodes: u32,
    /// What is asked of each node, and the most that one of these nodes has free; zero where it is
    /// no amount.
    pub asked: u64,
    pub most_free: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// The node is down, drained or silent.
    Service,
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
        Some(Reason::Limit(limit)) => Some(held(view, at, limit)),
        _ => None,
    };
    let kept = plan.estimates.into_iter().find(|estimate| estimate.job == job);
    let mut planner = Planner::new(view, now, memo, Rerun::default(), Purpose::Estimates);
    let expected = planner.expect(job);
    drop(planner);
    let mut planner = Planner::new(view, now, memo, Rerun::default(), Purpose::Starts);
    let before = planner.walk_to(job);
    let partitions = view.queue[at].partitions.len();
    let classes = (0..partitions).flat_map(|nth| classes(&mut planner, job, nth)).collect();
    Some(Explanation { job, reason, before, limit, kept, expected, classes })
}

fn classes(planner: &mut Planner<'_>, job: JobId, nth: usize) -> Vec<ClassReport> {
    let Some((shape, ground)) = planner.ground_of(job, nth) else { return Vec::new() };
    let (part, wanted) = match shape.mode {
        Mode::One | Mode::OneFirst => (Part::Whole, 1),
        Mode::Alike(count) => (Part::Each, count),
        Mode::Set => (Part::Each, shape.demand.nodes_min),
    };
    let footprint = shape.footprint(part, ground.footprints, ground.standing);
    let board = &*ground.board;
    let mut reports: Vec<ClassReport> = Vec::new();
    let mut by_class = vec![usize::MAX; board.classes.samples.len()];
    for &node in footprint.candidates.iter() {
        let class = board.class(node) as usize;
        if by_class[class] == usize::MAX {
            by_class[class] = reports.len();
            reports.push(ClassReport {
                partition: shape.partition,
                sample: board.config(node).name.clone(),
                nodes: 0,
                wanted,
                could_serve: footprint.fits_empty(class as u32),
                free: 0,
                missing: Vec::new(),
            });
        }
        let report = &mut reports[by_class[class]];
        report.nodes += 1;
        match lack(board, shape, &footprint, node) {
            None => report.free += 1,
            Some(missing) => add(&mut report.missing, missing),
        }
    }
    reports.iter_mut().for_each(|report| report.missing.sort_by(|a, b| a.what.cmp(&b.what)));
    reports
}

fn add(known: &mut Vec<Missing>, missing: Missing) {
    match known.iter_mut().find(|known| known.what == missing.what) {
        Some(known) => {
            known.nodes += 1;
            known.most_free = known.most_free.max(missing.most_free);
            known.asked = known.asked.min(missing.asked);
        }
        None => known.push(missing),
    }
}

/// The first thing that the node lacks for the job now.
fn lack(
    board: &crate::board::Board<'_>,
    shape: &Shape<'_>,
    footprint: &Footprint,
    node: u32,
) -> Option<Missing> {
    let missing = |what, asked, most_free| Some(Missing { what, nodes: 1, asked, most_free });
    let info = &board.view.nodes[node as usize];
    let class = board.class(node);
    if !is_in_service(info.availability) || !board.is_available(node) {
        return missing(Resource::Service, 0, 0);
    }
    if !footprint.admits(node) {
        return missing(Resource::Name, 0, 0);
    }
    let timeline = board.timeline(node);
    let now = timeline.at(board.now);
    let (free, there) = (timeline.free(now), timeline.presence(now));
    let threads = u64::from(crate::place::cores::threads(&info.config));
    let asked = footprint.amounts(class, free);
    if asked.is_empty() {
        return missing(Resource::Sort, 0, 0);
    }
    for (column, (&asked, &free)) in asked.iter().zip(free).enumerate() {
        if asked > free {
            return match column {
                CORES => missing(Resource::Cpus, asked * threads, free * threads),
                MEMORY => missing(Resource::MemoryMib, asked >> 20, free >> 20),
                line => {
                    let name = info.config.gres[line - GRES].name.clone();
                    missing(Resource::Gres(name), asked, free)
                }
            };
        }
    }
    if !there.admits(footprint.holder) {
        return missing(Resource::Company, 0, 0);
    }
    if !footprint.fits(class, free, there) {
        let gres = shape.demand.gres.first().map(|wanted| wanted.name.clone());
        return missing(Resource::Gres(gres.unwrap_or_default()), 0, 0);
    }
    let end = end_of(board.now, shape.full.length);
    if board.windows.in_the_way(node, &shape.pass, board.now, end).is_some() {
        return missing(Resource::Reservation, 0, 0);
    }
    let starts = board.earliest(node, footprint, &shape.pass, board.now, shape.full.length);
    if starts == Some(board.now) { None } else { missing(Resource::KeptForOthers, 0, 0) }
}

/// Who holds what the limit counts.
fn held(view: &View, at: usize, limit: &Limit) -> LimitHeld {
    let waiting = &view.queue[at];
    let (uid, account) = (waiting.spec.owner.uid, &waiting.account);
    let partition_qos = |partition: u32| {
        view.partitions.get(partition as usize).and_then(|info| info.partition.qos.as_deref())
    };
    let counts = |running: &crate::Running| {
        let under_qos = running.qos == limit.holder
            || partition_qos(running.partition) == Some(limit.holder.as_str());
        let under_account = || {
            let mut chain = view.accounting.chain(running.association);
            chain.any(|(_, member)| member.association.account == limit.holder)
        };
        match limit.scope {
            LimitScope::QosPerUser => under_qos && running.uid == uid,
            LimitScope::QosPerAccount => under_qos && running.account == *account,
            LimitScope::QosGroup => under_qos,
            LimitScope::AssociationGroup => under_account(),
            _ => false,
        }
    };
    let amount = |running: &crate::Running| match &limit.kind {
        LimitKind::Tres(kind) => {
            let shares = running.shares.iter().map(|(_, share)| share);
            crate::gate::limits::tres_of(shares).amount(kind)
        }
        _ => 1,
    };
    let mut holders: Vec<(JobId, u64)> = view
        .running
        .iter()
        .filter(|running| counts(running))
        .map(|running| (running.job, amount(running)))
        .filter(|(_, amount)| *amount > 0)
        .collect();
    holders.sort_by_key(|(job, amount)| (std::cmp::Reverse(*amount), *job));
    LimitHeld { limit: limit.clone(), holders }
}
