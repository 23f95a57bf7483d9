//! The port on which supervisors dial an `srun`, and the key that both ends prove.

use ::slurm::request::step::Endpoint;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use wire::step_channel::StepChannel;

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
        let network_stack = agent::network_stack();
        Ok(Endpoint { listen, network_stack, key: self.key.clone(), ticket })
    }

    /// The next connection, if there is one, with the channel on which its other end has yet to prove the key.
    pub fn accept(&self) -> Option<(TcpStream, StepChannel)> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        let channel = StepChannel::listener(&self.key, &SystemRandom::new()).ok()?;
        Some((stream, channel))
    }
}

impl AsFd for StepListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// This machine's addresses. Loopback is last, and dialled only in the same network stack.
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
    fn the_listener_is_reachable_and_draws_a_key_of_its_own() {
        let listener = StepListener::open().expect("a port");
        let endpoint = listener.endpoint().expect("its addresses");
        let last = endpoint.listen.last().expect("loopback at least");
        assert!(last.starts_with("127.0.0.1:"), "{last}");
        let knocking = TcpStream::connect(last.as_str());
        assert!(knocking.is_ok());

        assert_eq!(endpoint.key.len(), 2 * KEY_BYTES);
        let other = StepListener::open().and_then(|other| other.endpoint()).expect("another");
        assert_ne!(endpoint.key, other.key);
    }
}
