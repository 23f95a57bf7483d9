//! `/api/web/oidc`: signing in at the site's identity provider. The browser is sent there and comes back with a code, which is
//! exchanged for a token of the provider; the user whom it names has a session then, as with a token of ours.

use crate::auth::oidc::OidcError;
use crate::auth::oidc::id_token::{self, Expected, TokenError};
use crate::auth::oidc::provider::{self, Provider};
use crate::auth::oidc::url::with_query;
use crate::auth::principal::{self, server_principal};
use crate::clock;
use crate::http::authenticate;
use crate::http::browser::{self, SESSION, SIGN_ON};
use crate::http::html::escaped;
use crate::http::peer::Peer;
use crate::http::sign_in_limit;
use crate::shared::Shared;
use crate::shared::sign_ons::Attempt;
use crate::web::answer::{WebRefusal, WebResult, json_answer};
use crate::web::{assets, job_pages, session};
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use cluster::Command;
use cluster::config::{GroupGrant, OidcConfig};
use cluster::token::UserToken;
use cluster::web_session::SignInProof;
use model::account::Association;
use model::principal::{Principal, Role};
use model::project::{MembersChange, ProjectRole};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

const ABOUT_PATH: &str = "/api/web/oidc";
const START_PATH: &str = "/api/web/oidc/start";
const CALLBACK_PATH: &str = "/api/web/oidc/callback";

/// Paths that need no session: they lead to one.
#[cfg(test)]
pub const PATHS: [&str; 3] = [ABOUT_PATH, START_PATH, CALLBACK_PATH];

/// Of the cookie of a browser that is at the provider. It comes back from another site, so it cannot be as strict as a session's.
const ATTEMPT_SAME_SITE: &str = "Lax";

/// How long somebody is signed in at most before the provider is asked again.
const LIFE: Duration = Duration::from_secs(24 * 3600);

/// Groups of one user that are looked at.
const GROUPS_MAX: usize = 1_000;

pub fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route(ABOUT_PATH, get(about))
        .route(START_PATH, get(start))
        .route(CALLBACK_PATH, get(callback))
}

fn configured(shared: &Shared) -> Result<OidcConfig, WebRefusal> {
    let config = shared.read().config.oidc.clone();
    config.ok_or_else(|| {
        let text = "single sign-on is not configured here ([oidc] in sluice.toml)";
        WebRefusal::new(StatusCode::NOT_FOUND, text)
    })
}

/// Whether browsers can sign in so, and where they begin.
async fn about(State(shared): State<Arc<Shared>>) -> Response {
    let issuer = shared.read().config.oidc.as_ref().map(|config| config.issuer.clone());
    let start = issuer.as_ref().map(|_| START_PATH);
    json_answer(&json!({ "issuer": issuer, "start": start }))
}

/// Sends the browser to the provider.
async fn start(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let is_loopback = is_loopback(&request);
    let wait = sign_in_limit::sign_on(&shared, &request).err();
    drop(request);
    if let Some(wait) = wait {
        return sign_in_limit::too_often(refusal_page(&WebRefusal::unexpected()), wait);
    }
    let sent = match is_loopback {
        Ok(is_loopback) => sent_to_provider(&shared, is_loopback).await,
        Err(why) => Err(why),
    };
    sent.unwrap_or_else(|why| refusal_page(&why))
}

