//! The page and its API without sockets: signing in, cookies, origins, headers, and the end of tokens.

use crate::auth::token;
use crate::clock;
use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
use crate::http::body_limits::BodyLimits;
use crate::http::peer::Peer;
use crate::http::router;
use crate::shared::proxy_sessions::{ProxySessions, ProxyTarget};
use crate::testing::TestServer;
use crate::web::assets;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use axum::response::Response;
use cluster::Command;
use cluster::token::UserToken;
use cluster::web_session::SignInProof;
use http_body_util::BodyExt;
use model::id::JobId;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tower_service::Service;

/// An account that every machine has.
pub(super) const USER: &str = "nobody";

const HOST: &str = "head:6820";
const ORIGIN: &str = "http://head:6820";
const SESSION: &str = super::SESSION_PATH;

/// A server, and a browser that keeps the cookie of its session.
pub(super) struct Browser {
    pub(super) server: TestServer,
    router: Router,
    pub(super) cookie: Option<String>,
    /// On the server's own machine, and not elsewhere over TLS.
    is_near: bool,
}

pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{}: {e}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

impl Browser {
    pub(super) async fn new() -> Self {
        let server = TestServer::start().await;
        let limits = ConnectionLimits::default();
        let router = router(server.shared.clone(), BodyLimits::new(server.shared.clone(), &limits));
        Self { server, router, cookie: None, is_near: true }
    }

    /// A token of this user that lasts so long.
    pub(super) async fn token(&self, user: &str, life: Duration) -> String {
        let text = token::generate();
        let known = UserToken {
            hash: token::hash(&text),
            name: user.into(),
            token_name: format!("web-{}", &text[..8]),
            expires: Some(clock::now() + life),
            ..UserToken::default()
        };
        self.server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        text
    }

