//! Of several servers on one database, one leads. A server that does not lead waits as a standby (`standby/`), and takes over when
//! the leader's lease has lapsed or was given up: with the state that it has followed, or with one that it reads then.
//!
//! The leader renews its lease on a session of its own, so that a slow commit does not hold it back. A leader that finds
//! another in its place ends, and is started again by its keeper or service manager, to wait. So does one that could not
//! renew its lease for long: the database may be away for it alone, and another server may lead. Before that it lets its agents and
//! what was passed on to it go, so that they find the other.

use super::Listeners;
use super::presence::Presence;
use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::shared::server_list::ServerList;
use crate::standby::{HotState, ReadPause, StandbyOptions, StandbyServer};
use crate::vital_task::CANNOT_GO_ON;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::postgres::{
    self, Database, DatabaseError, DatabaseUrl, Leader, Lease, Notifier, ServerAddress, Taken,
};

/// How long the lease is good without being renewed.
const LEASE_LIFE: Duration = Duration::from_secs(2);
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// How long the database may take to answer the session of the lease: later than that another server may lead.
const LEASE_ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long after its last renewal a leader takes another server for one that may lead: the lease's life, and a margin for a database
/// that is slow.
const DOUBT_AFTER: Duration = Duration::from_secs(5);
/// How long a leader goes on that cannot renew its lease. A database that is started again is back sooner.
const UNRENEWED_MAX: Duration = Duration::from_secs(30);
/// How often a leader looks how long its lease was not renewed.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// How long a leader that hands over waits for the next one, so that it does not take the lease itself when it is started again.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(3);
const SUCCESSOR_INTERVAL: Duration = Duration::from_millis(20);
/// How often a server that waits looks whether it may lead.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How often a standby that cannot read the state tries to.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);
/// The most callers that one look turns away at each listener.
const TURNED_AWAY_MAX: usize = 1024;

/// The lease of this server, and a session for its state.
pub(super) struct Leadership {
    pub database: Arc<Database>,
    lease: Arc<Lease>,
    for_lease: Arc<Database>,
    presence: Arc<Presence>,
    /// A session for the output of runs: no commit waits behind a log.
    pub for_logs: Arc<Database>,
    pub servers: Arc<ServerList>,
    /// The state that this server has followed while it waited.
    pub hot: Option<HotState>,
    /// Tells the servers that wait of what this one commits.
    _notifier: Notifier,
}

/// How a server waits.
pub(super) struct Waiting<'a> {
    pub url: &'a DatabaseUrl,
    /// The cluster's.
    pub identity: &'a str,
    pub address: ServerAddress,
    pub listeners: &'a Listeners,
    /// Told once who leads meanwhile.
    pub on_standby: fn(&str),
    /// What a standby is started with.
    pub standby: &'a dyn Fn(Arc<ServerList>) -> Result<StandbyOptions, ServerError>,
}

impl Leadership {
    /// Waits until this server leads.
    pub fn acquire(waiting: &Waiting<'_>) -> Result<Self, ServerError> {
        let Waiting { url, identity, listeners, .. } = *waiting;
        let session = || {
            Database::new(url.clone())
                .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))
        };
        let (database, for_logs, for_notices) = (session()?, session()?, session()?);
        let no_thread = |e| ServerError::Other(format!("cannot start a thread: {e}"));
        let brief =
            || Database::with_nothing_late(url.clone(), LEASE_ANSWER_TIMEOUT).map_err(no_thread);
        let (for_lease, for_presence) = (brief()?, brief()?);
        await_database(listeners, || Ok(postgres::prepare(&database, identity)?))?;
        set_nonblocking(listeners, true)?;
        let servers = Arc::new(ServerList::default());
        let presence = Presence::start(waiting.address.clone(), for_presence, servers.clone())
            .map_err(no_thread)?;
        let (lease, hot) = await_lease(waiting, &for_lease, &presence)?;
        let lease = Arc::new(lease);
        servers.contact.heard();
        let (kept, known) = (lease.clone(), servers.clone());
        std::thread::Builder::new()
            .name("lease".into())
            .spawn(move || keep(&kept, &known))
            .map_err(no_thread)?;
        presence.lead(lease.epoch());
        set_nonblocking(listeners, false)?;
        let (watched, seen) = (lease.clone(), servers.clone());
        std::thread::Builder::new()
            .name("lease-watch".into())
            .spawn(move || watch(&watched, &seen))
            .map_err(no_thread)?;
        let there = servers.clone();
        let notifier = Notifier::start(&database, for_notices, move || there.has_others());
        let _notifier = notifier.map_err(no_thread)?;
        tracing::info!(epoch = lease.epoch(), store = url.shown(), "this server leads");
        Ok(Self { database, lease, for_lease, presence, for_logs, servers, hot, _notifier })
    }

    pub fn epoch(&self) -> i64 {
        self.lease.epoch()
    }

    /// Lets another server take over at once. What fails here costs it the rest of the lease's life.
    pub fn release(&self) {
        if let Err(error) = self.lease.release() {
            tracing::warn!("the lease lapses by itself: {error}");
        }
        self.presence.end();
    }

    /// Waits until another server leads, for a bounded time. What this one could not give up is its own until it lapses.
    pub fn await_successor(&self) {
        let end = Instant::now() + SUCCESSOR_TIMEOUT;
        let is_taken =
            || Leader::read(&self.for_lease).is_ok_and(|leader| leader.succeeds(self.epoch()));
        while !is_taken() && Instant::now() < end {
            std::thread::sleep(SUCCESSOR_INTERVAL);
        }
    }
}

