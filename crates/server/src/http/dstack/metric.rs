//! What a run uses now, in dstack's names.

use super::answer::{ApiResult, Json, Refused};
use super::run_body::GPU;
use super::{check_project, run};
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
    check_project(&project)?;
    let job = run::by_name(&shared, &by, &name)?;
    let job = job.ok_or_else(|| Refused::not_found("Run not found"))?;
    let share = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    let Some(share) = share.filter(|_| !job.state.is_ended()) else {
        return Ok(Json(Metrics { metrics: Vec::new() }));
    };
    let jobs = vec![JobRef::whole(job.id)];
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
        ("cpus_detected_num", u64::from(share.cpus.len())),
        ("memory_total_bytes", share.memory.0),
        ("gpus_detected_num", share.gres_count(GPU)),
    ];
    Ok(Json(Metrics { metrics: metrics.map(metric).into() }))
}
