//! Signing in and out. A token is exchanged for a cookie that scripts cannot read and that other sites cannot use.

use crate::auth::token;
use crate::clock;
use crate::http::authenticate;
use crate::http::browser::{self, SESSION};
use crate::http::peer::Peer;
use crate::shared::Shared;
use crate::web::answer::{WebRefusal, WebResult, json_answer, read};
use crate::web::guard::{self, Admission, FOREIGN_PAGE};
use crate::web::job_pages;
use axum::Extension;
use axum::body::{self, Body};
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode};
use cluster::authorise::{Act, authorise};
use cluster::rights::{Rights, role_of};
use cluster::web_session::SignInProof;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A token is far shorter.
const BODY_BYTES_MAX: usize = 4 << 10;

/// How long a browser may take to send it: whoever has no token yet keeps no connection by it.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// No other site has the session's cookie sent.
pub(super) const SAME_SITE: &str = "Strict";

/// In words for a form, which has no headers.
const WRONG_TOKEN: &str =
    "this token is not valid here, or has expired: `sluice token` makes another";

#[derive(Deserialize)]
struct SignIn {
    token: String,
}

/// `POST /api/web/session`
pub async fn sign_in(State(shared): State<Arc<Shared>>, request: Request) -> WebResult {
    if !browser::is_change_of_own_page(&request) {
        return Err(WebRefusal::new(StatusCode::FORBIDDEN, FOREIGN_PAGE));
    }
    let Some(Peer::Port { is_loopback, .. }) = request.extensions().get::<Peer>() else {
        return Err(WebRefusal::bad("a browser signs in at the server's port"));
    };
    let is_loopback = *is_loopback;
    let (head, content) = request.into_parts();
    let asked: SignIn = read(&whole(content, BODY_TIMEOUT).await?)?;
    let hash = token::hash(&asked.token);
    authenticate::prepare_account(&shared, &hash, is_loopback).await;
    let by = authenticate::of_token_hash(&shared, &hash, is_loopback).map_err(|why| {
        let why = if why == authenticate::UNKNOWN_TOKEN { WRONG_TOKEN } else { why };
        let account = authenticate::user_of_hash(&shared, &hash);
        WebRefusal::failed_sign_in(StatusCode::UNAUTHORIZED, why, account)
    })?;
    job_pages::check(&shared, &head.headers, &by)?;
    let secret = open(&shared, &head.headers, &by, SignInProof::Token { hash }).await?;
    tracing::info!(user = by.name, "browser signed in");
    let mut response = json_answer(&profile(&shared, &by));
    SESSION.set(&mut response, &secret, SAME_SITE, is_loopback);
    Ok(response)
}

/// The secret of a new session. The one that the browser had is over.
pub(super) async fn open(
    shared: &Shared,
    headers: &HeaderMap,
    by: &Principal,
    proof: SignInProof,
) -> Result<String, WebRefusal> {
    let former = SESSION.all(headers).map(str::to_owned).collect();
    let opened = shared.open_web_session(by.clone(), proof, former).await;
    opened.map_err(|why| WebRefusal::new(StatusCode::SERVICE_UNAVAILABLE, why.to_string()))
}

async fn whole(content: Body, limit: Duration) -> Result<body::Bytes, WebRefusal> {
    let late = |_| WebRefusal::new(StatusCode::REQUEST_TIMEOUT, "the token did not come in time");
    let too_long = |_| {
        let text = format!("expected a token, in at most {BODY_BYTES_MAX} bytes");
        WebRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let read = timeout(limit, body::to_bytes(content, BODY_BYTES_MAX)).await;
    read.map_err(late)?.map_err(too_long)
}

/// `GET /api/web/session`: who is signed in.
pub async fn who(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> WebResult {
    Ok(json_answer(&profile(&shared, &by)))
}

#[derive(Deserialize, JsonSchema)]
pub struct SignOut {
    /// Every browser of the user is signed out, and not this one alone.
    #[serde(default)]
    everywhere: bool,
}

/// `DELETE /api/web/session`
pub async fn sign_out(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(admission): Extension<Admission>,
    Query(asked): Query<SignOut>,
) -> WebResult {
    if asked.everywhere {
        shared.close_web_sessions_of(by.uid).await?;
    }
    let mut response = json_answer(&json!({}));
    if let Admission::Session { secret, is_loopback } = admission {
        shared.close_web_session(&secret).await?;
        SESSION.set(&mut response, "; Max-Age=0", SAME_SITE, is_loopback);
    }
    Ok(response)
}

fn profile(shared: &Shared, by: &Principal) -> serde_json::Value {
    let looks_only = guard::looks_only(shared, by);
    let state = shared.read();
    let mut projects = state.accounts.keys().map(String::as_str).chain([MAIN_PROJECT]);
    let manages_secrets =
        projects.any(|name| authorise(&state, by, Act::ManageSecrets(name)).is_ok());
    json!({
        "user": by.name,
        "role": role_of(&state, by).word(),
        "coordinates_accounts": Rights::of(&state, by).coordinates_any(),
        "manages_secrets": manages_secrets,
        "cluster": state.config.name,
        "looks_only": looks_only,
        "version": wire::version::program(),
        "now": clock::now(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[tokio::test]
    async fn sign_in_that_is_never_sent_is_given_up() {
        let never = futures_util::stream::pending::<Result<body::Bytes, Infallible>>();
        let refused = whole(Body::from_stream(never), Duration::from_millis(1)).await;
        let status = refused.map(|_| ()).map_err(|why| why.status);
        assert_eq!(status, Err(StatusCode::REQUEST_TIMEOUT));
    }
}
