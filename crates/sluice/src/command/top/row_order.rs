//! Which rows are shown, and in which order.

use ::slurm::output::text::job_search;
use ::slurm::words::node::NodeState;
use std::cmp::Reverse;
use wire::client::QueueOrder;
use wire::view::{JobView, NodeView};

/// By what jobs are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSort {
    /// Running jobs first, then waiting jobs by their priority.
    Queue,
    Id,
    User,
    Name,
    Start,
}

impl JobSort {
    pub fn next(self) -> Self {
        match self {
            Self::Queue => Self::Id,
            Self::Id => Self::User,
            Self::User => Self::Name,
            Self::Name => Self::Start,
            Self::Start => Self::Queue,
        }
    }

    /// What the server is asked for, to have the first jobs of this order.
    pub fn asked(self) -> QueueOrder {
        match self {
            Self::Queue => QueueOrder::Queue,
            Self::Id => QueueOrder::Id,
            Self::User => QueueOrder::User,
            Self::Name => QueueOrder::Name,
            Self::Start => QueueOrder::Start,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Id => "id",
            Self::User => "user",
            Self::Name => "name",
            Self::Start => "start",
        }
    }
}

/// By what nodes are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeSort {
    /// As the configuration has them.
    Name,
    State,
    /// Nodes with the most CPUs in use first.
    Used,
}

impl NodeSort {
    pub fn next(self) -> Self {
        match self {
            Self::Name => Self::State,
            Self::State => Self::Used,
            Self::Used => Self::Name,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Used => "used",
        }
    }
}

/// The indices of the jobs that are shown.
pub fn jobs(jobs: &[JobView], filter: &str, sort: JobSort) -> Vec<u32> {
    let filter = filter.to_lowercase();
    let mut order: Vec<u32> = (0..jobs.len() as u32).collect();
    if !filter.is_empty() {
        order.retain(|at| job_search::contains(&jobs[*at as usize], &filter));
    }
    let job = |at: &u32| &jobs[*at as usize];
    match sort {
        JobSort::Queue => order.sort_by_key(|at| {
            let job = job(at);
            (job.state.is_waiting(), Reverse(job.priority), job.id)
        }),
        JobSort::Id => order.sort_by_key(|at| job(at).id),
        JobSort::User => order.sort_by(|a, b| {
            let key = |at| (&job(at).spec.owner.name, job(at).id);
            key(a).cmp(&key(b))
        }),
        JobSort::Name => order.sort_by(|a, b| {
            let key = |at| (&job(at).name, job(at).id);
            key(a).cmp(&key(b))
        }),
        // A job whose start nobody knows comes last.
        JobSort::Start => order.sort_by_key(|at| {
            let start = job(at).start;
            (start.is_none(), start, job(at).id)
        }),
    }
    order
}

/// The indices of the nodes that are shown.
pub fn nodes(nodes: &[NodeView], filter: &str, sort: NodeSort) -> Vec<u32> {
    let filter = filter.to_lowercase();
    let mut order: Vec<u32> = (0..nodes.len() as u32).collect();
    let node = |at: &u32| &nodes[*at as usize];
    if !filter.is_empty() {
        order.retain(|at| node_matches(node(at), &filter));
    }
    match sort {
        NodeSort::Name => {}
        NodeSort::State => order.sort_by_key(|at| NodeState::of(node(at)).rank()),
        NodeSort::Used => order.sort_by_key(|at| {
            let node = node(at);
            let total = u64::from(node.config.usable_cpus().len()).max(1);
            Reverse(u64::from(node.cpus_allocated) * 1000 / total)
        }),
    }
    order
}

fn node_matches(node: &NodeView, filter: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(filter);
    has(&node.config.name)
        || has(&NodeState::of(node).compact())
        || node.partitions.iter().any(|name| has(name))
        || node.config.gres.iter().any(|gres| gres.kind.as_deref().is_some_and(has))
}
