//! Cron expressions of five fields, in UTC: `0 3 * * 1-5`.

use model::grammar::GrammarError;

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
        let has = |set: u64, value: u8| set & (1 << value) != 0;
        let (day, weekday) = (has(self.days, at.day), has(self.weekdays, at.weekday));
        let on_day = match (self.limits_days, self.limits_weekdays) {
            (true, true) => day || weekday,
            _ => day && weekday,
        };
        has(self.minutes, at.minute)
            && has(self.hours, at.hour)
            && has(self.months, at.month)
            && on_day
    }
}

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
            (_, Some((first, last))) => (number(first)?, number(last)?),
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
