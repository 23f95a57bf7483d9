//! Starting the server and stopping it.

use crate::agents::join;
use crate::agents::listen::{self, NodeServices, NodeSshClient, ServeClient, ServeSsh};
use crate::allocator;
use crate::auth::identity::{self, Identity};
use crate::auth::principal::server_principal;
use crate::auth::secret_keys::SecretKeys;
use crate::auth::token;
use crate::clock;
use crate::configuration_check::refuse_dropped;
use crate::configure::Machine;
use crate::connection_limits::{self, ConnectionLimits, ListenerSlots};
use crate::dispatch::DispatchThread;
use crate::error::ServerError;
use crate::fleet::installer;
use crate::fleet::program::Program;
use crate::http;
use crate::http::body_limits::BodyLimits;
use crate::http::clients_port::ClientsPort;
use crate::http::port_tls::PortTls;
use crate::http::serve::{LocalSocket, serve_client};
use crate::http::tokens::JOIN_LIFE;
use crate::http::vouch::NodeAsked;
use crate::inactivity;
use crate::logs::collector;
use crate::mail::{sender, watch};
use crate::plan::forecast::ForecastThread;
use crate::plan::planner;
use crate::power;
use crate::resume_files::ResumeFiles;
use crate::shared::dispatch_queue::DispatchQueue;
use crate::shared::forecast_queue::ForecastQueue;
use crate::shared::log_queue::{LogQueue, PullLog};
use crate::shared::mail_queue::MailQueue;
use crate::shared::ssh_keys::SshKeys;
use crate::shared::state_lock::StateLock;
use crate::shared::uploads::Uploads;
use crate::shared::writer_queue::WriterQueue;
use crate::shared::{Setup, Shared};
use crate::ssh::endpoint::{Endpoint, Peer};
use crate::ssh::host_key;
use crate::triggers;
use crate::utilization;
use crate::vital_task::{self, CANNOT_GO_ON};
use crate::writer::recover::{ReplayedEntry, StateDisks};
use crate::writer::thread::WriterThread;
use crate::writer::{books, collect, lost_history, tick};
use cluster::token::{ADMIN_TOKEN, TokenStatus, UserToken};
use cluster::{ClusterConfig, Command};
use model::hostlist;
use model::node::{AdminState, SlotState};
use model::principal::Role;
use russh::keys::PrivateKey;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use store::{Blobs, BookReader, Books, Journal, LogFiles, RealDisk};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;
use wire::diagnostics::LogLevel;
use wire::ssh::SshEndpoint;

/// After so long without this machine's agent, the server logs that it is missing.
const LOCAL_NODES_NOTICE: std::time::Duration = std::time::Duration::from_secs(15);

pub struct ServerOptions {
    /// The server's own part of the state folder.
    pub server_dir: PathBuf,
    /// The whole state folder, for jobs that call back through its socket.
    pub state_dir: PathBuf,
    /// Set when every node is on this machine.
    pub machine: Option<Machine>,
    pub config_dir: Option<PathBuf>,
    pub config: ClusterConfig,
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
    /// Nodes of this machine, whose agent joins by `server/local.join`.
    pub local_nodes: Vec<String>,
    pub hostname: String,
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
    pub ssh: Option<TcpListener>,
}

