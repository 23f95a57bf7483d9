//! The variables that say which GPUs a job, a step and each of its tasks have.

use super::Environment;
use model::allocation::NodeShare;
use model::cpuset::CpuSet;
use model::node::NodeGres;
use std::collections::BTreeMap;

/// The variables by which GPU libraries find the devices that they may use.
pub(super) const VISIBLE: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", LEVEL_ZERO];
const LEVEL_ZERO: &str = "ZE_AFFINITY_MASK";
const CUDA: &str = VISIBLE[0];
const OF_JOB: &str = "SLURM_JOB_GPUS";
/// Where the devices of makers beside the two usual ones are.
const RENDER: &str = "/dev/dri/";
pub(super) const OF_STEP: &str = "SLURM_STEP_GPUS";
const ON_NODE: &str = "SLURM_GPUS_ON_NODE";

/// Which numbers a process knows its devices by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceNumbering {
    /// Those of the node: every device can be seen.
    #[default]
    Node,
    /// From zero: only the job's own devices can be seen (`ConstrainDevices`).
    Own,
}

/// What is known of a node's GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuView {
    pub numbering: DeviceNumbering,
    /// There are devices here, which a process without any of them must not take for its own.
    pub present: bool,
    pub variables: Variables,
}

impl GpuView {
    pub(super) fn variables(self) -> impl Iterator<Item = &'static str> {
        VISIBLE.into_iter().zip(self.variables.0).filter_map(|(name, set)| set.then_some(name))
    }
}

/// Which of the variables are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables(pub(super) [bool; VISIBLE.len()]);

impl Variables {
    /// Those that a node's lines name; where none do, the usual, and the last where a device may be of the kind that
    /// reads it.
    pub fn of(lines: &[NodeGres]) -> Variables {
        let gpus = || lines.iter().filter(|line| line.name == "gpu");
        let render = gpus().flat_map(|line| &line.files).any(|file| file.starts_with(RENDER));
        match gpus().find_map(|line| line.variables.as_ref()) {
            Some(named) => Variables(VISIBLE.map(|name| named.iter().any(|one| one == name))),
            None => Variables(VISIBLE.map(|name| render || name != LEVEL_ZERO)),
        }
    }
}

impl Default for Variables {
    fn default() -> Self {
        Variables::of(&[])
    }
}

/// What says which GPUs a step has.
pub(super) fn is_of_step(name: &str) -> bool {
    VISIBLE.contains(&name) || name == OF_STEP || name == ON_NODE
}

/// The GPUs of a node's share. `name` is `SLURM_JOB_GPUS` for the job, `SLURM_STEP_GPUS` for a step.
pub(super) fn set(env: &mut Environment, share: &NodeShare, view: GpuView, name: &str) {
    let count = share.gres_count("gpu");
    if count == 0 {
        if view.present {
            view.variables().for_each(|variable| env.set(variable, ""));
        }
        return;
    }
    let indices = indices_of(share);
    env.set(ON_NODE, count);
    env.set(name, list(&indices));
    let visible = match view.numbering {
        DeviceNumbering::Node => list(&indices),
        DeviceNumbering::Own => list(&(0..indices.len() as u32).collect::<Vec<_>>()),
    };
    view.variables().for_each(|variable| env.set(variable, &visible));
}

pub(super) fn indices_of(share: &NodeShare) -> Vec<u32> {
    let of_gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
    let mut indices: Vec<u32> = of_gpus.flat_map(|gres| gres.indices.iter().copied()).collect();
    indices.sort_unstable();
    indices
}

