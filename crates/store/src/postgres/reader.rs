//! The history as a server reads it that another writes: what is committed is told by the database, fetched and checked as at a
//! recovery, and handed on commit by commit.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Database;
use super::error::DatabaseError;
use super::frames::{self, FetchedFrame, FramePage};
use super::from_bigint;
use super::journal::replay_stored;
use crate::journal::{JournalError, Position, Record, Recovery};

const END: &str = "SELECT seq FROM sluice.head";

pub struct PostgresReader {
    database: Arc<Database>,
    at: Position,
    term: u64,
}

impl PostgresReader {
    /// The most commits that are fetched at once.
    pub const PAGE: usize = frames::PAGE;

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
    pub fn fetch(&self) -> Result<FramePage, DatabaseError> {
        FramePage::fetch(&self.database, self.at.seq, u64::MAX)
    }

    /// Hands the events of the next commit to `replay`. After an error it is not known how many were: the state is to be read
    /// anew. A commit that does not follow is one too: those between were removed, as a snapshot has them.
    pub fn take_in(
        &mut self,
        frame: &FetchedFrame,
        mut replay: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(), JournalError> {
        let (before, snapshot) = ((&self.at, self.term), self.at.seq);
        let mut recovery = Recovery::default();
        (self.at, self.term) = replay_stored(frame, before, snapshot, &mut recovery, &mut replay)?;
        Ok(())
    }
}
