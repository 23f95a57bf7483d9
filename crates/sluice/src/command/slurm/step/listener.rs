//! The port on which supervisors dial an `srun`, and the key that they must show.

use ::slurm::request::step::Endpoint;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

/// The most addresses that supervisors are told.
const ADDRESSES_MAX: usize = 8;
const KEY_BYTES: usize = 32;

pub struct StepListener {
    listener: TcpListener,
    key: String,
}

impl StepListener {
    /// Listens on a port that the kernel chooses, on every address of this machine: the nodes may be anywhere.
    pub fn open() -> io::Result<Self> {
        let any = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .or_else(|_| TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
        any.set_nonblocking(true)?;
        let mut bytes = [0; KEY_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        let key = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { listener: any, key })
    }

    pub fn endpoint(&self) -> io::Result<Endpoint> {
        let bound = self.listener.local_addr()?;
        let listen = addresses(bound.is_ipv4())
            .into_iter()
            .map(|address| SocketAddr::new(address, bound.port()).to_string())
            .collect();
        let mut ticket = [0; 8];
        SystemRandom::new()
            .fill(&mut ticket)
            .map_err(|_| io::Error::other("the kernel gives no random bytes"))?;
        // A ticket of zero means that there is none.
        let ticket = u64::from_le_bytes(ticket).max(1);
        Ok(Endpoint { listen, key: self.key.clone(), ticket })
    }

    /// The next connection, if there is one.
    pub fn accept(&self) -> Option<TcpStream> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(stream)
    }

    /// Compares the key in constant time.
    pub fn admits(&self, key: &str) -> bool {
        let (ours, theirs) = (self.key.as_bytes(), key.as_bytes());
        let differing = ours.iter().zip(theirs).fold(0, |sum, (a, b)| sum | (a ^ b));
        ours.len() == theirs.len() && differing == 0
    }
}

impl AsFd for StepListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// This machine's addresses. Loopback is last: on another host it is that host.
fn addresses(v4: bool) -> Vec<IpAddr> {
    let usable = |flags: InterfaceFlags| {
        flags.contains(InterfaceFlags::IFF_UP) && !flags.contains(InterfaceFlags::IFF_LOOPBACK)
    };
    let found = getifaddrs().into_iter().flatten().filter(|i| usable(i.flags));
    let mut list: Vec<IpAddr> = found
        .filter_map(|interface| {
            let address = interface.address?;
            if v4 {
                Some(IpAddr::V4(address.as_sockaddr_in()?.ip()))
            } else {
                Some(IpAddr::V6(address.as_sockaddr_in6()?.ip()))
            }
        })
        .take(ADDRESSES_MAX - 1)
        .collect();
    list.push(if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_is_reachable_and_admits_only_its_key() {
        let listener = StepListener::open().expect("a port");
        let endpoint = listener.endpoint().expect("its addresses");
        let last = endpoint.listen.last().expect("loopback at least");
        assert!(last.starts_with("127.0.0.1:"), "{last}");
        let knocking = TcpStream::connect(last.as_str());
        assert!(knocking.is_ok());

        assert_eq!(endpoint.key.len(), 2 * KEY_BYTES);
        assert!(listener.admits(&endpoint.key));
        let mut wrong = endpoint.key.clone();
        wrong.replace_range(..1, "x");
        for key in [wrong.as_str(), "", &endpoint.key[1..], &format!("{}0", endpoint.key)] {
            assert!(!listener.admits(key), "{key}");
        }
    }
}
