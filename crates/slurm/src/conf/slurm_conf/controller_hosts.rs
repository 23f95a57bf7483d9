//! `SlurmctldHost`: the machines that the server may be on, a line each.

use crate::conf::error::Findings;
use crate::conf::text::lines::Pair;

pub const KEY: &str = "SlurmctldHost";

/// Where each of them is dialled, in the order of the file.
pub fn read(lines: &[Pair], findings: &mut Findings) -> Vec<String> {
    let mut hosts: Vec<String> = Vec::new();
    for line in lines {
        match address_of(&line.value) {
            Some(host) if hosts.iter().any(|known| known == host) => {}
            Some(host) => hosts.push(host.to_owned()),
            None => findings.wrong(&line.place, KEY, &line.value, "expected HOST or HOST(ADDRESS)"),
        }
    }
    hosts
}

/// The address of `HOST(ADDRESS)`, or the name where there is none.
fn address_of(value: &str) -> Option<&str> {
    let (host, address) = match value.split_once('(') {
        Some((host, rest)) => (host, rest.strip_suffix(')')?),
        None => (value, value),
    };
    let is_host = |text: &str| {
        let is_good = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        !text.is_empty() && text.bytes().all(is_good)
    };
    (is_host(host) && is_host(address)).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_dialled_at_its_address_or_by_its_name() {
        for (value, expected) in [
            ("head", Some("head")),
            ("head(10.0.0.1)", Some("10.0.0.1")),
            ("head.example(2001:db8::1)", Some("2001:db8::1")),
            ("head(", None),
            ("head()", None),
            ("(10.0.0.1)", None),
            ("", None),
            ("head two", None),
            ("head/6817", None),
        ] {
            assert_eq!(address_of(value), expected, "{value}");
        }
    }
}
