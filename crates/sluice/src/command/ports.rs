//! The listeners' addresses: as asked, as last time, or the usual ones.

use super::VerbError;
use super::state_dir::StateDir;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

/// How long a port that the server had before is waited for.
const BIND_PATIENCE: Duration = Duration::from_secs(10);

const USUAL_LISTEN: &str = "127.0.0.1:6820";
const USUAL_AGENTS: &str = "127.0.0.1:6821";

/// Kept in the state folder, so that agents find a restarted server where it was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
}

pub struct Bound {
    pub listeners: ::server::Listeners,
    pub listen: SocketAddr,
    pub agents: SocketAddr,
}

/// Binds the three listening sockets. An address that was asked for must be free; a usual one may give way.
pub fn bind(
    state: &StateDir,
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
) -> Result<Bound, VerbError> {
    let file = state.path.join("ports.json");
    let kept: Kept = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let port = bind_one(listen, kept.listen, USUAL_LISTEN)?;
    let agents = bind_one(agents, kept.agents, USUAL_AGENTS)?;
    let address = |l: &TcpListener| l.local_addr().map_err(VerbError::file(&file));
    let (listen_at, agents_at) = (address(&port)?, address(&agents)?);
    let kept = Kept { listen: Some(listen_at), agents: Some(agents_at) };
    let text = serde_json::to_string(&kept).map_err(|e| VerbError::Said(e.to_string()))?;
    std::fs::write(&file, text).map_err(VerbError::file(&file))?;
    let socket = bind_socket(state)?;
    let listeners = ::server::Listeners { socket, port, agents };
    Ok(Bound { listeners, listen: listen_at, agents: agents_at })
}

fn bind_one(
    asked: Option<SocketAddr>,
    kept: Option<SocketAddr>,
    usual: &str,
) -> Result<TcpListener, VerbError> {
    let fails =
        |address: SocketAddr| move |e| VerbError::Said(format!("cannot listen at {address}: {e}"));
    if let Some(address) = asked {
        return TcpListener::bind(address).map_err(fails(address));
    }
    if let Some(address) = kept {
        return bind_again(address).map_err(fails(address));
    }
    let usual: SocketAddr = usual.parse().map_err(|_| VerbError::Said(usual.into()))?;
    let any = SocketAddr::new(usual.ip(), 0);
    TcpListener::bind(usual).or_else(|_| TcpListener::bind(any)).map_err(fails(any))
}

/// Where the server was before. Somebody may have the port for a moment, as the near end of a
/// connection of theirs.
fn bind_again(address: SocketAddr) -> std::io::Result<TcpListener> {
    let deadline = Instant::now() + BIND_PATIENCE;
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
