//! Fleets over SSH by dstack's routes: planned, applied, deleted, by the same calls as `sluice apply` and `sluice fleet`.

use super::answer::{ApiResult, Json, Refused};
use super::fleet::Shown;
use crate::fleet::request::without_keys;
use crate::http::calls;
use crate::shared::Shared;
use axum::Extension;
use axum::extract::{Path, State};
use cluster::authorise::{Act, authorise};
use dstack::api::error::{ApiError, Code};
use dstack::api::fleet::{
    ApplyFleetPlan, DeleteFleetInstances, DeleteFleets, Fleet, FleetPlan, FleetSpec, GetFleetPlan,
};
use dstack::configuration::{default_profile, from_json};
use dstack::status::ApplyAction;
use model::principal::Principal;
use serde_json::Value;
use std::sync::Arc;
use wire::client::Call;
use wire::fleet::FleetConfiguration;

const CONFIGURED: &str = "fleets are the partitions of slurm.conf: take it out there";

/// The configuration in dstack's own form, if it can be applied; where it is not, as dstack's client expects to hear it.
fn checked(configuration: &Value, place: &[&str]) -> Result<Value, Refused> {
    let loaded = from_json(configuration, None)
        .map_err(|fault| ApiError::invalid_body(place, fault.to_string()))?;
    match loaded.applicable() {
        Err(fault) => Err(ApiError::refused(Code::BackendNotAvailable, fault.to_string()).into()),
        Ok(_) => Ok(loaded.value.to_json()),
    }
}

/// `fleets/get_plan`
pub async fn plan(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<GetFleetPlan>,
) -> ApiResult<FleetPlan> {
    let configuration = checked(&wanted.spec.configuration, &["spec", "configuration"])?;
    let shown = Shown::to(&shared, by.clone()).await?;
    let name = configuration["name"].as_str();
    let current = shown.over_ssh.iter();
    let current =
        current.filter(|fleet| fleet.project == project).find(|fleet| Some(&*fleet.name) == name);
    let current = current.map(|fleet| shown.over_ssh(&shared, fleet));
    // The client sends back what it got: the keys stay in it.
    let spec = FleetSpec { configuration: configuration.clone(), ..wanted.spec.clone() };
    let action = if current.is_some() { ApplyAction::Update } else { ApplyAction::Create };
    Ok(Json(FleetPlan {
        project_name: project,
        user: by.name,
        effective_spec: Some(FleetSpec {
            configuration: without_keys(configuration),
            profile: spec.profile.clone().or_else(|| Some(default_profile())),
            ..spec.clone()
        }),
        spec,
        current_resource: current,
        offers: Vec::new(),
        total_offers: 0,
        max_offer_price: None,
        action: Some(action),
    }))
}

/// `fleets/apply`
pub async fn apply(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<ApplyFleetPlan>,
) -> ApiResult<Fleet> {
    authorise(&shared.read(), &by, Act::ManageFleets)?;
    let place = &["plan", "spec", "configuration"];
    let configuration = checked(&wanted.plan.spec.configuration, place)?;
    let name = configuration["name"].as_str().unwrap_or_default().to_owned();
    let configuration = FleetConfiguration(configuration);
    let call = Call::ApplyFleet { project: project.clone(), configuration };
    calls::answer(&shared, by.clone(), call).await?;
    let shown = Shown::to(&shared, by).await?;
    let mut own = shown.over_ssh.iter().filter(|fleet| fleet.project == project);
    let made = own.find(|fleet| fleet.name == name);
    let made = made.ok_or_else(|| Refused::because("the fleet was deleted meanwhile"))?;
    Ok(Json(shown.over_ssh(&shared, made)))
}

/// `fleets/delete`. A fleet that is not there need not be deleted; all of them are looked up before the first is.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<DeleteFleets>,
) -> ApiResult<()> {
    authorise(&shared.read(), &by, Act::ManageFleets)?;
    let shown = Shown::to(&shared, by.clone()).await?;
    let is_configured = |name: &&String| shown.configured().any(|known| known == **name);
    if let Some(name) = wanted.names.iter().find(is_configured) {
        return Err(Refused::because(format!("fleet {name}: {CONFIGURED}")));
    }
    let is_own = |name: &String| {
        shown.over_ssh.iter().any(|fleet| fleet.name == *name && fleet.project == project)
    };
    for name in wanted.names.into_iter().filter(is_own) {
        remove(&shared, &by, &project, name, None).await?;
    }
    Ok(Json(()))
}

/// `fleets/delete_instances`
pub async fn delete_instances(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<DeleteFleetInstances>,
) -> ApiResult<()> {
    authorise(&shared.read(), &by, Act::ManageFleets)?;
    let shown = Shown::to(&shared, by.clone()).await?;
    if shown.configured().any(|known| known == wanted.name) {
        return Err(Refused::because(format!("fleet {}: {CONFIGURED}", wanted.name)));
    }
    remove(&shared, &by, &project, wanted.name, Some(wanted.instance_nums)).await?;
    Ok(Json(()))
}

async fn remove(
    shared: &Arc<Shared>,
    by: &Principal,
    project: &str,
    name: String,
    numbers: Option<Vec<u32>>,
) -> Result<(), Refused> {
    let call = Call::RemoveFleetHosts { project: project.to_owned(), name, numbers };
    calls::answer(shared, by.clone(), call).await?;
    Ok(())
}
