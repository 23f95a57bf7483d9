//! The nodes of a reservation: those that were named, or those that are free.

use super::{overlap_in_time, refused};
use crate::state::State;
use crate::view;
use model::constraint::Constraint;
use model::reason::Refusal;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::reservation_request::{NodesChoice, ReservationRefusal as Why, ReservationRequest};
use model::time::Timestamp;
use sched::reservation::{ReservationDemand, ReservedNode, choose_nodes};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    pub(super) fn set_nodes(
        &self,
        r: &mut Reservation,
        ask: &ReservationRequest,
        is_new: bool,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let by_number = ask.node_count.is_some() || ask.cores.is_some() || ask.gres.is_some();
        let renamed = ask.nodes.is_some() || by_number;
        if r.has(Flag::AnyNodes) {
            // The reservation is of licenses alone: its jobs use any nodes.
            let nothing = r.licenses.is_empty() || matches!(ask.nodes, Some(NodesChoice::Named(_)));
            (r.nodes, r.cores) = (Vec::new(), BTreeMap::new());
            return if nothing { Err(refused(Why::Nothing)) } else { Ok(()) };
        }
        if !is_new && renamed && !r.cores.is_empty() {
            return Err(refused(Why::CoresChange));
        }
        match &ask.nodes {
            Some(NodesChoice::All) => self.take_all(r)?,
            Some(NodesChoice::Named(names)) if !names.is_empty() => {
                if let Some(unknown) = names.iter().find(|name| !self.nodes.contains_key(*name)) {
                    return Err(Refusal::UnknownNode(unknown.clone()));
                }
                if r.has(Flag::Replace) || r.has(Flag::ReplaceDown) {
                    // Named nodes cannot be replaced.
                    return Err(Refusal::UnknownNode(names.join(",")));
                }
                r.nodes = self.in_order(names);
                r.flags.insert(Flag::SpecNodes);
            }
            _ if by_number => self.take_number(r, ask, now)?,
            Some(NodesChoice::Named(_)) if !is_new => {
                let count = r.nodes.len() as u32;
                r.flags.remove(&Flag::SpecNodes);
                let ask = ReservationRequest { node_count: Some(count), ..Default::default() };
                self.take_number(r, &ask, now)?;
            }
            None if is_new && r.partition.is_some() => self.take_all(r)?,
            _ if is_new => return Err(refused(Why::Nothing)),
            _ => {}
        }
        self.take_cores(r, ask)?;
        let moved = ask.start.is_some() || ask.end.is_some() || ask.duration.is_some();
        if is_new || renamed || moved || ask.flags.is_some() {
            self.check_others(r, now)?;
        }
        if is_new || ask.nodes.is_some() || ask.start.is_some() {
            self.check_jobs(r)?;
        }
        Ok(())
    }

    /// Takes every node, or every node of the partition that was named.
    fn take_all(&self, r: &mut Reservation) -> Result<(), Refusal> {
        r.nodes = match r.partition.as_ref().and_then(|name| self.partition(name)) {
            Some(partition) => {
                r.flags.insert(Flag::PartNodes);
                self.in_order(&partition.nodes)
            }
            None => self.nodes.keys().cloned().collect(),
        };
        r.flags.insert(Flag::SpecNodes);
        if r.nodes.is_empty() { Err(refused(Why::Nothing)) } else { Ok(()) }
    }

    /// These names in the order of the cluster's nodes, each once.
    fn in_order(&self, names: &[String]) -> Vec<String> {
        self.nodes.keys().filter(|name| names.contains(name)).cloned().collect()
    }

    fn take_number(
        &self,
        r: &mut Reservation,
        ask: &ReservationRequest,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let cores = ask.cores.as_deref().unwrap_or_default().iter().sum();
        let nodes = ask.node_count.unwrap_or(0);
        let gres: BTreeMap<String, u64> = ask.gres.iter().flatten().cloned().collect();
        if nodes == 0 && cores == 0 && gres.values().all(|count| *count == 0) {
            return Err(refused(Why::Nothing));
        }
        let most = |name: &str| self.nodes.values().map(|n| n.config.gres_total(name)).sum::<u64>();
        if let Some((name, _)) = gres.iter().find(|(name, _)| most(name) == 0) {
            return Err(Refusal::UnknownGres(name.clone()));
        }
        // Present nodes are kept up to the new count.
        let kept: Vec<String> = r.nodes.iter().take(nodes as usize).cloned().collect();
        let missing = nodes - kept.len() as u32;
        let is_whole = cores == 0 && gres.is_empty();
        let chosen = if missing == 0 && is_whole {
            Vec::new()
        } else {
            self.chosen(r, &kept, (missing, cores, gres), now)?
        };
        (r.cores, r.gres) = (BTreeMap::new(), BTreeMap::new());
        for part in chosen.iter().filter(|_| !is_whole) {
            r.cores.insert(part.node.clone(), part.cores);
            if !part.gres.is_empty() {
                r.gres.insert(part.node.clone(), part.gres.clone());
            }
        }
        let names: Vec<String> = chosen.into_iter().map(|part| part.node).chain(kept).collect();
        r.nodes = self.in_order(&names);
        if r.partition.is_none() && !r.has(Flag::SpecNodes) {
            r.partition = self.default_partition().map(|partition| partition.name.clone());
        }
        Ok(())
    }

    /// Chooses further nodes, or cores and units of GRES.
    fn chosen(
        &self,
        r: &Reservation,
        besides: &[String],
        (nodes, cores, gres): (u32, u32, BTreeMap<String, u64>),
        now: Timestamp,
    ) -> Result<Vec<ReservedNode>, Refusal> {
        let partition = match &r.partition {
            Some(name) => self.partitions.iter().position(|p| p.name == *name),
            None => self.partitions.iter().position(|p| p.default),
        };
        let partition = partition.ok_or(Refusal::NoDefaultPartition)? as u32;
        let features = r.features.as_deref().map(Constraint::parse).transpose();
        let bad_features = || Refusal::UnknownFeature(r.features.clone().unwrap_or_default());
        let features = features.map_err(|_| bad_features())?;
        let mut candidates = self.nodes.values().map(|node| &node.config.features);
        if features.as_ref().is_some_and(|f| !candidates.any(|of_node| f.matches(of_node))) {
            return Err(bad_features());
        }
        let mut view = view::resources(self);
        view.reservations.retain(|other| other.name != r.name);
        let (start, end) = r.windows(now, 1).first().copied().unwrap_or((r.start, r.end));
        let wanted = ReservationDemand {
            start,
            end,
            nodes,
            cores,
            gres,
            partition,
            features,
            besides: besides.to_vec(),
            ignore_jobs: r.has(Flag::IgnoreJobs),
            overlap: r.overlaps(),
        };
        choose_nodes(&view, now, &wanted).ok_or_else(|| refused(Why::Busy))
    }

    /// `Nodes=a,b CoreCnt=2,3`: a number of cores on each named node.
    fn take_cores(&self, r: &mut Reservation, ask: &ReservationRequest) -> Result<(), Refusal> {
        let Some(NodesChoice::Named(names)) = &ask.nodes else { return Ok(()) };
        if ask.gres.is_some() && !names.is_empty() {
            return Err(refused(Why::Cores));
        }
        let Some(cores) = ask.cores.as_ref().filter(|_| !names.is_empty()) else { return Ok(()) };
        if cores.len() != names.len() {
            return Err(refused(Why::Cores));
        }
        let each = names.iter().zip(cores);
        if each.clone().any(|(name, count)| *count == 0 || *count > self.cores_of(name)) {
            return Err(refused(Why::Busy));
        }
        r.cores = each.map(|(name, count)| (name.clone(), *count)).collect();
        Ok(())
    }

    /// The cores of a node that jobs may use.
    pub fn cores_of(&self, node: &str) -> u32 {
        let config = self.nodes.get(node).map(|node| &node.config);
        config.map_or(0, |config| config.usable_cpus().len() / config.threads_per_core.max(1))
    }

    /// Refuses what another reservation holds at the same time.
    fn check_others(&self, r: &Reservation, now: Timestamp) -> Result<(), Refusal> {
        if r.overlaps() {
            return Ok(());
        }
        let others = self.reservations.values().filter(|o| o.name != r.name && !o.overlaps());
        let meeting: Vec<&Arc<Reservation>> =
            others.filter(|o| o.has_nodes() && overlap_in_time(o, r, now)).collect();
        for node in &r.nodes {
            let mut left = self.cores_of(node);
            let taken = |r: &Reservation| r.cores.get(node).copied().unwrap_or(u32::MAX);
            for other in std::iter::once(None).chain(meeting.iter().map(Some)) {
                let reservation = other.map_or(r, |other| other);
                if !reservation.nodes.contains(node) {
                    continue;
                }
                // A whole node leaves nothing for another reservation.
                match (taken(reservation), other) {
                    (_, Some(other)) if taken(r) == u32::MAX || !self.gres_fit(r, other, node) => {
                        return Err(refused(Why::Overlap(other.name.clone())));
                    }
                    (u32::MAX, None) => left = 0,
                    (count, None) => left = left.saturating_sub(count),
                    (count, Some(_)) if count <= left => left -= count,
                    (_, Some(other)) => return Err(refused(Why::Overlap(other.name.clone()))),
                }
            }
        }
        Ok(())
    }

    /// Whether a node has enough units of GRES for both.
    fn gres_fit(&self, a: &Reservation, b: &Reservation, node: &str) -> bool {
        let of = |r: &Reservation, name: &str| r.gres.get(node).and_then(|g| g.get(name)).copied();
        let total = |name: &str| self.nodes.get(node).map_or(0, |n| n.config.gres_total(name));
        let mut names = a.gres.get(node).into_iter().flat_map(BTreeMap::keys);
        names.all(|name| of(a, name).unwrap_or(0) + of(b, name).unwrap_or(0) <= total(name))
    }

    /// Refuses nodes that jobs hold when the reservation begins, unless `IGNORE_JOBS` is set.
    fn check_jobs(&self, r: &Reservation) -> Result<(), Refusal> {
        if r.has(Flag::IgnoreJobs) || !r.cores.is_empty() {
            return Ok(());
        }
        let running = self.active.iter().filter_map(|id| self.job(*id)?.attempt());
        let busy = running.filter(|a| a.end_limit.is_none_or(|end| end > r.start)).any(|attempt| {
            let of_it = attempt.reservation.as_deref() == Some(r.name.as_str());
            !of_it && attempt.held_nodes.iter().any(|node| r.nodes.contains(node))
        });
        if busy { Err(refused(Why::Busy)) } else { Ok(()) }
    }

    /// The reservation with other nodes in place of unusable ones; `None` if nothing is replaced.
    pub(super) fn replenished(&self, r: &Reservation, now: Timestamp) -> Option<Reservation> {
        if r.has(Flag::SpecNodes) || r.has(Flag::StaticAlloc) || !r.cores.is_empty() {
            return None;
        }
        let poor = |name: &String| {
            self.nodes.get(name).is_none_or(|node| {
                let allocated = r.has(Flag::Replace) && !node.holders.is_empty();
                !node.availability().is_in_service() || allocated
            })
        };
        let poor: Vec<&String> = r.nodes.iter().filter(|name| poor(name)).collect();
        let mut changed = None;
        for name in poor {
            let r = changed.as_ref().unwrap_or(r);
            let one = (1, 0, BTreeMap::new());
            let Ok(found) = self.chosen(r, &r.nodes, one, now) else { break };
            let Some(ReservedNode { node: instead, .. }) = found.into_iter().next() else { break };
            let others = r.nodes.iter().filter(|other| *other != name).cloned();
            let names: Vec<String> = others.chain([instead]).collect();
            changed = Some(Reservation { nodes: self.in_order(&names), ..r.clone() });
        }
        changed
    }
}