async fn sent_to_provider(shared: &Arc<Shared>, is_loopback: bool) -> WebResult {
    let config = configured(shared)?;
    let asked = config.clone();
    let provider =
        ask_provider(shared, move |shared| shared.volatile.oidc_provider.get(&asked)).await?;
    let attempt = shared.volatile.sign_ons.begin(Instant::now());
    let challenge = BASE64.encode(digest(&SHA256, attempt.verifier.as_bytes()));
    let address = with_query(
        &provider.authorization_endpoint,
        &[
            ("response_type", "code"),
            ("client_id", &config.client_id),
            ("redirect_uri", &config.redirect_url),
            ("scope", &config.scopes.join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ],
    );
    let mut response = sent_to(&address)?;
    SIGN_ON.set(&mut response, &attempt.browser, ATTEMPT_SAME_SITE, is_loopback);
    Ok(response)
}

#[derive(Deserialize)]
struct Returned {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

/// The browser comes back from the provider.
async fn callback(
    State(shared): State<Arc<Shared>>,
    Query(returned): Query<Returned>,
    request: Request,
) -> Response {
    let (is_loopback, headers) = (is_loopback(&request), request.headers().clone());
    drop(request);
    let ended = match is_loopback {
        Ok(is_loopback) => end_attempt(&shared, returned, &headers, is_loopback).await,
        Err(why) => Err(why),
    };
    ended.unwrap_or_else(|why| refusal_page(&why))
}

async fn end_attempt(
    shared: &Arc<Shared>,
    returned: Returned,
    headers: &HeaderMap,
    is_loopback: bool,
) -> WebResult {
    let config = configured(shared)?;
    let cookie = SIGN_ON.name(is_loopback);
    let secret = browser::cookies(headers, cookie).next().unwrap_or_default();
    let state = returned.state.unwrap_or_default();
    let attempt = shared.volatile.sign_ons.end(&state, secret, Instant::now());
    let attempt = attempt.ok_or_else(|| {
        let text = "this sign-in was not begun in this browser, or too long ago: begin again";
        WebRefusal::failed_sign_in(StatusCode::FORBIDDEN, text, None)
    })?;
    let Some(code) = returned.code.filter(|_| returned.error.is_none()) else {
        return Err(WebRefusal::new(StatusCode::FORBIDDEN, "the identity provider refused it"));
    };
    let asked = config.clone();
    let identify = move |shared: &Shared| identified(shared, &asked, &code, &attempt);
    let claims = ask_provider(shared, identify).await?;
    let by = user(shared, &config, &claims).await?;
    join_groups(shared, &config, &by, &claims).await;
    signed_in(shared, headers, &by, is_loopback).await
}

/// A browser is at one of these addresses itself, and shows what it gets: a refusal is a page, with a way back.
fn refusal_page(why: &WebRefusal) -> Response {
    let (text, style) = (escaped(&why.text), assets::address("page.css"));
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sign in · Sluice</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"stylesheet\" href=\"{style}\">\n\
         <main class=\"sign-in\"><h1>Not signed in</h1><p class=\"error\" role=\"alert\">{text}</p>\n\
         <p><a href=\"/\">Sign in again</a></p></main></html>\n"
    );
    let kind = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    let mut response = (why.status, kind, page).into_response();
    if let Some(failed) = &why.failed_sign_in {
        response.extensions_mut().insert(failed.clone());
    }
    response
}

/// Asks the provider in a thread of its own. Anybody may have it asked: only so many questions are open at once.
async fn ask_provider<T: Send + 'static>(
    shared: &Arc<Shared>,
    ask: impl FnOnce(&Shared) -> Result<T, OidcError> + Send + 'static,
) -> Result<T, WebRefusal> {
    let Some(place) = shared.volatile.sign_ons.question() else {
        let text = "too many browsers sign in now: try again";
        return Err(WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, text));
    };
    let asked = shared.clone();
    let answered = spawn_blocking(move || {
        let _place = place;
        ask(&asked)
    });
    let answered = answered.await.map_err(|_| WebRefusal::unexpected())?;
    answered.map_err(|error| refused(shared, &error))
}

