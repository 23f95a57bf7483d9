//! The middleware that says who makes a request.

use crate::auth::principal::{self, TokenHolder};
use crate::auth::token;
use crate::clock;
use crate::http::answer::refused;
use crate::http::browser::{self, SESSION};
use crate::http::peer::Peer;
use crate::rate_limit::RateLimit;
use crate::shared::Shared;
use crate::shared::failed_sign_ins::FailedSignIn;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use cluster::State as ClusterState;
use cluster::authorise::{Act, authorise};
use cluster::token::{TokenStatus, UserToken};
use cluster::web_session::WebSession;
use model::principal::{Principal, Role};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::client::CALL_PATH;

/// Who makes a request.
pub enum Caller {
    Known(Principal),
    NoToken,
    /// A token that is not taken, and why.
    WrongToken(&'static str),
    /// A node may not speak for this user, and why.
    NotVouched(String),
    /// The user has as many connections open as one user may.
    TooMany(Principal),
}

/// The bound on log lines about sign-ins that cannot be judged: strangers at the port cause them.
const SIGN_IN_LINES: RateLimit = RateLimit { burst: 10, interval: Duration::from_secs(60) };

/// Logs why nobody can be let in by something.
pub fn log_unusable(shared: &Shared, what: &'static str, why: &dyn std::fmt::Display) {
    let lines = &shared.volatile.sign_in_lines;
    if let Some(unlogged) = lines.take(SIGN_IN_LINES, what, Instant::now()) {
        tracing::warn!(unlogged, "{what}: {why}");
    }
}

pub fn caller(shared: &Shared, request: &Request) -> Caller {
    caller_by(shared, request, of_token)
}

/// The same where the request's token was checked already.
pub fn caller_checked(shared: &Shared, request: &Request, token: Option<&CheckedToken>) -> Caller {
    caller_by(shared, request, |shared, text, is_loopback| match token {
        Some(token) => token.holder(shared),
        None => of_token(shared, text, is_loopback),
    })
}

/// The same for an API that takes other tokens too. `read` says whom a token stands for, or why it is not taken; it is told whether
/// the token came from the server's own machine.
pub fn caller_by(
    shared: &Shared,
    request: &Request,
    read: impl FnOnce(&Shared, &str, bool) -> Result<Principal, &'static str>,
) -> Caller {
    match request.extensions().get::<Peer>() {
        Some(Peer::Socket(principal)) => Caller::Known(principal.clone()),
        Some(Peer::Port { connection, is_loopback, .. }) => {
            let Some(token) = bearer(request) else { return Caller::NoToken };
            let who = match read(shared, token, *is_loopback) {
                Ok(who) => who,
                Err(why) => return Caller::WrongToken(why),
            };
            let is_operator = || authorise(&shared.read(), &who, Act::Operate).is_ok();
            if connection.identify(who.uid, is_operator) {
                Caller::Known(who)
            } else {
                Caller::TooMany(who)
            }
        }
        // Anew with every request: a job that has ended meanwhile lets its node no longer speak.
        Some(Peer::Node(user)) => match user.check(&shared.read()) {
            Ok(()) => Caller::Known(user.who.clone()),
            Err(why) => Caller::NotVouched(why),
        },
        None => Caller::NoToken,
    }
}

/// Has the user looked up for whom a request's token stands, or that of its session, before any handler asks who makes it: the
/// user directory may be slow, and no thread that answers others waits for it.
pub async fn look_up_account(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let presented = presented_token(&shared, &request);
    if let Some((hash, is_loopback)) = presented {
        prepare_account(&shared, &hash, is_loopback).await;
    }
    next.run(request).await
}

/// The hash of the token that comes with a request to the port, or that its session stands for.
pub fn presented_token(shared: &Shared, request: &Request) -> Option<(String, bool)> {
    let Some(Peer::Port { is_loopback, .. }) = request.extensions().get::<Peer>() else {
        return None;
    };
    let hash = match bearer(request) {
        Some(token) => token::hash(token),
        None => {
            let mut secrets = browser::cookies(request.headers(), SESSION.name(*is_loopback));
            secrets.find_map(|secret| Some(shared.web_session(secret)?.token_hash()))?
        }
    };
    Some((hash, *is_loopback))
}

/// The token of a request, and whether it held a moment ago.
pub struct CheckedToken {
    hash: String,
    held: Result<TokenHolder, &'static str>,
}

impl CheckedToken {
    /// By what a request presents (`presented_token`). Its user is looked up, as by [`look_up_account`].
    pub async fn of(shared: &Shared, presented: Option<(String, bool)>) -> Option<Self> {
        let (hash, is_loopback) = presented?;
        let held = match token_holds(shared, &hash, is_loopback) {
            Ok(holder) if has_account_to_find(shared, &holder) => {
                shared.volatile.token_accounts.prepare(&holder.user).await;
                // It may have been revoked while the user directory was asked.
                token_holds(shared, &hash, is_loopback)
            }
            held => held,
        };
        Some(Self { hash, held })
    }

    fn holder(&self, shared: &Shared) -> Result<Principal, &'static str> {
        let known = self.held.as_ref().map_err(|why| *why)?;
        holder(shared, &self.hash, known).ok_or(UNKNOWN_TOKEN)
    }
}

/// Whether the user directory is to be asked who has a token.
fn has_account_to_find(shared: &Shared, holder: &TokenHolder) -> bool {
    holder.user != principal::ROOT && !shared.volatile.token_accounts.is_fresh(&holder.user)
}

