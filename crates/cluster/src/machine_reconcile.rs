//! What is to be done about machines on demand: by the state itself, and by what a source tells of its machines, compared with
//! those that were asked of it.

use crate::command::MachineReport;
use crate::state::State;
use model::machine::{Machine, MachinePhase};
use model::time::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

/// A machine as its source tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceMachine {
    pub token: String,
    pub id: String,
    /// Since when there is one, where the source tells it.
    pub since: Option<Timestamp>,
}

/// What is to be done about a machine. Each may be done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineWork {
    /// The source is to make it.
    Create,
    /// The source is to delete it.
    Delete,
    /// What is known of it by other ways than a call of the source.
    Report(MachineReport),
}

impl State {
    /// What is to be done about a machine now. `is_missing`: its source does not tell of it any more.
    pub fn machine_work(
        &self,
        machine: &Machine,
        is_missing: bool,
        now: Timestamp,
    ) -> Option<MachineWork> {
        let is_coming = matches!(machine.phase, MachinePhase::Asked | MachinePhase::Made);
        let boot = Duration::from_secs(self.source(&machine.source)?.boot_s.into());
        match machine.phase {
            _ if is_coming && self.has_joined(machine) => {
                Some(MachineWork::Report(MachineReport::Joined))
            }
            _ if is_coming && machine.asked + boot <= now => {
                let text = match machine.phase {
                    MachinePhase::Asked => "the source did not make it in time",
                    _ => "its agent did not join in time",
                };
                Some(MachineWork::Report(MachineReport::Late { text: text.into() }))
            }
            _ if self.is_vanished(machine, is_missing) => {
                Some(MachineWork::Report(MachineReport::Vanished))
            }
            MachinePhase::Asked => Some(MachineWork::Create),
            MachinePhase::Deleting => Some(MachineWork::Delete),
            MachinePhase::Made
            | MachinePhase::Joined
            | MachinePhase::Leaving
            | MachinePhase::Gone => None,
        }
    }

    /// Whether there is something to be done because the source does not tell of the machine. One that leaves waits for its jobs:
    /// they end there while its agent speaks.
    pub(crate) fn is_vanished(&self, machine: &Machine, is_missing: bool) -> bool {
        match machine.phase {
            MachinePhase::Made | MachinePhase::Joined => is_missing,
            MachinePhase::Leaving => is_missing && self.is_silent(&machine.node),
            MachinePhase::Asked | MachinePhase::Deleting | MachinePhase::Gone => false,
        }
    }
}

/// How long after its making a machine may not be told of yet.
pub const CONSISTENCY_DELAY: Duration = Duration::from_secs(60);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub reports: Vec<(String, MachineReport)>,
    /// Further machines of tokens that have one, which is no node yet or no more: a call was made again before the source showed
    /// what it had made. They are deleted by their ids.
    pub surplus: Vec<SourceMachine>,
    /// Machines with the cluster's tag that nobody asked for: they are paid for, and are left alone.
    pub strangers: Vec<SourceMachine>,
    /// Tokens of machines that should be told of, and are not.
    pub missing: Vec<String>,
}

