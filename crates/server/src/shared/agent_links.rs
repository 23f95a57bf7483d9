//! The links to the agents that are connected: how orders, policies and streams reach a node.

use crate::shared::agent_queries::AgentQueries;
use crate::shared::agent_streams::{Data, LinkSender, StreamReader, StreamTable, StreamWriter};
use crate::shared::link_shutdown::LinkShutdown;
use model::id::AttemptId;
use model::load::LiveUsage;
use model::time::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use wire::link::{NODES_PER_MESSAGE, NodePolicy, ServerAtPort, ToAgent};
use wire::order::SignedOrder;
use wire::stream::StreamKind;

/// How long agents are told that the server stops. An agent that does not answer in time is left.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// Every link that lives, by its number: its nodes, and what ends it.
type LiveLinks = HashMap<u64, (Vec<String>, Arc<Notify>)>;

/// Which build an agent is, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AgentBuild {
    pub program: Arc<str>,
    pub protocol: u32,
}

#[derive(Default)]
pub struct AgentLinks {
    /// Node to its link. A newer link of the same node takes over.
    links: Mutex<HashMap<String, Link>>,
    /// All open links, with those that a newer one took over from.
    live: Mutex<LiveLinks>,
    next_link: AtomicU64,
    pub streams: Arc<StreamTable>,
    pub usage: AgentQueries<LiveUsage>,
    pub servers: AgentQueries<ServerAtPort>,
}

/// One agent's connection. An agent that speaks for several nodes has one link for all of them.
#[derive(Clone)]
pub struct Link {
    pub number: u64,
    /// The fingerprint of the agent's certificate.
    pub fingerprint: Arc<str>,
    pub peer: LinkPeer,
    pub outbox: mpsc::Sender<ToAgent>,
    /// Bytes of streams, which wait for what is in the outbox.
    pub data: mpsc::Sender<Data>,
    /// Ends the connection.
    pub cut: Arc<Notify>,
    pub shutdown: Arc<LinkShutdown>,
}

/// The other end of a link.
#[derive(Debug, Clone)]
pub struct LinkPeer {
    /// The address that the connection comes from.
    pub address: IpAddr,
    /// The agent's program, as it says.
    pub build: AgentBuild,
    pub since: Timestamp,
    /// It takes texts that are not UTF-8.
    pub takes_bytes: bool,
    /// It shares the server's loopback addresses, and so do its jobs without a container.
    pub is_near: bool,
    /// It answers who listens at a port.
    pub finds_servers: bool,
}

