//! A share of one of the cluster's nodes as an offer of dstack: what a run was granted, or would be.

use crate::offer::{Availability, Offer, OfferGpu, OfferResources};
use model::allocation::{GresShare, NodeShare};
use model::amount::Bytes;
use model::node::NodeConfig;
use wire::client::NodeOutage;

/// dstack's name for the backend of machines that are there already.
pub const BACKEND: &str = "ssh (remote)";

const GPU: &str = "gpu";

/// The part of a node that a run holds, or held.
pub fn granted(share: &NodeShare, node: Option<&NodeConfig>) -> Offer {
    let gpus = share.gres.iter().filter(|gres| gres.name == GPU);
    let gpus = gpus.map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count)).collect();
    let amounts = Amounts { cpus: share.cpus.len(), memory: share.memory, gpus };
    offer(&share.node, amounts, node, Availability::Busy)
}

/// The part of a node that would serve a request.
pub fn offered(found: &wire::client::Offer, node: Option<&NodeConfig>) -> Offer {
    let availability = match (found.available, &found.machine, found.outage) {
        (true, ..) => Availability::Idle,
        (false, Some(_), _) => Availability::Available,
        (false, None, None) => Availability::Busy,
        (false, None, Some(NodeOutage::Down)) => Availability::Down,
        (false, None, Some(NodeOutage::Drained)) => Availability::Drained,
        (false, None, Some(NodeOutage::Silent)) => Availability::Silent,
    };
    let gpus = found.gpus.clone();
    let amounts = Amounts { cpus: found.cpus, memory: found.memory, gpus };
    offer(&found.node, amounts, node, availability)
}

/// All of a node.
pub fn whole(node: &NodeConfig) -> Offer {
    let gpus = node.gres.iter().filter(|line| line.name == GPU);
    let gpus = gpus.map(|line| (line.kind.clone().unwrap_or_default(), line.count)).collect();
    let amounts = Amounts { cpus: node.cpus, memory: node.memory, gpus };
    offer(&node.name, amounts, Some(node), Availability::Available)
}

/// What nobody holds of a node; `used` are the allocated units of each of its GRES lines, by index.
pub fn unallocated(node: &NodeConfig, cpus: u32, memory: Bytes, used: &[GresShare]) -> Offer {
    let used = |line: usize| used.get(line).map_or(0, |share| share.count);
    let gpus = node.gres.iter().enumerate().filter(|(_, line)| line.name == GPU);
    let gpus = gpus.map(|(at, line)| {
        (line.kind.clone().unwrap_or_default(), line.count.saturating_sub(used(at)))
    });
    let amounts = Amounts {
        cpus: node.cpus.saturating_sub(cpus),
        memory: Bytes(node.memory.0.saturating_sub(memory.0)),
        gpus: gpus.filter(|(_, left)| *left > 0).collect(),
    };
    let blocks = blocks_left(&amounts, node);
    Offer { blocks, ..offer(&node.name, amounts, Some(node), Availability::Available) }
}

/// What an hour of the node costs; a share of it costs as much, as in dstack.
pub fn dollars_per_hour(node: &NodeConfig) -> f64 {
    node.price.unwrap_or_default().dollars()
}

/// `ssh (remote)` for machines that are there already, `cloud (eu-1)` for one of a source.
pub fn backend(node: Option<&NodeConfig>) -> String {
    let machine = node.and_then(|node| node.machine.as_deref());
    match machine {
        None => BACKEND.to_owned(),
        Some(machine) if machine.region.is_empty() => machine.source.clone(),
        Some(machine) => format!("{} ({})", machine.source, machine.region),
    }
}

struct Amounts {
    cpus: u32,
    memory: Bytes,
    /// Kind, which may be empty, and count.
    gpus: Vec<(String, u64)>,
}

impl Amounts {
    fn gpus_count(&self) -> u64 {
        self.gpus.iter().map(|(_, count)| count).sum()
    }
}

