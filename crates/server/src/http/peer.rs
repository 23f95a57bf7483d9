//! Where a request came from, as its connection tells.

use crate::connection_limits::PortConnection;
use crate::http::vouch::NodeUser;
use model::principal::Principal;
use std::net::IpAddr;
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

/// The slot of a connection. Who takes the connection over from HTTP holds it on: HTTP ends there.
#[derive(Clone)]
pub struct HeldSlot(#[expect(dead_code)] pub Arc<dyn Send + Sync>);
