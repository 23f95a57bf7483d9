//! Which partitions the jobs of a trace go to, by the number of the queue or of the partition that their records have.

use std::collections::{HashMap, HashSet};
use std::fmt;

/// The field of a record that says where its job goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The 15th.
    Queue,
    /// The 16th.
    Partition,
}

impl Field {
    pub fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Partition => "partition",
        }
    }
}

/// A number of a record's field, and the partition of the configuration that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    pub number: u32,
    pub partition: String,
}

impl Destination {
    /// Reads `NUMBER=PARTITION`.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, partition) = text.split_once('=')?;
        let number = number.parse().ok()?;
        (!partition.is_empty()).then(|| Self { number, partition: partition.to_owned() })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.number, self.partition)
    }
}

/// The partitions by the numbers of one field. A job with another number, or none, goes to the default partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destinations {
    pub field: Field,
    pub named: Vec<Destination>,
}

impl Destinations {
    /// For a trace whose jobs all go to the default partition.
    pub fn none() -> Self {
        Self { field: Field::Queue, named: Vec::new() }
    }

    /// The first number that is said to stand for a partition twice.
    pub fn repeated(&self) -> Option<u32> {
        let mut seen = HashSet::new();
        self.named.iter().map(|one| one.number).find(|number| !seen.insert(*number))
    }

    /// The names of the partitions, each once.
    pub fn partitions(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for destination in &self.named {
            if !names.contains(&destination.partition) {
                names.push(destination.partition.clone());
            }
        }
        names
    }

    /// The positions among [`Self::partitions`] of what each number stands for.
    pub fn positions(&self) -> HashMap<i64, u16> {
        let names = self.partitions();
        let position = |one: &Destination| {
            let at = names.iter().position(|name| *name == one.partition)?;
            Some((i64::from(one.number), u16::try_from(at).ok()?))
        };
        self.named.iter().filter_map(position).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_partitions_and_others_for_the_default_one() {
        let named = ["3=long", "1=debug", "4=long"].map(|text| Destination::parse(text).unwrap());
        let destinations = Destinations { field: Field::Queue, named: named.into() };
        assert_eq!(destinations.partitions(), ["long", "debug"]);
        let positions = destinations.positions();
        let found = [3, 1, 4, 2, -1].map(|number| positions.get(&number).copied());
        assert_eq!(found, [Some(0), Some(1), Some(0), None, None]);
        for bad in ["", "3", "=long", "3=", "x=long", "-1=long"] {
            assert_eq!(Destination::parse(bad), None, "{bad:?}");
        }
        assert_eq!(destinations.repeated(), None, "a partition may have several numbers");
        let named = ["1=a", "2=a", "1=b"].map(|text| Destination::parse(text).unwrap());
        let destinations = Destinations { field: Field::Queue, named: named.into() };
        assert_eq!(destinations.repeated(), Some(1));
    }
}
