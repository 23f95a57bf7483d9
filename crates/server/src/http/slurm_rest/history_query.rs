//! How a query narrows the jobs of the books: by what the books select, and by what is looked at in each record then.

use super::client::{Client, Refused};
use super::jobs::job_ref;
use super::query::{self, Query};
use crate::show::history::HISTORY_MAX;
use model::hostlist;
use model::record::{HistoryFilter, JobRecord};
use model::run::JobState;
use slurm::words;

/// Parameters that ask for what is so anyway.
const WITHOUT_EFFECT: &[&str] =
    &["disable_truncate_usage_time", "disable_wait_for_result", "format", "whole_hetjob"];

/// Parameters that the books select by.
#[rustfmt::skip]
const SELECTED: &[&str] = &[
    "account", "end_time", "job_name", "node", "partition", "qos", "show_duplicates", "start_time", "state", "step",
    "submit_time", "users",
];

/// The words of a record that a parameter compares; a record without one has none.
type WordOf = fn(&JobRecord) -> Option<String>;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const COMPARED: &[(&str, WordOf)] = &[
    ("constraints",    |record| record.constraint.clone()),
    ("exit_code",      |record| Some(record.exit.code.to_string())),
    ("group",          |record| Some(record.group.clone())),
    ("groups",         |record| Some(record.group.clone())),
    ("reservation",    |record| record.reservation.clone()),
    ("reservation_id", |record| record.reservation_id.map(|id| id.to_string())),
    ("wckey",          |record| record.wckey.clone()),
];

/// An amount of a record that a parameter bounds; `None` for one without a bound.
type AmountOf = fn(&JobRecord) -> Option<u32>;

#[rustfmt::skip]
const BOUNDED: &[(&str, &str, AmountOf)] = &[
    ("cpus_min",      "cpus_max",      |record| Some(record.cpus)),
    ("nodes_min",     "nodes_max",     |record| Some(record.node_count)),
    ("timelimit_min", "timelimit_max", |record| record.time_limit.minutes()),
];

/// The cluster, of which there is one, and whether steps are shown.
const CLUSTER: &str = "cluster";
const SKIP_STEPS: &str = "skip_steps";

/// Which jobs of the books are asked for.
#[derive(Default)]
pub struct Wanted {
    pub filter: HistoryFilter,
    clusters: Vec<String>,
    words: Vec<(WordOf, Vec<String>)>,
    amounts: Vec<(AmountOf, Option<u32>, Option<u32>)>,
    skips_steps: bool,
}

pub fn read(client: &Client, query: &Query) -> Result<Wanted, Refused> {
    let compared = COMPARED.iter().map(|(name, _)| *name);
    let bounded = BOUNDED.iter().flat_map(|(least, most, _)| [*least, *most]);
    let known: Vec<&str> = SELECTED
        .iter()
        .chain(WITHOUT_EFFECT)
        .copied()
        .chain(compared)
        .chain(bounded)
        .chain([CLUSTER, SKIP_STEPS])
        .collect();
    query::check(client, query, &known)?;
    let state = |word: String| -> Result<JobState, Refused> {
        let known = words::job::parse(&word);
        known.ok_or_else(|| client.bad(&format!("state: {word}: expected a state of jobs")))
    };
    // `12.0` is asked for by its job: a job is shown with its steps.
    let job = |step: String| job_ref(client, step.split('.').next().unwrap_or_default());
    let states = query::list(query, "state").into_iter().map(state);
    let jobs = query::list(query, "step").into_iter().map(job);
    let filter = HistoryFilter {
        jobs: jobs.collect::<Result<_, _>>()?,
        accounts: query::list(query, "account"),
        names: query::list(query, "job_name"),
        nodes: nodes(client, query)?,
        partitions: query::list(query, "partition"),
        qos: query::list(query, "qos"),
        states: states.collect::<Result<_, _>>()?,
        users: query::list(query, "users"),
        from: query::time(client, query, "start_time")?,
        until: query::time(client, query, "end_time")?,
        submitted_from: query::time(client, query, "submit_time")?,
        duplicates: query::flag(query, "show_duplicates"),
        ..HistoryFilter::default()
    };
    let given = COMPARED.iter().filter(|(name, _)| query.contains_key(*name));
    let words = given.map(|(name, word)| (*word, query::list(query, name))).collect();
    let mut amounts = Vec::new();
    for (least, most, amount) in BOUNDED {
        let bounds = (query::number(client, query, least)?, query::number(client, query, most)?);
        if bounds != (None, None) {
            amounts.push((*amount, bounds.0, bounds.1));
        }
    }
    let clusters = query::list(query, CLUSTER);
    let skips_steps = query::flag(query, SKIP_STEPS);
    Ok(Wanted { filter, clusters, words, amounts, skips_steps })
}

/// `node=n[1-4],m`
fn nodes(client: &Client, query: &Query) -> Result<Vec<String>, Refused> {
    let text = query.get("node").map(String::as_str).unwrap_or_default();
    hostlist::expand(text).map_err(|error| client.bad(&format!("node: {error}")))
}

impl From<HistoryFilter> for Wanted {
    fn from(filter: HistoryFilter) -> Self {
        Self { filter, ..Self::default() }
    }
}

/// The books have more jobs than are looked through: some that a parameter asks for may be among those that were not.
const CUT: &str = "the books have more jobs of this time than are looked through: some may be \
    missing; expected start_time and end_time closer together";

impl Wanted {
    /// What is to be said about an answer of the books with so many records. The books leave out what is beyond the most that they
    /// answer with before the records are looked at here.
    pub fn warning(&self, records: usize) -> Option<&'static str> {
        let is_looked_at = !self.words.is_empty() || !self.amounts.is_empty();
        (is_looked_at && records >= HISTORY_MAX as usize).then_some(CUT)
    }

    /// Leaves the records that are asked for, of those that the books selected.
    pub fn narrow(&self, cluster: &str, records: &mut Vec<JobRecord>) {
        if !self.clusters.is_empty() && !self.clusters.iter().any(|name| name == cluster) {
            records.clear();
        }
        records.retain(|record| self.is_wanted(record));
        if self.skips_steps {
            records.iter_mut().for_each(|record| record.steps.clear());
        }
    }

    fn is_wanted(&self, record: &JobRecord) -> bool {
        let has_word = |(word, words): &(WordOf, Vec<String>)| {
            word(record).is_some_and(|word| words.contains(&word))
        };
        // What has no bound is beyond every most.
        let is_within = |(amount, least, most): &(AmountOf, Option<u32>, Option<u32>)| {
            let amount = amount(record);
            amount.is_none_or(|amount| least.is_none_or(|least| amount >= least))
                && most.is_none_or(|most| amount.is_some_and(|amount| amount <= most))
        };
        self.words.iter().all(has_word) && self.amounts.iter().all(is_within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_are_looked_at_after_the_books_were_cut_are_warned_about() {
        let most = HISTORY_MAX as usize;
        let amounts = vec![(BOUNDED[0].2, Some(4), None)];
        let words = vec![(COMPARED[0].1, vec!["gpu".to_owned()])];
        let by_amount = Wanted { amounts, ..Wanted::default() };
        let by_word = Wanted { words, ..Wanted::default() };
        for wanted in [by_amount, by_word] {
            assert_eq!(wanted.warning(most - 1), None);
            let text = wanted.warning(most).expect("a warning");
            assert!(text.contains("start_time") && !text.contains('\n'), "{text}");
        }
        let skips_steps = Wanted { skips_steps: true, ..Wanted::default() };
        assert_eq!(skips_steps.warning(most), None, "the books selected by all that was asked");
    }
}
