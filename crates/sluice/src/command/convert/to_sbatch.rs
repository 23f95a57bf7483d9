//! From a task to a batch script.

use ::dstack::configuration::env::Value as Variable;
use ::dstack::configuration::property::PropertySupport;
use ::dstack::configuration::tables::run::TASK;
use ::dstack::configuration::task::Task;
use ::dstack::configuration::value::Value;

/// The properties that become options or lines. The others become comments.
const CONVERTED: &[&str] = &[
    "type",
    "name",
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
];

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
    if let Some(length) = task.max_duration {
        option(format!("time={}", length.as_secs().div_ceil(60)));
    }
    let fleets: Vec<&str> = task.fleets.iter().map(|fleet| fleet.name.as_str()).collect();
    if !fleets.is_empty() {
        option(format!("partition={}", fleets.join(",")));
    }
    if !task.depends_on.is_empty() {
        option(format!("dependency={}", task.depends_on.join(",")));
    }
    let single = [
        ("array", &task.array),
        ("account", &task.account),
        ("qos", &task.qos),
        ("chdir", &task.working_dir),
    ];
    for (name, value) in single {
        if let Some(value) = value {
            option(format!("{name}={value}"));
        }
    }
    lines.extend(without_counterpart(value));
    lines.push(String::new());
    for variable in &task.env.0 {
        lines.push(match &variable.value {
            Variable::Text(text) => format!("export {}={}", variable.name, quoted(text)),
            Variable::FromClient(_) => format!("# {} comes from your environment", variable.name),
        });
    }
    let command = match task.nodes.max {
        Some(1) => "",
        _ => "# on each node, as dstack does: put `srun` before what shall run on all of them\n",
    };
    lines.push(format!("{command}set -e"));
    lines.extend(task.commands.iter().map(|command| command.trim_end().to_owned()));
    lines.join("\n") + "\n"
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
            && property.support != PropertySupport::Acts
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

/// In single quotes for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