/// Runs the server until it is told to stop. `ready` is called once it answers.
pub fn run(
    options: ServerOptions,
    listeners: Listeners,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), ServerError> {
    allocator::configure();
    let dir = options.server_dir.clone();
    let disks = StateDisks::open(&dir)?;
    store::refuse_newer(&*disks.journal)?;
    refuse_newer_books(&dir)?;
    let begun = std::time::Instant::now();
    let mut recovered = disks.recover()?;
    tracing::info!(
        version = wire::version::program(),
        jobs = recovered.state.jobs.len(),
        nodes = recovered.state.nodes.len(),
        snapshot_seq = recovered.snapshot_seq,
        seq = recovered.journal.last_seq(),
        took_ms = begun.elapsed().as_millis() as u64,
        "the server starts: state recovered"
    );
    if !options.force {
        refuse_dropped(&recovered.state, &options.config)?;
    }
    let books_path = dir.join("books.sqlite");
    let mut books = Books::open(&books_path)?;
    lost_history::settle(&mut recovered, &mut books)?;
    let (state, thread, records) = WriterThread::new(recovered, disks);
    let blobs_dir = dir.join("blobs");
    let disk = RealDisk::open(&blobs_dir).map_err(ServerError::file(&blobs_dir))?;
    let (blobs, _) = Blobs::open(Arc::new(disk), Default::default())?;
    let books = books::start(books, &books_path)?;
    for ReplayedEntry { seq, record, deleted, activities } in records {
        books.add(seq, record.into_iter().collect(), deleted, activities);
    }
    let (writer, work) = WriterQueue::new();
    let (forecasts, questions) = ForecastQueue::new();
    let (dispatch, dispatch_work) = DispatchQueue::new();
    let (mail, mails) = MailQueue::new();
    let logs_dir = dir.join("logs");
    let disk = RealDisk::open(&logs_dir).map_err(ServerError::file(&logs_dir))?;
    let (logs, pulls) = LogQueue::new(Arc::new(
        LogFiles::new(Arc::new(disk)).map_err(ServerError::file(&logs_dir))?,
    ));
    let term = thread.term();
    let listen = listeners.port.local_addr().map(|a| a.to_string()).unwrap_or_default();
    let identity = Identity::load_or_make(&dir.join("keys"))?;
    let host_key = host_key::load_or_make(&dir.join("keys"))?;
    let ssh_keys = SshKeys::load(&dir.join("keys"), host_key::random_seed)?;
    let secret_keys = SecretKeys::load(&dir.join("keys"), state.sealed_values());
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
        secret_keys,
        uploads: Uploads::new(dir.join("uploads")),
        ssh_keys,
        sealing: Default::default(),
        commits: Default::default(),
        volatile: Default::default(),
        setup: Setup {
            machine: options.machine.clone(),
            config_dir: options.config_dir.clone(),
            server_dir: dir.clone(),
            agents_addresses: options.agents_addresses.clone(),
            listen,
            listen_addresses: options.listen_addresses.clone(),
            ssh: ssh_endpoint(&options, &host_key),
            ssh_host_key: host_key.public_key().to_openssh().unwrap_or_default(),
            client_state: options.machine.as_ref().map(|_| options.state_dir.display().to_string()),
            hostname: options.hostname.clone(),
            snapshot_events: options.snapshot_events.max(1),
            started: clock::now(),
            set_log_level: options.set_log_level,
        },
    });
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
        .enable_all()
        .build()
        .map_err(|e| ServerError::Other(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(serve(shared, options, listeners, host_key, pulls, term, ready))
}

async fn serve(
    shared: Arc<Shared>,
    options: ServerOptions,
    listeners: Listeners,
    host_key: PrivateKey,
    pulls: Receiver<PullLog>,
    term: u64,
    ready: impl FnOnce(),
) -> Result<(), ServerError> {
    prepare(&shared, &options, term).await?;
    let listening = |e| ServerError::Listen { address: shared.setup.listen.clone(), source: e };
    // Before anybody can know that there is a server to stop.
    let mut stop = StopSignals::listen().map_err(|e| ServerError::Other(e.to_string()))?;
    listeners.socket.set_nonblocking(true).map_err(listening)?;
    listeners.port.set_nonblocking(true).map_err(listening)?;
    listeners.agents.set_nonblocking(true).map_err(listening)?;
    connection_limits::set_backlog(&listeners.socket);
    connection_limits::set_backlog(&listeners.port);
    connection_limits::set_backlog(&listeners.agents);
    let socket = tokio::net::UnixListener::from_std(listeners.socket).map_err(listening)?;
    let port = tokio::net::TcpListener::from_std(listeners.port).map_err(listening)?;
    let agents_port = tokio::net::TcpListener::from_std(listeners.agents).map_err(listening)?;
    let limits = &options.connection_limits;
    let slots = ListenerSlots::new(connection_limits::raise_descriptors(), limits);
    let router = http::router(shared.clone(), BodyLimits::new(shared.clone(), limits));
    let (ssh, logins, idle) = (slots.ssh, slots.ssh_logins, limits.tunnel_idle);
    let endpoint = Arc::new(Endpoint::new(shared.clone(), host_key, ssh, logins, idle));
    let local_socket = LocalSocket {
        router: router.clone(),
        slots: slots.socket,
        limits: limits.clone(),
        shared: shared.clone(),
        endpoint: endpoint.clone(),
    };
    vital_task::spawn("the clients' socket", Arc::new(local_socket).serve(socket));
    let clients_port = ClientsPort {
        router: router.clone(),
        slots: slots.port,
        handshakes: slots.handshakes,
        limits: limits.clone(),
        tls: PortTls::start(shared.clone())?,
    };
    vital_task::spawn("the clients' port", Arc::new(clients_port).serve(port));
    let http: Box<ServeClient> = {
        let (slots, limits, shared) = (slots.nodes, limits.clone(), shared.clone());
        Box::new(move |stream, client, fingerprint| {
            let (router, slots, limits) = (router.clone(), slots.clone(), limits.clone());
            let (shared, asked) = (shared.clone(), NodeAsked { client, fingerprint });
            Box::pin(async move {
                serve_client(&router, stream, asked, &slots, &limits, &shared).await;
            })
        })
    };
    let ssh: Box<ServeSsh> = {
        let endpoint = endpoint.clone();
        Box::new(move |stream, client| {
            let endpoint = endpoint.clone();
            Box::pin(async move {
                let NodeSshClient { login, fingerprint, socket } = client;
                endpoint.serve_internode(stream, socket, login, Peer::Agent(&fingerprint));
            })
        })
    };
    let services = Arc::new(NodeServices { http, ssh });
    let agents = listen::listen(shared.clone(), agents_port, slots.agents, services);
    vital_task::spawn("the agents' port", agents);
    if let Some(listener) = listeners.ssh {
        listener.set_nonblocking(true).map_err(listening)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(listening)?;
        vital_task::spawn("the SSH port", endpoint.serve(listener));
    }
    vital_task::spawn("the timer", tick::run(shared.clone()));
    vital_task::spawn("the watch of mails", watch::run(shared.clone()));
    vital_task::spawn("the allocator's task", allocator::run());
    vital_task::spawn("the watch of utilization", utilization::run(shared.clone()));
    let own = &shared.setup.server_dir;
    let resume_files = ResumeFiles::open(own).map_err(ServerError::file(own))?;
    vital_task::spawn("power saving", power::run(shared.clone(), resume_files));
    vital_task::spawn("triggers", triggers::run(shared.clone()));
    vital_task::spawn("the watch of inactivity", inactivity::run(shared.clone()));
    vital_task::spawn("the collector of logs", collector::run(shared.clone(), pulls));
    vital_task::spawn("fleets", install_fleets(shared.clone(), options.program));
    let hangup = signal(SignalKind::hangup()).map_err(|e| ServerError::Other(e.to_string()))?;
    vital_task::spawn("SIGHUP", reconfigure_on_hangup(shared.clone(), hangup));
    tokio::select! {
        () = await_nodes(&shared, &options.local_nodes) => {
            ready();
            shared.planner.wake();
            stop.received().await;
        }
        () = stop.received() => {}
    }
    tracing::info!("the server stops; jobs go on");
    shared.agents.shut_down().await;
    Ok(())
}

/// Books of a newer program are refused before anything is written; the journal and the snapshots are read before they are
/// written to.
fn refuse_newer_books(dir: &Path) -> Result<(), ServerError> {
    let books = dir.join("books.sqlite");
    if books.exists() {
        BookReader::open(&books)?;
    }
    Ok(())
}

/// SIGHUP is `scontrol reconfigure`: it reads the configuration again, and a bad one changes nothing.
async fn reconfigure_on_hangup(shared: Arc<Shared>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        match http::calls::reconfigure(&shared, server_principal(), None).await {
            Ok(_) => tracing::info!("SIGHUP: the configuration was read again"),
            Err(why) => tracing::error!("SIGHUP: the configuration stays as it was: {why}"),
        }
    }
}

