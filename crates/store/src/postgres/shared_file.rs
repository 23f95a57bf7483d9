//! Small files that every server of a cluster needs, whole and by name. Their bytes are opaque here: the servers seal them.

use super::connection::Database;
use super::error::DatabaseError;
use super::schema::{MIGRATION_LOCK, check_identity};

const READ: &str = "SELECT name, content FROM sluice.shared_file ORDER BY name";
const READ_ONE: &str = "SELECT content FROM sluice.shared_file WHERE name = $1";
const PUT: &str = "WITH leads AS (SELECT 1 FROM sluice.lease WHERE epoch = $1 FOR SHARE)
    INSERT INTO sluice.shared_file (name, content) SELECT $2::text, $3::bytea FROM leads
    ON CONFLICT (name) DO UPDATE SET content = EXCLUDED.content";
const IS_ANY: &str = "SELECT EXISTS (SELECT 1 FROM sluice.shared_file)";
const INSERT: &str = "INSERT INTO sluice.shared_file (name, content) VALUES ($1, $2)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedFile {
    pub name: String,
    pub content: Vec<u8>,
}

impl SharedFile {
    /// All files, by name.
    pub fn read_all(database: &Database) -> Result<Vec<Self>, DatabaseError> {
        let rows = database.ask(|session| session.query(READ, &[]))?;
        Ok(rows.iter().map(|row| Self { name: row.get(0), content: row.get(1) }).collect())
    }

    /// The content of one, if it is there.
    pub fn read(database: &Database, name: &str) -> Result<Option<Vec<u8>>, DatabaseError> {
        let name = name.to_owned();
        let rows = database.ask(move |session| session.query(READ_ONE, &[&name]))?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    /// Puts the file there under the lease of this epoch, in the place of the one before.
    pub fn put(self, database: &Database, epoch: i64) -> Result<(), DatabaseError> {
        let Self { name, content } = self;
        let put = database.ask(move |session| session.execute(PUT, &[&epoch, &name, &content]))?;
        if put == 1 { Ok(()) } else { Err(DatabaseError::Deposed) }
    }

    /// Puts the first files of the cluster of this identity there, before anybody leads. Where there are some already, nothing
    /// is changed: of two servers that begin a cluster at once, one has its files taken.
    pub fn put_first(
        database: &Database,
        identity: &str,
        files: Vec<Self>,
    ) -> Result<(), DatabaseError> {
        let (shown, identity) = (database.shown().to_owned(), identity.to_owned());
        database.ask(move |session| {
            let mut transaction = session.transaction()?;
            transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])?;
            let is_any: bool = transaction.query_one(IS_ANY, &[])?.get(0);
            if is_any {
                return Ok(());
            }
            check_identity(&mut transaction, &identity)?
                .map_err(|why| DatabaseError::Unfit(format!("{shown}: {why}")))?;
            for file in &files {
                transaction.execute(INSERT, &[&file.name, &file.content])?;
            }
            transaction.commit()
        })
    }
}
