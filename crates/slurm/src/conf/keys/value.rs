//! The values of keys: one grammar for each `ValueKind` of the tables.

use std::fmt;

use model::amount::{Bytes, Unit};
use model::cpuset::CpuSet;
use model::hostlist;
use model::time::{self, TimeLimit};
use serde::{Deserialize, Serialize};

use crate::conf::keys::ValueKind;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text as written, or the word of a `OneOf` in the spelling of its list.
    Text(String),
    /// Words as written, or those of a `WordsOf` in the spelling of its list.
    Words(Vec<String>),
    Flag(bool),
    Number(u64),
    /// `UNLIMITED` or `INFINITE` in place of a number.
    Unlimited,
    Time(TimeLimit),
    Hosts(Vec<String>),
    Cpus(CpuSet),
    Percent(Percent),
}

/// The largest number of megabytes that is a number of bytes, too.
const MEGABYTES_MAX: u64 = u64::MAX >> 20;

/// Parses a value by its key's kind. The error says what is expected instead.
pub fn parse(kind: ValueKind, text: &str) -> Result<Value, String> {
    match kind {
        ValueKind::Text => Ok(Value::Text(text.to_owned())),
        ValueKind::Words => Ok(Value::Words(words(text).map(str::to_owned).collect())),
        ValueKind::YesNo => {
            flag(text).map(Value::Flag).ok_or_else(|| "expected YES or NO".to_owned())
        }
        ValueKind::Number { max } => or_unlimited(text, number(text).filter(|n| *n <= max))
            .ok_or_else(|| format!("expected a whole number from 0 to {max}")),
        ValueKind::Megabytes => or_unlimited(text, digits(text).filter(|n| *n <= MEGABYTES_MAX))
            .ok_or_else(|| megabytes_expected(text)),
        ValueKind::Time => time::parse_time_limit(text)
            .map(Value::Time)
            .map_err(|e| format!("expected {}", e.expected)),
        ValueKind::OneOf(list) => in_list(text, list)
            .map(Value::Text)
            .ok_or_else(|| format!("expected one of {}", list.join(", "))),
        ValueKind::WordsOf(list) => words(text)
            .map(|word| {
                in_list(word, list)
                    .ok_or_else(|| format!("{word:?} is none of {}", list.join(", ")))
            })
            .collect::<Result<_, _>>()
            .map(Value::Words),
        ValueKind::Hosts => {
            hostlist::expand(text).map(Value::Hosts).map_err(|e| format!("expected {}", e.expected))
        }
        ValueKind::Cpus => {
            text.parse().map(Value::Cpus).map_err(|_| "expected numbers such as 0-3,8".to_owned())
        }
        ValueKind::Percent => Percent::parse(text)
            .map(Value::Percent)
            .ok_or_else(|| "expected a percentage such as 100 or 97.5".to_owned()),
    }
}

/// The words between commas, without blanks around them. Empty ones are left out.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

/// A whole number of digits only: no sign, no blank.
pub fn digits(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The suffix letter at the end of a number, and the text before it.
pub fn split_unit(text: &str) -> Option<(&str, Unit)> {
    let (at, _) = text.char_indices().last()?;
    let (number, letter) = text.split_at(at);
    // The manual's suffixes end at P.
    let unit = Unit::from_suffix(letter).filter(|unit| *unit <= Unit::Pebi)?;
    Some((number, unit))
}

fn number(text: &str) -> Option<u64> {
    match split_unit(text) {
        Some((number, unit)) => digits(number)?.checked_mul(unit.bytes()),
        None => digits(text),
    }
}

fn or_unlimited(text: &str, number: Option<u64>) -> Option<Value> {
    let unlimited = ["UNLIMITED", "INFINITE"].iter().any(|word| word.eq_ignore_ascii_case(text));
    if unlimited { Some(Value::Unlimited) } else { number.map(Value::Number) }
}

fn megabytes_expected(text: &str) -> String {
    let expected = "expected a whole number of megabytes";
    match Bytes::parse_slurm(text) {
        Ok(amount) => format!("{expected}, without a suffix: {}", amount.mib()),
        Err(_) => expected.to_owned(),
    }
}

fn flag(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" | "true" | "1" => Some(true),
        "no" | "false" | "0" => Some(false),
        _ => None,
    }
}

fn in_list(text: &str, list: &[&str]) -> Option<String> {
    list.iter().find(|word| word.eq_ignore_ascii_case(text)).map(|word| (*word).to_owned())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Percent {
    /// Thousandths of a percent.
    pub thousandths: u32,
}

impl Percent {
    pub const ZERO: Percent = Percent { thousandths: 0 };
    pub const WHOLE: Percent = Percent { thousandths: 100_000 };

    /// This share of an amount, rounded down; the largest number where the share is larger.
    pub fn of(self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.thousandths);
        u64::try_from(product / u128::from(Percent::WHOLE.thousandths)).unwrap_or(u64::MAX)
    }

    fn parse(text: &str) -> Option<Percent> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let places = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
        let fraction = places.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        let thousandths = digits(whole)?.checked_mul(1000)?.checked_add(fraction)?;
        Some(Percent { thousandths: u32::try_from(thousandths).ok()? })
    }
}

