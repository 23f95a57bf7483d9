//! Commands about dynamic nodes: they are created, brought by their agents, and deleted.

use crate::ClusterConfig;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::state::State;
use model::amount::Bytes;
use model::bounds;
use model::dynamic_node::DynamicNode;
use model::node::{AdminState, NodeConfig};
use model::reason::Refusal;
use std::collections::BTreeSet;

impl State {
    pub(super) fn decide_create_nodes(
        &self,
        nodes: &[NodeConfig],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let mut names = BTreeSet::new();
        for node in nodes {
            self.check_new_node(&node.name)?;
            // An agent that is known by this name could speak for the node.
            if !names.insert(&node.name) || self.agents.contains_key(&node.name) {
                return Err(exists(&node.name));
            }
            self.check_switch(node)?;
        }
        self.check_room_for_nodes(nodes.len())?;
        let nodes = nodes.iter().cloned().map(DynamicNode::new).collect();
        Ok(vec![Event::DynamicNodesSet { nodes, at: context.now }].into())
    }

    /// The event that an agent brings this node. Before the agent has said what it has, nothing fits there.
    pub(super) fn node_brought(&self, name: &str, context: &Context) -> Result<Event, Refusal> {
        self.check_new_node(name)?;
        self.check_room_for_nodes(1)?;
        let config = NodeConfig::plain(name, 1, Bytes::from_mib(1));
        let nodes = vec![DynamicNode { by_agent: true, ..DynamicNode::new(config) }];
        Ok(Event::DynamicNodesSet { nodes, at: context.now })
    }

    /// What the agent of a dynamic node says that it has. A node that was created stays as it was created.
    pub(super) fn decide_register_node(
        &self,
        said: &NodeConfig,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let (known, node) = match (self.dynamic_nodes.get(&said.name), self.nodes.get(&said.name)) {
            (Some(known), Some(node)) => (known, node),
            _ => return Ok(Decision::default()),
        };
        let mut events = Vec::new();
        if known.by_agent && known.said.as_deref() != Some(said) {
            let next = if node.holders.is_empty() {
                known.said_to_be(said)
            } else {
                // Under running jobs the node stays as large as it was; a machine that has less is drained for it.
                let (address, hostname) = (said.address.clone(), said.hostname.clone());
                let config = NodeConfig { address, hostname, ..known.config.clone() };
                DynamicNode { config, ..known.clone() }
            };
            if next != *known {
                events.push(Event::DynamicNodesSet { nodes: vec![next], at: context.now });
            }
        }
        if node.admin == Some(AdminState::Future) {
            let node = said.name.clone();
            events.push(Event::NodeAdmin { node, admin: None, reason: None });
        }
        Ok(events.into())
    }

    /// Dynamic nodes on which nothing is, and which nothing counts on, are deleted, with what their agents may do.
    pub(super) fn decide_delete_nodes(
        &self,
        names: &[String],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let names: BTreeSet<&String> = names.iter().collect();
        for name in &names {
            self.check_deletable(name)?;
        }
        let mut events: Vec<Event> =
            names.iter().flat_map(|name| self.void_join_tokens(name)).collect();
        if !names.is_empty() {
            let nodes = names.into_iter().cloned().collect();
            events.push(Event::DynamicNodesRemoved { nodes });
        }
        Ok(events.into())
    }

    pub(super) fn check_deletable(&self, name: &str) -> Result<(), Refusal> {
        let refused = |why: String| Err(Refusal::Other(why));
        let Some(node) = self.nodes.get(name) else {
            return Err(Refusal::UnknownNode(name.to_owned()));
        };
        if !self.dynamic_nodes.contains_key(name) {
            return refused(format!("node {name} is not dynamic: the configuration names it"));
        }
        if let Some(holder) = node.holders.first() {
            return refused(format!("node {name} is busy: job {} is on it", holder.job));
        }
        let reserves = |nodes: &[String]| nodes.iter().any(|node| node == name);
        if let Some(of) = self.reservations.values().find(|of| reserves(&of.nodes)) {
            return refused(format!("node {name} is in reservation {}", of.name));
        }
        self.check_no_volume_on(name)
    }

    /// Whether a dynamic node may have this name.
    fn check_new_node(&self, name: &str) -> Result<(), Refusal> {
        let reserved = ["ALL", "DEFAULT"].iter().any(|word| name.eq_ignore_ascii_case(word));
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let most = bounds::NODE_NAME_BYTES.most;
        if name.is_empty() || name.len() > most || reserved || !name.chars().all(plain) {
            return Err(Refusal::InvalidValue {
                what: bounds::NODE_NAME_BYTES.what.into(),
                value: name.chars().take(most).collect(),
                expected: format!("letters, digits and . _ -, at most {most}; not ALL or DEFAULT"),
            });
        }
        if self.has_machine(name) || self.fleet_host(name).is_some() {
            return Err(exists(name));
        }
        Ok(())
    }

    /// Refuses a node that names a switch which topology.conf does not have, or which has no nodes.
    fn check_switch(&self, node: &NodeConfig) -> Result<(), Refusal> {
        let takes_nodes =
            |name: &String| self.config.topology.as_ref().is_some_and(|t| t.takes_nodes(name));
        match node.topology.as_ref().filter(|name| !takes_nodes(name)) {
            None => Ok(()),
            Some(name) => Err(Refusal::InvalidValue {
                what: "Topology".into(),
                value: name.clone(),
                expected: "a switch or block of topology.conf to which nodes are connected".into(),
            }),
        }
    }

    /// How many dynamic nodes there may be beside those that there are.
    pub(super) fn room_for_nodes(&self) -> usize {
        let there = self.config.nodes.len() + self.dynamic_nodes.len();
        (self.config.parameters.max_node_count as usize).saturating_sub(there)
    }

    fn check_room_for_nodes(&self, count: usize) -> Result<(), Refusal> {
        if count <= self.room_for_nodes() {
            return Ok(());
        }
        let there = self.config.nodes.len() + self.dynamic_nodes.len();
        let most = self.config.parameters.max_node_count;
        Err(Refusal::Other(format!(
            "{count} more beside {there} nodes are beyond MaxNodeCount, which is {most}"
        )))
    }

    /// Refuses a configuration that gives the name of a dynamic node to something else.
    pub(super) fn check_beside_dynamic_nodes(&self, config: &ClusterConfig) -> Result<(), Refusal> {
        let is_taken = |name: &&String| self.dynamic_nodes.contains_key(*name);
        let node = config.nodes.iter().map(|node| &node.name).find(is_taken);
        let node = node.map(|name| ("slurm.conf", "node", name));
        let login = config.login_nodes.iter().find(is_taken);
        let login = login.map(|name| ("sluice.toml", "login node", name));
        match node.or(login) {
            Some((file, what, name)) => Err(Refusal::Other(format!(
                "{file}: {what} {name}: a dynamic node has this name: scontrol delete nodename={name} first, or name the {what} otherwise"
            ))),
            None => Ok(()),
        }
    }
}

fn exists(name: &str) -> Refusal {
    Refusal::AlreadyExists { what: "node".into(), name: name.to_owned() }
}
