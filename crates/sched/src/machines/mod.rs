//! When to make a machine: jobs that wait for nodes are packed, in the order of the queue, on machines that are on their way,
//! and on new ones of the cheapest offers that hold them, within the limits of their sources and the budgets of their accounts.
//!
//! The packing ([`packing`]) begins anew with each plan. A machine that is on its way has room again each time, and the same
//! jobs take it first: no job gets a second one.

mod bin;
mod choice;
mod limits;
mod open_bins;
mod packing;

use crate::gate;
use crate::place::demand::Demand;
use crate::view::{PendingJob, Plan, View};
use model::cloud_fleet::CloudFleet;
use model::id::JobId;
use model::machine::{MachineAnswer, Offer, SourcePause, is_for_nodes};
use model::machine_choice::SourceRef;
use model::node::NodeConfig;
use model::partition::Partition;
use model::price::{Cost, Price};
use model::time::Timestamp;
use packing::Packing;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The most jobs of the queue that machines are made for at once.
const JOBS_MAX: usize = 1_000;

const HOUR: Duration = Duration::from_secs(3600);

/// What there is to make machines of, and the machines that count already.
#[derive(Debug, Clone, Default)]
pub struct MachineView {
    pub sources: Vec<Source>,
    /// Machines that are asked for or made, and have not joined, in the order in which they were asked for.
    pub coming: Vec<Coming>,
    /// Jobs for which a machine was made that has joined and has nothing to do, or that was deleted a short while ago because
    /// they did not start on it.
    pub served: BTreeSet<JobId>,
    /// How many more nodes there may be.
    pub room: u32,
    /// By account. A budget is also for the accounts below.
    pub budgets: BTreeMap<String, AccountBudget>,
}

/// A machine on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Coming {
    pub node: NodeConfig,
    /// The job that it was made for: it has its place there before any other.
    pub job: Option<JobId>,
    /// The fleet that it is an instance of: it is in no other partition.
    pub fleet: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Source {
    pub name: String,
    /// In dstack's words.
    pub backend: String,
    /// Its machines are pods, each of the size that its job asks for.
    pub makes_pods: bool,
    /// A job may be root in such a pod.
    pub makes_root_pods: bool,
    pub features: Vec<String>,
    pub offers: Arc<Vec<Offer>>,
    /// Offers that failed a short while ago.
    pub failed: Vec<SourcePause>,
    /// Machines that there are or may be, and what they cost in an hour.
    pub machines: u32,
    pub price_hour: Price,
    pub machines_max: u32,
    pub price_hour_max: Option<Price>,
    /// What the month's budget has left when all machines that there are have run for one more hour.
    pub budget_left: Option<Cost>,
    pub boot: Duration,
    /// A job waits for nodes that are expected to be free before a machine would be up.
    pub own_first: bool,
    /// The project that it makes machines for alone; `None` for everybody.
    pub project: Option<String>,
    /// Where its machines would be instances of a fleet: of which. The same source is there once for each fleet, and once for
    /// none.
    pub fleet: Option<Arc<FleetPool>>,
}

/// A fleet whose instances sources make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetPool {
    pub name: String,
    /// The instances that there are or may be.
    pub machines: u32,
    pub cloud: CloudFleet,
}

impl Source {
    /// Whether its machines would be in the partition.
    pub fn feeds(&self, partition: &Partition) -> bool {
        match &self.fleet {
            Some(fleet) => partition.name == fleet.name,
            None => partition.dynamic_members.admits(&self.features),
        }
    }

    /// Whether it makes machines for jobs of this project, which is their account.
    pub fn serves(&self, project: &str) -> bool {
        self.reference().serves(project)
    }

    /// Whether the fleet, where there is one, may have such a machine.
    pub fn may_make(&self, offer: &Offer) -> bool {
        self.fleet.as_ref().is_none_or(|fleet| fleet.cloud.allows(self.reference(), offer))
    }

    pub fn reference(&self) -> SourceRef<'_> {
        SourceRef {
            name: &self.name,
            backend: &self.backend,
            makes_pods: self.makes_pods,
            makes_root_pods: self.makes_root_pods,
            project: self.project.as_deref(),
        }
    }
}