impl fmt::Display for Percent {
    /// One decimal, cut off: `101.5%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}%", self.thousandths / 1000, self.thousandths % 1000 / 100)
    }
}

/// A list in which words and `name=value` settings are mixed, such as `SchedulerParameters`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters(Vec<String>);

impl Parameters {
    pub fn new(words: Vec<String>) -> Parameters {
        Parameters(words)
    }

    /// Whether the word is there, without a value.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word.eq_ignore_ascii_case(name))
    }

    /// The value of the last `name=value`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let settings = self.0.iter().rev().filter_map(|word| word.split_once('='));
        settings.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PETS: ValueKind = ValueKind::OneOf(&["CAT", "dog"]);
    const MANY_PETS: ValueKind = ValueKind::WordsOf(&["CAT", "dog"]);

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn each_kind_takes_its_own_values() {
        let small = ValueKind::Number { max: 9999 };
        let percent = |thousandths| Value::Percent(Percent { thousandths });
        let table = [
            (ValueKind::Text, "", Value::Text(String::new())),
            (ValueKind::Words, "a, b,,c", Value::Words(strings(&["a", "b", "c"]))),
            (ValueKind::YesNo, "Yes", Value::Flag(true)),
            (ValueKind::YesNo, "0", Value::Flag(false)),
            (small, "300", Value::Number(300)),
            (small, "2k", Value::Number(2048)),
            (small, "infinite", Value::Unlimited),
            (ValueKind::Number { max: u64::MAX }, "1P", Value::Number(1 << 50)),
            (ValueKind::Megabytes, "128000", Value::Number(128_000)),
            (ValueKind::Megabytes, "Unlimited", Value::Unlimited),
            (ValueKind::Time, "7-0", Value::Time(TimeLimit::Minutes(10_080))),
            (PETS, "Dog", Value::Text("dog".into())),
            (MANY_PETS, "cat,DOG", Value::Words(strings(&["CAT", "dog"]))),
            (MANY_PETS, "", Value::Words(Vec::new())),
            (ValueKind::Hosts, "n[1-2]", Value::Hosts(strings(&["n1", "n2"]))),
            (ValueKind::Cpus, "0-1", Value::Cpus(CpuSet::first(2))),
            (ValueKind::Percent, "97.5", percent(97_500)),
            (ValueKind::Percent, "100.", percent(100_000)),
            (ValueKind::Percent, "0.00199", percent(1)),
        ];
        for (kind, text, value) in table {
            assert_eq!(parse(kind, text), Ok(value), "{text} as {kind:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_expected() {
        let port = ValueKind::Number { max: 65_535 };
        let whole = "expected a whole number from 0 to 65535";
        let percentage = "expected a percentage such as 100 or 97.5";
        let table = [
            (ValueKind::YesNo, "maybe", "expected YES or NO"),
            (port, "70000", whole),
            (port, "-3", whole),
            (port, "+3", whole),
            (port, "", whole),
            (port, "K", whole),
            (port, "1E", whole),
            (port, "1µ", whole),
            (
                ValueKind::Megabytes,
                "128G",
                "expected a whole number of megabytes, without a suffix: 131072",
            ),
            (ValueKind::Megabytes, "lots", "expected a whole number of megabytes"),
            (ValueKind::Time, "1:2:3:4", "days-hours"),
            (ValueKind::OneOf(&["UP", "DOWN"]), "OPEN", "expected one of UP, DOWN"),
            (ValueKind::WordsOf(&["a", "b"]), "a,c", "\"c\" is none of a, b"),
            (ValueKind::Hosts, "n[1-", "expected "),
            (ValueKind::Cpus, "3-1", "expected numbers such as 0-3,8"),
            (ValueKind::Percent, "1.x", percentage),
            (ValueKind::Percent, ".5", percentage),
            (ValueKind::Percent, "99999999999", percentage),
        ];
        for (kind, text, expected) in table {
            let said = parse(kind, text).expect_err(text);
            assert!(said.contains(expected), "{text} as {kind:?}: {said}");
        }
    }

    #[test]
    fn a_percentage_of_an_amount_is_rounded_down() {
        let percent = |thousandths| Percent { thousandths };
        assert_eq!(percent(97_500).of(1000), 975);
        assert_eq!(Percent::WHOLE.of(u64::MAX), u64::MAX);
        assert_eq!(percent(200_000).of(u64::MAX), u64::MAX);
        assert_eq!(percent(33_333).of(10), 3);
        assert_eq!(Percent::ZERO.of(10), 0);
        assert_eq!(percent(101_500).to_string(), "101.5%");
        assert_eq!(percent(99_999).to_string(), "99.9%");
    }

    #[test]
    fn parameters_are_words_and_settings() {
        let parameters = Parameters::new(strings(&["bf_continue", "Max=1", "max=2=3", "x=4"]));
        assert!(parameters.has("BF_CONTINUE") && !parameters.has("max"));
        assert_eq!(parameters.get("MAX"), Some("2=3"));
        assert_eq!(parameters.get("bf_continue"), None);
        assert_eq!(parameters.iter().count(), 4);
    }
}
