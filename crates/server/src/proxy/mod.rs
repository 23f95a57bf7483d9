//! Web pages of jobs and services through the server: `/proxy/jobs/JOB/PORT/…`, where the job's server sees the path behind it,
//! and `/proxy/whole/JOB/PORT/…`, where it sees the whole path, for servers that are told where they are.
//!
//! A request is its job's owner's: by a token, by the local socket, or by a cookie that a one-time link set for that path. Bytes
//! go through a step of the job (`ssh/forward.rs`), to the loopback address of the job's own network: the server itself
//! connects to nothing.
//!
//! - `origin`: the port that all of this has; `entrance`: the page before a visit from another site
//! - `forwarders`: the steps; `pool`: connections that are used again; `outstanding`: what is counted until it is over; `kept_connections`: which of them give way to new ones; `open_connection`: one of them; `held_stream`: what each of them holds; `bounded_head`: what may come before an answer; `timed_body`: bodies that must come in time; `place_use`: what requests hold a replica's places for; `noted_body`: whether they were read; `headers`: what is changed in heads; `exchange`: one request and its answer; `both_ways`: the bytes of a WebSocket. Links and cookies are in
//!   `shared/proxy_sessions.rs`. `service` passes requests on to services, and `access_log` has a line
//!   for each of those.

pub mod access_log;
mod both_ways;
mod bounded_head;
mod entrance;
pub mod exchange;
mod forwarders;
pub mod headers;
mod held_stream;
pub mod kept_connections;
mod noted_body;
pub mod open_connection;
pub mod origin;
pub mod outstanding;
pub mod place_use;
pub mod pool;
pub mod service;
pub mod timed_body;

use crate::clock;
use crate::http::authenticate::{self, Caller};
use crate::http::browser::{self, is_own_page};
use crate::http::peer::{HeldSlot, Peer};
use crate::shared::Shared;
use crate::shared::proxy_sessions::{OpenedPass, ProxyTarget, RedeemRefusal};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bounded_head::BoundedHead;
use cluster::authorise::{Act, authorise};
use cluster::rights::role_of;
use exchange::{OutgoingHead, inner_uri, join_upgraded, redirect, said, take_websocket};
use forwarders::CONNECTIONS_MAX;
pub use forwarders::Forwarders;
pub use headers::BROWSER;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::time::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The parameter of a link; it is in no address after the redirect.
const LINK: &str = "sluice_link";
/// How long a job's server may take to take a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Said where the site shows no pages of jobs.
pub const JOB_PAGES_OFF: &str =
    "web pages of jobs are not shown here ([web] job_pages = false in sluice.toml)";

pub const ROUTES: [&str; 6] = [
    "/proxy/jobs/{job}/{port}",
    "/proxy/jobs/{job}/{port}/",
    "/proxy/jobs/{job}/{port}/{*rest}",
    "/proxy/whole/{job}/{port}",
    "/proxy/whole/{job}/{port}/",
    "/proxy/whole/{job}/{port}/{*rest}",
];

/// What a path of the proxy says.
#[derive(Debug, PartialEq, Eq)]
struct ProxyPath<'p> {
    target: ProxyTarget,
    /// With a slash at its end.
    prefix: String,
    is_whole: bool,
    /// Behind the prefix; nothing where the slash is missing.
    rest: Option<&'p str>,
}

impl<'p> ProxyPath<'p> {
    fn parse(path: &'p str) -> Option<Self> {
        let (kind, rest) = path.strip_prefix("/proxy/")?.split_once('/')?;
        let is_whole = match kind {
            "jobs" => false,
            "whole" => true,
            _ => return None,
        };
        let (word, rest) = rest.split_once('/')?;
        let (port, rest) = match rest.split_once('/') {
            Some((port, rest)) => (port, Some(rest)),
            None => (rest, None),
        };
        let (job, rank) = word.split_once('.').unwrap_or((word, "0"));
        let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        if ![job, rank, port].into_iter().all(is_number) {
            return None;
        }
        let port = port.parse().ok().filter(|port| *port > 0)?;
        let target = ProxyTarget { job: JobId(job.parse().ok()?), rank: rank.parse().ok()?, port };
        let prefix = format!("/proxy/{kind}/{word}/{port}/");
        Some(Self { target, prefix, is_whole, rest })
    }
}