fn offer(
    name: &str,
    amounts: Amounts,
    node: Option<&NodeConfig>,
    availability: Availability,
) -> Offer {
    let disk = node.map(|node| node.tmp_disk).filter(|disk| *disk > Bytes(0));
    let machine = node.and_then(|node| node.machine.as_deref());
    Offer {
        backend: backend(node),
        // A machine is of a type; a node that is there already has a name alone.
        instance_type: machine.map_or(name, |machine| &machine.offer).to_owned(),
        blocks: node.and_then(|node| blocks_taken(&amounts, node)),
        price_dollars_per_hour: node.map_or(0.0, dollars_per_hour),
        availability,
        resources: OfferResources {
            cpus: amounts.cpus,
            memory: amounts.memory,
            disk,
            gpu: gpu(&amounts.gpus, node),
        },
    }
}

/// One line for all GPUs of the share; kinds that differ have no name together.
fn gpu(gpus: &[(String, u64)], node: Option<&NodeConfig>) -> Option<OfferGpu> {
    let count: u64 = gpus.iter().map(|(_, count)| count).sum();
    let (first, _) = gpus.first().filter(|_| count > 0)?;
    let kind = Some(first.clone()).filter(|kind| gpus.iter().all(|(other, _)| other == kind));
    let line = node.and_then(|node| {
        let of_kind =
            |kind: &str| node.gres.iter().find(|g| g.kind.as_deref().unwrap_or("") == kind);
        of_kind(kind.as_deref()?).filter(|line| line.name == GPU)
    });
    Some(OfferGpu {
        name: kind.filter(|kind| !kind.is_empty()),
        memory: line.and_then(|line| line.device_memory),
        count: u32::try_from(count).unwrap_or(u32::MAX),
    })
}

/// A node is as many blocks as it has GPUs, or CPUs where it has none.
fn blocks_total(node: &NodeConfig) -> u64 {
    match node.gres_total(GPU) {
        0 => u64::from(node.cpus),
        gpus => gpus,
    }
}

/// The blocks that a share takes up: a run that asks for one GPU and the memory of four blocks has the CPUs of four. A share
/// without GPUs of a node that has some is no number of blocks.
fn blocks_taken(amounts: &Amounts, node: &NodeConfig) -> Option<(u32, u32)> {
    let total = blocks_total(node);
    let by_cpus = (u64::from(amounts.cpus) * total).div_ceil(u64::from(node.cpus.max(1)));
    let taken = match node.gres_total(GPU) {
        0 => by_cpus,
        _ => Some(amounts.gpus_count()).filter(|gpus| *gpus > 0)?.max(by_cpus),
    };
    some_blocks(taken, total)
}

/// The blocks of which nobody holds a part.
fn blocks_left(amounts: &Amounts, node: &NodeConfig) -> Option<(u32, u32)> {
    let total = blocks_total(node);
    let by_cpus = u64::from(amounts.cpus) * total / u64::from(node.cpus.max(1));
    let left = match node.gres_total(GPU) {
        0 => by_cpus,
        _ => amounts.gpus_count().min(by_cpus),
    };
    some_blocks(left, total)
}