/// Does what needs the database, and waits for one that is away: one that starts with this machine may be later. One that cannot
/// be used is an error.
pub(super) fn await_database<T>(
    listeners: &Listeners,
    mut work: impl FnMut() -> Result<T, ServerError>,
) -> Result<T, ServerError> {
    set_nonblocking(listeners, true)?;
    let mut failures = RepeatedFailure::new("the store");
    let done = loop {
        let error = match work() {
            Err(error) => error,
            done => break done,
        };
        if !DatabaseError::cause_of(&error).is_some_and(DatabaseError::may_pass) {
            break Err(error);
        }
        failures.failed("waiting for the database", &error);
        turn_away(listeners);
        std::thread::sleep(LOOK_INTERVAL);
    };
    failures.succeeded();
    set_nonblocking(listeners, false)?;
    done
}

fn await_lease(
    waiting: &Waiting<'_>,
    database: &Arc<Database>,
    presence: &Presence,
) -> Result<(Lease, Option<HotState>), ServerError> {
    let mut failures = RepeatedFailure::new("the lease");
    let mut standby = OwnStandby::new(waiting);
    let mut is_told = false;
    loop {
        match Lease::take(database, &waiting.address.name, LEASE_LIFE) {
            // The state may have been moved to files since this server began to wait.
            Ok(Taken::Leading(lease)) => {
                let checked = postgres::check_cluster(database, waiting.identity);
                let Err(error) = checked else {
                    return Ok((lease, standby.running.and_then(StandbyServer::finish)));
                };
                // What fails here costs the next server the rest of the lease's life.
                let _ = lease.release();
                if matches!(error, DatabaseError::Unfit(_)) {
                    return Err(error.into());
                }
                presence.servers().contact.failed(&error);
                failures.failed("it was given up again; trying again", &error);
            }
            Ok(Taken::Waiting(leader)) => {
                failures.succeeded();
                presence.servers().contact.heard();
                let has_begun = standby.start(presence.servers());
                presence.set_seq(standby.seq());
                if has_begun {
                    // Told at once: it would be shown as far behind.
                    presence.tell();
                }
                if !is_told {
                    is_told = true;
                    tracing::info!(leader = leader.holder, "this server waits as a standby");
                    (waiting.on_standby)(&leader.holder);
                }
            }
            Err(error @ DatabaseError::Unfit(_)) => return Err(error.into()),
            Err(error) => {
                presence.servers().contact.failed(&error);
                failures.failed("it cannot be asked for; trying again", &error);
            }
        }
        standby.wait(LOOK_INTERVAL);
    }
}

/// The standby that this server is, once it could read the state. Until then it turns everybody away.
struct OwnStandby<'a> {
    waiting: &'a Waiting<'a>,
    running: Option<StandbyServer>,
    tried: Option<Instant>,
    read_pause: ReadPause,
}

impl<'a> OwnStandby<'a> {
    fn new(waiting: &'a Waiting<'a>) -> Self {
        Self { waiting, running: None, tried: None, read_pause: ReadPause::default() }
    }

    fn seq(&self) -> u64 {
        self.running.as_ref().map_or(0, StandbyServer::seq)
    }

