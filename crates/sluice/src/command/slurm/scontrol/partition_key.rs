//! The keys of `scontrol update PartitionName=…`.

use super::lookup;
use super::pair::{Pair, invalid};
use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use model::change::PartitionChange;
use model::partition::{Access, PartitionState};
use model::time::parse_time_limit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PartitionKey {
    State,
    MaxTime,
    Default,
    DefaultTime,
    MaxNodes,
    MinNodes,
    MaxCpusPerNode,
    PriorityTier,
    PriorityJobFactor,
    AllowAccounts,
    DenyAccounts,
    AllowQos,
    DenyQos,
    GraceTime,
    Hidden,
    RootOnly,
    DisableRootJobs,
    RequireReservation,
    LeastLoaded,
}

const KEYS: &[(&str, PartitionKey)] = &[
    ("AllowAccounts", PartitionKey::AllowAccounts),
    ("AllowQos", PartitionKey::AllowQos),
    ("Default", PartitionKey::Default),
    ("DefaultTime", PartitionKey::DefaultTime),
    ("DenyAccounts", PartitionKey::DenyAccounts),
    ("DenyQos", PartitionKey::DenyQos),
    ("DisableRootJobs", PartitionKey::DisableRootJobs),
    ("GraceTime", PartitionKey::GraceTime),
    ("Hidden", PartitionKey::Hidden),
    ("LLN", PartitionKey::LeastLoaded),
    ("MaxCPUsPerNode", PartitionKey::MaxCpusPerNode),
    ("MaxNodes", PartitionKey::MaxNodes),
    ("MaxTime", PartitionKey::MaxTime),
    ("MinNodes", PartitionKey::MinNodes),
    ("PriorityJobFactor", PartitionKey::PriorityJobFactor),
    ("PriorityTier", PartitionKey::PriorityTier),
    ("ReqResv", PartitionKey::RequireReservation),
    ("RootOnly", PartitionKey::RootOnly),
    ("State", PartitionKey::State),
];

const STATES: &[(&str, PartitionState)] = &[
    ("UP", PartitionState::Up),
    ("DOWN", PartitionState::Down),
    ("DRAIN", PartitionState::Drain),
    ("INACTIVE", PartitionState::Inactive),
];

pub fn parse(pair: &Pair) -> Result<PartitionChange, CommandError> {
    let (_, key) = lookup(KEYS, &pair.key).ok_or_else(|| unknown(pair))?;
    match key {
        PartitionKey::State => {
            let row = STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&pair.value));
            let expected = "expected UP, DOWN, DRAIN or INACTIVE";
            row.map(|(_, state)| PartitionChange::State(*state))
                .ok_or_else(|| invalid(pair, expected))
        }
        PartitionKey::MaxTime => parse_time_limit(&pair.value)
            .map(PartitionChange::MaxTime)
            .map_err(|error| invalid(pair, error)),
        PartitionKey::DefaultTime if pair.value.eq_ignore_ascii_case("NONE") => {
            Ok(PartitionChange::DefaultTime(None))
        }
        PartitionKey::DefaultTime => parse_time_limit(&pair.value)
            .map(|limit| PartitionChange::DefaultTime(Some(limit)))
            .map_err(|error| invalid(pair, error)),
        PartitionKey::Default => yes_no(pair).map(PartitionChange::Default),
        PartitionKey::Hidden => yes_no(pair).map(PartitionChange::Hidden),
        PartitionKey::RootOnly => yes_no(pair).map(PartitionChange::RootOnly),
        PartitionKey::DisableRootJobs => yes_no(pair).map(PartitionChange::DisableRootJobs),
        PartitionKey::RequireReservation => yes_no(pair).map(PartitionChange::RequireReservation),
        PartitionKey::LeastLoaded => yes_no(pair).map(PartitionChange::LeastLoaded),
        PartitionKey::MaxNodes => count_or_unlimited(pair).map(PartitionChange::MaxNodes),
        PartitionKey::MaxCpusPerNode => {
            count_or_unlimited(pair).map(PartitionChange::MaxCpusPerNode)
        }
        PartitionKey::MinNodes => number(pair).map(PartitionChange::MinNodes),
        PartitionKey::PriorityTier => priority(pair).map(PartitionChange::PriorityTier),
        PartitionKey::PriorityJobFactor => priority(pair).map(PartitionChange::PriorityJobFactor),
        PartitionKey::GraceTime => number(pair).map(PartitionChange::GraceTime),
        PartitionKey::AllowAccounts => Ok(PartitionChange::AllowAccounts(allowed(&pair.value))),
        PartitionKey::DenyAccounts => Ok(PartitionChange::AllowAccounts(denied(&pair.value))),
        PartitionKey::AllowQos => Ok(PartitionChange::AllowQos(allowed(&pair.value))),
        PartitionKey::DenyQos => Ok(PartitionChange::AllowQos(denied(&pair.value))),
    }
}

