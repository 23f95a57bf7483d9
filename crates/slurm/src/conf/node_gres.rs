//! A node's resources put together: how many, from slurm.conf; which devices, from gres.conf.

use std::collections::{BTreeMap, BTreeSet};

use model::cpuset::CpuSet;
use model::gres::DeclaredGres;
use model::node::{NodeConfig, NodeGres};

use super::choices::{AutoDetect, GresFlag};
use super::error::{Findings, NoticeKind, Place};
use super::gres_conf::{GresConf, GresLine};
use super::node_conf::NodeConf;

/// Fills in `config.gres` of every node. The two files must agree on every count.
pub fn merge(gres: &GresConf, nodes: &mut [NodeConf], findings: &mut Findings) {
    notice_idle_lines(gres, nodes, findings);
    let mut told = BTreeSet::new();
    for node in nodes {
        let lines: Vec<&GresLine> = applicable(gres, node);
        let mut units = Vec::new();
        for name in names_of(&node.gres) {
            let declared: Vec<&DeclaredGres> =
                node.gres.iter().filter(|d| d.gres.name == name).collect();
            let listed: Vec<&GresLine> =
                lines.iter().copied().filter(|line| line.name == name).collect();
            if listed.is_empty() {
                units.extend(counted(&declared));
                continue;
            }
            let listed = with_kinds(&listed, &declared);
            if let Some((line, expected)) = disagreement(node, &listed, &declared)
                && told.insert((line.place.clone(), node.place.clone()))
            {
                tell(line, expected, findings);
            }
            let no_consume = declared.iter().any(|d| d.no_consume);
            let devices = listed.iter().map(|(line, kind)| NodeGres {
                no_consume,
                ..device_units(line, kind, &node.config)
            });
            units.extend(with_indices(devices.collect()));
        }
        let name = &node.config.name;
        let own = gres.lines.iter().filter(|line| line.applies_to(name));
        let variables = gpu_variables(own, gres.auto_detect(name));
        for unit in units.iter_mut().filter(|unit| unit.name == "gpu") {
            unit.variables.clone_from(&variables);
        }
        share_out(&mut units);
        node.config.gres = units;
    }
}

/// What each flag sets.
const VARIABLES: [(GresFlag, &str); 4] = [
    (GresFlag::NvidiaGpuEnv, "CUDA_VISIBLE_DEVICES"),
    (GresFlag::AmdGpuEnv, "ROCR_VISIBLE_DEVICES"),
    (GresFlag::IntelGpuEnv, "ZE_AFFINITY_MASK"),
    (GresFlag::OpenClEnv, "GPU_DEVICE_ORDINAL"),
];

/// The variables that a node's `Flags` name, or those of the maker whose devices are detected; none: the usual.
fn gpu_variables<'a>(
    lines: impl Iterator<Item = &'a GresLine>,
    detect: AutoDetect,
) -> Option<Vec<String>> {
    let of_gpus = lines.filter(|line| line.name == "gpu");
    let flags: Vec<GresFlag> = of_gpus.flat_map(|line| line.flags.iter().copied()).collect();
    let named: Vec<String> = VARIABLES
        .iter()
        .filter(|(flag, _)| flags.contains(flag))
        .map(|(_, name)| (*name).to_owned())
        .collect();
    if !named.is_empty() || flags.contains(&GresFlag::NoGpuEnv) {
        return Some(named);
    }
    match detect {
        AutoDetect::Nvml | AutoDetect::Nvidia => Some(vec![VARIABLES[0].1.to_owned()]),
        AutoDetect::Rsmi => Some(vec![VARIABLES[1].1.to_owned()]),
        AutoDetect::OneApi => Some(vec![VARIABLES[2].1.to_owned()]),
        AutoDetect::Off | AutoDetect::Full => None,
    }
}

/// What is called so is shares of GPUs.
const SHARD: &str = "shard";

struct Gpu {
    index: u32,
    file: Option<String>,
    kind: Option<String>,
    cores: Option<CpuSet>,
}

