//! Routers of services: a group of replicas may be a program that passes requests on to the replicas of the other groups, its workers.
//!
//! The server tells the router which workers there are, by the API of SGLang's model gateway: `GET /workers` lists those that it knows,
//! `POST /workers` adds one, and `DELETE /workers/ID` removes one. A worker gets requests once the router lists it; one that is given up is
//! removed first. Workers of another kind of router find it by themselves: they start after it, and are told its address.

use super::gateway_routes::route;
use super::live::{LiveGroup, LiveService};
use super::replica::Replica;
use super::scaler::change;
use super::table::Services;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use axum::body::Body;
use axum::http::{HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use model::change::JobChange;
use model::principal::Principal;
use model::replica_group::GroupRole;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long it may take to tell a router its workers; the next look tries again.
const TELL_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer of a router or a worker.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Workers that one router is told of.
const WORKERS_MAX: usize = 512;
/// Workers of one answer of a router that are looked at: those that it has, and some that are to be removed.
const LISTED_MAX: usize = 2 * WORKERS_MAX;

const WORKERS: &str = "/workers";
/// Where a worker says what it is, by its newer and its older name.
const SERVER_INFO: [&str; 2] = ["/server_info", "/get_server_info"];

/// Brings what the routers of a service know up to date.
pub fn keep_workers(shared: &Arc<Shared>, services: &Services, live: &LiveService) {
    for worker in live.replicas.iter().filter(|one| one.role == GroupRole::Worker) {
        if !live.routers().any(|router| router.deployment == worker.deployment) {
            worker.set_joined(false);
        }
    }
    start_waiting(shared, live);
    for router in live.routers() {
        let GroupRole::Router(kind) = router.role else { continue };
        if !kind.is_told_workers() {
            for worker in live.workers_of(router) {
                worker.set_joined(worker.is_open() && worker.is_reached());
            }
            continue;
        }
        // A router that gets no more requests keeps its workers for those that it has.
        if !router.is_open() || !router.is_reached() || !router.begin_telling() {
            continue;
        }
        let state = shared.read();
        let worker = |replica: &Arc<Replica>| {
            let place = route(&state, &shared.agents, replica)?;
            let url = worker_url(&place.host, place.port);
            let is_wanted = replica.is_open() && replica.is_reached();
            Some(Worker { replica: replica.clone(), url, is_wanted })
        };
        let workers = live.workers_of(router).take(WORKERS_MAX).filter_map(worker).collect();
        drop(state);
        let telling = Telling {
            shared: shared.clone(),
            forwarders: services.forwarders.clone(),
            owner: live.owner.clone(),
            router: router.clone(),
            workers,
        };
        tokio::spawn(telling.run());
    }
}

/// Starts the workers that were held until their router runs; the load starts those that are scaled.
fn start_waiting(shared: &Shared, live: &LiveService) {
    let waits = |group: &&LiveGroup| {
        let place = group.service.group.as_ref();
        place.is_some_and(|place| place.waits_for_router) && group.service.scaling.is_none()
    };
    for group in live.groups.iter().filter(waits).filter(|group| live.may_start(group)) {
        for task in &group.parked {
            change(shared, *task, JobChange::Release);
        }
    }
}

fn worker_url(host: &str, port: u16) -> String {
    let is_address = host.contains(':');
    if is_address { format!("http://[{host}]:{port}") } else { format!("http://{host}:{port}") }
}

struct Worker {
    replica: Arc<Replica>,
    url: String,
    /// It is to get requests.
    is_wanted: bool,
}

/// A worker as its router lists it.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    id: String,
    url: String,
    is_healthy: bool,
}

/// What is read of a router's answer. It is the job's own text: values that nobody asks for would take fifty times their bytes, so none
/// are made of them.
#[derive(Deserialize)]
struct WorkersAnswer<'a> {
    #[serde(borrow)]
    workers: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct WorkerAnswer {
    url: String,
    #[serde(default, deserialize_with = "if_it_fits")]
    id: Option<String>,
    #[serde(default, deserialize_with = "if_it_fits")]
    is_healthy: Option<bool>,
}

