//! The agent's life: dial, greet, take orders and send reports until the link breaks, and dial again.

mod streams;

use crate::agent::Agent;
use crate::credentials::Credentials;
use crate::detect::Machine;
use crate::error::AgentError;
use crate::gate::Gate;
use crate::launcher::Launcher;
use crate::link::Link;
use crate::node::Node;
use crate::reports::Key;
use crate::seen::Seen;
use crate::stream::{Inlet, Piece};
use crate::wall_clock::{self, Skew};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;
use rustls::ClientConfig;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};
use wire::frame::{self, Frame};
use wire::link::{CHANNEL_CONTROL, CHANNEL_STREAM, Hello, ToAgent, ToServer, Welcome};
use wire::version::{PROTOCOL, compatible};

const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// How long a server may take from our greeting to its own.
const WELCOME_PATIENCE: Duration = Duration::from_secs(10);
/// Pieces that wait to be sent, over all streams.
const PIECES_MAX: usize = 16;
/// Words of supervisors that are taken in before what they led to is sent.
const WORDS_AT_ONCE: usize = 256;

/// How an agent is set up.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The state folder; must exist.
    pub state: PathBuf,
    /// The one-time join file; not needed once the agent has joined.
    pub join_file: Option<PathBuf>,
    /// `host:port` of the agents' port, tried in turn; empty: those of the join file.
    pub servers: Vec<String>,
    /// The nodes that this agent is to be; empty: all that the join file is for.
    pub nodes: Vec<String>,
}

/// Runs the agent until it is told to stop (SIGTERM, SIGINT: `Ok`) or cannot go on.
/// Jobs go on without it. `launcher` was started before anything else in the process.
pub fn run(config: AgentConfig, launcher: Launcher) -> Result<(), AgentError> {
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| AgentError::Link(format!("cannot start the runtime: {e}")))?;
    // A follower of a log may be in mid-sleep, and a kill in mid-wait: neither keeps the agent.
    let ended = runtime.block_on(run_async(config, launcher));
    runtime.shutdown_background();
    ended
}

