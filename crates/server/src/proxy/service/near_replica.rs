//! Connections to replicas that have the server's own loopback addresses: made by the server itself, without a step. The step would
//! connect to the same port of the same address, and pass each byte on through five processes and threads.
//!
//! The step has the rights of the replica's owner, and the server has others. So the server connects where the kernel says that the
//! owner, and nobody else, listens at the port: what else is there is for the step to ask.

use crate::per_user::CountedUser;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use crate::shared::ssh_connections::SshConnection;
use crate::ssh::FORWARDED_OF_USER_MAX;
use model::id::AttemptId;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// The kernel's lists of TCP sockets in this network stack, which begin with those that listen.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Sockets of a list that are looked at.
const LISTENERS_MAX: usize = 8192;
/// The state of a socket that listens.
const LISTENS: &str = "0A";
/// Bytes of a list that are read at once.
const LIST_BYTES: usize = 32 << 10;

/// How a replica was tried.
pub enum NearConnection {
    Made(TcpStream, NearHeld),
    /// Nobody listens at its port, or its owner has as many connections as one may have.
    Refused,
    /// It is elsewhere, or something else listens at its port: a step may reach it.
    ByStep,
}

/// What a connection is counted as until it is closed.
pub struct NearHeld {
    _slot: OwnedSemaphorePermit,
    _counted: CountedUser,
    /// As one to its job.
    _open: SshConnection,
}

/// Connects to a port of an attempt's job, whose owner this is.
pub async fn connect(
    shared: &Shared,
    forwarders: &Forwarders,
    attempt: AttemptId,
    owner: u32,
    port: u16,
) -> NearConnection {
    if forwarders.near_slots.available_permits() == 0 || !is_near(shared, attempt) {
        return NearConnection::ByStep;
    }
    match Listeners::at(port) {
        Ok(Listeners::Of(uid)) if uid == owner => {}
        Ok(Listeners::None) => return NearConnection::Refused,
        Ok(Listeners::Of(_) | Listeners::Several) | Err(_) => return NearConnection::ByStep,
    }
    // The agents' streams need no descriptor.
    let Ok(slot) = forwarders.near_slots.clone().try_acquire_owned() else {
        return NearConnection::ByStep;
    };
    let Some(counted) = shared.volatile.forwarded.enter(owner, FORWARDED_OF_USER_MAX) else {
        return NearConnection::Refused;
    };
    let open = shared.volatile.ssh_connections.opened(attempt.job);
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        match TcpStream::connect((address, port)).await {
            Ok(stream) => {
                // A request does not wait for the acknowledgement of the one before.
                let _ = stream.set_nodelay(true);
                let held = NearHeld { _slot: slot, _counted: counted, _open: open };
                return NearConnection::Made(stream, held);
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => return NearConnection::ByStep,
        }
    }
    NearConnection::Refused
}

/// Whether a job's processes have the server's loopback addresses: one with a container has a network of its own.
fn is_near(shared: &Shared, attempt: AttemptId) -> bool {
    let node = {
        let state = shared.read();
        let job = state.jobs.get(&attempt.job);
        let job = job.filter(|job| job.attempt_id() == Some(attempt));
        let job = job.filter(|job| job.spec.launch.container.is_none());
        let first = job.and_then(|job| job.allocation()?.nodes.first());
        first.map(|first| first.node.clone())
    };
    node.and_then(|node| shared.agents.peer(&node)).is_some_and(|peer| peer.is_near)
}

/// Who listens at a port of the loopback addresses.
#[derive(Debug, PartialEq, Eq)]
enum Listeners {
    None,
    /// All sockets are of this user.
    Of(u32),
    Several,
}

impl Listeners {
    fn at(port: u16) -> io::Result<Self> {
        let mut found = Self::None;
        for list in LISTS {
            match File::open(list) {
                Ok(file) => found.read(port, BufReader::with_capacity(LIST_BYTES, file))?,
                // A kernel without IPv6.
                Err(error) if error.kind() == ErrorKind::NotFound && list != LISTS[0] => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Adds the sockets of one list.
    fn read(&mut self, port: u16, list: impl BufRead) -> io::Result<()> {
        for (count, line) in list.lines().skip(1).enumerate() {
            let line = line?;
            let unreadable = || io::Error::new(ErrorKind::InvalidData, "a line of another form");
            let mut words = line.split_ascii_whitespace().skip(1);
            let (address, at) = words.next().and_then(socket_address).ok_or_else(unreadable)?;
            if words.nth(1) != Some(LISTENS) {
                return Ok(());
            }
            let uid = words.nth(3).and_then(|uid| uid.parse().ok()).ok_or_else(unreadable)?;
            if count >= LISTENERS_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, "too many sockets"));
            }
            let address = address.to_canonical();
            if at == port && (address.is_loopback() || address.is_unspecified()) {
                self.add(uid);
            }
        }
        Ok(())
    }

    fn add(&mut self, uid: u32) {
        *self = match self {
            Self::None => Self::Of(uid),
            Self::Of(known) if *known == uid => Self::Of(uid),
            Self::Of(_) | Self::Several => Self::Several,
        };
    }
}

/// An address and a port as the kernel writes them: words of 32 bits in the machine's order of bytes, then the port.
fn socket_address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(8 * at..8 * at + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let address = match address.len() {
        8 => IpAddr::from(word(0)?),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?)
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const HEAD: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    /// A list of the kernel's with these sockets: address and port, state, user.
    fn list(sockets: &[(&str, &str, u32)]) -> String {
        let line = |(at, state, uid): &(&str, &str, u32)| {
            format!(
                "   0: {at} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5}        0 7 1 0\n"
            )
        };
        HEAD.to_owned() + &sockets.iter().map(line).collect::<String>()
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn port_is_its_owners_where_all_that_listen_there_are_of_one_user() {
        let v6 = |last: &str| format!("0000000000000000{last}:0050");
        let (any6, own6, mapped) =
            (v6("0000000000000000"), v6("0000000001000000"), v6("FFFF00000100007F"));
        for (sockets, expected) in [
            (vec![], Listeners::None),
            (vec![("0100007F:0051", "0A", 7)], Listeners::None),
            (vec![("0700000A:0050", "0A", 7)], Listeners::None),
            (vec![("0100007F:0050", "0A", 7)], Listeners::Of(7)),
            (vec![("00000000:0050", "0A", 7), ("0100007F:0050", "0A", 7)], Listeners::Of(7)),
            (vec![("00000000:0050", "0A", 7), (any6.as_str(), "0A", 8)], Listeners::Several),
            (vec![(own6.as_str(), "0A", 8)], Listeners::Of(8)),
            (vec![(mapped.as_str(), "0A", 8)], Listeners::Of(8)),
            // Those that do not listen come last, and nothing of them is looked at.
            (vec![("0100007F:0051", "01", 8), ("0100007F:0050", "0A", 7)], Listeners::None),
        ] {
            let mut found = Listeners::None;
            found.read(80, list(&sockets).as_bytes()).expect("a list");
            assert_eq!(found, expected, "{sockets:?}");
        }
        let strange = list(&[("0100007F", "0A", 7)]);
        assert!(Listeners::None.read(80, strange.as_bytes()).is_err());
    }

    #[test]
    fn own_socket_is_found_while_it_listens() {
        let own = nix::unistd::geteuid().as_raw();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        assert_eq!(Listeners::at(port).expect("the lists"), Listeners::Of(own));
        drop(listener);
        assert_eq!(Listeners::at(port).expect("the lists"), Listeners::None);
    }
}
