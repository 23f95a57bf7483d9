//! The journal in PostgreSQL: one row a commit, one statement an append. The frames and the hash chain are those of a journal
//! of files, so a history has the same positions in both.
//!
//! An append moves the head and inserts the frame together, or changes nothing: the head must end where the writer thinks it
//! does, have seen no higher term, and carry the epoch of the writer's lease. The bytes of scripts and environments that the commit
//! needs go in the same statement; where the next ones may lie is noted in the head too. After any error it is not known whether the
//! commit is there; the journal then refuses all further work until it is opened again.

use std::sync::Arc;

use tokio_postgres::types::ToSql;

use super::connection::{Database, Extent};
use super::error::DatabaseError;
use super::frames::{FetchedFrame, FramePage};
use super::{from_bigint, to_bigint};
use crate::frame::{ALIGN, FRAME_HEADER, Fault, Frame, encode, frame_len, hash_at};
use crate::journal::{Hash, HighWater, Journal, JournalError, Loss, Position, Record, Recovery};
use crate::recovery::{Replay, other_version, replay_frame};

/// The name that errors give the journal, where that of files has a file's.
const NAME: &str = "sluice.journal";
/// The largest frame: as in a journal of files, so that a history can move there.
const FRAME_BYTES_MAX: usize = (16 << 20) - 128;

const APPEND: &str = "WITH moved AS (
        UPDATE sluice.head SET seq = $1, chain = $2, term = $3
        WHERE seq = $4 AND term <= $3 AND epoch = $5 RETURNING 1)
    INSERT INTO sluice.journal (last_seq, frame) SELECT $1::bigint, $6::bytea FROM moved";
/// The same with bytes of a file that go with the commit, as those of scripts do, by how their place is known to be free and by the rows
/// that they are. Bytes of a file that is gone or not so long, or that would lie over others, are not written, and nothing else either.
macro_rules! append_with_bytes {
    // By the note of a commit before, in the row that is changed anyway.
    (place noted) => {
        "free_begin = $8::bigint + octet_length($9::bytea)
            WHERE free_file = $7::bigint AND free_begin <= $8::bigint
                AND free_end >= $8::bigint + octet_length($9::bytea)"
    };
    // By a look: the last extent that begins before their end must end before they begin. It is noted if no extent lies behind them.
    (place found) => {
        "free_file = CASE WHEN EXISTS (SELECT 1 FROM sluice.extent
                WHERE file = $7::bigint AND begins >= $8::bigint + octet_length($9::bytea))
                THEN 0 ELSE $7::bigint END,
            free_begin = $8::bigint + octet_length($9::bytea),
            free_end = (SELECT len FROM sluice.file WHERE id = $7::bigint)
            WHERE (SELECT len FROM sluice.file WHERE id = $7::bigint)
                    >= $8::bigint + octet_length($9::bytea)
                AND coalesce(
                    (SELECT begins + octet_length(bytes) FROM sluice.extent
                    WHERE file = $7::bigint AND begins < $8::bigint + octet_length($9::bytea)
                    ORDER BY begins DESC LIMIT 1), 0) <= $8::bigint"
    };
    (rows one) => {
        "SELECT $7::bigint, $8::bigint, $9::bytea FROM moved"
    };
    (rows several) => {
        "SELECT $7::bigint, $8::bigint + part, substring($9::bytea FROM part + 1 FOR $10::int)
            FROM moved, generate_series(0, octet_length($9::bytea) - 1, $10::int) AS part"
    };
    ($place:ident, $rows:ident) => {
        concat!(
            "WITH moved AS (UPDATE sluice.head SET seq = $1, chain = $2, term = $3, ",
            append_with_bytes!(place $place),
            " AND seq = $4 AND term <= $3 AND epoch = $5 RETURNING 1),
            put AS (INSERT INTO sluice.extent (file, begins, bytes) ",
            append_with_bytes!(rows $rows),
            ") INSERT INTO sluice.journal (last_seq, frame)
                SELECT $1::bigint, $6::bytea FROM moved"
        )
    };
}
/// The most bytes of an extent that goes with a commit: its row has a page of the table. Those of many jobs in one row would be moved out
/// of it, in rows of two kilobytes with an entry each in an index.
const EXTENT_ROW_BYTES: i32 = 8000;

