//! Where a request came from, as its connection tells.

use crate::connection_limits::PortConnection;
use crate::http::vouch::NodeUser;
use axum::http::Extensions;
use model::principal::Principal;
use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Put into every request's extensions by the listener that accepted its connection.
#[derive(Clone)]
pub enum Peer {
    /// The local socket: the kernel says who connected.
    Socket(Principal),
    /// The TCP port, on loopback or under TLS: a token must say who asks.
    Port { connection: PortConnection, from: IpAddr, is_loopback: bool },
    /// An agent's socket on another machine: its node vouches for the user.
    Node(Arc<NodeUser>),
}

/// Where a request comes from. By a socket it is its user's, whom the kernel or a node knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAddress {
    Address(IpAddr),
    User(u32),
    Unknown,
}

impl ClientAddress {
    /// By the extensions of the request.
    pub fn of(extensions: &Extensions) -> Self {
        match extensions.get::<Peer>() {
            Some(Peer::Port { from, .. }) => Self::Address(from.to_canonical()),
            Some(Peer::Socket(user)) => Self::User(user.uid),
            Some(Peer::Node(user)) => Self::User(user.who.uid),
            None => Self::Unknown,
        }
    }
}

/// Adds an address as it displays itself. Each request to a service has its client's written twice: the numbers of version 4, which most have,
/// do without the formatter.
pub fn push_address(text: &mut String, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // A text takes all that is written to it.
        let _ = write!(text, "{address}");
        return;
    };
    let mut digits = itoa::Buffer::new();
    for (at, number) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        text.push_str(digits.format(number));
    }
}

impl fmt::Display for ClientAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Unknown => Ok(()),
        }
    }
}

/// The part of an address of version 6 that is one network's: who has one address of it has all.
const NETWORK_MASK: u128 = u128::MAX << 64;

/// What stands for a client where clients are held to a rate: an address, or a network of 64 bits for version 6.
pub fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK_MASK).into(),
    }
}

/// The slot of a connection. Who takes the connection over from HTTP holds it on: HTTP ends there.
#[derive(Clone)]
pub struct HeldSlot(#[expect(dead_code)] pub Arc<dyn Send + Sync>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_written_as_it_displays_itself() {
        for text in ["0.0.0.0", "10.20.3.0", "255.255.255.255", "::1", "2001:db8::7"] {
            let mut line = "from ".to_owned();
            push_address(&mut line, text.parse().expect("an address"));
            assert_eq!(line, format!("from {text}"));
        }
    }
}
