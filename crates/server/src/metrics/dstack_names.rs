//! Runs, jobs and nodes under the names and labels of dstack's own `/metrics`, for dashboards that were made for it.
//!
//! Every job is a run, also one of `sbatch`, and every node is an instance of the first fleet that it is in.

use super::exposition::{Exposition, Kind, WrittenLabels};
use super::snapshot::Snapshot;
use crate::shared::live_loads::Loads;
use crate::shared::run_totals::{BUCKETS_S, OwnerCounts, ProjectCounts};
use crate::show::dstack_id::{submission_id, uuid};
use cluster::Job;
use dstack::api::instance::BACKEND;
use dstack::node_groups::group_of;
use dstack::occurrence::run_name;
use model::allocation::NodeShare;
use model::fleet::MAIN_PROJECT;
use model::gres::GPU;
use model::id::RunId;
use model::load::{GpuSample, GpuSeries, Load, LoadSample};
use model::price::Price;
use std::collections::{BTreeSet, HashMap};
use wire::view::NodeView;

/// Nodes with series of their own: the first by name.
const NODES_MAX: usize = 10_000;

/// Jobs with series of their own: the newest. Each has eight, with long labels.
const JOBS_MAX: usize = 1024;
/// The most parts of these jobs that have series of their own.
const PARTS_MAX: usize = 4096;
/// Names of runs are cut to so many bytes.
const NAME_BYTES_MAX: usize = 128;

/// What kind of configuration a run came from is not looked up for a scrape.
const RUN_TYPE: &str = "task";

pub fn write(text: &mut Exposition, snapshot: &Snapshot, loads: &Loads) {
    write_instances(text, snapshot);
    write_runs(text, snapshot);
    write_jobs(text, snapshot, loads);
    write_waits(text, snapshot);
}

type LabelValues = Vec<(&'static str, String)>;

/// Several families have samples with the same labels.
fn written(labels: &LabelValues) -> WrittenLabels {
    let labels: Vec<(&str, &str)> =
        labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
    WrittenLabels::of(&labels)
}

/// A sample for each row that has the value.
fn family<T>(
    text: &mut Exposition,
    (name, kind, help): (&'static str, Kind, &'static str),
    rows: &[(WrittenLabels, T)],
    value: impl Fn(&T) -> Option<f64>,
) {
    let mut family = text.family(name, kind, help);
    for (labels, row) in rows {
        if let Some(value) = value(row) {
            family.sample_of(labels, value);
        }
    }
}

fn write_instances(text: &mut Exposition, snapshot: &Snapshot) {
    let rows = snapshot.named_nodes().iter().take(NODES_MAX);
    let rows: Vec<(WrittenLabels, &NodeView)> =
        rows.map(|node| (written(&instance(snapshot, node)), node)).collect();
    let running_s = snapshot.cluster.now.since(snapshot.started).as_secs_f64();
    let duration = (
        "dstack_instance_duration_seconds_total",
        Kind::Counter,
        "Seconds since the server knows the instance.",
    );
    family(text, duration, &rows, |_| Some(running_s));
    let price =
        ("dstack_instance_price_dollars_per_hour", Kind::Gauge, "The instance's price in an hour.");
    family(text, price, &rows, |node| Some(node.config.price.unwrap_or_default().dollars()));
    let gpus = ("dstack_instance_gpu_count", Kind::Gauge, "GPUs of the instance.");
    family(text, gpus, &rows, |node| Some(node.config.gres_total(GPU) as f64));
}

fn instance(snapshot: &Snapshot, node: &NodeView) -> LabelValues {
    let name = &node.config.name;
    let project = snapshot.fleet_projects.get(&node.config.fleet);
    let over_ssh = project.map(|_| &node.config.fleet);
    let fleet = over_ssh.or(node.partitions.first());
    let kinds = node.config.gres.iter().filter(|gres| gres.name == GPU);
    vec![
        ("dstack_project_name", project.map_or(MAIN_PROJECT, String::as_str).to_owned()),
        ("dstack_fleet_name", fleet.cloned().unwrap_or_default()),
        ("dstack_fleet_id", fleet.map(|name| uuid("fleet", name)).unwrap_or_default()),
        ("dstack_instance_name", name.clone()),
        ("dstack_instance_id", uuid("instance", name)),
        ("dstack_instance_type", name.clone()),
        ("dstack_backend", BACKEND.to_owned()),
        ("dstack_gpu", joined(kinds.map(|gres| gres.kind.as_deref()))),
    ]
}

/// The kinds of GPUs, each once.
fn joined<'a>(kinds: impl Iterator<Item = Option<&'a str>>) -> String {
    let kinds: BTreeSet<&str> = kinds.flatten().collect();
    kinds.into_iter().collect::<Vec<_>>().join(",")
}

