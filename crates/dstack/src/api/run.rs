//! Runs: answers, and the requests of `runs/`.

use super::job::{Job, JobSubmission};
use super::time::Time;
use crate::status::RunStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    pub id: String,
    pub project_name: String,
    pub user: String,
    pub fleet: Option<RunFleet>,
    pub submitted_at: Time,
    pub last_processed_at: Time,
    pub status: RunStatus,
    /// What the client prints as the status.
    pub status_message: String,
    pub termination_reason: Option<String>,
    /// A [`RunSpec`], as it was kept.
    pub run_spec: Box<RawValue>,
    pub jobs: Vec<Job>,
    pub latest_job_submission: Option<JobSubmission>,
    pub cost: f64,
    pub service: Option<Value>,
    pub deployment_num: u32,
    pub error: Option<String>,
    pub deleted: bool,
    pub next_triggered_at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunFleet {
    pub id: String,
    pub name: String,
}

/// What was submitted. A client may leave out all but the configuration, which has this form on its way in, and on its way out any
/// that is written the same.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSpec<C = Value> {
    pub run_name: Option<String>,
    pub repo_id: Option<String>,
    pub repo_data: Option<Value>,
    pub repo_code_hash: Option<String>,
    pub repo_dir: Option<String>,
    pub file_archives: Vec<FileArchiveMapping>,
    pub working_dir: Option<String>,
    pub configuration_path: Option<String>,
    pub configuration: C,
    pub profile: Option<Value>,
    pub ssh_key_pub: Option<String>,
}

impl<C> RunSpec<C> {
    /// The same with this configuration.
    pub fn with_configuration<D>(self, configuration: D) -> RunSpec<D> {
        RunSpec {
            run_name: self.run_name,
            repo_id: self.repo_id,
            repo_data: self.repo_data,
            repo_code_hash: self.repo_code_hash,
            repo_dir: self.repo_dir,
            file_archives: self.file_archives,
            working_dir: self.working_dir,
            configuration_path: self.configuration_path,
            configuration,
            profile: self.profile,
            ssh_key_pub: self.ssh_key_pub,
        }
    }
}

/// An archive that was uploaded, and where it is unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileArchiveMapping {
    pub id: String,
    pub path: String,
}

/// `runs/get`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct GetRun {
    pub run_name: Option<String>,
    pub id: Option<String>,
}

/// `runs/list`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ListRuns {
    pub project_name: Option<String>,
    pub repo_id: Option<String>,
    pub username: Option<String>,
    pub only_active: bool,
    pub include_jobs: Option<bool>,
    /// The newest so many of each job's submissions.
    pub job_submissions_limit: Option<u32>,
    /// The run after which the list goes on.
    pub prev_submitted_at: Option<Time>,
    pub prev_run_id: Option<String>,
    pub limit: Option<u32>,
    pub ascending: bool,
}

/// `runs/get_plan`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct GetRunPlan {
    pub run_spec: RunSpec,
    pub max_offers: Option<u32>,
    pub full_offers: bool,
    pub unallocated_resources: bool,
    pub for_offers_only: bool,
}

/// `runs/apply`
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ApplyRunPlan {
    pub plan: ApplyRunPlanInput,
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct ApplyRunPlanInput {
    /// Beside it the client sends the run as it saw it, which is not looked at.
    pub run_spec: RunSpec,
}

/// `runs/stop`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct StopRuns {
    pub runs_names: Vec<String>,
    pub abort: bool,
}

/// `runs/delete`
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct DeleteRuns {
    pub runs_names: Vec<String>,
}
