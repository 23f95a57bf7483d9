//! Starting up and going down.

use crate::agents::listen::{self, Agents};
use crate::shared::commit_watch::Changes;
use crate::http::body_limits::Bodies;
use crate::shared::books_queue::BooksHandle;
use crate::clock;
use crate::dispatch::Dispatch;
use crate::http::connection_limits::{self, DoorLimits, Rooms};
use crate::error::ServerError;
use crate::plan::forecast::Foresight;
use crate::http;
use crate::auth::identity::{self, Identity};
use crate::plan::planner::Planner;
use crate::shared::writer_queue::{Writer, server_principal};
use crate::writer::recover;
use crate::shared::{Setup, Shared, Volatile};
use crate::writer::tick;
use crate::auth::token;
use crate::writer::thread::WriterThread;
use cluster::event::UserToken;
use cluster::{ClusterConfig, Command};
use model::principal::Role;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock};
use store::{Blobs, RealDisk};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// How long `up` waits for this machine's agent before it says that it is up.
const NODES_PATIENCE: std::time::Duration = std::time::Duration::from_secs(15);

pub struct ServerOptions {
    /// The server's own part of the state folder.
    pub server_dir: PathBuf,
    /// The whole state folder, for jobs that call back through its socket.
    pub state_dir: PathBuf,
    /// Set when every node is on this machine.
    pub machine: Option<crate::configure::Machine>,
    pub config_dir: Option<PathBuf>,
    pub config: ClusterConfig,
    /// Whom the administrator's token stands for: who started the server.
    pub admin_user: String,
    /// The administrator's token; only its hash is kept here.
    pub admin_token: String,
    /// Addresses that join files name for the agents' port.
    pub agents_addresses: Vec<String>,
    /// Nodes of this machine, whose agent joins by `server/local.join`.
    pub local_nodes: Vec<String>,
    pub hostname: String,
    /// A snapshot is due after this many events.
    pub snapshot_events: u64,
    pub door_limits: DoorLimits,
}

/// The sockets, bound before root is given up.
pub struct Doors {
    pub socket: UnixListener,
    pub port: TcpListener,
    pub agents: TcpListener,
}

/// Runs the server until it is told to stop. `ready` is called once it answers.
pub fn run(
    options: ServerOptions,
    doors: Doors,
    ready: impl FnOnce() + Send + 'static,
) -> Result<(), ServerError> {
    let dir = options.server_dir.clone();
    let recovered = recover::recover(&dir)?;
    let (state, thread, records) = WriterThread::new(recovered);
    let blobs_dir = dir.join("blobs");
    let disk = RealDisk::open(&blobs_dir).map_err(ServerError::file(&blobs_dir))?;
    let (blobs, _) = Blobs::open(Arc::new(disk), Default::default())?;
    let books = BooksHandle::start(&dir.join("books.sqlite"))?;
    for (seq, record) in records {
        books.add(seq, vec![record]);
    }
    let (writer, work) = Writer::new();
    let (foresight, foresight_thread) = Foresight::new();
    let (dispatch, dispatch_thread) = Dispatch::new(thread.term());
    let term = thread.term();
    let listen = doors.port.local_addr().map(|a| a.to_string()).unwrap_or_default();
    let shared = Arc::new(Shared {
        state: Arc::new(RwLock::new(state)),
        blobs: Arc::new(Mutex::new(blobs)),
        writer,
        planner: Planner::default(),
        foresight,
        dispatch,
        books,
        agents: Agents::default(),
        identity: Identity::load_or_make(&dir.join("keys"))?,
        changes: Changes::default(),
        volatile: Volatile::default(),
        setup: Setup {
            server_dir: dir.clone(),
            machine: options.machine.clone(),
            config_dir: options.config_dir.clone(),
            agents_addresses: options.agents_addresses.clone(),
            listen,
            client_state: options.machine.as_ref().map(|_| options.state_dir.display().to_string()),
            hostname: options.hostname.clone(),
            snapshot_events: options.snapshot_events.max(1),
            started: clock::now(),
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
                std::process::exit(70);
            }
            tracing::error!("the writer ended");
            std::process::exit(70);
        }),
    )?;
    let for_dispatch = shared.clone();
    start("dispatch", Box::new(move || dispatch_thread.run(&for_dispatch)))?;
    let for_planner = shared.clone();
    start("planner", Box::new(move || for_planner.planner.run(&for_planner)))?;
    let for_foresight = shared.clone();
    start("foresight", Box::new(move || foresight_thread.run(&for_foresight)))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| ServerError::Other(format!("cannot start the runtime: {e}")))?;
    runtime.block_on(serve(shared, options, doors, term, ready))
}