/// What is read of what a worker says of itself. It is held while its router is told, which the router may put off.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerInfo {
    #[serde(deserialize_with = "if_it_fits")]
    disaggregation_mode: Option<String>,
    #[serde(deserialize_with = "if_it_fits")]
    disaggregation_bootstrap_port: Option<u16>,
}

/// A value of another kind than the one that is read counts as none, and what stands beside it is read.
fn if_it_fits<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    input: D,
) -> Result<Option<T>, D::Error> {
    let value = <&RawValue>::deserialize(input)?;
    Ok(serde_json::from_str(value.get()).ok())
}

/// What a router is asked for next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Add the worker at this place in the list of workers.
    Add(usize),
    /// Remove the one that it lists under this id.
    Remove(String),
}

/// The steps from the workers that a router lists to those that it is to have, each with its URL and whether it is wanted.
fn steps(wanted: &[(&str, bool)], listed: &[Listed]) -> Vec<Step> {
    let is_wanted =
        |one: &Listed| wanted.iter().any(|(url, is_wanted)| *is_wanted && *url == one.url);
    let removed = listed.iter().filter(|one| !is_wanted(one));
    let removed = removed.map(|one| Step::Remove(one.id.clone()));
    let is_missing = |(_, (url, is_wanted)): &(usize, &(&str, bool))| {
        *is_wanted && !listed.iter().any(|one| one.url == *url)
    };
    let added = wanted.iter().enumerate().filter(is_missing).map(|(at, _)| Step::Add(at));
    removed.chain(added).collect()
}

/// The workers in an answer to `GET /workers`; `None` where it is none.
fn listed(answer: &[u8]) -> Option<Vec<Listed>> {
    let WorkersAnswer { workers } = serde_json::from_slice(answer).ok()?;
    let one = |worker: &&RawValue| {
        let worker: WorkerAnswer = serde_json::from_str(worker.get()).ok()?;
        let url = worker.url.trim_end_matches('/').to_owned();
        let id = worker.id.unwrap_or_else(|| url.clone());
        Some(Listed { id, url, is_healthy: worker.is_healthy.unwrap_or(true) })
    };
    Some(workers.iter().take(LISTED_MAX).filter_map(one).collect())
}

/// What a router is told of a worker that says this of itself: one that computes prompts or tokens alone says so.
fn registration(url: &str, info: &ServerInfo) -> Value {
    match info.disaggregation_mode.as_deref() {
        Some("prefill") => json!({
            "url": url,
            "worker_type": "prefill",
            "bootstrap_port": info.disaggregation_bootstrap_port,
        }),
        Some("decode") => json!({ "url": url, "worker_type": "decode" }),
        _ => json!({ "url": url, "worker_type": "regular" }),
    }
}

/// The path that removes a worker; an id may be a URL.
fn removal_path(id: &str) -> String {
    let byte = |b: u8| {
        let is_plain = b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
        if is_plain { char::from(b).to_string() } else { format!("%{b:02X}") }
    };
    format!("{WORKERS}/{}", id.bytes().map(byte).collect::<String>())
}

/// One round of telling a router its workers.
struct Telling {
    shared: Arc<Shared>,
    forwarders: Arc<Forwarders>,
    owner: Principal,
    router: Arc<Replica>,
    workers: Vec<Worker>,
}

impl Telling {
    async fn run(self) {
        if timeout(TELL_TIMEOUT, self.tell()).await.ok().flatten().is_none() {
            let job = self.router.attempt.job;
            tracing::debug!(%job, "the router of a service does not list its workers");
        }
        self.router.end_telling();
    }

    async fn tell(&self) -> Option<()> {
        let (status, answer) = self.ask(&self.router, Method::GET, WORKERS, None).await?;
        let listed = listed(&answer).filter(|_| status.is_success())?;
        for worker in &self.workers {
            let known = listed.iter().find(|one| one.url == worker.url);
            // One that is to be removed is known until it is.
            let is_joined = known.is_some_and(|known| known.is_healthy || !worker.is_wanted);
            worker.replica.set_joined(is_joined);
        }
        let wanted: Vec<(&str, bool)> =
            self.workers.iter().map(|one| (one.url.as_str(), one.is_wanted)).collect();
        for step in steps(&wanted, &listed) {
            match step {
                Step::Remove(id) => {
                    self.ask(&self.router, Method::DELETE, &removal_path(&id), None).await?;
                }
                Step::Add(at) => self.add(&self.workers[at]).await?,
            }
        }
        Some(())
    }

