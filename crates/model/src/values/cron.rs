//! Cron expressions of five fields, in UTC: `0 3 * * 1-5`.

use crate::grammar::GrammarError;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

const WHAT: &str = "cron expression";

/// Each field with its least and its greatest value, and the names of its values.
const FIELDS: [(&str, u8, u8, &[&str]); 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("day of the month", 1, 31, &[]),
    (
        "month",
        1,
        12,
        &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    ),
    ("day of the week", 0, 7, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// The number of that of the days of the week.
const WEEKDAY: usize = 4;

/// A set of values for each field, a bit for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether each kind of day is limited: with both, either will do.
    limits_days: bool,
    limits_weekdays: bool,
}

/// A minute of the calendar, in UTC; `weekday` is 0 on Sunday.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Minute {
    pub minute: u8,
    pub hour: u8,
    pub day: u8,
    pub month: u8,
    pub weekday: u8,
}

impl Cron {
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = words[..] else {
            let expected = format!("5 fields, as in 0 3 * * 1-5, not {}", words.len());
            return Err(GrammarError::new(WHAT, text, expected));
        };
        let set = |field: usize, word: &str| {
            let (what, min, max, _) = FIELDS[field];
            field_set(field, word).ok_or_else(|| {
                GrammarError::new(
                    WHAT,
                    text,
                    format!("{what} from {min} to {max}, as in *, 5, 1-5 or */10"),
                )
            })
        };
        let weekdays = set(4, weekday)?;
        Ok(Self {
            minutes: set(0, minute)?,
            hours: set(1, hour)?,
            days: set(2, day)?,
            months: set(3, month)?,
            // Sunday is 0 and 7.
            weekdays: weekdays | (weekdays >> 7),
            limits_days: !day.starts_with('*'),
            limits_weekdays: !weekday.starts_with('*'),
        })
    }

    pub fn matches(&self, at: Minute) -> bool {
        self.matches_day(at) && self.matches_time(at)
    }

    fn matches_day(&self, at: Minute) -> bool {
        let (day, weekday) = (has(self.days, at.day), has(self.weekdays, at.weekday));
        let on_day = match (self.limits_days, self.limits_weekdays) {
            (true, true) => day || weekday,
            _ => day && weekday,
        };
        has(self.months, at.month) && on_day
    }

    fn matches_time(&self, at: Minute) -> bool {
        has(self.minutes, at.minute) && has(self.hours, at.hour)
    }
}

fn has(set: u64, value: u8) -> bool {
    set & (1 << value) != 0
}

impl Cron {
    /// The first minute after `at` that matches; `None` where none does, as on 30 February.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let first = at.secs().div_euclid(60) + 1;
        let (mut day, mut from) = (first.div_euclid(DAY_MINUTES), first.rem_euclid(DAY_MINUTES));
        for _ in 0..DAYS_MAX {
            let date = EPOCH.checked_add(jiff::Span::new().try_days(day).ok()?).ok()?;
            let at = |minute: i64| Minute {
                minute: (minute % 60) as u8,
                hour: (minute / 60) as u8,
                day: date.day() as u8,
                month: date.month() as u8,
                weekday: date.weekday().to_sunday_zero_offset() as u8,
            };
            let mut minutes = from..DAY_MINUTES;
            if self.matches_day(at(0))
                && let Some(minute) = minutes.find(|minute| self.matches_time(at(*minute)))
            {
                return Some(Timestamp::from_secs((day * DAY_MINUTES + minute) * 60));
            }
            (day, from) = (day + 1, 0);
        }
        None
    }
}

/// Expressions of one schedule.
const EXPRESSIONS_MAX: usize = 16;

/// When a run is started, again and again. Read only as what [`Schedule::parse`] takes: the server's writer asks it for
/// times, whoever sent it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedSchedule")]
pub struct Schedule {
    /// Good expressions; the run is started when any of them matches.
    cron: Vec<String>,
}

impl Schedule {
    pub fn parse(cron: Vec<String>) -> Result<Self, GrammarError> {
        if cron.is_empty() || cron.len() > EXPRESSIONS_MAX {
            let (found, expected) = (cron.len().to_string(), format!("1 to {EXPRESSIONS_MAX}"));
            return Err(GrammarError::new("number of cron expressions", &found, expected));
        }
        cron.iter().try_for_each(|text| Cron::parse(text).map(drop))?;
        Ok(Self { cron })
    }

    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let parsed = self.cron.iter().filter_map(|text| Cron::parse(text).ok());
        parsed.filter_map(|cron| cron.next_after(at)).min()
    }

    /// The bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        self.cron.iter().map(String::len).sum()
    }
}

#[derive(Deserialize)]
struct UncheckedSchedule {
    cron: Vec<String>,
}

impl TryFrom<UncheckedSchedule> for Schedule {
    type Error = GrammarError;

