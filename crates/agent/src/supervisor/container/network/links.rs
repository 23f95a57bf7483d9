//! The link between a node and a container's network namespace: a pair of virtual interfaces, one at each end.

use super::netlink::{CREATE, Messages, Netlink};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

/// The interface inside the container.
pub(super) const INSIDE: &str = "eth0";
const LOOPBACK: &str = "lo";
/// Each link is a network of four addresses.
const PREFIX: u8 = 30;
const PEER: u16 = 1;

/// `ifinfomsg`
fn link_head(index: u32, flags: i32) -> [u8; 16] {
    let mut head = [0; 16];
    head[4..8].copy_from_slice(&index.to_ne_bytes());
    head[8..12].copy_from_slice(&flags.to_ne_bytes());
    head[12..16].copy_from_slice(&flags.to_ne_bytes());
    head
}

/// Makes the pair: `name` here, [`INSIDE`] in the other namespace. It ends with that namespace.
pub(super) fn make(name: &str, other: &OwnedFd) -> nix::Result<()> {
    let mut messages = Messages::default();
    messages.add(libc::RTM_NEWLINK, CREATE, &link_head(0, 0), |all| {
        all.text(libc::IFLA_IFNAME, name).nest(libc::IFLA_LINKINFO, |info| {
            info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, |data| {
                data.nest_with_head(PEER, &link_head(0, 0), |peer| {
                    peer.text(libc::IFLA_IFNAME, INSIDE)
                        .put(libc::IFLA_NET_NS_FD, &other.as_raw_fd().to_ne_bytes());
                });
            });
        });
    });
    Netlink::open(libc::NETLINK_ROUTE)?.ask(&messages)
}

/// Removes both ends of a link.
pub(super) fn remove(index: u32) -> nix::Result<()> {
    let mut messages = Messages::default();
    messages.add(libc::RTM_DELLINK, 0, &link_head(index, 0), |_| {});
    Netlink::open(libc::NETLINK_ROUTE)?.ask(&messages)
}

/// Gives an interface of this namespace its address, and switches it on.
pub(super) fn address_and_switch_on(name: &str, address: Ipv4Addr) -> nix::Result<()> {
    let index = if_nametoindex(name)?;
    let mut head = [0; 8];
    head[..2].copy_from_slice(&[libc::AF_INET as u8, PREFIX]);
    head[4..].copy_from_slice(&index.to_ne_bytes());
    let mut messages = Messages::default();
    messages.add(libc::RTM_NEWADDR, CREATE, &head, |all| {
        all.put(libc::IFA_LOCAL, &address.octets()).put(libc::IFA_ADDRESS, &address.octets());
    });
    let socket = Netlink::open(libc::NETLINK_ROUTE)?;
    socket.ask(&messages)?;
    switch_on(&socket, index)
}

pub(super) fn switch_loopback_on() -> nix::Result<()> {
    switch_on(&Netlink::open(libc::NETLINK_ROUTE)?, if_nametoindex(LOOPBACK)?)
}

fn switch_on(socket: &Netlink, index: u32) -> nix::Result<()> {
    let mut messages = Messages::default();
    messages.add(libc::RTM_NEWLINK, 0, &link_head(index, libc::IFF_UP), |_| {});
    socket.ask(&messages)
}

/// Everything that this namespace has no other way to goes over `gateway`.
pub(super) fn route_all_over(gateway: Ipv4Addr) -> nix::Result<()> {
    let mut head = [0; 12];
    head[0] = libc::AF_INET as u8;
    head[4..8].copy_from_slice(&[
        libc::RT_TABLE_MAIN,
        libc::RTPROT_BOOT,
        libc::RT_SCOPE_UNIVERSE,
        libc::RTN_UNICAST,
    ]);
    let mut messages = Messages::default();
    messages.add(libc::RTM_NEWROUTE, CREATE, &head, |all| {
        all.put(libc::RTA_GATEWAY, &gateway.octets());
    });
    Netlink::open(libc::NETLINK_ROUTE)?.ask(&messages)
}

/// The index of an interface of this namespace.
pub(super) fn index_of(name: &str) -> Result<u32, Errno> {
    if_nametoindex(name)
}
