//! The variables that say which GPUs a job, a step and each of its tasks have.

use super::Environment;
use model::allocation::NodeShare;
use model::cpuset::CpuSet;
use model::node::NodeGres;
use std::collections::BTreeMap;

/// The variables by which GPU libraries find the devices that they may use.
pub(super) const VISIBLE_DEVICES: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", LEVEL_ZERO];
const LEVEL_ZERO: &str = "ZE_AFFINITY_MASK";
const CUDA: &str = VISIBLE_DEVICES[0];
const JOB_GPUS: &str = "SLURM_JOB_GPUS";
/// The folder of render nodes, by which devices of other makers than NVIDIA are opened.
const RENDER_NODES: &str = "/dev/dri/";
pub(super) const STEP_GPUS: &str = "SLURM_STEP_GPUS";
const GPUS_ON_NODE: &str = "SLURM_GPUS_ON_NODE";

/// The numbers by which a process knows its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceNumbering {
    /// The numbers of the node: every device can be seen.
    #[default]
    Node,
    /// From zero: only the job's own devices can be seen (`ConstrainDevices`).
    Own,
}

/// How the processes of a node see its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuView {
    pub numbering: DeviceNumbering,
    /// The node has GPUs. A process without one is given empty variables, so that it does not use them all.
    pub present: bool,
    pub variables: GpuVariables,
}

impl GpuView {
    pub(super) fn variables(self) -> impl Iterator<Item = &'static str> {
        VISIBLE_DEVICES
            .into_iter()
            .zip(self.variables.0)
            .filter_map(|(name, set)| set.then_some(name))
    }
}

/// Which of [`VISIBLE_DEVICES`] are set, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuVariables(pub(super) [bool; VISIBLE_DEVICES.len()]);

impl GpuVariables {
    /// The variables that a node's GRES lines name. Without any, all but `ZE_AFFINITY_MASK`, which is added when a device
    /// may be of the kind that reads it.
    pub fn of(lines: &[NodeGres]) -> GpuVariables {
        let gpus = || lines.iter().filter(|line| line.name == "gpu");
        let render = gpus().flat_map(|line| &line.files).any(|file| file.starts_with(RENDER_NODES));
        match gpus().find_map(|line| line.variables.as_ref()) {
            Some(named) => {
                GpuVariables(VISIBLE_DEVICES.map(|name| named.iter().any(|one| one == name)))
            }
            None => GpuVariables(VISIBLE_DEVICES.map(|name| render || name != LEVEL_ZERO)),
        }
    }
}

impl Default for GpuVariables {
    fn default() -> Self {
        GpuVariables::of(&[])
    }
}

/// Whether a variable says which GPUs a step has.
pub(super) fn is_step_gpu_variable(name: &str) -> bool {
    VISIBLE_DEVICES.contains(&name) || name == STEP_GPUS || name == GPUS_ON_NODE
}

/// Sets the GPUs of a node's share. `name` is `SLURM_JOB_GPUS` for the job, `SLURM_STEP_GPUS` for a step.
pub(super) fn set(env: &mut Environment, share: &NodeShare, view: GpuView, name: &str) {
    let count = share.gres_count("gpu");
    if count == 0 {
        if view.present {
            view.variables().for_each(|variable| env.set(variable, ""));
        }
        return;
    }
    let indices = gpu_indices(share);
    env.set(GPUS_ON_NODE, count);
    env.set(name, list(&indices));
    let visible = match view.numbering {
        DeviceNumbering::Node => list(&indices),
        DeviceNumbering::Own => list(&(0..indices.len() as u32).collect::<Vec<_>>()),
    };
    view.variables().for_each(|variable| env.set(variable, &visible));
}

pub(super) fn gpu_indices(share: &NodeShare) -> Vec<u32> {
    let of_gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
    let mut indices: Vec<u32> = of_gpus.flat_map(|gres| gres.indices.iter().copied()).collect();
    indices.sort_unstable();
    indices
}

