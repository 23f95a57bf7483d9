//! Jobs packed on machines. Each offer is compared with a job by its size before anything is placed, and jobs that ask for the same
//! have the same answer.

use super::bin::{Bin, Bins, Room, Size};
use super::choice::Choice;
use super::limits::Limits;
use super::open_bins::{OpenBins, PartitionDemand};
use super::{MachineOrder, MachineView, Source};
use crate::place::Placement;
use crate::place::demand::{Demand, Tasks};
use crate::view::{PendingJob, View};
use model::id::JobId;
use model::machine::{MachineAnswer, Offer, SourceHold};
use model::request::Request;
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// The most tasks of one array that machines are made for at once, and of all jobs together.
const TASKS_MAX: u32 = 1_000;
const PACKED_MAX: u32 = 10_000;

/// The most new machines for one job, and for one that could do with fewer.
const NODES_MAX: u32 = 256;
const WIDE_MAX: u32 = 32;

/// On how many machines a job is tried: on as many as it must have, or on more.
#[derive(Clone, Copy)]
enum Width {
    Least,
    More,
}

/// So many new machines that are alike.
struct NewBins<'a> {
    bin: Rc<Bin>,
    count: u32,
    of: &'a Source,
    offer: &'a Offer,
}

/// A job with what it needs in each of its partitions.
struct Wanted<'a> {
    job: JobId,
    /// Its account, which is its project.
    project: &'a str,
    demands: Vec<PartitionDemand<'a>>,
    /// Its accounts that have a budget.
    accounts: Vec<&'a str>,
    shape: ShapeKey<'a>,
}

/// Jobs with the same key have the same answer.
type ShapeKey<'a> = (&'a Request, &'a [u32], u32, Vec<&'a str>);

pub(super) struct Packing<'a> {
    view: &'a View,
    there: &'a MachineView,
    limits: Limits<'a>,
    choices: Rc<[Choice<'a>]>,
    bins: Bins,
    /// Jobs for which machines are on their way.
    owners: HashSet<JobId>,
    /// Tasks that were given a place, and of each job those that have it on a machine of its own.
    packed: u32,
    on_own: HashMap<JobId, u32>,
    orders: Vec<MachineOrder>,
    /// What no new machine could be made for: limits only become tighter while jobs are packed.
    refused: HashMap<ShapeKey<'a>, MachineAnswer>,
}

