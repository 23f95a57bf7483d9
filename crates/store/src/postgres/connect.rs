//! How a session begins: the hosts of an address are tried in turn, each for a bounded time.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, sockopt};
use nix::sys::socket::{connect as connect_socket, setsockopt, socket};
use tokio_postgres::config::{Host, LoadBalanceHosts, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use super::answer::{Deadline, Incoming, answer};
use super::error::{DatabaseError, describe};
use super::socket::{SharedSocket, Socket};
use super::url::DatabaseUrl;

/// PostgreSQL's own port.
const PORT: u16 = 5432;

/// A connection, as far as a session needs it.
pub(super) struct Connected {
    pub client: Client,
    pub incoming: Incoming,
    pub socket: SharedSocket,
}

/// Connects to the first host that takes the session.
pub(super) fn connect(url: &DatabaseUrl, deadline: Deadline) -> Result<Connected, DatabaseError> {
    match &url.tls {
        Some(tls) => connect_by(&url.config, tls.clone(), deadline),
        None => connect_by(&url.config, NoTls, deadline),
    }
}

fn connect_by<T>(
    config: &Config,
    mut tls: T,
    deadline: Deadline,
) -> Result<Connected, DatabaseError>
where
    T: MakeTlsConnect<SharedSocket>,
    T::Stream: Send + 'static,
{
    let mut last = None;
    let places = Place::all(config)?;
    for (number, place) in places.iter().enumerate() {
        let has_next_place = number + 1 < places.len();
        let of_name = deadline_of_one(config, deadline, has_next_place);
        let addresses = match place.resolve(of_name) {
            Ok(addresses) => addresses,
            Err(error) => {
                last = Some(unreachable(&error));
                continue;
            }
        };
        let count = addresses.len();
        for (number, address) in shuffled_if_asked(config, addresses).iter().enumerate() {
            let has_next = has_next_place || number + 1 < count;
            let of_address = deadline_of_one(config, deadline, has_next);
            match connect_once(config, &mut tls, place.hostname, address, of_address) {
                Err(DatabaseError::Late(_)) if Instant::now() < deadline.at => {
                    last = Some(unreachable(&timed_out()));
                }
                Err(DatabaseError::Late(_)) => return Err(deadline.late()),
                Err(error) => last = Some(error),
                connected => return connected,
            }
        }
    }
    Err(last.unwrap_or_else(|| unreachable(&io::Error::other("no address of it is known"))))
}

/// Until when one address is tried. One behind which there are others has the time for a connection alone, also for the session's begin: a
/// host that is frozen takes connections, and says nothing.
fn deadline_of_one(config: &Config, deadline: Deadline, has_next: bool) -> Deadline {
    match config.get_connect_timeout() {
        Some(timeout) if has_next => {
            Deadline { at: deadline.at.min(Instant::now() + *timeout), ..deadline }
        }
        _ => deadline,
    }
}

fn connect_once<T>(
    config: &Config,
    tls: &mut T,
    hostname: Option<&str>,
    address: &Address,
    deadline: Deadline,
) -> Result<Connected, DatabaseError>
where
    T: MakeTlsConnect<SharedSocket>,
    T::Stream: Send + 'static,
{
    let socket = address.open(config, deadline).map_err(|error| unreachable(&error))?;
    let socket = SharedSocket::new(socket);
    let tls = tls
        .make_tls_connect(hostname.unwrap_or_default())
        .map_err(|error| DatabaseError::Unreachable(describe(&*error.into())))?;
    begin(config, tls, socket, deadline)
}

fn begin<T>(
    config: &Config,
    tls: T,
    socket: SharedSocket,
    deadline: Deadline,
) -> Result<Connected, DatabaseError>
where
    T: TlsConnect<SharedSocket>,
    T::Stream: Send + 'static,
{
    let connecting = config.connect_raw(socket.clone(), tls);
    let connected = socket.run(deadline.at, connecting).ok_or_else(|| deadline.late())?;
    let (client, mut connection) = connected?;
    let incoming = Incoming::new(Box::new(move |context| connection.poll_message(context)));
    let mut connected = Connected { client, incoming, socket };
    connected.check_attributes(config.get_target_session_attrs(), deadline)?;
    Ok(connected)
}

impl Connected {
    /// Refuses a database that is not what the address asks for, as a replica where it is to be written to.
    fn check_attributes(
        &mut self,
        wanted: TargetSessionAttrs,
        deadline: Deadline,
    ) -> Result<(), DatabaseError> {
        if wanted == TargetSessionAttrs::Any {
            return Ok(());
        }
        let Self { client, incoming, socket } = self;
        let asked = client.simple_query("SHOW transaction_read_only");
        let told = answer(socket, incoming, deadline, asked)?;
        let is_read_only = told.iter().any(
            |message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("on")),
        );
        let refused = |why: &str| Err(DatabaseError::Unreachable(format!("{CONNECTING}: {why}")));
        match wanted {
            TargetSessionAttrs::ReadWrite if is_read_only => {
                refused("database does not allow writes")
            }
            TargetSessionAttrs::ReadOnly if !is_read_only => refused("database is not read only"),
            _ => Ok(()),
        }
    }
}

