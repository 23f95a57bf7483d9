//! Connections to replicas that have the server's own loopback addresses: made by the server itself, without a step. The step would
//! connect to the same port of the same address, and pass each byte on through five processes and threads.
//!
//! The step has the rights of the replica's owner, and the server has others. So the server connects where the kernel says that the
//! owner, and nobody else, listens at the address: what else is there is for the step to ask. Which of the owner's jobs it is that listens
//! the step finds out too, with the first connection, and anew where none of the sockets listens that it found; no request goes by that
//! connection where the server can make one then.

use crate::per_user::CountedUser;
use crate::proxy::forwarders::Forwarders;
use crate::shared::Shared;
use crate::shared::ssh_connections::SshConnection;
use crate::ssh::FORWARDED_OF_USER_MAX;
use model::id::AttemptId;
use model::listening_socket::{self, ListeningSocket};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;

/// Bytes of a list of sockets that are read at once.
const LIST_BYTES: usize = 32 << 10;

/// What is connected to: a port of an attempt's job, whose owner this is.
#[derive(Clone, Copy)]
pub struct NearTarget {
    pub attempt: AttemptId,
    pub owner: u32,
    pub port: u16,
}

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

/// Connects to a replica. `known`: the inodes of the sockets that a step has found to be its job's; others only a step can tell from those of
/// another job of the same owner.
pub async fn connect(
    shared: &Shared,
    forwarders: &Forwarders,
    target: NearTarget,
    known: &[u64],
) -> NearConnection {
    if forwarders.near_slots.available_permits() == 0 || !is_near(shared, target.attempt) {
        return NearConnection::ByStep;
    }
    for address in [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)] {
        let address = SocketAddr::from((address, target.port));
        let Ok(listening) = look_up(address).await else { return NearConnection::ByStep };
        if listening.is_empty() {
            continue;
        }
        let own = own_sockets(&listening, target.owner, known);
        if own.is_empty() {
            return NearConnection::ByStep;
        }
        match dial(shared, forwarders, target, address, &own).await {
            // Its server may have ended, and another of the owner's listen at the other address.
            NearConnection::Refused => {}
            tried => return tried,
        }
    }
    NearConnection::Refused
}

/// Connects to an address where these sockets of the replica's listen.
async fn dial(
    shared: &Shared,
    forwarders: &Forwarders,
    target: NearTarget,
    address: SocketAddr,
    own: &[ListeningSocket],
) -> NearConnection {
    // The agents' streams need no descriptor.
    let Ok(slot) = forwarders.near_slots.clone().try_acquire_owned() else {
        return NearConnection::ByStep;
    };
    let Some(counted) = shared.volatile.forwarded.enter(target.owner, FORWARDED_OF_USER_MAX) else {
        return NearConnection::Refused;
    };
    let open = shared.volatile.ssh_connections.opened(target.attempt.job);
    match TcpStream::connect(address).await {
        Ok(stream) => {
            // Somebody else may have taken the port between the look and the connection: not while one of the sockets listens on.
            let found = look_up(address).await.unwrap_or_default();
            let goes_on = found.iter().any(|socket| own.contains(socket));
            if !goes_on || !are_of(&found, target.owner) {
                return NearConnection::ByStep;
            }
            // A request does not wait for the acknowledgement of the one before.
            let _ = stream.set_nodelay(true);
            NearConnection::Made(stream, NearHeld { _slot: slot, _counted: counted, _open: open })
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => NearConnection::Refused,
        Err(_) => NearConnection::ByStep,
    }
}

/// The sockets at an address that are known to be the replica's; none where another user listens there too.
fn own_sockets(listening: &[ListeningSocket], owner: u32, known: &[u64]) -> Vec<ListeningSocket> {
    if !are_of(listening, owner) {
        return Vec::new();
    }
    listening.iter().filter(|socket| known.contains(&socket.inode)).copied().collect()
}

fn are_of(sockets: &[ListeningSocket], owner: u32) -> bool {
    sockets.iter().all(|socket| socket.uid == owner)
}

/// The sockets that listen at an address of this machine. The lists are as long as all users' sockets make them: who reads them holds up
/// nothing else.
pub async fn look_up(address: SocketAddr) -> io::Result<Vec<ListeningSocket>> {
    spawn_blocking(move || listening_at(address)).await.map_err(io::Error::other)?
}

fn listening_at(address: SocketAddr) -> io::Result<Vec<ListeningSocket>> {
    listening_socket::at(address, |list| {
        Ok(BufReader::with_capacity(LIST_BYTES, File::open(list)?))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn socket_that_no_step_has_found_is_not_the_replicas() {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        let socket = |uid, inode| ListeningSocket { address, uid, inode };
        let [one, other, strange] = [socket(7, 1), socket(7, 2), socket(8, 3)];
        assert_eq!(own_sockets(&[one, other], 7, &[1]), [one]);
        assert!(own_sockets(&[other], 7, &[1]).is_empty(), "its server has ended");
        assert!(own_sockets(&[one], 7, &[]).is_empty(), "no step has connected");
        assert!(own_sockets(&[one, strange], 7, &[1, 3]).is_empty(), "another user listens too");
    }

    #[test]
    fn own_socket_is_found_while_it_listens() {
        let own = nix::unistd::geteuid().as_raw();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let found = listening_at(address).expect("the lists");
        assert!(found.len() == 1 && are_of(&found, own), "{found:?}");
        assert!(!are_of(&found, own + 1), "{found:?}");
        drop(listener);
        assert!(listening_at(address).expect("the lists").is_empty());
    }
}
