//! Many agents in one process, for load on a server: each joins by its own token, has a certificate and a link of its own,
//! checks orders and sends heartbeats and reports as an agent does, and runs nothing. Jobs end after a time that is given on
//! average, spread evenly: as many end in each second, also in the first.

use crate::agent::backoff::Backoff;
use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::link::connection::Link;
use crate::link::credentials::{Credentials, JoinWay};
use crate::link::reports::ReportQueue;
use crate::order_gate::Gate;
use crate::order_gate::replay_guard::ReplayGuard;
use crate::wall_clock::{self, Skew};
use model::amount::Bytes;
use model::node::{NodeConfig, NodeFacts};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};
use wire::frame::{self, Frame};
use wire::link::{
    CHANNEL_CONTROL, Hello, NODES_PER_MESSAGE, NodeHello, SpooledAttempt, ToAgent, ToServer,
};
use wire::order::Action;
use wire::report::{AttemptEnd, ReportEvent};
use wire::version::PROTOCOL;

/// As long as an agent waits.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// Times of acknowledgements that are kept: the latest.
const TIMES_MAX: usize = 200_000;
const CPUS: u32 = 1024;
const MEMORY: Bytes = Bytes(1 << 40);
const SIGTERM: i32 = 15;

pub struct ManyAgents {
    /// Where each agent keeps its certificate.
    pub state: PathBuf,
    /// One for each agent.
    pub join_files: Vec<PathBuf>,
    /// How long a job runs on average; each between nothing and twice as long.
    pub job_time: Duration,
}

/// What all agents together have seen so far.
#[derive(Default)]
pub struct Counts {
    /// Agents with a link now.
    pub connected: AtomicU64,
    /// Welcomes so far.
    pub welcomed: AtomicU64,
    /// Hellos that the server refused, and greetings that broke off once there was a connection.
    pub refused: AtomicU64,
    /// Dials that nobody answered.
    pub unreachable: AtomicU64,
    /// Links that broke after the welcome.
    pub lost: AtomicU64,
    pub running: AtomicU64,
    pub ended: AtomicU64,
    pub orders_refused: AtomicU64,
    last_refusal: Mutex<String>,
    /// From the sending of a report, behind all that its agent sent before, until it is on the server's disk.
    times: Mutex<VecDeque<Duration>>,
}

impl Counts {
    /// The times of the reports that were acknowledged since the last call.
    pub fn take_times(&self) -> Vec<Duration> {
        self.times.lock().expect("no panic").drain(..).collect()
    }

    pub fn last_refusal(&self) -> String {
        self.last_refusal.lock().expect("no panic").clone()
    }

    fn note_time(&self, time: Duration) {
        let mut times = self.times.lock().expect("no panic");
        if times.len() == TIMES_MAX {
            times.pop_front();
        }
        times.push_back(time);
    }

    fn note_refusal(&self, error: &AgentError) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        *self.last_refusal.lock().expect("no panic") = error.to_string();
    }
}

impl ManyAgents {
    /// Starts all agents at once. They go on for as long as the runtime does.
    pub fn start(self) -> Arc<Counts> {
        let counts = Arc::new(Counts::default());
        for (number, join_file) in self.join_files.into_iter().enumerate() {
            let folder = self.state.join(number.to_string());
            tokio::spawn(live(folder, join_file, self.job_time, counts.clone()));
        }
        counts
    }
}

/// One of the agents.
struct QuietAgent {
    nodes: Vec<String>,
    gate: Gate,
    reports: ReportQueue,
    skew: Skew,
    /// The attempts that it holds: their owners, and whether they run.
    attempts: HashMap<AttemptKey, (u32, bool)>,
    /// When attempts end, the next first.
    ends: BinaryHeap<Reverse<(Instant, AttemptKey)>>,
    job_time: Duration,
    /// When each report of this connection was sent, by its serial.
    sent: HashMap<u64, Instant>,
    counts: Arc<Counts>,
}

