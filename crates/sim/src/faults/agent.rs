//! The agent of one node, as the protocol sees it: the gate that orders pass, the spool, the queue of reports. Which orders are
//! new is `wire`'s to say; the rest follows `crates/agent` (`order_gate/`, `agent/orders.rs`, `agent/adoption.rs`,
//! `link/reports.rs`).

use super::bug::{Bug, Bugs};
use super::site;
use super::supervisor::{Moment, Supervisor};
use crate::chance::Chance;
use model::allocation::NodeShare;
use model::id::{AttemptId, JobId};
use model::node::NodeFacts;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::link::{Hello, NodeHello, RefusedOrder, SpooledAttempt, ToAgent, ToServer};
use wire::order::{Action, JobLaunch, Order};
use wire::order_fence::{SeenOrders, StaleOrder, check_launch};
use wire::report::{Report, ReportEvent};
use wire::version;

/// One launch in so many fails.
const FAILED_LAUNCH_IN: u64 = 30;

pub struct Agent {
    pub node: String,
    /// The version of the protocol that it speaks.
    pub version: u32,
    /// How far the node's clock is ahead, milliseconds.
    pub clock_ms: i64,
    /// The agent's process runs.
    pub is_running: bool,
    /// The network does not carry what it sends, nor what is sent to it.
    pub is_partitioned: bool,
    /// The number of its link to the server.
    pub link: Option<u64>,
    /// The server has answered its hello on this link.
    is_welcome: bool,
    /// How far the server's clock was ahead of true time when they met, milliseconds. A clock that never jumps measures it.
    server_ahead_ms: i64,
    /// How far the server's clock is ahead of the node's, as last measured.
    skew_ms: i64,
    /// The term outlasts the process, the serial does not.
    seen: SeenOrders,
    guard: ReplayGuard,
    /// The spool.
    pub attempts: BTreeMap<AttemptId, Supervisor>,
    reports: VecDeque<PendingReport>,
    last_report: u64,
}

/// What an agent remembers of launches across restarts.
#[derive(Default)]
struct ReplayGuard {
    taken: BTreeSet<AttemptId>,
    newest: BTreeMap<JobId, u32>,
}

struct PendingReport {
    attempt: AttemptId,
    number: u64,
    at: Timestamp,
    event: ReportEvent,
    /// Its number on the present link; `None` if it was not sent there yet.
    serial: Option<u64>,
}

/// What came of a message.
#[derive(Default)]
pub struct Reaction {
    pub answers: Vec<ToServer>,
    /// Attempts that were started, with what they were given; one that was started twice is here twice.
    pub launched: Vec<(AttemptId, NodeShare)>,
    /// The agent ends the link.
    pub hangs_up: bool,
}

/// Why an order is refused, as far as it matters to the server.
enum Refusal {
    Stale(StaleOrder),
    OtherNode,
    UnknownAttempt,
    StillRuns,
}

impl Agent {
    pub fn new(node: &str, version: u32) -> Self {
        Self {
            node: node.to_owned(),
            version,
            clock_ms: 0,
            is_running: true,
            is_partitioned: false,
            link: None,
            is_welcome: false,
            server_ahead_ms: 0,
            skew_ms: 0,
            seen: SeenOrders::default(),
            guard: ReplayGuard::default(),
            attempts: BTreeMap::new(),
            reports: VecDeque::new(),
            last_report: 0,
        }
    }

    pub fn moment(&self, now: i64) -> Moment {
        Moment { now, node_clock: Timestamp(now + self.clock_ms) }
    }

    /// The server's time as the agent works it out.
    fn server_time(&self, at: Moment) -> Timestamp {
        Timestamp(at.now + self.server_ahead_ms)
    }

    fn measure_skew(&mut self, at: Moment) {
        self.skew_ms = self.server_time(at).0 - at.node_clock.0;
    }

    pub fn hello(&self) -> ToServer {
        let attempts = self.attempts.iter().map(|(attempt, supervisor)| SpooledAttempt {
            attempt: *attempt,
            alive: !supervisor.has_ended(),
        });
        let node = NodeHello {
            name: self.node.clone(),
            facts: NodeFacts::default(),
            detected: site::node(&self.node),
            attempts: attempts.collect(),
            device_change: None,
            dynamic: None,
        };
        ToServer::Hello(Hello {
            version: self.version,
            program: "sluice".to_owned(),
            nodes: vec![node],
            more: false,
            renewals: Vec::new(),
            takes_bytes: true,
            network_stack: None,
            finds_servers: false,
        })
    }

    /// Another connection begins; nothing of the one before comes any more.
    pub fn connect(&mut self, link: u64) {
        self.link = Some(link);
        self.is_welcome = false;
    }

    pub fn disconnect(&mut self) {
        self.link = None;
        self.is_welcome = false;
    }

