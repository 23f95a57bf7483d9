//! Connections of a gateway to replicas. All together have a part of its descriptors, so that clients and the server have theirs, and those
//! of one service a part of that, so that other services have theirs; those that nobody uses give way to new ones.

use super::ServerAddress;
use super::routes::RoutedReplica;
use crate::per_user::{Counts, UserCounts};
use crate::proxy::kept_connections::{self, KeptConnections};
use crate::proxy::open_connection::OpenConnection;
use crate::proxy::service::near_replica::look_up;
use crate::rate_limit::{LineRates, RateLimit};
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use wire::gateway::ReplicaRoute;

/// How long a replica or the server may take to take a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long nothing may come before the kernel asks whether the replica's machine is there, how often it asks, and how long what was
/// sent may stay without an acknowledgement, or unread: a replica that is busy may leave a long request for a while.
const KEEPALIVE_IDLE_S: u32 = 10;
const KEEPALIVE_INTERVAL_S: u32 = 5;
const KEEPALIVE_PROBES: u32 = 3;
const UNACKNOWLEDGED_MS: u32 = 60_000;

/// Replicas that are known not to be reached; with more, all are forgotten, and said anew.
const UNREACHED_MAX: usize = 4096;
/// The bound on log lines about replicas: whoever has a service causes them.
const REACH_LINES: RateLimit = RateLimit { burst: 10, interval: Duration::from_secs(60) };

/// The connections of all replicas count as one owner's.
const GATEWAY: u32 = 0;

/// One service has one of so many parts of the connections at most: the requests of others would go by the server once it had all.
const SERVICE_PART: usize = 4;

pub struct ReplicaConnections {
    most: usize,
    counts: UserCounts,
    /// By the key of the service.
    of_service: Counts<String>,
    kept: KeptConnections,
    /// Hosts and ports of replicas that no connection could be made to, and how often it was tried.
    unreached: Mutex<HashMap<(String, u16), u64>>,
    reach_lines: LineRates<&'static str>,
}

impl ReplicaConnections {
    /// So many at once.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            counts: UserCounts::default(),
            of_service: Counts::default(),
            kept: KeptConnections::default(),
            unreached: Mutex::default(),
            reach_lines: LineRates::default(),
        }
    }

    /// Connections of one service.
    fn most_of_service(&self) -> usize {
        (self.most / SERVICE_PART).max(1)
    }

    /// Whether one more of a service's takes no other's place.
    pub fn has_room(&self, service: &str) -> bool {
        self.of_service.count(&service.to_owned()) < self.most_of_service()
            && kept_connections::has_room(&self.counts, GATEWAY, self.most)
    }

    /// A new connection; `None` also where there are as many as may be, of all services or of this one, and all are used.
    pub async fn connect(
        &self,
        server: &ServerAddress,
        service: &str,
        replica: &RoutedReplica,
    ) -> Option<OpenConnection> {
        if replica.begin_connecting() {
            self.kept.note(GATEWAY, &replica.pool);
        }
        let most = self.most_of_service();
        let Some(of_service) = self.of_service.enter(service.to_owned(), most) else {
            tracing::debug!("all {most} connections to the replicas of {service} are used");
            return None;
        };
        self.kept.make_room(&self.counts, GATEWAY, self.most);
        let Some(counted) = self.counts.enter(GATEWAY, self.most) else {
            tracing::debug!("all {} connections to replicas are used", self.most);
            return None;
        };
        let silent = || Err(format!("no answer in {} s", CONNECT_TIMEOUT.as_secs()));
        let dialled = timeout(CONNECT_TIMEOUT, dial(server, replica)).await;
        let dialled = dialled.unwrap_or_else(|_| silent());
        self.note(&replica.route, dialled.as_ref().err(), Instant::now());
        let stream = dialled.ok()?;
        let _ = stream.set_nodelay(true);
        if let Err(error) = watch_machine(&stream) {
            tracing::debug!("a connection to a replica is not watched: {error}");
        }
        OpenConnection::handshake(stream, (counted, of_service)).await
    }

    /// Says once that a replica is not reached, as one whose host leads nowhere: all its requests go by the server then. Whether it said so,
    /// or that it is reached again.
    fn note(&self, replica: &ReplicaRoute, why: Option<&String>, now: Instant) -> bool {
        let Some(failures) = self.count(replica, why.is_none()) else { return false };
        let Some(unlogged) = self.reach_lines.take(REACH_LINES, "replicas", now) else {
            return false;
        };
        let (host, port) = (replica.host.as_str(), replica.port);
        match why {
            Some(why) => {
                tracing::warn!(host, port, unlogged, "a replica is not reached: {why}");
            }
            None => tracing::info!(host, port, failures, unlogged, "a replica is reached again"),
        }
        true
    }

    /// Counts a connection to a replica that was made or not. The failures so far, where the one before had the other outcome.
    fn count(&self, replica: &ReplicaRoute, is_made: bool) -> Option<u64> {
        let mut unreached = self.unreached.lock().expect("no panic with the replicas held");
        let at = (replica.host.clone(), replica.port);
        if is_made {
            return unreached.remove(&at);
        }
        if let Some(failures) = unreached.get_mut(&at) {
            *failures += 1;
            return None;
        }
        if unreached.len() >= UNREACHED_MAX {
            unreached.clear();
        }
        unreached.insert(at, 1);
        Some(1)
    }
}

