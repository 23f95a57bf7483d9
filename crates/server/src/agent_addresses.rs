//! Where agents find the server, and whether machines elsewhere can.

use cluster::ClusterConfig;
use std::net::IpAddr;

/// What keeps machines elsewhere from joining at these addresses; `None` where one of them may lead here.
pub fn unreachable(addresses: &[String]) -> Option<String> {
    let is_near = |address: &String| {
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        is_loopback(host)
    };
    if addresses.is_empty() || !addresses.iter().all(is_near) {
        return None;
    }
    let addresses = addresses.join(", ");
    Some(format!(
        "its machines cannot reach the server at {addresses}: expected --agents 0.0.0.0:6821 at its start, or other addresses in [server] of sluice.toml"
    ))
}

/// Where agents find the server: at the addresses that sluice.toml names; else where its port is bound, and at the hosts of
/// `SlurmctldHost`, which it may move to. A port on loopback is found by this machine alone.
pub fn addresses_for_agents(config: &ClusterConfig, bound: &[String]) -> Vec<String> {
    if !config.server_addresses.is_empty() {
        return config.server_addresses.clone();
    }
    let mut addresses = bound.to_vec();
    let here = bound.first().and_then(|address| address.rsplit_once(':'));
    let Some((_, port)) = here.filter(|(host, _)| !is_loopback(host)) else { return addresses };
    for host in config.controllers.iter().filter(|host| !is_loopback(host)) {
        let address =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_find_the_server_where_it_is_bound_and_where_it_may_move_to() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let config = ClusterConfig {
            controllers: hosts(&["10.0.0.1", "head2", "2001:db8::7", "localhost"]),
            ..ClusterConfig::default()
        };
        let bound: Vec<String> = hosts(&["10.0.0.1:6821", "head1:6821"]);
        let expected = ["10.0.0.1:6821", "head1:6821", "head2:6821", "[2001:db8::7]:6821"];
        assert_eq!(addresses_for_agents(&config, &bound), expected);
        for loopback in ["127.0.0.1:6821", "[::1]:6821"] {
            let bound: Vec<String> = hosts(&[loopback]);
            assert_eq!(addresses_for_agents(&config, &bound), bound, "nobody else finds it");
        }
        let named = ClusterConfig { server_addresses: hosts(&["head.example:9"]), ..config };
        assert_eq!(addresses_for_agents(&named, &bound), ["head.example:9"]);
    }

    #[test]
    fn server_on_loopback_alone_is_not_reached_from_elsewhere() {
        let said = |addresses: &[&str]| {
            let addresses: Vec<String> = addresses.iter().map(|one| (*one).to_owned()).collect();
            unreachable(&addresses)
        };
        let why = said(&["127.0.0.1:6821", "[::1]:6821"]).expect("nobody finds it");
        assert!(why.contains("at 127.0.0.1:6821, [::1]:6821: expected --agents 0.0.0.0"), "{why}");
        assert_eq!(said(&["127.0.0.1:6821", "head.example:6821"]), None);
        assert_eq!(said(&[]), None);
    }
}
