//! The dispatcher's thread: from events to orders. What a commit asks of the agents goes out after it, in order.
//!
//! An order whose node has no link is dropped: when the node says hello, everything that it should
//! know is sent anew from the state (`reconcile`). `prolog_epilog` runs the controller's programs, `launch` makes what an
//! order says, `event_log` the log's lines.

mod event_log;
pub mod launch;
mod power;
mod prolog_epilog;
mod reconcile;
#[cfg(test)]
mod tests;

use crate::error::ServerError;
use crate::logs::collector;
use crate::shared::Shared;
use crate::shared::dispatch_queue::DispatchWork;
use crate::task_groups;
use cluster::command::{AttemptReport, SignalJob};
use cluster::{Command, Event, Job};
use model::attempt::Attempt;
use model::change::JobField;
use model::id::{AttemptId, JobId, StepId};
use model::node::SlotState;
use model::reason::LaunchFault;
use model::run::{LaunchKind, Outcome};
use prolog_epilog::PrologRuns;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::launched_attempts::{LaunchedAttempts, SentOrder};
use wire::order::{Action, EndOrder, Order, SignalOrder, SignedOrder};
use wire::stream::StreamKind;

/// How long the dispatcher sleeps with nothing to do, and with commands to try again.
const IDLE_WAIT: Duration = Duration::from_secs(3600);
const RETRY_WAIT: Duration = Duration::from_millis(5);
/// How often the dispatcher looks for new jobs while they come one after another: so late is the line of the log of one at most.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// How long an order is valid after it was signed.
const ORDER_LIFE_S: i64 = 120;

/// What an order is of that is about no attempt.
const NO_ATTEMPT: AttemptId = AttemptId { job: JobId(0), number: 0 };

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;

/// The uid of orders that clear an attempt away, whoever it ran for: agents accept `End` and `Forget` under it for any
/// attempt.
const SERVER_UID: u32 = 0;

pub struct DispatchThread {
    work: Receiver<DispatchWork>,
    serial: u64,
    term: u64,
    /// Which attempts the nodes have.
    attempts: LaunchedAttempts,
    /// When each node that said hello is told to end steps whose orders nobody has any more.
    disown_at: HashMap<String, Instant>,
    /// The same times in their order. An entry whose node said hello again is passed over.
    disown_order: VecDeque<(Instant, String)>,
    /// Commands that found the writer's queue full.
    unsent_commands: VecDeque<Command>,
    /// When new jobs are looked for, while they are.
    look_at: Option<Instant>,
    prologs: PrologRuns,
}

impl DispatchThread {
    pub fn new(work: Receiver<DispatchWork>, term: u64) -> Self {
        Self {
            work,
            serial: 0,
            term,
            attempts: LaunchedAttempts::default(),
            disown_at: HashMap::new(),
            disown_order: VecDeque::new(),
            unsent_commands: VecDeque::new(),
            look_at: None,
            prologs: PrologRuns::default(),
        }
    }