async fn live(folder: PathBuf, join_file: PathBuf, job_time: Duration, counts: Arc<Counts>) {
    let mut backoff = Backoff::new();
    let (mut agent, credentials) = loop {
        match join(&folder, &join_file, job_time, &counts).await {
            Ok(joined) => break joined,
            Err(error) => counts.note_refusal(&error),
        }
        sleep(backoff.pause()).await;
        backoff.lengthen();
    };
    let mut turn = 0;
    loop {
        let address = &credentials.servers[turn % credentials.servers.len()];
        turn += 1;
        let mut is_welcome = false;
        if let Err(error) = agent.connect(address, &credentials, &mut is_welcome).await {
            match error {
                _ if is_welcome => {
                    counts.connected.fetch_sub(1, Ordering::Relaxed);
                    counts.lost.fetch_add(1, Ordering::Relaxed);
                    backoff.reset();
                }
                AgentError::Unreachable { .. } => {
                    counts.unreachable.fetch_add(1, Ordering::Relaxed);
                }
                error => counts.note_refusal(&error),
            }
        }
        sleep(backoff.pause()).await;
        backoff.lengthen();
    }
}

async fn join(
    folder: &Path,
    join_file: &Path,
    job_time: Duration,
    counts: &Arc<Counts>,
) -> Result<(QuietAgent, Credentials), AgentError> {
    let way = JoinWay { file: Some(join_file.to_owned()), ..JoinWay::default() };
    let credentials = Credentials::obtain(folder, &way).await?;
    let guard = |node: &String| {
        let own = folder.join(node);
        std::fs::create_dir_all(&own).map_err(|e| AgentError::file("make", &own, e))?;
        Ok((node.clone(), ReplayGuard::open(&own, wall_clock::now())?))
    };
    let guards = credentials.nodes.iter().map(guard).collect::<Result<_, AgentError>>()?;
    let agent = QuietAgent {
        nodes: credentials.nodes.clone(),
        gate: Gate::new(&credentials.order_key, guards, None)?,
        reports: ReportQueue::default(),
        skew: Skew::default(),
        attempts: HashMap::new(),
        ends: BinaryHeap::new(),
        job_time,
        sent: HashMap::new(),
        counts: counts.clone(),
    };
    Ok((agent, credentials))
}

impl QuietAgent {
    async fn connect(
        &mut self,
        address: &str,
        credentials: &Credentials,
        is_welcome: &mut bool,
    ) -> Result<(), AgentError> {
        let mut link = Link::dial(address, credentials.tls()?).await?;
        let mut nodes = self.hello();
        while !nodes.is_empty() {
            let rest = nodes.split_off(nodes.len().min(NODES_PER_MESSAGE));
            let part = std::mem::replace(&mut nodes, rest);
            let (version, more) = (PROTOCOL, !nodes.is_empty());
            let program = "many agents".to_owned();
            let (renewals, takes_bytes) = (Vec::new(), true);
            let hello = Hello {
                version,
                program,
                nodes: part,
                more,
                renewals,
                takes_bytes,
                network_stack: None,
                finds_servers: false,
            };
            link.send(&ToServer::Hello(hello))?;
        }
        link.flush().await?;
        let (beat, early) = timeout(WELCOME_TIMEOUT, self.await_welcome(&mut link))
            .await
            .map_err(|_| AgentError::Link("no welcome came".into()))??;
        *is_welcome = true;
        self.counts.welcomed.fetch_add(1, Ordering::Relaxed);
        self.counts.connected.fetch_add(1, Ordering::Relaxed);
        self.reports.reconnect();
        self.sent.clear();
        self.on_frames(&early);
        let mut heartbeat = interval(beat);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for report in self.reports.take_unsent(self.skew) {
                self.sent.insert(report.serial, Instant::now());
                link.send(&ToServer::Report(report))?;
            }
            link.flush().await?;
            let next = self.ends.peek().map(|Reverse((at, _))| *at);
            let due = async {
                match next {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                frames = link.receive() => self.on_frames(&frames?),
                () = due => self.end_due(),
                _ = heartbeat.tick() => link.send(&self.heartbeat())?,
            }
        }
    }

    /// Waits for the welcome. Returns the interval of heartbeats, and the frames that came behind it.
    async fn await_welcome(
        &mut self,
        link: &mut Link,
    ) -> Result<(Duration, Vec<Frame>), AgentError> {
        loop {
            let mut frames = link.receive().await?.into_iter();
            while let Some(frame) = frames.next() {
                let message = frame::decode_message(&frame.payload)
                    .map_err(|e| AgentError::Link(e.to_string()))?;
                match message {
                    ToAgent::Welcome(welcome) => {
                        self.skew = Skew::between(welcome.now, wall_clock::now());
                        let beat = Duration::from_millis(welcome.heartbeat_interval_ms.max(100));
                        return Ok((beat, frames.collect()));
                    }
                    ToAgent::Refused { why } => return Err(AgentError::Refused { why }),
                    _ => {}
                }
            }
        }
    }

