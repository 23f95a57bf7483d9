//! The middleware that knows requests which a gateway has passed on, and whose they are.

use crate::auth::{principal, token};
use crate::http::authenticate;
use crate::http::gateways;
use crate::http::peer::Peer;
use crate::proxy::headers::{CLIENT, GATEWAY_TOKEN};
use crate::proxy::service::request_head::is_from_gateway;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use model::principal::Role;
use std::net::IpAddr;
use std::sync::Arc;

/// A gateway on the server's own machine passes on what strangers ask: nothing that it passes on counts as from this machine,
/// where `admin.token` is taken. Who says so of a request of his own loses by it alone. The address of a client is taken from a
/// gateway that proves itself by its token, and nobody else's word for it goes on.
pub async fn mark(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let is_passed_on = is_from_gateway(request.headers());
    let said = take_client(request.headers_mut());
    let peer = request.extensions().get::<Peer>();
    let is_near = matches!(peer, Some(Peer::Port { is_loopback: true, .. }));
    let client = match said {
        Some((client, hash)) if is_gateway(&shared, &hash, is_near).await => Some(client),
        _ => None,
    };
    if let Some(Peer::Port { from, is_loopback, .. }) = request.extensions_mut().get_mut::<Peer>() {
        *is_loopback &= !is_passed_on;
        *from = client.unwrap_or(*from);
    }
    next.run(request).await
}

/// Takes out of a request whose it is by a gateway's word, with the hash of the token that comes with it.
fn take_client(headers: &mut HeaderMap) -> Option<(IpAddr, String)> {
    let (client, token) = (headers.remove(CLIENT), headers.remove(GATEWAY_TOKEN));
    let client = client?.to_str().ok()?.parse().ok()?;
    Some((client, token::hash(token?.to_str().ok()?)))
}

/// Whether the token with this hash is one of a gateway, and its user an operator.
async fn is_gateway(shared: &Shared, hash: &str, is_loopback: bool) -> bool {
    authenticate::prepare_account(shared, hash, is_loopback).await;
    let known = authenticate::token_holds(shared, hash, is_loopback).ok();
    let known = known.filter(|known| known.limit == Some(Role::Gateway));
    let find = |name: &str| shared.volatile.token_accounts.find(name);
    let who = known.and_then(|known| principal::of_token(&known, find));
    who.is_some_and(|who| gateways::check(&shared.read(), &who).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::tests::port;
    use crate::proxy::service::request_head::client_address;
    use crate::testing::TestServer;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware;
    use cluster::Command;
    use cluster::token::UserToken;
    use http_body_util::BodyExt;
    use tower_service::Service;

    async fn seen(request: Request) -> String {
        let is_left = request.headers().contains_key(CLIENT);
        format!("{} {is_left}", client_address(&request))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn client_of_a_gateway_is_believed_with_the_gateways_token_alone() {
        let server = TestServer::start().await;
        for (text, limit) in [("of-a-gateway", Some(Role::Gateway)), ("of-root", None)] {
            let known = UserToken {
                hash: token::hash(text),
                name: "root".into(),
                token_name: text.into(),
                limit,
                ..UserToken::default()
            };
            server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        }
        let router: Router = Router::new()
            .fallback(seen)
            .layer(middleware::from_fn_with_state(server.shared.clone(), mark));
        for (token, expected) in [
            ("of-a-gateway", "192.0.2.7 false"),
            ("of-root", "127.0.0.1 false"),
            ("of-nobody", "127.0.0.1 false"),
        ] {
            let request = Request::get("/").header(CLIENT, "192.0.2.7");
            let mut request =
                request.header(GATEWAY_TOKEN, token).body(Body::empty()).expect("a request");
            request.extensions_mut().insert(port().expect("a peer"));
            let response = router.clone().call(request).await.expect("a response");
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, expected, "{token}");
        }
    }
}
