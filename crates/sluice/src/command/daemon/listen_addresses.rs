//! The addresses on which the server listens: as given, as last time, or the defaults.

use super::inherited_sockets::{self, InheritedSockets};
use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use ::agent::socket_folder;
use cluster::ProxyListen;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long the server waits for the port that it had before.
const BIND_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses of this machine that a join file names.
const ADDRESSES_MAX: usize = 8;

const DEFAULT_LISTEN: &str = "127.0.0.1:6820";
const DEFAULT_AGENTS: &str = "127.0.0.1:6821";
const DEFAULT_SSH: &str = "127.0.0.1:6822";
/// At the address of the clients' port.
const DEFAULT_PROXY_PORT: u16 = 6823;

const SAVED: &str = "ports.json";

/// The addresses, saved in the state folder so that agents find a restarted server where it was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SavedAddresses {
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ssh: Option<SocketAddr>,
    /// For services and web pages of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    proxy: Option<SocketAddr>,
}

/// `ADDR:PORT`, or `NAME:PORT` with a name of this machine (`localhost`), of which the first IPv4 address counts.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || format!("'{text}': expected ADDR:PORT, as in 127.0.0.1:6820");
    let found: Vec<SocketAddr> = text.to_socket_addrs().map_err(|_| wrong())?.collect();
    found.iter().find(|at| at.is_ipv4()).or(found.first()).copied().ok_or_else(wrong)
}

/// Where SSH clients are listened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshListen {
    Off,
    /// Where it was before, or at a port of loopback.
    Default,
    At(SocketAddr),
}

impl FromStr for SshListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => address
                .parse()
                .map(Self::At)
                .map_err(|_| format!("'{text}': expected ADDR:PORT, as in 0.0.0.0:6822, or off")),
        }
    }
}

impl fmt::Display for SshListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Default => f.write_str(DEFAULT_SSH),
            Self::At(address) => address.fmt(f),
        }
    }
}

pub struct BoundListeners {
    pub listeners: ::server::Listeners,
    pub listen: SocketAddr,
    pub agents: SocketAddr,
    pub ssh: Option<SocketAddr>,
}

/// Whether a server has, or had, its place in this state folder: its socket is that server's.
pub fn has_server(state: &StateDir) -> bool {
    state.path.join(SAVED).exists()
}

/// Binds the Unix socket and the ports. An address that was given must be free; instead of a default one another port
/// may be taken.
pub fn bind(
    state: &StateDir,
    listen: Option<SocketAddr>,
    agents: Option<SocketAddr>,
    ssh: SshListen,
    proxy: Option<ProxyListen>,
    mut inherited: InheritedSockets,
) -> Result<BoundListeners, VerbError> {
    let file = state.path.join(SAVED);
    let saved: SavedAddresses = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let port = inherited.tcp_or(inherited_sockets::CLIENTS, listen, || {
        bind_one(listen, saved.listen, DEFAULT_LISTEN)
    })?;
    let agents = inherited.tcp_or(inherited_sockets::AGENTS, agents, || {
        bind_one(agents, saved.agents, DEFAULT_AGENTS)
    })?;
    let ssh = match ssh {
        SshListen::Off => None,
        SshListen::Default => Some(
            inherited
                .tcp_or(inherited_sockets::SSH, None, || bind_nearby(saved.ssh, DEFAULT_SSH))?,
        ),
        SshListen::At(at) => {
            Some(inherited.tcp_or(inherited_sockets::SSH, Some(at), || {
                bind_one(Some(at), None, DEFAULT_SSH)
            })?)
        }
    };
    let address = |l: &TcpListener| l.local_addr().map_err(VerbError::file(&file));
    let (listen_at, agents_at) = (address(&port)?, address(&agents)?);
    let ssh_at = ssh.as_ref().map(address).transpose()?;
    let proxy = match proxy {
        Some(ProxyListen::Off) => None,
        Some(ProxyListen::At(at)) => {
            Some(inherited.tcp_or(inherited_sockets::PROXY, Some(at), || {
                bind_one(Some(at), None, DEFAULT_LISTEN)
            })?)
        }
        None => {
            let usual = SocketAddr::new(listen_at.ip(), DEFAULT_PROXY_PORT);
            let any = SocketAddr::new(usual.ip(), 0);
            let before = saved.proxy.filter(|before| before.ip() == usual.ip());
            Some(inherited.tcp_or(inherited_sockets::PROXY, Some(any), || {
                bind_nearby(before, &usual.to_string())
            })?)
        }
    };
    let proxy_at = proxy.as_ref().map(address).transpose()?;
    let saved = SavedAddresses {
        listen: Some(listen_at),
        agents: Some(agents_at),
        // Who has turned it off does not find it open where it was.
        ssh: ssh_at,
        proxy: proxy_at,
    };
    let text = serde_json::to_string(&saved).map_err(|e| VerbError::Message(e.to_string()))?;
    let written = state.trusted()?.replace(SAVED, 0o644, text.as_bytes());
    written.map_err(VerbError::file(&file))?;
    let socket = match inherited.unix(inherited_sockets::SOCKET, &state.socket()) {
        Some(socket) => socket,
        None => bind_socket(state)?,
    };
    inherited.keep(inherited_sockets::SOCKET, &socket);
    inherited.keep(inherited_sockets::CLIENTS, &port);
    inherited.keep(inherited_sockets::AGENTS, &agents);
    ssh.iter().for_each(|port| inherited.keep(inherited_sockets::SSH, port));
    proxy.iter().for_each(|port| inherited.keep(inherited_sockets::PROXY, port));
    inherited.forget_rest();
    let listeners = ::server::Listeners { socket, port, agents, proxy, ssh };
    Ok(BoundListeners { listeners, listen: listen_at, agents: agents_at, ssh: ssh_at })
}

