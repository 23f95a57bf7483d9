//! The pairs of one line, or of one file of single keys, checked against a table and parsed.

use std::collections::BTreeMap;

use model::cpuset::CpuSet;
use model::time::TimeLimit;

use super::choices::Choice;
use super::value::{self, Percent, Value};
use crate::conf::error::{ConfError, ConfLocation, Findings, NoticeKind};
use crate::conf::keys::{Key, KeySupport, KeyTable};
use crate::conf::text::lines::Pair;

#[derive(Debug, Clone)]
pub struct Entry {
    /// The value as written.
    pub text: String,
    pub place: ConfLocation,
    value: Value,
}

/// Parsed values by the name of their key in the table. The getters return `None` for a key that was
/// not given, and for a value that was refused: the refusal is in the findings.
#[derive(Debug, Clone)]
pub struct Record {
    table: KeyTable,
    entries: BTreeMap<&'static str, Entry>,
}

impl Record {
    pub fn new(table: KeyTable) -> Record {
        Record { table, entries: BTreeMap::new() }
    }

    pub fn read(table: KeyTable, pairs: &[Pair], findings: &mut Findings) -> Record {
        let mut record = Record::new(table);
        pairs.iter().for_each(|pair| record.add(pair, findings));
        record
    }

    pub fn add(&mut self, pair: &Pair, findings: &mut Findings) {
        let Some(key) = self.table.find(&pair.key) else {
            let (place, key) = (pair.place.clone(), pair.key.clone());
            let nearest = self.table.nearest(&pair.key);
            let of = self.table.of;
            return findings.errors.push(ConfError::UnknownKey { place, key, of, nearest });
        };
        self.notice(key, pair, findings);
        match value::parse(key.kind, &pair.value) {
            Ok(value) => {
                let (text, place) = (pair.value.clone(), pair.place.clone());
                self.entries.insert(key.name, Entry { text, place, value });
            }
            Err(expected) => findings.wrong(&pair.place, key.name, &pair.value, expected),
        }
    }

    fn notice(&self, key: &Key, pair: &Pair, findings: &mut Findings) {
        match key.support {
            KeySupport::Used => {}
            KeySupport::Accepted => findings.notice(&pair.place, key.name, NoticeKind::NoEffect),
            KeySupport::Retired => findings.notice(&pair.place, key.name, NoticeKind::Retired),
            KeySupport::Refused { unless, why } => {
                if !unless.iter().any(|value| value.eq_ignore_ascii_case(&pair.value)) {
                    let expected = format!("not enforced here: {why}; expected no such key");
                    findings.wrong(&pair.place, key.name, &pair.value, expected);
                }
            }
        }
        if let Some(former) = self.entries.get(key.name).filter(|_| !key.repeats) {
            let first = former.place.clone();
            findings.notice(&pair.place, key.name, NoticeKind::Repeated { first });
        }
    }

    /// The values of `self`, and those of `defaults` for the keys that `self` does not have. The
    /// keys of a group have the same meaning: one of them in `self` replaces all of them.
    pub fn with_defaults(mut self, defaults: &Record, groups: &[&[&str]]) -> Record {
        let is_set = |name: &str, record: &Record| {
            let group = groups.iter().find(|group| group.contains(&name));
            group
                .is_some_and(|group| group.iter().any(|member| record.entries.contains_key(member)))
        };
        let taken: Vec<_> =
            defaults.entries.iter().filter(|(name, _)| !is_set(name, &self)).collect();
        for (name, entry) in taken {
            self.entries.entry(name).or_insert_with(|| entry.clone());
        }
        self
    }

    pub fn entries(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (*name, entry))
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        debug_assert!(self.table.keys.iter().any(|k| k.name == name), "{name} is in no table");
        self.entries.get(name)
    }

    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.entry(name).map(|entry| entry.text.clone())
    }

    pub fn words(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::Words(words)) => words.clone(),
            other => none(name, other).unwrap_or_default(),
        }
    }

    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.value(name) {
            Some(Value::Flag(flag)) => Some(*flag),
            other => none(name, other),
        }
    }

    /// A number; `UNLIMITED` is the largest that the type holds.
    pub fn number<N: TryFrom<u64> + Largest>(&self, name: &str) -> Option<N> {
        self.limit(name).map(|limit| limit.unwrap_or(N::LARGEST))
    }

    /// A number, or `Some(None)` for `UNLIMITED`.
    pub fn limit<N: TryFrom<u64> + Largest>(&self, name: &str) -> Option<Option<N>> {
        match self.value(name) {
            Some(Value::Number(n)) => Some(Some(N::try_from(*n).unwrap_or(N::LARGEST))),
            Some(Value::Unlimited) => Some(None),
            other => none(name, other),
        }
    }

    pub fn time(&self, name: &str) -> Option<TimeLimit> {
        match self.value(name) {
            Some(Value::Time(limit)) => Some(*limit),
            other => none(name, other),
        }
    }

    pub fn hosts(&self, name: &str) -> Option<Vec<String>> {
        match self.value(name) {
            Some(Value::Hosts(hosts)) => Some(hosts.clone()),
            other => none(name, other),
        }
    }

    pub fn cpus(&self, name: &str) -> Option<CpuSet> {
        match self.value(name) {
            Some(Value::Cpus(cpus)) => Some(cpus.clone()),
            other => none(name, other),
        }
    }

    pub fn percent(&self, name: &str) -> Option<Percent> {
        match self.value(name) {
            Some(Value::Percent(percent)) => Some(*percent),
            other => none(name, other),
        }
    }

    pub fn choice<C: Choice>(&self, name: &str) -> Option<C> {
        match self.value(name) {
            Some(Value::Text(word)) => C::from_word(word),
            other => none(name, other),
        }
    }

    /// The words of a list of choices; `None` if the key was not given.
    pub fn choices<C: Choice>(&self, name: &str) -> Option<Vec<C>> {
        match self.value(name) {
            Some(Value::Words(words)) => {
                Some(words.iter().filter_map(|word| C::from_word(word)).collect())
            }
            other => none(name, other),
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.entry(name).map(|entry| &entry.value)
    }
}

/// Returns `None` for a key that was not given. A value of another kind means that the table and the reader
/// disagree.
fn none<T>(name: &str, value: Option<&Value>) -> Option<T> {
    debug_assert!(value.is_none(), "the table gives {name} another kind than its reader");
    None
}

/// The number that stands for `UNLIMITED` in a field that has no value for "no limit".
pub trait Largest {
    const LARGEST: Self;
}

impl Largest for u16 {
    const LARGEST: u16 = u16::MAX;
}

impl Largest for u32 {
    const LARGEST: u32 = u32::MAX;
}

impl Largest for u64 {
    const LARGEST: u64 = u64::MAX;
}