/// Compares the machines of one source with what it told in a call that was begun then.
pub fn differences(
    machines: &BTreeMap<String, Machine>,
    source: &str,
    told: &[SourceMachine],
    begun: Timestamp,
) -> Differences {
    let mut found = Differences::default();
    let pairs: HashSet<(&str, &str)> =
        told.iter().map(|one| (one.token.as_str(), one.id.as_str())).collect();
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for one in told {
        let known = machines.get(&one.token);
        // Two sources in one account of a cloud are told of each other's machines.
        if known.is_some_and(|machine| machine.source != source) {
            continue;
        }
        let first = *seen.entry(&one.token).or_insert(&one.id);
        // Where a source lists several machines with one token, ours is the one whose id is in the journal, else the first.
        let id = known.and_then(|machine| machine.id.as_deref());
        let id = id.filter(|id| pairs.contains(&(one.token.as_str(), *id))).unwrap_or(first);
        let Some(machine) = known else {
            found.strangers.push(one.clone());
            continue;
        };
        if id != one.id {
            // Only beside one that is known by its id, and not once one of them is a node: either may be that node.
            let is_known = machine.id.as_deref() == Some(id);
            let may_be_node = matches!(machine.phase, MachinePhase::Joined | MachinePhase::Leaving);
            let is_surplus = is_known && !may_be_node;
            let list = if is_surplus { &mut found.surplus } else { &mut found.strangers };
            list.push(one.clone());
            continue;
        }
        let is_news = match machine.phase {
            MachinePhase::Asked => true,
            // Not where it was deleted while the source was telling.
            MachinePhase::Gone => machine.gone.is_none_or(|gone| gone < begun),
            // Its making was found out otherwise, for one because its agent joined: its deletion may need the id.
            _ => machine.id.is_none(),
        };
        if is_news {
            let report = MachineReport::Made { id: one.id.clone(), since: one.since };
            found.reports.push((one.token.clone(), report));
        }
    }
    let of_source = machines.values().filter(|machine| machine.source == source);
    let missing = of_source.filter(|machine| {
        let is_made = matches!(
            machine.phase,
            MachinePhase::Made | MachinePhase::Joined | MachinePhase::Leaving
        );
        let is_old = machine.made.is_some_and(|made| made + CONSISTENCY_DELAY <= begun);
        is_made && is_old && !seen.contains_key(machine.token.as_str())
    });
    found.missing = missing.map(|machine| machine.token.clone()).collect();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::machine::Offer;
    use model::price::Price;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn machine(token: &str, phase: MachinePhase) -> (String, Machine) {
        let offer = Offer {
            id: "small".into(),
            cpus: 1,
            memory: Bytes::from_gib(1),
            disk: Bytes(0),
            gpus: None,
            region: String::new(),
            price: Price::default(),
            spot: false,
        };
        let machine = Machine {
            token: token.into(),
            number: 1,
            source: "cloud".into(),
            offer,
            node: "cloud-1".into(),
            job: None,
            asked: at(0),
            made: Some(at(10)),
            joined: None,
            gone: (phase == MachinePhase::Gone).then(|| at(500)),
            id: (phase != MachinePhase::Asked).then(|| "b".into()),
            phase,
            failure: None,
            terms: Default::default(),
        };
        (token.to_owned(), machine)
    }

    fn told(token: &str, id: &str) -> SourceMachine {
        SourceMachine { token: token.into(), id: id.into(), since: None }
    }

    #[test]
    fn id_that_is_not_known_is_learned_in_any_phase() {
        use MachinePhase::{Deleting, Joined, Leaving, Made};
        for phase in [Made, Joined, Leaving, Deleting] {
            let (token, mut known) = machine("one", phase);
            let learned = |known: &Machine| {
                let machines = [(token.clone(), known.clone())].into();
                differences(&machines, "cloud", &[told("one", "i-1")], at(1000)).reports
            };
            assert!(learned(&known).is_empty(), "{phase}");
            known.id = None;
            let made = MachineReport::Made { id: "i-1".into(), since: None };
            assert_eq!(learned(&known), [(token.clone(), made)], "{phase}");
        }
    }

    #[test]
    fn second_machine_of_a_token_is_surplus_in_whatever_order_they_are_told() {
        let known: BTreeMap<String, Machine> = [machine("one", MachinePhase::Made)].into();
        for all in [[told("one", "b"), told("one", "c")], [told("one", "c"), told("one", "b")]] {
            let found = differences(&known, "cloud", &all, at(1000));
            assert_eq!(found.surplus, [told("one", "c")]);
            assert!(found.missing.is_empty() && found.reports.is_empty(), "{found:?}");
            assert!(found.strangers.is_empty(), "{found:?}");
        }
        for phase in [MachinePhase::Asked, MachinePhase::Joined] {
            let all = [told("one", "b"), told("one", "c")];
            let found = differences(&[machine("one", phase)].into(), "cloud", &all, at(1000));
            assert!(found.surplus.is_empty(), "it is not known which one is ours: {found:?}");
            assert_eq!(found.strangers, [told("one", "c")]);
        }
    }

    #[test]
    fn machines_are_found_again_missed_or_strange() {
        use MachinePhase::{Asked, Deleting, Gone, Joined, Made};
        let known: BTreeMap<String, Machine> = [
            machine("asked", Asked),
            machine("made", Made),
            machine("joined", Joined),
            machine("deleting", Deleting),
            machine("gone", Gone),
        ]
        .into();
        let all = [
            told("asked", "a"),
            told("made", "b"),
            told("made", "b"),
            told("made", "c"),
            told("deleting", "b"),
            told("gone", "e"),
            told("other", "f"),
        ];
        let found = differences(&known, "cloud", &all, at(1000));
        let made = |token: &str, id: &str| {
            (token.to_owned(), MachineReport::Made { id: id.into(), since: None })
        };
        assert_eq!(found.reports, [made("asked", "a"), made("gone", "e")]);
        assert_eq!(found.surplus, [told("made", "c")]);
        assert_eq!(found.strangers, [told("other", "f")]);
        assert_eq!(found.missing, ["joined"]);
        let early = differences(&known, "cloud", &[told("gone", "e")], at(60));
        assert_eq!(early, Differences::default(), "what was made a moment ago is not missed");
        let others = differences(&known, "elsewhere", &[told("made", "b")], at(1000));
        assert_eq!(others, Differences::default(), "another source's machine is that source's");
    }
}
