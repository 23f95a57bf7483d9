//! `sluice gateway`: services behind another address than the server's, by as many processes as wanted. A gateway asks the server
//! once a second for its routes, and keeps passing requests on by the last ones while the server is away.
//!
//! - `routes`: what the server said last; `pass`: one request; `replica_connections`: connections to replicas; `plain_port`: plain HTTP; `certificate`: TLS towards clients; `acme`, `acme_http`: certificates
//!   that are ordered for host names; `server_address`: connections to the server, which gets what a gateway cannot pass on itself.

mod acme;
mod acme_http;
mod certificate;
mod pass;
mod plain_port;
mod replica_connections;
mod routes;
mod server_address;

use crate::auth::identity::write_private;
use crate::connection_limits::{self, ConnectionLimits, ListenerSlots, gateway_connections};
use crate::error::ServerError;
use crate::http::clients_port::ClientsPort;
use crate::http::drain::Drainer;
use crate::http::event_loops::EventLoops;
use crate::http::port_tls::PortTls;
use crate::proxy::access_log::AccessLog;
use crate::proxy::pool::ConnectionPool;
use crate::repeated_failure::RepeatedFailure;
pub use acme::AcmeOptions;
use acme::{AcmeKeeper, Challenges};
use certificate::Certificates;
pub use cluster::CertificateFiles;
use model::ip_network::IpNetwork;
use replica_connections::ReplicaConnections;
use routes::Routes;
use serde::{Deserialize, Serialize};
pub use server_address::{ServerAddress, is_loopback};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use wire::gateway::{GatewayReport, GatewayRoutes};

/// How often the server is asked, and connections are looked after.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// How long requests may take to be answered when the gateway stops, and what is left after it.
const DRAIN_MAX: Duration = Duration::from_secs(30);
const SHUTDOWN_TIME: Duration = Duration::from_secs(5);

/// The last routes, for a start while the server is away.
const SAVED: &str = "routes.json";

/// Reports to the server, and has its answer.
pub type AskServer = Box<dyn FnMut(GatewayReport) -> Result<GatewayRoutes, String> + Send>;

pub struct GatewayOptions {
    /// By which the server lists it.
    pub name: String,
    pub listener: TcpListener,
    /// Without one, clients of this machine alone are answered.
    pub certificate: Option<CertificateFiles>,
    /// Certificates are ordered for the host names of services.
    pub acme: Option<AcmeOptions>,
    /// The port for plain HTTP, where an ACME authority proves names too.
    pub http: Option<TcpListener>,
    /// Its own folder.
    pub dir: PathBuf,
    pub server: ServerAddress,
    pub access_log: bool,
    /// Proxies of the site before it.
    pub trusted_proxies: Vec<IpNetwork>,
    pub ask: AskServer,
}

/// What the requests of a gateway share.
pub struct Gateway {
    /// By which services choose it.
    name: String,
    has_tls: bool,
    routes: RwLock<Arc<Routes>>,
    server: ServerAddress,
    server_pool: Arc<ConnectionPool>,
    connections: ReplicaConnections,
    trusted_proxies: Vec<IpNetwork>,
    access_log: Arc<AccessLog>,
}

impl Gateway {
    fn routes(&self) -> Arc<Routes> {
        self.routes.read().expect("no panic with the routes held").clone()
    }

    fn set_routes(&self, routes: Routes) {
        *self.routes.write().expect("no panic with the routes held") = Arc::new(routes);
    }

    fn close_idle(&self) {
        let now = Instant::now();
        self.server_pool.close_idle(now);
        for service in self.routes().services() {
            service.replicas.iter().for_each(|replica| replica.pool.close_idle(now));
        }
    }
}

/// Passes requests on until a signal stops it. `ready` is called once it answers.
pub fn run(options: GatewayOptions, ready: impl FnOnce()) -> Result<(), ServerError> {
    connection_limits::set_backlog(&options.listener);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| ServerError::Other(format!("cannot start the runtime: {e}")))?;
    let served = runtime.block_on(serve(options, ready));
    runtime.shutdown_timeout(SHUTDOWN_TIME);
    served
}

