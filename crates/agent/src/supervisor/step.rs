//! A step: tasks started for an `srun`, their bytes carried to and from it, and an end that leaves nothing.

mod clients;

use super::audience::Audience;
use super::plan::{Place, file_name, merge_environment, process_variables};
use super::reap::Dead;
use super::spawn::{ProcessPlan, Readiness, Stream, readiness, spawn};
use super::step_limits::step_limits;
use super::task::{Task, Which, Wiring};
use crate::cgroup::{GroupLimits, JobGroup};
use crate::spool::LaunchRecord;
use crate::wall_clock;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use wire::order::StepOrder;
use wire::report::ReportEvent;
use wire::step::{StepInput, StepMessage, channel};

/// The exit of a step whose tasks could not be started: Slurm's number for a failed launch.
const NOT_LAUNCHED: ExitStatus = ExitStatus { code: 0, signal: 53 };
/// Tasks of one step on one node.
const TASKS_MAX: usize = 4096;
/// More input is asked for once no task leaves more than this lying.
const INPUT_BACKLOG: usize = 128 << 10;
/// How long those that look on may take for the last bytes.
const LOOKERS_LINGER: Duration = Duration::from_secs(1);

pub(super) struct Step {
    order: StepOrder,
    clients: Audience,
    /// None until the tasks are started.
    group: Option<JobGroup>,
    tasks: Vec<Task>,
    usage: Usage,
    /// Kills by the kernel in the whole job before this step began.
    pub oom_before: u64,
    /// Its group has a memory limit of its own, and counts by itself.
    own_memory: bool,
    /// Cancelled, or its `srun` is gone: whatever is left is killed at this moment.
    kill_at: Option<Timestamp>,
    end_ask: Option<bool>,
    /// The loss of its `srun` has been acted on.
    abandoned: bool,
    over_since: Option<Instant>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Dialling,
    Running,
    /// Every task has ended and its end is told; what is left is to be killed, and the link to be flushed.
    Emptying,
    Over,
}

