//! The units in which `sreport -t` shows time.

use super::report::Report;
use model::price::Price;
use model::tres::TresKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeFormat {
    Seconds,
    #[default]
    Minutes,
    Hours,
    Percent,
    SecondsAndPercent,
    MinutesAndPercent,
    HoursAndPercent,
}

impl TimeFormat {
    /// `Second`, `Minute`, `Hour`, `Percent`, `SecPer`, `MinPer`, `HourPer`, in any case, or a beginning.
    pub fn parse(text: &str) -> Option<Self> {
        const WORDS: [(&str, TimeFormat); 10] = [
            ("secper", TimeFormat::SecondsAndPercent),
            ("minper", TimeFormat::MinutesAndPercent),
            ("hourper", TimeFormat::HoursAndPercent),
            ("seconds", TimeFormat::Seconds),
            ("minutes", TimeFormat::Minutes),
            ("hours", TimeFormat::Hours),
            ("percent", TimeFormat::Percent),
            ("secs", TimeFormat::Seconds),
            ("mins", TimeFormat::Minutes),
            ("hrs", TimeFormat::Hours),
        ];
        let text = text.to_ascii_lowercase();
        let exact = WORDS.iter().find(|(word, _)| *word == text);
        let begins = |(word, _): &&(&str, TimeFormat)| !text.is_empty() && word.starts_with(&text);
        // `s`, `m` and `h` are the plain units, which come after those with a percentage.
        exact.or_else(|| WORDS.iter().rev().find(begins)).map(|(_, format)| *format)
    }

    /// Whether a report needs what the whole cluster had.
    pub fn has_percent(self) -> bool {
        !matches!(self, Self::Seconds | Self::Minutes | Self::Hours)
    }

    fn unit(self) -> (f64, &'static str) {
        match self {
            Self::Seconds | Self::SecondsAndPercent => (1.0, "Seconds"),
            Self::Minutes | Self::MinutesAndPercent | Self::Percent => (60.0, "Minutes"),
            Self::Hours | Self::HoursAndPercent => (3600.0, "Hours"),
        }
    }

    /// Seconds of a resource, and what they are of `whole`.
    pub fn text(self, seconds: f64, whole: f64) -> String {
        self.with_percent(format!("{:.0}", seconds / self.unit().0), seconds, whole)
    }

    /// As [`Self::text`]; money is in dollars, whatever the unit of time.
    pub fn text_of(self, kind: &TresKind, seconds: f64, whole: f64) -> String {
        if *kind != TresKind::Cost {
            return self.text(seconds, whole);
        }
        let dollars = Price::from_units(1).dollars() * seconds / 3600.0;
        self.with_percent(format!("{dollars:.2}"), seconds, whole)
    }

    fn with_percent(self, amount: String, seconds: f64, whole: f64) -> String {
        let percent = || {
            let part = if whole > 0.0 { 100.0 * seconds / whole } else { 0.0 };
            format!("{part:.2}%")
        };
        match self {
            Self::Percent => percent(),
            _ if self.has_percent() => format!("{amount}({})", percent()),
            _ => amount,
        }
    }

    /// The line of the title about units.
    pub(super) fn note(self, report: Report, tres: &[TresKind], jobs: bool) -> String {
        if report.is_by_size() && jobs {
            return "Units are in number of jobs ran".to_owned();
        }
        let (_, unit) = self.unit();
        if tres == [TresKind::Cost] && !report.is_by_size() && !self.has_percent() {
            return "Usage reported in Dollars".to_owned();
        }
        let what = match tres {
            [] | [TresKind::Cpu] => "CPU",
            _ => "TRES",
        };
        match self {
            _ if report.is_by_size() => format!("Time reported in {unit}"),
            Self::Percent => "Usage reported in Percentage of Total".to_owned(),
            _ if self.has_percent() => {
                format!("Usage reported in {what} {unit}/Percentage of Total")
            }
            _ => format!("Usage reported in {what} {unit}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shown_in_each_unit() {
        let table = [
            ("Second", "7200"),
            ("m", "120"),
            ("Hour", "2"),
            ("Percent", "25.00%"),
            ("SecPer", "7200(25.00%)"),
            ("minper", "120(25.00%)"),
            ("HourPer", "2(25.00%)"),
        ];
        for (text, shown) in table {
            let format = TimeFormat::parse(text).expect(text);
            assert_eq!(format.text(7200.0, 28_800.0), shown, "{text}");
        }
        // Half an hour of 2.5 dollars an hour.
        let (paid, whole) = (25_000.0 * 1800.0, 25_000.0 * 7200.0);
        for (format, shown) in [(TimeFormat::Minutes, "1.25"), (TimeFormat::Percent, "25.00%")] {
            assert_eq!(format.text_of(&TresKind::Cost, paid, whole), shown);
        }
        assert_eq!(TimeFormat::Minutes.text_of(&TresKind::Cpu, 7200.0, 0.0), "120");
        assert_eq!(TimeFormat::parse("days"), None);
        assert_eq!(TimeFormat::Percent.text(0.0, 0.0), "0.00%");
    }
}
