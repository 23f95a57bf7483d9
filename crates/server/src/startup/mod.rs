//! Starting the server and stopping it: what it is started with, its threads, and the listeners' tasks (`serve`). `prepare` is what the
//! state needs before anybody is answered, `local_nodes` the wait for the nodes of this machine, `leadership` which of several
//! servers leads, `presence` which servers there are, `newest_configuration` which configuration counts, `state_place` where the
//! state is.

mod leadership;
mod local_nodes;
mod newest_configuration;
mod prepare;
mod presence;
mod serve;
pub(crate) mod state_place;

use crate::auth::identity::Identity;
use crate::auth::key_files::KeyFiles;
use crate::auth::secret_keys::SecretKeys;
use crate::auth::shared_keys::{SharedKeys, StoreKey};
use crate::configuration_check::{dropped_text, refuse_dropped};
use crate::configure::Machine;
use crate::connection_limits::{self, ConnectionLimits};
use crate::dispatch::DispatchThread;
use crate::error::ServerError;
use crate::mail::sender;
use crate::plan::forecast::ForecastThread;
use crate::plan::planner;
use crate::server_places::ServerPlaces;
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
use crate::standby::{HotState, StandbyOptions};
use crate::vital_task::CANNOT_GO_ON;
use crate::writer::recover::{Recovered, ReplayedEntry, StateDisks, recover_with_blobs};
use crate::writer::thread::WriterThread;
use crate::writer::{books, collect, lost_history};
use crate::{allocator, clock};
use cluster::ClusterConfig;
use leadership::{Leadership, Waiting};
use newest_configuration::{accepted_configuration, newest_configuration};
use russh::keys::PrivateKey;
use serve::{ServeEnd, serve};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::postgres::{DatabaseUrl, EndedLog, ServerAddress};
use store::{BlobIndex, Blobs, BookReader, Books, JournalError};
use wire::diagnostics::LogLevel;
use wire::ssh::SshEndpoint;

/// How long calls that are under way may take until the process ends without them.
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// What the key of browsers' markers is derived for.
const MARKER_CONTEXT: &str = "markers of browsers that show pages of jobs";

/// Threads that may wait at once, each for a task of the runtime: for the state while a slow database commits, for files. With more of
/// them nothing else is done either.
const WAITING_THREADS_MAX: usize = 4096;

/// How long who asked for a hand-over may take to hear that it is done.
const HANDOVER_ANSWER_TIME: Duration = Duration::from_millis(200);

pub struct ServerOptions {
    /// The server's own part of the state folder.
    pub server_dir: PathBuf,
    /// The whole state folder, for jobs that call back through its socket.
    pub state_dir: PathBuf,
    /// Set when every node is on this machine.
    pub machine: Option<Machine>,
    pub config_dir: Option<PathBuf>,
    pub config: ClusterConfig,
    /// Why the configuration files cannot be used: the configuration that was accepted last is taken in their place.
    pub config_fault: Option<String>,
    /// Start also if jobs are on nodes or in partitions that the configuration does not have.
    pub force: bool,
    /// The user whom the administrator's token stands for: the one who started the server.
    pub admin_user: String,
    /// The administrator's token; only its hash is kept here.
    pub admin_token: String,
    /// Addresses that join files name for the agents' port.
    pub agents_addresses: Vec<String>,
    /// Where other machines find the clients' port.
    pub listen_addresses: Vec<String>,
    /// Where SSH clients find the server, in the order of preference; none where nobody listens for them.
    pub ssh_addresses: Vec<String>,
    /// Nodes of this machine, whose agent joins by `server/local.join`: those of the configuration, and others whose spools here
    /// hold attempts.
    pub local_nodes: Vec<String>,
    pub hostname: String,
    /// The network stack of this process, as `agent::network_stack` names it: an agent with the same has the same loopback addresses.
    pub network_stack: Option<String>,
    /// The database that several servers share; without one the state is in files of this machine.
    pub store: Option<DatabaseUrl>,
    /// What the keys in the database are sealed under. Without it, each server has them in files that were copied by hand.
    pub store_key: Option<StoreKey>,
    /// Told who leads, where this server waits for another.
    pub on_standby: fn(&str),
    /// A snapshot is due after this many events.
    pub snapshot_events: u64,
    pub connection_limits: ConnectionLimits,
    /// The program itself, which is installed on the hosts of fleets.
    pub program: std::fs::File,
    /// Sets how much this process logs.
    pub set_log_level: fn(LogLevel),
}