impl Step {
    pub fn begin(order: StepOrder, oom_before: u64) -> Step {
        Step {
            clients: Audience::dial(&order.launch.listen),
            order,
            group: None,
            tasks: Vec::new(),
            usage: Usage::default(),
            oom_before,
            own_memory: false,
            kill_at: None,
            end_ask: None,
            abandoned: false,
            over_since: None,
            stage: Stage::Dialling,
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
        let lately = self.over_since.is_some_and(|since| since.elapsed() <= LOOKERS_LINGER);
        matches!(self.stage, Stage::Emptying) || lately
    }

    pub fn clients(&self) -> &Audience {
        &self.clients
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.kill_at
    }

    fn start(&mut self, record: &LaunchRecord, job: &JobGroup) {
        self.stage = Stage::Running;
        let name = format!("step_{}", self.order.step);
        let limits = step_limits(&record.limits, &record.launch.share, self.order.share.as_ref());
        // Where the kernel lets no group inside the job's be limited, the job's own limits hold for the step.
        let plain = || job.child(&name, &GroupLimits::default()).map(|group| (group, false));
        let own_memory = limits.memory_bytes.is_some();
        match job.child(&name, &limits).map(|group| (group, own_memory)).or_else(|_| plain()) {
            Ok((group, own_memory)) => {
                self.group = Some(group);
                self.own_memory = own_memory;
            }
            Err(error) => return self.fail_all(&error.to_string()),
        }
        let ranks: Vec<u32> = self.order.tasks.iter().copied().take(TASKS_MAX).collect();
        for (local, rank) in ranks.iter().enumerate() {
            let task = match self.start_task(record, *rank, local as u32, &ranks) {
                Ok(task) => task,
                Err(reason) => {
                    self.tell_failed(*rank, &reason);
                    Task::stillborn(*rank, NOT_LAUNCHED)
                }
            };
            self.tasks.push(task);
        }
    }

    fn start_task(
        &self,
        record: &LaunchRecord,
        rank: u32,
        local_rank: u32,
        ranks_here: &[u32],
    ) -> Result<Task, String> {
        let (launch, step) = (&self.order.launch, self.order.step.to_string());
        let place = Place {
            node: &record.node,
            node_index: self.order.node_index,
            step: Some(&step),
            rank,
            local_rank,
            ranks_here,
        };
        let file = |pattern: &Option<String>| {
            let write = |pattern: &String| Stream::Write {
                path: file_name(pattern, record, &place),
                append: false,
            };
            pattern.as_ref().map(write)
        };
        let wiring = Wiring {
            with_input: match launch.stdin {
                StepInput::All => true,
                StepInput::None => false,
                StepInput::Task(wanted) => wanted == rank,
            },
            stdout: file(&launch.stdout),
            stderr: file(&launch.stderr),
            terminal: (launch.pty && local_rank == 0).then(|| launch.window.unwrap_or_default()),
        };
        let terminal = wiring.terminal.is_some();
        let (streams, ends) = wiring
            .connect(&record.launch.user)
            .map_err(|errno| format!("cannot make the pipes of task {rank}: {}", errno.desc()))?;
        let group = self.group.as_ref().ok_or("the step has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) = process_variables(&self.order.process_variables, &place);
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let of_task = self.order.of_tasks.get(local_rank as usize);
        let of_its_own = of_task.map(|task| task.environment.as_slice()).unwrap_or_default();
        let over = self.order.environment.iter().chain(of_its_own).chain(&own).chain(&marker);
        let over = over.map(String::as_str);
        let program = of_task.map(|task| &task.argv).filter(|argv| !argv.is_empty());
        let plan = ProcessPlan {
            user: &record.launch.user,
            argv: program.unwrap_or(&launch.argv).clone(),
            environment: merge_environment(launch.environment.split('\0'), over),
            pid_variables,
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: &record.launch.rlimits,
            streams,
            terminal,
            entry: &entry,
            notices: &record.launch.notices,
        };
        let spawned = spawn(plan).map_err(|errno| format!("cannot fork: {}", errno.desc()))?;
        let mut task = Task::new(rank, ends);
        task.pid = Some(spawned.pid);
        task.ready = Some(spawned.ready);
        Ok(task)
    }

    fn fail_all(&mut self, reason: &str) {
        for rank in self.order.tasks.clone().into_iter().take(TASKS_MAX) {
            self.tell_failed(rank, reason);
            self.tasks.push(Task::stillborn(rank, NOT_LAUNCHED));
        }
    }

    fn tell_failed(&mut self, task: u32, what: &str) {
        self.clients.tell(&StepMessage::Failed { task, errno: 0, what: what.to_owned() });
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
    pub fn on_output(&mut self, index: usize, which: Which) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if let Some(bytes) = task.read_output(which) {
            self.clients.output(channel_of(which), task.rank, &bytes);
            self.clients.flush();
        }
    }

    pub fn on_input_room(&mut self, index: usize) {
        if let Some(task) = self.tasks.get_mut(index) {
            task.write_input();
        }
        self.on_input_taken();
    }

    pub fn signal(&self, number: i32) {
        let signal = Signal::try_from(number).ok();
        if let (Some(signal), Some(group)) = (signal, &self.group) {
            // Of a group that has just emptied there is nobody left to signal.
            let _ = group.signal_all(signal);
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
        self.give_up_dialling();
    }

    /// Asks the step to end, with a last moment after which it is killed.
    pub fn end(&mut self, kill_at: Timestamp) {
        if kill_at > wall_clock::now() {
            self.signal(libc::SIGCONT);
            self.signal(libc::SIGTERM);
        }
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
    }

    /// A step that has no `srun` yet is not to start any more.
    pub fn give_up_dialling(&mut self) {
        if self.stage == Stage::Dialling {
            self.clients.close_srun();
            self.stage = Stage::Emptying;
        }
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

    /// Kills by the kernel since it began: in its own group where that has a limit, else in the job.
    fn oom_kills(&self, of_job: impl FnOnce() -> u64) -> u64 {
        let own = self.group.as_ref().filter(|_| self.own_memory);
        match own.map(|group| group.usage().ok().and_then(|usage| usage.oom_kills)) {
            Some(count) => count.unwrap_or(0),
            None => of_job().saturating_sub(self.oom_before),
        }
    }

    /// Takes a dead child if it is one of its tasks. `oom_now` reads the job's count of kills by the kernel.
    pub fn on_dead(&mut self, dead: &Dead, oom_now: impl FnOnce() -> u64) -> bool {
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
        task.pid = None;
        let (rank, told) = (task.rank, task.exit.is_some());
        // What it wrote last goes out before the word of its end.
        for which in [Which::Stdout, Which::Stderr] {
            while let Some(bytes) = self.tasks[index].read_output(which) {
                self.clients.output(channel_of(which), rank, &bytes);
                if !self.clients.srun().has_room() {
                    break;
                }
            }
        }
        if !told {
            let oom = dead.exit.signal == libc::SIGKILL && self.oom_kills(oom_now) > 0;
            self.tasks[index].exit = Some(dead.exit);
            self.clients.tell(&StepMessage::Exited { task: rank, exit: dead.exit, oom });
        }
        self.clients.flush();
        true
    }

    /// Moves the end on; gives the report when nothing of the step is left.
    pub fn settle(
        &mut self,
        oom_now: impl FnOnce() -> u64,
        linger_until: Option<Instant>,
    ) -> Option<ReportEvent> {
        self.notice_loss();
        if self.stage == Stage::Running
            && self.tasks.iter().all(|t| t.exit.is_some() && t.pid.is_none())
        {
            self.stage = Stage::Emptying;
        }
        if self.stage != Stage::Emptying || !self.is_empty() {
            return None;
        }
        let read_out =
            self.tasks.iter().all(Task::outputs_closed) || self.clients.srun().is_closed();
        let patient = linger_until.is_none_or(|until| Instant::now() < until);
        if !read_out && patient {
            return None;
        }
        let oom_kills = self.oom_kills(oom_now);
        self.usage.oom_kills = oom_kills as u32;
        if let Some(group) = self.group.take() {
            // Empty, so the kernel lets go of it at once; the job's own removal would take it along.
            let _ = group.remove();
        }
        self.clients.tell(&StepMessage::Gone);
        self.clients.flush();
        self.stage = Stage::Over;
        self.over_since = Some(Instant::now());
        let step = self.order.step;
        Some(ReportEvent::StepEnded {
            step,
            exit: self.exit(),
            usage: self.usage,
            oom: oom_kills > 0,
        })
    }

    /// Without its `srun` a step has nobody to run for.
    fn notice_loss(&mut self) {
        if self.abandoned || !self.clients.srun().is_closed() {
            return;
        }
        self.abandoned = true;
        match self.stage {
            Stage::Dialling => self.stage = Stage::Emptying,
            Stage::Running => self.kill(),
            Stage::Emptying | Stage::Over => {}
        }
    }

    /// Whether its group is empty; what outlived the tasks is killed.
    fn is_empty(&mut self) -> bool {
        let Some(group) = &self.group else { return true };
        if group.is_empty().unwrap_or(false) {
            return true;
        }
        self.kill();
        self.group.as_ref().is_none_or(|group| group.is_empty().unwrap_or(false))
    }

    /// The worst of its tasks: a signal before a code, the higher before the lower.
    fn exit(&self) -> ExitStatus {
        let exits = self.tasks.iter().filter_map(|task| task.exit);
        exits.max_by_key(|exit| (exit.signal, exit.code)).unwrap_or(NOT_LAUNCHED)
    }

    /// Whether everybody has been told everything, or cannot be.
    pub fn is_told(&self) -> bool {
        let srun = self.clients.srun();
        let lookers = self.clients.lookers().all(|link| link.is_flushed());
        let late = self.over_since.is_some_and(|since| since.elapsed() > LOOKERS_LINGER);
        (srun.is_closed() || srun.is_flushed()) && (lookers || late)
    }

    /// Only the last bytes are left to do.
    pub fn flush(&mut self) {
        self.clients.flush();
    }
}

fn channel_of(which: Which) -> u8 {
    match which {
        Which::Stdout => channel::STDOUT,
        Which::Stderr => channel::STDERR,
    }
}
