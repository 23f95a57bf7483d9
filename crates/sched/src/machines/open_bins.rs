//! The bins that could hold one demand: found once for a job, and tried by themselves and beside new machines of each offer.

use super::bin::{Bin, Bins, Size, Trial};
use crate::gate;
use crate::place::demand::Demand;
use crate::place::{Placement, place};
use crate::view::PartitionInfo;
use std::cell::OnceCell;

/// What a job needs in one of its partitions.
pub(super) struct PartitionDemand<'a> {
    pub(super) info: &'a PartitionInfo,
    pub(super) demand: Demand<'a>,
    pub(super) least: Size,
}

pub(super) struct OpenBins {
    /// Bins in whose free amounts the demand could fit.
    open: Vec<u32>,
    /// The open bins that a node of the job fits on.
    holding: OnceCell<Vec<u32>>,
}

impl OpenBins {
    pub(super) fn find(
        bins: &Bins,
        of: &PartitionDemand<'_>,
        will_do: impl Fn(&Bin) -> bool,
    ) -> Self {
        let rooms = (0..).zip(bins.rooms());
        let roomy = rooms.filter(|(_, room)| room.may_hold(&of.demand, of.least));
        let is_open = |bin: &Bin| will_do(bin) && bin.is_in(&of.info.partition);
        let open = roomy.map(|(at, _)| at).filter(|at| is_open(bins.get(*at)));
        Self { open: open.collect(), holding: OnceCell::new() }
    }

    fn holding(&self, bins: &Bins, demand: &Demand<'_>) -> &[u32] {
        let find = || {
            let open = self.open.iter().copied();
            open.filter(|at| bins.get(*at).holds_node(demand)).collect()
        };
        self.holding.get_or_init(find)
    }

    /// The job on these bins alone.
    pub(super) fn place(&self, bins: &Bins, of: &PartitionDemand<'_>) -> Option<Placement> {
        let demand = &of.demand;
        if self.open.is_empty() || !self.is_admitted(of, 0) {
            return None;
        }
        let is_one = demand.nodes_min <= 1;
        let nodes = if is_one { self.open.as_slice() } else { self.holding(bins, demand) };
        if nodes.len() < demand.nodes_min as usize {
            return None;
        }
        place(demand, &Trial { bins, new: None }, nodes)
    }

    /// The job on these bins and on so many new machines, where it has no place without them.
    pub(super) fn place_with(
        &self,
        bins: &Bins,
        of: &PartitionDemand<'_>,
        new: &Bin,
        count: u32,
    ) -> Option<Placement> {
        if !self.is_admitted(of, count) {
            return None;
        }
        let first = bins.len() as u32;
        let mut nodes = self.beside_new(bins, &of.demand).to_vec();
        nodes.extend(first..first + count);
        place(&of.demand, &Trial { bins, new: Some(new) }, &nodes)
    }

    /// The fewest new machines that a job of so many nodes needs beside these bins.
    pub(super) fn fewest_new(&self, bins: &Bins, demand: &Demand<'_>, nodes: u32) -> u32 {
        let beside = self.beside_new(bins, demand).len();
        nodes.saturating_sub(u32::try_from(beside).unwrap_or(u32::MAX)).max(1)
    }

    /// A job of one node that has no place on these bins has it on a new machine alone.
    fn beside_new(&self, bins: &Bins, demand: &Demand<'_>) -> &[u32] {
        if demand.nodes_max == 1 { &[] } else { self.holding(bins, demand) }
    }

    /// Whether the partition lets the job in, as it would be with these machines.
    fn is_admitted(&self, of: &PartitionDemand<'_>, more: u32) -> bool {
        let nodes = of.info.nodes.len() + self.open.len() + more as usize;
        gate::partition_of(&of.info.partition, nodes, &of.demand).is_none()
    }
}
