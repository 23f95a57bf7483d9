//! One request through a gateway: to a replica that the gateway can connect to, and else to the server, which knows more.

use super::Gateway;
use super::replica_connections::CONNECT_TIMEOUT;
use super::routes::{Admission, RoutedService, Routes, key};
use crate::auth::token;
use crate::clock;
use crate::connection_limits::SERVICE_LIMITS;
use crate::http::authenticate::bearer;
use crate::http::peer::{ClientAddress, HeldSlot, Peer};
use crate::http::serve::RequestHandler;
use crate::http::stall_timeout::StallTimeout;
use crate::http::trusted_proxy;
use crate::metrics::scrape_services;
use crate::proxy::access_log::{Asked, Entry};
use crate::proxy::exchange::{OutgoingHead, inner_uri, redirect, take_websocket};
use crate::proxy::headers;
use crate::proxy::origin::host_of;
use crate::proxy::place_use::PlaceUse;
use crate::proxy::pool::{SendFailure, in_time, read_short};
use crate::proxy::service::answer::AnswerTo;
use crate::proxy::service::forwarded::ForwardedFrom;
use crate::proxy::service::request_head::{
    ServiceHost, ServicePath, TRIES_MAX, VIA, VIA_GATEWAY, WHOLE_HOST, bad_body, body_for_replica,
    bounded_body, check_head, check_method, check_rate, is_passed_on, is_safe, refused,
    retry_later, stalled, too_long,
};
use crate::proxy::timed_body::Upload;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Body as _;
use hyper::upgrade::OnUpgrade;
use model::id::AttemptId;
use model::publication::HttpsChoice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

/// What the server answers and no service is.
const MODELS: &str = "/proxy/models/";
/// For a Prometheus on this machine, and nobody whose request a proxy on it passes on.
const METRICS: &str = "/metrics";

impl RequestHandler for Arc<Gateway> {
    async fn handle(self, mut request: Request) -> Response {
        trusted_proxy::note(&self.trusted_proxies, &mut request);
        let mut entry = self.access_log.begin(|| Asked {
            client: ClientAddress::of(request.extensions()),
            service: host_of(&request).unwrap_or("-"),
            method: request.method(),
            path: request.uri().path(),
        });
        let answered = answer(&self, request, &mut entry).await;
        let answer = answered.unwrap_or_else(|refusal| *refusal);
        match entry {
            Some(entry) => entry.follow(answer),
            None => answer,
        }
    }
}

/// `entry`: the line of the access log, which is taken where the body of the answer is followed to its end.
async fn answer(
    gateway: &Gateway,
    request: Request,
    entry: &mut Option<Entry>,
) -> Result<Response, Box<Response>> {
    check_method(request.method())?;
    check_head(request.headers(), SERVICE_LIMITS.body_bytes)?;
    StallTimeout::set_of(request.extensions(), SERVICE_LIMITS.stall);
    let routes = gateway.routes();
    let (uri, host) = (request.uri().clone(), host_of_service(&routes, &request));
    let Some(wanted) = ServicePath::of(host.as_ref(), uri.path()) else {
        if request.uri().path().starts_with(MODELS) {
            return ToServer::of(gateway, &routes, request)?.send(gateway, &routes).await;
        }
        let peer = request.extensions().get::<Peer>();
        let is_near = matches!(peer, Some(Peer::Port { is_loopback: true, .. }));
        let is_own = is_near && !is_passed_on(request.headers());
        if is_own && request.uri().path() == METRICS {
            return Ok(scrape_services(&routes.figures()).into_response());
        }
        return Err(refused(StatusCode::NOT_FOUND, "expected /proxy/services/PROJECT/RUN/"));
    };
    let service = routes.service(wanted.key).cloned();
    let admitted = service.filter(|service| admits(&routes, service, &request));
    let Some(service) = admitted else {
        return ToServer::of(gateway, &routes, request)?.send(gateway, &routes).await;
    };
    let (rates, limits) = (&service.counts.rates, &service.route.rate_limits);
    check_rate(rates, limits, wanted.run, wanted.rest.unwrap_or_default(), &request)?;
    let Some(rest) = wanted.rest else {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        let place = format!("{}{query}", wanted.prefix);
        return Ok(redirect(StatusCode::PERMANENT_REDIRECT, &place));
    };
    let began = Instant::now();
    let to_replica = to_replica(gateway, &routes, &service, &wanted.prefix, rest, request, entry);
    let answered = to_replica.await;
    let figures = &service.counts.figures;
    let status = match &answered {
        Ok(answer) => answer.status(),
        Err(refusal) => {
            figures.failed();
            refusal.status()
        }
    };
    figures.answered(status.as_u16(), began.elapsed());
    answered
}

