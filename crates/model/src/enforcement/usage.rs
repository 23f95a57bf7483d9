//! Usage, read from a job's control groups and processes, and its spread over the tasks of a step.

use serde::{Deserialize, Serialize};

/// The use of one attempt on its nodes, or of one step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Usage {
    pub cpu_user_us: u64,
    pub cpu_system_us: u64,
    pub memory_peak_bytes: u64,
    #[serde(default)]
    pub oom_kills: u32,
    /// The part of the attempt's CPU time on a node that its steps account for; in a node's report only.
    #[serde(default, rename = "of_steps", skip_serializing_if = "Option::is_none")]
    pub steps_cpu: Option<Box<CpuTime>>,
    /// By task, where tasks were told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Box<TaskUsage>>,
    /// Millijoules, where the machine counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub energy_mj: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// In microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct CpuTime {
    pub user_us: u64,
    pub system_us: u64,
}

impl CpuTime {
    pub fn add(&mut self, usage: &Usage) {
        self.user_us = self.user_us.saturating_add(usage.cpu_user_us);
        self.system_us = self.system_us.saturating_add(usage.cpu_system_us);
    }
}

impl Usage {
    /// The usage of an attempt without that of its steps: the script's own.
    pub fn without_steps(&self) -> Usage {
        let steps = self.steps_cpu.as_deref().copied().unwrap_or_default();
        Usage {
            cpu_user_us: self.cpu_user_us.saturating_sub(steps.user_us),
            cpu_system_us: self.cpu_system_us.saturating_sub(steps.system_us),
            steps_cpu: None,
            // Nobody can say what part of it the script used.
            energy_mj: 0,
            ..self.clone()
        }
    }

    /// Adds another node's or step's use: times add up, the peak is the highest. Sums stop at the largest number: the amounts
    /// are what a node says.
    pub fn absorb(&mut self, other: &Self) {
        self.cpu_user_us = self.cpu_user_us.saturating_add(other.cpu_user_us);
        self.cpu_system_us = self.cpu_system_us.saturating_add(other.cpu_system_us);
        self.memory_peak_bytes = self.memory_peak_bytes.max(other.memory_peak_bytes);
        self.oom_kills = self.oom_kills.saturating_add(other.oom_kills);
        self.energy_mj = self.energy_mj.saturating_add(other.energy_mj);
        match (&mut self.tasks, &other.tasks) {
            (Some(own), Some(other)) => own.absorb(other),
            (own @ None, Some(other)) => *own = Some(other.clone()),
            (_, None) => {}
        }
    }

    /// The usage without its split by task.
    pub fn without_tasks(&self) -> Usage {
        Usage { tasks: None, ..self.clone() }
    }
}

/// One task's usage up to now, from a look at its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskSample {
    pub cpu_ms: u64,
    /// Resident memory of all its processes, now and at its highest.
    pub memory_now: u64,
    pub memory_peak: u64,
    pub virtual_now: u64,
    pub virtual_peak: u64,
    /// Page faults that had to wait for a disk.
    pub pages: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// The frequencies at which its processes ran when they were looked at, in kHz: their sum, and how many there are.
    pub khz_sum: u64,
    pub khz_count: u64,
}

impl TaskSample {
    /// Takes in a later sample of the same task. Counters and peaks never fall.
    pub fn update(&mut self, now: &TaskSample) {
        self.cpu_ms = self.cpu_ms.max(now.cpu_ms);
        self.pages = self.pages.max(now.pages);
        self.read_bytes = self.read_bytes.max(now.read_bytes);
        self.written_bytes = self.written_bytes.max(now.written_bytes);
        self.khz_sum = self.khz_sum.saturating_add(now.khz_sum);
        self.khz_count = self.khz_count.saturating_add(now.khz_count);
        self.memory_now = now.memory_now;
        self.virtual_now = now.virtual_now;
        self.memory_peak = self.memory_peak.max(now.memory_peak).max(now.memory_now);
        self.virtual_peak = self.virtual_peak.max(now.virtual_peak).max(now.virtual_now);
    }
}

/// One amount over the tasks of a step: the total, and which task had most and least. A node is its index among the step's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct UsageSpread {
    pub total: u64,
    pub max: u64,
    pub max_node: u32,
    pub max_task: u32,
    pub min: u64,
    pub min_node: u32,
    pub min_task: u32,
}

