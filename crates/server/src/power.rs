//! Calls the site's programs that power nodes down and up, for the nodes whose state says that a call is due.
//!
//! A call is due until its end is in the journal: a server that is killed meanwhile makes it again.

use crate::auth::principal::server_principal;
use crate::resume_files::ResumeFiles;
use crate::shared::Shared;
use crate::site_program::SiteProgram;
use crate::vital_task;
use cluster::{Command, State};
use model::hostlist;
use model::power::{PowerProgram, PowerState};
use model::search_path::SYSTEM_PATH;
use serde_json::json;
use slurm::output::text::job_text;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Calls that run at once; the others wait.
const CALLS_MAX: usize = 16;

/// The nodes of one call, so that their names fit on a command line.
const NODES_MAX: usize = 1000;

/// How long a call may take at least, whatever the site's timeouts are.
const CALL_LIMIT: Duration = Duration::from_secs(600);

/// The pause before a call is made again whose file could not be written, or whose end could not be kept.
const CALL_AGAIN_PAUSE: Duration = Duration::from_secs(10);

/// The calls of one program that run, by node, with the state that each was made for.
type Running = HashMap<String, (PowerProgram, PowerState)>;

/// Makes the calls that are due, at the start and after each commit that brings one.
pub async fn run(shared: Arc<Shared>, files: ResumeFiles) {
    let files = Arc::new(files);
    let mut commits = shared.commits.subscribe_beyond_submits();
    let (ended, mut ends) = mpsc::channel::<Vec<String>>(CALLS_MAX);
    let (mut running, mut calls) = (Running::new(), 0);
    loop {
        let due = calls_due(&shared.read(), &running, CALLS_MAX - calls);
        for (program, nodes) in due {
            running.extend(nodes.iter().map(|(n, power)| (n.clone(), (program, *power))));
            calls += 1;
            let (shared, files, ended) = (shared.clone(), files.clone(), ended.clone());
            vital_task::spawn("a call of a power program", async move {
                let names = nodes.iter().map(|(name, _)| name.clone()).collect();
                call(&shared, &files, program, nodes).await;
                // The receiver lives as long as this task's loop.
                let _ = ended.send(names).await;
            });
        }
        tokio::select! {
            changed = commits.changed() => if changed.is_err() { return },
            Some(nodes) = ends.recv() => {
                calls -= 1;
                nodes.iter().for_each(|node| { running.remove(node); });
            }
        }
    }
}

type DueNodes = Vec<(String, PowerState)>;

/// The calls to make now: all nodes that the same program is due for are one call.
fn calls_due(state: &State, running: &Running, most: usize) -> Vec<(PowerProgram, DueNodes)> {
    let mut due: BTreeMap<PowerProgram, DueNodes> = BTreeMap::new();
    for (name, node) in &state.nodes {
        // Most nodes are on: no name of these is looked up.
        let program = node.power.program_due().filter(|_| !running.contains_key(name));
        // The machine of a node that a source backs is made and deleted, and no program is called.
        if let Some(program) = program.filter(|_| state.backing(name).is_none()) {
            due.entry(program).or_default().push((name.clone(), node.power));
        }
    }
    let calls = due.into_iter().flat_map(|(program, nodes)| {
        let parts: Vec<DueNodes> = nodes.chunks(NODES_MAX).map(<[_]>::to_vec).collect();
        parts.into_iter().map(move |nodes| (program, nodes))
    });
    calls.take(most).collect()
}

