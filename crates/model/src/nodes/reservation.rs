//! Reservations: nodes, parts of nodes or licenses reserved for users during a window of time.

use crate::partition::Access;
use crate::principal::Principal;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub name: String,
    /// Counts from 1; never used twice.
    #[serde(default)]
    pub id: u32,
    /// Start of the present or next occurrence.
    pub start: Timestamp,
    pub end: Timestamp,
    /// In the order of the cluster's nodes; empty for a reservation of licenses alone.
    pub nodes: Vec<String>,
    /// `CoreCnt`: the number of cores on each node; empty for whole nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cores: BTreeMap<String, u32>,
    /// The units of each GRES on each node (`TRES=gres/gpu=4`), beside `cores`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gres: BTreeMap<String, BTreeMap<String, u64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<(String, u32)>,
    /// A job is admitted if its user is among the users or groups, and its account among the accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Access>,
    /// By name and number; empty if users are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<(String, u32)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounts: Option<Access>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The features that its nodes must have, as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags: BTreeSet<ReservationFlag>,
    /// `PURGE_COMP`: removed once it was idle for this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purge_after_s: Option<u32>,
    /// Start of the idle time that `purge_after_s` counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_since: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_start_delay_s: Option<u32>,
    /// `TIME_FLOAT`: the start stays this far ahead of now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead_ms: Option<i64>,
    /// The offset of local time when the reservation was made; decides which weekday a time is on.
    #[serde(default)]
    pub utc_offset_s: i32,
}

