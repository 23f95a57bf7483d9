//! The listeners and tasks of the runtime, from the start until a signal stops the server.

use super::local_nodes::await_nodes;
use super::prepare::prepare;
use super::{Listeners, ServerOptions};
use crate::agents::listen::{
    self, NodeServices, NodeSshClient, ServeClient, ServePassed, ServeSsh,
};
use crate::auth::accounts::Accounts;
use crate::auth::principal::server_principal;
use crate::connection_limits::{self, ListenerSlots};
use crate::error::ServerError;
use crate::fleet::installer;
use crate::fleet::program::Program;
use crate::http::Routers;
use crate::http::backends_file;
use crate::http::body_limits::BodyLimits;
use crate::http::calls::{Reconfigured, reconfigure};
use crate::http::clients_port::ClientsPort;
use crate::http::drain::{Drain, Drainer};
use crate::http::event_loops::EventLoops;
use crate::http::port_tls::PortTls;
use crate::http::serve::{LocalSocket, PassedClients, serve_client};
use crate::http::vouch::NodeAsked;
use crate::logs::collector;
use crate::machines::{disk_driver, driver};
use crate::mail::watch;
use crate::resume_files::ResumeFiles;
use crate::shared::Shared;
use crate::shared::log_queue::PullLog;
use crate::ssh::endpoint::{Endpoint, Peer};
use crate::vital_task;
use crate::writer::tick;
use crate::{
    allocator, http, inactivity, load_sampler, power, program_pages, triggers, utilization,
};
use russh::keys::PrivateKey;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::Receiver;

/// How long requests to services may take to be answered when the server stops.
const DRAIN_MAX: Duration = Duration::from_secs(10);

