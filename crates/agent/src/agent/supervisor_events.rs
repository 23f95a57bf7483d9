//! What supervisors say of their attempts, and what becomes of an attempt whose supervisor is lost.

use super::supervisor_connection::{AttemptUpdate, ORDERS_MAX, serve_supervisor};
use super::{Agent, AttemptEntry, UPDATES_MAX};
use crate::attempt_key::AttemptKey;
use crate::wall_clock;
use model::id::CallId;
use model::run::Usage;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::link::ToServer;
use wire::report::{AttemptEnd, ReportEvent};
use wire::supervisor::{FromSupervisor, SupervisorEvent, ToSupervisor};

/// A line for what a supervisor reports of the whole attempt.
fn log_event(key: &AttemptKey, held: &AttemptEntry, event: &ReportEvent) {
    let (node, attempt, supervisor) = (&key.node, &key.attempt, held.supervisor);
    let call = held.call.as_ref().map(CallId::as_str);
    match event {
        ReportEvent::Started => {
            tracing::info!(node, %attempt, call, supervisor, "supervisor: attempt started");
        }
        ReportEvent::Ended(end) => {
            let exit = end.exit;
            tracing::info!(node, %attempt, call, supervisor, %exit, "supervisor: attempt ended");
        }
        ReportEvent::LaunchFailed { what, .. } => {
            tracing::warn!(node, %attempt, call, supervisor, what, "supervisor: launch failed");
        }
        _ => {}
    }
}

impl Agent {
    /// Starts the task that serves the connection to an attempt's supervisor.
    pub(super) fn connect_supervisor(&mut self, key: AttemptKey, stream: UnixStream) {
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        if let Some(held) = self.attempts.get_mut(&key) {
            held.orders = Some(orders);
        }
        tokio::spawn(serve_supervisor(key, stream, receiver, self.updates_in.clone()));
    }

    /// Drops a report that is on the server's disk, and tells its supervisor.
    pub fn on_acknowledged(&mut self, serial: u64) {
        let Some(pending) = self.reports.acknowledge(serial) else { return };
        if pending.is_step_end()
            && let Some(orders) =
                self.attempts.get(&pending.key).and_then(|held| held.orders.as_ref())
        {
            // If it is lost, the supervisor sends the event again on its next connection.
            let _ = orders.try_send(ToSupervisor::Acknowledge { number: pending.number });
        }
    }

    pub fn on_update(&mut self, key: &AttemptKey, update: AttemptUpdate) {
        match update {
            AttemptUpdate::Message(FromSupervisor::Event(event)) => self.on_event(key, event),
            AttemptUpdate::Message(FromSupervisor::Hello { pid, takes_notices, .. }) => {
                if let Some(held) = self.attempts.get_mut(key) {
                    held.supervisor = Some(pid);
                    held.takes_notices = takes_notices;
                }
            }
            AttemptUpdate::Message(FromSupervisor::StepAccepted { step }) => {
                let (node, attempt) = (key.node.clone(), key.attempt);
                if self.outgoing.len() < UPDATES_MAX {
                    self.outgoing.push(ToServer::StepAccepted { node, attempt, step });
                }
            }
            AttemptUpdate::Message(FromSupervisor::Measured { request: ask, mut used }) => {
                if let Some(held) = self.attempts.get(key) {
                    for step in &mut used.steps {
                        let gpus = held.gpus.of_step(step.step);
                        gpus.iter().for_each(|gpus| step.used.set_gpus(gpus));
                        let known = held.step_energy.get(&step.step);
                        let used = known.map(|(cpus, mark)| self.energy.used_since(mark, cpus));
                        step.used.set_energy(used.unwrap_or(0));
                    }
                    used.load.gpus = held.gpus.series();
                }
                if self.outgoing.len() < UPDATES_MAX {
                    self.outgoing.push(ToServer::Measured { request: ask, used });
                }
            }
            AttemptUpdate::Message(FromSupervisor::Refused { why }) => {
                tracing::warn!(node = key.node, attempt = %key.attempt, why, "the supervisor refused an order");
            }
            AttemptUpdate::Disconnected => self.on_closed(key),
            AttemptUpdate::Cleared(usage) => self.on_cleared(key, usage),
        }
    }

