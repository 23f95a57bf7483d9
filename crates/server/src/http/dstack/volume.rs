//! Volumes, by the same calls as `sluice volume`. dstack's client knows volumes of clouds alone: of a folder it is shown as the
//! backend one whose volumes have a place and no machine of their own, and as the region the node or the shared folder.

use super::answer::{ApiResult, Json, Refused};
use crate::http::calls;
use crate::shared::Shared;
use crate::show::dstack_id::volume_id;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::error::ApiError;
use dstack::api::volume::{ByName, CreateVolume, DeleteVolumes, Volume};
use dstack::configuration::{Configuration, from_json};
use dstack::status::VolumeStatus;
use model::amount::Bytes;
use model::cloud_volume::CloudPlace;
use model::principal::Principal;
use model::reason::Refusal;
use model::volume::{VolumePlace, VolumeState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::{Answer, Call};
use wire::volume::{DiskView, VolumeView};

const BACKEND: &str = "kubernetes";
/// The hours of a month, for which dstack's client shows a price.
const HOURS_PER_MONTH: f64 = 730.0;
/// Volumes that one call deletes.
const DELETED_MAX: usize = 100;

fn body(view: VolumeView) -> Volume {
    let configuration = configuration(&view);
    let disk = view.disk.as_deref().cloned().unwrap_or_default();
    let provisioning_data = provisioning(&view, &disk);
    let (status, status_message) = match view.state {
        VolumeState::Creating if view.disk.is_some() => (VolumeStatus::Provisioning, None),
        VolumeState::Creating => (VolumeStatus::Submitted, None),
        VolumeState::Ready => (VolumeStatus::Active, None),
        VolumeState::Deleting => (VolumeStatus::Failed, Some("it is being deleted".to_owned())),
        VolumeState::Failed => (VolumeStatus::Failed, disk.failure.clone()),
    };
    let is_external = matches!(&view.place, VolumePlace::Cloud(place) if place.existing.is_some());
    let attachments = match &disk.node {
        Some(node) => vec![attachment(node)],
        None => view.jobs.iter().map(|job| attachment(&format!("job {job}"))).collect(),
    };
    Volume {
        id: volume_id(&view.project, &view.name, view.created),
        user: view.owner,
        project_name: view.project,
        configuration,
        external: is_external,
        created_at: view.created.into(),
        last_processed_at: view.created.into(),
        status,
        status_message,
        deleted: false,
        deleted_at: None,
        provisioning_data,
        volume_id: if view.disk.is_some() { disk.id } else { Some(view.name.clone()) },
        cost: disk.cost.dollars(),
        attachments: Some(attachments),
        attachment_data: None,
        name: view.name,
    }
}

/// The configuration as dstack's client reads it. A size is in gigabytes, as the client sends it.
fn configuration(view: &VolumeView) -> Value {
    let size = view.size.map(|size| size.format_dstack());
    match &view.place {
        VolumePlace::Node(place) | VolumePlace::Shared(place) => json!({
            "type": "volume", "backend": BACKEND, "name": view.name, "region": place, "size": size,
        }),
        VolumePlace::Cloud(place) if place.claim.is_some() => claim_configuration(view, place),
        VolumePlace::Cloud(place) => json!({
            "type": "volume",
            "backend": place.backend,
            "name": view.name,
            "auto_cleanup_duration": place.cleanup_s,
            "size": view.size.map(gigabytes),
            "volume_id": place.existing,
            "region": place.region,
            "availability_zone": place.zone,
        }),
    }
}

fn claim_configuration(view: &VolumeView, place: &CloudPlace) -> Value {
    let terms = place.claim.as_deref().cloned().unwrap_or_default();
    json!({
        "type": "volume",
        "backend": place.backend,
        "name": view.name,
        "auto_cleanup_duration": place.cleanup_s,
        "size": view.size.map(gigabytes),
        "region": Some(&place.region).filter(|region| !region.is_empty()),
        "claim_name": place.existing,
        "storage_class_name": terms.storage_class_name,
        "access_modes": terms.access_modes,
        "read_only": terms.read_only,
    })
}

fn gigabytes(size: Bytes) -> f64 {
    size.0 as f64 / Bytes::from_gib(1).0 as f64
}

/// What the cloud has told of the disk, where there is one.
fn provisioning(view: &VolumeView, disk: &DiskView) -> Option<Value> {
    let VolumePlace::Cloud(place) = &view.place else { return None };
    Some(json!({
        "backend": place.backend,
        "volume_id": disk.id.as_ref()?,
        "size_gb": view.size.map_or(0, |size| size.0.div_ceil(Bytes::from_gib(1).0)),
        "availability_zone": place.zone,
        "price": disk.price.map(|price| price.dollars() * HOURS_PER_MONTH),
        "attachable": place.claim.is_none(),
        "detachable": place.claim.is_none(),
        "backend_data": null,
    }))
}

fn attachment(name: &str) -> Value {
    json!({"instance": {"name": name, "fleet_name": name, "instance_num": 0}})
}

/// `volumes/create`: the volume as it is now; its source makes the disk after the answer.
pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<CreateVolume>,
) -> ApiResult<Volume> {
    let loaded = from_json(&wanted.configuration, None)
        .map_err(|fault| ApiError::invalid_body(&["configuration"], fault.to_string()))?;
    let applicable = loaded.applicable().map_err(|fault| Refused::because(fault.to_string()))?;
    let Configuration::Volume(volume) = applicable else {
        return Err(Refused::because("expected `type: volume`"));
    };
    let name = volume.name.clone().ok_or_else(|| Refused::because("a volume needs a `name`"))?;
    let (place, size) = (volume.place(), volume.size);
    let call = Call::CreateVolume { project: project.clone(), name: name.clone(), place, size };
    calls::answer(&shared, by.clone(), call).await?;
    let all = of_project(&shared, &by, project).await?;
    let found = all.into_iter().find(|volume| volume.name == name);
    found.map(Json).ok_or_else(|| Refused::not_found("Resource not found"))
}

