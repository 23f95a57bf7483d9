//! Which addresses a client of the SSH endpoint may reach through a job.

use model::metadata_address::is_no_host;
use std::net::IpAddr;

/// Refuses addresses where a machine's metadata are, and those that are no single host's.
pub fn may_reach(address: IpAddr) -> bool {
    !is_no_host(address)
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
            ("fd20:ce::254", false),
            ("100.100.100.200", false),
            ("192.0.0.192", false),
            ("168.63.129.16", false),
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
