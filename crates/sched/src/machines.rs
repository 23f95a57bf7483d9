//! When to make a machine: jobs that wait for nodes are packed, in the order of the queue, on machines that are on their way,
//! and on new ones of the cheapest offers that hold them, within the limits of their sources.
//!
//! The packing begins anew with each plan. A machine that is on its way has room again each time, and the same jobs take it
//! first: no job gets a second one.

use crate::free::node_free::NodeFree;
use crate::gate;
use crate::place::demand::Demand;
use crate::place::{FreeNodes, Placement, fit, place};
use crate::view::{PartitionInfo, PendingJob, Plan, View};
use model::id::JobId;
use model::machine::{FailureKind, HoldCause, MachineAnswer, Offer, SourceHold, is_for_nodes};
use model::node::NodeConfig;
use model::price::{Cost, Price};
use model::request::Request;
use model::time::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;
use std::time::Duration;

/// The most jobs of the queue, and tasks of one array, that machines are made for at once.
const JOBS_MAX: usize = 1_000;
const TASKS_MAX: u32 = 1_000;

/// The most new machines for one job, and for one that could do with fewer.
const NODES_MAX: u32 = 256;
const WIDE_MAX: u32 = 32;

const HOUR: Duration = Duration::from_secs(3600);

/// What there is to make machines of, and the machines that count already.
#[derive(Debug, Clone, Default)]
pub struct MachineView {
    pub sources: Vec<Source>,
    /// The nodes of machines that are asked for or made, and have not joined.
    pub coming: Vec<NodeConfig>,
    /// Jobs for which a machine was made that has joined and has nothing to do, or that was deleted a short while ago because
    /// they did not start on it.
    pub served: BTreeSet<JobId>,
    /// How many more nodes there may be.
    pub room: u32,
}

#[derive(Debug, Clone)]
pub struct Source {
    pub name: String,
    pub features: Vec<String>,
    pub offers: Vec<Offer>,
    /// Offers that failed a short while ago, and how; all of them where the name is `None`.
    pub failed: Vec<(Option<String>, FailureKind)>,
    /// Machines that there are or may be, and what they cost in an hour.
    pub machines: u32,
    pub price_hour: Price,
    pub machines_max: u32,
    pub price_hour_max: Option<Price>,
    /// What the month's budget has left when all machines that there are have run for one more hour.
    pub budget_left: Option<Cost>,
    pub boot: Duration,
}

/// A machine to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineOrder {
    pub source: String,
    pub offer: Offer,
    pub job: JobId,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachinePlan {
    pub orders: Vec<MachineOrder>,
    /// For each job that waits for nodes and whose partitions take machines in, in queue order.
    pub answers: Vec<(JobId, MachineAnswer)>,
}

/// Which machines to ask for beside what the plan does.
pub fn machines(view: &View, plan: &Plan, now: Timestamp, there: &MachineView) -> MachinePlan {
    let queue: HashMap<JobId, &PendingJob> =
        view.queue.iter().map(|waiting| (waiting.job, &**waiting)).collect();
    let expected: HashMap<JobId, Timestamp> =
        plan.estimates.iter().map(|estimate| (estimate.job, estimate.start)).collect();
    let mut packing = Packing::new(view, there);
    let mut answers = Vec::new();
    let waiting = plan.reasons.iter().filter(|(_, reason)| is_for_nodes(reason));
    for waiting in waiting.filter_map(|(job, _)| queue.get(job).copied()) {
        if answers.len() == JOBS_MAX {
            break;
        }
        if gate::job(waiting, now).is_some() {
            continue;
        }
        let start = expected.get(&waiting.job).copied();
        answers.extend(packing.serve(waiting, start, now).map(|answer| (waiting.job, answer)));
    }
    MachinePlan { orders: packing.orders, answers }
}

/// A machine that does not serve yet, with the jobs that were put on it.
struct Bin {
    config: NodeConfig,
    free: NodeFree,
    /// For a new one: the position of its source, and its offer.
    new: Option<(usize, Offer)>,
}

impl Bin {
    fn of(config: NodeConfig, new: Option<(usize, Offer)>) -> Self {
        let free = NodeFree::empty(&config);
        Self { config, free, new }
    }
}

/// On how many machines a job is tried: on as many as it must have, or on more.
#[derive(Clone, Copy)]
enum Width {
    Least,
    More,
}

/// The bins, and after them those that are tried.
struct Trial<'a> {
    bins: &'a [Bin],
    more: &'a [Bin],
}

impl Trial<'_> {
    fn bin(&self, at: u32) -> &Bin {
        let at = at as usize;
        self.bins.get(at).unwrap_or_else(|| &self.more[at - self.bins.len()])
    }
}