/// Whether the port for plain HTTP answers a request: its service does without HTTPS, or the gateway has no certificate.
pub fn is_plain(gateway: &Gateway, request: &Request) -> bool {
    let routes = gateway.routes();
    let host = host_of_service(&routes, request);
    let wanted = ServicePath::of(host.as_ref(), request.uri().path());
    let service = wanted.and_then(|wanted| routes.service(wanted.key));
    service.map_or(HttpsChoice::Auto, |service| service.route.https).is_plain(gateway.has_tls)
}

fn host_of_service(routes: &Routes, request: &Request) -> Option<ServiceHost> {
    ServiceHost::of(request, routes.domain.as_deref())
}

/// Whether the gateway itself knows that the service is open to this request.
fn admits(routes: &Routes, service: &RoutedService, request: &Request) -> bool {
    if !service.route.auth {
        return true;
    }
    let Some(text) = bearer(request) else { return false };
    let admission = routes.admit(&token::hash(text), &service.route.project, clock::now());
    admission == Admission::Member
}

/// A request as the server gets it, and what becomes of its connection.
struct ToServer {
    head: OutgoingHead,
    /// Its host name alone says which service it is for.
    is_by_host: bool,
    body: Body,
    upload: Upload,
    upgrades: bool,
    upgrade: Option<OnUpgrade>,
    slot: Option<HeldSlot>,
}

impl ToServer {
    fn of(gateway: &Gateway, routes: &Routes, mut request: Request) -> Result<Self, Box<Response>> {
        let client = ClientAddress::of(request.extensions());
        let client = HeaderValue::try_from(client.to_string()).ok();
        let scheme = ForwardedFrom::of(&request).scheme();
        let is_by_host = host_of_service(routes, &request).is_some();
        let upgrade = take_websocket(&mut request);
        let slot = request.extensions().get::<HeldSlot>().cloned();
        let uri = inner_uri(request.uri(), None)
            .ok_or_else(|| refused(StatusCode::BAD_REQUEST, "the path cannot be read"))?;
        let (parts, body) = request.into_parts();
        let upgrades = headers::is_websocket(&parts.headers);
        let mut head = OutgoingHead::of(parts, uri, false, WHOLE_HOST);
        // The server takes nobody behind a gateway for somebody on its own machine.
        head.append(header::VIA, HeaderValue::from_static(VIA_GATEWAY));
        // The server's limits of clients are for each of them, and not for the gateway.
        let token = HeaderValue::from_str(&gateway.server.token.0).ok();
        let name = HeaderValue::from_str(&gateway.name).ok();
        if let Some(((client, mut token), name)) = client.zip(token).zip(name) {
            token.set_sensitive(true);
            head.set(HeaderName::from_static(headers::FORWARDED_PROTO), scheme);
            head.append(HeaderName::from_static(headers::CLIENT), client);
            head.append(HeaderName::from_static(headers::GATEWAY_NAME), name);
            head.append(HeaderName::from_static(headers::GATEWAY_TOKEN), token);
        }
        let (body, upload) = bounded_body(body, &SERVICE_LIMITS);
        Ok(Self { head, is_by_host, body, upload, upgrades, upgrade, slot })
    }

