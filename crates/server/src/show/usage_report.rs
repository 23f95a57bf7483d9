//! `sreport`: what was used in a period, from the books and from jobs that are not in them yet.

use crate::clock;
use crate::shared::Shared;
use crate::show::activity_history;
use crate::show::history::JOBS_AT_ONCE;
use cluster::authorise::{Act, authorise};
use cluster::books;
use cluster::visibility::Viewer;
use model::account::Association;
use model::activity::ActivityFilter;
use model::id::JobId;
use model::node::AdminState;
use model::outage::outages;
use model::principal::Principal;
use model::raw_usage::RawUsage;
use model::reason::Refusal;
use model::record::{HistoryFilter, JobRecord};
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use model::usage_report::{ClusterUsage, UsageQuery, UsageReport, UsageSum, held, overlap_s};
use std::collections::{BTreeMap, HashMap};
use store::books::{ANSWER_BYTES_MAX, AttemptKey, RecordTest};

/// The records that are read at once: others read the books in between.
const PAGE: usize = 2_000;

/// The records that a report of an ordinary user may be made of.
const USERS_RECORDS_MAX: usize = 1_000_000;

pub fn usage_report(
    shared: &Shared,
    by: &Principal,
    query: &UsageQuery,
) -> Result<UsageReport, Refusal> {
    let (Some(from), Some(until)) = (query.filter.from, query.filter.until) else {
        return Err(no_period("none"));
    };
    if from >= until {
        return Err(no_period("one that ends before it begins"));
    }
    let until = until.min(clock::now());
    let wanted = HistoryFilter { duplicates: true, limit: None, ..query.filter.clone() };
    let mut sums = Sums {
        wanted: &wanted,
        period: (from, until),
        rows: UsageSum::new(from, until, query.by_size),
        whole: query.cluster.then(|| UsageSum::new(from, until, false)),
    };
    sums.read(shared, by)?;
    let Sums { rows, whole, .. } = sums;
    let whole = whole.map(|sum| whole_cluster(shared, (from, until), &sum)).transpose()?;
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let mut rows = rows.into_rows();
    rows.retain(|row| viewer.usage(&Association::plain(&row.account, Some(&row.user))));
    let whole = whole.filter(|_| viewer.nodes());
    Ok(UsageReport { cluster: state.config.name.clone(), until, rows, whole })
}

fn no_period(value: &str) -> Refusal {
    Refusal::InvalidValue {
        what: "period of a report".into(),
        value: value.into(),
        expected: "a start, and an end after it".into(),
    }
}

/// The sums that records are added to.
struct Sums<'f> {
    wanted: &'f HistoryFilter,
    period: (Timestamp, Timestamp),
    rows: UsageSum,
    /// The sum for the whole cluster. It takes every attempt of the period, whatever the filter wants: the total of a few chosen
    /// jobs would tell of jobs that the caller is not shown.
    whole: Option<UsageSum>,
}

