//! Where a server's state is: in files of its folder, or in a database. A start that names the other place would begin an empty
//! cluster under the same keys, and agents would end its jobs: it is refused.

use super::leadership::Leadership;
use crate::error::ServerError;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::postgres::PostgresFolder;
use store::{Disk, LogFiles, RealDisk};

/// The books of a server alone, and of one of several: those are made from what the database has.
const OWN_BOOKS: &str = "books.sqlite";
const SHARED_BOOKS: &str = "books-of-database.sqlite";
const JOURNAL: &str = "journal";
/// The output of runs, in the server's folder and in the database.
pub(crate) const LOGS: &str = "logs";
/// A file of a server whose state is in a database. One that has only waited has no books yet. It is empty but while files are
/// left for a database.
const DATABASE_MARK: &str = "state-in-database";

/// Refuses a start in another place than the last.
pub(super) fn refuse_other_place(dir: &Path, is_database: bool) -> Result<(), ServerError> {
    let refused = if is_half_moved_to_files(dir) {
        "a move of this server's state from a database to files was broken off: \
         make it again (sluice store migrate)"
    } else if is_database && dir.join(JOURNAL).exists() {
        "this server's state is in files of its folder, and a database would begin an empty cluster: \
         start it without --store, or with another state folder that has its keys"
    } else if !is_database && [DATABASE_MARK, SHARED_BOOKS].iter().any(|n| dir.join(n).exists()) {
        "this server's state is in a database, and files would begin an empty cluster: \
         name the database by --store, or start it with another state folder"
    } else {
        return Ok(());
    };
    Err(ServerError::Configuration(refused.into()))
}

/// Notes that the state is in a database, before the server leads or waits there.
pub(crate) fn note_database(dir: &Path) -> Result<(), ServerError> {
    write_mark(dir, "")
}

fn write_mark(dir: &Path, text: &str) -> Result<(), ServerError> {
    let path = dir.join(DATABASE_MARK);
    std::fs::write(&path, text).map_err(ServerError::file(path))
}

/// The folder for files whose state is in a database now. Later moves have a number behind it.
const MOVED: &str = "moved-to-database";

/// Sets the files of a state aside that was moved to a database, and notes where it is now. The mark names the folder for as long
/// as this is under way, so that a start with the database finishes what was broken off.
pub(crate) fn leave_files(dir: &Path) -> Result<(), ServerError> {
    let folder = make_fresh_folder(dir)?;
    write_mark(dir, &folder)?;
    finish_leaving_files(dir)
}

/// Makes a folder of its own for each move: what an earlier one has set aside stays.
fn make_fresh_folder(dir: &Path) -> Result<String, ServerError> {
    let mut name = MOVED.to_owned();
    let mut number = 1;
    loop {
        let path = dir.join(&name);
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(ServerError::file(path)(error)),
        }
        number += 1;
        name = format!("{MOVED}-{number}");
    }
}

/// Finishes what [`leave_files`] has begun, if it was broken off: the database has the state by then.
pub(crate) fn finish_leaving_files(dir: &Path) -> Result<(), ServerError> {
    let mark = dir.join(DATABASE_MARK);
    let folder = match std::fs::read_to_string(&mark) {
        Ok(folder) => folder,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ServerError::file(mark)(error)),
    };
    if !folder.starts_with(MOVED) || folder.contains('/') {
        return Ok(());
    }
    let moved = dir.join(folder);
    std::fs::create_dir_all(&moved).map_err(ServerError::file(&moved))?;
    let own_books = ["", "-wal", "-shm"].map(|end| format!("{OWN_BOOKS}{end}"));
    // The journal first: without it, nothing takes the rest for a state.
    let folders = [JOURNAL, "snapshots", "blobs", LOGS].map(str::to_owned);
    for name in folders.iter().chain(&own_books) {
        let (from, to) = (dir.join(name), moved.join(name));
        if from.exists() {
            std::fs::rename(&from, &to).map_err(ServerError::file(&from))?;
        }
    }
    note_database(dir)
}

/// Whether files are there that a move from the database has begun and not finished: no server can have gone on with them. A mark
/// that names a folder is of a move the other way.
pub(crate) fn is_half_moved_to_files(dir: &Path) -> bool {
    let is_marked = std::fs::metadata(dir.join(DATABASE_MARK)).is_ok_and(|mark| mark.len() == 0);
    is_marked && dir.join(JOURNAL).exists()
}

/// Whether books are there of a state in files that is not. A folder whose state is in a database has some where a move to files was
/// broken off.
pub(crate) fn has_books_of_files(dir: &Path) -> bool {
    !dir.join(DATABASE_MARK).exists() && dir.join(OWN_BOOKS).exists()
}

