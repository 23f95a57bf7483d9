//! From events to orders, and what a node that says hello must do to agree with the state. It follows the server's dispatcher
//! (`crates/server/src/dispatch/`), without prologs, power saving, logs and streams.

use super::bug::{Bug, Bugs};
use super::orders::{self, ORDER_LIFE_MS, OrderTexts};
use cluster::command::{AttemptReport, SignalJob};
use cluster::hello_answer::HelloAnswer;
use cluster::{Command, Event, Job, State};
use model::change::JobField;
use model::id::{AttemptId, JobId, StepId};
use model::node::SlotState;
use model::run::Outcome;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use wire::launched_attempts::{LaunchedAttempts, SentOrder};
use wire::order::{Action, Order, SignalOrder};

/// The uid of orders that clear an attempt away, whoever it ran for.
const SERVER_UID: u32 = 0;

pub struct Dispatcher {
    pub bugs: Bugs,
    texts: Arc<OrderTexts>,
    term: u64,
    version: u32,
    serial: u64,
    /// When this server started, by its clock.
    started: Timestamp,
    /// Node to its link. A newer link of the same node takes over.
    links: BTreeMap<String, u64>,
    /// The node of every link whose hello was read and that has not ended.
    live: BTreeMap<u64, String>,
    /// Which attempts the nodes have.
    attempts: LaunchedAttempts,
    /// The steps whose launch this server has, and the nodes that have not accepted it.
    steps: BTreeMap<(JobId, StepId), BTreeSet<String>>,
}

/// An order on its way.
pub struct Sent {
    pub node: String,
    pub link: u64,
    pub order: Order,
}

/// What came of events: orders, commands of the dispatcher itself, and nodes that have to say hello once more.
#[derive(Default)]
pub struct Dispatched {
    pub orders: Vec<Sent>,
    pub commands: Vec<Command>,
    pub cut: Vec<String>,
}

/// The state that events led to, and the time.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    pub state: &'a State,
    pub now: Timestamp,
}

impl Dispatcher {
    pub fn new(texts: Arc<OrderTexts>, term: u64, version: u32, started: Timestamp) -> Self {
        Self {
            bugs: Bugs::default(),
            texts,
            term,
            version,
            serial: 0,
            started,
            links: BTreeMap::new(),
            live: BTreeMap::new(),
            attempts: LaunchedAttempts::default(),
            steps: BTreeMap::new(),
        }
    }

    pub fn link(&self, node: &str) -> Option<u64> {
        self.links.get(node).copied()
    }

    pub fn links(&self) -> Vec<String> {
        self.links.keys().cloned().collect()
    }

    pub fn add_link(&mut self, node: &str, link: u64) {
        self.live.insert(link, node.to_owned());
        self.links.insert(node.to_owned(), link);
    }

    /// Removes the links that speak for the node and that another took over from. Returns those that had not ended.
    pub fn remove_live_links(&mut self, node: &str) -> Vec<u64> {
        let of_node = self.live.iter().filter(|(_, of)| *of == node);
        let links: Vec<u64> = of_node.map(|(link, _)| *link).collect();
        self.live.retain(|_, of| of != node);
        links
    }

    /// A link has ended. Returns whether the node has no other.
    pub fn remove_link(&mut self, node: &str, link: u64) -> bool {
        self.live.remove(&link);
        if self.link(node) == Some(link) {
            self.links.remove(node);
        }
        !self.links.contains_key(node)
    }

    pub fn step_accepted(&mut self, node: &str, attempt: AttemptId, step: StepId) {
        if let Some(nodes) = self.steps.get_mut(&(attempt.job, step)) {
            nodes.remove(node);
        }
    }

