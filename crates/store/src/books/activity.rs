//! What was done beside the jobs, and by whom: the audit trail. It is bounded: of too many entries the oldest go of whoever has
//! most, so that nobody pushes out what others did.

use model::activity::{Activity, ActivityFilter};
use model::bounds::KEPT_ACTIVITIES;
use model::time::Timestamp;
use rusqlite::{Connection, Transaction, params};

use super::BooksError;

/// The number of entries is looked at each time that so many more were noted.
const TRIM_INTERVAL: u64 = 1000;

/// The activities of one answer, and those that are looked at in one go: the reader is not held for longer.
pub const ACTIVITIES_MAX: usize = 100_000;
pub(super) const ACTIVITIES_PAGE: usize = 5000;

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
    if activities.iter().any(|activity| activity.number.is_multiple_of(TRIM_INTERVAL)) {
        trim(transaction, KEPT_ACTIVITIES.most).map_err(BooksError::sql("write"))?;
    }
    Ok(())
}

/// Removes what is more than `most`: of whoever has most, the oldest. What the cluster did by itself counts as one more actor.
fn trim(transaction: &Transaction<'_>, most: usize) -> rusqlite::Result<()> {
    let count = "SELECT COUNT(*) FROM activities";
    let mut excess = transaction.query_row(count, [], |row| row.get::<_, usize>(0))?;
    excess = excess.saturating_sub(most);
    while excess > 0 {
        let mut largest = transaction.prepare_cached(
            "SELECT actor, COUNT(*) AS entries FROM activities GROUP BY actor
             ORDER BY entries DESC, actor LIMIT 2",
        )?;
        let found = largest
            .query_map([], |row| Ok((row.get::<_, Option<String>>(0)?, row.get::<_, usize>(1)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((actor, entries)) = found.first() else { return Ok(()) };
        let next = found.get(1).map_or(0, |(_, entries)| *entries);
        // As many as he has more than the next one, or a few at a time where both have much the same.
        let removed = (entries - next).max(excess / 10).max(1).min(excess);
        transaction
            .prepare_cached(
                "DELETE FROM activities WHERE number IN (
                     SELECT number FROM activities WHERE actor IS ?1 ORDER BY number LIMIT ?2)",
            )?
            .execute(params![actor, removed])?;
        excess -= removed;
    }
    Ok(())
}

pub(super) fn last_number(connection: &Connection) -> Result<u64, BooksError> {
    connection
        .query_row("SELECT COALESCE(MAX(number), 0) FROM activities", [], |row| row.get(0))
        .map_err(BooksError::sql("read"))
}

/// The entries of one part of the trail that are wanted, the newest first.
#[derive(Debug, Default)]
pub struct ActivityPage {
    pub found: Vec<Activity>,
    /// The next part has numbers below this one; `None` where there is no more that could be wanted.
    pub next: Option<u64>,
}

/// Looks at the newest `page` entries whose number is below `before`, however few of them are wanted: a question that hardly
/// anything answers holds the reader for no longer than another.
pub(super) fn query(
    connection: &Connection,
    filter: &ActivityFilter,
    shown_to: Option<&str>,
    before: Option<u64>,
    page: usize,
) -> Result<ActivityPage, BooksError> {
    let read = || BooksError::sql("read");
    let from = filter.from.map_or(i64::MIN, Timestamp::millis);
    let until = filter.until.map_or(i64::MAX, Timestamp::millis);
    let before = match before {
        Some(number) => i64::try_from(number).unwrap_or(i64::MAX),
        None if filter.until.is_some() => connection
            .prepare_cached("SELECT COALESCE(MAX(number), 0) + 1 FROM activities WHERE at_ms <= ?1")
            .and_then(|mut select| select.query_row([until], |row| row.get(0)))
            .map_err(read())?,
        None => i64::MAX,
    };
    let (oldest, looked_at) = connection
        .prepare_cached(
            "SELECT MIN(number), COUNT(*) FROM
                 (SELECT number FROM activities WHERE number < ?1 ORDER BY number DESC LIMIT ?2)",
        )
        .and_then(|mut select| {
            select.query_row(params![before, page], |row| {
                Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, usize>(1)?))
            })
        })
        .map_err(read())?;
    let Some(oldest) = oldest else { return Ok(ActivityPage::default()) };
    let found = wanted_between(connection, filter, shown_to, (oldest, before))?;
    let has_more = looked_at == page
        && connection
            .prepare_cached(
                "SELECT EXISTS (SELECT 1 FROM activities WHERE at_ms >= ?1 AND number < ?2)",
            )
            .and_then(|mut select| select.query_row([from, oldest], |row| row.get(0)))
            .map_err(read())?;
    let next = u64::try_from(oldest).ok().filter(|_| has_more);
    Ok(ActivityPage { found, next })
}

