//! Points in time as people name them: `now+1hour`, `16:30`, `teatime tomorrow`, `11/15/26`, `2026-11-15T08:00`.
//!
//! The forms of `--begin`, `--deadline` and of sacct's `-S` and `-E`.

use crate::grammar::GrammarError;
use crate::time::{Timestamp, whole_number};
use jiff::Span;
use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

const EXPECTED: &str = "now[+count[unit]], HH:MM[:SS] [AM|PM], MMDDYY, MM/DD/YY, YYYY-MM-DD[THH:MM[:SS]], \
     midnight, noon, fika, teatime, today, tomorrow or uts=seconds";

/// Words for a time of day, and its hour.
const HOURS: [(&str, i8); 5] =
    [("midnight", 0), ("elevenses", 11), ("noon", 12), ("fika", 15), ("teatime", 16)];

/// Units of `now+N`, in seconds. Abbreviations and plurals are accepted.
const UNITS: [(&str, i64); 5] =
    [("seconds", 1), ("minutes", 60), ("hours", 3_600), ("days", 86_400), ("weeks", 604_800)];

/// The side of now on which a day or a year that was left out is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Future,
    Past,
}

/// `text` as a point in time, a bare time of day being the next one to come (`--begin`, `--deadline`).
pub fn parse_time_spec(
    text: &str,
    now: Timestamp,
    tz: &TimeZone,
) -> Result<Timestamp, GrammarError> {
    parse(text, now, tz, Side::Future)
}

/// As [`parse_time_spec`], but a bare time of day is today's and a date without a year is the last one (sacct's `-S`).
pub fn parse_past_time_spec(
    text: &str,
    now: Timestamp,
    tz: &TimeZone,
) -> Result<Timestamp, GrammarError> {
    parse(text, now, tz, Side::Past)
}

/// The first moment of the day before, with which the periods of `sreport` and `sacctmgr show event` begin.
pub fn start_of_yesterday(now: Timestamp, tz: &TimeZone) -> Option<Timestamp> {
    let here = tz.to_datetime(jiff::Timestamp::from_second(now.secs()).ok()?);
    let midnight = here.date().yesterday().ok()?.to_datetime(Time::midnight());
    let instant = tz.to_ambiguous_timestamp(midnight).compatible().ok()?;
    Some(Timestamp::from_secs(instant.as_second()))
}

fn parse(text: &str, now: Timestamp, tz: &TimeZone, side: Side) -> Result<Timestamp, GrammarError> {
    let lower = text.trim().to_ascii_lowercase();
    relative(&lower, now)
        .or_else(|| epoch(&lower))
        .or_else(|| calendar(&lower, now, tz, side))
        .ok_or_else(|| GrammarError::new("time specification", text, EXPECTED))
}

/// `now`, `now+2`, `now + 2 hours`, `now-1day`.
fn relative(text: &str, now: Timestamp) -> Option<Timestamp> {
    let rest = text.strip_prefix("now")?.trim_start();
    if rest.is_empty() {
        return Some(now);
    }
    let (sign, rest) = match rest.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let rest = rest.trim_start();
    let digits_len = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, word) = rest.split_at(digits_len);
    let count = i64::try_from(whole_number(digits)?).ok()?;
    let unit_secs = match word.trim() {
        "" => 1,
        word => UNITS.iter().find(|(unit, _)| unit.starts_with(word))?.1,
    };
    let millis = count.checked_mul(unit_secs)?.checked_mul(1_000)?;
    now.0.checked_add(sign * millis).map(Timestamp)
}

fn epoch(text: &str) -> Option<Timestamp> {
    let secs = whole_number(text.strip_prefix("uts=")?)?;
    i64::try_from(secs).ok().map(Timestamp::from_secs)
}

/// Date and time of day as far as the text has been read.
#[derive(Default)]
struct ParsedTime {
    date: Option<Date>,
    /// The date was given as month and day only.
    year_guessed: bool,
    time: Option<Time>,
}

impl ParsedTime {
    fn set_date(&mut self, date: Date) -> Option<()> {
        self.date.replace(date).is_none().then_some(())
    }

    fn set_time(&mut self, time: Time) -> Option<()> {
        self.time.replace(time).is_none().then_some(())
    }
}

fn calendar(text: &str, now: Timestamp, tz: &TimeZone, side: Side) -> Option<Timestamp> {
    let here = tz.to_datetime(jiff::Timestamp::from_second(now.secs()).ok()?);
    let mut parsed = ParsedTime::default();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        // `4:30 pm` is one time in two words.
        let half = words.next_if(|next| matches!(*next, "am" | "pm"));
        take_word(word, half, here.date(), &mut parsed)?;
    }
    resolve(&parsed, here, tz, side)
}

