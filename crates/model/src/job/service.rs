//! Services: runs whose replicas answer HTTP requests. What the server must know of one to pass requests on to its replicas.

use super::publication::{GatewayChoice, HttpsChoice};
use super::replica_group::{GroupRole, ReplicaGroup};
use serde::{Deserialize, Serialize};

/// The most replicas of one service.
pub const REPLICAS_MAX: u32 = 1000;
/// Probes of one service, headers of one probe, and bytes of a text of one.
pub const PROBES_MAX: usize = 8;
pub const PROBE_HEADERS_MAX: usize = 16;
pub const PROBE_TEXT_BYTES_MAX: usize = 2048;
/// Rate limits of one service, and bytes of the prefix of one.
pub const RATE_LIMITS_MAX: usize = 16;
const RATE_PREFIX_BYTES_MAX: usize = 4094;
/// Bytes of the name of a header.
const HEADER_NAME_BYTES_MAX: usize = 256;
/// Bytes of each text of a model.
const MODEL_TEXT_BYTES_MAX: usize = 256;
/// The longest timeout and the longest interval of a probe.
const PROBE_SECONDS_MAX: u32 = 3600;

/// A service as it was submitted. Each replica is a job; several are the tasks of one array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// The port that each replica listens at, on the loopback address of its own network.
    pub port: u16,
    /// The most, where they are scaled.
    pub replicas: u32,
    /// The number of replicas follows the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<Scaling>,
    /// Requests need a token of a member of the project.
    #[serde(default = "yes")]
    pub auth: bool,
    /// Replicas see the path that follows the service's own address, and else the whole path.
    #[serde(default = "yes")]
    pub strip_prefix: bool,
    #[serde(default, skip_serializing_if = "GatewayChoice::is_usual")]
    pub gateway: GatewayChoice,
    #[serde(default, skip_serializing_if = "HttpsChoice::is_usual")]
    pub https: HttpsChoice,
    /// A replica gets requests once all of these have succeeded, and as long as they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<Probe>,
    /// Its replicas speak OpenAI's API for this model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ServedModel>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimit>,
    /// Grows with each update: a later deployment replaces the one before it once its replicas are ready.
    #[serde(default, skip_serializing_if = "is_first")]
    pub deployment: u32,
    /// Which of the groups of the service these replicas are; `None` where all its replicas are alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<ReplicaGroup>,
}

/// What is wrong with the groups of a service together, in one line.
pub fn check_groups<'a>(groups: &[Option<&'a Service>]) -> Result<(), String> {
    let of_service = |service: &Option<&'a Service>| {
        let service = (*service)?;
        Some((service, service.group.as_ref()?))
    };
    let all: Option<Vec<(&Service, &ReplicaGroup)>> = groups.iter().map(of_service).collect();
    let Some(all) = all else {
        return Err("groups of a service and other jobs are not submitted together".to_owned());
    };
    let mut first_replica = 0_u32;
    for ((service, group), index) in all.iter().zip(0..) {
        let is_in_place = group.index == index
            && group.count as usize == all.len()
            && group.first_replica == first_replica
            && service.deployment == all[0].0.deployment;
        if !is_in_place {
            return Err(format!("group {}: it is not in its place", group.name));
        }
        if all.iter().filter(|(_, other)| other.name == group.name).count() > 1 {
            return Err(format!("group {}: the name is there twice", group.name));
        }
        first_replica = first_replica.saturating_add(service.replicas);
    }
    if first_replica > REPLICAS_MAX {
        return Err(format!("groups of {first_replica} replicas: expected at most {REPLICAS_MAX}"));
    }
    let is = |wanted: fn(&GroupRole) -> bool| {
        all.iter().filter(|(_, group)| wanted(&group.role)).count()
    };
    let routers = is(|role| matches!(role, GroupRole::Router(_)));
    let workers = is(|role| matches!(role, GroupRole::Worker));
    match (routers, workers) {
        (0, 0) => Ok(()),
        (1, 1..) if workers + 1 == all.len() => Ok(()),
        (1, 0) => Err("a `router` needs another group, whose replicas are its workers".to_owned()),
        _ => Err("a service has one group with a `router` at most".to_owned()),
    }
}

