//! Nodes that join, fall silent, return, and are drained or resumed.

use super::interruption::{INTERRUPTED_SILENCE, is_interrupted};
use super::report::nodes_failed;
use crate::command::{Context, Decision, Reply};
use crate::event::Event;
use crate::state::State;
use model::change::NodeChange;
use model::fleet::STATIC;
use model::health::HealthSource;
use model::id::AttemptId;
use model::node::{AdminState, NodeFacts, SlotState};
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::power::{PowerDownMode, PowerRequest, PowerState};
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// The most nodes that one tick takes for down, and the most attempts on them beyond the first node's: where a whole rack is lost,
/// the ticks of the next seconds go on with it.
const DOWN_NODES_PER_TICK: usize = 256;
const FAILED_ATTEMPTS_PER_TICK: usize = 1024;

impl State {
    /// An agent has connected. Attempts that it holds and that were given up are stale: they must end before the node takes
    /// new work.
    pub(super) fn decide_hello(
        &self,
        name: &str,
        facts: &NodeFacts,
        held: &[(AttemptId, bool)],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let node = self.nodes.get(name).ok_or_else(|| Refusal::UnknownNode(name.into()))?;
        let ours = |attempt: &AttemptId| node.holders.contains(attempt);
        let stale: Vec<AttemptId> =
            held.iter().filter(|(a, alive)| *alive && !ours(a)).map(|(a, _)| *a).collect();
        let mut events = vec![Event::NodeUp {
            node: name.to_string(),
            facts: Box::new(facts.clone()),
            stale,
            at: context.now,
        }];
        events.extend(self.power_at_hello(name, facts, context.now));
        // The agent of another machine: what the cloud takes back is the one before.
        let is_other_agent = facts.agent_start != node.facts.agent_start;
        if is_interrupted(node) && is_other_agent && self.backing(name).is_some() {
            let source = HealthSource::Interruption;
            events.extend(self.decide_node_health(name, source, None, context));
        }
        let answers_again =
            node.reason.as_ref().is_some_and(|r| r.cause == NodeCause::NotResponding);
        // `ReturnToService=0`: a node that went down stays so until somebody resumes it.
        // A host of a fleet is brought back by the server itself.
        let stays = self.config.parameters.return_to_service == 0 && node.config.fleet == STATIC;
        if node.slot == SlotState::Down && answers_again && stays {
            let admin = node.admin.or(Some(AdminState::Down));
            let reason = node.reason.clone();
            events.push(Event::NodeAdmin { node: name.into(), admin, reason });
            return Ok(events.into());
        }
        if answers_again && node.admin.is_none() {
            events.push(Event::NodeAdmin { node: name.into(), admin: None, reason: None });
        }
        Ok(events.into())
    }

    pub(super) fn decide_node_lost(&self, name: &str, context: &Context) -> Decision {
        match self.nodes.get(name) {
            Some(node) if node.slot == SlotState::Up => {
                vec![Event::NodeSilent { node: name.to_string(), at: context.now }].into()
            }
            _ => Decision::default(),
        }
    }

    /// Nodes that have been silent for `SlurmdTimeout` are down, and their jobs with them; sooner where their machine is taken
    /// back, and at once where it is gone.
    pub(super) fn silent_nodes(&self, now: Timestamp) -> Vec<Event> {
        let timeout = Duration::from_secs(u64::from(self.config.parameters.slurmd_timeout_s));
        let overdue = self.nodes.iter().filter(|(name, node)| {
            let timeout = if is_interrupted(node) { INTERRUPTED_SILENCE } else { timeout };
            let is_over = |since: Timestamp| since + timeout <= now || self.has_lost_machine(name);
            node.slot == SlotState::Silent
                && !node.power.excuses_silence()
                && node.silent_since.is_some_and(is_over)
        });
        let (mut events, mut names, mut attempts) = (Vec::new(), Vec::new(), 0);
        for (name, node) in overdue.take(DOWN_NODES_PER_TICK) {
            attempts += node.holders.len();
            if attempts > FAILED_ATTEMPTS_PER_TICK && !names.is_empty() {
                break;
            }
            // The reason of a drain outlasts the silence: it says why the node is out of service when it is back.
            let drained = node.reason.clone().filter(|_| node.admin.is_some());
            let silent = NodeReason {
                cause: NodeCause::NotResponding,
                author: ReasonAuthor::System,
                at: now,
            };
            let reason = drained.unwrap_or(silent);
            events.push(Event::NodeDown { node: name.clone(), reason, at: now });
            names.push(name.as_str());
        }
        // After the nodes: one that the configuration has dropped is gone with its last job.
        events.extend(self.fail_jobs_on(&names, now));
        events
    }

