//! The state of one attempt and what changes it: orders, ended processes and time. Its end is in [`ending`].

mod ending;

use super::clock::{Clock, Due};
use super::control::Control;
use super::notice;
use super::plan::{Place, merge_environment, process_variables, script_streams};
use super::reap::next_dead;
use super::spawn::{ProcessPlan, Readiness, readiness, spawn};
use super::step::Step;
use super::step_door::StepDoor;
use crate::cgroup::{EmptyWatch, JobGroup};
use crate::error::AgentError;
use crate::spool::{AttemptDir, LaunchRecord};
use crate::wall_clock;
use ending::Emptying;
use model::array::IndexSet;
use model::id::StepId;
use model::run::{ExitStatus, SignalBefore, Usage};
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use wire::order::{Action, EndOrder, SignalOrder, StepOrder};
use wire::report::ReportEvent;
use wire::supervisor::ToSupervisor;

/// Steps at once on one node; each costs descriptors of this one process.
const STEPS_MAX: usize = 256;
/// How much longer than the grace an `srun` waits for its step.
const WAIT_BEYOND_S: u32 = 2;

/// The job's own script.
struct Leader {
    pid: Option<Pid>,
    ready: Option<OwnedFd>,
    exit: Option<ExitStatus>,
}

pub(super) struct Attempt {
    record: LaunchRecord,
    dir: AttemptDir,
    pub control: Control,
    group: JobGroup,
    pub watch: Option<EmptyWatch>,
    leader: Option<Leader>,
    /// Where the script writes its errors, for the lines that we add.
    stderr: Option<OwnedFd>,
    pub steps: Vec<Step>,
    pub door: StepDoor,
    /// Every step that an order ever came for: the same order may come again.
    steps_seen: IndexSet,
    clock: Clock,
    /// What the children used, for machines without control groups to read it from.
    reaped: Usage,
    /// Kills by the kernel that ended steps have answered for.
    oom_of_steps: u64,
    timed_out: bool,
    suspended: bool,
    /// The exit that an order to end brought along.
    ordered_exit: Option<ExitStatus>,
    launch_failed: Option<String>,
    emptying: Option<Emptying>,
    over: bool,
}

impl Attempt {
    pub fn new(
        record: LaunchRecord,
        dir: AttemptDir,
        control: Control,
        group: JobGroup,
    ) -> Result<Attempt, AgentError> {
        let watch = group.wait_empty_fd()?;
        let door = StepDoor::open(&dir)?;
        let clock = Clock::new(record.launch.end_limit, record.launch.signal);
        Ok(Attempt {
            record,
            dir,
            control,
            group,
            watch,
            leader: None,
            stderr: None,
            steps: Vec::new(),
            door,
            steps_seen: IndexSet::new(),
            clock,
            reaped: Usage::default(),
            oom_of_steps: 0,
            timed_out: false,
            suspended: false,
            ordered_exit: None,
            launch_failed: None,
            emptying: None,
            over: false,
        })
    }

    /// Starts what the launch itself starts: the script, the first step, or nothing yet.
    pub fn start(&mut self) {
        if self.record.has_script {
            match self.start_script() {
                Ok(leader) => self.leader = Some(leader),
                Err(what) => self.fail_launch(what),
            }
            return;
        }
        self.control.tell(ReportEvent::Started);
        if let Some(order) = self.record.launch.first_step.take() {
            self.start_step(*order);
        }
        self.control.flush();
    }

    fn start_script(&self) -> Result<Leader, String> {
        let launch = &self.record.launch;
        let place = Place {
            node: &self.record.node,
            node_index: launch.node_index,
            step: None,
            rank: launch.node_index,
            local_rank: 0,
            ranks_here: &[launch.node_index],
        };
        let streams = script_streams(&self.record, &self.dir, &place).map_err(|e| e.to_string())?;
        let entry = self.group.entry_fds().map_err(|e| e.to_string())?;
        let (own, pid_variables) = process_variables(&launch.process_variables, &place);
        let marker = self.group.marker().map(|(name, mark)| format!("{name}={mark}"));
        let base = launch.environment.iter().map(String::as_str);
        let over = own.iter().chain(&marker).map(String::as_str);
        let program = self.dir.script_path().to_string_lossy().into_owned();
        let plan = ProcessPlan {
            user: &launch.user,
            argv: std::iter::once(program).chain(launch.arguments.iter().cloned()).collect(),
            environment: merge_environment(base, over),
            pid_variables,
            work_dir: &launch.work_dir,
            umask: launch.umask,
            rlimits: &launch.rlimits,
            streams,
            terminal: false,
            entry: &entry,
            notices: &launch.notices,
        };
        let spawned = spawn(plan).map_err(|errno| format!("cannot fork: {}", errno.desc()))?;
        Ok(Leader { pid: Some(spawned.pid), ready: Some(spawned.ready), exit: None })
    }

