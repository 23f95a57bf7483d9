//! What orders of a history carry: the launch of a job and of a step, as small as the protocol allows.

use cluster::Job;
use model::attempt::Attempt;
use model::id::StepId;
use model::run::Step;
use serde_json::json;
use wire::order::{Action, EndOrder, JobLaunch, StepOrder};

/// How long an order is valid after it was written, milliseconds. As in the server's dispatcher.
pub const ORDER_LIFE_MS: i64 = 120_000;

/// The texts that every launch has alike, read once.
pub struct OrderTexts {
    launch: JobLaunch,
    step: StepOrder,
}

impl OrderTexts {
    /// From the least that a launch must say: the rest are the protocol's defaults.
    pub fn read() -> Result<Self, serde_json::Error> {
        let launch = serde_json::from_value(json!({
            "kind": "batch",
            "user": { "name": "user", "uid": 0, "gid": 0, "groups": [] },
            "share": { "node": "", "cpus": model::cpuset::CpuSet::new(), "memory": 0, "tasks": 1 },
            "node_index": 0,
            "environment": [],
            "work_dir": "/",
            "stdin": "/dev/null",
            "stdout": "discard",
            "stderr": "discard",
            "umask": 18,
            "name": "job",
            "end_limit": null,
            "kill_wait_s": 5,
            "names": { "job_id": 0, "user": "user", "job_name": "job" },
            "notices": { "time_limit": "", "out_of_memory": "", "node_failure": "" },
        }))?;
        let step = serde_json::from_value(json!({
            "step": StepId::Number(0),
            "launch": {
                "name": "step", "argv": ["true"], "environment": "", "work_dir": "/", "key": "",
            },
            "tasks": [],
            "node_index": 0,
            "environment": [],
            "process_variables": [],
        }))?;
        Ok(Self { launch, step })
    }

    /// The launch of the attempt on this node; `None` if the node has no share of it.
    pub fn launch(&self, job: &Job, attempt: &Attempt, node: &str) -> Option<Action> {
        let nodes = &attempt.allocation.nodes;
        let index = nodes.iter().position(|share| share.node == node)?;
        let mut launch = self.launch.clone();
        launch.kind = job.spec.launch.kind;
        launch.user.uid = job.spec.owner.uid;
        launch.share = nodes[index].clone();
        launch.node_index = index as u32;
        launch.nodes = nodes.len() as u32;
        launch.end_limit = attempt.end_limit;
        launch.names.job_id = job.id.0;
        Some(Action::Launch(Box::new(launch)))
    }

    pub fn step(&self, step: &Step, node: &str) -> Action {
        let mut order = self.step.clone();
        order.step = step.id;
        order.share = step.shares.iter().find(|share| share.node == node).cloned();
        Action::Step(Box::new(order))
    }
}

/// Ends the whole attempt, after so many seconds by force.
pub fn end(grace_s: u32) -> Action {
    Action::End(EndOrder { grace_s, ..EndOrder::kill(None, None) })
}