pub(super) fn list(indices: &[u32]) -> String {
    indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The names of the devices that have one (slices of a GPU), by their numbers on the node.
pub type DeviceNames = BTreeMap<u32, String>;

pub fn device_names(lines: &[NodeGres]) -> DeviceNames {
    let of_gpus = lines.iter().filter(|line| line.name == "gpu");
    let each = of_gpus.flat_map(|line| (line.first_index..).zip(line.device_names.iter().cloned()));
    each.filter(|(_, name)| !name.is_empty()).collect()
}

/// Puts names in place of numbers: NVIDIA's libraries find a slice of a GPU only by its name.
pub fn use_device_names(env: &mut Environment, names: &DeviceNames) {
    let shown = env.get(CUDA).is_some_and(|list| !list.is_empty());
    let indices = env.get(STEP_GPUS).or_else(|| env.get(JOB_GPUS)).unwrap_or_default();
    if let Some(list) = named_list(indices, names).filter(|_| shown) {
        env.set(CUDA, list);
    }
}

/// [`use_device_names`] for the variables of one task.
pub(super) fn use_device_names_of_task(entries: &mut [String], names: &DeviceNames) {
    let value = |name: &str| {
        entries
            .iter()
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let list = value(STEP_GPUS).and_then(|indices| named_list(&indices, names));
    let cuda = entries.iter_mut().find(|entry| entry.split('=').next() == Some(CUDA));
    if let (Some(list), Some(entry)) = (list, cuda) {
        *entry = format!("{CUDA}={list}");
    }
}

/// The list with names in place of numbers; `None` when no device in it has a name.
fn named_list(indices: &str, names: &DeviceNames) -> Option<String> {
    let indices: Vec<u32> = indices.split(',').filter_map(|index| index.parse().ok()).collect();
    let known = indices.iter().any(|index| names.contains_key(index));
    let name = |index: &u32| names.get(index).cloned().unwrap_or_else(|| index.to_string());
    known.then(|| indices.iter().map(name).collect::<Vec<_>>().join(","))
}

/// The GPUs of a node that are near some of these CPUs, by their numbers there; all GPUs when none is known to be near.
pub fn gpus_near(lines: &[NodeGres], cpus: &CpuSet) -> Vec<u32> {
    let of_gpus = || lines.iter().filter(|line| line.name == "gpu");
    let units = |line: &NodeGres| line.first_index..line.first_index + line.count as u32;
    let close = of_gpus().filter(|line| line.cores.as_ref().is_none_or(|c| c.intersects(cpus)));
    let found: Vec<u32> = close.flat_map(units).collect();
    if found.is_empty() { of_gpus().flat_map(units).collect() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: GpuVariables = GpuVariables([true, true, true, false]);
    const OWN: GpuView =
        GpuView { numbering: DeviceNumbering::Own, present: true, variables: USUAL };

    #[test]
    fn gres_lines_choose_the_device_variables() {
        let line = |file: &str, variables: Option<&[&str]>| NodeGres {
            files: vec![file.into()],
            variables: variables.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
            ..NodeGres::plain("gpu", None, 1)
        };
        assert_eq!(GpuVariables::default(), USUAL);
        assert_eq!(GpuVariables::of(&[line("/dev/nvidia0", None)]), USUAL);
        assert_eq!(GpuVariables::of(&[line("/dev/dri/renderD128", None)]), GpuVariables([true; 4]));
        let amd = line("/dev/dri/renderD128", Some(&["ROCR_VISIBLE_DEVICES"]));
        assert_eq!(GpuVariables::of(&[amd]), GpuVariables([false, false, true, false]));
        assert_eq!(GpuVariables::of(&[line("/dev/nvidia0", Some(&[]))]), GpuVariables([false; 4]));
    }

    #[test]
    fn gpu_slices_are_listed_by_name() {
        let line = |first_index, names: &[&str]| NodeGres {
            first_index,
            device_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..NodeGres::plain("gpu", None, 2)
        };
        let names = device_names(&[line(0, &[]), line(2, &["MIG-a", "MIG-b"])]);
        let mut env = Environment::new();
        let entries =
            [(CUDA, "0,1"), ("GPU_DEVICE_ORDINAL", "0,1"), (JOB_GPUS, "0,1,2"), (STEP_GPUS, "2,3")];
        entries.into_iter().for_each(|(name, value)| env.set(name, value));
        use_device_names(&mut env, &names);
        assert_eq!(
            (env.get(CUDA), env.get("GPU_DEVICE_ORDINAL")),
            (Some("MIG-a,MIG-b"), Some("0,1"))
        );
        env.set(STEP_GPUS, "0,1");
        env.set(CUDA, "0,1");
        use_device_names(&mut env, &names);
        assert_eq!(env.get(CUDA), Some("0,1"), "whole devices have numbers");
        env.remove(STEP_GPUS);
        env.set(CUDA, "");
        use_device_names(&mut env, &names);
        assert_eq!(env.get(CUDA), Some(""), "none is none");
        let mut task = [format!("{CUDA}=0"), format!("{STEP_GPUS}=3")];
        use_device_names_of_task(&mut task, &names);
        assert_eq!(task[0], "CUDA_VISIBLE_DEVICES=MIG-b");
    }

    #[test]
    fn gpus_without_known_cores_count_as_near() {
        let line = |first_index, cores: Option<&str>| NodeGres {
            first_index,
            cores: cores.map(|cores| cores.parse().expect("a list")),
            ..NodeGres::plain("gpu", None, 2)
        };
        let lines = [line(0, Some("0-3")), line(2, Some("4-7"))];
        let cpus = |text: &str| -> CpuSet { text.parse().expect("a list") };
        assert_eq!(gpus_near(&lines, &cpus("5")), [2, 3]);
        assert_eq!(gpus_near(&lines, &cpus("9")), [0, 1, 2, 3], "near to none: all");
        assert_eq!(gpus_near(&[line(0, None)], &cpus("1")), [0, 1]);
    }

    #[test]
    fn a_share_without_gpus_gets_empty_variables_on_a_node_with_gpus() {
        let share = NodeShare {
            node: "n".into(),
            cpus: CpuSet::first(1),
            memory: model::amount::Bytes(0),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: model::amount::Bytes(0),
            price: None,
        };
        let mut env = Environment::new();
        set(&mut env, &share, GpuView::default(), "SLURM_JOB_GPUS");
        assert_eq!(env.get("CUDA_VISIBLE_DEVICES"), None);
        set(&mut env, &share, OWN, "SLURM_JOB_GPUS");
        assert_eq!((env.get("CUDA_VISIBLE_DEVICES"), env.get("SLURM_JOB_GPUS")), (Some(""), None));
        assert_eq!(env.get("ZE_AFFINITY_MASK"), None);
        let variables = GpuVariables([false, false, false, true]);
        set(&mut env, &share, GpuView { variables, ..OWN }, "SLURM_JOB_GPUS");
        assert_eq!(env.get("ZE_AFFINITY_MASK"), Some(""));
    }
}
