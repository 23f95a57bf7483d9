//! The certificates that a gateway shows to clients: from files, which are read again when they change, and for single names those
//! that an authority has issued (`acme`).

use crate::error::ServerError;
use crate::http::port_tls::{FileStamp, read_chain, read_key};
use cluster::CertificateFiles;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificates that are shown now.
#[derive(Debug, Default)]
pub struct Certificates {
    /// The certificate of `--certificate` and `--key`, for every host name without one of its own.
    of_files: RwLock<Option<Arc<CertifiedKey>>>,
    /// The certificates that an ACME authority has issued, by host name.
    by_name: RwLock<HashMap<String, Arc<CertifiedKey>>>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        self.find(name.as_deref())
    }
}

impl Certificates {
    fn find(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let by_name = self.by_name.read().expect("no panic with the certificates held");
        let own = name.and_then(|name| by_name.get(name).cloned());
        own.or_else(|| self.of_files.read().expect("no panic with the certificate held").clone())
    }

    /// Shows a certificate to clients that ask for this name.
    pub fn set(&self, name: &str, certificate: CertifiedKey) {
        let mut by_name = self.by_name.write().expect("no panic with the certificates held");
        by_name.insert(name.to_owned(), Arc::new(certificate));
    }

    pub fn remove(&self, name: &str) {
        self.by_name.write().expect("no panic with the certificates held").remove(name);
    }

    /// Reads the files, which must be good at the start, and looks after them from then on. Files that are bad later are logged, and
    /// the last good ones stay.
    pub fn watch_files(self: &Arc<Self>, files: CertificateFiles) -> Result<(), ServerError> {
        self.set_files(load(&files)?);
        let watched = self.clone();
        let mut last = stamps(&files);
        let thread = std::thread::Builder::new().name("certificate".into());
        let spawned = thread.spawn(move || {
            // Only this thread is left of it when the gateway has ended.
            while Arc::strong_count(&watched) > 1 {
                std::thread::sleep(CHECK_INTERVAL);
                let now = stamps(&files);
                if now != last {
                    watched.read_again(&files);
                    last = now;
                }
            }
        });
        let failed = |e| ServerError::Other(format!("cannot start a thread: {e}"));
        spawned.map(drop).map_err(failed)
    }

    fn set_files(&self, certificate: CertifiedKey) {
        let mut of_files = self.of_files.write().expect("no panic with the certificate held");
        *of_files = Some(Arc::new(certificate));
    }

    fn read_again(&self, files: &CertificateFiles) {
        match load(files) {
            Ok(new) => {
                self.set_files(new);
                tracing::info!("the certificate was read again");
            }
            Err(error) => tracing::error!("the certificate stays as it was: {error}"),
        }
    }
}

fn stamps(files: &CertificateFiles) -> [Option<FileStamp>; 2] {
    [&files.certificate, &files.key].map(|path| FileStamp::of(path))
}

fn load(files: &CertificateFiles) -> Result<CertifiedKey, ServerError> {
    let (chain, key) = (read_chain(&files.certificate)?, read_key(&files.key)?);
    certified(chain, &key).map_err(|why| {
        ServerError::Configuration(format!("{} with {}: {why}", files.certificate, files.key))
    })
}

/// A chain with its key, which must fit.
pub fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'_>,
) -> Result<CertifiedKey, String> {
    let key = any_supported_type(key).map_err(|e| e.to_string())?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match().map_err(|e| e.to_string())?;
    Ok(certified)
}

/// A chain and its key in one PEM text.
pub fn parse(pem: &[u8]) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|e| e.to_string())?;
    Ok((chain, key))
}

/// TLS towards clients, of which some speak an older version than our own programs.
pub fn acceptor(certificates: Arc<Certificates>) -> Result<TlsAcceptor, ServerError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| ServerError::Identity(e.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_again_and_bad_ones_leave_the_last_good() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = |name: &str| dir.path().join(name).display().to_string();
        let files = CertificateFiles { certificate: path("a.pem"), key: path("a.key") };
        let write = || {
            let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).expect("a pair");
            std::fs::write(path("a.pem"), made.cert.pem()).expect("written");
            std::fs::write(path("a.key"), made.signing_key.serialize_pem()).expect("written");
        };
        let certificates = Arc::new(Certificates::default());
        assert!(certificates.watch_files(files.clone()).is_err(), "they are not there");
        write();
        certificates.watch_files(files.clone()).expect("a certificate");
        let shown = || certificates.find(Some("a.example")).expect("a certificate").cert.clone();
        let first = shown();
        write();
        certificates.read_again(&files);
        let second = shown();
        assert_ne!(first, second);
        std::fs::write(path("a.pem"), "torn").expect("written");
        certificates.read_again(&files);
        assert_eq!(shown(), second);
        let made = rcgen::generate_simple_self_signed(vec!["b".to_owned()]).expect("a pair");
        let pem = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
        let (chain, key) = parse(pem.as_bytes()).expect("both");
        certificates.set("b.example", certified(chain.clone(), &key).expect("they fit"));
        assert_eq!(certificates.find(Some("b.example")).expect("its own").cert, chain);
        assert_eq!(shown(), second);
    }
}
