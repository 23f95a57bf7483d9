//! The socket for clients on a machine without a server: each connection is carried to the server over a TLS connection of
//! its own, with the word of this node for who asks. The kernel says it here; whom the node may vouch for, the server
//! decides. A connection to another node of a run (`in_job/ssh_relay.rs`) is carried without that word: its client has a key.
//!
//! It has a thread of its own: what clients carry never delays orders and heartbeats.

use crate::error::AgentError;
use crate::link::connection::dial;
use crate::privilege;
use crate::socket_folder;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::{Uid, User};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, copy};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::client::TlsStream;
use wire::frame;
use wire::link::{CHANNEL_CONTROL, NodeClient, NodeSsh, ToServer};
use wire::ssh::{INTERNODE_LINE_BYTES_MAX, INTERNODE_PREFIX, internode_login};
use wire::version::PROTOCOL;

/// Connections of one user, and of all but root: one user cannot take all, nor all users the agent's descriptors.
const PER_USER_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 1024;
/// How long a server that restarts is waited for.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const DIAL_PAUSE: Duration = Duration::from_millis(200);
/// How long one address may take where there are others.
const NEXT_TIMEOUT: Duration = Duration::from_secs(3);
/// What is read of a request that is answered here, so that its sender reads the answer.
const UNREAD_BYTES_MAX: usize = 16 << 10;
/// How long a client may take to ask.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections beyond the limits that are told so at a time; further ones are closed.
const REFUSALS_MAX: usize = 32;
/// Threads that look users up, which may take as long as the site's directory does.
const LOOKUPS_MAX: usize = 8;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Dials the server: the one of its addresses that answered last, then the others.
pub(crate) struct ServerDialler {
    servers: Vec<String>,
    last: AtomicUsize,
    tls: SharedTls,
    silent: SilentServer,
}

/// The address of the server that this machine's agent found silent last: who waits for an answer of it asks the next.
#[derive(Clone)]
pub(crate) struct SilentServer(Arc<watch::Sender<String>>);

impl SilentServer {
    pub fn new() -> SilentServer {
        SilentServer(Arc::new(watch::channel(String::new()).0))
    }

    pub fn tell(&self, address: &str) {
        self.0.send_replace(address.to_owned());
    }

    /// Returns when the server of this address is found silent.
    async fn found(&self, address: &str) {
        let mut told = self.0.subscribe();
        while told.changed().await.is_ok() {
            if *told.borrow_and_update() == address {
                return;
            }
        }
    }
}

/// The configuration of TLS with the agent's certificate, which is renewed.
#[derive(Clone)]
pub(crate) struct SharedTls(Arc<Mutex<Arc<ClientConfig>>>);

impl SharedTls {
    pub fn new(tls: Arc<ClientConfig>) -> SharedTls {
        SharedTls(Arc::new(Mutex::new(tls)))
    }

    pub fn set(&self, tls: Arc<ClientConfig>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tls;
    }

    fn get(&self) -> Arc<ClientConfig> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerDialler {
    pub fn new(servers: Vec<String>, tls: SharedTls, silent: SilentServer) -> ServerDialler {
        ServerDialler { servers, last: AtomicUsize::new(0), tls, silent }
    }

    /// Returns when the server of this address is found silent and there is another to ask: the answer of the only one is waited for.
    async fn found_silent(&self, address: &str) {
        if self.servers.len() == 1 {
            return std::future::pending().await;
        }
        self.silent.found(address).await;
    }

    /// A connection, and the address of the server that has answered.
    async fn dial(&self) -> Result<(TlsStream<TcpStream>, &str), AgentError> {
        let deadline = Instant::now() + DIAL_TIMEOUT;
        loop {
            let turn = self.last.load(Ordering::Relaxed);
            let address = &self.servers[turn % self.servers.len()];
            let is_alone = self.servers.len() == 1;
            let end = if is_alone { deadline } else { deadline.min(Instant::now() + NEXT_TIMEOUT) };
            let failed = match timeout_at(end, dial(address, self.tls.get())).await {
                Ok(Ok(stream)) => return Ok((stream, address)),
                Ok(Err(error)) => error,
                Err(_) => {
                    let source = io::ErrorKind::TimedOut.into();
                    AgentError::Unreachable { address: address.clone(), source }
                }
            };
            self.last.fetch_add(1, Ordering::Relaxed);
            if Instant::now() + DIAL_PAUSE > deadline {
                return Err(failed);
            }
            sleep(DIAL_PAUSE).await;
        }
    }
}

/// Starts to answer clients at `path`.
pub(crate) fn listen(
    path: &Path,
    dialler: ServerDialler,
    nodes: Vec<String>,
    in_pod: bool,
) -> Result<(), AgentError> {
    let failed = |e: io::Error| AgentError::file("listen at", path, e);
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let listener = std::os::unix::net::UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
    socket_folder::place(path).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUPS_MAX)
        .build()
        .map_err(failed)?;
    let refusals = Arc::new(Semaphore::new(REFUSALS_MAX));
    let relay = Arc::new(Relay { dialler, nodes, in_pod, users: Arc::default(), refusals });
    let serve = move || runtime.block_on(accept(listener, relay));
    std::thread::Builder::new().name("clients".into()).spawn(serve).map_err(failed)?;
    Ok(())
}

