//! Where the server is: named by options, by the environment, or found in the default state folders.

use super::error::ClientError;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerLocation {
    Socket(PathBuf),
    Http { address: String, token: String },
}

impl fmt::Display for ServerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Http { address, .. } => write!(f, "http://{address}"),
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
    /// By `SLUICE_SERVER` (with `SLUICE_TOKEN`), then `SLUICE_STATE`, then the default folders.
    pub fn find() -> Result<Self, ClientError> {
        if let Ok(server) = std::env::var("SLUICE_SERVER") {
            return Self::from_server(&server);
        }
        if let Some(state) = std::env::var_os("SLUICE_STATE") {
            return Ok(Self::in_state(Path::new(&state)));
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
        let rest = server.strip_prefix("http://").unwrap_or(server);
        if rest.starts_with("https:") {
            let why =
                format!("SLUICE_SERVER={server}: https is not spoken yet; use http:// on loopback");
            return Err(ClientError::Protocol(why));
        }
        let token = std::env::var("SLUICE_TOKEN").unwrap_or_default();
        Ok(Self::Http { address: rest.trim_end_matches('/').to_string(), token })
    }

    /// The token that each request carries. A Unix socket needs none: the kernel says who asks.
    pub fn token(&self) -> Option<&str> {
        match self {
            Self::Http { token, .. } => Some(token),
            Self::Socket(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_socket_path_or_an_http_address_and_https_is_refused() {
        let socket = |path: &str| Ok(ServerLocation::Socket(path.into()));
        let parsed = |text| ServerLocation::from_server(text).map_err(|error| error.to_string());
        assert_eq!(parsed("/run/s.sock"), socket("/run/s.sock"));
        assert_eq!(parsed("unix:s.sock"), socket("s.sock"));
        for text in ["http://host:6820/", "host:6820"] {
            let found = parsed(text).map(|location| location.to_string());
            assert_eq!(found, Ok("http://host:6820".to_owned()));
        }
        assert!(parsed("https://host").is_err_and(|text| text.contains("https is not spoken")));
    }
}
