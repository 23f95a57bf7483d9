//! Agents' connections: they dial in over TLS, join once with a token, and then speak for their
//! nodes by certificate.

use crate::clock;
use crate::conversation::{Conversation, REPORTS_MAX, acknowledge};
use crate::devices;
use crate::doors::Room;
use crate::goodbye::Goodbye;
use crate::identity::{self, Identity};
use crate::shared::Shared;
use crate::stream::{DATA_MAX, Data, Stream};
use crate::token;
use cluster::{Command, Reply};
use model::limits::{CgroupPolicy, DeviceLine};
use model::usage::LiveStep;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use wire::frame::{self, Decoder};
use wire::link::{self, Hello, JoinAccepted, JoinRequest, NodePolicy, ToAgent, ToServer, Welcome};
use wire::order::SignedOrder;

/// Messages under way to one agent; an agent that does not read is cut off beyond it.
const OUTBOX: usize = 16_384;

/// A connection must say who it is within this time.
const GREETING_TIME: Duration = Duration::from_secs(10);

/// The first message of a stranger: a token and a certificate request.
const STRANGERS_BYTES_MAX: usize = 64 << 10;

const BEAT_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Agents {
    /// Node to its link. A newer link of the same node takes over.
    pub(crate) links: Mutex<HashMap<String, Link>>,
    next_link: AtomicU64,
    pub(crate) next_stream: AtomicU32,
    pub(crate) streams: Mutex<HashMap<u32, Stream>>,
    pub(crate) next_ask: AtomicU64,
    /// Questions that agents have not answered yet.
    pub(crate) asks: Mutex<HashMap<u64, oneshot::Sender<Vec<LiveStep>>>>,
}

#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) outbox: mpsc::Sender<ToAgent>,
    /// Bytes of streams, which wait for what is in the outbox.
    pub(crate) data: mpsc::Sender<Data>,
    /// Ends the connection.
    cut: Arc<Notify>,
    pub(crate) goodbye: Arc<Goodbye>,
}

impl Agents {
    /// Sends an order if the node's agent is there; says on which link it went.
    pub fn order(&self, node: &str, order: SignedOrder) -> Option<u64> {
        let link = self.links.lock().expect("no panic with the links held").get(node).cloned()?;
        if link.outbox.try_send(ToAgent::Order(order)).is_err() {
            tracing::error!("the agent of {node} does not take its orders; it is cut off");
            link.cut.notify_one();
            return None;
        }
        Some(link.number)
    }

    pub(crate) fn outbox_of(&self, node: &str) -> Option<mpsc::Sender<ToAgent>> {
        let links = self.links.lock().expect("no panic with the links held");
        links.get(node).map(|link| link.outbox.clone())
    }

    /// The number of the link that the node has now.
    pub fn link_of(&self, node: &str) -> Option<u64> {
        let links = self.links.lock().expect("no panic with the links held");
        links.get(node).map(|link| link.number)
    }

    /// How many agents are connected, and how much waits to be sent to them.
    pub fn queued(&self) -> (u64, u64) {
        let links = self.links.lock().expect("no panic with the links held");
        let mut counted = std::collections::HashSet::new();
        let agents = links.values().filter(|link| counted.insert(link.number));
        agents.fold((0, 0), |(agents, waiting), link| {
            let queued = link.outbox.max_capacity() - link.outbox.capacity();
            (agents + 1, waiting + queued as u64)
        })
    }

    pub fn is_connected(&self, node: &str) -> bool {
        self.links.lock().expect("no panic with the links held").contains_key(node)
    }

    /// Tells every agent the policies anew, after a change of configuration.
    pub fn tell_policies(&self, policies: &BTreeMap<String, NodePolicy>) {
        let links = self.links.lock().expect("no panic with the links held");
        let mut told = std::collections::HashSet::new();
        for link in links.values().filter(|l| told.insert(l.number)) {
            let _ = link.outbox.try_send(ToAgent::Policies(policies.clone()));
        }
    }

    fn drop_link(&self, number: u64, nodes: &[String]) -> Vec<String> {
        self.streams
            .lock()
            .expect("no panic with the streams held")
            .retain(|_, s| s.link != number);
        let mut links = self.links.lock().expect("no panic with the links held");
        let mut lost = Vec::new();
        for node in nodes {
            if links.get(node).is_some_and(|l| l.number == number) {
                links.remove(node);
                lost.push(node.clone());
            } else if !links.contains_key(node) {
                lost.push(node.clone());
            }
        }
        lost
    }
}

/// The agents' door.
pub async fn listen(shared: Arc<Shared>, listener: TcpListener, room: Arc<Room>) {
    let acceptor = TlsAcceptor::from(shared.identity.tls.clone());
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                room.rest(&error).await;
                continue;
            }
        };
        let Some(place) = room.enter() else { continue };
        let (shared, acceptor) = (shared.clone(), acceptor.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = connection(&shared, acceptor, socket).await {
                tracing::debug!("an agent's connection ended: {error}");
            }
        });
    }
}