const CONNECTING: &str = "error connecting to server";

fn unreachable(error: &io::Error) -> DatabaseError {
    DatabaseError::Unreachable(format!("{CONNECTING}: {error}").replace('\n', " "))
}

/// A host of an address.
struct Place<'a> {
    /// What its certificate is to name.
    hostname: Option<&'a str>,
    host: Option<&'a Host>,
    /// Where it is, where the address says so.
    ip: Option<IpAddr>,
    port: u16,
}

impl<'a> Place<'a> {
    fn all(config: &'a Config) -> Result<Vec<Self>, DatabaseError> {
        let unfit =
            |why: &str| Err(DatabaseError::Unfit(format!("the address of the store: {why}")));
        let (hosts, ips, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
        let count = hosts.len().max(ips.len());
        if count == 0 {
            return unfit("it names no host");
        }
        if !hosts.is_empty() && !ips.is_empty() && hosts.len() != ips.len() {
            return unfit("it has another number of hosts than of hostaddr");
        }
        if ports.len() > 1 && ports.len() != count {
            return unfit("it has another number of hosts than of ports");
        }
        let place = |number: usize| {
            let host = hosts.get(number);
            let hostname = match host {
                Some(Host::Tcp(name)) => Some(name.as_str()),
                _ => None,
            };
            let port = ports.get(number).or_else(|| ports.first()).copied().unwrap_or(PORT);
            Self { hostname, host, ip: ips.get(number).copied(), port }
        };
        Ok(shuffled_if_asked(config, (0..count).map(place).collect()))
    }

    /// Asks for the addresses of a name on a thread of its own: the library's call has no bound.
    fn resolve(&self, deadline: Deadline) -> io::Result<Vec<Address>> {
        let port = self.port;
        let ip = self.ip.or_else(|| self.hostname?.parse().ok());
        let name = match (ip, self.host) {
            (Some(ip), _) => return Ok(vec![Address::Tcp(SocketAddr::new(ip, port))]),
            (None, Some(Host::Unix(folder))) => {
                return Ok(vec![Address::Unix(folder.join(format!(".s.PGSQL.{port}")))]);
            }
            (None, Some(Host::Tcp(name))) => name.clone(),
            (None, None) => return Ok(Vec::new()),
        };
        let (to, resolved) = mpsc::channel();
        std::thread::Builder::new().name("resolve".into()).spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs();
            // Who asked may have given up.
            let _ = to.send(found.map(|found| found.map(Address::Tcp).collect()));
        })?;
        let left = deadline.at.saturating_duration_since(Instant::now());
        resolved.recv_timeout(left).unwrap_or_else(|_| Err(timed_out()))
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
}

enum Address {
    Tcp(SocketAddr),
    Unix(std::path::PathBuf),
}

impl Address {
    fn open(&self, config: &Config, deadline: Deadline) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => open_tcp(*address, config, deadline).map(Socket::Tcp),
            Self::Unix(path) => open_unix(path).map(Socket::Unix),
        }
    }
}

