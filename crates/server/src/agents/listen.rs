//! The agents' port: agents dial in over TLS, join once with a token, and then speak for their nodes by certificate. What begins with
//! a hello is served by `session`; clients of nodes by the services that are given.

use crate::agents::client_stream::ClientStream;
use crate::agents::join::{self, admit};
use crate::agents::message_bounds;
use crate::agents::session::{self, send};
use crate::auth::identity;
use crate::connection_limits::ConnectionSlots;
use crate::shared::Shared;
use model::bounds;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::frame::{self, Decoder};
use wire::link::{
    Hello, NODES_PER_MESSAGE, NodeClient, NodeHello, PASSED_EXPORT_BYTES, PASSED_EXPORT_LABEL,
    PassedClient, PassedFrom, ToAgent, ToServer,
};

/// A connection must send its first message within this time.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// The first message of a peer without a certificate: a token and a certificate request.
const JOIN_BYTES_MAX: usize = 64 << 10;

/// A connection that is silent for so long is asked whether it is still there, so often, so many times.
const KEEPALIVE_IDLE_S: u32 = 60;
const KEEPALIVE_INTERVAL_S: u32 = 10;
const KEEPALIVE_PROBES: u32 = 3;

/// A connection whose peer has acknowledged nothing of what was sent for so long is broken.
const UNACKNOWLEDGED_MS: u32 = 20_000;

/// Serves the HTTP of a client on a node, as its agent with this certificate says who it is.
pub type ServeClient = dyn Fn(ClientStream, NodeClient, String) -> BoxFuture + Send + Sync;
/// Serves the SSH of a client in a job.
pub type ServeSsh = dyn Fn(ClientStream, NodeSshClient) -> BoxFuture + Send + Sync;
type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

type TlsLink = TlsStream<TcpStream>;

/// An SSH client in a job on a node.
pub struct NodeSshClient {
    /// Which job and node it wants to get to.
    pub login: String,
    /// The fingerprint of the certificate of the agent that carries the connection.
    pub fingerprint: String,
    /// Its socket, to end the connection by.
    pub socket: OwnedFd,
}

/// Serves the HTTP of a client that a standby passes on.
pub type ServePassed = dyn Fn(ClientStream, PassedFrom) -> BoxFuture + Send + Sync;

/// What is served to clients on nodes and of standbys, whose connections come in by the agents' port.
pub struct NodeServices {
    pub http: Box<ServeClient>,
    pub ssh: Box<ServeSsh>,
    pub passed: Box<ServePassed>,
}

/// Takes agents' connections in until the server stops.
pub async fn listen(
    shared: Arc<Shared>,
    listener: TcpListener,
    slots: Arc<ConnectionSlots>,
    services: Arc<NodeServices>,
) {
    let acceptor = TlsAcceptor::from(shared.identity.tls.clone());
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                slots.pause_after(&error).await;
                continue;
            }
        };
        // Another server may lead: who calls tries that one.
        if shared.volatile.servers.contact.is_in_doubt() {
            continue;
        }
        let Some(slot) = slots.take() else { continue };
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        let services = services.clone();
        tokio::spawn(async move {
            let _slot = slot;
            if let Err(error) = connection(&shared, acceptor, socket, peer.ip(), &services).await {
                tracing::debug!("an agent's connection ended: {error}");
            }
        });
    }
}

