//! How many connections each listener may have, and how long a client may be silent or not read.
//!
//! Every connection is counted below the limit of descriptors, so that the journal, the books and the agents always
//! have theirs.

use crate::per_user::{Counted, CountedUser, Counts, UserCounts};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{Backlog, listen};
use std::io;
use std::os::fd::AsFd;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Descriptors that no connection gets: journal, books, blobs, snapshots, the listeners themselves.
const RESERVED_DESCRIPTORS: u64 = 256;

/// Connections to replicas of services on this machine have this part (a sixteenth) of the rest, half of it from the local socket's and half
/// from the clients' port's.
const REPLICA_PART: u64 = 16;

/// Never more than this on one listener, whatever the limit of descriptors.
const CONNECTIONS_MAX: u64 = 20_000;

/// The same for SSH clients, each of which costs more: keys of its own, channels, steps.
const SSH_CONNECTIONS_MAX: u64 = 2048;
const SSH_LOGINS_MAX: u64 = 128;

/// A connection that is forwarded into a job is closed after so long without a byte, a WebSocket of a service and an answer of a replica
/// too, whichever way its bytes go: a client that is there and does nothing does not keep its place for ever.
pub const TUNNEL_IDLE: Duration = Duration::from_secs(24 * 3600);

/// What bounds a request to a service, by the server and by gateways.
pub const SERVICE_LIMITS: ServiceLimits = ServiceLimits {
    answer: Duration::from_secs(600),
    body_bytes: 64 << 20,
    body_silence: Duration::from_secs(60),
    stall: Duration::from_secs(60),
    near_connections: CONNECTIONS_MAX as usize,
};

/// A listener that is full logs it this often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// How long a listener pauses when the machine has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What bounds a request that is passed on to a service.
#[derive(Debug, Clone, Copy)]
pub struct ServiceLimits {
    /// How long it may take to be sent and to have the head of its answer, and all of an answer that is read whole.
    pub answer: Duration,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// How long nothing of its body may come before its answer begins, and by how much all of it may be slower than it has to come.
    pub body_silence: Duration,
    /// How long its client may take nothing of the answer, which keeps a place of a replica until then; as long as nginx lets one.
    pub stall: Duration,
    /// Connections that the server makes itself to replicas on its own machine; what is beyond goes by steps.
    pub near_connections: usize,
}

/// Timeouts of connections, and a lower bound on their number where wanted; `places=100,silence_ms=500`.
#[derive(Debug, Clone)]
pub struct ConnectionLimits {
    /// Connections on each listener; without it, by the limit of descriptors.
    pub places: Option<u64>,
    /// A connection without a whole head of a request for this long is closed.
    pub silence: Duration,
    /// A request's body must be there within this time.
    pub body: Duration,
    /// A client that takes nothing of its answer for this long is dropped.
    pub stall: Duration,
    /// The same for streams, whose memory has a bound of its own: a person may be reading along. Those of services have theirs.
    pub stream_stall: Duration,
    /// [`TUNNEL_IDLE`] of connections that SSH clients forward, and of an SSH connection with nothing open in it.
    pub tunnel_idle: Duration,
    pub service: ServiceLimits,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            places: None,
            silence: Duration::from_secs(30),
            body: Duration::from_secs(60),
            stall: Duration::from_secs(60),
            stream_stall: Duration::from_secs(3600),
            tunnel_idle: TUNNEL_IDLE,
            service: SERVICE_LIMITS,
        }
    }
}

impl FromStr for ConnectionLimits {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut limits = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let expected = || {
                format!(
                    "'{part}': expected NAME=NUMBER with one of places, silence_ms, body_ms, stall_ms, stream_stall_ms, tunnel_idle_ms, answer_ms, service_body_bytes, service_silence_ms, service_stall_ms, near_connections"
                )
            };
            let (name, value) = part.split_once('=').ok_or_else(expected)?;
            let value: u64 = value.parse().map_err(|_| expected())?;
            let time = Duration::from_millis(value);
            match name {
                "places" => limits.places = Some(value),
                "silence_ms" => limits.silence = time,
                "body_ms" => limits.body = time,
                "stall_ms" => limits.stall = time,
                "stream_stall_ms" => limits.stream_stall = time,
                "tunnel_idle_ms" => limits.tunnel_idle = time,
                "answer_ms" => limits.service.answer = time,
                "service_body_bytes" => limits.service.body_bytes = value,
                "service_silence_ms" => limits.service.body_silence = time,
                "service_stall_ms" => limits.service.stall = time,
                "near_connections" => limits.service.near_connections = value as usize,
                _ => return Err(expected()),
            }
        }
        Ok(limits)
    }
}

