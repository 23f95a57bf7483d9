//! Calls of the API of Kubernetes: one request within a time, one answer within a size, and a watch as lines of JSON.

use super::access::Access;
use crate::machines::cloud::rest::{shown, word};
use crate::machines::cloud::secret::SecretText;
use crate::machines::source::SourceError;
use model::machine::FailureKind;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::time::Duration;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// The most bytes of an answer, and of one event of a watch.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
const EVENT_BYTES_MAX: u64 = 4 << 20;

/// How many objects one page of a list has, and how many pages there are at most.
const PAGE: usize = 500;
const PAGES_MAX: usize = 200;

pub struct Client {
    agent: Agent,
    server: String,
    pub namespace: String,
    bearer: Option<SecretText>,
}

/// An answer of any status.
pub struct Answer {
    pub status: u16,
    pub value: Value,
}

impl Answer {
    /// What was answered, or why it was refused.
    pub fn accepted(self, what: &str) -> Result<Value, SourceError> {
        if (200..300).contains(&self.status) { Ok(self.value) } else { Err(self.failure(what)) }
    }

    pub fn failure(&self, what: &str) -> SourceError {
        let (reason, message) = (word(&self.value, "/reason"), word(&self.value, "/message"));
        let kind = match (self.status, reason) {
            (403, _) if message.contains("exceeded quota") => FailureKind::Quota,
            (404, _) => FailureKind::NotFound,
            (429, _) => FailureKind::Throttled,
            // Another writer was first, for one with the count of a quota: the same call is good again.
            (409, "Conflict") => FailureKind::Unknown,
            (500..=599, _) => FailureKind::Unknown,
            _ => FailureKind::Refused,
        };
        let reason = match reason {
            "" => format!("status {}", self.status),
            reason => shown(reason),
        };
        SourceError { kind, text: format!("{what}: {reason}: {}", shown(message)) }
    }
}

impl Client {
    pub fn new(access: Access, limit: Duration) -> Result<Self, SourceError> {
        let authorities = access.authorities.clone();
        let authorities =
            authorities.unwrap_or_else(|| image::machine_authorities().unwrap_or_default());
        let identity = access.identity.as_ref().map(|(certificate, key)| {
            let wrong = |_| SourceError::refused("client-key: expected a private key, as PEM");
            let key = PrivateKey::from_pem(key.expose().as_bytes()).map_err(wrong)?;
            Ok::<_, SourceError>(ClientCert::new_with_certs(&certificates(certificate), key))
        });
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&certificates(&authorities)))
            .client_cert(identity.transpose()?)
            .disable_verification(access.skips_verification)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        // A site that names its cluster's address reaches it without a proxy.
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent("sluice")
            .accept_encoding("identity")
            .proxy(None)
            .timeout_global(Some(limit))
            .build()
            .new_agent();
        let Access { server, namespace, bearer, .. } = access;
        Ok(Self { agent, server, namespace, bearer })
    }

    /// `what`, as `pods/NAME`, in the source's namespace.
    pub fn path(&self, what: &str) -> String {
        format!("/api/v1/namespaces/{}/{what}", self.namespace)
    }

    pub fn get(&self, path: &str) -> Result<Answer, SourceError> {
        self.call("GET", path, None)
    }

    pub fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer, SourceError> {
        let (status, body) = self.send(method, path, body)?;
        let mut bytes = Vec::new();
        let read = body.into_reader().take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes);
        let broken = |_| SourceError::unknown("the answer broke off");
        read.map_err(broken)?;
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            let text = format!("the answer has more than {ANSWER_BYTES_MAX} bytes");
            return Err(SourceError::unknown(text));
        }
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Answer { status, value }),
            Err(_) if status >= 300 => Ok(Answer { status, value: Value::Null }),
            Err(_) => Err(SourceError::unknown("the answer is no JSON")),
        }
    }

    /// The objects of all pages of a list, and the list's version. `what` they are is said where the list is refused.
    pub fn list(&self, path: &str, what: &str) -> Result<(Vec<Value>, String), SourceError> {
        let mark = if path.contains('?') { '&' } else { '?' };
        let (mut found, mut next) = (Vec::new(), String::new());
        for _ in 0..PAGES_MAX {
            let page = self.get(&format!("{path}{mark}limit={PAGE}&continue={next}"))?;
            let mut page = page.accepted(what)?;
            match page.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => found.extend(items),
                _ => {
                    return Err(SourceError::unknown(format!("{what}: the answer is no list")));
                }
            }
            next = word(&page, "/metadata/continue").to_owned();
            if next.is_empty() {
                return Ok((found, word(&page, "/metadata/resourceVersion").to_owned()));
            }
        }
        Err(SourceError::unknown(format!("{what}: more than {PAGES_MAX} pages")))
    }

    /// The events of a watch, or the answer of one that was refused.
    pub fn watch(&self, path: &str) -> Result<Result<Events, Answer>, SourceError> {
        let (status, body) = self.send("GET", path, None)?;
        if status == 200 {
            return Ok(Ok(Events(BufReader::new(Box::new(body.into_reader())))));
        }
        let mut bytes = Vec::new();
        let _ = body.into_reader().take(EVENT_BYTES_MAX).read_to_end(&mut bytes);
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Ok(Err(Answer { status, value }))
    }

    fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Body), SourceError> {
        let mut builder = ureq::http::Request::builder();
        builder = builder.method(method).uri(format!("{}{path}", self.server));
        builder = builder.header("accept", "application/json");
        if let Some(bearer) = &self.bearer {
            let value = SecretText::new(format!("Bearer {}", bearer.expose()));
            builder = builder.header("authorization", value.expose());
        }
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let wrong = |_| SourceError::refused("the request cannot be written");
        let answer = match body.map(Value::to_string) {
            Some(text) => {
                let request = builder.header("content-type", kind).body(text.into_bytes());
                self.agent.run(request.map_err(wrong)?)
            }
            None => self.agent.run(builder.body(()).map_err(wrong)?),
        };
        let answer = answer.map_err(|error| fault(&self.server, &error))?;
        Ok((answer.status().as_u16(), answer.into_body()))
    }
}