/// The names of a list of reservations, as a job asks for them.
pub fn split_names(asked: &str) -> impl Iterator<Item = &str> {
    asked.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationFlag {
    Maint,
    /// Running jobs do not prevent the reservation.
    IgnoreJobs,
    Hourly,
    Daily,
    Weekly,
    Weekday,
    Weekend,
    /// Jobs may start before the reservation, end after it, and use nodes outside it.
    Flex,
    AnyNodes,
    /// May share its nodes with other reservations.
    Overlap,
    /// Admitted jobs use the reservation without asking for it.
    Magnetic,
    NoHoldJobsAfter,
    PurgeComp,
    StaticAlloc,
    PartNodes,
    SpecNodes,
    Replace,
    ReplaceDown,
    TimeFloat,
    /// Its users may remove it.
    UserDelete,
    FirstCores,
}

impl Reservation {
    pub fn has(&self, flag: ReservationFlag) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether this user, charged to this account, may use the reservation.
    pub fn admits(&self, user: &Principal, account: &str) -> bool {
        let of_group = |gid: u32| user.gid == gid || user.groups.contains(&gid);
        self.users.as_ref().is_none_or(|users| users.admits(&user.name))
            && (self.groups.is_empty() || self.groups.iter().any(|(_, gid)| of_group(*gid)))
            && self.accounts.as_ref().is_none_or(|accounts| accounts.admits(account))
    }

    /// Whether nodes are reserved; otherwise only licenses are.
    pub fn has_nodes(&self) -> bool {
        !self.nodes.is_empty() && !self.has(ReservationFlag::AnyNodes)
    }

    /// Whether the reservation may share nodes with other reservations.
    pub fn overlaps(&self) -> bool {
        self.has(ReservationFlag::Maint) || self.has(ReservationFlag::Overlap)
    }

    pub fn recurs(&self) -> bool {
        self.period_ms().is_some()
    }

    /// Whether `now` is within the window.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.windows(now, 1).first().is_some_and(|(start, _)| *start <= now)
    }

    /// The end of the window that this moment is in, also of one that is past.
    pub fn end_of_window_at(&self, time: Timestamp) -> Timestamp {
        let Some(period) = self.period_ms() else { return self.end };
        let windows = time.0.saturating_sub(self.start.0).div_euclid(period);
        Timestamp(self.end.0.saturating_add(windows.saturating_mul(period)))
    }

    /// The period of a recurring reservation.
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

    /// Whether the reservation occurs on the weekday of `time`.
    fn is_on(&self, time: i64) -> bool {
        const DAY_MS: i64 = 86_400_000;
        // The first day of the epoch was a Thursday; Monday is 0.
        let local = time + 1_000 * i64::from(self.utc_offset_s);
        let weekday = (local.div_euclid(DAY_MS) + 3).rem_euclid(7);
        match (self.has(ReservationFlag::Weekday), self.has(ReservationFlag::Weekend)) {
            (true, false) => weekday < 5,
            (false, true) => weekday >= 5,
            _ => true,
        }
    }

    /// The first `most` windows that end after `now`.
    pub fn windows(&self, now: Timestamp, most: usize) -> Vec<(Timestamp, Timestamp)> {
        let length = self.end.0.saturating_sub(self.start.0);
        if let Some(ahead) = self.ahead_ms {
            let start = now.0.saturating_add(ahead);
            return vec![(Timestamp(start), Timestamp(start.saturating_add(length)))];
        }
        let Some(period) = self.period_ms() else {
            let left = (self.end > now).then_some((self.start, self.end));
            return left.into_iter().collect();
        };
        let passed = now.0.saturating_sub(self.end.0).max(-1).div_euclid(period) + 1;
        let first = self.start.0 + passed.max(0) * period;
        // At most five days in seven have no occurrence.
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
            flags: BTreeSet::from([flag]),
            ..Reservation::default()
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
    fn weekdays_are_those_of_the_place() {
        let mut weekend = daily(ReservationFlag::Weekend);
        // Thirteen hours ahead Friday at noon is Saturday already.
        (weekend.start, weekend.end) =
            (Timestamp::from_secs(36 * 3_600), Timestamp::from_secs(37 * 3_600));
        weekend.utc_offset_s = 13 * 3_600;
        assert_eq!(starts_h(&weekend, 0), [36, 60, 204]);
    }

    #[test]
    fn one_that_floats_is_always_as_far_ahead() {
        let mut floating = daily(ReservationFlag::TimeFloat);
        floating.ahead_ms = Some(3_600_000);
        assert_eq!((starts_h(&floating, 0), starts_h(&floating, 99)), (vec![1], vec![100]));
        assert!(!floating.is_active(Timestamp::from_secs(5_000)));
    }

    #[test]
    fn the_window_of_a_moment_is_found_after_it_was_left_behind() {
        let at_h = |reservation: &Reservation, hours: i64| {
            reservation.end_of_window_at(Timestamp::from_secs(hours * 3_600)).secs() / 3_600
        };
        let mut daily = daily(ReservationFlag::Daily);
        assert_eq!((at_h(&daily, 1), at_h(&daily, 26)), (2, 26));
        (daily.start, daily.end) =
            (Timestamp::from_secs(25 * 3_600), Timestamp::from_secs(26 * 3_600));
        assert_eq!(at_h(&daily, 1), 2);
    }

    #[test]
    fn users_and_accounts_must_both_be_right_and_exceptions_are_kept_out() {
        let only =
            |names: &[&str]| Some(Access::Only(names.iter().map(|n| n.to_string()).collect()));
        let user = |name: &str, gid| Principal {
            name: name.into(),
            uid: 1,
            gid,
            group: name.into(),
            groups: Vec::new(),
            role: Default::default(),
            token_limit: None,
        };
        let (ada, bob) = (user("ada", 1), user("bob", 2));
        let mut reservation = daily(ReservationFlag::Daily);
        assert!(reservation.admits(&ada, "physics"));
        (reservation.users, reservation.accounts) = (only(&["ada"]), only(&["physics"]));
        let admits = |user, account| reservation.admits(user, account);
        assert!(admits(&ada, "physics") && !admits(&ada, "other") && !admits(&bob, "physics"));
        reservation.users = Some(Access::Except(vec!["ada".to_string()]));
        assert!(!reservation.admits(&ada, "physics") && reservation.admits(&bob, "physics"));
        (reservation.users, reservation.groups) = (None, vec![("staff".to_string(), 2)]);
        assert!(!reservation.admits(&ada, "physics") && reservation.admits(&bob, "physics"));
    }
}
