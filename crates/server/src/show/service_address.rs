//! Where clients find a service: by its host name, at its gateway, or at the server; and what is refused of it when it is submitted.

use crate::clock;
use crate::shared::Shared;
use crate::shared::gateways::ListedGateway;
use cluster::State;
use model::account::ROOT_ACCOUNT;
use model::fleet::MAIN_PROJECT;
use model::publication::GatewayChoice;
use model::reason::Refusal;
use model::service::Service;
use std::time::{Duration, Instant};
use wire::client::Submission;

/// Projects of which the cluster's own certificate has names.
const CERTIFIED_PROJECTS_MAX: usize = 100;

/// How long after the server's start gateways may take to be known, which ask once a second; and how often that is looked at.
const GATEWAYS_TIMEOUT: Duration = Duration::from_secs(3);
const GATEWAYS_LOOK: Duration = Duration::from_millis(100);

/// Refuses a service whose gateway does not run, or has no certificate and needs one. A submission that is repeated was judged when it
/// came first.
pub async fn check(shared: &Shared, submission: &Submission) -> Result<(), Refusal> {
    let service = submission.spec.launch.service.as_deref();
    let Some(service) = service.filter(|_| !submission.is_repeat) else { return Ok(()) };
    let asked = Instant::now();
    loop {
        let checked = check_now(shared, submission.spec.project(), service);
        // A clock that is set back would make the server new for as long: the call waits no longer than by its own time.
        let is_new = clock::now().since(shared.setup.started) < GATEWAYS_TIMEOUT
            && asked.elapsed() < GATEWAYS_TIMEOUT;
        if checked.is_ok() || !is_new {
            return checked.map_err(Refusal::Other);
        }
        tokio::time::sleep(GATEWAYS_LOOK).await;
    }
}

fn check_now(shared: &Shared, project: &str, service: &Service) -> Result<(), String> {
    let gateways = shared.volatile.gateways.list(Instant::now());
    let state = shared.read();
    let default = state.default_gateway(project);
    check_gateways(default, &gateways, service)?;
    check_https(default, &gateways, service)
}

/// `default`: the default gateway of the service's project, or of the site.
fn check_gateways(
    default: Option<&str>,
    gateways: &[ListedGateway],
    service: &Service,
) -> Result<(), String> {
    let (said, name) = match (&service.gateway, default) {
        (GatewayChoice::Named(name), _) => (name.as_str(), name.as_str()),
        (GatewayChoice::Required, Some(default)) => ("true", default),
        (GatewayChoice::Required, None) => ("true", "NAME"),
        (GatewayChoice::Default | GatewayChoice::Off, _) => return Ok(()),
    };
    if chosen(default, gateways, service).is_some() {
        return Ok(());
    }
    let missing = match (&service.gateway, default) {
        (GatewayChoice::Required, None) => "no gateway runs".to_owned(),
        _ => format!("no gateway {name} runs"),
    };
    Err(format!(
        "gateway: {said}: {missing}: `sluice gateway --name {name} --server URL --token-file FILE` starts one"
    ))
}

/// `https: true` needs a gateway with a certificate among those that are to publish the service.
fn check_https(
    default: Option<&str>,
    gateways: &[ListedGateway],
    service: &Service,
) -> Result<(), String> {
    let is_own = |one: &&ListedGateway| service.gateway.includes(&one.name, default);
    let mut own = gateways.iter().filter(is_own);
    let can_publish = own.clone().any(|one| service.https.admits(one.has_tls));
    match own.next().filter(|_| !can_publish).map(|bare| &bare.name) {
        Some(name) => {
            Err(format!("https: true: gateway {name} has neither --certificate nor --acme"))
        }
        None => Ok(()),
    }
}

/// The gateway whose address is a service's: the one that it names, or the default. A service that needs one, where there is no
/// default, has the first that runs.
fn chosen<'g>(
    default: Option<&str>,
    gateways: &'g [ListedGateway],
    service: &Service,
) -> Option<&'g ListedGateway> {
    let named = |name: &str| gateways.iter().find(|one| one.name == name);
    match (&service.gateway, default) {
        (GatewayChoice::Off, _) | (GatewayChoice::Default, None) => None,
        (GatewayChoice::Named(name), _) => named(name),
        (GatewayChoice::Default | GatewayChoice::Required, Some(default)) => named(default),
        (GatewayChoice::Required, None) => {
            gateways.iter().find(|one| service.https.admits(one.has_tls))
        }
    }
}

