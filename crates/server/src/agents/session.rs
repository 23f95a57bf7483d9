//! One agent's link, from its hello on: who it may speak for, what it is told, and what becomes of its nodes when it ends.

use crate::agents::alive::{self, encode_alive, next_alive, show_alive};
use crate::agents::dynamic_node;
use crate::agents::hardware;
use crate::agents::join;
use crate::agents::policies;
use crate::agents::receive::{LinkReceiver, REPORTS_MAX, acknowledge};
use crate::auth::principal::server_principal;
use crate::clock;
use crate::fleet::{found_machine, install};
use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
use crate::shared::agent_streams::{DATA_MAX, Data};
use crate::shared::link_shutdown::LinkShutdown;
use crate::shared::{FoundMachine, Shared};
use cluster::Command;
use cluster::command::FleetHostReport;
use model::bounds;
use model::hostlist;
use model::node::{NodeConfig, NodeFacts};
use model::printable::printable;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use wire::frame::{self, Decoder};
use wire::link::{self, Hello, NODES_PER_MESSAGE, NodeHello, RefusedNode, ToAgent, Welcome};

/// Messages under way to one agent; an agent that does not read is cut off beyond it.
const OUTBOX: usize = 16_384;

const BEAT_INTERVAL: Duration = Duration::from_secs(5);

/// Between two attempts to mark a node as lost.
const MARK_PAUSE: Duration = Duration::from_millis(200);

/// What a certificate may speak for.
struct Authorised {
    nodes: Vec<String>,
    /// The nodes of the hello that it may not speak for.
    refused: Vec<RefusedNode>,
}

/// Divides the nodes of a hello into those that this certificate may speak for and those that it may not. An error says why it may
/// speak for none.
fn authorised_nodes(
    shared: &Shared,
    hello: &Hello,
    fingerprint: &str,
) -> Result<Authorised, String> {
    if !wire::version::compatible(hello.version) {
        return Err(format!("protocol {} is not spoken here", hello.version));
    }
    let state = shared.read();
    let mut nodes = Vec::new();
    let mut refused = Vec::new();
    for name in hello.nodes.iter().map(|node| &node.name) {
        let mut why = if !state.has_machine(name) {
            format!("node {name} is not in the configuration")
        } else if !state.speaks_for(name, fingerprint) {
            format!(
                "this certificate does not speak for node {name}, which was removed or has joined again: `sluice token node {name}` makes a join file"
            )
        } else {
            nodes.push(name.clone());
            continue;
        };
        bounds::cut(&mut why, bounds::NODE_TEXT_BYTES);
        refused.push(RefusedNode { node: name.clone(), why });
    }
    let mut said = refused.iter().map(|one| one.why.as_str()).collect::<Vec<_>>().join("; ");
    bounds::cut(&mut said, bounds::NODE_TEXT_BYTES);
    if nodes.is_empty() {
        return Err(said);
    }
    if !said.is_empty() {
        shared.volatile.agent_warnings.warn_of_stranger(&format!("an agent's hello: {said}"));
    }
    refused.truncate(NODES_PER_MESSAGE);
    Ok(Authorised { nodes, refused })
}

/// Keeps what the agent found on its machine; needed before the policies are made.
fn note_devices(shared: &Shared, hello: &Hello) {
    let mut detected =
        shared.volatile.detected.write().expect("no panic while writing what was found");
    detected.extend(hello.nodes.iter().map(|node| (node.name.clone(), node.detected.gres.clone())));
    let mut machines = shared.volatile.machines.write().expect("no panic while writing machines");
    machines.extend(hello.nodes.iter().map(|node| {
        let (config, device_change) = (node.detected.clone(), node.device_change.clone());
        (node.name.clone(), FoundMachine { config, device_change })
    }));
}

/// The nodes of which the first message tells, and the others.
fn first_message(nodes: &[String]) -> (&[String], &[String]) {
    nodes.split_at(nodes.len().min(NODES_PER_MESSAGE))
}

