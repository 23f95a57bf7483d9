//! Manifests and configurations of one image, over its mirrors and its registry.

use std::cell::RefCell;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use ureq::Body;
use ureq::http::Response;
use ureq::http::header::WWW_AUTHENTICATE;

use super::challenge::{Challenge, basic, token};
use super::config::{Credentials, RegistryConfig, Timeouts};
use super::http::{Ask, Http, bad_answer, read_bounded};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{
    DOCKER_LIST, DOCKER_MANIFEST, Descriptor, MANIFEST_BYTES_MAX, OCI_INDEX, OCI_MANIFEST,
};
use crate::reference::{Reference, Version};

const ACCEPT: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST];
/// How often something is asked that failed for a reason that may pass, and the pause before the second time.
const TRIES_MAX: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// How much of an answer is wanted.
#[derive(Clone, Copy)]
pub(super) enum Extent {
    /// All of it, which is little.
    Small,
    /// All from this byte on.
    From(u64),
}

/// A host that has the image: the registry itself, or a mirror of it.
pub(super) struct Endpoint {
    pub host: String,
    scheme: &'static str,
    credentials: Option<Credentials>,
    /// The header that this endpoint accepted last.
    authorisation: Mutex<Option<String>>,
}

pub struct Client {
    pub(super) http: Http,
    pub(super) timeouts: Timeouts,
    pub(super) endpoints: Vec<Endpoint>,
    reference: Reference,
}

/// A manifest as it came, with its digest checked.
pub struct Found {
    pub digest: Digest,
    pub bytes: Vec<u8>,
    /// Credentials were needed for it.
    pub private: bool,
}

impl Client {
    pub fn new(
        config: &RegistryConfig,
        reference: &Reference,
        credentials: Option<Credentials>,
    ) -> Result<Self> {
        let http = Http::new(config)?;
        let endpoint = |host: &str, credentials| Endpoint {
            host: host.to_owned(),
            scheme: http.scheme(host),
            credentials,
            authorisation: Mutex::new(None),
        };
        let mirrors =
            config.mirrors.get(&reference.registry).map(Vec::as_slice).unwrap_or_default();
        let mut endpoints: Vec<_> = mirrors.iter().map(|host| endpoint(host, None)).collect();
        // Docker Hub's registry has another name than Docker Hub.
        let host = if reference.registry == "docker.io" {
            "registry-1.docker.io"
        } else {
            &reference.registry
        };
        endpoints.push(endpoint(host, credentials));
        Ok(Self { http, timeouts: config.timeouts, endpoints, reference: reference.clone() })
    }

    /// The manifest or index that the reference names.
    pub fn manifest(&self) -> Result<Found> {
        match &self.reference.version {
            Version::Tag(tag) => self.manifest_named(tag, None),
            Version::Digest(digest) => self.manifest_by(digest),
        }
    }

    pub fn manifest_by(&self, digest: &Digest) -> Result<Found> {
        self.manifest_named(digest.as_str(), Some(digest))
    }

    fn manifest_named(&self, name: &str, expected: Option<&Digest>) -> Result<Found> {
        let path = format!("manifests/{name}");
        self.over_endpoints(|endpoint| {
            let response = self.get(endpoint, &path, &ACCEPT, Extent::Small)?;
            let bytes = read_bounded(&endpoint.host, "the manifest", response, MANIFEST_BYTES_MAX)?;
            let digest = Digest::of(&bytes);
            check_digest(&format!("the manifest of {}", self.reference), expected, &digest)?;
            Ok(Found { digest, bytes, private: endpoint.is_signed_in() })
        })
    }

    /// A small blob, as the image's configuration is.
    pub fn small_blob(&self, what: &str, descriptor: &Descriptor) -> Result<Vec<u8>> {
        let path = format!("blobs/{}", descriptor.digest);
        self.over_endpoints(|endpoint| {
            let response = self.get(endpoint, &path, &[], Extent::Small)?;
            let bytes = read_bounded(&endpoint.host, what, response, descriptor.size)?;
            if (bytes.len() as u64) < descriptor.size {
                return Err(Error::Truncated {
                    what: what.to_owned(),
                    expected: descriptor.size,
                    found: bytes.len() as u64,
                });
            }
            check_digest(what, Some(&descriptor.digest), &Digest::of(&bytes))?;
            Ok(bytes)
        })
    }

