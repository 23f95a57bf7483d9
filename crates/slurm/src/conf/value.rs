//! A value, parsed by the kind its key has in the table.

use std::fmt;

use model::cpuset::CpuSet;
use model::hostlist;
use model::time::{TimeLimit, parse_time_limit};
use serde::{Deserialize, Serialize};

use super::keys::Kind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    Words(Vec<String>),
    Flag(bool),
    Number(u64),
    /// `UNLIMITED` or `INFINITE` where a number may stand.
    Unlimited,
    Time(TimeLimit),
    Hosts(Vec<String>),
    Cpus(CpuSet),
    Percent(Percent),
}

/// A percentage to a thousandth of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Percent {
    pub thousandths: u32,
}

impl Percent {
    pub const ZERO: Percent = Percent { thousandths: 0 };
    pub const WHOLE: Percent = Percent { thousandths: 100_000 };

    /// This share of an amount, rounded down.
    pub fn of(self, amount: u64) -> u64 {
        let share = u128::from(amount) * u128::from(self.thousandths) / 100_000;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn parse(text: &str) -> Option<Percent> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let whole = digits(whole)?.checked_mul(1000)?;
        let fraction: String = fraction.chars().chain("000".chars()).take(3).collect();
        let thousandths = u32::try_from(whole.checked_add(digits(&fraction)?)?).ok()?;
        Some(Percent { thousandths })
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}%", self.thousandths / 1000, self.thousandths % 1000 / 100)
    }
}

/// A list of words, some with a value: `bf_continue,bf_interval=60`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters(Vec<String>);

impl Parameters {
    pub fn new(words: Vec<String>) -> Parameters {
        Parameters(words)
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word.eq_ignore_ascii_case(name))
    }

    /// The value of `name=value`; the last counts.
    pub fn get(&self, name: &str) -> Option<&str> {
        let pairs = self.0.iter().rev().filter_map(|word| word.split_once('='));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Parses `text`, or says what would have been right.
pub fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    match kind {
        Kind::Text => Ok(Value::Text(text.to_owned())),
        Kind::Words => Ok(Value::Words(split_words(text))),
        Kind::YesNo => parse_flag(text).map(Value::Flag).ok_or_else(|| "expected YES or NO".into()),
        Kind::Number { max } => parse_number(text, max),
        Kind::Megabytes => parse_megabytes(text),
        Kind::Time => {
            parse_time_limit(text).map(Value::Time).map_err(|e| format!("expected {}", e.expected))
        }
        Kind::OneOf(words) => match one_of(words, text) {
            Some(word) => Ok(Value::Text(word.to_owned())),
            None => Err(format!("expected one of {}", words.join(", "))),
        },
        Kind::WordsOf(words) => split_words(text)
            .iter()
            .map(|word| one_of(words, word).map(str::to_owned).ok_or(word))
            .collect::<Result<Vec<String>, &String>>()
            .map(Value::Words)
            .map_err(|word| format!("{word:?} is none of {}", words.join(", "))),
        Kind::Hosts => {
            hostlist::expand(text).map(Value::Hosts).map_err(|e| format!("expected {}", e.expected))
        }
        Kind::Cpus => {
            text.parse().map(Value::Cpus).map_err(|_| "expected numbers such as 0-3,8".into())
        }
        Kind::Percent => {
            let expected = || "expected a percentage such as 100 or 97.5".into();
            Percent::parse(text).map(Value::Percent).ok_or_else(expected)
        }
    }
}

pub fn split_words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn one_of(words: &[&'static str], text: &str) -> Option<&'static str> {
    words.iter().copied().find(|word| word.eq_ignore_ascii_case(text))
}

fn parse_flag(text: &str) -> Option<bool> {
    const WORDS: [(&str, bool); 6] =
        [("yes", true), ("no", false), ("true", true), ("false", false), ("1", true), ("0", false)];
    WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)).map(|(_, flag)| *flag)
}

fn is_unlimited(text: &str) -> bool {
    ["UNLIMITED", "INFINITE"].iter().any(|word| word.eq_ignore_ascii_case(text))
}

/// Digits and nothing else: no sign, no spaces.
pub fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