fn write_runs(text: &mut Exposition, snapshot: &Snapshot) {
    type Count = (&'static str, &'static str, fn(&OwnerCounts) -> u64);
    const COUNTS: [Count; 4] = [
        ("dstack_run_count_total", "Runs submitted since the server's start.", |runs| {
            runs.submitted
        }),
        (
            "dstack_run_count_terminated_total",
            "Runs since the server's start that were ended.",
            |runs| runs.terminated,
        ),
        ("dstack_run_count_failed_total", "Runs since the server's start that failed.", |runs| {
            runs.failed
        }),
        ("dstack_run_count_done_total", "Runs since the server's start that ended well.", |runs| {
            runs.done
        }),
    ];
    let owners = snapshot.runs.owners.iter().map(|(owner, counts)| {
        let labels = vec![
            ("dstack_project_name", owner.project.clone()),
            ("dstack_user_name", owner.user.clone()),
        ];
        (written(&labels), *counts)
    });
    let rows: Vec<(WrittenLabels, OwnerCounts)> = owners.collect();
    for (name, help, value) in COUNTS {
        family(text, (name, Kind::Counter, help), &rows, |runs| Some(value(runs) as f64));
    }
}

/// One node's part of a job.
struct Part<'a> {
    job: &'a Job,
    share: &'a NodeShare,
    load: Option<&'a Load>,
    /// What the job's node costs in an hour.
    price: Price,
}

impl Part<'_> {
    fn now(&self) -> Option<&LoadSample> {
        self.load?.samples.last()
    }

    fn gpus(&self) -> u64 {
        self.share.gres.iter().filter(|gres| gres.name == GPU).map(|gres| gres.count).sum()
    }
}

fn write_jobs(text: &mut Exposition, snapshot: &Snapshot, loads: &Loads) {
    type Value = (&'static str, Kind, &'static str, fn(&Part) -> Option<f64>);
    const VALUES: &[Value] = &[
        (
            "dstack_job_price_dollars_per_hour",
            Kind::Gauge,
            "The price of the job's instance in an hour.",
            |part| Some(part.price.dollars()),
        ),
        ("dstack_job_gpu_count", Kind::Gauge, "GPUs that the job was granted.", |part| {
            Some(part.gpus() as f64)
        }),
        ("dstack_job_cpu_count", Kind::Gauge, "CPUs that the job was granted.", |part| {
            Some(f64::from(part.share.cpus.len()))
        }),
        (
            "dstack_job_cpu_time_seconds_total",
            Kind::Counter,
            "CPU time of the job so far.",
            |part| Some(part.now()?.cpu_us as f64 / 1e6),
        ),
        (
            "dstack_job_memory_total_bytes",
            Kind::Gauge,
            "Memory that the job was granted.",
            |part| Some(part.share.memory.0 as f64),
        ),
        (
            "dstack_job_memory_usage_bytes",
            Kind::Gauge,
            "Memory that the job uses, with the page cache.",
            |part| Some(part.now()?.memory as f64),
        ),
        (
            "dstack_job_memory_working_set_bytes",
            Kind::Gauge,
            "Memory that the job's processes use.",
            |part| Some(part.now()?.resident as f64),
        ),
    ];
    let parts = parts(snapshot, loads);
    write_gpus(text, &parts);
    let rows: Vec<(WrittenLabels, Part)> =
        parts.into_iter().map(|(labels, part)| (written(&labels), part)).collect();
    let now = snapshot.cluster.now;
    let duration =
        ("dstack_job_duration_seconds_total", Kind::Counter, "Seconds since the job's start.");
    family(text, duration, &rows, |part: &Part| {
        Some(now.since(part.job.attempt()?.start).as_secs_f64())
    });
    for (name, kind, help, value) in VALUES {
        family(text, (name, *kind, help), &rows, value);
    }
}

fn write_gpus(text: &mut Exposition, parts: &[(LabelValues, Part)]) {
    let mut rows: Vec<(WrittenLabels, (u64, GpuSample))> = Vec::new();
    for (labels, part) in parts {
        let gpus = part.load.into_iter().flat_map(|load| &load.gpus).take(part.gpus() as usize);
        for (at, GpuSeries { memory_total, readings }) in gpus.enumerate() {
            let Some(last) = readings.last() else { continue };
            let mut labels = labels.clone();
            labels.push(("dstack_gpu_num", at.to_string()));
            rows.push((written(&labels), (*memory_total, *last)));
        }
    }
    let busy =
        ("dstack_job_gpu_usage_ratio", Kind::Gauge, "How busy a GPU of the job is, up to 1.");
    family(text, busy, &rows, |(_, read)| Some(f64::from(read.busy_percent) / 100.0));
    let total =
        ("dstack_job_gpu_memory_total_bytes", Kind::Gauge, "The memory of a GPU of the job.");
    family(text, total, &rows, |(total, _)| Some(*total as f64));
    let used =
        ("dstack_job_gpu_memory_usage_bytes", Kind::Gauge, "Memory in use of a GPU of the job.");
    family(text, used, &rows, |(_, read)| Some(read.memory_used as f64));
}

