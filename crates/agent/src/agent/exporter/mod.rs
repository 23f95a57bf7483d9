//! Asks the exporter of this machine's GPUs, where the site has one, and passes its series on to the server.
//!
//! `text`: Prometheus' text format, read.

mod text;

use super::Agent;
use model::gpu_series::{ExporterAddress, GpuSeries};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use wire::link::{NodePolicy, ToServer};

/// Between two rounds.
const INTERVAL: Duration = Duration::from_secs(15);
/// How long an exporter may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 4 << 20;

/// The rounds of the exporter. It is asked by a task of its own, so that nothing waits for it.
pub(super) struct ExporterWatch {
    address: watch::Sender<Option<ExporterAddress>>,
    rounds: mpsc::Receiver<Round>,
}

/// What an exporter said, and when.
#[derive(Debug)]
struct Round {
    series: GpuSeries,
    at: Instant,
}

impl Round {
    /// Whether it is of the present: one that had to wait for a server says how it was.
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.at) < INTERVAL
    }
}

impl ExporterWatch {
    /// Called inside the runtime.
    pub fn start() -> ExporterWatch {
        let (address, changes) = watch::channel(None);
        let (rounds_in, rounds) = mpsc::channel(1);
        tokio::spawn(keep_asking(changes, rounds_in));
        ExporterWatch { address, rounds }
    }

    /// The next round of the present.
    pub async fn next(&mut self) -> GpuSeries {
        loop {
            match self.rounds.recv().await {
                Some(round) if round.is_fresh(Instant::now()) => return round.series,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }
}

async fn keep_asking(
    mut address: watch::Receiver<Option<ExporterAddress>>,
    rounds: mpsc::Sender<Round>,
) {
    let mut told = String::new();
    loop {
        let current = address.borrow_and_update().clone();
        if let Some(exporter) = current {
            let asked = timeout(ANSWER_TIMEOUT, ask(&exporter)).await;
            let at = Instant::now();
            let series = match asked.unwrap_or_else(|_| Err("no answer in time".into())) {
                Ok(text) => {
                    told.clear();
                    let mut series = text::read(&text);
                    series.hold_to_bounds();
                    series
                }
                Err(why) => {
                    if told != why {
                        let at = String::from(exporter);
                        tracing::warn!(why, "the exporter at {at} is not relayed");
                        told = why;
                    }
                    // What it said before is not shown any more.
                    GpuSeries::default()
                }
            };
            if rounds.send(Round { series, at }).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = address.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// The text that the exporter publishes. With HTTP/1.0 it comes in one piece and ends with the connection.
async fn ask(exporter: &ExporterAddress) -> Result<String, String> {
    let failed = |e: std::io::Error| e.to_string();
    let mut stream = TcpStream::connect(exporter.address).await.map_err(failed)?;
    let (path, host) = (&exporter.path, exporter.address);
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: text/plain\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut answer).await.map_err(failed)?;
    if answer.len() as u64 > ANSWER_BYTES_MAX {
        return Err(format!("its answer has more than {ANSWER_BYTES_MAX} bytes"));
    }
    let answer = String::from_utf8(answer).map_err(|_| "its answer is no text".to_owned())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("its answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if !status.starts_with("HTTP/") || status.split(' ').nth(1) != Some("200") {
        return Err(format!("it answers {:?}", status.chars().take(80).collect::<String>()));
    }
    Ok(body.to_owned())
}

impl Agent {
    pub(super) fn set_exporter(&mut self, policies: &BTreeMap<String, NodePolicy>) {
        let exporter = policies.values().find_map(|policy| policy.site.dcgm_exporter.clone());
        self.exporter.address.send_if_modified(|known| {
            let is_new = *known != exporter;
            *known = exporter;
            is_new
        });
    }

    /// Passes a round on. The GPUs are the machine's: a declared node has none of them.
    pub(super) fn on_exporter_round(&mut self, series: GpuSeries) {
        let is_relayed =
            |policy: &NodePolicy| policy.site.dcgm_exporter.is_some() && !policy.limits.declared;
        let nodes = self.nodes.iter().filter(|(_, node)| is_relayed(&node.policy));
        let nodes: Vec<String> = nodes.map(|(name, _)| name.clone()).collect();
        if !nodes.is_empty() {
            self.outgoing.push(ToServer::GpuSeries { nodes, series });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn round_that_waited_for_a_server_is_not_passed_on() {
        let (address, _changes) = watch::channel(None);
        let (rounds_in, rounds) = mpsc::channel(2);
        let mut exporter = ExporterWatch { address, rounds };
        let series = |busy: u32| text::read(&format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\"}} {busy}\n"));
        let now = Instant::now();
        for (busy, at) in [(1, now - INTERVAL), (2, now)] {
            rounds_in.try_send(Round { series: series(busy), at }).expect("a place");
        }
        assert_ne!(series(1), series(2));
        assert_eq!(exporter.next().await, series(2));
    }
}
