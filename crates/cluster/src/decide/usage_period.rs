//! When a period of raw usage ends, and whether usage is reset then.

use crate::state::State;
use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use model::priority::{PriorityPolicy, UsageReset};
use model::time::Timestamp;

impl State {
    /// `None` while the period lasts; else whether usage is reset at its end.
    pub fn usage_period_due(&self, now: Timestamp) -> Option<bool> {
        let policy = &self.config.parameters.priority;
        let idle = self.active.is_empty() && self.charged_usage.associations.is_empty();
        let waits = policy.is_computed() && self.jobs.len() > self.ended.len();
        if idle && !waits {
            return None;
        }
        let last = self.charged_usage.as_of;
        let due = last.is_none_or(|last| now.since(last).as_secs() >= policy.calc_period_s.max(1));
        due.then(|| self.charged_usage.reset.is_some_and(|reset| resets(policy, reset, now)))
    }
}

/// Whether a boundary of the reset's calendar period lies between the two times.
fn resets(policy: &PriorityPolicy, last: Timestamp, now: Timestamp) -> bool {
    let Some((before, after)) = date(policy, last).zip(date(policy, now)) else { return false };
    let quarter = |date: Date| (date.year(), (date.month() - 1) / 3);
    // Weeks begin on Sunday.
    let week = |date: Date| {
        date.checked_sub(jiff::Span::new().days(date.weekday().to_sunday_zero_offset())).ok()
    };
    match policy.reset {
        UsageReset::None | UsageReset::Now => false,
        UsageReset::Daily => before != after,
        UsageReset::Weekly => week(before) != week(after),
        UsageReset::Monthly => before.first_of_month() != after.first_of_month(),
        UsageReset::Quarterly => quarter(before) != quarter(after),
        UsageReset::Yearly => before.year() != after.year(),
    }
}

fn date(policy: &PriorityPolicy, at: Timestamp) -> Option<Date> {
    let offset = Offset::from_seconds(policy.utc_offset_s).ok()?;
    let at = jiff::Timestamp::from_second(at.secs()).ok()?;
    Some(TimeZone::fixed(offset).to_datetime(at).date())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_reset_at_the_boundaries_of_the_calendar() {
        let day = 24 * 3600;
        // Thursday, the first of January 1970, and later.
        let at = |days: i64| Timestamp::from_secs(days * day + 60);
        let table = [
            (UsageReset::Daily, 0, 1, true),
            (UsageReset::Weekly, 0, 2, false),
            (UsageReset::Weekly, 2, 3, true),
            (UsageReset::Monthly, 0, 30, false),
            (UsageReset::Monthly, 30, 31, true),
            (UsageReset::Quarterly, 31, 89, false),
            (UsageReset::Quarterly, 89, 90, true),
            (UsageReset::Yearly, 90, 364, false),
            (UsageReset::Yearly, 364, 365, true),
            (UsageReset::None, 0, 365, false),
        ];
        for (reset, last, now, expected) in table {
            let policy = PriorityPolicy { reset, ..PriorityPolicy::default() };
            assert_eq!(resets(&policy, at(last), at(now)), expected, "{reset:?} {last} {now}");
        }
        // An hour east of Greenwich the day begins an hour earlier.
        let east = PriorityPolicy {
            reset: UsageReset::Daily,
            utc_offset_s: 3600,
            ..PriorityPolicy::default()
        };
        let eve = Timestamp::from_secs(day - 3700);
        assert!(resets(&east, eve, Timestamp::from_secs(day - 3500)));
    }
}
