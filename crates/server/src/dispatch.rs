//! From events to orders: what a commit asks of the agents goes out, in order, after it.
//!
//! An order that finds no agent is dropped: when the node says hello, everything that it should
//! know is sent anew from the state (`reconcile`).

use crate::launch;
use crate::shared::Shared;
use cluster::command::{PartReport, SignalJob};
use cluster::{Command, Event, Job};
use model::change::JobField;
use model::id::{AttemptId, JobId, StepId};
use model::run::Outcome;
use std::sync::mpsc::{Receiver, Sender, channel};
use wire::order::{Action, EndOrder, Order, SignalOrder};

/// How long an order may be taken after it was signed.
const ORDER_LIFE_S: i64 = 120;

/// Work for the dispatcher. Its queue is bounded by the writer: one entry a commit.
enum Effects {
    Committed { events: Vec<Event>, signals: Vec<SignalJob> },
    Reconcile { node: String, held: Vec<(AttemptId, bool)> },
}

#[derive(Clone)]
pub struct Dispatch {
    sender: Sender<Effects>,
}

pub struct DispatchThread {
    receiver: Receiver<Effects>,
    serial: u64,
    term: u64,
}

impl Dispatch {
    pub fn new(term: u64) -> (Self, DispatchThread) {
        let (sender, receiver) = channel();
        (Self { sender }, DispatchThread { receiver, serial: 0, term })
    }

    pub fn take(&self, events: Vec<Event>, signals: Vec<SignalJob>) {
        if !events.is_empty() || !signals.is_empty() {
            let _ = self.sender.send(Effects::Committed { events, signals });
        }
    }

    /// A node said hello with these attempts in its spool.
    pub fn reconcile(&self, node: String, held: Vec<(AttemptId, bool)>) {
        let _ = self.sender.send(Effects::Reconcile { node, held });
    }
}

impl DispatchThread {
    pub fn run(mut self, shared: &Shared) {
        while let Ok(effects) = self.receiver.recv() {
            match effects {
                Effects::Committed { events, signals } => {
                    for event in &events {
                        self.event(shared, event);
                    }
                    for signal in signals {
                        self.signal(shared, &signal);
                    }
                }
                Effects::Reconcile { node, held } => self.reconcile(shared, &node, &held),
            }
        }
    }

    fn event(&mut self, shared: &Shared, event: &Event) {
        match event {
            Event::Started(started) => {
                for node in started.allocation.node_names() {
                    self.launch(shared, started.attempt, node);
                }
            }
            Event::StepStarted { job, step } => self.step(shared, *job, step.id),
            Event::Ending { job, ending, .. } => {
                let state = shared.read();
                let Some(job) = state.jobs.get(job) else { return };
                let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { return };
                let order = end_order(&state, job, ending.outcome);
                let nodes = attempt.held_nodes.clone();
                let uid = job.spec.owner.uid;
                drop(state);
                for node in nodes {
                    self.send(shared, &node, id, uid, Action::End(order.clone()));
                }
            }
            Event::PartEnded { attempt, node, .. } | Event::StaleGone { node, attempt } => {
                self.send(shared, node, *attempt, 0, Action::Forget);
            }
            Event::NodeUp { node, stale, .. } => {
                for attempt in stale {
                    self.kill_stale(shared, node, *attempt);
                }
            }
            Event::Suspended { job, .. } => self.to_all(shared, *job, &Action::Suspend),
            Event::Resumed { job, .. } => self.to_all(shared, *job, &Action::Resume),
            Event::Changed { job, fields, .. } => {
                let limits = fields.iter().any(|f| matches!(f, JobField::TimeLimit(_)));
                let end = shared.read().jobs.get(job).and_then(|j| Some(j.attempt()?.end_limit));
                if let (true, Some(end)) = (limits, end) {
                    self.to_all(shared, *job, &Action::ExtendTo { end });
                }
            }
            _ => {}
        }
    }