fn welcome(shared: &Shared, authorised: &Authorised, fingerprint: &str) -> ToAgent {
    let Authorised { nodes, refused } = authorised;
    // Apart: who has the state and asks for it once more waits for a writer that waits for him.
    let term = shared.read().term;
    let policies = policies::of_nodes(shared, first_message(nodes).0);
    ToAgent::Welcome(Welcome {
        version: wire::version::PROTOCOL,
        term,
        now: clock::now(),
        heartbeat_interval_ms: BEAT_INTERVAL.as_millis() as u64,
        policies,
        alive_interval_ms: alive::interval(shared).map(|every| every.as_millis() as u64),
        renew: Some(join::renewal_time(shared, nodes, fingerprint)),
        refused: refused.clone(),
    })
}

/// The fleet's host that this node is, if the certificate is still its agent's.
fn host_id(shared: &Shared, node: &str, fingerprint: &str) -> Option<String> {
    let state = shared.read();
    let (_, _, host) = state.fleet_host(node)?;
    state.speaks_for(node, fingerprint).then(|| host.id.clone())
}

/// Tells the writer that the nodes are up, and the dispatcher what their spools hold.
async fn reconcile(shared: &Shared, hello: Hello, link: &Link) {
    let runs_jobs = |node: &NodeHello| shared.read().nodes.contains_key(&node.name);
    let mut greeted = Vec::new();
    for node in hello.nodes.into_iter().filter(runs_jobs) {
        let detected = node.detected;
        // The node of a fleet is as large as its machine.
        if let Some(id) = host_id(shared, &node.name, &link.fingerprint) {
            let own = std::slice::from_ref(&node.name);
            let before = policies::of_nodes(shared, own);
            let machine = Box::new(detected.clone());
            install::report(shared, &node.name, &id, FleetHostReport::Found(machine)).await;
            let after = policies::of_nodes(shared, own);
            if before != after {
                let _ = link.outbox.try_send(ToAgent::Policies(after));
            }
        }
        if let Some(said) = &node.dynamic {
            // The name is the one that its certificate speaks for, whatever else it says.
            let name = node.name.clone();
            let detected = NodeConfig { name, ..detected.clone() };
            dynamic_node::register(shared, said, &detected, link).await;
        }
        // Before the node is up: no job starts on a machine that lacks what its node is said to have.
        hardware::check(shared, std::slice::from_ref(&node.name)).await;
        let held: Vec<_> = node.attempts.iter().map(|h| (h.attempt, h.alive)).collect();
        let command = Command::NodeHello {
            node: node.name.clone(),
            // Readings of GPUs come with every heartbeat: they need not outlast a restart.
            facts: Box::new(NodeFacts { gpus: Vec::new(), ..node.facts.clone() }),
            held: held.clone(),
        };
        // All are put into the queue before the first is waited for: they go to disk together.
        let answer = shared.writer.enqueue(command, server_principal()).await;
        greeted.extend(answer.map(|answer| (node.name, node.facts, held, answer)));
    }
    let mut unenforced: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, node_facts, held, answer) in greeted {
        if !answer.await.is_ok_and(|answer| answer.is_ok()) {
            // It could not be kept. A node that is not marked as up would be out of service for as long as the link lives: the
            // agent has to say hello again.
            link.cut.notify_one();
            continue;
        }
        if let Some(gaps) = keep_facts(shared, &name, node_facts) {
            unenforced.entry(gaps).or_default().push(name.clone());
        }
        // The queue may be full while the dispatcher is busy: the runtime's thread must not wait for it.
        tokio::task::block_in_place(|| shared.dispatch.reconcile(name, link.number, held));
    }
    for (gaps, nodes) in unenforced {
        let line = format!(
            "jobs on {} are not limited in: {gaps} (`scontrol show node` says why)",
            hostlist::compress(&nodes)
        );
        shared.volatile.agent_warnings.warn(&nodes[0], &line);
    }
}

/// Keeps what a node said of its machine; what its jobs are not held to, unless this server was told so before.
fn keep_facts(shared: &Shared, node: &str, said: NodeFacts) -> Option<String> {
    let mut facts = shared.volatile.facts.write().expect("no panic while writing facts");
    let gaps = new_gaps(facts.get(node), &said);
    facts.insert(node.to_owned(), said);
    gaps
}

