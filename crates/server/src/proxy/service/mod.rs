//! Requests to services: `/proxy/services/PROJECT/RUN/…`, or by host name where the site has a domain for them, passed on to the
//! replica that has the fewest to answer.
//!
//! A request needs a token of a member of the project, unless the service says `auth: false`. No cookie of ours opens a service, and
//! its pages have an origin of their own, by its host name or by `SANDBOX`: no script of a service can use what a browser has open of jobs or of the
//! server. Bytes go through a step of each replica, as those of web pages of jobs do, but where it is on the server's own machine (`near_replica`).
//!
//! - `scaler` brings replicas to the number that `autoscale` says, by what came (`arrivals`, `scale_state`).
//! - `roller` replaces the deployment before the newest; `router` tells the router of a service its workers.
//! - `request_head`: what the head of a request says; `request_source`: the way by which it came; `forwarded`: what a replica is told of that; `answer`: what the client gets; `gateway_routes`: what gateways are told of them; `models`: requests that name a model; `path_rule`: which path a replica sees; `table`: the services that are active; `live`: one of them; `replica`: the connections to one; `balance`: which replica is next; `waiting_line`: whose turn it is where all have as many requests as they may; `probe` and
//!   `readiness`: which replicas are ready; `port_check`: whether their own servers listen at their ports; `port_watch`: asks that; `reach_state`: whether one is up.

pub mod answer;
mod arrivals;
mod autoscale;
pub mod balance;
pub mod forwarded;
mod gateway_routes;
mod live;
pub mod models;
pub mod near_replica;
mod path_rule;
mod port_check;
mod port_watch;
mod probe;
mod reach_state;
mod readiness;
mod replica;
pub mod request_head;
pub mod request_rate;
pub mod request_source;
mod roller;
mod router;
mod scale_state;
mod scaler;
mod table;
mod waiting_line;

use super::access_log::{Asked, Entry};
use super::exchange::{OutgoingHead, inner_uri, redirect, said, take_websocket};
use super::headers;
use super::place_use::PlaceUse;
use super::pool::{SendFailure, in_time, read_short};
use crate::http::authenticate::{self, Caller, CheckedToken};
use crate::http::peer::{ClientAddress, HeldSlot, Peer};
use crate::http::stall_timeout::StallTimeout;
use crate::shared::Shared;
use crate::shared::gateways::Routes;
use answer::AnswerTo;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use cluster::rights::Rights;
use forwarded::ForwardedFrom;
use hyper::body::Body as _;
use live::{LiveService, key};
use model::id::AttemptId;
use replica::Replica;
use request_head::{
    ServiceHost, ServicePath, TRIES_MAX, VIA, bad_body, body_for_replica, check_head, check_rate,
    is_safe, refused, retry_later, stalled, too_long,
};
use request_source::RequestSource;
use scale_state::{ScaleState, WaitingRequest};
use std::borrow::Cow;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
pub use table::Services;
use tokio::sync::Notify;
use waiting_line::Front;

pub const ROUTES: [&str; 3] = [
    "/proxy/services/{project}/{run}",
    "/proxy/services/{project}/{run}/",
    "/proxy/services/{project}/{run}/{*rest}",
];

/// How long a request waits for a replica of a service that is scaled, and how often it looks.
const FIRST_REPLICA_TIMEOUT: Duration = Duration::from_secs(60);
const FIRST_REPLICA_LOOK: Duration = Duration::from_millis(50);
/// How long a request waits where all replicas have as many as they may.
const PLACE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after the start of the server a request waits for nodes to connect, beside the first probes of its replicas.
const NODES_TIMEOUT: Duration = Duration::from_secs(20);

/// How long gateways may take to learn that a replica gets no more requests.
const GATEWAY_DELAY: Duration = Duration::from_secs(4);

/// How long after the start of the server its probes know which replicas are ready.
const SETTLED_AFTER: Duration = Duration::from_secs(30);

/// How often the replicas are looked after.
const LOOK: Duration = Duration::from_secs(1);
/// The least time between two looks, however many requests wait.
const LOOK_MIN: Duration = Duration::from_millis(50);

/// Looks after the replicas of services as long as they are served: new ones are probed, and connections that nobody uses are closed.
/// A request that waits for the first replica of its service has them looked at sooner.
pub fn look_after(shared: Arc<Shared>, services: &Arc<Services>) {
    let (services, awaited) = (Arc::downgrade(services), services.awaited.clone());
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_MIN).await;
            let _ = tokio::time::timeout(LOOK - LOOK_MIN, awaited.notified()).await;
            let Some(services) = services.upgrade() else { return };
            look(&shared, &services);
        }
    });
}

