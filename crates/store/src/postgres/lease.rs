//! Who leads: one row with the holder's name, an epoch that grows with every change of hands, and a time until which it is
//! valid. The time is the database's alone; no server's clock is compared with another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Database;
use super::error::DatabaseError;

/// Takes the lease if nobody holds it. The head row gets the epoch in the same statement, so that what a server before has
/// under way is either done before or refused. A lease of more than two lives was taken before the database's clock was set
/// back: nobody would lead until the clock has come there again.
const TAKE: &str = "WITH taken AS (
        UPDATE sluice.lease SET epoch = epoch + 1, holder = $1,
            valid_until = clock_timestamp() + $2::float8 * interval '1 second'
        WHERE valid_until <= clock_timestamp()
            OR valid_until > clock_timestamp() + 2 * $2::float8 * interval '1 second'
        RETURNING epoch)
    UPDATE sluice.head SET epoch = taken.epoch FROM taken RETURNING taken.epoch";
const RENEW: &str = "UPDATE sluice.lease
    SET valid_until = clock_timestamp() + $2::float8 * interval '1 second' WHERE epoch = $1";
const RELEASE: &str = "UPDATE sluice.lease SET valid_until = '-infinity' WHERE epoch = $1
    RETURNING pg_notify('sluice', 'lease')";
const LEADER: &str = "SELECT holder, epoch, valid_until > clock_timestamp() FROM sluice.lease";

/// Who is written down as the leader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub holder: String,
    pub epoch: i64,
    /// Whether its lease has not lapsed.
    pub is_valid: bool,
}

pub enum Taken {
    Leading(Lease),
    /// Somebody else leads.
    Waiting(Leader),
}

/// The right to write, until another server has taken it.
pub struct Lease {
    database: Arc<Database>,
    epoch: i64,
    life: Duration,
    is_released: AtomicBool,
}

impl Lease {
    /// Takes the lease for `life`, if nobody holds it.
    pub fn take(
        database: &Arc<Database>,
        holder: &str,
        life: Duration,
    ) -> Result<Taken, DatabaseError> {
        let (holder, seconds) = (holder.to_owned(), life.as_secs_f64());
        let taken = database.ask(move |session| session.query(TAKE, &[&holder, &seconds]))?;
        if let Some(row) = taken.first() {
            return Ok(Taken::Leading(Self {
                database: database.clone(),
                epoch: row.get(0),
                life,
                is_released: AtomicBool::new(false),
            }));
        }
        Ok(Taken::Waiting(Leader::read(database)?))
    }

    pub fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Keeps the lease for another life; one that was given up stays so. [`DatabaseError::Deposed`] if another server has it.
    pub fn renew(&self) -> Result<(), DatabaseError> {
        if self.is_released() {
            return Ok(());
        }
        let (epoch, seconds) = (self.epoch, self.life.as_secs_f64());
        let renewed =
            self.database.ask(move |session| session.execute(RENEW, &[&epoch, &seconds]))?;
        if renewed == 1 { Ok(()) } else { Err(DatabaseError::Deposed) }
    }

    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// Lets another server take over at once. A session that was lost since it was used last is found out by the question, which is
    /// asked once more in a new one.
    pub fn release(&self) -> Result<(), DatabaseError> {
        self.is_released.store(true, Ordering::Release);
        let epoch = self.epoch;
        let release = || self.database.ask(|session| session.execute(RELEASE, &[&epoch])).map(drop);
        match release() {
            Err(DatabaseError::Unreachable(_)) => release(),
            released => released,
        }
    }
}

impl Leader {
    pub fn read(database: &Database) -> Result<Self, DatabaseError> {
        let rows = database.ask(|session| session.query(LEADER, &[]))?;
        let row = rows.first().ok_or_else(|| {
            DatabaseError::Unfit(format!("{}: the row of the lease is missing", database.shown()))
        })?;
        Ok(Self { holder: row.get(0), epoch: row.get(1), is_valid: row.get(2) })
    }
}
