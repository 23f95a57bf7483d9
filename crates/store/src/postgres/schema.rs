//! The tables, in a schema of their own, with their versions. A database that cannot be used is refused before it is changed.

use super::connection::Database;
use super::error::DatabaseError;
use super::session::{Session, Transaction};

/// Each brings the schema from the version before to the next. A step that was released is never changed.
const MIGRATIONS: [&str; 7] = [
    include_str!("migration_1.sql"),
    include_str!("migration_2.sql"),
    include_str!("migration_3.sql"),
    include_str!("migration_4.sql"),
    include_str!("migration_5.sql"),
    include_str!("migration_6.sql"),
    include_str!("migration_7.sql"),
];

/// The oldest PostgreSQL that is taken.
const SERVER_VERSION_MIN: i32 = 130_000;
/// Two servers that start at once make one schema: "sluice" in ASCII.
pub(super) const MIGRATION_LOCK: i64 = 0x736c_7569_6365;

/// Stands before the identity of a cluster whose state has left the database.
const MOVED: &str = "moved to files: ";

/// Makes the database ready for the cluster of this identity: checks it, brings the schema up to date, and notes the identity
/// in an empty one.
pub fn prepare(database: &Database, identity: &str) -> Result<(), DatabaseError> {
    let identity = identity.to_owned();
    bring_up_to_date_and(database, move |transaction| check_identity(transaction, &identity))
}

/// Refuses a database that is not, or no longer, the store of the cluster of this identity. The schema is left as it is: one that
/// a newer program has brought up to date does not end a server that runs.
pub fn check_cluster(database: &Database, identity: &str) -> Result<(), DatabaseError> {
    let (shown, identity) = (database.shown().to_owned(), identity.to_owned());
    database.ask(move |session| {
        let mut transaction = session.transaction()?;
        let checked = check_identity(&mut transaction, &identity)?;
        transaction.commit()?;
        checked.map_err(|why| DatabaseError::Unfit(format!("{shown}: {why}")))
    })
}

/// As [`prepare`], for a state that leaves the database: also one that was marked as moved by an attempt whose end is not known.
pub fn prepare_to_leave(database: &Database, identity: &str) -> Result<(), DatabaseError> {
    let identity = identity.to_owned();
    bring_up_to_date_and(database, move |transaction| {
        let moved = format!("{MOVED}{identity}");
        let sql = "SELECT 1 FROM sluice.cluster WHERE identity = $1";
        match transaction.query_opt(sql, &[&moved])? {
            Some(_) => Ok(Ok(())),
            None => check_identity(transaction, &identity),
        }
    })
}

/// Notes under the lease of this epoch that the state has left the database for files: nobody leads with it from then on. A
/// program that does not know the mark takes it for another cluster's.
pub fn mark_moved(database: &Database, epoch: i64) -> Result<(), DatabaseError> {
    database.ask(move |session| {
        let mut transaction = session.leaders_transaction(epoch)?;
        let sql = "UPDATE sluice.cluster SET identity = $1::text || identity \
                   WHERE NOT starts_with(identity, $1::text)";
        transaction.execute(sql, &[&MOVED])?;
        transaction.commit()
    })
}

/// As [`prepare`], without an identity: for a server that has its keys from the database.
pub fn bring_up_to_date(database: &Database) -> Result<(), DatabaseError> {
    bring_up_to_date_and(database, |_| Ok(Ok(())))
}

fn bring_up_to_date_and(
    database: &Database,
    then: impl FnOnce(&mut Transaction<'_>) -> Checked + Send + 'static,
) -> Result<(), DatabaseError> {
    let shown = database.shown().to_owned();
    database.ask(move |session| {
        let unfit = |why: String| DatabaseError::Unfit(format!("{shown}: {why}"));
        check_server(session)?.map_err(&unfit)?;
        let mut transaction = session.transaction()?;
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])?;
        migrate(&mut transaction)?.map_err(&unfit)?;
        then(&mut transaction)?.map_err(&unfit)?;
        transaction.commit()
    })
}

