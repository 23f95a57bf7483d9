//! Documents that only slurmrestd answers with: it has a path for each, where the commands have none.

use super::{CONTROLLER, meta};
use model::id::JobId;
use serde_json::{Value, json};

/// `GET …/ping`
pub fn ping(hostname: &str) -> Value {
    let controller = json!({"hostname": hostname, "ping": "UP", "status": 0, "mode": "primary"});
    json!({"meta": meta(CONTROLLER), "errors": [], "pings": [controller]})
}

/// `POST …/job/submit`
pub fn submitted(job: JobId) -> Value {
    json!({
        "meta": meta(CONTROLLER), "errors": [],
        "job_id": job.0, "step_id": "BATCH", "job_submit_user_msg": "",
    })
}

/// What was asked for is done, and there is nothing to show.
pub fn done() -> Value {
    json!({"meta": meta(CONTROLLER), "errors": []})
}

/// It is not done, and why; `number` is Slurm's own, or zero.
pub fn refused(text: &str, number: u32) -> Value {
    json!({"meta": meta(CONTROLLER), "errors": [{"error": text, "errno": number}]})
}

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
}

/// The properties of a job that is submitted, each by the option of `sbatch` that says the same. Not formatted by rustfmt: a row is
/// one line.
#[rustfmt::skip]
const PROPERTIES: &[(&str, &str, Kind)] = &[
    ("account",                    "account",           Kind::Value),
    ("array",                      "array",             Kind::Value),
    ("begin_time",                 "begin",             Kind::Value),
    ("comment",                    "comment",           Kind::Value),
    ("constraints",                "constraint",        Kind::Value),
    ("cores_per_socket",           "cores-per-socket",  Kind::Value),
    ("cpus_per_gpu",               "cpus-per-gpu",      Kind::Value),
    ("cpus_per_task",              "cpus-per-task",     Kind::Value),
    ("current_working_directory",  "chdir",             Kind::Value),
    ("deadline",                   "deadline",          Kind::Value),
    ("dependency",                 "dependency",        Kind::Value),
    ("exclusive",                  "exclusive",         Kind::Flag),
    ("gpus",                       "gpus",              Kind::Value),
    ("gpus_per_node",              "gpus-per-node",     Kind::Value),
    ("gpus_per_socket",            "gpus-per-socket",   Kind::Value),
    ("gpus_per_task",              "gpus-per-task",     Kind::Value),
    ("gres",                       "gres",              Kind::Value),
    ("hold",                       "hold",              Kind::Flag),
    ("licenses",                   "licenses",          Kind::Value),
    ("mail_type",                  "mail-type",         Kind::Value),
    ("mail_user",                  "mail-user",         Kind::Value),
    ("memory_per_cpu",             "mem-per-cpu",       Kind::Value),
    ("memory_per_gpu",             "mem-per-gpu",       Kind::Value),
    ("memory_per_node",            "mem",               Kind::Value),
    ("minimum_cpus_per_node",      "mincpus",           Kind::Value),
    ("name",                       "job-name",          Kind::Value),
    ("nice",                       "nice",              Kind::Value),
    ("nodes",                      "nodes",             Kind::Range),
    ("open_mode",                  "open-mode",         Kind::Value),
    ("partition",                  "partition",         Kind::Value),
    ("priority",                   "priority",          Kind::Value),
    ("qos",                        "qos",               Kind::Value),
    ("requeue",                    "requeue",           Kind::Switch),
    ("reservation",                "reservation",       Kind::Value),
    ("signal",                     "signal",            Kind::Value),
    ("sockets_per_node",           "sockets-per-node",  Kind::Value),
    ("standard_error",             "error",             Kind::Value),
    ("standard_input",             "input",             Kind::Value),
    ("standard_output",            "output",            Kind::Value),
    ("tasks",                      "ntasks",            Kind::Value),
    ("tasks_per_core",             "ntasks-per-core",   Kind::Value),
    ("tasks_per_node",             "ntasks-per-node",   Kind::Value),
    ("tasks_per_socket",           "ntasks-per-socket", Kind::Value),
    ("threads_per_core",           "threads-per-core",  Kind::Value),
    ("time_limit",                 "time",              Kind::Value),
    ("time_minimum",               "time-min",          Kind::Value),
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
    let mut options = Vec::new();
    for (name, value) in properties.iter().filter(|(name, _)| *name != "environment") {
        let row = PROPERTIES.iter().find(|(known, ..)| known == name);
        let (_, option, kind) = row.ok_or_else(|| format!("{name}: this property is not taken"))?;
        let unread = || format!("{name}: {value}: expected {}", kind.expected());
        match kind {
            Kind::Value => {
                let text = plain(value).ok_or_else(unread)?;
                options.push(format!("--{option}={text}"));
            }
            Kind::Flag | Kind::Switch => match (value.as_bool().ok_or_else(unread)?, kind) {
                (true, _) => options.push(format!("--{option}")),
                (false, Kind::Switch) => options.push(format!("--no-{option}")),
                (false, _) => {}
            },
            Kind::Range => {
                let ends: Option<Vec<String>> = match value.as_array() {
                    Some(ends) => ends.iter().map(plain).collect(),
                    None => plain(value).map(|one| vec![one]),
                };
                let ends = ends.filter(|ends| (1..=2).contains(&ends.len())).ok_or_else(unread)?;
                options.push(format!("--{option}={}", ends.join("-")));
            }
        }
    }
    Ok(options)
}

impl Kind {
    fn expected(self) -> &'static str {
        match self {
            Self::Value => "a text or a number",
            Self::Flag | Self::Switch => "true or false",
            Self::Range => "a number, or the least and the most in an array",
        }
    }
}

fn plain(value: &Value) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::Command;
    use crate::option::parse;

    #[test]
    fn every_property_is_an_option_that_sbatch_has() {
        for (name, option, kind) in PROPERTIES {
            let word = match kind {
                Kind::Flag | Kind::Switch => format!("--{option}"),
                Kind::Value | Kind::Range => format!("--{option}=1"),
            };
            let parsed = parse::parse_components(Command::Sbatch, &[word.as_str()]);
            assert!(parsed.is_ok(), "{name}: {parsed:?}");
        }
    }

    #[test]
    fn properties_become_options_and_unknown_ones_are_named() {
        let job = json!({"name": "a b", "nodes": [1, 2], "tasks": 4, "hold": true, "requeue": false, "environment": {"A": "1"}});
        let mut found = options(&job).expect("options");
        found.sort_unstable();
        assert_eq!(
            found,
            ["--hold", "--job-name=a b", "--no-requeue", "--nodes=1-2", "--ntasks=4"]
        );
        assert_eq!(environment(&job), Ok(vec![("A".to_owned(), "1".to_owned())]));
        let array = json!({"environment": ["A=1=2"]});
        assert_eq!(environment(&array), Ok(vec![("A".to_owned(), "1=2".to_owned())]));
        for (bad, word) in [
            (json!({"uid": 0}), "uid"),
            (json!({"hold": "yes"}), "true or false"),
            (json!({"nodes": [1, 2, 3]}), "nodes"),
            (json!({"name": {"a": 1}}), "name"),
            (json!([]), "object"),
        ] {
            let why = options(&bad).expect_err("refused");
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
        }
        assert!(environment(&json!({"environment": {"A": []}})).is_err());
        assert_eq!((options(&Value::Null), environment(&Value::Null)), (Ok(vec![]), Ok(vec![])));
    }
}
