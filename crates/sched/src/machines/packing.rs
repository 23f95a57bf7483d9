//! Jobs packed on machines. Offers are sorted by price once, each is compared with a job by its size before anything is
//! placed, and jobs that ask for the same have the same answer.

use super::bin::{Bin, Size, Trial};
use super::{HOUR, MachineOrder, MachineView, Source};
use crate::gate;
use crate::place::demand::{Demand, Tasks};
use crate::place::{Placement, fit, place};
use crate::view::{PendingJob, View};
use model::id::JobId;
use model::machine::{HoldCause, MachineAnswer, Offer, SourceHold};
use model::node::NodeConfig;
use model::pod::PodKind;
use model::price::{Cost, Price};
use model::request::Request;
use model::time::Timestamp;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// The most tasks of one array that machines are made for at once, and of all jobs together.
const TASKS_MAX: u32 = 1_000;
const PACKED_MAX: u32 = 10_000;

/// The most new machines for one job, and for one that could do with fewer.
const NODES_MAX: u32 = 256;
const WIDE_MAX: u32 = 32;

/// An offer by its place in its source, with what tells most jobs that it is too small.
struct Choice {
    price: Price,
    source: usize,
    number: usize,
    size: Size,
    /// The node that a machine of it would be; made when a job is tried on it for the first time.
    node: OnceCell<Rc<NodeConfig>>,
}

/// On how many machines a job is tried: on as many as it must have, or on more.
#[derive(Clone, Copy)]
enum Width {
    Least,
    More,
}

/// What one source has, with what was ordered of it here.
struct Tally {
    machines: u32,
    price_hour: Price,
    budget_left: Option<Cost>,
}

/// A job with what it needs in each of its partitions.
struct Wanted<'a> {
    job: JobId,
    /// Its account, which is its project.
    project: &'a str,
    demands: Vec<(u32, Demand<'a>, Size)>,
    /// Its accounts that have a budget.
    accounts: Vec<String>,
    shape: ShapeKey,
}

/// Jobs with the same key have the same answer.
type ShapeKey = (Request, Vec<u32>, u32, Vec<String>);

pub(super) struct Packing<'a> {
    view: &'a View,
    there: &'a MachineView,
    /// By the names of sources: one may be there for several fleets.
    tallies: BTreeMap<&'a str, Tally>,
    /// Instances that fleets have, with those that were ordered here.
    instances: BTreeMap<&'a str, u32>,
    /// What is left of the budgets of accounts.
    budgets: BTreeMap<&'a str, Cost>,
    /// The cheapest first.
    choices: Rc<[Choice]>,
    room: u32,
    bins: Vec<Bin>,
    /// Tasks that were given a place, and of each job those that have it on a machine of its own.
    packed: u32,
    on_own: HashMap<JobId, u32>,
    orders: Vec<MachineOrder>,
    /// What no new machine could be made for: limits only become tighter while jobs are packed.
    refused: HashMap<ShapeKey, MachineAnswer>,
}

impl<'a> Packing<'a> {
    pub(super) fn new(view: &'a View, there: &'a MachineView) -> Self {
        let offers = there.sources.iter().enumerate().flat_map(|(source, of)| {
            of.offers.iter().enumerate().map(move |(number, offer)| Choice {
                price: offer.price,
                source,
                number,
                size: Size::of(offer),
                node: OnceCell::new(),
            })
        });
        let mut choices: Vec<Choice> = offers.collect();
        choices.sort_unstable_by_key(|of| (of.price, of.source, of.number));
        let tally = |of: &Source| Tally {
            machines: of.machines,
            price_hour: of.price_hour,
            budget_left: of.budget_left,
        };
        let fleets = there.sources.iter().filter_map(|of| of.fleet.as_deref());
        let coming = there.coming.iter().map(|of| Bin {
            owner: of.job,
            fleet: of.fleet.as_deref().map(Rc::from),
            ..Bin::of(Rc::new(of.node.clone()))
        });
        Self {
            view,
            there,
            tallies: there.sources.iter().map(|of| (of.name.as_str(), tally(of))).collect(),
            instances: fleets.map(|fleet| (fleet.name.as_str(), fleet.machines)).collect(),
            budgets: there.budgets.iter().map(|(name, of)| (name.as_str(), of.left)).collect(),
            choices: choices.into(),
            room: there.room,
            bins: coming.collect(),
            packed: 0,
            on_own: HashMap::new(),
            orders: Vec::new(),
            refused: HashMap::new(),
        }
    }