/// The wanted entries from number `oldest` on, and below `before`.
fn wanted_between(
    connection: &Connection,
    filter: &ActivityFilter,
    shown_to: Option<&str>,
    (oldest, before): (i64, i64),
) -> Result<Vec<Activity>, BooksError> {
    let read = || BooksError::sql("read");
    let actors = serde_json::json!(filter.actors).to_string();
    let nodes = serde_json::json!(filter.nodes).to_string();
    // A plus before a column keeps its index out: the numbers are the narrower bound.
    let mut select = connection
        .prepare_cached(
            "SELECT number, record FROM activities
             WHERE number >= ?7 AND number < ?8
                 AND +at_ms BETWEEN ?1 AND ?2
                 AND (?3 = '[]' OR +actor IN (SELECT value FROM json_each(?3)))
                 AND (?4 = '[]' OR record ->> '$.target.node' IN (SELECT value FROM json_each(?4)))
                 AND (NOT ?5 OR record ->> '$.target.node' IS NOT NULL)
                 AND (?6 IS NULL OR +actor = ?6 OR record ->> '$.target.node' IS NOT NULL)
             ORDER BY number DESC",
        )
        .map_err(read())?;
    let values = params![
        filter.from.map_or(i64::MIN, Timestamp::millis),
        filter.until.map_or(i64::MAX, Timestamp::millis),
        actors,
        nodes,
        filter.about_nodes,
        shown_to,
        oldest,
        before
    ];
    let rows = select
        .query_map(values, |row| Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?)))
        .map_err(read())?;
    let mut found = Vec::new();
    for row in rows {
        let (number, text) = row.map_err(read())?;
        let activity = serde_json::from_str(&text)
            .map_err(|source| BooksError::Activity { number, source })?;
        found.push(activity);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::Books;
    use super::*;
    use model::activity::{ActivityKind, ActivityTarget};

    fn activity(number: u64, actor: Option<&str>) -> Activity {
        Activity {
            number,
            at: Timestamp(number as i64),
            actor: actor.map(str::to_owned),
            target: match actor {
                Some(actor) => ActivityTarget::User(actor.to_owned()),
                None => ActivityTarget::Node(format!("n{}", number % 3)),
            },
            what: ActivityKind::Changed,
            info: String::new(),
        }
    }

    fn books() -> (tempfile::TempDir, Books) {
        let folder = tempfile::tempdir().unwrap();
        let books = Books::open(&folder.path().join("books.db")).unwrap();
        (folder, books)
    }

    fn all(books: &Books, filter: &ActivityFilter, shown_to: Option<&str>) -> Vec<u64> {
        let mut page = query(&books.connection, filter, shown_to, None, 7).unwrap();
        let mut numbers = Vec::new();
        loop {
            numbers.extend(page.found.iter().map(|activity| activity.number));
            let Some(next) = page.next else { return numbers };
            page = query(&books.connection, filter, shown_to, Some(next), 7).unwrap();
        }
    }

    #[test]
    fn trail_is_bounded_and_who_notes_much_loses_his_own() {
        let (_folder, mut books) = books();
        let few = [1, 2, 3].map(|number| activity(number, Some("ada")));
        let loud: Vec<_> = (4..=40).map(|number| activity(number, Some("eve"))).collect();
        let nodes: Vec<_> = (41..=60).map(|number| activity(number, None)).collect();
        books.apply_all(1, &[], &[], &[few.as_slice(), &loud, &nodes].concat()).unwrap();
        let left = |books: &Books, most: usize| {
            let transaction = books.connection.unchecked_transaction().unwrap();
            trim(&transaction, most).unwrap();
            transaction.commit().unwrap();
            all(books, &ActivityFilter::default(), None)
        };
        assert_eq!(left(&books, 60).len(), 60);
        let expected: Vec<u64> = (14..=60).rev().chain([3, 2, 1]).collect();
        assert_eq!(left(&books, 50), expected, "the oldest of who has most");
        let kept = left(&books, 13);
        assert_eq!(kept.len(), 13);
        assert!(kept.ends_with(&[3, 2, 1]), "ada's stay: {kept:?}");
        assert!(kept.starts_with(&[60, 59]), "the newest stay: {kept:?}");
    }

    #[test]
    fn questions_are_narrowed_by_node_actor_and_asker() {
        let (_folder, mut books) = books();
        let noted: Vec<_> = (1..=9)
            .map(|number| activity(number, [None, Some("ada"), Some("eve")][number as usize % 3]))
            .collect();
        books.apply_all(1, &[], &[], &noted).unwrap();
        let filter = ActivityFilter::default;
        assert_eq!(all(&books, &ActivityFilter { about_nodes: true, ..filter() }, None), [9, 6, 3]);
        let of_node = ActivityFilter { nodes: vec!["n0".into()], ..filter() };
        assert_eq!(all(&books, &of_node, None), [9, 6, 3]);
        let elsewhere = ActivityFilter { nodes: vec!["n1".into()], ..filter() };
        assert_eq!(all(&books, &elsewhere, None), [0; 0]);
        assert_eq!(all(&books, &filter(), Some("ada")), [9, 7, 6, 4, 3, 1], "her own, and nodes");
        let hers = ActivityFilter { actors: vec!["eve".into()], ..filter() };
        assert_eq!(all(&books, &hers, Some("ada")), [0; 0]);
        let page = query(&books.connection, &filter(), None, Some(4), 7).unwrap();
        assert_eq!(page.found.iter().map(|a| a.number).collect::<Vec<_>>(), [3, 2, 1]);
    }

    /// Others read the books between two pages.
    #[test]
    fn question_that_nothing_answers_looks_at_one_page_at_a_time_and_at_no_more_than_its_times() {
        let (_folder, mut books) = books();
        let noted: Vec<_> = (1..=100).map(|number| activity(number, Some("ada"))).collect();
        books.apply_all(1, &[], &[], &noted).unwrap();
        let ask = |filter: &ActivityFilter, before| {
            let page = query(&books.connection, filter, None, before, 30).unwrap();
            (page.found.len(), page.next)
        };
        let nobody = ActivityFilter { nodes: vec!["n1".into()], ..ActivityFilter::default() };
        assert_eq!(ask(&nobody, None), (0, Some(71)));
        assert_eq!(ask(&nobody, Some(71)), (0, Some(41)));
        assert_eq!(ask(&nobody, Some(11)), (0, None), "the last page");
        let within = |from, until| ActivityFilter {
            from: Some(Timestamp(from)),
            until: Some(Timestamp(until)),
            ..ActivityFilter::default()
        };
        assert_eq!(ask(&within(20, 40), None), (21, None), "begun at its end, ended at its begin");
        assert_eq!(ask(&within(5, 40), None), (30, Some(11)));
        assert_eq!(ask(&within(5, 40), Some(11)), (6, None));
        assert_eq!(ask(&within(200, 300), None), (0, None));
    }
}
