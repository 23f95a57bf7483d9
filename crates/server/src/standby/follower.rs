//! Takes in the history that another server writes, and with it the books: so a takeover begins with the state of the moment.

use super::freshness::Freshness;
use super::read_pause::ReadPause;
use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::Shared;
use crate::writer::books;
use crate::writer::recover::{ReplayedEntry, newest_state, replay};
use cluster::State;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::postgres::{Database, EndedLog, PostgresFolder, PostgresReader};
use store::{BlobIndex, Books, Disk, FollowedBlobs, Position, Snapshots};
use tokio::sync::watch;

/// Who only reads has no lease: nothing of this epoch can be written.
pub const NO_EPOCH: i64 = -1;

/// Commits of a busy leader are taken in together, that much apart.
const PAUSE: Duration = Duration::from_millis(5);
/// How long commits are taken in in a row: the books and the presence of this server go on under any load.
const TAKE_IN_TIME: Duration = Duration::from_millis(100);
/// How often the books are caught up.
const BOOKS_INTERVAL: Duration = Duration::from_secs(1);
/// How often what the leader has purged leaves the books.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);
/// How much of the packs is read at once, and for how long in a row while the leader commits all the time.
const BLOB_BYTES: usize = 4 << 20;
const BLOBS_TIME: Duration = Duration::from_millis(100);
/// How long a follower waits after a failure.
const FAILURE_PAUSE: Duration = Duration::from_millis(100);

/// The state of a server that takes over, as far as it has followed.
pub struct HotState {
    pub state: State,
    pub position: Position,
    /// What the books lack.
    pub records: Vec<ReplayedEntry>,
    pub books: Books,
    /// What the packs of scripts and environments hold, as far as they were read.
    pub blob_index: BlobIndex,
}

/// How far a follower has come.
pub struct CaughtUp {
    /// How many commits were taken in.
    pub taken: u64,
    /// Whether they were all that there were.
    pub is_current: bool,
}

pub struct Follower {
    database: Arc<Database>,
    reader: PostgresReader,
    /// What the history had for the books and the leader has not booked yet.
    records: Vec<ReplayedEntry>,
    books: Books,
    ended: EndedLog,
    /// How far the books have come, for handlers.
    pub booked: watch::Sender<u64>,
    books_at: Instant,
    purged_at: Instant,
    blobs: PostgresFolder,
    /// What the packs of scripts and environments hold, for handlers too.
    pub followed_blobs: Arc<FollowedBlobs>,
    /// Whether they are known to hold more than was read.
    has_more_blobs: bool,
    /// Whether the state is that of the reader's position. One that is not is read anew, after a pause.
    is_whole: bool,
    read_pause: ReadPause,
    failures: RepeatedFailure,
}

impl Follower {
    /// Reads the newest snapshot. What follows it is taken in by [`catch_up`](Self::catch_up). `for_texts` is the session in which
    /// handlers read texts: that of the follower waits for commits most of the time.
    pub fn begin(
        database: Arc<Database>,
        for_texts: &Arc<Database>,
        books_path: &Path,
    ) -> Result<(Self, State), ServerError> {
        let ended = EndedLog::new(database.clone(), NO_EPOCH);
        let (state, position) = newest_state(&mut Snapshots::new(snapshots(&database)))?;
        let reader = PostgresReader::new(database.clone(), position);
        let mut books = books::open_shared(books_path, reader.end_seq()?)?;
        books::catch_up(&mut books, &ended)?;
        let follower = Self {
            reader,
            blobs: blobs(&database),
            followed_blobs: Arc::new(FollowedBlobs::new(Arc::new(blobs(for_texts)))),
            has_more_blobs: true,
            database,
            records: Vec::new(),
            booked: watch::channel(books.applied_seq()).0,
            books,
            ended,
            books_at: Instant::now(),
            purged_at: Instant::now(),
            is_whole: true,
            read_pause: ReadPause::default(),
            failures: RepeatedFailure::new("the standby's state"),
        };
        Ok((follower, state))
    }

    pub fn seq(&self) -> u64 {
        self.reader.position().seq
    }