    /// The answer of the server. Most requests go to replicas: what this needs has no room in all of them.
    fn send<'g>(
        self,
        gateway: &'g Gateway,
        routes: &'g Routes,
    ) -> Pin<Box<dyn Future<Output = Result<Response, Box<Response>>> + Send + 'g>> {
        Box::pin(self.send_unboxed(gateway, routes))
    }

    async fn send_unboxed(
        self,
        gateway: &Gateway,
        routes: &Routes,
    ) -> Result<Response, Box<Response>> {
        let Self { head, is_by_host, body, upload, upgrades, upgrade, slot } = self;
        // The clients' port knows no host names of services: any path there is one of the server's own API.
        if is_by_host && routes.proxy_port.is_none() {
            let why = "the server has no port for the host names of services";
            return Err(refused(StatusCode::MISDIRECTED_REQUEST, why));
        }
        let outstanding = gateway.server_pool.enter();
        let connect = || gateway.server.connect(routes.proxy_port, CONNECT_TIMEOUT);
        let sent = gateway.server_pool.send(connect, head.into_request(body), upgrades);
        let sent = in_time(SERVICE_LIMITS.answer, pin!(sent)).await;
        match sent {
            Ok(answer) => {
                upload.note_answer();
                let (websocket, prefix, is_whole) = (None, WHOLE_HOST, true);
                let to = AnswerTo { outstanding, websocket, upgrade, slot, prefix, is_whole };
                to.pass(answer, &mut None).ok_or_else(unasked)
            }
            Err(SendFailure::NotSent(_)) => {
                let why = "the service has no replica that can be reached, and the server is away";
                Err(retry_later(StatusCode::SERVICE_UNAVAILABLE, why))
            }
            Err(SendFailure::Lost | SendFailure::BadAnswer) => {
                Err(refused(StatusCode::BAD_GATEWAY, "the server was lost"))
            }
            Err(SendFailure::BadBody) => Err(bad_body()),
            Err(SendFailure::TooLong) => Err(too_long(SERVICE_LIMITS.body_bytes)),
            Err(SendFailure::Stalled) => Err(stalled(&SERVICE_LIMITS)),
            Err(SendFailure::TimedOut) => {
                Err(refused(StatusCode::GATEWAY_TIMEOUT, "the server took too long"))
            }
        }
    }
}

