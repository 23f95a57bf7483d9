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
    /// What its agent said last. The same said again changes nothing: what an administrator has changed since stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<NodeConfig>>,
}
