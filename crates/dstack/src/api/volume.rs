//! Volumes: answers, and the requests of `volumes/`.

use super::time::Time;
use crate::status::VolumeStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    pub id: String,
    pub name: String,
    pub user: String,
    pub project_name: String,
    pub configuration: Value,
    pub external: bool,
    pub created_at: Time,
    pub last_processed_at: Time,
    pub status: VolumeStatus,
    pub status_message: Option<String>,
    pub deleted: bool,
    pub deleted_at: Option<Time>,
    pub volume_id: Option<String>,
    pub provisioning_data: Option<Value>,
    pub cost: f64,
    pub attachments: Option<Vec<Value>>,
    pub attachment_data: Option<Value>,
}

/// `volumes/get`, `secrets/get`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct ByName {
    pub name: String,
}

/// `volumes/create`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct CreateVolume {
    pub configuration: Value,
}

/// `volumes/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteVolumes {
    pub names: Vec<String>,
}