fn is_first(deployment: &u32) -> bool {
    *deployment == 0
}

/// How many requests a client may make to paths of this prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateLimit {
    pub prefix: String,
    pub key: RateKey,
    /// Requests in a thousand seconds.
    pub rps_milli: u64,
    /// Requests that may come ahead of the rate.
    pub burst: u32,
}

/// What tells clients apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateKey {
    IpAddress,
    /// The value of this header.
    Header(String),
}

impl RateLimit {
    /// What is wrong with it, in one line.
    fn check(&self) -> Result<(), String> {
        let prefix = &self.prefix;
        let is_path = prefix.starts_with('/') && prefix.len() <= RATE_PREFIX_BYTES_MAX;
        if !is_path {
            return Err(format!("rate limit of {prefix:?}: expected a path such as /api"));
        }
        if self.rps_milli == 0 {
            return Err(format!("rate limit of {prefix:?}: expected more than 0 requests"));
        }
        match &self.key {
            RateKey::Header(name) if !is_header_name(name) => Err(format!(
                "rate limit of {prefix:?}: header {name:?}: expected a name such as X-API-Key"
            )),
            _ => Ok(()),
        }
    }
}

/// Whether a request can have a header of this name.
fn is_header_name(name: &str) -> bool {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=HEADER_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_token)
}

/// dstack's `scaling` by requests a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scaling {
    /// The fewest replicas.
    pub min: u32,
    /// Requests in a thousand seconds that one replica is to have.
    pub target_milli: u64,
    /// How far back requests are counted.
    pub window_s: u32,
    /// How long the number stays as it is before it grows, and before it shrinks.
    pub up_delay_s: u32,
    pub down_delay_s: u32,
}

impl Scaling {
    /// What is wrong with it, in one line.
    fn check(&self, most: u32) -> Result<(), String> {
        if self.min > most {
            return Err(format!("replicas {}..{most}: expected the fewest first", self.min));
        }
        if self.target_milli == 0 {
            return Err("scaling target 0: expected more requests a second".to_owned());
        }
        if !(1..=300).contains(&self.window_s) {
            return Err(format!("scaling window {}: expected 30s, 60s or 300s", self.window_s));
        }
        Ok(())
    }
}

/// A model that requests name instead of the service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ServedModel {
    pub name: String,
    /// The path of the API in the replica, as in `/v1`.
    pub prefix: String,
    /// A text at which each answer ends, beside those that its request names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eos_token: Option<String>,
}

impl ServedModel {
    /// What is wrong with it, in one line.
    fn check(&self) -> Result<(), String> {
        let Self { name, prefix, eos_token } = self;
        let is_text = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        if name.is_empty() || name.len() > MODEL_TEXT_BYTES_MAX || !is_text(name) {
            return Err(format!("model name {name:?}: expected one such as meta/llama-3"));
        }
        // Without a prefix the API is at the root.
        let is_path = prefix.is_empty() || prefix.starts_with('/');
        let is_path = is_path && is_text(prefix) && !prefix.contains(['?', '#']);
        if !is_path || prefix.len() > MODEL_TEXT_BYTES_MAX {
            return Err(format!("model prefix {prefix:?}: expected a path such as /v1"));
        }
        // It may be of any script.
        let is_token = |text: &str| (1..=MODEL_TEXT_BYTES_MAX).contains(&text.len());
        match eos_token {
            Some(text) if !is_token(text) => {
                Err(format!("model eos_token {text:?}: expected one such as </s>"))
            }
            _ => Ok(()),
        }
    }
}

/// A request that tells whether a replica is ready. It succeeds with a status of 200 to 299.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Probe {
    /// A path, with its query.
    pub url: String,
    pub method: ProbeMethod,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    pub timeout_s: u32,
    /// From the end of one to the start of the next.
    pub interval_s: u32,
    /// So many in a row make the replica ready.
    pub ready_after: u32,
    /// It is not made again once the replica is ready.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub until_ready: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeMethod {
    Get,
    Post,
    Put,
    Delete,
    Patch,
    Head,
}