    pub fn run(mut self, shared: &Shared) {
        loop {
            let timeout = if self.unsent_commands.is_empty() { IDLE_WAIT } else { RETRY_WAIT };
            let timeout = self.disown_overdue(shared).map_or(timeout, |due| due.min(timeout));
            let look_in = self.look_at.map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = look_in.map_or(timeout, |due| due.min(timeout));
            let work = match self.work.recv_timeout(timeout) {
                Ok(work) => Some(work),
                Err(RecvTimeoutError::Timeout) => self.look(shared),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            self.flush_commands(shared);
            let Some(work) = work else { continue };
            match work {
                DispatchWork::Committed { events, signals } => {
                    for event in &events {
                        self.event(shared, event);
                    }
                    // Orders go out first.
                    events.iter().for_each(|event| event_log::log(shared, event));
                    for signal in signals {
                        self.signal(shared, &signal);
                    }
                    // Another may follow at once.
                    if events.iter().any(|event| matches!(event, Event::Submitted(_))) {
                        shared.dispatch.begin_to_look();
                        self.look_at = Some(Instant::now() + LOOK_INTERVAL);
                    }
                }
                DispatchWork::Reconcile { node, link, held } => {
                    self.on_hello(shared, &node, link, &held);
                }
                DispatchWork::Step { job, step } => self.step(shared, job, step),
                DispatchWork::PrologEnded { attempt, success } => {
                    self.on_prolog_ended(shared, attempt, success);
                }
                DispatchWork::Volume { node, uid, order, opened } => {
                    let order = self.signed(shared, &node, NO_ATTEMPT, uid, Action::Volume(order));
                    let stream = order.and_then(|order| {
                        let kind = StreamKind::Volume { order };
                        shared.agents.open_stream(&node, NO_ATTEMPT, kind, uid)
                    });
                    // The caller may have given up waiting.
                    let _ = opened.send(stream.map(|(reader, _)| reader));
                }
                DispatchWork::Forget { node, attempt } => {
                    self.send(shared, &node, attempt, SERVER_UID, Action::Forget);
                }
            }
        }
    }

    /// What is there, once it is time to look for new jobs.
    fn look(&mut self, shared: &Shared) -> Option<DispatchWork> {
        if self.look_at.is_none_or(|at| Instant::now() < at) {
            return None;
        }
        let found = shared.dispatch.look(&self.work);
        self.look_at = found.is_some().then(|| Instant::now() + LOOK_INTERVAL);
        found
    }

    /// Hands a command to the writer. It never waits: the writer may be waiting for this very thread.
    fn send_command(&mut self, shared: &Shared, command: Command) {
        self.unsent_commands.push_back(command);
        self.flush_commands(shared);
    }

    fn flush_commands(&mut self, shared: &Shared) {
        while let Some(command) = self.unsent_commands.pop_front() {
            if let Err(back) = shared.writer.try_enqueue(command) {
                self.unsent_commands.push_front(*back);
                return;
            }
        }
    }

    fn event(&mut self, shared: &Shared, event: &Event) {
        if let Some(job) = job_with_freed_steps(event) {
            shared.volatile.step_queue.wake_next(&shared.state, job);
        }
        if let Some(job) = ending_job(event) {
            // Other groups of its task wait for it no more.
            self.begin_deferred(shared, job);
        }
        match event {
            Event::Started(started) => {
                for node in started.allocation.node_names() {
                    // A hello that was answered meanwhile may have brought it there already.
                    if !self.launch_sent(shared, node, started.attempt) {
                        self.launch(shared, started.attempt, node);
                    }
                    collector::watch(shared, started.attempt, node);
                }
            }
            Event::PrologEndedOnNode { attempt, pull_credit_ms, .. } => {
                if pull_credit_ms.is_some() {
                    self.send_end_limit(shared, attempt.job);
                }
                self.begin_deferred(shared, attempt.job);
            }
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
                    // Suspended, with its launch withheld: the node has nothing that it could end.
                    if self.attempts.is_withheld(&node, id) {
                        self.report_missing(shared, &node, id);
                    } else {
                        self.send(shared, &node, id, uid, Action::End(order.clone()));
                    }
                }
            }
            Event::StepEndedOnNode { job, step, node, .. } => {
                shared.volatile.step_launches.delivered(&shared.state, *job, *step, node);
            }
            Event::AttemptEndedOnNode { attempt, node, .. }
            | Event::StaleAttemptGone { node, attempt } => {
                shared.volatile.step_launches.forget(attempt.job);
                self.prologs.forget(*attempt);
                self.send(shared, node, *attempt, SERVER_UID, Action::Forget);
                collector::collect(shared, *attempt, node);
            }
            Event::AttemptAbandonedOnNode { attempt, node } => {
                self.kill_stale(shared, node, *attempt)
            }
            Event::NodeUp { node, stale, .. } => {
                for attempt in stale {
                    self.kill_stale(shared, node, *attempt);
                }
            }
            Event::NodePower { node, power, .. } => self.on_power(shared, node, *power),
            Event::VolumeSet { volume, .. } => self.on_disk(shared, volume),
            Event::Configured { .. } => cut_unknown(shared),
            Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => {
                prolog_epilog::run_epilog(shared, *job, ended);
            }
            Event::PreemptionGraceStarted { job, .. } => self.signal_preempted(shared, *job),
            Event::Suspended { job, .. } | Event::GangSuspended { job, .. } => {
                self.send_all(shared, *job, &Action::Suspend)
            }
            Event::Resumed { job, .. } => {
                self.launch_withheld(shared, *job);
                self.send_all(shared, *job, &Action::Resume);
            }
            Event::Changed { job, fields, .. }
                if fields.iter().any(|f| matches!(f, JobField::TimeLimit(_))) =>
            {
                self.send_end_limit(shared, *job);
            }
            _ => {}
        }
    }

    /// Nothing of the attempt is on the node.
    fn report_missing(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        let (node, at) = (node.to_owned(), crate::clock::now());
        let what = AttemptReport::Missing;
        self.send_command(shared, Command::Report { node, attempt, at, what });
    }

    /// Tells the nodes of a job when its time ends now.
    fn send_end_limit(&mut self, shared: &Shared, job: JobId) {
        let end = shared.read().jobs.get(&job).and_then(|job| Some(job.attempt()?.end_limit));
        if let Some(end) = end {
            self.send_all(shared, job, &Action::ExtendTo { end });
        }
    }

    /// Whether the attempt's launch was sent on the link that the node has now.
    fn launch_sent(&self, shared: &Shared, node: &str, attempt: AttemptId) -> bool {
        self.attempts.is_sent(node, shared.agents.number_of(node), attempt)
    }

    fn kill_stale(&mut self, shared: &Shared, node: &str, attempt: AttemptId) {
        let order = EndOrder::kill(None, None);
        self.send(shared, node, attempt, SERVER_UID, Action::End(order));
    }

    fn launch(&mut self, shared: &Shared, attempt: AttemptId, node: &str) {
        if power::is_booting(shared, attempt) || !self.prolog_done(shared, attempt) {
            return;
        }
        if is_suspended(shared, attempt) {
            self.attempts.withhold(node, attempt);
            return;
        }
        let launch = launch::job_launch(shared, attempt, node);
        match launch.and_then(|launch| launch::for_agent_of(shared, node, launch)) {
            Ok(Some(launch)) => {
                let uid = launch.user.uid;
                self.send(shared, node, attempt, uid, Action::Launch(Box::new(launch)));
            }
            // It was cancelled before its order was written: nothing of it ever reached the node.
            Ok(None) => self.report_missing(shared, node, attempt),
            Err(error) => {
                tracing::error!("attempt {attempt} cannot be launched on {node}: {error}");
                let fault = match &error {
                    ServerError::Volume(_) => LaunchFault::Volume,
                    _ => LaunchFault::Other,
                };
                let failed = Command::Report {
                    node: node.to_string(),
                    attempt,
                    at: crate::clock::now(),
                    what: AttemptReport::LaunchFailed {
                        what: error.to_string(),
                        fault,
                        unfit: None,
                        hold: false,
                        user: None,
                    },
                };
                self.send_command(shared, failed);
            }
        }
    }

    /// Launches a job that is resumed where its launch waited for that.
    fn launch_withheld(&mut self, shared: &Shared, job: JobId) {
        let target = shared
            .read()
            .job(job)
            .and_then(|job| Some((job.attempt_id()?, job.attempt()?.held_nodes.clone())));
        let Some((attempt, nodes)) = target else { return };
        for node in nodes {
            if self.attempts.is_withheld(&node, attempt) {
                self.launch(shared, attempt, &node);
                self.resend_steps(shared, &node, attempt);
            }
        }
    }

    /// Starts scripts that were deferred, once the prologs of all the job's nodes have ended, or the nodes that start first
    /// have started, in all groups of a task.
    fn begin_deferred(&mut self, shared: &Shared, job: JobId) {
        let mut ready = Vec::new();
        {
            let state = shared.read();
            let Some(job) = state.jobs.get(&job) else { return };
            if task_groups::is_preparing(&state, job) {
                return;
            }
            for group in task_groups::groups_of(&state, job) {
                let active = group.attempt().filter(|a| !a.is_ending_or_preempted());
                let Some((active, id)) = active.zip(group.attempt_id()) else { continue };
                ready.push((id, deferred_nodes(group, active), group.spec.owner.uid));
            }
        }
        for (attempt, nodes, uid) in ready {
            for node in nodes {
                self.send(shared, &node, attempt, uid, Action::Begin);
            }
        }
    }

    fn step(&mut self, shared: &Shared, job: JobId, step: StepId) {
        let Some(launch) = shared.volatile.step_launches.launch(job, step) else { return };
        for (node, attempt, uid, order) in launch::step_orders(shared, job, step, &launch) {
            if self.prologs.is_unfinished(attempt) {
                return;
            }
            self.send(shared, &node, attempt, uid, order);
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

    /// A preempted job in its grace time: its tasks are signalled at once, its script when the time is over.
    fn signal_preempted(&mut self, shared: &Shared, job: JobId) {
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
        if self.prologs.is_unfinished(attempt) {
            return;
        }
        for node in nodes {
            self.send(shared, &node, attempt, uid, action.clone());
        }
    }

    /// Whether the node has the attempt.
    fn is_known_to(&self, shared: &Shared, node: &str, attempt: AttemptId) -> bool {
        self.attempts.is_known_to(node, shared.agents.number_of(node), attempt)
    }

    /// The order with the next serial, signed.
    fn signed(
        &mut self,
        shared: &Shared,
        node: &str,
        attempt: AttemptId,
        uid: u32,
        action: Action,
    ) -> Option<SignedOrder> {
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
            Ok(signed) => Some(signed),
            Err(error) => {
                tracing::error!("an order for {node} cannot be signed: {error}");
                None
            }
        }
    }

    /// Sends an order, but none before the attempt's launch: the state may be ahead of the event that is dispatched, and a
    /// node that does not know an attempt reports it as lost. What the order says is in the launch, or sent with its event.
    fn send(&mut self, shared: &Shared, node: &str, attempt: AttemptId, uid: u32, action: Action) {
        if !self.attempts.may_send(node, shared.agents.number_of(node), attempt, &action) {
            return;
        }
        let sent = SentOrder::of(&action);
        let Some(signed) = self.signed(shared, node, attempt, uid, action) else { return };
        let Some(link) = shared.agents.order(node, signed) else { return };
        self.attempts.note_sent(node, link, attempt, sent);
    }
}