impl Sums<'_> {
    /// Adds each attempt once: those in memory are asked for first, and left to the books where these have them by then.
    fn read(&mut self, shared: &Shared, by: &Principal) -> Result<(), Refusal> {
        let of_period = HistoryFilter {
            from: self.wanted.from,
            until: self.wanted.until,
            duplicates: true,
            ..HistoryFilter::default()
        };
        let searched = if self.whole.is_some() { &of_period } else { self.wanted };
        let key = |r: &JobRecord| (r.job, r.attempt, r.array_pending.clone());
        let ids: Vec<JobId> = shared.read().jobs.keys().copied().collect();
        let (now, test) = (clock::now(), RecordTest::new(searched));
        let mut alive: HashMap<_, JobRecord> = HashMap::new();
        for page in ids.chunks(JOBS_AT_ONCE) {
            let state = shared.read();
            // One that has left memory since is in the books.
            let known = page.iter().filter(|id| state.jobs.contains_key(*id));
            let records = known.map(|id| books::record_at(&state, *id, now));
            alive.extend(records.filter(|record| test.matches(record)).map(|r| (key(&r), r)));
        }
        if !names_jobs(self.wanted) {
            return self.read_totals(shared, by, alive.into_values().collect());
        }
        let failed = |error: store::books::BooksError| Refusal::Other(error.to_string());
        let reader = || shared.books.reader.lock().expect("no panic with the reader held");
        let entries = reader().entries(searched).map_err(failed)?;
        let operates = authorise(&shared.read(), by, Act::Operate).is_ok();
        if !operates && entries.len() > USERS_RECORDS_MAX {
            return Err(Refusal::InvalidValue {
                what: "records of a report's period".into(),
                value: entries.len().to_string(),
                expected: format!("at most {USERS_RECORDS_MAX} for an ordinary user"),
            });
        }
        for page in entries.chunks(PAGE) {
            // Only the records of one page are in memory at a time: each page has the whole bound.
            let mut bytes_left = ANSWER_BYTES_MAX;
            let records = reader().records(searched, page, &mut bytes_left).map_err(failed)?;
            records.iter().for_each(|record| drop(alive.remove(&key(record))));
            self.add(shared, by, records.iter());
        }
        self.add(shared, by, alive.values());
        Ok(())
    }

    /// Adds the sums of the books, for a filter that names users and accounts at most: no record is read.
    fn read_totals(
        &mut self,
        shared: &Shared,
        by: &Principal,
        alive: Vec<JobRecord>,
    ) -> Result<(), Refusal> {
        let failed = |error: store::books::BooksError| Refusal::Other(error.to_string());
        let reader = || shared.books.reader.lock().expect("no panic with the reader held");
        let key = |r: &JobRecord| (r.job.0, r.array_pending.clone().unwrap_or_default(), r.attempt);
        let asked: Vec<AttemptKey> = alive.iter().map(key).collect();
        let (mut scan, booked) = reader().begin_usage(self.period, &asked).map_err(failed)?;
        while reader().add_usage(&mut scan).map_err(failed)? {}
        let totals = reader().end_usage(scan).map_err(failed)?;
        let admits = |list: &[String], name: &String| list.is_empty() || list.contains(name);
        let HistoryFilter { users, accounts, .. } = self.wanted;
        for (key, total) in &totals {
            if let Some(whole) = &mut self.whole {
                whole.add_total(key, total);
            }
            if admits(users, &key.user) && admits(accounts, &key.account) {
                self.rows.add_total(key, total);
            }
        }
        let lacking = alive.iter().zip(&booked).filter(|(_, is_booked)| !**is_booked);
        self.add(shared, by, lacking.map(|(record, _)| record));
        Ok(())
    }

    fn add<'r>(
        &mut self,
        shared: &Shared,
        by: &Principal,
        records: impl Iterator<Item = &'r JobRecord>,
    ) {
        let state = shared.read();
        let viewer = Viewer::new(&state, by);
        let test = RecordTest::new(self.wanted);
        let names_jobs = names_jobs(self.wanted);
        for record in records {
            if let Some(whole) = &mut self.whole {
                whole.add(record);
            }
            let is_shown = !names_jobs || viewer.job_of(record.uid, &record.account);
            if is_shown && test.matches(record) {
                self.rows.add(record);
            }
        }
    }
}

/// Whether the filter narrows by more than users and accounts: its sums then tell of jobs, as `sacct` does.
fn names_jobs(filter: &HistoryFilter) -> bool {
    let plain = HistoryFilter {
        users: filter.users.clone(),
        accounts: filter.accounts.clone(),
        from: filter.from,
        until: filter.until,
        duplicates: filter.duplicates,
        limit: filter.limit,
        ..HistoryFilter::default()
    };
    *filter != plain
}