    pub fn event(&mut self, seen: Seen<'_>, event: &Event, out: &mut Dispatched) {
        let state = seen.state;
        match event {
            Event::Started(started) => {
                for node in started.allocation.node_names() {
                    if !self.launch_sent(node, started.attempt) {
                        self.launch(seen, started.attempt, node, out);
                    }
                }
            }
            Event::StepStarted { job, step } => {
                let nodes = step.nodes.iter().cloned().collect();
                self.steps.insert((*job, step.id), nodes);
                let Some(attempt) = state.job(*job).and_then(Job::attempt_id) else { return };
                for node in &step.nodes {
                    self.send_step(seen, node, attempt, step.id, out);
                }
            }
            Event::Ending { job, ending, .. } => {
                let Some(job) = state.job(*job) else { return };
                let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { return };
                // The job may have another attempt by now; this end is not for that one.
                if attempt.ending.as_ref() != Some(&**ending) {
                    return;
                }
                let action = end_action(state, ending.outcome);
                for node in &attempt.held_nodes {
                    // Suspended, with its launch withheld: the node has nothing that it could end.
                    if self.attempts.is_withheld(node, id) {
                        out.commands.push(missing(node, id, seen.now));
                    } else {
                        self.send(seen.now, node, id, job.spec.owner.uid, action.clone(), out);
                    }
                }
            }
            Event::AttemptEndedOnNode { attempt, node, .. }
            | Event::StaleAttemptGone { node, attempt } => {
                self.steps.retain(|(job, _), _| *job != attempt.job);
                self.send(seen.now, node, *attempt, SERVER_UID, Action::Forget, out);
            }
            Event::AttemptAbandonedOnNode { attempt, node } => {
                self.send(seen.now, node, *attempt, SERVER_UID, orders::end(0), out);
            }
            Event::NodeUp { node, stale, .. } => {
                for attempt in stale {
                    self.send(seen.now, node, *attempt, SERVER_UID, orders::end(0), out);
                }
            }
            Event::Suspended { job, .. } | Event::GangSuspended { job, .. } => {
                self.send_all(seen, *job, &Action::Suspend, out);
            }
            Event::Resumed { job, .. } => {
                self.launch_withheld(seen, *job, out);
                self.send_all(seen, *job, &Action::Resume, out);
            }
            Event::Changed { job, fields, .. }
                if fields.iter().any(|field| matches!(field, JobField::TimeLimit(_))) =>
            {
                let end = state.job(*job).and_then(|job| Some(job.attempt()?.end_limit));
                if let Some(end) = end {
                    self.send_all(seen, *job, &Action::ExtendTo { end }, out);
                }
            }
            // A node that the configuration names again is known by nothing but its name: it is to say hello.
            Event::Configured { .. } => {
                let is_new = |(name, node): &(&String, &cluster::Node)| {
                    node.slot == SlotState::Joining && self.links.contains_key(*name)
                };
                let linked = state.nodes.iter().filter(is_new);
                out.cut.extend(linked.map(|(name, _)| name.clone()));
            }
            _ => {}
        }
    }

    pub fn signal(&mut self, seen: Seen<'_>, signal: &SignalJob, out: &mut Dispatched) {
        let present = seen.state.job(signal.attempt.job).and_then(Job::attempt_id);
        if present == Some(signal.attempt) {
            let order = SignalOrder {
                step: signal.step,
                signal: signal.signal,
                leader_only: signal.leader_only,
                steps_only: signal.steps_only,
            };
            self.send_all(seen, signal.attempt.job, &Action::Signal(order), out);
        }
    }

    /// Sends the node what it needs to agree with the state. `held` are the attempts in its spool, and whether each is alive.
    pub fn reconcile(
        &mut self,
        seen: Seen<'_>,
        node: &str,
        held: &[(AttemptId, bool)],
        out: &mut Dispatched,
    ) {
        if !seen.state.nodes.contains_key(node) {
            return;
        }
        let link = self.link(node);
        let is_sent = |attempt| self.attempts.is_sent(node, link, attempt);
        let answers = seen.state.hello_answers(node, held, is_sent);
        self.attempts.said_hello(node, held.iter().map(|(attempt, _)| *attempt));
        for answer in answers {
            self.carry_out(seen, node, answer, out);
        }
    }

    fn carry_out(&mut self, seen: Seen<'_>, node: &str, answer: HelloAnswer, out: &mut Dispatched) {
        let uid_of = |attempt: AttemptId| seen.state.job(attempt.job).map(|job| job.spec.owner.uid);
        match answer {
            HelloAnswer::Launch(attempt) => {
                self.launch(seen, attempt, node, out);
                self.resend_steps(seen, node, attempt, out);
            }
            HelloAnswer::Missing(attempt) => out.commands.push(missing(node, attempt, seen.now)),
            HelloAnswer::End(attempt, outcome) => {
                if let Some(uid) = uid_of(attempt) {
                    let action = end_action(seen.state, outcome);
                    self.send(seen.now, node, attempt, uid, action, out);
                }
            }
            HelloAnswer::GoOn(attempt) => {
                let active = seen.state.job(attempt.job).and_then(Job::attempt);
                let (Some(active), Some(uid)) = (active, uid_of(attempt)) else { return };
                let suspended = if active.suspended { Action::Suspend } else { Action::Resume };
                let limit = Action::ExtendTo { end: active.end_limit };
                self.send(seen.now, node, attempt, uid, suspended, out);
                self.send(seen.now, node, attempt, uid, limit, out);
                self.resend_steps(seen, node, attempt, out);
            }
            HelloAnswer::Forget(attempt) => {
                self.send(seen.now, node, attempt, SERVER_UID, Action::Forget, out);
            }
        }
    }

    /// Steps of the node that were created before this server started, and whose launch nobody has: they are over.
    pub fn disown(&mut self, seen: Seen<'_>, node: &str, out: &mut Dispatched) {
        let Some(known) = seen.state.nodes.get(node) else { return };
        for attempt in &known.holders {
            let Some(job) = seen.state.job(attempt.job) else { continue };
            let Some(active) = job.attempt() else { continue };
            let open = active.steps.iter().filter(|step| step.waiting.iter().any(|n| n == node));
            let numbered = open.filter(|step| matches!(step.id, StepId::Number(_)));
            let lost: Vec<StepId> = numbered
                .filter(|step| step.start < self.started)
                .filter(|step| !self.steps.contains_key(&(attempt.job, step.id)))
                .map(|step| step.id)
                .collect();
            for step in lost {
                let action = Action::Disown { step };
                self.send(seen.now, node, *attempt, job.spec.owner.uid, action, out);
            }
        }
    }

