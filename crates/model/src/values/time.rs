//! Times: instants, time limits and lengths of time, in Slurm's and dstack's words.
//!
//! Points in time that a person names (`now+1hour`, `teatime`) are in [`crate::time_spec`].

use crate::grammar::GrammarError;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

const SECS_PER_MINUTE: u64 = 60;
const SECS_PER_HOUR: u64 = 3_600;
const SECS_PER_DAY: u64 = 86_400;

/// An instant: milliseconds since the epoch, UTC.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Whole seconds since the epoch, as Slurm counts.
    pub const fn secs(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to here; nothing if `earlier` is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or(0))
    }
}

/// A length in the unit of [`Timestamp`]; what does not fit is the longest that does.
fn whole_millis(length: Duration) -> i64 {
    i64::try_from(length.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, length: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(whole_millis(length)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, length: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(whole_millis(length)))
    }
}

/// How long a job may run. Any number of minutes is less than no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TimeLimit {
    Minutes(u32),
    Unlimited,
}

impl TimeLimit {
    pub fn minutes(self) -> Option<u32> {
        match self {
            TimeLimit::Minutes(minutes) => Some(minutes),
            TimeLimit::Unlimited => None,
        }
    }

    pub fn secs(self) -> Option<u64> {
        self.minutes().map(|m| u64::from(m) * SECS_PER_MINUTE)
    }

    pub fn duration(self) -> Option<Duration> {
        self.secs().map(Duration::from_secs)
    }

    /// `--time=0` asks for no limit, while a partition's zero is a zero.
    pub fn zero_is_unlimited(self) -> Self {
        match self {
            TimeLimit::Minutes(0) => TimeLimit::Unlimited,
            limit => limit,
        }
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_limit(*self))
    }
}

const LIMIT_EXPECTED: &str = "minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, \
     days-hours:minutes:seconds or UNLIMITED";

/// Slurm's grammar of a time limit; seconds round up to a whole minute.
pub fn parse_time_limit(text: &str) -> Result<TimeLimit, GrammarError> {
    let text = text.trim();
    if ["infinite", "unlimited", "-1"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(TimeLimit::Unlimited);
    }
    let refused = || GrammarError::new("time limit", text, LIMIT_EXPECTED);
    let secs = parse_limit_secs(text).ok_or_else(refused)?;
    let minutes = u32::try_from(secs.div_ceil(SECS_PER_MINUTE)).map_err(|_| refused())?;
    Ok(TimeLimit::Minutes(minutes))
}

fn parse_limit_secs(text: &str) -> Option<u64> {
    let (days, clock) = match text.split_once('-') {
        Some((days, clock)) => (Some(whole_number(days)?), clock),
        None => (None, text),
    };
    let fields: Vec<u64> = clock.split(':').map(whole_number).collect::<Option<_>>()?;
    // With days before it the first field is hours; without, one or two fields begin with minutes.
    let (hours, minutes, secs) = match (days.is_some(), fields.as_slice()) {
        (_, &[h, m, s]) => (h, m, s),
        (true, &[h, m]) => (h, m, 0),
        (true, &[h]) => (h, 0, 0),
        (false, &[m, s]) => (0, m, s),
        (false, &[m]) => (0, m, 0),
        _ => return None,
    };
    let parts = [
        (days.unwrap_or(0), SECS_PER_DAY),
        (hours, SECS_PER_HOUR),
        (minutes, SECS_PER_MINUTE),
        (secs, 1),
    ];
    parts.iter().try_fold(0u64, |total, (count, unit)| total.checked_add(count.checked_mul(*unit)?))
}

/// Digits only: no sign, no spaces.
pub(crate) fn whole_number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// A limit as squeue and sinfo print it: `10:00`, `1:00:00`, `7-00:00:00`, `UNLIMITED`.
pub fn format_limit(limit: TimeLimit) -> String {
    limit.secs().map_or_else(|| "UNLIMITED".to_owned(), format_elapsed)
}