    /// Tries the mirrors in order, then the registry, whose error is the one that counts.
    pub(super) fn over_endpoints<T>(&self, call: impl Fn(&Endpoint) -> Result<T>) -> Result<T> {
        let last = RefCell::new(None);
        for (at, endpoint) in self.endpoints.iter().enumerate() {
            let is_mirror = at + 1 < self.endpoints.len();
            let tries = if is_mirror { 1 } else { TRIES_MAX };
            let mut pause = FIRST_PAUSE;
            for turn in 1..=tries {
                match call(endpoint) {
                    Ok(found) => return Ok(found),
                    Err(error) => {
                        let again = error.is_transient() && turn < tries;
                        last.replace(Some(error));
                        if !again {
                            break;
                        }
                    }
                }
                sleep(pause);
                pause *= 4;
            }
        }
        Err(last
            .into_inner()
            .unwrap_or_else(|| bad_answer(&self.reference.registry, "there is no endpoint")))
    }

    /// Gets `/v2/REPOSITORY/PATH`, signing in when the endpoint asks for it. The answer has status 200 or 206.
    pub(super) fn get(
        &self,
        endpoint: &Endpoint,
        path: &str,
        accept: &[&str],
        extent: Extent,
    ) -> Result<Response<Body>> {
        let (from, small) = match extent {
            Extent::Small => (0, true),
            Extent::From(from) => (from, false),
        };
        let url = format!(
            "{}://{}/v2/{}/{path}",
            endpoint.scheme, endpoint.host, self.reference.repository
        );
        let ask = |authorisation: Option<&str>| {
            self.http.ask(&Ask { url: &url, accept, authorisation, from, small })
        };
        let known = endpoint.known_authorisation();
        let mut response = ask(known.as_deref())?;
        if response.status() == 401 {
            let authorisation = self.sign_in(endpoint, &response)?;
            response = ask(Some(&authorisation))?;
            if response.status().is_success() {
                endpoint.remember(authorisation);
            }
        }
        let status = response.status().as_u16();
        match status {
            200 | 206 => Ok(response),
            401 | 403 => Err(self.unauthorised(endpoint)),
            404 => Err(Error::NotFound {
                what: self.reference.to_string(),
                place: endpoint.host.clone(),
            }),
            416 => Err(Error::Truncated { what: path.to_owned(), expected: from, found: 0 }),
            429 => {
                Err(bad_answer(&endpoint.host, "too many requests; sign in, or try again later"))
            }
            _ => Err(bad_answer(&endpoint.host, &format!("status {status}"))),
        }
    }

    fn sign_in(&self, endpoint: &Endpoint, refusal: &Response<Body>) -> Result<String> {
        let challenges = refusal.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenge = challenges.filter_map(|h| h.to_str().ok()).find_map(Challenge::parse);
        match (challenge, &endpoint.credentials) {
            (Some(Challenge::Basic), Some(credentials)) => Ok(basic(credentials)),
            (Some(Challenge::Bearer { realm, service }), credentials) => {
                let challenge = (realm.as_str(), service.as_deref());
                token(
                    &self.http,
                    &endpoint.host,
                    &self.reference.repository,
                    challenge,
                    credentials.as_ref(),
                )
            }
            _ => Err(self.unauthorised(endpoint)),
        }
    }

    fn unauthorised(&self, endpoint: &Endpoint) -> Error {
        let signed_in = endpoint.credentials.is_some();
        Error::Unauthorised {
            what: self.reference.to_string(),
            registry: endpoint.host.clone(),
            signed_in,
        }
    }
}

impl Endpoint {
    fn known_authorisation(&self) -> Option<String> {
        self.authorisation.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn remember(&self, authorisation: String) {
        *self.authorisation.lock().unwrap_or_else(|e| e.into_inner()) = Some(authorisation);
    }

    /// Credentials were given, and the endpoint wanted to see who asks. An image that anybody may have can be counted as
    /// private by this, which costs its next user one question at the registry.
    fn is_signed_in(&self) -> bool {
        self.credentials.is_some() && self.known_authorisation().is_some()
    }
}

pub(super) fn check_digest(what: &str, expected: Option<&Digest>, found: &Digest) -> Result<()> {
    match expected {
        Some(expected) if expected != found => Err(Error::DigestMismatch {
            what: what.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
        }),
        _ => Ok(()),
    }
}
