//! The properties that a configuration may have, as tables, and what each does here.
//!
//! `tests/property_table.rs` holds the tables against what the translation really does.

use super::fault::Problem;

/// How far a property is supported here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PropertySupport {
    /// It does what it does in dstack.
    Acts,
    /// Some of its values do what they do in dstack. Its reader refuses the others, or gives a notice for them.
    ActsInPart,
    /// It changes nothing. The user is told so with its position, when the file is read.
    Notice(&'static str),
    /// It changes nothing. The user is told so with its value, when the run is drafted: the same value may also have been
    /// written inside a text such as `x86:4..`.
    NotApplied(&'static str),
    /// Leaving it out would run something else than was asked for: the configuration is refused.
    Refused(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Property {
    pub name: &'static str,
    pub support: PropertySupport,
}

const fn acts(name: &'static str) -> Property {
    Property { name, support: PropertySupport::Acts }
}

const fn acts_in_part(name: &'static str) -> Property {
    Property { name, support: PropertySupport::ActsInPart }
}

const fn not_applied(name: &'static str, why: &'static str) -> Property {
    Property { name, support: PropertySupport::NotApplied(why) }
}

const fn notice(name: &'static str, why: &'static str) -> Property {
    Property { name, support: PropertySupport::Notice(why) }
}

const fn refused(name: &'static str, why: &'static str) -> Property {
    Property { name, support: PropertySupport::Refused(why) }
}

const NO_CONTAINERS: &str =
    "containers are not available yet: the commands run as processes of your own on the node";
const NO_FILES: &str = "nothing is copied to the node yet: name files that the node can read";
const OWN_NODES: &str = "has no effect: every offer is one of this cluster's own nodes";

/// Everything that a task may have.
pub const TASK: &[Property] = &[
    acts("type"),
    acts("name"),
    acts("commands"),
    acts("env"),
    acts("nodes"),
    acts("resources"),
    acts("priority"),
    acts("retry"),
    acts("max_duration"),
    not_applied(
        "stop_duration",
        "has no effect yet: the cluster's KillWait lies between the signal and the kill",
    ),
    acts("working_dir"),
    acts("shell"),
    acts("fleets"),
    acts("tags"),
    acts_in_part("backends"),
    acts_in_part("startup_order"),
    acts_in_part("stop_criteria"),
    refused("image", NO_CONTAINERS),
    refused("docker", NO_CONTAINERS),
    refused("entrypoint", NO_CONTAINERS),
    refused("registry_auth", NO_CONTAINERS),
    refused("privileged", NO_CONTAINERS),
    refused("user", NO_CONTAINERS),
    refused("nvcc", NO_CONTAINERS),
    refused(
        "python",
        "environments of a chosen Python are not made yet: call the node's own in `commands`",
    ),
    refused("volumes", "volumes are not available yet"),
    refused("files", NO_FILES),
    refused("repos", NO_FILES),
    refused("groups", "node groups are not available yet: use `nodes`"),
    refused("schedule", "scheduled runs are not available yet"),
    refused("setup", "is not available: put the lines first in `commands`"),
    refused("instances", "a choice of instances is not available yet: use `fleets`"),
    notice("ports", "ports are not forwarded yet"),
    notice("home_dir", "has no effect without a container"),
    notice("single_branch", "has no effect without `repos`"),
    notice("dstack", "has no effect: the server can always be reached from a run"),
    notice("regions", OWN_NODES),
    notice("availability_zones", OWN_NODES),
    notice("instance_types", OWN_NODES),
    notice("reservation", OWN_NODES),
    notice("spot_policy", OWN_NODES),
    notice("max_price", OWN_NODES),
    notice("creation_policy", OWN_NODES),
    notice("idle_duration", OWN_NODES),
    notice("backend_options", OWN_NODES),
    notice("utilization_policy", "a run is not yet ended for low GPU utilization"),
];

pub const RESOURCES: &[Property] = &[
    acts("cpu"),
    acts("memory"),
    acts("gpu"),
    acts("disk"),
    notice("shm_size", "has no effect without a container"),
];

pub const CPU: &[Property] = &[
    not_applied("arch", "nodes are not told apart by architecture"),
    acts("count"),
    acts("min"),
    acts("max"),
];
pub const RANGE: &[Property] = &[acts("min"), acts("max")];
pub const DISK: &[Property] = &[acts("size")];
pub const GPU: &[Property] = &[
    not_applied("vendor", "nodes are not told apart by vendor"),
    acts("name"),
    acts("count"),
    acts("memory"),
    acts_in_part("total_memory"),
    not_applied("compute_capability", "name the GPUs that will do"),
];
pub const RETRY: &[Property] = &[acts("on_events"), acts("duration")];
pub const UTILIZATION: &[Property] = &[acts("min_gpu_utilization"), acts("time_window")];
pub const PORT: &[Property] = &[acts("local_port"), acts("container_port")];

/// Properties that a user may carry over from a configuration of another type.
const OF_ANOTHER_TYPE: &[(&str, &str)] = &[
    ("ide", "dev-environment"),
    ("version", "dev-environment"),
    ("init", "dev-environment"),
    ("inactivity_duration", "dev-environment"),
    ("port", "service"),
    ("gateway", "service"),
    ("strip_prefix", "service"),
    ("model", "service"),
    ("https", "service"),
    ("auth", "service"),
    ("scaling", "service"),
    ("rate_limits", "service"),
    ("probes", "service"),
    ("replicas", "service"),
    ("placement", "fleet"),
    ("blocks", "fleet"),
    ("ssh_config", "fleet"),
];

/// Why a property of the table is not applied; empty for one that is.
pub fn why_not_applied(table: &[Property], name: &str) -> &'static str {
    let found = table.iter().find(|property| property.name == name);
    match found.map(|property| property.support) {
        Some(PropertySupport::NotApplied(why)) => why,
        _ => "",
    }
}

/// The problem with a key that is not in the table.
pub fn unknown(table: &'static [Property], key: &str, full_name: &str) -> Problem {
    let property = full_name.to_owned();
    let owner = OF_ANOTHER_TYPE.iter().find(|(name, _)| *name == key);
    match owner {
        Some((_, owner)) if table == TASK => Problem::OfAnotherType { property, owner },
        _ => Problem::Unknown { property, nearest: nearest(table, key) },
    }
}

/// The name that the key was probably meant to be: the nearest, if few edits lead to it.
fn nearest(table: &'static [Property], key: &str) -> Option<&'static str> {
    let key: Vec<char> = key.to_lowercase().replace('-', "_").chars().take(64).collect();
    let by_distance = table.iter().map(|p| (distance(&key, p.name), p.name));
    let (slips, name) = by_distance.min()?;
    let tolerated = (name.len() / 3).clamp(1, 3);
    (slips <= tolerated).then_some(name)
}

/// Insertions, deletions, substitutions and swaps of neighbours between the two.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let substituted = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substituted.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(rows[i - 2][j - 2] + 1);
            }
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_property_finds_the_nearest_name_and_an_unlike_one_finds_none() {
        let cases = [
            (TASK, "comands", Some("commands")),
            (TASK, "command", Some("commands")),
            (TASK, "max-duration", Some("max_duration")),
            (TASK, "Env", Some("env")),
            (TASK, "nmae", Some("name")),
            (TASK, "workdir", None),
            (TASK, "frobnicate", None),
            (RESOURCES, "gpus", Some("gpu")),
            (RESOURCES, "mem", None),
            (RETRY, "on_event", Some("on_events")),
        ];
        for (table, key, expected) in cases {
            assert_eq!(nearest(table, key), expected, "{key}");
        }
    }

    #[test]
    fn every_name_is_in_its_table_once() {
        for (i, property) in TASK.iter().enumerate() {
            assert!(TASK[..i].iter().all(|p| p.name != property.name));
            assert!(OF_ANOTHER_TYPE.iter().all(|(n, _)| *n != property.name));
        }
    }
}
