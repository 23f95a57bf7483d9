//! Makes the server's part of a state folder from a backup.
//!
//! Nothing of the backup is believed before its hash is checked, nor is what it holds before the journal's chain is: the state is read
//! back as a server would. Then a new epoch is begun (`new_epoch`).

use super::archive::{self, BLOBS, BOOKS, CONFIG, JOURNAL, KEYS, LOGS, LineCheck, MANIFEST};
use super::archive::{Manifest, SNAPSHOTS, UPLOADS};
use super::new_epoch::{self, NewEpoch, RestoreOptions};
use crate::error::ServerError;
use crate::store_check::text_fault;
use crate::writer::recover::{Recovered, StateDisks, recover_with_blobs};
use cluster::State;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::sync::Arc;
use store::blob::BlobRecovery;
use store::{Blobs, BooksCopy, Disk, RealDisk};
use tar::{Archive, Entry};

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    pub manifest: Manifest,
    pub epoch: NewEpoch,
}

const CHUNK: usize = 256 << 10;

/// Restores `file` into `dir`, an empty folder. After an error the folder is the caller's to remove.
pub fn restore(
    mut file: &File,
    dir: &Path,
    options: RestoreOptions,
) -> Result<Restored, ServerError> {
    let unread = |error: io::Error| ServerError::Other(format!("the backup: {error}"));
    file.rewind().map_err(unread)?;
    if !LineCheck::of(file).map_err(unread)? {
        let text = "the backup is cut short or changed: it does not have the hash in its last line";
        return Err(ServerError::Other(text.into()));
    }
    file.rewind().map_err(unread)?;
    let manifest = unpack(file, dir)?;
    let disks = StateDisks::open(dir)?;
    let blobs_dir = dir.join(BLOBS);
    let disk = RealDisk::open(&blobs_dir).map_err(ServerError::file(&blobs_dir))?;
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let (_, found) = Blobs::open(disk.clone(), Default::default())?;
    let (recovered, blobs) = recover_with_blobs(&disks, disk)?;
    check(dir, &manifest, &recovered)?;
    check_blobs(&recovered.state, &blobs, &found)?;
    let epoch = new_epoch::begin(recovered, options)?;
    Ok(Restored { manifest, epoch })
}

fn unpack(file: &File, dir: &Path) -> Result<Manifest, ServerError> {
    let unread = |error: io::Error| ServerError::Other(format!("the backup: {error}"));
    let disk = RealDisk::open(dir).map_err(ServerError::file(dir))?;
    for folder in [JOURNAL, SNAPSHOTS, BLOBS, KEYS, UPLOADS, LOGS, CONFIG] {
        disk.make_dir(folder).map_err(ServerError::file(dir.join(folder)))?;
    }
    let mut archive = Archive::new(file);
    let mut entries = archive.entries().map_err(unread)?;
    let manifest = match entries.next() {
        Some(entry) => read_manifest(entry.map_err(unread)?)?,
        None => return Err(ServerError::Other("the backup is empty".into())),
    };
    let mut folders = BTreeSet::new();
    for entry in entries {
        let mut entry = entry.map_err(unread)?;
        let raw = entry.path_bytes().into_owned();
        let path = archive::checked_path(&raw)?;
        // Links, devices and folders are what no backup has.
        if !entry.header().entry_type().is_file() {
            return Err(ServerError::Other(format!("'{path}' in the backup is no plain file")));
        }
        for (end, _) in path.match_indices('/') {
            if folders.insert(path[..end].to_owned()) {
                disk.make_dir(&path[..end]).map_err(ServerError::file(dir.join(path)))?;
            }
        }
        if disk.open(path).is_ok() {
            return Err(ServerError::Other(format!("'{path}' is in the backup twice")));
        }
        copy(&disk, path, &mut entry).map_err(ServerError::file(dir.join(path)))?;
    }
    for folder in folders.iter().map(String::as_str).chain([""]) {
        disk.sync_dir(folder).map_err(ServerError::file(dir.join(folder)))?;
    }
    Ok(manifest)
}

