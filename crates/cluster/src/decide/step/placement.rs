//! The placement of a step: first as if alone in its job, which shows what can never fit; then beside the other steps.

use super::demand::{Counts, StepDemand};
use super::free_share::{FreeShare, units};
use super::layout::{LayoutPolicy, arbitrary, lay_out};
use model::allocation::NodeShare;
use model::reason::Refusal;
use model::request::{GresRequest, Per};
use model::run::Step;
use model::step::{StepRefusal, TaskDistribution};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodePlacement {
    pub share: NodeShare,
    pub ranks: Vec<u32>,
}

impl StepDemand<'_> {
    pub fn place(&self, steps: &[Step]) -> Result<Vec<NodePlacement>, Refusal> {
        let alone: Vec<FreeShare<'_>> =
            self.candidates()?.into_iter().map(FreeShare::whole).collect();
        let counts = self.counts(alone.len() as u32)?;
        self.check_gres(&alone, counts)?;
        let placed = self.place_in(&alone, counts).map_err(|why| match why {
            // Alone there is no other step to wait for.
            Refusal::Step(StepRefusal::Busy) => self.too_many(&alone, counts),
            other => other,
        })?;
        let counted = steps.iter().filter(|s| s.end.is_none() && !s.overlap);
        let held: Vec<&NodeShare> = counted.flat_map(|step| &step.shares).collect();
        if self.ask.shape.overlap || held.is_empty() {
            return Ok(placed);
        }
        let mut beside = alone;
        let places: HashMap<String, usize> =
            beside.iter().enumerate().map(|(at, r)| (r.share.node.clone(), at)).collect();
        for share in held {
            if let Some(at) = places.get(&share.node) {
                beside[*at].take(share);
            }
        }
        // The step fits alone: any refusal beside other steps means that it has to wait.
        self.place_in(&beside, counts).map_err(|_| Refusal::Step(StepRefusal::Busy))
    }

    /// Refuses GRES that the job itself does not have.
    fn check_gres(&self, alone: &[FreeShare<'_>], counts: Counts) -> Result<(), Refusal> {
        for wanted in self.ask.shape.gres.iter().flatten() {
            let of_node = |free: &FreeShare<'_>| units(&free.share.gres, wanted);
            let most = alone.iter().map(of_node).max().unwrap_or(0);
            let all: u64 = alone.iter().map(of_node).sum();
            let (name, asked) = (wanted.name.clone(), wanted.count.min);
            let shown = match wanted.kinds.first() {
                Some(kind) => format!("{name}:{kind}"),
                None => name.clone(),
            };
            let refusal = match wanted.per {
                _ if all == 0 => StepRefusal::GresUnknown { name: shown },
                Per::Node if asked > most => StepRefusal::GresPerNode { name, asked, most },
                Per::Job if asked < u64::from(counts.nodes_min) => {
                    StepRefusal::GresBelowNodes { name, asked, nodes: counts.nodes_min }
                }
                Per::Job if asked > all => StepRefusal::Gres { name, asked, most: all },
                Per::Task if asked.saturating_mul(u64::from(counts.tasks)) > all => {
                    StepRefusal::Gres { name, asked, most: all }
                }
                _ => continue,
            };
            return Err(Refusal::Step(refusal));
        }
        Ok(())
    }

    /// Why the step does not even fit into an otherwise empty job.
    fn too_many(&self, alone: &[FreeShare<'_>], counts: Counts) -> Refusal {
        let whole = self.gres_of(Per::Job).next();
        if let Some(wanted) = whole {
            let most = alone.iter().map(|r| units(&r.share.gres, wanted)).sum();
            let (name, asked) = (wanted.name.clone(), wanted.count.min);
            return Refusal::Step(StepRefusal::Gres { name, asked, most });
        }
        let asked = u64::from(counts.tasks) * u64::from(self.cpus_per_task);
        let most = alone.iter().map(|r| u64::from(r.cpus.len())).sum();
        Refusal::Step(StepRefusal::Processors { asked, most })
    }

    fn place_in(
        &self,
        free_shares: &[FreeShare<'_>],
        counts: Counts,
    ) -> Result<Vec<NodePlacement>, Refusal> {
        let chosen = self.choose(free_shares, counts).ok_or(Refusal::Step(StepRefusal::Busy))?;
        let ranks = self.lay_out(&chosen, counts).ok_or(Refusal::Step(StepRefusal::Busy))?;
        // Once for all nodes: an allocation may have tens of thousands.
        let gres = self.ask.shape.gres.as_ref().or(self.gres_unsaid.as_ref());
        let parts: Vec<Vec<u64>> =
            gres.into_iter().flatten().map(|wanted| spread_gres(wanted, &chosen)).collect();
        let mut placed = Vec::with_capacity(chosen.len());
        for (index, (free, ranks)) in chosen.iter().zip(ranks).enumerate() {
            if ranks.is_empty() {
                continue;
            }
            let part = |at: usize| parts[at].get(index).copied().unwrap_or(0);
            let share = free.grant(self, ranks.len() as u32, part).map_err(Refusal::Step)?;
            placed.push(NodePlacement { share, ranks });
        }
        Ok(placed)
    }

    /// Chooses the nodes to use: those that were named, then idle ones, then others; in the allocation's order.
    fn choose<'r>(
        &self,
        free_shares: &'r [FreeShare<'r>],
        counts: Counts,
    ) -> Option<Vec<&'r FreeShare<'r>>> {
        let names: HashSet<&str> = self.ask.node_list.iter().map(String::as_str).collect();
        let named = |free: &FreeShare<'_>| names.contains(free.share.node.as_str());
        let loose = self.overcommit || self.ask.shape.own;
        let usable = |free: &FreeShare<'_>| free.tasks(self) > 0 || (loose && free.idle);
        let mut order: Vec<(usize, &FreeShare<'_>)> =
            free_shares.iter().enumerate().filter(|(_, r)| usable(r)).collect();
        if order.iter().filter(|(_, r)| named(r)).count() < self.named_nodes() {
            return None;
        }
        order.sort_by_key(|(at, free)| (!named(free), !free.idle, *at));
        // How many tasks the first of them hold, by how many these are.
        let mut held: Vec<u64> = vec![0];
        held.extend(order.iter().scan(0, |sum: &mut u64, (_, free)| {
            *sum += u64::from(free.tasks(self));
            Some(*sum)
        }));
        let holds = |count: usize| {
            self.overcommit || self.hosts().is_some() || held[count] >= u64::from(counts.tasks)
        };
        let (least, most) = (counts.nodes_min as usize, counts.nodes_max as usize);
        let count = if self.ask.shape.pack {
            (least..=order.len().min(most)).find(|count| holds(*count))?
        } else {
            order.len().min(most)
        };
        let count = count.max(self.named_nodes().min(order.len()));
        if count < least {
            return None;
        }
        if !holds(count) {
            // The first nodes have too few slots: those with the most are tried.
            order.sort_by_key(|(at, free)| (!named(free), u32::MAX - free.tasks(self), *at));
        }
        order.truncate(count);
        order.sort_by_key(|(at, _)| *at);
        Some(order.into_iter().map(|(_, free)| free).collect())
    }

    fn lay_out(&self, chosen: &[&FreeShare<'_>], counts: Counts) -> Option<Vec<Vec<u32>>> {
        if let Some(hosts) = self.hosts() {
            let places: HashMap<&str, usize> =
                chosen.iter().enumerate().map(|(at, r)| (r.share.node.as_str(), at)).collect();
            let place = |host: &String| places.get(host.as_str()).copied();
            let hosts: Option<Vec<usize>> =
                hosts.iter().take(counts.tasks as usize).map(place).collect();
            let ranks = arbitrary(&hosts?, chosen.len());
            let fits = |(ranks, free): (&Vec<u32>, &&FreeShare<'_>)| {
                ranks.len() as u32 <= free.tasks(self)
            };
            let loose = self.overcommit || self.ask.shape.own;
            return (loose || ranks.iter().zip(chosen).all(fits)).then_some(ranks);
        }
        let slots: Vec<u32> = chosen.iter().map(|free| free.tasks(self)).collect();
        let usual = if counts.tasks <= chosen.len() as u32 {
            TaskDistribution::Cyclic
        } else {
            TaskDistribution::Block
        };
        let how = LayoutPolicy {
            distribution: self.ask.shape.distribution.unwrap_or(usual),
            pack: self.ask.shape.pack,
            overcommit: self.overcommit,
        };
        lay_out(&slots, counts.tasks, how)
    }
}

/// Spreads a step's total of a resource over its nodes: one each, then as much as the first ones have. Nothing of a resource that is
/// asked for in another way.
fn spread_gres(wanted: &GresRequest, chosen: &[&FreeShare<'_>]) -> Vec<u64> {
    if wanted.per != Per::Job {
        return Vec::new();
    }
    let mut left = wanted.count.min;
    let free: Vec<u64> = chosen.iter().map(|r| r.free_units(wanted)).collect();
    let mut given = vec![0; free.len()];
    for (got, free) in given.iter_mut().zip(&free) {
        *got = left.min(1).min(*free);
        left -= *got;
    }
    for (got, free) in given.iter_mut().zip(&free) {
        let more = left.min(free - *got);
        *got += more;
        left -= more;
    }
    // An amount that no node has is asked of the last node, so that the refusal names it.
    if let Some(last) = given.last_mut() {
        *last = last.saturating_add(left);
    }
    given
}
