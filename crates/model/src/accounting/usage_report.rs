//! What was used in a period, by account, user and workload key: what `sreport` prints.

use crate::raw_usage::RawUsage;
use crate::record::{HistoryFilter, JobRecord};
use crate::time::Timestamp;
use crate::tres::Tres;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageQuery {
    /// The attempts that count; its `from` and `until` are the period.
    pub filter: HistoryFilter,
    /// Jobs of different numbers of CPUs have rows of their own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_size: bool,
    /// Whether the report has what the cluster had, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cluster: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageReport {
    pub cluster: String,
    /// The end of what is reported: the end of the period, or now if that is later.
    pub until: Timestamp,
    pub rows: Vec<UsageRow>,
    /// If it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<ClusterUsage>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct UsageRow {
    pub account: String,
    pub user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wckey: Option<String>,
    /// The CPUs of each job, where sizes are apart; else zero.
    #[serde(default)]
    pub cpus: u32,
    /// Jobs that ran in the period.
    pub jobs: u64,
    pub used: RawUsage,
}

/// What the cluster had in a period, and what became of it. What is left is idle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterUsage {
    /// All nodes for the part of the period since the cluster's first start.
    pub reported: RawUsage,
    pub allocated: RawUsage,
    /// Nodes that were out of service.
    pub down: RawUsage,
    /// What waiting jobs asked for, from when they could have started.
    pub planned: RawUsage,
}

/// How long two spans of time overlap, in seconds.
pub fn overlap_s(span: (Timestamp, Timestamp), with: (Timestamp, Timestamp)) -> f64 {
    let (start, end) = (span.0.max(with.0), span.1.min(with.1));
    (end.millis() - start.millis()).max(0) as f64 / 1000.0
}

/// The account, the user, the wckey, and the CPUs of a job where sizes are told apart.
type RowKey = (String, String, Option<String>, u32);

/// Sums of usage while records are read.
pub struct UsageSum {
    period: (Timestamp, Timestamp),
    by_size: bool,
    rows: BTreeMap<RowKey, (u64, RawUsage)>,
    pub allocated: RawUsage,
    pub planned: RawUsage,
}

impl UsageSum {
    pub fn new(from: Timestamp, until: Timestamp, by_size: bool) -> Self {
        Self {
            period: (from, until),
            by_size,
            rows: BTreeMap::new(),
            allocated: RawUsage::default(),
            planned: RawUsage::default(),
        }
    }

    /// Adds what an attempt used in the period; one that has not ended is counted until its end.
    pub fn add(&mut self, record: &JobRecord) {
        let mut total = UsageTotal::default();
        total.add(&UsageTimes::of(record), self.period);
        self.add_total(&UsageKey::of(record), &total);
    }

    /// Adds what attempts of the same key used in the period together.
    pub fn add_total(&mut self, key: &UsageKey, total: &UsageTotal) {
        self.planned.charge(&key.req, total.waited_s, 1.0);
        if total.jobs == 0 {
            return;
        }
        self.allocated.charge(&key.alloc, total.held_s, 1.0);
        let cpus = if self.by_size { key.cpus } else { 0 };
        let row = (key.account.clone(), key.user.clone(), key.wckey.clone(), cpus);
        let (jobs, used) = self.rows.entry(row).or_default();
        *jobs += total.jobs;
        used.charge(&key.alloc, total.held_s, 1.0);
    }

    pub fn into_rows(self) -> Vec<UsageRow> {
        let row = |((account, user, wckey, cpus), (jobs, used))| UsageRow {
            account,
            user,
            wckey,
            cpus,
            jobs,
            used,
        };
        self.rows.into_iter().map(row).collect()
    }
}

/// What attempts have in common that a report may sum up: their seconds count alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageKey {
    pub account: String,
    pub user: String,
    pub wckey: Option<String>,
    pub cpus: u32,
    /// What each waited for, and what it had.
    pub req: Tres,
    pub alloc: Tres,
}

impl UsageKey {
    pub fn of(record: &JobRecord) -> Self {
        Self {
            account: record.account.clone(),
            user: record.user.clone(),
            wckey: record.wckey.clone(),
            cpus: record.cpus,
            req: record.req_tres.clone(),
            alloc: record.alloc_tres.clone(),
        }
    }
}

/// When an attempt waited and ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageTimes {
    /// From when it could have started.
    pub eligible: Timestamp,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub suspended_s: u64,
}

impl UsageTimes {
    pub fn of(record: &JobRecord) -> Self {
        Self {
            eligible: record.eligible.unwrap_or(record.submit),
            start: record.start,
            end: record.end,
            suspended_s: record.suspended_s,
        }
    }

    /// The part of its time that an attempt was not suspended. When it was is not recorded: it is spread over all of it.
    fn unsuspended(&self, start: Timestamp, end: Timestamp) -> f64 {
        let whole = overlap_s((start, end), (start, end));
        if whole > 0.0 { (1.0 - self.suspended_s as f64 / whole).clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// What attempts of one key used in a period.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct UsageTotal {
    /// The attempts that ran in the period.
    pub jobs: u64,
    pub held_s: f64,
    pub waited_s: f64,
}

impl UsageTotal {
    pub fn add(&mut self, times: &UsageTimes, period: (Timestamp, Timestamp)) {
        let (_, until) = period;
        let waited_until = times.start.or(times.end).unwrap_or(until);
        self.waited_s += overlap_s((times.eligible, waited_until), period);
        let Some(start) = times.start else { return };
        let end = times.end.unwrap_or(until);
        let seconds = overlap_s((start, end), period);
        if seconds > 0.0 {
            self.jobs += 1;
            self.held_s += seconds * times.unsuspended(start, end);
        }
    }
}

/// What all of these hold together, for a time.
pub fn held(tres: &Tres, seconds: f64) -> RawUsage {
    let mut used = RawUsage::default();
    used.charge(tres, seconds, 1.0);
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tres::TresKind;

    fn at(second: i64) -> Timestamp {
        Timestamp(second * 1000)
    }

    #[test]
    fn spans_overlap_by_what_they_share() {
        let period = (at(100), at(200));
        for (span, expected) in [
            ((at(0), at(50)), 0.0),
            ((at(0), at(150)), 50.0),
            ((at(120), at(130)), 10.0),
            ((at(150), at(900)), 50.0),
            ((at(0), at(900)), 100.0),
            ((at(300), at(250)), 0.0),
        ] {
            assert_eq!(overlap_s(span, period), expected, "{span:?}");
        }
    }

    #[test]
    fn all_nodes_are_held_for_the_whole_time() {
        let tres = Tres::parse("cpu=4,node=1").expect("a list");
        assert_eq!(held(&tres, 60.0).seconds(&TresKind::Cpu), 240.0);
    }
}
