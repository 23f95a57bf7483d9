//! What a run uses now, in dstack's names.

use super::answer::{ApiResult, Json, Refused};
use super::run_list;
use crate::clock;
use crate::http::calls;
use crate::shared::Shared;
use axum::Extension;
use axum::extract::{Path, State};
use dstack::api::stored::{Metric, Metrics};
use model::change::JobRef;
use model::principal::Principal;
use std::sync::Arc;
use wire::client::{Answer, Call};

pub async fn job(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((project, name)): Path<(String, String)>,
) -> ApiResult<Metrics> {
    let run = run_list::by_name(&shared, &by, &project, &name)?;
    let run = run.ok_or_else(|| Refused::not_found("Run not found"))?;
    let Some(part) = run.parts.first().filter(|_| run.ended.is_none()) else {
        return Ok(Json(Metrics { metrics: Vec::new() }));
    };
    let jobs = vec![JobRef::whole(run.job)];
    let used = match calls::answer(&shared, by, Call::Usage { jobs }).await? {
        Answer::Usage(used) => used,
        _ => Vec::new(),
    };
    let memory = used.iter().flat_map(|job| &job.steps).map(|step| step.used.memory.total).sum();
    let now = clock::now();
    let metric = |(name, value): (&str, u64)| Metric {
        name: name.to_owned(),
        timestamps: vec![now.into()],
        values: vec![value.into()],
    };
    let metrics = [
        ("memory_usage_bytes", memory),
        ("memory_working_set_bytes", memory),
        ("cpus_detected_num", u64::from(part.cpus)),
        ("memory_total_bytes", part.memory.0),
        ("gpus_detected_num", part.gpu_count()),
    ];
    Ok(Json(Metrics { metrics: metrics.map(metric).into() }))
}
