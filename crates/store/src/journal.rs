//! The journal as its users see it: compare-and-append of opaque events, each append one durable
//! commit; and what recovery found.

use std::fmt;
use std::io;

use crate::copy::CopiedFile;
use crate::postgres::DatabaseError;

/// The bytes that a commit needs for each event beside the event itself.
pub const EVENT_OVERHEAD: usize = 4;

/// SHA-256 over a commit and the hash of the commit before it.
pub type Hash = [u8; 32];

/// A place in the history: the last event of some commit, and the chain's hash there. Two journals
/// with the same position have the same history up to it.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    pub seq: u64,
    pub chain: Hash,
}

impl Position {
    /// Before the first event, which has seq 1.
    pub const START: Self = Self { seq: 0, chain: [0; 32] };
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.seq)?;
        self.chain[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What was durably known when ids were last leased. It has a file of its own beside the journal, so that a journal that
/// lost its end is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HighWater {
    /// Ids up to this one may have been given out.
    pub leased_ids: u64,
    /// The journal ended here then, with this hash.
    pub seq: u64,
    pub chain: Hash,
}

impl HighWater {
    pub fn position(&self) -> Position {
        Position { seq: self.seq, chain: self.chain }
    }
}

/// One event as recovery hands it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    pub seq: u64,
    pub term: u64,
    pub event: &'a [u8],
}

/// A durable, append-only history with one writer at a time.
pub trait Journal: Send {
    /// Makes `events` durable as one commit, all or none, and returns the seq of the last of them.
    ///
    /// Refused, with nothing changed, if the journal does not end at `expected_seq` or has seen a
    /// higher term: a deposed leader cannot write.
    fn append(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
    ) -> Result<u64, JournalError>;

    /// The same with texts that the events name by their hashes: records of a pack of blobs, which are handed out again with
    /// the commit until a snapshot has it ([`crate::Blobs::restore`]). No more bytes of them than [`Journal::texts_bytes_max`].
    fn append_with_texts(
        &mut self,
        term: u64,
        expected_seq: u64,
        events: &[&[u8]],
        texts: &[u8],
    ) -> Result<u64, JournalError> {
        let max = self.texts_bytes_max() as u64;
        match texts.len() as u64 {
            0 => self.append(term, expected_seq, events),
            bytes => Err(JournalError::TooLarge { bytes, max }),
        }
    }

    /// The most bytes of texts that one commit carries; zero for a journal that carries none.
    fn texts_bytes_max(&self) -> usize {
        0
    }

    /// Lets the next commit begin a part of the history that [`Journal::compact`] can tell from what is before it. Does nothing
    /// where every commit is such a part.
    fn begin_segment(&mut self) -> Result<(), JournalError> {
        Ok(())
    }

    /// Where the history ends; what a snapshot of the state at this moment is labelled with.
    fn position(&self) -> Position;

    fn last_seq(&self) -> u64 {
        self.position().seq
    }

    /// The highest term that has written.
    fn term(&self) -> u64;

    /// Bytes that can still be appended without allocating anything, so also on a full disk. A
    /// commit is never split, so up to one commit's size of this may stay unused.
    fn free_bytes(&self) -> u64;

    /// The most bytes that the events of one commit may take together, each counted with
    /// [`EVENT_OVERHEAD`].
    fn commit_bytes_max(&self) -> usize;

    /// The bytes that the history takes where it is stored.
    fn bytes(&self) -> u64;

    /// The history's files, for a backup. A store that has none is backed up by its own tools.
    fn copy(&self) -> Result<JournalCopy, JournalError> {
        Err(JournalError::NoFiles)
    }

    /// Forgets what lies wholly at or before `upto_seq`, where a snapshot has it. May keep more.
    fn compact(&mut self, upto_seq: u64) -> Result<(), JournalError>;

    /// Work done ahead of need (a spare segment), for a moment when nobody waits. An error of a
    /// full disk is not one here: [`Journal::free_bytes`] tells.
    fn maintain(&mut self) -> Result<(), JournalError>;

    /// Durably notes that ids up to `upto` may be given out, and where the history ends now. Never
    /// lowers the mark. Also settles a [`Loss`] that recovery has told: it will not be told again.
    fn lease(&mut self, upto: u64) -> Result<(), JournalError>;

    fn high_water(&self) -> HighWater;
}

/// A journal up to a committed position.
pub struct JournalCopy {
    pub position: Position,
    pub term: u64,
    pub high_water: HighWater,
    /// Oldest first; the last one ends at the position.
    pub segments: Vec<CopiedFile>,
}

/// What opening a journal found and did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// Events handed to the caller.
    pub replayed: u64,
    /// An unfinished commit at the very end that was cut off. It was never acknowledged, unless
    /// [`Recovery::loss`] says otherwise.
    pub torn_tail: Option<TornTail>,
    /// Acknowledged history that is gone.
    pub loss: Option<Loss>,
}

/// An unfinished commit that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    pub file: String,
    /// The first event that it would have held.
    pub seq: u64,
    pub offset: u64,
    pub bytes: u64,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, seq, offset, bytes } = self;
        write!(f, "{file}: cut {bytes} bytes of an unfinished commit at byte {offset} (seq {seq})")
    }
}

/// The journal does not contain the position that the high-water mark has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub expected_seq: u64,
    /// Where the recovered journal ends. If this is not lower, the history is another one.
    pub found_seq: u64,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected_seq, found_seq } = self;
        if found_seq < expected_seq {
            write!(
                f,
                "LOST: the journal ends at seq {found_seq}, but had durably reached {expected_seq}"
            )
        } else {
            write!(
                f,
                "LOST: the journal's history at seq {expected_seq} is not the one that was written"
            )
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("append expects the journal to end at seq {expected}, but it ends at {found}")]
    WrongSeq { expected: u64, found: u64 },
    #[error("append in term {given}, but term {current} has already written")]
    OldTerm { given: u64, current: u64 },
    #[error("a commit of {bytes} bytes is larger than a segment takes ({max})")]
    TooLarge { bytes: u64, max: u64 },
    #[error("disk full: a commit of {needed} bytes does not fit; nothing was written")]
    Full { needed: u64 },
    #[error("an earlier write or sync failed; the journal must be opened again")]
    Poisoned,
    #[error(
        "{file} has format {found}, written by a newer program; this one reads format {known}: \
         nothing was changed"
    )]
    Newer { file: String, found: u32, known: u32 },
    #[error("{file}: damaged at byte {offset}: {found}")]
    Damaged { file: String, offset: u64, found: String },
    #[error("cannot {action} {file}")]
    Io { action: &'static str, file: String, source: io::Error },
    #[error("event {seq} cannot be replayed: {reason}")]
    Replay { seq: u64, reason: String },
    #[error("{0}")]
    Database(#[from] DatabaseError),
    #[error(
        "it is in PostgreSQL, which has its own backups: use pg_dump or pg_basebackup, and keep server/keys"
    )]
    NoFiles,
}

impl JournalError {
    pub(crate) fn damaged(file: &str, offset: u64, found: impl Into<String>) -> Self {
        Self::Damaged { file: file.to_owned(), offset, found: found.into() }
    }

    /// For `map_err`: names what was being done to which file.
    pub(crate) fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        let file = file.to_owned();
        move |source| Self::Io { action, file, source }
    }
}