/// What a node cannot enforce, in one line; `None` if that is nothing, or no other than before.
fn new_gaps(before: Option<&NodeFacts>, now: &NodeFacts) -> Option<String> {
    let gaps = now.gaps();
    if gaps.is_empty() || before.is_some_and(|before| before.gaps() == gaps) {
        return None;
    }
    let mut line = gaps.into_iter().map(printable).collect::<Vec<_>>().join(", ");
    bounds::cut(&mut line, bounds::NODE_TEXT_BYTES);
    Some(line)
}

/// Whether an agent has the loopback addresses of a server with this network stack, by its word and by the address that it comes from:
/// what a tunnel brings from another machine comes from here too, and has another network stack.
fn is_near(own: Option<&str>, hello: &Hello, address: IpAddr) -> bool {
    address.to_canonical().is_loopback() && own.is_some() && hello.network_stack.as_deref() == own
}

/// The agent of a host that has just left its fleet, or of a machine that is being deleted, comes again before it ends: whoever reads
/// the log is warned of others alone.
fn log_refusal(shared: &Shared, hello: &Hello, fingerprint: &str, why: &str) {
    match left_origin(shared, hello, fingerprint) {
        Some((origin, true)) => {
            let node = &hello.nodes[0].name;
            tracing::info!("{origin}: {node} was deleted from it: its agent is let in no more");
        }
        Some((_, false)) => {}
        None => {
            let line = format!("an agent's hello is refused: {why}");
            shared.volatile.agent_warnings.warn_of_stranger(&line);
        }
    }
}

/// What this agent's node was deleted from, with whether that was not said yet. Such an agent has one node.
fn left_origin(shared: &Shared, hello: &Hello, fingerprint: &str) -> Option<(String, bool)> {
    let [node] = &hello.nodes[..] else { return None };
    shared.volatile.left_hosts.origin_of(&node.name, fingerprint, Instant::now())
}

