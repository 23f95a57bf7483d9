//! Dynamic nodes: those that no configuration file names. An agent brought them, or an administrator created them.

use crate::gres::GPU;
use crate::node::NodeConfig;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DynamicNode {
    /// The node as it is, with what an administrator has changed of it.
    pub config: NodeConfig,
    /// Its agent brought it, and says what it has: it is not as somebody created it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_agent: bool,
    /// What its agent said last. The same said again changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<NodeConfig>>,
    /// The weight that an administrator set. It stays, whatever the agent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_weight: Option<u32>,
    /// The features that an administrator set. They stay, whatever the agent says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_features: Option<Vec<String>>,
}

impl DynamicNode {
    /// A node that is as this says.
    pub fn new(config: NodeConfig) -> Self {
        let config = NodeConfig { dynamic: true, ..config };
        Self { config, by_agent: false, said: None, set_weight: None, set_features: None }
    }

    /// The node as its agent says it is, with what an administrator has set.
    pub fn said_to_be(&self, said: &NodeConfig) -> Self {
        let config = NodeConfig {
            dynamic: true,
            weight: self.set_weight.unwrap_or(said.weight),
            features: self.set_features.as_ref().unwrap_or(&said.features).clone(),
            ..said.clone()
        };
        Self { config, by_agent: true, said: Some(Box::new(said.clone())), ..self.clone() }
    }
}

/// A machine that wants to be a node which is declared with `State=FUTURE`, whichever is like it (`slurmd -F`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FutureMachine {
    pub detected: NodeConfig,
    /// A feature that the node must have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feature: Option<String>,
}

impl FutureMachine {
    /// Whether it has the processors of the node, and at least its memory and GPUs.
    pub fn is_like(&self, node: &NodeConfig) -> bool {
        let shape =
            |of: &NodeConfig| (of.cpus, of.sockets, of.cores_per_socket, of.threads_per_core);
        shape(&self.detected) == shape(node)
            && self.detected.memory >= node.memory
            && self.detected.gres_total(GPU) >= node.gres_total(GPU)
            && self.feature.as_ref().is_none_or(|feature| node.features.contains(feature))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::Bytes;
    use crate::node::NodeGres;

    #[test]
    fn machine_is_like_a_node_with_its_processors_that_asks_for_no_more() {
        let gib = Bytes::from_gib;
        let detected = NodeConfig {
            gres: vec![NodeGres::plain(GPU, None, 2)],
            ..NodeConfig::plain("vm", 8, gib(16))
        };
        let machine = FutureMachine { detected: detected.clone(), feature: None };
        assert!(
            machine.is_like(&NodeConfig::plain("f1", 8, gib(16))) && machine.is_like(&detected)
        );
        for wrong in [
            NodeConfig::plain("f1", 4, gib(16)),
            NodeConfig::plain("f1", 8, gib(17)),
            NodeConfig { sockets: 2, cores_per_socket: 4, ..detected.clone() },
            NodeConfig { gres: vec![NodeGres::plain(GPU, None, 3)], ..detected.clone() },
        ] {
            assert!(!machine.is_like(&wrong), "{wrong:?}");
        }
        let fast = FutureMachine { feature: Some("fast".into()), ..machine };
        assert!(!fast.is_like(&detected));
        assert!(fast.is_like(&NodeConfig { features: vec!["fast".into()], ..detected }));
    }
}
