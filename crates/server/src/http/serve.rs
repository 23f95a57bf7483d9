//! Accepts connections on the socket, and runs HTTP on every connection within its limits.

use crate::auth::accounts::Accounts;
use crate::auth::principal;
use crate::connection_limits::{ConnectionLimits, ConnectionSlots, PortConnection, UserSlot};
use crate::http::drain::Drain;
use crate::http::idle_http2::{ConnectionRequests, IdleTimeout};
use crate::http::own_wakes::polled_again;
use crate::http::peer::{HeldSlot, Peer};
use crate::http::rare_event::RareEvent;
use crate::http::stall_timeout::{StallTimeout, TimedStream};
use crate::http::vouch::NodeAsked;
use crate::shared::Shared;
use crate::ssh::endpoint::{Endpoint, Peer as SshPeer};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use nix::sys::socket::{MsgFlags, recv};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::unix::UCred;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, Semaphore};
use tokio::task::block_in_place;
use tokio::time::timeout;
use wire::client::{BACKUP_PATH, CALL_PATH, METRICS_PATH};
use wire::link::PassedFrom;
use wire::ssh::{INTERNODE_LINE_BYTES_MAX, INTERNODE_PREFIX, internode_login};

/// Bytes of a request's head, and of what is read ahead of a handler.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// How long a refused connection may take its answer, and how much of its request is read.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(2);
const REFUSED_BYTES_MAX: u64 = 1 << 20;

/// How long a connection that is to be finished may take to send its first request.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections whose users are being looked up because only the reserved part is left.
const LOOKUPS_MAX: usize = 16;

/// Requests at once on one connection of HTTP/2, as many as browsers have connections without it. Connections are counted, and
/// what each request of theirs may hold is not.
const STREAMS_MAX: u32 = 8;

/// Bytes of one request's body, and of all bodies on one connection of HTTP/2, that a client may send before they are read, and bytes of
/// one answer that wait for the client. A connection without it holds as much as a head may have: many may be open where nobody has said
/// who asks.
const STREAM_WINDOW_BYTES: u32 = 64 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 256 << 10;
const STREAM_ANSWER_BYTES: usize = 64 << 10;

/// The local socket, where the kernel says who connected.
pub struct LocalSocket {
    pub router: Router,
    pub slots: Arc<ConnectionSlots>,
    pub limits: ConnectionLimits,
    pub shared: Arc<Shared>,
    pub accounts: Accounts,
    /// For connections from jobs on this machine to other nodes of their runs.
    pub endpoint: Arc<Endpoint>,
}

impl LocalSocket {
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        let lookups = Arc::new(Semaphore::new(LOOKUPS_MAX));
        tokio::spawn(self.shared.volatile.subordinate_ids.clone().keep_current());
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Ok(peer) = stream.peer_cred() else { continue };
                    let counted = self.shared.counted_user(peer.uid());
                    if let Some(slot) = self.slots.take_for(counted, || false) {
                        tokio::spawn(self.clone().connection(stream, peer, slot));
                        continue;
                    }
                    // Whether the part that is left is open to him is looked up beside: a slow directory holds up nobody else.
                    let Ok(lookup) = lookups.clone().try_acquire_owned() else { continue };
                    let this = self.clone();
                    tokio::spawn(async move {
                        let _lookup = lookup;
                        let is_operator = block_in_place(|| {
                            let who = principal::of_uid(peer.uid(), peer.gid());
                            authorise(&this.shared.read(), &who, Act::Operate).is_ok()
                        });
                        if let Some(slot) = this.slots.take_for(counted, || is_operator) {
                            tokio::spawn(this.clone().connection(stream, peer, slot));
                        }
                    });
                }
                Err(error) => self.slots.pause_after(&error).await,
            }
        }
    }

    async fn connection(self: Arc<Self>, mut stream: UnixStream, peer: UCred, slot: UserSlot) {
        let silence = self.limits.silence;
        let Ok(Ok(is_ssh)) = timeout(silence, is_internode_ssh(&stream)).await else { return };
        if is_ssh {
            let login = timeout(silence, read_login(&mut stream)).await.ok().flatten();
            let socket = stream.as_fd().try_clone_to_owned();
            if let (Some(login), Ok(socket)) = (login, socket) {
                let peer = SshPeer::ThisMachine(peer.uid(), slot);
                self.endpoint.serve_internode(stream, socket, login, peer);
            }
            return;
        }
        // Looked up when there is a request, and on no thread that answers others.
        let Some(who) = self.accounts.find(peer.uid(), peer.gid()).await else {
            let uid = peer.uid();
            let why = format!("the user database does not answer for user {uid}: try again");
            return refuse(&mut stream, &why).await;
        };
        let who = move || Peer::Socket(who.clone());
        serve(&self.router, stream, who, slot, &self.limits, Drain::never());
    }
}

