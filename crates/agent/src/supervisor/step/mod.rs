//! A step: tasks started for an `srun`, their bytes carried to and from it, and an end that leaves nothing.

mod client_events;
pub(super) mod client_link;
mod client_set;
mod ending;
mod limits;
pub(super) mod listener;
mod start;
pub(super) mod task;
mod task_epilog;
mod usage;

use crate::cgroup::JobGroup;
use crate::supervisor::process::descendants;
use crate::supervisor::process::reap::EndedChild;
use crate::supervisor::process::spawn::{Readiness, readiness};
use crate::supervisor::step::client_set::StepClients;
use crate::supervisor::step::task::{OutputStream, Task};
use crate::wall_clock;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};
use wire::order::StepOrder;
use wire::step::{StepMessage, channel};

/// The exit of a step whose tasks could not be started: Slurm's number for a failed launch.
pub(super) const NOT_LAUNCHED: ExitStatus = ExitStatus { code: 0, signal: 53 };
/// The end of tasks that were to end before they started.
const UNSTARTED: ExitStatus = ExitStatus { code: 0, signal: libc::SIGTERM };
/// Tasks of one step on one node.
const TASKS_MAX: usize = 4096;
/// More input is asked for once no task leaves more than this lying.
const INPUT_BACKLOG: usize = 128 << 10;
/// How long those that look on may take for the last bytes.
const OBSERVER_LINGER: Duration = Duration::from_secs(1);

pub(super) struct Step {
    order: StepOrder,
    clients: StepClients,
    /// None until the tasks are started.
    group: Option<JobGroup>,
    tasks: Vec<Task>,
    /// Programs after tasks that have not ended yet.
    epilogs: Vec<Pid>,
    usage: Usage,
    /// Kills by the kernel in the whole job before this step began.
    pub oom_before: u64,
    /// Kills by the kernel that ended tasks have answered for.
    oom_told: u64,
    /// Its group counts its memory by itself.
    own_memory: bool,
    /// Cancelled, or its `srun` is gone: whatever is left is killed at this moment.
    kill_at: Option<Timestamp>,
    /// When its own time is over; none before its tasks run, and where only the job's counts.
    limit_at: Option<Timestamp>,
    end_ask: Option<bool>,
    /// The loss of its `srun` has been acted on.
    abandoned: bool,
    over_since: Option<Instant>,
    stage: Stage,
    /// The rank that its first task is told to be: more than 0 in a step that is a part of what its `srun` runs.
    first_rank: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialling,
    /// Its `srun` is there, and has something to do before the tasks start.
    Awaiting,
    Running,
    /// Every task has ended and its end is told; what is left is to be killed, and the link to be flushed.
    Emptying,
    Over,
}

impl Step {
    pub fn begin(order: StepOrder, oom_before: u64) -> Step {
        Step {
            clients: StepClients::dial(&order.launch.listen),
            order,
            group: None,
            tasks: Vec::new(),
            epilogs: Vec::new(),
            usage: Usage::default(),
            oom_before,
            oom_told: 0,
            own_memory: false,
            kill_at: None,
            limit_at: None,
            end_ask: None,
            abandoned: false,
            over_since: None,
            stage: Stage::Dialling,
            first_rank: 0,
        }
    }

    pub fn id(&self) -> StepId {
        self.order.step
    }

    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether only its last processes or bytes are waited for.
    pub fn is_ending(&self) -> bool {
        let lately = self.over_since.is_some_and(|since| since.elapsed() <= OBSERVER_LINGER);
        matches!(self.stage, Stage::Emptying) || lately
    }

    pub fn clients(&self) -> &StepClients {
        &self.clients
    }

    /// The ranks that these tasks of the step are told to be.
    fn told_ranks(&self, ranks: &[u32]) -> Vec<u32> {
        ranks.iter().map(|rank| self.first_rank.saturating_add(*rank)).collect()
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.kill_at
    }

