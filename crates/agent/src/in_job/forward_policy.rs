//! Which addresses a client of the SSH endpoint may reach through a job.

use std::net::{IpAddr, Ipv6Addr};

/// Where clouds tell a machine's own credentials, beside the link-local address that they share.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Refuses link-local addresses, where a machine's metadata are, and those that are no single host's.
pub fn may_reach(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            !v4.is_link_local() && !v4.is_multicast() && !v4.is_broadcast() && !v4.is_unspecified()
        }
        IpAddr::V6(v6) => {
            !v6.is_unicast_link_local()
                && !v6.is_multicast()
                && !v6.is_unspecified()
                && v6 != METADATA
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_and_addresses_of_no_host_are_refused() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("10.1.2.3", true),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("fd00:ec2::253", true),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("ff02::1", false),
        ] {
            assert_eq!(may_reach(address.parse().expect("an address")), expected, "{address}");
        }
    }
}
