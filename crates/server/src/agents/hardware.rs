//! Whether a machine has what the configuration says of its node. One that has less is drained with the difference.

use crate::auth::principal::server_principal;
use crate::shared::Shared;
use cluster::Command;
use model::health::HealthSource;
use model::node::NodeConfig;

const GPU: &str = "gpu";

/// What the machine lacks of its node's configuration. Nothing is missing of a declared node, whose counts are not meant to
/// be the machine's. GPUs are compared where the node's are to be found by detection, or where any were found.
fn shortage(config: &NodeConfig, found: &NodeConfig) -> Option<String> {
    if config.declared {
        return None;
    }
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
    }
    (!lacks.is_empty()).then(|| lacks.join("; "))
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
            let failure = shortage(&known.config, found);
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
        assert_eq!(shortage(&declared, &node(1, 1, 0)), None);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn node_is_drained_while_its_machine_has_less() {
        let server = TestServer::start().await;
        server.node_up().await;
        let found = |cpus| {
            let mut machines = server.shared.volatile.machines.write().expect("machines");
            machines.insert(NODE.into(), node(cpus, 16, 0));
        };
        let is_drained = || server.shared.read().nodes[NODE].admin.is_some();
        for (cpus, drained) in [(4, false), (2, true), (8, false)] {
            found(cpus);
            check(&server.shared, &[NODE.to_owned()]).await;
            assert_eq!(is_drained(), drained, "{cpus}");
        }
    }
}
