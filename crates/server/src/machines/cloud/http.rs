//! HTTP to a cloud's API: one request within a time, one answer within a size. What the library says of a failed request is told
//! in words of ours, because an address may hold a key.

use super::super::source::SourceError;
use model::cloud_source::CloudConfig;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// The most bytes of an answer: a thousand machines are about five million.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
const HEADER_BYTES_MAX: usize = 64 << 10;

pub struct Http {
    agent: Agent,
}

/// A request. Its headers may hold secrets, and are not logged.
pub struct Request<'a> {
    pub method: &'a str,
    pub url: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Option<&'a [u8]>,
}

/// An answer of any status.
pub struct Reply {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> Result<&str, SourceError> {
        let wrong = |_| SourceError::unknown("the answer is no UTF-8 text");
        std::str::from_utf8(&self.body).map_err(wrong)
    }
}

impl Http {
    /// Calls of a cloud's API, each within a time. A proxy of the server's environment is used for the cloud's public address;
    /// one that the site names is reached directly.
    pub fn new(cloud: &CloudConfig, limit: Duration) -> Self {
        if cloud.endpoint.is_some() {
            return Self::direct(limit);
        }
        Self { agent: config(limit).build().new_agent() }
    }

    /// Calls that no proxy may see, as those of the machine's own metadata service.
    pub fn direct(limit: Duration) -> Self {
        Self { agent: config(limit).proxy(None).build().new_agent() }
    }

    pub fn send(&self, request: &Request<'_>) -> Result<Reply, SourceError> {
        let host = host_of(request.url);
        let mut builder = ureq::http::Request::builder().method(request.method).uri(request.url);
        for (name, value) in request.headers {
            builder = builder.header(*name, *value);
        }
        let wrong = |_| SourceError::refused(format!("{host}: the request cannot be written"));
        let answer = match request.body {
            Some(body) => self.agent.run(builder.body(body).map_err(wrong)?),
            None => self.agent.run(builder.body(()).map_err(wrong)?),
        };
        let answer = answer.map_err(|error| fault(&host, &error))?;
        let status = answer.status().as_u16();
        Ok(Reply { status, body: read(&host, answer.into_body())? })
    }
}

fn config(limit: Duration) -> ureq::config::ConfigBuilder<ureq::typestate::AgentScope> {
    let authorities = image::machine_authorities().unwrap_or_default();
    let authorities: Vec<Certificate<'static>> = ureq::tls::parse_pem(&authorities)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&authorities))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent("sluice")
        .accept_encoding("identity")
        .max_response_header_size(HEADER_BYTES_MAX)
        .timeout_global(Some(limit))
}

fn read(host: &str, body: Body) -> Result<Vec<u8>, SourceError> {
    let mut bytes = Vec::new();
    let read = body.into_reader().take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.is_err() {
        return Err(SourceError::unknown(format!("{host}: the answer broke off")));
    }
    if bytes.len() as u64 > ANSWER_BYTES_MAX {
        let text = format!("{host}: the answer has more than {ANSWER_BYTES_MAX} bytes");
        return Err(SourceError::unknown(text));
    }
    Ok(bytes)
}

/// `HOST[:PORT]` of an address.
pub fn host_of(url: &str) -> String {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::authority).map(ToString::to_string);
    host.unwrap_or_else(|| "an address that is none".to_owned())
}

fn fault(host: &str, error: &ureq::Error) -> SourceError {
    let what = match error {
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::HostNotFound => "no such host: is the region one that there is?",
        ureq::Error::ConnectionFailed => "no connection",
        ureq::Error::Rustls(_) => "its certificate is not accepted here",
        ureq::Error::Io(error) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "the connection is refused",
            std::io::ErrorKind::TimedOut => "no answer in time",
            _ => "the connection broke off",
        },
        _ => "the answer is no HTTP",
    };
    SourceError::unknown(format!("{host}: {what}"))
}
