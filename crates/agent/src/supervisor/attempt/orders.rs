//! Orders to an attempt: steps, signals, its end, suspend and resume, a new time limit.

use super::{Attempt, own_kills};
use crate::cgroup::signal_listed;
use crate::supervisor::notice;
use crate::supervisor::step::Step;
use crate::wall_clock;
use model::id::StepId;
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::time::Duration;
use wire::order::{Action, EndOrder, SignalOrder, StepOrder};
use wire::report::ReportEvent;

/// Steps at once on one node: each takes descriptors of this process.
const STEPS_MAX: usize = 256;
/// How much longer than the grace period an `srun` waits for its step.
const WAIT_BEYOND_S: u32 = 2;

impl Attempt {
    pub(super) fn carry_out(&mut self, action: Action) {
        match action {
            Action::Step(order) => self.start_step(*order),
            Action::Signal(order) => self.signal(&order),
            Action::End(order) => self.end(&order),
            Action::Suspend => self.suspend(),
            Action::Resume => self.resume(),
            Action::Begin => self.begin(),
            Action::ExtendTo { end } => self.deadlines.extend_to(end),
            Action::Disown { step } => self.disown(step),
            // The agent carries these out itself and does not forward them.
            Action::Launch(_) | Action::Forget | Action::Volume(_) | Action::Reboot { .. } => {}
        }
    }

    pub(super) fn start_step(&mut self, order: StepOrder) {
        self.agents.step_taken(order.step);
        self.begin_or_delay_step(order);
    }

    pub(super) fn begin_or_delay_step(&mut self, order: StepOrder) {
        // A step that waits for the prolog does not exist yet: its `srun` is told to try again.
        if self.emptying.is_none() && self.waits_for_prolog() {
            let known = self.hooks.delayed_steps.iter().any(|delayed| delayed.step == order.step);
            if !known && self.hooks.delayed_steps.len() < STEPS_MAX {
                self.hooks.delayed_steps.push(order);
            }
            return;
        }
        self.begin_step(order);
    }

    /// Lets a deferred script start: the job's other nodes are ready. The order may come more than once, and before
    /// this node is ready.
    fn begin(&mut self) {
        self.hooks.may_begin = true;
        if std::mem::take(&mut self.hooks.waits_to_begin) && self.emptying.is_none() {
            self.start_own();
        }
    }