    fn try_from(unchecked: UncheckedSchedule) -> Result<Self, GrammarError> {
        Self::parse(unchecked.cron)
    }
}

const DAY_MINUTES: i64 = 24 * 60;

/// 29 February comes once in eight years at the latest.
const DAYS_MAX: u32 = 366 * 9;

const EPOCH: jiff::civil::Date = jiff::civil::date(1970, 1, 1);

/// The values of one field: a list of `*`, `5`, `1-5`, each with an optional `/step`.
fn field_set(field: usize, word: &str) -> Option<u64> {
    let (_, min, max, names) = FIELDS[field];
    let number = |text: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named {
            Some(at) => u8::try_from(at).ok()? + min,
            None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok()?,
            None => return None,
        };
        (min..=max).contains(&value).then_some(value)
    };
    let mut set = 0;
    for part in word.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u8>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (first, last) = match (range, range.split_once('-')) {
            ("*", _) => (min, max),
            (_, Some((first, last))) => match (number(first)?, number(last)?) {
                // Sunday ends a week that Monday begins.
                (first, 0) if field == WEEKDAY && last.eq_ignore_ascii_case("sun") => {
                    (first, if first > 0 { 7 } else { 0 })
                }
                ends => ends,
            },
            // `5/10` goes on to the end.
            (one, None) => (number(one)?, if step.is_some() { max } else { number(one)? }),
        };
        if first > last {
            return None;
        }
        for value in (first..=last).step_by(usize::from(step.unwrap_or(1))) {
            set |= 1 << value;
        }
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_their_minutes() {
        // 15 November 2026 is a Sunday.
        let at = |hour, minute| Minute { minute, hour, day: 15, month: 11, weekday: 0 };
        let cases = [
            ("0 3 * * *", at(3, 0), true),
            ("0 3 * * *", at(3, 1), false),
            ("*/15 * * * *", at(9, 45), true),
            ("*/15 * * * *", at(9, 50), false),
            ("0 4 * * 1-5", at(4, 0), false),
            ("0 4 * * sun", at(4, 0), true),
            ("0 4 * * 7", at(4, 0), true),
            ("0 4 * * sat-sun", at(4, 0), true),
            ("0 4 * * mon-sat", at(4, 0), false),
            ("0 4 15 * 1", at(4, 0), true),
            ("0 4 14 * 1", at(4, 0), false),
            ("0 4 * nov,dec *", at(4, 0), true),
            ("10-20/5 4 * * *", at(4, 15), true),
        ];
        for (text, at, expected) in cases {
            assert_eq!(Cron::parse(text).expect(text).matches(at), expected, "{text} {at:?}");
        }
    }

    #[test]
    fn next_minute_is_found_over_days_months_and_leap_years() {
        let at = |text: &str| {
            let time: jiff::Timestamp = text.parse().expect(text);
            Timestamp::from_secs(time.as_second())
        };
        let cases = [
            ("0 3 * * *", "2026-11-15T01:02:19Z", Some("2026-11-15T03:00:00Z")),
            ("0 3 * * *", "2026-11-15T03:00:00Z", Some("2026-11-16T03:00:00Z")),
            ("*/15 * * * *", "2026-12-31T23:50:00Z", Some("2027-01-01T00:00:00Z")),
            ("30 4 1 * *", "2026-11-15T00:00:00Z", Some("2026-12-01T04:30:00Z")),
            ("0 0 * * mon", "2026-11-15T12:00:00Z", Some("2026-11-16T00:00:00Z")),
            ("0 0 29 2 *", "2026-11-15T00:00:00Z", Some("2028-02-29T00:00:00Z")),
            ("0 0 30 2 *", "2026-11-15T00:00:00Z", None),
        ];
        for (text, from, next) in cases {
            let cron = Cron::parse(text).expect(text);
            assert_eq!(cron.next_after(at(from)), next.map(at), "{text} after {from}");
        }
        let read = |cron: serde_json::Value| {
            serde_json::from_value::<Schedule>(serde_json::json!({ "cron": cron })).is_ok()
        };
        assert!(read(serde_json::json!(["0 3 * * *"])));
        for bad in [serde_json::json!([]), serde_json::json!(["bad"]), vec!["* * * * *"; 17].into()]
        {
            assert!(!read(bad.clone()), "{bad}");
        }
        let both = ["0 3 * * *", "0 2 * * *"].map(String::from).to_vec();
        let both = Schedule::parse(both).expect("a schedule");
        assert_eq!(both.next_after(at("2026-11-15T01:00:00Z")), Some(at("2026-11-15T02:00:00Z")));
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        let cases = [
            "bad",
            "",
            "* * * * * *",
            "@daily",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "5-1 * * * *",
            "*/0 * * * *",
            "a * * * *",
            "1,, * * * *",
        ];
        for text in cases {
            assert!(Cron::parse(text).is_err(), "{text}");
        }
    }
}
