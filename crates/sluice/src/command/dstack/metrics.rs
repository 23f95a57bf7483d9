//! `sluice metrics RUN`: the load of a running run, job by job.

use super::{ask, find_run, unexpected, watch};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::load_table::{self, JobLoad};
use clap::Args;
use model::change::JobRef;
use model::load::Load;
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::JobView;

#[derive(Args)]
pub struct MetricsArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The run's name, or a job's id
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this job of the run, which is a node of it
    #[arg(long, value_name = "N")]
    job: Option<usize>,
    /// Show again and again, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: MetricsArgs) -> VerbResult {
    let mut client = args.server.client()?;
    watch(args.watch, || {
        let run = find_run(&mut client, &args.run)?;
        let loads = loads(&mut client, &run)?;
        show(&run, &loads, &args)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The load on each node of the run, in the order of its jobs.
fn loads(client: &mut Client, run: &JobView) -> Result<Vec<(String, Load)>, VerbError> {
    let jobs = vec![JobRef::whole(run.id)];
    match ask(client, Call::Usage { jobs, load: true })? {
        Answer::Usage(used) => Ok(used.into_iter().flat_map(|job| job.loads).collect()),
        other => Err(unexpected(&other)),
    }
}

fn show(run: &JobView, loads: &[(String, Load)], args: &MetricsArgs) -> Result<String, VerbError> {
    let word = &args.run;
    let Some(allocation) = run.allocation.as_ref().filter(|_| !loads.is_empty()) else {
        return Err(VerbError::Message(format!("run {word} is not running")));
    };
    let numbered = loads
        .iter()
        .enumerate()
        .filter(|(number, _)| args.job.is_none_or(|wanted| wanted == *number));
    let jobs: Vec<(&str, JobLoad)> = numbered
        .map(|(number, (node, load))| {
            let share = allocation.nodes.iter().find(|share| share.node == *node);
            let cpus = share.map_or(0, |share| share.cpus.len());
            let memory = share.map_or_else(Default::default, |share| share.memory);
            (node.as_str(), JobLoad { number, cpus, memory, load })
        })
        .collect();
    if jobs.is_empty() {
        let wanted = args.job.unwrap_or_default();
        let count = loads.len();
        return Err(VerbError::Message(format!(
            "--job {wanted}: run {word} has {count} jobs, of which the first is 0"
        )));
    }
    if args.json {
        let all: Vec<Value> = jobs.iter().map(|(node, job)| to_json(node, job)).collect();
        return Ok(format!("{}\n", json!({"run": &*run.spec.name, "job_id": run.id, "jobs": all})));
    }
    let jobs: Vec<JobLoad> = jobs.into_iter().map(|(_, job)| job).collect();
    Ok(load_table::metrics(&jobs))
}

fn to_json(node: &str, job: &JobLoad<'_>) -> Value {
    let points = job.load.points().map(|point| {
        json!({
            "at_ms": point.now.at,
            "cpu_percent": point.cpu_percent,
            "memory_bytes": point.now.memory,
            "resident_bytes": point.now.resident,
        })
    });
    json!({
        "job_num": job.number,
        "node": node,
        "cpus": job.cpus,
        "memory_bytes": job.memory,
        "points": points.collect::<Vec<_>>(),
        "gpus": job.load.gpus,
    })
}
