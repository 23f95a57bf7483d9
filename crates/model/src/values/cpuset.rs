//! A set of CPU ids of one node, printed the way the kernel reads it: `0-3,8`.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;
use std::str::FromStr;

/// More CPUs than any node has; a list that names a higher one is refused.
pub const CPU_MAX: u32 = 65_536;

/// Words of 64 CPUs that a set holds in itself: the sets of most nodes need no allocation, and every plan and every share copies some.
const INLINE_WORDS: usize = 2;

#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct CpuSet {
    words: SmallVec<[u64; INLINE_WORDS]>,
}

impl CpuSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPUs `0..count`.
    pub fn first(count: u32) -> Self {
        assert!(count <= CPU_MAX, "{count} CPUs are beyond the bound {CPU_MAX}");
        let mut words = SmallVec::from_elem(u64::MAX, count as usize / 64);
        if !count.is_multiple_of(64) {
            words.push((1 << (count % 64)) - 1);
        }
        Self { words }
    }

    pub fn insert(&mut self, cpu: u32) {
        assert!(cpu < CPU_MAX, "cpu {cpu} is beyond the bound {CPU_MAX}");
        let word = cpu as usize / 64;
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    pub fn remove(&mut self, cpu: u32) {
        if let Some(word) = self.words.get_mut(cpu as usize / 64) {
            *word &= !(1 << (cpu % 64));
        }
        self.trim();
    }

    pub fn contains(&self, cpu: u32) -> bool {
        self.words.get(cpu as usize / 64).is_some_and(|w| w & (1 << (cpu % 64)) != 0)
    }

    pub fn len(&self) -> u32 {
        self.words.iter().map(|w| w.count_ones()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let firsts = (0..).step_by(64);
        firsts.zip(&self.words).flat_map(|(first, word)| bits(*word).map(move |bit| first + bit))
    }

    pub fn union(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine |= theirs;
        }
    }

    pub fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.words.iter_mut().zip(&other.words) {
            *mine &= !theirs;
        }
        self.trim();
    }

    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    pub fn is_subset(&self, other: &Self) -> bool {
        self.words.iter().enumerate().all(|(i, w)| w & !other.words.get(i).unwrap_or(&0) == 0)
    }

    // Equal sets have equal words: no trailing zero word is kept.
    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// The positions of the bits that are set, the lowest first.
fn bits(word: u64) -> impl Iterator<Item = u32> {
    let non_zero = |word: u64| (word != 0).then_some(word);
    // Each step takes out the lowest bit.
    std::iter::successors(non_zero(word), move |word| non_zero(word & (word - 1)))
        .map(u64::trailing_zeros)
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        cpus.into_iter().for_each(|c| set.insert(c));
        set
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().peekable();
        let mut first = true;
        while let Some(start) = ids.next() {
            let mut end = start;
            while ids.peek() == Some(&(end + 1)) {
                end += 1;
                ids.next();
            }
            if !first {
                f.write_str(",")?;
            }
            first = false;
            if end == start { write!(f, "{start}")? } else { write!(f, "{start}-{end}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = GrammarError;
    fn from_str(s: &str) -> Result<Self, GrammarError> {
        let bad = || GrammarError {
            what: "CPU list",
            value: s.to_string(),
            expected: "ids and ranges such as 0-3,8".to_string(),
        };
        let mut set = Self::new();
        for part in s.split(',').filter(|p| !p.is_empty()) {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let from: u32 = from.trim().parse().map_err(|_| bad())?;
            let to: u32 = to.trim().parse().map_err(|_| bad())?;
            if from > to || to >= CPU_MAX {
                return Err(bad());
            }
            (from..=to).for_each(|c| set.insert(c));
        }
        Ok(set)
    }
}

impl Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_prints_as_the_kernel_reads_it() {
        for text in ["", "0", "0-3", "0-3,8", "1,3,5", "63-65,127"] {
            assert_eq!(text.parse::<CpuSet>().unwrap().to_string(), text);
        }
        for bad in ["x", "3-1", "1-", "70000"] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad}");
        }
    }

    #[test]
    fn first_cpus_are_those_below_the_count() {
        for count in [0, 1, 63, 64, 65, 128, 200] {
            let first = CpuSet::first(count);
            assert_eq!(first, (0..count).collect(), "{count}");
            assert!(first.iter().eq(0..count), "{count}");
            assert_eq!(first.len(), count);
        }
    }

    #[test]
    fn taking_away_leaves_equal_sets_equal() {
        let mut set: CpuSet = "0-99".parse().unwrap();
        set.subtract(&"64-99".parse().unwrap());
        assert_eq!(set, CpuSet::first(64));
        assert!(CpuSet::first(3).is_subset(&set) && !set.is_subset(&CpuSet::first(3)));
    }
}