/// Waits for the first bytes, and says whether they begin a connection to another node of a run; they are left
/// where they are.
async fn is_internode_ssh(client: &UnixStream) -> io::Result<bool> {
    let mut first = [0; INTERNODE_PREFIX.len()];
    let peek = || {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(client.as_raw_fd(), &mut first, flags).map_err(io::Error::from)
    };
    let length = client.async_io(Interest::READABLE, peek).await?;
    Ok(first[..length] == *INTERNODE_PREFIX.as_bytes())
}

/// The login of the first line; what follows it is left in the socket.
async fn read_login(client: &mut UnixStream) -> Option<String> {
    let mut line = Vec::new();
    while line.len() <= INTERNODE_LINE_BYTES_MAX {
        match client.read_u8().await.ok()? {
            b'\n' => return internode_login(&line).map(str::to_owned),
            byte => line.push(byte),
        }
    }
    None
}

/// Serves a client on a node, if the node may speak for its user. Returns when that is decided.
pub async fn serve_client<S>(
    router: &Router,
    mut stream: S,
    asked: NodeAsked,
    slots: &ConnectionSlots,
    limits: &ConnectionLimits,
    shared: &Shared,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let may_ask = asked.check(&shared.read());
    if let Err(why) = may_ask {
        return refuse(&mut stream, &why).await;
    }
    let counted = shared.counted_user(asked.client.uid);
    let Some(slot) = slots.take_on_node(&asked.fingerprint, counted) else {
        return refuse(&mut stream, "too many connections are open on nodes").await;
    };
    match asked.admit(shared).await {
        Ok(user) => {
            let user = Arc::new(user);
            let who = move || Peer::Node(user.clone());
            serve(router, stream, who, slot, limits, Drain::never());
        }
        Err(why) => refuse(&mut stream, &why).await,
    }
}

/// Serves clients that standbys pass on, as if they had come to this server.
pub struct PassedClients {
    pub router: Router,
    pub socket: Arc<ConnectionSlots>,
    pub port: Arc<ConnectionSlots>,
    pub limits: ConnectionLimits,
    pub shared: Arc<Shared>,
    pub accounts: Accounts,
}

impl PassedClients {
    pub async fn serve<S>(&self, mut stream: S, from: PassedFrom)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        match from {
            PassedFrom::Socket { uid, gid, user } => {
                let Some(who) = self.accounts.find(uid, gid).await else {
                    let why = "the leader's user database does not answer: try again";
                    return refuse(&mut stream, why).await;
                };
                if who.name != user {
                    let here = &who.name;
                    let why =
                        format!("user {uid} is {user} on the standby, and {here} on the leader");
                    return refuse(&mut stream, &why).await;
                }
                let is_operator = || authorise(&self.shared.read(), &who, Act::Operate).is_ok();
                // As on this server's own socket: the ids of a user's containers count as the user's.
                let counted = self.shared.counted_user(uid);
                let Some(slot) = self.socket.take_for(counted, is_operator) else {
                    return refuse(&mut stream, "too many connections are open").await;
                };
                let peer = move || Peer::Socket(who.clone());
                serve(&self.router, stream, peer, slot, &self.limits, Drain::never());
            }
            PassedFrom::Port { address } => {
                let Some(slot) = self.port.take() else {
                    return refuse(&mut stream, "too many connections are open").await;
                };
                let is_loopback = address.to_canonical().is_loopback();
                // The standby answers other machines by TLS alone.
                let connection = PortConnection::new(self.port.clone()).by_tls(!is_loopback);
                let peer = move || Peer::Port {
                    connection: connection.clone(),
                    from: address,
                    is_loopback,
                };
                serve(&self.router, stream, peer, slot, &self.limits, Drain::never());
            }
        }
    }
}

/// Answers a connection's first request, whatever it is, and closes it.
pub async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, why: &str) {
    let length = why.len() + 1;
    let head = "HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain\r\nconnection: close";
    let text = format!("{head}\r\ncontent-length: {length}\r\n\r\n{why}\n");
    let answer = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        // What it has sent is read: else the kernel takes the answer back.
        tokio::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(REFUSAL_TIMEOUT, answer).await;
}