impl AgentLinks {
    fn links(&self) -> MutexGuard<'_, HashMap<String, Link>> {
        self.links.lock().expect("no panic with the links held")
    }

    pub fn next_number(&self) -> u64 {
        self.next_link.fetch_add(1, Ordering::Relaxed)
    }

    fn live(&self) -> MutexGuard<'_, LiveLinks> {
        self.live.lock().expect("no panic with the live links held")
    }

    pub fn add(&self, nodes: &[String], link: &Link) {
        self.live().insert(link.number, (nodes.to_vec(), link.cut.clone()));
        self.links().extend(nodes.iter().map(|node| (node.clone(), link.clone())));
    }

    /// Removes a link that has ended. Returns those of its nodes that have no other link now. A link that it took over from and that
    /// lives is cut: of two hellos of an agent the older may have been read last, and without one more the node would stay lost.
    pub fn remove(&self, number: u64, nodes: &[String]) -> Vec<String> {
        self.streams.drop_link(number);
        self.live().remove(&number);
        let lost = self.remove_of_nodes(number, nodes);
        lost.iter().for_each(|node| self.cut(node));
        lost
    }

    fn remove_of_nodes(&self, number: u64, nodes: &[String]) -> Vec<String> {
        let mut links = self.links();
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

    /// Sends an order if the node's agent is connected; returns the number of the link that it went on.
    pub fn order(&self, node: &str, order: SignedOrder) -> Option<u64> {
        let link = self.links().get(node).cloned()?;
        if link.outbox.try_send(ToAgent::Order(order)).is_err() {
            tracing::error!("the agent of {node} does not take its orders; it is cut off");
            link.cut.notify_one();
            return None;
        }
        Some(link.number)
    }

    /// The link that the node has now.
    pub fn link(&self, node: &str) -> Option<Link> {
        self.links().get(node).cloned()
    }

    /// The other end of the node's link.
    pub fn peer(&self, node: &str) -> Option<LinkPeer> {
        self.links().get(node).map(|link| link.peer.clone())
    }

    /// The other end of the link that took the node over from the link of this number.
    pub fn successor(&self, node: &str, number: u64) -> Option<LinkPeer> {
        let links = self.links();
        links.get(node).filter(|link| link.number > number).map(|link| link.peer.clone())
    }

    /// The number of the link that the node has now.
    pub fn number_of(&self, node: &str) -> Option<u64> {
        self.links().get(node).map(|link| link.number)
    }

    /// How many of these nodes have a link.
    pub fn connected(&self, nodes: &[String]) -> usize {
        let links = self.links();
        nodes.iter().filter(|node| links.contains_key(*node)).count()
    }

    pub fn is_connected(&self, node: &str) -> bool {
        self.links().contains_key(node)
    }

    /// The nodes of each build of agents that is connected.
    pub fn builds(&self) -> BTreeMap<AgentBuild, Vec<String>> {
        let mut builds: BTreeMap<AgentBuild, Vec<String>> = BTreeMap::new();
        for (node, link) in &*self.links() {
            builds.entry(link.peer.build.clone()).or_default().push(node.clone());
        }
        builds.values_mut().for_each(|nodes| nodes.sort_unstable());
        builds
    }

    /// The fingerprint of the certificate with which the node is connected.
    pub fn peer_certificate(&self, node: &str) -> Option<Arc<str>> {
        self.links().get(node).map(|link| link.fingerprint.clone())
    }

    /// Ends every link that speaks for the node.
    pub fn cut(&self, node: &str) {
        let live = self.live();
        let of_node = live.values().filter(|(nodes, _)| nodes.iter().any(|of| of == node));
        of_node.for_each(|(_, cut)| cut.notify_one());
    }

    /// Ends every link: the agents say hello again, and are told anew what they should know.
    pub fn cut_all(&self) {
        self.live().values().for_each(|(_, cut)| cut.notify_one());
    }

    /// How many agents are connected, and how many messages wait to be sent to them.
    pub fn queued(&self) -> (u64, u64) {
        let links = self.links();
        let mut counted = HashSet::new();
        let agents = links.values().filter(|link| counted.insert(link.number));
        agents.fold((0, 0), |(agents, waiting), link| {
            let queued = link.outbox.max_capacity() - link.outbox.capacity();
            (agents + 1, waiting + queued as u64)
        })
    }

    /// Sends every agent the policies of its own nodes anew, after a change of configuration.
    pub fn send_policies(&self, policies: &BTreeMap<String, NodePolicy>) {
        type OfLink = (mpsc::Sender<ToAgent>, BTreeMap<String, NodePolicy>);
        let mut of_links: HashMap<u64, OfLink> = HashMap::new();
        for (node, link) in &*self.links() {
            let new = || (link.outbox.clone(), BTreeMap::new());
            let (_, own) = of_links.entry(link.number).or_insert_with(new);
            own.extend(policies.get(node).map(|policy| (node.clone(), policy.clone())));
        }
        for (outbox, mut own) in of_links.into_values() {
            while !own.is_empty() {
                let rest = match own.keys().nth(NODES_PER_MESSAGE).cloned() {
                    Some(next) => own.split_off(&next),
                    None => BTreeMap::new(),
                };
                let _ = outbox.try_send(ToAgent::Policies(std::mem::replace(&mut own, rest)));
            }
        }
    }

    /// Opens a stream to the attempt's part on a node; `None` if the node's agent is not connected, or has too many.
    /// The caller has checked by `authorise` that its client, `owner`, may have it.
    pub fn open_stream(
        &self,
        node: &str,
        attempt: AttemptId,
        kind: StreamKind,
        owner: u32,
    ) -> Option<(StreamReader, StreamWriter)> {
        let Link { number, outbox, data, .. } = self.links().get(node).cloned()?;
        let link = LinkSender { number, outbox, data };
        StreamTable::open(&self.streams, link, node, attempt, kind, owner)
    }

    /// Asks a node what an attempt's steps use; nothing if it does not answer in time.
    pub async fn usage(&self, node: &str, attempt: AttemptId) -> LiveUsage {
        let link = self.links().get(node).map(|link| (link.number, link.outbox.clone()));
        let Some((number, outbox)) = link else { return LiveUsage::default() };
        let question = |request| ToAgent::Measure { request, node: node.to_owned(), attempt };
        self.usage.ask(number, &outbox, question).await.unwrap_or_default()
    }

    /// Asks a node who listens at a port of an attempt's service; `None` if it does not answer in time, or is of an earlier release.
    pub async fn server_at_port(
        &self,
        node: &str,
        attempt: AttemptId,
        port: u16,
    ) -> Option<ServerAtPort> {
        let (number, outbox) = {
            let links = self.links();
            let link = links.get(node).filter(|link| link.peer.finds_servers)?;
            (link.number, link.outbox.clone())
        };
        let node = node.to_owned();
        let question = |request| ToAgent::FindServer { request, node, attempt, port };
        self.servers.ask(number, &outbox, question).await
    }

    /// Closes every link in due form, within a bound.
    pub async fn shut_down(&self) {
        let links: HashMap<u64, Arc<LinkShutdown>> =
            self.links().values().map(|link| (link.number, link.shutdown.clone())).collect();
        links.values().for_each(|shutdown| shutdown.request());
        let all = async {
            for shutdown in links.values() {
                shutdown.finished().await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::info!("not every agent could be told that the server stops");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::limits::CgroupPolicy;
    use model::site::Site;

    fn link(number: u64, fingerprint: &str) -> (Link, mpsc::Receiver<ToAgent>) {
        let ((outbox, inbox), (data, _)) = (mpsc::channel(4), mpsc::channel(1));
        let (cut, shutdown) = (Arc::new(Notify::new()), Arc::new(LinkShutdown::default()));
        let fingerprint = fingerprint.into();
        let peer = LinkPeer {
            address: [127, 0, 0, 1].into(),
            build: AgentBuild { program: "sluice".into(), protocol: 1 },
            since: Timestamp(0),
            takes_bytes: true,
            is_near: false,
            finds_servers: false,
        };
        (Link { number, fingerprint, peer, outbox, data, cut, shutdown }, inbox)
    }

    #[tokio::test]
    async fn every_link_of_a_node_is_cut_and_no_other() {
        let links = AgentLinks::default();
        let ((old, _old), (new, _new)) = (link(1, "old"), link(2, "new"));
        let (other, _other) = link(3, "other");
        links.add(&["a".into()], &old);
        links.add(&["a".into()], &new);
        links.add(&["b".into()], &other);
        assert_eq!(links.peer_certificate("a").as_deref(), Some("new"));
        links.cut("a");
        let is_cut = async |link: &Link| {
            tokio::time::timeout(Duration::ZERO, link.cut.notified()).await.is_ok()
        };
        assert!(is_cut(&old).await && is_cut(&new).await && !is_cut(&other).await);
    }

    #[tokio::test]
    async fn link_whose_hello_was_read_before_an_older_one_is_cut_when_that_has_ended() {
        let links = AgentLinks::default();
        let ((newer, _newer), (older, _older)) = (link(1, "newer"), link(2, "older"));
        let nodes = ["a".to_owned()];
        links.add(&nodes, &newer);
        links.add(&nodes, &older);
        let is_cut =
            async || tokio::time::timeout(Duration::ZERO, newer.cut.notified()).await.is_ok();
        assert!(!is_cut().await);
        assert_eq!(links.remove(older.number, &nodes), nodes);
        assert!(is_cut().await, "its agent has to say hello again");
        // What was taken over from and has ended before is no reason to cut anybody.
        links.add(&nodes, &newer);
        links.add(&nodes, &older);
        assert_eq!(links.remove(newer.number, &nodes), [""; 0]);
    }

    #[test]
    fn agent_is_told_the_policies_of_its_own_nodes() {
        let links = AgentLinks::default();
        let ((one, mut of_one), (two, mut of_two)) = (link(1, "1"), link(2, "2"));
        links.add(&["a".into(), "b".into()], &one);
        links.add(&["c".into()], &two);
        let names = ["a", "b", "c", "d"].map(String::from);
        let (limits, cgroup_plugin) = (CgroupPolicy::default(), "autodetect".to_owned());
        let policy = NodePolicy { limits, cgroup_plugin, cpus: 0, site: Site::default() };
        links.send_policies(&names.map(|name| (name, policy.clone())).into());
        let told = |inbox: &mut mpsc::Receiver<ToAgent>| match inbox.try_recv() {
            Ok(ToAgent::Policies(policies)) => policies.into_keys().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(told(&mut of_one), ["a", "b"]);
        assert_eq!(told(&mut of_two), ["c"]);
        assert!(of_one.try_recv().is_err(), "once");
    }
}
