//! The network between nodes: `topology.conf`'s tree of switches.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    pub switches: Vec<Switch>,
}

/// A switch (or a block) with what hangs on it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switch {
    pub name: String,
    /// Nodes that hang on it directly: those of a leaf.
    #[serde(default)]
    pub nodes: Vec<String>,
    #[serde(default)]
    pub switches: Vec<String>,
}

impl Topology {
    /// The nodes below a switch. A switch that is below itself is left out the second time.
    pub fn nodes_below<'t>(&'t self, switch: &'t Switch) -> Vec<&'t str> {
        let mut seen: Vec<&str> = Vec::new();
        let mut open = vec![switch];
        let mut nodes = Vec::new();
        while let Some(next) = open.pop() {
            if seen.contains(&next.name.as_str()) {
                continue;
            }
            seen.push(&next.name);
            nodes.extend(next.nodes.iter().map(String::as_str));
            open.extend(self.switches.iter().filter(|s| next.switches.contains(&s.name)));
        }
        nodes
    }
}