fn look(shared: &Arc<Shared>, services: &Services) {
    services.access_log.turn(shared.read().config.proxy.access_log);
    let now = Instant::now();
    let gateways = &shared.volatile.gateways;
    let has_gateways = gateways.is_any(now);
    if has_gateways {
        let (table, is_settled) =
            (services.table(shared), services.started.elapsed() >= SETTLED_AFTER);
        let state = shared.read();
        let services = gateway_routes::of(&state, &shared.agents, &table, now);
        drop(state);
        gateways.set_routes(Routes { is_settled, services });
    } else {
        gateways.forget_routes();
    }
    let mut streaks = HashMap::new();
    for live in services.table(shared).values() {
        for replica in &live.replicas {
            replica.close_idle(now);
            let is_new = |since: Instant| now.saturating_duration_since(since) < GATEWAY_DELAY;
            // Gateways learn a moment later that it gets no more requests.
            let may_come = has_gateways && replica.drained_since().is_some_and(is_new);
            replica.set_elsewhere(gateways.outstanding(replica.attempt).max(usize::from(may_come)));
            if replica.readiness.begin() {
                probe::start(shared, services, live, replica);
            }
            port_watch::check(shared, replica, now);
            if replica.is_open() && replica.is_to_be_reached() {
                let (forwarders, owner) = (services.forwarders.clone(), live.owner.clone());
                tokio::spawn(replica.clone().reach(shared.clone(), forwarders, owner));
            }
            streaks.insert(replica.attempt.job, replica.readiness.streaks());
        }
        router::keep_workers(shared, services, live);
        live.counts.set_replicas(live.ready());
        live.counts.set_websockets(live.replicas.iter().map(|one| one.websockets()).sum());
        live.scale.arrivals.note_many(gateways.take_arrived(&live.name), now);
        scaler::scale(shared, live, now);
        roller::roll(shared, live, now);
    }
    let table = services.table(shared);
    services.end_leaving(&shared.read());
    gateways.keep_arrived(|name| table.contains_key(&key(&name.project, &name.run)));
    shared.volatile.probe_streaks.set(streaks);
}

/// A request whose path names a service.
pub async fn service(
    State(shared): State<Arc<Shared>>,
    axum::Extension(services): axum::Extension<Arc<Services>>,
    request: Request,
) -> Response {
    answer(&shared, &services, None, None, request).await
}

/// The service that a request's host name means.
pub fn host_of_service(shared: &Shared, request: &Request) -> Option<ServiceHost> {
    ServiceHost::of(request, shared.read().config.proxy.domain.as_deref())
}

/// Answers a request to the service that its host name means, or else its path. `token`: that of the request, where it was checked
/// already.
pub async fn answer(
    shared: &Arc<Shared>,
    services: &Services,
    host: Option<ServiceHost>,
    token: Option<&CheckedToken>,
    request: Request,
) -> Response {
    let uri = request.uri().clone();
    let Some(asked) = ServicePath::of(host.as_ref(), uri.path()) else {
        return said(StatusCode::NOT_FOUND, "expected /proxy/services/PROJECT/RUN/");
    };
    let live = services.find(shared, asked.key).await;
    let by_token = match admit(shared, &request, token, asked.project, live.as_deref()) {
        Ok(by_token) => by_token,
        Err(response) => return *response,
    };
    let live = live.filter(|live| is_published(shared, &request, live));
    let Some(live) = live else { return no_service(asked.project, asked.run) };
    let Some(rest) = asked.rest else {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return redirect(StatusCode::PERMANENT_REDIRECT, &format!("{}{query}", asked.prefix));
    };
    let passed = Passed { live, prefix: &asked.prefix, rest, of_model: false, by_token };
    exchange(shared, services, &passed, request).await.0
}

/// Whether the service is published by the way that a request came.
fn is_published(shared: &Shared, request: &Request, live: &LiveService) -> bool {
    let source = RequestSource::of(request.extensions(), request.headers());
    source.finds(shared, &live.name.project, &live.service)
}

fn no_service(project: &str, run: &str) -> Response {
    let why = format!("project {project} has no service {run} that is active and published here");
    said(StatusCode::NOT_FOUND, &why)
}

