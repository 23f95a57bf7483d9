//! Reconcile: what a node that says hello must do to agree with the state, and what was lost on the way to it.

use super::launch;
use super::{DispatchThread, SERVER_UID, end_order};
use crate::logs::collector;
use crate::shared::Shared;
use crate::shared::step_launches::Delivery;
use cluster::hello_answer::HelloAnswer;
use cluster::{Job, State};
use model::id::{AttemptId, StepId};
use model::run::StartupOrder;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::order::Action;
use wire::step::StepLaunch;

/// How long an `srun` has, after its node has come back, to send its launch again.
const DISOWN_AFTER: Duration = Duration::from_secs(30);

impl DispatchThread {
    /// Reconciles a node that said hello on this link. An older hello says nothing of what was launched since: a link that took
    /// over has brought another.
    pub(super) fn on_hello(
        &mut self,
        shared: &Shared,
        node: &str,
        link: u64,
        held: &[(AttemptId, bool)],
    ) {
        if shared.agents.number_of(node) == Some(link) {
            self.reconcile(shared, node, held);
        }
    }

    /// Sends the node what it needs to agree with the state. `held` are the attempts in its spool, and whether each is
    /// alive.
    pub(super) fn reconcile(&mut self, shared: &Shared, node: &str, held: &[(AttemptId, bool)]) {
        let link = shared.agents.number_of(node);
        let answers = {
            let state = shared.read();
            if !state.nodes.contains_key(node) {
                return;
            }
            state.hello_answers(node, held, |attempt| self.attempts.is_sent(node, link, attempt))
        };
        self.attempts.said_hello(node, held.iter().map(|(attempt, _)| *attempt));
        let disown_at = Instant::now() + DISOWN_AFTER;
        self.disown_at.insert(node.to_string(), disown_at);
        self.disown_order.push_back((disown_at, node.to_string()));
        self.order_reboot(shared, node);
        // Before the node is told to forget any of them.
        held.iter().for_each(|(attempt, _)| collector::collect(shared, *attempt, node));
        for answer in answers {
            self.carry_out(shared, node, answer);
        }
    }

    fn carry_out(&mut self, shared: &Shared, node: &str, answer: HelloAnswer) {
        match answer {
            HelloAnswer::Launch(attempt) => {
                self.launch(shared, attempt, node);
                self.resend_steps(shared, node, attempt);
            }
            HelloAnswer::Missing(attempt) => self.report_missing(shared, node, attempt),
            HelloAnswer::End(attempt, outcome) => {
                let order = {
                    let state = shared.read();
                    let job = state.jobs.get(&attempt.job);
                    job.map(|job| (end_order(&state, job, outcome), job.spec.owner.uid))
                };
                if let Some((order, uid)) = order {
                    self.send(shared, node, attempt, uid, Action::End(order));
                }
            }
            HelloAnswer::GoOn(attempt) => {
                self.resend_limits(shared, node, attempt);
                if may_be_deferred(&shared.read(), attempt) {
                    self.begin_deferred(shared, attempt.job);
                }
                self.resend_steps(shared, node, attempt);
            }
            HelloAnswer::Forget(attempt) => {
                self.send(shared, node, attempt, SERVER_UID, Action::Forget);
            }
        }
    }

    /// Sends again what may have been lost with a link: the time limit, and whether the attempt is suspended.
    fn resend_limits(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
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

    /// Sends again orders for steps that may have been lost with a link; the node ignores those that it has.
    pub(super) fn resend_steps(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        for (step, launch) in undelivered_steps(shared, attempt, node) {
            for (to, id, uid, order) in launch::step_orders(shared, attempt.job, step, &launch) {
                if to == node && id == attempt {
                    self.send(shared, node, attempt, uid, order);
                }
            }
        }
    }

    /// Tells nodes that are due to end steps that they do not know. Such a step was created before this server started; its
    /// order was lost with that server and its `srun` did not send it again, so nobody is left to start it.
    /// Returns the time until the next node is due.
    pub(super) fn disown_overdue(&mut self, shared: &Shared) -> Option<Duration> {
        let now = Instant::now();
        while self.disown_order.front().is_some_and(|(at, _)| *at <= now) {
            let Some((at, node)) = self.disown_order.pop_front() else { break };
            if self.disown_at.get(&node) != Some(&at) {
                continue;
            }
            self.disown_at.remove(&node);
            for (attempt, uid, step) in steps_without_order(shared, &node) {
                self.send(shared, &node, attempt, uid, Action::Disown { step });
            }
        }
        self.disown_order.front().map(|(at, _)| at.saturating_duration_since(now))
    }
}

/// Open steps of the node whose orders this server does not have. Most of them run there.
fn steps_without_order(shared: &Shared, node: &str) -> Vec<(AttemptId, u32, StepId)> {
    let state = shared.read();
    let Some(known) = state.nodes.get(node) else { return Vec::new() };
    let mut found = Vec::new();
    for attempt in &known.holders {
        let Some(job) = state.job(attempt.job) else { continue };
        let Some(active) = job.attempt().filter(|a| a.number == attempt.number) else { continue };
        let open = active.steps.iter().filter(|step| step.waiting.iter().any(|n| n == node));
        let numbered = open.filter(|step| matches!(step.id, StepId::Number(_)));
        let has_no_launch =
            |id: StepId| shared.volatile.step_launches.launch(attempt.job, id).is_none();
        let lost =
            numbered.filter(|step| step.start < shared.setup.started && has_no_launch(step.id));
        found.extend(lost.map(|step| (*attempt, job.spec.owner.uid, step.id)));
    }
    found
}

/// The steps of an attempt whose orders this node may lack, with what to start. The launch of a job's first step is also
/// in the store.
fn undelivered_steps(shared: &Shared, id: AttemptId, node: &str) -> Vec<(StepId, Arc<StepLaunch>)> {
    let (steps, first) = {
        let state = shared.read();
        let Some(job) = state.jobs.get(&id.job) else { return Vec::new() };
        let Some(attempt) = job.attempt().filter(|a| a.number == id.number) else {
            return Vec::new();
        };
        let waiting = attempt.steps.iter().filter(|s| s.waiting.iter().any(|n| n == node));
        let steps: Vec<StepId> = waiting.map(|s| s.id).collect();
        (steps, job.spec.launch.first_step.clone())
    };
    let stored = || {
        let text = shared.blob_text(first.as_deref()?).ok()?;
        serde_json::from_str(&text).ok().map(Arc::new)
    };
    let launch = |step: StepId| match shared.volatile.step_launches.delivery(id.job, step, node) {
        Delivery::Delivered => None,
        Delivery::Pending(launch) => Some(launch),
        Delivery::Unknown if step == StepId::Number(0) => stored(),
        Delivery::Unknown => None,
    };
    steps.into_iter().filter_map(|step| Some((step, launch(step)?))).collect()
}

/// Whether a script of the attempt may wait for other nodes.
fn may_be_deferred(state: &State, attempt: AttemptId) -> bool {
    let orders = |job: &Arc<Job>| job.spec.launch.startup_order != StartupOrder::Any;
    state.config.site.defer_batch || state.jobs.get(&attempt.job).is_some_and(orders)
}
