//! Fleets over SSH: machines of a project that become nodes once an agent is installed on them.

use crate::amount::Bytes;
use crate::cloud_fleet::CloudFleet;
use crate::fleet::{Blocks, only_for};
use crate::ip_network::IpNetwork;
use crate::machine::fleet_feature;
use crate::node::NodeConfig;
use crate::partition::{Access, OverSubscribe, Partition};
use crate::secret::Sealed;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The longest private key: an RSA key of 16384 bits is shorter.
pub const PRIVATE_KEY_BYTES_MAX: usize = 16 << 10;

/// Machines that are reached over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshFleet {
    pub name: String,
    pub project: String,
    /// dstack's configuration of it as JSON, without private keys.
    pub configuration: String,
    pub created_by: String,
    pub created: Timestamp,
    /// `placement: cluster`: runs on several nodes may be there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cluster: bool,
    /// For a fleet of machines that sources make, which has no hosts of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud: Option<Box<CloudFleet>>,
    /// By the number that ends the name of its node.
    pub hosts: BTreeMap<u32, FleetHost>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHost {
    /// Random, and its own while it is in the fleet: another host may have its node's name later. Empty for hosts of before
    /// there were ids.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub login: SshLogin,
    /// The host that connections go through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jump: Option<SshLogin>,
    /// Where other hosts of the fleet reach it, as it was said of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internal_ip: Option<String>,
    /// The network in which they reach it where nothing was said of this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<IpNetwork>,
    /// Its address in this network, once it was found there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    pub blocks: Blocks,
    /// The machine as its agent found it; `None` until the agent has answered once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<NodeConfig>>,
    /// Why it is not in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Since when it is on its way out: what was installed there is being removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshLogin {
    pub hostname: String,
    pub port: u16,
    pub user: String,
    /// The private key.
    pub key: Sealed,
    /// The public key that the host showed when it was first seen, in OpenSSH's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
}

impl SshLogin {
    /// `root@10.0.0.1:22`
    pub fn shown(&self) -> String {
        format!("{}@{}:{}", self.user, self.hostname, self.port)
    }

    fn address(&self) -> String {
        format!("{}:{}", self.hostname.to_ascii_lowercase(), self.port)
    }
}

impl FleetHost {
    /// The machine and the way to it: what tells hosts apart.
    pub fn route(&self) -> String {
        match &self.jump {
            Some(jump) => format!("{} by {}", self.login.address(), jump.address()),
            None => self.login.address(),
        }
    }

    /// Where other hosts of the fleet reach it, if that is said or was found.
    pub fn internal_address(&self) -> Option<String> {
        self.internal_ip.clone().or_else(|| Some(self.address?.to_string()))
    }

    /// Whether its address is to be found in the fleet's network.
    pub fn seeks_address(&self) -> bool {
        self.network.is_some() && self.internal_ip.is_none()
    }

    pub fn lacks_address(&self) -> bool {
        self.seeks_address() && self.address.is_none()
    }
}

impl SshFleet {
    pub fn node_name(&self, number: u32) -> String {
        node_name(&self.name, number)
    }

    /// The nodes that belong to it, with their numbers: those on their way out do not.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, NodeConfig)> {
        let staying = self.hosts.iter().filter(|(_, host)| host.leaving.is_none());
        staying.map(|(number, host)| (*number, self.node(*number, host)))
    }

    /// A host as a node. Before its agent has answered, its size is not known: nothing fits there.
    pub fn node(&self, number: u32, host: &FleetHost) -> NodeConfig {
        let name = self.node_name(number);
        let found = host.machine.as_deref().cloned();
        let found = found.unwrap_or_else(|| NodeConfig::plain(&name, 1, Bytes::from_mib(1)));
        NodeConfig {
            name,
            address: host.internal_address().unwrap_or_else(|| host.login.hostname.clone()),
            gpus_detected: !found.gres.is_empty(),
            declared: false,
            fleet: self.name.clone(),
            blocks: match host.blocks {
                Blocks::Count(count) => Some(count),
                Blocks::Auto => None,
            },
            initial: None,
            initial_reason: None,
            cloud: false,
            dynamic: false,
            ..found
        }
    }

    /// The fleet as a partition, for the accounts of its project alone. Hosts of one block go to one job each.
    pub fn partition(&self) -> Partition {
        let nodes = self.nodes().map(|(number, _)| self.node_name(number)).collect();
        let mut partition = Partition::over(&self.name, nodes);
        if let Some(project) = only_for(&self.project) {
            partition.allow_accounts = Access::Only(vec![project.to_owned()]);
        }
        if let Some(cloud) = &self.cloud {
            partition.dynamic_members.features = vec![fleet_feature(&self.name)];
            if cloud.blocks == Blocks::Count(1) {
                partition.over_subscribe = OverSubscribe::Exclusive;
            }
            return partition;
        }
        let is_whole = |host: &FleetHost| host.blocks == Blocks::Count(1);
        if self.hosts.values().filter(|host| host.leaving.is_none()).all(is_whole) {
            partition.over_subscribe = OverSubscribe::Exclusive;
        }
        partition
    }

    /// Takes over what is known of the machines of hosts that stay, where this does not say it itself.
    pub fn keep_machines(&mut self, known: &Self) {
        for (number, host) in &mut self.hosts {
            let same = known.hosts.get(number).filter(|known| known.id == host.id);
            if host.machine.is_none() {
                host.machine = same.and_then(|known| known.machine.clone());
            }
        }
    }

    fn keys_mut(&mut self) -> impl Iterator<Item = &mut Sealed> {
        let logins =
            self.hosts.values_mut().flat_map(|host| [Some(&mut host.login), host.jump.as_mut()]);
        logins.flatten().map(|login| &mut login.key)
    }

    /// Puts other forms of the same keys in place of those that are named.
    pub fn reseal(&mut self, forms: &HashMap<Sealed, Sealed>) {
        for key in self.keys_mut() {
            if let Some(after) = forms.get(key) {
                *key = after.clone();
            }
        }
    }

    /// The values that are kept encrypted.
    pub fn sealed_values(&self) -> impl Iterator<Item = &Sealed> {
        let logins = self.hosts.values().flat_map(|host| [Some(&host.login), host.jump.as_ref()]);
        logins.flatten().map(|login| &login.key)
    }
}

/// The name of a fleet's node, as dstack names an instance.
pub fn node_name(fleet: &str, number: u32) -> String {
    format!("{fleet}-{number}")
}