/// The parts of all jobs that hold resources, with their labels, no two of which are the same: a task of an array is a replica
/// of its run, and the nodes of all groups of a task are numbered through.
fn parts<'a>(snapshot: &'a Snapshot, loads: &'a Loads) -> Vec<(LabelValues, Part<'a>)> {
    let mut jobs: Vec<&Job> = snapshot.active.iter().take(JOBS_MAX).map(|job| &**job).collect();
    jobs.sort_by_key(|job| (job.run, job.het.map(|het| het.offset), job.id));
    let mut ranks: HashMap<RunId, u32> = HashMap::new();
    let priced = snapshot.cluster.nodes.iter().map(|node| &node.config);
    let prices: HashMap<&str, Price> =
        priced.filter_map(|config| Some((config.name.as_str(), config.price?))).collect();
    let mut parts = Vec::new();
    for job in jobs {
        let Some(attempt) = job.attempt() else { continue };
        let mut rank = match group_of(job.spec.launch.kind, job.het) {
            Some(_) => ranks.get(&job.run).copied().unwrap_or(0),
            None => 0,
        };
        for share in &attempt.allocation.nodes {
            if parts.len() == PARTS_MAX {
                return parts;
            }
            let load = loads.get(&(job.id, share.node.clone()));
            let price = prices.get(share.node.as_str()).copied().unwrap_or_default();
            parts.push((labels(snapshot, job, rank, share), Part { job, share, load, price }));
            rank += 1;
        }
        ranks.insert(job.run, rank);
    }
    parts
}

fn labels(snapshot: &Snapshot, job: &Job, rank: u32, share: &NodeShare) -> LabelValues {
    let (run, spec) = (job.run.to_string(), &job.spec);
    let mut name = run_name(spec.launch.kind, &spec.name, job.id).to_string();
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
    name.truncate(end.unwrap_or(0));
    let replica = job.task.map_or(0, |task| task.index);
    let restarts = job.attempts.saturating_sub(1);
    let is_project = snapshot.projects.contains(&*job.account);
    let project = if is_project { &job.account } else { MAIN_PROJECT };
    let kinds = share.gres.iter().filter(|gres| gres.name == GPU);
    vec![
        ("dstack_project_name", project.to_owned()),
        ("dstack_user_name", spec.owner.name.clone()),
        ("dstack_run_name", name.clone()),
        ("dstack_run_id", run.clone()),
        ("dstack_job_name", format!("{name}-{rank}-{replica}")),
        ("dstack_job_id", submission_id(&run, restarts, rank)),
        ("dstack_job_num", rank.to_string()),
        ("dstack_replica_num", replica.to_string()),
        ("dstack_run_type", RUN_TYPE.to_owned()),
        ("dstack_backend", BACKEND.to_owned()),
        ("dstack_gpu", joined(kinds.map(|gres| gres.kind.as_deref()))),
    ]
}

fn write_waits(text: &mut Exposition, snapshot: &Snapshot) {
    const NAME: &str = "dstack_submit_to_provision_duration_seconds";
    let help = "How long runs waited for their first node.";
    let mut waits = text.family(NAME, Kind::Histogram, help);
    for (project, counts) in &snapshot.runs.projects {
        let ProjectCounts { buckets, started, waited, .. } = counts;
        let labels = [("project_name", project.as_str()), ("run_type", RUN_TYPE)];
        let bounds = BUCKETS_S.iter().zip(buckets).map(|(bound, count)| (*bound as f64, *count));
        waits.distribution(&labels, bounds, *started, waited.as_secs_f64());
    }
    let help = "Since when the waits are counted.";
    let mut since = text.gauge("dstack_submit_to_provision_duration_seconds_created", help);
    for project in snapshot.runs.projects.keys() {
        let labels = [("project_name", project.as_str()), ("run_type", RUN_TYPE)];
        since.sample(&labels, snapshot.started.secs());
    }
    let mut pending = text.counter(
        "dstack_pending_runs_total",
        "How often runs went back to waiting since the server's start.",
    );
    for (project, counts) in &snapshot.runs.projects {
        let labels = [("project_name", project.as_str()), ("run_type", RUN_TYPE)];
        pending.sample(&labels, counts.requeued);
    }
}