    /// Takes in what is committed until `time` has passed or the lease was given up.
    pub fn follow(&mut self, shared: &Shared, freshness: &Freshness, time: Duration) {
        let end = Instant::now() + time;
        if !self.is_whole && !self.read_pause.is_over(Instant::now()) {
            return std::thread::sleep(time.min(FAILURE_PAUSE));
        }
        loop {
            let caught_up = match self.catch_up(shared, freshness) {
                Ok(caught_up) => caught_up,
                Err(error) => {
                    self.failures.failed("it is as old as it is shown; trying again", &error);
                    std::thread::sleep(FAILURE_PAUSE);
                    return;
                }
            };
            self.failures.succeeded();
            if !caught_up.is_current {
                if Instant::now() >= end {
                    return;
                }
                continue;
            }
            if caught_up.taken > 0 {
                std::thread::sleep(PAUSE);
            }
            // A server that has just come reads the packs in the time in which it would wait: a takeover has to read the rest.
            if self.has_more_blobs {
                self.read_blobs(Duration::ZERO);
            }
            let left = end.saturating_duration_since(Instant::now());
            let wait = if self.has_more_blobs { Duration::ZERO } else { left };
            match self.reader.await_commit(wait) {
                Ok(is_lease_free) if is_lease_free || left.is_zero() => return,
                Ok(_) => {}
                Err(error) => {
                    self.failures.failed("it is as old as it is shown; trying again", &error);
                    std::thread::sleep(FAILURE_PAUSE);
                    return;
                }
            }
        }
    }

    /// Takes in what is committed, for a bounded time.
    pub fn catch_up(
        &mut self,
        shared: &Shared,
        freshness: &Freshness,
    ) -> Result<CaughtUp, ServerError> {
        if !self.is_whole {
            self.read_anew(shared)?;
        }
        let (begun, mut taken) = (Instant::now(), 0);
        let is_current = loop {
            let asked = Instant::now();
            let page = self.reader.fetch()?;
            for frame in &page.frames {
                self.is_whole = false;
                let mut state = shared.state.write();
                let records = &mut self.records;
                let taken_in =
                    self.reader.take_in(frame, |record| replay(&mut state, records, record));
                if let Err(error) = taken_in {
                    // With the state held: nobody is shown a part of a commit, nor later what only the snapshot has.
                    freshness.set_broken();
                    return Err(error.into());
                }
                self.is_whole = true;
                taken += 1;
            }
            if page.is_last {
                freshness.set_current(asked);
                break true;
            }
            if begun.elapsed() >= TAKE_IN_TIME {
                break false;
            }
        };
        if taken > 0 {
            shared.forecasts.state_changed();
            shared.commits.committed();
        }
        if self.books_at.elapsed() >= BOOKS_INTERVAL {
            self.books_at = Instant::now();
            books::catch_up(&mut self.books, &self.ended)?;
            let booked = self.books.applied_seq();
            self.records.retain(|entry| entry.seq > booked);
            self.booked.send_replace(booked);
            self.read_blobs(BLOBS_TIME);
        }
        if self.purged_at.elapsed() >= PURGE_INTERVAL {
            self.purged_at = Instant::now();
            books::drop_purged(&mut self.books, &self.ended)?;
        }
        Ok(CaughtUp { taken, is_current })
    }

    /// Reads on in the packs, once and then until this time is over. What is not read now is read by the takeover.
    fn read_blobs(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let read = self.followed_blobs.read_on(&self.blobs, BLOB_BYTES);
            self.has_more_blobs = *read.as_ref().unwrap_or(&false);
            if let Err(error) = read {
                return tracing::debug!("the blobs are read later: {error}");
            }
            if !self.has_more_blobs || Instant::now() >= end {
                return;
            }
        }
    }

    /// Reads the state from the newest snapshot: commits that this server lacks were removed, or one could not be applied.
    fn read_anew(&mut self, shared: &Shared) -> Result<(), ServerError> {
        let begun = Instant::now();
        let (state, position) = newest_state(&mut Snapshots::new(snapshots(&self.database)))?;
        *shared.state.write() = state;
        self.reader = PostgresReader::new(self.database.clone(), position);
        self.records.clear();
        self.is_whole = true;
        self.read_pause.begin(begun, Instant::now());
        Ok(())
    }

    /// The state, out of the handlers' hands.
    pub fn finish(self, shared: &Shared) -> Option<HotState> {
        let state = std::mem::take(&mut *shared.state.write());
        let position = self.reader.position();
        let blob_index = self.followed_blobs.take_index();
        let (records, books) = (self.records, self.books);
        let hot = HotState { state, position, records, books, blob_index };
        self.is_whole.then_some(hot)
    }
}

fn blobs(database: &Arc<Database>) -> PostgresFolder {
    PostgresFolder::new(database.clone(), "blobs", NO_EPOCH)
}

fn snapshots(database: &Arc<Database>) -> Arc<dyn Disk> {
    Arc::new(PostgresFolder::new(database.clone(), "snapshots", NO_EPOCH))
}
