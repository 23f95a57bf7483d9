//! Who leads: one row with the holder's name, an epoch that grows with every change of hands, and a time until which it is
//! valid. The time is the database's alone; no server's clock is compared with another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::connection::Database;
use super::error::DatabaseError;

/// Whether the lease may be taken, and what time it is. A lease of more than two lives was taken before the database's clock was set
/// back: nobody would lead until the clock has come there again.
const LOOK: &str = "SELECT valid_until <= clock_timestamp()
        OR valid_until > clock_timestamp() + 2 * $1::float8 * interval '1 second',
        extract(epoch FROM clock_timestamp())::float8, holder, epoch, valid_until > clock_timestamp()
    FROM sluice.lease";
/// Takes the lease if nobody holds it, by a time: one that was on its way for so long that nobody waits for its answer would take it
/// for nobody, from whoever leads. The head row gets the epoch in the same statement, so that what a server before has
/// under way is either done before or refused; where that one noted the next bytes is not trusted.
const TAKE: &str = "WITH taken AS (
        UPDATE sluice.lease SET epoch = epoch + 1, holder = $1,
            valid_until = clock_timestamp() + $2::float8 * interval '1 second'
        WHERE (valid_until <= clock_timestamp()
            OR valid_until > clock_timestamp() + 2 * $2::float8 * interval '1 second')
            AND clock_timestamp() < to_timestamp($3::float8)
        RETURNING epoch)
    UPDATE sluice.head SET epoch = taken.epoch, free_file = 0 FROM taken RETURNING taken.epoch";
/// How long after the look a take may begin: less than the part of the time for its answer that a statement leaves to the way.
const TAKE_BEGINS_WITHIN: Duration = Duration::from_secs(1);
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
        let looked = database.ask(|session| session.query(LOOK, &[&seconds]))?;
        let row = looked.first().ok_or_else(|| no_row(database))?;
        if !row.get::<_, bool>(0) {
            let (holder, epoch, is_valid) = (row.get(2), row.get(3), row.get(4));
            return Ok(Taken::Waiting(Leader { holder, epoch, is_valid }));
        }
        let begins_until = row.get::<_, f64>(1) + TAKE_BEGINS_WITHIN.as_secs_f64();
        let taken = database
            .ask(move |session| session.query(TAKE, &[&holder, &seconds, &begins_until]))?;
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
        let row = rows.first().ok_or_else(|| no_row(database))?;
        Ok(Self { holder: row.get(0), epoch: row.get(1), is_valid: row.get(2) })
    }

    /// Whether it leads after whoever had the lease of this epoch.
    pub fn succeeds(&self, epoch: i64) -> bool {
        self.is_valid && self.epoch > epoch
    }
}

fn no_row(database: &Database) -> DatabaseError {
    DatabaseError::Unfit(format!("{}: the row of the lease is missing", database.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_that_could_not_be_given_up_is_no_successors() {
        let leader = |epoch, is_valid| Leader { holder: "h".into(), epoch, is_valid };
        assert!(!leader(7, true).succeeds(7), "its own, until that lapses");
        assert!(!leader(8, false).succeeds(7) && leader(8, true).succeeds(7));
    }
}
