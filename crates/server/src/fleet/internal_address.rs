//! The address by which the other hosts of a fleet reach a host: the one that it has in the fleet's network.

use super::script;
use super::ssh_client::{Failure, SshClient};
use model::ip_network::IpNetwork;
use model::ssh_fleet::FleetHost;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The most addresses of one host that are looked at.
const ADDRESSES_MAX: usize = 4096;

/// The most addresses that a line names.
const SHOWN_MAX: usize = 8;

/// The host's address, if it is asked for, and in which network. A host that does not have exactly one is refused.
pub async fn find(
    host: &FleetHost,
    client: &SshClient,
) -> Result<Option<(IpNetwork, IpAddr)>, Failure> {
    let Some(network) = host.network.filter(|_| host.seeks_address()) else {
        return Ok(None);
    };
    let said = client.run(&script::addresses(), b"", COMMAND_TIMEOUT).await?;
    let address = only_one(network, &addresses(&said.ok("list of addresses")?))?;
    Ok(Some((network, address)))
}

/// What `script::addresses` says: IPv4 addresses as they are written, IPv6 addresses as 32 digits.
fn addresses(text: &str) -> BTreeSet<IpAddr> {
    let address = |word: &str| match word.len() {
        32 => u128::from_str_radix(word, 16).ok().map(|bits| IpAddr::V6(Ipv6Addr::from(bits))),
        _ => word.parse().ok(),
    };
    text.split_whitespace().take(ADDRESSES_MAX).filter_map(address).collect()
}

fn only_one(network: IpNetwork, found: &BTreeSet<IpAddr>) -> Result<IpAddr, Failure> {
    let within: Vec<IpAddr> = found.iter().copied().filter(|ip| network.contains(*ip)).collect();
    match within[..] {
        [one] => Ok(one),
        [] => Err(format!("no address in {network}: found {}", shown(found.iter()))),
        _ => {
            let (count, all) = (within.len(), shown(within.iter()));
            Err(format!("{count} addresses in {network}: {all}: name one as `internal_ip`"))
        }
    }
}

/// The addresses by which others could reach it.
fn shown<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> String {
    let is_of_machine = |ip: &&IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unicast_link_local(),
    };
    let texts: Vec<String> =
        addresses.filter(|ip| !is_of_machine(ip)).map(IpAddr::to_string).collect();
    match texts.len() {
        0 => "none".into(),
        1..=SHOWN_MAX => texts.join(", "),
        more => format!("{} and {} more", texts[..SHOWN_MAX].join(", "), more - SHOWN_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn chosen(network: &str, said: &str) -> Result<String, String> {
        only_one(network.parse().expect("a network"), &addresses(said)).map(|ip| ip.to_string())
    }

    #[test]
    fn host_has_exactly_one_address_in_the_network_or_is_refused_in_one_line() {
        let said = "127.0.0.1\n10.77.0.2 10.88.0.2 10.88.0.3\n10.77.0.2\n\
                    00000000000000000000000000000001 fd000000000000000000000000000007 \
                    fe8000000000000000fc00fffe000001 rubbish 1.2.3";
        let ok = |ip: &str| Ok(ip.to_owned());
        let table = [
            ("10.77.0.0/16", ok("10.77.0.2")),
            ("10.88.0.2", ok("10.88.0.2")),
            ("fd00::/8", ok("fd00::7")),
            (
                "10.88.0.0/24",
                Err("2 addresses in 10.88.0.0/24: 10.88.0.2, 10.88.0.3: name one as `internal_ip`"
                    .into()),
            ),
            (
                "10.99.0.0/24",
                Err("no address in 10.99.0.0/24: found 10.77.0.2, 10.88.0.2, 10.88.0.3, fd00::7"
                    .into()),
            ),
        ];
        for (network, expected) in table {
            assert_eq!(chosen(network, said), expected, "{network}");
        }
        assert_eq!(
            chosen("10.0.0.0/8", "127.0.0.1"),
            Err("no address in 10.0.0.0/8: found none".into())
        );
        let many: String = (1..=100).map(|last| format!("10.1.0.{last} ")).collect();
        let refused = chosen("10.2.0.0/16", &many).expect_err("none of them");
        assert!(refused.ends_with("10.1.0.8 and 92 more"), "{refused}");
    }

    #[test]
    fn addresses_of_this_machine_are_found() {
        let said = Command::new("sh").args(["-c", &script::addresses()]).output().expect("a shell");
        assert!(said.status.success() && said.stderr.is_empty(), "{said:?}");
        let found = addresses(&String::from_utf8_lossy(&said.stdout));
        assert!(found.contains(&"127.0.0.1".parse().expect("an address")), "{found:?}");
        assert!(found.iter().all(|ip| !ip.is_multicast() && !ip.is_unspecified()), "{found:?}");
    }
}