/// Connects to the first address of the replica's host that takes connections and that may be a replica's. A name is judged by what it
/// leads to.
async fn dial(server: &ServerAddress, replica: &RoutedReplica) -> Result<TcpStream, String> {
    let (host, port) = (replica.route.host.as_str(), replica.route.port);
    let found = lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    let may_be = |ip: IpAddr| server.may_lead_to(host, ip) && is_of_family(host, ip);
    let found: Vec<SocketAddr> = found.filter(|at| may_be(at.ip())).collect();
    let mut why = "it has no address of a node".to_owned();
    for address in found {
        let stream = match TcpStream::connect(address).await {
            Ok(stream) => stream,
            Err(error) => {
                why = format!("{address}: {error}");
                continue;
            }
        };
        if listens_on(address, &replica.route).await {
            return Ok(stream);
        }
        why = format!("{address}: its server has ended");
    }
    Err(why)
}

/// Whether one of a replica's sockets listens at an address of loopback, and no other user does: there a server listens that is for its own
/// machine alone, and the port may have been taken since the server looked. The kernel gives the number of a socket that is closed to
/// another. What listens at other addresses of other machines is not seen from here.
async fn listens_on(address: SocketAddr, route: &ReplicaRoute) -> bool {
    if route.sockets.is_empty() || !address.ip().is_loopback() {
        return true;
    }
    let found = look_up(address).await.unwrap_or_default();
    let own = found.iter().find(|socket| route.sockets.contains(&socket.inode));
    let uid = route.uid.or(own.map(|own| own.uid));
    own.is_some() && found.iter().all(|socket| Some(socket.uid) == uid)
}

/// The server has judged whose the connections to an address are, and those to a name's addresses of IPv4: at one of IPv6 another user may
/// listen.
fn is_of_family(host: &str, address: IpAddr) -> bool {
    address.is_ipv4() || host.parse::<IpAddr>().is_ok()
}

