//! Slurm's configuration files, read into types: slurm.conf, gres.conf, cgroup.conf.
//!
//! The road of a value: `lines` gives `Key=Value` pairs with their places; `record` looks each key
//! up in a table (`global_keys`, `record_keys`) and parses the value by the kind it has there; the
//! files' own modules turn records into types and check what must hold between them. All errors are
//! collected, not only the first.

pub mod backfill;
pub mod cgroup_conf;
pub mod choices;
pub mod container_conf;
pub mod error;
pub mod files;
pub mod globals;
pub mod gres_conf;
pub mod node_conf;
pub mod partition_conf;
pub mod preemption;
pub mod slurm_conf;
pub mod topology_conf;

pub mod keys;
pub mod value;

mod global_keys;
mod lines;
mod node_gres;
mod node_shape;
mod record;
mod record_keys;

use std::io;
use std::path::Path;

pub use cgroup_conf::CgroupConf;
pub use error::{ConfError, Notice, NoticeKind, Place};
pub use files::{Files, MemoryFiles, RealFiles};
pub use globals::Globals;
pub use gres_conf::GresConf;
pub use node_conf::NodeConf;
pub use partition_conf::PartitionConf;
pub use slurm_conf::SlurmConf;

use error::Findings;
use lines::{Line, read_lines};

/// A folder's configuration, checked as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Conf {
    /// The nodes' `gres` are complete: slurm.conf's counts with gres.conf's devices.
    pub slurm: SlurmConf,
    pub gres: GresConf,
    pub cgroup: CgroupConf,
    /// job_container.conf, where slurm.conf wants it.
    pub private: container_conf::Private,
    /// topology.conf, where `TopologyPlugin` asks for it.
    pub topology: Option<model::topology::Topology>,
    pub notices: Vec<Notice>,
}

/// Reads `dir`/slurm.conf, and gres.conf and cgroup.conf where they are. Answers with every error
/// found if there is any.
pub fn load_dir(files: &dyn Files, dir: &Path) -> Result<Conf, Vec<ConfError>> {
    let mut findings = Findings::default();
    let slurm_lines = lines_of(files, &dir.join("slurm.conf"), Presence::Required, &mut findings);
    let gres_lines = lines_of(files, &dir.join("gres.conf"), Presence::Optional, &mut findings);
    let cgroup_lines = lines_of(files, &dir.join("cgroup.conf"), Presence::Optional, &mut findings);

    let slurm_lines = slurm_lines.unwrap_or_default();
    let mut slurm = SlurmConf::read(&slurm_lines, &mut findings);
    let private = private_folders(files, dir, &slurm_lines, &slurm.nodes, &mut findings);
    let gres = GresConf::read(&gres_lines.unwrap_or_default(), &mut findings);
    node_gres::merge(&gres, &mut slurm.nodes, &mut findings);
    let mut cgroup = match &cgroup_lines {
        Some(lines) => CgroupConf::read(lines, &mut findings),
        None => CgroupConf::everything(),
    };
    let names_plugin = |lines: &Vec<Line>| {
        lines.iter().flatten().any(|pair| pair.key.eq_ignore_ascii_case("CgroupPlugin"))
    };
    // Slurm has the key in cgroup.conf, so there it wins.
    if let Some(plugin) = slurm.globals.launch.cgroup_plugin
        && !cgroup_lines.as_ref().is_some_and(names_plugin)
    {
        cgroup.plugin = plugin;
    }
    let topology = topology_of(files, dir, &slurm, &mut findings);
    if findings.errors.is_empty() {
        Ok(Conf { slurm, gres, cgroup, private, topology, notices: findings.notices })
    } else {
        Err(findings.errors)
    }
}

/// `JobContainerType=job_container/tmpfs` needs its own file, with a `BasePath` for every node.
fn private_folders(
    files: &dyn Files,
    dir: &Path,
    slurm: &[Line],
    nodes: &[NodeConf],
    findings: &mut Findings,
) -> container_conf::Private {
    let none = container_conf::Private::default();
    let key = |pair: &&lines::Pair| pair.key.eq_ignore_ascii_case("JobContainerType");
    let Some(wanted) = slurm.iter().flatten().find(key) else { return none };
    match wanted.value.to_ascii_lowercase().as_str() {
        "job_container/tmpfs" => {}
        "job_container/none" | "(null)" | "" => return none,
        _ => {
            let expected = "expected job_container/tmpfs or job_container/none".to_owned();
            findings.wrong(&wanted.place, "JobContainerType", &wanted.value, expected);
            return none;
        }
    }
    let path = dir.join("job_container.conf");
    let Some(lines) = lines_of(files, &path, Presence::Required, findings) else { return none };
    let errors = findings.errors.len();
    let private = container_conf::read(&lines, findings);
    let names = nodes.iter().map(|node| node.config.name.as_str());
    if let (Some(missed), true) = (private.missing(names), findings.errors.len() == errors) {
        let expected = format!("expected a BasePath in job_container.conf{missed}");
        findings.wrong(&wanted.place, "JobContainerType", &wanted.value, expected);
    }
    private
}

fn topology_of(
    files: &dyn Files,
    dir: &Path,
    slurm: &SlurmConf,
    findings: &mut Findings,
) -> Option<model::topology::Topology> {
    let scheduling = &slurm.globals.scheduling;
    let word = &scheduling.topology_plugin;
    let Some(plugin) = topology_conf::Plugin::from_word(word) else {
        if let Some(raw) = slurm.raw.get("TopologyPlugin") {
            let expected = "expected topology/tree, topology/block or topology/default";
            findings.wrong(&raw.place, "TopologyPlugin", word, expected);
        }
        return None;
    };
    if plugin == topology_conf::Plugin::Flat {
        return None;
    }
    let lines = lines_of(files, &dir.join("topology.conf"), Presence::Required, findings)?;
    let nodes = slurm.nodes.iter().map(|node| node.config.name.as_str()).collect();
    let optional = scheduling.topology_parameters.has("TopoOptional");
    topology_conf::read(&lines, plugin, optional, &nodes, findings)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// None where the file is not there or cannot be read.
fn lines_of(
    files: &dyn Files,
    path: &Path,
    presence: Presence,
    findings: &mut Findings,
) -> Option<Vec<Line>> {
    match files.read(path) {
        Ok(text) => Some(read_lines(files, path, &text, findings)),
        Err(e) if e.kind() == io::ErrorKind::NotFound && presence == Presence::Optional => None,
        Err(e) => {
            let file = path.to_string_lossy().into_owned();
            findings.errors.push(ConfError::Unreadable { file, reason: e.to_string() });
            None
        }
    }
}

#[cfg(test)]
mod tests;
