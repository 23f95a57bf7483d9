//! What a step asks of its job: which nodes may serve, how many, and how many tasks.

use crate::command::StepRequest;
use model::allocation::{Allocation, NodeShare};
use model::amount::Bytes;
use model::reason::{NeverFits, Refusal};
use model::request::{GresRequest, Per};
use model::step::{StepRefusal, TaskDistribution};
use std::collections::HashSet;

/// The most tasks of one step.
const TASKS_MAX: u32 = 65_533;

pub(super) struct StepDemand<'a> {
    pub allocation: &'a Allocation,
    pub ask: &'a StepRequest,
    pub cpus_per_task: u32,
    pub overcommit: bool,
    /// The job's memory for each CPU, if it is granted by CPU.
    pub memory_per_cpu: Option<Bytes>,
    /// The devices that a step gets which names none; `None` for all that the job has.
    pub gres_unsaid: Option<Vec<GresRequest>>,
}

/// How many nodes and tasks are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub tasks: u32,
    pub nodes_min: u32,
    pub nodes_max: u32,
}

impl StepDemand<'_> {
    /// The nodes of the job that the step may use.
    pub fn candidates(&self) -> Result<Vec<&NodeShare>, Refusal> {
        let (shape, nodes) = (&self.ask.shape, &self.allocation.nodes);
        // Looked up and not searched: a list may name as many as there are, again and again.
        let there: HashSet<&str> = self.allocation.node_names().collect();
        if self.ask.node_list.iter().any(|name| !there.contains(name.as_str())) {
            return Err(Refusal::NodeConfiguration(NeverFits::NamedNodes.into()));
        }
        if let Some(first) = shape.relative {
            let (asked, most) = (self.ask.nodes.unwrap_or(1), nodes.len() as u32);
            if first.saturating_add(asked) > most {
                return Err(Refusal::Step(StepRefusal::Relative { first, asked, most }));
            }
        }
        let after = nodes.iter().skip(shape.relative.unwrap_or(0) as usize);
        let excluded: HashSet<&str> = shape.exclude.iter().map(String::as_str).collect();
        let left: Vec<&NodeShare> = after.filter(|s| !excluded.contains(s.node.as_str())).collect();
        if left.is_empty() {
            return Err(Refusal::Step(StepRefusal::NoNodes));
        }
        Ok(left)
    }

    pub fn counts(&self, there: u32) -> Result<Counts, Refusal> {
        let (ask, shape) = (self.ask, &self.ask.shape);
        if ask.nodes == Some(0) {
            return Err(Refusal::Step(StepRefusal::NoNodes));
        }
        if let Some(asked) = ask.nodes.filter(|asked| *asked > there) {
            let excluded = !shape.exclude.is_empty();
            return Err(Refusal::Step(StepRefusal::Nodes { asked, most: there, excluded }));
        }
        let named = self.named_nodes() as u32;
        let unsaid = if named > 0 { named } else { there };
        let most = shape.nodes_max.or(ask.nodes).unwrap_or(unsaid).min(there).max(named);
        let tasks = match (ask.tasks, self.hosts()) {
            (Some(tasks), Some(hosts)) if hosts.len() < tasks as usize => {
                let hosts = hosts.len() as u32;
                return Err(Refusal::Step(StepRefusal::Hosts { tasks, hosts }));
            }
            (Some(tasks), _) => tasks,
            (None, Some(hosts)) => hosts.len() as u32,
            (None, None) => self.tasks_unsaid(most),
        };
        if tasks > TASKS_MAX {
            let (asked, most) = (u64::from(tasks), u64::from(TASKS_MAX));
            return Err(Refusal::Step(StepRefusal::Processors { asked, most }));
        }
        // Every node has a task.
        let nodes_min = ask.nodes.unwrap_or(1).min(tasks).max(1);
        Ok(Counts { tasks, nodes_min, nodes_max: most.min(tasks).max(nodes_min) })
    }

    fn tasks_unsaid(&self, nodes: u32) -> u32 {
        let (ask, allocation) = (self.ask, self.allocation);
        match (ask.tasks_per_node, ask.cpus_per_task) {
            _ if ask.shape.own => allocation.task_count().max(nodes),
            (Some(each), _) => each.saturating_mul(nodes),
            // As many as the job's CPUs allow.
            (None, Some(each)) => (allocation.cpu_count() / each.max(1)).max(nodes),
            (None, None) => nodes,
        }
    }

    pub fn named_nodes(&self) -> usize {
        let mut names: Vec<&String> = self.ask.node_list.iter().collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The host of each rank, for the arbitrary distribution.
    pub fn hosts(&self) -> Option<&[String]> {
        let arbitrary = self.ask.shape.distribution == Some(TaskDistribution::Arbitrary);
        arbitrary.then_some(self.ask.node_list.as_slice())
    }

    pub fn gres_of(&self, per: Per) -> impl Iterator<Item = &GresRequest> {
        self.ask.shape.gres.iter().flatten().filter(move |g| g.per == per)
    }
}