/// The addresses at which other machines find a port that is bound so: every address of this machine and its name, if it
/// is bound to all.
pub fn reachable(bound: SocketAddr) -> Vec<String> {
    if !bound.ip().is_unspecified() {
        return vec![bound.to_string()];
    }
    let of_machine = getifaddrs().into_iter().flatten().filter(|interface| {
        let flags = interface.flags;
        flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    });
    let addresses = of_machine.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
        let v6 = || address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
        v4.or_else(|| v6().filter(|_| bound.is_ipv6()))
    });
    // A link-local address is worth nothing without the interface it is on.
    let is_local = |ip: &IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut found: Vec<String> = addresses
        .filter(|ip| !is_local(ip))
        .take(ADDRESSES_MAX)
        .map(|ip| SocketAddr::new(ip, bound.port()).to_string())
        .collect();
    if found.is_empty() {
        let ip =
            if bound.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        found.push(SocketAddr::new(ip, bound.port()).to_string());
    }
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    found.extend(name.filter(|name| !name.is_empty()).map(|n| format!("{n}:{}", bound.port())));
    found
}

fn bind_one(
    asked: Option<SocketAddr>,
    saved: Option<SocketAddr>,
    default: &str,
) -> Result<TcpListener, VerbError> {
    let fails = |address: SocketAddr| {
        move |e: std::io::Error| VerbError::Message(bind_failure(address, &e))
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

/// Binds an address that nobody has named: that somebody else has the port keeps no server from starting.
fn bind_nearby(saved: Option<SocketAddr>, default: &str) -> Result<TcpListener, VerbError> {
    let Some(address) = saved else { return bind_one(None, None, default) };
    TcpListener::bind(address).or_else(|error| {
        tracing::warn!("{address} is given up for another port: {error}");
        bind_one(Some(SocketAddr::new(address.ip(), 0)), None, default)
    })
}

/// What is printed where an address cannot be bound, with what helps. One line: it is found again in the log as an error.
fn bind_failure(address: SocketAddr, error: &std::io::Error) -> String {
    let port = address.port();
    let hint = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "; `ss -ltnp 'sport = :{port}'` says which program has the port, \
             --listen, --agents and --ssh ADDR:PORT choose others"
        ),
        ErrorKind::PermissionDenied => "; ports below 1024 are root's".to_owned(),
        ErrorKind::AddrNotAvailable => {
            "; the address is none of this machine's: `ip address` lists them".to_owned()
        }
        _ => String::new(),
    };
    format!("cannot listen at {address}: {error}{hint}")
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
    socket_folder::place(&path).map_err(VerbError::file(&path))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_this_machine_is_an_address() {
        assert_eq!(address("127.0.0.1:0"), "127.0.0.1:0".parse().map_err(|_| String::new()));
        let local = address("localhost:6820").expect("every machine has it");
        assert!(local.ip().is_loopback() && local.port() == 6820, "{local}");
        for wrong in ["", "6820", "localhost"] {
            let error = address(wrong).expect_err(wrong);
            assert!(error.contains("expected ADDR:PORT"), "{error}");
        }
    }

    #[test]
    fn address_for_ssh_is_one_or_off() {
        assert_eq!("off".parse(), Ok(SshListen::Off));
        let at = SshListen::At("0.0.0.0:22".parse().expect("an address"));
        assert_eq!("0.0.0.0:22".parse(), Ok(at));
        for wrong in ["", "on", "22", "head:22", "127.0.0.1"] {
            let error = wrong.parse::<SshListen>().expect_err(wrong);
            assert!(error.contains("expected ADDR:PORT"), "{error}");
        }
    }

    #[test]
    fn port_in_use_is_named_with_what_helps() {
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = first.local_addr().expect("an address");
        let error = bind_one(Some(address), None, DEFAULT_LISTEN).expect_err("in use");
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot listen at {address}: ")), "{text}");
        assert!(text.contains(&format!("ss -ltnp 'sport = :{}'", address.port())), "{text}");
    }

    #[test]
    fn ssh_goes_to_another_port_where_somebody_has_the_one_before() {
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = first.local_addr().expect("an address");
        let other = bind_nearby(Some(address), DEFAULT_SSH).expect("another");
        let other = other.local_addr().expect("an address");
        assert!(other.ip() == address.ip() && other.port() != address.port(), "{other}");
    }

    #[test]
    fn port_bound_to_all_addresses_is_found_at_those_of_the_machine() {
        let at = |text: &str| reachable(text.parse().expect("an address"));
        assert_eq!(at("192.0.2.7:6821"), ["192.0.2.7:6821"]);
        for all in [at("0.0.0.0:6821"), at("[::]:6821")] {
            assert!(!all.is_empty(), "the machine has a name at least");
            let wrong = |text: &&String| {
                !text.ends_with(":6821") || text.starts_with("0.0.0.0") || text.starts_with("[::]")
            };
            assert_eq!(all.iter().find(wrong), None);
        }
    }
}
