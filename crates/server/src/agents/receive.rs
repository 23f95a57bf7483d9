//! The receiving side of an agent's link: messages are handled in the order in which they were sent.

use crate::agents::join;
use crate::agents::message_bounds;
use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use crate::shared::writer_queue;
use cluster::Command;
use cluster::command::AttemptReport;
use model::id::AttemptId;
use model::reason::LaunchFault;
use model::time::Timestamp;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use wire::frame::{self, Decoder};
use wire::link::{self, RefusedOrder, ToAgent, ToServer};
use wire::report::{Report, ReportEvent};

/// A link without a message for this long is dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(20);

/// An agent dials again when its connection is lost, and the connection before it is silent from then on. One that still speaks
/// so long after another took its nodes over is of another process that lives: two machines have one certificate.
const TWO_AGENTS_AFTER: Duration = Duration::from_secs(60);

/// Reports of one agent on their way to the disk.
pub const REPORTS_MAX: usize = 4096;

/// A report on its way to the disk: what the writer answers, and what to tell the agent then.
pub struct PendingReport {
    pub answer: oneshot::Receiver<writer_queue::Answer>,
    serial: Option<u64>,
    /// Set for an end that nobody waited for: the node is told to forget the attempt.
    forget: Option<(String, AttemptId)>,
}

/// Acknowledges reports in the order in which they came, each once it is on disk. One that could
/// not be kept ends the link: the agent sends it again on the next.
pub async fn acknowledge(
    shared: &Arc<Shared>,
    mut settling: mpsc::Receiver<PendingReport>,
    outbox: &mpsc::Sender<ToAgent>,
) -> io::Result<()> {
    while let Some(one) = settling.recv().await {
        let kept = one.answer.await.is_ok_and(|answer| answer.is_ok());
        if !kept {
            return Err(io::Error::other("a report could not be kept"));
        }
        if let Some(serial) = one.serial {
            let _ = outbox.send(ToAgent::Ack { serial }).await;
        }
        if let Some((node, attempt)) = one.forget {
            shared.dispatch.forget(node, attempt);
        }
    }
    Ok(())
}

/// Reads what one agent sends.
pub struct LinkReceiver<'a> {
    pub shared: &'a Arc<Shared>,
    pub nodes: &'a HashSet<String>,
    pub link: u64,
    pub settled: mpsc::Sender<PendingReport>,
}