/// The listening sockets, bound before root is given up.
pub struct Listeners {
    pub socket: UnixListener,
    pub port: TcpListener,
    pub agents: TcpListener,
    /// For services and web pages of jobs; without it they are found at `port`.
    pub proxy: Option<TcpListener>,
    pub ssh: Option<TcpListener>,
}

/// Runs the server until it is told to stop. `ready` is called once it answers.
pub fn run(
    mut options: ServerOptions,
    listeners: Listeners,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), ServerError> {
    allocator::configure();
    // Before the journal is read: agents and clients dial meanwhile, and whoever finds the backlog full tries again after seconds.
    connection_limits::set_backlog(&listeners.socket);
    connection_limits::set_backlog(&listeners.port);
    connection_limits::set_backlog(&listeners.agents);
    listeners.proxy.iter().for_each(connection_limits::set_backlog);
    let dir = options.server_dir.clone();
    if options.store.is_some() {
        state_place::finish_leaving_files(&dir)?;
    }
    state_place::refuse_other_place(&dir, options.store.is_some())?;
    let keys = dir.join("keys");
    let shared_keys = match (&options.store, options.store_key.take()) {
        (Some(url), Some(key)) => {
            let shared = SharedKeys::new(url, key)?;
            leadership::await_database(&listeners, || shared.join(&keys, &options.admin_token))?;
            Some(shared)
        }
        _ => None,
    };
    let identity = Identity::load_or_make(&keys)?;
    let mut leadership = match &options.store {
        Some(url) => {
            state_place::note_database(&dir)?;
            let cluster = identity.authority_fingerprint()?;
            Some(Leadership::acquire(&Waiting {
                url,
                identity: &cluster,
                address: ServerAddress {
                    name: options.hostname.clone(),
                    clients: options.listen_addresses.clone(),
                    agents: options.agents_addresses.clone(),
                    version: wire::version::program(),
                },
                listeners: &listeners,
                on_standby: options.on_standby,
                standby: &|servers| standby_options(url, &options, &listeners, servers),
            })?)
        }
        None => None,
    };
    let hot = leadership.as_mut().and_then(|leads| leads.hot.take());
    if let (Some(shared), Some(_)) = (&shared_keys, &leadership) {
        // Another server may have led since they were read.
        options.admin_token = shared.refresh(&keys)?.unwrap_or(options.admin_token);
    }
    if leadership.is_some() {
        let (dir, machine) = (options.config_dir.as_deref(), options.machine.as_ref());
        options.config = newest_configuration(dir, machine, options.config.clone());
    }
    let disks = match &leadership {
        Some(leads) => StateDisks::in_database(&leads.database, leads.epoch()),
        None => StateDisks::open(&dir)?,
    };
    disks.refuse_newer()?;
    let books_path = state_place::books_path(&dir, leadership.is_some());
    refuse_newer_books(&books_path)?;
    let begun = std::time::Instant::now();
    let is_hot = hot.is_some();
    let blobs_disk = state_place::blobs_disk(&dir, leadership.as_ref())?;
    let (mut recovered, followed_books, blobs) = match hot {
        Some(hot) => {
            let (recovered, books, index) = recover_hot(&disks, hot)?;
            let (blobs, _) = Blobs::open_indexed(blobs_disk, Default::default(), index)?;
            (recovered, Some(books), blobs)
        }
        None => {
            let (recovered, blobs) = recover_with_blobs(&disks, blobs_disk)?;
            (recovered, None, blobs)
        }
    };
    tracing::info!(
        is_hot,
        version = wire::version::program(),
        jobs = recovered.state.jobs.len(),
        nodes = recovered.state.nodes.len(),
        snapshot_seq = recovered.snapshot_seq,
        seq = recovered.journal.last_seq(),
        took_ms = begun.elapsed().as_millis() as u64,
        "the server starts: state recovered"
    );
    if let Some(fault) = &options.config_fault {
        options.config = accepted_configuration(&recovered.state, fault, options.config.clone());
    }
    if !options.force {
        refuse_dropped(&recovered.state, &options.config)?;
    } else if let Some(dropped) = dropped_text(&recovered.state, &options.config) {
        tracing::warn!("the server starts all the same: {dropped}");
    }
    let mut books = match followed_books {
        Some(books) => books,
        None if leadership.is_some() => {
            books::open_shared(&books_path, recovered.journal.last_seq())?
        }
        None => Books::open(&books_path)?,
    };
    let ended =
        leadership.as_ref().map(|leads| EndedLog::new(leads.database.clone(), leads.epoch()));
    if let Some(ended) = &ended {
        books::catch_up(&mut books, ended)?;
    }
    lost_history::settle(&mut recovered, &mut books)?;
    let (state, thread, records) = WriterThread::new(recovered, disks);
    let books = books::start(books, &books_path, ended)?;
    for ReplayedEntry { seq, record, deleted, activities } in records {
        books.add(seq, record.into_iter().collect(), deleted, activities);
    }
    let (writer, work) = WriterQueue::new();
    let (forecasts, questions) = ForecastQueue::new();
    let (dispatch, dispatch_work) = DispatchQueue::new();
    let (mail, mails) = MailQueue::new();
    let run_logs = state_place::run_logs(&dir, leadership.as_ref())?;
    let (logs, pulls) = LogQueue::new(Arc::new(run_logs));
    let term = thread.term();
    let host_key = host_key::load_or_make(&keys)?;
    let leaders_keys = shared_keys.zip(leadership.as_ref().map(Leadership::epoch));
    if let Some((shared, epoch)) = &leaders_keys {
        shared.add_missing(&keys, *epoch)?;
    }
    let key_files = match leaders_keys {
        Some((shared, epoch)) => KeyFiles::shared(&keys, shared, epoch),
        None => KeyFiles::from(&keys),
    };
    let ssh_keys = SshKeys::load(key_files.clone(), host_key::random_seed)?;
    let secret_keys = SecretKeys::load(key_files.clone(), state.sealed_values());
    let mut volatile = Volatile::default();
    if let Some(leads) = &leadership {
        volatile.servers = leads.servers.clone();
    }
    let shared = Arc::new(Shared {
        state: StateLock::new(state),
        blobs: Mutex::new(blobs),
        writer,
        planner: Default::default(),
        forecasts,
        dispatch,
        books,
        agents: Default::default(),
        logs,
        mail,
        identity,
        key_files,
        secret_keys,
        uploads: Uploads::new(dir.join("uploads")),
        ssh_keys,
        sealing: Default::default(),
        commits: Default::default(),
        volatile,
        setup: setup(&options, &listeners, &host_key),
    });
    let is_remembered = options.config_fault.is_some();
    shared.volatile.config_is_remembered.store(is_remembered, Ordering::Relaxed);
    shared.volatile.proxy.keep_markers(&shared.identity.derived_secret(MARKER_CONTEXT));
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
        spawned.map(drop).map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))
    };
    let for_writer = shared.clone();
    start(
        "writer",
        Box::new(move || {
            if let Err(error) = thread.run(for_writer, &work) {
                tracing::error!("the writer cannot go on: {error}");
                std::process::exit(CANNOT_GO_ON);
            }
            tracing::error!("the writer ended");
            std::process::exit(CANNOT_GO_ON);
        }),
    )?;
    let for_dispatch = shared.clone();
    start(
        "dispatch",
        Box::new(move || DispatchThread::new(dispatch_work, term).run(&for_dispatch)),
    )?;
    let for_mail = shared.clone();
    start("mail", Box::new(move || sender::run(&for_mail, &mails)))?;
    let for_planner = shared.clone();
    start("planner", Box::new(move || planner::run(&for_planner)))?;
    let for_forecasts = shared.clone();
    start("forecast", Box::new(move || ForecastThread::new(questions).run(&for_forecasts)))?;
    let for_collection = shared.clone();
    let kept = BookReader::open(&books_path)?;
    start("collect", Box::new(move || collect::run(&for_collection, &kept)))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(WAITING_THREADS_MAX)
        .enable_all()
        .build()
        .map_err(|e| ServerError::Other(format!("cannot start the runtime: {e}")))?;
    let served = runtime.block_on(serve(shared, options, listeners, host_key, pulls, term, ready));
    let is_handed_over = matches!(served, Ok(ServeEnd::HandedOver));
    if let Some(leads) = leadership {
        leads.release();
        if is_handed_over {
            leads.await_successor();
        }
    }
    if is_handed_over {
        tracing::info!(
            "the lead was handed over: this server ends, and waits when it is started again"
        );
        std::thread::sleep(HANDOVER_ANSWER_TIME);
        std::process::exit(CANNOT_GO_ON);
    }
    // A provider program that hangs would otherwise hold the exit for as long as one of its calls may take. The next server makes
    // the call again.
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    served.map(drop)
}

