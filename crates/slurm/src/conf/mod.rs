//! The configuration of a cluster: slurm.conf, gres.conf and cgroup.conf as the manual pages of Slurm 22.05
//! describe them, and job_container.conf and topology.conf where slurm.conf asks for them.
//!
//! - `text`: the files, and their text as lines of `Key=Value` pairs.
//! - `keys`: the tables of keys, and the record that pairs become when they are checked against a table.
//! - `slurm_conf`, `gres_conf`, `cgroup_conf`, `container_conf`, `topology_conf`: one file each, from records
//!   to the typed configuration, with the rules that join several keys.
//! - `node_line`, `partition_line`: a node's or a partition's line outside these files.
//! - `error`: every error and notice. Reading goes on after an error, so that all are reported at once.

pub mod cgroup_conf;
pub mod container_conf;
pub mod error;
pub mod gres_conf;
pub mod keys;
pub mod node_line;
pub mod partition_line;
#[doc(hidden)]
pub mod samples;
pub mod slurm_conf;
mod text;
pub mod topology_conf;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use model::topology::Topology;

pub use cgroup_conf::CgroupConf;
use container_conf::PrivateFolderConf;
use error::Findings;
pub use error::{ConfError, ConfLocation, Notice, NoticeKind};
pub use gres_conf::GresConf;
pub use slurm_conf::SlurmConf;
pub use slurm_conf::globals::Globals;
pub use slurm_conf::node_conf::NodeConf;
pub use slurm_conf::partition_conf::PartitionConf;
pub use text::files::{Files, MemoryFiles, RealFiles};
use text::lines::{self, ConfLine, Pair};
use topology_conf::TopologyPlugin;

#[derive(Debug, Clone, PartialEq)]
pub struct Conf {
    /// The `gres` of its nodes' `config` are complete.
    pub slurm: SlurmConf,
    pub gres: GresConf,
    pub cgroup: CgroupConf,
    pub private: PrivateFolderConf,
    pub topology: Option<Topology>,
    pub notices: Vec<Notice>,
}

/// Reads the configuration in a folder. A refused one gives every error, in the order found.
pub fn load_dir(files: &dyn Files, dir: &Path) -> Result<Conf, Vec<ConfError>> {
    let mut folder = Folder { files, dir, findings: Findings::default() };
    let slurm_lines = folder.lines("slurm.conf").unwrap_or_default();
    let gres_lines = folder.optional_lines("gres.conf").unwrap_or_default();
    let cgroup_lines = folder.optional_lines("cgroup.conf");

    let mut slurm = SlurmConf::read(&slurm_lines, &mut folder.findings);
    let private = folder.private_folders(&slurm_lines, &slurm);
    let gres = GresConf::read(&gres_lines, &mut folder.findings);
    gres_conf::node_gres::fill(&gres, &mut slurm.nodes, &mut folder.findings);
    let cgroup = cgroup(cgroup_lines.as_deref(), &slurm, &mut folder.findings);
    check_memory_kill(&slurm, &cgroup, &mut folder.findings);
    let topology = folder.topology(&slurm);

    let Findings { errors, notices } = folder.findings;
    if errors.is_empty() {
        Ok(Conf { slurm, gres, cgroup, private, topology, notices })
    } else {
        Err(errors)
    }
}

/// The lines of a gres.conf that a machine has itself: what its devices are. slurm.conf says what of it is used.
pub fn load_machine_gres(files: &dyn Files, dir: &Path) -> Result<GresConf, Vec<ConfError>> {
    let mut folder = Folder { files, dir, findings: Findings::default() };
    let lines = folder.lines("gres.conf").unwrap_or_default();
    let gres = GresConf::read(&lines, &mut folder.findings);
    if folder.findings.errors.is_empty() { Ok(gres) } else { Err(folder.findings.errors) }
}

/// The folder that is being read, and what was found so far.
struct Folder<'a> {
    files: &'a dyn Files,
    dir: &'a Path,
    findings: Findings,
}