    /// Drains a node that cannot start anything, unless an administrator set its state already.
    pub(super) fn drained(&self, name: &str, why: &str, at: Timestamp) -> Option<Event> {
        let node = self.nodes.get(name).filter(|node| node.admin.is_none())?;
        let (admin, name) = (Some(AdminState::Drain), node.config.name.clone());
        let reason = written(why, ReasonAuthor::System, at);
        Some(Event::NodeAdmin { node: name, admin, reason: Some(reason) })
    }

    /// The node is down at once, and its jobs with it: it is known that its machine is gone.
    pub(super) fn node_fails(&self, name: &str, why: &str, at: Timestamp) -> Vec<Event> {
        let reason = written(why, ReasonAuthor::System, at);
        let mut events = vec![Event::NodeDown { node: name.to_owned(), reason, at }];
        events.extend(self.fail_jobs_on(&[name], at));
        events
    }

    /// Fails all nodes at once: a job that loses several shares is closed once.
    fn fail_jobs_on(&self, names: &[&str], now: Timestamp) -> Vec<Event> {
        let failed = names.iter().filter_map(|name| self.nodes.get(*name));
        let holders: BTreeSet<AttemptId> = failed.flat_map(|n| n.holders.iter().copied()).collect();
        let jobs = holders.iter().filter_map(|a| self.jobs.get(&a.job));
        jobs.flat_map(|job| nodes_failed(&self.config.parameters, job, names, now)).collect()
    }

    pub(super) fn decide_change_nodes(
        &self,
        names: &[String],
        change: &NodeChange,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        if let Some(unknown) = names.iter().find(|n| !self.nodes.contains_key(*n)) {
            return Err(Refusal::UnknownNode(unknown.clone()));
        }
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let mut events = Vec::new();
        for name in &names {
            match change {
                NodeChange::Power(request) => {
                    events.extend(self.power_requested(name, request, context)?);
                }
                _ => events.extend(self.node_changed(name, change, context)),
            }
        }
        let forced = NodeChange::Power(PowerRequest::Down(PowerDownMode::Force));
        if matches!(change, NodeChange::Down { .. }) || *change == forced {
            events.extend(self.fail_jobs_on(&names, context.now));
        }
        Ok(Decision { events, reply: Reply::Done })
    }

    fn node_changed(&self, name: &str, change: &NodeChange, context: &Context) -> Vec<Event> {
        let node = name.to_string();
        let admin_now = self.nodes[name].admin;
        let set = |admin, text: &str| Event::NodeAdmin {
            node: name.to_string(),
            admin,
            reason: Some(written(text, author(&context.by), context.now)),
        };
        let event = match change {
            NodeChange::Drain { reason } => set(Some(AdminState::Drain), reason),
            NodeChange::Fail { reason } => set(Some(AdminState::Fail), reason),
            NodeChange::Down { reason } => set(Some(AdminState::Down), reason),
            NodeChange::Resume | NodeChange::Undrain => {
                Event::NodeAdmin { node, admin: None, reason: None }
            }
            NodeChange::Power(_) => return Vec::new(),
            NodeChange::Reason(text) => set(admin_now, text),
            NodeChange::Weight(weight) => {
                Event::NodeSet { node, weight: Some(*weight), features: None }
            }
            NodeChange::Features(features) => {
                Event::NodeSet { node, weight: None, features: Some(features.clone()) }
            }
        };
        let mut events = vec![event];
        if *change == NodeChange::Resume {
            events.extend(self.end_restore_wait(name));
        }
        // A node that is to go down, or that waits for its reboot, is in service again.
        let power = self.nodes[name].power;
        let goes = !power.is_on() && !power.is_off();
        if goes && !matches!(power, PowerState::Rebooting { .. }) && *change == NodeChange::Resume {
            let (node, at) = (name.to_string(), context.now);
            events.push(Event::NodePower { node, power: PowerState::On, at, reason: None });
        }
        events
    }
}

pub(super) fn written(text: &str, author: ReasonAuthor, at: Timestamp) -> NodeReason {
    NodeReason { cause: NodeCause::Text(text.to_string()), author, at }
}

pub(super) fn author(by: &Principal) -> ReasonAuthor {
    ReasonAuthor::User { name: by.name.clone(), uid: by.uid }
}