fn setup(options: &ServerOptions, listeners: &Listeners, host_key: &PrivateKey) -> Setup {
    Setup {
        machine: options.machine.clone(),
        config_dir: options.config_dir.clone(),
        server_dir: options.server_dir.clone(),
        agents_addresses: options.agents_addresses.clone(),
        listen: listeners.port.local_addr().map(|a| a.to_string()).unwrap_or_default(),
        listen_addresses: options.listen_addresses.clone(),
        proxy: listeners.proxy.as_ref().and_then(|proxy| proxy.local_addr().ok()),
        ssh: ssh_endpoint(options, host_key),
        ssh_host_key: host_key.public_key().to_openssh().unwrap_or_default(),
        client_state: options.machine.as_ref().map(|_| options.state_dir.display().to_string()),
        hostname: options.hostname.clone(),
        network_stack: options.network_stack.clone(),
        snapshot_events: options.snapshot_events.max(1),
        started: clock::now(),
        set_log_level: options.set_log_level,
    }
}

fn standby_options(
    url: &DatabaseUrl,
    options: &ServerOptions,
    listeners: &Listeners,
    servers: Arc<ServerList>,
) -> Result<StandbyOptions, ServerError> {
    let host_key = host_key::load_or_make(&options.server_dir.join("keys"))?;
    Ok(StandbyOptions {
        url: url.clone(),
        books_path: state_place::books_path(&options.server_dir, true),
        setup: setup(options, listeners, &host_key),
        limits: options.connection_limits.clone(),
        servers,
    })
}

