//! What clients of slurmrestd send to change a job: each property with the field of the job that it sets.

use super::submit::{given, plain, words};
use model::amount::Bytes;
use model::change::{JobChange, JobField, NodeChange};
use model::constraint::Constraint;
use model::dependency::Dependency;
use model::hostlist;
use model::range::parse_node_count;
use model::run::Hold;
use model::time::{Timestamp, parse_time_limit};
use serde_json::Value;

/// Reads a value; the error says what was expected.
type Grammar = fn(&Value) -> Result<JobField, String>;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const FIELDS: &[(&str, Grammar)] = &[
    ("account",                   |v| text(v).map(JobField::Account)),
    ("admin_comment",             |v| text(v).map(JobField::AdminComment)),
    ("begin_time",                |v| time(v).map(JobField::Begin)),
    ("comment",                   |v| text(v).map(JobField::Comment)),
    ("constraints",               |v| constraint(v).map(JobField::Features)),
    ("cpus_per_task",             |v| count(v).map(JobField::CpusPerTask)),
    ("current_working_directory", |v| text(v).map(JobField::WorkDir)),
    ("deadline",                  |v| time(v).map(JobField::Deadline)),
    ("dependency",                |v| dependency(v).map(JobField::Dependency)),
    ("end_time",                  |v| time(v).map(JobField::EndTime)),
    ("excluded_nodes",            |v| hosts(v).map(JobField::Exclude)),
    ("mail_user",                 |v| text(v).map(JobField::MailUser)),
    ("memory_per_cpu",            |v| memory(v).map(JobField::MemoryPerCpu)),
    ("memory_per_node",           |v| memory(v).map(JobField::MemoryPerNode)),
    ("minimum_cpus_per_node",     |v| count(v).map(JobField::CpusPerNode)),
    ("name",                      |v| text(v).map(JobField::Name)),
    ("nice",                      |v| nice(v).map(JobField::Nice)),
    ("nodes",                     |v| parse_node_count(&text(v)?).map(JobField::Nodes).map_err(|error| error.to_string())),
    ("partition",                 |v| list(v).map(JobField::Partition)),
    ("priority",                  |v| v.as_u64().map(JobField::Priority).ok_or_else(|| "a number".to_owned())),
    ("qos",                       |v| text(v).map(JobField::Qos)),
    ("requeue",                   |v| v.as_bool().map(JobField::Requeue).ok_or_else(|| "true or false".to_owned())),
    ("required_nodes",            |v| hosts(v).map(JobField::NodeList)),
    ("reservation",               |v| text(v).map(|name| JobField::Reservation((!name.is_empty()).then_some(name)))),
    ("standard_error",            |v| text(v).map(JobField::Stderr)),
    ("standard_input",            |v| text(v).map(JobField::Stdin)),
    ("standard_output",           |v| text(v).map(JobField::Stdout)),
    ("tasks",                     |v| count(v).map(JobField::Tasks)),
    ("tasks_per_node",            |v| count(v).map(JobField::TasksPerNode)),
    ("time_limit",                |v| parse_time_limit(&text(v)?).map(JobField::TimeLimit).map_err(|error| error.to_string())),
    ("time_minimum",              |v| parse_time_limit(&text(v)?).map(JobField::TimeMin).map_err(|error| error.to_string())),
    ("wckey",                     |v| text(v).map(JobField::Wckey)),
];

/// Sets or lifts a hold, which is a change of its own.
const HOLD: &str = "hold";

/// The changes that a document asks for, in the order in which they are made; else the first property that cannot be taken.
pub fn changes(properties: &Value) -> Result<Vec<JobChange>, String> {
    let Some(properties) = properties.as_object() else {
        return Err("expected an object of properties".to_owned());
    };
    let mut changes = Vec::new();
    let mut fields = Vec::new();
    for (name, value) in properties {
        let Some(value) = given(value) else { continue };
        if name == HOLD {
            changes.push(match value.as_bool() {
                Some(true) => JobChange::Hold { by: Hold::Admin },
                Some(false) => JobChange::Release,
                None => return Err(format!("{name}: {value}: expected true or false")),
            });
            continue;
        }
        let row = FIELDS.iter().find(|(known, _)| known == name);
        let (_, read) = row.ok_or_else(|| format!("{name}: this property is not taken"))?;
        fields.push(read(&value).map_err(|why| format!("{name}: {value}: expected {why}"))?);
    }
    if !fields.is_empty() {
        changes.insert(0, JobChange::Fields(fields));
    }
    if changes.is_empty() {
        return Err("there is nothing to change: expected an object of properties".to_owned());
    }
    Ok(changes)
}

