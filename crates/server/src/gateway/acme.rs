//! Certificates by ACME (RFC 8555) for the host names of services: ordered when a service appears, and again when a third of their
//! life is left. The authority proves a name by asking for a text at port 80 of it (HTTP-01).
//!
//! The account's key and the certificates are in a folder of the gateway's, for its user alone.

use super::Gateway;
use super::acme_http::AcmeHttp;
use super::certificate::{Certificates, certified, parse};
use crate::auth::identity::write_private;
use crate::clock;
use crate::error::ServerError;
use axum::Router;
use axum::extract::{Path as PathPart, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount,
    NewOrder, OrderStatus, RetryPolicy,
};
use model::fleet::MAIN_PROJECT;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::ClientConfig;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use x509_parser::prelude::{FromDer, X509Certificate};

/// How often names are compared with certificates.
const LOOK: Duration = Duration::from_secs(2);
/// The most names of one gateway.
const NAMES_MAX: usize = 100;
/// The most orders within a time.
const ORDERS_MAX: usize = 60;
const ORDERS_TIME: Duration = Duration::from_secs(3600);
/// The pause after a name that was refused; it doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// How long the authority may take to prove a name, and to issue.
const PATIENCE: Duration = Duration::from_secs(120);

const FOLDER: &str = "acme";
const ACCOUNT: &str = "account.json";
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/{token}";

pub struct AcmeOptions {
    /// The URL of the authority's directory.
    pub directory: String,
    /// An address for its notices: `mailto:ops@example.org`.
    pub contact: Option<String>,
    /// Whom the authority's own certificate must be of.
    pub tls: Arc<ClientConfig>,
}

/// The texts that prove names at the moment, by their tokens.
#[derive(Clone, Default)]
pub struct Challenges(Arc<Mutex<HashMap<String, String>>>);

impl Challenges {
    fn put(&self, token: &str, text: &str) {
        let mut held = self.0.lock().expect("no panic with the texts held");
        held.insert(token.to_owned(), text.to_owned());
    }

    fn clear(&self) {
        self.0.lock().expect("no panic with the texts held").clear();
    }

    fn get(&self, token: &str) -> Option<String> {
        self.0.lock().expect("no panic with the texts held").get(token).cloned()
    }

    /// What is answered at port 80: the proof of a name, and for all else the way to HTTPS.
    pub fn router(self) -> Router {
        Router::new().route(CHALLENGE_PATH, get(prove)).fallback(to_https).with_state(self)
    }
}