/// Passes a request on to a replica, and where none takes it to the server.
async fn to_replica(
    gateway: &Gateway,
    routes: &Routes,
    service: &Arc<RoutedService>,
    prefix: &str,
    rest: &str,
    mut request: Request,
    entry: &mut Option<Entry>,
) -> Result<Response, Box<Response>> {
    if service.replicas.is_empty() {
        return ToServer::of(gateway, routes, request)?.send(gateway, routes).await;
    }
    let is_whole = !service.route.strip_prefix || prefix == WHOLE_HOST;
    let uri = inner_uri(request.uri(), (!is_whole).then_some(rest))
        .ok_or_else(|| refused(StatusCode::BAD_REQUEST, "the path cannot be read"))?;
    let upgrade = take_websocket(&mut request);
    let slot = request.extensions().get::<HeldSlot>().cloned();
    let upgrades = headers::is_websocket(request.headers());
    let from = ForwardedFrom::of(&request);
    let (parts, body) = request.into_parts();
    let is_repeatable = is_safe(&parts.method) && body.is_end_stream();
    // As it came: for another try, and for the server where no replica takes it.
    let original = AskedHead::of(&parts);
    let head_of = |parts: Parts| {
        let mut head = OutgoingHead::of(parts, uri.clone(), service.route.auth, prefix);
        head.append(header::VIA, HeaderValue::from_static(VIA));
        from.note(&mut head);
        head
    };
    let again = || head_of(original.copy()).into_request(Body::empty());
    let (body, upload) = body_for_replica(body, &SERVICE_LIMITS).await?;
    let place_use = PlaceUse::of(upgrades, upload.is_under_way());
    let mut outgoing = head_of(parts).into_request(body);
    let service_key = key(&service.route.project, &service.route.run);
    let mut tried: Vec<AttemptId> = Vec::new();
    let mut was_lost = false;
    while let Some(replica) = service.choose(&tried, place_use).filter(|_| tried.len() < TRIES_MAX)
    {
        let outstanding = replica.pool.enter();
        let websocket = upgrades.then(|| replica.pool.enter_websocket());
        if upload.is_under_way() {
            upload.hold(replica.pool.enter_upload());
        }
        let exchange = pin!(async {
            let connect = || gateway.connections.connect(&gateway.server, &service_key, &replica);
            let has_room = || gateway.connections.has_room(&service_key);
            let answer = replica.pool.send_where(has_room, connect, outgoing, upgrades).await?;
            if is_repeatable { read_short(answer).await } else { Ok(answer) }
        });
        outgoing = match in_time(SERVICE_LIMITS.answer, exchange).await {
            Ok(answer) => {
                upload.note_answer();
                service.counts.note_request();
                let to = AnswerTo { outstanding, websocket, upgrade, slot, prefix, is_whole };
                return to.pass(answer, entry).ok_or_else(unasked);
            }
            Err(SendFailure::NotSent(unsent)) => *unsent,
            Err(SendFailure::Lost | SendFailure::BadAnswer) if is_repeatable => {
                // Its server may have closed a connection that was kept: a new one may do.
                if !std::mem::replace(&mut was_lost, true) {
                    outgoing = again();
                    continue;
                }
                again()
            }
            Err(lost @ (SendFailure::Lost | SendFailure::BadAnswer)) => {
                let what = lost.of_server().unwrap_or_default();
                let why = format!("a replica of service {} {what}", service.route.run);
                return Err(refused(StatusCode::BAD_GATEWAY, &why));
            }
            Err(SendFailure::BadBody) => return Err(bad_body()),
            Err(SendFailure::TooLong) => return Err(too_long(SERVICE_LIMITS.body_bytes)),
            Err(SendFailure::Stalled) => return Err(stalled(&SERVICE_LIMITS)),
            Err(SendFailure::TimedOut) => {
                let why = format!("a replica of service {} took too long", service.route.run);
                return Err(refused(StatusCode::GATEWAY_TIMEOUT, &why));
            }
        };
        tried.push(replica.route.attempt);
    }
    let copy = original.for_server(outgoing.into_body());
    let for_server = ToServer { upgrade, ..ToServer::of(gateway, routes, copy)? };
    let answered = for_server.send(gateway, routes).await;
    // The server gets the body as the replicas were to get it, with both bounds.
    upload.note_answer();
    answered
}

/// The head of a request as it came, beside the one that was sent; what belongs to its connection stays with that.
struct AskedHead {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    slot: Option<HeldSlot>,
    peer: Option<Peer>,
}

impl AskedHead {
    fn of(head: &Parts) -> Self {
        Self {
            method: head.method.clone(),
            uri: head.uri.clone(),
            headers: head.headers.clone(),
            slot: head.extensions.get::<HeldSlot>().cloned(),
            peer: head.extensions.get::<Peer>().cloned(),
        }
    }

    fn copy(&self) -> Parts {
        let mut copy = Request::new(());
        *copy.method_mut() = self.method.clone();
        *copy.uri_mut() = self.uri.clone();
        *copy.headers_mut() = self.headers.clone();
        copy.into_parts().0
    }

    /// The request, with who asks.
    fn for_server(self, body: Body) -> Request {
        let mut request = Request::from_parts(self.copy(), body);
        self.slot.map(|slot| request.extensions_mut().insert(slot));
        self.peer.map(|peer| request.extensions_mut().insert(peer));
        request
    }
}