fn read_manifest(entry: Entry<'_, impl Read>) -> Result<Manifest, ServerError> {
    let refused = |why: &str| ServerError::Other(format!("this is no backup of sluice: {why}"));
    if entry.path_bytes() != MANIFEST.as_bytes() {
        return Err(refused("it does not begin with its manifest"));
    }
    let mut text = Vec::new();
    let read = entry.take(archive::MANIFEST_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| refused(&error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| refused(&error.to_string()))?;
    if manifest.format > archive::FORMAT {
        let Manifest { format, program, .. } = manifest;
        return Err(ServerError::Other(format!(
            "the backup has format {format}, written by {program}; this program reads format {}",
            archive::FORMAT
        )));
    }
    Ok(manifest)
}

fn copy(disk: &dyn Disk, path: &str, reader: &mut impl Read) -> io::Result<()> {
    let file = disk.create(path)?;
    let (mut buffer, mut at) = (vec![0; CHUNK], 0);
    loop {
        match reader.read(&mut buffer)? {
            0 => break,
            read => {
                file.write_at(at, &buffer[..read])?;
                at += read as u64;
            }
        }
    }
    file.sync_data()
}

/// Compares what was read back with what the backup says of itself.
fn check(dir: &Path, manifest: &Manifest, recovered: &Recovered) -> Result<(), ServerError> {
    let refused = |text: String| Err(not_sound(&text));
    let position = recovered.journal.position();
    if position.seq != manifest.seq || archive::hex(&position.chain) != manifest.chain {
        return refused(format!(
            "its journal ends at {position:?}, and it was made at seq {}",
            manifest.seq
        ));
    }
    if let Some(loss) = &recovered.recovery.loss {
        return refused(loss.to_string());
    }
    match BooksCopy::check(&dir.join(BOOKS), manifest.seq) {
        Ok(()) => Ok(()),
        Err(why) => refused(why),
    }
}

/// A start has put texts that were not synced back from the journal.
fn check_blobs(state: &State, blobs: &Blobs, found: &BlobRecovery) -> Result<(), ServerError> {
    let bad = found.damaged.first().or(found.torn_tail.as_ref());
    let fault = text_fault(state, bad, |id| blobs.contains(id));
    fault.map_or(Ok(()), |fault| Err(not_sound(&fault)))
}

fn not_sound(text: &str) -> ServerError {
    ServerError::Other(format!("the backup is not sound: {text}"))
}

#[cfg(test)]
mod tests {
    use super::super::archive::HashedWriter;
    use super::*;
    use crate::testing::TestServer;
    use std::io::Write;
    use store::{BlobId, FaultyDisk};
    use tar::{Builder, EntryType, Header};

    const OPTIONS: RestoreOptions = RestoreOptions { skip_ids: 1, start_at_once: false };

    fn manifest() -> Vec<u8> {
        let manifest = Manifest {
            format: archive::FORMAT,
            program: "0.1.0".into(),
            cluster: "test".into(),
            made_ms: 0,
            seq: 0,
            chain: archive::hex(&[0; 32]),
            term: 0,
            next_job: 1,
            keys: false,
            logs: false,
        };
        serde_json::to_vec(&manifest).unwrap()
    }

    /// A whole backup with one more entry, whose raw header is as given.
    fn with_entry(path: &str, kind: EntryType, link: &str) -> File {
        let mut archive = Builder::new(HashedWriter::new(tempfile::tempfile().unwrap()));
        let mut add = |path: &str, kind, content: &[u8]| {
            let mut header = Header::new_ustar();
            header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(kind);
            header.set_size(content.len() as u64);
            header.set_cksum();
            archive.append(&header, content).unwrap();
        };
        add(MANIFEST, EntryType::Regular, &manifest());
        add(path, kind, b"x");
        let mut file = archive.into_inner().unwrap().finish().unwrap();
        file.flush().unwrap();
        file
    }

    #[tokio::test]
    async fn damaged_blobs_are_refused_where_a_job_lacks_one() {
        let server = TestServer::start().await;
        let job = server.submit("name: train").await.unwrap();
        let state = server.shared.read();
        let script = BlobId::from(&state.jobs[&job].spec.launch.script.unwrap());
        let content = server.shared.blobs.lock().unwrap().get(&script).unwrap().unwrap();
        let disk = FaultyDisk::default();
        let open = || Blobs::open(Arc::new(disk.clone()), Default::default()).unwrap();
        let mut blobs = open().0;
        blobs.put(&content, 1).unwrap();
        // Behind it, so that it is no unfinished end. The job's other texts are there.
        for (blob, _) in state.jobs[&job].spec.launch.blobs().into_iter().flatten() {
            let other = server.shared.blobs.lock().unwrap().get(&BlobId::from(&blob)).unwrap();
            blobs.put(&other.unwrap(), 1).unwrap();
        }
        blobs.put(b"of another job", 1).unwrap();
        drop(blobs);
        disk.tamper("packs/pack-00000001", |bytes| bytes[..8].fill(0)).unwrap();
        let (mut blobs, found) = open();
        assert_eq!(found.damaged.len(), 1, "{found:?}");
        let refused = check_blobs(&state, &blobs, &found).unwrap_err().to_string();
        assert!(refused.contains("packs/pack-00000001 is damaged at byte 0"), "{refused}");
        // As a start puts it back from the journal.
        blobs.put(&content, 1).unwrap();
        check_blobs(&state, &blobs, &found).unwrap();
        let (none, found) =
            Blobs::open(Arc::new(FaultyDisk::default()), Default::default()).unwrap();
        let refused = check_blobs(&state, &none, &found).unwrap_err().to_string();
        assert!(refused.contains(&format!("text of job {job} is missing")), "{refused}");
    }

    #[test]
    fn entries_that_lead_out_of_the_folder_are_refused() {
        let cases = [
            ("../escaped", EntryType::Regular, ""),
            ("/escaped", EntryType::Regular, ""),
            ("keys/../../escaped", EntryType::Regular, ""),
            ("keys/link", EntryType::Symlink, "/etc/passwd"),
            ("keys/link", EntryType::Link, "../escaped"),
            ("keys/fifo", EntryType::Fifo, ""),
            ("journal/device", EntryType::Char, ""),
            ("keys/folder", EntryType::Directory, ""),
            ("admin.token", EntryType::Regular, ""),
        ];
        for (path, kind, link) in cases {
            let above = tempfile::tempdir().unwrap();
            let dir = above.path().join("state");
            let refused = restore(&with_entry(path, kind, link), &dir, OPTIONS).unwrap_err();
            let refused = refused.to_string();
            let words = ["has no place in a backup", "is no plain file"];
            assert!(words.iter().any(|words| refused.contains(words)), "{path}: {refused}");
            let names: Vec<_> = std::fs::read_dir(above.path()).unwrap().collect();
            assert_eq!(names.len(), 1, "{path}");
        }
    }

    #[test]
    fn backup_of_a_newer_format_is_refused() {
        let mut archive = Builder::new(HashedWriter::new(tempfile::tempfile().unwrap()));
        let text = String::from_utf8(manifest()).unwrap().replace("\"format\":1", "\"format\":2");
        let mut header = Header::new_ustar();
        header.set_path(MANIFEST).unwrap();
        header.set_size(text.len() as u64);
        header.set_cksum();
        archive.append(&header, text.as_bytes()).unwrap();
        let file = archive.into_inner().unwrap().finish().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let refused = restore(&file, dir.path(), OPTIONS).unwrap_err().to_string();
        assert!(refused.contains("format 2"), "{refused}");
    }
}
