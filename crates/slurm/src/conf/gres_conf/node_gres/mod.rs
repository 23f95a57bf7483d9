//! The units of each node's resources: `Gres=` of slurm.conf says how many there are, gres.conf which
//! devices they are.

mod agreement;
mod gpu_environment;
mod gpu_shards;

use std::collections::HashSet;

use model::cpuset::CpuSet;
use model::gres::DeclaredGres;
use model::node::{NodeConfig, NodeGres};

use crate::conf::error::{Findings, NoticeKind};
use crate::conf::gres_conf::{GresConf, GresLine};
use crate::conf::keys::choices::AutoDetect;
use crate::conf::slurm_conf::node_conf::NodeConf;
use agreement::AgreementCheck;

/// Fills `config.gres` of every node.
pub fn fill(conf: &GresConf, nodes: &mut [NodeConf], findings: &mut Findings) {
    notice_idle_lines(conf, nodes, findings);
    let mut agreement = AgreementCheck::default();
    for node in nodes {
        let mut resources = resources(conf, node);
        for resource in &mut resources {
            agreement.check(resource, node, findings);
        }
        let mut units: Vec<NodeGres> =
            resources.iter().flat_map(|resource| resource.units(&node.config)).collect();
        let variables = gpu_environment::variables(conf, &node.config.name);
        for gpus in units.iter_mut().filter(|entry| entry.name == "gpu") {
            gpus.variables.clone_from(&variables);
        }
        node.config.gres = gpu_shards::divide(units);
        node.config.gpus_detected = conf.auto_detect(&node.config.name) != AutoDetect::Off;
    }
}

/// The devices that a machine's own gres.conf says of one of its nodes.
pub fn of_machine(conf: &GresConf, config: &NodeConfig) -> Vec<NodeGres> {
    let mut entries: Vec<NodeGres> = Vec::new();
    let lines = conf.lines.iter().filter(|line| line.is_for(&config.name));
    for line in lines.filter(|line| line.count.is_some()) {
        let before: u64 = entries.iter().filter(|e| e.name == line.name).map(|e| e.count).sum();
        entries.push(NodeGres {
            first_index: u32::try_from(before).unwrap_or(u32::MAX),
            ..line_units(line, &line.name, line.kind.as_deref(), config)
        });
    }
    entries
}

/// Lines of gres.conf for what slurm.conf does not give to a node.
fn notice_idle_lines(conf: &GresConf, nodes: &[NodeConf], findings: &mut Findings) {
    let of_nodes: HashSet<(&str, &str)> = nodes
        .iter()
        .flat_map(|node| {
            let names = node.gres.iter().map(|declared| declared.gres.name.as_str());
            names.map(|name| (node.config.name.as_str(), name))
        })
        .collect();
    let of_any: HashSet<&str> = of_nodes.iter().map(|(_, name)| *name).collect();
    for line in &conf.lines {
        let name = line.name.as_str();
        let why = match &line.nodes {
            None if of_any.contains(name) => None,
            None => Some(NoticeKind::NoSuchResource),
            Some(nodes) => {
                let without = nodes.iter().find(|node| !of_nodes.contains(&(node.as_str(), name)));
                without.map(|node| NoticeKind::NoSuchNode { node: node.clone() })
            }
        };
        if let Some(why) = why {
            findings.notice(&line.place, name, why);
        }
    }
}

/// One name of a node's `Gres=`, with what both files say of it.
struct Resource<'a> {
    name: &'a str,
    declared: Vec<&'a DeclaredGres>,
    /// The lines of gres.conf that count its units; without any, slurm.conf alone does.
    lines: Vec<&'a GresLine>,
}

/// The resources of a node, in the order that `Gres=` first names them.
fn resources<'a>(conf: &'a GresConf, node: &'a NodeConf) -> Vec<Resource<'a>> {
    let mut resources: Vec<Resource> = Vec::new();
    for declared in &node.gres {
        let name = declared.gres.name.as_str();
        match resources.iter_mut().find(|resource| resource.name == name) {
            Some(resource) => resource.declared.push(declared),
            None => resources.push(Resource { name, declared: vec![declared], lines: Vec::new() }),
        }
    }
    // A line without a count leaves it to the detection.
    let is_detected = conf.auto_detect(&node.config.name) != AutoDetect::Off;
    let counts = |line: &&GresLine| line.count.is_some() || !is_detected;
    for line in conf.lines.iter().filter(counts).filter(|line| line.is_for(&node.config.name)) {
        let resource = resources.iter_mut().find(|resource| resource.name == line.name);
        if let Some(resource) = resource {
            resource.lines.push(line);
        }
    }
    resources
}

impl<'a> Resource<'a> {
    /// The type of a line's units. A line without `Type` has that of slurm.conf, if this names only one.
    fn kind_of(&self, line: &'a GresLine) -> Option<&'a str> {
        let only = match self.declared.as_slice() {
            [only] => only.gres.kind.as_deref(),
            _ => None,
        };
        line.kind.as_deref().or(only)
    }

    fn units(&self, config: &NodeConfig) -> Vec<NodeGres> {
        let mut entries: Vec<NodeGres> = if self.lines.is_empty() {
            self.declared.iter().map(|declared| declared_units(declared)).collect()
        } else {
            self.lines.iter().map(|line| self.line_units(line, config)).collect()
        };
        number_through(&mut entries);
        entries
    }

    fn line_units(&self, line: &'a GresLine, config: &NodeConfig) -> NodeGres {
        NodeGres {
            no_consume: self.declared.iter().any(|declared| declared.no_consume),
            ..line_units(line, self.name, self.kind_of(line), config)
        }
    }
}

fn line_units(line: &GresLine, name: &str, kind: Option<&str>, config: &NodeConfig) -> NodeGres {
    NodeGres {
        files: line.files.clone(),
        links: line.links.clone(),
        cores: line.cores.as_ref().map(|cores| cpus_of_cores(cores, config)),
        ..NodeGres::plain(name, kind, line.units())
    }
}

fn declared_units(declared: &DeclaredGres) -> NodeGres {
    let gres = &declared.gres;
    NodeGres {
        no_consume: declared.no_consume,
        ..NodeGres::plain(&gres.name, gres.kind.as_deref(), gres.count)
    }
}

/// Gives each entry the index of its first unit: the units before it are those of the entries before it.
fn number_through(entries: &mut [NodeGres]) {
    let mut next: u64 = 0;
    for entry in entries {
        entry.first_index = u32::try_from(next).unwrap_or(u32::MAX);
        next = next.saturating_add(entry.count);
    }
}

fn core_count(config: &NodeConfig) -> u32 {
    config.sockets.saturating_mul(config.cores_per_socket)
}

/// The CPUs of a node's cores. Cores that it does not have are refused elsewhere, and left out here.
fn cpus_of_cores(cores: &CpuSet, config: &NodeConfig) -> CpuSet {
    let each = (config.cpus / core_count(config).max(1)).max(1);
    let cpus = cores.iter().flat_map(|core| {
        let first = core.saturating_mul(each);
        first..first.saturating_add(each)
    });
    cpus.filter(|cpu| *cpu < config.cpus).collect()
}
