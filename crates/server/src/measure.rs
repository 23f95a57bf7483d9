//! `sstat`: what running steps use now, asked of their supervisors through the nodes' agents.

use crate::agents::Agents;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use cluster::{Job, job_selection};
use model::change::JobRef;
use model::id::{AttemptId, StepId};
use model::principal::Principal;
use model::reason::Refusal;
use model::run::Step;
use model::usage::{LiveStep, TaskUsage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;
use wire::client::{Answer, JobUsage, StepUsage};
use wire::link::ToAgent;

/// How long an agent may take: what it has to do is a few reads.
const PATIENCE: Duration = Duration::from_secs(5);
/// Questions under way at once.
const ASKS_MAX: usize = 4096;
/// Jobs that one call asks for.
const JOBS_MAX: usize = 1024;

impl Agents {
    /// Asks a node what an attempt's steps use; nothing if it does not answer in time.
    async fn measure(&self, node: &str, attempt: AttemptId) -> Vec<LiveStep> {
        let Some(outbox) = self.outbox_of(node) else { return Vec::new() };
        let ask = self.next_ask.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut asks = self.asks.lock().expect("no panic with the questions held");
            if asks.len() >= ASKS_MAX {
                return Vec::new();
            }
            asks.insert(ask, sender);
        }
        let question = ToAgent::Measure { request: ask, node: node.to_owned(), attempt };
        let sent = outbox.try_send(question).is_ok();
        let answer = match sent {
            true => tokio::time::timeout(PATIENCE, answer).await.ok().and_then(Result::ok),
            false => None,
        };
        self.asks.lock().expect("no panic with the questions held").remove(&ask);
        answer.unwrap_or_default()
    }

    /// An answer; of one that nobody waits for any more nothing is kept.
    pub(crate) fn measured(&self, ask: u64, steps: Vec<LiveStep>) {
        let waiting = self.asks.lock().expect("no panic with the questions held").remove(&ask);
        if let Some(waiting) = waiting {
            let _ = waiting.send(steps);
        }
    }
}

/// What is to be asked of one job, copied out of the state.
struct Asked {
    attempt: AttemptId,
    shown: String,
    nodes: Vec<String>,
    steps: Vec<Step>,
}

pub async fn usage(
    shared: &Arc<Shared>,
    by: &Principal,
    jobs: &[JobRef],
) -> Result<Answer, Refusal> {
    let asked = {
        let state = shared.read();
        let mut asked = Vec::new();
        for wanted in jobs.iter().take(JOBS_MAX) {
            for chosen in job_selection::resolve(&state, wanted) {
                authorise(&state, by, Act::OwnJob(chosen.job))?;
                asked.extend(of_job(chosen.job));
            }
        }
        asked
    };
    let mut answers = Vec::new();
    for one in asked {
        answers.push(measure_job(shared, one).await);
    }
    Ok(Answer::Usage(answers))
}

fn of_job(job: &Job) -> Option<Asked> {
    let (attempt, active) = (job.attempt_id()?, job.attempt()?);
    let steps = active.steps.iter().filter(|step| step.end.is_none()).cloned().collect();
    let shown = match job.task {
        Some(task) => format!("{}_{}", task.array, task.index),
        None => job.id.to_string(),
    };
    Some(Asked { attempt, shown, nodes: active.held_nodes.clone(), steps })
}

async fn measure_job(shared: &Arc<Shared>, asked: Asked) -> JobUsage {
    let mut parts: Vec<(String, Vec<LiveStep>)> = Vec::new();
    for node in &asked.nodes {
        let steps = shared.agents.measure(node, asked.attempt).await;
        parts.push((node.clone(), steps));
    }
    let steps = asked.steps.iter().filter_map(|step| merge(step, &parts)).collect();
    JobUsage { job: asked.attempt.job, shown: asked.shown, steps }
}

/// The parts of one step; none where no node has said anything of it.
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
