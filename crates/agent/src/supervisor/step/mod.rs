//! A step: tasks started for an `srun`, with their input and output forwarded to it.

mod client_events;
pub(super) mod client_link;
mod client_set;
mod container_save;
mod dial;
mod ending;
pub(super) mod input;
mod limits;
pub(super) mod listener;
mod start;
mod step_container;
pub(super) mod task;
mod task_epilog;
mod usage;

use crate::cgroup::JobGroup;
use crate::cpu_frequency::SetFrequency;
use crate::supervisor::container;
use crate::supervisor::job_context::JobContext;
use crate::supervisor::process::descendants;
use crate::supervisor::process::environment::ProcessIdentity;
use crate::supervisor::process::readiness::{DIED, Readiness, has_spoken, is_silent, readiness};
use crate::supervisor::process::reap::EndedChild;
use crate::supervisor::step::client_set::StepClients;
use crate::supervisor::step::container_save::Saver;
use crate::supervisor::step::input::HeldInput;
use crate::supervisor::step::task::{OutputStream, Task};
use crate::wall_clock;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use wire::order::StepOrder;
use wire::step::{StepMessage, channel};

/// The exit of tasks that were ended before they started.
const UNSTARTED: ExitStatus = ExitStatus { code: 0, signal: libc::SIGTERM };
/// Tasks of one step on one node.
const TASKS_MAX: usize = 4096;
/// More input is credited once no task has more than this many bytes unread.
const INPUT_BACKLOG: usize = 128 << 10;
/// How long observers may take to read the last bytes.
const OBSERVER_LINGER: Duration = Duration::from_secs(1);

pub(super) struct Step {
    order: StepOrder,
    clients: StepClients,
    /// `None` until the tasks are started.
    group: Option<JobGroup>,
    /// It has set the frequency of its CPUs.
    frequency: Option<SetFrequency>,
    tasks: Vec<Task>,
    /// What all steps of the job hold.
    held_input: HeldInput,
    /// Task epilogs that have not ended yet.
    epilogs: Vec<Pid>,
    saver: Option<Saver>,
    /// Its container was to be saved, and could not be.
    not_saved: bool,
    /// The folder of the job's containers, where engines leave word of OOM kills.
    containers: Option<PathBuf>,
    /// The process that removes the files of its container.
    remover: Option<Pid>,
    usage: Usage,
    /// OOM kills in the whole job before this step began.
    pub oom_before: u64,
    /// OOM kills that were assigned to ended tasks.
    oom_assigned: u64,
    /// Whether its group counts its own memory.
    own_memory: bool,
    /// When the remaining processes are killed: the step is being ended.
    kill_at: Option<Timestamp>,
    /// When its own time limit is reached; `None` before its tasks run, and without such a limit.
    limit_at: Option<Timestamp>,
    end_request: Option<bool>,
    /// The loss of its `srun` has been handled.
    abandoned: bool,
    over_since: Option<Instant>,
    stage: Stage,
    /// Its clients have been told that nothing follows.
    is_told: bool,
    /// The rank of its first task as told to the tasks: more than 0 in a later component of a heterogeneous step.
    first_rank: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialling,
    /// Its `srun` is connected, and sends `Go` when the tasks may start.
    Awaiting,
    Running,
    /// Every task has ended and is reported. Remaining processes are killed, and the links are flushed.
    Emptying,
    /// Nothing of it runs any more, and its clients have been told its end. The files of its container are removed.
    Removing,
    Over,
}

impl Step {
    pub fn begin(order: StepOrder, oom_before: u64, held_input: HeldInput) -> Step {
        Step {
            clients: StepClients::dial(&order.launch),
            order,
            group: None,
            frequency: None,
            tasks: Vec::new(),
            held_input,
            epilogs: Vec::new(),
            saver: None,
            not_saved: false,
            containers: None,
            remover: None,
            usage: Usage::default(),
            oom_before,
            oom_assigned: 0,
            own_memory: false,
            kill_at: None,
            limit_at: None,
            end_request: None,
            abandoned: false,
            over_since: None,
            stage: Stage::Dialling,
            is_told: false,
            first_rank: 0,
        }
    }

    pub fn id(&self) -> StepId {
        self.order.step
    }

    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Whether the step only waits for its last processes or bytes.
    pub fn is_ending(&self) -> bool {
        let lately = self.over_since.is_some_and(|since| since.elapsed() <= OBSERVER_LINGER);
        matches!(self.stage, Stage::Emptying) || lately
    }

    pub fn clients(&self) -> &StepClients {
        &self.clients
    }

    /// The ranks of these tasks as told to the tasks.
    fn global_ranks(&self, ranks: &[u32]) -> Vec<u32> {
        ranks.iter().map(|rank| self.first_rank.saturating_add(*rank)).collect()
    }

