//! Job arrays: sets of task indices as ranges, and `--array`'s grammar.
//!
//! An array of a million tasks is one range; it costs more only where tasks have left it.

use crate::grammar::GrammarError;
use crate::time::whole_number;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

const WHAT: &str = "array specification";

/// The most ranges that a text stands for. Indices with a step between them are a range each: `0-4000000000:2` would fill the
/// memory of whoever reads it, which may be the server.
pub const RANGES_MAX: usize = 2_000_001;

/// With this many evenly spaced indices or fewer, or with this far from the first to the last, Slurm writes the list
/// out; beyond both it writes `first-last:step`.
const STEP_LIST_MAX: u64 = 5;
const STEP_LIST_SPAN: u32 = 10;

/// What Slurm's commands show of a long list of indices before they cut it with `...`.
pub const SHOWN_CHARS: usize = 64;

/// A set of indices, held as ranges that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct IndexSet {
    /// First index of each range to its last.
    ranges: BTreeMap<u32, u32>,
    len: u64,
}

impl IndexSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// All of `first..=last`; nothing if `last` is before `first`.
    pub fn from_range(first: u32, last: u32) -> Self {
        let mut set = Self::new();
        set.insert_range(first, last);
        set
    }

    /// `0-23`, `1,3,5`, `1-10:2`, each index at most `max`; brackets around it are allowed.
    pub fn parse(text: &str, max: u32) -> Result<Self, GrammarError> {
        let refused = |expected: String| GrammarError::new(WHAT, text, expected);
        let trimmed = text.trim();
        let inside = match (trimmed.strip_prefix('['), trimmed.strip_suffix(']')) {
            (Some(rest), Some(_)) => &rest[..rest.len() - 1],
            _ => trimmed,
        };
        let mut set = Self::new();
        let mut range_count = 0;
        for part in inside.split(',') {
            let (first, last, step) = parse_part(part.trim()).ok_or_else(|| {
                refused("indices and ranges, as in 0-23, 1,3,5 or 1-10:2".to_owned())
            })?;
            if last > max {
                return Err(refused(format!("indices from 0 to {max}")));
            }
            range_count += if step == 1 { 1 } else { (last - first) as usize / step as usize + 1 };
            if range_count > RANGES_MAX {
                return Err(refused(format!("at most {RANGES_MAX} ranges")));
            }
            set.insert_stepped(first, last, step);
        }
        Ok(set)
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn first(&self) -> Option<u32> {
        self.ranges.keys().next().copied()
    }

    pub fn last(&self) -> Option<u32> {
        self.ranges.values().next_back().copied()
    }

    pub fn contains(&self, index: u32) -> bool {
        self.range_at(index).is_some()
    }

    /// Says whether the index is new.
    pub fn insert(&mut self, index: u32) -> bool {
        let before = self.len;
        self.insert_range(index, index);
        self.len > before
    }

    /// Says whether the index was there.
    pub fn remove(&mut self, index: u32) -> bool {
        let before = self.len;
        self.remove_range(index, index);
        self.len < before
    }

    pub fn insert_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first, last);
        // A range that ends just before, or in, the new one grows into it.
        let before = self.ranges.range(..=first).next_back();
        if let Some((&start, &end)) = before.filter(|(_, end)| **end >= first.saturating_sub(1)) {
            first = start;
            last = last.max(end);
        }
        while let Some((&start, &end)) = self.ranges.range(first..=last.saturating_add(1)).next() {
            self.ranges.remove(&start);
            self.len -= width(start, end);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
        self.len += width(first, last);
    }

    pub fn remove_range(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        // Cut the range that reaches in from before, so that all others begin inside.
        if let Some((start, end)) = self.range_at(first).filter(|(start, _)| *start < first) {
            self.ranges.insert(start, first - 1);
            self.ranges.insert(first, end);
        }
        while let Some((&start, &end)) = self.ranges.range(first..=last).next() {
            self.ranges.remove(&start);
            self.len -= width(start, end.min(last));
            if end > last {
                self.ranges.insert(last + 1, end);
            }
        }
    }

    fn insert_stepped(&mut self, first: u32, last: u32, step: u32) {
        if step == 1 {
            self.insert_range(first, last);
        } else {
            for index in (first..=last).step_by(step as usize) {
                self.insert(index);
            }
        }
    }

    /// The range that `index` lies in.
    fn range_at(&self, index: u32) -> Option<(u32, u32)> {
        let (&start, &end) = self.ranges.range(..=index).next_back()?;
        (index <= end).then_some((start, end))
    }

    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().map(|(&first, &last)| (first, last))
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(first, last)| first..=last)
    }

    /// Whether they have an index in common. Only the ranges of the smaller one are looked at.
    pub fn intersects(&self, other: &Self) -> bool {
        let by_size = self.ranges.len() <= other.ranges.len();
        let (few, many) = if by_size { (self, other) } else { (other, self) };
        few.ranges().any(|(first, last)| {
            let before = many.ranges.range(..=last).next_back();
            before.is_some_and(|(_, end)| *end >= first)
        })
    }

    pub fn union(&self, other: &Self) -> Self {
        let mut set = self.clone();
        other.ranges().for_each(|(first, last)| set.insert_range(first, last));
        set
    }

    pub fn difference(&self, other: &Self) -> Self {
        let mut set = self.clone();
        other.ranges().for_each(|(first, last)| set.remove_range(first, last));
        set
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// The distance between neighbours, if it is one and the same throughout and greater than one.
    fn step(&self) -> Option<u32> {
        let mut firsts = self.ranges.keys();
        let step = {
            let (a, b) = (firsts.next()?, firsts.next()?);
            b - a
        };
        let even = |pair: (&u32, &u32)| pair.1 - pair.0 == step;
        let singles = self.ranges().all(|(first, last)| first == last);
        (singles && self.ranges.keys().zip(self.ranges.keys().skip(1)).all(even)).then_some(step)
    }

    /// Ranges and single indices, never a step: `0-3,8`.
    pub fn range_text(&self) -> String {
        let mut text = String::new();
        for (first, last) in self.ranges() {
            push_range(&mut text, first, last);
        }
        text
    }

    /// As [`fmt::Display`], cut with `...` once it is longer than `chars_max`; the work is bounded by it too.
    pub fn text_within(&self, chars_max: usize) -> String {
        if let Some(stepped) = self.stepped_text() {
            return stepped;
        }
        let mut text = String::new();
        for (first, last) in self.ranges() {
            let before = text.len();
            push_range(&mut text, first, last);
            if text.len() > chars_max {
                text.truncate(before);
                text.push_str(if before == 0 { "..." } else { ",..." });
                break;
            }
        }
        text
    }

    fn stepped_text(&self) -> Option<String> {
        if self.len <= STEP_LIST_MAX {
            return None;
        }
        let (step, first, last) = (self.step()?, self.first()?, self.last()?);
        (last - first > STEP_LIST_SPAN).then(|| format!("{first}-{last}:{step}"))
    }
}

