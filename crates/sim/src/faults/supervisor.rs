//! One attempt on one node: the supervisor's states, and what it says of them. It outlives its agent; what it has said stays in
//! the node's spool until the server says that it is on its disk.

use crate::chance::Chance;
use model::allocation::NodeShare;
use model::id::StepId;
use model::run::{ExitStatus, LaunchKind, Usage};
use model::time::Timestamp;
use std::collections::BTreeMap;
use wire::order::{EndOrder, JobLaunch};
use wire::report::{AttemptEnd, ReportEvent};
use wire::supervisor::SupervisorEvent;

/// Between the script's end and an empty group, milliseconds.
const EPILOG_MS: i64 = 700;

const SIGTERM: i32 = 15;

/// Two clocks: that of the history, which no machine sees, and that of the node.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Milliseconds that have passed for everybody.
    pub now: i64,
    pub node_clock: Timestamp,
}

#[derive(Debug)]
pub struct Supervisor {
    pub share: NodeShare,
    /// When the script ends by itself; `None` where nothing is started by the launch itself.
    script_end: Option<i64>,
    script_exit: ExitStatus,
    /// When the time limit ends the attempt.
    limit: Option<i64>,
    suspended_since: Option<i64>,
    is_script_over: bool,
    timed_out: bool,
    /// When the group is empty, once the attempt is being ended.
    group_empty: Option<i64>,
    /// The ends of its steps.
    steps: BTreeMap<StepId, i64>,
    steps_over: Vec<StepId>,
    /// Nothing of it is left, and its end is written down.
    has_ended: bool,
    /// It was killed, or its machine was: nothing of it is left, and nothing is written down.
    is_lost: bool,
    /// All that it has said, by number, with whether its end of a step was taken.
    pub events: Vec<(SupervisorEvent, bool)>,
    /// How many of these its agent has.
    pub collected: u64,
}

impl Supervisor {
    pub fn launched(
        launch: &JobLaunch,
        limit: Option<i64>,
        at: Moment,
        chance: &mut Chance,
    ) -> Self {
        let runs_script = match launch.kind {
            LaunchKind::Batch => launch.node_index == 0,
            LaunchKind::Task => true,
            LaunchKind::Interactive => false,
        };
        let longest_ms = if chance.one_in(4) { 300_000 } else { 40_000 };
        let run_ms = chance.millis(500, longest_ms);
        let code = if chance.one_in(6) { 1 } else { 0 };
        let mut supervisor = Self {
            share: launch.share.clone(),
            script_end: runs_script.then_some(at.now + run_ms),
            script_exit: ExitStatus { code, signal: 0 },
            limit,
            suspended_since: None,
            is_script_over: false,
            timed_out: false,
            group_empty: None,
            steps: BTreeMap::new(),
            steps_over: Vec::new(),
            has_ended: false,
            is_lost: false,
            events: Vec::new(),
            collected: 0,
        };
        supervisor.say(at, ReportEvent::Started);
        supervisor
    }

    /// Nothing was started; why is written down.
    pub fn not_launched(launch: &JobLaunch, unfit: Option<String>, at: Moment) -> Self {
        let mut supervisor = Self::launched(launch, None, at, &mut Chance::new(0));
        supervisor.events.clear();
        supervisor.has_ended = true;
        let what = "no space is left in the spool".to_owned();
        let (fault, hold, user) = (Default::default(), false, None);
        supervisor.say(at, ReportEvent::LaunchFailed { what, fault, unfit, hold, user });
        supervisor
    }

    fn say(&mut self, at: Moment, event: ReportEvent) {
        let number = self.events.len() as u64 + 1;
        self.events.push((SupervisorEvent { number, at: at.node_clock, event }, false));
    }

