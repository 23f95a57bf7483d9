//! Keeps a GPU monitor running and takes in its readings.

use super::Agent;
use crate::gpu_monitor::child;
use crate::wall_clock;
use model::gpu_health::{self, GpuReading, Severity};
use model::health::HealthSource;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use wire::link::ToServer;

/// Before a monitor that ended is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(60);

/// The readings of this machine's GPUs.
pub(super) struct GpuWatch {
    rounds: mpsc::Receiver<Vec<GpuReading>>,
    /// Kept, so that the receiver waits where there is no monitor.
    _rounds_in: mpsc::Sender<Vec<GpuReading>>,
    pub last: Vec<GpuReading>,
    /// The failure that the server of this connection was told of last.
    told: Option<Option<String>>,
}

impl GpuWatch {
    /// Starts the monitor where there is anything to monitor. Called inside the runtime.
    pub fn start() -> GpuWatch {
        let (rounds_in, rounds) = mpsc::channel(1);
        if child::is_needed() {
            tokio::spawn(keep_monitor(rounds_in.clone()));
        }
        GpuWatch { rounds, _rounds_in: rounds_in, last: Vec::new(), told: None }
    }

    /// A new server has been told nothing.
    pub fn reconnect(&mut self) {
        self.told = None;
    }

    pub async fn next(&mut self) -> Vec<GpuReading> {
        match self.rounds.recv().await {
            Some(round) => round,
            None => std::future::pending().await,
        }
    }
}

async fn keep_monitor(rounds: mpsc::Sender<Vec<GpuReading>>) {
    let mut told = String::new();
    loop {
        let why = run_monitor(&rounds, &mut told).await;
        if rounds.is_closed() {
            return;
        }
        if told != why {
            tracing::warn!(
                why,
                "the GPUs of this machine are not monitored; what /proc and /sys show is used"
            );
            told = why;
        }
        sleep(RESTART_PAUSE).await;
    }
}

/// Runs one monitor. Returns why it ended.
async fn run_monitor(rounds: &mpsc::Sender<Vec<GpuReading>>, told: &mut String) -> String {
    let mut command = tokio::process::Command::from(child::command());
    let mut monitor = match command.kill_on_drop(true).spawn() {
        Ok(monitor) => monitor,
        Err(error) => return format!("the GPU monitor: {error}"),
    };
    let Some(output) = monitor.stdout.take() else { return "no output".into() };
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let mut bounded = (&mut output).take(child::LINE_BYTES_MAX);
        match timeout(child::SILENCE_TIMEOUT, bounded.read_until(b'\n', &mut line)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return format!("the GPU monitor: {error}"),
            Err(_) => return "the GPU monitor hangs".into(),
        }
        match child::readings(&line) {
            Ok(round) => {
                told.clear();
                if rounds.send(round).await.is_err() {
                    return String::new();
                }
            }
            Err(why) => return why,
        }
    }
}

impl Agent {
    /// Takes a round of readings in. The GPUs are the machine's, so their health is that of all its nodes.
    pub(super) fn on_gpu_round(&mut self, round: Vec<GpuReading>) {
        let failure = gpu_health::summary(&round, Severity::Failure);
        self.energy.read_gpus(&round, Instant::now());
        let (by_number, now) = (self.energy.by_number(&round), wall_clock::now());
        let running = self.attempts.values_mut().filter(|held| !held.has_ended());
        running.for_each(|held| held.gpus.add(&by_number, now));
        self.gpus.last = round;
        self.check_layout();
        if self.gpus.told.as_ref() == Some(&failure) {
            return;
        }
        self.gpus.told = Some(failure.clone());
        for node in self.nodes.keys() {
            let (node, failure) = (node.clone(), failure.clone());
            self.outgoing.push(ToServer::Health { node, source: HealthSource::Gpu, failure });
        }
    }
}
