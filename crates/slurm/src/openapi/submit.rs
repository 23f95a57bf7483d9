//! What clients of slurmrestd send to submit a job: each property stands for the option of `sbatch` that says the same.

use model::time::{Timestamp, format_iso};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The type of a property's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A text or a number, as the option's own value.
    Value,
    /// The option is given where it is true.
    Flag,
    /// The same, and where it is false the option that says the contrary.
    Switch,
    /// A number, or the least and the most.
    Range,
    /// Words, in an array or with commas.
    List,
    /// Seconds since the epoch, or a text as the option takes it.
    Time,
    /// A number of GPUs, as `gres:gpu:2` or `gres/gpu:2`.
    Gpus,
    /// Generic resources, as `gres:gpu:2` or `gres/gpu:2`.
    Gres,
    /// Whether the job has its nodes for itself, and against whom.
    Exclusive,
}

/// The properties of a job that is submitted, each by the option of `sbatch` that says the same. Not formatted by rustfmt: a row is
/// one line.
#[rustfmt::skip]
const PROPERTIES: &[(&str, &str, Kind)] = &[
    ("account",                    "account",           Kind::Value),
    ("account_gather_frequency",   "acctg-freq",        Kind::Value),
    ("array",                      "array",             Kind::Value),
    ("begin_time",                 "begin",             Kind::Time),
    ("comment",                    "comment",           Kind::Value),
    ("constraints",                "constraint",        Kind::Value),
    ("container",                  "container",         Kind::Value),
    ("contiguous",                 "contiguous",        Kind::Flag),
    ("cores_per_socket",           "cores-per-socket",  Kind::Value),
    ("cpu_frequency",              "cpu-freq",          Kind::Value),
    ("cpus_per_gpu",               "cpus-per-gpu",      Kind::Value),
    ("cpus_per_task",              "cpus-per-task",     Kind::Value),
    ("cpus_per_tres",              "cpus-per-gpu",      Kind::Gpus),
    ("current_working_directory",  "chdir",             Kind::Value),
    ("deadline",                   "deadline",          Kind::Time),
    ("dependency",                 "dependency",        Kind::Value),
    ("distribution",               "distribution",      Kind::Value),
    ("excluded_nodes",             "exclude",           Kind::List),
    ("exclusive",                  "exclusive",         Kind::Exclusive),
    ("gpus",                       "gpus",              Kind::Value),
    ("gpus_per_node",              "gpus-per-node",     Kind::Value),
    ("gpus_per_socket",            "gpus-per-socket",   Kind::Value),
    ("gpus_per_task",              "gpus-per-task",     Kind::Value),
    ("gres",                       "gres",              Kind::Value),
    ("hold",                       "hold",              Kind::Flag),
    ("licenses",                   "licenses",          Kind::Value),
    ("mail_type",                  "mail-type",         Kind::List),
    ("mail_user",                  "mail-user",         Kind::Value),
    ("memory_per_cpu",             "mem-per-cpu",       Kind::Value),
    ("memory_per_gpu",             "mem-per-gpu",       Kind::Value),
    ("memory_per_node",            "mem",               Kind::Value),
    ("memory_per_tres",            "mem-per-gpu",       Kind::Gpus),
    ("minimum_cpus_per_node",      "mincpus",           Kind::Value),
    ("name",                       "job-name",          Kind::Value),
    ("nice",                       "nice",              Kind::Value),
    ("nodes",                      "nodes",             Kind::Range),
    ("ntasks_per_tres",            "ntasks-per-gpu",    Kind::Value),
    ("open_mode",                  "open-mode",         Kind::List),
    ("overcommit",                 "overcommit",        Kind::Flag),
    ("oversubscribe",              "oversubscribe",     Kind::Flag),
    ("partition",                  "partition",         Kind::Value),
    ("prefer",                     "prefer",            Kind::Value),
    ("priority",                   "priority",          Kind::Value),
    ("qos",                        "qos",               Kind::Value),
    ("requeue",                    "requeue",           Kind::Switch),
    ("required_nodes",             "nodelist",          Kind::List),
    ("reservation",                "reservation",       Kind::Value),
    ("segment_size",               "segment",           Kind::Value),
    ("signal",                     "signal",            Kind::Value),
    ("sockets_per_node",           "sockets-per-node",  Kind::Value),
    ("standard_error",             "error",             Kind::Value),
    ("standard_input",             "input",             Kind::Value),
    ("standard_output",            "output",            Kind::Value),
    ("tasks",                      "ntasks",            Kind::Value),
    ("tasks_per_core",             "ntasks-per-core",   Kind::Value),
    ("tasks_per_node",             "ntasks-per-node",   Kind::Value),
    ("tasks_per_socket",           "ntasks-per-socket", Kind::Value),
    ("temporary_disk_per_node",    "tmp",               Kind::Value),
    ("threads_per_core",           "threads-per-core",  Kind::Value),
    ("time_limit",                 "time",              Kind::Value),
    ("time_minimum",               "time-min",          Kind::Value),
    ("tres_bind",                  "tres-bind",         Kind::Value),
    ("tres_per_job",               "gpus",              Kind::Gpus),
    ("tres_per_node",              "gres",              Kind::Gres),
    ("tres_per_socket",            "gpus-per-socket",   Kind::Gpus),
    ("tres_per_task",              "gpus-per-task",     Kind::Gpus),
    ("wckey",                      "wckey",             Kind::Value),
];

