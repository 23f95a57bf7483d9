//! A proxy between a machine and its server (`HTTPS_PROXY`): which connections go through one, and what is said to it. The TLS
//! inside reaches from end to end, so that the proxy is told the server's name and port alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::secret::SecretValue;
use std::fmt;
use std::net::IpAddr;

/// The most bytes of a proxy's answer before the bytes of the server.
pub const ANSWER_BYTES_MAX: usize = 8 << 10;

const HTTP_PORT: u16 = 80;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    pub host: String,
    pub port: u16,
    /// User and password, as `Basic` has them.
    credentials: Option<SecretValue>,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// `HOST:PORT`, an address of IPv6 in brackets.
fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Proxy {
    /// The proxy for a connection to this host, by the environment that `variable` reads: `https_proxy`, and `no_proxy` for those
    /// that need none, each also in capitals. This machine needs none.
    pub fn of(
        host: &str,
        port: u16,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Proxy>, String> {
        let either = |small: &str, large: &str| {
            let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
            set(small).or_else(|| set(large))
        };
        let Some(url) = either("https_proxy", "HTTPS_PROXY") else { return Ok(None) };
        let direct = either("no_proxy", "NO_PROXY").unwrap_or_default();
        if is_own(host) || direct.split([',', ' ']).any(|rule| is_ruled(rule.trim(), host, port)) {
            return Ok(None);
        }
        Self::parse(url.trim()).map(Some)
    }

    /// `http://[USER:PASSWORD@]HOST[:PORT]`. The text of an error has no password.
    fn parse(url: &str) -> Result<Proxy, String> {
        let wrong = || "HTTPS_PROXY: expected http://[USER:PASSWORD@]HOST:PORT".to_owned();
        let rest = match url.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some(_) => return Err(wrong()),
            None => url,
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (login, address) = match rest.rsplit_once('@') {
            Some((login, address)) => (Some(decoded(login).ok_or_else(wrong)?), address),
            None => (None, rest),
        };
        let (host, port) = host_and_port(address).ok_or_else(wrong)?;
        let credentials = login.map(|login| SecretValue(BASE64.encode(login)));
        Ok(Proxy { host, port: port.unwrap_or(HTTP_PORT), credentials })
    }

    /// What is sent to the proxy: it is to connect to this host.
    pub fn request(&self, host: &str, port: u16) -> Result<Vec<u8>, String> {
        let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(format!("{host:?} is no name of a host"));
        }
        let server = authority(host, port);
        let mut text = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
        if let Some(credentials) = &self.credentials {
            text.push_str(&format!("Proxy-Authorization: Basic {}\r\n", credentials.0));
        }
        text.push_str("\r\n");
        Ok(text.into_bytes())
    }
}

/// What a proxy said in place of a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyRefusal {
    #[error("it does not answer as a proxy")]
    NoProxy,
    #[error("it answered {0:?}")]
    Refused(String),
    /// It would connect, and cannot: the server may be there later.
    #[error("it answered {0:?}")]
    ServerAway(String),
}

/// Reads a proxy's answer, a byte at a time: what follows it is the server's.
#[derive(Debug, Default)]
pub struct ProxyAnswer(Vec<u8>);