/// Looks after the hosts of fleets, once there are any.
async fn install_fleets(shared: Arc<Shared>, program: std::fs::File) {
    let mut commits = shared.commits.subscribe();
    while shared.read().fleets.is_empty() {
        if commits.changed().await.is_err() {
            return;
        }
    }
    match tokio::task::spawn_blocking(move || Program::open(program)).await {
        Ok(Ok(program)) => installer::run(shared, Arc::new(program)).await,
        Ok(Err(error)) => {
            tracing::error!("hosts of fleets cannot be installed: the program: {error}")
        }
        Err(error) => tracing::error!("hosts of fleets cannot be installed: {error}"),
    }
}

/// Where SSH clients find the server: at the host that the site names for its server, or at the first address.
fn ssh_endpoint(options: &ServerOptions, host_key: &PrivateKey) -> Option<SshEndpoint> {
    let split = |address: &String| {
        let (host, port) = address.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port.parse::<u16>().ok()?))
    };
    let (host, port) = options.ssh_addresses.first().and_then(split)?;
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let named = options.config.server_addresses.first().and_then(split);
    let host = named.filter(|_| !is_loopback).map_or(host, |(named, _)| named);
    let host_key = host_key.public_key().to_openssh().unwrap_or_default();
    Some(SshEndpoint { host, port, host_key })
}

