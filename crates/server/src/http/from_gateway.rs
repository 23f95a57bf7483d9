//! The middleware that knows requests which a gateway has passed on, and whose they are.

use crate::auth::token;
use crate::http::authenticate;
use crate::http::gateways;
use crate::http::peer::Peer;
use crate::proxy::headers::{CLIENT, GATEWAY_NAME, GATEWAY_TOKEN};
use crate::proxy::service::request_head::is_from_gateway;
use crate::proxy::service::request_source::PassedBy;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::middleware::Next;
use axum::response::Response;
use model::principal::Role;
use std::net::IpAddr;
use std::sync::Arc;

/// A gateway on the server's own machine passes on what strangers ask: nothing that it passes on counts as from this machine,
/// where `admin.token` is taken. Who says so of a request of his own loses by it alone. The address of a client and the gateway's own
/// name are taken from a gateway that proves itself by its token, and nobody else's word for them goes on.
pub async fn mark(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    note(&shared, &mut request).await;
    next.run(request).await
}

/// The same for a request that no middleware handles.
pub async fn note(shared: &Shared, request: &mut Request) {
    let is_passed_on = is_from_gateway(request.headers());
    let said = GatewayClaim::take(request.headers_mut());
    let peer = request.extensions().get::<Peer>();
    let is_near = matches!(peer, Some(Peer::Port { is_loopback: true, .. }));
    let proved = match said {
        Some(said) if is_gateway(shared, &said.token_hash, is_near).await => Some(said),
        _ => None,
    };
    let client = proved.as_ref().map(|proved| proved.client);
    if let Some(proved) = proved {
        request.extensions_mut().insert(PassedBy(proved.name));
    }
    if let Some(Peer::Port { from, is_loopback, .. }) = request.extensions_mut().get_mut::<Peer>() {
        *is_loopback &= !is_passed_on;
        *from = client.unwrap_or(*from);
    }
}

/// What a request says of the gateway that has passed it on, and of its client.
struct GatewayClaim {
    client: IpAddr,
    /// An earlier gateway says none.
    name: Option<String>,
    token_hash: String,
}

impl GatewayClaim {
    /// Takes it out of a request.
    fn take(headers: &mut HeaderMap) -> Option<Self> {
        // Names as a map of headers has them: no request has them read anew.
        let names = const {
            [
                HeaderName::from_static(CLIENT),
                HeaderName::from_static(GATEWAY_NAME),
                HeaderName::from_static(GATEWAY_TOKEN),
            ]
        };
        let [client, name, token] = names.map(|name| headers.remove(name));
        let client = client?.to_str().ok()?.parse().ok()?;
        let name = name.and_then(|name| name.to_str().ok().map(str::to_owned));
        Some(Self { client, name, token_hash: token::hash(token?.to_str().ok()?) })
    }
}

/// Whether the token with this hash is one of a gateway, and its user an operator.
async fn is_gateway(shared: &Shared, hash: &str, is_loopback: bool) -> bool {
    authenticate::prepare_account(shared, hash, is_loopback).await;
    let known = authenticate::token_holds(shared, hash, is_loopback).ok();
    let known = known.filter(|known| known.limit == Some(Role::Gateway));
    let find = |name: &str| shared.volatile.token_accounts.find(name);
    let who = known.and_then(|known| known.principal(find));
    who.is_some_and(|who| gateways::check(&shared.read(), &who).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peer::ClientAddress;
    use crate::http::tests::port;
    use crate::testing::TestServer;
    use axum::Router;
    use axum::body::Body;
    use axum::middleware;
    use cluster::Command;
    use cluster::token::UserToken;
    use http_body_util::BodyExt;
    use tower_service::Service;

    async fn seen(request: Request) -> String {
        let headers = request.headers();
        let is_left = headers.contains_key(CLIENT) || headers.contains_key(GATEWAY_NAME);
        let by = request.extensions().get::<PassedBy>().and_then(|by| by.0.as_deref());
        let client = ClientAddress::of(request.extensions());
        format!("{client} {} {is_left}", by.unwrap_or("-"))
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
            ("of-a-gateway", "192.0.2.7 edge false"),
            ("of-root", "127.0.0.1 - false"),
            ("of-nobody", "127.0.0.1 - false"),
        ] {
            let request = Request::get("/").header(CLIENT, "192.0.2.7");
            let request = request.header(GATEWAY_NAME, "edge").header(GATEWAY_TOKEN, token);
            let mut request = request.body(Body::empty()).expect("a request");
            request.extensions_mut().insert(port().expect("a peer"));
            let response = router.clone().call(request).await.expect("a response");
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, expected, "{token}");
        }
    }
}
