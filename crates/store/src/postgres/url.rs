//! What the administrator names: `postgres://USER@HOST:PORT/DATABASE?sslmode=…&sslrootcert=FILE`.
//!
//! A password is never part of it: an address is seen in the list of processes and in logs. It comes from a file or the
//! environment.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::error::{DatabaseError, describe};

/// The variable that holds the password, where no file does.
const PASSWORD_VARIABLE: &str = "SLUICE_STORE_PASSWORD";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection whose packets nobody acknowledges is given up after this time.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// What a silent connection is probed with then. The kernel's own interval would find a lost one after minutes.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);
const PROBES: u32 = 3;

/// A database and how it is reached. It has no `Debug`: the configuration in it may hold a password.
#[derive(Clone)]
pub struct DatabaseUrl {
    pub(super) config: tokio_postgres::Config,
    pub(super) tls: Option<MakeRustlsConnect>,
    shown: String,
}

impl DatabaseUrl {
    /// Reads an address. Without `sslmode`, a socket of this machine is used as it is, and every other connection has TLS.
    pub fn parse(text: &str, password_file: Option<&Path>) -> Result<Self, DatabaseError> {
        let wrong = |why: String| DatabaseError::Unfit(format!("'{text}': {why}"));
        if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
            // It may hold a password all the same.
            let text = "the address of the store: expected postgres://USER@HOST/DATABASE";
            return Err(DatabaseError::Unfit(text.into()));
        }
        let Parameters { url, ssl_mode, root_file } = Parameters::split(text);
        let unread = |error: tokio_postgres::Error| {
            // The address may hold a password: it is not repeated.
            DatabaseError::Unfit(format!("the address of the store: {}", describe(&error)))
        };
        let mut config: tokio_postgres::Config = url.parse().map_err(unread)?;
        if config.get_password().is_some() {
            let text = format!(
                "the address of the store has a password, which every list of processes would show; put it into a file \
                 (--store-password-file) or {PASSWORD_VARIABLE}"
            );
            return Err(DatabaseError::Unfit(text));
        }
        // The client's library would take the user's name for it: another database than the one that was meant.
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(wrong(
                "it names no database: expected postgres://USER@HOST/DATABASE".into(),
            ));
        }
        // Without one, a database that asks for it refuses the session. The client's library would end the connection itself, which is
        // no other than a database that cannot be reached, and is waited for.
        config.password(password(password_file)?.unwrap_or_default());
        config.application_name("sluice").connect_timeout(CONNECT_TIMEOUT);
        config.keepalives_idle(SILENCE_MAX).tcp_user_timeout(SILENCE_MAX);
        config.keepalives_interval(PROBE_INTERVAL).keepalives_retries(PROBES);
        let is_local = !config.get_hosts().is_empty()
            && config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let has_tls = match ssl_mode.as_deref() {
            None => !is_local,
            Some("disable") => false,
            Some("require" | "verify-full") => true,
            Some(other) => {
                let expected =
                    "expected disable, require or verify-full (both check the certificate)";
                return Err(wrong(format!("sslmode={other}: {expected}")));
            }
        };
        let tls = if has_tls {
            let file = root_file.ok_or_else(|| {
                wrong("TLS needs sslrootcert=FILE, the authority of the database's certificate; or sslmode=disable".into())
            })?;
            Some(MakeRustlsConnect::new(client_config(Path::new(&file))?))
        } else {
            None
        };
        config.ssl_mode(if has_tls { SslMode::Require } else { SslMode::Disable });
        Ok(Self { config, tls, shown: text.to_owned() })
    }

    /// The address as it was named; it has no password.
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

/// The parameters that are this program's to judge, apart from those of the client's library.
struct Parameters {
    url: String,
    ssl_mode: Option<String>,
    root_file: Option<String>,
}

impl Parameters {
    fn split(text: &str) -> Self {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut others = Vec::new();
        let (mut ssl_mode, mut root_file) = (None, None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("sslmode", mode)) => ssl_mode = Some(mode.to_owned()),
                Some(("sslrootcert", file)) => root_file = Some(file.to_owned()),
                _ => others.push(parameter),
            }
        }
        let mark = if others.is_empty() { "" } else { "?" };
        Self { url: format!("{base}{mark}{}", others.join("&")), ssl_mode, root_file }
    }
}

fn password(file: Option<&Path>) -> Result<Option<String>, DatabaseError> {
    let Some(path) = file else { return Ok(std::env::var(PASSWORD_VARIABLE).ok()) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| DatabaseError::Unfit(format!("{}: {error}", path.display())))?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}

fn client_config(file: &Path) -> Result<ClientConfig, DatabaseError> {
    let wrong = |why: String| DatabaseError::Unfit(format!("{}: {why}", file.display()));
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| wrong(e.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| wrong(e.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        DatabaseUrl::parse(text, None).err().expect(text).to_string()
    }

    #[test]
    fn address_with_a_password_is_refused_and_not_repeated() {
        let said = refusal("postgres://sluice:hunter2@db.example/sluice?sslmode=disable");
        assert!(said.contains("--store-password-file"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    }

    #[test]
    fn connection_over_the_network_has_tls_unless_it_is_said_otherwise() {
        assert!(refusal("postgres://sluice@db.example/sluice").contains("sslrootcert=FILE"));
        assert!(
            refusal("postgres://sluice@db.example/sluice?sslmode=prefer")
                .contains("sslmode=prefer")
        );
        assert!(refusal("mysql://db.example/sluice").contains("postgres://USER@HOST/DATABASE"));
        for plain in [
            "postgres://sluice@db.example/sluice?sslmode=disable",
            "postgres:///sluice?host=/run/postgresql&user=sluice",
        ] {
            let url = DatabaseUrl::parse(plain, None).expect(plain);
            assert!(url.tls.is_none(), "{plain}");
            assert_eq!(url.config.get_ssl_mode(), SslMode::Disable);
            assert_eq!(url.config.get_keepalives_interval(), Some(PROBE_INTERVAL));
            assert_eq!(url.config.get_keepalives_retries(), Some(PROBES));
        }
    }

    #[test]
    fn password_is_read_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        std::fs::write(&file, "hunter2\n").unwrap();
        let text = "postgres://sluice@db.example/sluice?sslmode=disable";
        let url = DatabaseUrl::parse(text, Some(&file)).expect("an address");
        assert_eq!(url.config.get_password(), Some(&b"hunter2"[..]));
        assert_eq!(url.shown(), text);
    }
}