    pub fn on_message(
        &mut self,
        message: ToAgent,
        at: Moment,
        chance: &mut Chance,
        bugs: Bugs,
    ) -> Reaction {
        let mut reaction = Reaction::default();
        match message {
            ToAgent::Welcome(welcome) => {
                let is_known = version::compatible(welcome.version);
                if !is_known || welcome.term < self.seen.term {
                    reaction.hangs_up = true;
                    return reaction;
                }
                self.server_ahead_ms = welcome.now.0 - at.now;
                self.measure_skew(at);
                self.is_welcome = true;
                self.last_report = 0;
                self.reports.iter_mut().for_each(|report| report.serial = None);
            }
            ToAgent::Refused { .. } => reaction.hangs_up = true,
            ToAgent::Ack { serial } => self.acknowledged(serial),
            ToAgent::Order(signed) => {
                let Ok(order) = serde_json::from_str::<Order>(&signed.body) else {
                    reaction.hangs_up = true;
                    return reaction;
                };
                let answer = self.on_order(order, at, chance, bugs, &mut reaction);
                reaction.answers.extend(answer);
            }
            _ => {}
        }
        reaction
    }

    fn acknowledged(&mut self, serial: u64) {
        let found = self.reports.iter().position(|report| report.serial == Some(serial));
        let Some(report) = found.and_then(|at| self.reports.remove(at)) else { return };
        let supervisor = self.attempts.get_mut(&report.attempt);
        let said = supervisor.and_then(|known| known.events.get_mut(report.number as usize - 1));
        if let Some((event, is_taken)) = said {
            *is_taken |= matches!(event.event, ReportEvent::StepEnded { .. });
        }
    }

    /// Carries out an order, or returns the message that refuses it.
    fn on_order(
        &mut self,
        order: Order,
        at: Moment,
        chance: &mut Chance,
        bugs: Bugs,
        reaction: &mut Reaction,
    ) -> Option<ToServer> {
        self.measure_skew(at);
        let (serial, attempt) = (order.serial, order.attempt);
        let is_launch = matches!(order.action, Action::Launch(_));
        let is_unfenced = bugs.has(Bug::MissingFence);
        let taken = if is_unfenced { Ok(()) } else { self.admit(&order, at) };
        let refusal = match taken.and_then(|()| self.carry_out(order, at, chance, bugs, reaction)) {
            Ok(answer) => return answer,
            Err(refusal) => refusal,
        };
        let held = self.attempts.contains_key(&attempt);
        let was_taken = matches!(&refusal, Refusal::Stale(stale) if stale.was_taken());
        let order = match (&refusal, is_launch) {
            (_, true) if held && bugs.has(Bug::RepeatedLaunchFails) => RefusedOrder::Launch,
            // A repeated launch of an attempt that is here: its own reports follow.
            (_, true) if held => RefusedOrder::Other,
            (_, true) if was_taken => RefusedOrder::LaunchedBefore,
            (_, true) => RefusedOrder::Launch,
            (Refusal::UnknownAttempt, false) => RefusedOrder::UnknownAttempt,
            (_, false) => RefusedOrder::Other,
        };
        let why = match refusal {
            Refusal::Stale(stale) => stale.to_string(),
            Refusal::OtherNode => "it is for another node, or of another protocol".to_owned(),
            Refusal::UnknownAttempt => "the attempt is not here".to_owned(),
            Refusal::StillRuns => "the attempt still runs".to_owned(),
        };
        let node = self.node.clone();
        Some(ToServer::OrderRefused { serial, attempt, node, order, why, unfit: None })
    }

    /// The gate, without the signature.
    fn admit(&mut self, order: &Order, at: Moment) -> Result<(), Refusal> {
        if !version::compatible(order.version) || order.node != self.node {
            return Err(Refusal::OtherNode);
        }
        self.seen.check(order, self.server_time(at)).map_err(Refusal::Stale)?;
        if matches!(order.action, Action::Launch(_)) {
            let AttemptId { job, number } = order.attempt;
            let held = self.attempts.contains_key(&order.attempt);
            let is_known = held || self.guard.taken.contains(&order.attempt);
            let newest = self.guard.newest.get(&job).copied();
            check_launch(order.attempt, is_known, newest).map_err(Refusal::Stale)?;
            self.guard.taken.insert(order.attempt);
            self.guard.newest.insert(job, number);
        }
        self.seen.note(order);
        Ok(())
    }

