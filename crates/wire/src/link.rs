//! The messages between agent and server, on channel 0 of the frames.

use crate::forward::OwnServer;
use crate::order::SignedOrder;
use crate::report::Report;
use crate::stream::StreamKind;
use model::dynamic_node::FutureMachine;
use model::gpu_series::GpuSeries;
use model::health::HealthSource;
use model::id::{AttemptId, StepId};
use model::limits::CgroupPolicy;
use model::load::LiveUsage;
use model::node::{NodeConfig, NodeFacts};
use model::site::Site;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The name in the server's certificate, whatever its address is: the authority vouches for it alone.
pub const SERVER_NAME: &str = "sluice-server";

/// Nodes of which one message tells at most, beside a list of names: a message of an agent with more nodes would go beyond
/// the bound of a frame.
pub const NODES_PER_MESSAGE: usize = 512;

/// JSON messages.
pub const CHANNEL_CONTROL: u8 = 0;
/// Stream bytes: the stream's number (4 bytes little-endian), then the data.
pub const CHANNEL_STREAM: u8 = 1;
/// Empty frames by which a server shows that it is alive ([`Welcome::alive_interval_ms`]). An agent that knows nothing of them passes
/// over frames of channels that it does not know.
pub const CHANNEL_ALIVE: u8 = 2;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    /// First contact of a new agent, over a connection without a client certificate.
    Join(JoinRequest),
    Hello(Hello),
    /// Asks for a new certificate in time; the connection proves the one before. Answered by `Renewed`, or not at all.
    Renew {
        /// PEM.
        certificate_request: String,
    },
    /// The only message of a connection that carries the HTTP of one client on a node: it follows at once.
    Client(NodeClient),
    /// The only message of a connection that carries the SSH of a client in a job: it follows at once. The client proves who
    /// it is by a key, so that the node vouches for nobody.
    Ssh(NodeSsh),
    /// The only message of a connection by which a standby passes the HTTP of one client on to the leader: it follows at once.
    Passed(PassedClient),
    Report(Report),
    /// Sent at the interval of the welcome, with each node's load and memory.
    #[serde(rename = "beat")]
    Heartbeat {
        nodes: Vec<(String, NodeFacts)>,
    },
    /// What one source found of a node's health; no failure: the node is well. It is found anew at the next check, so that
    /// none is kept for another connection.
    Health {
        node: String,
        source: HealthSource,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    /// What the exporter of these nodes' machine said last; sent only where the site has one. It comes anew after seconds.
    GpuSeries {
        nodes: Vec<String>,
        series: GpuSeries,
    },
    /// A step's order is with its supervisor: it need not be sent again.
    #[serde(rename = "step_taken")]
    StepAccepted {
        node: String,
        attempt: AttemptId,
        step: StepId,
    },
    /// An order was not taken.
    OrderRefused {
        serial: u64,
        attempt: AttemptId,
        node: String,
        order: RefusedOrder,
        why: String,
        /// As in a report of a launch that failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unfit: Option<String>,
    },
    StreamEnd {
        stream: u32,
        error: Option<String>,
    },
    Credit {
        stream: u32,
        bytes: u32,
    },
    /// The answer to `Measure`; nothing of an attempt that does not run here.
    Measured {
        #[serde(rename = "ask")]
        request: u64,
        #[serde(flatten)]
        used: LiveUsage,
    },
    /// The answer to `FindServer`.
    ServerFound {
        #[serde(rename = "ask")]
        request: u64,
        #[serde(flatten)]
        found: ServerAtPort,
    },
}

/// Who listens at a port of a node's `localhost`, as the node's kernel says. It is the word of the agent: nothing that runs as the job's
/// user had a part in it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAtPort {
    /// The job's user listens there, and no other user does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub listens: bool,
    /// The server that a process of the attempt's group has there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<OwnServer>,
}

/// Which order an agent did not take, as far as it matters to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedOrder {
    /// Nothing was started, and nothing will be.
    Launch,
    /// It was started here once, and what became of it is not known here any more.
    LaunchedBefore,
    /// It was about an attempt of which nothing is here.
    UnknownAttempt,
    Other,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    Joined(JoinAccepted),
    /// The certificate that was asked for, PEM, and its end.
    Renewed {
        certificate: String,
        expires: Timestamp,
        /// The server's word that it takes the place of the one before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        proof: Option<SignedRenewal>,
    },
    Refused {
        why: String,
    },
    Welcome(Welcome),
    Order(SignedOrder),
    /// The report is on the server's disk.
    Ack {
        serial: u64,
    },
    /// A stream begins; its bytes are of this attempt.
    Open {
        stream: u32,
        node: String,
        attempt: AttemptId,
        kind: StreamKind,
    },
    /// The client is gone. A stream whose link breaks ends without this, and may be taken up again.
    StreamEnd {
        stream: u32,
        error: Option<String>,
    },
    Credit {
        stream: u32,
        bytes: u32,
    },
    /// Asks what the steps of this attempt use now.
    Measure {
        #[serde(rename = "ask")]
        request: u64,
        node: String,
        attempt: AttemptId,
    },
    /// Asks who listens at a port of the node that this attempt's service has. Sent to agents whose hello says that they answer it.
    FindServer {
        #[serde(rename = "ask")]
        request: u64,
        node: String,
        attempt: AttemptId,
        port: u16,
    },
    /// The configuration changed: the policies anew.
    Policies(BTreeMap<String, NodePolicy>),
}

