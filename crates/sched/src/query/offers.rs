//! dstack's offers: the share that each node would give, and whether it is free now.

use crate::free::node_free::NodeFree;
use crate::machines::{MachineView, pod_part};
use crate::place::demand::Demand;
use crate::place::{candidates, fit};
use crate::view::View;
use model::allocation::NodeShare;
use model::node::NodeConfig;
use model::run::JobSpec;
use std::collections::HashSet;

/// One node's share for one node of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeOffer {
    /// Position in `View::partitions`.
    pub partition: u32,
    /// Position in `View::nodes`.
    pub node: u32,
    /// What a start now would be granted, where that is free; otherwise what the empty node would give.
    pub share: NodeShare,
    pub available: bool,
}

/// The nodes that could serve the job, in the order in which `plan` tries them. A node in several partitions is listed
/// once. A total over the job's nodes is listed as if one node gave all of it. `project`: the job's, which is its account.
pub fn offers(view: &View, spec: &JobSpec, project: &str, partitions: &[u32]) -> Vec<NodeOffer> {
    let request = spec.request();
    let mut seen = HashSet::new();
    let mut offers = Vec::new();
    for &partition in partitions {
        let Some(info) = view.partitions.get(partition as usize) else { continue };
        let demand =
            Demand::new(request, &info.partition, &view.policy, spec.owner.uid).of_project(project);
        let (tasks, totals) = (demand.tasks_on_each(), demand.job_totals());
        for &node in candidates(view, partition).iter() {
            let info = &view.nodes[node as usize];
            if !fit::is_of_sort(&demand, &info.config) {
                continue;
            }
            let grant = |free: &NodeFree| fit::grant(&demand, &info.config, free, tasks, &totals);
            let takes = info.availability.takes_jobs();
            let now = takes.then(|| grant(&NodeFree::of(info))).flatten();
            let available = now.is_some();
            let share = now.or_else(|| grant(&NodeFree::empty(&info.config)));
            if let Some(share) = share
                && seen.insert(node)
            {
                offers.push(NodeOffer { partition, node, share, available });
            }
        }
    }
    offers
}

/// A machine that could be made for one node of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineOffer {
    /// The node that it would be, by the name of its source and of what the source calls it.
    pub node: NodeConfig,
    /// What the job would be granted there.
    pub share: NodeShare,
}

/// The machines that could be made and would serve the job, the cheapest first, at most `most`. Whether a limit holds their
/// sources back is not asked.
pub fn machine_offers(
    view: &View,
    spec: &JobSpec,
    project: &str,
    partitions: &[u32],
    there: &MachineView,
    most: usize,
) -> Vec<MachineOffer> {
    let request = spec.request();
    if request.machines.as_ref().is_some_and(|choice| choice.reuse_only) {
        return Vec::new();
    }
    let infos = partitions.iter().filter_map(|at| view.partitions.get(*at as usize));
    let demands: Vec<_> = infos
        .map(|info| {
            let demand = Demand::new(request, &info.partition, &view.policy, spec.owner.uid)
                .of_project(project);
            (info, demand)
        })
        .collect();
    let sources = there.sources.iter().filter(|source| source.serves(project));
    let all = sources.flat_map(|source| source.offers.iter().map(move |offer| (source, offer)));
    let mut all: Vec<_> = all.filter(|(source, offer)| source.may_make(offer)).collect();
    all.sort_by_key(|(_, offer)| offer.price);
    // A source is there once for each fleet that it may make machines for.
    let mut seen = HashSet::new();
    let serving = all.into_iter().filter_map(|(source, offer)| {
        let name = format!("{}:{}", source.name, offer.id);
        let (node, share) = demands.iter().find_map(|(info, demand)| {
            if !source.feeds(&info.partition) {
                return None;
            }
            // A pod has what the job asks for, whatever its node has.
            let part = source.makes_pods.then(|| pod_part(offer, demand));
            let offer = part.as_ref().unwrap_or(offer);
            let node = offer.node_of(source.reference(), &name, &source.features);
            if !fit::is_of_sort(demand, &node) {
                return None;
            }
            let (tasks, totals) = (demand.tasks_on_each(), demand.job_totals());
            let share = fit::grant(demand, &node, &NodeFree::empty(&node), tasks, &totals)?;
            Some((node, share))
        })?;
        let is_first = seen.insert((source.name.as_str(), offer.id.as_str()));
        is_first.then_some(MachineOffer { node, share })
    });
    serving.take(most).collect()
}