/// The events of a watch, a line each.
pub struct Events(BufReader<Box<dyn Read>>);

impl Events {
    /// The next event; `None` at the end of the watch, which the server or a time limit makes.
    pub fn read_event(&mut self) -> Result<Option<Value>, SourceError> {
        let mut line = Vec::new();
        let read = self.0.by_ref().take(EVENT_BYTES_MAX).read_until(b'\n', &mut line);
        // A connection that breaks ends the watch: what was missed is asked for from the last version on.
        if read.unwrap_or(0) == 0 || line.last() != Some(&b'\n') {
            return Ok(None);
        }
        let wrong = |_| SourceError::unknown("watch: an event is no JSON");
        serde_json::from_slice(&line).map(Some).map_err(wrong)
    }
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    let item = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    ureq::tls::parse_pem(pem).filter_map(item).collect()
}

fn fault(server: &str, error: &ureq::Error) -> SourceError {
    let what = match error {
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::HostNotFound => "no such host",
        ureq::Error::ConnectionFailed => "no connection",
        ureq::Error::Rustls(_) => "its certificate is not accepted here, or ours not there",
        ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            "the connection is refused"
        }
        ureq::Error::Io(_) => "the connection broke off",
        _ => "the answer is no HTTP",
    };
    SourceError::unknown(format!("{}: {what}", shown(server)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Answers one request: a list of two pages at `/two`, and elsewhere one whose pages have no end.
    fn answer(mut stream: TcpStream) -> std::io::Result<()> {
        let mut head = BufReader::new(stream.try_clone()?).lines();
        let first = head.next().unwrap_or_else(|| Ok(String::new()))?;
        while head.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let page = if first.contains("/two?limit=500&continue= ") {
            json!({"items": [1], "metadata": {"resourceVersion": "7", "continue": "more"}})
        } else if first.contains("/two?limit=500&continue=more ") {
            json!({"items": [2], "metadata": {"resourceVersion": "7"}})
        } else {
            json!({"items": [], "metadata": {"continue": "more"}})
        };
        let page = page.to_string();
        let length = page.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close");
        stream.write_all(format!("{head}\r\n\r\n{page}").as_bytes())
    }

    #[test]
    fn list_is_read_page_by_page_and_one_without_an_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                stream.and_then(answer).expect("it is answered");
            }
        });
        let access = Access {
            server,
            namespace: "jobs".into(),
            authorities: Some(Vec::new()),
            skips_verification: false,
            identity: None,
            bearer: None,
        };
        let client = Client::new(access, Duration::from_secs(60)).expect("a client");
        let found = client.list("/two", "pods").expect("a list");
        assert_eq!(found, (vec![json!(1), json!(2)], "7".to_owned()));
        let error = client.list("/endless?a=b", "pods").expect_err("it has no end");
        assert_eq!(error.text, "pods: more than 200 pages");
    }

    #[test]
    fn refusals_have_the_kind_that_the_caller_acts_by_and_are_one_line() {
        let of = |status: u16, reason: &str, message: &str| {
            let value = json!({"kind": "Status", "reason": reason, "message": message});
            Answer { status, value }.failure("pod")
        };
        let quota = "pods \"a\" is forbidden: exceeded quota: jobs, requested: cpu=8";
        let webhook = "admission webhook \"images.lab\" denied the request: no\nlatest";
        let table = [
            (403, "Forbidden", quota, FailureKind::Quota),
            (403, "Forbidden", "no rights", FailureKind::Refused),
            (400, "BadRequest", webhook, FailureKind::Refused),
            (422, "Invalid", "spec.containers", FailureKind::Refused),
            (401, "Unauthorized", "Unauthorized", FailureKind::Refused),
            (404, "NotFound", "pods \"a\" not found", FailureKind::NotFound),
            (409, "Conflict", "the object has been modified", FailureKind::Unknown),
            (429, "TooManyRequests", "later", FailureKind::Throttled),
            (500, "InternalError", "etcd", FailureKind::Unknown),
        ];
        for (status, reason, message, kind) in table {
            let failed = of(status, reason, message);
            assert_eq!((failed.kind, failed.text.lines().count()), (kind, 1), "{failed}");
            assert!(failed.text.contains(reason), "{failed}");
        }
        assert!(of(502, "", "").text.starts_with("pod: status 502"));
    }
}