/// Has the kernel end the connection when the machine of the replica is gone: a request that waits for an answer would wait until its
/// own limit.
fn watch_machine(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{AttemptId, JobId};
    use model::secret::SecretValue;
    use std::net::{Ipv4Addr, TcpListener};

    #[tokio::test]
    async fn connections_of_a_gateway_are_bounded_together_and_by_service() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let token = SecretValue(String::new());
        let server = ServerAddress { host: "127.0.0.1".into(), port: 1, tls: None, token };
        let [one, other] = [1, 2].map(|job| {
            let attempt = AttemptId { job: JobId(job), number: 1 };
            let (host, sockets) = ("127.0.0.1".into(), Vec::new());
            RoutedReplica::new(ReplicaRoute { attempt, host, port, sockets, uid: None })
        });
        let connections = ReplicaConnections::new(2);
        let connect = async |service: &str, replica: &RoutedReplica| {
            connections.connect(&server, service, replica).await
        };
        let (first, second) = (connect("a", &one).await, connect("b", &other).await);
        assert!(first.is_some() && second.is_some());
        assert!(connect("c", &one).await.is_none(), "all are used");
        drop(first);
        assert!(connect("c", &other).await.is_some());
        let connections = ReplicaConnections::new(2 * SERVICE_PART);
        let connect = async |service: &str, replica: &RoutedReplica| {
            connections.connect(&server, service, replica).await
        };
        let (first, second) = (connect("a", &one).await, connect("a", &other).await);
        assert!(first.is_some() && second.is_some());
        assert!(connect("a", &one).await.is_none(), "the service has its part");
        assert!(connect("b", &one).await.is_some());
        drop(second);
        assert!(connect("a", &one).await.is_some());
    }

    #[tokio::test]
    async fn port_of_loopback_is_a_replicas_while_one_of_its_sockets_listens() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let inode = look_up(address).await.expect("the lists")[0].inode;
        let own = nix::unistd::geteuid().as_raw();
        let of = |sockets: &[u64], uid: Option<u32>| {
            let at = route("127.0.0.1", address.port());
            ReplicaRoute { sockets: sockets.to_vec(), uid, ..at }
        };
        assert!(listens_on(address, &of(&[inode], Some(own))).await);
        assert!(!listens_on(address, &of(&[inode + 1], Some(own))).await, "another has the port");
        assert!(!listens_on(address, &of(&[inode], Some(own + 1))).await, "another's socket");
        assert!(listens_on(address, &of(&[inode], None)).await, "an earlier server names nobody");
        assert!(listens_on(address, &of(&[], None)).await, "an earlier server says none");
        drop(listener);
        assert!(!listens_on(address, &of(&[inode], Some(own))).await);
    }

    #[test]
    fn names_addresses_of_ipv6_are_no_replicas() {
        for (host, address, expected) in [
            ("node.example", "10.0.0.7", true),
            ("node.example", "2001:db8::7", false),
            ("localhost", "::1", false),
            ("2001:db8::7", "2001:db8::7", true),
            ("10.0.0.7", "10.0.0.7", true),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(is_of_family(host, address), expected, "{host} at {address}");
        }
    }

    fn route(host: &str, port: u16) -> ReplicaRoute {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        ReplicaRoute { attempt, host: host.to_owned(), port, sockets: Vec::new(), uid: None }
    }

    #[test]
    fn replica_that_is_not_reached_is_counted_until_it_is() {
        let connections = ReplicaConnections::new(2);
        let (one, other) = (route("a", 80), route("a", 81));
        assert_eq!(connections.count(&one, true), None);
        assert_eq!(connections.count(&one, false), Some(1));
        assert_eq!(connections.count(&one, false), None);
        assert_eq!(connections.count(&other, true), None, "another port is another replica");
        assert_eq!(connections.count(&other, false), Some(1));
        assert_eq!(connections.count(&one, true), Some(2));
        assert_eq!(connections.count(&one, true), None);
        assert_eq!(connections.count(&other, true), Some(1));
    }

    #[test]
    fn replica_that_comes_and_goes_has_a_bounded_number_of_lines() {
        let connections = ReplicaConnections::new(2);
        let (replica, why, now) = (route("a", 80), "refused".to_owned(), Instant::now());
        let outcomes = [Some(&why), None].into_iter().cycle().take(100);
        let said = outcomes.filter(|why| connections.note(&replica, *why, now)).count();
        assert_eq!(said, REACH_LINES.burst as usize);
    }
}
