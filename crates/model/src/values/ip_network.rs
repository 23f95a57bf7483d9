//! A network of IP addresses: `10.0.0.0/24`.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The addresses that have the first bits in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IpNetwork {
    first: IpAddr,
    prefix: u8,
}

/// The bits of an address, the first one highest, and how many there are.
fn bits(ip: IpAddr) -> (u128, u8) {
    match ip {
        IpAddr::V4(ip) => (u128::from(u32::from(ip)) << 96, 32),
        IpAddr::V6(ip) => (u128::from(ip), 128),
    }
}

/// The bits of a network of this prefix.
fn mask(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

impl IpNetwork {
    pub fn first(&self) -> IpAddr {
        self.first
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.first.is_ipv4()
            && (bits(ip).0 ^ bits(self.first).0) & mask(self.prefix) == 0
    }
}

impl FromStr for IpNetwork {
    type Err = GrammarError;

    /// `10.0.0.7/24` is the network that the address is in, and an address alone is a network of one.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let wrong = || GrammarError::new("network", text, "a network such as 10.0.0.0/24");
        let (ip, width) = text.split_once('/').map_or((text, None), |(ip, w)| (ip, Some(w)));
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let (own, most) = bits(ip);
        let prefix = match width.map(|width| (width.parse::<u8>(), width.parse::<IpAddr>())) {
            None => most,
            Some((Ok(prefix), _)) => prefix,
            // 255.255.255.0
            Some((_, Ok(given))) if given.is_ipv4() == ip.is_ipv4() => {
                let given = bits(given).0;
                let ones = given.leading_ones() as u8;
                if given != mask(ones) {
                    return Err(wrong());
                }
                ones
            }
            Some(_) => return Err(wrong()),
        };
        if prefix > most {
            return Err(wrong());
        }
        let first = own & mask(prefix);
        let first = match ip {
            IpAddr::V4(_) => IpAddr::V4(((first >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(first.into()),
        };
        Ok(Self { first, prefix })
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl TryFrom<String> for IpNetwork {
    type Error = GrammarError;

    fn try_from(text: String) -> Result<Self, GrammarError> {
        text.parse()
    }
}

impl From<IpNetwork> for String {
    fn from(network: IpNetwork) -> String {
        network.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_has_the_addresses_with_its_first_bits() {
        let table = [
            ("10.0.0.0/24", "10.0.0.0/24", "10.0.0.255", "10.0.1.0"),
            ("10.0.0.7/24", "10.0.0.0/24", "10.0.0.1", "10.1.0.1"),
            ("10.0.0.7/255.255.255.0", "10.0.0.0/24", "10.0.0.1", "10.1.0.1"),
            ("172.16.0.0/255.240.0.0", "172.16.0.0/12", "172.31.1.1", "172.32.0.1"),
            ("192.168.4.4", "192.168.4.4/32", "192.168.4.4", "192.168.4.5"),
            ("10.0.0.0/0", "0.0.0.0/0", "192.168.4.4", "::1"),
            ("fd00:1::5/32", "fd00:1::/32", "fd00:1:7::1", "fd00:2::1"),
            ("::/0", "::/0", "fd00::1", "10.0.0.1"),
            ("fd00::1", "fd00::1/128", "fd00::1", "fd00::2"),
        ];
        for (text, shown, within, without) in table {
            let network: IpNetwork = text.parse().expect(text);
            assert_eq!(network.to_string(), shown);
            let has = |ip: &str| network.contains(ip.parse().expect(ip));
            assert!(has(within) && !has(without), "{text}");
            let kept = serde_json::to_string(&network).expect("a text");
            assert_eq!(serde_json::from_str::<IpNetwork>(&kept).expect("the same"), network);
        }
        let mapped: IpNetwork = "10.0.0.0/8".parse().expect("a network");
        assert!(mapped.contains("::ffff:10.1.2.3".parse().expect("an address")));
    }

    #[test]
    fn what_is_no_network_is_refused_in_one_line() {
        let wrong =
            ["", "lab", "10.0.0/24", "10.0.0.0/33", "10.0.0.0/255.0.255.0", "10.0.0.0/", "::/129"];
        for text in wrong.into_iter().chain(["10.0.0.0/ffff::", "10.0.0.0/24/24", "10.0.0.0/-1"]) {
            let said = text.parse::<IpNetwork>().expect_err(text).to_string();
            assert_eq!(
                said,
                format!("invalid network \"{text}\": expected a network such as 10.0.0.0/24")
            );
        }
    }
}
