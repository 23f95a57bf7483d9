//! Whether a machine has what the configuration says of its node. One that has less is drained with the difference.

use crate::auth::principal::server_principal;
use crate::shared::{FoundMachine, Shared};
use cluster::Command;
use model::health::HealthSource;
use model::node::NodeConfig;

const GPU: &str = "gpu";

/// A part of the files of a slice of a GPU (MIG).
const SLICE_RIGHT: &str = "/dev/nvidia-caps/";

/// What the machine lacks of its node's configuration, and what has changed there under running jobs. Nothing is missing
/// of a declared node, whose counts are not meant to be the machine's.
fn failure(config: &NodeConfig, machine: &FoundMachine) -> Option<String> {
    if config.declared {
        return None;
    }
    let lacks = shortage(config, &machine.config).into_iter();
    let all: Vec<String> = lacks.chain(machine.device_change.clone()).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// GPUs are compared where the node's are to be found by detection, or where any were found; slices wherever the
/// configuration names their files.
fn shortage(config: &NodeConfig, found: &NodeConfig) -> Option<String> {
    let mut lacks = Vec::new();
    if found.cpus < config.cpus {
        lacks.push(format!("Low CPUs (reported:{} < configured:{})", found.cpus, config.cpus));
    }
    let (reported, configured) = (found.memory.mib_floor(), config.memory.mib_floor());
    if reported < configured {
        lacks.push(format!("Low RealMemory (reported:{reported} < configured:{configured})"));
    }
    let (reported, configured) = (found.gres_total(GPU), config.gres_total(GPU));
    let without_files = config.gres.iter().any(|g| g.name == GPU && g.files.is_empty());
    let compared = config.gpus_detected || (without_files && reported > 0);
    if compared && reported < configured {
        lacks.push(format!(
            "gres/gpu count reported lower than configured ({reported} < {configured})"
        ));
    } else if config.gpus_detected {
        lacks.extend(lacking_type(config, found));
    }
    lacks.extend(lacking_slice(config, found));
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// The first type of which fewer GPUs were found than the configuration says. A type is found in the name of a model, as
/// where files are given to lines without any.
fn lacking_type(config: &NodeConfig, found: &NodeConfig) -> Option<String> {
    let gpus = |node: &NodeConfig| -> Vec<(String, u64)> {
        let lines = node.gres.iter().filter(|line| line.name == GPU);
        lines.map(|line| (line.kind.clone().unwrap_or_default(), line.count)).collect()
    };
    let of_type = |lines: &[(String, u64)], is_it: &dyn Fn(&str) -> bool| -> u64 {
        lines.iter().filter(|(kind, _)| is_it(kind)).map(|(_, count)| count).sum()
    };
    let without_files = config.gres.iter().filter(|g| g.name == GPU && g.files.is_empty());
    let (configured, reported) = (gpus(config), gpus(found));
    without_files.filter_map(|line| line.kind.as_ref()).find_map(|kind| {
        let wanted = of_type(&configured, &|other| other == kind);
        let lower = kind.to_ascii_lowercase();
        let there = of_type(&reported, &|other| other.to_ascii_lowercase().contains(&lower));
        (there < wanted).then(|| {
            format!("gres/gpu:{kind} count reported lower than configured ({there} < {wanted})")
        })
    })
}

/// The first slice whose files the configuration names and the machine does not have.
fn lacking_slice(config: &NodeConfig, found: &NodeConfig) -> Option<String> {
    let sorted = |files: &str| {
        let mut files: Vec<&str> = files.split(',').collect();
        files.sort_unstable();
        files.join(",")
    };
    let units = |node: &NodeConfig| -> Vec<String> {
        let lines = node.gres.iter().filter(|line| line.name == GPU);
        lines.flat_map(|line| &line.files).map(|files| sorted(files)).collect()
    };
    let there = units(found);
    let is_gone = |unit: &String| unit.contains(SLICE_RIGHT) && !there.contains(unit);
    units(config).into_iter().find(is_gone).map(|unit| format!("gres/gpu {unit} is not there"))
}

/// Compares these nodes with their machines, after a hello or a change of the configuration.
pub async fn check(shared: &Shared, nodes: &[String]) {
    for node in nodes {
        let failure = {
            let state = shared.read();
            let machines =
                shared.volatile.machines.read().expect("no panic while writing machines");
            let (Some(known), Some(found)) = (state.nodes.get(node), machines.get(node)) else {
                continue;
            };
            let failure = failure(&known.config, found);
            if failure.is_none() && !known.failures.contains_key(&HealthSource::Hardware) {
                continue;
            }
            failure
        };
        let (node, source) = (node.clone(), HealthSource::Hardware);
        // A node that left the configuration meanwhile has no health.
        let _ = shared
            .writer
            .run(Command::NodeHealth { node, source, failure }, server_principal())
            .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NODE, TestServer};
    use model::amount::Bytes;
    use model::node::NodeGres;

    fn node(cpus: u32, gib: u64, gpus: u64) -> NodeConfig {
        let mut node = NodeConfig::plain(NODE, cpus, Bytes::from_gib(gib));
        node.gres = (0..gpus).map(|_| NodeGres::plain(GPU, None, 1)).collect();
        node
    }

    #[test]
    fn shortage_names_what_is_missing_and_how_much() {
        assert_eq!(shortage(&node(4, 16, 0), &node(8, 32, 2)), None, "more is no shortage");
        let text = "Low CPUs (reported:2 < configured:4); \
                    Low RealMemory (reported:8192 < configured:16384)";
        assert_eq!(shortage(&node(4, 16, 0), &node(2, 8, 0)).as_deref(), Some(text));
        let gpus = "gres/gpu count reported lower than configured (1 < 2)";
        assert_eq!(shortage(&node(4, 16, 2), &node(4, 16, 1)).as_deref(), Some(gpus));
        assert_eq!(shortage(&node(4, 16, 2), &node(4, 16, 0)), None, "a count without devices");
        let detected = NodeConfig { gpus_detected: true, ..node(4, 16, 2) };
        assert!(shortage(&detected, &node(4, 16, 0)).is_some());
        let declared = NodeConfig { declared: true, ..detected };
        assert_eq!(failure(&declared, &found(node(1, 1, 0), None)), None);
    }

    fn found(config: NodeConfig, change: Option<&str>) -> FoundMachine {
        FoundMachine { config, device_change: change.map(str::to_owned) }
    }

    #[test]
    fn divided_gpus_are_compared_by_type_and_by_file() {
        let of = |kind: &str, files: &[&str]| NodeGres {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..NodeGres::plain(GPU, Some(kind), 1)
        };
        let with = |gres: Vec<NodeGres>| NodeConfig { gres, gpus_detected: true, ..node(4, 16, 0) };
        let slice = |cap: u32| format!("/dev/nvidia0,/dev/nvidia-caps/nvidia-cap{cap}");
        let machine = with(vec![
            of("nvidia_h200_1g.18gb", &[&slice(3)]),
            of("nvidia_h200_1g.18gb", &[&slice(5)]),
        ]);
        let typed = |kind: &str, count| with(vec![NodeGres { count, ..of(kind, &[]) }]);
        assert_eq!(shortage(&typed("1g.18gb", 2), &machine), None);
        let text = "gres/gpu:3g.71gb count reported lower than configured (0 < 2)";
        assert_eq!(shortage(&typed("3g.71gb", 2), &machine).as_deref(), Some(text));
        let named = NodeConfig { gpus_detected: false, ..with(vec![of("own", &[&slice(5)])]) };
        assert_eq!(shortage(&named, &machine), None);
        let gone = NodeConfig { gpus_detected: false, ..with(vec![of("own", &[&slice(7)])]) };
        let text = "gres/gpu /dev/nvidia-caps/nvidia-cap7,/dev/nvidia0 is not there";
        assert_eq!(shortage(&gone, &machine).as_deref(), Some(text));
        let changed = found(machine.clone(), Some("changed under jobs 7"));
        assert_eq!(failure(&named, &changed).as_deref(), Some("changed under jobs 7"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn node_is_drained_while_its_machine_has_less() {
        let server = TestServer::start().await;
        server.node_up().await;
        let finds = |cpus| {
            let mut machines = server.shared.volatile.machines.write().expect("machines");
            machines.insert(NODE.into(), found(node(cpus, 16, 0), None));
        };
        let is_drained = || server.shared.read().nodes[NODE].admin.is_some();
        for (cpus, drained) in [(4, false), (2, true), (8, false)] {
            finds(cpus);
            check(&server.shared, &[NODE.to_owned()]).await;
            assert_eq!(is_drained(), drained, "{cpus}");
        }
    }
}