/// The address of a new link, without the server's own.
fn link_path(target: ProxyTarget, is_whole: bool, secret: &str) -> String {
    let kind = if is_whole { "whole" } else { "jobs" };
    let rank = if target.rank > 0 { format!(".{}", target.rank) } else { String::new() };
    format!("/proxy/{kind}/{}{rank}/{}/?{LINK}={secret}", target.job, target.port)
}

/// Refuses whom the job is not for, and says whose it is.
pub fn check(shared: &Shared, by: &Principal, target: ProxyTarget) -> Result<u32, Refusal> {
    let state = shared.read();
    let unknown = || Refusal::UnknownJob(target.job.to_string());
    let job = state.jobs.get(&target.job).ok_or_else(unknown)?;
    authorise(&state, by, Act::ActAsOwner(job))?;
    if state.users.get(&by.name).is_some_and(|known| !known.active) {
        return Err(Refusal::AccessDenied);
    }
    match job.attempt() {
        Some(_) => Ok(job.spec.owner.uid),
        None if job.has_ended() => Err(Refusal::JobEnded(target.job)),
        None => Err(Refusal::JobNotRunning(target.job)),
    }
}

/// What is no path of the proxy.
pub async fn unknown_path() -> Response {
    said(StatusCode::NOT_FOUND, "expected /proxy/services/PROJECT/RUN/ or /proxy/jobs/JOB/PORT/")
}

pub async fn proxy(
    State(shared): State<Arc<Shared>>,
    axum::Extension(forwarders): axum::Extension<Arc<Forwarders>>,
    request: Request,
) -> Response {
    let path = request.uri().path().to_owned();
    let Some(asked) = ProxyPath::parse(&path) else {
        return said(StatusCode::NOT_FOUND, "expected /proxy/jobs/JOB/PORT/");
    };
    if !shared.read().config.job_pages {
        return said(StatusCode::NOT_FOUND, JOB_PAGES_OFF);
    }
    // A worker would stay in the browser and answer for pages of later users of this path.
    if request.headers().contains_key("service-worker") {
        return said(StatusCode::NOT_FOUND, "pages of jobs have no service workers");
    }
    let is_own_origin = origin::is_own(&shared);
    if !is_own_origin && is_beside_session(&shared, &request, asked.target.job) {
        let why = "this browser is signed in to the server's own page, which scripts of this one could use: use another \
                   browser, or a private window";
        return said(StatusCode::FORBIDDEN, why);
    }
    // The server's own page has another port of the same host, and leads here.
    let is_from_elsewhere = if is_own_origin {
        browser::is_from_another_site(&request)
    } else {
        browser::is_from_elsewhere(&request)
    };
    if browser::is_visit(&request) && is_from_elsewhere {
        return entrance::page(request.uri());
    }
    let query = request.uri().query().unwrap_or_default();
    if let Some((secret, rest)) = link_secret(query) {
        if is_from_elsewhere || !browser::is_own_page(&request) {
            return said(StatusCode::FORBIDDEN, "a link is opened by a person, and by no page");
        }
        return redeem(&shared, &request, &asked, secret, &rest);
    }
    let (by, by_token) = match who(&shared, &request, asked.target) {
        Ok(found) => found,
        Err(response) => return *response,
    };
    if !by_token && !is_own_page(&request) {
        return said(StatusCode::FORBIDDEN, "this page is not one of this server's");
    }
    match check(&shared, &by, asked.target) {
        Ok(_) => {}
        Err(why @ Refusal::AccessDenied) => return said(StatusCode::FORBIDDEN, &why.to_string()),
        Err(why) => return said(StatusCode::NOT_FOUND, &why.to_string()),
    }
    let Some(rest) = asked.rest else {
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        return redirect(StatusCode::PERMANENT_REDIRECT, &format!("{}{query}", asked.prefix));
    };
    pass_on(&shared, &forwarders, &by, by_token, &asked, rest, request).await
}