impl<'a> Packing<'a> {
    pub(super) fn new(view: &'a View, there: &'a MachineView) -> Self {
        let coming = there.coming.iter().map(|of| Bin {
            owner: of.job,
            fleet: of.fleet.as_deref().map(Rc::from),
            ..Bin::of(of.node.clone())
        });
        Self {
            view,
            there,
            limits: Limits::new(there),
            choices: Choice::by_price(there),
            bins: Bins::new(coming.collect()),
            owners: there.coming.iter().filter_map(|of| of.job).collect(),
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
    pub(super) fn serve_own(&mut self, waiting: &'a PendingJob) {
        if !self.owners.contains(&waiting.job) {
            return;
        }
        let wanted = self.wanted(waiting);
        let is_own = |bin: &Bin| bin.owner == Some(wanted.job);
        let mut placed = 0;
        for _ in 0..tasks_of(waiting) {
            let found = wanted.demands.iter().find_map(|of| {
                let open = OpenBins::find(&self.bins, of, is_own);
                Some((open.place(&self.bins, of)?, of))
            });
            let Some((placement, of)) = found else { break };
            self.take(&of.demand, placement);
            placed += 1;
        }
        self.packed += placed;
        self.on_own.insert(waiting.job, placed);
    }

    /// Puts the job on machines that are on their way, and on new ones.
    pub(super) fn serve(&mut self, waiting: &'a PendingJob) -> Option<MachineAnswer> {
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

    fn wanted(&self, waiting: &'a PendingJob) -> Wanted<'a> {
        let (request, uid) = (waiting.spec.request(), waiting.spec.owner.uid);
        let demand = |at: &u32| {
            let info = self.view.partitions.get(*at as usize)?;
            let demand = Demand::new(request, &info.partition, &self.view.policy, uid)
                .of_project(&waiting.account);
            let least = Size::least(&demand);
            Some(PartitionDemand { info, demand, least })
        };
        // The job's account and those above it, as far as they have a budget.
        let above = self.view.accounting.chain(waiting.association);
        let above = above.map(|(_, member)| member.association.account.as_str());
        let accounts = self.limits.budgeted(above.chain([waiting.account.as_str()]));
        // A project may have sources of its own: the same request has another answer in another project.
        let has_own = self.there.sources.iter().any(|source| source.project.is_some());
        let own = has_own.then_some(waiting.account.as_str());
        let told_apart = accounts.iter().copied().chain(own).collect();
        Wanted {
            job: waiting.job,
            project: &waiting.account,
            demands: waiting.partitions.iter().filter_map(demand).collect(),
            shape: (request, waiting.partitions.as_slice(), uid, told_apart),
            accounts,
        }
    }

    fn serve_one(&mut self, wanted: &Wanted<'a>) -> MachineAnswer {
        let mut open = Vec::with_capacity(wanted.demands.len());
        for of in &wanted.demands {
            let found = OpenBins::find(&self.bins, of, |_| true);
            if let Some(placement) = found.place(&self.bins, of) {
                self.take(&of.demand, placement);
                return MachineAnswer::Coming;
            }
            open.push(found);
        }
        // Hashing a request takes longer than to see that nothing was refused.
        let known = if self.refused.is_empty() { None } else { self.refused.get(&wanted.shape) };
        if let Some(known) = known {
            return known.clone();
        }
        // A job is spread over more nodes than it has to have only where no offer holds it otherwise.
        let answer = match self.order_for(wanted, &open, Width::Least) {
            MachineAnswer::NoOffer => self.order_for(wanted, &open, Width::More),
            answer => answer,
        };
        if !matches!(answer, MachineAnswer::Ordered { .. }) {
            self.refused.insert(wanted.shape.clone(), answer.clone());
        }
        answer
    }

    /// Asks for machines of the cheapest offer that holds the job.
    fn order_for(&mut self, wanted: &Wanted<'a>, open: &[OpenBins], width: Width) -> MachineAnswer {
        let mut held: Vec<SourceHold> = Vec::new();
        // Sources that make none for the job's project, or could make no machine of this price, and so none of a higher one.
        let sources = self.there.sources.iter();
        let mut closed: Vec<bool> = sources.map(|source| !source.serves(wanted.project)).collect();
        let choices = self.choices.clone();
        for choice in choices.iter() {
            for (of, open) in wanted.demands.iter().zip(open) {
                if closed[choice.source] || !choice.size.holds(of.least) {
                    continue;
                }
                let found = self.try_offer(of, open, choice, width);
                let Some((placement, new)) = found else { continue };
                let (source, offer) = (choice.of, choice.offer);
                let cause = self.limits.held_back(source, offer, new.count, &wanted.accounts);
                if let Some(cause) = cause {
                    if !held.iter().any(|hold| hold.source == source.name) {
                        held.push(SourceHold { source: source.name.clone(), cause });
                    }
                    closed[choice.source] =
                        self.limits.is_closed(source, offer.price, &wanted.accounts);
                    continue;
                }
                self.order(wanted, &new);
                self.take(&of.demand, placement);
                let (source, offer) = (source.name.clone(), offer.id.clone());
                return MachineAnswer::Ordered { source, offer, price: choice.offer.price };
            }
        }
        if held.is_empty() { MachineAnswer::NoOffer } else { MachineAnswer::HeldBack(held) }
    }

    /// The job on the fewest new machines of an offer, beside those that are on their way, where these alone do not hold it.
    fn try_offer(
        &self,
        of: &PartitionDemand<'_>,
        open: &OpenBins,
        choice: &Choice<'a>,
        width: Width,
    ) -> Option<(Placement, NewBins<'a>)> {
        let (partition, demand) = (&of.info.partition, &of.demand);
        if !choice.of.feeds(partition) || !choice.of.may_make(choice.offer) {
            return None;
        }
        let bin = choice.machine(demand)?;
        let may_hold = Room::of(&bin).may_hold(demand, of.least) && bin.is_in(partition);
        if !may_hold || !bin.holds_part(demand) {
            return None;
        }
        let nodes = demand.nodes_min.clamp(1, NODES_MAX);
        let counts = match width {
            Width::Least => open.fewest_new(&self.bins, demand, nodes)..=nodes,
            Width::More => {
                let most = demand.nodes_max.min(choice.of.machines_max).min(WIDE_MAX);
                (nodes + 1).max(fewest_for(demand, choice.size.cpus, &self.bins))..=most
            }
        };
        let place = |count: u32| open.place_with(&self.bins, of, &bin, count);
        let (placement, count) = with_fewest(counts, place)?;
        Some((placement, NewBins { bin, count, of: choice.of, offer: choice.offer }))
    }

    /// Orders new machines for a job.
    fn order(&mut self, wanted: &Wanted<'_>, new: &NewBins<'_>) {
        let (source, offer) = (new.of, new.bin.part.as_deref().unwrap_or(new.offer));
        for _ in 0..new.count {
            self.limits.take(source, offer.price, &wanted.accounts);
            self.orders.push(MachineOrder {
                source: source.name.clone(),
                offer: offer.clone(),
                job: Some(wanted.job),
                fleet: source.fleet.as_ref().map(|fleet| fleet.name.clone()),
            });
        }
        self.bins.add(&new.bin, new.count);
    }

    /// Puts the job where it was placed.
    fn take(&mut self, demand: &Demand<'_>, placed: Placement) {
        for (at, share) in placed.shares {
            self.bins.take(at, &share, demand.holder);
        }
    }
}

/// The result for the least of these counts that has one. Where the most are not enough, fewer are not.
fn with_fewest<T>(
    counts: RangeInclusive<u32>,
    attempt: impl Fn(u32) -> Option<T>,
) -> Option<(T, u32)> {
    let (fewest, most) = (*counts.start(), *counts.end());
    let counted = |count: u32| Some((attempt(count)?, count));
    if fewest > most {
        return None;
    }
    counted(fewest).or_else(|| {
        let all = if fewest < most { counted(most)? } else { return None };
        Some((fewest + 1..most).find_map(counted).unwrap_or(all))
    })
}

/// How many tasks of it machines are made for.
fn tasks_of(waiting: &PendingJob) -> u32 {
    waiting.tasks.min(waiting.tasks_allowed.unwrap_or(u32::MAX)).min(TASKS_MAX)
}

/// How many machines of so many CPUs the tasks need at least, beside what is free of those on their way.
fn fewest_for(demand: &Demand<'_>, cpus: u32, bins: &Bins) -> u32 {
    let tasks = match demand.tasks {
        Tasks::Total { count, .. } if !demand.request.overcommit => count,
        _ => return 0,
    };
    let free: u32 = bins.rooms().iter().map(|room| room.cpus).sum();
    let needed = tasks.saturating_mul(demand.cpus_per_task).saturating_sub(free);
    needed.div_ceil(cpus.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn fewest_machines_are_found_with_few_tries() {
        let tried = |counts: RangeInclusive<u32>, needed: u32| {
            let tries = RefCell::new(Vec::new());
            let attempt = |count: u32| {
                tries.borrow_mut().push(count);
                (count >= needed).then_some("placed")
            };
            let found = with_fewest(counts, attempt).map(|(_, count)| count);
            (found, tries.into_inner())
        };
        assert_eq!(tried(3..=9, 1), (Some(3), vec![3]));
        assert_eq!(tried(3..=9, 10), (None, vec![3, 9]), "fewer would not do either");
        assert_eq!(tried(3..=9, 5), (Some(5), vec![3, 9, 4, 5]));
        assert_eq!(tried(3..=9, 9), (Some(9), vec![3, 9, 4, 5, 6, 7, 8]));
        assert_eq!(tried(3..=3, 4), (None, vec![3]));
        assert_eq!(tried(RangeInclusive::new(4, 3), 1), (None, vec![]));
    }
}
