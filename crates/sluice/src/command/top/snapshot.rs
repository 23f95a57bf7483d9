//! What the server answered at one time: the nodes, the jobs, and what they come to.

use ::slurm::words::node::NodeState;
use model::allocation::GresShare;
use model::gres::GPU;
use model::time::Timestamp;
use std::time::Instant;
use wire::view::{ClusterView, JobView, NodeView};

pub struct Snapshot {
    pub cluster: String,
    /// The server's time of the answer, and ours.
    now: Timestamp,
    taken: Instant,
    /// How many commits the server had made; not known of a server of an earlier version.
    pub commits: Option<u64>,
    pub nodes: Vec<NodeView>,
    pub jobs: Vec<JobView>,
    pub totals: Totals,
    /// How many jobs the filter that was asked for leaves.
    pub matching: u64,
    /// Whether there are more of them than `jobs`.
    pub is_part: bool,
    /// Whether `jobs` are the last ones, where they are not all.
    pub from_end: bool,
}

/// How many jobs there are, where not all of them were asked for.
#[derive(Debug, Clone, Copy)]
pub struct JobCounts {
    pub running: u64,
    pub waiting: u64,
    /// How many of them the filter leaves; `None`: nothing was filtered.
    pub matching: Option<u64>,
    /// Whether the last ones were asked for.
    pub from_end: bool,
}

/// Sums over all nodes and over the jobs that were asked for.
#[derive(Default)]
pub struct Totals {
    pub nodes_available: usize,
    pub cpus: u64,
    pub cpus_used: u64,
    pub gpus: u64,
    pub gpus_used: u64,
    pub running: u64,
    pub waiting: u64,
}

impl Snapshot {
    /// `counts` are those of all jobs, where `jobs` are the head of the queue or its end.
    pub fn new(
        cluster: ClusterView,
        jobs: Vec<JobView>,
        counts: Option<JobCounts>,
        commits: Option<u64>,
    ) -> Self {
        let ClusterView { name, now, nodes, .. } = cluster;
        let mut totals = Totals::default();
        for node in &nodes {
            totals.nodes_available += usize::from(NodeState::of(node).is_available());
            totals.cpus += u64::from(node.config.usable_cpus().len());
            totals.cpus_used += u64::from(node.cpus_allocated);
            totals.gpus += node.config.gres_total(GPU);
            totals.gpus_used += gpus_used(node);
        }
        let counts = counts.unwrap_or_else(|| {
            let waiting = jobs.iter().filter(|job| job.state.is_waiting()).count() as u64;
            let running = jobs.len() as u64 - waiting;
            JobCounts { running, waiting, matching: None, from_end: false }
        });
        (totals.running, totals.waiting) = (counts.running, counts.waiting);
        let matching = counts.matching.unwrap_or(counts.running + counts.waiting);
        let is_part = matching > jobs.len() as u64;
        Self {
            cluster: name,
            now,
            taken: Instant::now(),
            commits,
            nodes,
            jobs,
            totals,
            matching,
            is_part,
            from_end: counts.from_end,
        }
    }

    /// The server's time now, by which running jobs are timed between two answers.
    pub fn now(&self) -> Timestamp {
        let since = i64::try_from(self.taken.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.now.millis().saturating_add(since))
    }
}

/// The GPUs of a node that jobs hold.
pub fn gpus_used(node: &NodeView) -> u64 {
    let gpus = node.gres_used.iter().filter(|share: &&GresShare| share.name == GPU);
    gpus.map(|share| share.count).sum()
}

/// How busy the GPUs of a node are on average, where they say it.
pub fn gpu_busy_percent(node: &NodeView) -> Option<u64> {
    let busy: Vec<u64> = node.facts.gpus.iter().filter_map(|gpu| gpu.busy_percent).collect();
    let count = busy.len() as u64;
    busy.iter().sum::<u64>().checked_div(count)
}