    async fn response(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Response {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().expect("a path");
        let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
        let peer = Peer::Port {
            connection: PortConnection::new(slots),
            from: std::net::Ipv4Addr::LOCALHOST.into(),
            is_loopback: self.is_near,
        };
        request.extensions_mut().insert(peer);
        let cookie = self.cookie.as_deref().map(|cookie| ("cookie", cookie));
        for (name, value) in headers.iter().copied().chain([("host", HOST)]).chain(cookie) {
            let name = name.parse::<header::HeaderName>().expect("a name");
            request.headers_mut().append(name, value.parse().expect("a value"));
        }
        self.router.clone().call(request).await.expect("a response")
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let response = self.response(method, path, headers, body.into()).await;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        Answer { status, headers, text: String::from_utf8(body.to_vec()).expect("text") }
    }

    /// An answer whose body goes on.
    pub(super) async fn open(&self, path: &str) -> (StatusCode, Body) {
        let response = self.response(Method::GET, path, &[], Body::empty()).await;
        (response.status(), response.into_body())
    }

    /// The head of an answer whose body is no text.
    async fn open_with(&self, path: &str, headers: &[(&str, &str)]) -> HeaderMap {
        self.response(Method::GET, path, headers, Body::empty()).await.headers().clone()
    }

    pub(super) async fn sign_out(&self) -> Answer {
        self.send(Method::DELETE, SESSION, &[("origin", ORIGIN)], Body::empty()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[("sec-fetch-site", "same-origin")], Body::empty()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[("origin", ORIGIN)], body.to_string()).await
    }

    /// Signs in with this token; the answer is that of the server.
    pub(super) async fn sign_in(&mut self, token: &str) -> Answer {
        let answer = self.post(SESSION, &json!({ "token": token })).await;
        if answer.status == StatusCode::OK {
            let pair = answer.header("set-cookie").split(';').next().expect("a cookie");
            self.cookie = Some(pair.to_owned());
        }
        answer
    }

    /// A browser of an administrator, where the site shows no pages of jobs: sessions may change what their users may.
    pub(super) async fn administering() -> Self {
        let browser = Self::signed_in("root").await;
        let mut config = (*browser.server.shared.read().config).clone();
        config.job_pages = false;
        browser.server.run(Command::Configure(Box::new(config))).await.expect("configured");
        browser
    }

    pub(super) async fn signed_in(user: &str) -> Self {
        let mut browser = Self::new().await;
        let token = browser.token(user, Duration::from_secs(3600)).await;
        assert_eq!(browser.sign_in(&token).await.status, StatusCode::OK);
        browser
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_is_served_to_everybody_under_a_strict_policy() {
    let browser = Browser::new().await;
    let script = assets::address("app.js");
    for (path, kind) in [("/", "text/html"), (&*script, "text/javascript")] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        assert!(page.header("content-type").starts_with(kind), "{path}");
        let policy = page.header("content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        let tag = page.header("etag").to_owned();
        let again =
            browser.send(Method::GET, path, &[("if-none-match", &tag)], Body::empty()).await;
        assert_eq!((again.status, &*again.text), (StatusCode::NOT_MODIFIED, ""));
    }
    for name in ["..%2fapp.js", "nothing.js", "index.html"] {
        let path = assets::address(name);
        assert_eq!(browser.get(&path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

/// The page itself is asked for at each visit, and names the files of its version.
#[tokio::test(flavor = "multi_thread")]
async fn files_are_kept_by_a_browser_until_another_version() {
    let browser = Browser::new().await;
    let page = browser.get("/").await;
    assert_eq!(page.header("cache-control"), "no-cache");
    let script = assets::address("app.js");
    assert!(page.text.contains(&format!("src=\"{script}\"")), "{}", page.text);
    let kept = browser.get(&script).await;
    assert!(kept.header("cache-control").contains("immutable"), "{:?}", kept.headers);
    let former = browser.get("/web/0123456789abcdef/app.js").await;
    assert_eq!((former.status, former.header("cache-control")), (StatusCode::OK, "no-cache"));
    assert_eq!(former.text, kept.text);
}

/// The terminal makes style elements: they have the nonce of their visit, which no other page's policy takes.
#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_shell_has_another_nonce_at_each_visit() {
    let browser = Browser::new().await;
    let mut seen = Vec::new();
    for _ in 0..2 {
        let page = browser.get("/shell").await;
        let policy = page.header("content-security-policy").to_owned();
        let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next());
        let nonce = nonce.unwrap_or_else(|| panic!("{policy}")).to_owned();
        assert!(page.text.contains(&format!("content=\"{nonce}\"")), "{}", page.text);
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("cache-control"), "no-store");
        seen.push(nonce);
    }
    assert_ne!(seen[0], seen[1]);
    let gzip = [("accept-encoding", "gzip, br")];
    let terminal = browser.open_with(&assets::address("xterm.js"), &gzip).await;
    assert_eq!(terminal.get("content-encoding").map(|value| value.as_bytes()), Some(&b"gzip"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let mut browser = Browser::new().await;
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
    let wrong = browser.sign_in(&"0".repeat(64)).await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (StatusCode::UNAUTHORIZED, ""));
    assert!(wrong.text.contains("is not valid here, or has expired"), "{}", wrong.text);
    let token = browser.token(USER, Duration::from_secs(3600)).await;
    let signed_in = browser.sign_in(&token).await;
    assert_eq!(signed_in.json()["user"], USER);
    let cookie = signed_in.header("set-cookie");
    for word in ["sluice_session=", "; HttpOnly", "; SameSite=Strict", "; Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    assert!(!cookie.contains(&token) && !signed_in.text.contains(&token));
    assert_eq!(signed_in.header("cache-control"), "no-store");
    let who = browser.get(SESSION).await;
    assert_eq!((who.status, &who.json()["role"]), (StatusCode::OK, &json!("user")));
    // The API of other programs takes no cookie.
    let call = json!({ "version": wire::version::PROTOCOL, "call": "ping" });
    assert_eq!(browser.post("/api/v1/call", &call).await.status, StatusCode::UNAUTHORIZED);
}

/// A page of a host beside this one, or of another port, sets a cookie of the plain name that is sent here too: with the secret of his
/// own session, its author would have the browser act in his name.
#[tokio::test(flavor = "multi_thread")]
async fn over_tls_a_session_is_taken_from_no_cookie_that_other_hosts_can_set() {
    let mut browser = Browser::new().await;
    browser.is_near = false;
    let token = browser.token(USER, Duration::from_secs(3600)).await;
    let signed_in = browser.sign_in(&token).await;
    let set = signed_in.header("set-cookie");
    for word in ["__Host-Http-sluice_session=", "; Path=/;", "; HttpOnly", "; Secure"] {
        assert!(set.contains(word), "{set}");
    }
    assert!(!set.contains("Domain"), "{set}");
    assert_eq!(browser.get(SESSION).await.status, StatusCode::OK);
    let own = browser.cookie.clone().expect("a cookie");
    browser.cookie = Some(own.replace("__Host-Http-", ""));
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
    browser.cookie = Some(format!("sluice_session=x; {own}"));
    assert_eq!(browser.get(SESSION).await.status, StatusCode::OK, "it counts for nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_neither_read_nor_change_nor_sign_in() {
    let mut browser = Browser::signed_in(USER).await;
    let cross = ("sec-fetch-site", "cross-site");
    let read = browser.send(Method::GET, SESSION, &[cross], Body::empty()).await;
    assert_eq!(read.status, StatusCode::FORBIDDEN);
    let forged: [&[(&str, &str)]; 4] = [
        &[],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", ORIGIN), cross],
    ];
    for headers in forged {
        let out = browser.send(Method::DELETE, SESSION, headers, Body::empty()).await;
        assert_eq!(out.status, StatusCode::FORBIDDEN, "{headers:?}");
        let token = browser.token(USER, Duration::from_secs(3600)).await;
        let body = json!({ "token": token }).to_string();
        let signed_in = browser.send(Method::POST, SESSION, headers, body).await;
        assert_eq!(signed_in.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let out = browser.sign_out().await;
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{:?}", out.headers);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
    browser.cookie = Some("sluice_session=; other=1".into());
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_ends_with_its_token() {
    let mut browser = Browser::new().await;
    let token = browser.token(USER, Duration::from_secs(3600)).await;
    assert_eq!(browser.sign_in(&token).await.status, StatusCode::OK);
    let name = format!("web-{}", &token[..8]);
    let revoke = Command::RevokeToken { name, user: Some(USER.into()) };
    browser.server.run(revoke).await.expect("revoked");
    let refused = browser.get(SESSION).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.text.contains("revoked"), "{}", refused.text);
    let short = browser.token(USER, Duration::from_millis(200)).await;
    let refused = loop {
        let answer = browser.sign_in(&short).await;
        if answer.status != StatusCode::OK {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.text.contains("expired"), "{}", refused.text);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED, "nor its session");
}

/// A directory that does not answer once looks as one that does not know the user.
#[tokio::test(flavor = "multi_thread")]
async fn session_outlives_a_directory_that_does_not_know_its_user() {
    let mut browser = Browser::new().await;
    let token = browser.token("no-such-user-here", Duration::from_secs(3600)).await;
    let proof = SignInProof::Token { hash: token::hash(&token) };
    let (shared, user) = (&browser.server.shared, crate::testing::user());
    let secret = shared.open_web_session(user, proof, Vec::new()).await.expect("a session");
    browser.cookie = Some(format!("sluice_session={secret}"));
    for _ in 0..2 {
        let refused = browser.get(SESSION).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
    }
    assert!(browser.server.shared.web_session(&secret).is_some(), "it is open");
}

/// A server that is started anew finds it, and nobody who reads the disk can use it.
#[tokio::test(flavor = "multi_thread")]
async fn session_is_on_disk_by_its_hash_alone_until_somebody_signs_out() {
    let browser = Browser::signed_in(USER).await;
    let cookie = browser.cookie.clone().expect("a cookie");
    let secret = cookie.strip_prefix("sluice_session=").expect("a secret");
    let hash = token::hash(secret);
    let kept = browser.server.state_on_disk();
    assert!(kept.contains(&hash) && !kept.contains(secret), "{kept}");
    assert_eq!(browser.sign_out().await.status, StatusCode::OK);
    assert!(!browser.server.state_on_disk().contains(&hash));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_signs_out_everywhere_and_nobody_else_with_him() {
    let mut browser = Browser::signed_in(USER).await;
    let lost = browser.cookie.take().expect("a cookie");
    let of_root = browser.token("root", Duration::from_secs(3600)).await;
    assert_eq!(browser.sign_in(&of_root).await.status, StatusCode::OK);
    let of_another = browser.cookie.take().expect("a cookie");
    let token = browser.token(USER, Duration::from_secs(3600)).await;
    assert_eq!(browser.sign_in(&token).await.status, StatusCode::OK);
    let everywhere = format!("{SESSION}?everywhere=true");
    let out = browser.send(Method::DELETE, &everywhere, &[("origin", ORIGIN)], "").await;
    assert_eq!(out.status, StatusCode::OK, "{}", out.text);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
    browser.cookie = Some(lost);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::UNAUTHORIZED);
    browser.cookie = Some(of_another);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_takes_no_long_body() {
    let browser = Browser::new().await;
    let long = json!({ "token": "x".repeat(64 << 10) });
    assert_eq!(browser.post(SESSION, &long).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let unread = browser.send(Method::POST, SESSION, &[("origin", ORIGIN)], "{").await;
    assert_eq!(unread.status, StatusCode::BAD_REQUEST);
    assert!(unread.json()["error"].is_string(), "{}", unread.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_in_one_request_are_none() {
    let mut browser = Browser::signed_in(USER).await;
    let own = browser.cookie.clone().expect("a cookie");
    for cookies in [format!("{own}; sluice_session=x"), format!("sluice_session=x; {own}")] {
        browser.cookie = Some(cookies);
        assert_eq!(browser.get(SESSION).await.status, StatusCode::FORBIDDEN);
    }
    browser.cookie = Some(own);
    assert_eq!(browser.get(SESSION).await.status, StatusCode::OK);
}

/// Pages of jobs have the origin of the server's own page: a browser shows one or the other, where their scripts could do more
/// than the job may.
#[tokio::test(flavor = "multi_thread")]
async fn browser_with_pages_of_others_jobs_does_not_sign_in() {
    let mut browser = Browser::new().await;
    let token = browser.token(USER, Duration::from_secs(3600)).await;
    let target = ProxyTarget { job: JobId(1), rank: 0, port: 80 };
    let (proxy, now) = (&browser.server.shared.volatile.proxy, Instant::now());
    let link = proxy.make_link(crate::testing::user(), 1000, target, now).expect("a link");
    let opened = proxy.redeem(&link, target, std::iter::empty(), now).expect("a cookie");
    browser.cookie = Some(format!("sluice_browser={}", opened.browser));
    let refused = browser.sign_in(&token).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.text.contains("web pages of jobs"), "{}", refused.text);
    browser.cookie = None;
    assert_eq!(browser.sign_in(&token).await.status, StatusCode::OK);
    // And a browser that is signed in does not open such pages.
    let page = browser.get("/proxy/jobs/1/80/").await;
    assert_eq!(page.status, StatusCode::FORBIDDEN);
    assert!(page.text.contains("signed in"), "{}", page.text);
}

/// A page of a job may be opened after signing in: a browser leaves the session's cookie out of a visit from another site.
#[tokio::test(flavor = "multi_thread")]
async fn session_has_no_rights_beside_pages_of_others_jobs() {
    let mut browser = Browser::signed_in(USER).await;
    let session = browser.cookie.clone().expect("a cookie");
    let target = ProxyTarget { job: JobId(1), rank: 0, port: 80 };
    let (proxy, now) = (&browser.server.shared.volatile.proxy, Instant::now());
    let link = proxy.make_link(crate::testing::user(), 1000, target, now).expect("a link");
    let opened = proxy.redeem(&link, target, std::iter::empty(), now).expect("a cookie");
    for shown in [opened.browser.as_str(), "unknown"] {
        browser.cookie = Some(format!("{session}; sluice_browser={shown}"));
        let refused = browser.get("/api/web/jobs").await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{shown}");
        assert!(refused.text.contains("web pages of jobs"), "{}", refused.text);
    }
    assert_eq!(browser.sign_out().await.status, StatusCode::OK);
}

/// A browser may keep its marker over many starts of the server: it is one's own all the same.
#[tokio::test(flavor = "multi_thread")]
async fn marker_of_ones_own_pages_lets_in_after_a_restart() {
    let mut browser = Browser::signed_in(USER).await;
    let session = browser.cookie.clone().expect("a cookie");
    let own = crate::auth::principal::of_name(USER).expect("a user");
    let before = ProxySessions::default();
    before.keep_markers(crate::testing::MARKER_SECRET);
    let (target, now) = (ProxyTarget { job: JobId(1), rank: 0, port: 80 }, Instant::now());
    let open = |owner: u32| {
        let link = before.make_link(own.clone(), owner, target, now).expect("a link");
        before.redeem(&link, target, std::iter::empty(), now).expect("a cookie").browser
    };
    browser.cookie = Some(format!("{session}; sluice_browser={}", open(own.uid)));
    assert_eq!(browser.get("/api/web/jobs").await.status, StatusCode::OK);
    browser.cookie = Some(format!("{session}; sluice_browser={}", open(own.uid + 1)));
    assert_eq!(browser.get("/api/web/jobs").await.status, StatusCode::FORBIDDEN, "another's");
}

#[tokio::test(flavor = "multi_thread")]
async fn visit_of_a_job_from_another_site_gets_a_page_of_our_own_first() {
    let browser = Browser::new().await;
    let target = ProxyTarget { job: JobId(1), rank: 0, port: 80 };
    let proxy = &browser.server.shared.volatile.proxy;
    let link = proxy.make_link(crate::testing::user(), 1000, target, Instant::now());
    let path = format!("/proxy/jobs/1/80/?sluice_link={}&a=1", link.expect("a link"));
    for site in ["cross-site", "same-site"] {
        let visit = [("sec-fetch-site", site), ("sec-fetch-mode", "navigate")];
        let page = browser.send(Method::GET, &path, &visit, Body::empty()).await;
        assert_eq!(page.status, StatusCode::OK, "{site}");
        assert!(page.text.contains(&path.replace('&', "&amp;")), "{}", page.text);
        assert!(page.header("content-security-policy").contains("default-src 'none'"));
        assert_eq!(page.header("set-cookie"), "");
        let of_page = [("sec-fetch-site", site), ("sec-fetch-mode", "cors")];
        let refused = browser.send(Method::GET, &path, &of_page, Body::empty()).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{site}");
    }
    let worker = [("service-worker", "script")];
    let refused = browser.send(Method::GET, &path, &worker, Body::empty()).await;
    assert_eq!(refused.status, StatusCode::NOT_FOUND);
    // The link was not used by any of these.
    assert_eq!(browser.get(&path).await.status, StatusCode::SEE_OTHER);
}
