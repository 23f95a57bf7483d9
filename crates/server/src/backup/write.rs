//! Copies the state of a running server into a backup: crash-consistent, at one position of the journal, while the writer goes on.
//!
//! Memory is bounded: files are streamed as they are. The books alone are copied to a file first, as SQLite copies them by pages.

use super::archive::{self, HashedWriter, Manifest};
use crate::clock;
use crate::error::ServerError;
use crate::shared::Shared;
use crate::shared::writer_queue::StateCopy;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use store::{CopyReader, HIGH_WATER_FILE};
use tar::{Builder, EntryType, Header};

/// What a backup is to hold beside the state.
#[derive(Debug, Clone, Copy)]
pub struct BackupContent {
    pub keys: bool,
    /// The logs of runs.
    pub logs: bool,
}

/// The copy of the books, in the server's folder, until it is in the backup.
const BOOKS_COPY: &str = "backup.books";

/// A copy of the configuration is for a person to look at: bounds on what is taken.
const CONFIG_FILES_MAX: usize = 100;
const CONFIG_FILE_BYTES_MAX: u64 = 4 << 20;

/// Writes a whole backup to `out`. One at a time: the caller holds the server's turn.
pub fn write(shared: &Shared, content: BackupContent, out: impl Write) -> Result<(), ServerError> {
    // Nothing is removed from the blobs until they are copied.
    let _files = shared.volatile.blob_files.lock().expect("no panic with the blobs' files held");
    let dir = &shared.setup.server_dir;
    let copy = shared.writer.copy(dir.join(archive::BOOKS))?;
    let manifest = manifest(shared, &copy, content);
    let mut archive = Builder::new(HashedWriter::new(out));
    let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other);
    let sent = |error: io::Error| ServerError::Other(format!("the backup: {error}"));
    let written = || -> io::Result<()> {
        add(&mut archive, archive::MANIFEST, &text?)?;
        add_state(&mut archive, shared, &copy)?;
        add_books(&mut archive, dir, &copy)?;
        if content.keys {
            add_folder(&mut archive, dir, archive::KEYS)?;
        }
        for entry in listed(&dir.join(archive::UPLOADS))? {
            add_folder(&mut archive, dir, &format!("{}/{entry}", archive::UPLOADS))?;
        }
        if content.logs {
            add_folder(&mut archive, dir, archive::LOGS)?;
        }
        if let Some(config) = &shared.setup.config_dir {
            add_config(&mut archive, config)?;
        }
        archive.into_inner()?.finish().map(drop)
    };
    written().map_err(sent)
}

fn manifest(shared: &Shared, copy: &StateCopy, content: BackupContent) -> Manifest {
    Manifest {
        format: archive::FORMAT,
        program: wire::version::program(),
        cluster: shared.read().config.name.clone(),
        made_ms: clock::now().millis(),
        seq: copy.journal.position.seq,
        chain: archive::hex(&copy.journal.position.chain),
        term: copy.journal.term,
        next_job: copy.next_job,
        keys: content.keys,
        logs: content.logs,
    }
}

fn add_state(
    archive: &mut Builder<impl Write>,
    shared: &Shared,
    copy: &StateCopy,
) -> io::Result<()> {
    let mark = copy.journal.high_water.encode();
    add(archive, &format!("{}/{HIGH_WATER_FILE}", archive::JOURNAL), &mark)?;
    let segments = copy.journal.segments.iter().map(|file| (archive::JOURNAL, file));
    let snapshots = copy.snapshots.iter().map(|file| (archive::SNAPSHOTS, file));
    for (folder, file) in segments.chain(snapshots) {
        let name = format!("{folder}/{}", file.name);
        add_stream(archive, &name, file.len, CopyReader::new(&*file.file, file.len))?;
    }
    for (name, len) in &copy.blobs {
        let blobs = shared.blobs.lock().expect("no panic with the blobs held");
        let file = blobs.open_file(name)?;
        drop(blobs);
        let reader = CopyReader::new(&*file, *len);
        add_stream(archive, &format!("{}/{name}", archive::BLOBS), *len, reader)?;
    }
    Ok(())
}

fn add_books(archive: &mut Builder<impl Write>, dir: &Path, copy: &StateCopy) -> io::Result<()> {
    let path = dir.join(BOOKS_COPY);
    let removed = Removed(path.clone());
    // A crash may have left one.
    remove(&path)?;
    copy.books.write(&path).map_err(io::Error::other)?;
    let file = open(&path)?;
    let len = file.metadata()?.len();
    add_stream(archive, archive::BOOKS, len, file)?;
    drop(removed);
    Ok(())
}

/// Removes the file when it is dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.0) {
            tracing::warn!("{}: {error}", self.0.display());
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The names in a folder that may not be there, sorted.
fn listed(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort_unstable();
    Ok(names)
}

/// The plain files of a folder of the server's own. One that goes away meanwhile is left out, as are those that are being written.
fn add_folder(archive: &mut Builder<impl Write>, dir: &Path, folder: &str) -> io::Result<()> {
    for name in listed(&dir.join(folder))? {
        let path = format!("{folder}/{name}");
        let is_unfinished = name.ends_with(".partial") || name.ends_with(".tmp");
        if is_unfinished || archive::checked_path(path.as_bytes()).is_err() {
            continue;
        }
        match open(&dir.join(&path)) {
            Ok(file) if file.metadata()?.is_file() => {
                let len = file.metadata()?.len();
                add_stream(archive, &path, len, file)?;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The configuration files that the server can read, for a person who sets the cluster up anew.
fn add_config(archive: &mut Builder<impl Write>, config: &Path) -> io::Result<()> {
    let is_config = |name: &String| name.ends_with(".conf") || name.ends_with(".toml");
    let names = listed(config).unwrap_or_default();
    for name in names.into_iter().filter(is_config).take(CONFIG_FILES_MAX) {
        let path = format!("{}/{name}", archive::CONFIG);
        if archive::checked_path(path.as_bytes()).is_err() {
            continue;
        }
        let mut text = Vec::new();
        let read = File::open(config.join(&name))
            .and_then(|file| file.take(CONFIG_FILE_BYTES_MAX + 1).read_to_end(&mut text));
        if read.is_ok() && text.len() as u64 <= CONFIG_FILE_BYTES_MAX {
            add(archive, &path, &text)?;
        } else {
            tracing::warn!("the backup lacks {name}, which the server cannot read");
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

fn add(archive: &mut Builder<impl Write>, name: &str, content: &[u8]) -> io::Result<()> {
    add_stream(archive, name, content.len() as u64, content)
}

/// Adds a file of this length; a reader that has less ends the backup.
fn add_stream(
    archive: &mut Builder<impl Write>,
    name: &str,
    len: u64,
    reader: impl Read,
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::Regular);
    header.set_path(name)?;
    header.set_size(len);
    header.set_mode(0o600);
    header.set_cksum();
    let mut reader = Counted { inner: reader.take(len), read: 0 };
    archive.append(&header, &mut reader)?;
    if reader.read != len {
        let text = format!("{name} has become shorter while it was copied");
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
    }
    Ok(())
}

struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}