fn some_blocks(count: u64, total: u64) -> Option<(u32, u32)> {
    let whole = |count: u64| u32::try_from(count).ok().filter(|count| *count > 0);
    Some((whole(count)?, whole(total)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cpuset::CpuSet;
    use model::node::NodeGres;

    fn node(gpus: &[(&str, u64)]) -> NodeConfig {
        let line = |(kind, count): &(&str, u64)| NodeGres {
            name: GPU.into(),
            kind: (!kind.is_empty()).then(|| (*kind).to_owned()),
            count: *count,
            first_index: 0,
            files: Vec::new(),
            device_names: Vec::new(),
            links: Vec::new(),
            cores: None,
            device_memory: Some(Bytes::from_gib(80)),
            variables: None,
            no_consume: false,
            share_of: None,
            compute_capability: None,
        };
        let gres = gpus.iter().map(line).collect();
        NodeConfig { gres, ..NodeConfig::plain("n1", 64, Bytes::from_gib(512)) }
    }

    fn share(cpus: u32, gpus: &[(&str, u64)]) -> NodeShare {
        let gres = gpus.iter().map(|(kind, count)| GresShare {
            name: GPU.into(),
            kind: (!kind.is_empty()).then(|| (*kind).to_owned()),
            count: *count,
            indices: Vec::new(),
        });
        let cpus = CpuSet::first(cpus);
        let (node, memory) = ("n1".to_owned(), Bytes::from_gib(128));
        let (gres, disk) = (gres.collect(), Bytes(0));
        NodeShare { node, cpus, memory, gres, tasks: 1, sharers: 1, disk, price: None }
    }

    #[test]
    fn node_that_takes_no_jobs_is_not_called_busy() {
        let found = |available, outage| wire::client::Offer {
            node: "n1".into(),
            fleet: "main".into(),
            cpus: 1,
            memory: Bytes::from_gib(1),
            gpus: Vec::new(),
            available,
            machine: None,
            outage,
        };
        let table = [
            (true, None, "idle"),
            (false, None, "busy"),
            (false, Some(NodeOutage::Down), "down"),
            (false, Some(NodeOutage::Drained), "drained"),
            (false, Some(NodeOutage::Silent), "not responding"),
        ];
        for (available, outage, word) in table {
            let found = found(available, outage);
            assert_eq!(offered(&found, None).availability.word(), word);
        }
        let turns = table.map(|(available, outage, _)| found(available, outage).turn());
        assert_eq!(turns, [0, 2, 3, 3, 3]);
    }

    #[test]
    fn a_share_is_an_offer_with_its_blocks() {
        let h100: &[_] = &[("H100", 8)];
        let table: [(&[_], u32, &[_], &str, &str); 6] = [
            (h100, 16, &[("H100", 2)], "cpu=16 mem=128GB gpu=H100:80GB:2", "n1 (2/8)"),
            (h100, 32, &[("H100", 1)], "cpu=32 mem=128GB gpu=H100:80GB:1", "n1 (4/8)"),
            (h100, 16, &[], "cpu=16 mem=128GB", "n1"),
            (&[], 16, &[], "cpu=16 mem=128GB", "n1 (16/64)"),
            (&[("", 4)], 16, &[("", 1)], "cpu=16 mem=128GB gpu=80GB:1", "n1 (1/4)"),
            (h100, 16, &[("H100", 1), ("A100", 1)], "cpu=16 mem=128GB gpu=2", "n1 (2/8)"),
        ];
        for (has, cpus, gpus, resources, instance) in table {
            let offer = granted(&share(cpus, gpus), Some(&node(has)));
            assert_eq!(offer.resources.to_string(), resources);
            assert_eq!(offer.instance_text(), instance);
        }
        let held = share(16, &[("H100", 2)]);
        let left = unallocated(&node(h100), 16, held.memory, &held.gres);
        assert_eq!(left.resources.to_string(), "cpu=48 mem=384GB gpu=H100:80GB:6");
        assert_eq!(left.instance_text(), "n1 (6/8)");
        for (used, blocks) in [(0, "n1 (6/8)"), (52, "n1 (1/8)"), (60, "n1")] {
            let left = unallocated(&node(h100), used, held.memory, &held.gres);
            assert_eq!(left.instance_text(), blocks, "{used} CPUs are held");
        }
        let unknown = granted(&share(4, &[("H100", 1)]), None);
        assert_eq!(unknown.resources.to_string(), "cpu=4 mem=128GB gpu=H100:1");
        assert_eq!(unknown.instance_text(), "n1");
    }
}
