//! Users and projects.

use super::answer::{ApiResult, Json, Refused};
use super::{check_project, uuid};
use crate::shared::Shared;
use axum::Extension;
use axum::extract::{Path, State};
use cluster::authorise::{Act, authorise};
use cluster::rights::role_of;
use dstack::api::project::{
    Member, MemberPermissions, Project, TokenCreds, User, UserPermissions, UserWithCreds,
};
use dstack::api::stored::InitRepo;
use dstack::status::{GlobalRole, ProjectRole};
use model::fleet::MAIN_PROJECT;
use model::principal::{Principal, Role};
use std::sync::Arc;

fn is_admin(shared: &Shared, by: &Principal) -> bool {
    role_of(&shared.read(), by) == Role::Admin
}

fn user(shared: &Shared, by: &Principal) -> User {
    User {
        id: uuid("user", &by.name),
        username: by.name.clone(),
        created_at: Some(shared.setup.started.into()),
        global_role: if is_admin(shared, by) { GlobalRole::Admin } else { GlobalRole::User },
        email: None,
        active: true,
        permissions: UserPermissions { can_create_projects: false },
        ssh_public_key: None,
    }
}

/// No token and no private key are sent back: the client has the one, and nothing is reached with the other.
pub async fn my_user(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<UserWithCreds> {
    let creds = TokenCreds { token: String::new() };
    Ok(Json(UserWithCreds { user: user(&shared, &by), creds, ssh_private_key: None }))
}

pub async fn users(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<User>> {
    Ok(Json(vec![user(&shared, &by)]))
}

fn may_manage_secrets(shared: &Shared, by: &Principal) -> bool {
    authorise(&shared.read(), by, Act::ManageSecrets(MAIN_PROJECT)).is_ok()
}

fn main_project(shared: &Shared, by: &Principal) -> Project {
    let user = user(shared, by);
    let permissions = MemberPermissions {
        can_manage_ssh_fleets: false,
        can_manage_secrets: may_manage_secrets(shared, by),
    };
    let project_role = if is_admin(shared, by) { ProjectRole::Admin } else { ProjectRole::User };
    Project {
        project_id: uuid("project", MAIN_PROJECT),
        project_name: MAIN_PROJECT.to_owned(),
        owner: user.clone(),
        created_at: Some(shared.setup.started.into()),
        backends: Vec::new(),
        members: vec![Member { user, project_role, permissions }],
        is_public: false,
        templates_repo: None,
    }
}

pub async fn project(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult<Project> {
    check_project(&project)?;
    Ok(Json(main_project(&shared, &by)))
}

pub async fn projects(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<Project>> {
    Ok(Json(vec![main_project(&shared, &by)]))
}

/// Nothing is kept of a repository: every run has the one without files.
pub async fn init_repo(Path(project): Path<String>, Json(repo): Json<InitRepo>) -> ApiResult<()> {
    check_project(&project)?;
    match repo.repo_info["repo_type"].as_str() {
        Some("virtual") | None => Ok(Json(())),
        Some(_) => Err(Refused::because("`repos`: repositories are not available yet")),
    }
}
