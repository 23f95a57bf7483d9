//! One request with its timeouts, redirects and bounds. Authorisation goes to the host that it was made for, and to no other.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ureq::http::header::{ACCEPT, AUTHORIZATION, LOCATION, RANGE};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::config::RegistryConfig;
use crate::error::{Error, Result, shown};

const REDIRECTS_MAX: usize = 6;
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Where distributions keep the certificates of the authorities that the machine trusts.
const CA_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

pub struct Http {
    agent: Agent,
    has_authorities: bool,
    small_timeout: Duration,
    insecure: std::collections::BTreeSet<String>,
}

/// What to ask for. The authorisation is dropped when another host is redirected to.
pub struct Ask<'a> {
    pub url: &'a str,
    pub accept: &'a [&'a str],
    pub authorisation: Option<&'a str>,
    /// The first byte that is wanted.
    pub from: u64,
    /// The answer is small, and must be whole in a bounded time; else only each read has a timeout.
    pub small: bool,
}

impl Http {
    pub fn new(config: &RegistryConfig) -> Result<Self> {
        let authorities = authorities(config.ca_file.as_deref())?;
        let has_authorities = !authorities.is_empty();
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&authorities))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        let timeouts = config.timeouts;
        let agent = Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .user_agent("sluice")
            .accept_encoding("identity")
            .max_response_header_size(HEADER_BYTES_MAX)
            .timeout_resolve(Some(timeouts.connect))
            .timeout_connect(Some(timeouts.connect))
            .timeout_recv_response(Some(timeouts.silence))
            .timeout_per_read(Some(timeouts.silence))
            .timeout_per_write(Some(timeouts.silence))
            .build()
            .new_agent();
        let small_timeout = timeouts.connect + timeouts.silence * 2;
        Ok(Self { agent, has_authorities, small_timeout, insecure: config.insecure.clone() })
    }

    pub fn scheme(&self, host: &str) -> &'static str {
        if self.insecure.contains(host) { "http" } else { "https" }
    }

    /// Asks, and follows redirects. The answer may have any other status.
    pub fn ask(&self, ask: &Ask) -> Result<Response<Body>> {
        let first = parse_url(ask.url, ask.url)?;
        let mut url = first.clone();
        for _ in 0..REDIRECTS_MAX {
            let same_host = url.scheme() == first.scheme() && url.authority() == first.authority();
            let response = self.once(ask, &url, ask.authorisation.filter(|_| same_host))?;
            if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let host = host_of(&url);
            let location = response.headers().get(LOCATION).and_then(|l| l.to_str().ok());
            let Some(location) = location else {
                return Err(bad_answer(&host, "a redirect that leads nowhere"));
            };
            let next = join(&url, location)
                .ok_or_else(|| bad_answer(&host, "a redirect to what is no address"))?;
            let downgrade =
                next.scheme_str() != Some("https") && !self.insecure.contains(&host_of(&next));
            if downgrade {
                let to = shown(host_of(&next).as_bytes());
                return Err(bad_answer(
                    &host,
                    &format!(
                        "a redirect to {to} without TLS, which is not among the insecure hosts"
                    ),
                ));
            }
            url = next;
        }
        Err(bad_answer(&host_of(&url), "too many redirects"))
    }

    fn once(&self, ask: &Ask, url: &Uri, authorisation: Option<&str>) -> Result<Response<Body>> {
        let mut request = self.agent.get(url);
        for accept in ask.accept {
            request = request.header(ACCEPT, *accept);
        }
        if let Some(authorisation) = authorisation {
            request = request.header(AUTHORIZATION, authorisation);
        }
        if ask.from > 0 {
            request = request.header(RANGE, format!("bytes={}-", ask.from));
        }
        let request =
            request.config().timeout_global(ask.small.then_some(self.small_timeout)).build();
        request.call().map_err(|error| self.fault(&host_of(url), error))
    }

    /// A failed request as one of our errors. The text of the library's error may hold an address with a signature in it.
    fn fault(&self, registry: &str, error: ureq::Error) -> Error {
        let registry = shown(registry.as_bytes());
        match error {
            ureq::Error::Timeout(which) => match which {
                ureq::Timeout::Resolve | ureq::Timeout::Connect => {
                    Error::Unreachable { registry, fault: "no connection in time".into() }
                }
                _ => Error::Hangs { registry, fault: "no byte came in time".into() },
            },
            ureq::Error::HostNotFound => {
                Error::Unreachable { registry, fault: "no such host".into() }
            }
            ureq::Error::Rustls(e) => self.tls_fault(registry, &e),
            ureq::Error::Io(e) => match e.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>())
            {
                Some(e) => self.tls_fault(registry, e),
                None => io_fault(registry, &e),
            },
            ureq::Error::ConnectionFailed => {
                Error::Unreachable { registry, fault: "the connection failed".into() }
            }
            ureq::Error::Protocol(e) => {
                Error::BadAnswer { registry, fault: shown(e.to_string().as_bytes()) }
            }
            _ => Error::BadAnswer { registry, fault: "it does not speak HTTP as it should".into() },
        }
    }

    fn tls_fault(&self, registry: String, error: &rustls::Error) -> Error {
        let fault = match error {
            rustls::Error::InvalidCertificate(_) if !self.has_authorities => {
                "this machine has no certificates of authorities; install ca-certificates".into()
            }
            rustls::Error::InvalidCertificate(_) => {
                format!(
                    "TLS: {error}; the file of its authority can be given in the node's configuration"
                )
            }
            rustls::Error::InvalidMessage(_) => {
                "it does not speak TLS; a registry with plain HTTP must be listed as insecure"
                    .into()
            }
            _ => format!("TLS: {}", shown(error.to_string().as_bytes())),
        };
        Error::Unreachable { registry, fault }
    }
}

