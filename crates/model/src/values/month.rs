//! Calendar months (UTC), by which costs are kept.

use crate::price::{Cost, Price};
use crate::time::Timestamp;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// The calendar month (UTC) of a time: `2026-11`.
pub fn month_of(at: Timestamp) -> String {
    crate::time::format_iso(at, &jiff::tz::TimeZone::UTC).chars().take(7).collect()
}

/// When the calendar month (UTC) of a time began. Days of UTC are of one length.
pub fn month_start(at: Timestamp) -> Timestamp {
    let text = crate::time::format_iso(at, &jiff::tz::TimeZone::UTC);
    let day: i64 = text.get(8..10).and_then(|day| day.parse().ok()).unwrap_or(1);
    Timestamp::from_secs((at.secs().div_euclid(86_400) - (day - 1)) * 86_400)
}

/// What is paid for at this price from then until the end, by calendar months.
pub fn costs_by_month(price: Price, mut from: Timestamp, end: Timestamp) -> Vec<(String, Cost)> {
    let mut costs = Vec::new();
    while from < end {
        // The 32nd day of a month is one of the first of the next.
        let next = month_start(month_start(from) + DAY * 32);
        let until = next.min(end);
        costs.push((month_of(from), price.for_time(until.since(from))));
        from = until;
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_is_the_calendars() {
        assert_eq!(month_of(Timestamp::from_secs(0)), "1970-01");
        assert_eq!(month_of(Timestamp::from_secs(1_793_491_199)), "2026-10");
        assert_eq!(month_of(Timestamp::from_secs(1_793_491_200)), "2026-11");
        let start = |secs| month_start(Timestamp::from_secs(secs)).secs();
        assert_eq!(start(1_793_491_200), 1_793_491_200);
        assert_eq!(start(1_793_491_199), 1_793_491_200 - 31 * 86_400);
    }
}
