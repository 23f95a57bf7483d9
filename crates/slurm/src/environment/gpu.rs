//! The variables that say which GPUs a job, a step and each of its tasks have.

use super::Environment;
use model::allocation::NodeShare;
use model::cpuset::CpuSet;
use model::node::NodeGres;
use model::request::Per;
use wire::step::StepLaunch;

/// The variables by which GPU libraries find the devices that they may use.
pub(super) const VISIBLE: [&str; 4] =
    ["CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", LEVEL_ZERO];
const LEVEL_ZERO: &str = "ZE_AFFINITY_MASK";
/// Where the devices of makers beside the two usual ones are.
const RENDER: &str = "/dev/dri/";
const OF_STEP: &str = "SLURM_STEP_GPUS";
const ON_NODE: &str = "SLURM_GPUS_ON_NODE";
/// More repetitions of one entry of a list than a node has tasks say nothing new.
const REPEATS_MAX: usize = 4096;

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
    fn variables(self) -> impl Iterator<Item = &'static str> {
        VISIBLE.into_iter().zip(self.variables.0).filter_map(|(name, set)| set.then_some(name))
    }
}

/// Which of the variables are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variables([bool; VISIBLE.len()]);

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

fn indices_of(share: &NodeShare) -> Vec<u32> {
    let of_gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
    let mut indices: Vec<u32> = of_gpus.flat_map(|gres| gres.indices.iter().copied()).collect();
    indices.sort_unstable();
    indices
}

fn list(indices: &[u32]) -> String {
    indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The GPUs of a node, by their numbers there, that are near some of these CPUs; where nothing is known, all.
pub fn near(lines: &[NodeGres], cpus: &CpuSet) -> Vec<u32> {
    let of_gpus = || lines.iter().filter(|line| line.name == "gpu");
    let units = |line: &NodeGres| line.first_index..line.first_index + line.count as u32;
    let close = of_gpus().filter(|line| line.cores.as_ref().is_none_or(|c| c.intersects(cpus)));
    let found: Vec<u32> = close.flat_map(units).collect();
    if found.is_empty() { of_gpus().flat_map(units).collect() } else { found }
}

/// How the tasks of a step share its GPUs on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Binding {
    All,
    Closest,
    /// So many tasks to each GPU, in turn.
    Single(usize),
    /// So many GPUs to each task, in turn.
    PerTask(usize),
    /// By local task, used again from the start.
    Map(Vec<u32>),
    Mask(Vec<u128>),
}

impl Binding {
    /// What was said, or what other options imply.
    fn of(launch: &StepLaunch) -> Binding {
        if let Some(said) = launch.gpu_bind.as_deref().and_then(Binding::read) {
            return said;
        }
        let per_task = launch.shape.gres.iter().flatten();
        let per_task = per_task.filter(|g| g.per == Per::Task && g.name == "gpu");
        match per_task.map(|g| g.count.min as usize).sum::<usize>() {
            0 => Binding::All,
            each => Binding::PerTask(each),
        }
    }

    /// The option was read before: what is not understood here binds nothing.
    fn read(text: &str) -> Option<Binding> {
        let lower = text.to_ascii_lowercase();
        let mut rest = lower.as_str();
        for quiet in ["verbose,", "v,", "quiet,", "q,", "gpu:"] {
            rest = rest.strip_prefix(quiet).unwrap_or(rest);
        }
        let (kind, value) = rest.split_once(':').unwrap_or((rest, ""));
        let number = || value.parse::<usize>().ok().filter(|n| *n > 0);
        match kind {
            "none" => Some(Binding::All),
            "closest" => Some(Binding::Closest),
            "single" => number().map(Binding::Single),
            "per_task" => number().map(Binding::PerTask),
            "map_gpu" => repeated(value, |word| word.parse().ok()).map(Binding::Map),
            "mask_gpu" => {
                let hex = |word: &str| word.strip_prefix("0x").unwrap_or(word).to_owned();
                repeated(value, |word| u128::from_str_radix(&hex(word), 16).ok()).map(Binding::Mask)
            }
            _ => None,
        }
    }

