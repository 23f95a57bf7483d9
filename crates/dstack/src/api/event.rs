//! Events, and the request of `events/list`.

use super::time::Time;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub id: String,
    pub message: String,
    pub recorded_at: Time,
    /// `None` for what the server did by itself.
    pub actor_user_id: Option<String>,
    pub actor_user: Option<String>,
    pub is_actor_user_deleted: Option<bool>,
    pub targets: Vec<EventTarget>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTarget {
    /// `run`, `job`, `instance`, `fleet`, `volume`, `secret`, `project`, `user`
    #[serde(rename = "type")]
    pub kind: String,
    pub project_id: Option<String>,
    pub project_name: Option<String>,
    pub is_project_deleted: Option<bool>,
    pub id: String,
    pub name: String,
}

/// `events/list`: each filter is a list of ids, or nothing.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ListEvents {
    pub target_projects: Option<Vec<String>>,
    pub target_users: Option<Vec<String>>,
    pub target_fleets: Option<Vec<String>>,
    pub target_instances: Option<Vec<String>>,
    pub target_runs: Option<Vec<String>>,
    pub target_jobs: Option<Vec<String>>,
    pub target_volumes: Option<Vec<String>>,
    pub target_gateways: Option<Vec<String>>,
    pub target_secrets: Option<Vec<String>>,
    pub within_projects: Option<Vec<String>>,
    pub within_fleets: Option<Vec<String>>,
    pub within_runs: Option<Vec<String>>,
    pub include_target_types: Option<Vec<String>>,
    pub actors: Option<Vec<Option<String>>>,
    pub prev_recorded_at: Option<Time>,
    pub prev_id: Option<String>,
    pub limit: Option<u32>,
    pub ascending: bool,
}