impl Folder<'_> {
    /// The lines of a file that must be there; `None` if it cannot be read, which is an error.
    fn lines(&mut self, name: &str) -> Option<Vec<ConfLine>> {
        self.read(name, false)
    }

    /// The lines of a file; `None` if it is absent or cannot be read, of which only the second is an error.
    fn optional_lines(&mut self, name: &str) -> Option<Vec<ConfLine>> {
        self.read(name, true)
    }

    fn read(&mut self, name: &str, may_be_absent: bool) -> Option<Vec<ConfLine>> {
        let path = self.dir.join(name);
        match self.files.read(&path) {
            Ok(text) => Some(lines::read_lines(self.files, &path, &text, &mut self.findings)),
            Err(e) => {
                if !(may_be_absent && e.kind() == ErrorKind::NotFound) {
                    let (file, reason) = (path.display().to_string(), e.to_string());
                    self.findings.errors.push(ConfError::Unreadable { file, reason });
                }
                None
            }
        }
    }

    /// job_container.conf, where `JobContainerType` asks for it: every node must be in it.
    fn private_folders(
        &mut self,
        slurm_lines: &[ConfLine],
        slurm: &SlurmConf,
    ) -> PrivateFolderConf {
        const KEY: &str = "JobContainerType";
        let Some(pair) = first_pair(slurm_lines, KEY) else { return PrivateFolderConf::default() };
        match pair.value.to_ascii_lowercase().as_str() {
            "" | "(null)" | "job_container/none" => return PrivateFolderConf::default(),
            "job_container/tmpfs" => {}
            // This plugin is for Cray systems only.
            "job_container/cncu" => {
                let key = format!("{KEY}={}", pair.value);
                self.findings.notice(&pair.place, key, NoticeKind::NoEffect);
                return PrivateFolderConf::default();
            }
            _ => {
                let expected = "expected job_container/tmpfs or job_container/none";
                self.findings.wrong(&pair.place, KEY, &pair.value, expected);
                return PrivateFolderConf::default();
            }
        }
        let Some(lines) = self.lines("job_container.conf") else {
            return PrivateFolderConf::default();
        };
        let errors_before = self.findings.errors.len();
        let private = container_conf::read(&lines, &mut self.findings);
        if self.findings.errors.len() == errors_before
            && let Some(missing) = private.missing(node_names(slurm))
        {
            let expected = format!("expected a BasePath in job_container.conf{missing}");
            self.findings.wrong(&pair.place, KEY, &pair.value, expected);
        }
        private
    }

    /// topology.conf, where `TopologyPlugin` asks for it.
    fn topology(&mut self, slurm: &SlurmConf) -> Option<Topology> {
        const KEY: &str = "TopologyPlugin";
        let scheduling = &slurm.globals.scheduling;
        let Some(plugin) = TopologyPlugin::from_word(&scheduling.topology_plugin) else {
            if let Some(raw) = slurm.raw.get(KEY) {
                let expected = "expected topology/tree, topology/block or topology/default";
                self.findings.wrong(&raw.place, KEY, &raw.text, expected);
            }
            return None;
        };
        if plugin == TopologyPlugin::Flat {
            return None;
        }
        let lines = self.lines("topology.conf")?;
        let optional = scheduling.topology_parameters.has("TopoOptional");
        let names: BTreeSet<&str> = node_names(slurm).collect();
        topology_conf::read(&lines, plugin, optional, &names, &mut self.findings)
    }
}

/// cgroup.conf, or what holds without it. Its plugin may be set in slurm.conf instead.
fn cgroup(lines: Option<&[ConfLine]>, slurm: &SlurmConf, findings: &mut Findings) -> CgroupConf {
    let mut cgroup =
        lines.map_or_else(CgroupConf::without_file, |lines| CgroupConf::read(lines, findings));
    let own = lines.and_then(|lines| first_pair(lines, "CgroupPlugin"));
    if let Some(plugin) = slurm.globals.launch.cgroup_plugin.filter(|_| own.is_none()) {
        cgroup.plugin = plugin;
    }
    cgroup
}

fn first_pair<'l>(lines: &'l [ConfLine], key: &str) -> Option<&'l Pair> {
    lines.iter().flatten().find(|pair| pair.key.eq_ignore_ascii_case(key))
}

fn node_names(slurm: &SlurmConf) -> impl Iterator<Item = &str> {
    slurm.nodes.iter().map(|node| node.config.name.as_str())
}

/// `OverMemoryKill` has Slurm hold jobs to their memory by its samples. Control groups do it here, unless the site has them off.
fn check_memory_kill(slurm: &SlurmConf, cgroup: &CgroupConf, findings: &mut Findings) {
    const KEY: &str = "JobAcctGatherParams";
    let Some(raw) = slurm.raw.get(KEY).filter(|_| !cgroup.constrain_ram) else { return };
    if raw.text.split(',').any(|word| word.trim().eq_ignore_ascii_case("OverMemoryKill")) {
        let expected = "expected ConstrainRAMSpace=yes in cgroup.conf, which is what holds jobs to their memory here";
        findings.wrong(&raw.place, KEY, &raw.text, expected);
    }
}