pub(super) async fn serve(
    shared: &Arc<Shared>,
    mut stream: TlsStream<TcpStream>,
    decoder: Decoder,
    mut hello: Hello,
    (fingerprint, address): (&str, IpAddr),
) -> io::Result<()> {
    let authorised = match authorised_nodes(shared, &hello, fingerprint) {
        Ok(authorised) => authorised,
        Err(why) => {
            log_refusal(shared, &hello, fingerprint, &why);
            return send(&mut stream, &ToAgent::Refused { why }).await;
        }
    };
    // Each link is an event, a line of the log and an entry of the audit trail for each node.
    if !shared.volatile.link_rates.take(fingerprint, Instant::now()) {
        return Err(io::Error::other("it begins links too often"));
    }
    let own: HashSet<String> = authorised.nodes.iter().cloned().collect();
    hello.nodes.retain(|node| own.contains(&node.name));
    // The host of a fleet, or a dynamic node, is nobody's own machine: what it says of itself is held to what can be, before it is kept anywhere.
    for node in &mut hello.nodes {
        let state = shared.read();
        let is_dynamic = state.dynamic_nodes.contains_key(&node.name);
        if is_dynamic || state.fleet_host(&node.name).is_some() {
            node.detected = found_machine::within_bounds(&node.detected);
        }
    }
    // Where a machine of a cloud is, is known from its connection alone (`cloud_reg_addrs`).
    if let Ok(peer) = stream.get_ref().0.peer_addr() {
        let is_cloud = |node: &NodeHello| {
            shared.read().nodes.get(&node.name).is_some_and(|known| known.config.cloud)
        };
        for node in hello.nodes.iter_mut().filter(|node| is_cloud(node)) {
            node.facts.address = peer.ip().to_string();
        }
    }
    let number = shared.agents.next_number();
    note_devices(shared, &hello);
    send(&mut stream, &welcome(shared, &authorised, fingerprint)).await?;
    let nodes = authorised.nodes;
    for part in first_message(&nodes).1.chunks(NODES_PER_MESSAGE) {
        send(&mut stream, &ToAgent::Policies(policies::of_nodes(shared, part))).await?;
    }
    let (outbox, inbox) = mpsc::channel(OUTBOX);
    let (data, data_in) = mpsc::channel(DATA_MAX);
    let cut = Arc::new(Notify::new());
    let shutdown = Arc::new(LinkShutdown::default());
    let build = AgentBuild { program: version_of(&hello.program).into(), protocol: hello.version };
    let Hello { takes_bytes, finds_servers, .. } = hello;
    let is_near = is_near(shared.setup.network_stack.as_deref(), &hello, address);
    let since = clock::now();
    let peer = LinkPeer { address, build, since, takes_bytes, is_near, finds_servers };
    let link = Link {
        number,
        fingerprint: fingerprint.into(),
        peer,
        outbox: outbox.clone(),
        data,
        cut: cut.clone(),
        shutdown: shutdown.clone(),
    };
    shared.agents.add(&nodes, &link);
    // Who lost the right to speak for a node before the link was known was not cut off with the others.
    let now = authorised_nodes(shared, &hello, fingerprint);
    if !now.is_ok_and(|now| now.nodes == nodes) {
        shared.agents.remove(number, &nodes);
        return Err(io::Error::other("it speaks for its nodes no longer"));
    }
    let (reader, writer) = tokio::io::split(stream);
    let delivery =
        Delivery { shared: shared.clone(), inbox, data: data_in, shutdown: shutdown.clone() };
    // A task of its own: what waits for the state here does not keep the agent from hearing that this server lives.
    let (begin, begun) = oneshot::channel();
    let mut delivered = JoinSet::new();
    delivered.spawn(delivery.run(writer, begun));
    // Many agents that come at once to a new leader wait for its commits.
    reconcile(shared, hello, &link).await;
    // A delivery that has ended says so below.
    let _ = begin.send(());
    let (settled, settling) = mpsc::channel(REPORTS_MAX);
    let receiver = LinkReceiver { shared, nodes: &own, link: number, settled };
    let ended = tokio::select! {
        read = receiver.receive(reader, decoder) => read,
        written = delivered.join_next() => match written {
            Some(Ok(written)) => written,
            _ => Err(io::Error::other("nothing is sent to it any more")),
        },
        settled = acknowledge(shared, settling, &outbox) => settled,
        () = cut.notified() => Err(io::Error::other("it was cut off")),
    };
    // The connection is closed before its nodes are marked.
    delivered.shutdown().await;
    if shutdown.finish() {
        return ended;
    }
    mark_lost(shared, shared.agents.remove(number, &nodes)).await;
    ended
}

/// Marks nodes without a link as lost, and tries again until that is on disk: a node that is never marked would keep its jobs
/// for ever. One that has a link again needs no mark.
async fn mark_lost(shared: &Shared, nodes: Vec<String>) {
    let mut lost = nodes;
    while !lost.is_empty() {
        // All are put into the queue before the first is waited for: they go to disk together.
        let mut marked = Vec::new();
        for node in lost {
            let command = Command::NodeLost { node: node.clone() };
            let answer = shared.writer.enqueue(command, server_principal()).await;
            marked.extend(answer.map(|answer| (node, answer)));
        }
        lost = Vec::new();
        for (node, answer) in marked {
            let is_kept = answer.await.is_ok_and(|answer| answer.is_ok());
            if !is_kept && !shared.agents.is_connected(&node) {
                lost.push(node);
            }
        }
        if !lost.is_empty() {
            tokio::time::sleep(MARK_PAUSE).await;
        }
    }
}

/// What is sent to one agent.
struct Delivery {
    shared: Arc<Shared>,
    inbox: mpsc::Receiver<ToAgent>,
    data: mpsc::Receiver<Data>,
    shutdown: Arc<LinkShutdown>,
}

