//! Where a request came from, as its connection tells.

use crate::connection_limits::PortConnection;
use model::principal::Principal;
use std::net::SocketAddr;

/// Put into every request's extensions by the listener that accepted its connection.
#[derive(Clone)]
pub enum Peer {
    /// The local socket: the kernel says who connected.
    Socket(Principal),
    /// The TCP port: a token must say who asks.
    Port(SocketAddr, PortConnection),
}
