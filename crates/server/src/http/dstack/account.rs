//! Users and projects.

use super::error::{ApiError, ApiResult};
use super::{check_project, time, uuid};
use crate::shared::Shared;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use serde_json::{Value, json};
use std::sync::Arc;

/// A user as the client knows one.
fn user(shared: &Shared, name: &str, is_admin: bool) -> Value {
    json!({
        "id": uuid("user", name),
        "username": name,
        "created_at": time(shared.setup.started),
        "global_role": if is_admin { "admin" } else { "user" },
        "email": null,
        "active": true,
        "permissions": {"can_create_projects": is_admin},
        "ssh_public_key": null,
    })
}

/// No token and no private key are sent back: the client has the one, and nothing is reached with the other.
pub async fn my_user(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult {
    let mut body = user(&shared, &by.name, by.is_admin());
    body["creds"] = json!({"token": ""});
    body["ssh_private_key"] = Value::Null;
    Ok(Json(body))
}

pub async fn users(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult {
    Ok(Json(json!([user(&shared, &by.name, by.is_admin())])))
}

fn project_body(shared: &Shared, by: &Principal) -> Value {
    let user = user(shared, &by.name, by.is_admin());
    let role = if by.is_admin() { "admin" } else { "user" };
    json!({
        "project_id": uuid("project", MAIN_PROJECT),
        "project_name": MAIN_PROJECT,
        "owner": user,
        "created_at": time(shared.setup.started),
        "backends": [],
        "members": [{
            "user": user,
            "project_role": role,
            "permissions": {"can_manage_ssh_fleets": by.is_admin(), "can_manage_secrets": by.is_admin()},
        }],
        "is_public": false,
        "templates_repo": null,
    })
}

pub async fn project(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult {
    check_project(&project)?;
    Ok(Json(project_body(&shared, &by)))
}

pub async fn projects(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult {
    Ok(Json(json!([project_body(&shared, &by)])))
}

/// Nothing is kept of a repository here; one without files is all that every run has.
pub async fn init_repo(Path(project): Path<String>, Json(body): Json<Value>) -> ApiResult {
    check_project(&project)?;
    match body["repo_info"]["repo_type"].as_str() {
        Some("virtual") | None => Ok(Json(Value::Null)),
        Some(_) => Err(ApiError::later("`repos`")),
    }
}