/// Passes a request on, and counts it. The answer, and whether it is a replica's.
async fn exchange(
    shared: &Arc<Shared>,
    services: &Services,
    passed: &Passed<'_>,
    request: Request,
) -> (Response, bool) {
    let began = Instant::now();
    let live = &passed.live;
    let mut entry = services.access_log.begin(|| Asked {
        client: ClientAddress::of(request.extensions()),
        service: &live.key,
        method: request.method(),
        path: request.uri().path(),
    });
    let passed_on = passed.on(shared, services, request, &mut entry);
    let (answer, is_of_replica) = match passed_on.await {
        Ok(answer) => (answer, true),
        Err(answer) => {
            live.counts.failed();
            (*answer, false)
        }
    };
    let (status, took) = (answer.status().as_u16(), began.elapsed());
    live.counts.answered(status, took);
    let service = live.name.run.as_str();
    tracing::debug!(service, status, ms = took.as_millis() as u64, "request");
    let answer = match entry {
        Some(entry) => entry.follow(answer),
        None => answer,
    };
    (answer, is_of_replica)
}

/// Refuses whom the service is not for, and says whether a token let the others in.
fn admit(
    shared: &Shared,
    request: &Request,
    token: Option<&CheckedToken>,
    project: &str,
    live: Option<&LiveService>,
) -> Result<bool, Box<Response>> {
    if let Some(live) = live.filter(|live| !live.auth) {
        // Nobody says who asks: the connection counts as one of the service's owner.
        let is_counted = match request.extensions().get::<Peer>() {
            Some(Peer::Port { connection, .. }) => connection.identify(live.owner.uid, || false),
            _ => true,
        };
        let full = || Box::new(authenticate::too_many_connections(&live.owner));
        return if is_counted { Ok(false) } else { Err(full()) };
    }
    member(shared, authenticate::caller_checked(shared, request, token), project)?;
    Ok(true)
}

/// Refuses whoever is no member of a project.
fn member(shared: &Shared, caller: Caller, project: &str) -> Result<(), Box<Response>> {
    let by = match caller {
        Caller::Known(by) => by,
        other => return Err(Box::new(authenticate::refusal(other))),
    };
    let state = shared.read();
    let is_active = state.users.get(&by.name).is_none_or(|known| known.active);
    if is_active && Rights::of(&state, &by).project_role(project).is_some() {
        return Ok(());
    }
    let why = format!("user {} is no member of project {project}", by.name);
    Err(Box::new(said(StatusCode::FORBIDDEN, &why)))
}

/// How a request waits for a replica: of a service that is scaled, which may have none at the moment, and of a server that has
/// just started, whose nodes are not connected yet.
struct FirstReplica {
    scale: Option<Arc<ScaleState>>,
    until: Instant,
    counted: Option<WaitingRequest>,
    awaited: Arc<Notify>,
}

impl FirstReplica {
    fn new(live: &LiveService, services: &Services, shared: &Shared) -> Self {
        let scale = live.is_scaled().then(|| live.scale.clone());
        let until = if scale.is_some() {
            Instant::now() + FIRST_REPLICA_TIMEOUT
        } else if live.created < shared.setup.started {
            let wait = NODES_TIMEOUT + live.first_probes_timeout();
            services.started + wait.min(FIRST_REPLICA_TIMEOUT)
        } else {
            services.started
        };
        Self { scale, until, counted: None, awaited: services.awaited.clone() }
    }

    /// Waits a moment; whether it is worth to look again.
    async fn goes_on(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        if let Some(scale) = self.scale.as_ref().filter(|_| self.counted.is_none()) {
            self.counted = Some(scale.wait());
            self.awaited.notify_one();
        }
        tokio::time::sleep(FIRST_REPLICA_LOOK).await;
        true
    }
}

/// A request on its way to a service.
struct Passed<'a> {
    live: Arc<LiveService>,
    /// The path at which the client finds the service, with a slash at its end.
    prefix: &'a str,
    rest: &'a str,
    /// It asks for a chat completion of the service's model.
    of_model: bool,
    by_token: bool,
}