async fn connection(
    shared: &Arc<Shared>,
    acceptor: TlsAcceptor,
    socket: TcpStream,
    peer: IpAddr,
    services: &NodeServices,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    // A machine that vanished does not keep the slots of its clients.
    setsockopt(&socket, sockopt::KeepAlive, &true)?;
    setsockopt(&socket, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(&socket, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(&socket, sockopt::TcpKeepCount, &KEEPALIVE_PROBES)?;
    // Nor does a network that swallows long packets (MTU) hold orders back for ever, while short heartbeats still come.
    setsockopt(&socket, sockopt::TcpUserTimeout, &UNACKNOWLEDGED_MS)?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not say who it is in time");
    let greeting = async {
        let mut stream = acceptor.accept(socket).await?;
        let mut decoder = Decoder::default();
        let mut first = next_message(&mut stream, &mut decoder).await?;
        cut_greeting(shared, &mut first);
        if let ToServer::Hello(hello) = &mut first {
            if let Some(fingerprint) = fingerprint_of(&stream) {
                join::take_renewals(shared, hello, &fingerprint).await;
            }
            read_further_nodes(shared, &mut stream, &mut decoder, hello).await?;
        }
        Ok::<_, io::Error>((stream, decoder, first))
    };
    let greeted = tokio::time::timeout(HELLO_TIMEOUT, greeting).await.map_err(|_| late())??;
    let (mut stream, decoder, first) = greeted;
    let fingerprint = fingerprint_of(&stream);
    match (first, fingerprint) {
        (ToServer::Join(join), _) => {
            let answer = admit(shared, &join).await;
            send(&mut stream, &answer).await
        }
        (ToServer::Hello(hello), Some(fingerprint)) => {
            session::serve(shared, stream, decoder, hello, (&fingerprint, peer)).await
        }
        (ToServer::Client(mut client), Some(fingerprint)) => {
            let_pause(&stream)?;
            keep_own(shared, &mut client.nodes, &fingerprint);
            if wire::version::compatible(client.version) && !client.nodes.is_empty() {
                // It has a slot of its own there, and leaves that of an agent once it is let in.
                let stream = ClientStream::new(shared, stream, decoder.into_rest());
                (services.http)(stream, client, fingerprint).await;
            }
            Ok(())
        }
        (ToServer::Ssh(mut client), Some(fingerprint)) => {
            let_pause(&stream)?;
            keep_own(shared, &mut client.nodes, &fingerprint);
            if wire::version::compatible(client.version) && !client.nodes.is_empty() {
                let socket = stream.get_ref().0.as_fd().try_clone_to_owned()?;
                let client = NodeSshClient { login: client.login, fingerprint, socket };
                let stream = ClientStream::new(shared, stream, decoder.into_rest());
                (services.ssh)(stream, client).await;
            }
            Ok(())
        }
        (ToServer::Passed(client), _) if is_from_server(shared, &stream, &client) => {
            let_pause(&stream)?;
            // It has a slot of its own there, as a client of this server has.
            let stream = ClientStream::new(shared, stream, decoder.into_rest());
            (services.passed)(stream, client.from).await;
            Ok(())
        }
        _ => {
            let why = "say hello with a certificate, or join with a token".to_string();
            send(&mut stream, &ToAgent::Refused { why }).await
        }
    }
}

/// Whether the other end has the cluster's key of orders, and has signed on this connection.
fn is_from_server(shared: &Shared, stream: &TlsLink, client: &PassedClient) -> bool {
    let session = stream.get_ref().1;
    let of_connection =
        session.export_keying_material([0_u8; PASSED_EXPORT_BYTES], PASSED_EXPORT_LABEL, None);
    wire::version::compatible(client.version)
        && of_connection.is_ok_and(|bytes| {
            shared.identity.is_signed(&client.from.signed_text(&bytes), &client.signature)
        })
}

/// The fingerprint of the certificate that the other end has proven; `None` for one that joins.
fn fingerprint_of(stream: &TlsLink) -> Option<String> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    Some(identity::fingerprint(certificate))
}

/// A client may stop reading for as long as its stream permits (`logs -f | less`), which an agent may not: what it does not take is
/// no sign of a broken connection. Whether its machine is there is found out by the keepalive.
fn let_pause(stream: &TlsLink) -> io::Result<()> {
    setsockopt(stream.get_ref().0, sockopt::TcpUserTimeout, &0)?;
    Ok(())
}

/// Holds what an agent says before it is known to its bounds.
fn cut_greeting(shared: &Shared, message: &mut ToServer) {
    if let Some(line) = message_bounds::cut_to_bounds("an agent that connects", message) {
        shared.volatile.agent_warnings.warn_of_stranger(&line);
    }
}

/// Attempts that all parts of a hello may name together.
const HELLO_ATTEMPTS_MAX: usize = 4 * bounds::LIST_ITEMS.most;

/// Reads the rest of a hello that comes in parts, of an agent whose certificate speaks for a node of each.
async fn read_further_nodes(
    shared: &Shared,
    stream: &mut TlsLink,
    decoder: &mut Decoder,
    hello: &mut Hello,
) -> io::Result<()> {
    let mut names: HashSet<String> = HashSet::new();
    if !hello.nodes.iter().all(|node| names.insert(node.name.clone())) {
        return Err(io::Error::other("its hello names a node twice"));
    }
    if !hello.more {
        return Ok(());
    }
    let fingerprint = fingerprint_of(stream);
    let speaks = |nodes: &[NodeHello]| {
        let state = shared.read();
        let of =
            |fingerprint: &String| nodes.iter().any(|n| state.speaks_for(&n.name, fingerprint));
        fingerprint.as_ref().is_some_and(of)
    };
    let mut attempts: usize = hello.nodes.iter().map(|node| node.attempts.len()).sum();
    while hello.more {
        if !speaks(&hello.nodes[hello.nodes.len().saturating_sub(NODES_PER_MESSAGE)..]) {
            return Err(io::Error::other("a stranger says too much"));
        }
        let mut next = next_message(stream, decoder).await?;
        cut_greeting(shared, &mut next);
        let ToServer::Hello(part) = next else {
            return Err(io::Error::other("its hello is not whole"));
        };
        if part.nodes.is_empty() || hello.nodes.len() + part.nodes.len() > bounds::LIST_ITEMS.most {
            return Err(io::Error::other("its hello has too many nodes, or a part without any"));
        }
        attempts += part.nodes.iter().map(|node| node.attempts.len()).sum::<usize>();
        if attempts > HELLO_ATTEMPTS_MAX {
            return Err(io::Error::other("its hello has too many attempts"));
        }
        if !part.nodes.iter().all(|node| names.insert(node.name.clone())) {
            return Err(io::Error::other("its hello names a node twice"));
        }
        hello.nodes.extend(part.nodes);
        hello.more = part.more;
    }
    Ok(())
}

/// Keeps the nodes that this certificate speaks for.
fn keep_own(shared: &Shared, nodes: &mut Vec<String>, fingerprint: &str) {
    nodes.sort();
    nodes.dedup();
    let state = shared.read();
    nodes.retain(|node| state.speaks_for(node, fingerprint));
}

async fn next_message(
    stream: &mut TlsStream<TcpStream>,
    decoder: &mut Decoder,
) -> io::Result<ToServer> {
    let unknown_peer = stream.get_ref().1.peer_certificates().is_none();
    let mut left = if unknown_peer { JOIN_BYTES_MAX } else { usize::MAX };
    let mut buffer = vec![0; 16 << 10];
    loop {
        if let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
            return frame::decode_message(&frame.payload).map_err(io::Error::other);
        }
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n if n > left => return Err(io::Error::other("a stranger says too much")),
            n => {
                left -= n;
                decoder.push(&buffer[..n]);
            }
        }
    }
}