impl LinkReceiver<'_> {
    pub async fn receive(
        &self,
        mut reader: impl AsyncReadExt + Unpin,
        mut decoder: Decoder,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            while let Some(frame) = decoder.next_frame().map_err(io::Error::other)? {
                match frame.channel {
                    link::CHANNEL_STREAM => {
                        self.shared.agents.streams.received(self.link, &frame.payload)
                    }
                    _ => {
                        let message =
                            frame::decode_message(&frame.payload).map_err(io::Error::other)?;
                        self.handle(message).await?;
                    }
                }
            }
            let read = tokio::time::timeout(SILENCE_TIMEOUT, reader.read(&mut buffer)).await;
            let silent = || io::Error::new(io::ErrorKind::TimedOut, "the agent is silent");
            match read.map_err(|_| silent())?? {
                0 => return Ok(()),
                n => decoder.push(&buffer[..n]),
            }
        }
    }

    pub async fn handle(&self, mut message: ToServer) -> io::Result<()> {
        let from = self.nodes.iter().next().map_or("an agent", String::as_str);
        let warnings = &self.shared.volatile.agent_warnings;
        if let Some(line) = message_bounds::cut_to_bounds(from, &mut message) {
            warnings.warn(from, &line);
        }
        match message {
            ToServer::Report(report) if self.nodes.contains(&report.node) => {
                self.report(report).await
            }
            ToServer::Heartbeat { nodes: mut beats } => {
                beats.retain(|(name, _)| self.nodes.contains(name));
                let mut facts =
                    self.shared.volatile.facts.write().expect("no panic while writing facts");
                facts.extend(beats);
                drop(facts);
                if let Some(line) = self.second_agent(clock::now()) {
                    warnings.warn_of_standing(from, &line);
                }
                Ok(())
            }
            ToServer::GpuSeries { mut nodes, series } => {
                nodes.retain(|name| self.nodes.contains(name));
                let is_asked_for = self.shared.read().config.site.dcgm_exporter.is_some();
                if is_asked_for {
                    self.shared.volatile.relayed.put(nodes, series, clock::now());
                }
                Ok(())
            }
            ToServer::Health { node, source, failure } if self.nodes.contains(&node) => {
                let reports = &self.shared.volatile.health_reports;
                let Some(failure) = reports.take(&node, source, failure, Instant::now()) else {
                    return Ok(());
                };
                let command = Command::NodeHealth { node, source, failure };
                self.enqueue(command, None, None).await
            }
            ToServer::OrderRefused { attempt, node, order, why, unfit, .. }
                if self.nodes.contains(&node) =>
            {
                let line = format!("{node} refuses an order for attempt {attempt}: {why}");
                warnings.warn(&node, &line);
                let what = match order {
                    RefusedOrder::LaunchedBefore | RefusedOrder::UnknownAttempt => {
                        AttemptReport::Missing
                    }
                    RefusedOrder::Launch => {
                        let fault = LaunchFault::Other;
                        let (what, hold, user) = (why, false, None);
                        AttemptReport::LaunchFailed { what, fault, unfit, hold, user }
                    }
                    RefusedOrder::Other => return Ok(()),
                };
                let command = Command::Report { node, attempt, at: clock::now(), what };
                self.enqueue(command, None, None).await
            }
            ToServer::StreamEnd { stream, error } => {
                self.shared.agents.streams.end(self.link, stream, error);
                Ok(())
            }
            ToServer::Credit { stream, bytes } => {
                self.shared.agents.streams.credit(self.link, stream, bytes);
                Ok(())
            }
            ToServer::Measured { request: ask, used } => {
                self.shared.agents.usage.answered(self.link, ask, used);
                Ok(())
            }
            ToServer::ServerFound { request: ask, found } => {
                self.shared.agents.servers.answered(self.link, ask, found);
                Ok(())
            }
            ToServer::Renew { certificate_request } => {
                // Another agent may have taken over some of its nodes.
                let own =
                    |node: &String| self.shared.agents.link(node).filter(|l| l.number == self.link);
                if let Some(link) = self.nodes.iter().find_map(own) {
                    let mut nodes: Vec<String> = self.nodes.iter().cloned().collect();
                    nodes.sort_unstable();
                    join::renew(self.shared, nodes, &link, &certificate_request).await;
                }
                Ok(())
            }
            ToServer::StepAccepted { node, attempt, step } if self.nodes.contains(&node) => {
                let launches = &self.shared.volatile.step_launches;
                launches.delivered(&self.shared.state, attempt.job, step, &node);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The line about another agent that speaks for the same nodes, where both live.
    fn second_agent(&self, now: Timestamp) -> Option<String> {
        // Machines that were cloned have all their nodes in common.
        let node = self.nodes.iter().next()?;
        let other = self.shared.agents.successor(node, self.link)?;
        let is_both = now.since(other.since) >= TWO_AGENTS_AFTER;
        is_both.then(|| {
            format!(
                "two agents speak for node {node} with one certificate, the newer one from {}: if the disk of one machine was \
                 cloned, stop the agent of the clone, empty its state folder and let it join by a name of its own",
                other.address
            )
        })
    }

    /// Hands a command to the writer, in the order in which the agent sent its messages.
    async fn enqueue(
        &self,
        command: Command,
        serial: Option<u64>,
        forget: Option<(String, AttemptId)>,
    ) -> io::Result<()> {
        let answer = self.shared.writer.enqueue(command, server_principal()).await;
        let gone = || io::Error::other("the server is stopping");
        let settling = PendingReport { answer: answer.ok_or_else(gone)?, serial, forget };
        self.settled.send(settling).await.map_err(|_| gone())
    }

    /// Takes a report in; it is acknowledged once it is on disk.
    async fn report(&self, report: Report) -> io::Result<()> {
        let Report { serial, node, attempt, at, event } = report;
        let what = match event {
            // The start itself said so. The command only keeps acknowledgements in order.
            ReportEvent::Started => {
                let nothing = Command::Report { node, attempt, at, what: AttemptReport::Started };
                return self.enqueue(nothing, Some(serial), None).await;
            }
            ReportEvent::LaunchFailed { what, fault, unfit, hold, user } => {
                let drained = match &unfit {
                    Some(why) => format!(" and is drained ({why})"),
                    None => String::new(),
                };
                let line = format!("{node} could not launch attempt {attempt}{drained}: {what}");
                self.shared.volatile.agent_warnings.warn(&node, &line);
                AttemptReport::LaunchFailed { what, fault, unfit, hold, user }
            }
            ReportEvent::Network(network) => AttemptReport::Network(network),
            ReportEvent::Unfit { why } => {
                let line = format!("{node} is drained after attempt {attempt}: {why}");
                self.shared.volatile.agent_warnings.warn(&node, &line);
                AttemptReport::Unfit { why }
            }
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
        };
        let over = matches!(what, AttemptReport::Ended { .. } | AttemptReport::LaunchFailed { .. });
        let known = {
            let state = self.shared.read();
            let node = state.nodes.get(&node);
            node.is_some_and(|n| n.holders.contains(&attempt) || n.stale.contains(&attempt))
        };
        // Reported before, or given up long ago: the agent's spool may forget it.
        let forget = (over && !known).then(|| (node.clone(), attempt));
        // An agent's clock may be off: an end does not lie in the future.
        let at = at.min(clock::now());
        self.enqueue(Command::Report { node, attempt, at, what }, Some(serial), forget).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
    use crate::testing::{NODE, TestServer};
    use model::amount::Bytes;
    use model::bounds::{self, CUT_MARK, NODE_TEXT_BYTES};
    use model::id::JobId;
    use model::node::{NodeConfig, NodeFacts, NodeGres};
    use wire::link::{Hello, NodeHello, RENEWALS_MAX, SignedRenewal, SpooledAttempt};

    #[tokio::test(flavor = "multi_thread")]
    async fn long_texts_of_a_node_are_cut_and_the_server_goes_on() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: runs").await.expect("a job");
        server.plan();
        let nodes = HashSet::from([NODE.to_string()]);
        let (settled, mut pending) = mpsc::channel(8);
        let receiver = LinkReceiver { shared: &server.shared, nodes: &nodes, link: 1, settled };
        let long = "x".repeat(16_000_000);
        let event = ReportEvent::LaunchFailed {
            what: long.clone(),
            fault: LaunchFault::Other,
            unfit: Some(long),
            hold: false,
            user: None,
        };
        let attempt = AttemptId { job, number: 1 };
        for serial in 1..=3 {
            let (node, event) = (NODE.to_string(), event.clone());
            let report = Report { serial, node, attempt, at: clock::now(), event };
            receiver.handle(ToServer::Report(report)).await.expect("taken");
            let one = pending.recv().await.expect("a report");
            one.answer.await.expect("an answer").expect("it is kept");
        }
        let state = server.state_in_memory();
        assert!(state.contains(&format!("xxx{CUT_MARK}")), "the node is drained with the reason");
        assert!(!state.contains(&"x".repeat(NODE_TEXT_BYTES.most)));
        assert_eq!(state, server.state_on_disk());
        server.submit("name: later").await.expect("the server goes on");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn facts_of_a_rogue_agent_are_cut_and_only_of_its_own_node() {
        let server = TestServer::start().await;
        server.node_up().await;
        let nodes = HashSet::from([NODE.to_string()]);
        let (settled, _pending) = mpsc::channel(8);
        let receiver = LinkReceiver { shared: &server.shared, nodes: &nodes, link: 1, settled };
        let long = "x".repeat(5000);
        let facts = NodeFacts {
            os: long.clone(),
            not_enforced: vec![long.clone(); 500],
            ..NodeFacts::default()
        };
        let beat = |name: &str| (name.to_string(), facts.clone());
        let beats = vec![beat(NODE), beat("of-another"), beat(&long)];
        receiver.handle(ToServer::Heartbeat { nodes: beats }).await.expect("taken");
        let held = server.shared.volatile.facts.read().expect("facts").clone();
        assert_eq!(held.keys().collect::<Vec<_>>(), [NODE]);
        let held = &held[NODE];
        assert_eq!(held.os.len(), NODE_TEXT_BYTES.most);
        assert_eq!(held.not_enforced.len(), bounds::NODE_LINES.most);
        assert!(held.not_enforced.iter().all(|line| line.len() == NODE_TEXT_BYTES.most));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn agent_that_speaks_on_after_another_took_its_node_over_is_said() {
        let server = TestServer::start().await;
        let nodes = HashSet::from([NODE.to_string()]);
        let begun = clock::now();
        let own = [NODE.to_string()];
        for (number, last) in [(11, 1), (12, 2)] {
            let (outbox, _orders) = mpsc::channel(8);
            let (data, _bytes) = mpsc::channel(1);
            let (cut, shutdown) = (Arc::default(), Arc::default());
            let build = AgentBuild { program: "sluice".into(), protocol: 1 };
            let (address, takes_bytes) = ([192, 0, 2, last].into(), true);
            let (is_near, finds_servers) = (false, false);
            let peer =
                LinkPeer { address, build, since: begun, takes_bytes, is_near, finds_servers };
            let fingerprint = "one".into();
            let link = Link { number, fingerprint, peer, outbox, data, cut, shutdown };
            server.shared.agents.add(&own, &link);
        }
        let said = |link, seconds| {
            let (settled, _pending) = mpsc::channel(1);
            let receiver = LinkReceiver { shared: &server.shared, nodes: &nodes, link, settled };
            receiver.second_agent(begun + Duration::from_secs(seconds))
        };
        assert_eq!(said(11, 5), None, "what was under way when its connection was lost");
        let line = said(11, 60).expect("a line");
        assert!(line.contains(NODE) && line.contains("from 192.0.2.2"), "{line}");
        assert_eq!(said(12, 60), None, "the newer one is told by the older");
    }

    #[test]
    fn every_list_and_text_of_a_hello_is_cut() {
        let long = "x".repeat(5000);
        let gres = NodeGres {
            files: vec![long.clone(); 2000],
            device_names: vec![long.clone(); 2000],
            links: vec![0; 2000],
            ..NodeGres::plain("gpu", None, 1)
        };
        let mut detected = NodeConfig::plain(NODE, 1, Bytes(0));
        detected.gres = vec![NodeGres::plain("gpu", None, 1); 2000];
        detected.gres[0] = gres;
        let facts = NodeFacts::default();
        let attempt =
            SpooledAttempt { attempt: AttemptId { job: JobId(1), number: 1 }, alive: true };
        let node = NodeHello {
            name: long.clone(),
            facts,
            detected,
            attempts: vec![attempt; 70_000],
            device_change: Some(long.clone()),
            dynamic: None,
        };
        let renewal = SignedRenewal { body: "b".into(), signature: "s".into() };
        let renewals = vec![renewal; 100];
        let (nodes, more, takes_bytes) = (vec![node], false, true);
        let network_stack = Some(long.clone());
        let hello = Hello {
            version: 1,
            program: long,
            nodes,
            more,
            renewals,
            takes_bytes,
            network_stack,
            finds_servers: true,
        };
        let mut message = ToServer::Hello(hello);
        assert!(message_bounds::cut_to_bounds("a test", &mut message).is_some());
        let ToServer::Hello(hello) = message else { panic!("it stays a hello") };
        let node = &hello.nodes[0];
        assert_eq!((hello.program.len(), node.name.len()), (1024, 1024));
        assert_eq!(hello.renewals.len(), RENEWALS_MAX);
        assert_eq!(node.device_change.as_ref().map(String::len), Some(1024));
        assert_eq!((node.attempts.len(), node.detected.gres.len()), (65_536, 256));
        let gres = &node.detected.gres[0];
        assert_eq!(
            (gres.files.len(), gres.device_names.len(), gres.links.len()),
            (1024, 1024, 1024)
        );
        assert_eq!((gres.files[0].len(), gres.device_names[0].len()), (1024, 1024));
    }
}
