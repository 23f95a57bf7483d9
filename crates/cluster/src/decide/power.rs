//! Nodes that are powered down when nothing needs them, powered up for jobs, and rebooted.

use super::end::{closing, ending};
use super::node::{author, written};
use crate::command::Context;
use crate::event::Event;
use crate::requeue;
use crate::state::State;
use crate::state::node::Node;
use model::id::{AttemptId, JobId};
use model::node::{AdminState, NodeFacts, SlotState};
use model::node_reason::{NodeReason, ReasonAuthor};
use model::power::{
    AfterReboot, PowerDownMode, PowerPolicy, PowerProgram, PowerRequest, PowerState,
};
use model::reason::Refusal;
use model::run::{ExitStatus, Outcome, StepEnd};
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// How much later than before a machine must have started to have been rebooted: the kernel works its start out from the
/// clock, which may be set meanwhile.
const BOOT_TIME_SLACK: Duration = Duration::from_secs(2);

impl State {
    /// Powers up what is asked for, powers down what nothing needs, and reboots what is idle; as many as the rates permit.
    pub(super) fn decide_power_save(&self, now: Timestamp) -> Vec<Event> {
        let policy = &self.config.parameters.power;
        let (mut down_left, mut up_left) = self.power_counts.left(policy, now);
        let mut exempt = self.exemptions(now);
        let times = self.power_times();
        let machines = self.machines_to_reboot();
        let mut events = Vec::new();
        for (name, node) in &self.nodes {
            let going_down = powering_down(now);
            match node.power {
                _ if node.is_to_power_up() && up_left > 0 => {
                    up_left -= 1;
                    let power = PowerState::PoweringUp { since: now, called: false };
                    events.push(powered(name, power, now));
                }
                PowerState::PowerDownPending { .. } if down_left > 0 && node.is_idle() => {
                    down_left -= 1;
                    events.extend(self.suspended(name, node, going_down, now));
                }
                PowerState::RebootPending { next, .. }
                    if machines.may_reboot(name) && node.slot == SlotState::Up =>
                {
                    let reason = appended(node.reason.as_ref(), "reboot issued", now);
                    let power = PowerState::Rebooting { since: now, next };
                    let node = name.clone();
                    events.push(Event::NodePower { node, power, at: now, reason: Some(reason) });
                }
                // Its machine is rebooted for another of its nodes.
                PowerState::On if machines.reboots_now(name) => {
                    let (since, next) = (now, AfterReboot::AsBefore);
                    events.push(powered(name, PowerState::Rebooting { since, next }, now));
                }
                PowerState::On if down_left > 0 => {
                    let idle_s = times.of(name).suspend_time_s;
                    let is_due = idle_s.is_some_and(|idle_s| node.was_idle_for(idle_s, now));
                    if is_due && exempt.may_suspend(name, node) {
                        down_left -= 1;
                        events.extend(self.suspended(name, node, going_down, now));
                    }
                }
                _ => {}
            }
        }
        events
    }

    /// Whether the next look for nodes to power up, down or reboot would find one that somebody asked for.
    pub fn has_power_work(&self) -> bool {
        let machines = self.machines_to_reboot();
        self.nodes.iter().any(|(name, node)| match node.power {
            _ if node.is_to_power_up() => true,
            PowerState::PowerDownPending { .. } => node.is_idle(),
            PowerState::RebootPending { .. } => {
                machines.may_reboot(name) && node.slot == SlotState::Up
            }
            _ => false,
        })
    }

    /// `idle_on_node_suspend` puts a node into service again with its suspension.
    fn suspended(&self, name: &str, node: &Node, power: PowerState, at: Timestamp) -> Vec<Event> {
        let mut events = vec![powered(name, power, at)];
        let out_of_service = node.admin.is_some() || node.slot == SlotState::Down;
        if self.config.parameters.power.idle_on_suspend && out_of_service {
            events.push(Event::NodeAdmin { node: name.into(), admin: None, reason: None });
        }
        events
    }