/// Raises the limit of descriptors as far as the machine lets this process; returns it.
pub fn raise_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}

/// Connections that the kernel keeps until they are accepted. Beyond it, it lets callers of a port try again after a
/// second.
const LISTEN_BACKLOG: i32 = 4096;

/// Sets a longer backlog than the standard library's. What the machine does not allow is no error: its own bound holds
/// then.
pub fn set_backlog(listener: &impl AsFd) {
    if let Ok(backlog) = Backlog::new(LISTEN_BACKLOG) {
        let _ = listen(listener, backlog);
    }
}

/// The descriptors that connections may have.
fn free(descriptors: u64) -> u64 {
    descriptors - RESERVED_DESCRIPTORS.min(descriptors / 2)
}

/// How many connections to replicas of services on this machine there may be. Each has a descriptor, as those of clients do.
pub fn near_connections(descriptors: u64, limits: &ServiceLimits) -> usize {
    ((free(descriptors) / REPLICA_PART) as usize).min(limits.near_connections)
}

/// How many connections to replicas of services a gateway may have: half of what there is, of which its two ports for clients have less than
/// a third, and those of the server's other listeners nothing.
pub fn gateway_connections(descriptors: u64) -> usize {
    (free(descriptors) / 2) as usize
}

/// The slots of each listener. Three eighths are the agents', so that no number of clients keeps a node out.
pub struct ListenerSlots {
    pub socket: Arc<ConnectionSlots>,
    pub port: Arc<ConnectionSlots>,
    /// Services and web pages of jobs.
    pub proxy: Arc<ConnectionSlots>,
    /// TLS handshakes under way on the clients' port and the proxy's, whose connections have a slot of the port besides: strangers who
    /// never finish one leave the rest of the ports to others.
    pub handshakes: Arc<ConnectionSlots>,
    pub agents: Arc<ConnectionSlots>,
    /// Clients on nodes, whose connections come in by the agents' port.
    pub nodes: Arc<ConnectionSlots>,
    pub ssh: Arc<ConnectionSlots>,
    /// Connections of SSH clients that no key has let in yet; each has a slot of `ssh` besides.
    pub ssh_logins: Arc<ConnectionSlots>,
}

impl ListenerSlots {
    pub fn new(descriptors: u64, limits: &ConnectionLimits) -> Self {
        let free = free(descriptors);
        let slots = |name, share: u64| {
            let max = share.min(CONNECTIONS_MAX).min(limits.places.unwrap_or(u64::MAX)).max(1);
            Arc::new(ConnectionSlots::new(name, max as usize))
        };
        Self {
            socket: slots("the local socket", free / 4 - free / REPLICA_PART / 2),
            proxy: slots("the proxy's port", free / 8),
            port: slots("the clients' port", free / 4 - free / 32 - free / REPLICA_PART / 2),
            handshakes: slots("the handshakes of the clients' port", free / 16),
            agents: slots("the agents' port", free / 4),
            nodes: slots("the sockets of nodes", free / 8),
            ssh: slots("the SSH endpoint", (free / 32).min(SSH_CONNECTIONS_MAX)),
            ssh_logins: slots("the logins of the SSH endpoint", (free / 128).min(SSH_LOGINS_MAX)),
        }
    }
}

/// A listener keeps this part of its connections (an eighth) for root and operators.
const RESERVED_PART: usize = 8;

/// One user has at most this part (a half) of a listener's connections.
const USER_PART: usize = 2;

/// One node has at most this part (a quarter) of the connections of clients on nodes.
const NODE_PART: usize = 4;

/// The connections that one listener may have open.
pub struct ConnectionSlots {
    name: &'static str,
    max: usize,
    free: Arc<Semaphore>,
    /// The part that is not kept for root and operators.
    unreserved: Arc<Semaphore>,
    users: UserCounts,
    /// By the fingerprints of their certificates.
    nodes: Counts<String>,
    refusals: Mutex<Refusals>,
}

/// A user's connection, until it is dropped.
pub struct UserSlot {
    _part: UserPart,
    _slot: OwnedSemaphorePermit,
}

/// A connection as one of its user's, until it is dropped.
pub struct UserPart {
    _user: CountedUser,
    _unreserved: Option<OwnedSemaphorePermit>,
}

