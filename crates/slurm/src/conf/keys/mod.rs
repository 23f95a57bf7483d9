//! A configuration key: its name, the kind of value it takes, and whether it has an effect.
//!
//! `global_keys` and `record_keys` are the tables of keys, `choices` the words that a key may take, `value` parses a
//! value by its kind, `record` checks pairs against a table, `fields` says which field a key sets, and `words` which words
//! of a key act.

pub mod choices;
pub(super) mod fields;
pub(super) mod global_keys;
pub(super) mod record;
pub(super) mod record_keys;
pub mod value;
pub(super) mod words;

use self::choices::Choice;

/// The kind of value a key takes. A value is parsed once, by the kind in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Text,
    /// Comma-separated words.
    Words,
    YesNo,
    /// A whole number up to `max`; `K`, `M`, `G`, `T` multiply by powers of 1024.
    Number {
        max: u64,
    },
    /// A whole number of megabytes. Slurm takes a suffix as a multiplier of megabytes, so that
    /// `128G` would be 128 billion megabytes. A suffix is therefore refused.
    Megabytes,
    /// Slurm's time grammar, to the minute.
    Time,
    /// One of these words, in any case.
    OneOf(&'static [&'static str]),
    /// Comma-separated words, each one of these, in any case.
    WordsOf(&'static [&'static str]),
    /// A host list, expanded.
    Hosts,
    /// CPU or core numbers: `0-3,8`.
    Cpus,
    /// A percentage with an optional fraction.
    Percent,
}

pub const U16: ValueKind = ValueKind::Number { max: u16::MAX as u64 };
pub const U32: ValueKind = ValueKind::Number { max: u32::MAX as u64 };
pub const U64: ValueKind = ValueKind::Number { max: u64::MAX };

/// The bound that the manual gives for many times and counts.
pub const BOUNDED: ValueKind = ValueKind::Number { max: 65_533 };

pub const fn one_of<C: Choice>() -> ValueKind {
    ValueKind::OneOf(C::WORDS)
}

pub const fn words_of<C: Choice>() -> ValueKind {
    ValueKind::WordsOf(C::WORDS)
}

/// What becomes of a key of Slurm here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySupport {
    /// Read into the typed configuration, and acts.
    Used,
    /// Valid in Slurm and checked. A notice says once that it has no effect.
    Accepted,
    /// As `Accepted`, and no longer in Slurm.
    Retired,
    /// A control that is not here: without it more would be shown or permitted than the site asked for. Values that
    /// ask for nothing are accepted.
    Refused { unless: &'static [&'static str], why: &'static str },
}

#[derive(Debug, Clone, Copy)]
pub struct Key {
    pub name: &'static str,
    pub kind: ValueKind,
    pub support: KeySupport,
    /// Whether a file may have the key more than once, each with its own meaning.
    pub repeats: bool,
}

pub const fn used(name: &'static str, kind: ValueKind) -> Key {
    Key { name, kind, support: KeySupport::Used, repeats: false }
}

pub const fn accepted(name: &'static str, kind: ValueKind) -> Key {
    Key { name, kind, support: KeySupport::Accepted, repeats: false }
}

pub const fn retired(name: &'static str, kind: ValueKind) -> Key {
    Key { name, kind, support: KeySupport::Retired, repeats: false }
}

pub const fn refused(
    name: &'static str,
    kind: ValueKind,
    unless: &'static [&'static str],
    why: &'static str,
) -> Key {
    Key { name, kind, support: KeySupport::Refused { unless, why }, repeats: false }
}

pub const fn repeating(key: Key) -> Key {
    Key { repeats: true, ..key }
}

/// The keys that one kind of line may have.
#[derive(Debug, Clone, Copy)]
pub struct KeyTable {
    /// The place of the keys as errors name it: `a NodeName line`.
    pub of: &'static str,
    pub keys: &'static [Key],
}

impl KeyTable {
    pub fn find(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name.eq_ignore_ascii_case(name))
    }

    /// The key that a misspelt name most likely meant; `None` if no name is near.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        let far = name.len() / 3 + 1;
        let ranked = self.keys.iter().map(|key| (edit_distance(name, key.name), key.name));
        ranked.filter(|(distance, _)| *distance <= far).min().map(|(_, name)| name)
    }
}

/// Names longer than any key are not compared: the cost is the product of the lengths.
const NAME_BYTES_MAX: usize = 64;

/// The number of insertions, deletions, replacements and swaps of neighbours that turn one name into
/// the other, without regard to case.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_ascii_lowercase().into_bytes(), b.to_ascii_lowercase().into_bytes());
    if a.len() > NAME_BYTES_MAX || b.len() > NAME_BYTES_MAX {
        return usize::MAX;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::keys::global_keys::GLOBAL;
    use crate::conf::keys::record_keys::{
        CGROUP, DOWN_NODES, FRONTEND, GRES, NODE, NODE_SET, PARTITION,
    };

    const TABLES: [KeyTable; 8] =
        [GLOBAL, NODE, PARTITION, NODE_SET, DOWN_NODES, FRONTEND, GRES, CGROUP];

    #[test]
    fn no_table_has_a_name_twice() {
        for table in TABLES {
            for (i, key) in table.keys.iter().enumerate() {
                let twin = table.keys[..i].iter().find(|k| k.name.eq_ignore_ascii_case(key.name));
                assert!(twin.is_none(), "{} is twice among the keys of {}", key.name, table.of);
                assert!(key.name.len() <= NAME_BYTES_MAX);
            }
        }
    }

    #[test]
    fn keys_are_found_in_any_case() {
        assert_eq!(GLOBAL.find("slurmdTIMEOUT").map(|k| k.name), Some("SlurmdTimeout"));
        assert_eq!(NODE.find("cpus").map(|k| k.name), Some("CPUs"));
        assert!(NODE.find("MaxTime").is_none());
    }

    #[test]
    fn a_misspelt_key_finds_the_nearest_name() {
        let table = [
            (GLOBAL, "SlurmdTimeot", Some("SlurmdTimeout")),
            (GLOBAL, "ClutserName", Some("ClusterName")),
            (GLOBAL, "MaxArrySize", Some("MaxArraySize")),
            (NODE, "RealMemry", Some("RealMemory")),
            (NODE, "Socket", Some("Sockets")),
            (PARTITION, "Node", Some("Nodes")),
            (GRES, "Counts", Some("Count")),
            (GLOBAL, "TotallyOther", None),
            (GLOBAL, "x", None),
        ];
        for (table, name, nearest) in table {
            assert_eq!(table.nearest(name), nearest, "{name}");
        }
    }
}