impl Delivery {
    /// Says no more than that the server is alive until it is to begin, and ends the connection when another server may lead.
    async fn run(
        mut self,
        mut writer: impl AsyncWriteExt + Unpin,
        begun: oneshot::Receiver<()>,
    ) -> io::Result<()> {
        let alive = alive::interval(&self.shared);
        let shared = self.shared.clone();
        let contact = &shared.volatile.servers.contact;
        let delivered = async {
            tokio::select! {
                biased;
                _ = begun => {}
                never = show_alive(&mut writer, alive) => match never {},
            }
            self.deliver(&mut writer, alive).await
        };
        tokio::select! {
            delivered = delivered => delivered,
            () = contact.doubted() => {
                // The agent reads it also where this side of the link waits for the state.
                let _ = writer.shutdown().await;
                Err(io::Error::other("another server may lead"))
            }
        }
    }

    async fn deliver(
        &mut self,
        writer: &mut (impl AsyncWriteExt + Unpin),
        alive: Option<Duration>,
    ) -> io::Result<()> {
        let Self { inbox, data, shutdown, .. } = self;
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            // Orders before bytes: a stream never holds them up by more than one chunk.
            tokio::select! {
                biased;
                message = inbox.recv() => match message {
                    Some(message) => encode(&message, &mut bytes),
                    None => return Ok(()),
                },
                Some((stream, chunk)) = data.recv() => encode_data(stream, &chunk, &mut bytes),
                () = shutdown.requested() => return shutdown.close(writer).await,
                () = next_alive(alive) => encode_alive(&mut bytes),
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
}

fn encode_data(stream: u32, chunk: &[u8], bytes: &mut Vec<u8>) {
    let payload = [&stream.to_le_bytes(), chunk].concat();
    if let Err(error) = frame::encode(link::CHANNEL_STREAM, &payload, bytes) {
        tracing::error!("a piece for an agent is not sent: {error}");
    }
}

/// A message beyond the bound is left out and logged; it must not end the link.
fn encode(message: &ToAgent, bytes: &mut Vec<u8>) {
    if let Err(error) = frame::encode_message(link::CHANNEL_CONTROL, message, bytes) {
        tracing::error!("a message for an agent is not sent: {error}");
    }
}

pub(super) async fn send(stream: &mut TlsStream<TcpStream>, message: &ToAgent) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode_message(link::CHANNEL_CONTROL, message, &mut bytes).map_err(io::Error::other)?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// An agent says `sluice 0.1.0`; only the version is shown.
fn version_of(program: &str) -> &str {
    program.trim_start_matches("sluice ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NODE, TestServer};
    use model::amount::Bytes;
    use model::node::SlotState;

    #[tokio::test]
    async fn node_without_a_link_is_marked_as_lost_also_where_the_first_commit_fails() {
        let server = TestServer::start().await;
        server.node_up().await;
        server.journal.fail_write_at(1);
        mark_lost(&server.shared, vec![NODE.into()]).await;
        assert_eq!(server.shared.read().nodes[NODE].slot, SlotState::Silent);
        assert_eq!(server.state_in_memory(), server.state_on_disk());
    }

    #[tokio::test]
    async fn agent_is_told_of_each_node_that_it_may_not_speak_for() {
        const FINGERPRINT: &str = "f1";
        let server = TestServer::start().await;
        server.shared.state.write().agents.insert(NODE.into(), FINGERPRINT.into());
        let both = hello(vec![node_hello("unknown"), node_hello(NODE)]);
        let both = authorised_nodes(&server.shared, &both, FINGERPRINT);
        let Ok(Authorised { nodes, refused }) = both else { panic!("one of them is its own") };
        assert_eq!(nodes, [NODE]);
        let [refused] = &refused[..] else { panic!("{refused:?}") };
        assert_eq!(refused.node, "unknown");
        assert_eq!(refused.why, "node unknown is not in the configuration");
        let none = authorised_nodes(&server.shared, &hello(vec![node_hello(NODE)]), "f2");
        assert!(none.is_err_and(|why| why.contains("does not speak for")));
    }

    #[tokio::test]
    async fn agent_of_a_host_that_left_its_fleet_is_no_stranger() {
        let server = TestServer::start().await;
        let shared = &server.shared;
        let left = |nodes: &[&str], fingerprint: &str| {
            let hello = hello(nodes.iter().map(|name| node_hello(name)).collect());
            assert!(authorised_nodes(shared, &hello, fingerprint).is_err());
            left_origin(shared, &hello, fingerprint)
        };
        assert_eq!(left(&["lab-0"], "f1"), None);
        shared.volatile.left_hosts.note("fleet lab", "lab-0", "f1", Instant::now());
        assert_eq!(left(&["lab-0", "unknown"], "f1"), None);
        assert_eq!(left(&["lab-0"], "f2"), None, "another machine's certificate");
        assert_eq!(left(&["lab-0"], "f1"), Some(("fleet lab".to_owned(), true)));
        assert_eq!(
            left(&["lab-0"], "f1"),
            Some(("fleet lab".to_owned(), false)),
            "it is said once"
        );
    }

    #[test]
    fn agent_is_near_that_comes_from_here_and_has_the_servers_network_stack() {
        let (here, mapped) = ("127.0.0.1", "::ffff:127.0.0.1");
        for (own, said, from, expected) in [
            (Some("a net:[1]"), Some("a net:[1]"), here, true),
            (Some("a net:[1]"), Some("a net:[1]"), mapped, true),
            (Some("a net:[1]"), Some("b net:[1]"), here, false),
            (Some("a net:[1]"), Some("a net:[2]"), here, false),
            (Some("a net:[1]"), Some("a net:[1]"), "10.0.0.7", false),
            (Some("a net:[1]"), None, here, false),
            (None, Some("a net:[1]"), here, false),
            (None, None, here, false),
        ] {
            let hello = Hello { network_stack: said.map(str::to_owned), ..hello(Vec::new()) };
            let from = from.parse().expect("an address");
            assert_eq!(is_near(own, &hello, from), expected, "{own:?} {said:?} {from}");
        }
    }

    #[test]
    fn what_a_node_cannot_enforce_is_said_when_it_is_news() {
        let lacking = |lines: &[&str]| NodeFacts {
            not_enforced: lines.iter().map(|line| (*line).to_owned()).collect(),
            ..NodeFacts::default()
        };
        let (able, unable) = (lacking(&[]), lacking(&["swap: no swap file", "memory: no group"]));
        assert_eq!(new_gaps(None, &able), None);
        assert_eq!(new_gaps(None, &unable).as_deref(), Some("memory, swap"));
        assert_eq!(new_gaps(Some(&able), &unable).as_deref(), Some("memory, swap"));
        let same = lacking(&["memory: another reason", "swap: no swap file"]);
        assert_eq!(new_gaps(Some(&unable), &same), None);
    }

    fn node_hello(name: &str) -> NodeHello {
        NodeHello {
            name: name.into(),
            facts: NodeFacts::default(),
            detected: NodeConfig::plain(name, 4, Bytes::from_gib(16)),
            attempts: Vec::new(),
            device_change: None,
            dynamic: None,
        }
    }

    fn hello(nodes: Vec<NodeHello>) -> Hello {
        Hello {
            version: wire::version::PROTOCOL,
            program: "sluice".into(),
            nodes,
            more: false,
            renewals: Vec::new(),
            takes_bytes: true,
            network_stack: None,
            finds_servers: false,
        }
    }

    #[tokio::test]
    async fn link_of_a_hello_that_could_not_be_kept_is_cut() {
        let server = TestServer::start().await;
        let (outbox, _orders) = mpsc::channel(8);
        let (data, _bytes) = mpsc::channel(1);
        let (cut, shutdown) = (Arc::new(Notify::new()), Arc::default());
        let build = AgentBuild { program: "sluice".into(), protocol: wire::version::PROTOCOL };
        let (address, since) = ([127, 0, 0, 1].into(), clock::now());
        let (takes_bytes, is_near, finds_servers) = (true, false, false);
        let peer = LinkPeer { address, build, since, takes_bytes, is_near, finds_servers };
        let fingerprint = "certificate".into();
        let link = Link { number: 1, fingerprint, peer, outbox, data, cut, shutdown };
        server.journal.fail_write_at(1);
        reconcile(&server.shared, hello(vec![node_hello(NODE)]), &link).await;
        let is_cut = tokio::select! {
            biased;
            () = link.cut.notified() => true,
            () = std::future::ready(()) => false,
        };
        assert!(is_cut, "the agent has to say hello again");
    }
}