/// The address at which clients find a service: by its host name where the site has a domain, else at its gateway, and else `path`,
/// its path at the server. Host names may lead to gateways: a service without one is found by its path then.
pub fn address(state: &State, gateways: &[ListedGateway], service: &Service, path: &str) -> String {
    if service.gateway == GatewayChoice::Off && !gateways.is_empty() {
        return path.to_owned();
    }
    let by_host = by_host_name(state, path);
    let project = named(path).map_or(MAIN_PROJECT, |(project, _)| project);
    let chosen = chosen(state.default_gateway(project), gateways, service);
    let has_tls = chosen.is_none_or(|gateway| gateway.has_tls);
    let is_plain = !gateways.is_empty() && service.https.is_plain(has_tls);
    match (by_host.strip_prefix("https://"), chosen) {
        // Seen from outside, plain HTTP is at its usual port, whatever that of the domain is.
        (Some(host), _) if is_plain => {
            let host = host.trim_end_matches('/');
            format!("http://{}/", host.rsplit_once(':').map_or(host, |(name, _)| name))
        }
        (None, Some(gateway)) => at_gateway(gateway, is_plain, path),
        _ => by_host,
    }
}

/// The path at a gateway's own address.
fn at_gateway(gateway: &ListedGateway, is_plain: bool, path: &str) -> String {
    let has_plain_port = is_plain && !gateway.plain_address.is_empty();
    let address = if has_plain_port { &gateway.plain_address } else { &gateway.address };
    let (scheme, usual_port) =
        if gateway.has_tls && !has_plain_port { ("https", ":443") } else { ("http", ":80") };
    match address.strip_suffix(usual_port).unwrap_or(address) {
        "" => path.to_owned(),
        address => format!("{scheme}://{address}{path}"),
    }
}