/// The options of `sbatch` that say what a job's properties say; else the first property that cannot be taken. The environment is
/// no option.
pub fn options(properties: &Value) -> Result<Vec<String>, String> {
    // As a client writes a field that it does not fill, and as one that it leaves out is read.
    if properties.is_null() {
        return Ok(Vec::new());
    }
    let Some(properties) = properties.as_object() else {
        return Err("job: expected an object of properties".to_owned());
    };
    let together = [node_counts(properties)?, warning(properties)?, switches(properties)?];
    let mut options: Vec<String> = together.into_iter().flatten().collect();
    for (name, value) in properties.iter().filter(|(name, _)| !is_apart(name)) {
        // What a client writes for a field that it does not fill.
        let Some(value) = given(value) else { continue };
        let row = PROPERTIES.iter().find(|(known, ..)| known == name);
        let (_, option, kind) = row.ok_or_else(|| format!("{name}: this property is not taken"))?;
        let unread = || format!("{name}: {value}: expected {}", kind.expected());
        options.extend(kind.option(option, &value).ok_or_else(unread)?);
    }
    Ok(options)
}

/// Properties that stand for no option, or for one together.
fn is_apart(name: &str) -> bool {
    let texts = ["environment", "script"];
    let together = [MINIMUM_NODES, MAXIMUM_NODES, WARNING, WARNING_DELAY, SWITCHES, SWITCHES_WAIT];
    texts.contains(&name) || together.contains(&name)
}

/// The most switches between a job's nodes, and for how many seconds it waits to have no more.
const SWITCHES: &str = "required_switches";
const SWITCHES_WAIT: &str = "wait_for_switch";

fn switches(properties: &Map<String, Value>) -> Result<Option<String>, String> {
    let (most, wait) = (count(properties, SWITCHES)?, count(properties, SWITCHES_WAIT)?);
    let most = most.filter(|most| *most > 0);
    Ok(most.map(|most| match wait.filter(|wait| *wait > 0) {
        Some(wait) => format!("--switches={most}@{}:{:02}", wait / 60, wait % 60),
        None => format!("--switches={most}"),
    }))
}

/// A property that is a number; `None` where it is not given.
fn count(properties: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    let Some(value) = properties.get(name).and_then(given) else { return Ok(None) };
    let count = value.as_u64().ok_or_else(|| format!("{name}: {value}: expected a number"))?;
    Ok(Some(count))
}

/// The signal before the end of the time, and how many seconds before.
const WARNING: &str = "kill_warning_signal";
const WARNING_DELAY: &str = "kill_warning_delay";

fn warning(properties: &Map<String, Value>) -> Result<Option<String>, String> {
    let text = |name: &str| -> Result<Option<String>, String> {
        let Some(value) = properties.get(name).and_then(given) else { return Ok(None) };
        let unread = || format!("{name}: {value}: expected a text or a number");
        plain(&value).ok_or_else(unread).map(Some)
    };
    Ok(match (text(WARNING)?, text(WARNING_DELAY)?) {
        (Some(signal), Some(delay)) => Some(format!("--signal={signal}@{delay}")),
        (Some(signal), None) => Some(format!("--signal={signal}")),
        // Slurm sends nothing without a signal.
        (None, _) => None,
    })
}

const MINIMUM_NODES: &str = "minimum_nodes";
const MAXIMUM_NODES: &str = "maximum_nodes";

fn node_counts(properties: &Map<String, Value>) -> Result<Option<String>, String> {
    Ok(match (count(properties, MINIMUM_NODES)?, count(properties, MAXIMUM_NODES)?) {
        (None, None) => None,
        (Some(least), None) => Some(format!("--nodes={least}")),
        (least, Some(most)) => Some(format!("--nodes={}-{most}", least.unwrap_or(1))),
    })
}

/// The value of a property, without the flags that later versions put around numbers; nothing where it is not set.
pub(super) fn given(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(words) if words.is_empty() => None,
        Value::Object(parts) if parts.contains_key("number") || parts.contains_key("set") => {
            let is = |flag: &str| parts.get(flag).and_then(Value::as_bool);
            if is("infinite") == Some(true) {
                return Some("UNLIMITED".into());
            }
            parts.get("number").filter(|_| is("set") != Some(false)).cloned()
        }
        other => Some(other.clone()),
    }
}

