//! Takes the connections of SSH clients in: so many at once and of each user, and for so long without a key.

use super::channel_end::ServedChannels;
use super::connection::Connection;
use super::entry::{Entry, LOOK_INTERVAL};
use super::input_limit::{InputLimit, WINDOW_BYTES};
use super::login_places::{self, LoginPlaces};
use crate::connection_limits::{ConnectionSlots, PortConnection, UserSlot};
use crate::per_user::Counted;
use crate::shared::Shared;
use nix::sys::socket::{Shutdown, shutdown};
use russh::keys::PrivateKey;
use russh::server::{Config, run_stream};
use russh::{Disconnect, MethodKind, MethodSet, Preferred, SshId, kex};
use std::borrow::Cow;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long a client may take until it has said what it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a client may take until a key has let it in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(20);
/// Each wrong key costs its client this much.
const REJECTION_TIME: Duration = Duration::from_millis(200);
const KEYS_TRIED_MAX: usize = 12;
/// A silent client is asked so often whether it is there, and dropped when it does not answer.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVES_MAX: usize = 3;
/// How long a connection has when its job has ended.
const END_GRACE: Duration = Duration::from_secs(60);
/// How long a client may take to go when it is told to.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Only exchanges that cost the server little: anybody may ask for one, with no key. The last four are extensions.
const KEY_EXCHANGES: &[kex::Name] = &[
    kex::MLKEM768X25519_SHA256,
    kex::CURVE25519,
    kex::CURVE25519_PRE_RFC_8731,
    kex::EXTENSION_SUPPORT_AS_CLIENT,
    kex::EXTENSION_SUPPORT_AS_SERVER,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_CLIENT,
    kex::EXTENSION_OPENSSH_STRICT_KEX_AS_SERVER,
];
const PACKET_BYTES: u32 = 32 << 10;
/// Messages that wait to be written to a client; each has at most a packet of data.
const EVENTS_MAX: usize = 16;

pub struct Endpoint {
    shared: Arc<Shared>,
    config: Arc<Config>,
    slots: Arc<ConnectionSlots>,
    /// Connections from other machines that no key has let in yet.
    strangers: Arc<LoginPlaces>,
    /// The same by agents and by users of this machine.
    logins: Arc<ConnectionSlots>,
    input: InputLimit,
    tunnel_idle: Duration,
}

/// Where a connection comes from, by which connections that no key has let in yet are bounded.
pub enum Peer<'p> {
    Address(IpAddr),
    /// The agent with this certificate carries it.
    Agent(&'p str),
    /// A user of this machine, whose connection to its socket has a slot there.
    ThisMachine(u32, UserSlot),
}

