//! What a gateway and the server tell each other: the gateway how many requests it passes on, the server where to.

use model::id::AttemptId;
use model::publication::HttpsChoice;
use model::service::RateLimit;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The most services, and gateways, that are spoken of.
pub const SERVICES_MAX: usize = 10_000;
pub const GATEWAYS_MAX: usize = 64;

/// What a gateway did since its last report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayReport {
    /// Its name, by which it is listed.
    pub name: String,
    /// Where clients find it, for lists: `edge1.example`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The domain below which it has host names for services; empty for the server's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Where clients find its port for plain HTTP; empty where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plain_address: String,
    /// It has a certificate, by files or by ACME.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_tls: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<ServiceLoad>,
}

/// The requests of one service that went past the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceLoad {
    pub project: String,
    pub run: String,
    /// That came since the last report.
    pub requests: u64,
    /// That replicas have not answered yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outstanding: Vec<(AttemptId, u32)>,
}

/// All that a gateway needs to pass requests on while the server is away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayRoutes {
    /// The server knows which replicas are ready. One that has just started does not yet.
    pub is_settled: bool,
    /// The port of the server's own proxy; `None` where that is the clients' port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_port: Option<u16>,
    /// The domain below which services have host names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    pub services: Vec<ServiceRoute>,
    /// Services that the gateway does not publish, as `PROJECT/RUN`: said by a server that is not settled, which takes no other away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withdrawn: Vec<String>,
    /// Who may use services that are not for everybody.
    pub tokens: Vec<TokenRoute>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRoute {
    pub project: String,
    pub run: String,
    pub auth: bool,
    pub strip_prefix: bool,
    #[serde(default, skip_serializing_if = "HttpsChoice::is_usual")]
    pub https: HttpsChoice,
    /// A replica of it is ready, also one that a gateway cannot connect to. Earlier servers do not say so.
    #[serde(default = "is_ready")]
    pub is_ready: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimit>,
    /// Those that a gateway can connect to. Others are reached by the server.
    pub replicas: Vec<ReplicaRoute>,
}

fn is_ready() -> bool {
    true
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRoute {
    pub attempt: AttemptId,
    /// The address of its node.
    pub host: String,
    pub port: u16,
    /// The inodes of its server's sockets, where the address is one of loopback: the gateway looks itself whether one of them listens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<u64>,
    /// Whose they are. Earlier servers do not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

/// A token by its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRoute {
    pub hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    pub projects: Vec<String>,
}
