//! What `runs/get_plan` answers.

use super::instance::Offer;
use super::job::JobSpec;
use super::run::{Run, RunSpec};
use crate::status::ApplyAction;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunPlan {
    pub project_name: String,
    pub user: String,
    pub run_spec: RunSpec,
    pub effective_run_spec: Option<RunSpec>,
    pub job_plans: Vec<JobPlan>,
    /// The run of this name that there is.
    pub current_resource: Option<Box<Run>>,
    pub action: ApplyAction,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobPlan {
    pub job_spec: JobSpec,
    pub offers: Vec<Offer>,
    /// All there are, with those that are not shown.
    pub total_offers: u32,
    pub max_price: Option<f64>,
}
