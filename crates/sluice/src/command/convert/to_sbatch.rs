//! From a task to a batch script.

use ::dstack::configuration::env::{Value as VariableValue, Variable};
use ::dstack::configuration::resources::Resources;
use ::dstack::configuration::tables::run::TASK;
use ::dstack::configuration::task::{Mount, Task};
use ::dstack::configuration::value::Value;
use model::amount::Bytes;
use model::interpolation::{self, Piece, Place, Reference};
use model::range::Range;
use model::shell::quoted;

/// The properties that become options or lines. The others become comments.
const CONVERTED: &[&str] = &[
    "type",
    "name",
    "volumes",
    "commands",
    "nodes",
    "resources",
    "env",
    "max_duration",
    "fleets",
    "array",
    "depends_on",
    "account",
    "qos",
    "working_dir",
    "shell",
    "retry",
    "runtime",
    "image",
    "reservation",
    "tags",
];

/// A run without `max_duration` has all the time that its partition gives; a script has no option for that.
const NO_DURATION: &str =
    "# max_duration: none is given, and without --time the partition's DefaultTime holds";

pub fn script(task: &Task, value: &Value) -> String {
    let mut lines = vec![format!("#!{}", task.shell.0)];
    let mut option = |text: String| lines.push(format!("#SBATCH --{text}"));
    if let Some(name) = &task.name {
        option(format!("job-name={name}"));
    }
    match task.nodes.max {
        Some(most) if most != task.nodes.min => option(format!("nodes={}-{most}", task.nodes.min)),
        _ => option(format!("nodes={}", task.nodes.min)),
    }
    let resources = &task.resources;
    option("ntasks-per-node=1".to_owned());
    option(format!("cpus-per-task={}", resources.cpu.count.min.max(1)));
    option(format!("mem={}M", resources.memory.min.mib()));
    if let Some(gpu) = resources.gpu.as_ref().filter(|gpu| gpu.count.min > 0) {
        let kind =
            gpu.names.first().map_or(String::new(), |name| format!("{}:", name.to_lowercase()));
        option(format!("gpus-per-node={kind}{}", gpu.count.min));
    }
    if resources.disk_given {
        option(format!("tmp={}M", resources.disk.min.mib()));
    }
    if task.nodes.max != Some(1) {
        option("exclusive".to_owned());
    }
    if task.retry.as_ref().is_some_and(|retry| retry.on_interruption) {
        option("requeue".to_owned());
    }
    if !task.tags.is_empty() {
        let tags: Vec<String> = task.tags.iter().map(|(key, tag)| format!("{key}={tag}")).collect();
        option(format!("comment={}", word(&tags.join(","))));
    }
    if let Some(length) = task.max_duration {
        option(format!("time={}", length.as_secs().div_ceil(60)));
    }
    let fleets: Vec<&str> = task.fleets.iter().map(|fleet| fleet.name.as_str()).collect();
    if !fleets.is_empty() {
        option(format!("partition={}", word(&fleets.join(","))));
    }
    // `KIND:RUN`; Slurm knows jobs by their numbers alone.
    let is_number =
        |term: &&String| term.rsplit_once(':').is_some_and(|(_, run)| run.parse::<u32>().is_ok());
    let (numbered, named): (Vec<&String>, Vec<&String>) =
        task.depends_on.iter().partition(is_number);
    if !numbered.is_empty() {
        let terms: Vec<&str> = numbered.iter().map(|term| term.as_str()).collect();
        option(format!("dependency={}", word(&terms.join(","))));
    }
    let single = [
        ("array", &task.array),
        ("account", &task.account),
        ("qos", &task.qos),
        ("chdir", &task.working_dir),
        ("reservation", &task.profile.reservation),
        ("container-image", &task.container.image),
    ];
    for (name, value) in single {
        if let Some(value) = value {
            option(format!("{name}={}", word(value)));
        }
    }
    let mut other_volumes = Vec::new();
    for volume in &task.volumes {
        match volume {
            Mount::Volume { names, path } if names.len() == 1 => {
                option(format!("volume={}", word(&format!("{}:{path}", names[0]))));
            }
            Mount::Instance { path, .. }
            | Mount::Named { path, .. }
            | Mount::Volume { path, .. } => {
                other_volumes.push(format!("# volumes: {path}: has no counterpart"));
            }
        }
    }
    let mut exports = Vec::new();
    for variable in &task.env.0 {
        match export(variable) {
            Export::Secret(secret) => option(format!("secret={secret}={}", variable.name)),
            Export::Line(line) => exports.push(line),
        }
    }
    lines.extend(other_volumes);
    let by_name = |term: &&String| {
        format!("# depends_on: {term}: put the number of its job into --dependency")
    };
    lines.extend(named.iter().map(by_name));
    if task.max_duration.is_none() {
        lines.push(NO_DURATION.to_owned());
    }
    lines.extend(without_counterpart(value));
    if task.retry.as_ref().is_some_and(|retry| retry.on_error) {
        lines.push("# retry: on error: has no counterpart".to_owned());
    }
    lines.extend(resource_comments("resources", resources));
    for (group, index) in task.groups.iter().zip(0..) {
        let name = group.name.clone().unwrap_or_else(|| index.to_string());
        for own in &group.commands {
            lines.push(format!("# groups: {name}: {}: has no counterpart", one_line(own)));
        }
    }
    lines.push(String::new());
    lines.extend(exports);
    let hint = match task.nodes.max {
        Some(1) => "",
        _ => "# on each node, as dstack does: put `srun` before what shall run on all of them\n",
    };
    lines.push(format!("{hint}set -e"));
    lines.extend(task.commands.iter().map(|text| command(text.trim_end())));
    lines.join("\n") + "\n"
}

