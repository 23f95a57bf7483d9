//! All that the books have, in parts, for books that are made anew elsewhere.

use model::activity::Activity;
use model::id::RunId;
use model::record::JobRecord;
use rusqlite::{Connection, params};

use super::BooksError;

/// Rows of one part.
pub const PART_ROWS: u64 = 512;

/// One part: ended attempts, runs that were deleted, or what was done beside the jobs.
#[derive(Debug, Default)]
pub struct BooksPart {
    pub records: Vec<JobRecord>,
    pub deleted: Vec<RunId>,
    pub activities: Vec<Activity>,
}

/// How many parts there are.
pub(super) fn parts(connection: &Connection) -> Result<u64, BooksError> {
    let mut parts = 0;
    for table in ["jobs", "deleted_runs", "activities"] {
        parts += rows(connection, table)?.div_ceil(PART_ROWS);
    }
    Ok(parts)
}

pub(super) fn rows(connection: &Connection, table: &str) -> Result<u64, BooksError> {
    let sql = format!("SELECT COUNT(*) FROM {table}");
    connection.query_row(&sql, [], |row| row.get(0)).map_err(BooksError::sql("read"))
}

/// Hands out every part, in the order in which its rows came.
pub(super) fn each_part<E: From<BooksError>>(
    connection: &Connection,
    mut take: impl FnMut(BooksPart) -> Result<(), E>,
) -> Result<(), E> {
    let mut last = 0;
    loop {
        let rows = texts(
            connection,
            "SELECT entry, record FROM jobs WHERE entry > ?1 ORDER BY entry LIMIT ?2",
            last,
        )?;
        let Some((end, _)) = rows.last() else { break };
        last = *end;
        let records = rows.iter().map(|(entry, text)| {
            let job = u32::try_from(*entry).unwrap_or(u32::MAX);
            serde_json::from_str::<JobRecord>(text)
                .map_err(|source| BooksError::Record { job, source })
        });
        let records = records.collect::<Result<_, BooksError>>()?;
        take(BooksPart { records, ..BooksPart::default() })?;
    }
    for runs in deleted_runs(connection)?.chunks(PART_ROWS as usize) {
        take(BooksPart { deleted: runs.to_vec(), ..BooksPart::default() })?;
    }
    let mut last = 0;
    loop {
        let rows = texts(
            connection,
            "SELECT number, record FROM activities WHERE number > ?1 ORDER BY number LIMIT ?2",
            last,
        )?;
        let Some((end, _)) = rows.last() else { break };
        last = *end;
        let activities = rows.iter().map(|(number, text)| {
            let number = u64::try_from(*number).unwrap_or(0);
            serde_json::from_str::<Activity>(text)
                .map_err(|source| BooksError::Activity { number, source })
        });
        let activities = activities.collect::<Result<_, BooksError>>()?;
        take(BooksPart { activities, ..BooksPart::default() })?;
    }
    Ok(())
}

/// The next rows behind `last`: a number and a text each.
fn texts(connection: &Connection, sql: &str, last: i64) -> Result<Vec<(i64, String)>, BooksError> {
    let read = || BooksError::sql("read");
    let mut select = connection.prepare_cached(sql).map_err(read())?;
    let rows = select
        .query_map(params![last, PART_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(read())?;
    rows.collect::<rusqlite::Result<_>>().map_err(read())
}

fn deleted_runs(connection: &Connection) -> Result<Vec<RunId>, BooksError> {
    let read = || BooksError::sql("read");
    let mut select =
        connection.prepare("SELECT run FROM deleted_runs ORDER BY run").map_err(read())?;
    let rows = select.query_map([], |row| row.get::<_, String>(0)).map_err(read())?;
    let texts: Vec<String> = rows.collect::<rusqlite::Result<_>>().map_err(read())?;
    // A text that is no run's is of no run that could be listed.
    Ok(texts.iter().filter_map(|text| serde_json::from_value(text.as_str().into()).ok()).collect())
}
