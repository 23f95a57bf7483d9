//! The launch of an `srun`: a step in an existing allocation, or the first step of its own.

use super::{Submitter, base_name, environment, resources, secret_variables, work_dir};
use crate::option::JobOptions;
use crate::option::job_options::{Distribution, LocalDistribution, NodeDistribution};
use crate::option::key::OptionKey;
use model::binding::{CpuBind, CpuBinding, CpuDistribution, Level};
use model::range::Range;
use model::request::Memory;
use model::run::Rlimits;
use model::step::{StepShape, TaskDistribution};
use wire::step::{StepInput, StepLaunch, StepStart};

/// How the supervisors of the tasks reach the `srun`, and the key that both prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub listen: Vec<String>,
    /// The network stack whose loopback is among the addresses.
    pub network_stack: Option<String>,
    pub key: String,
    /// The number by which the server recognises this `srun` when it asks again.
    pub ticket: u64,
}

/// The allocation that a step runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAllocation {
    /// Made for this step, which uses all of it.
    Own,
    /// Made before. The step may ask for a part of it.
    Existing,
}

/// The launch, and lines for the user about options that were changed to fit together.
pub fn launch(
    options: &JobOptions,
    argv: &[String],
    submitter: &Submitter,
    allocation: StepAllocation,
    endpoint: Endpoint,
    input: StepInput,
) -> (StepLaunch, Vec<String>) {
    let (counts, mut notes) = match allocation {
        StepAllocation::Own => (counts_in_own(options), Vec::new()),
        StepAllocation::Existing => counts_in_existing(options),
    };
    // In its own allocation the job's draft has them.
    if allocation == StepAllocation::Existing {
        notes.extend(super::without_meaning(options, submitter.command));
    }
    let launch = StepLaunch {
        name: name(options, argv, allocation),
        argv: argv.to_vec(),
        environment: environment(options, submitter),
        secret_variables: secret_variables(options),
        registry_auth: None,
        work_dir: work_dir(options, submitter),
        tasks: counts.tasks,
        nodes: counts.nodes.map(|nodes| nodes.min),
        tasks_per_node: counts.tasks_per_node,
        cpus_per_task: options.cpus_per_task,
        node_list: counts.node_list.clone(),
        listen: Vec::new(),
        encrypted_listen: endpoint.listen,
        network_stack: endpoint.network_stack,
        key: endpoint.key,
        umask: submitter.umask,
        stdin: input,
        // `srun` itself writes the files, on the machine where it runs.
        stdout: None,
        stderr: None,
        submit_line: submitter.submit_line(),
        overcommit: options.overcommit,
        pty: options.step.pty,
        window: None,
        shape: shape(options, allocation, &counts, endpoint.ticket),
        distribution: options.distribution.and_then(distribution_text),
        cpu_bind: cpu_binding(options),
        mem_bind: options.mem_bind.clone(),
        cpu_frequency: options.cpu_freq,
        rlimits: Some(Rlimits {
            soft: super::propagated(options, submitter),
            asked: options.propagate.is_some(),
        }),
        gpu_bind: gpu_bind(options),
        programs: Vec::new(),
        task_prolog: program(&options.step.task_prolog),
        task_epilog: program(&options.step.task_epilog),
        starts: starts(options),
        // In its own allocation the job has the limit.
        time_limit: options.time.filter(|_| allocation == StepAllocation::Existing),
        container: options.container.clone().map(Box::new),
        joins_script: false,
        own_program: None,
        receives_file: false,
    };
    (launch, notes)
}

/// `--gpu-bind`, or what `--ntasks-per-gpu` implies.
fn gpu_bind(options: &JobOptions) -> Option<String> {
    let implied = || options.ntasks_per_gpu.map(|tasks| format!("single:{tasks}"));
    options.gpu_bind.clone().or_else(implied)
}

/// `--cpu-bind`, with what `-m` and `--hint` add to it.
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

/// `--task-prolog` or `--task-epilog`; the word `none` means no program.
fn program(given: &Option<String>) -> Option<String> {
    given.clone().filter(|program| program != "none")
}

/// When the tasks start: after the prolog of `srun`, if there is one.
fn starts(options: &JobOptions) -> StepStart {
    match options.step.prolog.as_deref() {
        None => StepStart::AsSite,
        Some("none") => StepStart::AtOnce,
        Some(_) => StepStart::OnGo,
    }
}

/// `-J`, or the name of the program. A name from the environment is the job's and not used for a step.
fn name(options: &JobOptions, argv: &[String], allocation: StepAllocation) -> String {
    let from_job = allocation == StepAllocation::Existing
        && options.step.inherited.contains(&OptionKey::JobName);
    let program = || argv.first().map(|program| base_name(program).to_owned());
    let given = options.job_name.clone().filter(|_| !from_job);
    given.or_else(program).unwrap_or_default()
}

/// The numbers of nodes and tasks, and the nodes that were named.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StepCounts {
    tasks: Option<u32>,
    nodes: Option<Range<u32>>,
    tasks_per_node: Option<u32>,
    node_list: Vec<String>,
}

