//! `sluice metrics RUN`: the load of a running run, job by job.

use super::options::check_replica;
use super::{OfProject, ask, find_unended, unexpected, watch};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::load_table::{self, JobLoad};
use clap::Args;
use model::allocation::Allocation;
use model::change::JobRef;
use model::load::Load;
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::client::{Answer, Call, LOADS_MAX};
use wire::view::JobView;

#[derive(Args)]
pub struct MetricsArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// The run's name, or a job's id
    #[arg(value_name = "RUN")]
    run: String,
    /// Only this job of the run, which is a node of it
    #[arg(long, value_name = "N")]
    job: Option<usize>,
    /// A run has one replica, 0
    #[arg(long, value_name = "N")]
    replica: Option<usize>,
    /// Show again and again, until interrupted
    #[arg(short, long, conflicts_with = "json")]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: MetricsArgs) -> VerbResult {
    check_replica(args.replica)?;
    let mut client = args.server.client()?;
    watch(args.watch, || {
        let run = find_unended(&mut client, &args.run, &args.of)?;
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
    let shares = allocation.nodes.iter().enumerate();
    let jobs: Vec<(&str, JobLoad)> = shares
        .filter(|(number, _)| args.job.is_none_or(|wanted| wanted == *number))
        .filter_map(|(number, share)| {
            let (_, load) = loads.iter().find(|(node, _)| *node == share.node)?;
            let (cpus, memory) = (share.cpus.len(), share.memory);
            Some((share.node.as_str(), JobLoad { number, cpus, memory, load }))
        })
        .collect();
    if jobs.is_empty() {
        let wanted = args.job.unwrap_or_default();
        return Err(VerbError::Message(why_none(word, wanted, allocation, loads)));
    }
    if args.json {
        let all: Vec<Value> = jobs.iter().map(|(node, job)| to_json(node, job)).collect();
        return Ok(format!("{}\n", json!({"run": &*run.spec.name, "job_id": run.id, "jobs": all})));
    }
    let jobs: Vec<JobLoad> = jobs.into_iter().map(|(_, job)| job).collect();
    Ok(load_table::metrics(&jobs))
}

/// Why a job of the run has no load. Nodes are asked in their order, and those that are left when the answer is full are not.
fn why_none(run: &str, wanted: usize, granted: &Allocation, loads: &[(String, Load)]) -> String {
    let count = granted.nodes.len();
    let last =
        loads.last().and_then(|(node, _)| granted.node_names().position(|name| name == node));
    let was_asked = loads.len() < LOADS_MAX || last.is_some_and(|last| wanted < last);
    if wanted >= count {
        format!("--job {wanted}: run {run} has {count} jobs, of which the first is 0")
    } else if was_asked {
        format!("job {wanted} of run {run} has ended")
    } else {
        format!(
            "--job {wanted}: the loads of at most {LOADS_MAX} jobs of a run are shown, and run {run} has {count}"
        )
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use model::allocation::NodeShare;
    use model::amount::Bytes;

    #[test]
    fn job_without_a_load_has_ended_or_is_beyond_the_limit() {
        let name = |n: usize| format!("n{n}");
        let share = |n| NodeShare {
            node: name(n),
            cpus: "0".parse().expect("CPUs"),
            memory: Bytes(0),
            gres: Vec::new(),
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        };
        let nodes = (0..200).map(share).collect();
        let granted = Allocation { partition: "main".into(), nodes };
        // The first node's part has ended.
        let loads: Vec<_> = (1..=LOADS_MAX).map(|n| (name(n), Load::default())).collect();
        let why = |wanted, loads: &[(String, Load)]| why_none("train", wanted, &granted, loads);
        assert_eq!(why(0, &loads), "job 0 of run train has ended");
        let beyond =
            "--job 150: the loads of at most 128 jobs of a run are shown, and run train has 200";
        assert_eq!(why(150, &loads), beyond);
        assert_eq!(why(150, &loads[..9]), "job 150 of run train has ended");
        assert_eq!(why(200, &loads), "--job 200: run train has 200 jobs, of which the first is 0");
    }
}
