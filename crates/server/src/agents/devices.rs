//! Each node's devices: those of the configuration, with the files that its agent found for them.

use crate::shared::Volatile;
use cluster::{ClusterConfig, Node};
use model::node::NodeGres;
use slurm::environment::gpu::{DeviceNumbering, GpuVariables, GpuView};
use std::collections::BTreeSet;

const GPU: &str = "gpu";
/// The prefix of a node's line that says why devices are not restricted there.
const NOT_RESTRICTED: &str = "devices:";
const NO_GROUPS: &str = "disabled";

/// A node's generic resources. Those that are declared without files get the files that were found, or that the machine's
/// own gres.conf names, where the counts fit.
pub fn of_node(volatile: &Volatile, node: &Node) -> Vec<NodeGres> {
    let detected = volatile.detected.read().expect("no panic while writing what was found");
    let found = detected.get(&node.config.name).filter(|_| !node.config.declared);
    let mut lines = node.config.gres.clone();
    if let Some(found) = found {
        let names: BTreeSet<String> = lines.iter().map(|line| line.name.clone()).collect();
        names.iter().for_each(|name| fill_files(&mut lines, found, name));
        lines.iter_mut().for_each(|line| line.take_found(found));
    }
    lines
}

/// Gives the lines of one resource the files that were found. Nothing changes if a line has files already, or if the
/// devices found are not those declared.
fn fill_files(lines: &mut [NodeGres], found: &[NodeGres], name: &str) {
    // The units that were found: the kind of each in lower case, and its files.
    let units = found.iter().filter(|line| line.name == name).flat_map(|line| {
        let kind = line.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
        line.files.iter().map(move |files| (kind.clone(), files))
    });
    let mut left: Vec<(String, &String)> = units.collect();
    let mut filled = Vec::new();
    for line in lines.iter().filter(|line| line.name == name) {
        let wanted = line.kind.as_deref().unwrap_or_default().to_ascii_lowercase();
        let mut files = Vec::new();
        left.retain(|(kind, file)| {
            let takes = (files.len() as u64) < line.count && kind.contains(&wanted);
            if takes {
                files.push((*file).clone());
            }
            !takes
        });
        if !line.files.is_empty() || files.len() as u64 != line.count {
            return;
        }
        filled.push(files);
    }
    if left.is_empty() {
        let own = lines.iter_mut().filter(|line| line.name == name);
        own.zip(filled).for_each(|(line, files)| line.files = files);
    }
}

/// The node's GPUs as a process of a job sees them.
pub fn view(config: &ClusterConfig, node: &Node, gres: &[NodeGres]) -> GpuView {
    let gpus = || gres.iter().filter(|line| line.name == GPU && line.count > 0);
    let able = !node.facts.not_enforced.iter().any(|line| line.starts_with(NOT_RESTRICTED));
    let constrained = config.limits.constrain_devices && config.cgroup_plugin != NO_GROUPS && able;
    let own = constrained && gpus().next().is_some() && gpus().all(|line| !line.files.is_empty());
    GpuView {
        numbering: if own { DeviceNumbering::Own } else { DeviceNumbering::Node },
        present: gpus().any(|line| !line.files.is_empty()),
        variables: GpuVariables::of(gres),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: Option<&str>, first_index: u32, count: u64, files: &[&str]) -> NodeGres {
        NodeGres {
            first_index,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..NodeGres::plain(GPU, kind, count)
        }
    }

    #[test]
    fn found_devices_give_declared_ones_their_files_where_counts_fit() {
        let found = [
            line(Some("nvidia_h200"), 0, 1, &["/dev/nvidia0"]),
            line(Some("tesla_t4"), 1, 1, &["/dev/nvidia1"]),
            line(Some("nvidia_h200"), 2, 1, &["/dev/nvidia2"]),
        ];
        let files = |declared: &[NodeGres]| -> Vec<String> {
            let mut lines = declared.to_vec();
            fill_files(&mut lines, &found, GPU);
            lines.into_iter().flat_map(|line| line.files).collect()
        };
        let text = |files: [&str; 3]| files.map(str::to_owned).to_vec();
        let all = text(["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia2"]);
        assert_eq!(files(&[line(None, 0, 3, &[])]), all);
        let by_kind = text(["/dev/nvidia1", "/dev/nvidia0", "/dev/nvidia2"]);
        assert_eq!(files(&[line(Some("T4"), 0, 1, &[]), line(Some("H200"), 1, 2, &[])]), by_kind);
        let none: [&str; 0] = [];
        assert_eq!(files(&[line(None, 0, 8, &[])]), none, "not so many");
        assert_eq!(files(&[line(None, 0, 2, &[])]), none, "one would be nobody's");
        let said = ["/dev/x", "/dev/y", "/dev/z"];
        assert_eq!(files(&[line(None, 0, 3, &said)]), said);
        // A line of a machine's own gres.conf may have several files, of another resource too.
        let fpga =
            |count, files: &[&str]| NodeGres { name: "fpga".into(), ..line(None, 0, count, files) };
        let mut lines = [line(None, 0, 1, &[]), fpga(2, &[])];
        fill_files(&mut lines, &[fpga(2, &["/dev/f0", "/dev/f1"])], "fpga");
        assert_eq!((lines[0].files.len(), lines[1].files.len()), (0, 2));
    }
}
