//! Instances and offers of them.

use super::time::Time;
use crate::status::{HealthStatus, InstanceStatus, OfferStatus};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// dstack's name for machines that are there already.
pub const BACKEND: &str = "remote";
/// The only region of that backend.
pub const REGION: &str = "remote";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub backend: String,
    pub instance: InstanceType,
    pub region: String,
    pub price: f64,
    pub backend_data: Value,
    pub availability: OfferStatus,
    pub availability_zones: Option<Vec<String>>,
    pub instance_runtime: String,
    pub blocks: u32,
    pub total_blocks: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceType {
    pub name: String,
    pub resources: Resources,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Resources {
    pub cpus: u32,
    pub memory_mib: u64,
    /// One for each device.
    pub gpus: Vec<Gpu>,
    pub spot: bool,
    pub disk: Option<Disk>,
    pub cpu_arch: Option<String>,
    pub description: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub name: String,
    pub memory_mib: u64,
    pub vendor: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub size_mib: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDriver {
    pub vendor: String,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    pub id: String,
    pub project_name: String,
    pub backend: Option<String>,
    pub instance_type: Option<InstanceType>,
    pub name: String,
    pub fleet_id: Option<String>,
    pub fleet_name: Option<String>,
    pub instance_num: u32,
    pub job_name: Option<String>,
    pub hostname: Option<String>,
    pub status: InstanceStatus,
    pub unreachable: bool,
    pub health_status: HealthStatus,
    pub termination_reason: Option<String>,
    pub termination_reason_message: Option<String>,
    pub created: Time,
    pub finished_at: Option<Time>,
    pub region: Option<String>,
    pub availability_zone: Option<String>,
    pub price: Option<f64>,
    pub total_blocks: Option<u32>,
    pub busy_blocks: u32,
    pub gpu_driver: Option<GpuDriver>,
}

impl Offer {
    /// An offer of one of the cluster's own nodes, or of some of its blocks.
    pub fn own(
        instance: InstanceType,
        price: f64,
        availability: OfferStatus,
        (blocks, total_blocks): (u32, u32),
    ) -> Self {
        Self {
            backend: BACKEND.into(),
            instance,
            region: REGION.into(),
            price,
            backend_data: Value::Object(serde_json::Map::new()),
            availability,
            availability_zones: None,
            instance_runtime: "shim".into(),
            blocks,
            total_blocks,
        }
    }
}