async fn serve(options: GatewayOptions, ready: impl FnOnce()) -> Result<(), ServerError> {
    let GatewayOptions {
        name,
        listener,
        certificate,
        acme,
        http,
        dir,
        server,
        access_log,
        trusted_proxies,
        ask,
    } = options;
    let address = listener.local_addr().map(|at| at.to_string()).unwrap_or_default();
    let listening = |e| ServerError::Listen { address: address.clone(), source: e };
    let stopping = |e: std::io::Error| ServerError::Other(e.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(stopping)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(stopping)?;
    let log = Arc::new(AccessLog::new(&dir));
    log.turn(access_log);
    let https = listener.local_addr().map(|at| at.port()).map_err(listening)?;
    let has_tls = certificate.is_some() || acme.is_some();
    let descriptors = connection_limits::raise_descriptors();
    let gateway = Arc::new(Gateway {
        name,
        has_tls,
        routes: RwLock::new(Arc::new(saved(&dir))),
        server,
        server_pool: Arc::default(),
        connections: ReplicaConnections::new(gateway_connections(descriptors)),
        trusted_proxies,
        access_log: log,
    });
    let certificates = Arc::new(Certificates::default());
    if let Some(files) = certificate {
        certificates.watch_files(files)?;
    }
    let acceptor = if has_tls { Some(certificate::acceptor(certificates.clone())?) } else { None };
    let limits = ConnectionLimits::default();
    let slots = ListenerSlots::new(descriptors, &limits);
    let (drainer, drain) = Drainer::new();
    let plain_address = http.as_ref().and_then(|http| http.local_addr().ok());
    let plain_address = plain_address.map(|at| found_at(&at.to_string())).unwrap_or_default();
    let http = http.map(|listener| (listener, drain.clone()));
    let loops = EventLoops::start("gateway").map_err(stopping)?;
    let port = ClientsPort {
        handler: gateway.clone(),
        slots: slots.proxy,
        handshakes: slots.handshakes.clone(),
        limits: limits.clone(),
        tls: PortTls::fixed(acceptor),
        drain,
        is_plain: false,
        loops: Some(loops.clone()),
    };
    let challenges = Challenges::default();
    if let Some((listener, drain)) = http {
        let plain = ClientsPort {
            handler: plain_port::router(gateway.clone(), challenges.clone(), https),
            slots: slots.port,
            handshakes: slots.handshakes,
            limits,
            tls: PortTls::fixed(None),
            drain,
            is_plain: true,
            loops: Some(loops),
        };
        listener.set_nonblocking(true).map_err(listening)?;
        let listener = tokio::net::TcpListener::from_std(listener).map_err(listening)?;
        tokio::spawn(Arc::new(plain).serve(listener));
    }
    if let Some(options) = acme {
        let keeper = AcmeKeeper::new(options, gateway.clone(), certificates, challenges, &dir)?;
        tokio::spawn(keeper.run());
    }
    listener.set_nonblocking(true).map_err(listening)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(listening)?;
    tokio::spawn(Arc::new(port).serve(listener));
    let reporter = Reporter { gateway, address: found_at(&address), plain_address, dir, ask };
    let thread = std::thread::Builder::new().name("sync".into());
    let spawned = thread.spawn(move || reporter.run());
    spawned.map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
    ready();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("the gateway stops");
    drainer.drain(DRAIN_MAX).await;
    Ok(())
}

/// Where clients find a gateway that listens at this address: by the machine's name where it listens at all of them.
fn found_at(address: &str) -> String {
    let at = address.parse::<SocketAddr>().ok().filter(|at| at.ip().is_unspecified());
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    match (at, host) {
        (Some(at), Some(host)) => format!("{host}:{}", at.port()),
        _ => address.to_owned(),
    }
}

/// The routes that are kept for the next start.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct SavedRoutes {
    /// The boot of the machine in which they were kept. Earlier releases did not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    #[serde(flatten)]
    routes: GatewayRoutes,
}

impl SavedRoutes {
    /// The routes as they hold in a boot: numbers of sockets are those of one alone, and who has them now is another.
    fn in_boot(self, boot: Option<&str>) -> GatewayRoutes {
        let Self { boot: kept_in, mut routes } = self;
        if boot.is_none() || kept_in.as_deref() != boot {
            for service in &mut routes.services {
                service.replicas.retain(|replica| replica.sockets.is_empty());
            }
        }
        routes
    }
}

/// Identifies the running kernel; `None` without `/proc`.
fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}

