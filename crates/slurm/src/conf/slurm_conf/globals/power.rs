//! Power saving: the keys whose values have a grammar of their own, and the paths of the programs.

use model::hostlist;
use model::power::{ExemptNodes, ExemptState, PowerPolicy, SuspendTime};

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;
use crate::conf::keys::value::{self, Parameters};

const PROGRAMS: [&str; 4] =
    ["SuspendProgram", "ResumeProgram", "ResumeFailProgram", "RebootProgram"];

/// The words of `SuspendExcStates`, with the states that nodes can have here.
const STATES: [(&str, ExemptState); 10] = [
    ("CLOUD", ExemptState::Cloud),
    ("DOWN", ExemptState::Down),
    ("DRAIN", ExemptState::Drain),
    ("DYNAMIC_FUTURE", ExemptState::DynamicFuture),
    ("DYNAMIC_NORM", ExemptState::DynamicNorm),
    ("FAIL", ExemptState::Fail),
    ("INVALID_REG", ExemptState::InvalidReg),
    ("MAINTENANCE", ExemptState::Maintenance),
    ("NOT_RESPONDING", ExemptState::NotResponding),
    ("RESERVED", ExemptState::Reserved),
];

/// Reads what no row of the table sets by itself, and checks the programs.
pub fn read(record: &Record, policy: &mut PowerPolicy, findings: &mut Findings) {
    for key in PROGRAMS {
        let Some(entry) = record.entry(key) else { continue };
        if !entry.text.starts_with('/') && !is_none(&entry.text) {
            findings.wrong(&entry.place, key, &entry.text, "expected an absolute path");
        }
    }
    policy.suspend_time_s = suspend_time(record, findings).and_then(SuspendTime::seconds);
    policy.exempt_nodes = exempt_nodes(record, findings);
    policy.exempt_partitions = record.words("SuspendExcParts");
    let words = record.words("SuspendExcStates");
    let state = |word: &String| STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
    policy.exempt_states = words.iter().filter_map(state).map(|(_, state)| *state).collect();
    let parameters = Parameters::new(record.words("SlurmctldParameters"));
    policy.idle_on_suspend = parameters.has("idle_on_node_suspend");
    policy.reported_addresses = parameters.has("cloud_reg_addrs");
    let mut seconds = |name: &str, otherwise: u32| {
        let Some(text) = parameters.get(name) else { return otherwise };
        text.parse().unwrap_or_else(|_| {
            if let Some(entry) = record.entry("SlurmctldParameters") {
                let expected = format!("{name}={text}: expected a whole number of seconds");
                findings.wrong(&entry.place, "SlurmctldParameters", &entry.text, expected);
            }
            otherwise
        })
    };
    policy.interval_s = seconds("power_save_interval", policy.interval_s);
    policy.min_interval_s = seconds("power_save_min_interval", policy.min_interval_s);
}

fn is_none(text: &str) -> bool {
    ["none", "n/a", ""].contains(&text.to_ascii_lowercase().as_str())
}

/// `SuspendTime`, of the cluster or of a partition: seconds, or never.
pub fn suspend_time(record: &Record, findings: &mut Findings) -> Option<SuspendTime> {
    const KEY: &str = "SuspendTime";
    let entry = record.entry(KEY)?;
    let never = ["INFINITE", "UNLIMITED", "NONE", "-1"];
    if never.iter().any(|word| word.eq_ignore_ascii_case(&entry.text)) {
        return Some(SuspendTime::Never);
    }
    let seconds = value::digits(&entry.text).and_then(|seconds| u32::try_from(seconds).ok());
    if seconds.is_none() {
        let expected = "expected a whole number of seconds, INFINITE or -1";
        findings.wrong(&entry.place, KEY, &entry.text, expected);
    }
    seconds.map(SuspendTime::Seconds)
}

/// `nid[10-20]:4,nid[80-90]`: all nodes of a list, or so many of them.
fn exempt_nodes(record: &Record, findings: &mut Findings) -> Vec<ExemptNodes> {
    const KEY: &str = "SuspendExcNodes";
    let Some(entry) = record.entry(KEY).filter(|entry| !is_none(&entry.text)) else {
        return Vec::new();
    };
    let mut sets = Vec::new();
    for part in outside_brackets(&entry.text) {
        let (hosts, count) = match part.rsplit_once(':') {
            Some((hosts, count)) => (hosts, Some(count)),
            None => (part, None),
        };
        let number = count.map(|count| value::digits(count).and_then(|n| u32::try_from(n).ok()));
        match (hostlist::expand(hosts), number) {
            (Ok(nodes), None) => sets.push(ExemptNodes { nodes, count: None }),
            (Ok(nodes), Some(Some(count))) => sets.push(ExemptNodes { nodes, count: Some(count) }),
            _ => {
                let expected = format!("{part:?}: expected nodes, or nodes and a count: n[1-8]:2");
                findings.wrong(&entry.place, KEY, &entry.text, expected);
            }
        }
    }
    sets
}

/// The parts between the commas that are in no brackets.
fn outside_brackets(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}