fn width(first: u32, last: u32) -> u64 {
    u64::from(last - first) + 1
}

fn push_range(text: &mut String, first: u32, last: u32) {
    if !text.is_empty() {
        text.push(',');
    }
    text.push_str(&first.to_string());
    if last > first {
        // Slurm writes two neighbours as a range too.
        text.push('-');
        text.push_str(&last.to_string());
    }
}

fn parse_part(part: &str) -> Option<(u32, u32, u32)> {
    let small = |digits: &str| whole_number(digits).and_then(|n| u32::try_from(n).ok());
    let Some((first, rest)) = part.split_once('-') else {
        let index = small(part)?;
        return Some((index, index, 1));
    };
    let (last, step) = rest.split_once(':').unwrap_or((rest, "1"));
    let (first, last, step) = (small(first)?, small(last)?, small(step)?);
    (first <= last && step > 0).then_some((first, last, step))
}

impl fmt::Display for IndexSet {
    /// Slurm's way: `16-23`, `0,5,10`, and a step once it saves much: `1-45:2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text_within(usize::MAX))
    }
}

impl From<Vec<(u32, u32)>> for IndexSet {
    fn from(ranges: Vec<(u32, u32)>) -> Self {
        let mut set = Self::new();
        ranges.into_iter().for_each(|(first, last)| set.insert_range(first, last));
        set
    }
}

impl From<IndexSet> for Vec<(u32, u32)> {
    fn from(set: IndexSet) -> Self {
        set.ranges.into_iter().collect()
    }
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indices: I) -> Self {
        let mut set = Self::new();
        indices.into_iter().for_each(|index| {
            set.insert(index);
        });
        set
    }
}

/// What `--array` asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArraySpec {
    pub indices: IndexSet,
    /// At most so many tasks at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u32>,
    /// As it was written.
    pub text: String,
}

impl ArraySpec {
    /// `0-23`, `1,3,5`, `1-10:2%4`; each index at most `max`. A throttle of zero is none. Commas beside nothing are passed
    /// over, as by Slurm: a loop that writes `1,2,3,` is common.
    pub fn parse(text: &str, max: u32) -> Result<Self, GrammarError> {
        let text = text.trim();
        let (indices, throttle) = match text.split_once('%') {
            Some((indices, throttle)) => {
                let count = whole_number(throttle).and_then(|n| u32::try_from(n).ok());
                let count = count.ok_or_else(|| {
                    GrammarError::new(WHAT, text, "a whole number of tasks after the %")
                })?;
                (indices, Some(count).filter(|count| *count > 0))
            }
            None => (text, None),
        };
        let parts: Vec<&str> = indices.split(',').filter(|part| !part.trim().is_empty()).collect();
        let indices = IndexSet::parse(&parts.join(","), max)?;
        Ok(Self { indices, throttle, text: text.to_owned() })
    }
}