/// The changes of a node that a document asks for: its state with a reason, its weight, its features.
pub fn node_changes(properties: &Value) -> Result<Vec<NodeChange>, String> {
    let Some(properties) = properties.as_object() else {
        return Err("expected an object of properties".to_owned());
    };
    const KNOWN: [&str; 4] = ["state", "reason", "weight", "features"];
    let set = |name: &str| properties.get(name).and_then(given);
    let is_unknown = |name: &&String| !KNOWN.contains(&name.as_str()) && set(name).is_some();
    if let Some(name) = properties.keys().find(is_unknown) {
        return Err(format!("{name}: this property is not taken"));
    }
    let named = |name: &str, why: String| format!("{name}: expected {why}");
    let reason = set("reason").map(|value| text(&value)).transpose();
    let reason = reason.map_err(|why| named("reason", why))?.filter(|text| !text.is_empty());
    let mut changes = Vec::new();
    match (set("state"), reason) {
        (Some(state), reason) => changes.push(state_change(&state, reason)?),
        (None, Some(reason)) => changes.push(NodeChange::Reason(reason)),
        (None, None) => {}
    }
    if let Some(weight) = set("weight") {
        let weight = weight.as_u64().and_then(|weight| u32::try_from(weight).ok());
        let weight = weight.ok_or_else(|| named("weight", "a number".to_owned()))?;
        changes.push(NodeChange::Weight(weight));
    }
    if let Some(features) = set("features") {
        let features = list(&features).map_err(|why| named("features", why))?;
        changes.push(NodeChange::Features(features));
    }
    if changes.is_empty() {
        return Err(format!("there is nothing to change: expected one of {}", KNOWN.join(", ")));
    }
    Ok(changes)
}

/// `POST …/nodes`: the nodes that a document names, and the changes of all of them.
pub fn changes_of_nodes(properties: &Value) -> Result<(Vec<String>, Vec<NodeChange>), String> {
    const NAME: &str = "name";
    let expected = || format!("{NAME}: expected the names of nodes in an array");
    let names = properties.get(NAME).and_then(given).ok_or_else(expected)?;
    let names = hosts(&names).map_err(|why| format!("{NAME}: {why}"))?;
    if names.is_empty() {
        return Err(expected());
    }
    let mut others = properties.clone();
    if let Some(others) = others.as_object_mut() {
        others.remove(NAME);
    }
    Ok((names, node_changes(&others)?))
}

fn state_change(state: &Value, reason: Option<String>) -> Result<NodeChange, String> {
    let words = words(state).unwrap_or_default();
    let word = words.first().map(String::as_str).unwrap_or_default().to_ascii_uppercase();
    let reason = || reason.ok_or_else(|| format!("reason: expected why the node is {word}"));
    match word.as_str() {
        _ if words.len() != 1 => Err("state: expected one state".to_owned()),
        "DRAIN" => Ok(NodeChange::Drain { reason: reason()? }),
        "DOWN" => Ok(NodeChange::Down { reason: reason()? }),
        "FAIL" => Ok(NodeChange::Fail { reason: reason()? }),
        "RESUME" | "IDLE" => Ok(NodeChange::Resume),
        "UNDRAIN" => Ok(NodeChange::Undrain),
        other => Err(format!("state: {other}: expected DRAIN, DOWN, FAIL, RESUME or UNDRAIN")),
    }
}

fn text(value: &Value) -> Result<String, String> {
    plain(value).ok_or_else(|| "a text".to_owned())
}

fn list(value: &Value) -> Result<Vec<String>, String> {
    words(value).ok_or_else(|| "texts in an array".to_owned())
}

fn count(value: &Value) -> Result<u32, String> {
    let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
    count.filter(|count| *count > 0).ok_or_else(|| "a number of at least 1".to_owned())
}

