//! What the head of a request to a service says, and what is refused by it alone; the same for the server and for gateways.

use super::request_rate::{Client, RequestRates};
use crate::connection_limits::ServiceLimits;
use crate::http::peer::{ClientAddress, Peer, network};
use crate::proxy::exchange::said;
use crate::proxy::headers::{FORWARDED_FOR, FORWARDED_PROTO};
use crate::proxy::origin::{host_of, service_of_host};
use crate::proxy::pool::is_caused_by;
use crate::proxy::timed_body::{BodyStalled, LEAST_RATE, TimedBody, Upload};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body as _;
use model::service::RateLimit;
use std::borrow::Cow;
use std::time::Instant;

/// Replicas that one request is tried at.
pub const TRIES_MAX: usize = 3;
/// How often a request may come back to the proxy by a service that passes it on.
const LOOPS_MAX: usize = 4;
/// What the proxy adds to `Via`.
pub const VIA: &str = "1.1 sluice";
/// What a gateway adds to `Via` of a request that it passes on to the server.
pub const VIA_GATEWAY: &str = "1.1 sluice-gateway";

/// Bytes of a body that is held here until all of it has come: as many as a head may have.
const SHORT_BODY_BYTES: u64 = 64 << 10;

/// What proxies add to requests that they pass on.
const OF_PROXIES: [&str; 6] =
    ["forwarded", "via", FORWARDED_FOR, "x-forwarded-host", FORWARDED_PROTO, "x-real-ip"];

/// Makes a browser give the pages of a service an origin that nothing else has, so that they can ask for nothing in the name of
/// the browser's user, and register no service worker.
pub const SANDBOX: &str =
    "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads";

/// The prefix of a service that has a host name, and so an origin, of its own.
pub const WHOLE_HOST: &str = "/";

/// What a path of a service says.
#[derive(Debug, PartialEq, Eq)]
pub struct ServicePath<'p> {
    pub project: &'p str,
    pub run: &'p str,
    /// `PROJECT/RUN`
    pub key: &'p str,
    /// With a slash at its end.
    pub prefix: Cow<'p, str>,
    /// Behind the prefix; nothing where the slash is missing.
    pub rest: Option<&'p str>,
}

/// A service that a host name means: it answers whatever the path is.
pub struct ServiceHost {
    pub project: String,
    pub run: String,
    key: String,
}

impl ServiceHost {
    /// `domain`: that of the host names of services, if there is one.
    pub fn of(request: &Request, domain: Option<&str>) -> Option<Self> {
        let (project, run) = service_of_host(host_of(request)?, domain?)?;
        let key = format!("{project}/{run}");
        Some(Self { project, run, key })
    }
}

impl<'p> ServicePath<'p> {
    /// The service that a request's host name means, or else its path.
    pub fn of(host: Option<&'p ServiceHost>, path: &'p str) -> Option<Self> {
        let Some(ServiceHost { project, run, key }) = host else { return Self::parse(path) };
        let rest = Some(path.trim_start_matches('/'));
        Some(Self { project, run, key, prefix: WHOLE_HOST.into(), rest })
    }

    pub fn parse(path: &'p str) -> Option<Self> {
        let inner = path.strip_prefix("/proxy/services/")?;
        let (project, behind) = inner.split_once('/')?;
        let (run, rest) = match behind.split_once('/') {
            Some((run, rest)) => (run, Some(rest)),
            None => (behind, None),
        };
        if project.is_empty() || run.is_empty() {
            return None;
        }
        let key = &inner[..project.len() + 1 + run.len()];
        let prefix = match rest {
            Some(rest) => Cow::Borrowed(&path[..path.len() - rest.len()]),
            None => Cow::Owned(format!("{path}/")),
        };
        Some(Self { project, run, key, prefix, rest })
    }
}

/// Refuses a body of more bytes than these by its own account, or that says two lengths, a request for two hosts, and one that goes round
/// in circles.
pub fn check_head(headers: &HeaderMap, body_bytes: u64) -> Result<(), Box<Response>> {
    if headers.get_all(header::HOST).iter().nth(1).is_some() {
        // A replica might read the other one.
        return Err(refused(StatusCode::BAD_REQUEST, "the request names more than one host"));
    }
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    if lengths + usize::from(headers.contains_key(header::TRANSFER_ENCODING)) > 1 {
        // What comes behind the body by one of them is another request by the other.
        return Err(refused(StatusCode::BAD_REQUEST, "the body has more than one length"));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > body_bytes) {
        return Err(too_long(body_bytes));
    }
    if loops(headers) >= LOOPS_MAX {
        return Err(refused(StatusCode::LOOP_DETECTED, "the request goes round in circles"));
    }
    Ok(())
}