async fn call(shared: &Shared, files: &Arc<ResumeFiles>, program: PowerProgram, nodes: DueNodes) {
    let names: Vec<String> = nodes.iter().map(|(name, _)| name.clone()).collect();
    let hosts = hostlist::compress(&names);
    let (path, limit, resume_file) = {
        let state = shared.read();
        let policy = &state.config.parameters.power;
        let times = state.power_times();
        let longest = names.iter().map(|name| times.of(name)).map(|times| match program {
            PowerProgram::Suspend => times.suspend_timeout_s,
            PowerProgram::Resume | PowerProgram::ResumeFail => times.resume_timeout_s,
        });
        let longest = Duration::from_secs(longest.max().unwrap_or_default().into());
        let resume_file = match program {
            PowerProgram::Resume => Some(resume_file(&state, &names)),
            PowerProgram::Suspend | PowerProgram::ResumeFail => None,
        };
        (policy.program(program).map(str::to_owned), longest.max(CALL_LIMIT), resume_file)
    };
    let file = match resume_file.map(|text| files.write(&text)).transpose() {
        Ok(file) => file,
        Err(error) => {
            // The program is not called without its file. The call is made again, when the disk may have room.
            tracing::error!("{} is not called yet: the file of its jobs: {error}", program.key());
            return tokio::time::sleep(CALL_AGAIN_PAUSE).await;
        }
    };
    let state_dir = shared.setup.client_state.clone();
    let run = move || {
        let Some(path) = path else {
            return Err(format!("{} is not configured", program.key()));
        };
        tracing::info!("{path} {hosts}");
        let mut environment = vec![("PATH".to_owned(), SYSTEM_PATH.to_owned())];
        environment.extend(state_dir.map(|dir| ("SLUICE_STATE".to_owned(), dir)));
        let path_of_file = file.iter().map(|file| file.path().display().to_string());
        environment.extend(path_of_file.map(|path| ("SLURM_RESUME_FILE".to_owned(), path)));
        let limit_name = "ten minutes and its timeout in slurm.conf";
        let (arguments, limit, logs_output) = (vec![hosts], Some(limit), true);
        SiteProgram { program: path, arguments, environment, limit, limit_name, logs_output }.run()
    };
    match tokio::task::spawn_blocking(run).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => tracing::error!("{}: {why}", program.key()),
        Err(error) => tracing::error!("{}: {error}", program.key()),
    }
    // A node that was asked for something else meanwhile, and then again for this, has its own call to come.
    let same = |(name, before): &(String, PowerState)| {
        let power = shared.read().nodes.get(name).map(|node| node.power)?;
        (power.program_due() == Some(program) && begun(power) == begun(*before))
            .then(|| name.clone())
    };
    let nodes: Vec<String> = nodes.iter().filter_map(same).collect();
    if !nodes.is_empty() {
        let ended = Command::PowerProgramEnded { nodes, program };
        if let Err(why) = shared.writer.run(ended, server_principal()).await {
            tracing::error!("the end of {} could not be kept: {why}", program.key());
            // It is called again, and not before the disk may have room.
            tokio::time::sleep(CALL_AGAIN_PAUSE).await;
        }
    }
}

/// When the state began that a call was made for.
fn begun(power: PowerState) -> Option<model::time::Timestamp> {
    match power {
        PowerState::PoweringDown { since, .. } | PowerState::PoweringUp { since, .. } => {
            Some(since)
        }
        _ => None,
    }
}

/// Which jobs the nodes are powered up for, as `ResumeProgram` finds it in `SLURM_RESUME_FILE`.
fn resume_file(state: &State, names: &[String]) -> String {
    let resumed: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let nodes = names.iter().filter_map(|name| state.nodes.get(name));
    let jobs: BTreeSet<_> = nodes.flat_map(|node| &node.holders).map(|held| held.job).collect();
    let jobs = jobs.into_iter().filter_map(|id| state.job(id)).filter_map(|job| {
        let attempt = job.attempt()?;
        let allocated: Vec<&str> = attempt.allocation.node_names().collect();
        let of_job = allocated.iter().filter(|node| resumed.contains(*node));
        let request = job.spec.request();
        Some(json!({
            "extra": null,
            "features": request.constraint.as_ref().map(ToString::to_string),
            "job_id": job.id.0,
            "nodes_alloc": hostlist::compress(&allocated),
            "nodes_resume": hostlist::compress(of_job),
            "oversubscribe": job_text::over_subscribe(request.sharing),
            "partition": attempt.allocation.partition,
            "reservation": attempt.reservation,
        }))
    });
    let jobs: Vec<_> = jobs.collect();
    json!({"all_nodes_resume": hostlist::compress(names), "jobs": jobs}).to_string()
}
