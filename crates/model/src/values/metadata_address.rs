//! Where clouds tell a machine's own credentials, beside the link-local addresses that most of them use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The metadata services of Alibaba, Oracle and Azure.
const V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The metadata services of AWS and Google.
const V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Whether nobody is to be led to this address: it is link-local, or one of a cloud's own services.
pub fn is_metadata(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || V4.contains(&v4),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || V6.contains(&v6),
    }
}

/// Whether no single host is behind this address, or one whom nobody is to be led to. One that is unspecified leads a connection to the
/// machine itself.
pub fn is_no_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    is_metadata(address) || is_broadcast || address.is_multicast() || address.is_unspecified()
}