    /// Nodes whose time to go down, to come up or to reboot is over.
    pub(super) fn power_timeouts(&self, now: Timestamp) -> Vec<Event> {
        let waits = |node: &Node| {
            matches!(
                node.power,
                PowerState::PoweringDown { .. }
                    | PowerState::PoweringUp { .. }
                    | PowerState::Rebooting { .. }
            )
        };
        if !self.nodes.values().any(waits) {
            return Vec::new();
        }
        let times = self.power_times();
        let over = |since: Timestamp, s: u32| since + Duration::from_secs(s.into()) <= now;
        let (mut events, mut failed) = (Vec::new(), Vec::new());
        for (name, node) in &self.nodes {
            match node.power {
                PowerState::PoweringDown { since, called: true, then_up, answered }
                    if over(since, times.of(name).suspend_timeout_s) =>
                {
                    let next = match (answered && node.slot == SlotState::Up, then_up) {
                        // It was given the time twice, and is still there: nothing powers it down.
                        (true, _) => PowerState::On,
                        (false, true) => PowerState::PowerUpPending,
                        (false, false) => PowerState::PoweredDown,
                    };
                    events.push(powered(name, next, now));
                }
                PowerState::PoweringUp { since, .. }
                    if over(since, times.of(name).resume_timeout_s) =>
                {
                    failed.push(name.as_str());
                    events.extend(self.resume_failed(name, now));
                }
                PowerState::Rebooting { since, .. }
                    if over(since, times.of(name).resume_timeout_s) =>
                {
                    let reason = appended(node.reason.as_ref(), "reboot timed out", now);
                    events.push(powered(name, PowerState::On, now));
                    // Set down as an administrator would: its agent may be connected still, and `resume` brings it back.
                    let (admin, reason) = (Some(AdminState::Down), Some(reason));
                    events.push(Event::NodeAdmin { node: name.clone(), admin, reason });
                }
                _ => {}
            }
        }
        events.extend(self.end_holders(&failed, now));
        events
    }

    fn resume_failed(&self, name: &str, at: Timestamp) -> [Event; 2] {
        let power = match self.config.parameters.power.resume_fail_program {
            Some(_) => PowerState::ResumeFailed,
            None => PowerState::PoweredDown,
        };
        let reason = Some(written("ResumeTimeout reached", ReasonAuthor::System, at));
        let admin = Some(AdminState::Down);
        [powered(name, power, at), Event::NodeAdmin { node: name.into(), admin, reason }]
    }

    /// Ends the jobs on these nodes as a failure of a node does: they are requeued where they may be.
    fn end_holders(&self, names: &[&str], at: Timestamp) -> Vec<Event> {
        let nodes = names.iter().filter_map(|name| self.nodes.get(*name));
        let jobs: BTreeSet<JobId> = nodes.flat_map(|node| &node.holders).map(|a| a.job).collect();
        let parameters = &self.config.parameters;
        let exit = ExitStatus::default();
        let ended = jobs.iter().filter_map(|id| self.jobs.get(id)).filter_map(|job| {
            let requeue = requeue::after_end(parameters, job, Outcome::NodeFail, exit, at);
            ending(job, Outcome::NodeFail, exit, at, requeue)
        });
        ended.collect()
    }

    /// A program of the site has been called to its end for these nodes.
    pub(super) fn decide_power_program_ended(
        &self,
        nodes: &[String],
        program: PowerProgram,
        now: Timestamp,
    ) -> Vec<Event> {
        let due = nodes.iter().filter_map(|name| {
            let power = self.nodes.get(name)?.power;
            let is_due = power.program_due() == Some(program);
            is_due.then(|| powered(name, power.after_program(program), now))
        });
        due.collect()
    }

