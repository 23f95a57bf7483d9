//! A node that says hello: what it must do to agree with the state, and what was lost on the way to it.

use super::{DispatchThread, SERVER_UID, end_order};
use crate::launch;
use crate::shared::Shared;
use cluster::command::AttemptReport;
use cluster::{Command, Job};
use model::id::{AttemptId, StepId};
use std::time::{Duration, Instant};
use wire::order::Action;

/// How long an `srun` has, after its node has come back, to say again what it wants started.
const DISOWN_AFTER: Duration = Duration::from_secs(30);

impl DispatchThread {
    /// What the node must do to agree with the state.
    pub(super) fn reconcile(&mut self, shared: &Shared, node: &str, held: &[(AttemptId, bool)]) {
        let (ours, stale) = {
            let state = shared.read();
            let Some(known) = state.nodes.get(node) else { return };
            let ending =
                |a: &AttemptId| state.job(a.job).and_then(Job::attempt).and_then(|t| t.ending);
            let ours: Vec<_> = known.holders.iter().map(|a| (*a, ending(a))).collect();
            (ours, known.stale.clone())
        };
        self.disown_at.insert(node.to_string(), Instant::now() + DISOWN_AFTER);
        for (attempt, ending) in &ours {
            let there = held.iter().any(|(a, _)| a == attempt);
            match (there, ending) {
                (false, _) if self.went_out(shared, node, *attempt) => {}
                (false, None) => {
                    self.launch(shared, *attempt, node);
                    self.steps_again(shared, node, *attempt);
                }
                (false, Some(_)) => {
                    let missing = Command::Report {
                        node: node.to_string(),
                        attempt: *attempt,
                        at: crate::clock::now(),
                        what: AttemptReport::Missing,
                    };
                    self.tell(shared, missing);
                }
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
                (true, None) => {
                    self.say_again(shared, node, *attempt);
                    if shared.read().config.site.defer_batch {
                        self.begin_deferred(shared, *attempt);
                    }
                    self.steps_again(shared, node, *attempt);
                }
            }
        }
        for (attempt, alive) in held {
            let known = ours.iter().any(|(a, _)| a == attempt) || stale.contains(attempt);
            if !known && !alive {
                self.send(shared, node, *attempt, SERVER_UID, Action::Forget);
            }
        }
    }

    /// What may have been lost with a link: the time limit, and whether the attempt is suspended.
    fn say_again(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        let known = {
            let state = shared.read();
            state.jobs.get(&attempt.job).and_then(|job| {
                let active = job.attempt().filter(|a| a.number == attempt.number)?;
                Some((active.end_limit, active.suspended, job.spec.owner.uid))
            })
        };
        let Some((end, suspended, uid)) = known else { return };
        let action = if suspended { Action::Suspend } else { Action::Resume };
        self.send(shared, node, attempt, uid, action);
        // After it: a resume that the node had missed moves the node's own limit, and this sets it.
        self.send(shared, node, attempt, uid, Action::ExtendTo { end });
    }

    /// Orders for steps that may have been lost with a link; the node passes over those that it has.
    fn steps_again(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        for (step, launch) in shared.volatile.steps.lacking(shared, attempt, node) {
            for (to, id, uid, order) in launch::step_orders(shared, attempt.job, step, &launch) {
                if to == node && id == attempt {
                    self.send(shared, node, attempt, uid, Action::Step(Box::new(order)));
                }
            }
        }
    }

    /// Steps from before this server that a node may never have heard of: with the order and the server that had it, and
    /// the `srun` that could say it again, nobody is left to start them. The node ends those that it does not know.
    /// Gives the time until the next node is due.
    pub(super) fn disown_overdue(&mut self, shared: &Shared) -> Option<Duration> {
        let now = Instant::now();
        let due: Vec<String> = self.disown_at.extract_if(|_, at| *at <= now).map(|d| d.0).collect();
        for node in due {
            for (attempt, uid, step) in unheard_steps(shared, &node) {
                self.send(shared, &node, attempt, uid, Action::Disown { step });
            }
        }
        self.disown_at.values().min().map(|at| at.saturating_duration_since(now))
    }
}

/// Open steps of the node whose orders this server does not have. Most of them run there.
fn unheard_steps(shared: &Shared, node: &str) -> Vec<(AttemptId, u32, StepId)> {
    let state = shared.read();
    let Some(known) = state.nodes.get(node) else { return Vec::new() };
    let mut found = Vec::new();
    for attempt in &known.holders {
        let Some(job) = state.job(attempt.job) else { continue };
        let Some(active) = job.attempt().filter(|a| a.number == attempt.number) else { continue };
        let open = active.steps.iter().filter(|step| step.waiting.iter().any(|n| n == node));
        let numbered = open.filter(|step| matches!(step.id, StepId::Number(_)));
        let unheard = |id: StepId| shared.volatile.steps.launch(attempt.job, id).is_none();
        let lost = numbered.filter(|step| step.start < shared.setup.started && unheard(step.id));
        found.extend(lost.map(|step| (*attempt, job.spec.owner.uid, step.id)));
    }
    found
}
