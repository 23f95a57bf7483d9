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
use crate::show::service_address::is_label;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount,
    NewOrder, OrderStatus, RetryPolicy,
};
use model::fleet::MAIN_PROJECT;
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls::ClientConfig;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wire::gateway::ServiceRoute;
use x509_parser::prelude::{FromDer, X509Certificate};

/// How often names are compared with certificates.
const LOOK: Duration = Duration::from_secs(2);
/// The most names of one gateway, and of one project: anybody may start services, and nobody takes the places of all others.
const NAMES_MAX: usize = 100;
const NAMES_OF_PROJECT_MAX: usize = 25;
/// The most orders within a time.
const ORDERS_MAX: usize = 60;
const ORDERS_TIME: Duration = Duration::from_secs(3600);
/// The most certificates for names that had none within a week, and of one project: authorities grant a site so many (Let's Encrypt
/// fifty), and renewals beside them.
const ISSUED_MAX: usize = 45;
const ISSUED_OF_PROJECT_MAX: usize = 15;
const ISSUED_TIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// The pause after a name that was refused; it doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(6 * 3600);
/// How long the authority may take to prove a name, and to issue.
const PATIENCE: Duration = Duration::from_secs(120);

const FOLDER: &str = "acme";
const ACCOUNT: &str = "account.json";

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

    /// What the authority is answered.
    pub fn get(&self, token: &str) -> Option<String> {
        self.0.lock().expect("no panic with the texts held").get(token).cloned()
    }
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
    orders: Orders,
}

/// The host name of a service.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceHost {
    name: String,
    project: String,
    /// A replica of it is ready.
    is_ready: bool,
}

impl ServiceHost {
    /// `None` for a service that has no host name, or does without HTTPS.
    fn of(route: &ServiceRoute, domain: &str) -> Option<Self> {
        let ServiceRoute { project, run, is_ready, https, .. } = route;
        let name = host_name(project, run, domain).filter(|_| !https.is_plain(true))?;
        Some(Self { name, project: project.clone(), is_ready: *is_ready })
    }
}

/// Which names have a certificate, or get one: those that have one first, then in turns by project, those with fewer before. A
/// service that never was ready gets none.
fn chosen(mut all: Vec<ServiceHost>, has_one: impl Fn(&str) -> bool) -> Vec<ServiceHost> {
    all.sort();
    let (held, new): (Vec<_>, Vec<_>) = all.into_iter().partition(|one| has_one(&one.name));
    let mut chosen: Vec<ServiceHost> = held.into_iter().take(NAMES_MAX).collect();
    let mut of_project: HashMap<String, usize> = HashMap::new();
    for one in &chosen {
        *of_project.entry(one.project.clone()).or_default() += 1;
    }
    let mut waiting: Vec<(usize, ServiceHost)> = Vec::new();
    for one in new.into_iter().filter(|one| one.is_ready) {
        let turn = of_project.entry(one.project.clone()).or_default();
        *turn += 1;
        if *turn <= NAMES_OF_PROJECT_MAX {
            waiting.push((*turn, one));
        }
    }
    waiting.sort();
    let room = NAMES_MAX - chosen.len();
    chosen.extend(waiting.into_iter().take(room).map(|(_, one)| one));
    chosen
}

/// What the authority was asked for lately.
#[derive(Default)]
struct Orders {
    /// When certificates were ordered.
    ordered: Vec<Instant>,
    /// When names that had no certificate got one, and of which projects.
    issued: Vec<(Instant, String)>,
}

impl Orders {
    /// Whether the authority may be asked once more: names that come and go do not use up what it grants a site, nor one project
    /// the part of all others.
    fn admit(&mut self, project: &str, is_renewal: bool, now: Instant) -> bool {
        self.ordered.retain(|at| now.saturating_duration_since(*at) < ORDERS_TIME);
        self.issued.retain(|(at, _)| now.saturating_duration_since(*at) < ISSUED_TIME);
        let of_project = self.issued.iter().filter(|(_, of)| of == project).count();
        let is_within = self.issued.len() < ISSUED_MAX && of_project < ISSUED_OF_PROJECT_MAX;
        let may = self.ordered.len() < ORDERS_MAX && (is_renewal || is_within);
        if may {
            self.ordered.push(now);
        }
        may
    }