/// What the provider says of who came back with this code.
fn identified(
    shared: &Shared,
    config: &OidcConfig,
    code: &str,
    attempt: &Attempt,
) -> Result<Map<String, Value>, OidcError> {
    let known = shared.volatile.oidc_provider.get(config)?;
    let token = provider::exchange(config, &known, code, &attempt.verifier)?;
    let expected =
        Expected { issuer: &config.issuer, client_id: &config.client_id, nonce: &attempt.nonce };
    let verify =
        |provider: &Provider| id_token::verify(&token, &provider.keys, expected, clock::now());
    match verify(&known) {
        // It may have changed its keys.
        Err(TokenError::UnknownKey | TokenError::Signature) => {
            let renewed = shared.volatile.oidc_provider.renewed(config)?;
            Ok(verify(&renewed)?)
        }
        other => Ok(other?),
    }
}

/// The user of this machine whom the provider names. A provider vouches neither for root nor for the server's own account, which
/// would be an administrator.
async fn user(
    shared: &Shared,
    config: &OidcConfig,
    claims: &Map<String, Value>,
) -> Result<Principal, WebRefusal> {
    let name = claims.get(&config.user_claim).and_then(Value::as_str).unwrap_or_default();
    let known = UserToken { name: name.to_owned(), ..UserToken::default() };
    // The user directory may be slow: no thread that answers others waits for it.
    let accounts = &shared.volatile.token_accounts;
    if name != principal::ROOT {
        accounts.prepare(name).await;
    }
    let found = principal::of_token(&known, |name| accounts.find(name))
        .filter(|who| who.uid != 0 && who.role == Role::User)
        .filter(|who| !authenticate::is_inactive(shared, &who.name));
    found.ok_or_else(|| {
        let why = format!("{name:?} is not known here");
        authenticate::log_unusable(shared, "single sign-on of a user", &why);
        let claim = &config.user_claim;
        let text = format!("the identity provider's {claim} is no user of this cluster");
        WebRefusal::failed_sign_in(StatusCode::FORBIDDEN, text, Some(name.to_owned()))
    })
}

/// The user becomes a member of the projects and accounts of his groups, and of mapped projects that no group of his names he is a
/// member no more. What cannot be done is in the log, and keeps nobody out.
async fn join_groups(
    shared: &Arc<Shared>,
    config: &OidcConfig,
    by: &Principal,
    claims: &Map<String, Value>,
) {
    for command in group_changes(shared, config, &by.name, claims) {
        let shown = format!("{command:?}");
        if let Err(why) = shared.writer.run(command, server_principal()).await {
            tracing::warn!(user = by.name, "single sign-on: {shown}: {why}");
        }
    }
}

fn group_changes(
    shared: &Shared,
    config: &OidcConfig,
    user: &str,
    claims: &Map<String, Value>,
) -> Vec<Command> {
    let groups = claims.get(&config.groups_claim).and_then(Value::as_array);
    let groups = groups.into_iter().flatten().filter_map(Value::as_str).take(GROUPS_MAX);
    let granted: Vec<&GroupGrant> =
        groups.filter_map(|name| config.groups.get(name)).flatten().collect();
    let mut roles: BTreeMap<&str, ProjectRole> = BTreeMap::new();
    let mut accounts: BTreeSet<&str> = BTreeSet::new();
    for grant in granted {
        match grant {
            GroupGrant::Project { name, role } => {
                let held = roles.entry(name).or_insert(*role);
                *held = (*held).max(*role);
            }
            GroupGrant::Account { name } => {
                accounts.insert(name);
            }
        }
    }
    let state = shared.read();
    let is_in = |account: &str| {
        let of_user = |one: &&Association| one.account == account;
        let mut own = state.associations.iter().filter(of_user);
        own.any(|one| one.user.as_deref() == Some(user))
    };
    let members = |project: &str, role, change| Command::SetMembers {
        project: project.to_owned(),
        members: BTreeMap::from([(user.to_owned(), role)]),
        change,
    };
    let mapped = config.groups.values().flatten().filter_map(|grant| match grant {
        GroupGrant::Project { name, .. } => Some(name.as_str()),
        GroupGrant::Account { .. } => None,
    });
    let left: BTreeSet<&str> =
        mapped.filter(|name| !roles.contains_key(name) && is_in(name)).collect();
    let left = left.into_iter().map(|name| members(name, ProjectRole::User, MembersChange::Remove));
    let joined = roles.iter().map(|(name, role)| members(name, *role, MembersChange::Add));
    let account =
        |name: &str| Command::SetAssociation(Box::new(Association::plain(name, Some(user))));
    let accounts = accounts.into_iter().filter(|name| !is_in(name)).map(account);
    left.chain(joined).chain(accounts).collect()
}