async fn serve(
    shared: Arc<Shared>,
    options: ServerOptions,
    sockets: Doors,
    term: u64,
    ready: impl FnOnce(),
) -> Result<(), ServerError> {
    prepare(&shared, &options, term).await?;
    let listening = |e| ServerError::Listen { address: shared.setup.listen.clone(), source: e };
    // Before anybody can know that there is a server to stop.
    let mut stop = Stop::listen().map_err(|e| ServerError::Other(e.to_string()))?;
    sockets.socket.set_nonblocking(true).map_err(listening)?;
    sockets.port.set_nonblocking(true).map_err(listening)?;
    sockets.agents.set_nonblocking(true).map_err(listening)?;
    connection_limits::deepen(&sockets.socket);
    connection_limits::deepen(&sockets.port);
    connection_limits::deepen(&sockets.agents);
    let socket = tokio::net::UnixListener::from_std(sockets.socket).map_err(listening)?;
    let port = tokio::net::TcpListener::from_std(sockets.port).map_err(listening)?;
    let agents_port = tokio::net::TcpListener::from_std(sockets.agents).map_err(listening)?;
    let limits = &options.door_limits;
    let rooms = Rooms::new(connection_limits::raise_descriptors(), limits);
    let router = http::router(shared.clone(), Bodies::new(limits));
    tokio::spawn(connection_limits::serve_socket(router.clone(), socket, rooms.socket, limits.clone()));
    tokio::spawn(connection_limits::serve_port(router, port, rooms.port, limits.clone()));
    tokio::spawn(listen::listen(shared.clone(), agents_port, rooms.agents));
    tokio::spawn(tick::run(shared.clone()));
    tokio::select! {
        () = await_nodes(&shared, &options.local_nodes) => {
            ready();
            shared.planner.wake();
            stop.wanted().await;
        }
        () = stop.wanted() => {}
    }
    tracing::info!("the server stops; jobs go on");
    shared.agents.say_goodbye().await;
    Ok(())
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
    let hash = token::hash(&options.admin_token);
    if !shared.read().user_tokens.contains_key(&hash) {
        let admin = UserToken {
            hash,
            name: "admin".into(),
            account: None,
            unix_user: Some(options.admin_user.clone()),
            role: Role::Admin,
        };
        let command = Command::SetUserToken(Box::new(admin));
        shared.writer.run(command, me()).await.map_err(refused)?;
    }
    let nodes = options.local_nodes.clone();
    if !nodes.is_empty() && !has_join_file(shared, options) {
        let text = token::generate();
        let expires = model::time::Timestamp(clock::now().0 + 24 * 3600 * 1000);
        let hash = token::hash(&text);
        let command = Command::IssueToken { hash, nodes: nodes.clone(), expires };
        shared.writer.run(command, me()).await.map_err(refused)?;
        let servers = shared.setup.agents_addresses.clone();
        let file = listen::join_file(&shared.identity, servers, text, nodes);
        let json = serde_json::to_string(&file).map_err(|e| ServerError::Other(e.to_string()))?;
        identity::write_private(&options.server_dir, "local.join", &json)?;
    }
    Ok(())
}

/// The signals that end a server in due form.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn listen() -> std::io::Result<Stop> {
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Stop { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Up means that work can start: the nodes of this machine answer. Bounded; what is missing is said.
async fn await_nodes(shared: &Shared, nodes: &[String]) {
    let deadline = tokio::time::Instant::now() + NODES_PATIENCE;
    let mut changes = shared.changes.subscribe();
    loop {
        let missing = nodes.iter().filter(|n| !shared.agents.is_connected(n)).count();
        if missing == 0 {
            return;
        }
        if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
            tracing::warn!("{missing} of {} nodes do not answer yet", nodes.len());
            return;
        }
    }
}

/// Whether the join file that lies there still works, or has already done its work.
fn has_join_file(shared: &Shared, options: &ServerOptions) -> bool {
    let read = std::fs::read(options.server_dir.join("local.join")).ok();
    let file = read.and_then(|b| serde_json::from_slice::<wire::link::JoinFile>(&b).ok());
    let Some(file) = file else { return false };
    let state = shared.read();
    let joined = file.nodes.iter().all(|n| state.agents.contains_key(n));
    let open = state.tokens.get(&token::hash(&file.token));
    let open = open.is_some_and(|t| t.expires > clock::now());
    file.nodes == options.local_nodes
        && file.authority == shared.identity.authority_pem()
        && (joined || open)
}
