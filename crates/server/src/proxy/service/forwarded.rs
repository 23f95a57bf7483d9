//! What a replica is told of where a request comes from: the proxy's own word alone. What its client has said of that is left out, unless
//! it is a proxy that the site trusts; a gateway, which proves itself to the server, tells it for whom it asks.

use super::request_source::PassedBy;
use crate::http::peer::{ClientAddress, Peer, push_address};
use crate::http::trusted_proxy::ByTrustedProxy;
use crate::proxy::exchange::OutgoingHead;
use crate::proxy::headers::{FORWARDED_FOR, FORWARDED_PROTO};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};

const FORWARDED_HOST: &str = "x-forwarded-host";
const REAL_IP: &str = "x-real-ip";

/// Other names by which servers are told the same, and believe it.
const ELSE_SAID: [&str; 9] = [
    "forwarded",
    "front-end-https",
    "true-client-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-forwarded-port",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
];

/// Bytes of most addresses.
const ADDRESS_BYTES: usize = 16;

/// Where a request comes from.
#[derive(Clone, Copy)]
pub struct ForwardedFrom {
    client: ClientAddress,
    is_secure: bool,
}

impl ForwardedFrom {
    pub fn of(request: &Request) -> Self {
        let extensions = request.extensions();
        let is_secure = match extensions.get::<Peer>() {
            // Of its own connections a gateway alone knows.
            Some(_) if extensions.get::<PassedBy>().is_some() => {
                request.headers().get(FORWARDED_PROTO).is_some_and(|said| said == "https")
            }
            Some(Peer::Port { connection, .. }) => {
                let said = extensions.get::<ByTrustedProxy>().and_then(|by| by.is_secure);
                said.unwrap_or_else(|| connection.is_tls())
            }
            _ => false,
        };
        Self { client: ClientAddress::of(extensions), is_secure }
    }

    /// The scheme by which its client asks.
    pub fn scheme(self) -> HeaderValue {
        HeaderValue::from_static(if self.is_secure { "https" } else { "http" })
    }

    /// Tells it to a replica.
    pub fn note(self, head: &mut OutgoingHead) {
        head.leave_out(&ELSE_SAID);
        let headers = head.headers_mut();
        let mut address = String::with_capacity(ADDRESS_BYTES);
        let real_ip = const { HeaderName::from_static(REAL_IP) };
        match self.client {
            ClientAddress::Address(client) => push_address(&mut address, client),
            // Who comes by a socket has no address.
            ClientAddress::User(_) | ClientAddress::Unknown => address.push_str("unknown"),
        }
        if let Ok(address) = HeaderValue::try_from(address) {
            headers.insert(real_ip, address.clone());
            headers.insert(const { HeaderName::from_static(FORWARDED_FOR) }, address);
        }
        headers.insert(const { HeaderName::from_static(FORWARDED_PROTO) }, self.scheme());
        let name = const { HeaderName::from_static(FORWARDED_HOST) };
        match headers.get(header::HOST).cloned() {
            Some(host) => drop(headers.insert(name, host)),
            None => drop(headers.remove(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
    use crate::http::trusted_proxy;
    use axum::body::Body;
    use axum::http::HeaderMap;
    use model::ip_network::IpNetwork;

    const CLAIMS: [(&str, &str); 7] = [
        ("x-forwarded-for", "10.0.0.1"),
        ("x-real-ip", "10.0.0.1"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("x-forwarded-port", "1"),
        ("forwarded", "for=10.0.0.1"),
        ("true-client-ip", "10.0.0.1"),
    ];

    /// What a replica is told of a request with all these claims, which comes by TLS or not.
    fn told(from: &str, is_tls: bool, passed_by: Option<PassedBy>) -> HeaderMap {
        told_by(&[], from, is_tls, passed_by)
    }

    /// The same where the site trusts these proxies.
    fn told_by(
        trusted: &[IpNetwork],
        from: &str,
        is_tls: bool,
        passed_by: Option<PassedBy>,
    ) -> HeaderMap {
        let mut request = Request::get("/").header(header::HOST, "web.example");
        // A client cannot have them left out either, once they are the proxy's own.
        request = request.header(header::CONNECTION, "x-forwarded-proto, x-real-ip");
        for (name, value) in CLAIMS {
            request = request.header(name, value).header(name, value);
        }
        let mut request = request.body(Body::empty()).expect("a request");
        let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).proxy;
        let connection = PortConnection::new(slots).by_tls(is_tls);
        let from = from.parse().expect("an address");
        request.extensions_mut().insert(Peer::Port { connection, from, is_loopback: !is_tls });
        trusted_proxy::note(trusted, &mut request);
        passed_by.map(|by| request.extensions_mut().insert(by));
        let forwarded = ForwardedFrom::of(&request);
        let (parts, _) = request.into_parts();
        let uri = parts.uri.clone();
        let mut head = OutgoingHead::of(parts, uri, false, "/");
        forwarded.note(&mut head);
        head.headers_mut().clone()
    }

    #[test]
    fn replica_is_told_the_proxys_own_word_and_none_of_its_clients() {
        for (from, is_tls, address, scheme) in [
            ("192.0.2.7", true, "192.0.2.7", "https"),
            ("127.0.0.1", false, "127.0.0.1", "http"),
            ("2001:db8::1", true, "2001:db8::1", "https"),
        ] {
            let headers = told(from, is_tls, None);
            for (name, expected) in [
                (FORWARDED_FOR, address),
                (REAL_IP, address),
                (FORWARDED_PROTO, scheme),
                (FORWARDED_HOST, "web.example"),
            ] {
                let found: Vec<_> = headers.get_all(name).iter().collect();
                assert_eq!(found, [expected], "{name}");
            }
            assert!(ELSE_SAID.iter().all(|name| !headers.contains_key(*name)), "{headers:?}");
        }
        let trusted = ["10.9.9.9".parse().expect("a network")];
        let behind = told_by(&trusted, "10.9.9.9", false, None);
        let found = [FORWARDED_FOR, REAL_IP, FORWARDED_PROTO].map(|name| behind[name].clone());
        assert_eq!(found, ["10.0.0.1", "10.0.0.1", "https"], "behind a trusted proxy");
        // The server's connection to a gateway says nothing of the gateway's to its client.
        let proved = told("192.0.2.7", false, Some(PassedBy(None)));
        assert_eq!(proved[FORWARDED_PROTO], "https");
    }
}