async fn run_async(config: AgentConfig, launcher: Launcher) -> Result<(), AgentError> {
    // Folders of the spool are open to users, and what is in them has modes of its own.
    umask(Mode::from_bits_truncate(0o022));
    let state =
        fs::canonicalize(&config.state).map_err(|e| AgentError::file("find", &config.state, e))?;
    let folder = state.join("agent");
    fs::create_dir_all(&folder).map_err(|e| AgentError::file("make", &folder, e))?;
    let _lock = lock(&folder)?;
    let mut stop = Stop::new()?;
    let credentials = Credentials::obtain(&folder, config.join_file.as_deref()).await?;
    let servers = match config.servers.is_empty() {
        true => credentials.servers.clone(),
        false => config.servers.clone(),
    };
    if servers.is_empty() {
        return Err(AgentError::NotJoined);
    }
    let mut agent = set_up(&state, &config, &credentials, launcher)?;
    agent.adopt().await?;
    agent.open_login_door(&state);
    let tls = credentials.tls()?;
    let mut backoff = BACKOFF_MIN;
    let mut turn = 0;
    let mut outage = Outage::default();
    loop {
        let address = &servers[turn % servers.len()];
        let ended = tokio::select! {
            ended = serve(&mut agent, address, tls.clone(), &mut backoff) => ended,
            () = stop.requested() => {
                agent.leave();
                return Ok(());
            }
        };
        match ended {
            Err(lost @ AgentError::LauncherLost) => return Err(lost),
            Err(error) => {
                // The pause is at its least after a connection.
                if backoff == BACKOFF_MIN {
                    outage = Outage::default();
                }
                outage.say(address, &error);
            }
            Ok(never) => match never {},
        }
        turn += 1;
        tokio::select! {
            paused = pause(&mut agent, backoff) => paused?,
            () = stop.requested() => {
                agent.leave();
                return Ok(());
            }
        }
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

/// A time without a server: what was said of it, so that it is said once and not at each dial.
#[derive(Default)]
struct Outage {
    said: String,
    /// It began with the server's goodbye.
    expected: bool,
}

impl Outage {
    fn say(&mut self, server: &str, error: &AgentError) {
        let text = error.to_string();
        self.expected |= matches!(error, AgentError::Closed);
        let away = matches!(error, AgentError::Closed | AgentError::Unreachable { .. });
        match self.expected && away {
            _ if text == self.said => tracing::debug!(server, %error, "not connected"),
            true => tracing::info!(server, %error, "not connected"),
            false => tracing::warn!(server, %error, "not connected"),
        }
        self.said = text;
    }
}

/// Each attempt takes a connection and a watch: as many as the machine lets this process have. The launcher was forked
/// before, so that no job inherits it.
fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // With fewer, launches beyond them fail and say so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// One agent for one state folder: two would take the same attempts for theirs.
fn lock(folder: &Path) -> Result<Flock<File>, AgentError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|e| AgentError::file("make", &path, e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| AgentError::AlreadyRunning { path: folder.display().to_string() })
}

fn set_up(
    state: &Path,
    config: &AgentConfig,
    credentials: &Credentials,
    launcher: Launcher,
) -> Result<Agent, AgentError> {
    let granted = &credentials.nodes;
    if let Some(_stranger) = config.nodes.iter().find(|name| !granted.contains(name)) {
        let (granted, wanted) = (granted.clone(), config.nodes.clone());
        return Err(AgentError::OtherNodes { granted, wanted });
    }
    let names = if config.nodes.is_empty() { granted } else { &config.nodes };
    let mut nodes = BTreeMap::new();
    let mut seen = HashMap::new();
    for name in names {
        let node = Node::open(state, name)?;
        seen.insert(name.clone(), Seen::open(&node.folder, wall_clock::now())?);
        nodes.insert(name.clone(), node);
    }
    let own = Uid::effective();
    let only_uid = (!own.is_root()).then(|| own.as_raw());
    let gate = Gate::new(&credentials.order_key, seen, only_uid)?;
    // SAFETY: a launcher's descriptor is the same one for as long as the launcher is there, and is closed with it.
    let launcher =
        unsafe { AsyncFd::register_with_interest(launcher, tokio::io::Interest::READABLE) }
            .map_err(|e| AgentError::Link(format!("cannot watch the launcher: {e}")))?;
    Ok(Agent::new(nodes, gate, launcher, Machine::detect()?))
}

/// The signals that end the agent.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Stop, AgentError> {
        let watch =
            |kind| signal(kind).map_err(|e| AgentError::Link(format!("cannot watch signals: {e}")));
        Ok(Stop {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
        })
    }

    async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Waits before the next dial, and takes in meanwhile what the supervisors say.
async fn pause(agent: &mut Agent, length: Duration) -> Result<(), AgentError> {
    let over = sleep(length);
    tokio::pin!(over);
    loop {
        let room = !agent.reports.is_full();
        tokio::select! {
            () = &mut over => return Ok(()),
            lost = launcher_lost(&agent.launcher) => return Err(lost),
            Some((key, word)) = agent.words.recv(), if room => agent.on_word(&key, word),
            Some(login) = agent.logins.recv() => agent.on_login(login),
        }
    }
}

async fn launcher_lost(launcher: &AsyncFd<Launcher>) -> AgentError {
    loop {
        match launcher.readable().await {
            Ok(mut ready) if !launcher.get_ref().is_lost() => ready.clear_ready(),
            _ => return AgentError::LauncherLost,
        }
    }
}

/// One connection, from the dial to its end.
async fn serve(
    agent: &mut Agent,
    address: &str,
    tls: Arc<ClientConfig>,
    backoff: &mut Duration,
) -> Result<std::convert::Infallible, AgentError> {
    let mut link = Link::dial(address, tls).await?;
    link.send(&ToServer::Hello(Hello {
        version: PROTOCOL,
        program: format!("sluice {}", env!("CARGO_PKG_VERSION")),
        nodes: agent.hello(),
    }))?;
    link.flush().await?;
    let (welcome, early) = timeout(WELCOME_PATIENCE, await_welcome(&mut link))
        .await
        .map_err(|_| AgentError::Link("no welcome came".into()))??;
    agent.check_term(welcome.term)?;
    agent.skew = Skew::between(welcome.now, wall_clock::now());
    agent.set_policies(welcome.policies);
    agent.reports.reconnect();
    *backoff = BACKOFF_MIN;
    tracing::info!(server = address, term = welcome.term, "connected");
    let mut session =
        Session::new(link, Duration::from_millis(welcome.heartbeat_interval_ms.max(100)));
    session.on_frames(agent, early)?;
    session.run(agent).await
}