    pub(super) fn into_orders(self) -> Vec<MachineOrder> {
        self.orders
    }

    /// The answer that is known before anything is packed. `None` for a job that machines have no part in, and
    /// `Some(None)` for one that is packed.
    pub(super) fn known_answer(
        &self,
        waiting: &PendingJob,
        expected: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Option<MachineAnswer>> {
        let feeding = self.feeding(waiting);
        let boot = feeding.iter().map(|source| source.boot).max()?;
        let request = waiting.spec.request();
        let is_bound = !request.node_list.is_empty() || request.reservation.is_some();
        if waiting.het.is_some() || is_bound {
            return Some(Some(MachineAnswer::Bound));
        }
        if self.there.served.contains(&waiting.job) {
            return Some(Some(MachineAnswer::Unserved));
        }
        if request.machines.as_ref().is_some_and(|choice| choice.reuse_only) {
            return Some(Some(MachineAnswer::ReuseOnly));
        }
        let is_own_first = feeding.iter().all(|source| source.own_first);
        if is_own_first && expected.is_some_and(|start| start <= now + boot) {
            return Some(Some(MachineAnswer::NodesSooner));
        }
        Some(None)
    }

    /// Puts the job on the machines that were made for it: no other job takes their room from it, and it gets no second one.
    pub(super) fn serve_own(&mut self, waiting: &PendingJob) {
        if !self.bins.iter().any(|bin| bin.owner == Some(waiting.job)) {
            return;
        }
        let wanted = self.wanted(waiting);
        let mut placed = 0;
        for _ in 0..tasks_of(waiting) {
            let found = wanted.demands.iter().find_map(|(at, demand, least)| {
                let is_own = |bin: &Bin| bin.owner == Some(wanted.job);
                Some((self.try_among(demand, *at, *least, &[], is_own)?, demand))
            });
            let Some((placement, demand)) = found else { break };
            self.take(&wanted, demand, placement, Vec::new());
            placed += 1;
        }
        self.packed += placed;
        self.on_own.insert(waiting.job, placed);
    }

    /// Puts the job on machines that are on their way, and on new ones.
    pub(super) fn serve(&mut self, waiting: &PendingJob) -> Option<MachineAnswer> {
        let on_own = self.on_own.get(&waiting.job).copied().unwrap_or(0);
        let mut first = (on_own > 0).then_some(MachineAnswer::Coming);
        let tasks = tasks_of(waiting).saturating_sub(on_own);
        if tasks == 0 {
            return first;
        }
        let wanted = self.wanted(waiting);
        for _ in 0..tasks.min(PACKED_MAX.saturating_sub(self.packed)) {
            let answer = self.serve_one(&wanted);
            let is_served = answer.is_coming();
            first.get_or_insert(answer);
            if !is_served {
                break;
            }
            self.packed += 1;
        }
        first
    }

    /// The sources of the job's project whose machines would be in one of its partitions.
    fn feeding(&self, waiting: &PendingJob) -> Vec<&'a Source> {
        let takes = |source: &&Source| {
            source.serves(&waiting.account)
                && waiting.partitions.iter().any(|at| {
                    let info = self.view.partitions.get(*at as usize);
                    info.is_some_and(|info| source.feeds(&info.partition))
                })
        };
        self.there.sources.iter().filter(takes).collect()
    }

