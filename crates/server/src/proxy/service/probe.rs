//! Probes of replicas: requests that are made again and again as long as the replica is there.

use super::NODES_TIMEOUT;
use super::live::LiveService;
use super::replica::Replica;
use super::table::Services;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, header};
use http_body_util::{BodyExt, Limited};
use model::principal::Principal;
use model::service::{Probe, ProbeMethod};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// How much of an answer is read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// How often it is looked whether a node has connected.
const NODE_LOOK: Duration = Duration::from_millis(100);

/// One probe of one replica.
struct Probing {
    shared: Arc<Shared>,
    forwarders: Arc<Forwarders>,
    owner: Principal,
    replica: Weak<Replica>,
    /// Its place among the service's.
    index: usize,
    probe: Probe,
    /// Until when its node may take to connect.
    nodes_until: Instant,
}

/// Begins to probe a replica.
pub fn start(
    shared: &Arc<Shared>,
    services: &Services,
    live: &LiveService,
    replica: &Arc<Replica>,
) {
    for (index, probe) in replica.probes.iter().enumerate() {
        let probing = Probing {
            shared: shared.clone(),
            forwarders: services.forwarders.clone(),
            owner: live.owner.clone(),
            replica: Arc::downgrade(replica),
            index,
            probe: probe.clone(),
            nodes_until: services.started + NODES_TIMEOUT,
        };
        tokio::spawn(probing.run());
    }
}

impl Probing {
    async fn run(self) {
        self.await_node().await;
        let interval = Duration::from_secs(self.probe.interval_s.into());
        while let Some(replica) = self.replica.upgrade() {
            let succeeded = self.succeeds(&replica).await;
            let is_enough = replica.readiness.note(self.index, succeeded);
            if is_enough && self.probe.until_ready {
                return;
            }
            drop(replica);
            sleep(interval).await;
        }
    }

    /// Waits until the agent of the replica's node is connected, which takes a moment where the server has just started: that it cannot be asked
    /// says nothing of the replica.
    async fn await_node(&self) {
        while Instant::now() < self.nodes_until {
            let node = self.replica.upgrade().and_then(|replica| {
                let state = self.shared.read();
                let job = state.jobs.get(&replica.attempt.job)?;
                Some(job.allocation()?.nodes.first()?.node.clone())
            });
            if node.is_none_or(|node| self.shared.agents.is_connected(&node)) {
                return;
            }
            sleep(NODE_LOOK).await;
        }
    }

    async fn succeeds(&self, replica: &Arc<Replica>) -> bool {
        let Some(request) = request(&self.probe) else { return false };
        let ask = async {
            let sent = replica.send(&self.shared, &self.forwarders, &self.owner, request, false);
            let Ok(answer) = sent.await else { return false };
            let is_good = answer.status().is_success();
            let _ = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            is_good
        };
        let limit = Duration::from_secs(self.probe.timeout_s.into());
        timeout(limit, ask).await.unwrap_or(false)
    }
}

/// The request of a probe; `None` where it cannot be written.
fn request(probe: &Probe) -> Option<hyper::Request<Body>> {
    let body = probe.body.clone().map_or_else(Body::empty, Body::from);
    let mut request = hyper::Request::new(body);
    *request.method_mut() = match probe.method {
        ProbeMethod::Get => Method::GET,
        ProbeMethod::Post => Method::POST,
        ProbeMethod::Put => Method::PUT,
        ProbeMethod::Delete => Method::DELETE,
        ProbeMethod::Patch => Method::PATCH,
        ProbeMethod::Head => Method::HEAD,
    };
    *request.uri_mut() = probe.url.parse().ok()?;
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    for (name, value) in &probe.headers {
        headers.insert(name.parse::<HeaderName>().ok()?, HeaderValue::from_str(value).ok()?);
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::service::Service;

    #[test]
    fn every_probe_that_a_service_may_have_can_be_sent() {
        for sign in (0..=127_u8).map(char::from) {
            let probe = Probe { url: format!("/a{sign}?b{sign}"), ..Probe::default() };
            let service = Service { probes: vec![probe.clone()], ..Service::at(80) };
            if service.check().is_ok() {
                let made = request(&probe).expect(&probe.url);
                assert_eq!(made.uri().to_string(), probe.url);
            }
        }
    }

    #[test]
    fn probe_is_the_request_that_it_says() {
        let probe = Probe {
            url: "/v1/check?deep=1".into(),
            method: ProbeMethod::Post,
            headers: vec![("X-Check".into(), "yes".into())],
            body: Some("{}".into()),
            ..Probe::default()
        };
        let made = request(&probe).expect("a request");
        assert_eq!((made.method(), made.uri().path()), (&Method::POST, "/v1/check"));
        assert_eq!(made.headers()["x-check"], "yes");
        assert_eq!(made.headers()["host"], "localhost");
    }
}
