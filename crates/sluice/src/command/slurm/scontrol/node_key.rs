//! The keys of `scontrol update NodeName=…`.

use super::lookup;
use super::pair::{Pair, invalid, unsupported};
use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use model::change::NodeChange;
use model::power::{PowerDownMode, PowerRequest};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeKey {
    State,
    Reason,
    Weight,
    Features,
}

const KEYS: &[(&str, NodeKey)] = &[
    ("State", NodeKey::State),
    ("Reason", NodeKey::Reason),
    ("Weight", NodeKey::Weight),
    ("AvailableFeatures", NodeKey::Features),
    ("ActiveFeatures", NodeKey::Features),
    ("Features", NodeKey::Features),
];

#[derive(Debug, Clone, Copy)]
enum StateAction {
    /// Needs a reason.
    Set(fn(String) -> NodeChange),
    Cleared(ClearAction),
    /// A change of its own, whatever the reason.
    Asked(fn(Option<String>) -> PowerRequest),
    /// Slurm has it, Sluice does not.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClearAction {
    Resume,
    Undrain,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const STATES: &[(&str, StateAction)] = &[
    ("DRAIN",      StateAction::Set(|reason| NodeChange::Drain { reason })),
    ("DOWN",       StateAction::Set(|reason| NodeChange::Down { reason })),
    ("FAIL",       StateAction::Set(|reason| NodeChange::Fail { reason })),
    ("RESUME",     StateAction::Cleared(ClearAction::Resume)),
    ("IDLE",       StateAction::Cleared(ClearAction::Resume)),
    ("UNDRAIN",    StateAction::Cleared(ClearAction::Undrain)),
    ("NoResp",     StateAction::Unsupported),
    ("FUTURE",     StateAction::Unsupported),
    ("CANCEL_REBOOT", StateAction::Asked(|_| PowerRequest::CancelReboot)),
    ("POWER_DOWN", StateAction::Asked(|_| PowerRequest::Down(PowerDownMode::WhenIdle))),
    ("POWER_DOWN_ASAP", StateAction::Asked(|_| PowerRequest::Down(PowerDownMode::Asap))),
    ("POWER_DOWN_FORCE", StateAction::Asked(|_| PowerRequest::Down(PowerDownMode::Force))),
    ("POWER_UP",   StateAction::Asked(|_| PowerRequest::Up)),
];

/// The changes in the order in which they are sent. A state and its reason are one change.
pub fn changes(pairs: &[Pair]) -> Result<Vec<NodeChange>, CommandError> {
    let mut state = None;
    let mut reason = None;
    let mut changes = Vec::new();
    for pair in pairs {
        match lookup(KEYS, &pair.key).map(|(_, key)| *key) {
            Some(NodeKey::State) => state = Some(parse_state(pair)?),
            Some(NodeKey::Reason) => reason = Some(pair.value.clone()),
            Some(NodeKey::Weight) => {
                let weight = pair.value.parse();
                let weight = weight.map_err(|_| invalid(pair, "expected a whole number"))?;
                changes.push(NodeChange::Weight(weight));
            }
            Some(NodeKey::Features) => changes.push(NodeChange::Features(value::list(&pair.value))),
            None => return Err(unsupported(pair)),
        }
    }
    let reason = reason.filter(|reason| !reason.is_empty());
    let stated = match (state, reason) {
        (Some(StateAction::Set(change)), Some(reason)) => Some(change(reason)),
        (Some(StateAction::Set(_)), None) => {
            let words = "You must specify a reason when DOWNING or DRAINING a node. Request denied";
            return Err(CommandError::message(words));
        }
        // Resuming a node clears its reason too.
        (Some(StateAction::Cleared(ClearAction::Resume)), _) => Some(NodeChange::Resume),
        (Some(StateAction::Cleared(ClearAction::Undrain)), _) => Some(NodeChange::Undrain),
        (Some(StateAction::Asked(request)), reason) => Some(NodeChange::Power(request(reason))),
        (Some(StateAction::Unsupported), _) => None,
        (None, Some(reason)) => Some(NodeChange::Reason(reason)),
        (None, None) => None,
    };
    changes.extend(stated);
    Ok(changes)
}

fn parse_state(pair: &Pair) -> Result<StateAction, CommandError> {
    let row = STATES.iter().find(|(name, _)| name.eq_ignore_ascii_case(&pair.value));
    match row {
        Some((name, StateAction::Unsupported)) => {
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
            (&["state=power_up"], NodeChange::Power(PowerRequest::Up)),
            (
                &["state=power_down_asap", "reason=x"],
                NodeChange::Power(PowerRequest::Down(PowerDownMode::Asap)),
            ),
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
            (&["state=future"], "State=FUTURE is not supported"),
            (&["weight=x"], "Invalid input: weight=x: expected a whole number"),
            (&["colour=red"], "Update of this parameter is not supported: colour=red"),
        ];
        for (words, said) in table {
            let text = read(words).expect_err("wrong").to_string();
            assert!(text.starts_with(said), "{words:?}: {text}");
        }
    }
}
