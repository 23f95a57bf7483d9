//! The tables of the books, and how an older file becomes a newer one.
//!
//! A row is the whole record as JSON beside the columns that questions narrow by: a new field of a
//! record needs no new schema.

use rusqlite::{Connection, TransactionBehavior};

use super::BooksError;

/// `UPGRADES[n]` turns schema n into n + 1. A released one is never edited.
const UPGRADES: [&str; 6] = [V1, V2, V3, V4, V5, V6];

/// `entry` grows with each write, so the highest entry of a job is its last attempt: attempt 0, a
/// cancellation while waiting for another try, may well come after attempt 1.
const V1: &str = "
CREATE TABLE progress (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    applied_seq INTEGER NOT NULL
);
INSERT INTO progress VALUES (1, 0);

CREATE TABLE jobs (
    entry INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    -- Which waiting tasks of an array this is about, '' for all else: several cancellations of
    -- waiting tasks have the array's id and attempt 0 in common.
    array_pending TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    array_job_id INTEGER,
    array_task_id INTEGER,
    name TEXT NOT NULL,
    user TEXT NOT NULL,
    account TEXT NOT NULL,
    -- NULL where a job that never started names several.
    partition TEXT,
    qos TEXT NOT NULL,
    state TEXT NOT NULL,
    submit_ms INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    record TEXT NOT NULL,
    UNIQUE (job_id, array_pending, attempt)
);
CREATE INDEX jobs_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL;
CREATE INDEX jobs_user ON jobs (user, end_ms);
CREATE INDEX jobs_account ON jobs (account, end_ms);
CREATE INDEX jobs_partition ON jobs (partition, end_ms);
CREATE INDEX jobs_qos ON jobs (qos, end_ms);
CREATE INDEX jobs_name ON jobs (name);
CREATE INDEX jobs_state ON jobs (state, end_ms);
CREATE INDEX jobs_end ON jobs (end_ms);

CREATE TABLE job_nodes (
    node TEXT NOT NULL,
    entry INTEGER NOT NULL REFERENCES jobs ON DELETE CASCADE,
    PRIMARY KEY (node, entry)
) WITHOUT ROWID;
CREATE INDEX job_nodes_entry ON job_nodes (entry);
";

