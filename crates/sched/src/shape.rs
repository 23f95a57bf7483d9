//! Shapes: jobs that ask for the same in the same partition fare the same, so each shape is worked
//! out once a plan.

use crate::free::NodeFree;
use crate::gate;
use crate::place::demand::Demand;
use crate::place::{Candidates, Space, place};
use crate::view::{Availability, View, Waiting};
use model::node::NodeConfig;
use model::reason::Reason;
use model::request::{Request, Sharing};
use model::time::{TimeLimit, Timestamp};
use model::tres::Tres;
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

pub struct Shape<'a> {
    pub demand: Demand<'a>,
    /// What the partition's policy says to it, once and for all.
    pub gate: Option<Reason>,
    pub least: Tres,
    pub time_limit: TimeLimit,
    pub candidates: Candidates,
    /// One of it found no place. Within a plan nothing comes free, so none of it will.
    pub failed: bool,
    over_time: Duration,
    /// Why it could not start even on empty nodes; worked out when first wanted.
    prospect: Option<Option<Reason>>,
}

pub struct Shapes<'a> {
    view: &'a View,
    known: HashMap<Key<'a>, usize>,
    shapes: Vec<Shape<'a>>,
    /// For each partition.
    candidates: Vec<Candidates>,
    /// Somewhere it matters who asks: a node is open to one user only.
    owned_nodes: bool,
}

#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    request: &'a Request,
    partition: u32,
    /// Only where it makes a difference.
    uid: Option<u32>,
}

impl<'a> Shapes<'a> {
    pub fn new(view: &'a View) -> Self {
        let partitions = 0..view.partitions.len() as u32;
        let by_user = |w: &std::sync::Arc<Waiting>| w.spec.request().sharing == Sharing::User;
        Self {
            view,
            known: HashMap::new(),
            shapes: Vec::new(),
            candidates: partitions.map(|at| Candidates::of(view, at)).collect(),
            owned_nodes: view.nodes.iter().any(|node| !node.used.user_exclusive.is_empty())
                || view.partitions.iter().any(|p| p.partition.exclusive_user)
                || view.queue.iter().any(by_user),
        }
    }

    /// The position of the shape that this entry has in this partition.
    pub fn of(&mut self, waiting: &'a Waiting, partition: u32) -> usize {
        let (request, uid) = (waiting.spec.request(), waiting.spec.owner.uid);
        let key = Key { request, partition, uid: self.owned_nodes.then_some(uid) };
        *self.known.entry(key).or_insert_with(|| {
            let info = &self.view.partitions[partition as usize];
            let demand = Demand::new(request, &info.partition, &self.view.policy, uid);
            self.shapes.push(Shape {
                gate: gate::partition(info, &demand),
                least: demand.least(),
                time_limit: gate::time_limit(request, &info.partition),
                candidates: self.candidates[partition as usize].clone(),
                failed: false,
                over_time: Duration::from_secs(60 * u64::from(self.view.policy.over_time_min)),
                prospect: None,
                demand,
            });
            self.shapes.len() - 1
        })
    }

    pub fn get(&self, shape: usize) -> &Shape<'a> {
        &self.shapes[shape]
    }

    pub fn get_mut(&mut self, shape: usize) -> &mut Shape<'a> {
        &mut self.shapes[shape]
    }

    /// Why the shape could not start whoever else left: nodes out of service, or a demand that no
    /// nodes meet.
    pub fn hopeless(&mut self, shape: usize) -> Option<Reason> {
        let view = self.view;
        let shape = &mut self.shapes[shape];
        shape
            .prospect
            .get_or_insert_with(|| hopeless(view, &shape.demand, &shape.candidates))
            .clone()
    }
}

impl Shape<'_> {
    /// The time it is sure to be gone after, counted from its start; none: never.
    pub fn length(&self) -> Option<Duration> {
        self.time_limit.duration().map(|limit| limit + self.over_time)
    }

    pub fn end(&self, start: Timestamp) -> Option<Timestamp> {
        self.length().map(|length| start + length)
    }
}

fn hopeless(view: &View, demand: &Demand<'_>, candidates: &Candidates) -> Option<Reason> {
    let named_away: Vec<String> = match demand.request.node_list.as_slice() {
        [] => Vec::new(),
        named => view
            .nodes
            .iter()
            .filter(|node| !is_in_service(node.availability) && named.contains(&node.config.name))
            .map(|node| node.config.name.clone())
            .collect(),
    };
    if !named_away.is_empty() {
        return Some(Reason::RequiredNodesUnavailable { nodes: named_away });
    }
    let fits = |in_service_only| {
        let space = Emptied { view, in_service_only };
        place(demand, &space, &mut candidates.afresh()).is_some()
    };
    match (fits(true), || fits(false)) {
        (true, _) => None,
        (false, anyhow) if anyhow() => Some(Reason::NodesDown),
        (false, _) => Some(Reason::BadConstraints),
    }
}

/// A node that is silent or ends something first is expected back.
fn is_in_service(availability: Availability) -> bool {
    !matches!(availability, Availability::Drained | Availability::Down)
}

/// The nodes with nothing on them: all, or those in service.
pub struct Emptied<'a> {
    pub view: &'a View,
    pub in_service_only: bool,
}

impl Space for Emptied<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.view.nodes[node as usize].config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        let info = &self.view.nodes[node as usize];
        let usable = !self.in_service_only || is_in_service(info.availability);
        usable.then(|| Cow::Owned(NodeFree::empty(&info.config)))
    }
}
