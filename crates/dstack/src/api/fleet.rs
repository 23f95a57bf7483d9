//! Fleets: answers, and the requests of `fleets/`.

use super::instance::{Instance, Offer};
use super::time::Time;
use crate::status::{ApplyAction, FleetStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    pub id: String,
    pub name: String,
    pub project_name: String,
    pub spec: FleetSpec,
    pub created_at: Time,
    pub status: FleetStatus,
    pub status_message: Option<String>,
    pub instances: Vec<Instance>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetSpec {
    pub configuration: Value,
    pub configuration_path: Option<String>,
    pub profile: Option<Value>,
    pub autocreated: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetPlan {
    pub project_name: String,
    pub user: String,
    pub spec: FleetSpec,
    pub effective_spec: Option<FleetSpec>,
    pub current_resource: Option<Fleet>,
    pub offers: Vec<Offer>,
    pub total_offers: u32,
    pub max_offer_price: Option<f64>,
    pub action: Option<ApplyAction>,
}

/// `fleets/get`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct GetFleet {
    pub name: Option<String>,
    pub id: Option<String>,
}

/// `fleets/get_plan`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct GetFleetPlan {
    pub spec: FleetSpec,
}

/// `fleets/apply`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ApplyFleetPlan {
    pub plan: ApplyFleetPlanInput,
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ApplyFleetPlanInput {
    pub spec: FleetSpec,
    pub current_resource: Option<Value>,
}

/// `fleets/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteFleets {
    pub names: Vec<String>,
}

/// `fleets/delete_instances`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteFleetInstances {
    pub name: String,
    pub instance_nums: Vec<u32>,
}