/// Refuses a database without a schema, or with one of a newer program, and changes nothing.
pub fn check(database: &Database) -> Result<(), DatabaseError> {
    let shown = database.shown().to_owned();
    database.ask(move |session| {
        let unfit = |why: String| DatabaseError::Unfit(format!("{shown}: {why}"));
        let mut transaction = session.transaction()?;
        match version(&mut transaction)? {
            None => Err(unfit("no server has kept its state there".into())),
            Some(version) => refuse_newer(version).map_err(unfit),
        }
    })
}

/// Refuses a database whose state has left it for files.
pub fn refuse_moved(database: &Database) -> Result<(), DatabaseError> {
    let shown = database.shown().to_owned();
    database.ask(move |session| {
        let moved = session
            .query("SELECT 1 FROM sluice.cluster WHERE starts_with(identity, $1)", &[&MOVED])?;
        if moved.is_empty() {
            return Ok(());
        }
        Err(DatabaseError::Unfit(format!("{shown}: the state was moved from it to files")))
    })
}

/// What the check of a database says: the outer result is the database's, the inner one the check's.
pub(super) type Checked = Result<Result<(), String>, DatabaseError>;

fn check_server(session: &mut Session) -> Checked {
    let sql = "SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), \
               pg_is_in_recovery() OR current_setting('transaction_read_only')::bool";
    let rows = session.query(sql, &[])?;
    let Some(row) = rows.first() else { return Ok(Err("it says nothing of itself".into())) };
    let (version, encoding, is_read_only): (i32, String, bool) =
        (row.get(0), row.get(1), row.get(2));
    if version < SERVER_VERSION_MIN {
        let found = version / 10_000;
        return Ok(Err(format!("PostgreSQL {found} is too old; 13 or newer is needed")));
    }
    if encoding != "UTF8" {
        return Ok(Err(format!(
            "its encoding is {encoding}; create the database with ENCODING 'UTF8'"
        )));
    }
    if is_read_only {
        return Ok(Err("it is read-only; name the server that can be written to".into()));
    }
    Ok(Ok(()))
}

fn migrate(transaction: &mut Transaction<'_>) -> Checked {
    let version = version(transaction)?.unwrap_or(0);
    let known = MIGRATIONS.len() as i32;
    if let Err(why) = refuse_newer(version) {
        return Ok(Err(why));
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(version).unwrap_or(0)) {
        transaction.batch_execute(step)?;
    }
    if version < known {
        transaction.execute("UPDATE sluice.schema_version SET version = $1", &[&known])?;
    }
    Ok(Ok(()))
}

/// The version of the schema, where there is one.
fn version(transaction: &mut Transaction<'_>) -> Result<Option<i32>, DatabaseError> {
    let exists = "SELECT to_regclass('sluice.schema_version') IS NOT NULL";
    let exists: bool = transaction.query_one(exists, &[])?.get(0);
    if !exists {
        return Ok(None);
    }
    Ok(Some(transaction.query_one("SELECT version FROM sluice.schema_version", &[])?.get(0)))
}

fn refuse_newer(version: i32) -> Result<(), String> {
    let known = MIGRATIONS.len() as i32;
    if version <= known {
        return Ok(());
    }
    Err(format!(
        "its schema has version {version}, of a newer program; this one knows {known}: nothing was changed"
    ))
}

pub(super) fn check_identity(transaction: &mut Transaction<'_>, identity: &str) -> Checked {
    let Some(row) = transaction.query_opt("SELECT identity FROM sluice.cluster", &[])? else {
        transaction.execute("INSERT INTO sluice.cluster (identity) VALUES ($1)", &[&identity])?;
        return Ok(Ok(()));
    };
    let found: String = row.get(0);
    if found == identity {
        return Ok(Ok(()));
    }
    if found.strip_prefix(MOVED) == Some(identity) {
        let why = "the state was moved from it to files: start that server without --store; \
                   to move the state here again, drop the schema sluice first";
        return Ok(Err(why.into()));
    }
    Ok(Err(format!(
        "it is the store of another cluster, {found}, and this server's keys are of {identity}; \
         a further server of that cluster needs a copy of its server/keys, or --store-key-file and a new state folder"
    )))
}