impl ProxyAnswer {
    /// Whether the answer is whole: the server's bytes follow. An error is what the proxy said instead.
    pub fn push(&mut self, byte: u8) -> Result<bool, ProxyRefusal> {
        self.0.push(byte);
        if !self.0.ends_with(b"\r\n\r\n") {
            let is_long = self.0.len() >= ANSWER_BYTES_MAX;
            return if is_long { Err(ProxyRefusal::NoProxy) } else { Ok(false) };
        }
        let text = String::from_utf8_lossy(&self.0);
        let line = text.lines().next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let is_http = words.next().is_some_and(|word| word.starts_with("HTTP/1."));
        let code = words.next().filter(|code| is_http && code.len() == 3).unwrap_or_default();
        if code.starts_with('2') {
            return Ok(true);
        }
        let shown: String = line.chars().filter(|c| !c.is_control()).take(100).collect();
        // Bad Gateway, Service Unavailable, Gateway Timeout.
        let is_away = ["502", "503", "504"].contains(&code);
        Err(if is_away { ProxyRefusal::ServerAway(shown) } else { ProxyRefusal::Refused(shown) })
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]`, `[ADDRESS]:PORT`
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            let port = if after.is_empty() { None } else { Some(after.strip_prefix(':')?) };
            (host, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
    let is_good = !host.is_empty() && host.bytes().all(is_host);
    let port = match port {
        Some(port) => Some(port.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    is_good.then(|| (host.to_owned(), port))
}

/// `%40` is `@`.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            byte => byte,
        });
    }
    Some(bytes)
}

fn is_own(host: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

/// Whether one rule of `no_proxy` is about this host: a name with all below it, an address, a network, or `*`.
fn is_ruled(rule: &str, host: &str, port: u16) -> bool {
    if rule.is_empty() || rule == "*" {
        return rule == "*";
    }
    if let Some((network, bits)) = rule.split_once('/') {
        let parsed = (network.parse(), bits.parse(), host.parse());
        let (Ok(network), Ok(bits), Ok(host)) = parsed else { return false };
        return is_in_network(host, network, bits);
    }
    if let (Ok(rule), Ok(host)) = (rule.parse::<IpAddr>(), host.parse::<IpAddr>()) {
        return rule.to_canonical() == host.to_canonical();
    }
    let Some((name, of_port)) = host_and_port(rule) else { return false };
    if of_port.is_some_and(|of| of != port) {
        return false;
    }
    let name = name.trim_start_matches('.').to_ascii_lowercase();
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    host.strip_suffix(name.as_str()).is_some_and(|head| head.is_empty() || head.ends_with('.'))
}

fn is_in_network(host: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (host, network, width) = match (host.to_canonical(), network) {
        (IpAddr::V4(host), IpAddr::V4(network)) => {
            (u128::from(host.to_bits()), u128::from(network.to_bits()), 32)
        }
        (IpAddr::V6(host), IpAddr::V6(network)) => (host.to_bits(), network.to_bits(), 128),
        _ => return false,
    };
    let Some(rest) = u32::checked_sub(width, bits) else { return false };
    host.checked_shr(rest).unwrap_or(0) == network.checked_shr(rest).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(host: &str, proxy: &str, direct: &str) -> Result<Option<String>, String> {
        let variable = |name: &str| match name {
            "HTTPS_PROXY" => Some(proxy.to_owned()),
            "no_proxy" => Some(direct.to_owned()),
            _ => None,
        };
        Proxy::of(host, 6821, variable).map(|found| found.map(|proxy| proxy.to_string()))
    }

    #[test]
    fn proxy_is_for_every_host_but_those_that_need_none() {
        const URL: &str = "http://gate:3128";
        let through = |host: &str, direct: &str| proxy(host, URL, direct).expect("right").is_some();
        for (host, direct) in [
            ("head", ""),
            ("head.example", "example.org,other"),
            ("myexample.org", "example.org"),
            ("10.1.2.3", "10.2.0.0/16,10.1.2.4"),
            ("head", "head:6820"),
            ("2001:db8::1", "2001:db9::/32"),
        ] {
            assert!(through(host, direct), "{host} beside {direct}");
        }
        for (host, direct) in [
            ("localhost", ""),
            ("127.0.0.1", ""),
            ("::1", ""),
            ("head", "*"),
            ("head.example.org", "example.org"),
            ("HEAD.example.org", "a, .Example.org"),
            ("head", "head:6821"),
            ("10.1.2.3", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3", "0.0.0.0/0"),
            ("2001:db8::1", "2001:db8::/32"),
        ] {
            assert!(!through(host, direct), "{host} by {direct}");
        }
        assert_eq!(proxy("head", "", ""), Ok(None));
    }

    #[test]
    fn address_of_a_proxy_is_read_and_its_password_told_to_nobody_else() {
        for (url, address) in [
            ("http://gate:3128", "gate:3128"),
            ("gate:3128", "gate:3128"),
            ("HTTP://gate/", "gate:80"),
            ("http://[2001:db8::1]:8080", "[2001:db8::1]:8080"),
            ("http://ann:p%40ss@gate:3128/", "gate:3128"),
        ] {
            assert_eq!(proxy("head", url, ""), Ok(Some(address.to_owned())), "{url}");
        }
        for wrong in [
            "https://gate:3128",
            "socks5://gate",
            "http://",
            "gate:0",
            "http://ga te:1",
            "http://a:hush%4@g",
        ] {
            let said = proxy("head", wrong, "").expect_err(wrong);
            assert!(!said.contains("hush") && said.lines().count() == 1, "{said}");
        }
        let proxy = Proxy::parse("http://ann:p%40ss@gate:3128").expect("a proxy");
        let text =
            String::from_utf8(proxy.request("head", 6821).expect("a request")).expect("text");
        let credentials = BASE64.encode("ann:p@ss");
        assert_eq!(
            text,
            format!(
                "CONNECT head:6821 HTTP/1.1\r\nHost: head:6821\r\nProxy-Authorization: Basic {credentials}\r\n\r\n"
            )
        );
        assert!(!format!("{proxy:?}").contains(&credentials));
        assert!(proxy.request("head\r\nX: y", 1).is_err(), "no header is smuggled in");
    }

    #[test]
    fn answer_of_a_proxy_ends_where_the_server_begins() {
        let read = |text: &str| -> Result<bool, ProxyRefusal> {
            let mut answer = ProxyAnswer::default();
            text.bytes()
                .try_fold(false, |done, byte| if done { Ok(true) } else { answer.push(byte) })
        };
        assert_eq!(read("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n"), Ok(true));
        assert_eq!(read("HTTP/1.1 200 OK\r\n"), Ok(false), "not whole");
        let said = read("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").expect_err("refused");
        let line = "HTTP/1.1 407 Proxy Authentication Required";
        assert_eq!(said, ProxyRefusal::Refused(line.to_owned()));
        assert!(said.to_string().contains("407"), "{said}");
        let said = read("HTTP/1.1 503 Service Unavailable\r\n\r\n").expect_err("it is away");
        assert!(matches!(said, ProxyRefusal::ServerAway(_)), "{said:?}");
        assert!(read("SSH-2.0 200 x\r\n\r\n").is_err());
        assert!(read(&"x".repeat(ANSWER_BYTES_MAX + 1)).is_err());
    }
}