impl UsageSpread {
    fn of(node: u32, task: u32, amount: u64, peak: u64) -> Self {
        let (max_node, min_node, max_task, min_task) = (node, node, task, task);
        Self { total: amount, max: peak, max_node, max_task, min: peak, min_node, min_task }
    }

    fn absorb(&mut self, other: &Self) {
        self.total = self.total.saturating_add(other.total);
        if other.max > self.max {
            (self.max, self.max_node, self.max_task) = (other.max, other.max_node, other.max_task);
        }
        if other.min < self.min {
            (self.min, self.min_node, self.min_task) = (other.min, other.min_node, other.min_task);
        }
    }

    fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub fn mean(&self, tasks: u32) -> u64 {
        self.total / u64::from(tasks.max(1))
    }
}

/// The use of a step's tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct TaskUsage {
    pub tasks: u32,
    pub cpu_ms: UsageSpread,
    pub memory: UsageSpread,
    pub virtual_memory: UsageSpread,
    pub pages: UsageSpread,
    pub read: UsageSpread,
    pub written: UsageSpread,
    /// Percent of the time, up to now, that the step's GPUs were busy: on each node the mean of its GPUs there.
    #[serde(default, skip_serializing_if = "UsageSpread::is_zero")]
    pub gpu_busy: UsageSpread,
    /// Bytes of their memory.
    #[serde(default, skip_serializing_if = "UsageSpread::is_zero")]
    pub gpu_memory: UsageSpread,
    /// Millijoules, where the machine counts them.
    #[serde(default, skip_serializing_if = "UsageSpread::is_zero")]
    pub energy_mj: UsageSpread,
    /// The mean frequency of the CPUs that it ran on, where the machine tells it.
    #[serde(default, skip_serializing_if = "UsageSpread::is_zero")]
    pub cpu_khz: UsageSpread,
}

impl TaskUsage {
    /// A running task's memory is its present one, an ended task's its peak.
    pub fn of(node: u32, task: u32, used: &TaskSample, running: bool) -> Self {
        let spread = |amount, peak| UsageSpread::of(node, task, amount, peak);
        let now = |now, peak| if running { now } else { peak };
        let khz = used.khz_sum.checked_div(used.khz_count).unwrap_or(0);
        Self {
            tasks: 1,
            cpu_ms: spread(used.cpu_ms, used.cpu_ms),
            memory: spread(now(used.memory_now, used.memory_peak), used.memory_peak),
            virtual_memory: spread(now(used.virtual_now, used.virtual_peak), used.virtual_peak),
            pages: spread(used.pages, used.pages),
            read: spread(used.read_bytes, used.read_bytes),
            written: spread(used.written_bytes, used.written_bytes),
            gpu_busy: UsageSpread::default(),
            gpu_memory: UsageSpread::default(),
            energy_mj: UsageSpread::default(),
            cpu_khz: if khz > 0 { spread(khz, khz) } else { UsageSpread::default() },
        }
    }

    /// Adds what the GPUs of this node did, which no task can be told apart in: all is its first task's.
    pub fn set_gpus(&mut self, gpus: &GpuUsage) {
        let (node, task) = self.first_task();
        // Once for each task, so that the mean over all tasks is a mean over the nodes.
        let busy = u64::from(gpus.busy_percent) * u64::from(self.tasks);
        self.gpu_busy = UsageSpread::of(node, task, busy, u64::from(gpus.busy_percent_max));
        self.gpu_memory = UsageSpread::of(node, task, gpus.memory, gpus.memory_peak);
    }

    /// Adds the energy that was used on this node, which no task can be told apart in: all is its first task's.
    pub fn set_energy(&mut self, energy_mj: u64) {
        if energy_mj > 0 {
            let (node, task) = self.first_task();
            self.energy_mj = UsageSpread::of(node, task, energy_mj, energy_mj);
        }
    }

    /// The node that this is the use of, and the first of its tasks there that can be told.
    fn first_task(&self) -> (u32, u32) {
        (self.cpu_ms.min_node, self.cpu_ms.min_task.min(self.cpu_ms.max_task))
    }

    pub fn has_energy(&self) -> bool {
        !self.energy_mj.is_zero()
    }

    pub fn has_gpus(&self) -> bool {
        !(self.gpu_busy.is_zero() && self.gpu_memory.is_zero())
    }

