//! Reservations: nodes, or parts of them, kept for somebody during a window of time.

use crate::partition::Access;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub name: String,
    /// Of the occurrence that comes next, or lasts, where it recurs.
    pub start: Timestamp,
    pub end: Timestamp,
    /// In the order of the cluster's nodes; none for licences alone.
    pub nodes: Vec<String>,
    /// `CoreCnt`: of each node only so many cores; empty: whole nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cores: BTreeMap<String, u32>,
    /// Of each node so many units of a GRES by name (`TRES=gres/gpu=4`), with `cores`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gres: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<(String, u32)>,
    /// Who may use it: any of the users, or any of the accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Access>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Access>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<ReservationFlag>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationFlag {
    Maint,
    /// Made over running jobs.
    IgnoreJobs,
    Hourly,
    Daily,
    Weekly,
    Weekday,
    Weekend,
    /// Its jobs may begin before it, end after it, and use nodes outside it.
    Flex,
    AnyNodes,
    /// May share its nodes with other reservations.
    Overlap,
    /// Jobs that may use it do, without asking for it.
    Magnetic,
    NoHoldJobsAfter,
    PurgeComp,
    StaticAlloc,
    PartNodes,
    SpecNodes,
    Replace,
    ReplaceDown,
    TimeFloat,
    UserDelete,
}

impl Reservation {
    pub fn has(&self, flag: ReservationFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether this user, charged to this account, may use it.
    pub fn admits(&self, user: &str, account: &str) -> bool {
        let denied = |access: &Option<Access>, name: &str| {
            matches!(access, Some(Access::Except(_)))
                && access.as_ref().is_some_and(|access| !access.admits(name))
        };
        if denied(&self.users, user) || denied(&self.accounts, account) {
            return false;
        }
        let named = |access: &Option<Access>, name: &str| {
            matches!(access, Some(Access::Only(_)))
                && access.as_ref().is_some_and(|access| access.admits(name))
        };
        let only = |access: &Option<Access>| matches!(access, Some(Access::Only(_)));
        match (only(&self.users), only(&self.accounts)) {
            (false, false) => true,
            _ => named(&self.users, user) || named(&self.accounts, account),
        }
    }

    /// How long after its start it comes again.
    pub fn period_ms(&self) -> Option<i64> {
        const HOUR_MS: i64 = 3_600_000;
        let every = [
            (ReservationFlag::Hourly, HOUR_MS),
            (ReservationFlag::Daily, 24 * HOUR_MS),
            (ReservationFlag::Weekday, 24 * HOUR_MS),
            (ReservationFlag::Weekend, 24 * HOUR_MS),
            (ReservationFlag::Weekly, 7 * 24 * HOUR_MS),
        ];
        every.into_iter().find(|(flag, _)| self.has(*flag)).map(|(_, period)| period)
    }

    /// Whether it takes place on the day of this moment.
    fn is_on(&self, time: i64) -> bool {
        const DAY_MS: i64 = 86_400_000;
        // The first day of the epoch was a Thursday; Monday is 0.
        let weekday = (time.div_euclid(DAY_MS) + 3).rem_euclid(7);
        match (self.has(ReservationFlag::Weekday), self.has(ReservationFlag::Weekend)) {
            (true, false) => weekday < 5,
            (false, true) => weekday >= 5,
            _ => true,
        }
    }

    /// Its windows that are not over at `now`, the first so many of them.
    pub fn windows(&self, now: Timestamp, most: usize) -> Vec<(Timestamp, Timestamp)> {
        let length = self.end.0.saturating_sub(self.start.0);
        let Some(period) = self.period_ms() else {
            let left = (self.end > now).then_some((self.start, self.end));
            return left.into_iter().collect();
        };
        let passed = now.0.saturating_sub(self.end.0).max(-1).div_euclid(period) + 1;
        let first = self.start.0 + passed.max(0) * period;
        // At most five days of seven are left out.
        (0..7 * most as i64)
            .map(|at| first + at * period)
            .filter(|start| self.is_on(*start))
            .take(most)
            .map(|start| (Timestamp(start), Timestamp(start + length)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daily(flag: ReservationFlag) -> Reservation {
        Reservation {
            name: "maint".to_string(),
            // A Thursday, from one o'clock to two.
            start: Timestamp::from_secs(3_600),
            end: Timestamp::from_secs(7_200),
            nodes: Vec::new(),
            cores: BTreeMap::new(),
            gres: BTreeMap::new(),
            licenses: Vec::new(),
            users: None,
            accounts: None,
            partition: None,
            flags: BTreeSet::from([flag]),
        }
    }

    fn starts_h(reservation: &Reservation, now_h: i64) -> Vec<i64> {
        let windows = reservation.windows(Timestamp::from_secs(now_h * 3_600), 3);
        windows.iter().map(|(start, _)| start.secs() / 3_600).collect()
    }

    #[test]
    fn windows_recur_and_what_is_over_is_left_out() {
        let reservation = daily(ReservationFlag::Daily);
        assert_eq!(starts_h(&reservation, 0), [1, 25, 49]);
        assert_eq!(starts_h(&reservation, 2), [25, 49, 73]);
        assert_eq!(starts_h(&reservation, 25), [25, 49, 73]);
        assert_eq!(starts_h(&daily(ReservationFlag::Weekend), 0), [49, 73, 217]);
        assert_eq!(starts_h(&daily(ReservationFlag::Weekly), 2), [169, 337, 505]);
        assert_eq!(starts_h(&daily(ReservationFlag::Maint), 2), [] as [i64; 0]);
    }

    #[test]
    fn users_or_accounts_are_let_in_and_exceptions_kept_out() {
        let only =
            |names: &[&str]| Some(Access::Only(names.iter().map(|n| n.to_string()).collect()));
        let mut reservation = daily(ReservationFlag::Daily);
        assert!(reservation.admits("ada", "physics"));
        (reservation.users, reservation.accounts) = (only(&["ada"]), only(&["physics"]));
        let admits = |user, account| reservation.admits(user, account);
        assert!(admits("ada", "other") && admits("bob", "physics") && !admits("bob", "other"));
        reservation.users = Some(Access::Except(vec!["ada".to_string()]));
        assert!(!reservation.admits("ada", "physics") && reservation.admits("bob", "physics"));
    }
}