/// A key that is not changed while the cluster runs: the configuration has it, and these can be changed.
fn unknown(pair: &Pair) -> CommandError {
    let names: Vec<&str> = KEYS.iter().map(|(name, _)| *name).collect();
    CommandError::message(format!(
        "Update of this parameter is not supported: {}\n\
         Of a partition these can be: {}; the others are in slurm.conf, and `scontrol reconfigure` reads it\n\
         Request aborted",
        pair.typed,
        names.join(", ")
    ))
}

fn yes_no(pair: &Pair) -> Result<bool, CommandError> {
    match pair.value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(invalid(pair, "expected YES or NO")),
    }
}

fn number(pair: &Pair) -> Result<u32, CommandError> {
    pair.value.parse().map_err(|_| invalid(pair, "expected a number"))
}

/// The highest priority of Slurm's partitions.
const PRIORITY_MAX: u32 = 65_533;

fn priority(pair: &Pair) -> Result<u32, CommandError> {
    number(pair)
        .ok()
        .filter(|priority| *priority <= PRIORITY_MAX)
        .ok_or_else(|| invalid(pair, format!("expected a number of at most {PRIORITY_MAX}")))
}

fn count_or_unlimited(pair: &Pair) -> Result<Option<u32>, CommandError> {
    if ["UNLIMITED", "INFINITE", "-1"].iter().any(|word| word.eq_ignore_ascii_case(&pair.value)) {
        return Ok(None);
    }
    let count = number(pair).ok().filter(|count| *count > 0);
    count.map(Some).ok_or_else(|| invalid(pair, "expected a number from 1, or UNLIMITED"))
}

/// As in slurm.conf: an empty list and `ALL` are everybody.
fn allowed(text: &str) -> Access {
    let names = value::list(text);
    let everybody = names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case("ALL"));
    if everybody { Access::All } else { Access::Only(names) }
}

fn denied(text: &str) -> Access {
    let names = value::list(text);
    if names.is_empty() { Access::All } else { Access::Except(names) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::time::TimeLimit;

    fn read(key: &str, value: &str) -> Result<PartitionChange, CommandError> {
        let typed = format!("{key}={value}");
        parse(&Pair { key: key.into(), value: value.into(), typed })
    }

    #[test]
    fn partition_keys_are_parsed() {
        let table = [
            ("state", "down", PartitionChange::State(PartitionState::Down)),
            ("State", "UP", PartitionChange::State(PartitionState::Up)),
            ("MaxTime", "1:00:00", PartitionChange::MaxTime(TimeLimit::Minutes(60))),
            ("Default", "YES", PartitionChange::Default(true)),
            ("DefaultTime", "30", PartitionChange::DefaultTime(Some(TimeLimit::Minutes(30)))),
            ("DefaultTime", "none", PartitionChange::DefaultTime(None)),
            ("MaxNodes", "4", PartitionChange::MaxNodes(Some(4))),
            ("MaxNodes", "UNLIMITED", PartitionChange::MaxNodes(None)),
            ("MinNodes", "2", PartitionChange::MinNodes(2)),
            ("PriorityTier", "10", PartitionChange::PriorityTier(10)),
            ("AllowAccounts", "ALL", PartitionChange::AllowAccounts(Access::All)),
            (
                "AllowQos",
                "a,b",
                PartitionChange::AllowQos(Access::Only(vec!["a".into(), "b".into()])),
            ),
            ("DenyAccounts", "c", PartitionChange::AllowAccounts(Access::Except(vec!["c".into()]))),
            ("Hidden", "yes", PartitionChange::Hidden(true)),
        ];
        for (key, value, change) in table {
            assert_eq!(read(key, value).expect(key), change);
        }
        let wrong = [
            ("state", "x"),
            ("MaxTime", "x"),
            ("Default", "x"),
            ("MaxNodes", "0"),
            ("PriorityTier", "70000"),
            ("Hidden", "maybe"),
            ("Nodes", "a"),
        ];
        for (key, value) in wrong {
            assert!(read(key, value).is_err(), "{key}={value}");
        }
        let said = read("Nodes", "a").expect_err("not changed live").to_string();
        assert!(said.contains("Nodes=a") && said.contains("AllowAccounts"), "{said}");
    }
}