/// The server's greeting, and what came in the same breath after it.
async fn await_welcome(link: &mut Link) -> Result<(Welcome, Vec<Frame>), AgentError> {
    loop {
        let mut frames = link.receive().await?.into_iter();
        while let Some(frame) = frames.next() {
            let message = frame::decode_message(&frame.payload)
                .map_err(|e| AgentError::Link(e.to_string()))?;
            match message {
                ToAgent::Welcome(welcome) if !compatible(welcome.version) => {
                    let why = format!("it speaks protocol version {}", welcome.version);
                    return Err(AgentError::Refused { why });
                }
                ToAgent::Welcome(welcome) => return Ok((welcome, frames.collect())),
                ToAgent::Refused { why } => return Err(AgentError::Refused { why }),
                _ => {}
            }
        }
    }
}

struct Session {
    link: Link,
    beat: Interval,
    /// Streams under way. Dropped with the session, they end.
    streams: HashMap<u32, (Key, Inlet)>,
    pieces_in: mpsc::Sender<(u32, Piece)>,
    pieces: mpsc::Receiver<(u32, Piece)>,
}

impl Session {
    fn new(link: Link, every: Duration) -> Session {
        let mut beat = interval(every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (pieces_in, pieces) = mpsc::channel(PIECES_MAX);
        Session { link, beat, streams: HashMap::new(), pieces_in, pieces }
    }

    async fn run(&mut self, agent: &mut Agent) -> Result<std::convert::Infallible, AgentError> {
        loop {
            for taken in agent.steps_taken.drain(..) {
                self.link.send(&taken)?;
            }
            for report in agent.reports.take_unsent(agent.skew) {
                self.link.send(&ToServer::Report(report))?;
            }
            self.link.flush().await?;
            let room = !agent.reports.is_full();
            tokio::select! {
                frames = self.link.receive() => self.on_frames(agent, frames?)?,
                Some((key, word)) = agent.words.recv(), if room => {
                    agent.on_word(&key, word);
                    for _ in 1..WORDS_AT_ONCE {
                        let Ok((key, word)) = agent.words.try_recv() else { break };
                        agent.on_word(&key, word);
                    }
                }
                Some((stream, piece)) = self.pieces.recv() => self.on_piece(stream, piece)?,
                Some(login) = agent.logins.recv() => agent.on_login(login),
                _ = self.beat.tick() => self.link.send(&agent.beat())?,
                lost = launcher_lost(&agent.launcher) => return Err(lost),
            }
        }
    }

    fn on_frames(&mut self, agent: &mut Agent, frames: Vec<Frame>) -> Result<(), AgentError> {
        for frame in &frames {
            match frame.channel {
                CHANNEL_CONTROL => {}
                CHANNEL_STREAM => {
                    self.on_stream_bytes(&frame.payload)?;
                    continue;
                }
                _ => continue,
            }
            // A message that a newer server knows and we do not is no reason to cut the link.
            match frame::decode_message(&frame.payload) {
                Ok(message) => self.on_message(agent, message)?,
                Err(error) => tracing::warn!(%error, "a message of the server was passed over"),
            }
        }
        Ok(())
    }

    fn on_message(&mut self, agent: &mut Agent, message: ToAgent) -> Result<(), AgentError> {
        match message {
            ToAgent::Order(signed) => {
                if let Some(refusal) = agent.on_order(&signed) {
                    self.link.send(&refusal)?;
                }
            }
            ToAgent::Ack { serial } => agent.on_acknowledged(serial),
            ToAgent::Open { stream, node, attempt, kind } => {
                self.open(agent, stream, Key { node, attempt }, kind)?;
            }
            ToAgent::StreamEnd { stream, .. } => {
                if let Some((key, Inlet::Step { ask, .. })) = self.streams.remove(&stream) {
                    agent.on_client_gone(&key, ask.step, stream);
                }
            }
            ToAgent::Credit { stream, bytes } => {
                if let Some((_, inlet)) = self.streams.get_mut(&stream) {
                    inlet.credit(bytes);
                }
            }
            ToAgent::Measure { request: ask, node, attempt } => {
                agent.measure(ask, &Key { node, attempt })
            }
            ToAgent::Policies(policies) => agent.set_policies(policies),
            ToAgent::Refused { why } => return Err(AgentError::Refused { why }),
            ToAgent::Welcome(_) | ToAgent::Joined(_) => {}
        }
        Ok(())
    }
}