/// Whether the browser is signed in to the server's own page with more rights than the owner of this job has in the job: both
/// pages have one origin, and a script of the job's page could ask for anything that the other may.
fn is_beside_session(shared: &Shared, request: &Request, job: JobId) -> bool {
    let owner = shared.read().jobs.get(&job).map(|job| job.spec.owner.uid);
    browser::SESSION.all(request.headers()).any(|secret| {
        let who = shared.web_session(secret).map(|known| known.who);
        who.is_some_and(|who| Some(who.uid) != owner || role_of(&shared.read(), &who) > Role::User)
    })
}

/// Who asks, and whether by something that is not the browser's cookie.
fn who(
    shared: &Shared,
    request: &Request,
    target: ProxyTarget,
) -> Result<(Principal, bool), Box<Response>> {
    let now = Instant::now();
    let mut cookies = browser::cookies(request.headers(), headers::COOKIE);
    let by_cookie = cookies.find_map(|secret| shared.volatile.proxy.who(secret, target, now));
    if let Some((by, _)) = by_cookie.filter(|(by, since)| !has_lost_token(shared, by, *since)) {
        if let Some(Peer::Port { connection, .. }) = request.extensions().get::<Peer>() {
            let is_operator = || authorise(&shared.read(), &by, Act::Operate).is_ok();
            if !connection.identify(by.uid, is_operator) {
                return Err(Box::new(authenticate::too_many_connections(&by)));
            }
        }
        return Ok((by, false));
    }
    match authenticate::caller(shared, request) {
        Caller::Known(by) => Ok((by, true)),
        other => Err(Box::new(authenticate::refusal(other))),
    }
}

/// Whether a token of this user has ended since a cookie was made: it may have been the one that made it, and a cookie does not
/// outlive its token.
fn has_lost_token(shared: &Shared, by: &Principal, since: Timestamp) -> bool {
    let now = clock::now();
    let state = shared.read();
    let mut own = state.user_tokens.values().filter(|token| token.user() == by.name);
    own.any(|token| token.ended(now).is_some_and(|ended| ended >= since))
}

/// The secret of a link, and the rest of the query.
fn link_secret(query: &str) -> Option<(&str, String)> {
    let is_link = |part: &&str| part.split('=').next() == Some(LINK);
    let secret = query.split('&').find(is_link)?.split_once('=')?.1;
    let rest: Vec<&str> = query.split('&').filter(|part| !is_link(part)).collect();
    Some((secret, rest.join("&")))
}