/// Goes on from the state that this server has followed, with its books. One that is not in the database's history is read anew.
fn recover_hot(
    disks: &StateDisks,
    hot: HotState,
) -> Result<(Recovered, Books, BlobIndex), ServerError> {
    let HotState { state, position, records, books, blob_index } = hot;
    match disks.recover_from(state, position, records) {
        Ok(recovered) => Ok((recovered, books, blob_index)),
        Err(ServerError::Journal(error @ JournalError::Damaged { .. })) => {
            tracing::error!("the state that this server followed is not used: {error}");
            Ok((disks.recover()?, books, BlobIndex::default()))
        }
        Err(error) => Err(error),
    }
}

/// Books of a newer program are refused before anything is written; the journal and the snapshots are read before they are
/// written to.
fn refuse_newer_books(books: &Path) -> Result<(), ServerError> {
    if books.exists() {
        BookReader::open(books)?;
    }
    Ok(())
}

/// Where SSH clients find the server.
fn ssh_endpoint(options: &ServerOptions, host_key: &PrivateKey) -> Option<SshEndpoint> {
    let places = ServerPlaces {
        bound: &options.ssh_addresses,
        named: &options.config.server_addresses,
        hostname: &options.hostname,
        is_one_of_several: options.store.is_some(),
    };
    let (host, port) = places.endpoint()?;
    let host_key = host_key.public_key().to_openssh().unwrap_or_default();
    Some(SshEndpoint { host, port, host_key })
}