/// What the cluster as it is now had in the period, and how much of it was out of service.
fn whole_cluster(
    shared: &Shared,
    period: (Timestamp, Timestamp),
    sum: &UsageSum,
) -> Result<ClusterUsage, Refusal> {
    let filter =
        ActivityFilter { about_nodes: true, until: Some(period.1), ..ActivityFilter::default() };
    let activities = activity_history::booked(shared, &filter, None)?;
    let (nodes, begun): (BTreeMap<String, Tres>, _) = {
        let state = shared.read();
        let counted = state.nodes.iter().filter(|(_, n)| n.admin != Some(AdminState::Future));
        let nodes = counted.map(|(name, node)| (name.clone(), node.tres())).collect();
        (nodes, state.begun)
    };
    let seconds = existence_s(period, begun);
    let mut whole = ClusterUsage {
        allocated: sum.allocated.clone(),
        planned: sum.planned.clone(),
        ..ClusterUsage::default()
    };
    for tres in nodes.values() {
        whole.reported.add(&held(tres, seconds));
    }
    for outage in outages(&activities) {
        let Some(tres) = nodes.get(&outage.node) else { continue };
        let lasted = overlap_s((outage.start, outage.end.unwrap_or(period.1)), period);
        whole.down.add(&held(tres, lasted));
    }
    keep_cost(&mut whole);
    keep_within(&mut whole);
    Ok(whole)
}

/// The seconds of a period in which there was the cluster: before its first start no node was idle.
fn existence_s(period: (Timestamp, Timestamp), begun: Option<Timestamp>) -> f64 {
    overlap_s((begun.unwrap_or(period.0), period.1), period)
}

/// Machines on demand that are gone are no nodes of the cluster any more; what jobs paid for on them counts as reported.
fn keep_cost(whole: &mut ClusterUsage) {
    let paid = whole.allocated.seconds(&TresKind::Cost);
    if paid > 0.0 {
        let reported = whole.reported.tres_s.entry(TresKind::Cost).or_default();
        *reported = reported.max(paid);
    }
}

/// Nothing is counted twice: what waiting jobs asked for fills only what was idle.
fn keep_within(whole: &mut ClusterUsage) {
    let cap = |used: &mut RawUsage, left: &mut RawUsage| {
        used.tres_s.retain(|kind, _| left.tres_s.contains_key(kind));
        for (kind, seconds) in &mut used.tres_s {
            let left = left.tres_s.entry(kind.clone()).or_default();
            *seconds = seconds.min(*left);
            *left -= *seconds;
        }
    };
    let mut left = whole.reported.clone();
    cap(&mut whole.allocated, &mut left);
    cap(&mut whole.down, &mut left);
    cap(&mut whole.planned, &mut left);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_on_machines_that_are_gone_is_reported() {
        let cost = |seconds: f64| held(&Tres::parse("cost=1").unwrap(), seconds);
        let mut whole =
            ClusterUsage { reported: cost(10.0), allocated: cost(70.0), ..ClusterUsage::default() };
        keep_cost(&mut whole);
        keep_within(&mut whole);
        assert_eq!(whole.allocated.seconds(&TresKind::Cost), 700_000.0);
    }

    #[test]
    fn time_before_the_cluster_began_is_in_no_report() {
        let at = |second: i64| Timestamp(second * 1000);
        let period = (at(100), at(200));
        for (begun, seconds) in
            [(None, 100.0), (Some(50), 100.0), (Some(150), 50.0), (Some(250), 0.0)]
        {
            assert_eq!(existence_s(period, begun.map(at)), seconds, "{begun:?}");
        }
    }

    #[test]
    fn nothing_of_a_cluster_is_counted_twice() {
        let cpus = |seconds: f64| held(&Tres::parse("cpu=1,node=1").unwrap(), seconds);
        let mut whole = ClusterUsage {
            reported: cpus(100.0),
            allocated: cpus(70.0),
            down: cpus(20.0),
            planned: cpus(5_000.0),
        };
        keep_within(&mut whole);
        let seconds = |used: &RawUsage| used.seconds(&TresKind::Cpu);
        assert_eq!(seconds(&whole.allocated), 70.0);
        assert_eq!(seconds(&whole.down), 20.0);
        assert_eq!(seconds(&whole.planned), 10.0, "what was left");
    }
}
