//! Questions to the books. SQLite narrows by its indices, [`RecordTest`] has the last word; what the
//! user typed reaches SQLite only as bound values.

use model::change::JobRef;
use model::record::{HistoryFilter, HistoryOrder, JobRecord};
use rusqlite::types::Value;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params_from_iter};

use super::predicate::RecordTest;
use super::{BooksError, NOT_ENDED_MS, usage};

/// The records of one answer where the filter sets no limit of its own.
pub const RECORDS_MAX: u32 = 1_000_000;

/// The bytes of the records of one answer, as the books have them: they are held whole until it is sent, and one job may have
/// steps of hundreds of megabytes.
pub const ANSWER_BYTES_MAX: usize = 4 << 30;

const LAST_ATTEMPT: &str = "entry = (SELECT max(last.entry) FROM jobs AS last
    WHERE last.job_id = jobs.job_id AND last.array_pending = jobs.array_pending)";

/// A row for each way to name a job. `CROSS` keeps the order: from each name to its few rows. A component is one job, whatever array has
/// its number: as many components of one number may be named as there are jobs.
const NAMED: &str = "entry IN (SELECT job.entry FROM json_each(?) AS wanted CROSS JOIN jobs AS job
    ON (job.job_id = wanted.value ->> 'id' AND wanted.value ->> 'tasks' IS NULL)
    OR (job.array_job_id = wanted.value ->> 'array' AND (wanted.value ->> 'tasks' IS NULL
        OR job.array_pending <> ''
        OR EXISTS (SELECT 1 FROM json_each(wanted.value, '$.tasks') AS tasks
            WHERE job.array_task_id BETWEEN tasks.value ->> 0 AND tasks.value ->> 1))))";

const ON_NODES: &str = "entry IN (SELECT entry FROM job_nodes
    WHERE node IN (SELECT value FROM json_each(?)))";

/// What lies in a window of time, by the narrow table of times: a row for each class of them.
const IN_WINDOW: &str = "entry IN (SELECT usage.entry FROM json_each(?) AS wanted
    CROSS JOIN usage ON usage.span = wanted.value ->> 0
        AND usage.end_ms BETWEEN wanted.value ->> 1 AND wanted.value ->> 2
        AND usage.submit_ms <= wanted.value ->> 3)";

const NOT_DELETED: &str = "NOT EXISTS (SELECT 1 FROM deleted_runs WHERE run = record ->> 'run')";

/// The columns by which records are read, those that a limit leaves first.
fn order_by(order: HistoryOrder) -> &'static str {
    match order {
        HistoryOrder::LastEnded => "end_ms DESC, entry DESC",
        HistoryOrder::FirstSubmitted => "submit_ms, entry",
        HistoryOrder::LastSubmitted => "submit_ms DESC, entry DESC",
    }
}

/// Whether a filter names what an index finds among few records, whatever the window.
fn is_narrow(filter: &HistoryFilter) -> bool {
    let lists = [&filter.users, &filter.accounts, &filter.names, &filter.nodes];
    !filter.jobs.is_empty() || !filter.runs.is_empty() || lists.iter().any(|list| !list.is_empty())
}

/// A job as `NAMED` reads it: by its number, and by that of an array or of the leader of a heterogeneous job, unless the filter is for
/// records of these numbers alone.
fn named(filter: &HistoryFilter, wanted: &JobRef) -> serde_json::Value {
    let is_alone = filter.own_records && wanted.tasks.is_none();
    let array = (wanted.component_of.is_none() && !is_alone).then_some(wanted.id);
    serde_json::json!({"id": wanted.id, "array": array, "tasks": wanted.tasks})
}

/// The conditions of a query, its order, and the values bound to them, in the same order.
struct Conditions {
    sql: Vec<&'static str>,
    values: Vec<Value>,
    order: &'static str,
}

impl Conditions {
    /// A list goes in as one JSON array, so its length meets no limit on bound values.
    fn any_of<T: serde::Serialize>(&mut self, sql: &'static str, wanted: &[T]) {
        if !wanted.is_empty() {
            let list: serde_json::Value =
                wanted.iter().map(|item| serde_json::json!(item)).collect();
            self.sql.push(sql);
            self.values.push(Value::Text(list.to_string()));
        }
    }

