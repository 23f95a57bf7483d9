//! A backup beside which the server goes on, whatever its client does.

use super::new_epoch::RestoreOptions;
use super::restore::restore;
use super::write::{BackupContent, write};
use crate::shared::Shared;
use crate::testing::TestServer;
use crate::writer::collect;
use cluster::Event;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Blobs, RealDisk};

const OPTIONS: RestoreOptions = RestoreOptions { skip_ids: 1, start_at_once: false };
const WITHOUT_KEYS: BackupContent = BackupContent { keys: false, logs: false };

/// Calls a function before the first byte is taken, as a client that stalls would hold the backup there.
struct Stalled<F> {
    file: File,
    before: Option<F>,
}

impl<F: FnOnce()> Write for Stalled<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(before) = self.before.take() {
            before();
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn backup(shared: &Shared, before: impl FnOnce()) -> File {
    let mut out = Stalled { file: tempfile::tempfile().expect("a file"), before: Some(before) };
    write(shared, WITHOUT_KEYS, &mut out).expect("a backup");
    out.file
}

#[tokio::test(flavor = "multi_thread")]
async fn collection_of_blobs_and_the_books_go_on_while_a_client_stalls() {
    let server = TestServer::start().await;
    let job = server.submit("name: train").await.expect("a job");
    let blob = server.shared.read().jobs[&job].spec.launch.script.expect("a script");
    let kept = server.book_reader();
    let (shared, dir) = (server.shared.clone(), server.shared.setup.server_dir.clone());
    let stalled = move |shared: &Arc<Shared>| {
        assert!(dir.join("backup.books").exists(), "the books are copied, and held no longer");
        assert!(shared.volatile.blob_files.try_lock().is_ok(), "files of blobs may be removed");
        // The job goes from memory, and its script from the disk.
        shared.state.write().apply(&Event::Purged { jobs: vec![job] });
        let collected = collect::pass(shared, &kept, true, Duration::ZERO).expect("a pass");
        assert!(collected.blobs > 0);
    };
    let file = tokio::task::spawn_blocking(move || backup(&shared, || stalled(&shared)));
    let file = file.await.expect("no panic");
    // The backup has the script as it was when it began.
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let restored = restore(&file, &state, OPTIONS).expect("a sound backup");
    assert_eq!(restored.epoch.jobs, 1);
    let disk = RealDisk::open(&state.join("blobs")).expect("blobs");
    let (blobs, _) = Blobs::open(Arc::new(disk), Default::default()).expect("blobs");
    assert!(blobs.contains(&(&blob).into()));
    assert!(!server.shared.setup.server_dir.join("backup.books").exists(), "nothing is left");
}

/// The copy of the configuration in a backup that was restored.
fn restored_config(state: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(state.join("config")).expect("a folder").flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let text = std::fs::read_to_string(entry.path()).expect("a text");
            (entry.file_name().into_string().expect("a name"), text)
        })
        .collect();
    files.sort_unstable();
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_without_keys_has_no_password_of_the_configuration() {
    let config = tempfile::tempdir().expect("a folder");
    let write_conf = |name: &str, text: &str| {
        std::fs::write(config.path().join(name), text).expect("a file");
    };
    write_conf("slurm.conf", "ClusterName=a\nAccountingStoragePass=hunter2\n");
    write_conf("slurmdbd.conf", "StorageUser=slurm\nStoragePass=hunter2\n");
    let mut server = TestServer::with_config_dir(config.path());
    server.start_writer();
    let shared = server.shared.clone();
    let file = tokio::task::spawn_blocking(move || backup(&shared, || {})).await;
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    restore(&file.expect("no panic"), &state, OPTIONS).expect("a sound backup");
    let expected = ("slurm.conf", "ClusterName=a\nAccountingStoragePass=(left out)\n");
    assert_eq!(restored_config(&state), [(expected.0.to_string(), expected.1.to_string())]);
}
