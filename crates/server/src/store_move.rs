//! Moves a state from files to a database, or back, while no server runs: the state as one snapshot, the scripts and environments,
//! the books, and the output of runs. What was moved is read back and compared before the old place is left.

use crate::auth::identity::Identity;
use crate::error::ServerError;
use crate::startup::state_place::{self, LOGS};
use crate::store_lease::while_nobody_leads;
use crate::writer::books;
use crate::writer::recover::{JournalPlace, Recovered, StateDisks, recover_with_blobs};
use std::path::Path;
use std::sync::Arc;
use store::postgres::{self, Database, DatabaseUrl, EndedLog, PostgresFolder, PostgresJournal};
use store::{BookReader, Books, BooksCopy, Disk, LogFile, RealDisk, Snapshots};

/// Who holds the lease while a state is moved.
const HOLDER: &str = "sluice store migrate";

/// What is copied at once.
const COPY_BYTES: usize = 1 << 20;

/// Which way a state goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    ToDatabase,
    ToFiles,
}

/// What was moved.
#[derive(Debug)]
pub struct Moved {
    pub jobs: usize,
    pub seq: u64,
    pub term: u64,
    /// Files of scripts and environments.
    pub files: usize,
}

/// Moves the state between the server's part of a state folder and a database. An error leaves the old place as it is.
pub fn migrate(dir: &Path, url: &DatabaseUrl, way: Direction) -> Result<Moved, ServerError> {
    if way == Direction::ToFiles {
        state_place::finish_leaving_files(dir)?;
    }
    let is_half_moved = state_place::is_half_moved_to_files(dir);
    let has_files = dir.join("journal").exists();
    match way {
        Direction::ToDatabase if !has_files => {
            return Err(refused(dir, "there is no journal to be moved"));
        }
        Direction::ToDatabase if is_half_moved => {
            return Err(refused(dir, "a move to it was broken off: make that move first"));
        }
        Direction::ToFiles if has_files && !is_half_moved => {
            return Err(refused(dir, "a cluster has its history there already"));
        }
        Direction::ToFiles if state_place::has_books_of_files(dir) => {
            let why = "the books of another history are there (books.sqlite): set them aside first";
            return Err(refused(dir, why));
        }
        _ => {}
    }
    if !dir.join("keys/order.key").exists() {
        return Err(refused(dir, "there are no keys: name the folder of a server of the cluster"));
    }
    let identity = Identity::load_or_make(&dir.join("keys"))?.authority_fingerprint()?;
    let prepare = |database: &Database| match way {
        Direction::ToDatabase => Ok(postgres::prepare(database, &identity)?),
        Direction::ToFiles => Ok(postgres::prepare_to_leave(database, &identity)?),
    };
    while_nobody_leads(url, HOLDER, prepare, |database, epoch| match way {
        Direction::ToDatabase => to_database(dir, database, epoch),
        Direction::ToFiles => {
            let begun_anew = if is_half_moved { remove_half_moved(dir) } else { Ok(()) };
            let moved = begun_anew.and_then(|()| to_files(dir, database, epoch));
            let moved = moved.inspect_err(|_| {
                // They were not there before. What stays is said by the next attempt.
                for begun in ["journal", "snapshots"] {
                    let _ = std::fs::remove_dir_all(dir.join(begun));
                }
            });
            // From the mark in the database on, the files are the state: nothing of them is removed.
            moved.and_then(|moved| state_place::leave_database(dir).map(|()| moved))
        }
    })
}