/// A connection of the port, whose user is known from the first request on.
#[derive(Clone)]
pub struct PortConnection {
    slots: Arc<ConnectionSlots>,
    is_tls: bool,
    user: Arc<Mutex<Option<(u32, UserPart)>>>,
}

impl PortConnection {
    pub fn new(slots: Arc<ConnectionSlots>) -> Self {
        Self { slots, is_tls: false, user: Arc::default() }
    }

    /// The same of one that speaks TLS.
    pub fn by_tls(self, is_tls: bool) -> Self {
        Self { is_tls, ..self }
    }

    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Counts the connection as this user's; false when he has his part of them. Asked with each request: a connection
    /// counts as that of its last user.
    pub fn identify(&self, user: u32, is_operator: impl FnOnce() -> bool) -> bool {
        let mut known = self.user.lock().expect("no panic with it held");
        if known.as_ref().is_none_or(|(known, _)| *known != user) {
            *known = None;
            *known = self.slots.admit(user, is_operator).map(|part| (user, part));
        }
        known.is_some()
    }
}

/// When refusals were last logged, and how many there were since.
#[derive(Default)]
struct Refusals {
    logged_at: Option<Instant>,
    unlogged: u64,
}

impl ConnectionSlots {
    fn new(name: &'static str, max: usize) -> Self {
        let unreserved = Arc::new(Semaphore::new(max - max / RESERVED_PART));
        let free = Arc::new(Semaphore::new(max));
        Self {
            name,
            max,
            free,
            unreserved,
            users: Default::default(),
            nodes: Default::default(),
            refusals: Default::default(),
        }
    }

    /// A slot for a user's connection. Root and the user whom the server runs as may have all; others have a part each,
    /// and the reserved part is for those of whom `is_operator` says so. It is asked only where the rest is taken.
    pub fn take_for(&self, user: u32, is_operator: impl FnOnce() -> bool) -> Option<UserSlot> {
        let part = self.admit(user, is_operator)?;
        Some(UserSlot { _part: part, _slot: self.take()? })
    }

    /// A slot for the connection of a user on the node with this certificate.
    pub fn take_on_node(&self, node: &str, user: u32) -> Option<(Counted<String>, UserSlot)> {
        let counted = self.count_node(node)?;
        Some((counted, self.take_for(user, || false)?))
    }

    /// Counts a connection that the agent with this certificate carries; `None` when it has its part of them.
    pub fn count_node(&self, node: &str) -> Option<Counted<String>> {
        let most = self.max.div_ceil(NODE_PART);
        let counted = self.nodes.enter(node.to_owned(), most);
        if counted.is_none() {
            self.log_refusal(&format!("a node has {most} open"));
        }
        counted
    }

    fn admit(&self, user: u32, is_operator: impl FnOnce() -> bool) -> Option<UserPart> {
        let trusted = user == 0 || user == nix::unistd::geteuid().as_raw();
        let most = if trusted { self.max } else { self.max.div_ceil(USER_PART) };
        let Some(counted) = self.users.enter(user, most) else {
            self.log_refusal(&format!("user {user} has {most} open"));
            return None;
        };
        let unreserved = self.unreserved.clone().try_acquire_owned().ok();
        if !trusted && unreserved.is_none() && !is_operator() {
            self.log_refusal("what is left is kept for root and operators");
            return None;
        }
        Some(UserPart { _user: counted, _unreserved: unreserved })
    }

    /// A slot, kept until it is dropped; `None` when all are taken, which is logged.
    pub fn take(&self) -> Option<OwnedSemaphorePermit> {
        let slot = self.free.clone().try_acquire_owned().ok();
        if slot.is_none() {
            self.log_refusal(&format!("{} connections are open", self.max));
        }
        slot
    }

    pub fn max(&self) -> usize {
        self.max
    }

    /// Pauses after a connection could not be accepted: out of descriptors, most likely.
    pub async fn pause_after(&self, error: &io::Error) {
        self.log_refusal(&error.to_string());
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }

    /// Logs that a connection is refused or dropped, not more often than [`LOG_INTERVAL`].
    pub fn log_refusal(&self, why: &str) {
        let mut refusals = self.refusals.lock().expect("no panic with it held");
        refusals.unlogged += 1;
        if refusals.logged_at.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return;
        }
        tracing::warn!("{} refuses connections, {} so far: {why}", self.name, refusals.unlogged);
        *refusals = Refusals { logged_at: Some(Instant::now()), unlogged: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_listener_gets_reserved_descriptors_and_agents_have_their_part() {
        for (descriptors, expected) in [
            (1024, (168, 144, 96, 192, 96)),
            (20_000, (4319, 3702, 2468, 4936, 2468)),
            (1 << 20, (20_000, 20_000, 20_000, 20_000, 20_000)),
        ] {
            let slots = ListenerSlots::new(descriptors, &ConnectionLimits::default());
            let (socket, port, proxy) = (slots.socket.max, slots.port.max, slots.proxy.max);
            let found = (socket, port, proxy, slots.agents.max, slots.nodes.max);
            assert_eq!(found, expected, "{descriptors}");
            let all = [&slots.socket, &slots.port, &slots.proxy, &slots.agents, &slots.nodes];
            let all = all.into_iter().chain([&slots.ssh]).map(|one| one.max).sum::<usize>();
            let left = all
                + near_connections(descriptors, &SERVICE_LIMITS)
                + RESERVED_DESCRIPTORS as usize;
            assert!(left <= descriptors as usize, "{left} of {descriptors}");
        }
        assert_eq!(near_connections(1024, &SERVICE_LIMITS), 48);
        assert_eq!(gateway_connections(1024), 384);
        let slots = ListenerSlots::new(16, &"places=3".parse().unwrap());
        assert_eq!((slots.socket.max, slots.agents.max), (2, 2));
    }

    #[test]
    fn limits_are_parsed_and_a_wrong_part_is_named() {
        let limits: ConnectionLimits = "places=7,silence_ms=250,stall_ms=9".parse().unwrap();
        assert_eq!((limits.places, limits.silence.as_millis()), (Some(7), 250));
        assert_eq!(limits.body, ConnectionLimits::default().body);
        let wrong = "places=7,silence=9".parse::<ConnectionLimits>().unwrap_err();
        assert!(wrong.starts_with("'silence=9': expected NAME=NUMBER"), "{wrong}");
    }

    #[test]
    fn one_user_has_half_of_the_slots_and_an_eighth_is_for_root_and_operators() {
        let slots = ConnectionSlots::new("a listener", 16);
        let take = |user, operator: bool, times: usize| -> Vec<UserSlot> {
            (0..times).filter_map(|_| slots.take_for(user, || operator)).collect()
        };
        // Neither root nor whoever runs this test.
        let (ada, bob, eve) = (1_900_000_001, 1_900_000_002, 1_900_000_003);
        let of_ada = take(ada, false, 5000);
        let of_bob = take(bob, false, 5000);
        assert_eq!((of_ada.len(), of_bob.len()), (8, 6), "half, and what is not reserved");
        assert_eq!(take(eve, false, 1).len(), 0);
        let of_operator = take(eve, true, 1);
        let of_root = take(0, false, 2);
        assert_eq!((of_operator.len(), of_root.len()), (1, 1), "the reserved part, and no more");
        drop(of_ada);
        assert_eq!(take(eve, false, 5000).len(), 7);
    }

    #[test]
    fn connections_of_the_port_count_from_the_first_token_on() {
        let slots = Arc::new(ConnectionSlots::new("a listener", 16));
        let (ada, bob) = (1_900_000_001, 1_900_000_002);
        let connect = |user: u32| {
            let connection = PortConnection::new(slots.clone());
            (connection.identify(user, || false), connection)
        };
        let of_ada: Vec<_> = (0..20).map(|_| connect(ada)).collect();
        assert_eq!(of_ada.iter().filter(|(admitted, _)| *admitted).count(), 8);
        assert!(of_ada[0].1.identify(ada, || false), "the same connection counts once");
        assert!(!of_ada[19].1.identify(ada, || false), "and a refused one stays refused");
        let of_bob: Vec<_> = (0..20).map(|_| connect(bob)).collect();
        assert_eq!(of_bob.iter().filter(|(admitted, _)| *admitted).count(), 6);
        assert!(PortConnection::new(slots.clone()).identify(bob, || true), "the operators' part");
        assert!(PortConnection::new(slots.clone()).identify(0, || false), "and root's");
        drop(of_ada);
        assert!(connect(bob).0);
    }

    #[test]
    fn full_slots_refuse_until_a_connection_closes() {
        let slots = ConnectionSlots::new("a listener", 2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
    }
}
