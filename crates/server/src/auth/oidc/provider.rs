//! The identity provider over HTTP: what it says of itself, its keys, and the exchange of a code for a token. Blocking: it is asked
//! in a thread of its own.

use super::OidcError;
use super::id_token::Jwk;
use super::url::encoded;
use crate::configure::is_safe_address;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use cluster::config::OidcConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig};
use ureq::{Agent, Body};

/// How long what the provider says of itself is not asked for again, and how long at least, where a key is missing in it.
const FRESH: Duration = Duration::from_secs(600);
const RETRY: Duration = Duration::from_secs(10);

/// For one question, from beginning to end.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The largest answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

const SECRET_BYTES_MAX: u64 = 4096;

/// Where a provider describes itself, below its own address.
const DISCOVERY: &str = "/.well-known/openid-configuration";

#[derive(Debug, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
}

#[derive(Debug, Deserialize)]
struct Keys {
    /// Keys of kinds that are not known are left out.
    keys: Vec<serde_json::Value>,
}

#[derive(Debug, Deserialize)]
struct Tokens {
    id_token: String,
}

/// A provider as it was found.
pub struct Provider {
    issuer: String,
    pub authorization_endpoint: String,
    token_endpoint: String,
    pub keys: Vec<Jwk>,
    found: Instant,
}

/// The provider that was asked last.
#[derive(Default)]
pub struct ProviderCache(Mutex<LastAsked>);

#[derive(Default)]
struct LastAsked {
    found: Option<Arc<Provider>>,
    /// When it could not be found, and which it was.
    failed: Option<(String, Instant)>,
}

impl ProviderCache {
    /// The provider, as it was found lately.
    pub fn get(&self, config: &OidcConfig) -> Result<Arc<Provider>, OidcError> {
        self.no_older_than(config, FRESH)
    }

    /// The same with its newest keys: it may have changed them.
    pub fn renewed(&self, config: &OidcConfig) -> Result<Arc<Provider>, OidcError> {
        self.no_older_than(config, RETRY)
    }

    fn no_older_than(
        &self,
        config: &OidcConfig,
        age: Duration,
    ) -> Result<Arc<Provider>, OidcError> {
        let is_good =
            |known: &&Arc<Provider>| known.issuer == config.issuer && known.found.elapsed() < age;
        let is_lost =
            |(issuer, at): &(String, Instant)| *issuer == config.issuer && at.elapsed() < RETRY;
        {
            let last = self.last();
            if let Some(known) = last.found.as_ref().filter(is_good) {
                return Ok(known.clone());
            }
            // A provider that did not answer is left alone for a moment: browsers that sign in would ask it all the while.
            if last.failed.as_ref().is_some_and(is_lost) {
                return Err(OidcError::Unreachable("it was not a moment ago".into()));
            }
        }
        let found = find(config);
        let mut last = self.last();
        match found {
            Ok(found) => {
                let found = Arc::new(found);
                *last = LastAsked { found: Some(found.clone()), failed: None };
                Ok(found)
            }
            Err(error) => {
                last.failed = Some((config.issuer.clone(), Instant::now()));
                Err(error)
            }
        }
    }

    fn last(&self) -> MutexGuard<'_, LastAsked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(config: &OidcConfig) -> Result<Provider, OidcError> {
    let agent = agent(config)?;
    let about: Metadata =
        get(&agent, &format!("{}{DISCOVERY}", config.issuer.trim_end_matches('/')))?;
    if about.issuer != config.issuer {
        return Err(OidcError::Answer("it names another issuer".into()));
    }
    let endpoints = [&about.authorization_endpoint, &about.token_endpoint, &about.jwks_uri];
    if !endpoints.into_iter().all(|address| is_safe_address(address)) {
        return Err(OidcError::Answer("it names an address without TLS".into()));
    }
    let keys: Keys = get(&agent, &about.jwks_uri)?;
    let keys = keys.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok());
    Ok(Provider {
        issuer: about.issuer,
        authorization_endpoint: about.authorization_endpoint,
        token_endpoint: about.token_endpoint,
        keys: keys.collect(),
        found: Instant::now(),
    })
}

/// The identity token for a code that a browser brought.
pub fn exchange(
    config: &OidcConfig,
    provider: &Provider,
    code: &str,
    verifier: &str,
) -> Result<String, OidcError> {
    let mut request = agent(config)?.post(&provider.token_endpoint);
    if let Some(path) = &config.secret_file {
        let pair = format!("{}:{}", encoded(&config.client_id), encoded(&secret(path)?));
        request = request.header("authorization", format!("Basic {}", BASE64.encode(pair)));
    }
    let form = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", config.redirect_url.as_str()),
        ("client_id", config.client_id.as_str()),
        ("code_verifier", verifier),
    ];
    let answered = request.send_form(form).map_err(|error| not_reached(&error))?;
    Ok(read::<Tokens>(answered)?.id_token)
}

fn secret(path: &str) -> Result<String, OidcError> {
    let failed = |error: std::io::Error| OidcError::Secret(error.to_string());
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut text = String::new();
    file.take(SECRET_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text.trim().to_owned())
}

/// Redirects are not followed: an address of the provider is where it says, or nowhere.
fn agent(config: &OidcConfig) -> Result<Agent, OidcError> {
    let extra = config.authorities.as_ref().map(|path| std::fs::read(Path::new(path))).transpose();
    let extra = extra.map_err(|error| OidcError::Unreachable(error.to_string()))?;
    let own = image::machine_authorities();
    let certificates: Vec<Certificate<'static>> =
        own.iter().chain(&extra).flat_map(|pem| certificates(pem)).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let built = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .user_agent("sluice")
        .timeout_global(Some(TIMEOUT))
        .build();
    Ok(built.new_agent())
}

fn certificates(pem: &[u8]) -> Vec<Certificate<'static>> {
    ureq::tls::parse_pem(pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect()
}

fn get<T: DeserializeOwned>(agent: &Agent, address: &str) -> Result<T, OidcError> {
    read(agent.get(address).call().map_err(|error| not_reached(&error))?)
}

fn read<T: DeserializeOwned>(response: Response<Body>) -> Result<T, OidcError> {
    if response.status().as_u16() != 200 {
        return Err(OidcError::Status(response.status().as_u16()));
    }
    let mut bytes = Vec::new();
    let reader = response.into_body().into_reader();
    let unread = |error: std::io::Error| OidcError::Answer(error.to_string());
    reader.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes).map_err(unread)?;
    serde_json::from_slice(&bytes).map_err(|error| OidcError::Answer(error.to_string()))
}

fn not_reached(error: &ureq::Error) -> OidcError {
    OidcError::Unreachable(error.to_string())
}
