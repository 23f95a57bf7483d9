//! `instances` and `fleets`: from names, hosts and numbers of fleets to nodes and partitions.

use super::RequestError;
use crate::configuration::policy::{FleetName, Instance};
use crate::configuration::task::Task;
use model::fleet;
use model::node::{NodeConfig, NodeFacts};
use model::partition::Partition;
use std::collections::HashMap;

/// Names of the nodes that instances are looked for among.
#[derive(Default)]
pub struct KnownInstances {
    /// The name of the node for each host name and address, in small letters.
    hosts: HashMap<String, String>,
    /// The nodes of each fleet in the order of their names; the default one also by no name.
    fleets: HashMap<Option<String>, Vec<String>>,
}

impl KnownInstances {
    /// What the task needs of the cluster, whose nodes come in the order of their names. It is made while others wait for the
    /// cluster's state: nothing is asked of each pair of two lists.
    pub fn new<'c>(
        task: &Task,
        partitions: impl Iterator<Item = &'c Partition>,
        nodes: impl Iterator<Item = (&'c NodeConfig, &'c NodeFacts)>,
    ) -> Self {
        let mut known = Self::default();
        if task.instances.iter().any(|instance| matches!(instance, Instance::Host(_))) {
            for (config, facts) in nodes {
                let said = [&config.hostname, &config.address, &facts.hostname, &facts.address];
                for host in said {
                    let host = host.to_ascii_lowercase();
                    known.hosts.entry(host).or_insert_with(|| config.name.clone());
                }
            }
        }
        if task.instances.iter().any(|instance| matches!(instance, Instance::OfFleet { .. })) {
            for partition in partitions {
                let mut nodes = partition.nodes.clone();
                nodes.sort_unstable();
                if partition.default {
                    known.fleets.insert(None, nodes.clone());
                }
                known.fleets.insert(Some(partition.name.clone()), nodes);
            }
        }
        known
    }
}

/// Puts the names of nodes in place of hosts and of numbers in fleets.
pub fn resolve_instances(task: &mut Task, known: &KnownInstances) -> Result<(), RequestError> {
    for instance in &mut task.instances {
        let (found, said) = match instance {
            Instance::Name(_) => continue,
            Instance::Host(host) => (known.hosts.get(&host.to_ascii_lowercase()), host.clone()),
            Instance::OfFleet { fleet, number } => {
                let named = partitions(std::slice::from_ref(fleet))?;
                let named = named.into_iter().next();
                let of_fleet = known.fleets.get(&named);
                // Hosts of a fleet over SSH have their number in their name, also where others have left.
                let numbered = named.map(|fleet| format!("{fleet}-{number}"));
                let found = of_fleet.and_then(|nodes| {
                    let by_name = nodes.iter().find(|node| Some(*node) == numbered.as_ref());
                    by_name.or_else(|| nodes.get(*number as usize))
                });
                (found, format!("{number} of fleet {}", fleet.name))
            }
        };
        let name = found.ok_or(RequestError::NoSuchInstance(said))?;
        *instance = Instance::Name(name.clone());
    }
    task.instances.sort_unstable_by(|one, other| named(one).cmp(named(other)));
    task.instances.dedup_by(|one, other| named(one) == named(other));
    Ok(())
}

fn named(instance: &Instance) -> &str {
    match instance {
        Instance::Name(name) => name,
        Instance::Host(_) | Instance::OfFleet { .. } => "",
    }
}

/// The names of the only nodes that will do.
pub(super) fn node_pool(task: &Task) -> Result<Vec<String>, RequestError> {
    let name = |instance: &Instance| match instance {
        Instance::Name(name) => Ok(name.clone()),
        Instance::Host(host) => Err(RequestError::NoSuchInstance(host.clone())),
        Instance::OfFleet { fleet, number } => {
            Err(RequestError::NoSuchInstance(format!("{number} of fleet {}", fleet.name)))
        }
    };
    task.instances.iter().map(name).collect()
}

/// Every fleet is a partition too; the nodes of `static` are seen through the default one.
pub(super) fn partitions(fleets: &[FleetName]) -> Result<Vec<String>, RequestError> {
    for FleetName { project, name } in fleets {
        if let Some(project) = project
            && project != fleet::MAIN_PROJECT
        {
            return Err(RequestError::OtherProject {
                project: project.clone(),
                name: name.clone(),
            });
        }
    }
    if fleets.iter().any(|named| named.name == fleet::STATIC) {
        return Ok(Vec::new());
    }
    Ok(fleets.iter().map(|named| named.name.clone()).collect())
}