async fn connection(
    shared: &Arc<Shared>,
    acceptor: TlsAcceptor,
    socket: TcpStream,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let late = || io::Error::new(io::ErrorKind::TimedOut, "it did not say who it is in time");
    let greeting = async {
        let mut stream = acceptor.accept(socket).await?;
        let mut decoder = Decoder::default();
        let first = next_message(&mut stream, &mut decoder).await?;
        Ok::<_, io::Error>((stream, decoder, first))
    };
    let greeted = tokio::time::timeout(GREETING_TIME, greeting).await.map_err(|_| late())??;
    let (mut stream, decoder, first) = greeted;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|c| c.first());
    let fingerprint = certificate.map(|c| identity::fingerprint(c));
    match (first, fingerprint) {
        (ToServer::Join(join), _) => {
            let answer = admit(shared, &join).await;
            send(&mut stream, &answer).await
        }
        (ToServer::Hello(hello), Some(fingerprint)) => {
            serve(shared, stream, decoder, hello, &fingerprint).await
        }
        _ => {
            let why = "say hello with a certificate, or join with a token".to_string();
            send(&mut stream, &ToAgent::Refused { why }).await
        }
    }
}

/// A token is good for one certificate.
async fn admit(shared: &Shared, join: &JoinRequest) -> ToAgent {
    let refused = |why: String| ToAgent::Refused { why };
    if !wire::version::compatible(join.version) {
        return refused(format!("protocol {} is not spoken here", join.version));
    }
    let (certificate, fingerprint) = match shared.identity.certify(&join.certificate_request) {
        Ok(signed) => signed,
        Err(error) => return refused(format!("the certificate request cannot be used: {error}")),
    };
    let command = Command::UseToken { hash: token::hash(&join.token), fingerprint };
    match shared.writer.run(command, crate::queue::server_principal()).await {
        Ok(Reply::TokenNodes(nodes)) => {
            tracing::info!("an agent joined for {}", nodes.join(","));
            let order_key = shared.identity.order_public_key();
            ToAgent::Joined(JoinAccepted { certificate, order_key, nodes })
        }
        Ok(_) => refused("the token was not taken".into()),
        Err(why) => {
            tracing::warn!("an agent was turned away: {why}");
            refused(why.to_string())
        }
    }
}

/// The nodes of a hello that this certificate may speak for; why not, if there is none.
fn rightful(shared: &Shared, hello: &Hello, fingerprint: &str) -> Result<Vec<String>, String> {
    if !wire::version::compatible(hello.version) {
        return Err(format!("protocol {} is not spoken here", hello.version));
    }
    let state = shared.read();
    let mut nodes = Vec::new();
    let mut refused = Vec::new();
    for node in &hello.nodes {
        if !state.nodes.contains_key(&node.name) {
            refused.push(format!("node {} is not in the configuration", node.name));
        } else if state.agents.get(&node.name).map(String::as_str) != Some(fingerprint) {
            refused.push(format!("this certificate does not speak for node {}", node.name));
        } else {
            nodes.push(node.name.clone());
        }
    }
    if nodes.is_empty() {
        return Err(refused.join("; "));
    }
    for why in refused {
        tracing::warn!("an agent's hello: {why}");
    }
    Ok(nodes)
}

/// What the configuration says of the enforcement on each node.
pub fn policies(shared: &Shared) -> BTreeMap<String, NodePolicy> {
    let state = shared.read();
    let config = &state.config;
    let of = |node: &cluster::Node| {
        let limits = CgroupPolicy {
            declared: node.config.declared,
            node_memory: node.config.memory,
            devices: DeviceLine::of_node(&devices::of_node(&shared.volatile, node)),
            ..config.limits.clone()
        };
        let cgroup_plugin = config.cgroup_plugin.clone();
        let (cpus, site) = (node.config.cpus, config.site.on(&node.config.name));
        NodePolicy { limits, cgroup_plugin, cpus, site }
    };
    state.nodes.iter().map(|(name, node)| (name.clone(), of(node))).collect()
}

