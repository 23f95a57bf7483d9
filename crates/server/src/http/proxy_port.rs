//! The proxy's own port. Requests to services go straight to them, and the rest by a router.

use crate::http::authenticate::{CheckedToken, presented_token};
use crate::http::from_gateway;
use crate::http::serve::RequestHandler;
use crate::http::sign_in_limit::SignIn;
use crate::http::trusted_proxy;
use crate::proxy::service::request_head::{ServicePath, check_method};
use crate::proxy::service::{self, Services};
use crate::shared::Shared;
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use std::sync::Arc;

pub struct ProxyPort {
    pub shared: Arc<Shared>,
    pub services: Arc<Services>,
    /// Answers what is for no service, with the middleware that this has for services.
    pub others: Router,
}

impl RequestHandler for Arc<ProxyPort> {
    async fn handle(self, mut request: Request) -> Response {
        let ProxyPort { shared, services, others } = &*self;
        if let Err(refusal) = check_method(request.method()) {
            return *refusal;
        }
        trusted_proxy::note(&shared.read().config.proxy.trusted_proxies, &mut request);
        let host = service::host_of_service(shared, &request);
        if ServicePath::of(host.as_ref(), request.uri().path()).is_none() {
            return others.clone().handle(request).await;
        }
        from_gateway::note(shared, &mut request).await;
        let sign_in = SignIn::of(&request);
        let presented = presented_token(shared, &request);
        let token = CheckedToken::of(shared, presented).await;
        let response = service::answer(shared, services, host, token.as_ref(), request).await;
        match sign_in {
            Some(sign_in) => sign_in.hold(shared, response),
            None => response,
        }
    }
}