    /// Identifies one of its tasks to the task itself; `step` and `ranks_here` are its step's id and global ranks.
    fn task_identity<'a>(
        &self,
        job: JobContext<'a>,
        step: &'a str,
        ranks_here: &'a [u32],
        rank: u32,
        local_rank: u32,
    ) -> ProcessIdentity<'a> {
        ProcessIdentity {
            node: &job.record.node,
            node_index: self.order.node_index,
            step: Some(step),
            rank: self.first_rank.saturating_add(rank),
            local_rank,
            ranks_here,
            scratch: job.folders.scratch_path(),
        }
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.kill_at
    }

    /// Its next deadline.
    pub fn next_due(&self, suspended: bool) -> Option<Timestamp> {
        self.kill_at.into_iter().chain(self.limit_at.filter(|_| !suspended)).min()
    }

    /// Whether its own time limit has been reached. Returns true once.
    pub fn take_time_limit(&mut self, now: Timestamp) -> bool {
        let over = self.limit_at.is_some_and(|at| at <= now);
        if over {
            self.limit_at = None;
        }
        over && self.stage == Stage::Running
    }

    /// Postpones its time limit by the time that it was suspended.
    pub fn postpone_limit(&mut self, by: Duration) {
        self.limit_at = self.limit_at.map(|at| at + by);
    }

    /// A task has opened its files, or has failed to, or nobody is left to say so.
    pub fn on_ready(&mut self, index: usize) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if let Some(pid) = task.pid.filter(|_| task.ready.as_ref().is_some_and(is_silent)) {
            // What made its container was killed, as for want of memory: the runtime that is left has nothing to run. A child of
            // this process that is not reaped yet: its pid cannot have been reused.
            let _ = kill(pid, Signal::SIGKILL);
            task.is_silent = true;
            return;
        }
        self.take_word(index);
    }

    /// Takes what a task says of its start.
    fn take_word(&mut self, index: usize) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        let Some(ready) = task.ready.take() else { return };
        let (rank, pid) = (task.rank, task.pid.map_or(0, |pid| pid.as_raw()));
        let failure = match readiness(&ready) {
            Readiness::Ready { .. } => {
                let started = StepMessage::Started { task: rank, pid: pid as u32 };
                return self.clients.send_to_all(&started);
            }
            Readiness::Failed(failure) => failure,
            Readiness::Silent => DIED.to_owned().into(),
        };
        task.exit = Some(ExitStatus::NOT_LAUNCHED);
        task.close_outputs();
        self.report_failed_task(rank, &failure.what);
    }

    /// A task has written output, and the link can take it.
    pub fn on_output(&mut self, index: usize, output: OutputStream) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if let Some(bytes) = task.read_output(output) {
            self.clients.output(channel_of(output), task.rank, &bytes);
            self.clients.flush();
        }
    }

    pub fn on_input_writable(&mut self, index: usize) {
        if let Some(task) = self.tasks.get_mut(index) {
            task.write_input();
        }
        self.on_input_taken();
    }

    /// The processes of the step: those of its group, or else its tasks with their descendants.
    pub fn members(&self) -> Vec<i32> {
        if let Some(Ok(pids)) = self.group.as_ref().map(JobGroup::pids) {
            return pids;
        }
        let tasks = self.tasks.iter().filter_map(|task| task.pid).map(Pid::as_raw);
        descendants::with_descendants(tasks.collect())
    }

    /// Signals the tasks only, as Slurm does; SIGKILL, SIGSTOP and SIGCONT go to all processes of the step.
    pub fn signal(&self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        match (signal, &self.group) {
            // A program is only stopped if its children are stopped too.
            (Signal::SIGKILL | Signal::SIGSTOP | Signal::SIGCONT, Some(group)) => {
                // A group that has just become empty has no process to signal.
                let _ = group.signal_all(signal);
            }
            _ => self.tasks.iter().filter_map(|task| task.pid).for_each(|pid| {
                // A child of this process that is not reaped yet: its pid cannot have been reused.
                let _ = kill(pid, signal);
            }),
        }
    }

    /// Takes a request of its `srun` to end the step: whether at once.
    pub fn take_end_request(&mut self) -> Option<bool> {
        self.end_request.take()
    }

    /// Tells the clients that the step is being ended. Only the first node writes the notice.
    pub fn announce_end(&mut self, notice: Option<&str>, wait_s: u32) {
        if self.is_over() {
            return;
        }
        self.clients.send_to_all(&StepMessage::Ending { wait_s });
        if let Some(line) = notice.filter(|_| self.order.node_index == 0) {
            self.write_notice(line);
        }
        self.clients.flush();
        self.give_up_start();
    }

    /// Sends SIGTERM to the step and sets the time of its kill.
    pub fn end(&mut self, kill_at: Timestamp) {
        if kill_at > wall_clock::now() {
            self.signal(libc::SIGCONT);
            self.signal(libc::SIGTERM);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// Ends a step whose tasks have not started: they will not start any more.
    pub fn give_up_start(&mut self) {
        match self.stage {
            Stage::Dialling => self.clients.close_srun(),
            // Its `srun` gets exits as if the tasks had been terminated.
            Stage::Awaiting => self.report_unstarted(),
            Stage::Running | Stage::Emptying | Stage::Removing | Stage::Over => return,
        }
        self.stage = Stage::Emptying;
    }

    fn report_unstarted(&mut self) {
        for task in self.order.tasks.clone().into_iter().take(TASKS_MAX) {
            self.clients.send_to_all(&StepMessage::Exited { task, exit: UNSTARTED, oom: false });
            self.tasks.push(Task::not_started(task, UNSTARTED));
        }
        self.clients.flush();
    }

    /// Writes a line to the step's error output.
    pub fn write_notice(&mut self, line: &str) {
        let rank = self.order.tasks.first().copied().unwrap_or(0);
        self.clients.output(channel::STDERR, rank, format!("{line}\n").as_bytes());
        self.clients.flush();
    }

    pub fn kill(&mut self) {
        self.kill_at = None;
        if let Some(group) = &self.group {
            // Repeated until the group is empty.
            let _ = group.kill();
        }
    }

    /// Whether its OOM kills are counted in the job's own group.
    pub fn shares_memory(&self) -> bool {
        !self.own_memory
    }

    /// OOM kills since it began: in its own group if that counts memory, else in the job's.
    fn oom_kills(&self, of_job: impl FnOnce() -> u64) -> u64 {
        let own = self.group.as_ref().filter(|_| self.own_memory);
        let counted = match own.map(JobGroup::oom_kills) {
            Some(count) => count.unwrap_or(0),
            None => of_job().saturating_sub(self.oom_before),
        };
        let step = self.order.step.to_string();
        let hidden = self.containers.as_ref().map(|folder| container::oom_kills(folder, &step));
        counted + hidden.unwrap_or(0)
    }

    /// Whether a task was ended by an OOM kill: of itself, or of one of its processes.
    fn is_oom(&mut self, exit: &ExitStatus, of_job: impl FnOnce() -> u64) -> bool {
        let kills = self.oom_kills(of_job);
        if kills > self.oom_assigned {
            self.oom_assigned += 1;
            return true;
        }
        kills > 0 && exit.signal == libc::SIGKILL
    }

    /// Handles an ended child if it is one of its tasks or task epilogs. Returns whether it was. `oom_now` reads the
    /// job's count of OOM kills.
    pub fn on_child_ended(&mut self, dead: &EndedChild, oom_now: impl FnOnce() -> u64) -> bool {
        if let Some(at) = self.epilogs.iter().position(|pid| *pid == dead.pid) {
            self.epilogs.remove(at);
            return true;
        }
        if self.remover == Some(dead.pid) {
            self.remover = None;
            return true;
        }
        if self.on_saver_ended(dead) {
            return true;
        }
        let Some(index) = self.tasks.iter().position(|task| task.pid == Some(dead.pid)) else {
            return false;
        };
        let step = self.order.step.to_string();
        let exit = match &self.containers {
            Some(folder) => container::exit_of(folder, &step, index as u32, dead.exit),
            None => dead.exit,
        };
        // A runtime that was left alone may have ended by itself before it was killed.
        let was_left = exit.signal == 0 && self.tasks[index].ready.as_ref().is_some_and(is_silent);
        let exit = if was_left { ExitStatus { code: 0, signal: libc::SIGKILL } } else { exit };
        // A task that was killed by a signal before it was executed counts as started, unless it had said why it is not: the copy
        // of it that failed to make a container kills it after that, and cannot leave word of a code on a full disk.
        let ready = &mut self.tasks[index].ready;
        if exit.signal > 0 && ready.take_if(|ready| !has_spoken(ready)).is_some() {
            self.clients.send_to_all(&StepMessage::Started {
                task: self.tasks[index].rank,
                pid: dead.pid.as_raw() as u32,
            })
        } else {
            self.take_word(index)
        }
        self.usage.absorb(&dead.usage);
        if let Some(folder) = &self.containers {
            container::on_process_ended(folder, &step, index as u32, exit);
        }
        let task = &mut self.tasks[index];
        task.used.update(&dead.used);
        task.pid = None;
        let (rank, told) = (task.rank, task.exit.is_some());
        // Its last output is sent before its exit.
        for output in [OutputStream::Stdout, OutputStream::Stderr] {
            while let Some(bytes) = self.tasks[index].read_output(output) {
                self.clients.output(channel_of(output), rank, &bytes);
                if !self.clients.srun().can_take_output() {
                    break;
                }
            }
        }
        if !told {
            let oom = self.is_oom(&exit, oom_now);
            if !self.hold_exit(index, exit, oom) {
                self.tell_exit(index, exit, oom);
            }
        }
        self.clients.flush();
        true
    }

    /// Whether all clients have got everything, or have disconnected.
    pub fn is_delivered(&self) -> bool {
        let srun = self.clients.srun();
        let observers = self.clients.observers().all(|link| link.is_flushed());
        let late = self.over_since.is_some_and(|since| since.elapsed() > OBSERVER_LINGER);
        (srun.is_closed() || srun.is_flushed()) && (observers || late)
    }

    /// Sends what the links can take.
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