fn parse_number(text: &str, max: u64) -> Result<Value, String> {
    if is_unlimited(text) {
        return Ok(Value::Unlimited);
    }
    let (number, shift) = match text.char_indices().last() {
        Some((at, letter)) => match "KMGTP".find(letter.to_ascii_uppercase()) {
            Some(power) => (&text[..at], 10 * (power as u32 + 1)),
            None => (text, 0),
        },
        None => (text, 0),
    };
    digits(number)
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| *n <= max)
        .map(Value::Number)
        .ok_or_else(|| format!("expected a whole number from 0 to {max}"))
}

fn parse_megabytes(text: &str) -> Result<Value, String> {
    if is_unlimited(text) {
        return Ok(Value::Unlimited);
    }
    if let Some(n) = digits(text).filter(|n| *n <= u64::MAX >> 20) {
        return Ok(Value::Number(n));
    }
    let meant = model::amount::Bytes::parse_slurm(text).map(|bytes| bytes.mib());
    Err(match meant {
        Ok(mib) if !text.starts_with('-') => {
            format!("expected a whole number of megabytes, without a suffix: {mib}")
        }
        _ => "expected a whole number of megabytes".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_takes_its_own_values() {
        const PETS: Kind = Kind::WordsOf(&["CAT", "dog"]);
        let table = [
            (Kind::Words, "a, b,,c", Value::Words(vec!["a".into(), "b".into(), "c".into()])),
            (Kind::YesNo, "Yes", Value::Flag(true)),
            (Kind::YesNo, "0", Value::Flag(false)),
            (Kind::Number { max: 9999 }, "300", Value::Number(300)),
            (Kind::Number { max: 9999 }, "2k", Value::Number(2048)),
            (Kind::Number { max: 9999 }, "infinite", Value::Unlimited),
            (Kind::Megabytes, "128000", Value::Number(128_000)),
            (Kind::Time, "7-0", Value::Time(TimeLimit::Minutes(7 * 1440))),
            (Kind::OneOf(&["CAT", "dog"]), "Dog", Value::Text("dog".into())),
            (PETS, "cat,DOG", Value::Words(vec!["CAT".into(), "dog".into()])),
            (Kind::Hosts, "n[1-2]", Value::Hosts(vec!["n1".into(), "n2".into()])),
            (Kind::Cpus, "0-1", Value::Cpus(CpuSet::first(2))),
            (Kind::Percent, "97.5", Value::Percent(Percent { thousandths: 97_500 })),
        ];
        for (kind, text, value) in table {
            assert_eq!(parse(kind, text), Ok(value), "{kind:?} {text}");
        }
    }

    #[test]
    fn a_refused_value_is_told_what_would_be_right() {
        let table = [
            (Kind::YesNo, "maybe", "expected YES or NO"),
            (Kind::Number { max: 65535 }, "70000", "expected a whole number from 0 to 65535"),
            (Kind::Number { max: 65535 }, "-3", "expected a whole number from 0 to 65535"),
            (Kind::Number { max: 65535 }, "", "expected a whole number from 0 to 65535"),
            (Kind::Megabytes, "128G", "whole number of megabytes, without a suffix: 131072"),
            (Kind::Megabytes, "lots", "expected a whole number of megabytes"),
            (Kind::Time, "1:2:3:4", "days-hours"),
            (Kind::OneOf(&["UP", "DOWN"]), "OPEN", "expected one of UP, DOWN"),
            (Kind::WordsOf(&["a", "b"]), "a,c", "\"c\" is none of a, b"),
            (Kind::Hosts, "n[1-", "expected"),
            (Kind::Cpus, "3-1", "expected numbers such as 0-3,8"),
            (Kind::Percent, "1.x", "expected a percentage"),
            (Kind::Percent, "99999999999", "expected a percentage"),
        ];
        for (kind, text, expected) in table {
            let said = parse(kind, text).expect_err(text);
            assert!(said.contains(expected), "{text}: {said}");
        }
    }

    #[test]
    fn a_percentage_of_an_amount_is_rounded_down() {
        assert_eq!(Percent { thousandths: 97_500 }.of(1000), 975);
        assert_eq!(Percent::WHOLE.of(u64::MAX), u64::MAX);
        assert_eq!(Percent { thousandths: 33_333 }.of(10), 3);
        assert_eq!(Percent { thousandths: 101_500 }.to_string(), "101.5%");
    }
}
