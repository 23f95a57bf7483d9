//! Projects: the main one, which is everybody's, and every account.

use super::answer::{ApiResult, Json, Refused};
use super::{backend, user};
use crate::shared::Shared;
use crate::show::dstack_id::uuid;
use crate::show::projects;
use axum::Extension;
use axum::extract::{Path, State};
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::rights::{Rights, is_project};
use dstack::api::error::ApiError;
use dstack::api::project::{
    CreateProject, DeleteProjects, Member, MemberPermissions, Project, RemoveMembers, SetMembers,
};
use dstack::status;
use model::fleet::MAIN_PROJECT;
use model::principal::{Principal, Role};
use model::project::{Members, MembersChange, ProjectRole};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::project::ProjectView;

/// The part of a path that names a project.
pub const PARAMETER: &str = "project";

/// Refuses whoever is no member, and what is no project, as dstack does.
pub fn check_member(shared: &Shared, by: &Principal, name: &str) -> Result<(), Refused> {
    let state = shared.read();
    if !is_project(&state, name) {
        return Err(ApiError::no_such_project().into());
    }
    match Rights::of(&state, by).project_role(name) {
        Some(_) => Ok(()),
        None => Err(ApiError::forbidden().into()),
    }
}

/// The account that runs of a project are charged to; the main project has none of its own.
pub fn account_of(project: &str) -> Option<String> {
    (project != MAIN_PROJECT).then(|| project.to_owned())
}

fn role_word(role: ProjectRole) -> status::ProjectRole {
    match role {
        ProjectRole::User => status::ProjectRole::User,
        ProjectRole::Manager => status::ProjectRole::Manager,
        ProjectRole::Admin => status::ProjectRole::Admin,
    }
}

fn role(word: status::ProjectRole) -> ProjectRole {
    match word {
        status::ProjectRole::User => ProjectRole::User,
        status::ProjectRole::Manager => ProjectRole::Manager,
        status::ProjectRole::Admin => ProjectRole::Admin,
    }
}

fn body(shared: &Shared, by: &Principal, view: ProjectView) -> Project {
    let own = user::own_body(shared, by);
    let state = shared.read();
    let user = |name: &str| {
        let role = user::role_by_name(&state, name);
        if name == by.name { own.clone() } else { user::body(shared, &state, name, role) }
    };
    // As `Act::ManageSecrets` says: administrators, and a project's admins who are not operators.
    let manages_secrets = |name: &str, role: ProjectRole| {
        if name == by.name {
            return authorise(&state, by, Act::ManageSecrets(&view.name)).is_ok();
        }
        match user::role_by_name(&state, name) {
            Role::Admin => true,
            Role::Operator => false,
            _ => role >= ProjectRole::Admin,
        }
    };
    let manages_fleets = |name: &str| {
        if name == by.name {
            authorise(&state, by, Act::ManageFleets).is_ok()
        } else {
            user::role_by_name(&state, name) == Role::Admin
        }
    };
    let member = |name: &str, role: ProjectRole| Member {
        user: user(name),
        project_role: role_word(role),
        permissions: MemberPermissions {
            can_manage_ssh_fleets: manages_fleets(name),
            can_manage_secrets: manages_secrets(name, role),
        },
    };
    let mut members: Vec<Member> =
        view.members.iter().map(|(name, role)| member(name, *role)).collect();
    let role = Rights::of(&state, by).project_role(&view.name);
    // Who asks is a member here, by an association or by a role in the whole cluster.
    if !view.members.contains_key(&by.name)
        && let Some(role) = role
    {
        members.push(member(&by.name, role));
    }
    let backends = backend::listed(&state, &view.name);
    Project {
        project_id: uuid("project", &view.name),
        project_name: view.name,
        owner: user(view.owner.as_deref().unwrap_or(&by.name)),
        created_at: Some(view.created.unwrap_or(shared.setup.started).into()),
        backends,
        members,
        is_public: false,
        templates_repo: None,
    }
}

pub async fn get(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
) -> ApiResult<Project> {
    let view = projects::view(&shared.read(), &by, &project);
    Ok(Json(body(&shared, &by, view)))
}

pub async fn list(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
) -> ApiResult<Vec<Project>> {
    let own = projects::projects(&shared, &by).into_iter();
    Ok(Json(own.map(|view| body(&shared, &by, view)).collect()))
}

pub async fn create(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<CreateProject>,
) -> ApiResult<Project> {
    if wanted.is_public {
        return Err(Refused::because("`is_public`: every project here is for its members"));
    }
    let name = wanted.project_name;
    shared.writer.run(Command::CreateProject { name: name.clone() }, by.clone()).await?;
    get(State(shared), Extension(by), Path(name)).await
}

/// All of them are looked up before the first is deleted.
pub async fn delete(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Json(wanted): Json<DeleteProjects>,
) -> ApiResult<()> {
    // Each once, however often it is named.
    let names: BTreeSet<String> = wanted.projects_names.into_iter().collect();
    for name in &names {
        check_member(&shared, &by, name)?;
    }
    for name in names {
        shared.writer.run(Command::RemoveProject { name }, by.clone()).await?;
    }
    Ok(Json(()))
}

/// Nothing of a project can be changed but its members.
pub async fn update() -> Refused {
    Refused::because("a project has nothing to change but its members")
}

pub async fn set_members(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<SetMembers>,
) -> ApiResult<Project> {
    change_members(shared, by, project, members(&wanted), MembersChange::Replace).await
}

pub async fn add_members(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<SetMembers>,
) -> ApiResult<Project> {
    change_members(shared, by, project, members(&wanted), MembersChange::Add).await
}

pub async fn remove_members(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<RemoveMembers>,
) -> ApiResult<Project> {
    let gone = wanted.usernames.into_iter().map(|name| (name, ProjectRole::User)).collect();
    change_members(shared, by, project, gone, MembersChange::Remove).await
}

fn members(wanted: &SetMembers) -> Members {
    let each = wanted.members.iter();
    each.map(|member| (member.username.clone(), role(member.project_role))).collect()
}

async fn change_members(
    shared: Arc<Shared>,
    by: Principal,
    project: String,
    members: Members,
    change: MembersChange,
) -> ApiResult<Project> {
    let command = Command::SetMembers { project: project.clone(), members, change };
    shared.writer.run(command, by.clone()).await?;
    get(State(shared), Extension(by), Path(project)).await
}
