//! Dynamic nodes: those that no configuration file names. An agent brought them, or an administrator created them.

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