async fn prove(
    State(challenges): State<Challenges>,
    PathPart(token): PathPart<String>,
) -> Response {
    match challenges.get(&token) {
        Some(text) => text.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn to_https(headers: axum::http::HeaderMap, uri: Uri) -> Response {
    let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let place = uri.path_and_query().map_or("/", |place| place.as_str());
    crate::proxy::exchange::redirect(
        StatusCode::PERMANENT_REDIRECT,
        &format!("https://{host}{place}"),
    )
}

/// Sees to it that each name has a certificate.
pub struct AcmeKeeper {
    options: AcmeOptions,
    gateway: Arc<Gateway>,
    certificates: Arc<Certificates>,
    challenges: Challenges,
    dir: PathBuf,
    account: Option<Account>,
    names: HashMap<String, NameState>,
    /// When certificates were ordered lately.
    orders: Vec<Instant>,
}

/// What is known of one name's certificate.
#[derive(Default)]
struct NameState {
    /// When it is to be ordered again, in seconds since 1970; `None` where there is none.
    renew_s: Option<i64>,
    /// After a failure: not before this, and the pause of next time.
    pause: Option<(Instant, Duration)>,
}

impl NameState {
    fn is_due(&self, now_s: i64, now: Instant) -> bool {
        let is_paused = self.pause.is_some_and(|(until, _)| now < until);
        !is_paused && self.renew_s.is_none_or(|renew| renew <= now_s)
    }

    fn failed(&mut self, now: Instant) {
        let pause = self.pause.map_or(FIRST_PAUSE, |(_, last)| (last * 2).min(LONGEST_PAUSE));
        self.pause = Some((now + pause, pause));
    }
}

impl AcmeKeeper {
    /// Reads what was issued before.
    pub fn new(
        options: AcmeOptions,
        gateway: Arc<Gateway>,
        certificates: Arc<Certificates>,
        challenges: Challenges,
        dir: &Path,
    ) -> Result<Self, ServerError> {
        let dir = dir.join(FOLDER);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(ServerError::file(&dir))?;
        let mut keeper = Self {
            options,
            gateway,
            certificates,
            challenges,
            dir,
            account: None,
            names: HashMap::new(),
            orders: Vec::new(),
        };
        let entries = std::fs::read_dir(&keeper.dir).map_err(ServerError::file(&keeper.dir))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.and_then(|name| name.strip_suffix(".pem")).map(str::to_owned);
            let pem = std::fs::read_to_string(&path).ok();
            if let (Some(name), Some(pem)) = (name, pem)
                && let Err(why) = keeper.take(&name, &pem)
            {
                tracing::warn!("{}: {why}", path.display());
            }
        }
        Ok(keeper)
    }

    pub async fn run(mut self) {
        loop {
            let wanted = self.wanted();
            self.forget_all_but(&wanted);
            for name in wanted {
                let state = self.names.entry(name.clone()).or_default();
                if state.is_due(clock::now().secs(), Instant::now()) && self.may_order() {
                    self.renew(&name).await;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether the authority may be asked once more: names that come and go do not use up what it grants a site.
    fn may_order(&mut self) -> bool {
        let now = Instant::now();
        self.orders.retain(|at| now.duration_since(*at) < ORDERS_TIME);
        let may = self.orders.len() < ORDERS_MAX;
        if may {
            self.orders.push(now);
        }
        may
    }

    /// Forgets the names of services that are gone, and their certificates when these are due: a service may come back.
    fn forget_all_but(&mut self, wanted: &BTreeSet<String>) {
        let now_s = clock::now().secs();
        let is_old = |(name, state): &(&String, &NameState)| {
            !wanted.contains(*name) && state.renew_s.is_none_or(|renew| renew <= now_s)
        };
        let gone: Vec<String> =
            self.names.iter().filter(is_old).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.names.remove(&name);
            self.certificates.remove(&name);
            let _ = std::fs::remove_file(self.dir.join(format!("{name}.pem")));
        }
    }

    /// The host names of the services that there are.
    fn wanted(&self) -> BTreeSet<String> {
        let routes = self.gateway.routes();
        let Some(domain) = routes.domain.as_deref() else { return BTreeSet::new() };
        let domain = domain.rsplit_once(':').map_or(domain, |(name, _)| name);
        let names: BTreeSet<String> = routes
            .services()
            .filter_map(|service| host_name(&service.route.project, &service.route.run, domain))
            .collect();
        names.into_iter().take(NAMES_MAX).collect()
    }

    async fn renew(&mut self, name: &str) {
        let issued = match self.account().await {
            Ok(account) => order(&account, name, &self.challenges).await,
            Err(why) => Err(why),
        };
        self.challenges.clear();
        let taken = issued.and_then(|pem| {
            self.take(name, &pem)?;
            let kept = write_private(&self.dir, &format!("{name}.pem"), &pem);
            kept.map_err(|error| error.to_string())
        });
        match taken {
            Ok(()) => tracing::info!(name, "a certificate was issued"),
            Err(why) => {
                let state = self.names.entry(name.to_owned()).or_default();
                state.failed(Instant::now());
                let pause_s = state.pause.map_or(0, |(_, pause)| pause.as_secs());
                tracing::warn!(name, pause_s, "no certificate was issued: {why}");
            }
        }
    }

    /// Shows a certificate from now on.
    fn take(&mut self, name: &str, pem: &str) -> Result<(), String> {
        let (chain, key) = parse(pem.as_bytes())?;
        let first = chain.first().ok_or("no certificate is in it")?;
        let renew_s = renewal(first)?;
        self.certificates.set(name, certified(chain, &key)?);
        self.names.insert(name.to_owned(), NameState { renew_s: Some(renew_s), pause: None });
        Ok(())
    }

    /// The account, from its file or newly made.
    async fn account(&mut self) -> Result<Account, String> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let builder = || Account::builder_with_http(Box::new(AcmeHttp(self.options.tls.clone())));
        let saved = std::fs::read(self.dir.join(ACCOUNT)).ok();
        let saved = saved.and_then(|text| serde_json::from_slice::<AccountCredentials>(&text).ok());
        let account = match saved {
            Some(credentials) => {
                builder().from_credentials(credentials).await.map_err(|e| e.to_string())?
            }
            None => {
                let contact: Vec<&str> = self.options.contact.as_deref().into_iter().collect();
                let new = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let made = builder().create(&new, self.options.directory.clone(), None).await;
                let (account, credentials) = made.map_err(|e| e.to_string())?;
                let text = serde_json::to_string(&credentials).map_err(|e| e.to_string())?;
                write_private(&self.dir, ACCOUNT, &text).map_err(|e| e.to_string())?;
                account
            }
        };
        self.account = Some(account.clone());
        Ok(account)
    }
}

/// `RUN.DOMAIN`, or `RUN.PROJECT.DOMAIN`; `None` for what is no host name.
fn host_name(project: &str, run: &str, domain: &str) -> Option<String> {
    let is_label = |text: &str| {
        let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_inner = !text.starts_with('-') && !text.ends_with('-');
        (1..=63).contains(&text.len()) && is_inner && text.bytes().all(is_good)
    };
    if !is_label(run) || !is_label(project) {
        return None;
    }
    Some(match project {
        MAIN_PROJECT => format!("{run}.{domain}"),
        project => format!("{run}.{project}.{domain}"),
    })
}

/// When a certificate is to be ordered again: when a third of its life is left.
fn renewal(certificate: &[u8]) -> Result<i64, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|e| e.to_string())?;
    let validity = parsed.validity();
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    Ok(end - (end - begin) / 3)
}

/// Has the authority prove a name and issue for it; the key and the chain, as PEM.
async fn order(account: &Account, name: &str, challenges: &Challenges) -> Result<String, String> {
    let text = |error: instant_acme::Error| error.to_string();
    let identifiers = [Identifier::Dns(name.to_owned())];
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await.map_err(text)?;
    let mut authorizations = order.authorizations();
    while let Some(found) = authorizations.next().await {
        let mut authorization = found.map_err(text)?;
        match authorization.status {
            AuthorizationStatus::Pending => {}
            AuthorizationStatus::Valid => continue,
            other => return Err(format!("its authorization is {other:?}")),
        }
        let mut challenge = authorization
            .challenge(ChallengeType::Http01)
            .ok_or("the authority offers no http-01")?;
        challenges.put(&challenge.token, challenge.key_authorization().as_str());
        challenge.set_ready().await.map_err(text)?;
    }
    let patience = RetryPolicy::new().timeout(PATIENCE);
    match order.poll_ready(&patience).await.map_err(text)? {
        OrderStatus::Ready => {}
        other => {
            return Err(format!("the order is {other:?}: is port 80 of {name} this gateway's?"));
        }
    }
    let key = KeyPair::generate().map_err(|e| e.to_string())?;
    let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|e| e.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|e| e.to_string())?;
    order.finalize_csr(request.der()).await.map_err(text)?;
    let chain = order.poll_certificate(&patience).await.map_err(text)?;
    Ok(format!("{}{chain}", key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_have_host_names_where_their_names_are_labels() {
        let name = |project, run| host_name(project, run, "apps.example");
        assert_eq!(name("main", "web").as_deref(), Some("web.apps.example"));
        assert_eq!(name("team", "web-1").as_deref(), Some("web-1.team.apps.example"));
        for (project, run) in [("main", "Web"), ("a_b", "web"), ("main", "-x"), ("main", "")] {
            assert_eq!(name(project, run), None, "{project} {run}");
        }
    }

    #[test]
    fn name_is_due_without_a_certificate_and_when_a_third_of_its_life_is_left() {
        let now = Instant::now();
        let mut state = NameState::default();
        assert!(state.is_due(0, now));
        state.failed(now);
        assert!(!state.is_due(0, now) && state.is_due(0, now + FIRST_PAUSE));
        state.failed(now);
        assert!(!state.is_due(0, now + FIRST_PAUSE), "the pause grows");
        let issued = NameState { renew_s: Some(100), pause: None };
        assert!(!issued.is_due(99, now) && issued.is_due(100, now));
        let mut params = CertificateParams::new(vec!["a".to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 31);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        let day = 24 * 3600;
        let begin = params.not_before.unix_timestamp();
        assert_eq!(renewal(made.der()), Ok(begin + 20 * day));
    }
}
