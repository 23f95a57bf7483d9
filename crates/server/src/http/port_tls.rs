//! TLS on the clients' port: the certificate that the server shows there, and when it is read or made again.

use crate::auth::identity::{self, Identity};
use crate::error::ServerError;
use crate::shared::Shared;
use crate::show::service_address::certified_projects;
use cluster::{CertificateFiles, ClusterConfig};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// How often the certificate is compared with its files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Names that the certificate has beside those of the machine: connections from it may speak TLS too.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What the certificate was made from. It is made again when this changes.
#[derive(Debug, PartialEq, Eq)]
enum CertificateSource {
    /// The cluster's own authority certifies these names.
    Authority { names: Vec<String> },
    /// Files of the site, as they were when they were read.
    Files { files: CertificateFiles, stamps: [Option<FileStamp>; 2] },
}

/// Tells a file from the one that was there before.
#[derive(Debug, PartialEq, Eq)]
pub struct FileStamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl FileStamp {
    pub fn of(path: &str) -> Option<Self> {
        let found = std::fs::metadata(path).ok()?;
        let changed = (found.ctime(), found.ctime_nsec());
        Some(Self { inode: found.ino(), bytes: found.len(), changed })
    }
}

/// What the configuration says of the certificate.
struct CertificateSettings {
    files: Option<CertificateFiles>,
    addresses: Vec<String>,
    /// Hosts without a port.
    controllers: Vec<String>,
    /// The domain of the host names of services, without a port.
    domain: Option<String>,
    /// Projects whose services have names below their own: `RUN.PROJECT.DOMAIN`.
    projects: Vec<String>,
}

impl CertificateSettings {
    fn of(config: &ClusterConfig) -> Self {
        Self {
            files: config.server_certificate.clone(),
            addresses: config.server_addresses.clone(),
            controllers: config.controllers.clone(),
            domain: config.proxy.domain.as_ref().map(|domain| host_of(domain).to_owned()),
            projects: Vec::new(),
        }
    }

    /// A wildcard stands for one label alone: each project has one of its own.
    fn with_projects<'a>(mut self, projects: impl Iterator<Item = &'a str>) -> Self {
        self.projects = projects.map(str::to_owned).collect();
        self
    }

    /// The names of services in the certificate.
    fn service_names(&self) -> Vec<String> {
        let Some(domain) = &self.domain else { return Vec::new() };
        let of_projects = self.projects.iter().map(|project| format!("*.{project}.{domain}"));
        of_projects.chain([format!("*.{domain}")]).collect()
    }
}

struct LoadedCertificate {
    acceptor: TlsAcceptor,
    /// The fingerprint of the authority at the end of the chain, if the chain has one.
    authority: Option<String>,
}

impl CertificateSource {
    fn now(settings: CertificateSettings, machine_names: &[String]) -> Self {
        let services = settings.service_names();
        if let Some(files) = settings.files {
            let stamps = [&files.certificate, &files.key].map(|path| FileStamp::of(path));
            return Self::Files { files, stamps };
        }
        let addresses = settings.addresses.iter().map(|address| host_of(address));
        let hosts = settings.controllers.iter().chain(&services);
        let configured = addresses.chain(hosts.map(String::as_str));
        let machine = machine_names.iter().map(|name| name.as_str());
        let mut names: Vec<String> =
            configured.chain(machine).chain(LOOPBACK_NAMES).map(str::to_owned).collect();
        names.retain(|name| !name.is_empty() && name.is_ascii());
        names.sort();
        names.dedup();
        Self::Authority { names }
    }

    fn load(&self, identity: &Identity) -> Result<LoadedCertificate, ServerError> {
        let (chain, key) = match self {
            Self::Authority { names } => identity.certify_names(names)?,
            Self::Files { files, .. } => (read_chain(&files.certificate)?, read_key(&files.key)?),
        };
        // The first is the server's own: `sluice login` remembers the last of those after it.
        let authority = chain[1..].last().map(|last| identity::fingerprint(last));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let wrong = |e: rustls::Error| match self {
            Self::Authority { .. } => ServerError::Identity(e.to_string()),
            Self::Files { files, .. } => {
                let text = format!("{} with {}: {e}", files.certificate, files.key);
                ServerError::Configuration(text)
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(wrong)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(wrong)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A command makes one connection: it has no use for the ticket of a session.
        config.send_tls13_tickets = 0;
        Ok(LoadedCertificate { acceptor: TlsAcceptor::from(Arc::new(config)), authority })
    }
}

pub fn read_chain(path: &str) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let pem = std::fs::read(path).map_err(ServerError::file(path))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match read {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(ServerError::Configuration(format!("{path}: no certificate (PEM) is in it"))),
        Err(e) => Err(ServerError::Configuration(format!("{path}: {e}"))),
    }
}

pub fn read_key(path: &str) -> Result<PrivateKeyDer<'static>, ServerError> {
    let pem = std::fs::read(path).map_err(ServerError::file(path))?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|e| ServerError::Configuration(format!("{path}: no private key (PEM): {e}")))
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether the clients' port has a certificate.
#[derive(Clone)]
enum PortCertificate {
    /// The files are being read for the first time.
    Unread,
    /// No files were good so far.
    Unusable,
    Usable(TlsAcceptor),
}