    pub(super) fn on_event(&mut self, key: &AttemptKey, mut event: SupervisorEvent) {
        let Some(held) = self.attempts.get_mut(key) else { return };
        if event.number <= held.last_number || held.has_ended() {
            return;
        }
        held.last_number = event.number;
        log_event(key, held, &event.event);
        if let ReportEvent::ScriptEnded { exit, oom, timed_out } = event.event {
            held.script = Some((exit, oom, timed_out));
        }
        let (used, gpus) = match &mut event.event {
            ReportEvent::Ended(end) => {
                end.usage.energy_mj = self.energy.used_since(&held.energy, &held.cpus);
                (end.usage.tasks.as_deref_mut(), held.gpus.whole())
            }
            ReportEvent::StepEnded { step, usage, .. } => {
                if let Some((cpus, mark)) = held.step_energy.remove(step) {
                    usage.energy_mj = self.energy.used_since(&mark, &cpus);
                    let tasks = usage.tasks.iter_mut();
                    tasks.for_each(|tasks| tasks.set_energy(usage.energy_mj));
                }
                (usage.tasks.as_deref_mut(), held.gpus.end_step(*step))
            }
            _ => (None, None),
        };
        if let (Some(used), Some(gpus)) = (used, gpus) {
            used.set_gpus(&gpus);
        }
        if event.is_last() {
            held.ended.send_replace(true);
            held.orders = None;
        }
        self.reports.push(key.clone(), event.number, event.at, event.event);
    }

    /// Handles the end of a supervisor. If it reported the attempt's end or left it in the spool, nothing is lost; else
    /// the attempt's processes are killed.
    pub(super) fn on_closed(&mut self, key: &AttemptKey) {
        let Some(held) = self.attempts.get_mut(key) else { return };
        held.orders = None;
        if held.has_ended() {
            return;
        }
        let Some(node) = self.nodes.get(&key.node) else { return };
        let status = node.spool.open_attempt(key.attempt).and_then(|dir| dir.read_status());
        match status {
            Ok(status) => status.into_iter().flat_map(|s| s.events).for_each(|event| {
                self.on_event(key, event);
            }),
            Err(error) => tracing::warn!(%error, "an attempt's status cannot be read"),
        }
        if self.attempts.get(key).is_some_and(AttemptEntry::has_ended) {
            return;
        }
        tracing::warn!(node = key.node, attempt = %key.attempt, "the supervisor is lost; killing the attempt");
        let (groups, updates, key) = (
            self.nodes[&key.node].attempt_groups(key.attempt),
            self.updates_in.clone(),
            key.clone(),
        );
        tokio::spawn(async move {
            let cleared = tokio::task::spawn_blocking(move || groups.clear()).await;
            let usage = match cleared {
                Ok(Ok(usage)) => usage,
                Ok(Err(error)) => {
                    // The attempt is not reported as ended, because its processes remain. The next agent tries again.
                    tracing::error!(node = key.node, attempt = %key.attempt, %error, "cannot clear an attempt");
                    return;
                }
                Err(_) => Usage::default(),
            };
            let _ = updates.send((key, AttemptUpdate::Cleared(usage))).await;
        });
    }

    fn on_cleared(&mut self, key: &AttemptKey, usage: Usage) {
        let Some(held) = self.attempts.get(key) else { return };
        let (exit, oom, timed_out) = held.script.unwrap_or_default();
        let end = AttemptEnd { exit, usage, oom, timed_out, supervisor_lost: true };
        let number = held.last_number + 1;
        self.on_event(
            key,
            SupervisorEvent { number, at: wall_clock::now(), event: ReportEvent::Ended(end) },
        );
    }
}
