//! A replica of a service: how it is reached, and how many requests it has not answered yet.

use super::near_replica::{self, NearConnection, NearTarget};
use super::path_rule::PathRule;
use super::port_check::PortCheck;
use super::reach_state::ReachState;
use super::readiness::Readiness;
use crate::http::rare_event::RareEvent;
use crate::proxy::forwarders::Forwarders;
use crate::proxy::kept_connections;
use crate::proxy::open_connection::OpenConnection;
use crate::proxy::outstanding::Outstanding;
use crate::proxy::place_use::PlaceUse;
use crate::proxy::pool::{AnswerBody, ConnectionPool, SendFailure};
use crate::shared::Shared;
use crate::ssh::FORWARDED_OF_USER_MAX;
use axum::body::Body;
use model::id::AttemptId;
use model::principal::Principal;
use model::replica_group::GroupRole;
use model::run::ArrayTask;
use model::service::{Probe, Service};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;
use wire::forward::{OwnServer, SERVER_SOCKETS_MAX};

/// Requests at once to one replica, and connections that are kept to it. The step in the replica takes somewhat more.
pub const OUTSTANDING_MAX: usize = 240;
/// How long a replica may take to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Replica {
    pub attempt: AttemptId,
    /// The deployment of its service that it belongs to.
    pub deployment: u32,
    /// Its group among those of its service, and how many there are.
    pub group: u32,
    pub group_count: u32,
    pub role: GroupRole,
    /// A worker that its router knows.
    is_joined: AtomicBool,
    /// A router that is being told its workers.
    is_told: AtomicBool,
    reach: ReachState,
    is_reaching: AtomicBool,
    /// Its server, as a step found it on a network that its job shares with others: the word of its owner.
    server: Mutex<Option<OwnServer>>,
    /// The same by the word of its node's agent.
    pub port_check: PortCheck,
    /// Its place in the array of its service's replicas, where there is one.
    pub task: Option<ArrayTask>,
    /// Which paths it sees, and its probes, by its own deployment: a later one may have others.
    pub path: PathRule,
    pub probes: Vec<Probe>,
    pub readiness: Readiness,
    /// Since when it gets no more requests, because it is to be given up.
    drained: Mutex<Option<Instant>>,
    /// Whether there is such a time, for each request to ask.
    is_drained: AtomicBool,
    port: u16,
    pool: Arc<ConnectionPool>,
    /// The connections that it keeps may be closed for others of its owner.
    is_noted: AtomicBool,
    /// Requests that it has not answered yet to gateways, as they said last.
    elsewhere: AtomicUsize,
    /// Its attempt is over: what it has not answered it never will.
    is_over: watch::Sender<bool>,
    /// Said first, for each request to ask.
    has_ended: AtomicBool,
}

impl Replica {
    pub fn new(attempt: AttemptId, task: Option<ArrayTask>, service: &Service) -> Self {
        let group = service.group.as_ref();
        Self {
            attempt,
            deployment: service.deployment,
            group: group.map_or(0, |group| group.index),
            group_count: group.map_or(1, |group| group.count),
            role: service.role(),
            is_joined: AtomicBool::default(),
            is_told: AtomicBool::default(),
            reach: ReachState::default(),
            is_reaching: AtomicBool::default(),
            server: Mutex::default(),
            port_check: PortCheck::default(),
            task,
            drained: Mutex::default(),
            is_drained: AtomicBool::default(),
            path: PathRule::of(service),
            probes: service.probes.clone(),
            readiness: Readiness::new(&service.probes),
            port: service.port,
            pool: Arc::new(ConnectionPool::new(OUTSTANDING_MAX)),
            is_noted: AtomicBool::default(),
            elsewhere: AtomicUsize::default(),
            is_over: watch::channel(false).0,
            has_ended: AtomicBool::default(),
        }
    }

    /// Requests that it has not answered yet, through this server and through gateways.
    pub fn outstanding(&self) -> usize {
        self.pool.outstanding() + self.elsewhere.load(Relaxed)
    }

