//! What an `srun` wants started, inside an allocation or as the first step of its own.

use super::{Submitter, base_name, environment, resources, work_dir};
use crate::option::JobOptions;
use crate::option::job_options::{Distribution, LocalDistribution, NodeDistribution};
use crate::option::key::OptionKey;
use model::binding::{CpuBind, CpuBinding, CpuDistribution, Level};
use model::range::Range;
use model::request::Memory;
use model::run::Rlimits;
use model::step::{StepShape, TaskDistribution};
use wire::step::{StepInput, StepLaunch, StepStart};

/// Where the tasks' supervisors find the `srun`, and how they show that they are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listen: Vec<String>,
    pub key: String,
    /// By which the server knows this `srun` again.
    pub ticket: u64,
}

/// How the step stands to its allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The step's own: it takes all of it.
    Own,
    /// One that was there before: of its nodes the step may ask for a part.
    Given,
}

/// The launch, and remarks on what of it was bent to fit together.
pub fn launch(
    options: &JobOptions,
    argv: &[String],
    submitter: &Submitter,
    within: Within,
    endpoint: Endpoint,
    input: StepInput,
) -> (StepLaunch, Vec<String>) {
    let (counts, notes) = match within {
        Within::Own => (own_counts(options), Vec::new()),
        Within::Given => given_counts(options),
    };
    let launch = StepLaunch {
        name: name(options, argv, within),
        argv: argv.to_vec(),
        environment: environment(options, submitter),
        work_dir: work_dir(options, submitter),
        tasks: counts.tasks,
        nodes: counts.nodes.map(|nodes| nodes.min),
        tasks_per_node: counts.tasks_per_node,
        cpus_per_task: options.cpus_per_task,
        node_list: counts.node_list.clone(),
        listen: endpoint.listen,
        key: endpoint.key,
        umask: submitter.umask,
        stdin: input,
        // Files are written where `srun` is, and not where the task happens to be.
        stdout: None,
        stderr: None,
        submit_line: submitter.words.join(" "),
        overcommit: options.overcommit,
        pty: options.step.pty,
        window: None,
        shape: shape(options, within, &counts, endpoint.ticket),
        distribution: options.distribution.and_then(distribution_text),
        cpu_bind: cpu_binding(options),
        mem_bind: options.mem_bind.clone(),
        rlimits: Some(Rlimits {
            soft: super::propagated(options, submitter),
            asked: options.propagate.is_some(),
        }),
        gpu_bind: gpu_bind(options),
        programs: Vec::new(),
        task_prolog: program(&options.step.task_prolog),
        task_epilog: program(&options.step.task_epilog),
        starts: starts(options),
        // An allocation that is the step's own has the limit itself.
        time_limit: options.time.filter(|_| within == Within::Given),
    };
    (launch, notes)
}

/// `--gpu-bind`, or what `--ntasks-per-gpu` implies.
fn gpu_bind(options: &JobOptions) -> Option<String> {
    let implied = || options.ntasks_per_gpu.map(|tasks| format!("single:{tasks}"));
    options.gpu_bind.clone().or_else(implied)
}

/// `--cpu-bind`, with what `-m` and `--hint` say of it.
fn cpu_binding(options: &JobOptions) -> CpuBinding {
    let mut binding = options.cpu_bind.clone().unwrap_or_default();
    let spread = |level: LocalDistribution| match level {
        LocalDistribution::Block => CpuDistribution::Block,
        LocalDistribution::Cyclic => CpuDistribution::Cyclic,
        LocalDistribution::Fcyclic => CpuDistribution::Fcyclic,
    };
    let distribution = options.distribution.unwrap_or_default();
    binding.distribution = distribution.sockets.map(spread).unwrap_or_default();
    binding.core_distribution = distribution.cores.map(spread);
    let hint = options.hint.as_deref().unwrap_or_default().to_ascii_lowercase();
    binding.one_thread |= hint == "nomultithread" || options.threads_per_core == Some(1);
    if matches!(hint.as_str(), "compute_bound" | "memory_bound") {
        binding.kind.get_or_insert(CpuBind::To(Level::Cores));
    }
    binding
}

