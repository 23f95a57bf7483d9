//! How the tasks of a step share its GPUs: `--gpu-bind`, and what other options imply.

use super::gpu::{DeviceNumbering, GpuView, STEP_GPUS, gpu_indices, list};
use model::allocation::NodeShare;
use model::request::Per;
use wire::step::StepLaunch;

/// The prefix of a binding that makes each task print what it is bound to.
const VERBOSE: &str = "verbose,";
/// Bounds the repetitions of one entry of a list: a node has fewer tasks.
const REPEATS_MAX: usize = 4096;

/// How the tasks of a step share its GPUs on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Binding {
    All,
    Closest,
    /// This many tasks to each GPU, in turn.
    Single(usize),
    /// This many GPUs to each task, in turn.
    PerTask(usize),
    /// The GPU of each local task; the list is repeated for further tasks.
    Map(Vec<u32>),
    Mask(Vec<u128>),
}

impl Binding {
    /// `--gpu-bind`, or what other options imply.
    fn from_launch(launch: &StepLaunch) -> Binding {
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

    /// The option was checked when the command line was read: a text that is not understood here binds nothing.
    fn read(text: &str) -> Option<Binding> {
        let lower = text.to_ascii_lowercase();
        let rest = lower.strip_prefix(VERBOSE).unwrap_or(&lower);
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

    /// The GPUs of local task `task`, as positions in `gpus`, the step's GPUs on the node.
    fn gpus_of_task(&self, task: usize, gpus: &[u32], near: &[u32], view: GpuView) -> Vec<usize> {
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

/// `0*4,1*4`: entries with commas between them, each repeated as often as it says.
fn repeated<T: Clone>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for word in text.split(',') {
        let (one, times) = word.split_once('*').unwrap_or((word, "1"));
        let times = times.parse::<usize>().ok()?.min(REPEATS_MAX);
        all.extend(std::iter::repeat_n(read(one)?, times));
    }
    (!all.is_empty()).then_some(all)
}

/// The GPUs of one task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TaskGpus {
    pub environment: Vec<String>,
    /// Lines that the task prints before its program runs.
    pub lines: Vec<String>,
}

/// The GPUs of each of a step's tasks on a node; empty when every task has all of them. `near` are the GPUs close to the
/// step's CPUs.
pub(super) fn task_gpus(
    launch: &StepLaunch,
    share: Option<&NodeShare>,
    tasks: usize,
    near: &[u32],
    view: GpuView,
) -> Vec<TaskGpus> {
    let gpus = share.map(gpu_indices).unwrap_or_default();
    let binding = Binding::from_launch(launch);
    let per_task = matches!(binding, Binding::PerTask(_));
    // As in Slurm, one task alone is not bound.
    if gpus.is_empty() || binding == Binding::All || (tasks < 2 && !per_task) {
        return Vec::new();
    }
    let said = launch.gpu_bind.as_deref().unwrap_or_default();
    let verbose = said.to_ascii_lowercase().starts_with(VERBOSE);
    let of_task = |task: usize| {
        let mut lines = Vec::new();
        let mut places = binding.gpus_of_task(task, &gpus, near, view);
        if places.is_empty() {
            lines.push(format!(
                "slurmstepd: error: Bind request gpu:{said} does not specify any devices within the allocation for \
                 task {task}. Binding to the first device in the allocation instead."
            ));
            places.push(0);
        }
        let bound = BoundGpus::of(&places, &gpus, view);
        if verbose {
            lines.push(bound.line(&gpus, view));
        }
        TaskGpus { environment: bound.environment(view), lines }
    };
    (0..tasks).map(of_task).collect()
}

/// A task's GPUs, by their numbers on the node and by the numbers that the task sees.
struct BoundGpus {
    global: Vec<u32>,
    local: Vec<u32>,
}

impl BoundGpus {
    fn of(places: &[usize], gpus: &[u32], view: GpuView) -> BoundGpus {
        let global: Vec<u32> = places.iter().map(|at| gpus[*at]).collect();
        let local = match view.numbering {
            DeviceNumbering::Node => global.clone(),
            DeviceNumbering::Own => places.iter().map(|at| *at as u32).collect(),
        };
        BoundGpus { global, local }
    }

    fn environment(&self, view: GpuView) -> Vec<String> {
        let visible = list(&self.local);
        let visible = view.variables().map(|name| format!("{name}={visible}"));
        visible.chain([format!("{STEP_GPUS}={}", list(&self.global))]).collect()
    }

    /// Slurm's line: what the task may use of what is allocated. `local_inx` is zero when devices have the node's numbers,
    /// and otherwise the number of devices.
    fn line(&self, gpus: &[u32], view: GpuView) -> String {
        let count = if view.numbering == DeviceNumbering::Own { gpus.len() } else { 0 };
        format!(
            "gpu-bind: usable_gres=0x{:X}; bit_alloc=0x{:X}; local_inx={count}; global_list={}; local_list={}",
            mask(&self.local),
            mask(gpus),
            list(&self.global),
            list(&self.local),
        )
    }
}

fn mask(indices: &[u32]) -> u128 {
    indices.iter().fold(0, |mask, index| mask | 1u128.checked_shl(*index).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::super::gpu::GpuVariables;
    use super::*;

    const USUAL: GpuVariables = GpuVariables([true, true, true, false]);
    const OWN: GpuView =
        GpuView { numbering: DeviceNumbering::Own, present: true, variables: USUAL };
    const NODE: GpuView = GpuView { numbering: DeviceNumbering::Node, ..OWN };

    /// The GPUs of four tasks that share GPUs 2, 3, 6 and 7 of the node. The last two are near.
    fn bound(text: &str, view: GpuView) -> Vec<Vec<usize>> {
        let binding = Binding::read(text).expect("a binding");
        (0..4).map(|task| binding.gpus_of_task(task, &[2, 3, 6, 7], &[6, 7], view)).collect()
    }

    #[test]
    fn tasks_get_the_gpus_that_gpu_bind_names() {
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
        for text in ["", "v,closest", "single:0", "map_gpu:x", "mask_gpu:", "somehow"] {
            assert_eq!(Binding::read(text), None, "{text}");
        }
    }

    #[test]
    fn verbose_binding_prints_slurms_line() {
        let gpus = [3, 4];
        let line = |places: &[usize], view| BoundGpus::of(places, &gpus, view).line(&gpus, view);
        assert_eq!(
            line(&[1], NODE),
            "gpu-bind: usable_gres=0x10; bit_alloc=0x18; local_inx=0; global_list=4; local_list=4"
        );
        assert_eq!(
            line(&[0, 1], OWN),
            "gpu-bind: usable_gres=0x3; bit_alloc=0x18; local_inx=2; global_list=3,4; local_list=0,1"
        );
        assert_eq!(mask(&[200]), 0, "beyond what a line can show");
    }
}