    /// Begins to answer where it is time to try; whether it did.
    fn start(&mut self, servers: &Arc<ServerList>) -> bool {
        let begun = Instant::now();
        let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= STANDBY_INTERVAL)
            && self.read_pause.is_over(begun);
        if self.running.is_some() || !is_due {
            return false;
        }
        self.tried = Some(begun);
        let Listeners { socket, port, .. } = self.waiting.listeners;
        let started = (self.waiting.standby)(servers.clone())
            .and_then(|options| StandbyServer::start(options, socket, port));
        match started {
            Ok(running) => self.running = Some(running),
            Err(error) => {
                tracing::warn!("the standby answers nobody yet: {error}");
                // A database that is away is asked again soon, however long it took to find out.
                if DatabaseError::cause_of(&error).is_none() {
                    self.read_pause.begin(begun, Instant::now());
                }
            }
        }
        self.running.is_some()
    }

    fn wait(&mut self, time: Duration) {
        match &mut self.running {
            Some(standby) => {
                standby.follow(time);
                turn_away_agents(self.waiting.listeners);
            }
            None => {
                turn_away(self.waiting.listeners);
                std::thread::sleep(time);
            }
        }
    }
}

fn set_nonblocking(listeners: &Listeners, on: bool) -> Result<(), ServerError> {
    let Listeners { socket, port, agents, proxy, ssh } = listeners;
    let ports = [Some(port), Some(agents), proxy.as_ref(), ssh.as_ref()];
    socket
        .set_nonblocking(on)
        .and_then(|()| ports.into_iter().flatten().try_for_each(|one| one.set_nonblocking(on)))
        .map_err(|e| ServerError::Other(format!("the listeners: {e}")))
}

/// Closes the connections that have come: who calls tries the next server, and does not wait for this one.
fn turn_away(listeners: &Listeners) {
    let Listeners { socket, port, agents, proxy, ssh } = listeners;
    for _ in 0..TURNED_AWAY_MAX {
        let is_any = [
            socket.accept().is_ok(),
            port.accept().is_ok(),
            agents.accept().is_ok(),
            proxy.as_ref().is_some_and(|proxy| proxy.accept().is_ok()),
            ssh.as_ref().is_some_and(|ssh| ssh.accept().is_ok()),
        ];
        if !is_any.contains(&true) {
            return;
        }
    }
}

/// The same where the clients' listeners are served: agents and SSH clients look for the leader, and a standby reaches no services.
fn turn_away_agents(listeners: &Listeners) {
    let Listeners { agents, proxy, ssh, .. } = listeners;
    for _ in 0..TURNED_AWAY_MAX {
        let is_any = [
            agents.accept().is_ok(),
            proxy.as_ref().is_some_and(|proxy| proxy.accept().is_ok()),
            ssh.as_ref().is_some_and(|ssh| ssh.accept().is_ok()),
        ];
        if !is_any.contains(&true) {
            return;
        }
    }
}

/// Renews the lease until another server has it; then this process ends.
fn keep(lease: &Lease, servers: &ServerList) {
    let mut failures = RepeatedFailure::new("the lease");
    loop {
        std::thread::sleep(RENEW_INTERVAL);
        if lease.is_released() {
            return;
        }
        match lease.renew() {
            Ok(()) => {
                failures.succeeded();
                servers.contact.heard();
            }
            Err(error @ DatabaseError::Deposed) => {
                tracing::error!("{error}: it ends, and waits when it is started again");
                std::process::exit(CANNOT_GO_ON);
            }
            Err(error) => {
                servers.contact.failed(&error);
                failures.failed("it cannot be renewed; trying again", &error);
            }
        }
    }
}

/// Looks how long the lease was not renewed, while a renewal may wait for its answer. Counts the time that this process has lived through:
/// one that was frozen renews first.
fn watch(lease: &Lease, servers: &ServerList) {
    let (mut heard, mut unrenewed) = (None, Duration::ZERO);
    loop {
        std::thread::sleep(WATCH_INTERVAL);
        if lease.is_released() {
            return;
        }
        let last = servers.contact.last_heard();
        unrenewed = if last == heard { unrenewed + WATCH_INTERVAL } else { Duration::ZERO };
        heard = last;
        if unrenewed >= UNRENEWED_MAX {
            let why = servers.contact.failure().unwrap_or_else(|| "it does not answer".to_owned());
            tracing::error!(
                "the lease was not renewed for {} seconds: {why}: \
                 the server ends, and waits when it is started again",
                unrenewed.as_secs()
            );
            std::process::exit(CANNOT_GO_ON);
        }
        if unrenewed >= DOUBT_AFTER && servers.has_others() && !servers.contact.is_in_doubt() {
            tracing::warn!("another server may lead: agents are let go until the lease is renewed");
            servers.contact.set_in_doubt(true);
        }
    }
}