/// The projects, beside the main one, whose services have names in the cluster's own certificate: those that are labels of a host
/// name, as many as a certificate may name.
pub fn certified_projects(state: &State) -> impl Iterator<Item = &str> {
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

/// The project and the run of a service, by its path at this server.
fn named(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/proxy/services/")?.trim_end_matches('/').split_once('/')
}

/// The address of a service by its host name, where the site has a domain for services, its run is a label and a certificate can have the name; else
/// `path`, its path at this server.
fn by_host_name(state: &State, path: &str) -> String {
    // A site's own certificate has the names that the site gave it.
    let is_certified = |project: &str| match &state.config.server_certificate {
        Some(_) => is_label(project),
        None => certified_projects(state).any(|one| one == project),
    };
    // Host names have no capitals, and a dot in one begins the project.
    let found = named(path).filter(|(_, run)| is_label(run));
    match (&state.config.proxy.domain, found) {
        (Some(domain), Some((MAIN_PROJECT, run))) => format!("https://{run}.{domain}/"),
        (Some(domain), Some((project, run))) if is_certified(project) => {
            format!("https://{run}.{project}.{domain}/")
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::account::Account;
    use model::publication::HttpsChoice;
    use std::sync::Arc;

    fn gateway(name: &str, has_tls: bool) -> ListedGateway {
        let address = format!("{name}.example:443");
        let plain_address = format!("{name}.example:80");
        ListedGateway { name: name.into(), address, domain: String::new(), plain_address, has_tls }
    }

    fn choosing(gateway: GatewayChoice) -> Service {
        Service { gateway, ..Service::at(80) }
    }

    fn with_default(default: Option<&str>) -> State {
        let mut state = State::default();
        let proxy = &mut Arc::make_mut(&mut state.config).proxy;
        proxy.default_gateway = default.map(str::to_owned);
        state
    }

    #[test]
    fn service_whose_gateway_does_not_run_is_refused_in_one_line() {
        let running = [gateway("edge1", true)];
        let named = |name: &str| GatewayChoice::Named(name.into());
        for (choice, default, gateways, part) in [
            (GatewayChoice::Default, None, &[][..], None),
            (GatewayChoice::Default, Some("edge2"), &running, None),
            (GatewayChoice::Off, None, &[], None),
            (named("edge1"), None, &running, None),
            (named("edge2"), None, &running, Some("gateway: edge2: no gateway edge2 runs")),
            (GatewayChoice::Required, None, &running, None),
            (GatewayChoice::Required, None, &[], Some("gateway: true: no gateway runs")),
            (GatewayChoice::Required, Some("edge1"), &running, None),
            (GatewayChoice::Required, Some("edge2"), &running, Some("no gateway edge2 runs")),
        ] {
            let service = choosing(choice);
            let checked = check_gateways(default, gateways, &service);
            match (checked, part) {
                (Ok(()), None) => {}
                (Err(why), Some(part)) => {
                    assert!(why.contains(part) && why.lines().count() == 1, "{why}");
                }
                other => panic!("{:?}: {other:?}", service.gateway),
            }
        }
    }

    #[test]
    fn address_of_a_service_follows_its_gateway() {
        let path = "/proxy/services/main/web/";
        let running = [gateway("edge1", true), gateway("edge2", false)];
        let named = |name: &str| GatewayChoice::Named(name.into());
        let at = |base: &str| format!("{base}{path}");
        for (choice, default, expected) in [
            (GatewayChoice::Default, None, at("")),
            (GatewayChoice::Default, Some("edge1"), at("https://edge1.example")),
            (GatewayChoice::Required, None, at("https://edge1.example")),
            (GatewayChoice::Off, None, at("")),
            (named("edge2"), Some("edge1"), at("http://edge2.example")),
            (named("gone"), None, at("")),
        ] {
            let service = choosing(choice);
            let found = address(&with_default(default), &running, &service, path);
            assert_eq!(found, expected, "{:?}", service.gateway);
        }
        let mut state = with_default(Some("edge2"));
        state.default_gateways.insert("main".into(), "edge1".into());
        let found = address(&state, &running, &choosing(GatewayChoice::Default), path);
        assert_eq!(found, at("https://edge1.example"), "the project's own comes first");
        let mut state = with_default(None);
        Arc::make_mut(&mut state.config).proxy.domain = Some("apps.example".to_owned());
        let by_host = "https://web.apps.example/";
        for (choice, gateways, expected) in [
            (GatewayChoice::Default, &running[..], by_host),
            (named("edge1"), &running, by_host),
            (GatewayChoice::Off, &running, path),
            (GatewayChoice::Off, &[], by_host),
        ] {
            assert_eq!(address(&state, gateways, &choosing(choice), path), expected);
        }
    }

    #[test]
    fn address_of_a_service_says_whether_it_is_by_https() {
        let path = "/proxy/services/main/web/";
        let running = [gateway("edge1", true), gateway("edge2", false)];
        let mut state = with_default(Some("edge1"));
        let at = |state: &State, name: &str, https: HttpsChoice| {
            let service = Service { https, ..choosing(GatewayChoice::Named(name.into())) };
            address(state, &running, &service, path)
        };
        let plain = format!("http://edge1.example{path}");
        assert_eq!(at(&state, "edge1", HttpsChoice::Off), plain);
        Arc::make_mut(&mut state.config).proxy.domain = Some("apps.example:6823".to_owned());
        for (name, https, expected) in [
            ("edge1", HttpsChoice::Auto, "https://web.apps.example:6823/"),
            ("edge1", HttpsChoice::On, "https://web.apps.example:6823/"),
            ("edge1", HttpsChoice::Off, "http://web.apps.example/"),
            ("edge2", HttpsChoice::Auto, "http://web.apps.example/"),
        ] {
            assert_eq!(at(&state, name, https), expected, "{name} {https:?}");
        }
        let service = Service { https: HttpsChoice::Off, ..Service::at(80) };
        let alone = address(&state, &[], &service, path);
        assert_eq!(alone, "https://web.apps.example:6823/", "the server's own proxy has TLS");
    }

    #[test]
    fn https_is_refused_by_the_name_of_a_gateway_without_a_certificate() {
        let running = [gateway("edge1", true), gateway("edge2", false)];
        let named = |name: &str| GatewayChoice::Named(name.into());
        for (choice, https, gateways, is_refused) in [
            (named("edge1"), HttpsChoice::On, &running[..], false),
            (named("edge2"), HttpsChoice::On, &running, true),
            (named("edge2"), HttpsChoice::Auto, &running, false),
            (GatewayChoice::Default, HttpsChoice::On, &running, false),
            (GatewayChoice::Default, HttpsChoice::On, &running[1..], true),
            (GatewayChoice::Default, HttpsChoice::On, &[], false),
            (GatewayChoice::Off, HttpsChoice::On, &running[1..], false),
        ] {
            let service = Service { https, ..choosing(choice) };
            let checked = check_https(None, gateways, &service);
            let why = "https: true: gateway edge2 has neither --certificate nor --acme";
            let expected = if is_refused { Err(why.to_owned()) } else { Ok(()) };
            assert_eq!(checked, expected, "{:?} {https:?}", service.gateway);
        }
    }

    #[test]
    fn service_has_a_host_name_where_a_certificate_can_have_it() {
        let mut state = State::default();
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
        assert_eq!(by_host_name(&state, path), path, "no domain");
        Arc::make_mut(&mut state.config).proxy.domain = Some("apps.example".to_owned());
        for (path, expected) in [
            (path, "https://web.team.apps.example/"),
            ("/proxy/services/main/web/", "https://web.apps.example/"),
            ("/proxy/services/my_team/web/", "/proxy/services/my_team/web/"),
            ("/proxy/services/main/WEB/", "/proxy/services/main/WEB/"),
            ("/proxy/services/main/a.b/", "/proxy/services/main/a.b/"),
            ("/proxy/services/team/a_b/", "/proxy/services/team/a_b/"),
        ] {
            assert_eq!(by_host_name(&state, path), expected);
        }
    }
}