/// The counts of a step in its own allocation, which has the nodes already. Only a node list with the host of each task is
/// still needed.
fn counts_in_own(options: &JobOptions) -> StepCounts {
    // The notes were printed when the allocation was requested.
    let (counts, _) = resources::counts(options);
    let node_list = if options.is_arbitrary() { options.nodelist.clone() } else { Vec::new() };
    let tasks_per_node = counts.tasks_per_node;
    StepCounts { tasks: options.ntasks, nodes: None, tasks_per_node, node_list }
}

/// The counts of a step in an existing allocation. Most notes come from the job's own numbers, which the environment carries.
fn counts_in_existing(options: &JobOptions) -> (StepCounts, Vec<String>) {
    let mut notes = Vec::new();
    let inherited = |key| options.step.inherited.contains(&key);
    let mut node_list = options.nodelist.clone();
    let (mut tasks, mut nodes) = (options.ntasks, options.nodes);
    if options.is_arbitrary() {
        tasks = tasks.filter(|_| !inherited(OptionKey::Ntasks));
        nodes = None;
    } else if let Some(most) =
        nodes.and_then(|n| n.max).filter(|max| (*max as usize) < node_list.len())
    {
        notes.push(resources::cut_node_list_note(node_list.len(), most as usize));
        node_list.truncate(most as usize);
    }
    if options.distribution.is_some_and(|d| d.pack == Some(true)) && inherited(OptionKey::Nodes) {
        nodes = nodes.map(|n| Range::between(1, n.max.unwrap_or(n.min)));
    }
    if let (Some(tasks), Some(asked)) = (tasks, nodes.filter(|n| tasks.is_some_and(|t| t < n.min)))
    {
        notes.push(resources::fewer_nodes_note(tasks, asked.min));
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
    (StepCounts { tasks, nodes, tasks_per_node, node_list }, notes)
}

fn shape(
    options: &JobOptions,
    allocation: StepAllocation,
    counts: &StepCounts,
    ticket: u64,
) -> StepShape {
    let distribution = options.distribution.unwrap_or_default();
    let common = StepShape {
        ticket,
        own: allocation == StepAllocation::Own,
        distribution: distribution.nodes.map(|nodes| match nodes {
            NodeDistribution::Block => TaskDistribution::Block,
            NodeDistribution::Cyclic => TaskDistribution::Cyclic,
            NodeDistribution::Arbitrary => TaskDistribution::Arbitrary,
            NodeDistribution::Plane(size) => TaskDistribution::Plane(size),
        }),
        pack: distribution.pack == Some(true),
        ..StepShape::default()
    };
    if allocation == StepAllocation::Own {
        // Each task is told its GPUs. Everything else of the allocation is the step's.
        let gres = (!options.gpus_per_task.is_empty()).then(|| resources::gres(options));
        return StepShape { gres, ..common };
    }
    StepShape {
        nodes_max: counts.nodes.map(|nodes| nodes.max.unwrap_or(u32::MAX)),
        exclude: options.exclude.clone(),
        relative: options.step.relative,
        // `-c` and `--exclusive` imply `--exact`.
        exact: options.step.exact || options.cpus_per_task.is_some() || options.exclusive.is_some(),
        overlap: options.step.overlap,
        memory: Some(resources::memory(options)).filter(|memory| *memory != Memory::Default),
        gres: gres(options),
        ..common
    }
}

/// The generic resources of the step; `None` if no option names any. A total from the environment is the job's, and so are GPUs of
/// each node: a step that names none has those of its nodes.
fn gres(options: &JobOptions) -> Option<Vec<model::request::GresRequest>> {
    let inherited = |key| options.step.inherited.contains(&key);
    let mut own = options.clone();
    if inherited(OptionKey::Gpus) {
        own.gpus.clear();
    }
    if inherited(OptionKey::GpusPerNode) {
        own.gpus_per_node.clear();
    }
    let asked = resources::gres(&own);
    (!asked.is_empty() || options.step.no_gres).then_some(asked)
}

/// The value of `SLURM_DISTRIBUTION`; `None` if all was left to the default.
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

/// The variables by which `sbatch -m` applies to the steps of its job.
pub(super) fn distribution_variables(
    distribution: Distribution,
) -> Option<Vec<(&'static str, String)>> {
    let mut variables = vec![("SLURM_DISTRIBUTION", distribution_text(distribution)?)];
    if let Some(NodeDistribution::Plane(size)) = distribution.nodes {
        variables.push(("SLURM_DIST_PLANESIZE", size.to_string()));
    }
    Some(variables)
}

/// The number of tasks by the options alone, for what must be known before the server is asked.
pub fn task_count(launch: &StepLaunch, options: &JobOptions) -> u32 {
    let nodes = launch.nodes.or(options.nodes.map(|nodes| nodes.min)).unwrap_or(1);
    launch.tasks.unwrap_or_else(|| launch.tasks_per_node.unwrap_or(1).saturating_mul(nodes))
}
