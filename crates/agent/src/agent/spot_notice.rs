//! Watches for the notice that the cloud takes this machine back: a spot machine's metadata service has it some time before.
//!
//! The server drains the node then and ends its jobs in time; here they are told at once, by a line of their output and by the
//! signal that they asked for with `--signal`.

use super::{Agent, AttemptEntry};
use model::health::HealthSource;
use model::printable::printable;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use ureq::http::Request;
use wire::link::ToServer;
use wire::supervisor::ToSupervisor;

/// How often the service is asked. EC2 tells two minutes before, Google half a minute.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

const ANSWER_BYTES_MAX: u64 = 4 << 10;

/// How long a token of EC2's service is good, and how many questions one is used for.
const TOKEN_LIFE_S: &str = "600";
const TOKEN_USES: u32 = 60;

/// The cloud of a spot machine: its metadata service has a protocol of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpotCloud {
    Aws,
    Gcp,
}

impl SpotCloud {
    pub const NAMES: [(&str, SpotCloud); 2] = [("aws", SpotCloud::Aws), ("gcp", SpotCloud::Gcp)];

    fn address(self) -> &'static str {
        match self {
            SpotCloud::Aws => "http://169.254.169.254",
            SpotCloud::Gcp => "http://metadata.google.internal",
        }
    }
}

/// Where a spot machine hears that it is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotConfig {
    pub cloud: SpotCloud,
    /// The service's address, where it is not the cloud's own.
    pub address: Option<String>,
}

pub(super) struct SpotWatch {
    /// `None` for a machine that stays.
    notices: Option<mpsc::Receiver<String>>,
    is_told: bool,
}

impl SpotWatch {
    pub fn none() -> SpotWatch {
        SpotWatch { notices: None, is_told: false }
    }

    pub fn start(config: SpotConfig) -> SpotWatch {
        let (sender, notices) = mpsc::channel(1);
        let watch = std::thread::Builder::new().name("spot-notice".into());
        if let Err(error) = watch.spawn(move || poll(&config, &sender)) {
            tracing::warn!(%error, "the notice that this machine is taken back is not watched for");
        }
        SpotWatch { notices: Some(notices), is_told: false }
    }

