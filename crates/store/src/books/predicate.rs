//! Whether a filter wants a record: the one rule for the ended ones in the books and the living ones
//! in memory.

use model::array::IndexSet;
use model::change::JobRef;
use model::id::{JobId, RunId};
use model::record::{HistoryFilter, JobRecord, RecordState};
use model::run::{HetComponent, JobState};
use std::collections::{HashMap, HashSet};

/// What ends a list of indices that was too long to show.
const CUT: &str = ",...";

/// A filter whose lists are looked up and not searched: it may name as many jobs as there are records.
pub struct RecordTest<'f> {
    filter: &'f HistoryFilter,
    names: [HashSet<&'f str>; 4],
    partitions: HashSet<&'f str>,
    nodes: HashSet<&'f str>,
    states: HashSet<JobState>,
    runs: HashSet<RunId>,
    /// The references by the number that they name.
    jobs: HashMap<JobId, Vec<JobRef>>,
    /// Components of heterogeneous jobs, each with the leader that it is said to have: of one number there may be very many.
    components: HashSet<(JobId, JobId)>,
}

impl<'f> RecordTest<'f> {
    pub fn new(filter: &'f HistoryFilter) -> Self {
        let set = |names: &'f [String]| names.iter().map(String::as_str).collect::<HashSet<_>>();
        let mut jobs: HashMap<JobId, Vec<JobRef>> = HashMap::new();
        let mut components = HashSet::new();
        for wanted in JobRef::distinct(&filter.jobs) {
            match wanted.component_of {
                Some(first) => {
                    components.insert((wanted.id, first));
                }
                None => jobs.entry(wanted.id).or_default().push(wanted),
            }
        }
        Self {
            filter,
            names: [&filter.users, &filter.accounts, &filter.names, &filter.qos].map(|l| set(l)),
            partitions: set(&filter.partitions),
            nodes: set(&filter.nodes),
            states: filter.states.iter().copied().collect(),
            runs: filter.runs.iter().copied().collect(),
            jobs,
            components,
        }
    }

    /// Whether the filter wants this record by itself. `limit` and `duplicates` are about many records and not asked here.
    pub fn matches(&self, record: &JobRecord) -> bool {
        let names = [&record.user, &record.account, &record.name, &record.qos];
        let mut names = self.names.iter().zip(names);
        names.all(|(wanted, name)| admits(wanted, [name.as_str()]))
            && (self.filter.jobs.is_empty() || self.names_job(record))
            && admits(&self.partitions, record.partition.split(','))
            && admits(&self.nodes, record.nodes.iter().map(String::as_str))
            && (self.states.is_empty() || self.states.contains(&state_of(record.state)))
            && (self.runs.is_empty() || self.runs.contains(&record.run))
            && (!self.filter.ended || record.end.is_some())
            && self.filter.submitted_from.is_none_or(|from| record.submit >= from)
            && was_alive(record, self.filter)
    }

    fn names_job(&self, record: &JobRecord) -> bool {
        let ids = [Some(record.job), record.array_job, record.het.map(|of| of.first)];
        let wanted = ids.into_iter().flatten().filter_map(|id| self.jobs.get(&id));
        let is_component = |of: HetComponent| self.components.contains(&(record.job, of.first));
        record.het.is_some_and(is_component) || wanted.flatten().any(|w| self.is_named(record, w))
    }

    /// `12` names the job 12 and every task of array 12, or the record 12 alone; `12_3` only that task.
    fn is_named(&self, record: &JobRecord, wanted: &JobRef) -> bool {
        let first = record.het.map(|of| of.first);
        let in_array = record.array_job.or(first) == Some(wanted.id);
        match &wanted.tasks {
            None => in_array && !self.filter.own_records || record.job == wanted.id,
            Some(tasks) => in_array && has_task(record, tasks),
        }
    }
}

/// Whether one of the names is wanted. An empty list asks nothing.
fn admits<'n>(wanted: &HashSet<&str>, names: impl IntoIterator<Item = &'n str>) -> bool {
    wanted.is_empty() || names.into_iter().any(|name| wanted.contains(name))
}

/// Slurm's state for the record.
pub fn state_of(state: RecordState) -> JobState {
    match state {
        RecordState::Pending => JobState::Pending,
        RecordState::Running => JobState::Running,
        RecordState::Suspended => JobState::Suspended,
        RecordState::Ended(outcome) => outcome.state(),
    }
}

fn has_task(record: &JobRecord, wanted: &IndexSet) -> bool {
    match (record.array_task, &record.array_pending) {
        (Some(index), _) => wanted.contains(index),
        (None, Some(pending)) => may_hold(pending, wanted),
        (None, None) => false,
    }
}

/// Whether the waiting tasks, as squeue prints them (`3-100%2`), hold a wanted one. A list that was
/// cut may hold anything beyond its shown part: better an entry too many than one hidden.
fn may_hold(pending: &str, wanted: &IndexSet) -> bool {
    let indices = pending.split_once('%').map_or(pending, |(indices, _)| indices);
    let shown = indices.strip_suffix(CUT);
    let Ok(held) = IndexSet::parse(shown.unwrap_or(indices), u32::MAX) else { return false };
    !held.intersection(wanted).is_empty() || shown.is_some() && wanted.last() > held.last()
}

/// Submitted before the window closes, and not over before it opens.
fn was_alive(record: &JobRecord, filter: &HistoryFilter) -> bool {
    filter.until.is_none_or(|until| record.submit <= until)
        && filter.from.is_none_or(|from| record.end.is_none_or(|end| end >= from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::array::format_pending;

    #[test]
    fn waiting_tasks_are_found_in_the_text_that_squeue_prints() {
        let long: IndexSet = (0..200).map(|n| n * n).collect();
        let cut = format_pending(&long, Some(2));
        assert!(cut.contains("..."), "{cut}");
        let table = [
            ("3-100", 3, true),
            ("3-100%2", 100, true),
            ("3-100%2", 101, false),
            ("1-45:2", 7, true),
            ("1-45:2", 8, false),
            (cut.as_str(), 16, true),
            (cut.as_str(), 17, false),
            (cut.as_str(), 10_000, true),
            ("nonsense", 1, false),
        ];
        for (pending, index, held) in table {
            assert_eq!(may_hold(pending, &IndexSet::from_range(index, index)), held, "{pending}");
        }
    }
}