/// The certificate of the clients' port and of the proxy's. A thread of its own reads the files: a file system that hangs holds nothing else up.
#[derive(Clone)]
pub struct PortTls(watch::Receiver<PortCertificate>);

impl PortTls {
    /// Starts the thread, which ends when the port is gone.
    pub fn start(shared: Arc<Shared>) -> Result<Self, ServerError> {
        let (shown, receiver) = watch::channel(PortCertificate::Unread);
        let mut check = CertificateCheck { shown, last: None };
        let thread = std::thread::Builder::new().name("certificate".into()).spawn(move || {
            while !check.shown.is_closed() {
                check.run(current_source(&shared), &shared.identity);
                std::thread::sleep(CHECK_INTERVAL);
            }
        });
        thread.map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
        Ok(Self(receiver))
    }

    /// Always accepts so; without an acceptor, nobody is.
    pub fn fixed(acceptor: Option<TlsAcceptor>) -> Self {
        let certificate = acceptor.map_or(PortCertificate::Unusable, PortCertificate::Usable);
        Self(watch::channel(certificate).1)
    }

    /// Accepts with the certificate as it was read last; `None` if none can be used.
    pub async fn acceptor(&self) -> Option<TlsAcceptor> {
        let mut shown = self.0.clone();
        let read = shown.wait_for(|now| !matches!(now, PortCertificate::Unread)).await.ok()?;
        match &*read {
            PortCertificate::Usable(acceptor) => Some(acceptor.clone()),
            PortCertificate::Unread | PortCertificate::Unusable => None,
        }
    }
}

/// Compares the certificate with what it is made from.
struct CertificateCheck {
    shown: watch::Sender<PortCertificate>,
    /// What was tried last, and what was wrong with it.
    last: Option<(CertificateSource, Option<String>)>,
}

impl CertificateCheck {
    /// Loads the certificate if its source is new, or failed the last time. One that cannot be used is logged once; the last
    /// good one stays.
    fn run(&mut self, source: CertificateSource, identity: &Identity) {
        if self.last.as_ref().is_some_and(|(last, wrong)| *last == source && wrong.is_none()) {
            return;
        }
        let wrong = match source.load(identity) {
            Ok(loaded) => {
                match loaded.authority {
                    Some(it) => {
                        tracing::info!("the clients' port speaks TLS; the authority is {it}")
                    }
                    None => tracing::info!(
                        "the clients' port speaks TLS; its certificate comes without an authority (sluice login --ca FILE)"
                    ),
                }
                self.shown.send_replace(PortCertificate::Usable(loaded.acceptor));
                None
            }
            Err(error) => Some(error.to_string()),
        };
        let said = self.last.take().and_then(|(_, wrong)| wrong);
        if let Some(why) = &wrong
            && said.as_ref() != Some(why)
        {
            if matches!(*self.shown.borrow(), PortCertificate::Usable(_)) {
                tracing::error!("the certificate stays as it was: {why}");
            } else {
                tracing::error!(
                    "the clients' port refuses TLS until its certificate is good: {why}"
                );
                self.shown.send_replace(PortCertificate::Unusable);
            }
        }
        self.last = Some((source, wrong));
    }
}