/// Exchanges a link for a cookie, and leads to the same page without the secret.
fn redeem(
    shared: &Shared,
    request: &Request,
    asked: &ProxyPath<'_>,
    secret: &str,
    rest: &str,
) -> Response {
    let known = browser::cookies(request.headers(), headers::BROWSER);
    let redeemed = shared.volatile.proxy.redeem(secret, asked.target, known, Instant::now());
    let OpenedPass { cookie, browser } = match redeemed {
        Ok(pass) => pass,
        Err(why) => {
            let why = match why {
                RedeemRefusal::NotGood => {
                    "this link was used, or is too old: `sluice port JOB PORT --web` makes another"
                }
                RedeemRefusal::OtherPagesOpen => {
                    "this browser has, or had before the server started, pages of another user's jobs open: close it and open \
                     it again, or use another, or a private window"
                }
            };
            return said(StatusCode::FORBIDDEN, why);
        }
    };
    let query = if rest.is_empty() { String::new() } else { format!("?{rest}") };
    let mut response = redirect(
        StatusCode::SEE_OTHER,
        &format!("{}{}{query}", asked.prefix, asked.rest.unwrap_or_default()),
    );
    // Plain HTTP is answered to this machine alone.
    let is_tls =
        matches!(request.extensions().get::<Peer>(), Some(Peer::Port { is_loopback: false, .. }));
    let secure = if is_tls { "; Secure" } else { "" };
    let line = format!(
        "{}={cookie}; Path={}; HttpOnly; SameSite=Lax{secure}",
        headers::COOKIE,
        asked.prefix
    );
    let of_browser =
        format!("{}={browser}; Path=/; HttpOnly; SameSite=Lax{secure}", headers::BROWSER);
    for line in [line, of_browser] {
        if let Ok(line) = HeaderValue::from_str(&line) {
            response.headers_mut().append(header::SET_COOKIE, line);
        }
    }
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn pass_on(
    shared: &Arc<Shared>,
    forwarders: &Arc<Forwarders>,
    by: &Principal,
    by_token: bool,
    asked: &ProxyPath<'_>,
    rest: &str,
    mut request: Request,
) -> Response {
    let ProxyTarget { job, rank, port } = asked.target;
    let Some(step) = forwarders.get(shared, by, job, rank) else {
        return said(StatusCode::SERVICE_UNAVAILABLE, "too many jobs are looked at already");
    };
    if Arc::strong_count(&step) > CONNECTIONS_MAX {
        return said(StatusCode::SERVICE_UNAVAILABLE, "this job has too many connections");
    }
    let opened = timeout(CONNECT_TIMEOUT, step.open(shared, port)).await.ok().flatten();
    let Some((stream, _)) = opened else {
        let why = format!("nothing in job {job} listens at its port {port}");
        return said(StatusCode::BAD_GATEWAY, &why);
    };
    let (stream, allowance) = BoundedHead::new(stream);
    let Ok((mut sender, connection)) = http1::handshake(TokioIo::new(stream)).await else {
        return said(StatusCode::BAD_GATEWAY, "the job's server was lost");
    };
    // A connection that becomes a websocket ends here, and its bytes go on below.
    let of_upgraded = step.clone();
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
        drop(step);
    });
    let upgrade = take_websocket(&mut request);
    let slot = request.extensions().get::<HeldSlot>().cloned();
    let Some(uri) = inner_uri(request.uri(), (!asked.is_whole).then_some(rest)) else {
        return said(StatusCode::BAD_REQUEST, "the path cannot be read");
    };
    let (parts, body) = request.into_parts();
    let outgoing = OutgoingHead::of(parts, uri, by_token, &asked.prefix).with(body);
    allowance.begin();
    let Ok(mut answer) = sender.send_request(outgoing).await else {
        return said(StatusCode::BAD_GATEWAY, "the job's server gave no answer");
    };
    allowance.end();
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(of_client) = upgrade else {
            return said(StatusCode::BAD_GATEWAY, "the job's server changed the protocol unasked");
        };
        join_upgraded(&mut answer, of_client, None, (of_upgraded, slot));
    }
    let mut answer = answer.map(Body::new);
    headers::to_client(answer.headers_mut(), &asked.prefix, asked.is_whole);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_job_and_a_port() {
        let target = |job, rank, port| ProxyTarget { job: JobId(job), rank, port };
        for (path, expected, prefix, rest) in [
            ("/proxy/jobs/12/80/a/b", target(12, 0, 80), "/proxy/jobs/12/80/", Some("a/b")),
            ("/proxy/whole/12.1/8888/", target(12, 1, 8888), "/proxy/whole/12.1/8888/", Some("")),
            ("/proxy/jobs/12/80", target(12, 0, 80), "/proxy/jobs/12/80/", None),
            (
                "/proxy/jobs/12/80/../../etc",
                target(12, 0, 80),
                "/proxy/jobs/12/80/",
                Some("../../etc"),
            ),
        ] {
            let found = ProxyPath::parse(path).expect(path);
            assert_eq!(
                (found.target, &*found.prefix, found.rest),
                (expected, prefix, rest),
                "{path}"
            );
        }
        for bad in [
            "/proxy/jobs/12",
            "/proxy/jobs/x/80/",
            "/proxy/jobs/12/0/",
            "/proxy/jobs/12/65536/",
            "/proxy/jobs/12/host:80/",
            "/proxy/models/1/80/",
            "/proxy/jobs/+1/80/",
            "/proxy/jobs/1/+80/",
        ] {
            assert_eq!(ProxyPath::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn secret_of_a_link_is_taken_out_of_the_query() {
        assert_eq!(link_secret("a=1&sluice_link=x&b=2"), Some(("x", "a=1&b=2".into())));
        assert_eq!(link_secret("sluice_link=x"), Some(("x", String::new())));
        assert_eq!(link_secret("a=1&no_sluice_link=x"), None);
        let path = link_path(ProxyTarget { job: JobId(3), rank: 1, port: 80 }, false, "x");
        assert_eq!(path, "/proxy/jobs/3.1/80/?sluice_link=x");
    }
}
