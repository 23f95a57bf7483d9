//! The way by which a request came to the server's proxy, and which services are found by it.

use super::request_head::is_from_gateway;
use crate::shared::Shared;
use axum::http::{Extensions, HeaderMap};
use model::publication::GatewayChoice;
use model::service::Service;

/// Put into the extensions of a request that a gateway has passed on and proved by its token. An earlier gateway says no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassedBy(pub Option<String>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestSource {
    /// A client that asks the server itself.
    Client,
    /// A gateway; `None` where it has not proved which.
    Gateway(Option<String>),
}

impl RequestSource {
    pub fn of(extensions: &Extensions, headers: &HeaderMap) -> Self {
        match extensions.get::<PassedBy>() {
            Some(PassedBy(name)) => Self::Gateway(name.clone()),
            None if is_from_gateway(headers) => Self::Gateway(None),
            None => Self::Client,
        }
    }

    /// Whether the model of a service is found by this way: a client has one address for all models of a project.
    pub fn finds_model(&self, shared: &Shared, project: &str, service: &Service) -> bool {
        *self == Self::Client || self.finds(shared, project, service)
    }

    /// Whether the service of a project is published by this way.
    pub fn finds(&self, shared: &Shared, project: &str, service: &Service) -> bool {
        let default = || shared.read().default_gateway(project).map(str::to_owned);
        match self {
            Self::Client => service.gateway.includes_server(),
            Self::Gateway(Some(name)) => {
                service.gateway.includes(name, default().as_deref())
                    && service.https.admits(shared.volatile.gateways.has_tls(name))
            }
            Self::Gateway(None) => {
                matches!(service.gateway, GatewayChoice::Default | GatewayChoice::Required)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::service::request_head::VIA_GATEWAY;
    use crate::testing::TestServer;
    use axum::http::HeaderValue;
    use axum::http::header::VIA;

    #[tokio::test(flavor = "multi_thread")]
    async fn service_is_found_by_the_way_that_publishes_it_alone() {
        let server = TestServer::start().await;
        let mut via = HeaderMap::new();
        via.insert(VIA, HeaderValue::from_static(VIA_GATEWAY));
        let by = |name: &str| {
            let mut extensions = Extensions::new();
            extensions.insert(PassedBy(Some(name.to_owned())));
            RequestSource::of(&extensions, &via)
        };
        let client = RequestSource::of(&Extensions::new(), &HeaderMap::new());
        let unproved = RequestSource::of(&Extensions::new(), &via);
        assert_eq!((&client, &unproved), (&RequestSource::Client, &RequestSource::Gateway(None)));
        let sources = [client, by("edge1"), by("edge2"), unproved];
        for (gateway, expected) in [
            (GatewayChoice::Default, [true, true, true, true]),
            (GatewayChoice::Required, [true, true, true, true]),
            (GatewayChoice::Off, [true, false, false, false]),
            (GatewayChoice::Named("edge2".into()), [false, false, true, false]),
        ] {
            let service = Service { gateway, ..Service::at(80) };
            let shared = &server.shared;
            let found = sources.each_ref().map(|one| one.finds(shared, "main", &service));
            assert_eq!(found, expected, "{:?}", service.gateway);
            let found = sources.each_ref().map(|one| one.finds_model(shared, "main", &service));
            assert_eq!((found[0], &found[1..]), (true, &expected[1..]), "{:?}", service.gateway);
        }
    }
}