    /// Watches in a pod of Kubernetes, which is told by SIGTERM that it is evicted, preempted or deleted.
    pub fn of_pod() -> std::io::Result<SpotWatch> {
        let mut terminate = signal(SignalKind::terminate())?;
        let (sender, notices) = mpsc::channel(1);
        tokio::spawn(async move {
            if terminate.recv().await.is_none() {
                return;
            }
            while !sender.is_closed() {
                // A notice that was not taken yet is the same one.
                let _ = sender.try_send("its pod is stopped".to_owned());
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Ok(SpotWatch { notices: Some(notices), is_told: false })
    }

    /// Waits for the notice. It comes again with each question, so that a server that did not hear of it does.
    pub async fn next(&mut self) -> String {
        let Some(notices) = &mut self.notices else { return std::future::pending().await };
        match notices.recv().await {
            Some(notice) => notice,
            None => std::future::pending().await,
        }
    }
}

impl Agent {
    pub(super) fn on_spot_notice(&mut self, notice: String) {
        let text = format!("spot interruption: {notice}");
        for node in self.nodes.keys() {
            let (node, failure) = (node.clone(), Some(text.clone()));
            let source = HealthSource::Interruption;
            self.outgoing.push(ToServer::Health { node, source, failure });
        }
        if std::mem::replace(&mut self.spot.is_told, true) {
            return;
        }
        tracing::warn!(%notice, "this machine is taken back by its cloud");
        let running = self.attempts.values().filter(|held| !held.has_ended());
        running.for_each(|held| held.warn_of(&text));
    }
}

impl AttemptEntry {
    /// Tells the job that its machine goes. An older supervisor cannot be told, and its job ends unwarned.
    fn warn_of(&self, text: &str) {
        let Some(orders) = self.orders.as_ref().filter(|_| self.takes_notices) else { return };
        let line = format!("sluice: {text}");
        for message in [ToSupervisor::Notice { line }, ToSupervisor::Warn] {
            if orders.try_send(message).is_err() {
                tracing::warn!("a job was not told that its machine is taken back");
            }
        }
    }
}

/// Asks until the agent ends. What fails is asked again: a machine without a notice works on.
fn poll(config: &SpotConfig, notices: &mpsc::Sender<String>) {
    let mut service = Service::new(config);
    let mut told = String::new();
    while !notices.is_closed() {
        match service.notice() {
            // A notice that was not taken yet is the same one.
            Ok(Some(notice)) => drop(notices.try_send(notice)),
            Ok(None) => told.clear(),
            Err(why) if why != told => {
                tracing::warn!(%why, "the metadata service of this machine");
                told = why;
            }
            Err(_) => {}
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

struct Service {
    cloud: SpotCloud,
    address: String,
    http: ureq::Agent,
    token: Option<(String, u32)>,
}

impl Service {
    fn new(config: &SpotConfig) -> Service {
        let address = config.address.clone();
        let http = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(CALL_TIMEOUT))
            .build()
            .new_agent();
        Service {
            cloud: config.cloud,
            address: address.unwrap_or_else(|| config.cloud.address().to_owned()),
            http,
            token: None,
        }
    }

    /// The notice, if there is one.
    fn notice(&mut self) -> Result<Option<String>, String> {
        match self.cloud {
            SpotCloud::Aws => self.notice_of_aws(),
            SpotCloud::Gcp => {
                let header = ("Metadata-Flavor", "Google");
                let path = "/computeMetadata/v1/instance/preempted";
                let (status, text) = self.ask("GET", path, header)?;
                let is_taken = status == 200 && text.trim() == "TRUE";
                Ok(is_taken.then(|| "preempted".to_owned()))
            }
        }
    }

    fn notice_of_aws(&mut self) -> Result<Option<String>, String> {
        let (token, uses) = match self.token.take() {
            Some((token, uses)) if uses < TOKEN_USES => (token, uses),
            _ => {
                let life = ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_LIFE_S);
                match self.ask("PUT", "/latest/api/token", life)? {
                    (200, token) => (token, 0),
                    (status, _) => return Err(format!("no token: status {status}")),
                }
            }
        };
        let header = ("X-aws-ec2-metadata-token", token.as_str());
        let (status, text) = self.ask("GET", "/latest/meta-data/spot/instance-action", header)?;
        match status {
            // There is none.
            404 => self.token = Some((token, uses + 1)),
            200 => {
                self.token = Some((token, uses + 1));
                return Ok(Some(aws_notice(&text)));
            }
            // The token is not good any more: the next question asks for another.
            401 => {}
            status => return Err(format!("spot/instance-action: status {status}")),
        }
        Ok(None)
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        (name, value): (&str, &str),
    ) -> Result<(u16, String), String> {
        let url = format!("{}{path}", self.address);
        let request = Request::builder().method(method).uri(&url).header(name, value);
        let failed = |error: ureq::Error| format!("{url}: {error}");
        let wrong = |error: ureq::http::Error| format!("{url}: {error}");
        // A PUT has a length, though it has no body.
        let answer = if method == "PUT" {
            self.http.run(request.body("").map_err(wrong)?)
        } else {
            self.http.run(request.body(()).map_err(wrong)?)
        };
        let mut answer = answer.map_err(failed)?;
        let status = answer.status().as_u16();
        let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        Ok((status, body.read_to_string().map_err(failed)?))
    }
}

/// `terminate at 2026-11-17T20:00:00Z`, of EC2's JSON.
fn aws_notice(text: &str) -> String {
    let told: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let word = |key: &str| -> String {
        told[key].as_str().unwrap_or("unknown").chars().take(64).collect()
    };
    printable(&format!("{} at {}", word("action"), word("time"))).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A service that gives each of these answers to one request, and hands on what was asked.
    fn service(cloud: SpotCloud, answers: Vec<(u16, &'static str)>) -> (Service, Asked) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = std::thread::spawn(move || {
            let answer_to = |(status, body): (u16, &str)| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut request = Vec::new();
                while !request.windows(4).any(|part| part == b"\r\n\r\n") {
                    let mut buffer = [0; 1024];
                    let count = stream.read(&mut buffer).expect("a request");
                    request.extend_from_slice(&buffer[..count]);
                }
                let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n", body.len());
                let all = format!("{head}connection: close\r\n\r\n{body}");
                stream.write_all(all.as_bytes()).expect("an answer");
                String::from_utf8_lossy(&request).to_lowercase()
            };
            answers.into_iter().map(answer_to).collect()
        });
        (Service::new(&SpotConfig { cloud, address: Some(address) }), asked)
    }

    type Asked = std::thread::JoinHandle<Vec<String>>;

    #[test]
    fn notice_of_ec2_is_found_with_a_token_that_is_asked_for_anew() {
        let action = r#"{"action":"terminate","time":"2026-11-17T20:00:00Z"}"#;
        let answers =
            vec![(200, "t1"), (404, ""), (401, ""), (200, "t2"), (200, action), (500, "broken")];
        let (mut service, asked) = service(SpotCloud::Aws, answers);
        assert_eq!(service.notice(), Ok(None));
        assert_eq!(service.notice(), Ok(None), "the token has ended");
        let notice = "terminate at 2026-11-17T20:00:00Z".to_owned();
        assert_eq!(service.notice(), Ok(Some(notice)));
        assert!(service.notice().is_err());
        let asked = asked.join().expect("the service");
        assert!(asked[0].starts_with("put /latest/api/token"), "{asked:?}");
        assert!(asked[1].contains("x-aws-ec2-metadata-token: t1"), "{asked:?}");
        assert!(asked[4].contains("x-aws-ec2-metadata-token: t2"), "{asked:?}");
        assert_eq!(aws_notice("words"), "unknown at unknown");
    }

    #[test]
    fn notice_of_google_is_a_word() {
        let (mut service, asked) = service(SpotCloud::Gcp, vec![(200, "FALSE"), (200, "TRUE\n")]);
        assert_eq!(service.notice(), Ok(None));
        assert_eq!(service.notice(), Ok(Some("preempted".to_owned())));
        let asked = asked.join().expect("the service");
        assert!(asked[0].contains("metadata-flavor: google"), "{asked:?}");
    }
}