    /// Whether processes of it may run.
    pub fn is_alive(&self) -> bool {
        !self.has_ended && !self.is_lost
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn is_suspended(&self) -> bool {
        self.suspended_since.is_some()
    }

    /// When something of it is due next.
    pub fn due(&self) -> Option<i64> {
        if !self.is_alive() {
            return None;
        }
        let runs = self.suspended_since.is_none();
        let own = [self.script_end, self.limit].into_iter().flatten();
        let own = own.filter(|_| runs && !self.is_script_over).min();
        let step = self.steps.values().copied().filter(|_| runs).min();
        [own, step, self.group_empty].into_iter().flatten().min()
    }

    /// Does what is due by now.
    pub fn advance(&mut self, at: Moment) {
        if !self.is_alive() {
            return;
        }
        if self.suspended_since.is_none() {
            self.end_steps(at);
            self.end_script(at);
        }
        if self.group_empty.is_some_and(|time| time <= at.now) {
            self.has_ended = true;
            let end = AttemptEnd {
                exit: self.script_exit,
                usage: Usage::default(),
                oom: false,
                timed_out: self.timed_out,
                supervisor_lost: false,
            };
            self.say(at, ReportEvent::Ended(end));
        }
    }

    fn end_steps(&mut self, at: Moment) {
        let over: Vec<StepId> =
            self.steps.iter().filter(|(_, end)| **end <= at.now).map(|(step, _)| *step).collect();
        for step in over {
            self.steps.remove(&step);
            self.step_over(step, at);
        }
    }

    fn step_over(&mut self, step: StepId, at: Moment) {
        self.steps_over.push(step);
        let (exit, usage) = (ExitStatus::default(), Usage::default());
        self.say(at, ReportEvent::StepEnded { step, exit, usage, oom: false });
    }

    fn end_script(&mut self, at: Moment) {
        let is_due = |time: Option<i64>| time.is_some_and(|time| time <= at.now);
        if self.is_script_over || !(is_due(self.script_end) || is_due(self.limit)) {
            return;
        }
        self.is_script_over = true;
        self.timed_out = !is_due(self.script_end);
        if self.timed_out {
            self.script_exit = ExitStatus { code: 0, signal: SIGTERM };
        }
        let (exit, timed_out) = (self.script_exit, self.timed_out);
        self.say(at, ReportEvent::ScriptEnded { exit, oom: false, timed_out });
        self.empty_by(at.now + EPILOG_MS);
    }

    fn empty_by(&mut self, time: i64) {
        self.group_empty = Some(self.group_empty.map_or(time, |before| before.min(time)));
    }

    /// Is told to end, whole or one step of it.
    pub fn end(&mut self, order: &EndOrder, at: Moment, chance: &mut Chance) {
        if let Some(step) = order.step {
            if let Some(end) = self.steps.get_mut(&step) {
                *end = at.now;
            }
            return;
        }
        if !self.is_script_over {
            self.is_script_over = true;
            self.script_exit = ExitStatus { code: 0, signal: SIGTERM };
        }
        self.empty_by(at.now + chance.millis(0, i64::from(order.grace_s) * 1_000 + 200));
    }

    pub fn suspend(&mut self, at: Moment) {
        self.suspended_since.get_or_insert(at.now);
    }

    /// Time that it was suspended counts against nothing.
    pub fn resume(&mut self, at: Moment) {
        let Some(since) = self.suspended_since.take() else { return };
        let stood = at.now - since;
        for time in [&mut self.script_end, &mut self.limit].into_iter().flatten() {
            *time += stood;
        }
        self.steps.values_mut().for_each(|time| *time += stood);
    }

    pub fn set_limit(&mut self, limit: Option<i64>) {
        self.limit = limit;
    }

    /// Starts a step, unless it was started before. Returns whether it has it.
    pub fn start_step(&mut self, step: StepId, at: Moment, chance: &mut Chance) -> bool {
        if self.is_script_over {
            return false;
        }
        if !self.steps_over.contains(&step) {
            let end = at.now + chance.millis(500, 20_000);
            self.steps.entry(step).or_insert(end);
        }
        true
    }

    /// No order for this step will come: it is over, if it did not come before.
    pub fn disown(&mut self, step: StepId, at: Moment) {
        if !self.steps.contains_key(&step) && !self.steps_over.contains(&step) {
            self.step_over(step, at);
        }
    }

    /// It is killed from outside, with all its processes.
    pub fn kill(&mut self) {
        self.is_lost |= self.is_alive();
    }

    /// The agent finds that it is gone, has cleared the group, and says so. Returns whether there was anything to say.
    pub fn note_loss(&mut self, at: Moment) -> bool {
        if self.has_ended || !self.is_lost {
            return false;
        }
        self.has_ended = true;
        let end = AttemptEnd {
            exit: ExitStatus::default(),
            usage: Usage::default(),
            oom: false,
            timed_out: false,
            supervisor_lost: true,
        };
        self.say(at, ReportEvent::Ended(end));
        true
    }
}