/// The scripts and environments that ended jobs keep, each once, with the end of the last job that had it.
const V2: &str = "
CREATE TABLE kept_texts (
    blob TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL,
    last_end_ms INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX kept_texts_end ON kept_texts (last_end_ms);
";

/// Runs that were deleted, and the jobs of a run.
const V3: &str = "
CREATE TABLE deleted_runs (run TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX jobs_run ON jobs (record ->> 'run');
";

/// The order of dstack's `runs/list`.
const V4: &str = "CREATE INDEX jobs_submit ON jobs (submit_ms);";

/// What was done beside the jobs, and by whom.
const V5: &str = "
CREATE TABLE activities (
    number INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    actor TEXT,
    record TEXT NOT NULL
);
CREATE INDEX activities_at ON activities (at_ms);
CREATE INDEX activities_actor ON activities (actor, at_ms);
";

/// When each attempt waited and ran, in a narrow table in the order of time: windows of time and reports of usage read that, and not
/// whole records. `span` is the class of the time from submit to end (`SPANS_MS` in `usage.rs`): what lies in a window is found by its
/// ends alone, class by class. What attempts of a report have in common is noted once.
/// The records of before are put in by [`backfill_usage`], up to `last_entry`.
const V6: &str = "
CREATE TABLE usage_keys (id INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE);
CREATE TABLE usage (
    span INTEGER NOT NULL,
    end_ms INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    submit_ms INTEGER NOT NULL,
    eligible_ms INTEGER NOT NULL,
    start_ms INTEGER,
    suspended_s INTEGER NOT NULL,
    usage_key INTEGER NOT NULL,
    PRIMARY KEY (span, end_ms, entry)
) WITHOUT ROWID;
CREATE TABLE usage_backfill (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    done INTEGER NOT NULL,
    last_entry INTEGER NOT NULL
);
INSERT INTO usage_backfill SELECT 1, 0, ifnull(max(entry), 0) FROM jobs;
CREATE TRIGGER jobs_usage AFTER DELETE ON jobs BEGIN
    DELETE FROM usage WHERE entry = OLD.entry AND end_ms = OLD.end_ms
        AND span = CASE WHEN OLD.end_ms - OLD.submit_ms < 600000 THEN 0
            WHEN OLD.end_ms - OLD.submit_ms < 10800000 THEN 1
            WHEN OLD.end_ms - OLD.submit_ms < 172800000 THEN 2
            WHEN OLD.end_ms - OLD.submit_ms < 2592000000 THEN 3 ELSE 4 END;
END;
";

/// The entries of one transaction of the backfill: what is done stays so, if a start is broken off that takes too long.
const BACKFILL_ENTRIES: i64 = 100_000;

const BACKFILL_KEYS: &str = "INSERT OR IGNORE INTO usage_keys (content)
    SELECT json_object('account', account, 'user', user, 'wckey', record ->> 'wckey',
        'cpus', ifnull(record ->> 'cpus', 0), 'req', json(ifnull(record -> 'req_tres', '{}')),
        'alloc', json(ifnull(record -> 'alloc_tres', '{}')))
    FROM jobs WHERE entry > ?1 AND entry <= ?2 AND json_valid(record)";
const BACKFILL: &str = "INSERT INTO usage
    SELECT CASE WHEN job.end_ms - job.submit_ms < 600000 THEN 0
            WHEN job.end_ms - job.submit_ms < 10800000 THEN 1
            WHEN job.end_ms - job.submit_ms < 172800000 THEN 2
            WHEN job.end_ms - job.submit_ms < 2592000000 THEN 3 ELSE 4 END,
        job.end_ms, job.entry, job.submit_ms, ifnull(job.record ->> 'eligible', job.submit_ms),
        job.record ->> 'start', ifnull(job.record ->> 'suspended_s', 0), usage_keys.id
    FROM jobs AS job CROSS JOIN usage_keys ON usage_keys.content = json_object(
        'account', account, 'user', user, 'wckey', record ->> 'wckey',
        'cpus', ifnull(record ->> 'cpus', 0), 'req', json(ifnull(record -> 'req_tres', '{}')),
        'alloc', json(ifnull(record -> 'alloc_tres', '{}')))
    WHERE job.entry > ?1 AND job.entry <= ?2 AND json_valid(record)";

fn version(connection: &Connection) -> Result<i64, BooksError> {
    connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(BooksError::sql("read the version of"))
}

/// Refuses books that a newer program has written.
pub(super) fn check(connection: &Connection) -> Result<usize, BooksError> {
    let (found, known) = (version(connection)?, UPGRADES.len() as i64);
    usize::try_from(found)
        .ok()
        .filter(|found| *found <= UPGRADES.len())
        .ok_or(BooksError::Newer { found, known })
}

pub(super) fn upgrade(connection: &mut Connection) -> Result<(), BooksError> {
    let found = check(connection)?;
    for (version, sql) in UPGRADES.iter().enumerate().skip(found) {
        let mut step = || -> rusqlite::Result<()> {
            let behaviour = TransactionBehavior::Immediate;
            let transaction = connection.transaction_with_behavior(behaviour)?;
            transaction.execute_batch(sql)?;
            transaction.pragma_update(None, "user_version", version as i64 + 1)?;
            transaction.commit()
        };
        step().map_err(BooksError::sql("upgrade"))?;
    }
    while backfill_usage(connection).map_err(BooksError::sql("upgrade"))? {}
    Ok(())
}

/// Puts the times of some records of before into the narrow table; false once all are there.
fn backfill_usage(connection: &mut Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT done, last_entry FROM usage_backfill";
    let (done, last): (i64, i64) =
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if done >= last {
        return Ok(false);
    }
    let upto = last.min(done + BACKFILL_ENTRIES);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute(BACKFILL_KEYS, [done, upto])?;
    transaction.execute(BACKFILL, [done, upto])?;
    transaction.execute("UPDATE usage_backfill SET done = ?1", [upto])?;
    transaction.commit()?;
    tracing::info!("the books are upgraded: {upto} of {last} records");
    Ok(true)
}
