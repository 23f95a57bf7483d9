//! From events to orders: what a commit asks of the agents goes out, in order, after it.
//!
//! An order that finds no agent is dropped: when the node says hello, everything that it should
//! know is sent anew from the state (`reconcile`).

mod programs;
mod reconcile;

use crate::launch;
use crate::shared::Shared;
use cluster::command::{AttemptReport, SignalJob};
use cluster::{Command, Event, Job};
use model::change::JobField;
use model::id::{AttemptId, JobId, StepId};
use model::run::{LaunchKind, Outcome};
use programs::Preparing;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use wire::order::{Action, EndOrder, Order, SignalOrder};

/// How long the dispatcher sleeps with nothing to do, and with something to say again.
const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(5);

/// How long an order may be taken after it was signed.
const ORDER_LIFE_S: i64 = 120;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

/// Clearing away is the server's own business, whoever the attempt was for: agents take an end or
/// a forgetting under this number for any attempt.
const SERVER_UID: u32 = 0;

/// Commits that may wait for their orders to be written; the writer waits beyond it.
const QUEUE: usize = 1024;

/// Work for the dispatcher.
enum Effects {
    Committed {
        events: Vec<Event>,
        signals: Vec<SignalJob>,
    },
    Reconcile {
        node: String,
        held: Vec<(AttemptId, bool)>,
    },
    /// A step's launch is said anew.
    Step {
        job: JobId,
        step: StepId,
    },
    /// The node says an end that nobody waits for: its spool may let go of it.
    Forget {
        node: String,
        attempt: AttemptId,
    },
    /// The site's program before the attempt has ended, well or not.
    Prepared {
        attempt: AttemptId,
        good: bool,
    },
}

#[derive(Clone)]
pub struct Dispatch {
    sender: SyncSender<Effects>,
}

pub struct DispatchThread {
    receiver: Receiver<Effects>,
    serial: u64,
    term: u64,
    /// Per node, the link and the attempts whose launch went out on it: a hello that was said
    /// before them does not mean that they are missing.
    launched: HashMap<String, (u64, HashSet<AttemptId>)>,
    /// When each node that said hello is asked about steps whose orders nobody has any more.
    disown_at: HashMap<String, Instant>,
    /// Commands for a writer that had no room: the writer may be waiting for this very thread.
    unsaid: VecDeque<Command>,
    preparing: Preparing,
}

impl Dispatch {
    pub fn new(term: u64) -> (Self, DispatchThread) {
        let (sender, receiver) = sync_channel(QUEUE);
        let thread = DispatchThread {
            receiver,
            serial: 0,
            term,
            launched: HashMap::new(),
            disown_at: HashMap::new(),
            unsaid: VecDeque::new(),
            preparing: Preparing::default(),
        };
        (Self { sender }, thread)
    }

    pub fn take(&self, events: Vec<Event>, signals: Vec<SignalJob>) {
        if !events.is_empty() || !signals.is_empty() {
            let _ = self.sender.send(Effects::Committed { events, signals });
        }
    }

    pub fn forget(&self, node: String, attempt: AttemptId) {
        let _ = self.sender.send(Effects::Forget { node, attempt });
    }

    pub fn step(&self, job: JobId, step: StepId) {
        let _ = self.sender.send(Effects::Step { job, step });
    }

    /// A node said hello with these attempts in its spool.
    pub fn reconcile(&self, node: String, held: Vec<(AttemptId, bool)>) {
        let _ = self.sender.send(Effects::Reconcile { node, held });
    }
}