/// Refuses a method by which no service is asked: `CONNECT` names a host and no path, for a tunnel to it.
pub fn check_method(method: &Method) -> Result<(), Box<Response>> {
    if *method != Method::CONNECT {
        return Ok(());
    }
    let why = "CONNECT: this is no proxy to other hosts, and a service is asked by its address";
    Err(refused(StatusCode::METHOD_NOT_ALLOWED, why))
}

/// The answer to a request whose body is too long, by its head or in the middle.
pub fn too_long(body_bytes: u64) -> Box<Response> {
    let why = format!("a request has at most {body_bytes} bytes");
    refused(StatusCode::PAYLOAD_TOO_LARGE, &why)
}

/// The answer to a request whose body does not come.
pub fn stalled(limits: &ServiceLimits) -> Box<Response> {
    let seconds = limits.body_silence.as_secs();
    let why = format!(
        "the body comes too slowly: expected more of it within {seconds} s, and {LEAST_RATE} bytes a second"
    );
    refused(StatusCode::REQUEST_TIMEOUT, &why)
}

/// The answer to a request whose body is none, such as a chunk without a length, or whose client has gone in the middle of it.
pub fn bad_body() -> Box<Response> {
    refused(StatusCode::BAD_REQUEST, "the body of the request cannot be read to its end")
}

/// The body of a request as it is passed on. One that does not say its length is given up at the bound (`SendFailure::TooLong`), and one
/// that does not come, or too slowly (`SendFailure::Stalled`), unless its answer has begun, of which the caller takes note.
pub fn bounded_body(body: Body, limits: &ServiceLimits) -> (Body, Upload) {
    // Most requests have none: nothing is put around it.
    if body.is_end_stream() {
        return (Body::empty(), Upload::default());
    }
    let (timed, upload) = TimedBody::new(body, limits.body_silence);
    (Body::new(Limited::new(timed, limits.body_bytes as usize)), upload)
}

/// The same for a replica: a short body that says its length is waited for before it takes a place there.
pub async fn body_for_replica(
    body: Body,
    limits: &ServiceLimits,
) -> Result<(Body, Upload), Box<Response>> {
    let length = body.size_hint().exact();
    let (body, upload) = bounded_body(body, limits);
    if !upload.is_under_way() || length.is_none_or(|bytes| bytes > SHORT_BODY_BYTES) {
        return Ok((body, upload));
    }
    match Box::pin(body.collect()).await {
        Ok(read) => Ok((Body::from(read.to_bytes()), Upload::default())),
        Err(error) if is_caused_by::<BodyStalled>(&error) => Err(stalled(limits)),
        Err(_) => Err(bad_body()),
    }
}

/// How often the request has come through the proxy already.
fn loops(headers: &HeaderMap) -> usize {
    passed_by(headers).filter(|part| *part == VIA).count()
}

/// Whether a gateway has passed the request on.
pub fn is_from_gateway(headers: &HeaderMap) -> bool {
    passed_by(headers).any(|part| part == VIA_GATEWAY)
}

/// Whether some proxy says that it has passed the request on: who asks is then somewhere else than the proxy.
pub fn is_passed_on(headers: &HeaderMap) -> bool {
    OF_PROXIES.iter().any(|name| headers.contains_key(*name))
}

/// The proxies that a request has come through.
fn passed_by(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lines = headers.get_all(header::VIA).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim)
}

/// Methods that change nothing, by RFC 9110: a request may be sent again that was perhaps carried out.
pub fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
}

/// Refuses a client that has made more requests to a service than its rate limits allow. `rest`: the path behind the service's own.
pub fn check_rate(
    rates: &RequestRates,
    limits: &[RateLimit],
    run: &str,
    rest: &str,
    request: &Request,
) -> Result<(), Box<Response>> {
    if limits.is_empty() {
        return Ok(());
    }
    // A host of IPv6 has all addresses of its /64, and by each of them it would be another client.
    let address = match request.extensions().get::<Peer>() {
        Some(Peer::Port { from, .. }) => network(*from).to_string(),
        _ => ClientAddress::of(request.extensions()).to_string(),
    };
    let header = |name: &str| request.headers().get(name).map(|value| value.as_bytes().to_owned());
    let client = Client { address: &address, header: &header };
    if rates.admit(limits, &format!("/{rest}"), &client, Instant::now()) {
        return Ok(());
    }
    let why = format!("service {run}: too many requests");
    Err(retry_later(StatusCode::TOO_MANY_REQUESTS, &why))
}