    /// What the node must do to agree with the state.
    fn reconcile(&mut self, shared: &Shared, node: &str, held: &[(AttemptId, bool)]) {
        let (ours, stale) = {
            let state = shared.read();
            let Some(known) = state.nodes.get(node) else { return };
            let ending = |a: &AttemptId| {
                state.jobs.get(&a.job).and_then(Job::attempt).and_then(|t| t.ending.clone())
            };
            let ours: Vec<_> = known.holders.iter().map(|a| (*a, ending(a))).collect();
            (ours, known.stale.clone())
        };
        for (attempt, ending) in &ours {
            let there = held.iter().any(|(a, _)| a == attempt);
            match (there, ending) {
                (false, None) => self.launch(shared, *attempt, node),
                (false, Some(_)) => shared.writer.tell(Command::Report {
                    node: node.to_string(),
                    attempt: *attempt,
                    at: crate::clock::now(),
                    what: PartReport::Missing,
                }),
                (true, Some(ending)) => {
                    let order = {
                        let state = shared.read();
                        let job = state.jobs.get(&attempt.job);
                        job.map(|job| (end_order(&state, job, ending.outcome), job.spec.owner.uid))
                    };
                    if let Some((order, uid)) = order {
                        self.send(shared, node, *attempt, uid, Action::End(order));
                    }
                }
                (true, None) => {}
            }
        }
        for (attempt, alive) in held {
            let known = ours.iter().any(|(a, _)| a == attempt) || stale.contains(attempt);
            if !known && !alive {
                self.send(shared, node, *attempt, 0, Action::Forget);
            }
        }
    }

    fn kill_stale(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        let order = EndOrder { step: None, grace_s: 0, notice: None, exit: None };
        self.send(shared, node, attempt, 0, Action::End(order));
    }

    fn launch(&mut self, shared: &Shared, attempt: AttemptId, node: &str) {
        match launch::job_launch(shared, attempt, node) {
            Ok(Some(launch)) => {
                let uid = launch.user.uid;
                self.send(shared, node, attempt, uid, Action::Launch(Box::new(launch)));
            }
            // It ended before its order was written.
            Ok(None) => {}
            Err(error) => {
                tracing::error!("attempt {attempt} cannot be launched on {node}: {error}");
                shared.writer.tell(Command::Report {
                    node: node.to_string(),
                    attempt,
                    at: crate::clock::now(),
                    what: PartReport::LaunchFailed { what: error.to_string() },
                });
            }
        }
    }

    fn step(&mut self, shared: &Shared, job: JobId, step: StepId) {
        let launch = {
            let mut steps = shared.volatile.steps.lock().expect("no panic with it held");
            steps.remove(&(job, step))
        };
        let Some(launch) = launch else { return };
        for (node, attempt, uid, order) in launch::step_orders(shared, job, step, &launch) {
            self.send(shared, &node, attempt, uid, Action::Step(Box::new(order)));
        }
    }

    fn signal(&mut self, shared: &Shared, signal: &SignalJob) {
        let action = Action::Signal(SignalOrder {
            step: signal.step,
            signal: signal.signal,
            leader_only: signal.leader_only,
            steps_only: signal.steps_only,
        });
        self.to_all(shared, signal.attempt.job, &action);
    }

    fn to_all(&mut self, shared: &Shared, job: JobId, action: &Action) {
        let target = {
            let state = shared.read();
            state.jobs.get(&job).and_then(|job| {
                Some((job.attempt_id()?, job.attempt()?.held_nodes.clone(), job.spec.owner.uid))
            })
        };
        let Some((attempt, nodes, uid)) = target else { return };
        for node in nodes {
            self.send(shared, &node, attempt, uid, action.clone());
        }
    }

    fn send(
        &mut self,
        shared: &Shared,
        node: &str,
        attempt: AttemptId,
        uid: u32,
        action: Action,
    ) {
        self.serial += 1;
        let now = crate::clock::now();
        let order = Order {
            version: wire::version::PROTOCOL,
            term: self.term,
            serial: self.serial,
            node: node.to_string(),
            attempt,
            uid,
            expires: model::time::Timestamp(now.0 + ORDER_LIFE_S * 1000),
            action,
        };
        match shared.identity.sign(&order) {
            Ok(signed) => shared.agents.order(node, signed),
            Err(error) => tracing::error!("an order for {node} cannot be signed: {error}"),
        }
    }
}

fn end_order(state: &cluster::State, job: &Job, outcome: Outcome) -> EndOrder {
    let forced = matches!(
        outcome,
        Outcome::Cancelled { .. }
            | Outcome::Requeued
            | Outcome::Preempted
            | Outcome::NodeFail
            | Outcome::Deadline
    );
    EndOrder {
        step: None,
        grace_s: state.config.parameters.kill_wait_s,
        notice: forced.then(|| launch::end_notice(job, outcome)).flatten(),
        exit: None,
    }
}