/// Shares become lines of one GPU each: that whose device file they name, or of all GPUs as many.
fn share_out(units: &mut Vec<NodeGres>) {
    let gpus: Vec<Gpu> = units
        .iter()
        .filter(|line| line.name == "gpu")
        .flat_map(|line| {
            let index = line.first_index..;
            let files = line.files.iter().cloned().map(Some).chain(std::iter::repeat(None));
            let each = index.zip(files).take(line.count as usize);
            each.map(|(index, file)| Gpu {
                index,
                file,
                kind: line.kind.clone(),
                cores: line.cores.clone(),
            })
        })
        .collect();
    let (shards, mut others): (Vec<NodeGres>, Vec<NodeGres>) =
        std::mem::take(units).into_iter().partition(|line| line.name == SHARD);
    let mut shared = Vec::new();
    for line in shards {
        let named = |gpu: &&Gpu| {
            line.files.is_empty() || gpu.file.as_ref().is_some_and(|file| line.files.contains(file))
        };
        let on: Vec<&Gpu> = gpus.iter().filter(named).collect();
        if on.is_empty() {
            others.push(line);
            continue;
        }
        let (each, more) = (line.count / on.len() as u64, line.count % on.len() as u64);
        for (nth, gpu) in on.into_iter().enumerate() {
            shared.push(NodeGres {
                count: each + u64::from((nth as u64) < more),
                kind: line.kind.clone().or(gpu.kind.clone()),
                files: gpu.file.iter().cloned().collect(),
                cores: gpu.cores.clone(),
                share_of: Some(gpu.index),
                ..line.clone()
            });
        }
    }
    others.extend(with_indices(shared));
    *units = others;
}

/// Lines for this node that say anything of number or device; where devices are detected, a bare
/// `Name=gpu` says nothing that slurm.conf does not.
fn applicable<'a>(gres: &'a GresConf, node: &NodeConf) -> Vec<&'a GresLine> {
    let detected = gres.auto_detect(&node.config.name) != AutoDetect::Off;
    gres.lines
        .iter()
        .filter(|line| line.applies_to(&node.config.name))
        .filter(|line| line.count.is_some() || !detected)
        .collect()
}

fn names_of(declared: &[DeclaredGres]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let names = declared.iter().map(|d| &d.gres.name);
    names.filter(|name| seen.insert(name.as_str())).cloned().collect()
}

/// A resource that gres.conf does not mention is a count.
fn counted(declared: &[&DeclaredGres]) -> Vec<NodeGres> {
    let units = declared.iter().map(|declared| {
        let gres = &declared.gres;
        let no_consume = declared.no_consume;
        NodeGres { no_consume, ..unit(&gres.name, gres.kind.clone(), gres.count) }
    });
    with_indices(units.collect())
}

fn unit(name: &str, kind: Option<String>, count: u64) -> NodeGres {
    NodeGres {
        name: name.to_owned(),
        kind,
        count,
        first_index: 0,
        files: Vec::new(),
        device_names: Vec::new(),
        links: Vec::new(),
        cores: None,
        device_memory: None,
        variables: None,
        no_consume: false,
        share_of: None,
    }
}

/// A line without `Type` has the one kind that slurm.conf gives the node, where it is one.
fn with_kinds<'a>(
    lines: &[&'a GresLine],
    declared: &[&DeclaredGres],
) -> Vec<(&'a GresLine, Option<String>)> {
    let only = match declared {
        [one] => one.gres.kind.clone(),
        _ => None,
    };
    lines.iter().map(|line| (*line, line.kind.clone().or(only.clone()))).collect()
}

/// A line without `Count` and `File` is one unit.
fn units_of(line: &GresLine) -> u64 {
    line.count.unwrap_or(1)
}