struct Relay {
    dialler: ServerDialler,
    nodes: Vec<String>,
    /// The users of the image are not those of the cluster: a user is called by the id.
    in_pod: bool,
    users: Arc<UserConnections>,
    refusals: Arc<Semaphore>,
}

async fn accept(listener: std::os::unix::net::UnixListener, relay: Arc<Relay>) {
    let listener = match UnixListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "clients on this node are not answered"),
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => take_in(stream, &relay),
            Err(error) => {
                tracing::warn!(%error, "a client could not be taken in");
                sleep(DIAL_PAUSE).await;
            }
        }
    }
}

/// Counts the connection before it has anything of its own; one too many is told so, or closed.
fn take_in(client: UnixStream, relay: &Arc<Relay>) {
    let Ok(peer) = client.peer_cred() else { return };
    // Root of a pod is its user: no other user's process is there.
    let (uid, gid) = (privilege::pod_user().unwrap_or_else(|| peer.uid()), peer.gid());
    if let Some(counted) = relay.users.take(uid) {
        let relay = relay.clone();
        tokio::spawn(async move {
            carry(client, &relay, uid, gid).await;
            drop(counted);
        });
    } else if let Ok(place) = relay.refusals.clone().try_acquire_owned() {
        tokio::spawn(async move {
            answer(client, "as many connections as may be are open on this node").await;
            drop(place);
        });
    }
}

/// Carries one client's connection to the server and back, until the server ends it.
async fn carry(client: UnixStream, relay: &Relay, uid: u32, gid: u32) {
    // Nothing is begun for a client that asks nothing.
    match timeout_at(Instant::now() + FIRST_BYTE_TIMEOUT, is_internode_ssh(&client)).await {
        Ok(Ok(true)) => return carry_ssh(client, relay).await,
        Ok(Ok(false)) => {}
        Ok(Err(_)) | Err(_) => return,
    }
    let named = if relay.in_pod { Ok(uid.to_string()) } else { name_of(uid).await };
    let user = match named {
        Ok(user) => user,
        Err(why) => return answer(client, &why).await,
    };
    let (server, address) = match relay.dialler.dial().await {
        Ok(answered) => answered,
        Err(error) => return answer(client, &error.to_string()).await,
    };
    let who = NodeClient { version: PROTOCOL, nodes: relay.nodes.clone(), uid, gid, user };
    match greeted(server, &ToServer::Client(who)).await {
        Some(server) => tokio::select! {
            () = copy_both(client, server) => {}
            () = relay.dialler.found_silent(address) => {}
        },
        None => answer(client, "the server closed the link").await,
    }
}

/// The user's name on this node, or why there is none.
async fn name_of(uid: u32) -> Result<String, String> {
    let named = tokio::task::spawn_blocking(move || User::from_uid(Uid::from_raw(uid)));
    match timeout_at(Instant::now() + LOOKUP_TIMEOUT, named).await {
        Ok(Ok(Ok(Some(user)))) => Ok(user.name),
        // Ids of containers, for one: their processes ask as their job's user.
        Ok(Ok(Ok(None))) => Err(format!("user {uid} has no account on this node")),
        _ => Err("the user database of this node does not answer".to_owned()),
    }
}

/// Waits for the first bytes, and says whether they are those of `in_job/ssh_relay.rs`; they are left where they are.
async fn is_internode_ssh(client: &UnixStream) -> io::Result<bool> {
    let mut first = [0; INTERNODE_PREFIX.len()];
    let peek = || {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(client.as_raw_fd(), &mut first, flags).map_err(io::Error::from)
    };
    let length = client.async_io(Interest::READABLE, peek).await?;
    Ok(first[..length] == *INTERNODE_PREFIX.as_bytes())
}

