//! Gateways: those that run (`sluice gateway`), as dstack's client lists them. None is made by a call: a configuration names one that
//! runs. A project has its own default one, or the site's. Of dstack's backends `remote` means a gateway of ours.

use super::answer::{ApiResult, Json, Refused};
use crate::http::gateways;
use crate::shared::Shared;
use crate::shared::gateways::ListedGateway;
use crate::show::dstack_id::uuid;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::error::ApiError;
use dstack::api::time::Time;
use dstack::api::volume::{ByName, CreateVolume, DeleteVolumes};
use dstack::configuration::from_json;
use model::principal::Principal;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;

const BACKEND: &str = "remote";

const OTHER_BACKEND: &str =
    "`backend`: no gateway is made in a cloud: expected `remote`, one that `sluice gateway` runs";
const LOAD_BALANCER: &str = "`load_balancer`: there is none before a gateway of ours";
const CLOUD_CERTIFICATE: &str = "`certificate`: `acm` and `gcp-cm` are a cloud's: expected \
     `lets-encrypt` or null; what a gateway shows is said by its --acme or --certificate";

fn body(shared: &Shared, project: &str, gateway: &ListedGateway, is_default: bool) -> Value {
    let ListedGateway { name, address, domain, .. } = gateway;
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let domain = Some(domain).filter(|domain| !domain.is_empty());
    json!({
        "id": uuid("gateway", name),
        "name": name,
        "project_name": project,
        "configuration": {
            "type": "gateway", "name": name, "default": is_default, "backend": BACKEND,
            "region": host, "domain": domain, "public_ip": true, "certificate": null,
        },
        "created_at": Time::from(shared.setup.started),
        "status": "running",
        "status_message": null,
        "hostname": host,
        "wildcard_domain": domain,
        "default": is_default,
        "replicas": [],
        "backend": BACKEND,
        "region": host,
        "ip_address": host,
        "instance_id": name,
    })
}

fn all(shared: &Shared, project: &str) -> Vec<Value> {
    let listed = shared.volatile.gateways.list(Instant::now());
    let default = shared.read().default_gateway(project).map(str::to_owned);
    let is_default = |at: usize, name: &str| match &default {
        Some(default) => default == name,
        None => at == 0,
    };
    let each = listed.iter().enumerate();
    each.map(|(at, one)| body(shared, project, one, is_default(at, &one.name))).collect()
}

fn named(shared: &Shared, project: &str, name: &str) -> Option<Value> {
    all(shared, project).into_iter().find(|gateway| gateway["name"] == name)
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Path(project): Path<String>,
) -> Json<Vec<Value>> {
    Json(all(&shared, &project))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Path(project): Path<String>,
    Json(wanted): Json<ByName>,
) -> ApiResult<Value> {
    let found = named(&shared, &project, &wanted.name);
    Ok(Json(found.ok_or_else(|| Refused::not_found("Gateway not found"))?))
}

/// The gateway that a configuration means.
fn meant(
    shared: &Shared,
    project: &str,
    configuration: &Value,
    place: &[&str],
) -> Result<Value, Refused> {
    if let Err(fault) = from_json(configuration, None) {
        return Err(ApiError::invalid_body(place, fault.to_string()).into());
    }
    if configuration["type"] != "gateway" {
        return Err(Refused::because("expected a configuration of the type gateway"));
    }
    let certificate = &configuration["certificate"];
    let certificate = certificate["type"].as_str().or(certificate.as_str());
    let refusals = [
        (configuration["backend"] != BACKEND, OTHER_BACKEND),
        (!configuration["load_balancer"].is_null(), LOAD_BALANCER),
        (matches!(certificate, Some("acm" | "gcp-cm")), CLOUD_CERTIFICATE),
    ];
    if let Some((_, why)) = refusals.into_iter().find(|(is_so, _)| *is_so) {
        return Err(Refused::because(why));
    }
    let name = configuration["name"].as_str().unwrap_or_default();
    let found = named(shared, project, name).ok_or_else(|| {
        Refused::because(format!(
            "gateway {name:?} does not run: `sluice gateway --name NAME --server URL --token-file FILE` starts one"
        ))
    })?;
    check_domain(name, configuration["domain"].as_str(), found["wildcard_domain"].as_str())?;
    Ok(found)
}

/// Refuses a configuration that wants another domain than the site's, by which all gateways find services.
fn check_domain(name: &str, wanted: Option<&str>, own: Option<&str>) -> Result<(), Refused> {
    let wanted = wanted.map(|wanted| wanted.trim_start_matches("*.").to_ascii_lowercase());
    // The site's says a port where that is another than HTTPS has.
    let host = |domain: &str| domain.rsplit_once(':').map_or(domain, |(host, _)| host).to_owned();
    match (wanted, own) {
        (Some(wanted), Some(own)) if wanted != own && wanted != host(own) => {
            Err(Refused::because(format!(
                "`domain` {wanted:?}: gateway {name} answers below {own}, the `domain` of [proxy] in sluice.toml: \
                 expected that, or none"
            )))
        }
        (Some(wanted), None) => Err(Refused::because(format!(
            "`domain` {wanted:?}: the site has none: `domain` of [proxy] in sluice.toml says it for all gateways"
        ))),
        _ => Ok(()),
    }
}

