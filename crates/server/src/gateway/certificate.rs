//! The certificate that a gateway shows to clients: from files, which are read again when they change.

use crate::error::ServerError;
use crate::http::port_tls::{FileStamp, read_chain, read_key};
use cluster::CertificateFiles;
use rustls::ServerConfig;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio_rustls::TlsAcceptor;

/// How often the files are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Shows the certificate as it was read last.
#[derive(Debug)]
pub struct Certificates {
    shown: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().expect("no panic with the certificate held").clone())
    }
}

impl Certificates {
    /// Reads the files, which must be good at the start, and looks after them from then on. Files that are bad later are logged, and
    /// the last good ones stay.
    pub fn of_files(files: CertificateFiles) -> Result<TlsAcceptor, ServerError> {
        let first = Self { shown: RwLock::new(Arc::new(load(&files)?)) };
        let certificates = Arc::new(first);
        let watched = certificates.clone();
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
        spawned.map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
        acceptor(certificates)
    }

    fn read_again(&self, files: &CertificateFiles) {
        match load(files) {
            Ok(new) => {
                *self.shown.write().expect("no panic with the certificate held") = Arc::new(new);
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
    let wrong = |e: rustls::Error| {
        ServerError::Configuration(format!("{} with {}: {e}", files.certificate, files.key))
    };
    let certified = CertifiedKey::new(chain, any_supported_type(&key).map_err(wrong)?);
    certified.keys_match().map_err(wrong)?;
    Ok(certified)
}

/// TLS towards clients, of which some speak an older version than our own programs.
fn acceptor(certificates: Arc<Certificates>) -> Result<TlsAcceptor, ServerError> {
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
        assert!(Certificates::of_files(files.clone()).is_err(), "they are not there");
        write();
        let certificates =
            Certificates { shown: RwLock::new(Arc::new(load(&files).expect("a certificate"))) };
        let shown = || certificates.shown.read().expect("held").cert.clone();
        let first = shown();
        write();
        certificates.read_again(&files);
        let second = shown();
        assert_ne!(first, second);
        std::fs::write(path("a.pem"), "torn").expect("written");
        certificates.read_again(&files);
        assert_eq!(shown(), second);
    }
}
