//! The middleware that knows requests which a gateway has passed on.

use crate::http::peer::Peer;
use crate::proxy::service::request_head::is_from_gateway;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;

/// A gateway on the server's own machine passes on what strangers ask: nothing that it passes on counts as from this machine,
/// where `admin.token` is taken. Who says so of a request of his own loses by it alone.
pub async fn mark(mut request: Request, next: Next) -> Response {
    let is_passed_on = is_from_gateway(request.headers());
    if let Some(Peer::Port { is_loopback, .. }) = request.extensions_mut().get_mut::<Peer>() {
        *is_loopback &= !is_passed_on;
    }
    next.run(request).await
}
