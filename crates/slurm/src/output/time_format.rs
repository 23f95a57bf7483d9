//! `SLURM_TIME_FORMAT`: how the commands write times.

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use model::time::Timestamp;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TimeFormat<'a> {
    /// `2026-11-15T00:46:19`
    #[default]
    Standard,
    /// Short, by how far away the time is: `14:30:00`, `Tomorr 08:00`, `Fri 08:00`, `25 Apr 08:00`, `6 Jun 2012`.
    Relative,
    /// As `strftime` writes it: `%s` for seconds since the epoch.
    Strftime(&'a str),
}

impl<'a> TimeFormat<'a> {
    pub fn parse(text: &'a str) -> Self {
        match text {
            "" | "standard" => Self::Standard,
            "relative" => Self::Relative,
            format => Self::Strftime(format),
        }
    }

    /// `None` for the standard format, and for one that cannot be written.
    pub(super) fn write(self, time: Timestamp, now: Timestamp, tz: &TimeZone) -> Option<String> {
        let instant = |time: Timestamp| jiff::Timestamp::from_second(time.secs()).ok();
        match self {
            Self::Standard => None,
            Self::Relative => {
                Some(relative(tz.to_datetime(instant(time)?), tz.to_datetime(instant(now)?)))
            }
            Self::Strftime(format) => {
                strtime::format(format, &instant(time)?.to_zoned(tz.clone())).ok()
            }
        }
    }
}

fn relative(then: DateTime, now: DateTime) -> String {
    let days = (then.date() - now.date()).get_days();
    let format = match days {
        0 => "%H:%M:%S",
        _ if then.year() != now.year() => "%-d %b %Y",
        1 => "Tomorr %H:%M",
        -1 => "Ystday %H:%M",
        2..=6 => "%a %H:%M",
        _ => "%-d %b %H:%M",
    };
    then.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Moment;

    /// Sunday 2026-11-15, 14:30:00.
    const NOW: Timestamp = Timestamp::from_secs(1_794_753_000);

    #[test]
    fn times_are_written_in_the_format_that_was_asked_for() {
        let day = 86_400;
        let written = |format: &str, after: i64| {
            let utc = TimeZone::UTC;
            let moment = Moment::at(NOW, &utc).in_format(TimeFormat::parse(format));
            moment.iso(Timestamp::from_secs(NOW.secs() + after))
        };
        let table = [
            ("", 0, "2026-11-15T14:30:00"),
            ("standard", 0, "2026-11-15T14:30:00"),
            ("%s", 1, "1794753001"),
            ("%a %T", 0, "Sun 14:30:00"),
            ("relative", 60, "14:31:00"),
            ("relative", day, "Tomorr 14:30"),
            ("relative", -day, "Ystday 14:30"),
            ("relative", 3 * day, "Wed 14:30"),
            ("relative", -3 * day, "12 Nov 14:30"),
            ("relative", 60 * day, "14 Jan 2027"),
        ];
        for (format, after, text) in table {
            assert_eq!(written(format, after), text, "{format} {after}");
        }
        assert_eq!(written("%!", 0), "2026-11-15T14:30:00", "it cannot be written");
    }
}