pub fn io_fault(registry: String, e: &std::io::Error) -> Error {
    let timed_out = e.kind() == std::io::ErrorKind::TimedOut
        || e.get_ref()
            .and_then(|e| e.downcast_ref::<ureq::Error>())
            .is_some_and(|e| matches!(e, ureq::Error::Timeout(_)));
    if timed_out {
        return Error::Hangs { registry, fault: "no byte came in time".into() };
    }
    Error::Unreachable { registry, fault: shown(e.to_string().as_bytes()) }
}

pub fn bad_answer(registry: &str, fault: &str) -> Error {
    Error::BadAnswer { registry: shown(registry.as_bytes()), fault: fault.to_owned() }
}

fn parse_url(url: &str, registry: &str) -> Result<Uri> {
    url.parse().map_err(|_| bad_answer(registry, "an address that is none"))
}

/// `HOST[:PORT]` of an address.
pub fn host_of(url: &Uri) -> String {
    let host = url.host().unwrap_or_default();
    url.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A `Location` as seen from the address that gave it.
fn join(base: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = if location.contains("://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        return None;
    };
    let url: Uri = text.split('#').next()?.parse().ok()?;
    let http = matches!(url.scheme_str(), Some("http" | "https"));
    let plain = url.authority().is_some_and(|a| !a.as_str().contains('@'));
    (http && plain).then_some(url)
}

/// Reads a body of at most `max` bytes.
pub fn read_bounded(
    registry: &str,
    what: &str,
    response: Response<Body>,
    max: u64,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reader = response.into_body().into_reader();
    reader
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| io_fault(shown(registry.as_bytes()), &e))?;
    if bytes.len() as u64 > max {
        return Err(bad_answer(registry, &format!("{what} has more than {max} bytes")));
    }
    Ok(bytes)
}

/// The certificates of the authorities that this machine trusts, as PEM; `None` if it has none.
pub fn machine_authorities() -> Option<Vec<u8>> {
    CA_BUNDLES.iter().find_map(|path| std::fs::read(path).ok())
}

fn authorities(extra: Option<&Path>) -> Result<Vec<Certificate<'static>>> {
    let mut found = Vec::new();
    if let Some(pem) = machine_authorities() {
        found.extend(certificates(&pem));
    }
    if let Some(path) = extra {
        let pem = std::fs::read(path).map_err(Error::at(path))?;
        let before = found.len();
        found.extend(certificates(&pem));
        if found.len() == before {
            let none = std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "there is no certificate (PEM) in it",
            );
            return Err(Error::at(path)(none));
        }
    }
    Ok(found)
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    ureq::tls::parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_is_read_from_where_it_was_given() {
        let base: Uri = "https://a.org:5000/v2/x/blobs/y".parse().unwrap();
        for (location, joined) in [
            ("https://b.org/y?sig=1", Some("https://b.org/y?sig=1")),
            ("/z", Some("https://a.org:5000/z")),
            ("//c.org/z", Some("https://c.org/z")),
            ("z", None),
            ("file:///etc/shadow", None),
            ("https://me@b.org/", None),
        ] {
            assert_eq!(
                join(&base, location).map(|u| u.to_string()).as_deref(),
                joined,
                "{location}"
            );
        }
    }
}