const HEAD: &str = "SELECT epoch, seq, chain, term, leased_ids, mark_seq, mark_chain,
        (SELECT coalesce(sum(octet_length(frame)), 0)::bigint FROM sluice.journal)
    FROM sluice.head";
const COMPACT: &str = "WITH gone AS (
        DELETE FROM sluice.journal
        WHERE last_seq <= $1 AND EXISTS (SELECT 1 FROM sluice.head WHERE epoch = $2)
        RETURNING octet_length(frame) AS bytes)
    SELECT coalesce(sum(bytes), 0)::bigint FROM gone";
const LEASE_IDS: &str = "UPDATE sluice.head
    SET leased_ids = greatest(leased_ids, $1), mark_seq = seq, mark_chain = chain
    WHERE epoch = $2 AND seq = $3";

const BEGIN_AT: &str = "UPDATE sluice.head SET seq = $1, chain = $2, term = $3,
        leased_ids = $4, mark_seq = $1, mark_chain = $2
    WHERE epoch = $5 AND seq = 0";

/// Checks and hands on one stored commit. Returns the position after it, and its term.
pub(super) fn replay_stored(
    stored: &FetchedFrame,
    before: (&Position, u64),
    snapshot_seq: u64,
    recovery: &mut Recovery,
    replay: &mut Replay<'_>,
) -> Result<(Position, u64), JournalError> {
    let seq = before.0.seq;
    let frame = Frame::parse(&stored.bytes).map_err(|fault| match fault {
        Fault::Version(version) => other_version(NAME, version.into()),
        Fault::Unfinished(found) => JournalError::damaged(NAME, seq, found),
    })?;
    let at = replay_frame(&frame, (NAME, seq), before, snapshot_seq, recovery, replay)?;
    if frame.len != stored.bytes.len() || at.seq != stored.last_seq {
        let found = format!("the commit that ends at seq {} is stored as another", at.seq);
        return Err(JournalError::damaged(NAME, at.seq, found));
    }
    Ok((at, frame.term))
}

fn begun_already(database: &Database) -> DatabaseError {
    let shown = database.shown();
    DatabaseError::Unfit(format!("{shown}: a cluster has its history there already"))
}

/// The head would have moved: what [`append_with_bytes`] asks of their place does not hold.
fn extent_refused() -> DatabaseError {
    let message = "the bytes of a script that go with the commit have no place: their file is gone or too short, or others are there";
    DatabaseError::Refused { message: message.into(), is_full: false }
}

/// The statement that appends with bytes of a file: their place is noted in the head or has to be found, and they are one row or several.
fn append_with_bytes(is_noted: bool, is_one_row: bool) -> &'static str {
    if is_noted && is_one_row {
        append_with_bytes!(noted, one)
    } else if is_noted {
        append_with_bytes!(noted, several)
    } else if is_one_row {
        append_with_bytes!(found, one)
    } else {
        append_with_bytes!(found, several)
    }
}

/// The row of the head.
struct Head {
    epoch: i64,
    end: Position,
    term: u64,
    high_water: HighWater,
    bytes: u64,
}

pub struct PostgresJournal {
    database: Arc<Database>,
    /// The epoch of the lease that this journal is written under.
    epoch: i64,
    end: Position,
    term: u64,
    high_water: HighWater,
    bytes: u64,
    /// The file in which a commit has noted where the next one's bytes may lie.
    noted_file: Option<i64>,
    is_poisoned: bool,
}

