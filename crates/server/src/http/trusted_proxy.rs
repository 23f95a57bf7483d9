//! Proxies of the site that stand before the proxy's port or a gateway: what they say of a request's client is believed, and
//! nobody else's word is. Which they are the site says by their addresses.

use crate::http::peer::Peer;
use crate::proxy::headers::{FORWARDED_FOR, FORWARDED_PROTO};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName};
use model::ip_network::IpNetwork;
use std::net::{IpAddr, SocketAddr};

/// The networks that a site may name.
pub const TRUSTED_PROXIES_MAX: usize = 64;

/// Addresses of `X-Forwarded-For` that are looked at, from the last: a request passes few proxies.
const HOPS_MAX: usize = 16;

/// Put into the extensions of a request that a trusted proxy has passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByTrustedProxy {
    /// Whether the client's own connection, to the proxy, is by TLS; `None` where the proxy says nothing of it.
    pub is_secure: Option<bool>,
}

/// Gives a request that comes from a trusted proxy the address of its client. It does not count as from this machine any more,
/// wherever the proxy is.
pub fn note(trusted: &[IpNetwork], request: &mut Request) {
    let Some(Peer::Port { from, .. }) = request.extensions().get::<Peer>() else { return };
    if !is_trusted(trusted, *from) {
        return;
    }
    let Some(client) = client(trusted, request.headers()) else { return };
    let is_secure = is_secure(request.headers());
    request.extensions_mut().insert(ByTrustedProxy { is_secure });
    if let Some(Peer::Port { from, is_loopback, .. }) = request.extensions_mut().get_mut::<Peer>() {
        *from = client;
        *is_loopback = false;
    }
}

fn is_trusted(trusted: &[IpNetwork], address: IpAddr) -> bool {
    trusted.iter().any(|network| network.contains(address))
}

/// The last address that is no trusted proxy's own: each proxy adds the one that it was asked by. What stands before is the client's
/// word, and so is everything before what is no address.
fn client(trusted: &[IpNetwork], headers: &HeaderMap) -> Option<IpAddr> {
    let name = const { HeaderName::from_static(FORWARDED_FOR) };
    let lines: Vec<&str> =
        headers.get_all(name).iter().map_while(|line| line.to_str().ok()).collect();
    let mut client = None;
    for text in lines.iter().rev().flat_map(|line| line.rsplit(',')).take(HOPS_MAX) {
        let Some(address) = address(text.trim()) else { break };
        client = Some(address);
        if !is_trusted(trusted, address) {
            break;
        }
    }
    client
}

/// Some proxies add the port.
fn address(text: &str) -> Option<IpAddr> {
    let alone = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let of_both = || text.parse::<SocketAddr>().ok().map(|both| both.ip());
    alone.parse().ok().or_else(of_both).map(|address: IpAddr| address.to_canonical())
}

/// By the last word of `X-Forwarded-Proto`, which is that of the proxy that asks.
fn is_secure(headers: &HeaderMap) -> Option<bool> {
    let name = const { HeaderName::from_static(FORWARDED_PROTO) };
    let said = headers.get_all(name).iter().next_back()?.to_str().ok()?;
    let scheme = said.rsplit(',').next()?.trim();
    Some(scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("wss"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
    use axum::body::Body;

    /// Where the request counts as from, whether as from this machine, and what its proxy says of TLS.
    fn noted(from: &str, said: &[(&str, &str)]) -> (String, bool, Option<ByTrustedProxy>) {
        let trusted = ["10.0.0.0/8", "127.0.0.1", "fd00::/8"];
        let trusted = trusted.map(|text| text.parse::<IpNetwork>().expect("a network"));
        let mut request = Request::get("/");
        for (name, value) in said {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).expect("a request");
        let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).proxy;
        let from: IpAddr = from.parse().expect("an address");
        let (connection, is_loopback) = (PortConnection::new(slots), from.is_loopback());
        request.extensions_mut().insert(Peer::Port { connection, from, is_loopback });
        note(&trusted, &mut request);
        let by = request.extensions().get::<ByTrustedProxy>().copied();
        match request.extensions().get::<Peer>() {
            Some(Peer::Port { from, is_loopback, .. }) => (from.to_string(), *is_loopback, by),
            _ => panic!("a peer of a port"),
        }
    }

    #[test]
    fn client_of_a_trusted_proxy_is_the_last_address_that_is_not_the_sites_own() {
        for (from, said, expected) in [
            ("10.0.0.1", &["192.0.2.7"][..], "192.0.2.7"),
            // What the client itself has claimed stands before.
            ("10.0.0.1", &["203.0.113.9, 192.0.2.7"], "192.0.2.7"),
            ("10.0.0.1", &["203.0.113.9", "192.0.2.7, 10.1.1.1"], "192.0.2.7"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["[2001:db8::7]:443"], "2001:db8::7"),
            ("10.0.0.1", &["192.0.2.7:51000"], "192.0.2.7"),
            ("::ffff:10.0.0.1", &["::ffff:192.0.2.7"], "192.0.2.7"),
            // All of them are the site's own: the first is whoever asked there.
            ("10.0.0.1", &["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
            ("10.0.0.1", &["unknown, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &["unknown"], "10.0.0.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            // Nobody else is believed.
            ("192.0.2.1", &["203.0.113.9"], "192.0.2.1"),
        ] {
            let said: Vec<_> = said.iter().map(|line| (FORWARDED_FOR, *line)).collect();
            assert_eq!(noted(from, &said).0, expected, "{from} {said:?}");
        }
    }

    #[test]
    fn request_that_a_proxy_on_this_machine_passes_on_is_not_of_this_machine() {
        let (from, is_near, by) = noted("127.0.0.1", &[(FORWARDED_FOR, "192.0.2.7")]);
        assert_eq!(
            (&*from, is_near, by),
            ("192.0.2.7", false, Some(ByTrustedProxy { is_secure: None }))
        );
        // Not even where the proxy says that its client is.
        let (from, is_near, _) = noted("127.0.0.1", &[(FORWARDED_FOR, "127.0.0.1")]);
        assert_eq!((&*from, is_near), ("127.0.0.1", false));
        // A program on this machine that passes nothing on.
        assert_eq!(noted("127.0.0.1", &[]), ("127.0.0.1".to_owned(), true, None));
    }

    #[test]
    fn scheme_is_the_last_word_of_a_trusted_proxy() {
        for (said, expected) in [
            ("https", Some(true)),
            ("http", Some(false)),
            ("http, HTTPS", Some(true)),
            ("https,http", Some(false)),
            ("wss", Some(true)),
        ] {
            let said = [(FORWARDED_FOR, "192.0.2.7"), (FORWARDED_PROTO, said)];
            let by = noted("10.0.0.1", &said).2.expect("it is trusted");
            assert_eq!(by.is_secure, expected, "{said:?}");
            assert_eq!(noted("192.0.2.1", &said).2, None, "{said:?}");
        }
    }
}