impl FreeNodes for Trial<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.bin(node).config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        Some(Cow::Borrowed(&self.bin(node).free))
    }
}

struct Packing<'a> {
    view: &'a View,
    there: &'a MachineView,
    sources: Vec<Source>,
    /// Positions of sources and of their offers, the cheapest first.
    choices: Rc<[(Price, usize, usize)]>,
    room: u32,
    bins: Vec<Bin>,
    orders: Vec<MachineOrder>,
    /// What no new machine could be made for: limits only become tighter while jobs are packed.
    refused: HashMap<(Request, Vec<u32>, u32), MachineAnswer>,
}

impl<'a> Packing<'a> {
    fn new(view: &'a View, there: &'a MachineView) -> Self {
        let offers = there.sources.iter().enumerate().flat_map(|(at, source)| {
            source.offers.iter().enumerate().map(move |(number, offer)| (offer.price, at, number))
        });
        let mut choices: Vec<(Price, usize, usize)> = offers.collect();
        choices.sort_unstable();
        Self {
            view,
            there,
            sources: there.sources.clone(),
            choices: choices.into(),
            room: there.room,
            bins: there.coming.iter().map(|config| Bin::of(config.clone(), None)).collect(),
            orders: Vec::new(),
            refused: HashMap::new(),
        }
    }

    /// `None` for a job that machines have no part in.
    fn serve(
        &mut self,
        waiting: &PendingJob,
        expected: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<MachineAnswer> {
        let request = waiting.spec.request();
        let is_bound = !request.node_list.is_empty() || request.reservation.is_some();
        if waiting.het.is_some() || is_bound {
            return None;
        }
        let boot = self.feeding(waiting).map(|source| source.boot).max()?;
        if self.there.served.contains(&waiting.job) {
            return Some(MachineAnswer::Unserved);
        }
        if expected.is_some_and(|start| start <= now + boot) {
            return Some(MachineAnswer::NodesSooner);
        }
        let tasks = waiting.tasks.min(waiting.tasks_allowed.unwrap_or(u32::MAX)).min(TASKS_MAX);
        let mut first = None;
        for _ in 0..tasks {
            let answer = self.serve_one(waiting);
            let is_served = matches!(answer, MachineAnswer::Ordered { .. } | MachineAnswer::Coming);
            first.get_or_insert(answer);
            if !is_served {
                break;
            }
        }
        first
    }

    /// The sources whose machines would be in one of the job's partitions.
    fn feeding(&self, waiting: &PendingJob) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(move |source| {
            waiting.partitions.iter().any(|at| {
                let info = self.view.partitions.get(*at as usize);
                info.is_some_and(|info| takes_in(info, &source.features))
            })
        })
    }