/// Notes that the state is in files again.
pub(crate) fn leave_database(dir: &Path) -> Result<(), ServerError> {
    for name in [SHARED_BOOKS, DATABASE_MARK] {
        let path = dir.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(ServerError::file(path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn books_path(dir: &Path, is_database: bool) -> PathBuf {
    dir.join(if is_database { SHARED_BOOKS } else { OWN_BOOKS })
}

pub(super) fn blobs_disk(
    dir: &Path,
    leadership: Option<&Leadership>,
) -> Result<Arc<dyn Disk>, ServerError> {
    if let Some(leads) = leadership {
        return Ok(Arc::new(PostgresFolder::new(leads.database.clone(), "blobs", leads.epoch())));
    }
    let path = dir.join("blobs");
    Ok(Arc::new(RealDisk::open(&path).map_err(ServerError::file(&path))?))
}

/// The output of runs. In a database, whoever leads next has it too.
pub(super) fn run_logs(
    dir: &Path,
    leadership: Option<&Leadership>,
) -> Result<LogFiles, ServerError> {
    let path = dir.join(LOGS);
    let disk: Arc<dyn Disk> = match leadership {
        Some(leads) => Arc::new(PostgresFolder::new(leads.for_logs.clone(), LOGS, leads.epoch())),
        None => Arc::new(RealDisk::open(&path).map_err(ServerError::file(&path))?),
    };
    LogFiles::new(disk).map_err(ServerError::file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_in_one_place_is_not_begun_anew_in_the_other() {
        for (left, is_database) in [(JOURNAL, false), (SHARED_BOOKS, true), (DATABASE_MARK, true)] {
            let dir = tempfile::tempdir().expect("a folder");
            for first in [true, false] {
                refuse_other_place(dir.path(), first).expect("an empty folder takes both");
            }
            std::fs::create_dir(dir.path().join(left)).expect("made");
            refuse_other_place(dir.path(), is_database).expect("the same place");
            let refused = refuse_other_place(dir.path(), !is_database).expect_err(left).to_string();
            assert!(refused.contains("would begin an empty cluster"), "{refused}");
        }
    }

    #[test]
    fn server_that_only_waited_does_not_begin_anew_in_files() {
        let dir = tempfile::tempdir().expect("a folder");
        for _ in 0..2 {
            note_database(dir.path()).expect("noted");
        }
        refuse_other_place(dir.path(), true).expect("the same place");
        refuse_other_place(dir.path(), false).expect_err("an empty cluster");
    }

    #[test]
    fn files_that_were_not_all_set_aside_are_at_the_next_start() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        // The folder of an earlier move stays as it is.
        std::fs::create_dir_all(at("moved-to-database/journal")).expect("made");
        std::fs::write(at("moved-to-database/journal/0"), "old").expect("written");
        for name in [JOURNAL, "snapshots", "blobs"] {
            std::fs::create_dir(at(name)).expect("made");
            std::fs::write(at(name).join("0"), name).expect("written");
        }
        // A file where the blobs go breaks the move off.
        assert_eq!(make_fresh_folder(dir.path()).expect("a folder"), "moved-to-database-2");
        std::fs::write(at("moved-to-database-2/blobs"), "").expect("written");
        write_mark(dir.path(), "moved-to-database-2").expect("marked");
        finish_leaving_files(dir.path()).expect_err("it is broken off");
        refuse_other_place(dir.path(), false).expect_err("the database has the state");
        refuse_other_place(dir.path(), true).expect("the journal went first");

        std::fs::remove_file(at("moved-to-database-2/blobs")).expect("removed");
        for _ in 0..2 {
            finish_leaving_files(dir.path()).expect("finished");
        }
        for name in [JOURNAL, "snapshots", "blobs"] {
            assert!(!at(name).exists(), "{name}");
            let kept = std::fs::read_to_string(at("moved-to-database-2").join(name).join("0"));
            assert_eq!(kept.expect(name), name);
        }
        let old = std::fs::read_to_string(at("moved-to-database/journal/0")).expect("it stays");
        assert_eq!((old.as_str(), is_half_moved_to_files(dir.path())), ("old", false));
    }

    #[test]
    fn files_that_a_move_from_the_database_has_begun_are_known() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(dir.path().join(JOURNAL)).expect("made");
        assert!(!is_half_moved_to_files(dir.path()), "a server's own files");
        note_database(dir.path()).expect("noted");
        finish_leaving_files(dir.path()).expect("nothing to finish");
        assert!(is_half_moved_to_files(dir.path()));
        for is_database in [true, false] {
            let refused = refuse_other_place(dir.path(), is_database).expect_err("half moved");
            assert!(refused.to_string().contains("was broken off"), "{refused}");
        }
        write_mark(dir.path(), "moved-to-database").expect("marked");
        assert!(!is_half_moved_to_files(dir.path()), "it goes to the database");
        leave_database(dir.path()).expect("left");
        assert!(!is_half_moved_to_files(dir.path()));
    }
}