impl Passed<'_> {
    /// The answer of a replica; as an error what the proxy says itself, because there is none.
    async fn on(
        &self,
        shared: &Arc<Shared>,
        services: &Services,
        mut request: Request,
        entry: &mut Option<Entry>,
    ) -> Result<Response, Box<Response>> {
        let body_bytes = services.limits.body_bytes;
        check_head(request.headers(), body_bytes)?;
        let (rates, limits) = (&self.live.rates, &self.live.service.rate_limits);
        check_rate(rates, limits, &self.live.name.run, self.rest, &request)?;
        StallTimeout::set_of(request.extensions(), services.limits.stall);
        // What is refused is no load: it starts no replica.
        self.live.scale.arrivals.note(Instant::now());
        let upgrade = take_websocket(&mut request);
        let slot = request.extensions().get::<HeldSlot>().cloned();
        let is_whole = self.live.path.is_whole(self.prefix);
        let rest = (!is_whole).then_some(self.rest);
        let uri = inner_uri(request.uri(), rest)
            .ok_or_else(|| refused(StatusCode::BAD_REQUEST, "the path cannot be read"))?;
        let from = ForwardedFrom::of(&request);
        let (parts, body) = request.into_parts();
        let upgrades = headers::is_websocket(&parts.headers);
        let is_repeatable = is_safe(&parts.method) && body.is_end_stream();
        let mut head = OutgoingHead::of(parts, uri, self.by_token, self.prefix);
        head.append(header::VIA, HeaderValue::from_static(VIA));
        from.note(&mut head);
        let again = is_repeatable.then(|| head.clone());
        let (body, upload) = body_for_replica(body, &services.limits).await?;
        let place_use = PlaceUse::of(upgrades, upload.is_under_way());
        let mut outgoing = head.into_request(body);
        // The rule by which the path is written.
        let mut written = Cow::Borrowed(&self.live.path);
        let mut tried: Vec<AttemptId> = Vec::new();
        let mut was_lost = false;
        // What the replica did that was tried last, where it had the request.
        let mut failure: Option<&'static str> = None;
        let mut live = self.live.clone();
        let mut wait = FirstReplica::new(&live, services, shared);
        let mut is_current = false;
        let place_until = wait.until.max(Instant::now() + PLACE_TIMEOUT);
        let mut front: Option<Front> = None;
        let (answer, is_whole, outstanding, websocket) = loop {
            // A WebSocket, a long body where others have their part, and a request that was at a replica already do not wait for room; one
            // whose connection was closed goes again before those that came later.
            let may_wait = tried.is_empty() && !upgrades && !live.is_part_taken(place_use);
            let is_behind_others = may_wait && !was_lost && front.is_none() && live.line.is_any();
            let may_enter = tried.len() < TRIES_MAX && !is_behind_others;
            let entered = may_enter.then(|| live.enter(&tried, place_use)).flatten();
            let Some((replica, outstanding)) = entered else {
                if may_wait && live.ready() > 0 && Instant::now() < place_until {
                    match &front {
                        Some(front) => front.one_ended().await,
                        None => front = live.line.join(place_until).await,
                    }
                    live = self.admitted(services.again(shared, &live))?;
                    continue;
                }
                front = None;
                // What may have ended a replica is not sent to one after the other until the time is over.
                if !was_lost && wait.goes_on().await {
                    live = self.admitted(services.again(shared, &live))?;
                    tried.clear();
                    continue;
                }
                // One may run since the table was made.
                if live.replicas.is_empty() && !std::mem::replace(&mut is_current, true) {
                    let table = services.current(shared).await;
                    live = self.admitted(table.get(&live.key).unwrap_or(&live).clone())?;
                    continue;
                }
                return Err(match failure {
                    Some(what) => self.failed(what),
                    None => self.no_replica(&live, &tried),
                });
            };
            // The next one may go.
            front = None;
            let websocket = upgrades.then(|| replica.enter_websocket());
            if upload.is_under_way() {
                upload.hold(replica.enter_upload());
            }
            if replica.path != *written {
                *outgoing.uri_mut() = self.place(&replica, outgoing.uri())?;
                written = Cow::Owned(replica.path.clone());
            }
            let owner = &live.owner;
            let forwarders = &services.forwarders;
            let exchange = pin!(async {
                let answer = replica.begin(shared, forwarders, owner, outgoing, upgrades).await?;
                if is_repeatable { read_short(answer).await } else { Ok(answer) }
            });
            let exchange = pin!(replica.while_there(exchange));
            outgoing = match in_time(services.limits.answer, exchange).await {
                Ok(answer) => {
                    upload.note_answer();
                    break (answer, replica.path.is_whole(self.prefix), outstanding, websocket);
                }
                Err(SendFailure::NotSent(unsent)) => {
                    failure = None;
                    *unsent
                }
                Err(lost @ (SendFailure::Lost | SendFailure::BadAnswer)) => {
                    failure = lost.of_server();
                    let Some(head) = &again else {
                        return Err(self.failed(failure.unwrap_or_default()));
                    };
                    // Its server may have closed a connection that was kept: a new one may do.
                    written = Cow::Borrowed(&self.live.path);
                    if !std::mem::replace(&mut was_lost, true) {
                        outgoing = head.with(Body::empty());
                        continue;
                    }
                    head.with(Body::empty())
                }
                Err(SendFailure::BadBody) => return Err(bad_body()),
                Err(SendFailure::TooLong) => return Err(too_long(body_bytes)),
                Err(SendFailure::Stalled) => return Err(stalled(&services.limits)),
                Err(SendFailure::TimedOut) => {
                    let why = format!("a replica of service {} took too long", self.live.name.run);
                    return Err(refused(StatusCode::GATEWAY_TIMEOUT, &why));
                }
            };
            tried.push(replica.attempt);
        };
        let to = AnswerTo { outstanding, websocket, upgrade, slot, prefix: self.prefix, is_whole };
        to.pass(answer, entry).ok_or_else(|| self.failed("changed the protocol unasked"))
    }

    /// The service as it is by now, if what let the request in lets it in there too: meanwhile an update may have asked for tokens, and another
    /// user's service have the name, who is not to have what came for the one before.
    fn admitted(&self, now: Arc<LiveService>) -> Result<Arc<LiveService>, Box<Response>> {
        let is_let_in = self.by_token || !now.auth;
        if is_let_in && now.owner.uid == self.live.owner.uid {
            return Ok(now);
        }
        let why = format!("service {} has changed while the request waited", self.live.name.run);
        Err(retry_later(StatusCode::SERVICE_UNAVAILABLE, &why))
    }

    /// The path that a replica sees which has another rule than that by which the path was written.
    fn place(&self, replica: &Replica, written: &Uri) -> Result<Uri, Box<Response>> {
        let own = if self.of_model {
            // One that serves no model has no path for it.
            replica.path.completions().or_else(|| Some(written.clone()))
        } else {
            replica.path.rewrite(written, self.prefix, self.rest)
        };
        own.ok_or_else(|| refused(StatusCode::BAD_REQUEST, "the path cannot be read"))
    }

    fn failed(&self, what: &str) -> Box<Response> {
        let why = format!("a replica of service {} {what}", self.live.name.run);
        refused(StatusCode::BAD_GATEWAY, &why)
    }

    /// No replica runs, or none of those that were tried takes connections.
    fn no_replica(&self, live: &LiveService, tried: &[AttemptId]) -> Box<Response> {
        let (run, port) = (&live.name.run, live.service.port);
        let why = if live.replicas.is_empty() {
            format!("service {run} has no replica that runs")
        } else if live.ready() == 0 {
            format!("no replica of service {run} is ready")
        } else if tried.is_empty() {
            format!("all replicas of service {run} have as many requests as they may")
        } else {
            format!("no replica of service {run} takes connections at its port {port}")
        };
        retry_later(StatusCode::SERVICE_UNAVAILABLE, &why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::user;
    use model::principal::Principal;
    use model::service::Service;

    #[test]
    fn request_that_waited_is_let_in_by_what_let_it_in_at_first() {
        let live = |auth: bool, uid: u32| {
            let service = Service { auth, ..Service::at(80) };
            let live = LiveService::of_test(service, Vec::new(), 0);
            Arc::new(LiveService { owner: Principal { uid, ..user() }, ..live })
        };
        for (by_token, before, now, expected) in [
            (false, live(false, 7), live(false, 7), true),
            (false, live(false, 7), live(true, 7), false),
            (true, live(true, 7), live(true, 7), true),
            (true, live(true, 7), live(false, 7), true),
            (true, live(true, 7), live(true, 8), false),
            (false, live(false, 7), live(false, 8), false),
        ] {
            let passed = Passed { live: before, prefix: "/", rest: "", of_model: false, by_token };
            match passed.admitted(now) {
                Ok(_) => assert!(expected),
                Err(refusal) => {
                    assert!(!expected);
                    assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
                    assert!(refusal.headers().contains_key(header::RETRY_AFTER));
                }
            }
        }
    }
}
