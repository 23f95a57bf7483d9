//! Listening sockets that a service manager keeps between two servers: clients wait at them for the next one instead of being
//! refused. A server or gateway hands each socket to systemd when it has bound it (`FDSTORE`), and the next start gets them back by name
//! (`LISTEN_FDS`).

use super::service_manager;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// The first descriptor that a service manager passes on, and the most that are looked at.
const FIRST: RawFd = 3;
const SOCKETS_MAX: usize = 16;

/// The names of the sockets.
pub const SOCKET: &str = "sluice-socket";
pub const CLIENTS: &str = "sluice-clients";
pub const AGENTS: &str = "sluice-agents";
pub const SSH: &str = "sluice-ssh";
pub const PROXY: &str = "sluice-proxy";
pub const GATEWAY: &str = "sluice-gateway";
pub const GATEWAY_HTTP: &str = "sluice-gateway-http";

/// The sockets of this start, by name.
#[derive(Default)]
pub struct InheritedSockets {
    found: BTreeMap<String, OwnedFd>,
    /// Whether sockets are handed to the service manager.
    is_kept: bool,
}

impl InheritedSockets {
    /// Takes what the service manager has passed to this process. To be called once, before other descriptors are opened.
    pub fn take() -> Self {
        let text = |name: &str| std::env::var(name).ok();
        let is_ours = text("LISTEN_PID").is_some_and(|pid| pid == std::process::id().to_string());
        let count = text("LISTEN_FDS").filter(|_| is_ours);
        let count = count.and_then(|count| count.parse::<usize>().ok());
        let names = text("LISTEN_FDNAMES").unwrap_or_default();
        let names = names.split(':').map(str::to_owned).take(count.unwrap_or(0).min(SOCKETS_MAX));
        let fds = names.zip(FIRST..).map(|(name, fd)| {
            // SAFETY: the service manager has opened this descriptor for this process alone, and nobody else here has taken it.
            (name, unsafe { OwnedFd::from_raw_fd(fd) })
        });
        let found: BTreeMap<String, OwnedFd> = fds.collect();
        for fd in found.values() {
            // A program that the server starts has no use for them.
            let _ = fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        }
        Self { found, is_kept: true }
    }

    /// The listener of this name at the address that is asked for, or else a new one.
    pub fn tcp_or<E>(
        &mut self,
        name: &str,
        asked: Option<SocketAddr>,
        bind: impl FnOnce() -> Result<TcpListener, E>,
    ) -> Result<TcpListener, E> {
        self.tcp(name, asked).map_or_else(bind, Ok)
    }

    /// The listener of this name, if it has the address that is asked for. One at another address is given up.
    fn tcp(&mut self, name: &str, asked: Option<SocketAddr>) -> Option<TcpListener> {
        let listener = TcpListener::from(self.found.remove(name)?);
        let is_asked = |at: SocketAddr| {
            let is_port = |port: u16| port == 0 || port == at.port();
            asked.is_none_or(|asked| asked.ip() == at.ip() && is_port(asked.port()))
        };
        if listener.local_addr().is_ok_and(is_asked) {
            return Some(listener);
        }
        service_manager::forget(name);
        None
    }

    /// The local socket, if clients still find it at its path.
    pub fn unix(&mut self, name: &str, path: &Path) -> Option<UnixListener> {
        let listener = UnixListener::from(self.found.remove(name)?);
        let bound = listener.local_addr().ok();
        let is_there = bound.is_some_and(|at| at.as_pathname() == Some(path)) && path.exists();
        if is_there {
            return Some(listener);
        }
        service_manager::forget(name);
        None
    }

    /// Gives up what nobody has asked for.
    pub fn forget_rest(&mut self) {
        std::mem::take(&mut self.found).keys().for_each(|name| service_manager::forget(name));
    }

    /// Has the service manager keep a socket for the next start.
    pub fn keep(&self, name: &str, socket: &impl AsFd) {
        if self.is_kept {
            service_manager::store(name, socket.as_fd());
        }
    }
}
