//! The usage of a step's tasks.

use super::{Stage, Step};
use model::usage::{LiveStep, TaskSample, TaskUsage};
use std::collections::HashMap;

impl Step {
    pub fn runs(&self) -> bool {
        self.stage == Stage::Running
    }

    /// The pids of its running tasks.
    pub fn task_pids(&self) -> impl Iterator<Item = i32> + '_ {
        self.tasks.iter().filter_map(|task| task.pid).map(|pid| pid.as_raw())
    }

    /// Takes a sample of all processes, summed by task.
    pub fn update_usage(&mut self, sums: &HashMap<i32, (TaskSample, Vec<i32>)>) {
        for task in &mut self.tasks {
            if let Some((used, _)) = task.pid.and_then(|pid| sums.get(&pid.as_raw())) {
                task.used.update(used);
            }
        }
    }

    /// The usage of all its tasks on this node, ended and running.
    pub(super) fn used_by_tasks(&self) -> TaskUsage {
        let mut all = TaskUsage::default();
        for task in &self.tasks {
            let running = task.pid.is_some();
            all.absorb(&TaskUsage::of(self.order.node_index, task.rank, &task.used, running));
        }
        all
    }

    pub fn live(&self, sums: &HashMap<i32, (TaskSample, Vec<i32>)>) -> LiveStep {
        let own = self.task_pids().filter_map(|pid| sums.get(&pid));
        let mut pids: Vec<i32> = own.flat_map(|(_, pids)| pids).copied().collect();
        pids.sort_unstable();
        LiveStep { step: self.order.step, used: self.used_by_tasks(), pids }
    }
}
