//! What messages do at either end, and how links begin and end. It follows `crates/server/src/agents/` and
//! `crates/agent/src/agent/session/`.

use super::{Happening, World};
use crate::faults::agent::Reaction;
use crate::faults::bug::Bug;
use crate::faults::checks::{self, Broken, Checked};
use crate::faults::dispatch::{Dispatched, Seen};
use crate::faults::network::{self, Direction};
use crate::faults::server::{AnswerTo, Work};
use crate::faults::site;
use cluster::command::AttemptReport;
use cluster::{Command, Job};
use model::allocation::NodeShare;
use model::id::AttemptId;
use model::node::SlotState;
use model::reason::LaunchFault;
use std::collections::BTreeMap;
use wire::link::{Hello, RefusedOrder, ToAgent, ToServer, Welcome};
use wire::report::{Report, ReportEvent};
use wire::version;

/// How long the server waits for a silent link, milliseconds.
const SILENCE_MS: i64 = 20_000;

/// How long an `srun` has to send its launch again, once its node has come back, milliseconds.
const DISOWN_MS: i64 = 30_000;

/// How much later than by the server's clock a time limit may end an attempt, milliseconds: its node has measured that clock when they
/// last met, and it has jumped since.
const LIMIT_LATE_MS: i64 = 180_000;

impl World {
    pub(super) fn send_to_agent(&mut self, node: &str, link: u64, message: ToAgent) -> Checked {
        let Some(agent) = self.agents.get(node) else { return Ok(()) };
        let is_repeatable = network::is_order(&message);
        let (writer, reader) = (self.protocol, agent.version);
        let message = network::between_versions(message, writer, reader).map_err(unread)?;
        for time in self.arrivals(link, Direction::ToAgent, is_repeatable) {
            let (node, message) = (node.to_owned(), Box::new(message.clone()));
            self.at(time, Happening::ToAgent { node, link, message });
        }
        Ok(())
    }

    fn send_to_server(&mut self, node: &str, link: u64, message: ToServer) -> Checked {
        let Some(agent) = self.agents.get(node) else { return Ok(()) };
        let is_repeatable = network::is_report(&message);
        let (writer, reader) = (agent.version, self.protocol);
        let message = network::between_versions(message, writer, reader).map_err(unread)?;
        for time in self.arrivals(link, Direction::ToServer, is_repeatable) {
            let (node, message) = (node.to_owned(), Box::new(message.clone()));
            self.at(time, Happening::ToServer { node, link, message });
        }
        Ok(())
    }

    /// When a message that is sent now arrives: never if it is lost, and twice if its sender repeats it.
    fn arrivals(&mut self, link: u64, to: Direction, is_repeatable: bool) -> Vec<i64> {
        let chance = &mut self.chance;
        let Some(time) = self.network.arrival(link, to, self.now, chance, self.is_calm) else {
            return Vec::new();
        };
        let is_doubled = network::comes_twice(is_repeatable && !self.is_calm, chance);
        let late = time + chance.millis(0, 3_000);
        self.counts.doubled += u64::from(is_doubled);
        if is_doubled { vec![time, late] } else { vec![time] }
    }

    /// The agent dials soon, unless it is about to.
    pub(super) fn dial(&mut self, node: &str, delay_ms: i64) {
        if self.dialling.insert(node.to_owned()) {
            self.after(delay_ms, Happening::Connect { node: node.to_owned() });
        }
    }

    pub(super) fn connect(&mut self, node: &str) -> Checked {
        self.dialling.remove(node);
        let Some(agent) = self.agents.get_mut(node) else { return Ok(()) };
        if !agent.is_running || agent.link.is_some() {
            return Ok(());
        }
        if agent.is_partitioned || self.server.is_none() {
            let delay = self.chance.millis(500, 4_000);
            self.dial(node, delay);
            return Ok(());
        }
        let link = self.network.connect(self.server_start, self.now);
        agent.connect(link);
        let hello = agent.hello();
        self.send_to_server(node, link, hello)
    }

