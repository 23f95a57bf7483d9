//! Where the server is: named by options, by the environment or by the user's login, or found in the default state folders.

use super::error::ClientError;
use super::host_port::HostPort;
use super::login_file;
use super::server_lock;
use super::tls::{HttpsServer, Trust};
use model::secret::SecretValue;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerLocation {
    Socket(PathBuf),
    /// Plain HTTP on loopback.
    Http {
        address: HostPort,
        token: SecretValue,
    },
    Https(Box<HttpsServer>),
}

impl fmt::Display for ServerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Http { address, .. } => write!(f, "http://{address}"),
            Self::Https(server) => {
                let urls: Vec<String> =
                    server.addresses().map(|address| format!("https://{address}")).collect();
                f.write_str(&urls.join(","))
            }
        }
    }
}

/// The default state folder: the machine's for root, the user's own otherwise.
pub fn default_state_dir() -> PathBuf {
    if nix::unistd::geteuid().is_root() {
        return PathBuf::from("/var/lib/sluice");
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_else(|| PathBuf::from("/"));
    home.join(".local/state/sluice")
}

impl ServerLocation {
    /// By `SLUICE_SERVER` (with `SLUICE_TOKEN`), then `SLUICE_STATE`, then the user's login, then the default folders. The files
    /// are read once for all parts of a command.
    pub fn find() -> Result<Self, ClientError> {
        static FOUND: OnceLock<ServerLocation> = OnceLock::new();
        find_once(&FOUND, Self::look_up)
    }

    fn look_up() -> Result<Self, ClientError> {
        if let Ok(server) = std::env::var("SLUICE_SERVER") {
            return Self::from_server(&server);
        }
        if let Some(state) = std::env::var_os("SLUICE_STATE") {
            return Ok(Self::in_state(Path::new(&state)));
        }
        if let Some(login) = login_file::read().map_err(ClientError::Protocol)? {
            return Ok(Self::Https(Box::new(login.server)));
        }
        let own = default_state_dir();
        let machine = Path::new("/var/lib/sluice");
        let chosen = if own.join("sluice.sock").exists() { own.as_path() } else { machine };
        Ok(Self::in_state(chosen))
    }

    pub fn in_state(state: &Path) -> Self {
        Self::Socket(state.join("sluice.sock"))
    }

    /// A server by its address or the path of its socket; the token comes from `SLUICE_TOKEN`.
    pub fn from_server(server: &str) -> Result<Self, ClientError> {
        if let Some(path) = server.strip_prefix("unix:") {
            return Ok(Self::Socket(path.into()));
        }
        if server.starts_with('/') {
            return Ok(Self::Socket(server.into()));
        }
        if server.starts_with("https:") {
            return Self::https(server);
        }
        let wrong = |why: &str| ClientError::Protocol(format!("{server:?}: {why}"));
        let rest = server.strip_prefix("http://").unwrap_or(server);
        let address = HostPort::parse(rest.trim_end_matches('/'))
            .ok_or_else(|| wrong("expected https://HOST:PORT, or the path of a socket"))?;
        if !address.is_loopback() {
            return Err(wrong(
                "a server on another machine is asked over https: https://HOST:PORT",
            ));
        }
        Ok(Self::Http { address, token: token_variable()?.unwrap_or_default() })
    }

    /// A server under TLS. What the environment does not say, the user's login says if it is to the same server.
    fn https(url: &str) -> Result<Self, ClientError> {
        let (address, others) = HostPort::parse_https_list(url).map_err(ClientError::Protocol)?;
        let login = login_file::read().map_err(ClientError::Protocol)?;
        // Each of them is given the token, so each must be one that the login names.
        let known = login.map(|login| login.server).filter(|server| {
            let mut asked = std::iter::once(&address).chain(&others);
            asked.all(|asked| server.addresses().any(|known| known == asked))
        });
        let (own_token, own_trust) = known.map(|server| (server.token, server.trust)).unzip();
        let trust = match std::env::var_os("SLUICE_CA") {
            Some(file) => {
                let wrong = |why| ClientError::Protocol(format!("SLUICE_CA={file:?}: {why}"));
                Trust::Authority(std::fs::read_to_string(&file).map_err(wrong)?)
            }
            None => own_trust.unwrap_or(Trust::Machine),
        };
        let token = token_variable()?.or(own_token).unwrap_or_default();
        Ok(Self::Https(Box::new(HttpsServer { address, others, token, trust })))
    }

    /// The token that each request carries. A Unix socket needs none: the kernel says who asks.
    pub fn token(&self) -> Option<&str> {
        match self {
            Self::Http { token, .. } => Some(&token.0),
            Self::Https(server) => Some(&server.token.0),
            Self::Socket(_) => None,
        }
    }

    /// Whether the server is this machine's and was stopped in order: it is not waited for.
    pub fn is_stopped(&self) -> bool {
        match self {
            Self::Socket(path) => path.parent().is_some_and(server_lock::is_stopped),
            Self::Http { .. } | Self::Https(_) => false,
        }
    }

    /// Whether it has several addresses: one of which nothing comes is not waited for.
    pub fn has_others(&self) -> bool {
        matches!(self, Self::Https(server) if !server.others.is_empty())
    }

    /// Whether the server is asked from another machine, which it may not be able to dial.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Https(_))
    }
}

/// What `find` finds, or has found before. A failure is not kept.
fn find_once<T: Clone, E>(
    found: &OnceLock<T>,
    find: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    match found.get() {
        Some(known) => Ok(known.clone()),
        None => find().map(|new| found.get_or_init(|| new).clone()),
    }
}

fn token_variable() -> Result<Option<SecretValue>, ClientError> {
    match std::env::var("SLUICE_TOKEN") {
        Ok(token) if login_file::is_plain(&token) => Ok(Some(SecretValue(token))),
        Ok(_) => Err(ClientError::Protocol("SLUICE_TOKEN is not a token".into())),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_not_looked_up_again_and_a_failure_is() {
        let found = OnceLock::new();
        assert_eq!(find_once(&found, || Err::<u32, _>("unreadable")), Err("unreadable"));
        assert_eq!(find_once(&found, || Ok::<_, &str>(1)), Ok(1));
        assert_eq!(find_once(&found, || Err("looked up again")), Ok(1));
    }

    #[test]
    fn server_is_a_socket_path_or_an_address_and_plain_http_stays_on_this_machine() {
        let socket = |path: &str| Ok(ServerLocation::Socket(path.into()));
        let parsed = |text| ServerLocation::from_server(text).map_err(|error| error.to_string());
        assert_eq!(parsed("/run/s.sock"), socket("/run/s.sock"));
        assert_eq!(parsed("unix:s.sock"), socket("s.sock"));
        for text in ["http://127.0.0.1:6820/", "127.0.0.1:6820"] {
            let found = parsed(text).map(|location| location.to_string());
            assert_eq!(found, Ok("http://127.0.0.1:6820".to_owned()));
        }
        for far in ["http://head:6820", "head:6820", "http://10.0.0.1:6820"] {
            let said = parsed(far).expect_err(far);
            let expected = "a server on another machine is asked over https: https://HOST:PORT";
            assert_eq!(said, format!("{far:?}: {expected}"));
        }
        for wrong in ["head", "ftp://head:6820", "http://head", ""] {
            assert!(parsed(wrong).expect_err(wrong).contains("expected https://HOST:PORT"));
        }
    }
}
