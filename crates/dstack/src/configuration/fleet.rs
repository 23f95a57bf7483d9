//! `type: fleet` as a type.

use super::policy::Profile;
use super::resources::Resources;
use super::value::Value;
use model::ip_network::IpNetwork;
use model::range::Range;

#[derive(Debug, Clone, PartialEq)]
pub struct Fleet {
    pub name: Option<String>,
    /// Whether its nodes are to lie close together.
    pub is_cluster: bool,
    pub blocks: Blocks,
    /// For machines of a cloud; `None` where the hosts are named.
    pub nodes: Option<Range<u32>>,
    /// How many machines of a cloud are made when it is applied.
    pub target: u32,
    /// What its machines must have; `None` for anything.
    pub resources: Option<Resources>,
    /// Which machines, and how long they may be idle.
    pub profile: Profile,
    pub hosts: Vec<SshHost>,
    /// The network by which the hosts reach each other: `10.0.0.0/24`.
    pub network: Option<IpNetwork>,
    /// The cloud's own name of capacity that is reserved for its machines.
    pub reservation: Option<String>,
    /// What each machine is tagged with at its cloud.
    pub tags: Vec<(String, String)>,
}

/// The blocks that a host is split into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocks {
    Count(u32),
    /// As many as its GPUs and CPUs allow.
    Auto,
}

/// A host of a fleet; what it does not say itself is what the whole fleet says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    pub hostname: String,
    pub port: Option<u16>,
    pub user: Option<String>,
    pub identity_file: Option<String>,
    /// The private key itself, where a client has sent it.
    pub private_key: Option<String>,
    pub internal_ip: Option<String>,
    pub blocks: Option<Blocks>,
    pub proxy_jump: Option<ProxyJump>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyJump {
    pub hostname: String,
    pub port: Option<u16>,
    pub user: String,
    pub identity_file: String,
    pub private_key: Option<String>,
}

impl Fleet {
    pub(super) fn of(value: &Value) -> Self {
        let ssh = value.get("ssh_config");
        let nodes = value.get("nodes");
        let target = nodes.get("target").as_count().or(nodes.get("min").as_count());
        Self {
            name: value.get("name").as_owned_text(),
            is_cluster: value.get("placement").as_text() == Some("cluster"),
            blocks: Blocks::of(value.get("blocks")).unwrap_or(Blocks::Count(1)),
            nodes: (!nodes.is_null()).then(|| Range {
                min: nodes.get("min").as_count().unwrap_or(0),
                max: nodes.get("max").as_count(),
            }),
            target: target.unwrap_or(0),
            resources: Some(value.get("resources")).filter(|of| !of.is_null()).map(Resources::of),
            profile: Profile::of(value),
            hosts: ssh.get("hosts").items().iter().map(|host| SshHost::of(host, ssh)).collect(),
            network: ssh.get("network").as_text().and_then(|text| text.parse().ok()),
            reservation: value.get("reservation").as_owned_text(),
            tags: tags(value.get("tags")),
        }
    }
}

fn tags(value: &Value) -> Vec<(String, String)> {
    let entries = value.entries().iter();
    entries
        .filter_map(|(key, value)| Some((key.clone().into_owned(), value.as_owned_text()?)))
        .collect()
}

impl Blocks {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Text(_) => Some(Self::Auto),
            number => number.as_count().map(Self::Count),
        }
    }
}

fn port(value: &Value) -> Option<u16> {
    value.as_integer().and_then(|port| u16::try_from(port).ok())
}

impl SshHost {
    fn of(host: &Value, fleet: &Value) -> Self {
        let said = |name: &str| match host.get(name) {
            Value::Null => fleet.get(name).clone(),
            own => own.clone(),
        };
        let hostname = host.as_text().or(host.get("hostname").as_text());
        Self {
            hostname: hostname.unwrap_or_default().to_owned(),
            port: port(&said("port")),
            user: said("user").as_owned_text(),
            identity_file: said("identity_file").as_owned_text(),
            private_key: said("ssh_key").get("private").as_owned_text(),
            internal_ip: host.get("internal_ip").as_owned_text(),
            blocks: Blocks::of(host.get("blocks")),
            proxy_jump: ProxyJump::of(&said("proxy_jump")),
        }
    }
}

impl ProxyJump {
    fn of(value: &Value) -> Option<Self> {
        Some(Self {
            hostname: value.get("hostname").as_owned_text()?,
            port: port(value.get("port")),
            user: value.get("user").as_owned_text()?,
            identity_file: value.get("identity_file").as_owned_text()?,
            private_key: value.get("ssh_key").get("private").as_owned_text(),
        })
    }
}