    /// The node may forget an attempt whose end nobody waited for.
    pub fn forget(&mut self, now: Timestamp, node: &str, attempt: AttemptId, out: &mut Dispatched) {
        self.send(now, node, attempt, SERVER_UID, Action::Forget, out);
    }

    /// Whether the attempt's launch was sent on the link that the node has now.
    fn launch_sent(&self, node: &str, attempt: AttemptId) -> bool {
        self.attempts.is_sent(node, self.link(node), attempt)
    }

    fn launch(&mut self, seen: Seen<'_>, attempt: AttemptId, node: &str, out: &mut Dispatched) {
        let job = seen.state.job(attempt.job).filter(|job| job.attempt_id() == Some(attempt));
        let is_suspended = job.and_then(Job::attempt).is_some_and(|active| active.suspended);
        if is_suspended && !self.bugs.has(Bug::SuspendedLaunched) {
            self.attempts.withhold(node, attempt);
            return;
        }
        let made = job.and_then(|job| {
            let action = self.texts.launch(job, job.attempt()?, node)?;
            Some((job.spec.owner.uid, action))
        });
        match made {
            Some((uid, action)) => self.send(seen.now, node, attempt, uid, action, out),
            // It ended before its order was written: nothing of it ever reached the node.
            None => out.commands.push(missing(node, attempt, seen.now)),
        }
    }

    /// Launches a job that is resumed where its launch waited for that.
    fn launch_withheld(&mut self, seen: Seen<'_>, job: JobId, out: &mut Dispatched) {
        let Some(job) = seen.state.job(job) else { return };
        let (Some(active), Some(attempt)) = (job.attempt(), job.attempt_id()) else { return };
        for node in &active.held_nodes {
            if self.attempts.is_withheld(node, attempt) {
                self.launch(seen, attempt, node, out);
                self.resend_steps(seen, node, attempt, out);
            }
        }
    }

    fn resend_steps(
        &mut self,
        seen: Seen<'_>,
        node: &str,
        attempt: AttemptId,
        out: &mut Dispatched,
    ) {
        let of_job = self.steps.iter().filter(|((job, _), _)| *job == attempt.job);
        let of_node = of_job.filter(|(_, nodes)| nodes.contains(node));
        let steps: Vec<StepId> = of_node.map(|((_, step), _)| *step).collect();
        for step in steps {
            self.send_step(seen, node, attempt, step, out);
        }
    }

    fn send_step(
        &mut self,
        seen: Seen<'_>,
        node: &str,
        attempt: AttemptId,
        step: StepId,
        out: &mut Dispatched,
    ) {
        let Some(job) = seen.state.job(attempt.job) else { return };
        let Some(active) = job.attempt().filter(|active| active.number == attempt.number) else {
            return;
        };
        if let Some(step) = active.steps.iter().find(|known| known.id == step) {
            let action = self.texts.step(step, node);
            self.send(seen.now, node, attempt, job.spec.owner.uid, action, out);
        }
    }

    fn send_all(&mut self, seen: Seen<'_>, job: JobId, action: &Action, out: &mut Dispatched) {
        let Some(job) = seen.state.job(job) else { return };
        let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { return };
        for node in &attempt.held_nodes {
            self.send(seen.now, node, id, job.spec.owner.uid, action.clone(), out);
        }
    }

    /// Sends an order, but none before the attempt's launch: a node that does not know an attempt reports it as lost.
    fn send(
        &mut self,
        now: Timestamp,
        node: &str,
        attempt: AttemptId,
        uid: u32,
        action: Action,
        out: &mut Dispatched,
    ) {
        let link = self.link(node);
        let may_send = self.attempts.may_send(node, link, attempt, &action);
        if !may_send && !self.bugs.has(Bug::OrderBeforeLaunch) {
            return;
        }
        let Some(link) = link else { return };
        self.attempts.note_sent(node, link, attempt, SentOrder::of(&action));
        self.serial += 1;
        let order = Order {
            version: self.version,
            term: self.term,
            serial: self.serial,
            node: node.to_owned(),
            attempt,
            uid,
            expires: Timestamp(now.0 + ORDER_LIFE_MS),
            action,
        };
        out.orders.push(Sent { node: node.to_owned(), link, order });
    }
}

fn missing(node: &str, attempt: AttemptId, at: Timestamp) -> Command {
    Command::Report { node: node.to_owned(), attempt, at, what: AttemptReport::Missing }
}

fn end_action(state: &State, outcome: Outcome) -> Action {
    let grace_s = match outcome {
        Outcome::Completed | Outcome::Failed => 0,
        _ => state.config.parameters.kill_wait_s,
    };
    orders::end(grace_s)
}