impl ProbeMethod {
    pub const ALL: [(&'static str, Self); 6] = [
        ("get", Self::Get),
        ("post", Self::Post),
        ("put", Self::Put),
        ("delete", Self::Delete),
        ("patch", Self::Patch),
        ("head", Self::Head),
    ];

    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == word).map(|(_, method)| *method)
    }
}

impl Default for Probe {
    /// As dstack has it.
    fn default() -> Self {
        Self {
            url: "/".into(),
            method: ProbeMethod::Get,
            headers: Vec::new(),
            body: None,
            timeout_s: 10,
            interval_s: 15,
            ready_after: 1,
            until_ready: false,
        }
    }
}

/// How a probe of a replica goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeProgress {
    /// It failed the last time, or has not been made yet.
    Failing,
    /// It succeeds, but not often enough in a row yet.
    Succeeding,
    /// It has succeeded often enough in a row.
    Ready,
}

impl Probe {
    /// How it goes, by how often it has succeeded in a row.
    pub fn progress(&self, streak: u32) -> ProbeProgress {
        match streak {
            _ if streak >= self.ready_after => ProbeProgress::Ready,
            0 => ProbeProgress::Failing,
            _ => ProbeProgress::Succeeding,
        }
    }

    /// What is wrong with it, in one line.
    fn check(&self) -> Result<(), String> {
        // The head of a request takes no others: a probe that cannot be sent would never succeed.
        let is_path_byte = |b: u8| b.is_ascii_graphic() && !b"\"#<>`".contains(&b);
        let is_path = |url: &str| url.starts_with('/') && url.bytes().all(is_path_byte);
        if !is_path(&self.url) || self.url.len() > PROBE_TEXT_BYTES_MAX {
            return Err(format!("probe url {:?}: expected a path such as /health", self.url));
        }
        for (name, value) in &self.headers {
            if !is_header_name(name) {
                return Err(format!("probe header {name:?}: expected a name such as X-Check"));
            }
            let is_text = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
            if !is_text || value.len() > PROBE_TEXT_BYTES_MAX {
                return Err(format!("probe header {name}: expected a value of printable ASCII"));
            }
        }
        let body_bytes = self.body.as_ref().map_or(0, String::len);
        if self.headers.len() > PROBE_HEADERS_MAX || body_bytes > PROBE_TEXT_BYTES_MAX {
            let most = format!("{PROBE_HEADERS_MAX} headers and {PROBE_TEXT_BYTES_MAX} bytes");
            return Err(format!("a probe has at most {most} of a body"));
        }
        let times = 1..=PROBE_SECONDS_MAX;
        if !times.contains(&self.timeout_s) || !times.contains(&self.interval_s) {
            let most = PROBE_SECONDS_MAX;
            return Err(format!("timeout and interval of a probe are from 1 s to {most} s"));
        }
        if self.ready_after == 0 {
            return Err("ready_after 0: expected at least 1".to_owned());
        }
        Ok(())
    }
}

fn yes() -> bool {
    true
}

impl Service {
    /// A service of one replica that takes the server's defaults.
    pub fn at(port: u16) -> Self {
        Self {
            port,
            replicas: 1,
            scaling: None,
            auth: true,
            strip_prefix: true,
            gateway: GatewayChoice::Default,
            https: HttpsChoice::Auto,
            probes: Vec::new(),
            model: None,
            rate_limits: Vec::new(),
            deployment: 0,
            group: None,
        }
    }

    /// Whether its replicas are held when it is submitted, and started by the server: by its load, or once its router runs.
    pub fn is_held_at_first(&self) -> bool {
        let waits = self.group.as_ref().is_some_and(|group| group.waits_for_router);
        waits || self.scaling.is_some()
    }

    pub fn role(&self) -> GroupRole {
        self.group.as_ref().map_or(GroupRole::Serves, |group| group.role)
    }

