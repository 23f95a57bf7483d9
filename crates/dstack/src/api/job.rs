//! The jobs of a run: a job is one node's part, a submission one attempt at it.

use super::instance::{GpuDriver, InstanceType, Offer};
use super::time::Time;
use crate::status::JobStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub job_spec: JobSpec,
    /// The oldest first; the client looks at the last.
    pub job_submissions: Vec<JobSubmission>,
    pub job_connection_info: Option<JobConnectionInfo>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobSpec {
    pub replica_num: u32,
    /// The node's number in its run.
    pub job_num: u32,
    pub job_name: String,
    pub jobs_per_replica: u32,
    pub replica_group: String,
    pub app_specs: Vec<AppSpec>,
    pub user: Option<UnixUser>,
    pub commands: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub home_dir: Option<String>,
    /// Not null, even where nothing runs in a container.
    pub image_name: String,
    pub privileged: bool,
    pub single_branch: Option<bool>,
    pub max_duration: Option<u64>,
    pub stop_duration: Option<u64>,
    pub utilization_policy: Option<Box<RawValue>>,
    pub registry_auth: Option<Value>,
    pub requirements: Requirements,
    pub retry: Option<Retry>,
    pub volumes: Vec<Value>,
    pub ssh_key: Option<Value>,
    pub working_dir: Option<String>,
    pub repo_data: Option<Box<RawValue>>,
    pub repo_code_hash: Option<String>,
    pub repo_dir: Option<String>,
    pub repo_exists_action: Option<String>,
    pub file_archives: Vec<Value>,
    pub service_port: Option<u16>,
    pub probes: Vec<Value>,
    pub node_group_index: u32,
    pub node_group_name: String,
    pub node_group_job_index: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AppSpec {
    pub port: u16,
    pub map_to_port: Option<u16>,
    pub app_name: String,
    pub url_path: Option<String>,
    pub url_query_params: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnixUser {
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub username: Option<String>,
    pub groupname: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Requirements {
    /// As in a configuration.
    pub resources: Box<RawValue>,
    pub max_price: Option<f64>,
    pub spot: Option<bool>,
    pub reservation: Option<String>,
    pub multinode: Option<bool>,
    pub backend_options: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub on_events: Vec<String>,
    pub duration: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSubmission {
    pub id: String,
    /// The number of attempts before this one.
    pub submission_num: u32,
    pub deployment_num: u32,
    pub submitted_at: Time,
    pub last_processed_at: Time,
    pub finished_at: Option<Time>,
    pub inactivity_secs: Option<u64>,
    pub status: JobStatus,
    /// What the client prints as the status.
    pub status_message: String,
    pub termination_reason: Option<String>,
    pub termination_reason_message: Option<String>,
    pub exit_status: Option<i32>,
    pub job_provisioning_data: Option<JobProvisioningData>,
    pub job_runtime_data: Option<JobRuntimeData>,
    pub error: Option<String>,
    pub probes: Vec<Value>,
    pub image_pull_progress: Option<ImagePullProgress>,
}

/// The node that the job has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobProvisioningData {
    pub backend: String,
    pub base_backend: Option<String>,
    pub instance_type: InstanceType,
    pub instance_id: String,
    pub hostname: Option<String>,
    pub internal_ip: Option<String>,
    pub public_ip_enabled: bool,
    pub instance_network: Option<String>,
    pub region: String,
    pub availability_zone: Option<String>,
    pub reservation: Option<String>,
    pub price: f64,
    pub username: String,
    pub ssh_port: Option<u16>,
    pub dockerized: bool,
    pub ssh_proxy: Option<Value>,
    pub backend_data: Option<Value>,
    pub gpu_driver: Option<GpuDriver>,
}

/// What the job has of its node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRuntimeData {
    /// `host` or `bridge`.
    pub network_mode: String,
    pub gpu: Option<u32>,
    pub cpu: Option<f64>,
    /// Gigabytes.
    pub memory: Option<f64>,
    /// The ports of the container, each with the port of the host that leads to it.
    pub ports: Option<BTreeMap<String, u16>>,
    pub volume_names: Option<Vec<String>>,
    pub offer: Option<Offer>,
    pub working_dir: Option<String>,
    pub username: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobConnectionInfo {
    pub ide_name: Option<String>,
    pub attached_ide_url: Option<String>,
    pub proxied_ide_url: Option<String>,
    pub attached_ssh_command: Option<Vec<String>>,
    pub proxied_ssh_command: Option<Vec<String>>,
    pub sshproxy_hostname: Option<String>,
    pub sshproxy_port: Option<u16>,
    pub sshproxy_upstream_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePullProgress {
    pub downloaded_bytes: u64,
    pub extracted_bytes: u64,
    pub total_bytes: u64,
    pub is_total_bytes_final: bool,
}
