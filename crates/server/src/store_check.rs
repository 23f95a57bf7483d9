//! Whether a stored state can be read back whole: every checksum, every link of the chain from the newest good snapshot on, every event,
//! the scripts and environments of the jobs, and the books, or what a database has for them. Nothing is changed in a database, which may be
//! in use; a folder's must not be, and its unfinished last commit is cut off, as a start would.

use crate::error::ServerError;
use crate::startup::state_place;
use crate::writer::books;
use crate::writer::recover::{JournalPlace, Recovered, StateDisks};
use cluster::{Job, State};
use std::path::Path;
use std::sync::Arc;
use store::blob::BadBytes;
use store::postgres::{self, Database, DatabaseUrl, EndedLog, Leader, PostgresFolder};
use store::{BlobId, BlobInspection, BookReader, BooksCopy, RealDisk};

/// How often a database is read while a server leads that removes texts meanwhile.
const TRIES: u32 = 3;

/// What a sound state has.
#[derive(Debug)]
pub struct StoreReport {
    pub jobs: usize,
    /// Where the history ends, and in which term.
    pub seq: u64,
    pub term: u64,
    pub snapshot_seq: u64,
    /// Events after the snapshot.
    pub replayed: u64,
    /// Scripts and environments, each once.
    pub texts: usize,
    /// The records of the books, or of what they are made from; `None` where there are no books.
    pub booked: Option<usize>,
    /// Who leads, where several servers may.
    pub leader: Option<Leader>,
}

/// Checks the state in the server's part of a state folder.
pub fn check_folder(dir: &Path) -> Result<StoreReport, ServerError> {
    if !dir.join("journal").exists() {
        let text = format!("{}: there is no journal", dir.display());
        return Err(ServerError::Other(text));
    }
    let disks = StateDisks::open(dir)?;
    disks.refuse_newer()?;
    let recovered = disks.recover()?;
    let blobs = dir.join("blobs");
    let blobs = RealDisk::open(&blobs).map_err(ServerError::file(&blobs))?;
    let blobs = BlobInspection::of(&blobs)?;
    // What the commits since the last sync carry is put into the packs by the next start.
    let mut carried = Vec::new();
    if let JournalPlace::Files(disk) = &disks.journal {
        let note = |texts: &[u8]| {
            carried.extend(store::carried_ids(texts));
            Ok(())
        };
        store::carried_texts(&**disk, recovered.snapshot_seq, note)?;
    }
    refuse_missing(&recovered.state, &blobs, |id| blobs.contains(id) || carried.contains(id))?;
    let path = state_place::books_path(dir, false);
    let mut booked = None;
    if path.exists() {
        BooksCopy::check(&path, recovered.journal.last_seq()).map_err(ServerError::Other)?;
        booked = Some(BookReader::open(&path)?.count()?);
    }
    report(recovered, &blobs, booked, None)
}

/// Checks the state in a database, also while a server leads.
pub fn check_database(url: DatabaseUrl) -> Result<StoreReport, ServerError> {
    let database = Database::new(url)
        .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
    postgres::check(&database)?;
    let mut tries = 1;
    let (recovered, blobs, leader) = loop {
        let leader = Leader::read(&database)?;
        // What this epoch's leader may write is what is read; nothing is written.
        let recovered = StateDisks::in_database(&database, leader.epoch).recover()?;
        // Read after the state: what its jobs need was stored before.
        let blobs = PostgresFolder::new(database.clone(), "blobs", leader.epoch);
        let blobs = BlobInspection::of(&blobs)?;
        match refuse_missing(&recovered.state, &blobs, |id| blobs.contains(id)) {
            Ok(()) => break (recovered, blobs, leader),
            // A leader may have removed the texts of jobs that ended in between.
            Err(_) if leader.is_valid && tries < TRIES => tries += 1,
            Err(error) => return Err(error),
        }
    };
    let ended = EndedLog::new(database, leader.epoch);
    let records = books::count_shared(&ended)?;
    let booked = (ended.last_seq()? > 0).then_some(records);
    report(recovered, &blobs, booked, Some(leader))
}

fn refuse_missing(
    state: &State,
    blobs: &BlobInspection,
    is_there: impl Fn(&BlobId) -> bool,
) -> Result<(), ServerError> {
    let bad = blobs.damaged.first().or(blobs.unfinished.as_ref());
    text_fault(state, bad, is_there).map_or(Ok(()), |fault| Err(ServerError::Other(fault)))
}

/// The text that a job in memory lacks, in one line. `bad` is where bytes are damaged: no fault where no job lacks a text, for a power cut
/// leaves some in place of texts that were never acknowledged.
pub(crate) fn text_fault(
    state: &State,
    bad: Option<&BadBytes>,
    is_there: impl Fn(&BlobId) -> bool,
) -> Option<String> {
    let lacks_text = |job: &&Arc<Job>| {
        let mut needed = job.spec.launch.blobs().into_iter().flatten();
        needed.any(|(blob, _)| !is_there(&BlobId::from(&blob)))
    };
    let job = state.jobs.values().find(lacks_text)?.id;
    Some(match bad {
        Some(bad) => format!(
            "{} is damaged at byte {}, and a text of job {job} is in no other place",
            bad.file, bad.offset
        ),
        None => format!("a script, an environment or another text of job {job} is missing"),
    })
}

fn report(
    recovered: Recovered,
    blobs: &BlobInspection,
    booked: Option<usize>,
    leader: Option<Leader>,
) -> Result<StoreReport, ServerError> {
    if let Some(loss) = recovered.recovery.loss {
        return Err(ServerError::Other(loss.to_string()));
    }
    Ok(StoreReport {
        jobs: recovered.state.jobs.len(),
        seq: recovered.journal.last_seq(),
        term: recovered.journal.term(),
        snapshot_seq: recovered.snapshot_seq,
        replayed: recovered.recovery.replayed,
        texts: blobs.len(),
        booked,
        leader,
    })
}
