//! What a run uses, in dstack's names.

use super::error::{ApiError, ApiResult};
use super::{check_project, run, time};
use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use model::change::JobRef;
use model::principal::Principal;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn job(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((project, name)): Path<(String, String)>,
) -> ApiResult {
    check_project(&project)?;
    let job = run::by_name(&shared, &by, &name).await?;
    let job = job.ok_or_else(|| ApiError::missing("Run not found"))?;
    let Some(allocation) = &job.allocation else { return Ok(Json(json!({"metrics": []}))) };
    let jobs = vec![JobRef::whole(job.id)];
    let used = match calls::answer(&shared, by, Call::Usage { jobs }).await? {
        Answer::Usage(used) => used,
        _ => Vec::new(),
    };
    let steps = used.iter().flat_map(|job| &job.steps);
    let memory: u64 = steps.map(|step| step.used.memory.total).sum();
    let now = time(clock::now());
    let metric = |name: &str, value: u64| -> Value {
        json!({"name": name, "timestamps": [now], "values": [value]})
    };
    let share = allocation.nodes.first();
    let cpus = share.map_or(0, |share| u64::from(share.cpus.len()));
    let total = share.map_or(0, |share| share.memory.0);
    let gpus = share.map_or(0, |share| share.gres_count("gpu"));
    Ok(Json(json!({"metrics": [
        metric("memory_usage_bytes", memory),
        metric("memory_working_set_bytes", memory),
        metric("cpus_detected_num", cpus),
        metric("memory_total_bytes", total),
        metric("gpus_detected_num", gpus),
    ]})))
}