fn nice(value: &Value) -> Result<i32, String> {
    let nice = value.as_i64().and_then(|nice| i32::try_from(nice).ok());
    nice.ok_or_else(|| "a whole number".to_owned())
}

fn time(value: &Value) -> Result<Timestamp, String> {
    let seconds = value.as_i64().and_then(|seconds| seconds.checked_mul(1000));
    seconds.map(Timestamp).ok_or_else(|| "seconds since the epoch".to_owned())
}

/// In mebibytes, as a number; or a text with its unit.
fn memory(value: &Value) -> Result<Bytes, String> {
    Bytes::parse_slurm(&text(value)?).map_err(|error| error.to_string())
}

fn hosts(value: &Value) -> Result<Vec<String>, String> {
    match list(value)?.join(",").as_str() {
        "" => Ok(Vec::new()),
        names => hostlist::expand(names).map_err(|error| error.to_string()),
    }
}

fn dependency(value: &Value) -> Result<Option<Dependency>, String> {
    let text = text(value)?;
    let parsed = (!text.is_empty()).then(|| Dependency::parse(&text)).transpose();
    parsed.map_err(|error| error.to_string())
}

fn constraint(value: &Value) -> Result<Option<Constraint>, String> {
    let text = text(value)?;
    let parsed = (!text.is_empty()).then(|| Constraint::parse(&text)).transpose();
    parsed.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::TimeLimit;
    use serde_json::json;

    #[test]
    fn properties_become_changes_in_both_forms() {
        let early = json!({"time_limit": 10, "comment": "again", "hold": true});
        let late = json!({
            "time_limit": {"set": true, "infinite": false, "number": 10}, "comment": "again",
            "hold": true, "priority": {"set": false, "infinite": false, "number": 0},
        });
        for document in [early, late] {
            let found = changes(&document).expect("changes");
            let fields = vec![
                JobField::Comment("again".into()),
                JobField::TimeLimit(TimeLimit::Minutes(10)),
            ];
            assert_eq!(found, [JobChange::Fields(fields), JobChange::Hold { by: Hold::Admin }]);
        }
    }

    #[test]
    fn node_is_drained_with_a_reason_and_resumed() {
        let drain = json!({"state": ["DRAIN"], "reason": "fans"});
        let fans = || "fans".to_owned();
        assert_eq!(node_changes(&drain), Ok(vec![NodeChange::Drain { reason: fans() }]));
        let early = json!({"state": "resume", "weight": {"set": true, "number": 3}});
        assert_eq!(node_changes(&early), Ok(vec![NodeChange::Resume, NodeChange::Weight(3)]));
        let several = json!({"name": ["n[1-2]", "m"], "state": ["UNDRAIN"]});
        let names = ["n1", "n2", "m"].map(str::to_owned).to_vec();
        assert_eq!(changes_of_nodes(&several), Ok((names, vec![NodeChange::Undrain])));
        assert!(changes_of_nodes(&drain).expect_err("no names").contains("name"));
        let reason = json!({ "reason": "fans" });
        assert_eq!(node_changes(&reason), Ok(vec![NodeChange::Reason(fans())]));
        for (bad, word) in [
            (json!({"state": ["DRAIN"]}), "reason"),
            (json!({"state": ["DRAIN", "DOWN"], "reason": "x"}), "one state"),
            (json!({"state": "MIXED"}), "MIXED"),
            (json!({"port": 1}), "port"),
            (json!({}), "nothing to change"),
        ] {
            let named = {
                let mut named = bad.clone();
                named["name"] = json!(["n[1-2]"]);
                changes_of_nodes(&named).expect_err("refused")
            };
            assert!(named.contains(word), "{named}");
            let why = node_changes(&bad).expect_err("refused");
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        for (bad, word) in [
            (json!({}), "nothing to change"),
            (json!([]), "object"),
            (json!({"user_id": 0}), "user_id"),
            (json!({"tasks": 0}), "at least 1"),
            (json!({"hold": "maybe"}), "true or false"),
            (json!({"dependency": "after"}), "dependency"),
            (json!({"priority": -1}), "priority"),
        ] {
            let why = changes(&bad).expect_err("refused");
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
        }
    }
}