/// A place among those whom no key has let in, until it is dropped.
enum Login {
    Address(login_places::LoginPlace),
    Agent(#[expect(dead_code)] Counted<String>, #[expect(dead_code)] OwnedSemaphorePermit),
    User(#[expect(dead_code)] UserSlot),
}

impl Login {
    /// Waits until the place was given to another.
    async fn evicted(&mut self) {
        match self {
            Self::Address(place) => place.evicted().await,
            Self::Agent(..) | Self::User(_) => std::future::pending().await,
        }
    }

    fn proved(self) {
        if let Self::Address(place) = self {
            place.proved();
        }
    }
}

/// What a connection takes up.
struct Places {
    _of_agent: Option<Counted<String>>,
    _of_socket: Option<UserSlot>,
    _slot: OwnedSemaphorePermit,
    /// Until a key has let it in.
    login: Login,
}

impl Endpoint {
    pub fn new(
        shared: Arc<Shared>,
        host_key: PrivateKey,
        slots: Arc<ConnectionSlots>,
        logins: Arc<ConnectionSlots>,
        tunnel_idle: Duration,
    ) -> Self {
        let config = Config {
            server_id: SshId::Standard(Cow::Borrowed("SSH-2.0-sluice")),
            methods: MethodSet::from(&[MethodKind::PublicKey][..]),
            auth_rejection_time: REJECTION_TIME,
            auth_rejection_time_initial: Some(Duration::ZERO),
            keys: vec![host_key],
            preferred: Preferred { kex: Cow::Borrowed(KEY_EXCHANGES), ..Preferred::DEFAULT },
            window_size: WINDOW_BYTES,
            maximum_packet_size: PACKET_BYTES,
            event_buffer_size: EVENTS_MAX,
            max_auth_attempts: KEYS_TRIED_MAX,
            inactivity_timeout: None,
            keepalive_interval: Some(KEEPALIVE_INTERVAL),
            keepalive_max: KEEPALIVES_MAX,
            nodelay: true,
            ..Config::default()
        };
        let (config, input) = (Arc::new(config), InputLimit::default());
        let strangers = LoginPlaces::new(logins.max());
        Self { shared, config, slots, strangers, logins, input, tunnel_idle }
    }

    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let _ = stream.set_nodelay(true);
                    let Ok(socket) = stream.as_fd().try_clone_to_owned() else { continue };
                    // Without a slot the connection is closed.
                    if let Some(places) = self.places(Peer::Address(from.ip())) {
                        tokio::spawn(self.clone().connection(stream, socket, None, places));
                    }
                }
                Err(error) => self.slots.pause_after(&error).await,
            }
        }
    }

    /// Serves a connection from one node of a run to another. `socket` is what ends it. Who comes is proved by a key, as on the
    /// endpoint's port.
    pub fn serve_internode<S>(
        self: &Arc<Self>,
        stream: S,
        socket: OwnedFd,
        login: String,
        from: Peer<'_>,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        if let Some(places) = self.places(from) {
            tokio::spawn(self.clone().connection(stream, socket, Some(login), places));
        }
    }

    /// A slot, and a place among those whom no key has let in; `None` where all are taken, or the peer has its part of them.
    fn places(&self, from: Peer<'_>) -> Option<Places> {
        let (of_agent, of_socket, login) = match from {
            Peer::Address(address) => {
                let place = self.strangers.take(address);
                if place.has_evicted {
                    self.logins
                        .log_refusal("a newer one got the place of one that no key had let in");
                }
                (None, None, Login::Address(place))
            }
            Peer::Agent(agent) => {
                let counted = self.slots.count_node(agent)?;
                let login = Login::Agent(self.logins.count_node(agent)?, self.logins.take()?);
                (Some(counted), None, login)
            }
            Peer::ThisMachine(user, slot) => {
                (None, Some(slot), Login::User(self.logins.take_for(user, || false)?))
            }
        };
        let slot = self.slots.take()?;
        Some(Places { _of_agent: of_agent, _of_socket: of_socket, _slot: slot, login })
    }

    async fn connection<S>(
        self: Arc<Self>,
        stream: S,
        cut: OwnedFd,
        internode: Option<String>,
        places: Places,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Places { _of_agent, _of_socket, _slot, mut login } = places;
        let is_internode = internode.is_some();
        let now = Instant::now();
        let until = now + LOGIN_TIMEOUT;
        let (admitted, entry) = oneshot::channel();
        let handler = Connection::new(
            self.shared.clone(),
            PortConnection::new(self.slots.clone()),
            self.input.of_another(),
            admitted,
            self.config.clone(),
            internode,
            self.tunnel_idle,
        );
        let served = handler.served();
        let greeting = run_stream(self.config.clone(), stream, handler);
        let greeting = timeout_at(now + GREETING_TIMEOUT, greeting);
        let mut session = tokio::select! {
            greeted = greeting => match greeted {
                Ok(Ok(session)) => session,
                Ok(Err(_)) | Err(_) => return,
            },
            () = login.evicted() => return,
        };
        let handle = session.handle();
        let entry = tokio::select! {
            _ = &mut session => return,
            () = login.evicted() => return close(&cut),
            entry = timeout_at(until, entry) => match entry {
                Ok(Ok(entry)) => entry,
                Ok(Err(_)) | Err(_) => return close(&cut),
            },
        };
        login.proved();
        // Nobody sits at a connection between two nodes: it does not keep a run from being inactive.
        let job = entry.access.job;
        let _open = (!is_internode).then(|| self.shared.volatile.ssh_connections.opened(job));
        let reason = tokio::select! {
            _ = &mut session => return,
            () = self.job_over(&entry) => format!("job {job} has ended"),
            // The key between two nodes is the run's own: nobody takes it back, and while the run stops its programs end
            // in their own time.
            () = entry.shut_out(self.shared.clone()), if !is_internode => {
                format!("the key opens job {job} no more")
            }
            () = self.unused(&served) => "nothing was open in the connection".to_owned(),
        };
        let told = handle.disconnect(Disconnect::ByApplication, reason, String::new());
        let _ = timeout(CLOSE_TIMEOUT, async { (told.await, session.await) }).await;
        close(&cut);
    }

    /// Waits until the connection has had no channel for as long as a tunnel may be idle.
    async fn unused(&self, served: &ServedChannels) {
        let interval = LOOK_INTERVAL.min(self.tunnel_idle / 2);
        let mut used = Instant::now();
        while used.elapsed() < self.tunnel_idle {
            if !served.is_empty() {
                used = Instant::now();
            }
            sleep(interval).await;
        }
    }

    /// Waits until the job has ended, and the connection has had time to read its last lines.
    async fn job_over(&self, entry: &Entry) {
        while !entry.is_job_over(&self.shared) {
            sleep(LOOK_INTERVAL).await;
        }
        sleep(END_GRACE).await;
    }
}

/// Ends a connection, whatever its client does.
fn close(connection: &OwnedFd) {
    let _ = shutdown(connection.as_raw_fd(), Shutdown::Both);
}
