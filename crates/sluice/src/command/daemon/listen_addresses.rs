//! The addresses on which the server listens: as given, as last time, or the defaults.

use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How long the server waits for the port that it had before.
const BIND_TIMEOUT: Duration = Duration::from_secs(10);

const DEFAULT_LISTEN: &str = "127.0.0.1:6820";
const DEFAULT_AGENTS: &str = "127.0.0.1:6821";

/// The addresses, saved in the state folder so that agents find a restarted server where it was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SavedAddresses {
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
}

pub struct BoundListeners {
    pub listeners: ::server::Listeners,
    pub listen: SocketAddr,
    pub agents: SocketAddr,
}

/// Binds the Unix socket and the two ports. An address that was given must be free; instead of a default one another port
/// may be taken.
pub fn bind(
    state: &StateDir,
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
) -> Result<BoundListeners, VerbError> {
    let file = state.path.join("ports.json");
    let saved: SavedAddresses = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let port = bind_one(listen, saved.listen, DEFAULT_LISTEN)?;
    let agents = bind_one(agents, saved.agents, DEFAULT_AGENTS)?;
    let address = |l: &TcpListener| l.local_addr().map_err(VerbError::file(&file));
    let (listen_at, agents_at) = (address(&port)?, address(&agents)?);
    let saved = SavedAddresses { listen: Some(listen_at), agents: Some(agents_at) };
    let text = serde_json::to_string(&saved).map_err(|e| VerbError::Message(e.to_string()))?;
    let written = state.trusted()?.replace("ports.json", 0o644, text.as_bytes());
    written.map_err(VerbError::file(&file))?;
    let socket = bind_socket(state)?;
    let listeners = ::server::Listeners { socket, port, agents };
    Ok(BoundListeners { listeners, listen: listen_at, agents: agents_at })
}

fn bind_one(
    asked: Option<SocketAddr>,
    saved: Option<SocketAddr>,
    default: &str,
) -> Result<TcpListener, VerbError> {
    let fails = |address: SocketAddr| {
        move |e| VerbError::Message(format!("cannot listen at {address}: {e}"))
    };
    if let Some(address) = asked {
        return TcpListener::bind(address).map_err(fails(address));
    }
    if let Some(address) = saved {
        return bind_again(address).map_err(fails(address));
    }
    let default: SocketAddr = default.parse().map_err(|_| VerbError::Message(default.into()))?;
    let any = SocketAddr::new(default.ip(), 0);
    TcpListener::bind(default).or_else(|_| TcpListener::bind(any)).map_err(fails(any))
}

/// Binds the address that the server had before. Another process may have the port for a moment, as the local port of an
/// outgoing connection.
fn bind_again(address: SocketAddr) -> std::io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_TIMEOUT;
    loop {
        match TcpListener::bind(address) {
            Err(e) if e.kind() == ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            bound => return bound,
        }
    }
}

fn bind_socket(state: &StateDir) -> Result<UnixListener, VerbError> {
    let path = state.socket();
    if path.exists() {
        std::fs::remove_file(&path).map_err(VerbError::file(&path))?;
    }
    let listener = UnixListener::bind(&path).map_err(VerbError::file(&path))?;
    let everybody = std::fs::Permissions::from_mode(0o666);
    std::fs::set_permissions(&path, everybody).map_err(VerbError::file(&path))?;
    Ok(listener)
}