    /// The agent's end of a link is over. What it sent may still arrive, unless it is lost.
    pub(super) fn hang_up(&mut self, node: &str, link: Option<u64>, is_lossy: bool) {
        let Some(link) = link else { return };
        if let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.link == Some(link)) {
            agent.disconnect();
        }
        let ended = Happening::LinkEnded { node: node.to_owned(), link };
        if is_lossy {
            self.counts.lossy_links += 1;
            self.network.lose(link);
            self.after(SILENCE_MS, ended);
        } else {
            let (to, calm) = (Direction::ToServer, self.is_calm);
            let time = self.network.arrival(link, to, self.now, &mut self.chance, calm);
            self.at(time.unwrap_or(self.now), ended);
        }
        let delay = self.chance.millis(200, 4_000);
        self.dial(node, delay);
    }

    /// The server has ended the agent's link, or has died.
    pub(super) fn link_lost(&mut self, node: &str, link: u64) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| agent.link == Some(link)) else {
            return;
        };
        agent.disconnect();
        let delay = self.chance.millis(100, 3_000);
        self.dial(node, delay);
    }

    pub(super) fn link_ended(&mut self, node: &str, link: u64) -> Checked {
        if !self.network.is_read(link, self.server_start) {
            return Ok(());
        }
        self.network.end(link);
        let Some(server) = &mut self.server else { return Ok(()) };
        if !server.dispatcher.remove_link(node, link) {
            return Ok(());
        }
        // Of two hellos of an agent the older may have come last: the link of the other lives, and is to bring one more.
        if !self.bugs.has(Bug::OvertakenLinkLives) {
            for other in server.dispatcher.remove_live_links(node) {
                self.end_overtaken(node, other);
            }
        }
        self.commit(vec![Work::lost(node)])
    }

    /// Tries once more to write that a node is lost. One that has a link again needs no mark.
    pub(super) fn mark_lost(&mut self, node: &str) -> Checked {
        let is_awaited = self.unmarked.remove(node);
        let link = self.server.as_ref().and_then(|server| server.dispatcher.link(node));
        if !is_awaited || link.is_some() {
            return Ok(());
        }
        self.commit(vec![Work::lost(node)])
    }

    /// No node counts as up to which nobody is connected.
    pub(super) fn up_nodes_are_connected(&self) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        let up = server.state.nodes.iter().filter(|(_, node)| node.slot == SlotState::Up);
        let mut alone = up.filter(|(name, _)| server.dispatcher.link(name).is_none());
        match alone.find(|(name, _)| !self.unmarked.contains(*name)) {
            Some((name, _)) => Err(Broken(format!("{name} counts as up with nobody connected"))),
            None => Ok(()),
        }
    }

    /// A message reaches the server.
    pub(super) fn on_server(&mut self, node: &str, link: u64, message: ToServer) -> Checked {
        let is_here = self.network.reaches_server(link, self.server_start);
        if !is_here || self.server.is_none() {
            return Ok(());
        }
        self.counts.messages += 1;
        match message {
            ToServer::Hello(hello) => self.on_hello(node, link, hello),
            ToServer::Report(report) => self.on_report(link, report),
            ToServer::OrderRefused { attempt, order, why, unfit, .. } => {
                let what = match order {
                    RefusedOrder::LaunchedBefore | RefusedOrder::UnknownAttempt => {
                        AttemptReport::Missing
                    }
                    RefusedOrder::Launch => AttemptReport::LaunchFailed {
                        what: why,
                        fault: LaunchFault::Other,
                        unfit,
                        hold: false,
                        user: None,
                    },
                    RefusedOrder::Other => return Ok(()),
                };
                let (node, at) = (node.to_owned(), self.server_time());
                let answer =
                    AnswerTo::Report { node: node.clone(), link, serial: None, forget: None };
                let command = Command::Report { node, attempt, at, what };
                self.commit(vec![Work { by: site::root(), command, answer }])
            }
            ToServer::StepAccepted { node, attempt, step } => {
                if let Some(server) = &mut self.server {
                    server.dispatcher.step_accepted(&node, attempt, step);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_hello(&mut self, node: &str, link: u64, hello: Hello) -> Checked {
        let now = self.server_time();
        let protocol = self.protocol;
        let Some(server) = &mut self.server else { return Ok(()) };
        let is_known = server.state.nodes.contains_key(node);
        if !is_known || !version::compatible(hello.version) {
            let why = format!("node {node} is not in the configuration");
            return self.send_to_agent(node, link, ToAgent::Refused { why });
        }
        let welcome = Welcome {
            version: protocol,
            term: server.state.term,
            now,
            heartbeat_interval_ms: 5_000,
            policies: BTreeMap::new(),
            alive_interval_ms: None,
            renew: None,
            refused: Vec::new(),
        };
        server.dispatcher.add_link(node, link);
        self.send_to_agent(node, link, ToAgent::Welcome(welcome))?;
        let attempts = hello.nodes.into_iter().flat_map(|said| said.attempts);
        let held: Vec<(AttemptId, bool)> =
            attempts.map(|spooled| (spooled.attempt, spooled.alive)).collect();
        let command =
            Command::NodeHello { node: node.to_owned(), facts: Box::default(), held: held.clone() };
        let answer = AnswerTo::Hello { node: node.to_owned(), link, held };
        self.commit(vec![Work { by: site::root(), command, answer }])
    }

    fn on_report(&mut self, link: u64, report: Report) -> Checked {
        let Report { serial, node, mut attempt, at, event } = report;
        let Some(server) = &self.server else { return Ok(()) };
        if self.bugs.has(Bug::StaleReportTaken) {
            let present = server.state.job(attempt.job).and_then(Job::attempt_id);
            attempt = present.unwrap_or(attempt);
        }
        let what = attempt_report(event);
        let known = server.state.nodes.get(&node);
        let is_known =
            known.is_some_and(|n| n.holders.contains(&attempt) || n.stale.contains(&attempt));
        let is_last = checks::is_last(&what);
        if is_last && self.bugs.has(Bug::LostRelease) && self.chance.one_in(8) {
            return self.send_to_agent(&node, link, ToAgent::Ack { serial });
        }
        // Reported before, or given up long ago: the agent's spool may forget it.
        let forget = (is_last && !is_known).then_some(attempt);
        // The node's clock may be off: an end does not lie in the future.
        let at = at.min(self.server_time());
        let answer = AnswerTo::Report { node: node.clone(), link, serial: Some(serial), forget };
        let command = Command::Report { node, attempt, at, what };
        self.commit(vec![Work { by: site::root(), command, answer }])
    }

    /// The dispatcher comes to a hello. A newer link brings one of its own.
    pub(super) fn reconcile(
        &mut self,
        node: &str,
        link: u64,
        held: &[(AttemptId, bool)],
    ) -> Checked {
        let now = self.server_time();
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut out = Dispatched::default();
        let present = server.dispatcher.link(node);
        let is_overtaken = present.is_some_and(|present| present != link);
        let is_answered = is_overtaken && self.bugs.has(Bug::OvertakenHelloAnswered);
        if present == Some(link) || is_answered {
            let seen = Seen { state: &server.state, now };
            server.dispatcher.reconcile(seen, node, held, &mut out);
            self.after(DISOWN_MS, Happening::Disown { node: node.to_owned(), link });
        }
        let work = self.send_out(&mut server, out)?;
        self.server = Some(server);
        self.commit(work)
    }

    pub(super) fn disown(&mut self, node: &str, link: u64) -> Checked {
        let now = self.server_time();
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let mut out = Dispatched::default();
        if server.dispatcher.link(node) == Some(link) {
            let seen = Seen { state: &server.state, now };
            server.dispatcher.disown(seen, node, &mut out);
        }
        let work = self.send_out(&mut server, out)?;
        self.server = Some(server);
        self.commit(work)
    }

    /// A message reaches an agent.
    pub(super) fn on_agent(&mut self, node: &str, link: u64, message: ToAgent) -> Checked {
        let Some(agent) = self.agents.get_mut(node) else { return Ok(()) };
        if agent.link != Some(link) || !agent.is_running || agent.is_partitioned {
            return Ok(());
        }
        self.counts.messages += 1;
        let at = agent.moment(self.now);
        let reaction = agent.on_message(message, at, &mut self.chance, self.bugs);
        let Reaction { answers, launched, hangs_up } = reaction;
        for (attempt, share) in launched {
            self.ledger.launch(attempt, &share)?;
            self.share_is_free(node, attempt, &share)?;
        }
        if hangs_up {
            self.hang_up(node, Some(link), false);
            return Ok(());
        }
        for answer in answers {
            self.send_to_server(node, link, answer)?;
        }
        self.flush_reports(node)?;
        self.set_timer(node);
        Ok(())
    }

    /// No other attempt that lives on the node has these CPUs or devices. A suspended one has left its CPUs, and keeps its devices.
    fn share_is_free(&self, node: &str, attempt: AttemptId, share: &NodeShare) -> Checked {
        let Some(agent) = self.agents.get(node) else { return Ok(()) };
        let is_suspended = |id: &AttemptId| {
            let state = self.server.as_ref().map(|server| &server.state);
            let job = state.and_then(|state| state.job(id.job));
            job.and_then(Job::attempt).is_some_and(|active| active.suspended)
        };
        for (other, held) in
            agent.attempts.iter().filter(|(id, held)| **id != attempt && held.is_alive())
        {
            let has_left = held.is_suspended() || is_suspended(other);
            let what = if !has_left && held.share.cpus.intersects(&share.cpus) {
                "CPUs"
            } else if have_device_in_common(&held.share, share) {
                "devices"
            } else {
                continue;
            };
            return Err(Broken(format!("{node} starts attempt {attempt} on {what} of {other}")));
        }
        Ok(())
    }

    /// Nothing runs on a node for longer than its time limit allows. Clocks may be apart by as much as the server's jumps.
    pub(super) fn limits_are_kept(&self) -> Checked {
        let Some(server) = &self.server else { return Ok(()) };
        for (node, agent) in &self.agents {
            let alive = agent.attempts.iter().filter(|(_, held)| held.is_alive());
            for (attempt, _) in alive.filter(|(_, held)| !held.is_suspended()) {
                let limit = self.ledger.limit(&server.state, *attempt);
                let latest = limit.map(|limit| limit.0 - self.server_clock_ms + LIMIT_LATE_MS);
                if latest.is_some_and(|latest| self.now > latest) {
                    return Err(Broken(format!("{attempt} runs on {node} beyond its time limit")));
                }
            }
        }
        Ok(())
    }

    fn flush_reports(&mut self, node: &str) -> Checked {
        let Some(agent) = self.agents.get_mut(node) else { return Ok(()) };
        let Some(link) = agent.link else { return Ok(()) };
        for report in agent.unsent() {
            self.send_to_server(node, link, report)?;
        }
        Ok(())
    }

    /// Looks at the node's attempts again when something is due there.
    pub(super) fn set_timer(&mut self, node: &str) {
        let Some(agent) = self.agents.get(node) else { return };
        let due = agent.attempts.values().filter_map(|supervisor| supervisor.due()).min();
        let Some(due) = due.map(|due| due.max(self.now)) else { return };
        let known = self.timers.get(node).copied().filter(|known| *known > self.now);
        if known.is_none_or(|known| due < known) {
            self.timers.insert(node.to_owned(), due);
            self.at(due, Happening::Attempts { node: node.to_owned() });
        }
    }

    pub(super) fn advance_attempts(&mut self, node: &str) -> Checked {
        self.timers.remove(node);
        let Some(agent) = self.agents.get_mut(node) else { return Ok(()) };
        let at = agent.moment(self.now);
        let due: Vec<AttemptId> = agent
            .attempts
            .iter()
            .filter(|(_, supervisor)| supervisor.due().is_some_and(|due| due <= at.now))
            .map(|(attempt, _)| *attempt)
            .collect();
        for attempt in due {
            if let Some(supervisor) = agent.attempts.get_mut(&attempt) {
                supervisor.advance(at);
            }
            agent.collect(attempt);
        }
        self.flush_reports(node)?;
        self.set_timer(node);
        Ok(())
    }

    pub(super) fn start_agent(&mut self, node: &str) {
        let Some(agent) = self.agents.get_mut(node).filter(|agent| !agent.is_running) else {
            return;
        };
        agent.start(self.now);
        self.dial(node, 100);
        self.set_timer(node);
    }
}

fn have_device_in_common(one: &NodeShare, other: &NodeShare) -> bool {
    one.gres.iter().any(|held| {
        let same = other.gres.iter().filter(|gres| gres.name == held.name);
        same.flat_map(|gres| &gres.indices).any(|index| held.indices.contains(index))
    })
}

fn unread(error: serde_json::Error) -> Broken {
    Broken(format!("the next release's message cannot be read: {error}"))
}

/// A report as the state machine takes it.
fn attempt_report(event: ReportEvent) -> AttemptReport {
    match event {
        ReportEvent::Started => AttemptReport::Started,
        ReportEvent::Network(network) => AttemptReport::Network(network),
        ReportEvent::LaunchFailed { what, fault, unfit, hold, user } => {
            AttemptReport::LaunchFailed { what, fault, unfit, hold, user }
        }
        ReportEvent::Unfit { why } => AttemptReport::Unfit { why },
        ReportEvent::StepEnded { step, exit, usage, oom } => {
            AttemptReport::StepEnded { step, exit, usage, oom }
        }
        ReportEvent::ScriptEnded { exit, oom, timed_out } => {
            AttemptReport::ScriptEnded { exit, oom, timed_out }
        }
        ReportEvent::Ended(end) => AttemptReport::Ended {
            exit: end.exit,
            usage: end.usage,
            oom: end.oom,
            timed_out: end.timed_out,
            lost: end.supervisor_lost,
        },
    }
}