/// Removes what a move that was broken off has begun in files: the database has it all.
fn remove_half_moved(dir: &Path) -> Result<(), ServerError> {
    for begun in ["snapshots", "journal"] {
        let path = dir.join(begun);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(ServerError::file(path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn refused(dir: &Path, why: &str) -> ServerError {
    ServerError::Other(format!("{}: {why}", dir.display()))
}

fn to_database(dir: &Path, database: &Arc<Database>, epoch: i64) -> Result<Moved, ServerError> {
    let disks = StateDisks::open(dir)?;
    disks.refuse_newer()?;
    let own_blobs = dir.join("blobs");
    let own_blobs = RealDisk::open(&own_blobs).map_err(ServerError::file(&own_blobs))?;
    let own_blobs: Arc<dyn Disk> = Arc::new(own_blobs);
    let (from, _) = recover_with_blobs(&disks, own_blobs.clone())?;
    let from = sound(from)?;
    PostgresJournal::clear_unbegun(database, epoch)?;
    let path = state_place::books_path(dir, false);
    books::take_replayed(&mut Books::open(&path)?, &from.records)?;
    let ended = EndedLog::new(database.clone(), epoch);
    let shared = books::share_all(&BookReader::open(&path)?, &ended)?;
    if books::count_shared(&ended)? != shared {
        return Err(other_than_read("the books"));
    }
    let files =
        copy_files(&*own_blobs, &PostgresFolder::new(database.clone(), "blobs", epoch), "")?;
    copy_files(&own_logs(dir)?, &PostgresFolder::new(database.clone(), LOGS, epoch), "")?;
    let to = StateDisks::in_database(database, epoch);
    write_snapshot(&to, &from)?;
    let (position, term) = (from.journal.position(), from.journal.term());
    let leased = from.journal.high_water().leased_ids;
    PostgresJournal::begin_at(database, epoch, position, term, leased)?;
    compare(&from, &sound(to.recover()?)?)?;
    state_place::leave_files(dir)?;
    Ok(report(&from, files))
}

fn to_files(dir: &Path, database: &Arc<Database>, epoch: i64) -> Result<Moved, ServerError> {
    // Until the database is marked, it is the state: a start with the files is refused, however far this comes.
    state_place::note_database(dir)?;
    let from = sound(StateDisks::in_database(database, epoch).recover()?)?;
    let path = state_place::books_path(dir, false);
    // Those of a move that was broken off: books of another history are refused before.
    books::remove(&path)?;
    let ended = EndedLog::new(database.clone(), epoch);
    let mut own_books = Books::open(&path)?;
    books::catch_up(&mut own_books, &ended)?;
    books::take_replayed(&mut own_books, &from.records)?;
    drop(own_books);
    if !books::have_all_shared(&BookReader::open(&path)?, &ended)? {
        return Err(other_than_read("the books"));
    }
    let ends = from.journal.last_seq();
    BooksCopy::check(&path, ends).map_err(|why| ServerError::Other(format!("the move: {why}")))?;
    let own_blobs = dir.join("blobs");
    let own_blobs = RealDisk::open(&own_blobs).map_err(ServerError::file(&own_blobs))?;
    let files = copy_files(&PostgresFolder::new(database.clone(), "blobs", epoch), &own_blobs, "")?;
    copy_files(&PostgresFolder::new(database.clone(), LOGS, epoch), &own_logs(dir)?, "")?;
    let to = StateDisks::open(dir)?;
    write_snapshot(&to, &from)?;
    let (position, term) = (from.journal.position(), from.journal.term());
    if let JournalPlace::Files(journal) = &to.journal {
        LogFile::begin_at(journal, position, term, from.journal.high_water().leased_ids)?;
    }
    compare(&from, &sound(to.recover()?)?)?;
    // Last: a server of another machine would lead with the state that is left behind, and give out the same ids.
    postgres::mark_moved(database, epoch)?;
    Ok(report(&from, files))
}

fn report(from: &Recovered, files: usize) -> Moved {
    let (seq, term) = (from.journal.last_seq(), from.journal.term());
    Moved { jobs: from.state.jobs.len(), seq, term, files }
}

/// A history that has lost its end is settled by a server's start first.
fn sound(recovered: Recovered) -> Result<Recovered, ServerError> {
    match recovered.recovery.loss {
        Some(loss) => Err(ServerError::Other(loss.to_string())),
        None => Ok(recovered),
    }
}

fn body(of: &Recovered) -> Result<Vec<u8>, ServerError> {
    serde_json::to_vec(&of.state).map_err(|e| ServerError::Other(e.to_string()))
}

fn write_snapshot(to: &StateDisks, from: &Recovered) -> Result<(), ServerError> {
    let mut snapshots = Snapshots::new(to.snapshots.clone());
    snapshots.write(from.journal.position(), &body(from)?)?;
    Ok(())
}

/// What was written is what was read: the state, its place in the history, and the ids that may have been given out.
fn compare(from: &Recovered, to: &Recovered) -> Result<(), ServerError> {
    let place = |of: &Recovered| {
        let journal = &of.journal;
        (journal.position(), journal.term(), journal.high_water().leased_ids)
    };
    if place(from) != place(to) || body(from)? != body(to)? {
        return Err(other_than_read("the state"));
    }
    Ok(())
}

fn other_than_read(what: &str) -> ServerError {
    let text = format!("{what} that was moved is read back as another: the old place is as it was");
    ServerError::Other(text)
}

fn own_logs(dir: &Path) -> Result<RealDisk, ServerError> {
    let path = dir.join(LOGS);
    RealDisk::open(&path).map_err(ServerError::file(&path))
}

/// Copies every file below a folder, reads each back, and counts them.
fn copy_files(from: &dyn Disk, to: &dyn Disk, folder: &str) -> Result<usize, ServerError> {
    let wrong = |path: &str| {
        let path = path.to_owned();
        move |source| ServerError::File { path: path.into(), source }
    };
    let mut count = 0;
    for entry in from.list(folder).map_err(wrong(folder))? {
        let path = match folder {
            "" => entry.name.clone(),
            folder => format!("{folder}/{}", entry.name),
        };
        if entry.is_dir {
            to.make_dir(&path).map_err(wrong(&path))?;
            count += copy_files(from, to, &path)?;
            continue;
        }
        copy_file(from, to, &path).map_err(wrong(&path))?;
        if !is_copy(from, to, &path).map_err(wrong(&path))? {
            return Err(other_than_read(&path));
        }
        count += 1;
    }
    to.sync_dir(folder).map_err(wrong(folder))?;
    Ok(count)
}

/// Copies a file to the same length. Zeros at its end are not written: a pack has its whole length from the beginning, and in a database
/// what was written there takes room and is in the way of what goes with a commit.
fn copy_file(from: &dyn Disk, to: &dyn Disk, path: &str) -> std::io::Result<()> {
    let (source, target) = (from.open(path)?, to.create(path)?);
    let len = source.len()?;
    let mut buffer = vec![0; COPY_BYTES];
    let (mut at, mut end) = (0, 0);
    while at < len {
        let read = source.read_at(at, &mut buffer)?;
        if read == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(last) = buffer[..read].iter().rposition(|byte| *byte != 0) {
            target.write_at(at, &buffer[..=last])?;
            end = at + last as u64 + 1;
        }
        at += read as u64;
    }
    if end < len {
        target.preallocate(len)?;
    }
    target.sync_data()
}

/// Whether both files have the same bytes.
fn is_copy(from: &dyn Disk, to: &dyn Disk, path: &str) -> std::io::Result<bool> {
    let (source, target) = (from.open(path)?, to.open(path)?);
    let len = source.len()?;
    if target.len()? != len {
        return Ok(false);
    }
    let (mut read, mut copied) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut at = 0;
    while at < len {
        let count = source.read_at(at, &mut read)?;
        let mut filled = 0;
        while filled < count {
            match target.read_at(at + filled as u64, &mut copied[filled..count])? {
                0 => return Ok(false),
                more => filled += more,
            }
        }
        if count == 0 || read[..count] != copied[..count] {
            return Ok(false);
        }
        at += count as u64;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::FaultyDisk;

    #[test]
    fn files_are_copied_with_their_folders_and_their_bytes() {
        let (from, to) = (FaultyDisk::default(), FaultyDisk::default());
        from.make_dir("packs").expect("a folder");
        let long = vec![7; COPY_BYTES + 5];
        for (path, bytes) in [("packs/1", &long[..]), ("top", &b"x"[..]), ("empty", &b""[..])] {
            let file = from.create(path).expect("a file");
            file.write_at(0, bytes).expect("written");
        }
        let set_aside = from.create("packs/2").expect("a file");
        set_aside.preallocate(2 * COPY_BYTES as u64).expect("set aside");
        set_aside.write_at(3, b"record").expect("written");
        assert_eq!(copy_files(&from, &to, "").expect("copied"), 4);
        let read = |path: &str| to.open(path).expect(path).read_all().expect(path);
        assert_eq!(read("packs/1"), long);
        assert_eq!(read("packs/2"), set_aside.read_all().expect("read"), "zeros and all");
        assert_eq!((read("top"), read("empty")), (b"x".to_vec(), Vec::new()));
        for path in ["packs/1", "packs/2", "top", "empty"] {
            assert!(is_copy(&from, &to, path).expect("read"), "{path}");
        }
        to.tamper("packs/1", |bytes| bytes[COPY_BYTES + 2] ^= 1).expect("tampered with");
        assert!(!is_copy(&from, &to, "packs/1").expect("read"), "one bit is another");
    }
}