/// A new term, the configuration, the administrator's token, and a join file for this machine.
async fn prepare(
    shared: &Arc<Shared>,
    options: &ServerOptions,
    term: u64,
) -> Result<(), ServerError> {
    let refused = |e: model::reason::Refusal| ServerError::Other(e.to_string());
    let me = server_principal;
    shared.writer.run(Command::StartTerm { term }, me()).await.map_err(refused)?;
    let config = Command::Configure(Box::new(options.config.clone()));
    shared.writer.run(config, me()).await.map_err(refused)?;
    let awaited = shared.read().restore_wait.clone();
    if let Some(wait) = awaited {
        let nodes: Vec<String> = wait.nodes.into_iter().collect();
        tracing::warn!(
            nodes = hostlist::compress(&nodes),
            "jobs of before the restore start when these nodes have connected, or are down"
        );
    }
    let hash = token::hash(&options.admin_token);
    // The file says which token is the administrator's: one that was replaced there is refused from now on.
    let known = shared.read().user_tokens.get(&hash).cloned();
    let is_good = |t: UserToken| t.is_admin_token() && t.status(clock::now()) == TokenStatus::Good;
    if !known.is_some_and(is_good) {
        let admin = UserToken {
            hash,
            name: ADMIN_TOKEN.into(),
            token_name: ADMIN_TOKEN.into(),
            unix_user: Some(options.admin_user.clone()),
            role: Role::Admin,
            made: Some(clock::now()),
            ..UserToken::default()
        };
        let command = Command::SetAdminToken(Box::new(admin));
        shared.writer.run(command, me()).await.map_err(refused)?;
    }
    let nodes = options.local_nodes.clone();
    if !nodes.is_empty() && !has_join_file(shared, options) {
        let file = join::issue_join_file(shared, me(), nodes, JOIN_LIFE).await.map_err(refused)?;
        let json = serde_json::to_string(&file).map_err(|e| ServerError::Other(e.to_string()))?;
        identity::write_private(&options.server_dir, "local.join", &json)?;
    }
    Ok(())
}

/// The signals that stop the server in due form.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn listen() -> std::io::Result<Self> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits until all nodes of this machine answer, but those that are powered down: a cluster on which nothing can run is not up.
/// Clients are served meanwhile.
async fn await_nodes(shared: &Shared, nodes: &[String]) {
    let notice = tokio::time::Instant::now() + LOCAL_NODES_NOTICE;
    let mut commits = shared.commits.subscribe();
    let mut is_told = false;
    loop {
        let expected = powered_up(shared, nodes);
        let missing = expected.len() - shared.agents.connected(&expected);
        if missing == 0 && have_answered(shared, &expected) {
            return;
        }
        // Nodes that are still missing then are other machines'.
        if is_told && one_agent_is_whole(shared, &expected) {
            return;
        }
        if is_told {
            let _ = commits.changed().await;
        } else if tokio::time::timeout_at(notice, commits.changed()).await.is_err() {
            is_told = true;
            if !one_agent_is_whole(shared, &expected) {
                tracing::warn!("{missing} of {} nodes do not answer yet", expected.len());
            }
        }
    }
}

fn powered_up(shared: &Shared, nodes: &[String]) -> Vec<String> {
    let state = shared.read();
    let is_off = |node: &String| {
        let known = state.nodes.get(node);
        known.is_some_and(|node| !node.power.is_on() || node.admin == Some(AdminState::Future))
    };
    nodes.iter().filter(|node| !is_off(node)).cloned().collect()
}

/// Whether all nodes that one certificate speaks for are connected.
fn one_agent_is_whole(shared: &Shared, nodes: &[String]) -> bool {
    let mut of_agents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let state = shared.read();
    for node in nodes {
        if let Some(fingerprint) = state.agents.get(node) {
            of_agents.entry(fingerprint.clone()).or_default().push(node.clone());
        }
    }
    drop(state);
    of_agents
        .values()
        .any(|own| shared.agents.connected(own) == own.len() && have_answered(shared, own))
}

/// Whether what their agent said is in the state. A node that an administrator has set down is answered for as well.
fn have_answered(shared: &Shared, nodes: &[String]) -> bool {
    let state = shared.read();
    let waits = |slot| matches!(slot, SlotState::Joining | SlotState::Silent);
    nodes.iter().all(|n| state.nodes.get(n).is_none_or(|node| !waits(node.slot)))
}

/// Whether there is a join file that is still good, or that all its nodes have already joined by.
fn has_join_file(shared: &Shared, options: &ServerOptions) -> bool {
    let read = std::fs::read(options.server_dir.join("local.join")).ok();
    let file = read.and_then(|b| serde_json::from_slice::<wire::link::JoinFile>(&b).ok());
    let Some(file) = file else { return false };
    let state = shared.read();
    let now = clock::now();
    let joined = file.nodes.iter().all(|n| state.has_live_certificate(n, now));
    let usable = state.tokens.get(&token::hash(&file.token));
    let usable = usable.is_some_and(|t| t.expires > now);
    file.nodes == options.local_nodes
        && file.authority == shared.identity.authority_pem()
        && (joined || usable)
}