    pub fn leader_ready(&self) -> Option<BorrowedFd<'_>> {
        self.leader.as_ref()?.ready.as_ref().map(AsFd::as_fd)
    }

    pub fn on_leader_ready(&mut self) {
        let Some(ready) = self.leader.as_mut().and_then(|leader| leader.ready.take()) else {
            return;
        };
        match readiness(&ready) {
            Readiness::Ready(stderr) => {
                self.stderr = Some(stderr);
                self.control.tell(ReportEvent::Started);
            }
            Readiness::Failed(what) => self.fail_launch(what),
        }
    }

    fn fail_launch(&mut self, what: String) {
        self.launch_failed = Some(what);
        self.empty(true);
    }

    /// Everything that agents have said.
    pub fn on_agents(&mut self) {
        for message in self.control.read() {
            match message {
                ToSupervisor::Taken { number } => self.control.taken(number),
                ToSupervisor::ClientGone { step, stream } => {
                    let steps = self.steps.iter_mut().filter(|one| one.id() == step);
                    steps.for_each(|one| one.client_gone(stream));
                }
                ToSupervisor::Do(action) => self.carry_out(action),
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Step(order) => self.start_step(*order),
            Action::Signal(order) => self.signal(&order),
            Action::End(order) => self.end(&order),
            Action::Suspend => self.suspend(),
            Action::Resume => self.resume(),
            Action::ExtendTo { end } => self.clock.extend_to(end),
            // The agent's own; it does not pass them on.
            Action::Launch(_) | Action::Forget => {}
        }
    }

    fn start_step(&mut self, order: StepOrder) {
        let id = order.step;
        self.control.step_taken(id);
        if let StepId::Number(number) = id
            && !self.steps_seen.insert(number)
        {
            return;
        }
        if self.emptying.is_some() || self.steps.len() >= STEPS_MAX {
            let why = match self.emptying {
                Some(_) => format!("step {id} came too late: the job is ending"),
                None => format!("step {id}: {STEPS_MAX} steps run on this node already"),
            };
            self.control.refuse(why);
            let (exit, usage) = (ExitStatus { code: 0, signal: 53 }, Usage::default());
            self.control.tell(ReportEvent::StepEnded { step: id, exit, usage, oom: false });
            return;
        }
        // Without a script nothing but steps runs here, and their kills are counted as they end.
        let oom_before = if self.leader.is_some() { self.oom_kills() } else { self.oom_of_steps };
        self.steps.push(Step::begin(order, oom_before));
        // A connection on the same machine is there at once: no need to wait for the next round.
        self.on_step_link(self.steps.len() - 1);
    }

    pub fn on_step_link(&mut self, index: usize) {
        self.steps[index].on_link(&self.record, &self.group);
        if let Some(at_once) = self.steps[index].take_end_ask() {
            self.end_asked(self.steps[index].id(), at_once);
        }
    }

    /// Streams that the agent brings to steps.
    pub fn on_step_door(&mut self) {
        for joined in self.door.advance() {
            let id = joined.ask.step;
            match self.steps.iter_mut().find(|step| step.id() == id) {
                Some(step) => step.join(joined, &self.record, &self.group),
                None => {
                    let seen = matches!(id, StepId::Number(n) if self.steps_seen.contains(n));
                    let again = !seen && self.emptying.is_none();
                    joined.refuse("no such step runs here", again);
                }
            }
        }
    }

    fn signal(&mut self, order: &SignalOrder) {
        let leader = self.leader.as_ref().and_then(|leader| leader.pid);
        match (order.step, leader) {
            (Some(id), _) if id != StepId::Batch => {
                self.steps
                    .iter()
                    .filter(|step| step.id() == id)
                    .for_each(|step| step.signal(order.signal));
            }
            (Some(_), Some(pid)) | (None, Some(pid))
                if order.leader_only || order.step.is_some() =>
            {
                send(pid, order.signal);
            }
            _ if order.leader_only => {}
            _ if order.steps_only => self.steps.iter().for_each(|step| step.signal(order.signal)),
            _ => self.signal_all(order.signal),
        }
    }

    fn signal_all(&self, number: i32) {
        if let Ok(signal) = Signal::try_from(number) {
            // A process that ends meanwhile needs no signal.
            let _ = self.group.signal_all(signal);
        }
    }

    fn end(&mut self, order: &EndOrder) {
        let now = wall_clock::now();
        let kill_at = now + Duration::from_secs(u64::from(order.grace_s));
        let words = order.notice.clone().unwrap_or_default();
        let step_words = order.step_notice.clone().unwrap_or_default();
        if let Some(id) = order.step.filter(|id| *id != StepId::Batch) {
            self.announce_ends(Some(id), &step_words, now);
            self.steps.iter_mut().filter(|step| step.id() == id).for_each(|s| s.end(kill_at));
            return self.on_time(now);
        }
        self.ordered_exit = order.exit.or(self.ordered_exit);
        self.begin_end(&words, &step_words, kill_at, now);
    }

    /// Tells the clients of one step, or of all, that it is being ended.
    fn announce_ends(&mut self, id: Option<StepId>, words: &str, now: Timestamp) {
        let wait_s = self.record.launch.kill_wait_s + WAIT_BEYOND_S;
        for step in self.steps.iter_mut().filter(|step| id.is_none_or(|id| id == step.id())) {
            let line = notice::fill(words, &self.record, step.id(), 0, now);
            step.announce_end(line.as_deref(), wait_s);
        }
    }

    /// A step's own `srun` wants it ended.
    fn end_asked(&mut self, id: StepId, at_once: bool) {
        let now = wall_clock::now();
        let grace = if at_once { 0 } else { self.record.launch.kill_wait_s };
        let words = self.record.launch.notices.step_cancelled.clone();
        let kill_at = now + Duration::from_secs(u64::from(grace));
        self.announce_ends(Some(id), &words, now);
        self.steps.iter_mut().filter(|step| step.id() == id).for_each(|step| step.end(kill_at));
        self.on_time(now);
    }

    /// SIGTERM to everything, and a last moment. Without a script the attempt is then over as soon as nothing is left.
    fn begin_end(&mut self, words: &str, step_words: &str, kill_at: Timestamp, now: Timestamp) {
        self.write_notice(words, 0, now);
        self.announce_ends(None, step_words, now);
        if self.suspended {
            self.resume();
        }
        if kill_at > now {
            self.signal_all(libc::SIGCONT);
            self.signal_all(libc::SIGTERM);
        }
        self.clock.kill_at(kill_at);
        if self.leader.as_ref().is_none_or(|leader| leader.pid.is_none()) {
            self.empty(false);
        }
        self.on_time(now);
    }

    fn write_notice(&mut self, words: &str, count: u64, now: Timestamp) {
        let Some(line) = notice::fill(words, &self.record, StepId::Batch, count, now) else {
            return;
        };
        if let Some(stderr) = &self.stderr {
            notice::write(stderr, &line);
        }
    }

    fn suspend(&mut self) {
        self.suspended = true;
        self.clock.suspend(wall_clock::now());
        if let Err(error) = self.group.freeze() {
            self.control.refuse(error.to_string());
        }
    }

    fn resume(&mut self) {
        self.suspended = false;
        self.clock.resume(wall_clock::now());
        if let Err(error) = self.group.thaw() {
            self.control.refuse(error.to_string());
        }
    }

    pub fn next_due(&self) -> Option<Timestamp> {
        self.steps.iter().filter_map(Step::kill_at).chain(self.clock.next()).min()
    }

    pub fn on_time(&mut self, now: Timestamp) {
        while let Some(due) = self.clock.due(now) {
            match due {
                Due::Warn(warning) => self.warn(warning),
                Due::TimeLimit => {
                    self.timed_out = true;
                    let grace = Duration::from_secs(u64::from(self.record.launch.kill_wait_s));
                    let notices = self.record.launch.notices.clone();
                    self.begin_end(&notices.time_limit, &notices.step_time_limit, now + grace, now);
                }
                Due::Kill => {
                    let _ = self.group.kill();
                    if self.emptying.is_some() {
                        self.empty(true);
                    }
                }
            }
        }
        for step in self.steps.iter_mut().filter(|step| step.kill_at().is_some_and(|at| at <= now))
        {
            step.kill();
        }
        let dialling = |step: &Step| {
            step.clients().srun().deadline().is_some_and(|until| until <= Instant::now())
        };
        for index in 0..self.steps.len() {
            if dialling(&self.steps[index]) {
                self.on_step_link(index);
            }
        }
    }

    /// Slurm's rule: with `B:` the script alone, without it the steps alone.
    fn warn(&mut self, warning: SignalBefore) {
        self.signal(&SignalOrder {
            step: None,
            signal: warning.signal,
            leader_only: warning.batch_only,
            steps_only: !warning.batch_only,
        });
    }

    /// Takes in every ended child: the script, tasks, and orphans that came to their reaper.
    pub fn reap(&mut self) {
        while let Some(dead) = next_dead() {
            self.reaped.absorb(&dead.usage);
            if self.leader.as_ref().is_some_and(|leader| leader.pid == Some(dead.pid)) {
                self.on_leader_ready();
                if let Some(leader) = &mut self.leader {
                    leader.pid = None;
                    leader.exit = Some(dead.exit);
                }
                // What the script leaves behind has no claim on the node: the job is over with it.
                self.empty(true);
                continue;
            }
            let (group, steps) = (&self.group, &mut self.steps);
            let _ = steps.iter_mut().any(|step| step.on_dead(&dead, || oom_kills(group)));
        }
    }

    fn oom_kills(&self) -> u64 {
        oom_kills(&self.group)
    }
}

fn oom_kills(group: &JobGroup) -> u64 {
    group.usage().ok().and_then(|usage| usage.oom_kills).unwrap_or(0)
}

fn send(pid: Pid, number: i32) {
    if let Ok(signal) = Signal::try_from(number) {
        // Our own child, not yet reaped: the number cannot have passed to a stranger.
        let _ = kill(pid, signal);
    }
}
