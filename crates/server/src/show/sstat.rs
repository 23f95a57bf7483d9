//! `sstat`: what running steps use now, asked of their supervisors through the nodes' agents.

use crate::shared::Shared;
use cluster::Job;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use model::allocation::NodeShare;
use model::change::JobRef;
use model::cpu_frequency::CpuFrequency;
use model::gres::GPU;
use model::id::{AttemptId, JobId, StepId};
use model::load::Load;
use model::principal::Principal;
use model::reason::Refusal;
use model::run::Step;
use model::usage::{LiveStep, TaskUsage};
use std::collections::HashMap;
use std::sync::Arc;
use wire::client::{Answer, JobUsage, LOADS_MAX, StepUsage};

/// Jobs that one call asks for.
const JOBS_MAX: usize = 1024;

/// A running job whose nodes are to be asked, copied out of the state.
struct RunningJob {
    attempt: AttemptId,
    shown: String,
    /// With how many GPUs it has there.
    nodes: Vec<(String, usize)>,
    steps: Vec<RunningStep>,
}

/// What is shown of a step; the rest of its record may be long.
struct RunningStep {
    id: StepId,
    tasks: u32,
    nodes: Vec<String>,
    cpu_frequency: Option<CpuFrequency>,
}

impl RunningStep {
    fn of(step: &Step) -> Self {
        let nodes = match step.id {
            StepId::Number(_) => step.layout.iter().map(|(node, _)| node.clone()).collect(),
            _ => step.nodes.clone(),
        };
        Self { id: step.id, tasks: step.tasks, nodes, cpu_frequency: step.cpu_frequency }
    }
}

pub async fn usage(
    shared: &Arc<Shared>,
    by: &Principal,
    jobs: &[JobRef],
    load: bool,
) -> Result<Answer, Refusal> {
    let asked = {
        let state = shared.read();
        let viewer = Viewer::new(&state, by);
        let mut asked = Vec::new();
        for wanted in JobRef::distinct(jobs).iter().take(JOBS_MAX) {
            for chosen in viewer.resolve(wanted) {
                authorise(&state, by, Act::ManageJob(chosen.job))?;
                asked.extend(chosen.job.attempt_id());
            }
        }
        asked
    };
    let mut answers = Vec::new();
    let mut loads_left = if load { LOADS_MAX } else { 0 };
    for attempt in asked {
        // One after the other: the nodes of one may take long, and nothing of the others is held meanwhile.
        let found = shared.read().jobs.get(&attempt.job).and_then(|job| running_job(job));
        let Some(one) = found.filter(|found| found.attempt == attempt) else { continue };
        let used = job_usage(shared, one, loads_left).await;
        loads_left -= used.loads.len();
        answers.push(used);
    }
    Ok(Answer::Usage(answers))
}

/// The load of a running job on one of its nodes.
pub async fn load_on(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    node: &str,
) -> Result<Load, Refusal> {
    let found = {
        let state = shared.read();
        let Some(job) = state.jobs.get(&job) else { return Ok(Load::default()) };
        authorise(&state, by, Act::ManageJob(job))?;
        running_job(job)
    };
    let of_node = |(name, _): &&(String, usize)| name == node;
    let Some(job) = found else { return Ok(Load::default()) };
    let Some((_, gpus)) = job.nodes.iter().find(of_node) else { return Ok(Load::default()) };
    let mut load = shared.agents.usage(node, job.attempt).await.load;
    load.gpus.truncate(*gpus);
    Ok(load)
}

fn running_job(job: &Job) -> Option<RunningJob> {
    let (attempt, active) = (job.attempt_id()?, job.attempt()?);
    let steps = active.steps.iter().filter(|step| step.end.is_none());
    let steps = steps.map(RunningStep::of).collect();
    let shown = match job.task {
        Some(task) => format!("{}_{}", task.array, task.index),
        None => job.id.to_string(),
    };
    let shares: HashMap<&str, &NodeShare> =
        active.allocation.nodes.iter().map(|share| (share.node.as_str(), share)).collect();
    let gpus = |node: &String| {
        let gres = shares.get(node.as_str()).into_iter().flat_map(|share| &share.gres);
        let own = gres.filter(|gres| gres.name == GPU);
        own.map(|gres| gres.count).sum::<u64>() as usize
    };
    let nodes = active.held_nodes.iter().map(|node| (node.clone(), gpus(node))).collect();
    Some(RunningJob { attempt, shown, nodes, steps })
}

/// With the load on `loads_max` of its nodes at most.
async fn job_usage(shared: &Arc<Shared>, job: RunningJob, loads_max: usize) -> JobUsage {
    let mut parts: Vec<(String, Vec<LiveStep>)> = Vec::new();
    let mut loads = Vec::new();
    for (node, gpus) in &job.nodes {
        let mut used = shared.agents.usage(node, job.attempt).await;
        parts.push((node.clone(), used.steps));
        if loads.len() < loads_max {
            used.load.gpus.truncate(*gpus);
            loads.push((node.clone(), used.load));
        }
    }
    let steps = job.steps.iter().filter_map(|step| merge(step, &parts)).collect();
    JobUsage { job: job.attempt.job, shown: job.shown, steps, loads }
}

/// One step's usage over all its nodes; `None` when no node answered for it.
fn merge(step: &RunningStep, parts: &[(String, Vec<LiveStep>)]) -> Option<StepUsage> {
    let mut used = TaskUsage::default();
    let mut pids = Vec::new();
    for (node, live) in parts {
        for part in live.iter().filter(|part| part.step == step.id) {
            used.absorb(&part.used);
            pids.push((node.clone(), part.pids.clone()));
        }
    }
    let (nodes, cpu_frequency) = (step.nodes.clone(), step.cpu_frequency);
    let (step, tasks) = (step.id, step.tasks);
    (!pids.is_empty()).then_some(StepUsage { step, nodes, tasks, used, pids, cpu_frequency })
}
