//! The history as a server reads it that another writes: what is committed is told by the database, fetched and checked as at a
//! recovery, and handed on commit by commit.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Database;
use super::error::DatabaseError;
use super::journal::replay_stored;
use super::{from_bigint, to_bigint};
use crate::journal::{JournalError, Position, Record, Recovery};

const FRAMES: &str = "SELECT last_seq, frame FROM sluice.journal
    WHERE last_seq > $1 ORDER BY last_seq LIMIT $2";

const END: &str = "SELECT seq FROM sluice.head";

/// One commit as it is stored.
pub struct FetchedFrame {
    last_seq: u64,
    bytes: Vec<u8>,
}

pub struct PostgresReader {
    database: Arc<Database>,
    at: Position,
    term: u64,
}

impl PostgresReader {
    /// The most commits that are fetched at once: a page is in memory as a whole, and a frame may have 16 MiB. A page with fewer has
    /// all that was committed when it was asked for.
    pub const PAGE: usize = 16;

    /// Reads on from here: the position of a snapshot.
    pub fn new(database: Arc<Database>, from: Position) -> Self {
        Self { database, at: from, term: 0 }
    }

    /// The end of the last commit that was taken in.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Where the history ends in the database.
    pub fn end_seq(&self) -> Result<u64, DatabaseError> {
        let rows = self.database.ask(|session| session.query(END, &[]))?;
        Ok(rows.first().map_or(0, |row| from_bigint(row.get(0))))
    }

    /// Waits until something may have been committed, or the time is over; whether a lease was given up meanwhile.
    pub fn await_commit(&self, timeout: Duration) -> Result<bool, DatabaseError> {
        self.database.ask(move |session| session.await_notice(timeout))
    }

    /// The next commits; none when all were taken in.
    pub fn fetch(&self) -> Result<Vec<FetchedFrame>, DatabaseError> {
        let (after, most) = (to_bigint(self.at.seq), Self::PAGE as i64);
        let rows = self.database.ask(move |session| session.query(FRAMES, &[&after, &most]))?;
        let frame = |row: &tokio_postgres::Row| FetchedFrame {
            last_seq: from_bigint(row.get(0)),
            bytes: row.get(1),
        };
        Ok(rows.iter().map(frame).collect())
    }

    /// Hands the events of the next commit to `replay`. After an error it is not known how many were: the state is to be read
    /// anew. A commit that does not follow is one too: those between were removed, as a snapshot has them.
    pub fn take_in(
        &mut self,
        frame: &FetchedFrame,
        mut replay: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(), JournalError> {
        let stored = (frame.last_seq, &frame.bytes[..]);
        let (before, snapshot) = ((&self.at, self.term), self.at.seq);
        let mut recovery = Recovery::default();
        (self.at, self.term) = replay_stored(stored, before, snapshot, &mut recovery, &mut replay)?;
        Ok(())
    }
}