    fn serve_one(&mut self, waiting: &PendingJob) -> MachineAnswer {
        let (request, uid) = (waiting.spec.request(), waiting.spec.owner.uid);
        let demand = |at: &u32| {
            let info = self.view.partitions.get(*at as usize)?;
            Some((*at, Demand::new(request, &info.partition, &self.view.policy, uid)))
        };
        let demands: Vec<(u32, Demand<'_>)> =
            waiting.partitions.iter().filter_map(demand).collect();
        for (at, demand) in &demands {
            if let Some(placement) = self.try_in(demand, *at, &[]) {
                self.take(waiting.job, demand, placement, Vec::new());
                return MachineAnswer::Coming;
            }
        }
        let key = (request.clone(), waiting.partitions.clone(), uid);
        if let Some(known) = self.refused.get(&key) {
            return known.clone();
        }
        // A job is spread over more nodes than it has to have only where no offer holds it otherwise.
        let answer = match self.order_for(waiting.job, &demands, Width::Least) {
            MachineAnswer::NoOffer => self.order_for(waiting.job, &demands, Width::More),
            answer => answer,
        };
        if !matches!(answer, MachineAnswer::Ordered { .. }) {
            self.refused.insert(key, answer.clone());
        }
        answer
    }

    /// Asks for machines of the cheapest offer that holds the job. `demands`: what it needs in each of its partitions.
    fn order_for(
        &mut self,
        job: JobId,
        demands: &[(u32, Demand<'_>)],
        width: Width,
    ) -> MachineAnswer {
        let mut held: Vec<SourceHold> = Vec::new();
        let choices = self.choices.clone();
        for &(price, source, number) in choices.iter() {
            for (at, demand) in demands {
                let found = self.try_offer(demand, *at, (source, number), width);
                let Some((placement, more)) = found else { continue };
                let offer = &self.sources[source].offers[number];
                if let Some(cause) = self.held_back(source, offer, more.len() as u32) {
                    let name = &self.sources[source].name;
                    if !held.iter().any(|hold| hold.source == *name) {
                        held.push(SourceHold { source: name.clone(), cause });
                    }
                    continue;
                }
                let (source, offer) = (self.sources[source].name.clone(), offer.id.clone());
                self.take(job, demand, placement, more);
                return MachineAnswer::Ordered { source, offer, price };
            }
        }
        if held.is_empty() { MachineAnswer::NoOffer } else { MachineAnswer::HeldBack(held) }
    }

    /// The job on the fewest new machines of an offer, beside those that are on their way.
    fn try_offer(
        &self,
        demand: &Demand<'_>,
        partition: u32,
        (source, number): (usize, usize),
        width: Width,
    ) -> Option<(Placement, Vec<Bin>)> {
        let info = self.view.partitions.get(partition as usize)?;
        let (of, offer) = (&self.sources[source], &self.sources[source].offers[number]);
        // Most offers are passed over by their size.
        if offer.cpus < demand.cpus_per_task || !takes_in(info, &of.features) {
            return None;
        }
        let config = offer.node(&format!("{}-new", of.name), &of.features);
        if !fit::is_of_sort(demand, &config) {
            return None;
        }
        let least = demand.nodes_min.clamp(1, NODES_MAX);
        // A node of the job that is no machine on its way is a new one: fewer than these could not do.
        let fewest = least.saturating_sub(self.bins.len() as u32).max(1);
        let mut counts = match width {
            Width::Least => fewest..=least,
            Width::More => least + 1..=demand.nodes_max.min(of.machines_max).min(WIDE_MAX),
        };
        counts.find_map(|count| {
            let new = || Bin::of(config.clone(), Some((source, offer.clone())));
            let more: Vec<Bin> = (0..count).map(|_| new()).collect();
            Some((self.try_in(demand, partition, &more)?, more))
        })
    }

    fn try_in(&self, demand: &Demand<'_>, partition: u32, more: &[Bin]) -> Option<Placement> {
        let info = self.view.partitions.get(partition as usize)?;
        let trial = Trial { bins: &self.bins, more };
        let all = 0..(self.bins.len() + more.len()) as u32;
        let nodes: Vec<u32> =
            all.filter(|at| takes_in(info, &trial.bin(*at).config.features)).collect();
        if nodes.is_empty() {
            return None;
        }
        // The partition as it would be with these machines.
        let members = vec![0; info.nodes.len() + nodes.len()];
        let grown = PartitionInfo { partition: info.partition.clone(), nodes: members };
        match gate::partition(&grown, demand) {
            Some(_) => None,
            None => place(demand, &trial, &nodes),
        }
    }

    /// What keeps the source from making so many more machines of this offer.
    fn held_back(&self, source: usize, offer: &Offer, count: u32) -> Option<HoldCause> {
        let of = &self.sources[source];
        let failed = of.failed.iter().find(|(id, _)| id.as_ref().is_none_or(|id| *id == offer.id));
        if let Some((_, kind)) = failed {
            return Some(HoldCause::Failed { kind: *kind });
        }
        if of.machines + count > of.machines_max {
            return Some(HoldCause::Machines { most: of.machines_max });
        }
        let price: Price = (0..count).map(|_| offer.price).sum();
        if let Some(most) = of.price_hour_max.filter(|most| of.price_hour + price > *most) {
            return Some(HoldCause::PriceHour { most });
        }
        if of.budget_left.is_some_and(|left| price.for_time(HOUR) > left) {
            return Some(HoldCause::Budget);
        }
        (count > self.room).then_some(HoldCause::NodeCount)
    }

    /// Puts the job where it was placed, and orders the machines among them that are new.
    fn take(&mut self, job: JobId, demand: &Demand<'_>, placed: Placement, more: Vec<Bin>) {
        for bin in &more {
            let Some((at, offer)) = &bin.new else { continue };
            let source = &mut self.sources[*at];
            source.machines += 1;
            source.price_hour = source.price_hour + offer.price;
            let hour = offer.price.for_time(HOUR);
            source.budget_left = source.budget_left.map(|left| left.less(hour));
            self.room = self.room.saturating_sub(1);
            let (source, offer) = (source.name.clone(), offer.clone());
            self.orders.push(MachineOrder { source, offer, job });
        }
        self.bins.extend(more);
        for (at, share) in placed.shares {
            let bin = &mut self.bins[at as usize];
            bin.free.take(&bin.config, &share, demand.holder);
        }
    }
}

fn takes_in(info: &PartitionInfo, features: &[String]) -> bool {
    info.partition.dynamic_members.admits(features)
}
