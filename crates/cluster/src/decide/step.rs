//! A step within its job's allocation: which nodes, and which task where.

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision, Reply, StepAsk, StepPlaced};
use crate::event::Event;
use crate::state::State;
use model::allocation::{Allocation, NodeShare};
use model::id::{AttemptId, JobId, StepId};
use model::reason::{NeverFits, Refusal};
use model::request::Request;
use model::run::Step;

/// The most tasks of one step.
const TASKS_MAX: u32 = 65_533;

impl State {
    pub(super) fn decide_step(
        &self,
        id: JobId,
        ask: &StepAsk,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let job = self.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
        authorise(self, &context.by, Act::OwnJob(job))?;
        let attempt = match job.attempt() {
            Some(attempt) if attempt.ending.is_none() => attempt,
            Some(_) => return Err(Refusal::JobEnded(id)),
            None if job.has_ended() => return Err(Refusal::JobEnded(id)),
            None => return Err(Refusal::JobNotRunning(id)),
        };
        let placed = place(&attempt.allocation, job.spec.request(), ask)?;
        let step = StepId::Number(attempt.next_step);
        let nodes: Vec<String> = placed.iter().map(|(share, _)| share.node.clone()).collect();
        let tasks: usize = placed.iter().map(|(_, ranks)| ranks.len()).sum();
        let cpus_per_task = ask.cpus_per_task.unwrap_or(job.spec.request().cpus_per_task.min);
        let event = Event::StepStarted {
            job: id,
            step: Box::new(Step {
                id: step,
                name: ask.name.clone(),
                start: context.now,
                waiting: nodes.clone(),
                layout: placed.iter().map(|(s, ranks)| (s.node.clone(), ranks.clone())).collect(),
                nodes,
                tasks: tasks as u32,
                cpus: (tasks as u32).saturating_mul(cpus_per_task),
                end: None,
                exit: Default::default(),
                usage: Default::default(),
                submit_line: ask.submit_line.clone(),
            }),
        };
        let attempt = AttemptId { job: id, number: attempt.number };
        let reply = Reply::Step(StepPlaced { attempt, step, nodes: placed, cpus_per_task });
        Ok(Decision { events: vec![event], reply })
    }
}

/// Spreads the tasks over the allocation in blocks: each node gets what it may, at least one.
fn place(
    allocation: &Allocation,
    request: &Request,
    ask: &StepAsk,
) -> Result<Vec<(NodeShare, Vec<u32>)>, Refusal> {
    let usable: Vec<&NodeShare> = match ask.node_list.is_empty() {
        true => allocation.nodes.iter().collect(),
        false => {
            let missing = ask.node_list.iter().find(|n| allocation.share(n).is_none());
            if missing.is_some() {
                return Err(Refusal::NodeConfiguration(NeverFits::NamedNodes));
            }
            ask.node_list.iter().filter_map(|n| allocation.share(n)).collect()
        }
    };
    let node_count = ask.nodes.unwrap_or(match ask.tasks {
        Some(tasks) if ask.node_list.is_empty() => (usable.len() as u32).min(tasks),
        _ => usable.len() as u32,
    });
    if node_count == 0 || node_count as usize > usable.len() {
        let most = usable.len() as u64;
        return Err(Refusal::NodeConfiguration(NeverFits::Nodes {
            asked: u64::from(node_count),
            most,
        }));
    }
    let nodes = &usable[..node_count as usize];
    let tasks = ask.tasks.unwrap_or_else(|| match (ask.tasks_per_node, request.tasks) {
        (Some(per_node), _) => per_node.saturating_mul(node_count),
        (None, Some(tasks)) if ask.nodes.is_none() => tasks,
        (None, _) => nodes.iter().map(|s| s.tasks.max(1)).sum::<u32>().max(node_count),
    });
    if tasks > TASKS_MAX {
        return Err(Refusal::NodeConfiguration(NeverFits::Cpus {
            asked: u64::from(tasks),
            most: u64::from(TASKS_MAX),
        }));
    }
    let cpus_per_task = ask.cpus_per_task.unwrap_or(request.cpus_per_task.min).max(1);
    let overcommit = ask.overcommit || request.overcommit;
    let room = |share: &NodeShare| {
        let by_cpus = if overcommit { TASKS_MAX } else { share.cpus.len() / cpus_per_task };
        ask.tasks_per_node.map_or(by_cpus, |most| by_cpus.min(most))
    };
    deal(nodes, tasks, room)
}

fn deal(
    nodes: &[&NodeShare],
    tasks: u32,
    room: impl Fn(&NodeShare) -> u32,
) -> Result<Vec<(NodeShare, Vec<u32>)>, Refusal> {
    let mut placed = Vec::new();
    let mut next = 0;
    for (i, share) in nodes.iter().enumerate() {
        let behind = (nodes.len() - i - 1) as u32;
        let left = tasks - next;
        let here = left.saturating_sub(behind).min(room(share)).max(u32::from(left > behind));
        placed.push(((*share).clone(), (next..next + here).collect::<Vec<u32>>()));
        next += here;
    }
    if next < tasks || placed.iter().any(|(s, ranks)| ranks.len() as u32 > room(s)) {
        let most: u64 = nodes.iter().map(|s| u64::from(room(s))).sum();
        return Err(Refusal::NodeConfiguration(NeverFits::Cpus { asked: u64::from(tasks), most }));
    }
    placed.retain(|(_, ranks)| !ranks.is_empty());
    Ok(placed)
}