fn unasked() -> Box<Response> {
    refused(StatusCode::BAD_GATEWAY, "the protocol changed unasked")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
    use crate::gateway::ServerAddress;
    use crate::gateway::replica_connections::ReplicaConnections;
    use crate::proxy::access_log::AccessLog;
    use model::secret::SecretValue;
    use std::net::Ipv4Addr;
    use std::sync::RwLock;
    use wire::gateway::GatewayRoutes;

    fn request(path: &str, host: &str) -> Request {
        let request = Request::get(path).header(header::HOST, host);
        request.header(header::CONNECTION, "host, via").body(Body::empty()).expect("a request")
    }

    fn routes() -> Routes {
        let domain = Some("apps.example".to_owned());
        let said = GatewayRoutes { is_settled: true, domain, ..GatewayRoutes::default() };
        Routes::default().after(said)
    }

    fn gateway() -> Gateway {
        let dir = tempfile::tempdir().expect("a folder");
        let token = SecretValue("of-the-gateway".into());
        let server = ServerAddress { host: "127.0.0.1".into(), port: 1, tls: None, token };
        Gateway {
            name: "edge".into(),
            has_tls: false,
            routes: RwLock::default(),
            server,
            server_pool: Arc::default(),
            connections: ReplicaConnections::new(1),
            trusted_proxies: Vec::new(),
            access_log: Arc::new(AccessLog::new(dir.path())),
        }
    }

    #[tokio::test]
    async fn request_by_host_name_never_reaches_the_servers_own_api() {
        let (gateway, routes) = (gateway(), routes());
        let status = async |host: &str| {
            let asked = request("/api/web/jobs", host);
            let passed = ToServer::of(&gateway, &routes, asked).expect("a head");
            let answer = passed.send(&gateway, &routes).await;
            answer.map_or_else(|refusal| refusal.status(), |answer| answer.status())
        };
        assert_eq!(status("web.apps.example").await, StatusCode::MISDIRECTED_REQUEST);
        assert_eq!(status("head.example").await, StatusCode::SERVICE_UNAVAILABLE, "no server");
    }

    #[tokio::test]
    async fn figures_are_for_this_machine_and_for_nobody_behind_a_proxy_on_it() {
        let gateway = gateway();
        let status = async |header: Option<&'static str>| {
            let mut asked = request(METRICS, "127.0.0.1:8080");
            let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).proxy;
            let (connection, from) = (PortConnection::new(slots), Ipv4Addr::LOCALHOST.into());
            asked.extensions_mut().insert(Peer::Port { connection, from, is_loopback: true });
            if let Some(name) = header {
                asked.headers_mut().insert(name, HeaderValue::from_static("192.0.2.7"));
            }
            let answer = answer(&gateway, asked, &mut None).await;
            answer.map_or_else(|refusal| refusal.status(), |answer| answer.status())
        };
        assert_eq!(status(None).await, StatusCode::OK);
        for name in ["x-forwarded-for", "forwarded", "via", "x-real-ip"] {
            assert_eq!(status(Some(name)).await, StatusCode::NOT_FOUND, "{name}");
        }
    }

    #[test]
    fn request_to_the_server_says_that_a_gateway_passed_it_on_and_for_whom() {
        let mut asked = request("/proxy/services/main/web/", "head.example");
        let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).proxy;
        let from = Ipv4Addr::new(192, 0, 2, 7).into();
        let connection = PortConnection::new(slots).by_tls(true);
        asked.headers_mut().insert(headers::FORWARDED_PROTO, HeaderValue::from_static("gopher"));
        asked.extensions_mut().insert(Peer::Port { connection, from, is_loopback: false });
        asked.headers_mut().insert(headers::CLIENT, HeaderValue::from_static("10.0.0.1"));
        let copy = AskedHead::of(&asked.into_parts().0).for_server(Body::empty());
        let passed = ToServer::of(&gateway(), &routes(), copy).expect("a head");
        let sent = passed.head.with(Body::empty());
        for (name, expected) in [
            ("host", "head.example"),
            ("via", VIA_GATEWAY),
            (headers::CLIENT, "192.0.2.7"),
            (headers::FORWARDED_PROTO, "https"),
            (headers::GATEWAY_NAME, "edge"),
            (headers::GATEWAY_TOKEN, "of-the-gateway"),
        ] {
            let found: Vec<_> = sent.headers().get_all(name).iter().collect();
            assert_eq!(found, [expected], "{name}");
        }
    }
}