/// A program around each task; `none` is none.
fn program(given: &Option<String>) -> Option<String> {
    given.clone().filter(|program| program != "none")
}

/// What `srun` runs itself comes before the tasks.
fn starts(options: &JobOptions) -> StepStart {
    match options.step.prolog.as_deref() {
        None => StepStart::AsSite,
        Some("none") => StepStart::AtOnce,
        Some(_) => StepStart::OnGo,
    }
}

/// `-J`, or the program's own. A name that comes by the environment is the job's, and not that of its steps.
fn name(options: &JobOptions, argv: &[String], within: Within) -> String {
    let of_job = within == Within::Given && options.step.inherited.contains(&OptionKey::JobName);
    let program = || argv.first().map(|program| base_name(program).to_owned());
    let said = options.job_name.clone().filter(|_| !of_job);
    said.or_else(program).unwrap_or_default()
}

/// How many nodes and tasks, and on which.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counts {
    tasks: Option<u32>,
    nodes: Option<Range<u32>>,
    tasks_per_node: Option<u32>,
    node_list: Vec<String>,
}

/// The allocation was made for it: only hosts that were named rank by rank are still to be said.
fn own_counts(options: &JobOptions) -> Counts {
    // What was bent about these was remarked upon when the allocation was asked for.
    let (counts, _) = resources::counts(options);
    let node_list = if is_arbitrary(options) { options.nodelist.clone() } else { Vec::new() };
    let tasks_per_node = counts.tasks_per_node;
    Counts { tasks: options.ntasks, nodes: None, tasks_per_node, node_list }
}

/// Slurm's rules for a step in a given allocation. That the job's own numbers come by the environment makes most of
/// the remarks.
fn given_counts(options: &JobOptions) -> (Counts, Vec<String>) {
    let mut notes = Vec::new();
    let inherited = |key| options.step.inherited.contains(&key);
    let mut node_list = options.nodelist.clone();
    let (mut tasks, mut nodes) = (options.ntasks, options.nodes);
    if is_arbitrary(options) {
        tasks = tasks.filter(|_| !inherited(OptionKey::Ntasks));
        nodes = None;
    } else if let Some(most) =
        nodes.and_then(|n| n.max).filter(|max| (*max as usize) < node_list.len())
    {
        notes.push(format!(
            "error: Required nodelist includes more nodes than permitted by max-node count \
             ({} > {most}). Eliminating nodes from the nodelist.",
            node_list.len()
        ));
        node_list.truncate(most as usize);
    }
    if options.distribution.is_some_and(|d| d.pack == Some(true)) && inherited(OptionKey::Nodes) {
        nodes = nodes.map(|n| Range::between(1, n.max.unwrap_or(n.min)));
    }
    if let (Some(tasks), Some(asked)) = (tasks, nodes.filter(|n| tasks.is_some_and(|t| t < n.min)))
    {
        notes.push(format!(
            "Warning: can't run {tasks} processes on {} nodes, setting nnodes to {tasks}",
            asked.min
        ));
        nodes = Some(Range::exactly(tasks));
    }
    let mut tasks_per_node = options.ntasks_per_node;
    if let (Some(tasks), Some(each), Some(asked)) = (tasks, tasks_per_node, nodes.map(|n| n.min))
        && tasks > each
        && tasks / asked.max(1) != each
    {
        notes.push(format!(
            "Warning: can't honor --ntasks-per-node set to {each} which doesn't match the \
             requested tasks {tasks} with the number of requested nodes {asked}. \
             Ignoring --ntasks-per-node."
        ));
        tasks_per_node = None;
    }
    (Counts { tasks, nodes, tasks_per_node, node_list }, notes)
}

fn is_arbitrary(options: &JobOptions) -> bool {
    options.distribution.and_then(|d| d.nodes) == Some(NodeDistribution::Arbitrary)
}