    fn note_issued(&mut self, project: &str, now: Instant) {
        self.issued.push((now, project.to_owned()));
    }
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
            orders: Orders::default(),
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
            for ServiceHost { name, project, .. } in wanted {
                let now = Instant::now();
                let state = self.names.entry(name.clone()).or_default();
                let is_renewal = state.renew_s.is_some();
                if !state.is_due(clock::now().secs(), now)
                    || !self.orders.admit(&project, is_renewal, now)
                {
                    continue;
                }
                let is_issued = self.renew(&name).await;
                if is_issued && !is_renewal {
                    self.orders.note_issued(&project, Instant::now());
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Forgets the names of services that are gone, and their certificates when these are due: a service may come back.
    fn forget_all_but(&mut self, wanted: &[ServiceHost]) {
        let now_s = clock::now().secs();
        let wanted: HashSet<&str> = wanted.iter().map(|one| one.name.as_str()).collect();
        let is_old = |(name, state): &(&String, &NameState)| {
            !wanted.contains(name.as_str()) && state.renew_s.is_none_or(|renew| renew <= now_s)
        };
        let gone: Vec<String> =
            self.names.iter().filter(is_old).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.names.remove(&name);
            self.certificates.remove(&name);
            let _ = std::fs::remove_file(self.dir.join(format!("{name}.pem")));
        }
    }

    /// The host names of services that have a certificate or get one.
    fn wanted(&self) -> Vec<ServiceHost> {
        let routes = self.gateway.routes();
        let Some(domain) = routes.domain.as_deref() else { return Vec::new() };
        let domain = domain.rsplit_once(':').map_or(domain, |(name, _)| name);
        let of_route = |route: &ServiceRoute| ServiceHost::of(route, domain);
        let all = routes.services().filter_map(|service| of_route(&service.route)).collect();
        chosen(all, |name| self.names.get(name).is_some_and(|known| known.renew_s.is_some()))
    }

    /// Whether the name has a new certificate.
    async fn renew(&mut self, name: &str) -> bool {
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
            Ok(()) => {
                tracing::info!(name, "a certificate was issued");
                true
            }
            Err(why) => {
                let state = self.names.entry(name.to_owned()).or_default();
                state.failed(Instant::now());
                let pause_s = state.pause.map_or(0, |(_, pause)| pause.as_secs());
                tracing::warn!(name, pause_s, "no certificate was issued: {why}");
                false
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
    use model::publication::HttpsChoice;

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
    fn certificate_is_ordered_for_services_with_https_alone() {
        for (https, expected) in [
            (HttpsChoice::Auto, Some("web.apps.example")),
            (HttpsChoice::On, Some("web.apps.example")),
            (HttpsChoice::Off, None),
        ] {
            let route = ServiceRoute {
                project: "main".into(),
                run: "web".into(),
                auth: true,
                strip_prefix: true,
                https,
                is_ready: true,
                rate_limits: Vec::new(),
                replicas: Vec::new(),
            };
            let host = ServiceHost::of(&route, "apps.example").map(|host| host.name);
            assert_eq!(host.as_deref(), expected, "{https:?}");
        }
    }

    #[test]
    fn certificates_go_to_who_has_one_and_then_to_projects_in_turns() {
        let host = |project: &str, number: usize| ServiceHost {
            name: format!("{project}-{number:03}.apps.example"),
            project: project.to_owned(),
            is_ready: true,
        };
        let mut all: Vec<ServiceHost> = (0..200).map(|number| host("greedy", number)).collect();
        all.extend([host("team", 0), host("team", 1), host("zoo", 0)]);
        all.push(ServiceHost { is_ready: false, ..host("zoo", 1) });
        let held = "zoo-000.apps.example";
        let found = chosen(all, |name| name == held);
        let label = |one: &ServiceHost| one.name.replace(".apps.example", "");
        let names: Vec<String> = found.iter().map(label).collect();
        assert_eq!(names[..5], ["zoo-000", "greedy-000", "team-000", "greedy-001", "team-001"]);
        assert_eq!(names.len(), NAMES_OF_PROJECT_MAX + 3, "a project has its part alone");
        assert!(!names.contains(&"zoo-001".to_owned()), "nothing of it was ready");
    }

    #[test]
    fn orders_are_bounded_by_hour_by_week_and_by_project() {
        let (mut orders, now) = (Orders::default(), Instant::now());
        for _ in 0..ISSUED_OF_PROJECT_MAX {
            assert!(orders.admit("greedy", false, now));
            orders.note_issued("greedy", now);
        }
        assert!(!orders.admit("greedy", false, now), "its part of the week");
        assert!(orders.admit("greedy", true, now), "a renewal takes nobody's place");
        assert!(orders.admit("team", false, now));
        while orders.ordered.len() < ORDERS_MAX {
            assert!(orders.admit("team", true, now));
        }
        assert!(!orders.admit("team", true, now), "so many an hour");
        assert!(orders.admit("team", true, now + ORDERS_TIME));
        assert!(!orders.admit("greedy", false, now + ORDERS_TIME));
        assert!(orders.admit("greedy", false, now + ISSUED_TIME));
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