impl Kind {
    /// The words of the command line for a value; `None` where the value cannot be read.
    fn option(self, option: &str, value: &Value) -> Option<Vec<String>> {
        let with = |text: String| Some(vec![format!("--{option}={text}")]);
        match self {
            Self::Value => with(plain(value)?),
            Self::Flag | Self::Switch => Some(match (value.as_bool()?, self) {
                (true, _) => vec![format!("--{option}")],
                (false, Self::Switch) => vec![format!("--no-{option}")],
                (false, _) => Vec::new(),
            }),
            Self::Range => {
                let ends: Vec<String> = match value.as_array() {
                    Some(ends) => ends.iter().map(plain).collect::<Option<_>>()?,
                    None => vec![plain(value)?],
                };
                if ends.len() > 2 { None } else { with(ends.join("-")) }
            }
            Self::List => with(words(value)?.join(",")),
            Self::Time => with(match value.as_i64() {
                Some(seconds) => {
                    let time = Timestamp(seconds.checked_mul(1000)?);
                    format_iso(time, &timezone::local())
                }
                None => value.as_str()?.to_owned(),
            }),
            Self::Gres => {
                let requests = value.as_str()?.split(',').map(|one| after(one, "gres"));
                with(requests.collect::<Vec<_>>().join(",").replace('=', ":"))
            }
            Self::Gpus => with(after(after(value.as_str()?, "gres"), "gpu").to_owned()),
            Self::Exclusive => Some(match value.as_bool() {
                Some(false) => Vec::new(),
                Some(true) => vec![format!("--{option}")],
                None => match words(value)?.as_slice() {
                    [word] if word == "false" => Vec::new(),
                    [word] if word == "true" => vec![format!("--{option}")],
                    [word] => vec![format!("--{option}={word}")],
                    _ => return None,
                },
            }),
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Value => "a text or a number",
            Self::Flag | Self::Switch => "true or false",
            Self::Range => "a number, or the least and the most in an array",
            Self::List => "texts in an array",
            Self::Time => "seconds since the epoch",
            Self::Gpus | Self::Gres => "resources as gres:gpu:2",
            Self::Exclusive => "true, false or user",
        }
    }
}

/// `gpu:2` of `gres:gpu:2` and `gres/gpu:2`; a text that begins otherwise is taken as it is.
fn after<'t>(text: &'t str, class: &str) -> &'t str {
    let rest = text.strip_prefix(class);
    rest.and_then(|rest| rest.strip_prefix([':', '/', '='])).unwrap_or(text)
}

/// The words of an array, or of a text with commas.
pub(super) fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Array(words) => words.iter().map(plain).collect(),
        other => plain(other).map(|text| text.split(',').map(str::to_owned).collect()),
    }
}

pub(super) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The variables of a job's `environment`: an object, or texts `NAME=value`.
pub fn environment(properties: &Value) -> Result<Vec<(String, String)>, String> {
    let unread = |value: &Value| format!("environment: {value}: expected texts by name");
    match &properties["environment"] {
        Value::Null => Ok(Vec::new()),
        Value::Object(variables) => variables
            .iter()
            .map(|(name, value)| Ok((name.clone(), plain(value).ok_or_else(|| unread(value))?)))
            .collect(),
        Value::Array(lines) => lines
            .iter()
            .map(|line| {
                let pair = line.as_str().and_then(|line| line.split_once('='));
                let (name, value) = pair.ok_or_else(|| unread(line))?;
                Ok((name.to_owned(), value.to_owned()))
            })
            .collect(),
        other => Err(unread(other)),
    }
}

/// The batch script in a job's properties; `None` where it is left out or empty.
pub fn script(properties: &Value) -> Result<Option<&str>, String> {
    match &properties["script"] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        _ => Err("script: expected the text of a batch script".to_owned()),
    }
}

/// Refuses what a later component of a batch job says of the script or the environment otherwise than the job: the batch script runs in
/// the first component alone, and a job that `sbatch` submits has one of each.
pub fn check_components(script: &str, jobs: &[Value]) -> Result<(), String> {
    let variables = |job: &Value| -> Result<BTreeMap<String, String>, String> {
        Ok(environment(job)?.into_iter().collect())
    };
    let Some((first, later)) = jobs.split_first() else { return Ok(()) };
    let of_first = variables(first)?;
    for (at, job) in (1..).zip(later) {
        let other = |field: &str| {
            let place = format!("jobs[{at}]");
            format!("{field}: {place}: expected none, or the job's, which is that of jobs[0]")
        };
        if self::script(job)?.is_some_and(|own| own != script) {
            return Err(other("script"));
        }
        let own = variables(job)?;
        if !own.is_empty() && own != of_first {
            return Err(other("environment"));
        }
    }
    Ok(())
}

/// Refuses a script and an environment of an allocation, or of a component of one: nothing is started in it. As with `salloc`, its steps
/// bring their environment.
pub fn check_allocation(jobs: &[Value]) -> Result<(), String> {
    for job in jobs {
        if script(job)?.is_some() {
            return Err("script: an allocation has none; expected job/submit".to_owned());
        }
        if !environment(job)?.is_empty() {
            let why = "environment: an allocation has none: its steps bring theirs";
            return Err(format!("{why}; expected job/submit"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "submit_tests.rs"]
mod tests;
