//! The host and the port of a server, from a URL.

use std::fmt;
use std::net::IpAddr;

const HTTPS_PORT: u16 = 443;

/// The most addresses of one server.
const SERVERS_MAX: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, the latter without brackets.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl HostPort {
    /// The address in `https://HOST[:PORT][/]`.
    pub fn parse_https(url: &str) -> Result<Self, String> {
        let expected = || format!("{url:?}: expected https://HOST:PORT");
        let rest = url.strip_prefix("https://").ok_or_else(expected)?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let has_port = rest.rfind(':') > rest.rfind(']');
        let text = if has_port { rest.to_owned() } else { format!("{rest}:{HTTPS_PORT}") };
        Self::parse(&text).ok_or_else(expected)
    }

    /// The addresses in `https://HOST:PORT,https://HOST:PORT`: the first, and the others.
    pub fn parse_https_list(urls: &str) -> Result<(Self, Vec<Self>), String> {
        let mut addresses = Vec::new();
        for url in urls.split(',') {
            let address = Self::parse_https(url)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.len() > SERVERS_MAX {
            return Err(format!("{} servers: at most {SERVERS_MAX} are tried", addresses.len()));
        }
        let first = addresses.remove(0);
        Ok((first, addresses))
    }

    /// `HOST:PORT`, or `[ADDRESS]:PORT`
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match in_brackets {
            Some(address) => address.parse::<IpAddr>().ok().filter(IpAddr::is_ipv6)?.to_string(),
            None => {
                let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
                let is_good = !host.is_empty() && host.bytes().all(is_host);
                is_good.then(|| host.to_owned())?
            }
        };
        Some(Self { host, port })
    }

    /// Whether it is this machine, so that nobody else sees what is sent.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_a_host_and_a_port() {
        for (url, expected) in [
            ("https://head.example:6820", "head.example:6820"),
            ("https://10.0.0.1:6820/", "10.0.0.1:6820"),
            ("https://[2001:db8::1]:6820", "[2001:db8::1]:6820"),
            ("https://[::1]", "[::1]:443"),
            ("https://head", "head:443"),
        ] {
            assert_eq!(HostPort::parse_https(url).map(|at| at.to_string()), Ok(expected.into()));
        }
        for wrong in [
            "",
            "head:6820",
            "http://head:6820",
            "https://",
            "https://:6820",
            "https://head:port",
            "https://head:0",
            "https://head:99999",
            "https://me@head:6820",
            "https://head:6820/path",
            "https://head:6820//",
            "https://he ad:6820",
            "https://2001:db8::1:6820",
            "https://[head]:6820",
        ] {
            let said = HostPort::parse_https(wrong).expect_err(wrong);
            assert_eq!(said, format!("{wrong:?}: expected https://HOST:PORT"));
        }
    }

    #[test]
    fn several_urls_are_the_addresses_of_one_server() {
        let parse = |text: &str| {
            HostPort::parse_https_list(text).map(|(first, others)| {
                let others: Vec<String> = others.iter().map(ToString::to_string).collect();
                (first.to_string(), others.join(" "))
            })
        };
        let expected = |first: &str, others: &str| Ok((first.to_owned(), others.to_owned()));
        assert_eq!(parse("https://a:1"), expected("a:1", ""));
        assert_eq!(parse("https://a:1,https://b:1,https://a:1"), expected("a:1", "b:1"));
        assert!(parse("https://a:1,").is_err() && parse("https://a:1,b:1").is_err());
        let many: Vec<String> = (0..9).map(|port| format!("https://a:{}", port + 1)).collect();
        assert!(parse(&many.join(",")).is_err_and(|why| why.contains("at most 8")));
    }

    #[test]
    fn loopback_is_this_machine() {
        let is_loopback = |text: &str| HostPort::parse(text).expect("an address").is_loopback();
        for near in ["localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1"] {
            assert!(is_loopback(near), "{near}");
        }
        for far in ["head:1", "10.0.0.1:1", "[2001:db8::1]:1", "localhost.example:1", "0.0.0.0:1"] {
            assert!(!is_loopback(far), "{far}");
        }
    }
}
