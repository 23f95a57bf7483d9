//! Footprints of the demands that are about, kept in order.

use super::Standing;
use crate::footprint::{Footprint, Order, Part};
use crate::place::candidates;
use crate::place::demand::Demand;
use crate::shape::is_in_service;
use crate::view::{Availability, View};
use model::request::Request;
use std::collections::HashMap;
use std::sync::Arc;

/// Footprints that no job needed lately are dropped beyond this many.
const KEPT_MAX: usize = 1_024;

#[derive(Debug, Clone, Default)]
pub struct Footprints {
    known: HashMap<Key, Known>,
    partitions: Vec<Members>,
    /// Nodes that changed, in order; orders are brought up to date when they are wanted.
    log: Vec<u32>,
    /// Counts the times that the log was begun anew.
    volume: u64,
    /// Counts the plans.
    turn: u64,
}

/// Of so many times the nodes the log is begun anew, and orders are sorted afresh.
const LOG_SHARE: usize = 4;

/// The nodes of one partition.
#[derive(Debug, Clone, Default)]
struct Members {
    /// As they are tried.
    nodes: Arc<[u32]>,
    /// Each node's rank among them.
    ranks: Vec<u32>,
    /// For each class how many are in service, and how many there are.
    by_class: Vec<(u32, u32)>,
}

#[derive(Debug, Clone)]
struct Known {
    footprint: Arc<Footprint>,
    order: Arc<Order>,
    /// The volume and page of the log up to which the order is right; none: not sorted yet.
    as_of: Option<(u64, usize)>,
    used: u64,
}

/// Times and whereabouts do not change what is taken of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    request: Request,
    partition: u32,
    part: Part,
    uid: Option<u32>,
}

impl Footprints {
    pub fn over(view: &View, standing: &Standing) -> Self {
        let partition = |at: u32| {
            let nodes = candidates(view, at);
            let mut ranks = vec![u32::MAX; view.nodes.len()];
            for (rank, &node) in nodes.iter().enumerate() {
                ranks[node as usize] = rank as u32;
            }
            Members { nodes, ranks, by_class: Vec::new() }
        };
        let partitions = (0..view.partitions.len() as u32).map(partition).collect();
        let mut footprints = Self { partitions, ..Self::default() };
        footprints.count(standing);
        footprints
    }

    fn count(&mut self, standing: &Standing) {
        for members in &mut self.partitions {
            members.by_class = vec![(0, 0); standing.classes.samples.len()];
            for &node in members.nodes.iter() {
                let counts = &mut members.by_class[standing.classes.of[node as usize] as usize];
                let availability = standing.nodes[node as usize].availability;
                counts.0 += u32::from(is_in_service(availability));
                counts.1 += 1;
            }
        }
    }

    /// How many nodes would hold it if they were empty: of those in service, and of all.
    pub fn hold_empty(&self, of: &Footprint, partition: u32, standing: &Standing) -> (u32, u32) {
        let members = &self.partitions[partition as usize];
        if of.is_for_any_name() {
            let classes = members.by_class.iter().zip(0u32..);
            let fitting = classes.filter(|(_, class)| of.fits_empty(*class));
            return fitting.fold((0, 0), |sum, (counts, _)| (sum.0 + counts.0, sum.1 + counts.1));
        }
        let fits =
            |node: &&u32| of.admits(**node) && of.fits_empty(standing.classes.of[**node as usize]);
        members.nodes.iter().filter(fits).fold((0, 0), |sum, &node| {
            let availability = standing.nodes[node as usize].availability;
            (sum.0 + u32::from(is_in_service(availability)), sum.1 + 1)
        })
    }

    pub fn candidates(&self, partition: u32) -> &Arc<[u32]> {
        &self.partitions[partition as usize].nodes
    }

    /// A node's place among the candidates of a partition.
    pub fn rank(&self, partition: u32, node: u32) -> Option<u32> {
        let rank = *self.partitions[partition as usize].ranks.get(node as usize)?;
        (rank != u32::MAX).then_some(rank)
    }

    /// Puts the nodes that changed in their new places.
    pub fn refresh(&mut self, standing: &Standing, changed: Vec<u32>) {
        self.turn += 1;
        let turn = self.turn;
        if self.known.len() > KEPT_MAX {
            self.known.retain(|_, known| known.used + 1 >= turn);
        }
        if changed.is_empty() {
            return;
        }
        self.count(standing);
        self.log.extend(changed);
        if self.log.len() * LOG_SHARE > standing.nodes.len() {
            self.log.clear();
            self.volume += 1;
        }
    }

    fn known(
        &mut self,
        demand: &Demand<'_>,
        part: Part,
        partition: u32,
        uid: Option<u32>,
        standing: &Standing,
    ) -> &mut Known {
        let key = Key {
            request: Request {
                partitions: Vec::new(),
                reservation: None,
                switches: None,
                ..demand.request.without_times()
            },
            partition,
            part,
            uid,
        };
        let turn = self.turn;
        let candidates = &self.partitions[partition as usize].nodes;
        let known = self.known.entry(key).or_insert_with(|| {
            let classes = &standing.classes;
            let footprint = Footprint::new(demand, part, classes, candidates, &standing.nodes);
            Known { footprint: Arc::new(footprint), order: Arc::default(), as_of: None, used: turn }
        });
        known.used = turn;
        known
    }

    pub fn get(
        &mut self,
        demand: &Demand<'_>,
        part: Part,
        partition: u32,
        uid: Option<u32>,
        standing: &Standing,
    ) -> Arc<Footprint> {
        self.known(demand, part, partition, uid, standing).footprint.clone()
    }

    /// The nodes in the order in which they come free for it.
    pub fn order(
        &mut self,
        demand: &Demand<'_>,
        part: Part,
        partition: u32,
        uid: Option<u32>,
        standing: &Standing,
    ) -> Arc<Order> {
        let log = std::mem::take(&mut self.log);
        let (volume, page) = (self.volume, log.len());
        let known = self.known(demand, part, partition, uid, standing);
        let footprint = known.footprint.clone();
        match known.as_of {
            Some(as_of) if as_of == (volume, page) => {}
            Some((of, from)) if of == volume => {
                let mut is_changed = vec![false; standing.nodes.len()];
                log[from..].iter().for_each(|&node| is_changed[node as usize] = true);
                known.order = Arc::new(resorted(&footprint, &known.order, &is_changed, standing));
            }
            _ => {
                let key = |footprint: &Footprint, node| first_free(footprint, standing, node);
                known.order = Arc::new(footprint.sorted(key));
            }
        }
        known.as_of = Some((volume, page));
        let order = known.order.clone();
        self.log = log;
        order
    }
}

fn resorted(
    footprint: &Footprint,
    order: &Order,
    is_changed: &[bool],
    standing: &Standing,
) -> Order {
    let ranked = footprint.candidates.iter().zip(0u32..);
    let fresh = ranked
        .filter(|(node, _)| is_changed[**node as usize])
        .filter_map(|(&node, rank)| Some((first_free(footprint, standing, node)?, rank)));
    footprint.resorted(order, is_changed, fresh.collect())
}

fn first_free(footprint: &Footprint, standing: &Standing, node: u32) -> Option<i64> {
    let at = node as usize;
    let serves =
        standing.nodes[at].availability == Availability::Available && footprint.admits(node);
    if !serves {
        return None;
    }
    footprint.first_free(standing.classes.of[at], &standing.timelines[at])
}
