//! A server that waits for the lead: it follows the history that the leader writes, holds the state, answers what only looks, and
//! passes everything else on to the leader.
//!
//! `follower` takes the history in, `read_pause` is when it may read the whole state once more, `view` is the state as handlers see
//! it, `freshness` how old it is, `reasons` why jobs wait, `router` what is answered here, `pass_on` and `leader_link` the way to the
//! leader. When the server takes over, the state goes with it (`HotState`).

mod follower;
mod freshness;
mod leader_link;
mod pass_on;
mod read_pause;
mod reasons;
mod router;
mod view;

pub use follower::HotState;
pub use read_pause::ReadPause;

use crate::auth::accounts::Accounts;
use crate::connection_limits::{self, ConnectionLimits, ListenerSlots};
use crate::error::ServerError;
use crate::http::body_limits::BodyLimits;
use crate::http::clients_port::ClientsPort;
use crate::http::drain::Drain;
use crate::http::port_tls::PortTls;
use crate::http::serve::LocalSocket;
use crate::shared::Setup;
use crate::shared::Shared;
use crate::shared::server_list::ServerList;
use crate::ssh::endpoint::Endpoint;
use crate::ssh::host_key;
use follower::Follower;
use freshness::Freshness;
use leader_link::LeaderLink;
use pass_on::Strangers;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::postgres::{Database, DatabaseUrl};

/// How long requests that are under way may take when the server takes over; their clients ask again.
const STOP_TIME: Duration = Duration::from_millis(100);

/// How long the database may take for the text of a run: the leader is asked then.
const TEXT_TIMEOUT: Duration = Duration::from_secs(2);

/// What a standby is started with.
pub struct StandbyOptions {
    pub url: DatabaseUrl,
    pub books_path: PathBuf,
    pub setup: Setup,
    pub limits: ConnectionLimits,
    pub servers: Arc<ServerList>,
}

/// What the handlers of a standby share.
pub struct Standby {
    shared: Arc<Shared>,
    freshness: Freshness,
    leader: LeaderLink,
    strangers: Strangers,
}

/// A standby that answers.
pub struct StandbyServer {
    standby: Arc<Standby>,
    follower: Follower,
    runtime: tokio::runtime::Runtime,
}

impl StandbyServer {
    /// Reads the state, and answers on these listeners from then on. They stay the caller's.
    pub fn start(
        options: StandbyOptions,
        socket: &UnixListener,
        port: &TcpListener,
    ) -> Result<Self, ServerError> {
        let StandbyOptions { url, books_path, setup, limits, servers } = options;
        let thread = |e: std::io::Error| ServerError::Other(format!("cannot start a thread: {e}"));
        let for_texts = Database::with_answer_timeout(url.clone(), TEXT_TIMEOUT).map_err(thread)?;
        let database = Database::new(url).map_err(thread)?;
        let (mut follower, state) = Follower::begin(database, &for_texts, &books_path)?;
        let shared = view::shared(state, &books_path, &mut follower, setup, servers.clone())?;
        let leader = LeaderLink::new(shared.identity.client_tls()?, servers);
        let freshness = Freshness::default();
        // What only the snapshot has is shown to nobody.
        while !follower.catch_up(&shared, &freshness)?.is_current {}
        let strangers = Strangers::default();
        let standby = Arc::new(Standby { shared, freshness, leader, strangers });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("standby")
            .enable_all()
            .build()
            .map_err(|e| ServerError::Other(format!("cannot start the runtime: {e}")))?;
        serve(&runtime, &standby, &limits, socket, port)?;
        reasons::start(&standby)?;
        Ok(Self { standby, follower, runtime })
    }

    /// Takes in what is committed, for this long, or until the lease was given up. What fails is tried again.
    pub fn follow(&mut self, time: Duration) {
        self.follower.follow(&self.standby.shared, &self.standby.freshness, time);
    }

    /// The seq up to which the history was taken in.
    pub fn seq(&self) -> u64 {
        self.follower.seq()
    }

    /// Answers nobody any more, and hands the state over; `None` where it is not known to be whole.
    pub fn finish(self) -> Option<HotState> {
        self.runtime.shutdown_timeout(STOP_TIME);
        self.follower.finish(&self.standby.shared)
    }
}

fn serve(
    runtime: &tokio::runtime::Runtime,
    standby: &Arc<Standby>,
    limits: &ConnectionLimits,
    socket: &UnixListener,
    port: &TcpListener,
) -> Result<(), ServerError> {
    let _entered = runtime.enter();
    let shared = standby.shared.clone();
    let listening =
        |source| ServerError::Listen { address: standby.shared.setup.listen.clone(), source };
    let socket = socket.try_clone().and_then(|socket| {
        socket.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(socket)
    });
    let port = port.try_clone().and_then(|port| {
        port.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(port)
    });
    let (socket, port) = (socket.map_err(listening)?, port.map_err(listening)?);
    let slots = ListenerSlots::new(connection_limits::raise_descriptors(), limits);
    let router = router::router(standby, &BodyLimits::new(shared.clone(), limits));
    let host_key = host_key::load_or_make(&shared.setup.server_dir.join("keys"))?;
    let (ssh, logins, idle) = (slots.ssh, slots.ssh_logins, limits.tunnel_idle);
    let local_socket = LocalSocket {
        router: router.clone(),
        slots: slots.socket,
        limits: limits.clone(),
        shared: shared.clone(),
        accounts: Accounts::default(),
        endpoint: Arc::new(Endpoint::new(shared.clone(), host_key, ssh, logins, idle)),
    };
    let clients_port = ClientsPort {
        handler: router,
        slots: slots.port,
        handshakes: slots.handshakes,
        limits: limits.clone(),
        tls: PortTls::start(shared)?,
        drain: Drain::never(),
        is_plain: false,
        loops: None,
    };
    runtime.spawn(Arc::new(local_socket).serve(socket));
    runtime.spawn(Arc::new(clients_port).serve(port));
    Ok(())
}
