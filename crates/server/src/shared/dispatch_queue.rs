//! The queue to the dispatcher, which turns what was committed into orders for the agents.

use crate::shared::agent_streams::StreamReader;
use cluster::Event;
use cluster::command::SignalJob;
use model::id::{AttemptId, JobId, StepId};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::oneshot;
use wire::volume::VolumeOrder;

/// Commits that may wait for their orders to be written; the writer waits beyond it.
const QUEUE: usize = 1024;

pub enum DispatchWork {
    Committed {
        events: Vec<Event>,
        signals: Vec<SignalJob>,
    },
    /// A node said hello on this link, with these attempts in its spool, and whether each is alive.
    Reconcile {
        node: String,
        link: u64,
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
    /// A node is to make or remove the folder of a volume of this user.
    Volume {
        node: String,
        uid: u32,
        order: VolumeOrder,
        /// Gets the stream that tells how it went; nothing where the node's agent is not connected.
        opened: oneshot::Sender<Option<StreamReader>>,
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

    pub fn reconcile(&self, node: String, link: u64, held: Vec<(AttemptId, bool)>) {
        let _ = self.sender.send(DispatchWork::Reconcile { node, link, held });
    }

    /// Hands over an order about a volume. Returns where its stream comes.
    pub fn volume(
        &self,
        node: String,
        uid: u32,
        order: VolumeOrder,
    ) -> oneshot::Receiver<Option<StreamReader>> {
        let (opened, stream) = oneshot::channel();
        let _ = self.sender.send(DispatchWork::Volume { node, uid, order, opened });
        stream
    }

    pub fn prolog_ended(&self, attempt: AttemptId, success: bool) {
        let _ = self.sender.send(DispatchWork::PrologEnded { attempt, success });
    }
}