pub(super) fn list(indices: &[u32]) -> String {
    indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The names of devices that are not known by a number alone (slices of a GPU), by their numbers on the node.
pub type Names = BTreeMap<u32, String>;

pub fn names_of(lines: &[NodeGres]) -> Names {
    let of_gpus = lines.iter().filter(|line| line.name == "gpu");
    let each = of_gpus.flat_map(|line| (line.first_index..).zip(line.device_names.iter().cloned()));
    each.filter(|(_, name)| !name.is_empty()).collect()
}

/// NVIDIA's libraries find a slice by its name only, wherever others can be seen.
pub fn call_by_name(env: &mut Environment, names: &Names) {
    let shown = env.get(CUDA).is_some_and(|list| !list.is_empty());
    let indices = env.get(OF_STEP).or_else(|| env.get(OF_JOB)).unwrap_or_default();
    if let Some(list) = named(indices, names).filter(|_| shown) {
        env.set(CUDA, list);
    }
}

/// The same for the variables of one task.
pub(super) fn call_task_by_name(entries: &mut [String], names: &Names) {
    let value = |name: &str| {
        entries
            .iter()
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let list = value(OF_STEP).and_then(|indices| named(&indices, names));
    let cuda = entries.iter_mut().find(|entry| entry.split('=').next() == Some(CUDA));
    if let (Some(list), Some(entry)) = (list, cuda) {
        *entry = format!("{CUDA}={list}");
    }
}

/// None where none of them has a name.
fn named(indices: &str, names: &Names) -> Option<String> {
    let indices: Vec<u32> = indices.split(',').filter_map(|index| index.parse().ok()).collect();
    let known = indices.iter().any(|index| names.contains_key(index));
    let name = |index: &u32| names.get(index).cloned().unwrap_or_else(|| index.to_string());
    known.then(|| indices.iter().map(name).collect::<Vec<_>>().join(","))
}

/// The GPUs of a node, by their numbers there, that are near some of these CPUs; where nothing is known, all.
pub fn near(lines: &[NodeGres], cpus: &CpuSet) -> Vec<u32> {
    let of_gpus = || lines.iter().filter(|line| line.name == "gpu");
    let units = |line: &NodeGres| line.first_index..line.first_index + line.count as u32;
    let close = of_gpus().filter(|line| line.cores.as_ref().is_none_or(|c| c.intersects(cpus)));
    let found: Vec<u32> = close.flat_map(units).collect();
    if found.is_empty() { of_gpus().flat_map(units).collect() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Variables = Variables([true, true, true, false]);
    const OWN: GpuView =
        GpuView { numbering: DeviceNumbering::Own, present: true, variables: USUAL };

    #[test]
    fn a_node_says_which_variables_it_sets() {
        let line = |file: &str, variables: Option<&[&str]>| NodeGres {
            files: vec![file.into()],
            variables: variables.map(|names| names.iter().map(|n| (*n).to_owned()).collect()),
            ..NodeGres::plain("gpu", None, 1)
        };
        assert_eq!(Variables::default(), USUAL);
        assert_eq!(Variables::of(&[line("/dev/nvidia0", None)]), USUAL);
        assert_eq!(Variables::of(&[line("/dev/dri/renderD128", None)]), Variables([true; 4]));
        let amd = line("/dev/dri/renderD128", Some(&["ROCR_VISIBLE_DEVICES"]));
        assert_eq!(Variables::of(&[amd]), Variables([false, false, true, false]));
        assert_eq!(Variables::of(&[line("/dev/nvidia0", Some(&[]))]), Variables([false; 4]));
    }

    #[test]
    fn slices_are_called_by_their_names() {
        let line = |first_index, names: &[&str]| NodeGres {
            first_index,
            device_names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..NodeGres::plain("gpu", None, 2)
        };
        let names = names_of(&[line(0, &[]), line(2, &["MIG-a", "MIG-b"])]);
        let mut env = Environment::new();
        let entries =
            [(CUDA, "0,1"), ("GPU_DEVICE_ORDINAL", "0,1"), (OF_JOB, "0,1,2"), (OF_STEP, "2,3")];
        entries.into_iter().for_each(|(name, value)| env.set(name, value));
        call_by_name(&mut env, &names);
        assert_eq!(
            (env.get(CUDA), env.get("GPU_DEVICE_ORDINAL")),
            (Some("MIG-a,MIG-b"), Some("0,1"))
        );
        env.set(OF_STEP, "0,1");
        env.set(CUDA, "0,1");
        call_by_name(&mut env, &names);
        assert_eq!(env.get(CUDA), Some("0,1"), "whole devices have numbers");
        env.remove(OF_STEP);
        env.set(CUDA, "");
        call_by_name(&mut env, &names);
        assert_eq!(env.get(CUDA), Some(""), "none is none");
        let mut task = [format!("{CUDA}=0"), format!("{OF_STEP}=3")];
        call_task_by_name(&mut task, &names);
        assert_eq!(task[0], "CUDA_VISIBLE_DEVICES=MIG-b");
    }

    #[test]
    fn near_is_by_cores_and_unknown_is_near() {
        let line = |first_index, cores: Option<&str>| NodeGres {
            first_index,
            cores: cores.map(|cores| cores.parse().expect("a list")),
            ..NodeGres::plain("gpu", None, 2)
        };
        let lines = [line(0, Some("0-3")), line(2, Some("4-7"))];
        let cpus = |text: &str| -> CpuSet { text.parse().expect("a list") };
        assert_eq!(near(&lines, &cpus("5")), [2, 3]);
        assert_eq!(near(&lines, &cpus("9")), [0, 1, 2, 3], "near to none: all");
        assert_eq!(near(&[line(0, None)], &cpus("1")), [0, 1]);
    }

    #[test]
    fn without_gpus_the_variables_are_empty_where_there_are_some() {
        let share = NodeShare {
            node: "n".into(),
            cpus: CpuSet::first(1),
            memory: model::amount::Bytes(0),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: model::amount::Bytes(0),
        };
        let mut env = Environment::new();
        set(&mut env, &share, GpuView::default(), "SLURM_JOB_GPUS");
        assert_eq!(env.get("CUDA_VISIBLE_DEVICES"), None);
        set(&mut env, &share, OWN, "SLURM_JOB_GPUS");
        assert_eq!((env.get("CUDA_VISIBLE_DEVICES"), env.get("SLURM_JOB_GPUS")), (Some(""), None));
        assert_eq!(env.get("ZE_AFFINITY_MASK"), None);
        let variables = Variables([false, false, false, true]);
        set(&mut env, &share, GpuView { variables, ..OWN }, "SLURM_JOB_GPUS");
        assert_eq!(env.get("ZE_AFFINITY_MASK"), Some(""));
    }
}
