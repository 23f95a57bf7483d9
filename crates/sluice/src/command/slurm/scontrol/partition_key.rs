//! The keys of `scontrol update PartitionName=…`.

use super::lookup;
use super::pair::{Pair, invalid, unsupported};
use crate::command::slurm::query::CommandError;
use model::change::PartitionChange;
use model::partition::PartitionState;
use model::time::parse_time_limit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    State,
    MaxTime,
    Default,
}

const KEYS: &[(&str, Key)] =
    &[("State", Key::State), ("MaxTime", Key::MaxTime), ("Default", Key::Default)];

const STATES: &[(&str, PartitionState)] = &[
    ("UP", PartitionState::Up),
    ("DOWN", PartitionState::Down),
    ("DRAIN", PartitionState::Drain),
    ("INACTIVE", PartitionState::Inactive),
];

pub fn parse(pair: &Pair) -> Result<PartitionChange, CommandError> {
    let (_, key) = lookup(KEYS, &pair.key).ok_or_else(|| unsupported(pair))?;
    match key {
        Key::State => {
            let row = STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&pair.value));
            let expected = "expected UP, DOWN, DRAIN or INACTIVE";
            row.map(|(_, state)| PartitionChange::State(*state))
                .ok_or_else(|| invalid(pair, expected))
        }
        Key::MaxTime => parse_time_limit(&pair.value)
            .map(PartitionChange::MaxTime)
            .map_err(|error| invalid(pair, error)),
        Key::Default => match pair.value.to_ascii_lowercase().as_str() {
            "yes" => Ok(PartitionChange::Default(true)),
            "no" => Ok(PartitionChange::Default(false)),
            _ => Err(invalid(pair, "expected YES or NO")),
        },
    }
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
        ];
        for (key, value, change) in table {
            assert_eq!(read(key, value).expect(key), change);
        }
        for (key, value) in [("state", "x"), ("MaxTime", "x"), ("Default", "x"), ("Nodes", "a")] {
            assert!(read(key, value).is_err(), "{key}={value}");
        }
    }
}