    pub(super) fn begin_step(&mut self, order: StepOrder) {
        let id = order.step;
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
            self.agents.report_refusal(why);
            let (exit, usage) = (ExitStatus::NOT_LAUNCHED, Usage::default());
            self.agents.report(ReportEvent::StepEnded { step: id, exit, usage, oom: false });
            return;
        }
        if let Err(error) = self.step_listener.open(&self.dir) {
            // The step can still dial its `srun`; only streams over the agent are missing.
            self.agents.report_refusal(error.to_string());
        }
        self.steps.push(Step::begin(order, own_kills(&self.group), self.held_input.clone()));
        // An `srun` on the same machine is connected at once, without another round of the loop.
        self.on_step_link(self.steps.len() - 1);
    }

    /// Reports a step that will not start as ended. A step that was ordered here reports its own end.
    fn disown(&mut self, id: StepId) {
        if let StepId::Number(number) = id
            && self.steps_seen.insert(number)
        {
            let (exit, usage) = (ExitStatus::NOT_LAUNCHED, Usage::default());
            self.agents.report(ReportEvent::StepEnded { step: id, exit, usage, oom: false });
        }
    }

    pub(super) fn signal(&mut self, order: &SignalOrder) {
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

    /// Sends SIGKILL to all processes. Any other signal goes to the script and its children only: an `srun` among them
    /// forwards it to its tasks, which would otherwise get it twice.
    fn signal_all(&self, number: i32) {
        let Ok(signal) = Signal::try_from(number) else { return };
        if signal == Signal::SIGKILL || self.steps.is_empty() {
            // A process that has ended meanwhile needs no signal.
            let _ = self.group.signal_all(signal);
            return;
        }
        let of_steps: HashSet<i32> = self.steps.iter().flat_map(Step::members).collect();
        let of_script = || {
            let all = self.group.pids()?.into_iter();
            Ok(all.filter(|pid| !of_steps.contains(pid)).collect())
        };
        let _ = signal_listed(signal, &of_script);
    }

    /// Signals the script and the tasks, but not their children.
    fn signal_started(&self, number: i32) {
        if let Some(pid) = self.leader.as_ref().and_then(|leader| leader.pid) {
            send(pid, number);
        }
        self.steps.iter().for_each(|step| step.signal(number));
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
        // The server repeats the order on a new link. SIGTERM is not sent twice: many programs take a second one as a
        // demand to stop at once.
        if self.deadlines.ends_by(kill_at) || self.is_past_ending() {
            return;
        }
        self.begin_end(&words, &step_words, kill_at, now);
    }

    /// Tells the clients of one step, or of all steps, that it is being ended.
    fn announce_ends(&mut self, id: Option<StepId>, words: &str, now: Timestamp) {
        let wait_s = self.record.launch.kill_wait_s + WAIT_BEYOND_S;
        for step in self.steps.iter_mut().filter(|step| id.is_none_or(|id| id == step.id())) {
            let line = notice::fill(words, &self.record, step.id(), 0, now);
            step.announce_end(line.as_deref(), wait_s);
        }
    }

    /// Ends a step because its own `srun` asks for it.
    pub(super) fn end_on_request(&mut self, id: StepId, at_once: bool) {
        let now = wall_clock::now();
        let grace = if at_once { 0 } else { self.record.launch.kill_wait_s };
        let words = self.record.launch.notices.step_cancelled.clone();
        let kill_at = now + Duration::from_secs(u64::from(grace));
        self.announce_ends(Some(id), &words, now);
        self.steps.iter_mut().filter(|step| step.id() == id).for_each(|step| step.end(kill_at));
        self.on_time(now);
    }

    /// Ends steps that have reached a time limit of their own.
    pub(super) fn end_steps_out_of_time(&mut self, now: Timestamp) {
        if self.suspended {
            return;
        }
        let out = self.steps.iter_mut().filter_map(|s| s.take_time_limit(now).then(|| s.id()));
        let out: Vec<StepId> = out.collect();
        let words = self.record.launch.notices.step_time_limit.clone();
        let kill_at = now + Duration::from_secs(u64::from(self.record.launch.kill_wait_s));
        for id in out {
            self.announce_ends(Some(id), &words, now);
            self.steps.iter_mut().filter(|step| step.id() == id).for_each(|s| s.end(kill_at));
        }
    }

    /// Begins the end with notices and SIGTERM, and sets the kill time. Without a script the attempt is over as soon as
    /// its group is empty.
    pub(super) fn begin_end(
        &mut self,
        words: &str,
        step_words: &str,
        kill_at: Timestamp,
        now: Timestamp,
    ) {
        self.write_notice(words, 0, now);
        self.announce_ends(None, step_words, now);
        if self.suspended {
            self.resume();
        }
        if kill_at > now {
            for number in [libc::SIGCONT, libc::SIGTERM] {
                self.signal_started(number);
            }
        }
        self.deadlines.kill_at(kill_at);
        self.cpu_limit = None;
        if self.leader.as_ref().is_none_or(|leader| leader.pid.is_none()) {
            self.empty(false);
        }
        self.on_time(now);
    }

    pub(super) fn write_notice(&mut self, words: &str, count: u64, now: Timestamp) {
        let Some(line) = notice::fill(words, &self.record, StepId::Batch, count, now) else {
            return;
        };
        self.write_line(&line);
    }

    fn write_line(&mut self, line: &str) {
        if let Some(log) = &mut self.log {
            log.write_line(line);
        } else if let Some(stderr) = &self.stderr {
            notice::write(stderr, line);
        }
    }

    /// Writes a line where the script and each step write their errors.
    pub(super) fn tell_all(&mut self, line: &str) {
        self.write_line(line);
        self.steps.iter_mut().for_each(|step| step.write_notice(line));
    }

    fn suspend(&mut self) {
        self.suspended = true;
        self.deadlines.suspend(wall_clock::now());
        if let Err(error) = self.group.freeze() {
            self.agents.report_refusal(error.to_string());
        }
    }

    fn resume(&mut self) {
        self.suspended = false;
        let stood = self.deadlines.resume(wall_clock::now());
        self.steps.iter_mut().for_each(|step| step.postpone_limit(stood));
        if let Err(error) = self.group.thaw() {
            self.agents.report_refusal(error.to_string());
        }
    }
}

fn send(pid: Pid, number: i32) {
    if let Ok(signal) = Signal::try_from(number) {
        // A child of this process that is not reaped yet: its pid cannot have been reused.
        let _ = kill(pid, signal);
    }
}
