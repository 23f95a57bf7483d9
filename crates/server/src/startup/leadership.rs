//! Of several servers on one database, one leads. A server that does not lead waits: it answers nobody, and takes over when
//! the leader's lease has lapsed or was given up. Then it reads the state and starts as any server does.
//!
//! The leader renews its lease on a session of its own, so that a slow commit does not hold it back. A leader that finds
//! another in its place ends, and is started again by its keeper or service manager, to wait. So does one that could not
//! renew its lease for long: the database may be away for it alone, and another server may lead.

use super::Listeners;
use crate::error::ServerError;
use crate::repeated_failure::RepeatedFailure;
use crate::vital_task::CANNOT_GO_ON;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::postgres::{self, Database, DatabaseError, DatabaseUrl, Lease, Taken};

/// How long the lease is good without being renewed.
const LEASE_LIFE: Duration = Duration::from_secs(2);
const RENEW_INTERVAL: Duration = Duration::from_millis(500);
/// How long a leader goes on that cannot renew its lease. A database that is started again is back sooner.
const UNRENEWED_MAX: Duration = Duration::from_secs(30);
/// How often a server that waits looks whether it may lead.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// The most callers that one look turns away at each listener.
const TURNED_AWAY_MAX: usize = 1024;

/// The lease of this server, and a session for its state.
pub(super) struct Leadership {
    pub database: Arc<Database>,
    lease: Arc<Lease>,
}

impl Leadership {
    /// Waits until this server leads. `identity` is the cluster's, `holder` this server's name; `on_standby` is told once who
    /// leads meanwhile.
    pub fn acquire(
        url: &DatabaseUrl,
        identity: &str,
        holder: &str,
        listeners: &Listeners,
        on_standby: fn(&str),
    ) -> Result<Self, ServerError> {
        let session = || {
            Database::new(url.clone())
                .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))
        };
        let (database, for_lease) = (session()?, session()?);
        await_database(listeners, || Ok(postgres::prepare(&database, identity)?))?;
        set_nonblocking(listeners, true)?;
        let lease = Arc::new(await_lease(&for_lease, holder, listeners, on_standby)?);
        set_nonblocking(listeners, false)?;
        let kept = lease.clone();
        std::thread::Builder::new()
            .name("lease".into())
            .spawn(move || keep(&kept))
            .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
        tracing::info!(epoch = lease.epoch(), store = url.shown(), "this server leads");
        Ok(Self { database, lease })
    }

    pub fn epoch(&self) -> i64 {
        self.lease.epoch()
    }

    /// Lets another server take over at once. What fails here costs it the rest of the lease's life.
    pub fn release(&self) {
        if let Err(error) = self.lease.release() {
            tracing::warn!("the lease lapses by itself: {error}");
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
    database: &Arc<Database>,
    holder: &str,
    listeners: &Listeners,
    on_standby: fn(&str),
) -> Result<Lease, ServerError> {
    let mut failures = RepeatedFailure::new("the lease");
    let mut is_told = false;
    loop {
        match Lease::take(database, holder, LEASE_LIFE) {
            Ok(Taken::Leading(lease)) => return Ok(lease),
            Ok(Taken::Waiting(leader)) => {
                failures.succeeded();
                if !is_told {
                    is_told = true;
                    tracing::info!(leader = leader.holder, "this server waits as a standby");
                    on_standby(&leader.holder);
                }
            }
            Err(error @ DatabaseError::Unfit(_)) => return Err(error.into()),
            Err(error) => failures.failed("it cannot be asked for; trying again", &error),
        }
        turn_away(listeners);
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn set_nonblocking(listeners: &Listeners, on: bool) -> Result<(), ServerError> {
    let Listeners { socket, port, agents, ssh } = listeners;
    socket
        .set_nonblocking(on)
        .and_then(|()| port.set_nonblocking(on))
        .and_then(|()| agents.set_nonblocking(on))
        .and_then(|()| ssh.as_ref().map_or(Ok(()), |ssh| ssh.set_nonblocking(on)))
        .map_err(|e| ServerError::Other(format!("the listeners: {e}")))
}

/// Closes the connections that have come: who calls tries the next server, and does not wait for this one.
fn turn_away(listeners: &Listeners) {
    let Listeners { socket, port, agents, ssh } = listeners;
    for _ in 0..TURNED_AWAY_MAX {
        let is_any = [
            socket.accept().is_ok(),
            port.accept().is_ok(),
            agents.accept().is_ok(),
            ssh.as_ref().is_some_and(|ssh| ssh.accept().is_ok()),
        ];
        if !is_any.contains(&true) {
            return;
        }
    }
}

/// Renews the lease until another server has it or it could not be renewed for long; then this process ends.
fn keep(lease: &Lease) {
    let mut failures = RepeatedFailure::new("the lease");
    let mut renewed = Instant::now();
    loop {
        std::thread::sleep(RENEW_INTERVAL);
        match lease.renew() {
            Ok(()) => {
                failures.succeeded();
                renewed = Instant::now();
            }
            Err(error @ DatabaseError::Deposed) => {
                tracing::error!("{error}: it ends, and waits when it is started again");
                std::process::exit(CANNOT_GO_ON);
            }
            Err(error) if renewed.elapsed() >= UNRENEWED_MAX => {
                let seconds = renewed.elapsed().as_secs();
                tracing::error!(
                    "the lease was not renewed for {seconds} seconds: {error}: \
                     the server ends, and waits when it is started again"
                );
                std::process::exit(CANNOT_GO_ON);
            }
            Err(error) => failures.failed("it cannot be renewed; trying again", &error),
        }
    }
}