impl PostgresJournal {
    /// As [`crate::LogFile::open`]: every event after the snapshot is checked and handed to `replay`.
    pub fn open(
        database: Arc<Database>,
        epoch: i64,
        snapshot: Position,
        mut replay: impl FnMut(Record<'_>) -> Result<(), String>,
    ) -> Result<(Self, Recovery), JournalError> {
        let head = Head::read(&database)?;
        if head.epoch != epoch {
            return Err(DatabaseError::Deposed.into());
        }
        let recovery = recover(&database, &head, snapshot, &mut replay)?;
        if let Some(loss) = &recovery.loss {
            tracing::error!("{loss}");
        }
        let Head { end, term, high_water, bytes, .. } = head;
        let (noted_file, is_poisoned) = (None, false);
        let journal =
            Self { database, epoch, end, term, high_water, bytes, noted_file, is_poisoned };
        Ok((journal, recovery))
    }

    /// Begins a history that goes on from this position of another, which a snapshot has. One that has begun is left alone.
    pub fn begin_at(
        database: &Database,
        epoch: i64,
        position: Position,
        term: u64,
        leased_ids: u64,
    ) -> Result<(), JournalError> {
        let (seq, chain) = (to_bigint(position.seq), position.chain.to_vec());
        let (term, ids) = (to_bigint(term), to_bigint(leased_ids));
        let begun = database
            .ask(move |session| session.execute(BEGIN_AT, &[&seq, &chain, &term, &ids, &epoch]))?;
        if begun == 1 { Ok(()) } else { Err(begun_already(database).into()) }
    }

    /// Removes what a move that was broken off has left in a database without a history.
    pub fn clear_unbegun(database: &Database, epoch: i64) -> Result<(), JournalError> {
        let is_unbegun = database.ask(move |session| {
            let mut transaction = session.leaders_transaction(epoch)?;
            let begun = "SELECT 1 FROM sluice.head WHERE seq > 0";
            if transaction.query_opt(begun, &[])?.is_some() {
                return Ok(false);
            }
            transaction.batch_execute("DELETE FROM sluice.ended; DELETE FROM sluice.file")?;
            transaction.commit()?;
            Ok(true)
        })?;
        if is_unbegun { Ok(()) } else { Err(begun_already(database).into()) }
    }

    fn usable(&self) -> Result<(), JournalError> {
        if self.is_poisoned { Err(JournalError::Poisoned) } else { Ok(()) }
    }

    /// Why the head did not move.
    fn refusal(&self, term: u64) -> JournalError {
        match Head::read(&self.database) {
            Err(error) => error,
            Ok(head) if head.epoch != self.epoch => DatabaseError::Deposed.into(),
            Ok(head) if head.term > term => {
                JournalError::OldTerm { given: term, current: head.term }
            }
            Ok(head) if head.end.seq != self.end.seq => {
                JournalError::WrongSeq { expected: self.end.seq, found: head.end.seq }
            }
            Ok(_) => extent_refused().into(),
        }
    }
}

impl Journal for PostgresJournal {
    fn append(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
    ) -> Result<u64, JournalError> {
        let extent = if events.is_empty() { None } else { self.database.take_for_journal() };
        self.usable()?;
        if term < self.term {
            return Err(JournalError::OldTerm { given: term, current: self.term });
        }
        if expected_seq != self.end.seq {
            return Err(JournalError::WrongSeq { expected: expected_seq, found: self.end.seq });
        }
        if events.is_empty() {
            return Ok(self.end.seq);
        }
        let needed = frame_len(events, &[]).unwrap_or(usize::MAX);
        if needed > FRAME_BYTES_MAX {
            let (bytes, max) = (needed as u64, FRAME_BYTES_MAX as u64);
            return Err(JournalError::TooLarge { bytes, max });
        }
        let mut frame = Vec::with_capacity(needed);
        let end = encode(&self.end, term, events, &[], &mut frame);
        let (seq, chain, before) =
            (to_bigint(end.seq), end.chain.to_vec(), to_bigint(self.end.seq));
        let (epoch, stored_term) = (self.epoch, to_bigint(term));
        let (noted_file, file) = (self.noted_file, extent.as_ref().map(|extent| extent.file));
        self.is_poisoned = true;
        let appended = self.database.ask(move |session| {
            let Some(Extent { file, begins, bytes }) = &extent else {
                let values: [&(dyn ToSql + Sync); 6] =
                    [&seq, &chain, &stored_term, &before, &epoch, &frame];
                return session.execute(APPEND, &values);
            };
            let values: [&(dyn ToSql + Sync); 10] = [
                &seq,
                &chain,
                &stored_term,
                &before,
                &epoch,
                &frame,
                file,
                begins,
                bytes,
                &EXTENT_ROW_BYTES,
            ];
            let is_one_row = bytes.len() <= EXTENT_ROW_BYTES as usize;
            let values = if is_one_row { &values[..9] } else { &values[..] };
            let mut append =
                |is_noted| session.execute(append_with_bytes(is_noted, is_one_row), values);
            // What was noted may have been taken back: then nothing was changed.
            let appended = if noted_file == Some(*file) { append(true)? } else { 0 };
            if appended == 0 { append(false) } else { Ok(appended) }
        })?;
        if appended != 1 {
            return Err(self.refusal(term));
        }
        self.is_poisoned = false;
        self.noted_file = file.or(self.noted_file);
        (self.end, self.term) = (end, term);
        self.bytes += needed as u64;
        self.database.committed.set();
        Ok(end.seq)
    }