/// The first line that slurm.conf contradicts, and how.
fn disagreement<'a>(
    node: &NodeConf,
    listed: &[(&'a GresLine, Option<String>)],
    declared: &[&DeclaredGres],
) -> Option<(&'a GresLine, String)> {
    let name = &node.config.name;
    let said = format!("Gres={} at {}", node.gres_text.as_deref().unwrap_or(""), node.place);
    let kinds: BTreeMap<Option<&str>, u64> =
        declared.iter().fold(BTreeMap::new(), |mut sums, d| {
            *sums.entry(d.gres.kind.as_deref()).or_default() += d.gres.count;
            sums
        });
    // Slurm.conf without a kind counts units of every kind.
    if !kinds.contains_key(&None)
        && let Some((line, kind)) =
            listed.iter().find(|(_, kind)| !kinds.contains_key(&kind.as_deref()))
    {
        let kind = kind.as_deref().unwrap_or("(none)");
        return Some((line, format!("type {kind} is not that of {name:?}: {said}")));
    }
    for (kind, count) in kinds {
        let same = |line_kind: &Option<String>| kind.is_none() || line_kind.as_deref() == kind;
        let lines: Vec<&(&GresLine, Option<String>)> =
            listed.iter().filter(|(_, line_kind)| same(line_kind)).collect();
        let sum = lines.iter().fold(0u64, |sum, (line, _)| sum.saturating_add(units_of(line)));
        if sum != count {
            let line = lines.first().map_or(listed[0].0, |(line, _)| line);
            return Some((line, format!("makes {sum} on {name:?}, but {count} by {said}")));
        }
    }
    let cores = node.config.sockets * node.config.cores_per_socket;
    let beyond = |line: &GresLine| {
        line.cores.as_ref().is_some_and(|set| !set.is_subset(&CpuSet::first(cores)))
    };
    let (line, _) = listed.iter().find(|(line, _)| beyond(line))?;
    Some((line, format!("Cores name one that {name:?} does not have; it has {cores}")))
}

fn tell(line: &GresLine, expected: String, findings: &mut Findings) {
    let text = match &line.kind {
        Some(kind) => format!("{}:{kind}:{}", line.name, units_of(line)),
        None => format!("{}:{}", line.name, units_of(line)),
    };
    findings.wrong(&line.place, "Name", text, expected);
}

fn device_units(line: &GresLine, kind: &Option<String>, node: &NodeConfig) -> NodeGres {
    let cpus_per_core = (node.cpus / (node.sockets * node.cores_per_socket)).max(1);
    let cpus = |cores: &CpuSet| {
        let cpus = cores.iter().flat_map(|core| core * cpus_per_core..(core + 1) * cpus_per_core);
        cpus.filter(|cpu| *cpu < node.cpus).collect()
    };
    NodeGres {
        files: line.files.clone(),
        cores: line.cores.as_ref().map(cpus),
        links: line.links.clone(),
        ..unit(&line.name, kind.clone(), units_of(line))
    }
}

/// Numbers the units of one resource through, in the order of their lines.
fn with_indices(mut units: Vec<NodeGres>) -> Vec<NodeGres> {
    let mut next = 0u32;
    for unit in &mut units {
        unit.first_index = next;
        next = next.saturating_add(u32::try_from(unit.count).unwrap_or(u32::MAX));
    }
    units
}

/// Says of a line that it does nothing, or which node that it names it does nothing for: the first.
fn notice_idle_lines(gres: &GresConf, nodes: &[NodeConf], findings: &mut Findings) {
    let has: BTreeSet<(&str, &str)> = nodes
        .iter()
        .flat_map(|node| {
            node.gres.iter().map(|d| (node.config.name.as_str(), d.gres.name.as_str()))
        })
        .collect();
    for line in &gres.lines {
        if line.nodes.is_none() && !has.iter().any(|(_, name)| *name == line.name) {
            findings.notice(&line.place, &line.name, NoticeKind::NoSuchResource);
        }
        let idle = line.nodes.iter().flatten().find(|node| !has.contains(&(node, &line.name)));
        if let Some(node) = idle {
            let place: &Place = &line.place;
            findings.notice(place, &line.name, NoticeKind::NoSuchNode { node: node.clone() });
        }
    }
}
