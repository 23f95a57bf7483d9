//! Whether gres.conf and slurm.conf say the same of a resource: its types, its counts, and its cores.

use std::collections::{BTreeMap, BTreeSet};

use super::{Resource, core_count};
use crate::conf::error::{ConfLocation, Findings, NoticeKind};
use crate::conf::gres_conf::{GPUS_PER_NODE_MAX, GresLine};
use crate::conf::slurm_conf::node_conf::NodeConf;

/// Checks every node and tells what is wrong once for a range of nodes, which are alike.
#[derive(Default)]
pub struct AgreementCheck {
    /// The pairs of lines whose disagreement was told: in gres.conf and in slurm.conf.
    told: BTreeSet<(ConfLocation, ConfLocation)>,
    /// The lines of slurm.conf that were refused for their number of GPUs.
    too_many_gpus: BTreeSet<ConfLocation>,
}

impl AgreementCheck {
    /// Lines for all nodes are those of whichever machine reads them: they are left out of a node that has something else.
    pub fn check(&mut self, resource: &mut Resource, node: &NodeConf, findings: &mut Findings) {
        if has_too_many_gpus(resource) {
            if self.too_many_gpus.insert(node.place.clone()) {
                let text = node.gres_text.clone().unwrap_or_default();
                let expected = format!("expected at most {GPUS_PER_NODE_MAX} GPUs on a node");
                findings.wrong(&node.place, "Gres", text, expected);
            }
            return;
        }
        let Some((line, why)) = disagreement(resource, node) else { return };
        if resource.lines.iter().any(|line| line.nodes.is_none()) {
            if self.told.insert((line.place.clone(), node.place.clone())) {
                let how = format!("{why}; without NodeName it is not for that node");
                findings.notice(&line.place, &line.name, NoticeKind::Corrected { how });
            }
            resource.lines.retain(|line| line.nodes.is_some());
            return self.check(resource, node, findings);
        }
        if self.told.insert((line.place.clone(), node.place.clone())) {
            let kind = line.kind.as_ref().map(|kind| format!(":{kind}")).unwrap_or_default();
            let value = format!("{}{kind}:{}", line.name, line.units());
            findings.wrong(&line.place, "Name", value, why);
        }
    }
}

fn has_too_many_gpus(resource: &Resource) -> bool {
    let counts = resource.declared.iter().map(|declared| declared.gres.count);
    resource.name == "gpu" && counts.fold(0, u64::saturating_add) > GPUS_PER_NODE_MAX
}

/// The first line that contradicts slurm.conf, and how.
fn disagreement<'a>(resource: &Resource<'a>, node: &NodeConf) -> Option<(&'a GresLine, String)> {
    type_disagreement(resource, node)
        .or_else(|| count_disagreement(resource, node))
        .or_else(|| core_disagreement(resource, node))
}

/// Where all types are declared, a line must have one of them.
fn type_disagreement<'a>(
    resource: &Resource<'a>,
    node: &NodeConf,
) -> Option<(&'a GresLine, String)> {
    let kinds: Option<Vec<&str>> =
        resource.declared.iter().map(|declared| declared.gres.kind.as_deref()).collect();
    let kinds = kinds?;
    let is_other =
        |line: &&&GresLine| resource.kind_of(line).is_none_or(|kind| !kinds.contains(&kind));
    let line = *resource.lines.iter().find(is_other)?;
    let kind = resource.kind_of(line).unwrap_or("(none)");
    let why = format!("type {kind} is not that of {:?}: {}", node.config.name, declaration(node));
    Some((line, why))
}

/// The lines of each type must make as many units as are declared. An untyped count is one of units of
/// any type.
fn count_disagreement<'a>(
    resource: &Resource<'a>,
    node: &NodeConf,
) -> Option<(&'a GresLine, String)> {
    let first = *resource.lines.first()?;
    let mut declared: BTreeMap<Option<&str>, u64> = BTreeMap::new();
    for gres in resource.declared.iter().map(|declared| &declared.gres) {
        let count = declared.entry(gres.kind.as_deref()).or_default();
        *count = count.saturating_add(gres.count);
    }
    for (kind, count) in declared {
        let is_of_kind = |line: &&&GresLine| kind.is_none() || resource.kind_of(line) == kind;
        let units = resource.lines.iter().filter(is_of_kind).map(|line| line.units());
        let sum = units.fold(0, u64::saturating_add);
        if sum != count {
            let line = resource.lines.iter().find(is_of_kind).map_or(first, |line| *line);
            let (name, declaration) = (&node.config.name, declaration(node));
            return Some((line, format!("makes {sum} on {name:?}, but {count} by {declaration}")));
        }
    }
    None
}

fn core_disagreement<'a>(
    resource: &Resource<'a>,
    node: &NodeConf,
) -> Option<(&'a GresLine, String)> {
    let count = core_count(&node.config);
    let is_beyond = |line: &&&GresLine| {
        line.cores.as_ref().is_some_and(|cores| cores.iter().any(|core| core >= count))
    };
    let line = *resource.lines.iter().find(is_beyond)?;
    let name = &node.config.name;
    Some((line, format!("Cores name one that {name:?} does not have; it has {count}")))
}

/// Where slurm.conf says what the node has.
fn declaration(node: &NodeConf) -> String {
    format!("Gres={} at {}", node.gres_text.as_deref().unwrap_or_default(), node.place)
}
