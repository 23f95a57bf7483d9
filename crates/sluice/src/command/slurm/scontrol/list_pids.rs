//! `scontrol listpids [JOB[.STEP]] [NODE]`: the processes of steps on a node.

use super::show;
use crate::command::slurm::query::job_names::{self, NamedJob};
use crate::command::slurm::query::{self, CommandError, Server};
use model::change::{JobFilter, JobRef};
use model::id::StepId;
use model::run::JobState;
use std::process::ExitCode;
use wire::client::{Answer, Call, JobUsage, JobsQuery};
use wire::job_list::JobList;

const REQUEST: &str = "scontrol: error";

pub fn run(words: &[String]) -> Result<ExitCode, CommandError> {
    if words.len() > 2 {
        return Err(CommandError::message("too many arguments for keyword:listpids"));
    }
    // `*` is every job, so that a node can be named.
    let job = words.first().map(String::as_str).filter(|word| *word != "*");
    let named = job_names::parse_jobs(job.unwrap_or_default()).map_err(|word| {
        CommandError::message(format!("scontrol: error: Invalid job id specified: {word}"))
    })?;
    let mut server = Server::find(REQUEST)?;
    let nodes = match words.get(1) {
        Some(node) => vec![node.clone()],
        None => own_nodes(&mut server)?,
    };
    let jobs = if named.is_empty() {
        running_on(&mut server, &nodes)?
    } else {
        named.iter().map(|one| one.job.clone()).collect()
    };
    let found = match server.ask(Call::Usage { jobs, load: false })? {
        Answer::Usage(found) => found,
        other => return Err(CommandError::unexpected(&other)),
    };
    let text = table(&found, &named, &nodes);
    if text.is_empty() {
        return Err(CommandError::message(format!(
            "No job steps exist on this node ({}).",
            nodes.join(",")
        )));
    }
    query::print(&format!("{}{text}", line("PID", "JOBID", "STEPID", "LOCALID", "GLOBALID")))?;
    Ok(ExitCode::SUCCESS)
}

/// The nodes whose agent runs on this machine.
fn own_nodes(server: &mut Server) -> Result<Vec<String>, CommandError> {
    let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let own = own.unwrap_or_default();
    let is_here = |hostname: &str| !hostname.is_empty() && hostname == own;
    let nodes: Vec<String> = show::cluster(server)?
        .nodes
        .into_iter()
        .filter(|node| is_here(&node.facts.hostname) || node.config.name == own)
        .map(|node| node.config.name)
        .collect();
    if nodes.is_empty() {
        return Err(CommandError::message(format!(
            "scontrol: error: {own} is no node of the cluster: scontrol listpids JOB NODE names one"
        )));
    }
    Ok(nodes)
}

fn running_on(server: &mut Server, nodes: &[String]) -> Result<Vec<JobRef>, CommandError> {
    // Processes of others are told to root alone.
    let users = if query::is_root() { Vec::new() } else { vec![query::own_user_name()] };
    let filter = JobFilter {
        users,
        nodes: nodes.to_vec(),
        states: vec![JobState::Running, JobState::Suspended],
        ..JobFilter::default()
    };
    match server.ask(Call::Jobs(JobsQuery { filter, ..JobsQuery::default() }))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => {
            Ok(jobs.into_iter().map(|job| JobRef::whole(job.id)).collect())
        }
        other => Err(CommandError::unexpected(&other)),
    }
}

/// A line for each process. Which task of its step it belongs to is not known of a process.
fn table(found: &[JobUsage], named: &[NamedJob], nodes: &[String]) -> String {
    let mut text = String::new();
    for job in found {
        let wanted = |step: StepId| {
            let of_job = |one: &&NamedJob| {
                one.job.id == job.job || job.shown.starts_with(&format!("{}_", one.job.id))
            };
            named.is_empty()
                || named.iter().filter(of_job).any(|one| one.step.is_none_or(|only| only == step))
        };
        for step in job.steps.iter().filter(|step| wanted(step.step)) {
            let here = step.pids.iter().filter(|(node, _)| nodes.contains(node));
            for pid in here.flat_map(|(_, pids)| pids) {
                let step = step.step.to_string();
                text.push_str(&line(&pid.to_string(), &job.job.to_string(), &step, "-", "-"));
            }
        }
    }
    text
}

fn line(pid: &str, job: &str, step: &str, local: &str, global: &str) -> String {
    let text = format!("{pid:<8} {job:<8} {step:<8} {local:<7} {global:<8}");
    format!("{}\n", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::usage::TaskUsage;
    use wire::client::StepUsage;

    #[test]
    fn processes_of_the_named_steps_on_the_node_are_listed() {
        let step = |step, node: &str, pids: &[i32]| StepUsage {
            step,
            nodes: vec![node.into()],
            tasks: 1,
            used: TaskUsage::default(),
            pids: vec![(node.into(), pids.to_vec())],
            cpu_frequency: None,
        };
        let steps = vec![
            step(StepId::Batch, "node1", &[10, 11]),
            step(StepId::Number(0), "node1", &[20]),
            step(StepId::Number(1), "node2", &[30]),
        ];
        let found = [JobUsage { job: JobId(9), shown: "7_3".into(), steps, loads: Vec::new() }];
        let shown = |jobs: &str, node: &str| {
            let named = job_names::parse_jobs(jobs).expect("names");
            table(&found, &named, &[node.to_owned()])
        };
        assert_eq!(shown("9.0", "node1"), "20       9        0        -       -\n");
        let pids = |text: String| {
            let first = text.lines().filter_map(|line| line.split(' ').next());
            first.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(pids(shown("", "node1")), ["10", "11", "20"]);
        assert_eq!(pids(shown("9", "node2")), ["30"]);
        assert_eq!(pids(shown("7", "node2")), ["30"]);
        assert!(shown("8", "node1").is_empty());
    }
}
