//! What a run uses, in dstack's names: one point for each sample that the node of the job has kept, and one for now.

use super::answer::{ApiResult, Json, Refused};
use super::run_facts::Part;
use super::run_list;
use crate::http::calls;
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use crate::show::sstat;
use axum::Extension;
use axum::extract::{Path, Query, State};
use dstack::api::stored::{Metric, Metrics};
use dstack::api::time::Time;
use model::load::{Load, LoadPoint};
use model::principal::Principal;
use serde::Deserialize;
use std::sync::Arc;

/// Which job of the run, and which of its points.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    replica_num: u32,
    job_num: usize,
    limit: Option<usize>,
    after: Option<Time>,
    before: Option<Time>,
}

pub async fn job(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path((project, name)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
) -> ApiResult<Metrics> {
    let long = calls::begin_long(&shared, &by, LongWork::ReadBooks).await?;
    let run = run_list::by_name(&shared, &by, &project, &name)?;
    drop(long);
    let run = run.ok_or_else(|| Refused::not_found("Run not found"))?;
    let replica = run.replicas.iter().find(|replica| replica.replica == wanted.replica_num);
    let run = replica.unwrap_or(&run);
    let Some(part) = run.parts.get(wanted.job_num).filter(|_| run.ended.is_none()) else {
        return Ok(Json(Metrics { metrics: Vec::new() }));
    };
    let job = run_list::job_on(&shared, run, &part.node);
    let load = sstat::load_on(&shared, &by, job, &part.node).await?;
    Ok(Json(Metrics { metrics: metrics(part, &load, &wanted) }))
}

fn metrics(part: &Part, load: &Load, wanted: &Wanted) -> Vec<Metric> {
    let is_wanted = |point: &LoadPoint| {
        let at: Time = point.now.at.into();
        wanted.after.is_none_or(|after| at >= after)
            && wanted.before.is_none_or(|before| at < before)
    };
    let points: Vec<LoadPoint> =
        load.points().filter(is_wanted).take(wanted.limit.unwrap_or(1)).collect();
    if points.is_empty() {
        return Vec::new();
    }
    let series = |name: &str, value: &dyn Fn(&LoadPoint) -> u64| Metric {
        name: name.to_owned(),
        timestamps: points.iter().map(|point| point.now.at.into()).collect(),
        values: points.iter().map(|point| value(point).into()).collect(),
    };
    // GPUs that nobody reads have no figures.
    let read_gpus = || load.gpus.iter().enumerate().filter(|(_, gpu)| !gpu.readings.is_empty());
    let gpus = if read_gpus().next().is_none() { 0 } else { part.gpu_count() };
    let mut metrics = vec![
        series("cpu_usage_percent", &|point| point.cpu_percent),
        series("memory_usage_bytes", &|point| point.now.memory),
        series("memory_working_set_bytes", &|point| point.now.resident),
        series("cpus_detected_num", &|_| part.cpus.into()),
        series("memory_total_bytes", &|_| part.memory.0),
        series("gpus_detected_num", &|_| gpus),
    ];
    if let Some((_, first)) = read_gpus().next() {
        metrics.push(series("gpu_memory_total_bytes", &|_| first.memory_total));
    }
    for (index, gpu) in read_gpus() {
        let read = |point: &LoadPoint| gpu.at(point.now.at);
        let name = format!("gpu_memory_usage_bytes_gpu{index}");
        metrics.push(series(&name, &|point| read(point).map_or(0, |read| read.memory_used)));
        let name = format!("gpu_util_percent_gpu{index}");
        metrics
            .push(series(&name, &|point| read(point).map_or(0, |read| read.busy_percent.into())));
    }
    metrics
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::load::{GpuSample, GpuSeries, LoadSample};
    use model::time::Timestamp;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn points_are_the_newest_first_with_the_cpu_time_between_them() {
        let sample = |seconds, cpu_s: u64, memory| LoadSample {
            at: at(seconds),
            cpu_us: cpu_s * 1_000_000,
            memory,
            resident: memory / 2,
        };
        let read = |seconds, busy_percent| GpuSample {
            at: at(seconds),
            busy_percent,
            memory_used: u64::from(busy_percent) * 10,
        };
        let load = Load {
            samples: vec![sample(0, 0, 0), sample(30, 15, 800), sample(40, 35, 600)],
            gpus: vec![GpuSeries { memory_total: 1000, readings: vec![read(5, 20), read(35, 60)] }],
        };
        let gpus = vec![("H100".to_owned(), 1)];
        let price = model::price::Price::default();
        let part = Part { node: "n1".into(), cpus: 4, memory: Bytes(4096), gpus, price };
        let shown = |wanted: Wanted| -> Vec<(String, Vec<u64>)> {
            let values = |metric: Metric| metric.values.iter().filter_map(|v| v.as_u64()).collect();
            let metrics = metrics(&part, &load, &wanted);
            metrics.into_iter().map(|metric| (metric.name.clone(), values(metric))).collect()
        };
        let all = [
            ("cpu_usage_percent", [200, 50]),
            ("memory_usage_bytes", [600, 800]),
            ("memory_working_set_bytes", [300, 400]),
            ("cpus_detected_num", [4, 4]),
            ("memory_total_bytes", [4096, 4096]),
            ("gpus_detected_num", [1, 1]),
            ("gpu_memory_total_bytes", [1000, 1000]),
            ("gpu_memory_usage_bytes_gpu0", [600, 200]),
            ("gpu_util_percent_gpu0", [60, 20]),
        ];
        let all: Vec<_> = all.map(|(name, values)| (name.to_owned(), values.to_vec())).into();
        assert_eq!(shown(Wanted { limit: Some(9), ..Wanted::default() }), all);
        let first = |wanted| shown(wanted)[0].1.clone();
        assert_eq!(first(Wanted::default()), [200]);
        assert_eq!(first(Wanted { before: Some(at(40).into()), ..Wanted::default() }), [50]);
        assert_eq!(first(Wanted { after: Some(at(40).into()), ..Wanted::default() }), [200]);
        assert!(shown(Wanted { after: Some(at(41).into()), ..Wanted::default() }).is_empty());
    }
}
