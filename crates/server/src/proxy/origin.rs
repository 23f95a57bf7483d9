//! Where services and web pages of jobs are found: at a port of their own, so that they have another origin than the server's own
//! page, whose session no script of theirs can use. A browser that asks for them at the clients' port is led there. Programs with
//! a token are answered at either port: no browser sends a token by itself.

use super::exchange::redirect;
use super::link_path;
use crate::http::authenticate::bearer;
use crate::http::peer::Peer;
use crate::shared::Shared;
use crate::shared::proxy_sessions::ProxyTarget;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use cluster::State as ClusterState;
use model::account::ROOT_ACCOUNT;
use model::fleet::MAIN_PROJECT;
use std::net::SocketAddr;
use std::sync::Arc;

/// Projects of which the cluster's own certificate has names.
const CERTIFIED_PROJECTS_MAX: usize = 100;

/// Whether services and pages of jobs have another origin than the server's own page.
pub fn is_own(shared: &Shared) -> bool {
    shared.setup.proxy.is_some()
}

/// The address of a link that opens a web page of a job in a browser.
pub fn job_page_url(shared: &Shared, target: ProxyTarget, is_whole: bool, secret: &str) -> String {
    format!("{}{}", base(shared), link_path(target, is_whole, secret))
}

/// The address at which other machines find the proxy, without a path. One that listens on loopback is found on this machine alone.
fn base(shared: &Shared) -> String {
    let clients = shared.setup.listen.parse::<SocketAddr>().ok();
    let Some(at) = shared.setup.proxy.or(clients) else { return String::new() };
    if at.ip().is_loopback() {
        return format!("http://{at}");
    }
    let state = shared.read();
    let mut addresses = state.config.server_addresses.iter().chain(&shared.setup.listen_addresses);
    match addresses.find_map(|address| address.rsplit_once(':')) {
        Some((host, _)) => format!("https://{host}:{}", at.port()),
        None => format!("https://{at}"),
    }
}

/// The projects, beside the main one, whose services have names in the cluster's own certificate: those that are labels of a host
/// name, as many as a certificate may name.
pub fn certified_projects(state: &ClusterState) -> impl Iterator<Item = &str> {
    let names = state.accounts.keys().map(String::as_str);
    let is_named = |name: &&str| *name != ROOT_ACCOUNT && *name != MAIN_PROJECT && is_label(name);
    names.filter(is_named).take(CERTIFIED_PROJECTS_MAX)
}

/// Whether a text is one label of a host name.
pub fn is_label(text: &str) -> bool {
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let is_inner = !text.starts_with('-') && !text.ends_with('-');
    (1..=63).contains(&text.len()) && is_inner && text.bytes().all(is_good)
}

/// The address of a service by its host name, where the site has a domain for services and a certificate can have the name; else
/// `path`, its path at this server.
pub fn service_url(shared: &Shared, path: &str) -> String {
    service_address(&shared.read(), path)
}

/// The same for who holds the state.
pub fn service_address(state: &ClusterState, path: &str) -> String {
    // A site's own certificate has the names that the site gave it.
    let is_certified = |project: &str| match &state.config.server_certificate {
        Some(_) => is_label(project),
        None => certified_projects(state).any(|one| one == project),
    };
    let name = path.strip_prefix("/proxy/services/").map(|name| name.trim_end_matches('/'));
    match (&state.config.proxy.domain, name.and_then(|name| name.split_once('/'))) {
        (Some(domain), Some((MAIN_PROJECT, run))) => format!("https://{run}.{domain}/"),
        (Some(domain), Some((project, run))) if is_certified(project) => {
            format!("https://{run}.{project}.{domain}/")
        }
        _ => path.to_owned(),
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
    use model::account::Account;

    #[test]
    fn service_has_a_host_name_where_a_certificate_can_have_it() {
        let mut state = ClusterState::default();
        for name in ["team", "my_team", "root"] {
            let account = Account {
                name: name.to_owned(),
                description: String::new(),
                organization: String::new(),
                parent: None,
                coordinators: Vec::new(),
            };
            state.accounts.insert(name.to_owned(), account);
        }
        assert!(certified_projects(&state).eq(["team"]));
        let path = "/proxy/services/team/web/";
        assert_eq!(service_address(&state, path), path, "no domain");
        Arc::make_mut(&mut state.config).proxy.domain = Some("apps.example".to_owned());
        for (path, expected) in [
            (path, "https://web.team.apps.example/"),
            ("/proxy/services/main/web/", "https://web.apps.example/"),
            ("/proxy/services/my_team/web/", "/proxy/services/my_team/web/"),
        ] {
            assert_eq!(service_address(&state, path), expected);
        }
    }

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
