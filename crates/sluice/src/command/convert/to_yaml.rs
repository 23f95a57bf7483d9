//! From the options of a batch script to a task.

use crate::command::other_language::dependency;
use ::dstack::table::duration;
use ::slurm::option::job_options::JobOptions;
use ::slurm::option::key::OptionKey;
use ::slurm::option::setting::Setting;
use ::slurm::option::table::long_name;
use ::slurm::option::{Command, script};
use model::gres::GresCount;
use model::time::TimeLimit;
use std::time::Duration;

/// The options that become properties. The others become comments.
const CONVERTED: &[OptionKey] = &[
    OptionKey::Volume,
    OptionKey::JobName,
    OptionKey::Nodes,
    OptionKey::NtasksPerNode,
    OptionKey::Ntasks,
    OptionKey::CpusPerTask,
    OptionKey::CpusPerGpu,
    OptionKey::Mem,
    OptionKey::MemPerCpu,
    OptionKey::MemPerGpu,
    OptionKey::Gres,
    OptionKey::Gpus,
    OptionKey::GpusPerNode,
    OptionKey::GpusPerTask,
    OptionKey::TresPerTask,
    OptionKey::Time,
    OptionKey::Partition,
    OptionKey::Array,
    OptionKey::Dependency,
    OptionKey::Account,
    OptionKey::Qos,
    OptionKey::Chdir,
    OptionKey::Tmp,
    OptionKey::Reservation,
    OptionKey::Requeue,
    OptionKey::NoRequeue,
    OptionKey::Container,
    OptionKey::ContainerImage,
];

/// The duration of a `retry` that stands for the queue of batch jobs, in which they wait without a bound.
const QUEUE_DURATION: &str = "365d";

/// A batch script runs on its first node alone, and commands on each.
const ON_FIRST_NODE: [&str; 2] = [
    "# The script runs on the first node; `srun` starts on all of them.",
    "[ \"$DSTACK_NODE_RANK\" = 0 ] || exec sleep infinity",
];

/// The shells that read commands as they read a script.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

pub fn configuration(options: &JobOptions, settings: &[Setting], text: &str) -> String {
    let mut lines = vec!["type: task".to_owned()];
    let mut add = |line: String| lines.push(line);
    if let Some(name) = &options.job_name {
        add(format!("name: {}", run_name(name)));
    }
    let nodes = options.nodes.map_or(1, |nodes| nodes.min);
    if let Some(nodes) = options.nodes {
        add(format!("nodes: {nodes}"));
    }
    if let Some(image) = options.container.as_ref().and_then(|container| container.image_name()) {
        add(format!("image: {}", quoted(image)));
    }
    let has_image =
        options.container.as_ref().is_some_and(|container| container.image_name().is_some());
    interpreter(text, has_image).into_iter().for_each(&mut add);
    let is_multi_node = options.nodes.is_some_and(|nodes| nodes.max != Some(1));
    if is_multi_node {
        add("stop_criteria: master-done".to_owned());
    }
    add(String::new());
    add("commands:".to_owned());
    let mut body = body(text);
    if is_multi_node {
        body = ON_FIRST_NODE.into_iter().chain(body).collect();
    }
    let is_indented = body.first().is_some_and(|line| line.starts_with([' ', '\t']));
    add(if is_indented { "  - |2" } else { "  - |" }.to_owned());
    for line in body {
        // What looks like a reference is the script's own text.
        let line = line.replace("${{", "$${{");
        add(if line.is_empty() { line } else { format!("    {line}") });
    }
    add(String::new());
    let of_job = options.ntasks.or_else(|| tasks_of_gpus(options));
    let tasks = options.ntasks_per_node.or(of_job.map(|tasks| tasks.div_ceil(nodes))).unwrap_or(1);
    let gres = gres_of_node(options, nodes, tasks);
    let gpus = gpu_count(&gres);
    // Without GPUs an amount for each of them says nothing.
    let cpus = match options.cpus_per_gpu.filter(|_| gpus > 0) {
        Some(each) => each.saturating_mul(u32::try_from(gpus).unwrap_or(u32::MAX)),
        None => tasks.saturating_mul(options.cpus_per_task.unwrap_or(1)),
    };
    add("resources:".to_owned());
    add(format!("  cpu: {cpus}"));
    let of_cpus = options
        .mem_per_cpu
        .map(|each| model::amount::Bytes(each.0.saturating_mul(u64::from(cpus))));
    let of_gpus = options
        .mem_per_gpu
        .filter(|_| gpus > 0)
        .map(|each| model::amount::Bytes(each.0.saturating_mul(gpus)));
    match options.mem.or(of_cpus).or(of_gpus) {
        Some(memory) if memory.0 > 0 => add(format!("  memory: {}", memory.format_dstack())),
        Some(_) => add("  # --mem=0, all memory of the node: has no counterpart".to_owned()),
        None => add("  # no --mem: a task gets 8GB.. where it names no memory".to_owned()),
    }
    for gres in gres {
        match (gres.name.as_str(), &gres.kind) {
            ("gpu", Some(kind)) => add(format!("  gpu: {kind}:{}", gres.count)),
            ("gpu", None) => add(format!("  gpu: {}", gres.count)),
            (name, _) => add(format!("  # {name}: {}: has no counterpart", gres.count)),
        }
    }
    if let Some(disk) = options.tmp {
        add(format!("  disk: {}..", disk.format_dstack()));
    }
    if tasks > 1 {
        add(format!(
            "  # {tasks} tasks on each node: the commands start once on each, and start the tasks"
        ));
    }
    add(String::new());
    if let Some(TimeLimit::Minutes(minutes)) = options.time {
        let length = Duration::from_secs(60 * u64::from(minutes));
        add(format!("max_duration: {}", duration(Some(length))));
    }
    // Batch jobs wait in the queue however long it takes, and are requeued unless they or the site say otherwise.
    let events = match options.requeue {
        Some(false) => "no-capacity",
        _ => "no-capacity, interruption",
    };
    add(format!("retry: {{on_events: [{events}], duration: {QUEUE_DURATION}}}"));
    if !options.partitions.is_empty() {
        add(format!("fleets: [{}]", options.partitions.join(", ")));
    }
    if let Some(array) = &options.array {
        add(format!("array: {}", quoted(&array.text)));
    }
    if let Some(dependency) = &options.dependency {
        let (terms, others) = dependency::terms(dependency);
        if !terms.is_empty() {
            let terms: Vec<String> = terms.iter().map(|term| quoted(term)).collect();
            add(format!("depends_on: [{}]", terms.join(", ")));
        }
        for other in others {
            add(format!("# --dependency={other}: has no counterpart"));
        }
    }
    let (read_only, volumes): (Vec<_>, Vec<_>) =
        options.volumes.iter().partition(|volume| volume.read_only);
    if !volumes.is_empty() {
        let volumes: Vec<String> = volumes.iter().map(|one| quoted(&one.to_string())).collect();
        add(format!("volumes: [{}]", volumes.join(", ")));
    }
    for volume in read_only {
        add(format!("# --volume={volume}: reading only has no counterpart"));
    }
    let texts = [
        ("account", &options.account),
        ("qos", &options.qos),
        ("reservation", &options.reservation),
        ("working_dir", &options.chdir),
    ];
    for (property, value) in texts {
        if let Some(value) = value {
            add(format!("{property}: {}", quoted(value)));
        }
    }
    for setting in settings.iter().filter(|setting| !CONVERTED.contains(&setting.key)) {
        let name = long_name(Command::Sbatch, setting.key);
        let value = setting.value.as_ref().map_or(String::new(), |value| format!("={value}"));
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        add(format!("# --{name}{value}: has no counterpart"));
    }
    lines.join("\n") + "\n"
}