/// Has the user of a token looked up, if the token holds.
pub async fn prepare_account(shared: &Shared, hash: &str, is_loopback: bool) {
    if let Ok(holder) = token_holds(shared, hash, is_loopback)
        && has_account_to_find(shared, &holder)
    {
        shared.volatile.token_accounts.prepare(&holder.user).await;
    }
}

/// Puts the principal into the request's extensions, or refuses the request.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&shared, &request) {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        other => match gateway(&shared, &request) {
            Some(principal) => {
                request.extensions_mut().insert(principal);
                next.run(request).await
            }
            None => refusal(other),
        },
    }
}

/// A gateway that makes a call. Its token is taken nowhere else, and the call must be its own (`calls::call`).
fn gateway(shared: &Shared, request: &Request) -> Option<Principal> {
    let Some(Peer::Port { is_loopback, .. }) = request.extensions().get::<Peer>() else {
        return None;
    };
    let token = bearer(request).filter(|_| request.uri().path() == CALL_PATH)?;
    let hash = token::hash(token);
    let known = token_holds(shared, &hash, *is_loopback).ok()?;
    let who = known.principal(|name| shared.volatile.token_accounts.find(name));
    let who = who.filter(|_| known.limit == Some(Role::Gateway))?;
    shared.volatile.token_uses.note(&hash, clock::now());
    Some(who)
}

/// The answer to a caller who is not let in.
pub fn refusal(caller: Caller) -> Response {
    match caller {
        Caller::Known(_) | Caller::NoToken => refused(StatusCode::UNAUTHORIZED, UNKNOWN_TOKEN),
        Caller::WrongToken(why) => {
            let mut response = refused(StatusCode::UNAUTHORIZED, why);
            response.extensions_mut().insert(FailedSignIn::default());
            response
        }
        Caller::NotVouched(why) => refused(StatusCode::FORBIDDEN, &why),
        Caller::TooMany(who) => too_many_connections(&who),
    }
}

/// Refuses the request and closes its connection.
pub fn too_many_connections(who: &Principal) -> Response {
    let why = format!("user {} has as many connections open as one user may", who.name);
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Says the same of a token that was never made and of one whose user is gone.
pub const UNKNOWN_TOKEN: &str = "this needs a valid token: Authorization: Bearer";

const ADMIN_FROM_ELSEWHERE: &str =
    "admin.token is taken on the server's own machine alone: make another (sluice token user)";

/// Whom a token stands for, or why it is not taken. Only who has the token is told of its end.
pub fn of_token(
    shared: &Shared,
    presented: &str,
    is_loopback: bool,
) -> Result<Principal, &'static str> {
    of_token_hash(shared, &token::hash(presented), is_loopback)
}

/// The same by the token's hash, for a session that stands for the token.
pub fn of_token_hash(
    shared: &Shared,
    hash: &str,
    is_loopback: bool,
) -> Result<Principal, &'static str> {
    let known = token_holds(shared, hash, is_loopback)?;
    holder(shared, hash, &known).ok_or(UNKNOWN_TOKEN)
}

/// Whom a token stands for that holds, as [`look_up_account`] has found him; nobody, where it is a gateway's. Nothing, where the user
/// directory does not know the user or does not answer.
pub fn holder(shared: &Shared, hash: &str, known: &TokenHolder) -> Option<Principal> {
    if known.limit == Some(Role::Gateway) {
        return None;
    }
    let who = known.principal(|name| shared.volatile.token_accounts.find(name))?;
    shared.volatile.token_uses.note(hash, clock::now());
    Some(who)
}

/// Who has the token with this hash, or why it is not taken. Nothing outside the server is asked.
pub fn token_holds(
    shared: &Shared,
    hash: &str,
    is_loopback: bool,
) -> Result<TokenHolder, &'static str> {
    // The state is read once, and nothing more of it is copied than is asked: services are asked at a high rate.
    let state = shared.read();
    let known = known_token(&state, hash).ok_or(UNKNOWN_TOKEN)?;
    match known.status(clock::now()) {
        TokenStatus::Good => {}
        TokenStatus::Expired => return Err("this token has expired: make another (sluice token)"),
        TokenStatus::Revoked => return Err("this token was revoked: make another (sluice token)"),
    }
    // It does not expire, and whoever has it is root on every node.
    if known.is_admin_token() && !is_loopback {
        return Err(ADMIN_FROM_ELSEWHERE);
    }
    if is_shut_out(&state, known.user()) {
        return Err(UNKNOWN_TOKEN);
    }
    Ok(TokenHolder::of(&known))
}

/// The token with this hash, or that of a session by single sign-on. The word of a provider whom the site trusts no more counts
/// for nothing.
fn known_token<'s>(state: &'s ClusterState, hash: &str) -> Option<Cow<'s, UserToken>> {
    let of_sign_on = || {
        state.config.oidc.as_ref()?;
        let session = state.web_sessions.get(WebSession::of_sign_on(hash)?)?;
        session.sign_on_token()
    };
    state.user_tokens.get(hash).map(Cow::Borrowed).or_else(|| of_sign_on().map(Cow::Owned))
}

/// The user for whom a token with this hash was made, whether it holds or not.
pub fn user_of_hash(shared: &Shared, hash: &str) -> Option<String> {
    known_token(&shared.read(), hash).map(|known| known.user().to_owned())
}

/// Whether an administrator has shut this user out.
pub fn is_inactive(shared: &Shared, user: &str) -> bool {
    is_shut_out(&shared.read(), user)
}

fn is_shut_out(state: &ClusterState, user: &str) -> bool {
    state.users.get(user).is_some_and(|user| !user.active)
}

/// The token of a request.
pub fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}