fn open_tcp(address: SocketAddr, config: &Config, deadline: Deadline) -> io::Result<TcpStream> {
    let left = deadline.at.saturating_duration_since(Instant::now());
    let timeout = config.get_connect_timeout().map_or(left, |timeout| left.min(*timeout));
    if timeout.is_zero() {
        return Err(timed_out());
    }
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    if let Some(silence) = config.get_tcp_user_timeout() {
        let milliseconds = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX);
        setsockopt(&stream, sockopt::TcpUserTimeout, &milliseconds)?;
    }
    if config.get_keepalives() {
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &seconds(config.get_keepalives_idle()))?;
        if let Some(interval) = config.get_keepalives_interval() {
            setsockopt(&stream, sockopt::TcpKeepInterval, &seconds(interval))?;
        }
        if let Some(probes) = config.get_keepalives_retries() {
            setsockopt(&stream, sockopt::TcpKeepCount, &probes)?;
        }
    }
    Ok(stream)
}

/// A database whose backlog is full refuses at once: waiting for a place there has no bound.
fn open_unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect_socket(std::os::fd::AsRawFd::as_raw_fd(&fd), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}

fn shuffled_if_asked<T>(config: &Config, mut items: Vec<T>) -> Vec<T> {
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        let random = RandomState::new();
        let mut keyed: Vec<_> = items.drain(..).enumerate().collect();
        keyed.sort_by_cached_key(|(number, _)| random.hash_one(number));
        items.extend(keyed.into_iter().map(|(_, item)| item));
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(text: &str) -> Result<Vec<String>, String> {
        let config: Config = text.parse().expect("an address");
        let places = Place::all(&config).map_err(|error| error.to_string())?;
        let shown = |place: &Place<'_>| {
            format!("{:?} {:?} {}", place.hostname.unwrap_or("-"), place.ip, place.port)
        };
        Ok(places.iter().map(shown).collect())
    }

    #[test]
    fn hosts_are_tried_in_turn_each_at_its_port() {
        let found = places("postgres://u@a:1,b:2/d").expect("two");
        assert_eq!(found, [r#""a" None 1"#, r#""b" None 2"#]);
        let found = places("host=a hostaddr=10.0.0.1 user=u").expect("one");
        assert_eq!(found, [r#""a" Some(10.0.0.1) 5432"#]);
        let found = places("host=/run/postgresql user=u port=7").expect("one");
        assert_eq!(found, [r#""-" None 7"#]);
        let mut random = places("host=a,b,c user=u load_balance_hosts=random").expect("three");
        random.sort();
        assert_eq!(random.len(), 3);
        assert!(random[0].contains("\"a\"") && random[2].contains("\"c\""));
        for wrong in ["user=u", "host=a,b port=1,2,3 user=u", "host=a,b hostaddr=10.0.0.1 user=u"] {
            let refused = places(wrong).expect_err(wrong);
            assert!(refused.starts_with("the address of the store: "), "{refused}");
        }
    }

    #[test]
    fn host_that_says_nothing_does_not_keep_the_next_from_being_tried() {
        let frozen = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = frozen.local_addr().expect("its address").port();
        let url = format!("host=127.0.0.1,127.0.0.1 port={port},1 connect_timeout=1 user=u");
        let config: Config = url.parse().expect("an address");
        // The first takes the connection, which is never served; at the second nobody listens.
        let deadline = Deadline::after(Duration::from_secs(60));
        let refused = connect_by(&config, NoTls, deadline).err().expect("nobody answers");
        assert!(matches!(refused, DatabaseError::Unreachable(_)), "{refused}");
        assert!(refused.to_string().contains("refused"), "it is what the second said: {refused}");
    }

    #[test]
    fn host_that_refuses_is_said_in_one_line() {
        let config: Config = "host=127.0.0.1 port=1 user=u".parse().expect("an address");
        let deadline = Deadline::after(Duration::from_secs(5));
        let refused = connect_by(&config, NoTls, deadline).err().expect("nobody listens");
        let said = refused.to_string();
        assert!(said.starts_with("the database cannot be reached: error connecting to server: "));
        assert!(refused.may_pass() && !said.contains('\n'), "{said}");
    }
}