/// A session, as with a token of ours, for as long as the provider's word is taken.
async fn signed_in(
    shared: &Shared,
    headers: &HeaderMap,
    by: &Principal,
    is_loopback: bool,
) -> WebResult {
    job_pages::check(shared, headers, by)?;
    let proof = SignInProof::SingleSignOn { expires: clock::now() + LIFE };
    let secret = session::open(shared, headers, by, proof).await?;
    tracing::info!(user = by.name, "browser signed in by single sign-on");
    let mut response = sent_to("/")?;
    SESSION.set(&mut response, &secret, session::SAME_SITE, is_loopback);
    SIGN_ON.set(&mut response, "; Max-Age=0", ATTEMPT_SAME_SITE, is_loopback);
    Ok(response)
}

fn is_loopback(request: &Request) -> Result<bool, WebRefusal> {
    match request.extensions().get::<Peer>() {
        Some(Peer::Port { is_loopback, .. }) => Ok(*is_loopback),
        _ => Err(WebRefusal::bad("a browser signs in at the server's port")),
    }
}

fn sent_to(address: &str) -> WebResult {
    let location = HeaderValue::from_str(address).map_err(|_| WebRefusal::unexpected())?;
    let headers = [
        (header::LOCATION, location),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// What the provider said is in the log; a browser is told the kind of it.
fn refused(shared: &Shared, error: &OidcError) -> WebRefusal {
    authenticate::log_unusable(shared, "single sign-on", error);
    match error {
        OidcError::Token(why) => {
            let text = format!("the identity token is not taken: {why}");
            WebRefusal::failed_sign_in(StatusCode::FORBIDDEN, text, None)
        }
        _ => WebRefusal::new(
            StatusCode::BAD_GATEWAY,
            "the identity provider cannot be used now: the server's log says why",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token;
    use crate::testing::TestServer;
    use cluster::ClusterConfig;
    use model::account::{Account, ROOT_ACCOUNT};

    fn config() -> OidcConfig {
        let project = |name: &str, role| GroupGrant::Project { name: name.into(), role };
        let groups = BTreeMap::from([
            ("ml".to_owned(), vec![project("atlas", ProjectRole::User)]),
            ("leads".to_owned(), vec![project("atlas", ProjectRole::Manager)]),
            ("physics".to_owned(), vec![GroupGrant::Account { name: "physics".into() }]),
        ]);
        OidcConfig {
            issuer: "https://id.example".into(),
            client_id: "sluice".into(),
            secret_file: None,
            authorities: None,
            redirect_url: "https://head:6820/api/web/oidc/callback".into(),
            scopes: vec!["openid".into()],
            user_claim: "preferred_username".into(),
            groups_claim: "groups".into(),
            groups,
        }
    }

    fn claims(groups: Value) -> Map<String, Value> {
        let value = json!({"preferred_username": "nobody", "groups": groups});
        value.as_object().cloned().expect("an object")
    }

    async fn joined(server: &TestServer, groups: Value) -> Vec<String> {
        let by = principal::of_name("nobody").expect("every machine has nobody");
        join_groups(&server.shared, &config(), &by, &claims(groups)).await;
        let state = server.shared.read();
        let own = state.associations.iter().filter(|one| one.user.as_deref() == Some("nobody"));
        own.map(|one| one.account.clone()).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn groups_decide_about_membership_at_every_sign_in() {
        let server = TestServer::start().await;
        server.run(Command::CreateProject { name: "atlas".into() }).await.expect("a project");
        assert_eq!(joined(&server, json!(["ml", "unknown"])).await, ["atlas"]);
        assert_eq!(joined(&server, json!(["ml", "leads"])).await, ["atlas"]);
        let account = server.shared.read().accounts.get("atlas").cloned().expect("an account");
        assert!(account.coordinators.contains(&"nobody".to_owned()), "{account:?}");
        assert_eq!(joined(&server, json!([])).await, [""; 0], "none of his groups names it");
        assert_eq!(joined(&server, json!("ml")).await, [""; 0], "no list");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn groups_give_their_accounts_whatever_cannot_be_done_beside() {
        let server = TestServer::start().await;
        let physics = Account {
            name: "physics".into(),
            description: String::new(),
            organization: String::new(),
            parent: Some(ROOT_ACCOUNT.into()),
            coordinators: Vec::new(),
        };
        server.run(Command::SetAccount(physics)).await.expect("an account");
        // There is no project that the other group could be of.
        for groups in [json!(["ml", "physics"]), json!(["physics"])] {
            assert_eq!(joined(&server, groups.clone()).await, ["physics"], "{groups}");
        }
    }

    async fn configure(server: &TestServer, oidc: Option<OidcConfig>) {
        let next = ClusterConfig { oidc, ..(*server.shared.read().config).clone() };
        server.run(Command::Configure(Box::new(next))).await.expect("a configuration");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn session_of_a_sign_on_stands_for_it_and_nothing_of_it_is_a_token() {
        let server = TestServer::start().await;
        let shared = &server.shared;
        configure(&server, Some(config())).await;
        let by = principal::of_name("nobody").expect("every machine has nobody");
        let proof = SignInProof::SingleSignOn { expires: clock::now() + LIFE };
        let opened = shared.open_web_session(by, proof, Vec::new()).await;
        let secret = opened.expect("a session");
        let session = shared.web_session(&secret).expect("it is open");
        let token = session.token_hash();
        let holds = |hash: &str| authenticate::token_holds(shared, hash, false).is_ok();
        assert!(holds(&token));
        for text in [&secret, &session.hash, &token] {
            assert!(!holds(&token::hash(text)), "{text}");
        }
        configure(&server, None).await;
        assert!(!holds(&token), "the provider is trusted no more");
        configure(&server, Some(config())).await;
        assert!(holds(&token));
        shared.close_web_session(&secret).await.expect("closed");
        assert!(!holds(&token) && shared.web_session(&secret).is_none());
    }

    #[tokio::test]
    async fn refusal_is_a_page_whose_texts_are_no_markup() {
        let why = WebRefusal::new(StatusCode::FORBIDDEN, "<script>alert(1)</script>");
        let response = refusal_page(&why);
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        let body = axum::body::to_bytes(response.into_body(), 4096).await.expect("a body");
        let page = String::from_utf8(body.to_vec()).expect("text");
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(page.contains("href=\"/\""), "a way back: {page}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn provider_vouches_for_users_and_neither_for_root_nor_the_servers_own() {
        let server = TestServer::start().await;
        let named = async |name: Value| {
            let mut claims = claims(json!([]));
            claims.insert("preferred_username".into(), name);
            let found = user(&server.shared, &config(), &claims).await;
            found.map(|who| who.name).map_err(|why| why.status)
        };
        assert_eq!(named(json!("nobody")).await, Ok("nobody".to_owned()));
        let own = principal::of_uid(nix::unistd::geteuid().as_raw(), 0).name;
        let bad = [json!("root"), json!(own), json!("no-such-user-here"), json!(""), json!(0)];
        for bad in bad.into_iter().chain([Value::Null]) {
            assert_eq!(named(bad.clone()).await, Err(StatusCode::FORBIDDEN), "{bad}");
        }
    }
}