fn take_word(word: &str, half: Option<&str>, today: Date, parsed: &mut ParsedTime) -> Option<()> {
    if half.is_some() {
        return parsed.set_time(time_of_day(word, half)?);
    }
    if let Some((_, hour)) = HOURS.iter().find(|(name, _)| *name == word) {
        return parsed.set_time(Time::new(*hour, 0, 0, 0).ok()?);
    }
    match word {
        "today" => return parsed.set_date(today),
        "tomorrow" => return parsed.set_date(today.tomorrow().ok()?),
        _ => {}
    }
    if let Some((date, time)) = split_date_time(word) {
        take_date(date, today, parsed)?;
        return parsed.set_time(time_of_day(time, None)?);
    }
    if word.contains(':') || word.ends_with('m') {
        return parsed.set_time(time_of_day(word, None)?);
    }
    take_date(word, today, parsed)
}

/// The date and the time of `2026-11-15t08:00` or `11/15/26-08:00`.
fn split_date_time(word: &str) -> Option<(&str, &str)> {
    word.split_once('t').or_else(|| word.rsplit_once('-').filter(|(_, time)| time.contains(':')))
}

/// `16:30`, `16:30:05`, `4:30pm`, `4pm`.
fn time_of_day(word: &str, half: Option<&str>) -> Option<Time> {
    let (clock, half) = match (half, word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(half), None, None) => (word, Some(half)),
        (None, Some(clock), None) => (clock, Some("am")),
        (None, None, Some(clock)) => (clock, Some("pm")),
        (None, None, None) => (word, None),
        _ => return None,
    };
    let fields: Vec<i8> = clock.split(':').map(small_number).collect::<Option<_>>()?;
    let (hour, minute, second) = match (fields.as_slice(), half) {
        (&[h, m, s], _) => (h, m, s),
        (&[h, m], _) => (h, m, 0),
        (&[h], Some(_)) => (h, 0, 0),
        _ => return None,
    };
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some("pm") => hour % 12 + 12,
        Some(_) => hour % 12,
        None => hour,
    };
    Time::new(hour, minute, second, 0).ok()
}

fn small_number(digits: &str) -> Option<i8> {
    whole_number(digits).and_then(|n| i8::try_from(n).ok())
}

/// `2026-11-15`, `11/15/26`, `11/15/2026`, `11.15.26`, `11/15`, `111526`, `1115`.
fn take_date(word: &str, today: Date, parsed: &mut ParsedTime) -> Option<()> {
    let year_of = |digits: &str| match digits.len() {
        2 => whole_number(digits).and_then(|y| i16::try_from(2_000 + y).ok()),
        4 => whole_number(digits).and_then(|y| i16::try_from(y).ok()),
        _ => None,
    };
    let fields: Vec<&str> = if word.contains('-') {
        let mut fields: Vec<&str> = word.split('-').collect();
        if fields.len() != 3 || fields[0].len() != 4 {
            return None;
        }
        fields.rotate_left(1);
        fields
    } else if let Some(mark) = ['/', '.'].into_iter().find(|mark| word.contains(*mark)) {
        word.split(mark).collect()
    } else if whole_number(word).is_some() && matches!(word.len(), 4 | 6) {
        [word.get(0..2), word.get(2..4), word.get(4..6)].into_iter().flatten().collect()
    } else {
        return None;
    };
    let (month, day, year) = match fields.as_slice() {
        [month, day, year] => (month, day, Some(year_of(year)?)),
        [month, day] => (month, day, None),
        _ => return None,
    };
    parsed.year_guessed = year.is_none();
    let date = Date::new(year.unwrap_or(today.year()), small_number(month)?, small_number(day)?);
    parsed.set_date(date.ok()?)
}