/// An answer of the proxy itself that asks the client to come again.
pub fn retry_later(status: StatusCode, why: &str) -> Box<Response> {
    let mut response = refused(status, why);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// An answer of the proxy itself.
pub fn refused(status: StatusCode, why: &str) -> Box<Response> {
    Box::new(said(status, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::{
        ConnectionLimits, ListenerSlots, PortConnection, SERVICE_LIMITS,
    };
    use model::service::RateKey;

    #[test]
    fn paths_name_a_project_and_a_run() {
        for (path, key, rest) in [
            ("/proxy/services/main/web/", "main/web", Some("")),
            ("/proxy/services/main/web/a/b", "main/web", Some("a/b")),
            ("/proxy/services/main/web", "main/web", None),
        ] {
            let found = ServicePath::parse(path).expect(path);
            assert_eq!(
                (found.key, found.rest, &*found.prefix),
                (key, rest, "/proxy/services/main/web/")
            );
            assert_eq!((found.project, found.run), ("main", "web"));
        }
        for bad in ["/proxy/services/main", "/proxy/services//web/", "/proxy/services/main//x"] {
            assert_eq!(ServicePath::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn long_bodies_and_circles_are_refused_by_the_head() {
        let check = |headers: &HeaderMap| {
            let checked = check_head(headers, SERVICE_LIMITS.body_bytes);
            checked.map_err(|response| response.status().as_u16())
        };
        let head = |name: header::HeaderName, values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(&name, value.parse().expect("a value"));
            }
            check(&headers)
        };
        assert_eq!(head(header::CONTENT_LENGTH, &["67108864"]), Ok(()));
        assert_eq!(head(header::CONTENT_LENGTH, &["67108865"]), Err(413));
        assert_eq!(head(header::CONTENT_LENGTH, &["5", "5"]), Err(400));
        assert_eq!(head(header::HOST, &["web.example"]), Ok(()));
        assert_eq!(head(header::HOST, &["web.example", "web.example"]), Err(400));
        let mut both = HeaderMap::new();
        both.insert(header::CONTENT_LENGTH, "5".parse().expect("a value"));
        both.insert(header::TRANSFER_ENCODING, "chunked".parse().expect("a value"));
        assert_eq!(check(&both), Err(400));
        assert_eq!(head(header::VIA, &["1.1 sluice", "1.0 other, 1.1 sluice,1.1 sluice"]), Ok(()));
        assert_eq!(head(header::VIA, &["1.1 sluice, 1.1 sluice", VIA, VIA]), Err(508));
        let mut passed = HeaderMap::new();
        passed.append(header::VIA, VIA.parse().expect("a value"));
        assert!(!is_from_gateway(&passed));
        passed.append(header::VIA, "1.0 other, 1.1 sluice-gateway".parse().expect("a value"));
        assert!(is_from_gateway(&passed));
    }

    /// It counted as no header, and a request without the header has no limit.
    #[test]
    fn header_that_is_no_text_has_its_limit_too() {
        let (rates, key) = (RequestRates::default(), RateKey::Header("x-key".into()));
        let limits = [RateLimit { prefix: "/".into(), key, rps_milli: 1, burst: 0 }];
        let status = |value: &[u8]| {
            let request = Request::get("/").header("x-key", value).body(Body::empty());
            let checked = check_rate(&rates, &limits, "web", "", &request.expect("a request"));
            checked.map_err(|response| response.status())
        };
        assert_eq!(status(b"a\xff"), Ok(()));
        assert_eq!(status(b"a\xff"), Err(StatusCode::TOO_MANY_REQUESTS));
        assert_eq!(status(b"a\xfe"), Ok(()), "another client");
    }

    #[test]
    fn network_of_version_6_is_one_client() {
        let (rates, key) = (RequestRates::default(), RateKey::IpAddress);
        let limits = [RateLimit { prefix: "/".into(), key, rps_milli: 1, burst: 0 }];
        let is_taken = |address: &str| {
            let mut request = Request::get("/").body(Body::empty()).expect("a request");
            let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
            let (connection, from) = (PortConnection::new(slots), address.parse());
            let from = from.expect("an address");
            request.extensions_mut().insert(Peer::Port { connection, from, is_loopback: false });
            check_rate(&rates, &limits, "web", "", &request).is_ok()
        };
        assert!(is_taken("2001:db8::1"));
        assert!(!is_taken("2001:db8::ffff:1"), "the same network");
        assert!(is_taken("2001:db8:0:1::1") && is_taken("192.0.2.1") && is_taken("192.0.2.2"));
        assert!(!is_taken("::ffff:192.0.2.1"));
    }

    #[test]
    fn only_methods_that_change_nothing_are_sent_again() {
        assert!(is_safe(&Method::GET) && is_safe(&Method::HEAD));
        for unsafe_one in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert!(!is_safe(&unsafe_one), "{unsafe_one}");
        }
    }
}
