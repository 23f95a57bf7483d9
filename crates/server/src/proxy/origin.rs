//! Where services and web pages of jobs are found: at a port of their own, so that they have another origin than the server's own
//! page, whose session no script of theirs can use. A browser that asks for them at the clients' port is led there. Programs with
//! a token are answered at either port: no browser sends a token by itself.

use super::exchange::redirect;
use super::link_path;
use crate::http::authenticate::bearer;
use crate::http::peer::Peer;
use crate::server_places::ServerPlaces;
use crate::shared::Shared;
use crate::shared::proxy_sessions::ProxyTarget;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use model::fleet::MAIN_PROJECT;
use std::net::SocketAddr;
use std::sync::Arc;

/// Whether services and pages of jobs have another origin than the server's own page.
pub fn is_own(shared: &Shared) -> bool {
    shared.setup.proxy.is_some()
}

/// The address of a link that opens a web page of a job in a browser.
pub fn job_page_url(shared: &Shared, target: ProxyTarget, is_whole: bool, secret: &str) -> String {
    format!("{}{}", base(shared), link_path(target, is_whole, secret))
}

/// The address at which other machines find the proxy, without a path. One that listens on loopback is found on this machine alone.
pub fn base(shared: &Shared) -> String {
    let clients = shared.setup.listen.parse::<SocketAddr>().ok();
    let Some(at) = shared.setup.proxy.or(clients) else { return String::new() };
    if at.ip().is_loopback() {
        return format!("http://{at}");
    }
    // A standby answers nobody there. Who has just taken over may have the former leader in its list for a moment.
    let (servers, setup) = (&shared.volatile.servers, &shared.setup);
    let leader = servers.leader().filter(|_| shared.is_standby());
    let (bound, hostname) = match &leader {
        Some(leader) => (&leader.clients, &leader.name),
        None => (&setup.listen_addresses, &setup.hostname),
    };
    let (state, is_one_of_several) = (shared.read(), !servers.is_empty());
    let named = &state.config.server_addresses;
    match (ServerPlaces { bound, named, hostname, is_one_of_several }).host() {
        Some(host) if host.contains(':') => format!("https://[{host}]:{}", at.port()),
        Some(host) => format!("https://{host}:{}", at.port()),
        None => format!("https://{at}"),
    }
}

/// The service that a host name means: `RUN.DOMAIN` is of the project `main`, `RUN.PROJECT.DOMAIN` of any. `domain` is in small
/// letters, and may have a port.
pub fn service_of_host(host: &str, domain: &str) -> Option<(String, String)> {
    let name = |text: &str| text.rsplit_once(':').map_or(text, |(name, _)| name).to_owned();
    let (host, domain) = (name(host).to_ascii_lowercase(), name(domain));
    let labels = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
    let (run, project) = labels.split_once('.').unwrap_or((labels, MAIN_PROJECT));
    let is_name = !run.is_empty() && !project.is_empty() && !project.contains('.');
    is_name.then(|| (project.to_owned(), run.to_owned()))
}

/// The host that a request asks for, with its port.
pub fn host_of(request: &Request) -> Option<&str> {
    let header = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    header.or(request.uri().authority().map(Authority::as_str))
}

/// Leads a browser that asks at the clients' port to the proxy's own.
pub async fn lead_to_own(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let scheme = match request.extensions().get::<Peer>() {
        Some(Peer::Port { is_loopback: true, .. }) => Some("http"),
        Some(Peer::Port { is_loopback: false, .. }) => Some("https"),
        _ => None,
    };
    let own = shared.setup.proxy.filter(|_| bearer(&request).is_none());
    let (Some(scheme), Some(own)) = (scheme, own) else { return next.run(request).await };
    let asked = host_of(&request).and_then(|host| host.parse::<Authority>().ok());
    let base = match asked {
        Some(asked) => format!("{scheme}://{}:{}", asked.host(), own.port()),
        None => base(&shared),
    };
    let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
    redirect(StatusCode::TEMPORARY_REDIRECT, &format!("{base}{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_below_the_domain_mean_services() {
        let service = |host: &str| service_of_host(host, "apps.example:6823");
        let found = |project: &str, run: &str| Some((project.to_owned(), run.to_owned()));
        assert_eq!(service("web.apps.example"), found("main", "web"));
        assert_eq!(service("Web.Apps.Example:6823"), found("main", "web"));
        assert_eq!(service("web.team.apps.example:80"), found("team", "web"));
        for other in [
            "apps.example",
            ".apps.example",
            "web.example",
            "web.myapps.example",
            "a.b.c.apps.example",
            "web..apps.example",
            "127.0.0.1:6823",
            "[::1]:6823",
        ] {
            assert_eq!(service(other), None, "{other}");
        }
    }
}