fn current_source(shared: &Shared) -> CertificateSource {
    let setup = &shared.setup;
    let addresses = setup.agents_addresses.iter().chain(&setup.listen_addresses);
    let mut names: Vec<String> = addresses.map(|address| host_of(address).to_owned()).collect();
    names.push(setup.hostname.clone());
    // The state is let go before a file is looked at.
    let settings = {
        let state = shared.read();
        CertificateSettings::of(&state.config).with_projects(certified_projects(&state))
    };
    CertificateSource::now(settings, &names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ProxyConfig;

    #[test]
    fn certificate_is_for_the_names_of_the_machine_and_of_the_configuration() {
        let addresses = ["head.example:6831", "[2001:db8::7]:6831"].map(str::to_owned);
        let config = ClusterConfig {
            server_addresses: addresses.to_vec(),
            controllers: vec!["head2".into()],
            proxy: ProxyConfig {
                domain: Some("apps.example:6823".into()),
                ..ProxyConfig::default()
            },
            ..ClusterConfig::default()
        };
        let source = CertificateSource::now(
            CertificateSettings::of(&config).with_projects(["team"].into_iter()),
            &["head".into(), "10.0.0.1".into()],
        );
        let CertificateSource::Authority { names } = source else { panic!("{source:?}") };
        let expected =
            "*.apps.example *.team.apps.example 10.0.0.1 127.0.0.1 2001:db8::7 ::1 head \
             head.example head2 localhost"
                .split(' ');
        assert_eq!(names, expected.collect::<Vec<_>>());
    }

    #[test]
    fn files_of_the_site_are_read_again_when_they_change_and_a_key_must_fit() {
        let dir = tempfile::tempdir().expect("a folder");
        let identity = Identity::load_or_make(&dir.path().join("keys")).expect("keys");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let write = |certificate: &str, key: &str| {
            let keys = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a pair");
            std::fs::write(path(certificate), keys.cert.pem()).expect("written");
            std::fs::write(path(key), keys.signing_key.serialize_pem()).expect("written");
        };
        write("a.pem", "a.key");
        write("b.pem", "b.key");
        let files = CertificateFiles { certificate: path("a.pem"), key: path("a.key") };
        let config = ClusterConfig { server_certificate: Some(files), ..ClusterConfig::default() };
        let first = CertificateSource::now(CertificateSettings::of(&config), &[]);
        assert!(first.load(&identity).is_ok());
        assert_eq!(CertificateSource::now(CertificateSettings::of(&config), &[]), first);
        std::fs::rename(path("b.key"), path("a.key")).expect("replaced");
        let torn = CertificateSource::now(CertificateSettings::of(&config), &[]);
        assert_ne!(torn, first);
        let error = torn.load(&identity).err().expect("the key is another's").to_string();
        assert!(error.contains("a.pem with "), "{error}");
        std::fs::rename(path("b.pem"), path("a.pem")).expect("replaced");
        assert!(
            CertificateSource::now(CertificateSettings::of(&config), &[]).load(&identity).is_ok()
        );
        std::fs::write(path("a.pem"), "").expect("written");
        let error = CertificateSource::now(CertificateSettings::of(&config), &[])
            .load(&identity)
            .err()
            .expect("empty");
        assert!(error.to_string().ends_with("a.pem: no certificate (PEM) is in it"), "{error}");
    }

    #[test]
    fn bad_files_refuse_tls_until_they_are_good_and_the_last_good_one_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let identity = Identity::load_or_make(&dir.path().join("keys")).expect("keys");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let files = CertificateFiles { certificate: path("a.pem"), key: path("a.key") };
        let config = ClusterConfig { server_certificate: Some(files), ..ClusterConfig::default() };
        let (shown, receiver) = watch::channel(PortCertificate::Unread);
        let mut check = CertificateCheck { shown, last: None };
        let mut run = || {
            let source = CertificateSource::now(CertificateSettings::of(&config), &[]);
            check.run(source, &identity);
            check.last.as_ref().and_then(|(_, wrong)| wrong.clone())
        };
        let is_usable = || matches!(*receiver.borrow(), PortCertificate::Usable(_));
        assert!(run().is_some_and(|why| why.contains("a.pem")));
        assert!(matches!(*receiver.borrow(), PortCertificate::Unusable));
        let keys = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a pair");
        std::fs::write(path("a.pem"), keys.cert.pem()).expect("written");
        std::fs::write(path("a.key"), keys.signing_key.serialize_pem()).expect("written");
        assert_eq!(run(), None);
        assert!(is_usable());
        std::fs::write(path("a.pem"), "torn").expect("written");
        assert!(run().is_some());
        assert!(is_usable());
    }

    #[test]
    fn authority_is_the_last_of_the_chain_that_is_shown() {
        let dir = tempfile::tempdir().expect("a folder");
        let identity = Identity::load_or_make(&dir.path().join("keys")).expect("keys");
        let own = CertificateSource::Authority { names: vec!["a".into()] };
        let own = own.load(&identity).expect("a certificate").authority;
        assert_eq!(own, identity.authority_fingerprint().ok());
        let path = |name: &str| dir.path().join(name).display().to_string();
        let make = || rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a pair");
        let (site, other) = (make(), make());
        std::fs::write(path("a.key"), site.signing_key.serialize_pem()).expect("written");
        let files = CertificateFiles { certificate: path("a.pem"), key: path("a.key") };
        let authority_of = |chain: String| {
            std::fs::write(path("a.pem"), chain).expect("written");
            let source = CertificateSource::Files { files: files.clone(), stamps: [None, None] };
            source.load(&identity).expect("a certificate").authority
        };
        assert_eq!(authority_of(site.cert.pem()), None);
        let last = identity::fingerprint(other.cert.der());
        assert_eq!(authority_of(site.cert.pem() + &other.cert.pem()), Some(last));
    }
}
