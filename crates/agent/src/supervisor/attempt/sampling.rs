//! Samples what the attempt's script and tasks use: periodically, on request (`sstat`), and at their end.

use super::Attempt;
use crate::supervisor::process::usage;
use crate::supervisor::step::Step;
use crate::wall_clock;
use model::id::StepId;
use model::load::{LiveUsage, Load, LoadSample, SAMPLES_MAX};
use model::time::Timestamp;
use model::usage::{LiveStep, TaskSample, TaskUsage};
use std::collections::HashMap;
use std::time::Duration;

impl Attempt {
    /// Seconds between two samples; 0 for none.
    pub(super) fn sample_s(&self) -> u32 {
        self.record.launch.sample_s.unwrap_or(self.record.site.sample_s)
    }

    /// When the next sample is due; `None` while nothing runs.
    pub(super) fn sample_due(&self) -> Option<Timestamp> {
        let runs = self.script_pid().is_some() || self.steps.iter().any(Step::runs);
        self.sample_at.filter(|_| runs && self.emptying.is_none())
    }

    pub(super) fn on_sample_time(&mut self, now: Timestamp) {
        if self.sample_due().is_some_and(|at| at <= now) {
            let sums = self.sample();
            let load = self.load(&sums);
            if self.samples.len() == SAMPLES_MAX {
                self.samples.pop_front();
            }
            self.samples.push_back(load);
        }
    }

    /// What the attempt uses as a whole. What no group counts is that of its processes.
    fn load(&self, sums: &HashMap<i32, (TaskSample, Vec<i32>)>) -> LoadSample {
        let counted = self.group.usage().unwrap_or_default();
        let processes = || sums.values().map(|(used, _)| used);
        let cpu_us = counted.cpu_user_us.zip(counted.cpu_system_us);
        let resident = processes().map(|used| used.memory_now).sum();
        LoadSample {
            at: wall_clock::now(),
            cpu_us: cpu_us.map_or_else(
                || processes().map(|used| used.cpu_ms.saturating_mul(1000)).sum(),
                |(user, system)| user.saturating_add(system),
            ),
            memory: counted.memory_now.unwrap_or(resident),
            resident,
        }
    }

    fn script_pid(&self) -> Option<i32> {
        self.leader.as_ref().and_then(|leader| leader.pid).map(|pid| pid.as_raw())
    }

    /// Samples every process of the job, and returns the sums by the task that each belongs to.
    fn sample(&mut self) -> HashMap<i32, (TaskSample, Vec<i32>)> {
        let period = self.sample_s();
        let next = wall_clock::now() + Duration::from_secs(u64::from(period));
        self.sample_at = (period > 0).then_some(next);
        let script = self.script_pid();
        let tasks = self.steps.iter().flat_map(Step::task_pids);
        let roots: Vec<i32> = script.into_iter().chain(tasks).collect();
        // A group that cannot be read now is read at the next sample.
        let processes = usage::sample(&self.group.pids().unwrap_or_default());
        let sums = usage::by_root(&processes, &roots, script);
        if let Some((used, _)) = script.and_then(|pid| sums.get(&pid)) {
            self.script_used.update(used);
        }
        self.steps.iter_mut().for_each(|step| step.update_usage(&sums));
        sums
    }

    /// Answers a request for what the steps use now.
    pub(super) fn measure(&mut self, ask: u64) {
        let sums = self.sample();
        let mut live: Vec<LiveStep> = Vec::new();
        if let Some(pid) = self.script_pid() {
            let pids = sums.get(&pid).map(|(_, pids)| pids.clone()).unwrap_or_default();
            let used = TaskUsage::of(0, 0, &self.script_used, true);
            live.push(LiveStep { step: StepId::Batch, used, pids });
        }
        live.extend(self.steps.iter().filter(|step| step.runs()).map(|step| step.live(&sums)));
        let now = self.load(&sums);
        let samples = self.samples.iter().copied().chain([now]).collect();
        let load = Load { samples, gpus: Vec::new() };
        self.agents.measured(ask, LiveUsage { steps: live, load });
    }
}
