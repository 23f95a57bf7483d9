//! The port on which supervisors dial an `srun`, and the key that both ends prove.

use crate::client::ServerLocation;
use ::slurm::request::step::Endpoint;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen, setsockopt, socket,
    sockopt,
};
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use wire::step_channel::StepChannel;

/// The most addresses of each kind that supervisors are told, besides loopback.
const V4_ADDRESSES_MAX: usize = 7;
const V6_ADDRESSES_MAX: usize = 4;
const KEY_BYTES: usize = 32;

pub struct StepListener {
    /// `None` where nodes are not expected to dial.
    listener: Option<TcpListener>,
    key: String,
}

impl StepListener {
    /// Listens on a port that the kernel chooses, on every address of this machine: the nodes may be anywhere. A machine
    /// that asks its server over HTTPS opens no port: the nodes can seldom dial it, and it may be in any network.
    pub fn open(server: &ServerLocation) -> io::Result<Self> {
        let listener = if server.is_remote() { None } else { Some(Self::listen()?) };
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        let key = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { listener, key })
    }

    fn listen() -> io::Result<TcpListener> {
        let any = listen_on_both()
            .map_err(io::Error::from)
            .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        any.set_nonblocking(true)?;
        Ok(any)
    }

    /// Whether nodes are expected to dial.
    pub fn is_dialled(&self) -> bool {
        self.listener.is_some()
    }

    pub fn endpoint(&self) -> io::Result<Endpoint> {
        let bound = self.listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let dialled_at = |bound: SocketAddr| {
            let at = move |address| SocketAddr::new(address, bound.port()).to_string();
            addresses(bound.is_ipv6()).into_iter().map(at)
        };
        let listen = bound.into_iter().flat_map(dialled_at).collect();
        let mut ticket = [0; 8];
        SystemRandom::new()
            .fill(&mut ticket)
            .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        // A ticket of zero means that there is none.
        let ticket = u64::from_le_bytes(ticket).max(1);
        let network_stack = agent::network_stack();
        Ok(Endpoint { listen, network_stack, key: self.key.clone(), ticket })
    }

    /// The next connection, if there is one, with the channel on which its other end has yet to prove the key.
    pub fn accept(&self) -> Option<(TcpStream, StepChannel)> {
        let (stream, _) = self.listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        let channel = StepChannel::listener(&self.key, &SystemRandom::new()).ok()?;
        Some((stream, channel))
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(TcpListener::as_fd)
    }
}

/// A port that takes connections of IPv4 and of IPv6, whatever the machine's default for such a port is. An error where it has no
/// IPv6.
fn listen_on_both() -> nix::Result<TcpListener> {
    let socket = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 0, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(any))?;
    listen(&socket, Backlog::MAXCONN)?;
    Ok(socket.into())
}

/// This machine's addresses, those of IPv6 where the port takes them. Loopback is last, and dialled only in the same network
/// stack; the port takes its connections also where it is one of IPv6.
fn addresses(with_v6: bool) -> Vec<IpAddr> {
    let usable = |flags: InterfaceFlags| {
        flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    let interfaces: Vec<InterfaceAddress> =
        getifaddrs().into_iter().flatten().filter(|i| usable(i.flags)).collect();
    let v4 = interfaces.iter().filter_map(|i| Some(i.address?.as_sockaddr_in()?.ip()));
    let v6 = interfaces.iter().filter_map(|i| Some(i.address?.as_sockaddr_in6()?.ip()));
    // A link-local address is worth nothing without the interface it is on.
    let v6 = v6.filter(|ip| with_v6 && !ip.is_unicast_link_local());
    let v4 = v4.take(V4_ADDRESSES_MAX).map(IpAddr::V4);
    let v6 = v6.take(V6_ADDRESSES_MAX).map(IpAddr::V6);
    v4.chain(v6).chain([IpAddr::V4(Ipv4Addr::LOCALHOST)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::tls::Trust;
    use crate::client::{HostPort, HttpsServer};
    use model::secret::SecretValue;

    #[test]
    fn the_listener_is_reachable_and_draws_a_key_of_its_own() {
        let here = ServerLocation::Socket("sluice.sock".into());
        let listener = StepListener::open(&here).expect("a port");
        let endpoint = listener.endpoint().expect("its addresses");
        let last = endpoint.listen.last().expect("loopback at least");
        assert!(last.starts_with("127.0.0.1:"), "{last}");
        let knocking = TcpStream::connect(last.as_str());
        assert!(knocking.is_ok());
        // The same port takes connections of IPv6, where there is any here.
        let port = last.rsplit(':').next().expect("a port").to_owned();
        if TcpListener::bind("[::1]:0").is_ok() {
            let knocking = TcpStream::connect(format!("[::1]:{port}"));
            assert!(knocking.is_ok(), "{knocking:?}");
        }
        let is_link_local = |address: &String| address.starts_with("[fe80:");
        assert!(!endpoint.listen.iter().any(is_link_local), "{:?}", endpoint.listen);

        assert_eq!(endpoint.key.len(), 2 * KEY_BYTES);
        let other = StepListener::open(&here).and_then(|other| other.endpoint()).expect("another");
        assert_ne!(endpoint.key, other.key);
    }

    #[test]
    fn machine_that_asks_over_https_opens_no_port() {
        let server = HttpsServer {
            address: HostPort { host: "head".into(), port: 6820 },
            others: Vec::new(),
            token: SecretValue::default(),
            trust: Trust::Machine,
        };
        let listener = StepListener::open(&ServerLocation::Https(Box::new(server)));
        let listener = listener.expect("a key");
        assert!(listener.fd().is_none() && listener.accept().is_none());
        let endpoint = listener.endpoint().expect("no addresses");
        assert!(endpoint.listen.is_empty() && endpoint.key.len() == 2 * KEY_BYTES);
    }
}