/// A limit as scontrol and sacct print it: `00:10:00`, `7-00:00:00`, `UNLIMITED`.
pub fn format_limit_full(limit: TimeLimit) -> String {
    limit.secs().map_or_else(|| "UNLIMITED".to_owned(), format_elapsed_full)
}

fn split_clock(secs: u64) -> (u64, u64, u64, u64) {
    (secs / SECS_PER_DAY, secs / SECS_PER_HOUR % 24, secs / SECS_PER_MINUTE % 60, secs % 60)
}

/// squeue's TIME: `0:03`, `1:02:03`, `1-00:00:00`.
pub fn format_elapsed(secs: u64) -> String {
    let mut text = String::new();
    push_elapsed(&mut text, secs);
    text
}

/// Appends the text of [`format_elapsed`] to `out`: a listing has tens of thousands of these, without an allocation each.
pub fn push_elapsed(out: &mut String, secs: u64) {
    let (days, hours, minutes, seconds) = split_clock(secs);
    let mut number = itoa::Buffer::new();
    match (days, hours) {
        (0, 0) => out.push_str(number.format(minutes)),
        (0, _) => {
            out.push_str(number.format(hours));
            push_two(out, ':', minutes);
        }
        (_, _) => {
            out.push_str(number.format(days));
            push_two(out, '-', hours);
            push_two(out, ':', minutes);
        }
    }
    push_two(out, ':', seconds);
}

/// Appends `mark` and the last two digits of `number`: `:07`.
fn push_two(out: &mut String, mark: char, number: u64) {
    let digit = |number: u64| char::from(b'0' + (number % 10) as u8);
    out.extend([mark, digit(number / 10), digit(number)]);
}

/// sacct's Elapsed: `00:00:03`, `1-00:00:00`.
pub fn format_elapsed_full(secs: u64) -> String {
    match split_clock(secs) {
        (0, h, m, s) => format!("{h:02}:{m:02}:{s:02}"),
        (d, h, m, s) => format!("{d}-{h:02}:{m:02}:{s:02}"),
    }
}

/// `2026-11-15T00:46:19` in the given zone; `Unknown` for what no calendar holds.
pub fn format_iso(ts: Timestamp, tz: &TimeZone) -> String {
    match jiff::Timestamp::from_second(ts.secs()) {
        Ok(instant) => tz.to_datetime(instant).strftime("%Y-%m-%dT%H:%M:%S").to_string(),
        Err(_) => "Unknown".to_owned(),
    }
}

const DURATION_UNITS: [(char, u64); 5] = [
    ('s', 1),
    ('m', SECS_PER_MINUTE),
    ('h', SECS_PER_HOUR),
    ('d', SECS_PER_DAY),
    ('w', 7 * SECS_PER_DAY),
];

