//! The keys of `scontrol update NodeName=…`.

use super::lookup;
use super::pair::{Pair, invalid, unsupported};
use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use model::change::NodeChange;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    State,
    Reason,
    Weight,
    Features,
}

const KEYS: &[(&str, Key)] = &[
    ("State", Key::State),
    ("Reason", Key::Reason),
    ("Weight", Key::Weight),
    ("AvailableFeatures", Key::Features),
    ("ActiveFeatures", Key::Features),
    ("Features", Key::Features),
];

#[derive(Debug, Clone, Copy)]
enum State {
    /// Needs a reason.
    Set(fn(String) -> NodeChange),
    Cleared(Clear),
    /// Slurm has it, Sluice does not.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clear {
    Resume,
    Undrain,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const STATES: &[(&str, State)] = &[
    ("DRAIN",      State::Set(|reason| NodeChange::Drain { reason })),
    ("DOWN",       State::Set(|reason| NodeChange::Down { reason })),
    ("FAIL",       State::Set(|reason| NodeChange::Fail { reason })),
    ("RESUME",     State::Cleared(Clear::Resume)),
    ("IDLE",       State::Cleared(Clear::Resume)),
    ("UNDRAIN",    State::Cleared(Clear::Undrain)),
    ("NoResp",     State::Unsupported),
    ("FUTURE",     State::Unsupported),
    ("POWER_DOWN", State::Unsupported),
    ("POWER_UP",   State::Unsupported),
];

/// The changes in the order in which they are sent. A state and its reason are one change.
pub fn changes(pairs: &[Pair]) -> Result<Vec<NodeChange>, CommandError> {
    let mut state = None;
    let mut reason = None;
    let mut changes = Vec::new();
    for pair in pairs {
        match lookup(KEYS, &pair.key).map(|(_, key)| *key) {
            Some(Key::State) => state = Some(parse_state(pair)?),
            Some(Key::Reason) => reason = Some(pair.value.clone()),
            Some(Key::Weight) => {
                let weight = pair.value.parse();
                let weight = weight.map_err(|_| invalid(pair, "expected a whole number"))?;
                changes.push(NodeChange::Weight(weight));
            }
            Some(Key::Features) => changes.push(NodeChange::Features(value::list(&pair.value))),
            None => return Err(unsupported(pair)),
        }
    }
    let reason = reason.filter(|reason| !reason.is_empty());
    let stated = match (state, reason) {
        (Some(State::Set(change)), Some(reason)) => Some(change(reason)),
        (Some(State::Set(_)), None) => {
            let words = "You must specify a reason when DOWNING or DRAINING a node. Request denied";
            return Err(CommandError::message(words));
        }
        // Resuming a node clears its reason too.
        (Some(State::Cleared(Clear::Resume)), _) => Some(NodeChange::Resume),
        (Some(State::Cleared(Clear::Undrain)), _) => Some(NodeChange::Undrain),
        (Some(State::Unsupported), _) => None,
        (None, Some(reason)) => Some(NodeChange::Reason(reason)),
        (None, None) => None,
    };
    changes.extend(stated);
    Ok(changes)
}

fn parse_state(pair: &Pair) -> Result<State, CommandError> {
    let row = STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&pair.value));
    match row {
        Some((name, State::Unsupported)) => {
            Err(CommandError::message(format!("State={name} is not supported\nRequest aborted")))
        }
        Some((_, state)) => Ok(*state),
        None => Err(CommandError::message(format!(
            "Invalid input: {}\nRequest aborted\n\
             Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
             Not all states are valid given a node's prior state",
            pair.typed
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<NodeChange>, CommandError> {
        let pairs: Vec<Pair> = words
            .iter()
            .map(|word| {
                let (key, value) = word.split_once('=').expect("a pair");
                Pair { key: key.into(), value: value.into(), typed: (*word).into() }
            })
            .collect();
        changes(&pairs)
    }

    #[test]
    fn a_state_and_its_reason_are_one_change() {
        let reason = || "bad gpu 3".to_owned();
        let table = [
            (&["state=drain", "reason=bad gpu 3"][..], NodeChange::Drain { reason: reason() }),
            (&["Reason=bad gpu 3", "State=DOWN"], NodeChange::Down { reason: reason() }),
            (&["State=fail", "Reason=bad gpu 3"], NodeChange::Fail { reason: reason() }),
            (&["state=resume"], NodeChange::Resume),
            (&["state=idle", "reason=x"], NodeChange::Resume),
            (&["state=undrain"], NodeChange::Undrain),
            (&["reason=bad gpu 3"], NodeChange::Reason(reason())),
            (&["Weight=7"], NodeChange::Weight(7)),
            (&["Features=a,b"], NodeChange::Features(vec!["a".into(), "b".into()])),
        ];
        for (words, change) in table {
            assert_eq!(read(words).expect("right"), [change], "{words:?}");
        }
    }

    #[test]
    fn invalid_node_updates_are_refused() {
        let table = [
            (&["state=down"][..], "You must specify a reason"),
            (&["state=drain", "reason="], "You must specify a reason"),
            (&["state=power_down"], "State=POWER_DOWN is not supported"),
            (&["weight=x"], "Invalid input: weight=x: expected a whole number"),
            (&["colour=red"], "Update of this parameter is not supported: colour=red"),
        ];
        for (words, said) in table {
            let text = read(words).expect_err("wrong").to_string();
            assert!(text.starts_with(said), "{words:?}: {text}");
        }
    }
}
