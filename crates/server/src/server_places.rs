//! Which host of those that a site names for its servers is that of one server.

use std::net::IpAddr;

/// The places of a server, each `HOST:PORT`.
pub struct ServerPlaces<'a> {
    /// Where one of its ports is bound, in the order of preference.
    pub bound: &'a [String],
    /// What the site names for all of its servers.
    pub named: &'a [String],
    pub hostname: &'a str,
    pub is_one_of_several: bool,
}

impl<'a> ServerPlaces<'a> {
    /// Where other machines find it: at the first host that the site names, or else at the first that is bound. Of several servers it
    /// is the one of its machine, where one of them is: the others answer neither SSH clients nor browsers while this one leads.
    pub fn host(&self) -> Option<&'a str> {
        let hosts = |places: &'a [String]| places.iter().filter_map(|place| Some(split(place)?.0));
        let own = hosts(self.named).find(|host| self.is_one_of_several && self.is_here(host));
        own.or_else(|| hosts(self.named).chain(hosts(self.bound)).next())
    }

    /// The host and the port of what is bound. A port of loopback is found there alone.
    pub fn endpoint(&self) -> Option<(String, u16)> {
        let (bound, port) = split(self.bound.first()?)?;
        let is_loopback = bound.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let host = if is_loopback { bound } else { self.host()? };
        Some((host.to_owned(), port.parse().ok()?))
    }

    /// Whether a host is the server's machine, by one of its addresses or by its name, with or without a domain.
    fn is_here(&self, host: &str) -> bool {
        let first_label = |name: &str| name.split('.').next().map(str::to_ascii_lowercase);
        let is_name = host.parse::<IpAddr>().is_err();
        let is_named_so = is_name && first_label(host) == first_label(self.hostname);
        let mut bound = self.bound.iter().filter_map(|place| split(place));
        is_named_so || bound.any(|(own, _)| own == host)
    }
}

/// The host, without the brackets of an address, and the port.
fn split(place: &str) -> Option<(&str, &str)> {
    let (host, port) = place.rsplit_once(':')?;
    Some((host.trim_start_matches('[').trim_end_matches(']'), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(bound: &[&str], named: &[&str], is_one_of_several: bool) -> Option<(String, u16)> {
        let owned = |places: &[&str]| -> Vec<String> {
            places.iter().map(|place| (*place).to_owned()).collect()
        };
        let (bound, named) = (owned(bound), owned(named));
        let hostname = "b.example";
        ServerPlaces { bound: &bound, named: &named, hostname, is_one_of_several }.endpoint()
    }

    fn at(host: &str) -> Option<(String, u16)> {
        Some((host.to_owned(), 6822))
    }

    #[test]
    fn server_is_found_where_the_site_names_it_or_where_it_is_bound() {
        assert_eq!(found(&[], &["head:6821"], false), None);
        assert_eq!(found(&["10.0.0.2:6822"], &[], false), at("10.0.0.2"));
        assert_eq!(found(&["[fd00::2]:6822"], &[], true), at("fd00::2"));
        assert_eq!(found(&["10.0.0.2:6822"], &["head:6821", "b:6821"], false), at("head"));
        assert_eq!(found(&["127.0.0.1:6822"], &["head:6821"], false), at("127.0.0.1"));
    }

    #[test]
    fn each_of_several_servers_is_found_at_its_own_host() {
        let bound = ["10.0.0.2:6822", "b.example:6822"];
        for (named, host) in [
            (vec!["a:6821", "b:6821"], "b"),
            (vec!["a.example:6821", "B.example:6821"], "B.example"),
            (vec!["10.0.0.1:6821", "10.0.0.2:6821"], "10.0.0.2"),
            // Where no address is known to be this machine's, the first is told.
            (vec!["10.0.0.1:6821", "10.0.0.3:6821"], "10.0.0.1"),
            (vec!["bb:6821", "a:6821"], "bb"),
            // One name leads to whichever server leads.
            (vec!["cluster.example:6821"], "cluster.example"),
        ] {
            assert_eq!(found(&bound, &named, true), at(host), "{named:?}");
        }
    }
}
