//! The jobs of the books as v0.0.40 and later write them, from the form of v0.0.38: flags around numbers, arrays of states, and
//! properties that were not there before.

use super::Version;
use super::field::Number;
use model::record::JobRecord;
use model::tres::TresKind;
use serde_json::{Map, Value, json};

/// How a later version writes what v0.0.38 writes otherwise.
#[derive(Debug, Clone, Copy)]
enum Retype {
    /// A word is the one element of an array.
    List,
    /// A number with its flags.
    Set,
    /// The same, where null means no bound.
    Limit,
    /// A text, where null means none.
    Text,
    /// The word of an array that has one at most.
    Word,
    /// The numbers of an exit code with their flags.
    Exit,
}

const JOB: &[(&str, Retype)] = &[
    ("/array/task", Retype::Text),
    ("/array/task_id", Retype::Set),
    ("/association/partition", Retype::Text),
    ("/comment/administrator", Retype::Text),
    ("/comment/job", Retype::Text),
    ("/comment/system", Retype::Text),
    ("/container", Retype::Text),
    ("/derived_exit_code", Retype::Exit),
    ("/exit_code", Retype::Exit),
    ("/het/job_offset", Retype::Set),
    ("/kill_request_user", Retype::Text),
    ("/priority", Retype::Set),
    ("/state/current", Retype::List),
    ("/time/limit", Retype::Limit),
];

const STEP: &[(&str, Retype)] = &[
    ("/CPU/governor", Retype::Word),
    ("/CPU/requested_frequency/max", Retype::Set),
    ("/CPU/requested_frequency/min", Retype::Set),
    ("/exit_code", Retype::Exit),
    ("/kill_request_user", Retype::Text),
    ("/pid", Retype::Text),
    ("/state", Retype::List),
    ("/statistics/energy/consumed", Retype::Set),
    ("/time/end", Retype::Set),
    ("/time/start", Retype::Set),
];

/// Gives a job of v0.0.38 the form of a later version.
pub fn rewrite(version: Version, record: &JobRecord, job: &mut Value) {
    retype(job, JOB);
    job["association"]["id"] = json!(0);
    job["required"] = required(record);
    if version >= Version::V41 {
        job["time"]["planned"] = Number::from(planned_s(record)).with_flags();
    }
    if let Value::Object(job) = job {
        job.extend(added(version, record));
    }
    for step in job["steps"].as_array_mut().into_iter().flatten() {
        retype(step, STEP);
        step["task"] = json!({ "distribution": step["task"] });
        step["step"] = json!({ "id": step["step"]["id"], "name": step["step"]["name"] });
    }
}

fn retype(object: &mut Value, changes: &[(&str, Retype)]) {
    for (path, change) in changes {
        let Some(value) = object.pointer_mut(path) else { continue };
        let old = value.take();
        *value = match change {
            Retype::List => json!([old]),
            Retype::Set => Number::from(old.as_u64()).with_flags(),
            Retype::Limit => old.as_u64().map_or(Number::Infinite, Number::Of).with_flags(),
            Retype::Text => json!(old.as_str().unwrap_or("")),
            Retype::Word => json!(old[0].as_str().unwrap_or("")),
            Retype::Exit => json!({
                "status": [old["status"]],
                "return_code": Number::from(old["return_code"].as_u64()).with_flags(),
                "signal": {
                    "id": Number::from(old["signal"]["signal_id"].as_u64()).with_flags(),
                    "name": old["signal"]["name"].as_str().unwrap_or(""),
                },
            }),
        };
    }
}

/// The books have the memory of all nodes together, whatever it was asked for by.
fn required(record: &JobRecord) -> Value {
    let memory = record.req_tres.amount(&TresKind::Mem) / u64::from(record.req_nodes.max(1));
    json!({
        "CPUs": record.req_cpus,
        "memory_per_cpu": Number::Unset.with_flags(),
        "memory_per_node": Number::Of(memory).with_flags(),
    })
}

/// How long it waited once it could have started.
fn planned_s(record: &JobRecord) -> Option<u64> {
    let (eligible, start) = (record.eligible?, record.start?);
    u64::try_from(start.secs() - eligible.secs()).ok()
}

/// What v0.0.38 does not have. Fields that have no meaning here have the value that Slurm gives them where nothing is set.
fn added(version: Version, record: &JobRecord) -> Map<String, Value> {
    let mut fields = Map::new();
    for name in ["block", "extra", "failed_node", "licenses", "script", "used_gres"] {
        fields.insert(name.to_owned(), json!(""));
    }
    fields.insert("hold".to_owned(), json!(false));
    if version >= Version::V41 {
        let streams = record.streams.as_ref();
        let files = [
            ("stdin", streams.map(|files| &*files.stdin)),
            ("stdout", streams.map(|files| &*files.stdout)),
            ("stderr", streams.map(|files| &*files.stderr)),
        ];
        for (name, file) in files {
            fields.insert(name.to_owned(), json!(file.unwrap_or("")));
            fields.insert(format!("{name}_expanded"), json!(file.unwrap_or("")));
        }
    }
    if version >= Version::V42 {
        fields.insert("qosreq".to_owned(), json!(""));
        fields.insert("restart_cnt".to_owned(), json!(record.restarts));
    }
    fields
}
