//! Volumes, by the same calls as `sluice volume`. dstack's client knows volumes of clouds alone: what it is shown as the backend
//! is one whose volumes have a place and no machine of their own, and the region is the node or the shared folder.

use super::answer::{ApiResult, Json, Refused};
use crate::http::calls;
use crate::shared::Shared;
use crate::show::dstack_id::volume_id;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::volume::{ByName, DeleteVolumes, Volume};
use dstack::status::VolumeStatus;
use model::principal::Principal;
use model::reason::Refusal;
use model::volume::{VolumePlace, VolumeState};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::{Answer, Call};
use wire::volume::VolumeView;

const BACKEND: &str = "kubernetes";
/// Volumes that one call deletes.
const DELETED_MAX: usize = 100;

fn body(view: VolumeView) -> Volume {
    let region = match &view.place {
        VolumePlace::Node(place) | VolumePlace::Shared(place) => place.clone(),
    };
    let size = view.size.map(|size| size.format_dstack());
    let configuration = json!({
        "type": "volume", "backend": BACKEND, "name": view.name, "region": region, "size": size,
    });
    let (status, status_message) = match view.state {
        VolumeState::Creating => (VolumeStatus::Submitted, None),
        VolumeState::Ready => (VolumeStatus::Active, None),
        VolumeState::Deleting => (VolumeStatus::Failed, Some("it is being deleted".to_owned())),
    };
    Volume {
        id: volume_id(&view.project, &view.name, view.created),
        user: view.owner,
        project_name: view.project,
        configuration,
        external: false,
        created_at: view.created.into(),
        last_processed_at: view.created.into(),
        status,
        status_message,
        deleted: false,
        deleted_at: None,
        volume_id: Some(view.name.clone()),
        provisioning_data: None,
        cost: 0.0,
        attachments: Some(view.jobs.iter().map(|job| attachment(*job)).collect()),
        attachment_data: None,
        name: view.name,
    }
}

fn attachment(job: model::id::JobId) -> Value {
    json!({"instance": {"name": format!("job {job}"), "fleet_name": format!("job {job}"), "instance_num": 0}})
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
