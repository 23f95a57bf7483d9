//! Options that several of dstack's verbs have in common.

use crate::command::verb::VerbError;
use clap::{Args, ValueEnum};
use model::time::{Timestamp, parse_duration};
use std::time::Duration;

// The form in which a verb prints.
#[derive(Args)]
pub struct OutputArgs {
    /// The form of what is printed
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Print JSON, as --format json does
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    #[default]
    Plain,
    Json,
}

impl OutputArgs {
    pub fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }

    /// Refuses `--watch` beside JSON: what reads JSON reads one object.
    pub fn check_watch(&self, watch: bool) -> Result<(), VerbError> {
        if watch && self.is_json() {
            return Err(VerbError::Message("--watch: not with JSON: leave out one of them".into()));
        }
        Ok(())
    }
}

/// The value of `--since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    Ago(Duration),
    At(Timestamp),
}

impl Since {
    /// The time that is meant; `now` is the server's.
    pub fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => {
                let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
                Timestamp::from_millis(now.millis().saturating_sub(ago_ms))
            }
        }
    }
}

/// Reads a duration, or a time as RFC 3339 writes it.
pub fn parse_since(text: &str) -> Result<Since, String> {
    const EXPECTED: &str =
        "expected a duration, as in 10s, 5m or 1d, or a time as in 2026-11-17T15:30:00Z";
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Ok(Since::At(Timestamp::from_millis(time.as_millisecond())));
    }
    let ago = parse_duration(text).ok().flatten();
    ago.map(Since::Ago).ok_or_else(|| EXPECTED.to_owned())
}

/// Refuses another replica than the one that a run has: those of a service are the tasks of an array, and named as such.
pub fn check_replica(replica: Option<usize>) -> Result<(), VerbError> {
    match replica {
        None | Some(0) => Ok(()),
        Some(other) => {
            let text = format!(
                "--replica {other}: expected 0; those of a service are the tasks of its array, as in 12_{other}"
            );
            Err(VerbError::Message(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_is_a_duration_or_a_time() {
        let now = Timestamp::from_millis(1_700_000_100_000);
        let start = |text: &str| parse_since(text).map(|since| since.time(now).millis());
        assert_eq!(start("10s"), Ok(1_700_000_090_000));
        assert_eq!(start("2023-11-14T22:13:20Z"), Ok(1_700_000_000_000));
        assert_eq!(start("2023-11-15T00:13:20+02:00"), Ok(1_700_000_000_000));
        for bad in ["", "yesterday", "2023-11-14", "-5m"] {
            assert!(parse_since(bad).is_err_and(|why| why.contains("expected")), "{bad}");
        }
    }

    #[test]
    fn run_has_the_replica_of_number_zero() {
        assert!(check_replica(None).is_ok() && check_replica(Some(0)).is_ok());
        let said = check_replica(Some(2)).expect_err("there is none").to_string();
        assert!(said.contains("--replica 2") && said.contains("expected 0"), "{said}");
    }
}