async fn of_project(
    shared: &Arc<Shared>,
    by: &Principal,
    project: String,
) -> Result<Vec<Volume>, Refusal> {
    match calls::answer(shared, by.clone(), Call::Volumes { project }).await? {
        Answer::Volumes(views) => Ok(views.into_iter().map(body).collect()),
        other => Err(Refusal::Other(format!("volumes were answered with {other:?}"))),
    }
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult<Vec<Volume>> {
    Ok(Json(of_project(&shared, &by, project).await?))
}

/// Which volumes of all projects are asked for. All come on the first page.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListVolumes {
    project_name: Option<String>,
    prev_created_at: Option<Value>,
}

pub async fn list_all(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<ListVolumes>,
) -> ApiResult<Vec<Volume>> {
    if wanted.prev_created_at.is_some() {
        return Ok(Json(Vec::new()));
    }
    let Answer::Projects(projects) = calls::answer(&shared, by.clone(), Call::Projects).await?
    else {
        return Err(Refused::because("the projects were not listed"));
    };
    let is_wanted = |name: &String| wanted.project_name.as_ref().is_none_or(|one| one == name);
    let mut all = Vec::new();
    for project in projects.into_iter().map(|project| project.name).filter(is_wanted) {
        all.extend(of_project(&shared, &by, project).await?);
    }
    Ok(Json(all))
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(ByName { name }): Json<ByName>,
) -> ApiResult<Volume> {
    let all = of_project(&shared, &by, project).await?;
    let found = all.into_iter().find(|volume| volume.name == name);
    found.map(Json).ok_or_else(|| Refused::not_found("Resource not found"))
}

/// What is not there need not be deleted.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(DeleteVolumes { names }): Json<DeleteVolumes>,
) -> ApiResult<()> {
    if names.len() > DELETED_MAX {
        return Err(Refused::because("expected at most 100 names"));
    }
    for name in names {
        let call = Call::DeleteVolume { project: project.clone(), name };
        match calls::answer(&shared, by.clone(), call).await {
            Ok(_) | Err(Refusal::UnknownThing { .. }) => {}
            Err(why) => return Err(why.into()),
        }
    }
    Ok(Json(()))
}