pub(super) async fn serve(
    shared: Arc<Shared>,
    options: ServerOptions,
    listeners: Listeners,
    host_key: PrivateKey,
    pulls: Receiver<PullLog>,
    term: u64,
    ready: impl FnOnce(),
) -> Result<ServeEnd, ServerError> {
    prepare(&shared, &options, term).await?;
    make_backends(&shared).await;
    let listening = |e| ServerError::Listen { address: shared.setup.listen.clone(), source: e };
    // Before anybody can know that there is a server to stop.
    let mut stop = StopSignals::listen().map_err(|e| ServerError::Other(e.to_string()))?;
    listeners.socket.set_nonblocking(true).map_err(listening)?;
    listeners.port.set_nonblocking(true).map_err(listening)?;
    listeners.agents.set_nonblocking(true).map_err(listening)?;
    let socket = tokio::net::UnixListener::from_std(listeners.socket).map_err(listening)?;
    let port = tokio::net::TcpListener::from_std(listeners.port).map_err(listening)?;
    let agents_port = tokio::net::TcpListener::from_std(listeners.agents).map_err(listening)?;
    let limits = &options.connection_limits;
    let slots = ListenerSlots::new(connection_limits::raise_descriptors(), limits);
    let bodies = BodyLimits::new(shared.clone(), limits);
    let Routers { clients: router, proxy } = http::routers(shared.clone(), bodies, limits.service);
    let tls = PortTls::start(shared.clone())?;
    let (drainer, drain) = Drainer::new();
    let (ssh, logins, idle) = (slots.ssh, slots.ssh_logins, limits.tunnel_idle);
    let endpoint = Arc::new(Endpoint::new(shared.clone(), host_key, ssh, logins, idle));
    let local_socket = LocalSocket {
        router: router.clone(),
        slots: slots.socket.clone(),
        limits: limits.clone(),
        shared: shared.clone(),
        accounts: Accounts::default(),
        endpoint: endpoint.clone(),
    };
    let passed = Arc::new(PassedClients {
        router: router.clone(),
        socket: slots.socket,
        port: slots.port.clone(),
        limits: limits.clone(),
        shared: shared.clone(),
        accounts: Accounts::default(),
    });
    vital_task::spawn("the clients' socket", Arc::new(local_socket).serve(socket));
    let clients_port = ClientsPort {
        handler: router.clone(),
        slots: slots.port,
        handshakes: slots.handshakes.clone(),
        limits: limits.clone(),
        tls: tls.clone(),
        drain: Drain::never(),
        is_plain: false,
        loops: None,
    };
    vital_task::spawn("the clients' port", Arc::new(clients_port).serve(port));
    if let Some(listener) = listeners.proxy {
        listener.set_nonblocking(true).map_err(listening)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(listening)?;
        let (slots, handshakes) = (slots.proxy, slots.handshakes);
        let limits = limits.clone();
        let loops = EventLoops::start("proxy").map_err(listening)?;
        let (is_plain, loops) = (false, Some(loops));
        let handler = proxy;
        let port = ClientsPort { handler, slots, handshakes, limits, tls, drain, is_plain, loops };
        vital_task::spawn("the proxy's port", Arc::new(port).serve(listener));
    } else {
        drop(drain);
    }
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
    let passed: Box<ServePassed> = Box::new(move |stream, from| {
        let passed = passed.clone();
        Box::pin(async move { passed.serve(stream, from).await })
    });
    let services = Arc::new(NodeServices { http, ssh, passed });
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
    vital_task::spawn("machines on demand", driver::run(shared.clone()));
    vital_task::spawn("disks of volumes", disk_driver::run(shared.clone()));
    vital_task::spawn("triggers", triggers::run(shared.clone()));
    vital_task::spawn("the watch of inactivity", inactivity::run(shared.clone()));
    vital_task::spawn("the sampler of the load", load_sampler::run(shared.clone()));
    vital_task::spawn("the collector of logs", collector::run(shared.clone(), pulls));
    vital_task::spawn("fleets", install_fleets(shared.clone(), options.program));
    let hangup = signal(SignalKind::hangup()).map_err(|e| ServerError::Other(e.to_string()))?;
    vital_task::spawn("SIGHUP", reconfigure_on_hangup(shared.clone(), hangup));
    let run = async {
        await_nodes(&shared, &options.local_nodes).await;
        ready();
        shared.planner.wake();
        program_pages::give_back();
        std::future::pending::<()>().await;
    };
    // The lead may be handed over before the nodes are there.
    tokio::select! {
        () = run => {}
        () = stop.received() => {}
        () = shared.volatile.handover.notified() => return Ok(ServeEnd::HandedOver),
    }
    let running = shared.read().active.len();
    tracing::info!(running, "the server stops; jobs that run go on");
    drainer.drain(DRAIN_MAX).await;
    shared.agents.shut_down().await;
    Ok(ServeEnd::Stopped)
}

/// Why the server answers nobody any more.
pub(super) enum ServeEnd {
    Stopped,
    /// Another server is to lead.
    HandedOver,
}

/// Makes the projects and backends of `config.yml`. The server starts without those that are wrong.
async fn make_backends(shared: &Arc<Shared>) {
    let made = match backends_file::projects(shared) {
        Ok(projects) => backends_file::make(shared, projects).await,
        Err(why) => Err(why),
    };
    if let Err(why) = made {
        tracing::error!("{why}");
    }
}

/// SIGHUP is `scontrol reconfigure`: it reads the configuration again, and a bad one changes nothing. A backend that is refused after
/// the files were good stays as it was by itself.
async fn reconfigure_on_hangup(shared: Arc<Shared>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        match reconfigure(&shared, server_principal(), None).await {
            Ok(Reconfigured::Whole) => tracing::info!("SIGHUP: the configuration was read again"),
            Ok(Reconfigured::ExceptBackend(why)) => tracing::error!("SIGHUP: {why}"),
            Err(why) => tracing::error!("SIGHUP: the configuration stays as it was: {why}"),
        }
    }
}

/// Looks after the hosts of fleets, once there are any.
async fn install_fleets(shared: Arc<Shared>, program: std::fs::File) {
    let mut commits = shared.commits.subscribe_beyond_submits();
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
