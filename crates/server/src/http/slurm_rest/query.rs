//! The query of a path: every key is known by its name, and lists have commas between their words.

use super::client::{Client, Refused};
use model::time::Timestamp;
use std::collections::BTreeMap;

pub type Query = axum::extract::Query<BTreeMap<String, String>>;

/// Refuses a key that a path does not have: what it should have narrowed would be answered with more than was asked for.
pub fn check(client: &Client, query: &Query, known: &[&str]) -> Result<(), Refused> {
    let Some(key) = query.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let expected = match known {
        [] => "none".to_owned(),
        known => format!("one of {}", known.join(", ")),
    };
    Err(client.bad(&format!("{key}: this parameter is not taken; expected {expected}")))
}

/// `alice,bob`; empty where the key is not there.
pub fn list(query: &Query, key: &str) -> Vec<String> {
    let words = query.get(key).map(String::as_str).unwrap_or_default();
    words.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Whether a key is there and is not denied: `true`, `1`, or without a value.
pub fn flag(query: &Query, key: &str) -> bool {
    query.get(key).is_some_and(|value| !["false", "0", "no"].contains(&value.as_str()))
}

/// A whole number.
pub fn number(client: &Client, query: &Query, key: &str) -> Result<Option<u32>, Refused> {
    let Some(value) = query.get(key) else { return Ok(None) };
    let bad = || client.bad(&format!("{key}: {value}: expected a number"));
    value.parse().map(Some).map_err(|_| bad())
}

/// Seconds since the epoch. Slurm's later clients write `uts` before them.
pub fn time(client: &Client, query: &Query, key: &str) -> Result<Option<Timestamp>, Refused> {
    let Some(value) = query.get(key) else { return Ok(None) };
    let seconds = value.strip_prefix("uts").unwrap_or(value).parse::<i64>().ok();
    let time = seconds.and_then(|seconds| seconds.checked_mul(1000)).map(Timestamp);
    let bad = || client.bad(&format!("{key}: {value}: expected seconds since the epoch"));
    time.map(Some).ok_or_else(bad)
}