    fn position(&self) -> Position {
        self.end
    }

    fn term(&self) -> u64 {
        self.term
    }

    /// The database says itself when it is full.
    fn free_bytes(&self) -> u64 {
        u64::MAX
    }

    fn commit_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX - FRAME_HEADER - ALIGN
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn compact(&mut self, upto_seq: u64) -> Result<(), JournalError> {
        self.usable()?;
        let (upto, epoch) = (to_bigint(upto_seq), self.epoch);
        let rows = self.database.ask(move |session| session.query(COMPACT, &[&upto, &epoch]))?;
        let gone = rows.first().map_or(0, |row| from_bigint(row.get(0)));
        self.bytes = self.bytes.saturating_sub(gone);
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), JournalError> {
        self.usable()
    }

    fn lease(&mut self, upto: u64) -> Result<(), JournalError> {
        self.usable()?;
        let leased_ids = upto.max(self.high_water.leased_ids);
        let (ids, epoch, seq) = (to_bigint(leased_ids), self.epoch, to_bigint(self.end.seq));
        let leased =
            self.database.ask(move |session| session.execute(LEASE_IDS, &[&ids, &epoch, &seq]))?;
        if leased != 1 {
            return Err(self.refusal(self.term));
        }
        self.high_water = HighWater { leased_ids, seq: self.end.seq, chain: self.end.chain };
        Ok(())
    }

    fn high_water(&self) -> HighWater {
        self.high_water
    }
}

impl Head {
    fn read(database: &Database) -> Result<Self, JournalError> {
        let rows = database.ask(|session| session.query(HEAD, &[]))?;
        let missing = || JournalError::damaged("sluice.head", 0, "its row is missing");
        let row = rows.first().ok_or_else(missing)?;
        let seq = |column: usize| from_bigint(row.get(column));
        Ok(Self {
            epoch: row.get(0),
            end: Position { seq: seq(1), chain: hash(row.get(2))? },
            term: seq(3),
            high_water: HighWater { leased_ids: seq(4), seq: seq(5), chain: hash(row.get(6))? },
            bytes: seq(7),
        })
    }
}

fn hash(bytes: &[u8]) -> Result<Hash, JournalError> {
    if bytes.len() == size_of::<Hash>() {
        return Ok(hash_at(bytes, 0));
    }
    let found = format!("{} bytes where a hash was due", bytes.len());
    Err(JournalError::damaged("sluice.head", 0, found))
}

/// Follows the frames from the snapshot to the head. A database tears no commit, so all that does not fit is damage.
fn recover(
    database: &Database,
    head: &Head,
    snapshot: Position,
    replay: &mut Replay<'_>,
) -> Result<Recovery, JournalError> {
    let mark = head.high_water.position();
    let mut recovery = Recovery::default();
    let (mut at, mut term) = (snapshot, 0);
    let mut is_mark_seen = mark.seq < at.seq || mark == at;
    loop {
        let page = FramePage::fetch(database, at.seq, head.end.seq)?;
        for frame in &page.frames {
            (at, term) = replay_stored(frame, (&at, term), snapshot.seq, &mut recovery, replay)?;
            is_mark_seen |= at == mark;
        }
        if page.is_last {
            break;
        }
    }
    if at != head.end {
        let found = format!("the history ends at {at:?}, and its head says {:?}", head.end);
        return Err(JournalError::damaged(NAME, at.seq, found));
    }
    if !is_mark_seen {
        recovery.loss = Some(Loss { expected_seq: mark.seq, found_seq: at.seq });
    }
    Ok(recovery)
}
