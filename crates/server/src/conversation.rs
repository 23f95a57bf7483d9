//! What an agent says on its link, taken in in the order in which it was said.

use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::AttemptReport;
use model::id::AttemptId;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};
use wire::frame::{self, Decoder};
use wire::link::{self, RefusedOrder, ToAgent, ToServer};
use wire::report::{Report, ReportEvent};

/// A link that says nothing for this long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Reports of one agent on their way to the disk.
pub const REPORTS_MAX: usize = 4096;

/// A report on its way to the disk: what the writer answers, and what to tell the agent then.
pub struct Settling {
    answer: oneshot::Receiver<crate::queue::Answer>,
    serial: Option<u64>,
    /// An end that nobody waited for.
    forget: Option<(String, AttemptId)>,
}

/// Acknowledges reports in the order in which they came, each once it is on disk. One that could
/// not be kept ends the link: the agent says it again on the next.
pub async fn acknowledge(
    shared: &Arc<Shared>,
    mut settling: mpsc::Receiver<Settling>,
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

/// One agent's side of a link.
pub struct Conversation<'a> {
    pub shared: &'a Arc<Shared>,
    pub nodes: &'a [String],
    pub link: u64,
    pub settled: mpsc::Sender<Settling>,
}

impl Conversation<'_> {
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
                        self.shared.agents.stream_data(self.link, &frame.payload)
                    }
                    _ => {
                        let message =
                            frame::decode_message(&frame.payload).map_err(io::Error::other)?;
                        self.hear(message).await?;
                    }
                }
            }
            let read = tokio::time::timeout(SILENCE_MAX, reader.read(&mut buffer)).await;
            let silent = || io::Error::new(io::ErrorKind::TimedOut, "the agent is silent");
            match read.map_err(|_| silent())?? {
                0 => return Ok(()),
                n => decoder.push(&buffer[..n]),
            }
        }
    }

    async fn hear(&self, message: ToServer) -> io::Result<()> {
        match message {
            ToServer::Report(report) if self.nodes.contains(&report.node) => {
                self.report(report).await
            }
            ToServer::Heartbeat { nodes: beats } => {
                let mut facts =
                    self.shared.volatile.facts.write().expect("no panic while writing facts");
                facts.extend(beats.into_iter().filter(|(name, _)| self.nodes.contains(name)));
                Ok(())
            }
            ToServer::OrderRefused { attempt, node, order, why, unfit, .. }
                if self.nodes.contains(&node) =>
            {
                tracing::warn!("{node} refuses an order for attempt {attempt}: {why}");
                let what = match order {
                    RefusedOrder::LaunchedBefore | RefusedOrder::UnknownAttempt => {
                        AttemptReport::Missing
                    }
                    RefusedOrder::Launch => {
                        AttemptReport::LaunchFailed { what: why, unfit, hold: false }
                    }
                    RefusedOrder::Other => return Ok(()),
                };
                let command = Command::Report { node, attempt, at: clock::now(), what };
                self.settle(command, None, None).await
            }
            ToServer::StreamEnd { stream, error } => {
                self.shared.agents.stream_end(self.link, stream, error);
                Ok(())
            }
            ToServer::Credit { stream, bytes } => {
                self.shared.agents.stream_credit(self.link, stream, bytes);
                Ok(())
            }
            ToServer::Measured { request: ask, steps } => {
                self.shared.agents.measured(ask, steps);
                Ok(())
            }
            ToServer::StepAccepted { node, attempt, step } if self.nodes.contains(&node) => {
                self.shared.volatile.steps.taken(self.shared, attempt.job, step, &node);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Hands a command to the writer in the order in which the agent spoke.
    async fn settle(
        &self,
        command: Command,
        serial: Option<u64>,
        forget: Option<(String, AttemptId)>,
    ) -> io::Result<()> {
        let answer = self.shared.writer.enqueue(command, crate::queue::server_principal()).await;
        let gone = || io::Error::other("the server is stopping");
        let settling = Settling { answer: answer.ok_or_else(gone)?, serial, forget };
        self.settled.send(settling).await.map_err(|_| gone())
    }

    /// Takes a report in; it is acknowledged once it is on disk.
    async fn report(&self, report: Report) -> io::Result<()> {
        let Report { serial, node, attempt, at, event } = report;
        let what = match event {
            // Told by the start itself; the tick that carries the answer keeps the order.
            ReportEvent::Started => {
                let nothing = Command::Report { node, attempt, at, what: AttemptReport::Started };
                return self.settle(nothing, Some(serial), None).await;
            }
            ReportEvent::LaunchFailed { what, unfit, hold } => {
                match &unfit {
                    Some(why) => tracing::warn!(
                        "{node} could not launch attempt {attempt} and is drained ({why}): {what}"
                    ),
                    None => tracing::warn!("{node} could not launch attempt {attempt}: {what}"),
                }
                AttemptReport::LaunchFailed { what, unfit, hold }
            }
            ReportEvent::Unfit { why } => {
                tracing::warn!("{node} is drained after attempt {attempt}: {why}");
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
        // Said before, or given up long ago: the spool may let go of it.
        let forget = (over && !known).then(|| (node.clone(), attempt));
        // An agent's clock may be off: an end does not lie in the future.
        let at = at.min(clock::now());
        self.settle(Command::Report { node, attempt, at, what }, Some(serial), forget).await
    }
}