impl DispatchThread {
    pub fn run(mut self, shared: &Shared) {
        loop {
            let patience = if self.unsaid.is_empty() { LONG } else { SHORT };
            let patience = self.disown_overdue(shared).map_or(patience, |due| due.min(patience));
            let effects = match self.receiver.recv_timeout(patience) {
                Ok(effects) => effects,
                Err(RecvTimeoutError::Timeout) => {
                    self.say_unsaid(shared);
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.say_unsaid(shared);
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
                Effects::Step { job, step } => self.step(shared, job, step),
                Effects::Prepared { attempt, good } => self.on_prepared(shared, attempt, good),
                Effects::Forget { node, attempt } => {
                    self.send(shared, &node, attempt, SERVER_UID, Action::Forget);
                }
            }
        }
    }

    fn tell(&mut self, shared: &Shared, command: Command) {
        self.unsaid.push_back(command);
        self.say_unsaid(shared);
    }

    fn say_unsaid(&mut self, shared: &Shared) {
        while let Some(command) = self.unsaid.pop_front() {
            if let Err(back) = shared.writer.try_tell(command) {
                self.unsaid.push_front(back);
                return;
            }
        }
    }

    fn event(&mut self, shared: &Shared, event: &Event) {
        if let Some(job) = frees_steps(event) {
            shared.volatile.step_queue.stir(shared, job);
        }
        match event {
            Event::Started(started) => {
                for node in started.allocation.node_names() {
                    // A hello that was answered meanwhile may have brought it there already.
                    if !self.went_out(shared, node, started.attempt) {
                        self.launch(shared, started.attempt, node);
                    }
                }
            }
            Event::PrologEndedOnNode { attempt, .. } => self.begin_deferred(shared, *attempt),
            Event::StepStarted { job, step } => self.step(shared, *job, step.id),
            Event::Ending { job, ending, .. } => {
                let state = shared.read();
                let Some(job) = state.jobs.get(job) else { return };
                let (Some(attempt), Some(id)) = (job.attempt(), job.attempt_id()) else { return };
                // The job may have another attempt by now; this end is not for that one.
                if attempt.ending.as_ref() != Some(ending) {
                    return;
                }
                let order = end_order(&state, job, ending.outcome);
                let nodes = attempt.held_nodes.clone();
                let uid = job.spec.owner.uid;
                drop(state);
                for node in nodes {
                    self.send(shared, &node, id, uid, Action::End(order.clone()));
                }
            }
            Event::StepEndedOnNode { job, step, node, .. } => {
                shared.volatile.steps.taken(shared, *job, *step, node);
            }
            Event::AttemptEndedOnNode { attempt, node, .. }
            | Event::StaleAttemptGone { node, attempt } => {
                shared.volatile.steps.forget(attempt.job);
                self.forget_prepared(*attempt);
                self.send(shared, node, *attempt, SERVER_UID, Action::Forget);
            }
            Event::AttemptAbandonedOnNode { attempt, node } => {
                self.kill_stale(shared, node, *attempt)
            }
            Event::NodeUp { node, stale, .. } => {
                for attempt in stale {
                    self.kill_stale(shared, node, *attempt);
                }
            }
            Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => {
                self.run_epilog(shared, *job, ended);
            }
            Event::PreemptionGraceStarted { job, .. } => self.tell_to_leave(shared, *job),
            Event::Suspended { job, .. } | Event::GangSuspended { job, .. } => {
                self.send_all(shared, *job, &Action::Suspend)
            }
            Event::Resumed { job, .. } => self.send_all(shared, *job, &Action::Resume),
            Event::Changed { job, fields, .. } => {
                let limits = fields.iter().any(|f| matches!(f, JobField::TimeLimit(_)));
                let end = shared.read().jobs.get(job).and_then(|j| Some(j.attempt()?.end_limit));
                if let (true, Some(end)) = (limits, end) {
                    self.send_all(shared, *job, &Action::ExtendTo { end });
                }
            }
            _ => {}
        }
    }

    /// Whether the attempt's launch was sent on the link that the node has now.
    fn went_out(&self, shared: &Shared, node: &str, attempt: AttemptId) -> bool {
        let now = shared.agents.link_of(node);
        let sent = self.launched.get(node);
        sent.is_some_and(|(link, attempts)| Some(*link) == now && attempts.contains(&attempt))
    }

    fn kill_stale(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        let order = EndOrder::kill(None, None);
        self.send(shared, node, attempt, SERVER_UID, Action::End(order));
    }

    fn launch(&mut self, shared: &Shared, attempt: AttemptId, node: &str) {
        if !self.is_prepared(shared, attempt) {
            return;
        }
        match launch::job_launch(shared, attempt, node) {
            Ok(Some(launch)) => {
                let uid = launch.user.uid;
                self.send(shared, node, attempt, uid, Action::Launch(Box::new(launch)));
            }
            // It was cancelled before its order was written: nothing of it ever reached the node.
            Ok(None) => {
                let missing = Command::Report {
                    node: node.to_string(),
                    attempt,
                    at: crate::clock::now(),
                    what: AttemptReport::Missing,
                };
                self.tell(shared, missing);
            }
            Err(error) => {
                tracing::error!("attempt {attempt} cannot be launched on {node}: {error}");
                let failed = Command::Report {
                    node: node.to_string(),
                    attempt,
                    at: crate::clock::now(),
                    what: AttemptReport::LaunchFailed {
                        what: error.to_string(),
                        unfit: None,
                        hold: false,
                    },
                };
                self.tell(shared, failed);
            }
        }
    }

    fn step(&mut self, shared: &Shared, job: JobId, step: StepId) {
        let Some(launch) = shared.volatile.steps.launch(job, step) else { return };
        for (node, attempt, uid, order) in launch::step_orders(shared, job, step, &launch) {
            if self.is_unheard_of(attempt) {
                return;
            }
            self.send(shared, &node, attempt, uid, Action::Step(Box::new(order)));
        }
    }

    fn signal(&mut self, shared: &Shared, signal: &SignalJob) {
        let action = match signal.step {
            // The end of a step is told to its srun; a signal is only the tasks' business.
            Some(step @ StepId::Number(_)) if signal.signal == SIGKILL => {
                Action::End(EndOrder::kill(Some(step), Some(launch::step_notice())))
            }
            _ => Action::Signal(SignalOrder {
                step: signal.step,
                signal: signal.signal,
                leader_only: signal.leader_only,
                steps_only: signal.steps_only,
            }),
        };
        let same = shared.read().job(signal.attempt.job).and_then(Job::attempt_id);
        if same == Some(signal.attempt) {
            self.send_all(shared, signal.attempt.job, &action);
        }
    }

    /// A job must make room soon: its tasks hear it at once, and its script when the time is over.
    fn tell_to_leave(&mut self, shared: &Shared, job: JobId) {
        let steps_only = shared.read().job(job).map(|j| j.spec.launch.kind != LaunchKind::Task);
        let Some(steps_only) = steps_only else { return };
        for signal in [SIGCONT, SIGTERM] {
            let order = SignalOrder { step: None, signal, leader_only: false, steps_only };
            self.send_all(shared, job, &Action::Signal(order));
        }
    }

    fn send_all(&mut self, shared: &Shared, job: JobId, action: &Action) {
        let target = {
            let state = shared.read();
            state.jobs.get(&job).and_then(|job| {
                Some((job.attempt_id()?, job.attempt()?.held_nodes.clone(), job.spec.owner.uid))
            })
        };
        let Some((attempt, nodes, uid)) = target else { return };
        if self.is_unheard_of(attempt) {
            return;
        }
        for node in nodes {
            self.send(shared, &node, attempt, uid, action.clone());
        }
    }

    fn send(&mut self, shared: &Shared, node: &str, attempt: AttemptId, uid: u32, action: Action) {
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
        let is_launch = matches!(order.action, Action::Launch(_));
        let signed = match shared.identity.sign(&order) {
            Ok(signed) => signed,
            Err(error) => return tracing::error!("an order for {node} cannot be signed: {error}"),
        };
        let Some(link) = shared.agents.order(node, signed) else { return };
        if is_launch {
            let sent = self.launched.entry(node.to_string()).or_default();
            if sent.0 != link {
                *sent = (link, HashSet::new());
            }
            sent.1.insert(attempt);
        } else if matches!(order.action, Action::Forget)
            && let Some(sent) = self.launched.get_mut(node)
        {
            sent.1.remove(&attempt);
        }
    }
}

/// The job in which a step that waits may have come to its turn.
fn frees_steps(event: &Event) -> Option<JobId> {
    match event {
        Event::StepEndedOnNode { job, .. } | Event::Ending { job, .. } => Some(*job),
        Event::Ended { job, .. } | Event::Requeued { job, .. } => Some(*job),
        _ => None,
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
            | Outcome::Timeout
    );
    let notices = forced.then(|| launch::end_notices(job, outcome)).flatten();
    let (notice, step_notice) = notices.unzip();
    let grace_s = state.config.parameters.kill_wait_s;
    EndOrder { step: None, grace_s, notice, step_notice, exit: None }
}
