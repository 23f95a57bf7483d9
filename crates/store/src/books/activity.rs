//! What was done beside the jobs, and by whom: the audit trail.

use model::activity::{Activity, ActivityFilter};
use model::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::BooksError;

/// The activities of one answer.
const ACTIVITIES_MAX: u32 = 100_000;

/// A number that is there already is the same activity.
pub(super) fn put(
    transaction: &Transaction<'_>,
    activities: &[Activity],
) -> Result<(), BooksError> {
    for activity in activities {
        let number = activity.number;
        let text = serde_json::to_string(activity)
            .map_err(|source| BooksError::Activity { number, source })?;
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO activities (number, at_ms, actor, record)
                 VALUES (?1, ?2, ?3, ?4)",
            )
            .and_then(|mut insert| {
                insert.execute(params![number, activity.at.millis(), activity.actor, text])
            })
            .map_err(BooksError::sql("write"))?;
    }
    Ok(())
}

pub(super) fn query(
    connection: &Connection,
    filter: &ActivityFilter,
) -> Result<Vec<Activity>, BooksError> {
    let read = || BooksError::sql("read");
    let actors = serde_json::json!(filter.actors).to_string();
    let mut select = connection
        .prepare_cached(
            "SELECT number, record FROM activities
             WHERE at_ms BETWEEN ?1 AND ?2
                 AND (?3 = '[]' OR actor IN (SELECT value FROM json_each(?3)))
             ORDER BY number DESC LIMIT ?4",
        )
        .map_err(read())?;
    let bounds = (
        filter.from.map_or(i64::MIN, Timestamp::millis),
        filter.until.map_or(i64::MAX, Timestamp::millis),
    );
    let rows = select
        .query_map(params![bounds.0, bounds.1, actors, ACTIVITIES_MAX], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?))
        })
        .map_err(read())?;
    let mut found = Vec::new();
    for row in rows {
        let (number, text) = row.map_err(read())?;
        let activity = serde_json::from_str(&text)
            .map_err(|source| BooksError::Activity { number, source })?;
        found.push(activity);
    }
    found.reverse();
    Ok(found)
}