/// Whether the attempt is suspended: launched now it would run, beside those that have its CPUs meanwhile.
fn is_suspended(shared: &Shared, attempt: AttemptId) -> bool {
    let state = shared.read();
    let active = state.job(attempt.job).and_then(Job::attempt);
    active.is_some_and(|active| active.number == attempt.number && active.suspended)
}

/// Ends the links of nodes that the configuration names again: what was known of them went with their names, and their agents
/// have to say hello once more.
fn cut_unknown(shared: &Shared) {
    let unknown: Vec<String> = {
        let state = shared.read();
        let joining = state.nodes.iter().filter(|(_, node)| node.slot == SlotState::Joining);
        joining.map(|(name, _)| name.clone()).collect()
    };
    let connected = unknown.iter().filter(|node| shared.agents.is_connected(node));
    connected.for_each(|node| shared.agents.cut(node));
}

/// The job in which the event may let a waiting step start.
fn job_with_freed_steps(event: &Event) -> Option<JobId> {
    match event {
        Event::StepEndedOnNode { job, .. } => Some(*job),
        _ => ending_job(event),
    }
}

/// The job whose attempt ends or has ended.
fn ending_job(event: &Event) -> Option<JobId> {
    match event {
        Event::Ending { job, .. } | Event::Ended { job, .. } | Event::Requeued { job, .. } => {
            Some(*job)
        }
        _ => None,
    }
}

/// The nodes whose scripts wait for other nodes to be ready.
fn deferred_nodes(job: &Job, attempt: &Attempt) -> Vec<String> {
    let nodes: Vec<&str> = attempt.allocation.node_names().collect();
    let waiting = match job.spec.launch.kind {
        LaunchKind::Batch => &nodes[..nodes.len().min(1)],
        LaunchKind::Task => job.spec.launch.startup_order.parts(&nodes, job.het).1,
        LaunchKind::Interactive => &[],
    };
    waiting.iter().map(|node| (*node).to_owned()).collect()
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
    let grace_s = match outcome {
        Outcome::Preempted | Outcome::Requeued | Outcome::NodeFail => {
            launch::interruption_s(state, job)
        }
        _ => launch::stop_s(state, job),
    };
    EndOrder { step: None, grace_s, notice, step_notice, exit: None }
}