    /// What is wrong with it, in one line.
    pub fn check(&self) -> Result<(), String> {
        if self.port == 0 {
            return Err("port 0: expected one from 1 to 65535".to_owned());
        }
        if !(1..=REPLICAS_MAX).contains(&self.replicas) {
            let found = self.replicas;
            return Err(format!("replicas {found}: expected a number from 1 to {REPLICAS_MAX}"));
        }
        self.gateway.check()?;
        self.scaling.as_ref().map_or(Ok(()), |scaling| scaling.check(self.replicas))?;
        // Before the probes, of which one may be made from it.
        self.model.as_ref().map_or(Ok(()), ServedModel::check)?;
        if self.probes.len() > PROBES_MAX {
            return Err(format!("a service has at most {PROBES_MAX} probes"));
        }
        self.probes.iter().try_for_each(Probe::check)?;
        if self.rate_limits.len() > RATE_LIMITS_MAX {
            return Err(format!("a service has at most {RATE_LIMITS_MAX} rate limits"));
        }
        self.rate_limits.iter().try_for_each(RateLimit::check)?;
        let is_one = self.replicas == 1 && self.scaling.is_none();
        self.group.as_ref().map_or(Ok(()), |group| group.check(is_one))
    }

    /// The path below which the server answers for the models of a project.
    pub fn models_path(project: &str) -> String {
        format!("/proxy/models/{project}")
    }

    /// The path at which the server passes requests on to a service. It ends with a slash.
    pub fn path(project: &str, run: &str) -> String {
        format!("/proxy/services/{project}/{run}/")
    }
}

#[cfg(test)]
mod tests {
    use super::super::replica_group::RouterKind;
    use super::*;
    use crate::id::JobId;

