//! The queue to the dispatcher, which turns what was committed into orders for the agents.
//!
//! Nothing follows of a new job that waits but a line of the log. While such jobs come one after another, the dispatcher looks for them by
//! itself: to wake it for each would hold up the thread that commits it.

use crate::shared::agent_streams::StreamReader;
use cluster::Event;
use cluster::command::SignalJob;
use model::id::{AttemptId, JobId, StepId};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;
use wire::volume::VolumeOrder;

/// Commits that may wait for their orders to be written; the writer waits beyond it.
const QUEUE: usize = 1024;

/// New jobs that a dispatcher may have to look for; it is woken by the next one.
const UNTOLD: usize = 256;

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
    new_jobs: Arc<Mutex<NewJobs>>,
}

/// New jobs of which the dispatcher was not told. They were committed after all that is in the queue.
#[derive(Default)]
struct NewJobs {
    events: Vec<Event>,
    /// Whether the dispatcher looks for them by itself.
    is_looked_for: bool,
}

impl DispatchQueue {
    /// The queue, and the end from which the dispatcher takes its work.
    pub fn new() -> (Self, Receiver<DispatchWork>) {
        let (sender, receiver) = sync_channel(QUEUE);
        (Self { sender, new_jobs: Arc::default() }, receiver)
    }

    fn new_jobs(&self) -> MutexGuard<'_, NewJobs> {
        self.new_jobs.lock().expect("nobody panics with the new jobs held")
    }

    /// Hands over what was committed. Commits come here one at a time, in their order.
    pub fn committed(&self, events: Vec<Event>, signals: Vec<SignalJob>) {
        if events.is_empty() && signals.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.new_jobs().events);
        all.extend(events);
        let _ = self.sender.send(DispatchWork::Committed { events: all, signals });
    }

    /// The same of a commit that has brought jobs that wait, and nothing else. A dispatcher that looks for them by itself is not woken.
    pub fn committed_new_jobs(&self, events: Vec<Event>) {
        let mut new_jobs = self.new_jobs();
        if new_jobs.is_looked_for && new_jobs.events.len() + events.len() <= UNTOLD {
            new_jobs.events.extend(events);
            return;
        }
        drop(new_jobs);
        self.committed(events, Vec::new());
    }

    /// The dispatcher looks for new jobs by itself from now on, until [`Self::look`] finds nothing.
    pub fn begin_to_look(&self) {
        self.new_jobs().is_looked_for = true;
    }

    /// What the dispatcher, whose end of the queue `work` is, is to do next: what is in the queue, and then the new jobs of which it was
    /// not told. Where there is neither it is told again.
    pub fn look(&self, work: &Receiver<DispatchWork>) -> Option<DispatchWork> {
        let mut new_jobs = self.new_jobs();
        // Of what was committed before them all is in the queue by now, and of what is committed after them nothing yet.
        if let Ok(work) = work.try_recv() {
            return Some(work);
        }
        new_jobs.is_looked_for = !new_jobs.events.is_empty();
        let events = std::mem::take(&mut new_jobs.events);
        new_jobs.is_looked_for.then(|| DispatchWork::Committed { events, signals: Vec::new() })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Any event: the queue looks into none.
    fn of(job: u32) -> Vec<Event> {
        vec![Event::Released { job: JobId(job) }]
    }

    fn jobs(work: Option<DispatchWork>) -> Vec<u32> {
        let Some(DispatchWork::Committed { events, .. }) = work else { return Vec::new() };
        let job = |event: &Event| match event {
            Event::Released { job } => job.0,
            other => panic!("{other:?}"),
        };
        events.iter().map(job).collect()
    }

    #[test]
    fn new_jobs_wait_for_a_dispatcher_that_looks_and_stay_in_the_order_of_the_commits() {
        let (queue, work) = DispatchQueue::new();
        let told = || jobs(work.try_recv().ok());
        queue.committed_new_jobs(of(1));
        assert_eq!(told(), [1], "it does not look yet");
        queue.begin_to_look();
        queue.committed(of(2), Vec::new());
        queue.committed_new_jobs(of(3));
        assert_eq!(jobs(queue.look(&work)), [2], "committed before");
        assert_eq!(jobs(queue.look(&work)), [3]);
        queue.committed_new_jobs(of(4));
        queue.committed(of(5), Vec::new());
        assert_eq!(told(), [4, 5], "together");
        assert!(queue.look(&work).is_none());
        queue.committed_new_jobs(of(6));
        assert_eq!(told(), [6], "it does not look any more");
    }

    #[test]
    fn new_jobs_that_wait_to_be_looked_for_are_bounded() {
        let (queue, work) = DispatchQueue::new();
        queue.begin_to_look();
        let all: Vec<u32> = (0..=UNTOLD as u32).collect();
        all.iter().for_each(|job| queue.committed_new_jobs(of(*job)));
        assert_eq!(jobs(work.try_recv().ok()), all);
    }
}
