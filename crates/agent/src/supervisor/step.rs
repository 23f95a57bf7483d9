//! A step: tasks started for an `srun`, their bytes carried to and from it, and an end that leaves nothing.

use super::plan::{Place, file_name, merge_environment, process_variables};
use super::reap::Dead;
use super::spawn::{ProcessPlan, Readiness, Stream, readiness, spawn};
use super::step_link::{Progress, StepLink};
use super::task::{Task, Which, Wiring};
use crate::cgroup::{GroupLimits, JobGroup};
use crate::spool::LaunchRecord;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use nix::sys::signal::Signal;
use std::time::Instant;
use wire::frame::{self, Frame};
use wire::order::StepOrder;
use wire::report::ReportEvent;
use wire::step::{StepInput, StepMessage, channel};

/// The exit of a step whose tasks could not be started: Slurm's number for a failed launch.
const NOT_LAUNCHED: ExitStatus = ExitStatus { code: 0, signal: 53 };
/// Tasks of one step on one node.
const TASKS_MAX: usize = 4096;

pub(super) struct Step {
    order: StepOrder,
    link: StepLink,
    /// None until the tasks are started.
    group: Option<JobGroup>,
    tasks: Vec<Task>,
    usage: Usage,
    /// Kills by the kernel in the whole job before this step began.
    pub oom_before: u64,
    /// Cancelled, or its `srun` is gone: whatever is left is killed at this moment.
    kill_at: Option<Timestamp>,
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
            link: StepLink::dial(&order.launch.listen),
            order,
            group: None,
            tasks: Vec::new(),
            usage: Usage::default(),
            oom_before,
            kill_at: None,
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
        matches!(self.stage, Stage::Emptying)
    }

    pub fn link(&self) -> &StepLink {
        &self.link
    }

    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    pub fn kill_at(&self) -> Option<Timestamp> {
        self.kill_at
    }

    /// Whether bytes from `srun` can be taken in: no task leaves too much of them lying.
    pub fn takes_input(&self) -> bool {
        self.tasks.iter().all(Task::has_room)
    }

    /// Moves the connection on: starts the tasks once it is there, hands input on, kills the step when it breaks.
    pub fn on_link(&mut self, record: &LaunchRecord, job: &JobGroup) {
        match self.link.advance(self.takes_input()) {
            Progress::Waiting => {}
            Progress::Opened => {
                let hello = StepMessage::Hello {
                    key: self.order.launch.key.clone(),
                    node: record.node.clone(),
                    node_index: self.order.node_index,
                };
                self.link.send(&hello);
                self.start(record, job);
                self.link.flush();
            }
            Progress::Frames(frames) => frames.iter().for_each(|frame| self.on_frame(frame)),
            Progress::Lost if self.stage == Stage::Dialling => self.stage = Stage::Emptying,
            Progress::Lost => self.kill(),
        }
    }

    fn start(&mut self, record: &LaunchRecord, job: &JobGroup) {
        self.stage = Stage::Running;
        let name = format!("step_{}", self.order.step);
        match job.child(&name, &GroupLimits::default()) {
            Ok(group) => self.group = Some(group),
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
            terminal: launch.pty && local_rank == 0,
        };
        let terminal = wiring.terminal;
        let (streams, ends) = wiring
            .connect(&record.launch.user)
            .map_err(|errno| format!("cannot make the pipes of task {rank}: {}", errno.desc()))?;
        let group = self.group.as_ref().ok_or("the step has no group")?;
        let entry = group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) = process_variables(&self.order.process_variables, &place);
        let marker = group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let over = self.order.environment.iter().chain(&own).chain(&marker).map(String::as_str);
        let plan = ProcessPlan {
            user: &record.launch.user,
            argv: launch.argv.clone(),
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
        self.link.send(&StepMessage::Failed { task, errno: 0, what: what.to_owned() });
    }

    /// A task has opened its files, or could not.
    pub fn on_ready(&mut self, index: usize) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        let Some(ready) = task.ready.take() else { return };
        let (rank, pid) = (task.rank, task.pid.map_or(0, |pid| pid.as_raw()));
        match readiness(&ready) {
            Readiness::Ready(_) => {
                self.link.send(&StepMessage::Started { task: rank, pid: pid as u32 })
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
            self.link.send_output(channel_of(which), task.rank, &bytes);
            self.link.flush();
        }
    }

    pub fn on_input_room(&mut self, index: usize) {
        if let Some(task) = self.tasks.get_mut(index) {
            task.write_input();
        }
    }

    fn on_frame(&mut self, frame: &Frame) {
        match frame.channel {
            channel::STDIN => {
                self.tasks.iter_mut().for_each(|task| task.take_input(&frame.payload))
            }
            channel::CONTROL => match frame::decode_message(&frame.payload) {
                Ok(StepMessage::Signal { signal }) => self.signal(signal),
                Ok(StepMessage::InputEnd) => self.tasks.iter_mut().for_each(Task::end_input),
                Ok(StepMessage::Resize { rows, columns }) => {
                    self.tasks.iter().for_each(|task| task.resize(rows, columns));
                }
                // The rest go the other way; a newer srun may know more than we do.
                Ok(_) | Err(_) => {}
            },
            _ => {}
        }
    }

    pub fn signal(&self, number: i32) {
        let signal = Signal::try_from(number).ok();
        if let (Some(signal), Some(group)) = (signal, &self.group) {
            // Of a group that has just emptied there is nobody left to signal.
            let _ = group.signal_all(signal);
        }
    }

    /// Asks the step to end, with a last moment after which it is killed.
    pub fn end(&mut self, kill_at: Timestamp, notice: Option<&str>) {
        if let Some(line) = notice {
            self.write_notice(line);
        }
        self.signal(libc::SIGCONT);
        self.signal(libc::SIGTERM);
        self.kill_at = Some(kill_at);
        if self.stage == Stage::Dialling {
            self.link.close();
            self.stage = Stage::Emptying;
        }
    }

    /// A line among the step's error output.
    pub fn write_notice(&mut self, line: &str) {
        let rank = self.order.tasks.first().copied().unwrap_or(0);
        self.link.send_output(channel::STDERR, rank, format!("{line}\n").as_bytes());
        self.link.flush();
    }

    pub fn kill(&mut self) {
        self.kill_at = None;
        if let Some(group) = &self.group {
            // Tried again until the group is empty.
            let _ = group.kill();
        }
    }

    /// Takes a dead child if it is one of its tasks. `oom_now` reads the job's count of kills by the kernel.
    pub fn on_dead(&mut self, dead: &Dead, oom_now: impl FnOnce() -> u64) -> bool {
        let Some(index) = self.tasks.iter().position(|task| task.pid == Some(dead.pid)) else {
            return false;
        };
        self.on_ready(index);
        self.usage.absorb(&dead.usage);
        let task = &mut self.tasks[index];
        task.pid = None;
        let (rank, told) = (task.rank, task.exit.is_some());
        // What it wrote last goes out before the word of its end.
        for which in [Which::Stdout, Which::Stderr] {
            while let Some(bytes) = self.tasks[index].read_output(which) {
                self.link.send_output(channel_of(which), rank, &bytes);
                if !self.link.has_room() {
                    break;
                }
            }
        }
        if !told {
            let oom = dead.exit.signal == libc::SIGKILL && oom_now() > self.oom_before;
            self.tasks[index].exit = Some(dead.exit);
            self.link.send(&StepMessage::Exited { task: rank, exit: dead.exit, oom });
        }
        self.link.flush();
        true
    }

    /// Moves the end on; gives the report when nothing of the step is left.
    pub fn settle(
        &mut self,
        oom_now: impl FnOnce() -> u64,
        linger_until: Option<Instant>,
    ) -> Option<ReportEvent> {
        if self.stage == Stage::Running
            && self.tasks.iter().all(|t| t.exit.is_some() && t.pid.is_none())
        {
            self.stage = Stage::Emptying;
        }
        if self.stage != Stage::Emptying || !self.is_empty() {
            return None;
        }
        let read_out = self.tasks.iter().all(Task::outputs_closed) || self.link.is_closed();
        let patient = linger_until.is_none_or(|until| Instant::now() < until);
        if !read_out && patient {
            return None;
        }
        let oom_kills = oom_now().saturating_sub(self.oom_before);
        self.usage.oom_kills = oom_kills as u32;
        if let Some(group) = self.group.take() {
            // Empty, so the kernel lets go of it at once; the job's own removal would take it along.
            let _ = group.remove();
        }
        self.link.send(&StepMessage::Gone);
        self.link.flush();
        self.stage = Stage::Over;
        let step = self.order.step;
        Some(ReportEvent::StepEnded {
            step,
            exit: self.exit(),
            usage: self.usage,
            oom: oom_kills > 0,
        })
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

    /// Whether `srun` has been told everything, or cannot be.
    pub fn is_told(&self) -> bool {
        self.link.is_closed() || self.link.is_flushed()
    }

    /// Only the last bytes to `srun` are left to do.
    pub fn flush(&mut self) {
        self.link.flush();
    }
}

fn channel_of(which: Which) -> u8 {
    match which {
        Which::Stdout => channel::STDOUT,
        Which::Stderr => channel::STDERR,
    }
}