/// The routes of the last run. Without them, the first request waits for the server.
fn saved(dir: &Path) -> Routes {
    let text = std::fs::read(dir.join(SAVED)).ok();
    let saved = text.and_then(|text| serde_json::from_slice::<SavedRoutes>(&text).ok());
    let routes = saved.map(|saved| saved.in_boot(boot_id().as_deref()));
    routes.map_or_else(Routes::default, |routes| Routes::default().after(routes))
}

/// Asks the server for routes. It blocks, on a thread of its own.
struct Reporter {
    gateway: Arc<Gateway>,
    address: String,
    plain_address: String,
    dir: PathBuf,
    ask: AskServer,
}

impl Reporter {
    fn run(mut self) {
        let mut failures = RepeatedFailure::new("the server");
        let mut saved = None;
        loop {
            match self.sync() {
                Ok(()) => failures.succeeded(),
                Err(why) => failures.failed("the routes stay as they were", &why),
            }
            self.gateway.close_idle();
            self.save(&mut saved);
            std::thread::sleep(SYNC_INTERVAL);
        }
    }

    fn sync(&mut self) -> Result<(), ServerError> {
        let before = self.gateway.routes();
        let loads = before.take_loads();
        let report = GatewayReport {
            name: self.gateway.name.clone(),
            address: self.address.clone(),
            domain: before.domain.clone().unwrap_or_default(),
            plain_address: self.plain_address.clone(),
            has_tls: self.gateway.has_tls,
            loads: loads.clone(),
        };
        match (self.ask)(report) {
            Ok(answer) => {
                let answer = self.gateway.server.reachable(answer);
                self.gateway.set_routes(before.after(answer));
                Ok(())
            }
            Err(why) => {
                before.put_back(&loads);
                Err(ServerError::Other(why))
            }
        }
    }

    /// Keeps the routes for the next start, where they have changed.
    fn save(&self, last: &mut Option<SavedRoutes>) {
        let routes = self.gateway.routes().saved();
        if last.as_ref().is_some_and(|last| last.routes == routes) {
            return;
        }
        let saved = SavedRoutes { boot: boot_id(), routes };
        let text = serde_json::to_string(&saved).unwrap_or_default();
        if let Err(error) = write_private(&self.dir, SAVED, &text) {
            tracing::warn!("the routes are not kept for the next start: {error}");
        }
        *last = Some(saved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{AttemptId, JobId};
    use model::publication::HttpsChoice;
    use wire::gateway::{ReplicaRoute, ServiceRoute};

    #[test]
    fn routes_of_another_boot_lose_what_is_known_by_its_sockets() {
        let replica = |host: &str, sockets: Vec<u64>| {
            let attempt = AttemptId { job: JobId(1), number: 1 };
            ReplicaRoute { attempt, host: host.to_owned(), port: 80, sockets, uid: None }
        };
        let service = ServiceRoute {
            project: "main".into(),
            run: "web".into(),
            auth: true,
            strip_prefix: true,
            https: HttpsChoice::Auto,
            is_ready: true,
            rate_limits: Vec::new(),
            replicas: vec![replica("127.0.0.1", vec![7]), replica("10.0.0.7", Vec::new())],
        };
        let routes = GatewayRoutes { services: vec![service], ..GatewayRoutes::default() };
        let hosts = |kept_in: Option<&str>, now: Option<&str>| -> Vec<String> {
            let kept = SavedRoutes { boot: kept_in.map(str::to_owned), routes: routes.clone() };
            let text = serde_json::to_string(&kept).expect("writes");
            let read: SavedRoutes = serde_json::from_str(&text).expect("reads");
            assert_eq!(read, kept);
            let found = read.in_boot(now).services.remove(0).replicas;
            found.into_iter().map(|replica| replica.host).collect()
        };
        assert_eq!(hosts(Some("a"), Some("a")), ["127.0.0.1", "10.0.0.7"]);
        for (kept_in, now) in [(Some("a"), Some("b")), (None, Some("b")), (None, None)] {
            assert_eq!(hosts(kept_in, now), ["10.0.0.7"], "{kept_in:?} {now:?}");
        }
        let earlier = serde_json::to_string(&routes).expect("writes");
        assert!(serde_json::from_str::<SavedRoutes>(&earlier).is_ok(), "of an earlier release");
    }
}