    pub fn absorb(&mut self, other: &Self) {
        if self.tasks == 0 {
            *self = *other;
            return;
        }
        self.tasks = self.tasks.saturating_add(other.tasks);
        let own = [
            &mut self.cpu_ms,
            &mut self.memory,
            &mut self.virtual_memory,
            &mut self.pages,
            &mut self.read,
            &mut self.written,
            &mut self.gpu_busy,
            &mut self.gpu_memory,
            &mut self.energy_mj,
            &mut self.cpu_khz,
        ];
        let theirs = [
            &other.cpu_ms,
            &other.memory,
            &other.virtual_memory,
            &other.pages,
            &other.read,
            &other.written,
            &other.gpu_busy,
            &other.gpu_memory,
            &other.energy_mj,
            &other.cpu_khz,
        ];
        own.into_iter().zip(theirs).for_each(|(own, other)| own.absorb(other));
    }
}

/// What the GPUs of an attempt, or of a step, did on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GpuUsage {
    /// Mean over all GPUs and all readings, and of the reading in which they were busiest.
    pub busy_percent: u32,
    pub busy_percent_max: u32,
    /// In bytes, over all GPUs; at the last reading, and at most.
    pub memory: u64,
    pub memory_peak: u64,
}

/// A step that runs, as one of its nodes sees it now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveStep {
    pub step: crate::id::StepId,
    pub used: TaskUsage,
    pub pids: Vec<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(cpu_ms: u64, now: u64, peak: u64) -> TaskSample {
        TaskSample { cpu_ms, memory_now: now, memory_peak: peak, ..TaskSample::default() }
    }

    #[test]
    fn frequency_is_the_mean_of_what_was_looked_at() {
        let mut used = TaskSample::default();
        for khz in [2_000_000, 3_000_000, 4_000_000] {
            used.update(&TaskSample { khz_sum: khz, khz_count: 1, ..TaskSample::default() });
        }
        let one = TaskUsage::of(0, 0, &used, false);
        assert_eq!(one.cpu_khz.total, 3_000_000);
        assert_eq!(TaskUsage::of(0, 0, &TaskSample::default(), false).cpu_khz.total, 0);
    }

    #[test]
    fn energy_of_nodes_adds_up() {
        let mut all = TaskUsage::default();
        for (node, energy_mj) in [(0, 4_000), (1, 0), (2, 6_000)] {
            let mut one = TaskUsage::of(node, node, &TaskSample::default(), false);
            one.set_energy(energy_mj);
            all.absorb(&one);
        }
        assert_eq!((all.energy_mj.total, all.energy_mj.max_node), (10_000, 2));
        assert!(all.has_energy() && !TaskUsage::default().has_energy());
    }

    #[test]
    fn most_and_least_keep_their_node_and_task() {
        let mut all = TaskUsage::default();
        for (node, task, cpu) in [(0, 0, 50), (0, 1, 10), (1, 2, 90)] {
            all.absorb(&TaskUsage::of(node, task, &measure(cpu, 0, cpu * 2), false));
        }
        assert_eq!((all.tasks, all.cpu_ms.total, all.cpu_ms.mean(all.tasks)), (3, 150, 50));
        assert_eq!((all.cpu_ms.max, all.cpu_ms.max_node, all.cpu_ms.max_task), (90, 1, 2));
        assert_eq!((all.cpu_ms.min, all.cpu_ms.min_node, all.cpu_ms.min_task), (10, 0, 1));
        assert_eq!((all.memory.max, all.memory.total), (180, 300));
    }

    #[test]
    fn a_running_task_is_averaged_as_it_is_and_a_peak_stays() {
        let mut used = measure(1, 100, 100);
        used.update(&measure(3, 40, 0));
        used.update(&measure(2, 60, 0));
        assert_eq!((used.cpu_ms, used.memory_now, used.memory_peak), (3, 60, 100));
        assert_eq!(TaskUsage::of(0, 0, &used, true).memory.total, 60);
        assert_eq!(TaskUsage::of(0, 0, &used, false).memory.total, 100);
    }

    #[test]
    fn parts_of_two_nodes_add_up() {
        let part = |node, task| Usage {
            memory_peak_bytes: 5,
            tasks: Some(Box::new(TaskUsage::of(node, task, &measure(7, 0, 5), false))),
            ..Usage::default()
        };
        let mut whole = Usage::default();
        whole.absorb(&part(0, 0));
        whole.absorb(&part(1, 1));
        assert_eq!(whole.tasks.as_ref().map(|t| (t.tasks, t.cpu_ms.total)), Some((2, 14)));
        assert_eq!(whole.without_tasks().tasks, None);
    }
}