    fn hello(&self) -> Vec<NodeHello> {
        let node = |name: &String| NodeHello {
            name: name.clone(),
            facts: facts(),
            detected: NodeConfig::plain(name, CPUS, MEMORY),
            attempts: self
                .attempts
                .iter()
                .filter(|(key, _)| key.node == *name)
                .map(|(key, (_, runs))| SpooledAttempt { attempt: key.attempt, alive: *runs })
                .collect(),
            device_change: None,
            dynamic: None,
        };
        self.nodes.iter().map(node).collect()
    }

    fn heartbeat(&self) -> ToServer {
        ToServer::Heartbeat { nodes: self.nodes.iter().map(|n| (n.clone(), facts())).collect() }
    }

    fn on_frames(&mut self, frames: &[Frame]) {
        for frame in frames.iter().filter(|frame| frame.channel == CHANNEL_CONTROL) {
            match frame::decode_message(&frame.payload) {
                Ok(ToAgent::Ack { serial }) => {
                    self.reports.acknowledge(serial);
                    if let Some(sent) = self.sent.remove(&serial) {
                        self.counts.note_time(sent.elapsed());
                    }
                }
                Ok(ToAgent::Order(signed)) => {
                    let now = self.skew.to_server(wall_clock::now());
                    let held = &self.attempts;
                    let uid_of = |node: &str, attempt| {
                        held.get(&AttemptKey { node: node.to_owned(), attempt }).map(|held| held.0)
                    };
                    match self.gate.admit(&signed, now, uid_of) {
                        Ok(order) => {
                            let key = AttemptKey { node: order.node, attempt: order.attempt };
                            self.carry_out(key, order.uid, &order.action);
                        }
                        Err(refused) => {
                            tracing::debug!(why = %refused.why, "order refused");
                            self.counts.orders_refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn carry_out(&mut self, key: AttemptKey, uid: u32, action: &Action) {
        match action {
            Action::Launch(_) => {
                self.attempts.insert(key.clone(), (uid, true));
                self.counts.running.fetch_add(1, Ordering::Relaxed);
                let end = Instant::now() + spread(self.job_time, key.attempt.job.0);
                self.ends.push(Reverse((end, key.clone())));
                self.reports.push(key, 1, wall_clock::now(), ReportEvent::Started);
            }
            Action::End(order) if order.step.is_none() => {
                self.end(&key, ExitStatus { code: 0, signal: SIGTERM });
            }
            Action::Forget => {
                self.reports.forget(&key);
                self.attempts.remove(&key);
                if let Some(guard) = self.gate.replay_guard(&key.node) {
                    // Kept only until the order expires.
                    let _ = guard.forget(key.attempt);
                }
            }
            _ => {}
        }
    }

    fn end_due(&mut self) {
        let now = Instant::now();
        while self.ends.peek().is_some_and(|Reverse((at, _))| *at <= now) {
            let Some(Reverse((_, key))) = self.ends.pop() else { return };
            self.end(&key, ExitStatus::default());
        }
    }

    fn end(&mut self, key: &AttemptKey, exit: ExitStatus) {
        let Some((_, runs)) = self.attempts.get_mut(key).filter(|(_, runs)| *runs) else { return };
        *runs = false;
        self.counts.running.fetch_sub(1, Ordering::Relaxed);
        self.counts.ended.fetch_add(1, Ordering::Relaxed);
        let (usage, oom, timed_out) = (Usage::default(), false, false);
        let end = AttemptEnd { exit, usage, oom, timed_out, supervisor_lost: false };
        let now: Timestamp = wall_clock::now();
        self.reports.push(key.clone(), 2, now, ReportEvent::ScriptEnded { exit, oom, timed_out });
        self.reports.push(key.clone(), 3, now, ReportEvent::Ended(end));
    }
}

/// A time between nothing and twice the mean, by the job's number: jobs that follow each other get times far apart.
fn spread(mean: Duration, job: u32) -> Duration {
    const GOLDEN_RATIO: u32 = 2_654_435_769;
    mean.mul_f64(2.0 * f64::from(job.wrapping_mul(GOLDEN_RATIO)) / f64::from(u32::MAX))
}

/// As much as a node says of itself.
fn facts() -> NodeFacts {
    NodeFacts {
        hostname: "load".into(),
        arch: "x86_64".into(),
        os: "Linux 6.1.0 #1 SMP".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        free_memory: MEMORY,
        ..NodeFacts::default()
    }
}