fn shape(options: &JobOptions, within: Within, counts: &Counts, ticket: u64) -> StepShape {
    let distribution = options.distribution.unwrap_or_default();
    let common = StepShape {
        ticket,
        own: within == Within::Own,
        distribution: distribution.nodes.map(|nodes| match nodes {
            NodeDistribution::Block => TaskDistribution::Block,
            NodeDistribution::Cyclic => TaskDistribution::Cyclic,
            NodeDistribution::Arbitrary => TaskDistribution::Arbitrary,
            NodeDistribution::Plane(size) => TaskDistribution::Plane(size),
        }),
        pack: distribution.pack == Some(true),
        ..StepShape::default()
    };
    if within == Within::Own {
        // A task's own GPUs are told to it; all else is the step's as it is.
        let gres = (!options.gpus_per_task.is_empty()).then(|| resources::gres(options));
        return StepShape { gres, ..common };
    }
    StepShape {
        nodes_max: counts.nodes.map(|nodes| nodes.max.unwrap_or(u32::MAX)),
        exclude: options.exclude.clone(),
        relative: options.step.relative,
        // A number of CPUs for each task, or a wish for CPUs of its own, is a wish for no more.
        exact: options.step.exact || options.cpus_per_task.is_some() || options.exclusive.is_some(),
        overlap: options.step.overlap,
        memory: Some(resources::memory(options)).filter(|memory| *memory != Memory::Default),
        gres: gres(options),
        ..common
    }
}

/// None where nothing was said of it. A total that comes by the environment is the job's, and not the step's.
fn gres(options: &JobOptions) -> Option<Vec<model::request::GresRequest>> {
    let inherited = |key| options.step.inherited.contains(&key);
    let mut said = options.clone();
    if inherited(OptionKey::Gpus) {
        said.gpus.clear();
    }
    let asked = resources::gres(&said);
    (!asked.is_empty() || options.step.no_gres).then_some(asked)
}

/// As `SLURM_DISTRIBUTION` has it; none where all was left to the default.
fn distribution_text(distribution: Distribution) -> Option<String> {
    let nodes = match distribution.nodes {
        Some(NodeDistribution::Block) => "block",
        Some(NodeDistribution::Cyclic) => "cyclic",
        Some(NodeDistribution::Plane(_)) => "plane",
        Some(NodeDistribution::Arbitrary) => "arbitrary",
        None if distribution == Distribution::default() => return None,
        None => "block",
    };
    let local = |level: Option<LocalDistribution>| match level {
        Some(LocalDistribution::Block) => "block",
        Some(LocalDistribution::Cyclic) => "cyclic",
        Some(LocalDistribution::Fcyclic) => "fcyclic",
        None => "*",
    };
    let mut text = nodes.to_owned();
    let (sockets, cores) = (distribution.sockets, distribution.cores);
    if sockets.is_some() || cores.is_some() {
        text = format!("{text}:{}", local(sockets));
    }
    if cores.is_some() {
        text = format!("{text}:{}", local(cores));
    }
    match distribution.pack {
        Some(true) => text.push_str(",pack"),
        Some(false) => text.push_str(",nopack"),
        None => {}
    }
    Some(text)
}

/// What `sbatch -m` tells the steps of its job.
pub(super) fn distribution_variables(
    distribution: Distribution,
) -> Option<Vec<(&'static str, String)>> {
    let mut told = vec![("SLURM_DISTRIBUTION", distribution_text(distribution)?)];
    if let Some(NodeDistribution::Plane(size)) = distribution.nodes {
        told.push(("SLURM_DIST_PLANESIZE", size.to_string()));
    }
    Some(told)
}

/// The number of tasks as far as the options say it, for what must be known before the server is asked.
pub fn tasks_said(launch: &StepLaunch, options: &JobOptions) -> u32 {
    let nodes = launch.nodes.or(options.nodes.map(|nodes| nodes.min)).unwrap_or(1);
    launch.tasks.unwrap_or_else(|| launch.tasks_per_node.unwrap_or(1).saturating_mul(nodes))
}