    fn carry_out(
        &mut self,
        order: Order,
        at: Moment,
        chance: &mut Chance,
        bugs: Bugs,
        reaction: &mut Reaction,
    ) -> Result<Option<ToServer>, Refusal> {
        let attempt = order.attempt;
        // The limit as a time that does not depend on whose clock is right.
        let server_time = self.server_time(at);
        let own = |end: Timestamp| at.now + (end.0 - server_time.0);
        let node = self.node.clone();
        match order.action {
            Action::Launch(launch) => {
                let limit = launch.end_limit.map(own);
                self.launch(attempt, &launch, limit, at, chance, reaction);
                if bugs.has(Bug::DoubledLaunch) && chance.one_in(8) {
                    self.launch(attempt, &launch, limit, at, chance, reaction);
                }
                return Ok(None);
            }
            Action::Forget => return self.forget(attempt).map(|()| None),
            _ => {}
        }
        let Some(held) = self.attempts.get_mut(&attempt) else {
            return Err(Refusal::UnknownAttempt);
        };
        if !held.is_alive() {
            // Its end is on the way to the server. Only the order of a step needs an answer.
            let is_step = matches!(order.action, Action::Step(_));
            return if is_step { Err(Refusal::UnknownAttempt) } else { Ok(None) };
        }
        let mut answer = None;
        match order.action {
            Action::Step(order) => {
                let step = order.step;
                let is_here = held.start_step(step, at, chance);
                answer = is_here.then_some(ToServer::StepAccepted { node, attempt, step });
            }
            Action::End(order) => held.end(&order, at, chance),
            Action::Suspend => held.suspend(at),
            Action::Resume => held.resume(at),
            Action::ExtendTo { end } => held.set_limit(end.map(own)),
            Action::Disown { step } => held.disown(step, at),
            _ => {}
        }
        self.collect(attempt);
        Ok(answer)
    }

    fn launch(
        &mut self,
        attempt: AttemptId,
        launch: &JobLaunch,
        limit: Option<i64>,
        at: Moment,
        chance: &mut Chance,
        reaction: &mut Reaction,
    ) {
        let supervisor = if chance.one_in(FAILED_LAUNCH_IN) {
            let unfit = chance.one_in(3).then(|| "the spool is full".to_owned());
            Supervisor::not_launched(launch, unfit, at)
        } else {
            reaction.launched.push((attempt, launch.share.clone()));
            Supervisor::launched(launch, limit, at, chance)
        };
        self.attempts.insert(attempt, supervisor);
        self.collect(attempt);
    }

    fn forget(&mut self, attempt: AttemptId) -> Result<(), Refusal> {
        if self.attempts.get(&attempt).is_some_and(|held| !held.has_ended()) {
            return Err(Refusal::StillRuns);
        }
        self.attempts.remove(&attempt);
        self.reports.retain(|report| report.attempt != attempt);
        Ok(())
    }

    /// Takes in what the attempt's supervisor has said and the queue of reports does not have.
    pub fn collect(&mut self, attempt: AttemptId) {
        if !self.is_running {
            return;
        }
        let Some(supervisor) = self.attempts.get(&attempt) else { return };
        let known = supervisor.collected;
        let new = supervisor.events.iter().filter(|(event, _)| event.number > known);
        let new: Vec<PendingReport> = new
            .map(|(event, _)| PendingReport {
                attempt,
                number: event.number,
                at: event.at,
                event: event.event.clone(),
                serial: None,
            })
            .collect();
        self.reports.extend(new);
        if let Some(supervisor) = self.attempts.get_mut(&attempt) {
            supervisor.collected = supervisor.events.len() as u64;
        }
    }

    /// The reports that were not sent on this link yet.
    pub fn unsent(&mut self) -> Vec<ToServer> {
        if !self.is_welcome || !self.is_running {
            return Vec::new();
        }
        let mut messages = Vec::new();
        for report in self.reports.iter_mut().filter(|report| report.serial.is_none()) {
            self.last_report += 1;
            report.serial = Some(self.last_report);
            messages.push(ToServer::Report(Report {
                serial: self.last_report,
                node: self.node.clone(),
                attempt: report.attempt,
                at: Timestamp(report.at.0 + self.skew_ms),
                event: report.event.clone(),
            }));
        }
        messages
    }

    /// The process ends. Supervisors go on.
    pub fn stop(&mut self) {
        self.is_running = false;
        self.disconnect();
        self.reports.clear();
        self.seen.serial = 0;
    }

    /// The machine goes down, with all that runs on it.
    pub fn power_off(&mut self) {
        self.stop();
        self.attempts.values_mut().for_each(Supervisor::kill);
    }

    /// The process starts, and takes over what it finds: what supervisors have said and nobody has taken is said again.
    pub fn start(&mut self, now: i64) {
        self.is_running = true;
        let at = self.moment(now);
        for (attempt, supervisor) in &mut self.attempts {
            supervisor.note_loss(at);
            supervisor.collected = supervisor.events.len() as u64;
            let untaken = supervisor.events.iter().filter(|(_, is_taken)| !is_taken);
            self.reports.extend(untaken.map(|(event, _)| PendingReport {
                attempt: *attempt,
                number: event.number,
                at: event.at,
                event: event.event.clone(),
                serial: None,
            }));
        }
    }
}