    #[test]
    fn what_a_service_leaves_out_is_as_dstack_has_it() {
        let read: Service = serde_json::from_str(r#"{"port":80,"replicas":1}"#).expect("a service");
        assert_eq!(read, Service::at(80));
        assert!(read.auth && read.strip_prefix);
        assert_eq!(Service::path("main", "web"), "/proxy/services/main/web/");
    }

    fn grouped(index: u32, count: u32, first_replica: u32, role: GroupRole) -> Service {
        let name = format!("g{index}");
        let waits_for_router = false;
        let group = ReplicaGroup { index, count, first_replica, name, role, waits_for_router };
        Service { group: Some(group), ..Service::at(80) }
    }

    #[test]
    fn groups_are_in_their_places_and_have_one_router_at_most() {
        let router = GroupRole::Router(RouterKind::Sglang);
        let check = |groups: &[Service]| check_groups(&groups.iter().map(Some).collect::<Vec<_>>());
        let pair = |one, other| [grouped(0, 2, 0, one), grouped(1, 2, 1, other)];
        assert_eq!(check(&pair(GroupRole::Serves, GroupRole::Serves)), Ok(()));
        assert_eq!(check(&pair(router, GroupRole::Worker)), Ok(()));
        for (groups, part) in [
            (pair(router, router), "one group with a `router`"),
            (pair(GroupRole::Serves, GroupRole::Worker), "one group with a `router`"),
            ([grouped(0, 2, 0, router), grouped(1, 2, 2, GroupRole::Worker)], "in its place"),
            ([grouped(0, 3, 0, router), grouped(1, 3, 1, GroupRole::Worker)], "in its place"),
        ] {
            let why = check(&groups).expect_err(part);
            assert!(why.contains(part), "{why}");
        }
        assert!(check(&[grouped(0, 1, 0, router)]).is_err_and(|why| why.contains("another group")));
        assert!(check_groups(&[Some(&Service::at(80)), None]).is_err());
        let many = Service { replicas: 2, ..grouped(0, 2, 0, router) };
        assert!(many.check().is_err_and(|why| why.contains("one replica")));
        let second = grouped(1, 2, 1, GroupRole::Worker).group.expect("a group");
        assert_eq!(second.first_array(JobId(13)), JobId(12));
    }

    #[test]
    fn probe_is_ready_when_it_has_succeeded_often_enough_in_a_row() {
        let probe = Probe { ready_after: 2, ..Probe::default() };
        let found = [0, 1, 2, 3].map(|streak| probe.progress(streak));
        let ready = ProbeProgress::Ready;
        assert_eq!(found, [ProbeProgress::Failing, ProbeProgress::Succeeding, ready, ready]);
    }

    #[test]
    fn what_cannot_be_served_is_refused_in_one_line() {
        let probe = |set: fn(&mut Probe)| {
            let mut probe = Probe::default();
            set(&mut probe);
            Service { probes: vec![probe], ..Service::at(80) }
        };
        let model = |name: &str, prefix: &str| {
            let (name, prefix) = (name.into(), prefix.into());
            let model = ServedModel { name, prefix, eos_token: None };
            Service { model: Some(model), ..Service::at(80) }
        };
        let ending = |eos_token: &str| {
            let eos_token = Some(eos_token.to_owned());
            let model = ServedModel { name: "m".into(), prefix: "/v1".into(), eos_token };
            Service { model: Some(model), ..Service::at(80) }
        };
        let limit = |prefix: &str, rps_milli| {
            let prefix = prefix.to_owned();
            let limit = RateLimit { prefix, key: RateKey::IpAddress, rps_milli, burst: 0 };
            Service { rate_limits: vec![limit], ..Service::at(80) }
        };
        let by_header = |name: &str| {
            let key = RateKey::Header(name.to_owned());
            let limit = RateLimit { prefix: "/api".to_owned(), key, rps_milli: 1000, burst: 0 };
            Service { rate_limits: vec![limit], ..Service::at(80) }
        };
        assert_eq!(limit("/api", 1000).check(), Ok(()));
        assert_eq!(by_header("X-API-Key").check(), Ok(()));
        assert_eq!(probe(|_| ()).check(), Ok(()));
        assert_eq!(model("meta/llama-3", "/v1").check(), Ok(()));
        assert_eq!(ending("<｜end▁of▁sentence｜>").check(), Ok(()));
        for (service, part) in [
            (Service::at(0), "port 0"),
            (Service { replicas: 0, ..Service::at(80) }, "replicas 0"),
            (
                Service { gateway: GatewayChoice::Named("a b".into()), ..Service::at(80) },
                "gateway \"a b\"",
            ),
            (Service { probes: vec![Probe::default(); 9], ..Service::at(80) }, "at most 8 probes"),
            (probe(|probe| probe.url = "http://elsewhere/".into()), "expected a path"),
            (probe(|probe| probe.url = "/a b".into()), "expected a path"),
            (probe(|probe| probe.url = "/a#b".into()), "expected a path"),
            (probe(|probe| probe.url = "/<a>".into()), "expected a path"),
            (probe(|probe| probe.headers = vec![("a b".into(), "c".into())]), "header \"a b\""),
            (probe(|probe| probe.headers = vec![("a".into(), "b\r\nc: d".into())]), "header a"),
            (probe(|probe| probe.interval_s = 0), "from 1 s"),
            (probe(|probe| probe.ready_after = 0), "ready_after 0"),
            (limit("api", 1000), "rate limit of \"api\""),
            (limit("/api", 0), "more than 0"),
            (by_header(""), "rate limit of \"/api\": header"),
            (by_header("x key"), "header \"x key\""),
            (by_header("x:key"), "header"),
            (by_header(&"x".repeat(257)), "header"),
            (
                probe(|probe| probe.headers = vec![("a".into(), "b".into()); 17]),
                "at most 16 headers",
            ),
            (probe(|probe| probe.headers = vec![("a".into(), "b".repeat(2049))]), "header a"),
            (model("", "/v1"), "model name"),
            (model("a b", "/v1"), "model name"),
            (model("m", "v1"), "model prefix"),
            (model("m", "/v1?x"), "model prefix"),
            (ending(""), "model eos_token"),
            (ending(&"x".repeat(257)), "model eos_token"),
        ] {
            let why = service.check().expect_err(part);
            assert!(why.contains(part) && !why.contains('\n'), "{why}");
        }
    }
}
