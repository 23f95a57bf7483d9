//! Projects, users and the server itself.

use super::time::Time;
use crate::status::{GlobalRole, ProjectRole};
use model::secret::SecretValue;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Project {
    pub project_id: String,
    pub project_name: String,
    pub owner: User,
    pub created_at: Option<Time>,
    pub backends: Vec<BackendInfo>,
    pub members: Vec<Member>,
    pub is_public: bool,
    pub templates_repo: Option<String>,
}

/// A source of machines of a project, without its credentials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BackendInfo {
    pub name: String,
    pub config: Value,
}

/// `backends/create_yaml`, `backends/update_yaml`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct BackendYaml {
    pub config_yaml: SecretValue,
}

/// What `backends/{name}/get_yaml` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownBackendYaml {
    pub name: String,
    pub config_yaml: String,
}

/// `backends/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteBackends {
    pub backends_names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub user: User,
    pub project_role: ProjectRole,
    pub permissions: MemberPermissions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberPermissions {
    pub can_manage_ssh_fleets: bool,
    pub can_manage_secrets: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub id: String,
    pub username: String,
    pub created_at: Option<Time>,
    pub global_role: GlobalRole,
    pub email: Option<String>,
    pub active: bool,
    pub permissions: UserPermissions,
    pub ssh_public_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserPermissions {
    pub can_create_projects: bool,
}

/// `users/get_my_user`: for the user alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserWithCreds {
    #[serde(flatten)]
    pub user: User,
    pub creds: TokenCreds,
    pub ssh_private_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenCreds {
    pub token: String,
}

/// `server/get_info`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    pub server_version: Option<String>,
}

/// `users/create`, `users/update`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CreateUser {
    pub username: String,
    pub global_role: GlobalRole,
    #[serde(default)]
    pub email: Option<String>,
    #[serde(default)]
    pub active: Option<bool>,
}

/// `users/get_user`, `users/refresh_token`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ByUsername {
    pub username: String,
}

/// `users/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteUsers {
    pub users: Vec<String>,
}

/// `projects/create`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct CreateProject {
    pub project_name: String,
    pub is_public: bool,
}

/// `projects/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteProjects {
    pub projects_names: Vec<String>,
}

/// `projects/{name}/set_members`, `add_members`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct SetMembers {
    pub members: Vec<MemberSetting>,
}

/// `projects/{name}/remove_members`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct RemoveMembers {
    pub usernames: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MemberSetting {
    pub username: String,
    pub project_role: ProjectRole,
}
