//! The queue to the dispatcher, which turns what was committed into orders for the agents.

use cluster::Event;
use cluster::command::SignalJob;
use model::id::{AttemptId, JobId, StepId};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Commits that may wait for their orders to be written; the writer waits beyond it.
const QUEUE: usize = 1024;

pub enum DispatchWork {
    Committed {
        events: Vec<Event>,
        signals: Vec<SignalJob>,
    },
    /// A node said hello with these attempts in its spool, and whether each is alive.
    Reconcile {
        node: String,
        held: Vec<(AttemptId, bool)>,
    },
    /// The launch of a step was sent anew by its `srun`.
    Step {
        job: JobId,
        step: StepId,
    },
    /// The node reported an end that nobody waits for: its spool may forget the attempt.
    Forget {
        node: String,
        attempt: AttemptId,
    },
    /// The controller's prolog of the attempt has ended.
    PrologEnded {
        attempt: AttemptId,
        success: bool,
    },
}

/// Sends fail only when the dispatcher's thread is gone, which ends with the process: they are ignored.
#[derive(Clone)]
pub struct DispatchQueue {
    sender: SyncSender<DispatchWork>,
}

impl DispatchQueue {
    /// The queue, and the end from which the dispatcher takes its work.
    pub fn new() -> (Self, Receiver<DispatchWork>) {
        let (sender, receiver) = sync_channel(QUEUE);
        (Self { sender }, receiver)
    }

    pub fn committed(&self, events: Vec<Event>, signals: Vec<SignalJob>) {
        if !events.is_empty() || !signals.is_empty() {
            let _ = self.sender.send(DispatchWork::Committed { events, signals });
        }
    }

    pub fn forget(&self, node: String, attempt: AttemptId) {
        let _ = self.sender.send(DispatchWork::Forget { node, attempt });
    }

    pub fn step(&self, job: JobId, step: StepId) {
        let _ = self.sender.send(DispatchWork::Step { job, step });
    }

    pub fn reconcile(&self, node: String, held: Vec<(AttemptId, bool)>) {
        let _ = self.sender.send(DispatchWork::Reconcile { node, held });
    }

    pub fn prolog_ended(&self, attempt: AttemptId, success: bool) {
        let _ = self.sender.send(DispatchWork::PrologEnded { attempt, success });
    }
}