/// The GPUs and other resources of one of so many nodes, which has so many tasks. GPUs that are counted for nodes or for the job
/// are those that the tasks share.
fn gres_of_node(options: &JobOptions, nodes: u32, tasks: u32) -> Vec<GresCount> {
    let of_all = options
        .gpus
        .iter()
        .map(|gpu| GresCount { count: gpu.count.div_ceil(u64::from(nodes.max(1))), ..gpu.clone() });
    let on_each = options.gpus_per_node.iter().chain(&options.gres).cloned();
    let mut found: Vec<GresCount> = on_each.chain(of_all).collect();
    let has_gpus = gpu_count(&found) > 0;
    let of_tasks = options.gpus_per_task.iter().filter(|_| !has_gpus).chain(&options.gres_per_task);
    found.extend(of_tasks.map(|gres| GresCount {
        count: gres.count.saturating_mul(u64::from(tasks)),
        ..gres.clone()
    }));
    found
}

/// The tasks that `--gpus` and `--gpus-per-task` come to.
fn tasks_of_gpus(options: &JobOptions) -> Option<u32> {
    let tasks = gpu_count(&options.gpus).checked_div(gpu_count(&options.gpus_per_task))?;
    u32::try_from(tasks).ok().filter(|tasks| *tasks > 0)
}

fn gpu_count(gres: &[GresCount]) -> u64 {
    let gpus = gres.iter().filter(|gres| gres.name == "gpu");
    gpus.map(|gres| gres.count).fold(0, u64::saturating_add)
}

/// The script without its first line and its directives, which end with the first command.
fn body(text: &str) -> Vec<&str> {
    let mut in_header = true;
    let lines = text.lines().skip(1).filter(|line| {
        in_header &= line.trim().is_empty() || line.starts_with('#');
        !(in_header && line.starts_with(script::DIRECTIVE))
    });
    lines.skip_while(|line| line.trim().is_empty()).collect()
}

/// `shell:` where the script's first line names another than commands have anyway, and a comment for what it says besides.
fn interpreter(text: &str, has_image: bool) -> Vec<String> {
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    let mut words = line.trim_start_matches("#!").split_whitespace().peekable();
    let mut program = words.next().unwrap_or_default();
    if program.ends_with("/env") {
        program = words.next().unwrap_or_default();
    }
    let name = program.rsplit('/').next().unwrap_or_default();
    let is_path = program.starts_with('/');
    if !SHELLS.contains(&name) || !is_path && !["sh", "bash"].contains(&name) {
        return vec![format!("# {line}: has no counterpart: commands are read by a shell")];
    }
    let default = if has_image { "/bin/sh" } else { "/bin/bash" };
    let path = if is_path { program.to_owned() } else { format!("/bin/{name}") };
    let mut lines = Vec::new();
    if path.trim_start_matches("/usr") != default {
        lines.push(format!("shell: {}", quoted(program)));
    }
    if words.peek().is_some() {
        lines.push(format!("# {line}: the options of the shell have no counterpart: use `set`"));
    }
    lines
}

/// In double quotes, as JSON and YAML have them.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A name that dstack takes: lower-case letters, digits and `-`, from a letter on.
fn run_name(name: &str) -> String {
    let lower = name.to_lowercase();
    let plain: String = lower
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let start = plain.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let name: String = start.chars().take(41).collect();
    if ::dstack::name::is_valid(&name) { name } else { "job".to_owned() }
}