/// The indices that still wait, as squeue shows them between the brackets: `3-100%2`.
pub fn format_pending(pending: &IndexSet, throttle: Option<u32>) -> String {
    let indices = pending.text_within(SHOWN_CHARS);
    match throttle {
        Some(throttle) => format!("{indices}%{throttle}"),
        None => indices,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> IndexSet {
        IndexSet::parse(text, 4_000_000).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn specifications_are_read() {
        let table = [
            ("0-23", "0-23", None),
            ("1,3,5", "1,3,5", None),
            ("1-10:2%4", "1,3,5,7,9", Some(4)),
            ("1-100%2", "1-100", Some(2)),
            ("0-5%0", "0-5", None),
            ("3,1-2", "1-3", None),
            ("1-5,3-8", "1-8", None),
            ("7", "7", None),
            ("[2-4]", "2-4", None),
            ("1,3,5,", "1,3,5", None),
            ("1,,3,%2", "1,3", Some(2)),
        ];
        for (text, indices, throttle) in table {
            let spec = ArraySpec::parse(text, 1_000).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(
                (spec.indices.to_string().as_str(), spec.throttle),
                (indices, throttle),
                "{text}"
            );
            assert_eq!(spec.text, text);
        }
    }

    #[test]
    fn broken_specifications_are_refused() {
        for text in [
            "",
            "a-b",
            "5-1",
            "1-",
            "-1",
            ",",
            "1-10:0",
            "1%",
            "1%x",
            "1001",
            "0-1001",
            "1-2-3",
            "1:2",
            "[1",
            "%2",
            "99999999999",
        ] {
            let error = ArraySpec::parse(text, 1_000).expect_err(text).to_string();
            assert!(error.starts_with("invalid array specification"), "{error}");
        }
    }

    #[test]
    fn short_text_does_not_stand_for_billions_of_ranges() {
        for text in ["0-4294967292:2", "7,0-4000002:2", "0-4294967292:2000,0-4294967292:3"] {
            let error = IndexSet::parse(text, u32::MAX).expect_err(text);
            assert_eq!(error.expected, "at most 2000001 ranges", "{text}");
        }
        for (text, len) in [("0-4294967292", 4_294_967_293), ("0-4294967292:100000000", 43)] {
            assert_eq!(IndexSet::parse(text, u32::MAX).map(|set| set.len()), Ok(len), "{text}");
        }
    }

    #[test]
    fn waiting_indices_are_shown_as_captured() {
        let table = [
            ("16-23", None, "16-23"),
            ("3-100", Some(2), "3-100%2"),
            ("0-20:5", None, "0,5,10,15,20"),
            ("0-10:2", None, "0,2,4,6,8,10"),
            ("6-20:2", Some(3), "6-20:2%3"),
            ("0-12:2", None, "0-12:2"),
            ("100-500:100", None, "100,200,300,400,500"),
            ("0-25:5", None, "0-25:5"),
            ("1-45:2", None, "1-45:2"),
            ("1-45:2,46", None, "1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31,33,35,37,39,41,43,..."),
            ("0,2-3", None, "0,2-3"),
        ];
        for (indices, throttle, shown) in table {
            assert_eq!(format_pending(&parsed(indices), throttle), shown, "{indices}");
        }
    }

    #[test]
    fn a_million_tasks_are_one_range() {
        let mut set = parsed("0-999999");
        assert_eq!((set.len(), set.ranges().count()), (1_000_000, 1));
        for index in 0..1_000 {
            assert_eq!(set.first(), Some(index));
            assert!(set.remove(index) && !set.remove(index));
        }
        assert!(set.remove(500_000));
        assert_eq!((set.len(), set.ranges().count()), (998_999, 2));
        assert_eq!(set.to_string(), "1000-499999,500001-999999");
    }

    #[test]
    fn the_ends_of_the_number_range_hold() {
        let mut set = IndexSet::from_range(0, u32::MAX);
        assert_eq!(set.len(), 1 << 32);
        assert!(set.remove(u32::MAX) && set.remove(0));
        assert_eq!((set.first(), set.last()), (Some(1), Some(u32::MAX - 1)));
        assert!(set.insert(u32::MAX) && set.insert(0));
        assert_eq!(set.ranges().collect::<Vec<_>>(), [(0, u32::MAX)]);
        assert!(IndexSet::from_range(5, 4).is_empty());
    }

    #[test]
    fn a_set_survives_json_and_mends_bad_ranges() {
        let set = parsed("0-3,8");
        let json = serde_json::to_string(&set).expect("writes");
        assert_eq!(json, "[[0,3],[8,8]]");
        assert_eq!(
            serde_json::from_str::<IndexSet>("[[8,8],[2,3],[0,2],[9,1]]").expect("reads"),
            set
        );
    }
}