    fn compare(&mut self, sql: &'static str, value: Option<i64>) {
        if let Some(value) = value {
            self.sql.push(sql);
            self.values.push(Value::Integer(value));
        }
    }

    fn of(filter: &HistoryFilter) -> Self {
        let order = order_by(filter.order);
        let mut all = Self { sql: Vec::new(), values: Vec::new(), order };
        let distinct = JobRef::distinct(&filter.jobs);
        let named: Vec<_> = distinct.iter().map(|wanted| named(filter, wanted)).collect();
        all.any_of(NAMED, &named);
        all.any_of("user IN (SELECT value FROM json_each(?))", &filter.users);
        all.any_of("account IN (SELECT value FROM json_each(?))", &filter.accounts);
        all.any_of(
            "(partition IN (SELECT value FROM json_each(?)) OR partition IS NULL)",
            &filter.partitions,
        );
        all.any_of("name IN (SELECT value FROM json_each(?))", &filter.names);
        all.any_of("qos IN (SELECT value FROM json_each(?))", &filter.qos);
        all.any_of("(record ->> 'run') IN (SELECT value FROM json_each(?))", &filter.runs);
        all.any_of(ON_NODES, &filter.nodes);
        all.any_of("state IN (SELECT value FROM json_each(?))", &filter.states);
        all.compare("end_ms < ?", filter.ended.then_some(NOT_ENDED_MS));
        match (filter.from, filter.until) {
            (Some(from), Some(until)) if !is_narrow(filter) => {
                let classes: Vec<_> = usage::ends_in(from, until)
                    .into_iter()
                    .map(|(span, first, last)| (span, first, last, until.millis()))
                    .collect();
                all.any_of(IN_WINDOW, &classes);
            }
            (from, until) => {
                all.compare("end_ms >= ?", from.map(|from| from.millis()));
                all.compare("submit_ms <= ?", until.map(|until| until.millis()));
            }
        }
        all.compare("submit_ms >= ?", filter.submitted_from.map(|from| from.millis()));
        if filter.without_deleted {
            all.sql.push(NOT_DELETED);
        }
        if !filter.duplicates {
            all.sql.push(LAST_ATTEMPT);
        }
        all
    }

    /// Selects the entries alone: sorting them must not carry whole records along.
    fn select(&self) -> String {
        let clause = if self.sql.is_empty() { "TRUE".to_owned() } else { self.sql.join("\n AND ") };
        format!("SELECT entry FROM jobs WHERE {clause} ORDER BY {}", self.order)
    }
}

pub(super) fn run(
    connection: &Connection,
    filter: &HistoryFilter,
) -> Result<Vec<JobRecord>, BooksError> {
    let failed = || BooksError::sql("query");
    // One moment of the books for the entries and their records.
    let moment = connection.unchecked_transaction().map_err(failed())?;
    let conditions = Conditions::of(filter);
    let mut in_order = moment.prepare_cached(&conditions.select()).map_err(failed())?;
    let mut entries = in_order.query(params_from_iter(conditions.values)).map_err(failed())?;
    let mut rows = Rows::new(&moment, filter)?;
    let limit = filter.limit.unwrap_or(RECORDS_MAX) as usize;
    let mut found = Vec::new();
    let mut bytes_left = ANSWER_BYTES_MAX;
    while found.len() < limit
        && let Some(row) = entries.next().map_err(failed())?
    {
        found.extend(rows.read(row.get(0).map_err(failed())?, &mut bytes_left)?);
    }
    if filter.order != HistoryOrder::FirstSubmitted {
        found.reverse();
    }
    Ok(found)
}

/// The entries among which are those that the filter wants, for [`records`].
pub(super) fn entries(
    connection: &Connection,
    filter: &HistoryFilter,
) -> Result<Vec<i64>, BooksError> {
    let failed = || BooksError::sql("query");
    let conditions = Conditions::of(filter);
    let mut in_order = connection.prepare_cached(&conditions.select()).map_err(failed())?;
    let found = in_order.query_map(params_from_iter(conditions.values), |row| row.get(0));
    found.and_then(Iterator::collect).map_err(failed())
}

