//! The state of one attempt and what changes it: ended processes and time. Its script is in [`script`], what it is
//! ordered in [`orders`], its end in [`ending`].

mod ending;
mod orders;
mod script;

use super::clock::{Clock, Due};
use super::control::Control;
use super::reap::next_dead;
use super::step::Step;
use super::step_door::StepDoor;
use crate::cgroup::{EmptyWatch, JobGroup};
use crate::error::AgentError;
use crate::spool::{AttemptDir, LaunchRecord};
use ending::Emptying;
use model::array::IndexSet;
use model::id::StepId;
use model::run::{ExitStatus, SignalBefore, Usage};
use model::time::Timestamp;
use script::Leader;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use wire::order::SignalOrder;
use wire::report::ReportEvent;
use wire::supervisor::ToSupervisor;

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
