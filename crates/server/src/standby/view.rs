//! What the handlers of a standby are given: the shared handles of a server, over a state that is followed. What would change
//! something leads nowhere: those calls are passed on.

use super::follower::Follower;
use crate::auth::identity::Identity;
use crate::auth::key_files::KeyFiles;
use crate::auth::secret_keys::SecretKeys;
use crate::error::ServerError;
use crate::shared::books_queue::BooksQueue;
use crate::shared::dispatch_queue::DispatchQueue;
use crate::shared::forecast_queue::ForecastQueue;
use crate::shared::log_queue::LogQueue;
use crate::shared::mail_queue::MailQueue;
use crate::shared::server_list::ServerList;
use crate::shared::ssh_keys::SshKeys;
use crate::shared::state_lock::StateLock;
use crate::shared::uploads::Uploads;
use crate::shared::writer_queue::WriterQueue;
use crate::shared::{Setup, Shared, Volatile};
use crate::ssh::host_key;
use cluster::State;
use std::path::Path;
use std::sync::{Arc, Mutex};
use store::{Blobs, BookReader, LogFiles, RealDisk};

/// The folder for what handlers may open and a standby has nothing in. The leader's own folders are opened when it leads.
const FOLDER: &str = "standby";

pub fn shared(
    state: State,
    books_path: &Path,
    follower: &mut Follower,
    setup: Setup,
    servers: Arc<ServerList>,
) -> Result<Arc<Shared>, ServerError> {
    let (keys, own) = (setup.server_dir.join("keys"), setup.server_dir.join(FOLDER));
    let disk = |name: &str| {
        let path = own.join(name);
        RealDisk::open(&path).map(Arc::new).map_err(ServerError::file(&path))
    };
    let (blobs, _) = Blobs::open(disk("blobs")?, Default::default())?;
    let logs = LogFiles::new(disk("logs")?).map_err(ServerError::file(&own))?;
    let booked = *follower.booked.borrow();
    let (books, work) = BooksQueue::new(booked, BookReader::open(books_path)?);
    follower.booked = work.written;
    let key_files = KeyFiles::from(&keys);
    let mut volatile = Volatile::default();
    volatile.servers = servers;
    volatile.followed_blobs = Some(follower.followed_blobs.clone());
    Ok(Arc::new(Shared {
        secret_keys: SecretKeys::load(key_files.clone(), state.sealed_values()),
        state: StateLock::new(state),
        blobs: Mutex::new(blobs),
        writer: WriterQueue::new().0,
        planner: Default::default(),
        forecasts: ForecastQueue::new().0,
        dispatch: DispatchQueue::new().0,
        books,
        agents: Default::default(),
        logs: LogQueue::new(Arc::new(logs)).0,
        mail: MailQueue::new().0,
        identity: Identity::load_or_make(&keys)?,
        uploads: Uploads::new(own.join("uploads")),
        ssh_keys: SshKeys::load(key_files.clone(), host_key::random_seed)?,
        key_files,
        sealing: Default::default(),
        commits: Default::default(),
        volatile,
        setup,
    }))
}