/// A client on a node, as the kernel there says: whom the node vouches for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeClient {
    pub version: u32,
    /// The nodes of the agent that the client asked.
    pub nodes: Vec<String>,
    pub uid: u32,
    pub gid: u32,
    /// The user's name there.
    pub user: String,
}

/// An SSH client in a job on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSsh {
    pub version: u32,
    /// The nodes of the agent that the client asked.
    pub nodes: Vec<String>,
    /// Which job and node it wants to get to.
    pub login: String,
}

/// A client of a standby, and the standby's proof that it is a server of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedClient {
    pub version: u32,
    pub from: PassedFrom,
    /// Ed25519, base64, by the key of orders over [`PassedFrom::signed_text`]: good on this connection alone.
    pub signature: String,
}

/// How the client came to the standby.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedFrom {
    /// By its socket: the kernel there says who it is.
    Socket { uid: u32, gid: u32, user: String },
    /// By its port: a token in the request says who it is.
    Port { address: std::net::IpAddr },
}

/// Stands before what a standby signs: the signature of an order is none of a passed client.
const PASSED_CONTEXT: &str = "sluice client of a standby\n";

/// The label of what both ends of the connection derive from its secrets, and its length.
pub const PASSED_EXPORT_LABEL: &[u8] = b"EXPORTER-sluice-standby";
pub const PASSED_EXPORT_BYTES: usize = 32;

impl PassedFrom {
    /// What is signed: the client, and what the connection's two ends alone know.
    pub fn signed_text(&self, of_connection: &[u8]) -> Vec<u8> {
        let from = serde_json::to_vec(self).unwrap_or_default();
        [PASSED_CONTEXT.as_bytes(), of_connection, &from].concat()
    }
}

/// A join token and a certificate request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinRequest {
    pub version: u32,
    pub token: String,
    /// PEM.
    pub certificate_request: String,
    /// Which node it is, where the token is for several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// It may be a node that no configuration file names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
    /// It wants to be one of the nodes with `State=FUTURE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub future: Option<Box<FutureMachine>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinAccepted {
    /// PEM, for this agent's key.
    pub certificate: String,
    /// Ed25519 public key, base64: orders are taken only if signed by it.
    pub order_key: String,
    pub nodes: Vec<String>,
    /// When the certificate ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    pub program: String,
    pub nodes: Vec<NodeHello>,
    /// Another hello with further nodes of the same agent follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// The renewals that led to the agent's certificate, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renewals: Vec<SignedRenewal>,
    /// The agent takes scripts that are not UTF-8 ([`crate::byte_text`]), and arguments, variables and file names (`model::os_text`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_bytes: bool,
    /// The agent's network stack (`agent::network_stack`), which its jobs without a container share: the server connects itself to
    /// services in its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_stack: Option<String>,
    /// The agent answers who listens at a port of one of its jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finds_servers: bool,
}

/// The most renewals that an agent keeps, and that a server looks at.
pub const RENEWALS_MAX: usize = 8;

/// Stands before a renewal in what is signed: the signature of an order is none of a renewal.
pub const RENEWAL_CONTEXT: &str = "sluice renewal of a certificate\n";

/// The server's word that one certificate took the place of another. A server that was restored from a backup knows the former one,
/// which may have ended since; by these words it knows whose the newer one is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedRenewal {
    /// A [`Renewal`] as JSON.
    pub body: String,
    /// Ed25519, base64, by the key of orders.
    pub signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// The fingerprint of the certificate that was replaced.
    pub former: String,
    /// That of the one in its place.
    pub renewed: String,
    pub expires: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeHello {
    pub name: String,
    pub facts: NodeFacts,
    /// What the machine has, as detected.
    pub detected: NodeConfig,
    /// Attempts in the spool.
    pub attempts: Vec<SpooledAttempt>,
    /// What of its devices has changed under running jobs, until those have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_change: Option<String>,
    /// What a dynamic node is to be; `gpus_detected`: its devices are those that were detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic: Option<Box<NodeConfig>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SpooledAttempt {
    pub attempt: AttemptId,
    /// Something of it still runs here.
    pub alive: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u32,
    pub term: u64,
    pub now: Timestamp,
    #[serde(rename = "beat_interval_ms")]
    pub heartbeat_interval_ms: u64,
    /// Of the first [`NODES_PER_MESSAGE`] nodes; the others' follow as [`ToAgent::Policies`].
    pub policies: BTreeMap<String, NodePolicy>,
    /// The server says something at least so often, if only that it is alive. One server alone need not: there is no other to go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alive_interval_ms: Option<u64>,
    /// When the agent is to ask for a new certificate; a server that renews none says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew: Option<Timestamp>,
    /// The nodes of the hello that the server does not take from this agent; the first [`NODES_PER_MESSAGE`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedNode>,
}

/// A node that the server does not take from an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedNode {
    pub node: String,
    /// With the node's name, and what to do.
    pub why: String,
}

/// What the configuration says of a node's enforcement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodePolicy {
    pub limits: CgroupPolicy,
    pub cgroup_plugin: String,
    /// How many CPUs the configuration gives the node; 0: as many as its machine has.
    #[serde(default)]
    pub cpus: u32,
    #[serde(default)]
    pub site: Site,
}

/// The join file: what `sluice token node NAME` prints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinFile {
    pub version: u32,
    /// `host:port` addresses of the agents' port.
    pub servers: Vec<String>,
    /// The authority that signed the server's certificate, PEM: nothing else is trusted.
    pub authority: String,
    pub token: String,
    /// The nodes that it is for; empty where it is for a pattern.
    pub nodes: Vec<String>,
    /// The names of the nodes that may join with it, as a host list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The cluster's name, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}