/// Carries an SSH connection to another node of the client's run.
async fn carry_ssh(mut client: UnixStream, relay: &Relay) {
    let until = Instant::now() + FIRST_BYTE_TIMEOUT;
    let Ok(Some(login)) = timeout_at(until, read_login(&mut client)).await else { return };
    let Ok((server, _)) = relay.dialler.dial().await else { return };
    let first = NodeSsh { version: PROTOCOL, nodes: relay.nodes.clone(), login };
    if let Some(server) = greeted(server, &ToServer::Ssh(first)).await {
        copy_both(client, server).await;
    }
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

/// The server's stream after its first message was sent.
async fn greeted(
    mut server: TlsStream<TcpStream>,
    message: &ToServer,
) -> Option<TlsStream<TcpStream>> {
    let mut first = Vec::new();
    frame::encode_message(CHANNEL_CONTROL, message, &mut first).ok()?;
    server.write_all(&first).await.ok()?;
    server.flush().await.ok()?;
    Some(server)
}

/// Copies both ways until the server ends the connection.
async fn copy_both(mut client: UnixStream, server: TlsStream<TcpStream>) {
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let (mut from_client, mut to_client) = client.split();
    let there = async {
        let _ = copy(&mut from_client, &mut to_server).await;
        let _ = to_server.shutdown().await;
        std::future::pending::<()>().await
    };
    let back = async {
        let _ = copy(&mut from_server, &mut to_client).await;
        let _ = to_client.shutdown().await;
    };
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

/// Answers a request that does not reach the server.
async fn answer(mut client: UnixStream, why: &str) {
    let mut request = vec![0; UNREAD_BYTES_MAX];
    let _ = timeout_at(Instant::now() + DIAL_PAUSE, client.read(&mut request)).await;
    let length = why.len() + 1;
    let head = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nconnection: close";
    let text = format!("{head}\r\ncontent-length: {length}\r\n\r\n{why}\n");
    let _ = client.write_all(text.as_bytes()).await;
    let _ = client.shutdown().await;
}

/// How many connections each user has. Root's are counted, and never refused.
#[derive(Default)]
struct UserConnections(Mutex<HashMap<u32, usize>>);

struct CountedConnection {
    users: Arc<UserConnections>,
    uid: u32,
}

impl UserConnections {
    fn take(self: &Arc<Self>, uid: u32) -> Option<CountedConnection> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = counts.values().sum();
        let own = counts.get(&uid).copied().unwrap_or_default();
        if uid != 0 && (own >= PER_USER_MAX || all >= CONNECTIONS_MAX) {
            return None;
        }
        counts.insert(uid, own + 1);
        Some(CountedConnection { users: self.clone(), uid })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut counts = self.users.0.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(&self.uid) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(counts.remove(&self.uid)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::connection::client_config;

    #[tokio::test]
    async fn who_waits_for_a_silent_server_is_told_and_nobody_else() {
        let silent = SilentServer::new();
        let (of_a, of_b) = (silent.found("a"), silent.found("b"));
        tokio::pin!(of_a, of_b);
        async fn is_told(found: impl Future) -> bool {
            timeout_at(Instant::now(), found).await.is_ok()
        }
        assert!(!is_told(of_a.as_mut()).await && !is_told(of_b.as_mut()).await);
        silent.tell("a");
        assert!(is_told(of_a).await);
        assert!(!is_told(of_b).await);
    }

    #[tokio::test]
    async fn answer_of_the_only_server_is_waited_for_while_it_is_silent() {
        let silent = SilentServer::new();
        let tls = SharedTls::new(client_config("", None).expect("a configuration"));
        let dialler = |servers: &[&str]| {
            let servers = servers.iter().map(|server| (*server).to_owned()).collect();
            ServerDialler::new(servers, tls.clone(), silent.clone())
        };
        let (only, several) = (dialler(&["a"]), dialler(&["a", "b"]));
        let (of_only, of_several) = (only.found_silent("a"), several.found_silent("a"));
        tokio::pin!(of_only, of_several);
        assert!(timeout_at(Instant::now(), of_only.as_mut()).await.is_err());
        assert!(timeout_at(Instant::now(), of_several.as_mut()).await.is_err());
        silent.tell("a");
        assert!(timeout_at(Instant::now(), of_only).await.is_err(), "there is nobody else to ask");
        assert!(timeout_at(Instant::now(), of_several).await.is_ok());
    }

    #[test]
    fn one_user_cannot_take_all_connections_and_root_always_gets_one() {
        let users = Arc::new(UserConnections::default());
        let mut held: Vec<_> = (0..PER_USER_MAX).map(|_| users.take(1000)).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(users.take(1000).is_none());
        held.pop();
        assert!(users.take(1000).is_some(), "an ended connection is another's");
        let others = (PER_USER_MAX..CONNECTIONS_MAX).map(|i| users.take(2000 + i as u32));
        let _others: Vec<_> = others.collect();
        held.push(users.take(1000));
        assert!(users.take(1_000_000).is_none());
        assert!(users.take(0).is_some());
        drop((held, _others));
        assert!(users.0.lock().unwrap().is_empty());
    }
}