    /// When something of it is due by the clock.
    pub fn next_due(&self, suspended: bool) -> Option<Timestamp> {
        self.kill_at.into_iter().chain(self.limit_at.filter(|_| !suspended)).min()
    }

    /// Whether its own time is over; said once.
    pub fn take_time_limit(&mut self, now: Timestamp) -> bool {
        let over = self.limit_at.is_some_and(|at| at <= now);
        if over {
            self.limit_at = None;
        }
        over && self.stage == Stage::Running
    }

    /// Time in which it stood still is not its own.
    pub fn put_off(&mut self, by: Duration) {
        self.limit_at = self.limit_at.map(|at| at + by);
    }

    /// A task has opened its files, or could not.
    pub fn on_ready(&mut self, index: usize) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        let Some(ready) = task.ready.take() else { return };
        let (rank, pid) = (task.rank, task.pid.map_or(0, |pid| pid.as_raw()));
        match readiness(&ready) {
            Readiness::Ready(_) => {
                self.clients.tell(&StepMessage::Started { task: rank, pid: pid as u32 })
            }
            Readiness::Failed(reason) => {
                task.exit = Some(NOT_LAUNCHED);
                task.close_outputs();
                self.tell_failed(rank, &reason);
            }
        }
    }

    /// A task has written something, and there is room to pass it on.
    pub fn on_output(&mut self, index: usize, output: OutputStream) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if let Some(bytes) = task.read_output(output) {
            self.clients.output(channel_of(output), task.rank, &bytes);
            self.clients.flush();
        }
    }

    pub fn on_input_room(&mut self, index: usize) {
        if let Some(task) = self.tasks.get_mut(index) {
            task.write_input();
        }
        self.on_input_taken();
    }

    /// As Slurm: a signal is for the tasks, which tell their own children what they like; only the kill is for all.
    /// The processes of the step: those of its group, else its tasks with what they have started.
    pub fn members(&self) -> Vec<i32> {
        if let Some(Ok(pids)) = self.group.as_ref().map(JobGroup::pids) {
            return pids;
        }
        let tasks = self.tasks.iter().filter_map(|task| task.pid).map(Pid::as_raw);
        descendants::with_descendants(tasks.collect())
    }

    pub fn signal(&self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        match (signal, &self.group) {
            // A program whose children go on has not stopped.
            (Signal::SIGKILL | Signal::SIGSTOP | Signal::SIGCONT, Some(group)) => {
                // Of a group that has just emptied there is nobody left to signal.
                let _ = group.signal_all(signal);
            }
            _ => self.tasks.iter().filter_map(|task| task.pid).for_each(|pid| {
                // Our own child, not yet reaped: the number cannot have passed to a stranger.
                let _ = kill(pid, signal);
            }),
        }
    }

    /// What its `srun` asked for since the last look: its end, and whether at once.
    pub fn take_end_ask(&mut self) -> Option<bool> {
        self.end_ask.take()
    }

    /// Tells everybody that the step is being ended. The first node speaks for all.
    pub fn announce_end(&mut self, notice: Option<&str>, wait_s: u32) {
        if self.is_over() {
            return;
        }
        self.clients.tell(&StepMessage::Ending { wait_s });
        if let Some(line) = notice.filter(|_| self.order.node_index == 0) {
            self.write_notice(line);
        }
        self.clients.flush();
        self.give_up_start();
    }

    /// Asks the step to end, with a last moment after which it is killed.
    pub fn end(&mut self, kill_at: Timestamp) {
        if kill_at > wall_clock::now() {
            self.signal(libc::SIGCONT);
            self.signal(libc::SIGTERM);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// A step whose tasks have not started is not to start them any more.
    pub fn give_up_start(&mut self) {
        match self.stage {
            Stage::Dialling => self.clients.close_srun(),
            // Its `srun` hears of them as if they had been there to be terminated.
            Stage::Awaiting => self.tell_unstarted(),
            Stage::Running | Stage::Emptying | Stage::Over => return,
        }
        self.stage = Stage::Emptying;
    }

    fn tell_unstarted(&mut self) {
        for task in self.order.tasks.clone().into_iter().take(TASKS_MAX) {
            self.clients.tell(&StepMessage::Exited { task, exit: UNSTARTED, oom: false });
            self.tasks.push(Task::not_started(task, UNSTARTED));
        }
        self.clients.flush();
    }

    /// A line among the step's error output.
    pub fn write_notice(&mut self, line: &str) {
        let rank = self.order.tasks.first().copied().unwrap_or(0);
        self.clients.output(channel::STDERR, rank, format!("{line}\n").as_bytes());
        self.clients.flush();
    }

    pub fn kill(&mut self) {
        self.kill_at = None;
        if let Some(group) = &self.group {
            // Tried again until the group is empty.
            let _ = group.kill();
        }
    }

    /// Whether kills by the kernel in it are counted in the job's own group.
    pub fn shares_memory(&self) -> bool {
        !self.own_memory
    }

    /// Kills by the kernel since it began: in its own group where that has a limit, else in the job.
    fn oom_kills(&self, of_job: impl FnOnce() -> u64) -> u64 {
        let own = self.group.as_ref().filter(|_| self.own_memory);
        match own.map(JobGroup::oom_kills) {
            Some(count) => count.unwrap_or(0),
            None => of_job().saturating_sub(self.oom_before),
        }
    }

    /// Whether a task's end is the kernel's doing: its own death, or that of a process of its that no task answers for.
    fn is_oom(&mut self, exit: &ExitStatus, of_job: impl FnOnce() -> u64) -> bool {
        let kills = self.oom_kills(of_job);
        if kills > self.oom_told {
            self.oom_told += 1;
            return true;
        }
        kills > 0 && exit.signal == libc::SIGKILL
    }

    /// Takes a dead child if it is one of its tasks. `oom_now` reads the job's count of kills by the kernel.
    pub fn on_child_ended(&mut self, dead: &EndedChild, oom_now: impl FnOnce() -> u64) -> bool {
        if let Some(at) = self.epilogs.iter().position(|pid| *pid == dead.pid) {
            self.epilogs.remove(at);
            return true;
        }
        let Some(index) = self.tasks.iter().position(|task| task.pid == Some(dead.pid)) else {
            return false;
        };
        // A signal that struck before the program was there is the task's end like any other.
        match dead.exit.signal > 0 && self.tasks[index].ready.take().is_some() {
            true => self.clients.tell(&StepMessage::Started {
                task: self.tasks[index].rank,
                pid: dead.pid.as_raw() as u32,
            }),
            false => self.on_ready(index),
        }
        self.usage.absorb(&dead.usage);
        let task = &mut self.tasks[index];
        task.used.update(&dead.used);
        task.pid = None;
        let (rank, told) = (task.rank, task.exit.is_some());
        // What it wrote last goes out before the word of its end.
        for output in [OutputStream::Stdout, OutputStream::Stderr] {
            while let Some(bytes) = self.tasks[index].read_output(output) {
                self.clients.output(channel_of(output), rank, &bytes);
                if !self.clients.srun().has_room() {
                    break;
                }
            }
        }
        if !told {
            let oom = self.is_oom(&dead.exit, oom_now);
            self.tasks[index].exit = Some(dead.exit);
            self.clients.tell(&StepMessage::Exited { task: rank, exit: dead.exit, oom });
        }
        self.clients.flush();
        true
    }

    /// Whether everybody has been told everything, or cannot be.
    pub fn is_told(&self) -> bool {
        let srun = self.clients.srun();
        let observers = self.clients.observers().all(|link| link.is_flushed());
        let late = self.over_since.is_some_and(|since| since.elapsed() > OBSERVER_LINGER);
        (srun.is_closed() || srun.is_flushed()) && (observers || late)
    }

    /// Only the last bytes are left to do.
    pub fn flush(&mut self) {
        self.clients.flush();
    }
}

fn channel_of(output: OutputStream) -> u8 {
    match output {
        OutputStream::Stdout => channel::STDOUT,
        OutputStream::Stderr => channel::STDERR,
    }
}
