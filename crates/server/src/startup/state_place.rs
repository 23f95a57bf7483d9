//! Where a server's state is: in files of its folder, or in a database. A start that names the other place would begin an empty
//! cluster under the same keys, and agents would end its jobs: it is refused.

use super::leadership::Leadership;
use crate::error::ServerError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::postgres::PostgresFolder;
use store::{Disk, RealDisk};

/// The books of a server alone, and of one of several: those are made from what the database has.
const OWN_BOOKS: &str = "books.sqlite";
const SHARED_BOOKS: &str = "books-of-database.sqlite";
const JOURNAL: &str = "journal";
/// An empty file of a server whose state is in a database. One that has only waited has no books yet.
const DATABASE_MARK: &str = "state-in-database";

/// Refuses a start in another place than the last.
pub(super) fn refuse_other_place(dir: &Path, is_database: bool) -> Result<(), ServerError> {
    let refused = if is_database && dir.join(JOURNAL).exists() {
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
    let path = dir.join(DATABASE_MARK);
    std::fs::write(&path, "").map_err(ServerError::file(path))
}

/// The folder for files whose state is in a database now.
const MOVED: &str = "moved-to-database";

/// Sets the files of a state aside that was moved to a database, and notes where it is now.
pub(crate) fn leave_files(dir: &Path) -> Result<(), ServerError> {
    note_database(dir)?;
    let moved = dir.join(MOVED);
    std::fs::create_dir_all(&moved).map_err(ServerError::file(&moved))?;
    let own_books = ["", "-wal", "-shm"].map(|end| format!("{OWN_BOOKS}{end}"));
    for name in ["snapshots", "blobs"].map(str::to_owned).iter().chain(&own_books) {
        let (from, to) = (dir.join(name), moved.join(name));
        if from.exists() {
            std::fs::rename(&from, &to).map_err(ServerError::file(&from))?;
        }
    }
    // Last: while it is there, a start without the database goes on with the files.
    let journal = dir.join(JOURNAL);
    std::fs::rename(&journal, moved.join(JOURNAL)).map_err(ServerError::file(&journal))
}

/// Notes that the state is in files again.
pub(crate) fn leave_database(dir: &Path) -> Result<(), ServerError> {
    for name in [SHARED_BOOKS, DATABASE_MARK] {
        let path = dir.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
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
}