    async fn add(&self, worker: &Worker) -> Option<()> {
        let mut info = ServerInfo::default();
        for path in SERVER_INFO {
            let (status, answer) = self.ask(&worker.replica, Method::GET, path, None).await?;
            if status.is_success() {
                info = serde_json::from_slice(&answer).unwrap_or_default();
                break;
            }
        }
        let body = registration(&worker.url, &info).to_string();
        let (status, _) = self.ask(&self.router, Method::POST, WORKERS, Some(body)).await?;
        status.is_success().then_some(())
    }

    /// The answer of a replica; `None` where it gives none.
    async fn ask(
        &self,
        replica: &Arc<Replica>,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Option<(StatusCode, Bytes)> {
        let mut request = hyper::Request::new(Body::empty());
        if let Some(body) = body {
            *request.body_mut() = Body::from(body);
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().ok()?;
        request.headers_mut().insert(header::HOST, HeaderValue::from_static("localhost"));
        let sent = replica.send(&self.shared, &self.forwarders, &self.owner, request, false);
        let answer = sent.await.ok()?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await.ok()?;
        Some((status, body.to_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn router_is_told_what_it_does_not_list_and_loses_what_is_not_wanted() {
        let answer = br#"{"workers": [{"id": "a", "url": "http://n1:80/"},
            {"url": "http://n2:80", "is_healthy": false}, {"id": "c", "url": "http://gone:80"}]}"#;
        let known = listed(answer).expect("a list");
        let ids: Vec<&str> = known.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(ids, ["a", "http://n2:80", "c"]);
        assert_eq!((known[0].is_healthy, known[1].is_healthy), (true, false));
        let wanted = [("http://n1:80", true), ("http://n2:80", false), ("http://n3:80", true)];
        let found = steps(&wanted, &known);
        let expected =
            [Step::Remove("http://n2:80".into()), Step::Remove("c".into()), Step::Add(2)];
        assert_eq!(found, expected);
        assert_eq!(removal_path("http://n2:80"), "/workers/http%3A%2F%2Fn2%3A80");
        assert!(listed(b"not found").is_none() && listed(b"{}").is_none());
        // What is none is left out, and the others stay; one whose id is no text goes by its URL.
        let odd = br#"{"workers": [7, {"url": 8}, {"url": "http://n1:80", "more": [[1], [2]]},
            {"url": "http://n2:80", "id": [7]}]}"#;
        let ids = |all: Vec<Listed>| all.into_iter().map(|one| one.id).collect::<Vec<_>>();
        let expected = ["http://n1:80", "http://n2:80"].map(str::to_owned);
        assert_eq!(listed(odd).map(ids), Some(expected.to_vec()));
        let many = json!({"workers": vec![json!({"url": "http://n1:80"}); 50_000]}).to_string();
        assert_eq!(listed(many.as_bytes()).map(|all| all.len()), Some(LISTED_MAX));
    }

    #[test]
    fn worker_is_registered_as_what_it_says_that_it_is() {
        let registered = |said: &str| {
            registration("http://n1:80", &serde_json::from_str(said).unwrap_or_default())
        };
        let told = registered(
            r#"{"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998}"#,
        );
        assert_eq!(told["worker_type"], "prefill");
        assert_eq!(told["bootstrap_port"], 8998);
        assert_eq!(registered(r#"{"disaggregation_mode": "decode"}"#)["worker_type"], "decode");
        assert_eq!(registered("no JSON")["worker_type"], "regular");
        // What is no port is not passed on, however long it is.
        let long = format!("[{}0]", "[0],".repeat(1000));
        let said = format!(
            r#"{{"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": {long}}}"#
        );
        let told = registered(&said);
        assert_eq!(
            (&told["worker_type"], &told["bootstrap_port"]),
            (&json!("prefill"), &Value::Null)
        );
        assert_eq!(worker_url("10.0.0.1", 80), "http://10.0.0.1:80");
        assert_eq!(worker_url("fd00::1", 80), "http://[fd00::1]:80");
    }
}
