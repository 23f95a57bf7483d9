//! Copies the state of a running server into a backup: crash-consistent, at one position of the journal, while the writer goes on.
//!
//! Nobody waits for the client that takes it. Before the first byte goes out the books are copied to a file, which ends the read
//! transaction that a long one would make their log grow by, and the blobs' files have links of their own, so that the
//! collection of blobs goes on. Memory is bounded: files are streamed as they are.

use super::archive::{self, HashedWriter, Manifest};
use super::config_secrets;
use crate::clock;
use crate::error::ServerError;
use crate::shared::Shared;
use crate::shared::writer_queue::StateCopy;
use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use store::blob::HeldFiles;
use store::{CopiedFile, CopyReader, HIGH_WATER_FILE, JournalCopy};
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

/// The state of one moment, which nothing changes any more.
struct HeldState {
    manifest: Manifest,
    journal: JournalCopy,
    snapshots: Vec<CopiedFile>,
    blobs: HeldFiles,
    /// The copy of the books.
    books: Removed,
}

impl HeldState {
    fn take(shared: &Shared, content: BackupContent) -> Result<Self, ServerError> {
        let dir = &shared.setup.server_dir;
        // Nothing is removed from the blobs until they have their links.
        let files = shared.volatile.blob_files.lock().expect("no panic with the blobs' files held");
        let copy = shared.writer.copy(dir.join(archive::BOOKS))?;
        let manifest = manifest(shared, &copy, content);
        let StateCopy { journal, snapshots, blobs, books, .. } = copy;
        let blobs = shared.blobs.lock().expect("no panic with the blobs held").hold(blobs)?;
        drop(files);
        let path = dir.join(BOOKS_COPY);
        // A crash may have left one.
        remove(&path).map_err(ServerError::file(&path))?;
        let removed = Removed(path);
        books.write(&removed.0)?;
        Ok(Self { manifest, journal, snapshots, blobs, books: removed })
    }
}

/// Writes a whole backup to `out`. One at a time: the caller holds the server's turn.
pub fn write(shared: &Shared, content: BackupContent, out: impl Write) -> Result<(), ServerError> {
    let dir = &shared.setup.server_dir;
    let held = HeldState::take(shared, content)?;
    let mut archive = Builder::new(HashedWriter::new(out));
    let text = serde_json::to_vec_pretty(&held.manifest).map_err(io::Error::other);
    let sent = |error: io::Error| ServerError::Other(format!("the backup: {error}"));
    let written = || -> io::Result<()> {
        add(&mut archive, archive::MANIFEST, &text?)?;
        add_state(&mut archive, &held)?;
        let books = open(&held.books.0)?;
        let len = books.metadata()?.len();
        add_stream(&mut archive, archive::BOOKS, len, books)?;
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
            add_config(&mut archive, config, content.keys)?;
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

fn add_state(archive: &mut Builder<impl Write>, held: &HeldState) -> io::Result<()> {
    let mark = held.journal.high_water.encode();
    add(archive, &format!("{}/{HIGH_WATER_FILE}", archive::JOURNAL), &mark)?;
    let segments = held.journal.segments.iter().map(|file| (archive::JOURNAL, file));
    let snapshots = held.snapshots.iter().map(|file| (archive::SNAPSHOTS, file));
    for (folder, file) in segments.chain(snapshots) {
        let name = format!("{folder}/{}", file.name);
        add_stream(archive, &name, file.len, CopyReader::new(&*file.file, file.len))?;
    }
    for blob in held.blobs.files() {
        let (name, file) = (format!("{}/{}", archive::BLOBS, blob.name), blob.open()?);
        add_stream(archive, &name, blob.len, CopyReader::new(&*file, blob.len))?;
    }
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

/// The configuration files that the server can read, for a person who sets the cluster up anew. Who does not get the keys gets
/// no password in them either.
fn add_config(archive: &mut Builder<impl Write>, config: &Path, keys: bool) -> io::Result<()> {
    let is_config = |name: &String| {
        (name.ends_with(".conf") || name.ends_with(".toml"))
            && (keys || !config_secrets::is_secret_file(name))
    };
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
            let shown = if keys { Some(text) } else { config_secrets::without_secrets(&text) };
            match shown {
                Some(text) => add(archive, &path, &text)?,
                None => tracing::warn!("the backup lacks {name}, which may hold a password"),
            }
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
