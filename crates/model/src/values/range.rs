//! Ranges of amounts: dstack's `4`, `4..`, `..8`, `4..8`, and Slurm's `-N 2-4`.

use crate::amount::parse_count;
use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// From `min` to `max`, both included; without a maximum it is open upwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range<T> {
    pub min: T,
    #[serde(default = "no_maximum", skip_serializing_if = "Option::is_none")]
    pub max: Option<T>,
}

fn no_maximum<T>() -> Option<T> {
    None
}

impl<T> Range<T> {
    pub fn at_least(min: T) -> Self {
        Self { min, max: None }
    }
}

impl<T: Clone> Range<T> {
    pub fn exactly(amount: T) -> Self {
        Self { min: amount.clone(), max: Some(amount) }
    }

    pub fn map<U>(&self, f: impl Fn(&T) -> U) -> Range<U> {
        Range { min: f(&self.min), max: self.max.as_ref().map(f) }
    }
}

impl<T: Ord + Clone> Range<T> {
    pub fn between(min: T, max: T) -> Self {
        Self { min, max: Some(max) }
    }

    pub fn contains(&self, amount: &T) -> bool {
        *amount >= self.min && self.max.as_ref().is_none_or(|max| amount <= max)
    }

    pub fn is_exact(&self) -> bool {
        self.max.as_ref() == Some(&self.min)
    }

    /// The part that both ranges share, if any.
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        let min = self.min.clone().max(other.min.clone());
        let max = match (&self.max, &other.max) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (one, None) | (None, one) => one.clone(),
        };
        max.as_ref().is_none_or(|max| min <= *max).then_some(Self { min, max })
    }
}

impl<T: Ord + Clone + Default> Range<T> {
    /// dstack's text: `4`, `4..`, `..8` (from the least there is), `4..8`; `item` reads one end.
    pub fn parse(
        what: &'static str,
        text: &str,
        item: impl Fn(&str) -> Result<T, GrammarError>,
    ) -> Result<Self, GrammarError> {
        let Some((min, max)) = text.split_once("..") else {
            return Ok(Self::exactly(item(text.trim())?));
        };
        let (min, max) = (min.trim(), max.trim());
        if min.is_empty() && max.is_empty() {
            return Err(GrammarError::new(what, text, "a number on at least one side of .."));
        }
        let min = if min.is_empty() { T::default() } else { item(min)? };
        let max = if max.is_empty() { None } else { Some(item(max)?) };
        if max.as_ref().is_some_and(|max| *max < min) {
            return Err(GrammarError::new(what, text, "the smaller end before the .."));
        }
        Ok(Self { min, max })
    }
}

impl Range<u32> {
    /// dstack's range of whole numbers.
    pub fn parse_count(what: &'static str, text: &str) -> Result<Self, GrammarError> {
        Self::parse(what, text, |item| {
            whole_number(item)
                .parse()
                .map_err(|_| GrammarError::new(what, text, "whole numbers, as in 2 or 2..4"))
        })
    }
}

/// The digits of a whole number that is written with a fraction of zeros, as dstack takes it: `5.0`. Any other text as it is.
pub fn whole_number(text: &str) -> &str {
    let Some((digits, zeros)) = text.split_once('.') else { return text };
    let is_whole = digits.ends_with(|c: char| c.is_ascii_digit());
    if is_whole && !zeros.is_empty() && zeros.bytes().all(|b| b == b'0') { digits } else { text }
}

/// Slurm's `--nodes`: `2`, or `2-4`; `K` and `M` are allowed.
pub fn parse_node_count(text: &str) -> Result<Range<u32>, GrammarError> {
    let refused = |expected: &str| GrammarError::new("node count", text, expected);
    let one = |part: &str| {
        parse_count(part.trim())
            .and_then(|count| u32::try_from(count).ok())
            .filter(|count| *count > 0)
            .ok_or_else(|| refused("a count of at least 1, or MIN-MAX"))
    };
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) = (one(min)?, one(max)?);
    if max < min {
        return Err(refused("the smaller count first"));
    }
    Ok(Range::between(min, max))
}

impl<T: fmt::Display + Ord + Clone> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.max {
            Some(max) if *max == self.min => write!(f, "{max}"),
            Some(max) => write!(f, "{}..{max}", self.min),
            None => write!(f, "{}..", self.min),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dstack_ranges_are_read_and_printed() {
        let table = [
            ("4", Range::exactly(4), "4"),
            ("4..", Range::at_least(4), "4.."),
            ("..8", Range::between(0, 8), "0..8"),
            ("4..8", Range::between(4, 8), "4..8"),
            ("4 .. 8", Range::between(4, 8), "4..8"),
            ("4.0", Range::exactly(4), "4"),
            ("4.0..8.00", Range::between(4, 8), "4..8"),
        ];
        for (text, range, shown) in table {
            assert_eq!(Range::parse_count("count", text), Ok(range), "{text}");
            assert_eq!(range.to_string(), shown);
        }
        for text in ["", "..", "8..2", "a..b", "1.5", "1.", ".0", "1.0.0", "1..2..3", "-1"] {
            assert!(Range::parse_count("count", text).is_err(), "{text}");
        }
    }

    #[test]
    fn node_counts_are_read() {
        assert_eq!(parse_node_count("2"), Ok(Range::exactly(2)));
        assert_eq!(parse_node_count("2-4"), Ok(Range::between(2, 4)));
        assert_eq!(parse_node_count("1K"), Ok(Range::exactly(1_024)));
        for text in ["", "0", "4-2", "-2", "2-", "x", "1-2-3", "9999999999"] {
            assert!(parse_node_count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_contain_and_intersect() {
        let (open, closed) = (Range::at_least(4), Range::between(2, 6));
        assert!(open.contains(&4) && open.contains(&999) && !open.contains(&3));
        assert!(closed.contains(&6) && !closed.contains(&7));
        assert_eq!(open.intersect(&closed), Some(Range::between(4, 6)));
        assert_eq!(closed.intersect(&Range::exactly(7)), None);
        assert!(Range::exactly(7).is_exact() && !open.is_exact());
    }
}