/// dstack's duration: `30s`, `5m`, `2h`, `1d`, `1w`, or whole seconds; `off` is none.
pub fn parse_duration(text: &str) -> Result<Option<Duration>, GrammarError> {
    let text = text.trim();
    if text == "off" {
        return Ok(None);
    }
    let (digits, unit_secs) = DURATION_UNITS
        .iter()
        .find_map(|(letter, secs)| Some((text.strip_suffix(*letter)?.trim_end(), *secs)))
        .unwrap_or((text, 1));
    whole_number(digits)
        .and_then(|count| count.checked_mul(unit_secs))
        .map(|secs| Some(Duration::from_secs(secs)))
        .ok_or_else(|| {
            GrammarError::new(
                "duration",
                text,
                "a whole number with s, m, h, d or w, as in 2h, or off",
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_and_printed_as_slurm_does() {
        let table = [
            ("10", 10, "10:00", "00:10:00"),
            ("0", 0, "0:00", "00:00:00"),
            ("20:00", 20, "20:00", "00:20:00"),
            ("0:01", 1, "1:00", "00:01:00"),
            ("1:00:00", 60, "1:00:00", "01:00:00"),
            ("00:30:01", 31, "31:00", "00:31:00"),
            ("1-0", 1_440, "1-00:00:00", "1-00:00:00"),
            ("7-00:00:00", 10_080, "7-00:00:00", "7-00:00:00"),
            ("1-2:3", 1_563, "1-02:03:00", "1-02:03:00"),
            ("30-0", 43_200, "30-00:00:00", "30-00:00:00"),
            ("90:90", 92, "1:32:00", "01:32:00"),
        ];
        for (text, minutes, short, full) in table {
            let limit = parse_time_limit(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(limit, TimeLimit::Minutes(minutes), "{text}");
            assert_eq!(
                (format_limit(limit).as_str(), format_limit_full(limit).as_str()),
                (short, full)
            );
        }
        for text in ["infinite", "UNLIMITED", "-1", "Infinite"] {
            assert_eq!(parse_time_limit(text), Ok(TimeLimit::Unlimited), "{text}");
        }
        assert_eq!(format_limit(TimeLimit::Unlimited), "UNLIMITED");
        assert!(TimeLimit::Minutes(u32::MAX) < TimeLimit::Unlimited);
        assert_eq!(TimeLimit::Minutes(0).zero_is_unlimited(), TimeLimit::Unlimited);
    }

    #[test]
    fn broken_limits_are_refused() {
        for text in [
            "",
            "abc",
            "1:2:3:4",
            "1-",
            "-5",
            "1-2-3",
            "1h",
            "1.5",
            "1:",
            "+1",
            "99999999999",
            "18446744073709551615-0",
        ] {
            let error = parse_time_limit(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("invalid time limit \"{text}\"")), "{error}");
        }
    }

    #[test]
    fn elapsed_time_is_appended_with_all_digits_of_its_days() {
        let mut text = String::from("#");
        push_elapsed(&mut text, u64::MAX);
        assert_eq!(text, format!("#{}-07:00:15", u64::MAX / 86_400));
        let mut text = String::new();
        push_two(&mut text, ':', 7);
        push_two(&mut text, '-', 59);
        assert_eq!(text, ":07-59");
    }

    #[test]
    fn elapsed_times_are_printed_as_squeue_and_sacct_do() {
        let table = [
            (0, "0:00", "00:00:00"),
            (3, "0:03", "00:00:03"),
            (3_723, "1:02:03", "01:02:03"),
            (86_400, "1-00:00:00", "1-00:00:00"),
        ];
        for (secs, short, full) in table {
            assert_eq!(
                (format_elapsed(secs).as_str(), format_elapsed_full(secs).as_str()),
                (short, full)
            );
        }
    }

    #[test]
    fn instants_are_printed_in_the_zone_asked_for() {
        let ts = Timestamp::from_secs(1_794_703_579);
        assert_eq!(format_iso(ts, &TimeZone::UTC), "2026-11-15T00:46:19");
        let east = TimeZone::fixed(jiff::tz::offset(2));
        assert_eq!(format_iso(ts, &east), "2026-11-15T02:46:19");
        assert_eq!(format_iso(Timestamp(i64::MAX), &TimeZone::UTC), "Unknown");
    }

    #[test]
    fn instants_add_and_subtract_without_overflow() {
        let ts = Timestamp(1_500);
        assert_eq!(ts + Duration::from_millis(600), Timestamp(2_100));
        assert_eq!(ts - Duration::from_secs(2), Timestamp(-500));
        assert_eq!(Timestamp(-500).secs(), -1);
        assert_eq!(ts + Duration::MAX, Timestamp(i64::MAX));
        assert_eq!(ts.since(Timestamp(500)), Duration::from_secs(1));
        assert_eq!(Timestamp(500).since(ts), Duration::ZERO);
    }

    #[test]
    fn durations_are_read_as_dstack_does() {
        let table = [
            ("10s", 10),
            ("5m", 300),
            ("2h", 7_200),
            ("1d", 86_400),
            ("1w", 604_800),
            ("1 h", 3_600),
            ("3600", 3_600),
            ("0", 0),
        ];
        for (text, secs) in table {
            assert_eq!(parse_duration(text), Ok(Some(Duration::from_secs(secs))), "{text}");
        }
        assert_eq!(parse_duration("off"), Ok(None));
        for text in ["1h30m", "1y", "", "1.5h", "x", "-1", "5mm", "h", "99999999999999999999w"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