/// `gateways/get_plan`: the configuration is at `spec`.
pub async fn plan(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<Value>,
) -> ApiResult<Value> {
    let place = &["spec", "configuration"];
    let found = meant(&shared, &project, &wanted["spec"]["configuration"], place)?;
    Ok(Json(json!({
        "project_name": project,
        "user": by.name,
        "spec": wanted["spec"],
        "effective_spec": wanted["spec"],
        "current_resource": found,
        "action": "update",
    })))
}

/// `gateways/apply`: the configuration is at `plan.spec`.
pub async fn apply(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<Value>,
) -> ApiResult<Value> {
    let place = &["plan", "spec", "configuration"];
    set(&shared, by, project, &wanted["plan"]["spec"]["configuration"], place).await
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<CreateVolume>,
) -> ApiResult<Value> {
    set(&shared, by, project, &wanted.configuration, &["configuration"]).await
}

/// The gateway that a configuration means, which is the project's default one from now on where it says so.
async fn set(
    shared: &Shared,
    by: Principal,
    project: String,
    configuration: &Value,
    place: &[&str],
) -> ApiResult<Value> {
    let found = meant(shared, &project, configuration, place)?;
    if configuration["default"] != true {
        return Ok(Json(found));
    }
    let name = configuration["name"].as_str().map(str::to_owned);
    gateways::set_default(shared, by, project.clone(), name).await?;
    Ok(Json(meant(shared, &project, configuration, place)?))
}

/// One that runs is stopped where it runs; what does not run need not be deleted.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Json(wanted): Json<DeleteVolumes>,
) -> ApiResult<()> {
    // Looked up once, however many are named.
    let running = shared.volatile.gateways.list(Instant::now());
    let is_running = |name: &&String| running.iter().any(|one| one.name == **name);
    match wanted.names.iter().find(is_running) {
        Some(name) => {
            let text = format!("gateway {name} runs: stop its process, and it is gone");
            Err(Refused::because(text))
        }
        None => Ok(Json(())),
    }
}

/// Makes a gateway the project's default one.
pub async fn set_default(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<ByName>,
) -> ApiResult<()> {
    gateways::set_default(&shared, by, project, Some(wanted.name)).await?;
    Ok(Json(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::{TestServer, user};
    use cluster::Command;
    use wire::gateway::GatewayReport;

    #[tokio::test(flavor = "multi_thread")]
    async fn configuration_means_a_gateway_that_runs_and_what_is_a_clouds_is_refused_by_name() {
        let server = TestServer::start().await;
        let report = GatewayReport {
            name: "edge".into(),
            address: "10.0.0.7:443".into(),
            domain: "apps.example".into(),
            ..GatewayReport::default()
        };
        let told = server.shared.volatile.gateways.report(report, Instant::now());
        assert!(told.is_ok());
        let listed = all(&server.shared, "main");
        let [edge] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!(edge["hostname"], "10.0.0.7");
        assert_eq!(edge["wildcard_domain"], "apps.example");
        assert_eq!(edge["default"], true);
        let meant = |changes: Value| {
            let mut configuration =
                json!({"type": "gateway", "name": "edge", "backend": "remote", "region": "here"});
            for (key, value) in changes.as_object().expect("an object") {
                configuration[key] = value.clone();
            }
            meant(&server.shared, "main", &configuration, &["configuration"])
        };
        assert_eq!(meant(json!({})).ok().map(|found| found["name"].clone()), Some("edge".into()));
        assert!(meant(json!({"default": true})).is_ok());
        for domain in ["apps.example", "*.Apps.example"] {
            assert!(meant(json!({"domain": domain})).is_ok(), "{domain}");
        }
        assert!(check_domain("edge", Some("apps.example"), Some("apps.example:6823")).is_ok());
        assert!(check_domain("edge", Some("apps.example"), None).is_err());
        let mut config = (*server.shared.read().config).clone();
        config.proxy.default_gateway = Some("edge1".into());
        server.run(Command::Configure(Box::new(config))).await.expect("configured");
        for changes in [
            json!({"name": "other"}),
            json!({"backend": "aws"}),
            json!({"load_balancer": {"type": "alb"}}),
            json!({"certificate": {"type": "acm", "arn": "a"}}),
            json!({"certificate": {"type": "gcp-cm", "name": "a"}}),
            json!({"region": null}),
            json!({"domain": "other.example"}),
        ] {
            assert!(meant(changes.clone()).is_err(), "{changes}");
        }
        // The site has another default: this one is the project's alone once it is made so, by its administrators.
        let is_default = |project: &str| all(&server.shared, project)[0]["default"] == true;
        assert!(!is_default("main"));
        let configuration = json!({"type": "gateway", "name": "edge", "backend": "remote",
            "region": "here", "default": true});
        let apply = async |by: Principal| {
            set(&server.shared, by, "main".to_owned(), &configuration, &["configuration"]).await
        };
        assert!(apply(user()).await.is_err(), "he may not");
        let Ok(Json(applied)) = apply(server_principal()).await else { panic!("it is refused") };
        assert_eq!(applied["default"], true);
        assert!(is_default("main") && !is_default("other"));
        let unknown = gateways::set_default(
            &server.shared,
            server_principal(),
            "main".into(),
            Some("none".into()),
        );
        assert!(unknown.await.is_err(), "it does not run");
        assert!(is_default("main"));
    }
}