    /// What the hello of a node's agent means for its power.
    pub(super) fn power_at_hello(
        &self,
        name: &str,
        facts: &NodeFacts,
        at: Timestamp,
    ) -> Vec<Event> {
        let node = &self.nodes[name];
        let (admin, text) = match node.power {
            // The agent of before: its machine is slow to go down, and a job that started there would go down with it.
            PowerState::PoweredDown | PowerState::PowerUpPending
                if is_same_agent(facts, &node.facts) =>
            {
                let then_up = node.power == PowerState::PowerUpPending;
                let power =
                    PowerState::PoweringDown { since: at, called: true, then_up, answered: true };
                return vec![powered(name, power, at)];
            }
            power if power.is_off() => return vec![powered(name, PowerState::On, at)],
            // An agent that was started again on a machine that was not: the reboot is still to come.
            PowerState::Rebooting { .. }
                if facts.boot_time <= node.facts.boot_time + BOOT_TIME_SLACK =>
            {
                return Vec::new();
            }
            PowerState::Rebooting { next: AfterReboot::Down, .. } => {
                (Some(AdminState::Down), Some("reboot complete"))
            }
            PowerState::Rebooting { next: AfterReboot::Resume, .. } => (None, None),
            PowerState::Rebooting { next: AfterReboot::AsBefore, .. } => (node.admin, None),
            _ => return Vec::new(),
        };
        let reason = match (admin, text) {
            (_, Some(text)) => Some(appended(node.reason.as_ref(), text, at)),
            (Some(_), None) => node.reason.clone(),
            (None, None) => None,
        };
        let admin = Event::NodeAdmin { node: name.into(), admin, reason };
        vec![powered(name, PowerState::On, at), admin]
    }

    /// What is asked of one node's power, by an operator.
    pub(super) fn power_requested(
        &self,
        name: &str,
        request: &PowerRequest,
        context: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        let (node, now) = (&self.nodes[name], context.now);
        let policy = &self.config.parameters.power;
        let refused = |why: String| Err(Refusal::Other(why));
        let set = |power: PowerState| Ok(vec![powered(name, power, now)]);
        match (request, node.power) {
            (PowerRequest::Reboot { .. }, _) if policy.reboot_program.is_none() => {
                refused("RebootProgram is not configured".into())
            }
            (PowerRequest::Reboot { drains, next, reason }, PowerState::On)
            | (PowerRequest::Reboot { drains, next, reason }, PowerState::RebootPending { .. }) => {
                let text = match (reason, &node.reason) {
                    (Some(text), _) => Some(text.as_str()),
                    (None, _) if *drains => Some("Reboot ASAP"),
                    (None, None) => Some("reboot requested"),
                    (None, Some(_)) => None,
                };
                let reason = text.map(|text| written(text, author(&context.by), now));
                let power = PowerState::RebootPending { drains: *drains, next: *next };
                Ok(vec![Event::NodePower { node: name.into(), power, at: now, reason }])
            }
            (PowerRequest::Reboot { .. }, PowerState::Rebooting { .. }) => {
                refused(format!("node {name}: a reboot was issued already"))
            }
            (PowerRequest::Reboot { .. }, _) => {
                refused(format!("node {name} is not powered up: it cannot be rebooted"))
            }
            (PowerRequest::CancelReboot, PowerState::RebootPending { .. }) => {
                let mut events = vec![powered(name, PowerState::On, now)];
                if node.admin.is_none() {
                    let (admin, reason) = (None, None);
                    events.push(Event::NodeAdmin { node: name.into(), admin, reason });
                }
                Ok(events)
            }
            (PowerRequest::CancelReboot, PowerState::Rebooting { .. }) => {
                refused(format!("node {name}: its reboot was issued and cannot be cancelled"))
            }
            (PowerRequest::CancelReboot, _) => {
                refused(format!("node {name}: no reboot is pending"))
            }
            (PowerRequest::Up, PowerState::PowerDownPending { .. }) => set(PowerState::On),
            (PowerRequest::Up, PowerState::PoweredDown | PowerState::ResumeFailed) => {
                match policy.resume_program {
                    Some(_) => set(PowerState::PowerUpPending),
                    None => refused("ResumeProgram is not configured".into()),
                }
            }
            (PowerRequest::Up, PowerState::PoweringDown { since, called, answered, .. }) => {
                set(PowerState::PoweringDown { since, called, then_up: true, answered })
            }
            (PowerRequest::Up, _) => Ok(Vec::new()),
            (PowerRequest::Down(mode), _) => {
                self.power_down_requested(name, node, *mode, policy, now)
            }
        }
    }