/// A comment for each bound that an option of a batch script cannot say.
fn resource_comments(of: &str, resources: &Resources) -> Vec<String> {
    let mut said: Vec<(&str, String)> = Vec::new();
    let (cpus, memory, disk) = (&resources.cpu.count, &resources.memory, &resources.disk);
    if let Some(most) = cpus.max.filter(|_| !cpus.is_exact()) {
        said.push(("cpu", format!("at most {most}")));
    }
    if let Some(most) = memory.max.filter(|_| !memory.is_exact()) {
        said.push(("memory", format!("at most {}", most.format_dstack())));
    }
    if let Some(most) = disk.max.filter(|_| resources.disk_given && !disk.is_exact()) {
        said.push(("disk", format!("at most {}", most.format_dstack())));
    }
    if let Some(architecture) = resources.cpu.architecture {
        said.push(("cpu.arch", architecture.to_string()));
    }
    if let Some(size) = resources.shm_size {
        said.push(("shm_size", size.format_dstack()));
    }
    let gpu = resources.gpu.as_ref().filter(|gpu| gpu.count.max != Some(0));
    if let Some(gpu) = gpu {
        if let Some(most) = gpu.count.max.filter(|most| *most != gpu.count.min) {
            said.push(("gpu.count", format!("at most {most}")));
        }
        if gpu.names.len() > 1 {
            said.push(("gpu.name", format!("or {}", gpu.names[1..].join(", "))));
        }
        if let Some(vendor) = gpu.vendor.filter(|_| gpu.names.is_empty()) {
            said.push(("gpu.vendor", vendor.as_str().to_owned()));
        }
        if let Some(memory) = &gpu.memory {
            said.push(("gpu.memory", sizes(memory)));
        }
        if let Some(total) = &gpu.total_memory {
            said.push(("gpu.total_memory", sizes(total)));
        }
        if let Some(least) = gpu.compute_capability {
            said.push(("gpu.compute_capability", least.to_string()));
        }
    }
    let comment =
        |(name, text): (&str, String)| format!("# {of}.{name}: {text}: has no counterpart");
    said.into_iter().map(comment).collect()
}

fn sizes(range: &Range<Bytes>) -> String {
    let most = range.max.map(|most| most.format_dstack()).unwrap_or_default();
    format!("{}..{most}", range.min.format_dstack())
}

/// A command as text of one line.
fn one_line(text: &str) -> String {
    serde_json::Value::from(text.trim_end()).to_string()
}

/// What sets a variable of the task.
enum Export {
    /// An option with this secret.
    Secret(String),
    /// A line of the script.
    Line(String),
}

fn export(variable: &Variable) -> Export {
    let name = &variable.name;
    let text = match &variable.value {
        VariableValue::Text(text) => text,
        VariableValue::FromClient(_) => {
            return Export::Line(format!("# {name} comes from your environment"));
        }
    };
    let pieces = pieces(text, Place::Environment);
    if let [Piece::Reference(Reference::Secret(secret))] = &pieces[..] {
        return Export::Secret(secret.clone());
    }
    Export::Line(match interpolation::fill(&pieces, |_| None) {
        Ok(text) => format!("export {name}={}", quoted(&text)),
        Err(_) => {
            let text = serde_json::Value::from(text.as_str());
            format!("# env: {name}={text}: has no counterpart")
        }
    })
}

/// With `${{` where the configuration has `$${{`; references stay as they are.
fn command(text: &str) -> String {
    let written = |piece| match piece {
        Piece::Text(text) => text,
        Piece::Reference(reference) => reference.text(),
    };
    pieces(text, Place::Command).into_iter().map(written).collect()
}

/// A text of a configuration that was read well.
fn pieces(text: &str, place: Place) -> Vec<Piece> {
    interpolation::parse(text, place).unwrap_or_else(|_| vec![Piece::Text(text.to_owned())])
}

/// A comment for each property that says something and has no option.
fn without_counterpart(value: &Value) -> Vec<String> {
    let said = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::List(items) => !items.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
        _ => true,
    };
    let others = TASK.properties().filter(|property| {
        !CONVERTED.contains(&property.name)
            && property.name != "home_dir"
            && said(value.get(property.name))
    });
    others
        .map(|property| {
            let text = serde_json::to_string(value.get(property.name)).unwrap_or_default();
            format!("# {}: {text}: has no counterpart", property.name)
        })
        .collect()
}

/// As one word of a directive, which is one line.
fn word(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@%+,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { quoted(&text) }
}