/// The records of these entries that the filter wants; one that is gone meanwhile is left out.
pub(super) fn records(
    connection: &Connection,
    filter: &HistoryFilter,
    entries: &[i64],
    bytes_left: &mut usize,
) -> Result<Vec<JobRecord>, BooksError> {
    let mut rows = Rows::new(connection, filter)?;
    let mut found = Vec::with_capacity(entries.len());
    for entry in entries {
        found.extend(rows.read(*entry, bytes_left)?);
    }
    Ok(found)
}

/// Reads records by their entries.
struct Rows<'a> {
    select: CachedStatement<'a>,
    test: RecordTest<'a>,
}

impl<'a> Rows<'a> {
    fn new(connection: &'a Connection, filter: &'a HistoryFilter) -> Result<Self, BooksError> {
        let sql = "SELECT job_id, record FROM jobs WHERE entry = ?1";
        let select = connection.prepare_cached(sql).map_err(BooksError::sql("query"))?;
        Ok(Self { select, test: RecordTest::new(filter) })
    }

    /// The record, if the filter wants it: its bytes are taken off those that are left.
    fn read(
        &mut self,
        entry: i64,
        bytes_left: &mut usize,
    ) -> Result<Option<JobRecord>, BooksError> {
        let row = self.select.query_row([entry], |row| Ok((row.get(0)?, row.get(1)?)));
        let row: Option<(u32, String)> = row.optional().map_err(BooksError::sql("query"))?;
        let Some((job, text)) = row else { return Ok(None) };
        let record: JobRecord =
            serde_json::from_str(&text).map_err(|source| BooksError::Record { job, source })?;
        if !self.test.matches(&record) {
            return Ok(None);
        }
        *bytes_left = bytes_left.checked_sub(text.len()).ok_or_else(BooksError::too_long)?;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Books;
    use super::*;
    use model::array::IndexSet;
    use model::id::{JobId, RunId};
    use model::run::JobState;
    use model::time::Timestamp;

    /// How SQLite goes about it, one line a step.
    fn plan(connection: &Connection, filter: &HistoryFilter) -> Vec<String> {
        let conditions = Conditions::of(filter);
        let text = format!("EXPLAIN QUERY PLAN {}", conditions.select());
        let mut statement = connection.prepare(&text).unwrap();
        let steps = statement.query_map(params_from_iter(conditions.values), |row| row.get(3));
        steps.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    #[test]
    fn each_filter_reads_by_an_index_and_not_every_job() {
        let folder = tempfile::tempdir().unwrap();
        let books = Books::open(&folder.path().join("books.db")).unwrap();
        let all = HistoryFilter::default;
        let one = || vec!["x".to_owned()];
        let task = JobRef::tasks(JobId(1), IndexSet::from_range(1, 2));
        let table = [
            HistoryFilter { jobs: vec![task], ..all() },
            HistoryFilter { users: one(), ..all() },
            HistoryFilter { accounts: one(), ..all() },
            HistoryFilter { partitions: one(), ..all() },
            HistoryFilter { names: one(), ..all() },
            HistoryFilter { qos: one(), ..all() },
            HistoryFilter { nodes: one(), ..all() },
            HistoryFilter { runs: vec![RunId::from_random(1)], ..all() },
            HistoryFilter { states: vec![JobState::Failed], ..all() },
            HistoryFilter { from: Some(Timestamp(1)), ..all() },
            HistoryFilter { ended: true, ..all() },
            HistoryFilter { from: Some(Timestamp(1)), until: Some(Timestamp(9)), ..all() },
        ];
        for filter in table {
            let steps = plan(&books.connection, &filter);
            let scans = steps.iter().filter(|step| step.starts_with("SCAN job"));
            assert_eq!(scans.count(), 0, "{filter:?} {steps:#?}");
        }
        let (from, until) = (Some(Timestamp(1)), Some(Timestamp(9)));
        let steps = plan(&books.connection, &HistoryFilter { from, until, ..all() });
        let by_times = |step: &String| step.contains("usage") && step.contains("end_ms>");
        assert!(steps.iter().any(by_times), "{steps:#?}");
        for order in [HistoryOrder::FirstSubmitted, HistoryOrder::LastSubmitted] {
            let steps = plan(&books.connection, &HistoryFilter { order, ..all() });
            let by_index = steps.iter().any(|step| step.contains("jobs_submit"));
            let sorts = steps.iter().any(|step| step.contains("TEMP B-TREE"));
            assert!(by_index && !sorts, "{steps:#?}");
        }
    }
}
