//! What another configuration changes of a fleet, in a line for each property.

use model::printable::printable;
use serde_json::Value;
use std::collections::BTreeSet;

/// Lines that are told; the next one says how many more there are.
const LINES_MAX: usize = 20;

/// The keys themselves are brought along, and are in no answer of the server.
const KEY: &str = "ssh_key";

/// Its values may be nobody else's business.
const ENV: &str = "env";

/// `placement: not given -> cluster`, `ssh_config.hosts: changed`. Both are in dstack's own form.
pub fn lines(before: &Value, after: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    compare("", before, after, &mut lines);
    let more = lines.len().saturating_sub(LINES_MAX);
    lines.truncate(LINES_MAX);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn compare(place: &str, before: &Value, after: &Value, lines: &mut Vec<String>) {
    if let (Value::Object(former), Value::Object(next)) = (before, after)
        && place != ENV
    {
        let names: BTreeSet<&String> = former.keys().chain(next.keys()).collect();
        for name in names.into_iter().filter(|name| *name != KEY) {
            let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
            compare(&place, &before[name], &after[name], lines);
        }
    } else if comparable(before) != comparable(after) {
        let place = printable(place);
        lines.push(match (word(before), word(after)) {
            (Some(former), Some(next)) => format!("{place}: {former} -> {next}"),
            _ => format!("{place}: changed"),
        });
    }
}

/// The value without keys and without what is not given: neither says that something changed.
fn comparable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != KEY);
            let fields = fields.map(|(name, value)| (name.clone(), comparable(value)));
            Value::Object(fields.filter(|(_, value)| !value.is_null()).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(comparable).collect()),
        other => other.clone(),
    }
}

/// `None` for what is no single word.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some("not given".to_owned()),
        Value::String(text) => Some(printable(text).into_owned()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::dstack::configuration::{from_json, parse};
    use serde_json::json;

    const LAB: &str = "type: fleet\nname: lab\nssh_config: {user: ada, hosts: [a]}\n";

    fn read(text: &str) -> Value {
        parse("lab.dstack.yml", text.as_bytes()).expect(text).value.to_json()
    }

    /// As the server keeps it.
    fn kept(text: &str) -> Value {
        from_json(&read(text), None).expect(text).value.to_json()
    }

    #[test]
    fn what_another_configuration_changes_of_a_fleet_is_told_by_property() {
        let changes = |text: &str| lines(&kept(LAB), &read(text));
        assert_eq!(changes(LAB), [""; 0]);
        let placed = changes(&format!("{LAB}placement: cluster\n"));
        assert_eq!(placed.len(), 1, "{placed:?}");
        assert!(placed[0].starts_with("placement: ") && placed[0].ends_with(" -> cluster"));
        let moved = changes(&LAB.replace("user: ada", "user: bob"));
        assert_eq!(moved, ["ssh_config.user: ada -> bob"]);
        assert_eq!(changes(&LAB.replace("[a]", "[a, b]")), ["ssh_config.hosts: changed"]);
    }

    #[test]
    fn keys_and_variables_are_not_shown_and_long_lists_are_cut() {
        let keyed =
            |key: Value| json!({"ssh_config": {"ssh_key": key, "hosts": [{"ssh_key": key}]}});
        assert_eq!(lines(&keyed(Value::Null), &keyed(json!("private"))), [""; 0]);
        let said = lines(&json!({"env": {"A": "old"}}), &json!({"env": {"A": "new"}}));
        assert_eq!(said, ["env: changed"]);
        let many: serde_json::Map<String, Value> =
            (0..30).map(|n| (format!("p{n}"), json!("\u{1b}[2J"))).collect();
        let said = lines(&json!({}), &Value::Object(many));
        assert_eq!((said.len(), said[LINES_MAX].as_str()), (LINES_MAX + 1, "and 10 more"));
        assert!(said.iter().all(|line| !line.contains('\u{1b}')), "{said:?}");
    }
}