/// What the jobs of an account may cost in this month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountBudget {
    pub month: Cost,
    /// What is left of it when all of the account's jobs have run for one more hour.
    pub left: Cost,
}

/// A machine to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineOrder {
    pub source: String,
    pub offer: Offer,
    /// `None` for an instance that a fleet has without a job.
    pub job: Option<JobId>,
    /// The fleet that it is an instance of.
    pub fleet: Option<String>,
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
    let waiting = plan.reasons.iter().filter(|(_, reason)| is_for_nodes(reason));
    let waiting = waiting.filter_map(|(job, _)| queue.get(job).copied());
    let waiting = waiting.filter(|waiting| gate::job(waiting, now).is_none());
    // A job waits for its start on other nodes, where it is expected there.
    let mut served: Vec<(&PendingJob, Option<MachineAnswer>)> = Vec::new();
    let (mut counted, mut bound) = (0, 0);
    for waiting in waiting {
        if counted == JOBS_MAX || bound == JOBS_MAX {
            break;
        }
        let start = expected.get(&waiting.job).copied();
        let Some(known) = packing.known_answer(waiting, start, now) else { continue };
        // Jobs that no machine is ever made for are counted apart: they leave the others their places.
        let is_bound = known == Some(MachineAnswer::Bound);
        *(if is_bound { &mut bound } else { &mut counted }) += 1;
        if known.is_none() {
            packing.serve_own(waiting);
        }
        served.push((waiting, known));
    }
    let answers = served.into_iter().filter_map(|(waiting, known)| {
        let answer = known.or_else(|| packing.serve(waiting))?;
        Some((waiting.job, answer))
    });
    let answers = answers.collect();
    MachinePlan { orders: packing.into_orders(), answers }
}

/// So many machines for a fleet without a job: of the cheapest offer that it may have, within the limits of the source.
pub fn fleet_orders(there: &MachineView, fleet: &str, count: u32) -> Vec<MachineOrder> {
    // A pod is made for a job, and not before there is one.
    let of_fleet = |source: &&Source| {
        !source.makes_pods && source.fleet.as_ref().is_some_and(|of| of.name == fleet)
    };
    let mut choices: Vec<(Price, &Source, &Offer)> = Vec::new();
    for source in there.sources.iter().filter(of_fleet) {
        let is_left = |offer: &&Offer| {
            source.may_make(offer) && !source.failed.iter().any(|pause| pause.is_of(&offer.id))
        };
        let offers = source.offers.iter().filter(is_left);
        choices.extend(offers.map(|offer| (offer.price, source, offer)));
    }
    choices.sort_by_key(|(price, ..)| *price);
    // The cheapest of the offers of which the most can be made.
    let most = count.min(there.room);
    let mut fitting: Option<(u32, &Source, &Offer)> = None;
    for (price, source, offer) in choices {
        let count = room_for(source, price, most);
        if count > fitting.map_or(0, |(known, ..)| known) {
            fitting = Some((count, source, offer));
        }
        if count == most {
            break;
        }
    }
    let Some((count, source, offer)) = fitting else { return Vec::new() };
    let order = MachineOrder {
        source: source.name.clone(),
        offer: offer.clone(),
        job: None,
        fleet: Some(fleet.to_owned()),
    };
    vec![order; count as usize]
}

/// The part of an offer of pods that is made for a node of the job.
pub(crate) fn pod_part(offer: &Offer, demand: &Demand<'_>) -> Offer {
    bin::Size::pod(offer, demand)
}

/// How many machines of this price, of so many at most, the source may make.
fn room_for(source: &Source, price: Price, most: u32) -> u32 {
    let has_room = |count: u32| {
        let prices = Price::from_units(price.units().saturating_mul(count.into()));
        source.price_hour_max.is_none_or(|most| source.price_hour + prices <= most)
            && source.budget_left.is_none_or(|left| prices.for_time(HOUR) <= left)
    };
    // Where so many are too many, more are: the limit is between the two.
    let (mut fits, mut tried) = (0, most.min(source.machines_max.saturating_sub(source.machines)));
    while fits < tried {
        let count = fits + (tried - fits).div_ceil(2);
        if has_room(count) {
            fits = count;
        } else {
            tried = count - 1;
        }
    }
    fits
}