/// Answers the requests of connections.
pub trait RequestHandler: Clone + Send + Sync + 'static {
    fn handle(self, request: Request) -> impl Future<Output = Response> + Send;
}

impl RequestHandler for Router {
    async fn handle(mut self, request: Request) -> Response {
        let answered = tower_service::Service::call(&mut self, request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

/// The request with a body of the handlers' kind. Most have none: nothing is put around it.
fn with_body(request: hyper::Request<Incoming>) -> Request {
    request.map(|body| if body.is_end_stream() { Body::empty() } else { Body::new(body) })
}

/// Runs HTTP on a connection, in a task of its own.
pub fn serve<S>(
    handler: &impl RequestHandler,
    stream: S,
    who: impl Fn() -> Peer + Send + 'static,
    slot: impl Send + Sync + 'static,
    limits: &ConnectionLimits,
    mut drain: Drain,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handler = handler.clone();
    let stall_timeout = StallTimeout::new(limits.stall);
    let io = TokioIo::new(TimedStream::new(stream, limits.silence, stall_timeout.clone()));
    let limits = limits.clone();
    let silence = limits.silence;
    let peer = OnceLock::new();
    let slot = HeldSlot(Arc::new(slot));
    let for_requests = slot.clone();
    let asked = Arc::new(Notify::new());
    let is_asked = asked.clone();
    let requests = ConnectionRequests::default();
    let mut idle = IdleTimeout::new(requests.clone(), silence);
    let service = hyper::service::service_fn(move |request| {
        let mut request = with_body(request);
        is_asked.notify_one();
        // Nobody reads along with a backup or a scrape: its client takes it, or is gone.
        let is_taken_at_once =
            [CALL_PATH, BACKUP_PATH, METRICS_PATH].contains(&request.uri().path());
        stall_timeout.set(if is_taken_at_once { limits.stall } else { limits.stream_stall });
        request.extensions_mut().insert(peer.get_or_init(&who).clone());
        request.extensions_mut().insert(for_requests.clone());
        request.extensions_mut().insert(stall_timeout.clone());
        let handler = handler.clone();
        let open = requests.begin(&request);
        // Made where it stays: it is large.
        async move {
            let answer = handler.handle(request).await;
            Ok::<_, Infallible>(match open {
                Some(open) => open.follow(answer),
                None => answer,
            })
        }
    });
    tokio::spawn(polled_again(async move {
        let _slot = slot;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // A silent client does not keep its slot. The first byte, which tells the version of HTTP,
        // has its timeout in `TimedStream`.
        let mut one = builder.http1();
        one.timer(TokioTimer::new()).header_read_timeout(silence).max_buf_size(HEAD_BYTES_MAX);
        let mut two = builder.http2();
        two.timer(TokioTimer::new()).keep_alive_interval(silence).keep_alive_timeout(silence);
        two.max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_BYTES_MAX as u32);
        two.initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buf_size(STREAM_ANSWER_BYTES);
        let mut connection = pin!(builder.serve_connection_with_upgrades(io, service));
        let (same_drain, mut is_told) = (drain.clone(), false);
        // A connection that was just taken has its first request on the way: it is answered too.
        let finish = pin!(async {
            drain.told().await;
            let _ = timeout(FIRST_REQUEST_TIMEOUT, asked.notified()).await;
        });
        let mut finish = RareEvent::new(finish);
        let served_so_far = poll_fn(|context| {
            if let Poll::Ready(served) = connection.as_mut().poll(context) {
                return Poll::Ready(Some(served));
            }
            if idle.poll(context).is_ready() {
                return Poll::Ready(None);
            }
            is_told |= same_drain.may_be_told();
            finish.poll(is_told, context).map(|()| None)
        });
        let served = match served_so_far.await {
            Some(served) => served,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.as_mut().await
            }
        };
        if let Err(error) = served {
            tracing::debug!("a connection ended early: {error}");
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::user;
    use axum::routing::get;
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::client::conn::http2;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Requests that are being answered.
    #[derive(Default)]
    struct Open {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    #[tokio::test]
    async fn answer_that_nobody_takes_ends_when_its_handler_says() {
        let answer = |request: axum::extract::Request| async move {
            StallTimeout::set_of(request.extensions(), Duration::from_millis(20));
            vec![0_u8; 1 << 20]
        };
        let router = Router::new().route("/", get(answer));
        let (mut ours, theirs) = tokio::io::duplex(1 << 10);
        let (slot, freed) = tokio::sync::oneshot::channel::<()>();
        // Other streams have an hour.
        let limits = ConnectionLimits::default();
        serve(&router, theirs, || Peer::Socket(user()), slot, &limits, Drain::never());
        ours.write_all(b"GET / HTTP/1.1\r\nhost: server\r\n\r\n").await.expect("a request");
        let freed = timeout(Duration::from_secs(60), freed).await.expect("the connection ends");
        assert!(freed.is_err(), "its slot is free");
    }

    #[tokio::test]
    async fn connection_of_version_2_that_answers_pings_and_asks_for_nothing_ends() {
        let limits: ConnectionLimits = "silence_ms=200".parse().expect("limits");
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        serve(&Router::new(), theirs, || Peer::Socket(user()), (), &limits, Drain::never());
        // hyper answers pings by itself.
        let (_sender, connection) =
            http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), TokioIo::new(ours))
                .await
                .expect("HTTP/2");
        let ended = timeout(Duration::from_secs(60), connection).await;
        assert!(ended.is_ok(), "it is closed");
    }

    #[tokio::test]
    async fn connection_has_few_requests_at_once_however_many_are_sent() {
        let (open, gate) = (Arc::new(Open::default()), Arc::new(Semaphore::new(0)));
        let (seen, passed) = (open.clone(), gate.clone());
        let answer = move || {
            let (open, gate) = (seen.clone(), passed.clone());
            async move {
                let now = open.now.fetch_add(1, Ordering::SeqCst) + 1;
                open.most.fetch_max(now, Ordering::SeqCst);
                gate.acquire().await.expect("an open gate").forget();
                open.now.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let router = Router::new().route("/", get(answer));
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let limits = ConnectionLimits::default();
        serve(&router, theirs, || Peer::Socket(user()), (), &limits, Drain::never());
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(ours)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let ask = || {
            let mut sender = sender.clone();
            let request = hyper::Request::get("http://server/").body(Empty::<Bytes>::new());
            let request = request.expect("a request");
            tokio::spawn(async move { sender.send_request(request).await.map(|r| r.status()) })
        };
        // With its answer the client has been told how many it may send.
        gate.add_permits(1);
        assert_eq!(ask().await.expect("no panic").expect("an answer"), 200);
        let many = 4 * STREAMS_MAX as usize;
        let asked: Vec<_> = (0..many).map(|_| ask()).collect();
        let taken = async {
            while open.now.load(Ordering::SeqCst) < STREAMS_MAX as usize {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), taken).await.expect("as many as may be");
        gate.add_permits(many);
        for one in asked {
            assert_eq!(one.await.expect("no panic").expect("an answer"), 200);
        }
        assert_eq!(open.most.load(Ordering::SeqCst), STREAMS_MAX as usize);
    }

    #[tokio::test]
    async fn connection_takes_few_bytes_of_bodies_that_nobody_reads() {
        // Frames of HTTP/2, and the setting that bounds what is sent of one body.
        const SETTINGS: u8 = 4;
        const WINDOW_UPDATE: u8 = 8;
        const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
        const FIRST_WINDOW_BYTES: u32 = 65_535;
        let (mut ours, theirs) = tokio::io::duplex(64 << 10);
        let limits = ConnectionLimits::default();
        serve(&Router::new(), theirs, || Peer::Socket(user()), (), &limits, Drain::never());
        ours.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("HTTP/2 begins");
        ours.write_all(&[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]).await.expect("no settings");
        let (mut of_stream, mut of_connection) = (None, None);
        let told = async {
            while of_stream.is_none() || of_connection.is_none() {
                let mut head = [0; 9];
                ours.read_exact(&mut head).await.expect("a frame");
                let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut rest = vec![0; length as usize];
                ours.read_exact(&mut rest).await.expect("a whole frame");
                let number = |bytes: &[u8]| {
                    u32::from_be_bytes(bytes.try_into().expect("four bytes of a number"))
                };
                match head[3] {
                    SETTINGS => {
                        let mut all = rest.chunks(6);
                        let found = all.find(|one| one[..2] == INITIAL_WINDOW_SIZE);
                        of_stream = of_stream.or(found.map(|one| number(&one[2..])));
                    }
                    WINDOW_UPDATE => of_connection = Some(FIRST_WINDOW_BYTES + number(&rest)),
                    _ => {}
                }
            }
        };
        timeout(Duration::from_secs(60), told).await.expect("both are told");
        assert_eq!(of_stream, Some(STREAM_WINDOW_BYTES));
        assert_eq!(of_connection, Some(CONNECTION_WINDOW_BYTES));
    }
}