async fn serve(
    shared: &Arc<Shared>,
    mut stream: TlsStream<TcpStream>,
    decoder: Decoder,
    hello: Hello,
    fingerprint: &str,
) -> io::Result<()> {
    let nodes = match rightful(shared, &hello, fingerprint) {
        Ok(nodes) => nodes,
        Err(why) => {
            tracing::warn!("an agent's hello is refused: {why}");
            return send(&mut stream, &ToAgent::Refused { why }).await;
        }
    };
    let number = shared.agents.next_link.fetch_add(1, Ordering::Relaxed);
    {
        let detected = &shared.volatile.detected;
        let mut detected = detected.write().expect("no panic while writing what was found");
        let known = hello.nodes.iter().filter(|node| nodes.contains(&node.name));
        detected.extend(known.map(|node| (node.name.clone(), node.detected.gres.clone())));
    }
    let mut policies = policies(shared);
    policies.retain(|name, _| nodes.contains(name));
    let term = shared.read().term;
    let welcome = Welcome {
        version: wire::version::PROTOCOL,
        term,
        now: clock::now(),
        heartbeat_interval_ms: BEAT_INTERVAL.as_millis() as u64,
        policies,
    };
    send(&mut stream, &ToAgent::Welcome(welcome)).await?;
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let (data, data_in) = mpsc::channel(DATA_MAX);
    let cut = Arc::new(Notify::new());
    let goodbye = Arc::new(Goodbye::default());
    let link =
        Link { number, outbox: outbox.clone(), data, cut: cut.clone(), goodbye: goodbye.clone() };
    {
        let mut links = shared.agents.links.lock().expect("no panic with the links held");
        links.extend(nodes.iter().map(|node| (node.clone(), link.clone())));
    }
    for node in hello.nodes.into_iter().filter(|n| nodes.contains(&n.name)) {
        let held: Vec<_> = node.attempts.iter().map(|h| (h.attempt, h.alive)).collect();
        let command = Command::NodeHello {
            node: node.name.clone(),
            facts: Box::new(node.facts.clone()),
            held: held.clone(),
        };
        if shared.writer.run(command, crate::queue::server_principal()).await.is_ok() {
            let mut facts = shared.volatile.facts.write().expect("no panic while writing facts");
            facts.insert(node.name.clone(), node.facts);
            drop(facts);
            shared.dispatch.reconcile(node.name, held);
        }
    }
    let (reader, writer) = tokio::io::split(stream);
    let (settled, settling) = mpsc::channel(REPORTS_MAX);
    let end = Conversation { shared, nodes: &nodes, link: number, settled };
    let ended = tokio::select! {
        read = end.receive(reader, decoder) => read,
        written = deliver(writer, inbox, data_in, &goodbye) => written,
        settled = acknowledge(shared, settling, &outbox) => settled,
        () = cut.notified() => Err(io::Error::other("it does not take its orders")),
    };
    if goodbye.is_answered() {
        return ended;
    }
    for node in shared.agents.drop_link(number, &nodes) {
        // Not to be lost: a node that nobody calls lost would keep its jobs for ever.
        let lost = Command::NodeLost { node };
        let _ = shared.writer.run(lost, crate::queue::server_principal()).await;
    }
    ended
}

async fn deliver(
    mut writer: impl AsyncWriteExt + Unpin,
    mut inbox: mpsc::Receiver<ToAgent>,
    mut data: mpsc::Receiver<Data>,
    goodbye: &Goodbye,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        // Orders before bytes: a stream never holds them up by more than one piece.
        tokio::select! {
            biased;
            message = inbox.recv() => match message {
                Some(message) => encode(&message, &mut bytes),
                None => return Ok(()),
            },
            Some((stream, piece)) = data.recv() => encode_data(stream, &piece, &mut bytes),
            () = goodbye.wanted() => return goodbye.say(writer).await,
        }
        while bytes.len() < 256 << 10
            && let Ok(more) = inbox.try_recv()
        {
            encode(&more, &mut bytes);
        }
        writer.write_all(&bytes).await?;
        writer.flush().await?;
    }
}

fn encode_data(stream: u32, piece: &[u8], bytes: &mut Vec<u8>) {
    let payload = [&stream.to_le_bytes(), piece].concat();
    if let Err(error) = frame::encode(link::CHANNEL_STREAM, &payload, bytes) {
        tracing::error!("a piece for an agent is not sent: {error}");
    }
}

/// A message beyond the bound is left out and said; it must not take the link with it.
fn encode(message: &ToAgent, bytes: &mut Vec<u8>) {
    if let Err(error) = frame::encode_message(link::CHANNEL_CONTROL, message, bytes) {
        tracing::error!("a message for an agent is not sent: {error}");
    }
}

async fn send(stream: &mut TlsStream<TcpStream>, message: &ToAgent) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode_message(link::CHANNEL_CONTROL, message, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

async fn next_message(
    stream: &mut TlsStream<TcpStream>,
    decoder: &mut Decoder,
) -> io::Result<ToServer> {
    let stranger = stream.get_ref().1.peer_certificates().is_none();
    let mut left = if stranger { STRANGERS_BYTES_MAX } else { usize::MAX };
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

/// A join file for these nodes; the token in it is good once.
pub fn join_file(
    identity: &Identity,
    servers: Vec<String>,
    token: String,
    nodes: Vec<String>,
) -> wire::link::JoinFile {
    wire::link::JoinFile {
        version: wire::version::PROTOCOL,
        servers,
        authority: identity.authority_pem().to_string(),
        token,
        nodes,
    }
}