    /// The places, among the step's GPUs on the node, of those that its local task number `task` has.
    fn of_task(&self, task: usize, gpus: &[u32], near: &[u32], view: GpuView) -> Vec<usize> {
        let all = 0..gpus.len();
        let number = |at: usize| match view.numbering {
            DeviceNumbering::Own => at as u32,
            DeviceNumbering::Node => gpus[at],
        };
        let close: Vec<usize> = all.clone().filter(|at| near.contains(&gpus[*at])).collect();
        let close = if close.is_empty() { all.clone().collect() } else { close };
        match self {
            Binding::All => all.collect(),
            Binding::Closest => close,
            Binding::Single(tasks) => {
                close.get(task / tasks % close.len().max(1)).copied().into_iter().collect()
            }
            Binding::PerTask(each) => all.skip(task * each).take(*each).collect(),
            Binding::Map(ids) => all.filter(|at| number(*at) == ids[task % ids.len()]).collect(),
            Binding::Mask(masks) => {
                let mask = masks[task % masks.len()];
                all.filter(|at| mask.checked_shr(number(*at)).unwrap_or(0) & 1 == 1).collect()
            }
        }
    }
}

/// `0*4,1*4`: entries with commas between them, each repeated so often.
fn repeated<T: Clone>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for word in text.split(',') {
        let (one, times) = word.split_once('*').unwrap_or((word, "1"));
        let times = times.parse::<usize>().ok()?.min(REPEATS_MAX);
        all.extend(std::iter::repeat_n(read(one)?, times));
    }
    (!all.is_empty()).then_some(all)
}

/// What a step's tasks on a node have each; nothing where each has all. `near` are the GPUs close to its CPUs.
pub(super) fn of_tasks(
    launch: &StepLaunch,
    share: Option<&NodeShare>,
    tasks: usize,
    near: &[u32],
    view: GpuView,
) -> Vec<Vec<String>> {
    let gpus = share.map(indices_of).unwrap_or_default();
    let binding = Binding::of(launch);
    let per_task = matches!(binding, Binding::PerTask(_));
    // As in Slurm, one task alone is not bound.
    if gpus.is_empty() || binding == Binding::All || (tasks < 2 && !per_task) {
        return Vec::new();
    }
    let variables = |task: usize| {
        let places = binding.of_task(task, &gpus, near, view);
        if places.is_empty() {
            return Vec::new();
        }
        let global: Vec<u32> = places.iter().map(|at| gpus[*at]).collect();
        let visible = match view.numbering {
            DeviceNumbering::Node => list(&global),
            DeviceNumbering::Own => list(&places.iter().map(|at| *at as u32).collect::<Vec<_>>()),
        };
        let visible = view.variables().map(|name| format!("{name}={visible}"));
        visible.chain([format!("{OF_STEP}={}", list(&global))]).collect()
    };
    (0..tasks).map(variables).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Variables = Variables([true, true, true, false]);
    const OWN: GpuView =
        GpuView { numbering: DeviceNumbering::Own, present: true, variables: USUAL };
    const NODE: GpuView = GpuView { numbering: DeviceNumbering::Node, ..OWN };

    /// The GPUs of four tasks that share those numbered 2, 3, 6 and 7 on the node, near to the last two.
    fn bound(text: &str, view: GpuView) -> Vec<Vec<usize>> {
        let binding = Binding::read(text).expect("a binding");
        (0..4).map(|task| binding.of_task(task, &[2, 3, 6, 7], &[6, 7], view)).collect()
    }

    #[test]
    fn tasks_are_bound_as_said() {
        let table: [(&str, GpuView, [&[usize]; 4]); 9] = [
            ("none", OWN, [&[0, 1, 2, 3]; 4]),
            ("closest", OWN, [&[2, 3]; 4]),
            ("verbose,closest", OWN, [&[2, 3]; 4]),
            ("single:1", OWN, [&[2], &[3], &[2], &[3]]),
            ("single:2", OWN, [&[2], &[2], &[3], &[3]]),
            ("per_task:2", OWN, [&[0, 1], &[2, 3], &[], &[]]),
            ("map_gpu:0,1*2", OWN, [&[0], &[1], &[1], &[0]]),
            ("map_gpu:7,2", NODE, [&[3], &[0], &[3], &[0]]),
            ("mask_gpu:0x3,c", OWN, [&[0, 1], &[2, 3], &[0, 1], &[2, 3]]),
        ];
        for (text, view, expected) in table {
            assert_eq!(bound(text, view), expected.map(<[usize]>::to_vec), "{text}");
        }
        for text in ["", "single:0", "map_gpu:x", "mask_gpu:", "somehow"] {
            assert_eq!(Binding::read(text), None, "{text}");
        }
    }

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