/// Fills in a missing date or time and places it in the zone.
fn resolve(
    parsed: &ParsedTime,
    here: jiff::civil::DateTime,
    tz: &TimeZone,
    side: Side,
) -> Option<Timestamp> {
    let time = parsed.time.unwrap_or_default();
    let date = match (parsed.date, parsed.time) {
        (None, None) => return None,
        (None, Some(time)) if side == Side::Future && time <= here.time() => {
            here.date().tomorrow().ok()?
        }
        (None, Some(_)) => here.date(),
        (Some(date), _) if parsed.year_guessed => match side {
            Side::Future if date < here.date() => date.checked_add(Span::new().years(1)).ok()?,
            Side::Past if date > here.date() => date.checked_sub(Span::new().years(1)).ok()?,
            _ => date,
        },
        (Some(date), _) => date,
    };
    // A time that the change of the clocks skips is moved by the change, as `mktime` does.
    let instant = tz.to_ambiguous_timestamp(date.to_datetime(time)).compatible().ok()?;
    Some(Timestamp::from_secs(instant.as_second()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::format_iso;

    /// Sunday 2026-11-15, 14:30:00.
    const NOW: Timestamp = Timestamp::from_secs(1_794_753_000);

    fn read(
        parser: fn(&str, Timestamp, &TimeZone) -> Result<Timestamp, GrammarError>,
        text: &str,
    ) -> String {
        match parser(text, NOW, &TimeZone::UTC) {
            Ok(when) => format_iso(when, &TimeZone::UTC),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn yesterday_begins_at_its_midnight() {
        let start = start_of_yesterday(NOW, &TimeZone::UTC).expect("a day before");
        assert_eq!(format_iso(start, &TimeZone::UTC), "2026-11-14T00:00:00");
    }

    #[test]
    fn the_forms_of_begin() {
        let table = [
            ("now", "2026-11-15T14:30:00"),
            ("now+1hour", "2026-11-15T15:30:00"),
            ("now+1hours", "2026-11-15T15:30:00"),
            ("now + 90", "2026-11-15T14:31:30"),
            ("now-2days", "2026-11-13T14:30:00"),
            ("now+1week", "2026-11-22T14:30:00"),
            ("NOW+10minutes", "2026-11-15T14:40:00"),
            ("16:00", "2026-11-15T16:00:00"),
            ("14:30", "2026-11-16T14:30:00"),
            ("08:15:30", "2026-11-16T08:15:30"),
            ("4:30 PM", "2026-11-15T16:30:00"),
            ("4:30am", "2026-11-16T04:30:00"),
            ("12:05am", "2026-11-16T00:05:00"),
            ("12pm", "2026-11-16T12:00:00"),
            ("midnight", "2026-11-16T00:00:00"),
            ("noon", "2026-11-16T12:00:00"),
            ("teatime", "2026-11-15T16:00:00"),
            ("fika", "2026-11-15T15:00:00"),
            ("today", "2026-11-15T00:00:00"),
            ("tomorrow", "2026-11-16T00:00:00"),
            ("teatime tomorrow", "2026-11-16T16:00:00"),
            ("tomorrow 9:00 am", "2026-11-16T09:00:00"),
            ("121526", "2026-12-15T00:00:00"),
            ("12/15/26", "2026-12-15T00:00:00"),
            ("12/15/2027", "2027-12-15T00:00:00"),
            ("12/15/26-08:30", "2026-12-15T08:30:00"),
            ("01/02", "2027-01-02T00:00:00"),
            ("2026-12-15", "2026-12-15T00:00:00"),
            ("2026-12-15T08:30", "2026-12-15T08:30:00"),
            ("2026-12-15t08:30:05", "2026-12-15T08:30:05"),
            ("2026-12-15 08:30", "2026-12-15T08:30:00"),
            ("uts=1794703579", "2026-11-15T00:46:19"),
        ];
        for (text, when) in table {
            assert_eq!(read(parse_time_spec, text), when, "{text}");
        }
    }

    #[test]
    fn what_was_left_out_is_looked_for_in_the_past_by_sacct() {
        let table = [
            ("08:00", "2026-11-15T08:00:00"),
            ("midnight", "2026-11-15T00:00:00"),
            ("12/15", "2025-12-15T00:00:00"),
            ("01/02", "2026-01-02T00:00:00"),
            ("now-1hour", "2026-11-15T13:30:00"),
        ];
        for (text, when) in table {
            assert_eq!(read(parse_past_time_spec, text), when, "{text}");
        }
    }

    #[test]
    fn broken_times_are_refused() {
        let table = [
            "",
            "foo",
            "now+",
            "now+1fortnight",
            "now*2",
            "25:00",
            "10:61",
            "13:00 pm",
            "0:10 am",
            "2026-13-01",
            "2026-02-30",
            "26-01-01",
            "10:00 11:00",
            "today tomorrow",
            "noon pm",
            "123",
            "uts=x",
            "now+99999999999999999weeks",
            "T10:00",
            "pm",
        ];
        for text in table {
            let answer = read(parse_time_spec, text);
            assert!(
                answer.starts_with(&format!("invalid time specification \"{text}\"")),
                "{text}: {answer}"
            );
        }
    }

    #[test]
    fn a_time_of_day_is_a_time_of_the_zone() {
        let west = TimeZone::fixed(jiff::tz::offset(-5));
        let when =
            parse_time_spec("10:00", NOW, &west).map(|when| format_iso(when, &TimeZone::UTC));
        assert_eq!(when.as_deref(), Ok("2026-11-15T15:00:00"));
    }
}
