//! `sstat`: what running steps use now, asked of their supervisors through the nodes' agents.

use crate::shared::Shared;
use cluster::Job;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use model::change::JobRef;
use model::id::{AttemptId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::Step;
use model::usage::{LiveStep, TaskUsage};
use std::sync::Arc;
use wire::client::{Answer, JobUsage, StepUsage};

/// Jobs that one call asks for.
const JOBS_MAX: usize = 1024;

/// A running job whose nodes are to be asked, copied out of the state.
struct RunningJob {
    attempt: AttemptId,
    shown: String,
    nodes: Vec<String>,
    steps: Vec<Step>,
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
                asked.extend(running_job(chosen.job));
            }
        }
        asked
    };
    let mut answers = Vec::new();
    for one in asked {
        answers.push(job_usage(shared, one, load).await);
    }
    Ok(Answer::Usage(answers))
}

fn running_job(job: &Job) -> Option<RunningJob> {
    let (attempt, active) = (job.attempt_id()?, job.attempt()?);
    let steps = active.steps.iter().filter(|step| step.end.is_none()).cloned().collect();
    let shown = match job.task {
        Some(task) => format!("{}_{}", task.array, task.index),
        None => job.id.to_string(),
    };
    Some(RunningJob { attempt, shown, nodes: active.held_nodes.clone(), steps })
}

async fn job_usage(shared: &Arc<Shared>, job: RunningJob, load: bool) -> JobUsage {
    let mut parts: Vec<(String, Vec<LiveStep>)> = Vec::new();
    let mut loads = Vec::new();
    for node in &job.nodes {
        let used = shared.agents.usage(node, job.attempt).await;
        parts.push((node.clone(), used.steps));
        if load {
            loads.push((node.clone(), used.load));
        }
    }
    let steps = job.steps.iter().filter_map(|step| merge(step, &parts)).collect();
    JobUsage { job: job.attempt.job, shown: job.shown, steps, loads }
}

/// One step's usage over all its nodes; `None` when no node answered for it.
fn merge(step: &Step, parts: &[(String, Vec<LiveStep>)]) -> Option<StepUsage> {
    let mut used = TaskUsage::default();
    let mut pids = Vec::new();
    for (node, live) in parts {
        for part in live.iter().filter(|part| part.step == step.id) {
            used.absorb(&part.used);
            pids.push((node.clone(), part.pids.clone()));
        }
    }
    let nodes = match step.id {
        StepId::Number(_) => step.layout.iter().map(|(node, _)| node.clone()).collect(),
        _ => step.nodes.clone(),
    };
    let (step, tasks) = (step.id, step.tasks);
    (!pids.is_empty()).then_some(StepUsage { step, nodes, tasks, used, pids })
}
