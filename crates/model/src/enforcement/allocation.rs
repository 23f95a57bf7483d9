//! Allocations: for each node of a job the CPU ids, bytes of memory and device indices.

use crate::amount::Bytes;
use crate::cpuset::CpuSet;
use crate::gres::GPU;
use crate::node::NodeConfig;
use crate::price::Price;
use crate::tres::{Tres, TresKind};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The one of the requested partitions that the job was started in.
    pub partition: String,
    /// In the order of Slurm's node list; the first is the batch host.
    pub nodes: Vec<NodeShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    pub node: String,
    pub cpus: CpuSet,
    pub memory: Bytes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresShare>,
    /// Tasks that the job may start here.
    pub tasks: u32,
    /// The most jobs that may have these CPUs at once (`OverSubscribe`); 1 if they are not shared.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub sharers: u32,
    /// Local scratch space; zero if none was requested.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub disk: Bytes,
    /// What an hour of the share costs; `None` on a node without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
}

fn is_nothing(amount: &Bytes) -> bool {
    amount.0 == 0
}

fn alone() -> u32 {
    1
}

fn is_alone(sharers: &u32) -> bool {
    *sharers <= 1
}

/// Granted units of one generic resource, by index where the units are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GresShare {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<u32>,
}

impl Allocation {
    pub fn share(&self, node: &str) -> Option<&NodeShare> {
        self.nodes.iter().find(|s| s.node == node)
    }

    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|s| s.node.as_str())
    }

    pub fn cpu_count(&self) -> u32 {
        self.nodes.iter().map(|s| s.cpus.len()).sum()
    }

    /// What an hour of it costs.
    pub fn price(&self) -> Price {
        self.nodes.iter().filter_map(|share| share.price).sum()
    }

    pub fn task_count(&self) -> u32 {
        self.nodes.iter().map(|s| s.tasks).sum()
    }

    /// The allocation as trackable resources, `billing` left to the books' weights.
    pub fn tres(&self) -> Tres {
        let mut tres = tres_of(&self.nodes);
        tres.add(TresKind::Node, self.nodes.len() as u64);
        tres
    }
}

impl NodeShare {
    pub fn tres(&self) -> Tres {
        tres_of(std::slice::from_ref(self))
    }

    /// What an hour of the share costs on this node: of the node's price the largest of the parts that the share has of the
    /// node's CPUs, memory and GPUs.
    pub fn price_on(&self, node: &NodeConfig) -> Option<Price> {
        let price = node.price?;
        let parts = [
            (u64::from(self.cpus.len()), u64::from(node.cpus)),
            (self.memory.mib(), node.memory.mib()),
            (self.gres_count(GPU), node.gres_total(GPU)),
        ];
        let parts = parts.into_iter().filter(|(_, whole)| *whole > 0);
        parts.map(|(part, whole)| price.part(part.min(whole), whole)).max()
    }

    pub fn gres_count(&self, name: &str) -> u64 {
        self.gres.iter().filter(|g| g.name == name).map(|g| g.count).sum()
    }
}

/// What these shares are of each resource. The amounts are summed before they are put down: jobs with many nodes are charged often.
fn tres_of(shares: &[NodeShare]) -> Tres {
    let mut tres = Tres::default();
    if shares.is_empty() {
        return tres;
    }
    tres.add(TresKind::Cpu, shares.iter().map(|share| u64::from(share.cpus.len())).sum());
    tres.add(TresKind::Mem, shares.iter().map(|share| share.memory.mib()).sum());
    for gres in shares.iter().flat_map(|share| &share.gres) {
        tres.add(TresKind::gres(&gres.name, None), gres.count);
    }
    let prices = shares.iter().filter_map(|share| share.price);
    if let Some(cost) = prices.map(Price::units).reduce(u64::saturating_add) {
        tres.add(TresKind::Cost, cost);
    }
    tres
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeGres;

    #[test]
    fn share_costs_the_largest_of_its_parts_of_the_nodes_price() {
        let gpus = NodeGres::plain(GPU, Some("h100"), 8);
        let mut node = NodeConfig {
            gres: vec![gpus],
            price: Price::from_dollars(8.0),
            ..NodeConfig::plain("n1", 64, Bytes::from_gib(512))
        };
        let share = |cpus: u32, gib: u64, gpus: u64| NodeShare {
            node: "n1".into(),
            cpus: CpuSet::first(cpus),
            memory: Bytes::from_gib(gib),
            gres: vec![GresShare { name: GPU.into(), kind: None, count: gpus, indices: vec![] }],
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        };
        for (cpus, gib, gpus, dollars) in [
            (8, 64, 1, 1.0),
            (8, 64, 2, 2.0),
            (32, 64, 1, 4.0),
            (1, 256, 0, 4.0),
            (64, 512, 8, 8.0),
            (4, 0, 0, 0.5),
        ] {
            let shown = share(cpus, gib, gpus).price_on(&node);
            assert_eq!(shown, Price::from_dollars(dollars), "{cpus} {gib} {gpus}");
        }
        node.price = None;
        let free = NodeShare { price: share(8, 64, 1).price_on(&node), ..share(8, 64, 1) };
        assert_eq!(free.tres().get(&TresKind::Cost), None);
        let paid = NodeShare { price: Price::from_dollars(1.25), ..share(8, 64, 1) };
        let allocation = Allocation { partition: "main".into(), nodes: vec![paid.clone(), paid] };
        assert_eq!(Some(allocation.price()), Price::from_dollars(2.5));
        assert!(allocation.tres().to_string().ends_with(",cost=2.5"), "{}", allocation.tres());
        // What is summed at once is what the shares have one by one.
        let nodes = vec![share(8, 64, 1), share(2, 1, 0), share(1, 3, 2)];
        let mut one_by_one = Tres::default();
        nodes.iter().for_each(|share| one_by_one.merge(&share.tres()));
        one_by_one.add(TresKind::Node, 3);
        assert_eq!(Allocation { nodes, ..allocation }.tres(), one_by_one);
        assert_eq!(one_by_one.to_string(), "cpu=11,mem=68G,node=3,gres/gpu=3");
        let nothing = Allocation { partition: "main".into(), nodes: Vec::new() };
        assert_eq!(nothing.tres().to_string(), "node=0");
    }
}