    fn wanted<'w>(&self, waiting: &'w PendingJob) -> Wanted<'w> {
        let (request, uid) = (waiting.spec.request(), waiting.spec.owner.uid);
        let demand = |at: &u32| {
            let info = self.view.partitions.get(*at as usize)?;
            let demand = Demand::new(request, &info.partition, &self.view.policy, uid)
                .of_project(&waiting.account);
            let least = Size::least(&demand);
            Some((*at, demand, least))
        };
        let accounts = self.budgeted(waiting);
        // A project may have sources of its own: the same request has another answer in another project.
        let has_own = self.there.sources.iter().any(|source| source.project.is_some());
        let told_apart = accounts.iter().chain(has_own.then_some(&waiting.account));
        let told_apart = told_apart.cloned().collect();
        Wanted {
            job: waiting.job,
            project: &waiting.account,
            demands: waiting.partitions.iter().filter_map(demand).collect(),
            shape: (request.clone(), waiting.partitions.clone(), uid, told_apart),
            accounts,
        }
    }

    /// The job's account and those above it, as far as they have a budget.
    fn budgeted(&self, waiting: &PendingJob) -> Vec<String> {
        if self.budgets.is_empty() {
            return Vec::new();
        }
        let above = self.view.accounting.chain(waiting.association);
        let above = above.map(|(_, member)| member.association.account.clone());
        let mut names: Vec<String> = above.chain([waiting.account.clone()]).collect();
        names.retain(|name| self.budgets.contains_key(name.as_str()));
        names.sort_unstable();
        names.dedup();
        names
    }

    fn serve_one(&mut self, wanted: &Wanted<'_>) -> MachineAnswer {
        for (at, demand, least) in &wanted.demands {
            if let Some(placement) = self.try_in(demand, *at, *least, &[]) {
                self.take(wanted, demand, placement, Vec::new());
                return MachineAnswer::Coming;
            }
        }
        if let Some(known) = self.refused.get(&wanted.shape) {
            return known.clone();
        }
        // A job is spread over more nodes than it has to have only where no offer holds it otherwise.
        let answer = match self.order_for(wanted, Width::Least) {
            MachineAnswer::NoOffer => self.order_for(wanted, Width::More),
            answer => answer,
        };
        if !matches!(answer, MachineAnswer::Ordered { .. }) {
            self.refused.insert(wanted.shape.clone(), answer.clone());
        }
        answer
    }

    /// Asks for machines of the cheapest offer that holds the job.
    fn order_for(&mut self, wanted: &Wanted<'_>, width: Width) -> MachineAnswer {
        let mut held: Vec<SourceHold> = Vec::new();
        // Sources that make none for the job's project, or could make no machine of this price, and so none of a higher one.
        let sources = self.there.sources.iter();
        let mut closed: Vec<bool> = sources.map(|source| !source.serves(wanted.project)).collect();
        let choices = self.choices.clone();
        for choice in choices.iter() {
            for (at, demand, least) in &wanted.demands {
                if closed[choice.source] || !choice.size.holds(*least) {
                    continue;
                }
                let found = self.try_offer(demand, *at, *least, choice, width);
                let Some((placement, more)) = found else { continue };
                let name = &self.there.sources[choice.source].name;
                if let Some(cause) = self.held_back(choice, more.len() as u32, wanted) {
                    if !held.iter().any(|hold| hold.source == *name) {
                        held.push(SourceHold { source: name.clone(), cause });
                    }
                    closed[choice.source] = self.is_closed(choice, wanted);
                    continue;
                }
                let (source, offer) = (name.clone(), self.offer(choice).id.clone());
                self.take(wanted, demand, placement, more);
                return MachineAnswer::Ordered { source, offer, price: choice.price };
            }
        }
        if held.is_empty() { MachineAnswer::NoOffer } else { MachineAnswer::HeldBack(held) }
    }

    fn offer(&self, choice: &Choice) -> &'a Offer {
        &self.there.sources[choice.source].offers[choice.number]
    }

    fn node_of(&self, choice: &Choice) -> Rc<NodeConfig> {
        let of = &self.there.sources[choice.source];
        let make = || {
            let name = format!("{}-new", of.name);
            Rc::new(self.offer(choice).node_of(of.reference(), &name, &of.features))
        };
        choice.node.get_or_init(make).clone()
    }

    /// The pod that would be made for a node of the job, and the node that it would be; `None` for a job that cannot run in
    /// one.
    fn pod_of(&self, choice: &Choice, demand: &Demand<'_>) -> Option<(Rc<Offer>, Rc<NodeConfig>)> {
        let template = demand.request.pod.clone()?;
        let of = &self.there.sources[choice.source];
        let part = Size::pod(self.offer(choice), demand);
        let name = format!("{}-new", of.name);
        let mut config = part.node_of(of.reference(), &name, &of.features);
        if let Some(kind) = &mut config.machine {
            if !kind.pod.admits(Some(&template)) {
                return None;
            }
            kind.pod = PodKind::Of(template);
        }
        Some((Rc::new(part), Rc::new(config)))
    }

    /// The job on the fewest new machines of an offer, beside those that are on their way.
    fn try_offer(
        &self,
        demand: &Demand<'_>,
        partition: u32,
        least: Size,
        choice: &Choice,
        width: Width,
    ) -> Option<(Placement, Vec<Bin>)> {
        let info = self.view.partitions.get(partition as usize)?;
        let of = &self.there.sources[choice.source];
        if !of.feeds(&info.partition) || !of.may_make(self.offer(choice)) {
            return None;
        }
        let (part, config) = if of.makes_pods {
            let (part, config) = self.pod_of(choice, demand)?;
            (Some(part), config)
        } else {
            (None, self.node_of(choice))
        };
        if !fit::is_of_sort(demand, &config) {
            return None;
        }
        let fleet: Option<Rc<str>> = of.fleet.as_ref().map(|fleet| Rc::from(fleet.name.as_str()));
        let try_with = |count: u32| {
            let one = |_| Bin {
                new: Some((choice.source, choice.number)),
                part: part.clone(),
                fleet: fleet.clone(),
                ..Bin::of(config.clone())
            };
            let more: Vec<Bin> = (0..count).map(one).collect();
            Some((self.try_in(demand, partition, least, &more)?, more))
        };
        let nodes = demand.nodes_min.clamp(1, NODES_MAX);
        match width {
            Width::Least => {
                // A node of the job that is no machine on its way is a new one: fewer than these could not do.
                let is_open = |bin: &&Bin| bin.may_hold(demand, least);
                let open = self.bins.iter().filter(is_open).count() as u32;
                let fewest = nodes.saturating_sub(open).max(1);
                if fewest < nodes && try_with(nodes).is_none() {
                    return None;
                }
                (fewest..=nodes).find_map(try_with)
            }
            Width::More => {
                let most = demand.nodes_max.min(of.machines_max).min(WIDE_MAX);
                let fewest = (nodes + 1).max(fewest_for(demand, choice.size.cpus, &self.bins));
                // Where the most are not enough, fewer are not.
                if fewest > most || try_with(most).is_none() {
                    return None;
                }
                (fewest..=most).find_map(try_with)
            }
        }
    }

    fn try_in(
        &self,
        demand: &Demand<'_>,
        partition: u32,
        least: Size,
        more: &[Bin],
    ) -> Option<Placement> {
        self.try_among(demand, partition, least, more, |_| true)
    }

    /// The job on some of the bins that will do, and of those that are tried.
    fn try_among(
        &self,
        demand: &Demand<'_>,
        partition: u32,
        least: Size,
        more: &[Bin],
        will_do: impl Fn(&Bin) -> bool,
    ) -> Option<Placement> {
        let info = self.view.partitions.get(partition as usize)?;
        let trial = Trial { bins: &self.bins, more };
        let is_open =
            |bin: &Bin| bin.may_hold(demand, least) && will_do(bin) && bin.is_in(&info.partition);
        let all = 0..(self.bins.len() + more.len()) as u32;
        let nodes: Vec<u32> = all.filter(|at| is_open(trial.bin(*at))).collect();
        if nodes.is_empty() {
            return None;
        }
        // The partition as it would be with these machines.
        match gate::partition_of(&info.partition, info.nodes.len() + nodes.len(), demand) {
            Some(_) => None,
            None => place(demand, &trial, &nodes),
        }
    }

    /// What keeps the source from making so many more machines of this offer for the job.
    fn held_back(&self, choice: &Choice, count: u32, wanted: &Wanted<'_>) -> Option<HoldCause> {
        let of = &self.there.sources[choice.source];
        let id = &self.offer(choice).id;
        let failed = of.failed.iter().find(|(one, _)| one.as_ref().is_none_or(|one| one == id));
        if let Some((_, kind)) = failed {
            return Some(HoldCause::Failed { kind: *kind });
        }
        self.limit_reached(choice, count, wanted)
    }

    fn limit_reached(&self, choice: &Choice, count: u32, wanted: &Wanted<'_>) -> Option<HoldCause> {
        let of = &self.there.sources[choice.source];
        let tally = self.tallies.get(of.name.as_str())?;
        if tally.machines + count > of.machines_max {
            return Some(HoldCause::Machines { most: of.machines_max });
        }
        if let Some(fleet) = &of.fleet {
            let there = self.instances.get(fleet.name.as_str()).copied().unwrap_or(0);
            if let Some(most) = fleet.cloud.max.filter(|most| there + count > *most) {
                return Some(HoldCause::Fleet { fleet: fleet.name.clone(), most });
            }
        }
        let price: Price = (0..count).map(|_| choice.price).sum();
        let hour = price.for_time(HOUR);
        if let Some(most) = of.price_hour_max.filter(|most| tally.price_hour + price > *most) {
            return Some(HoldCause::PriceHour { most });
        }
        if tally.budget_left.is_some_and(|left| hour > left) {
            return Some(HoldCause::Budget);
        }
        let is_spent =
            |name: &&String| self.budgets.get(name.as_str()).is_some_and(|left| hour > *left);
        if let Some(account) = wanted.accounts.iter().find(is_spent) {
            let month = self.there.budgets.get(account).map(|of| of.month).unwrap_or_default();
            return Some(HoldCause::AccountBudget { account: account.clone(), month });
        }
        (count > self.room).then_some(HoldCause::NodeCount)
    }

    /// Whether the source can make not one machine of this price or a higher one for the job.
    fn is_closed(&self, choice: &Choice, wanted: &Wanted<'_>) -> bool {
        let of = &self.there.sources[choice.source];
        of.failed.iter().any(|(offer, _)| offer.is_none())
            || self.limit_reached(choice, 1, wanted).is_some()
    }

    /// Puts the job where it was placed, and orders the machines among them that are new.
    fn take(
        &mut self,
        wanted: &Wanted<'_>,
        demand: &Demand<'_>,
        placed: Placement,
        more: Vec<Bin>,
    ) {
        for bin in &more {
            let Some((at, number)) = bin.new else { continue };
            let source = &self.there.sources[at];
            let offer = bin.part.as_deref().unwrap_or(&source.offers[number]).clone();
            let hour = offer.price.for_time(HOUR);
            if let Some(tally) = self.tallies.get_mut(source.name.as_str()) {
                tally.machines += 1;
                tally.price_hour = tally.price_hour + offer.price;
                tally.budget_left = tally.budget_left.map(|left| left.less(hour));
            }
            let fleet = source.fleet.as_ref().map(|fleet| fleet.name.clone());
            if let Some(there) = fleet.as_deref().and_then(|name| self.instances.get_mut(name)) {
                *there += 1;
            }
            for name in &wanted.accounts {
                if let Some(left) = self.budgets.get_mut(name.as_str()) {
                    *left = left.less(hour);
                }
            }
            self.room = self.room.saturating_sub(1);
            let (source, job) = (source.name.clone(), Some(wanted.job));
            self.orders.push(MachineOrder { source, offer, job, fleet });
        }
        self.bins.extend(more);
        for (at, share) in placed.shares {
            self.bins[at as usize].take(&share, demand.holder);
        }
    }
}

/// How many tasks of it machines are made for.
fn tasks_of(waiting: &PendingJob) -> u32 {
    waiting.tasks.min(waiting.tasks_allowed.unwrap_or(u32::MAX)).min(TASKS_MAX)
}

/// How many machines of so many CPUs the tasks need at least, beside what is free of those on their way.
fn fewest_for(demand: &Demand<'_>, cpus: u32, bins: &[Bin]) -> u32 {
    let tasks = match demand.tasks {
        Tasks::Total { count, .. } if !demand.request.overcommit => count,
        _ => return 0,
    };
    let free: u32 = bins.iter().map(|bin| bin.free_cpus).sum();
    let needed = tasks.saturating_mul(demand.cpus_per_task).saturating_sub(free);
    needed.div_ceil(cpus.max(1))
}