    fn power_down_requested(
        &self,
        name: &str,
        node: &Node,
        mode: PowerDownMode,
        policy: &PowerPolicy,
        now: Timestamp,
    ) -> Result<Vec<Event>, Refusal> {
        if policy.suspend_program.is_none() {
            return Err(Refusal::Other("SuspendProgram is not configured".into()));
        }
        let down = powering_down(now);
        let drains = mode == PowerDownMode::Asap;
        let power = match (mode, node.power) {
            // Going down, or down, already; a power up that was asked for meanwhile is taken back.
            (_, PowerState::PoweringDown { since, called, answered, .. }) => {
                PowerState::PoweringDown { since, called, then_up: false, answered }
            }
            (_, PowerState::PoweredDown | PowerState::ResumeFailed) => return Ok(Vec::new()),
            (PowerDownMode::Force, _) => {
                let mut events = vec![powered(name, down, now)];
                events.push(Event::NodeAdmin { node: name.into(), admin: None, reason: None });
                return Ok(events);
            }
            (_, PowerState::On | PowerState::PowerDownPending { .. })
            | (_, PowerState::RebootPending { .. }) => PowerState::PowerDownPending { drains },
            (_, PowerState::Rebooting { .. }) => {
                return Err(Refusal::Other(format!("node {name}: a reboot was issued")));
            }
            (_, PowerState::PowerUpPending) if node.holders.is_empty() => PowerState::PoweredDown,
            (_, PowerState::PoweringUp { .. }) if node.holders.is_empty() => down,
            (_, PowerState::PowerUpPending | PowerState::PoweringUp { .. }) => {
                let why =
                    format!("node {name} is powered up for a job: only POWER_DOWN_FORCE stops it");
                return Err(Refusal::Other(why));
            }
        };
        Ok(vec![powered(name, power, now)])
    }

    /// An attempt that ends before its nodes are up was started nowhere: nothing is left of it at once.
    pub(super) fn end_unlaunched(&self, events: &mut Vec<Event>, now: Timestamp) {
        let mut more = Vec::new();
        for event in events.iter() {
            let Event::Ending { job, ending, exit, .. } = event else { continue };
            let Some(job) = self.jobs.get(job) else { continue };
            let Some(active) = job.attempt().filter(|active| !active.booting_nodes.is_empty())
            else {
                continue;
            };
            let attempt = AttemptId { job: job.id, number: active.number };
            let is_gone = |node: &String| {
                events.iter().any(|event| match event {
                    Event::AttemptAbandonedOnNode { attempt: of, node: on }
                    | Event::AttemptEndedOnNode { attempt: of, node: on, .. } => {
                        *of == attempt && on == node
                    }
                    _ => false,
                })
            };
            let left: Vec<&String> = active.held_nodes.iter().filter(|n| !is_gone(n)).collect();
            if left.is_empty() {
                continue;
            }
            more.extend(left.into_iter().map(|node| Event::AttemptEndedOnNode {
                attempt,
                node: node.clone(),
                exit: ExitStatus::default(),
                usage: Default::default(),
                at: now,
                failure: None,
            }));
            let mut closed = active.clone();
            closed.exit = *exit;
            for step in closed.steps.iter_mut().filter(|step| step.end.is_none()) {
                step.waiting.clear();
                step.end = Some(StepEnd { time: now, outcome: Outcome::Cancelled { by: 0 } });
            }
            more.push(closing(&self.config.parameters, job, closed, ending, now));
        }
        events.extend(more);
    }
}

fn powering_down(since: Timestamp) -> PowerState {
    PowerState::PoweringDown { since, called: false, then_up: false, answered: false }
}

/// Whether these facts are of the same process as those before.
fn is_same_agent(facts: &NodeFacts, before: &NodeFacts) -> bool {
    facts.agent_start != Timestamp::default() && facts.agent_start == before.agent_start
}

pub(super) fn powered(node: &str, power: PowerState, at: Timestamp) -> Event {
    Event::NodePower { node: node.to_owned(), power, at, reason: None }
}

/// The reason of a reboot, with what has become of it.
fn appended(reason: Option<&NodeReason>, what: &str, at: Timestamp) -> NodeReason {
    let before = reason.and_then(NodeReason::text);
    let text = before.map_or_else(|| what.to_owned(), |text| format!("{text} : {what}"));
    let author = reason.map_or(ReasonAuthor::System, |reason| reason.author.clone());
    written(&text, author, at)
}