    pub fn set_elsewhere(&self, outstanding: usize) {
        self.elsewhere.store(outstanding, Relaxed);
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Gives it no more requests from a time on, or gives it requests again.
    pub fn drain(&self, since: Option<Instant>) {
        let mut drained = self.drained.lock().expect("no panic with the time held");
        *drained = since;
        self.is_drained.store(since.is_some(), Relaxed);
    }

    pub fn drained_since(&self) -> Option<Instant> {
        *self.drained.lock().expect("no panic with the time held")
    }

    pub fn is_reached(&self) -> bool {
        self.reach.is_reached()
    }

    /// Nobody listens at its port any more, by an answer that was asked for at this time.
    pub fn note_unreached(&self, asked: Instant) {
        self.reach.note_unreached(asked);
    }

    /// Whether a connection to it was made at a time or later; where none was, `reach` is to make one.
    pub fn is_reached_since(&self, time: Instant) -> bool {
        self.reach.is_reached_since(time)
    }

    /// Whether `reach` is to be called.
    pub fn is_to_be_reached(&self) -> bool {
        self.reach.is_asked_for()
    }

    /// The inodes of its server's sockets.
    fn server_sockets(&self) -> Vec<u64> {
        let server = self.server.lock().expect("no panic with the server held");
        server.as_ref().map(|server| server.sockets.clone()).unwrap_or_default()
    }

    /// Connects to it, unless somebody does: then it is known whether its server is up. The connection is closed at once, because a
    /// server that answers one connection at a time would wait for its request.
    pub async fn reach(
        self: Arc<Self>,
        shared: Arc<Shared>,
        forwarders: Arc<Forwarders>,
        owner: Principal,
    ) {
        if !self.is_to_be_reached() || self.is_reaching.swap(true, Relaxed) {
            return;
        }
        let asked = Instant::now();
        if self.connect(&shared, &forwarders, &owner).await.is_none() {
            self.note_unreached(asked);
        }
        self.is_reaching.store(false, Relaxed);
    }

    #[cfg(test)]
    pub fn set_reached(&self, at: Instant) {
        self.reach.note_reached(at);
    }

    /// Whether it is ready, and is not to be given up.
    pub fn is_open(&self) -> bool {
        self.readiness.is_ready() && !self.is_drained.load(Relaxed)
    }

    pub fn is_joined(&self) -> bool {
        self.is_joined.load(Relaxed)
    }

    pub fn set_joined(&self, is_joined: bool) {
        self.is_joined.store(is_joined, Relaxed);
    }

    /// Whether it can do its part: its server is up, and of a worker the router knows it.
    pub fn is_up(&self) -> bool {
        let is_known = self.role != GroupRole::Worker || self.is_joined();
        self.is_open() && self.is_reached() && is_known
    }

    /// Whether nobody tells this router its workers at the moment: the caller is to, and says when that is done.
    pub fn begin_telling(&self) -> bool {
        !self.is_told.swap(true, Relaxed)
    }

    pub fn end_telling(&self) {
        self.is_told.store(false, Relaxed);
    }

    pub fn enter(&self) -> Outstanding {
        self.pool.enter()
    }

    /// Whether as many of its places are held for this use as may be.
    pub fn is_full(&self, place_use: PlaceUse) -> bool {
        match place_use {
            // Also by what gateways have sent it.
            PlaceUse::Whole => self.outstanding() >= OUTSTANDING_MAX,
            PlaceUse::Upload | PlaceUse::WebSocket => self.pool.is_full(place_use, OUTSTANDING_MAX),
        }
    }

    pub fn websockets(&self) -> usize {
        self.pool.websockets()
    }

    pub fn enter_websocket(&self) -> Outstanding {
        self.pool.enter_websocket()
    }

    pub fn enter_upload(&self) -> Outstanding {
        self.pool.enter_upload()
    }

    /// Closes the connections that nobody has used for a while.
    pub fn close_idle(&self, now: Instant) {
        self.pool.close_idle(now);
    }

    /// Sends a request by a connection that is open, or by a new one. A connection that becomes a websocket is always new.
    pub async fn send(
        &self,
        shared: &Arc<Shared>,
        forwarders: &Arc<Forwarders>,
        owner: &Principal,
        request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        let exchange = self.begin(shared, forwarders, owner, request, upgrades);
        self.while_there(pin!(exchange)).await
    }

    /// The same for a caller that has the whole exchange ended with the replica (`while_there`).
    pub async fn begin(
        &self,
        shared: &Arc<Shared>,
        forwarders: &Arc<Forwarders>,
        owner: &Principal,
        request: hyper::Request<Body>,
        upgrades: bool,
    ) -> Result<hyper::Response<AnswerBody>, SendFailure> {
        let connect = || self.connect(shared, forwarders, owner);
        let has_room = || {
            let counts = &shared.volatile.forwarded;
            // Without a place a connection would go by a step, which costs more than another thread's connection.
            forwarders.near_slots.available_permits() > 0
                && kept_connections::has_room(counts, owner.uid, FORWARDED_OF_USER_MAX)
        };
        self.pool.send_where(has_room, connect, request, upgrades).await
    }

    /// The outcome of an exchange with it. The way to a node that is gone may stay open for a while: nobody waits for an answer on it.
    pub async fn while_there<T>(
        &self,
        mut exchange: Pin<&mut impl Future<Output = Result<T, SendFailure>>>,
    ) -> Result<T, SendFailure> {
        let over = pin!(self.over());
        let mut over = RareEvent::new(over);
        let outcome = poll_fn(|context| {
            if let Poll::Ready(outcome) = exchange.as_mut().poll(context) {
                return Poll::Ready(outcome);
            }
            over.poll(self.has_ended.load(Acquire), context).map(|()| Err(SendFailure::Lost))
        });
        outcome.await
    }

    /// Waits until its attempt is over.
    pub async fn over(&self) {
        let mut is_over = self.is_over.subscribe();
        // The sender is there as long as the replica is.
        let _ = is_over.wait_for(|is_over| *is_over).await.is_ok();
    }

    /// Ends the requests that it has not answered.
    pub fn end(&self) {
        self.has_ended.store(true, Release);
        self.is_over.send_replace(true);
    }

    async fn connect(
        &self,
        shared: &Arc<Shared>,
        forwarders: &Arc<Forwarders>,
        owner: &Principal,
    ) -> Option<OpenConnection> {
        if !self.is_noted.swap(true, Relaxed) {
            forwarders.kept.note(owner.uid, &self.pool);
        }
        let counts = &shared.volatile.forwarded;
        forwarders.kept.make_room(counts, owner.uid, FORWARDED_OF_USER_MAX);
        let known = self.server_sockets();
        match self.connect_near(shared, forwarders, owner, &known).await? {
            NearConnection::Made(stream, held) => {
                self.reach.note_reached(Instant::now());
                return OpenConnection::handshake(stream, held).await;
            }
            NearConnection::Refused => return None,
            NearConnection::ByStep => {}
        }
        let step = forwarders.get(shared, owner, self.attempt.job, 0)?;
        let opened = timeout(CONNECT_TIMEOUT, step.open(shared, self.port));
        let (stream, mut server) = opened.await.ok().flatten()?;
        if let Some(server) = &mut server {
            server.sockets.truncate(SERVER_SOCKETS_MAX);
        }
        let found = server.as_ref().map(|server| server.sockets.clone()).unwrap_or_default();
        *self.server.lock().expect("no panic with the server held") = server;
        self.reach.note_reached(Instant::now());
        // The server may connect by itself from here on. A connection by the step would be used for as long as requests come, and each of
        // them cost many times as much; it is closed behind the other.
        if found != known
            && let Some(NearConnection::Made(near, held)) =
                self.connect_near(shared, forwarders, owner, &found).await
        {
            return OpenConnection::handshake(near, held).await;
        }
        OpenConnection::handshake(stream, step).await
    }

    /// Connects without a step; `None` when that takes too long. `known`: the inodes of the sockets that are its server's.
    async fn connect_near(
        &self,
        shared: &Shared,
        forwarders: &Forwarders,
        owner: &Principal,
        known: &[u64],
    ) -> Option<NearConnection> {
        let target = NearTarget { attempt: self.attempt, owner: owner.uid, port: self.port };
        let near = near_replica::connect(shared, forwarders, target, known);
        timeout(CONNECT_TIMEOUT, near).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
    use crate::testing::{NODE, TestServer, user};
    use std::net::{Ipv4Addr, TcpListener};
    use tokio::sync::mpsc;

    /// The link of an agent that has the server's own loopback addresses.
    fn near_link() -> Link {
        let build = AgentBuild { program: "test".into(), protocol: wire::version::PROTOCOL };
        let peer = LinkPeer {
            address: Ipv4Addr::LOCALHOST.into(),
            build,
            since: clock::now(),
            takes_bytes: true,
            is_near: true,
            finds_servers: true,
        };
        Link {
            number: 1,
            fingerprint: "certificate".into(),
            peer,
            outbox: mpsc::channel(1).0,
            data: mpsc::channel(1).0,
            cut: Arc::default(),
            shutdown: Arc::default(),
        }
    }

    /// The agent may have looked before the server listened, and its word come behind a request's connection: no step is asked for one whose
    /// sockets are known.
    #[tokio::test(flavor = "multi_thread")]
    async fn replica_that_is_connected_to_without_a_step_is_reached_again() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: web").await.expect("a job");
        server.plan();
        let attempt = server.shared.read().jobs[&job].attempt_id().expect("it runs");
        server.shared.agents.add(&[NODE.to_owned()], &near_link());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = listener.local_addr().expect("an address");
        let service = Service { port: at.port(), ..Service::at(80) };
        let replica = Arc::new(Replica::new(attempt, None, &service));
        let found = near_replica::look_up(at).await.expect("the lists");
        let sockets = found.iter().map(|socket| socket.inode).collect();
        let own = OwnServer { address: at.ip(), sockets };
        *replica.server.lock().expect("no panic") = Some(own);
        let forwarders = Arc::new(Forwarders::of_services(2));
        let owner = Principal { uid: nix::unistd::geteuid().as_raw(), ..user() };
        let reach =
            || replica.clone().reach(server.shared.clone(), forwarders.clone(), owner.clone());
        reach().await;
        assert!(replica.is_reached());
        replica.note_unreached(Instant::now());
        assert!(!replica.is_reached());
        reach().await;
        assert!(replica.is_reached(), "its sockets are known");
        drop(listener);
        assert!(!replica.is_reached_since(Instant::now()));
        reach().await;
        assert!(!replica.is_reached(), "a connection that was asked for is refused");
    }
}
