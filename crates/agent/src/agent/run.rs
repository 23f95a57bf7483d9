//! The life of the agent process: set up, take over running attempts, and dial the server again after each lost link.

use super::Agent;
use super::addresses::Addresses;
use super::backoff::Backoff;
use super::session::{launcher_lost, serve};
use super::spot_notice::{SpotConfig, SpotWatch};
use crate::client_socket::{self, ServerDialler, SharedTls, SilentServer};
use crate::detect::Machine;
use crate::error::AgentError;
use crate::launcher::Launcher;
use crate::link::credentials::{Credentials, JoinWay};
use crate::node::facts::GresOfNode;
use crate::node::{Host, Node};
use crate::order_gate::Gate;
use crate::order_gate::replay_guard::ReplayGuard;
use crate::privilege;
use crate::trusted_dir::TrustedDir;
use crate::wall_clock;
use model::dynamic_node::FutureMachine;
use model::hostlist;
use model::node::NodeConfig;
use model::time::format_iso;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use wire::link::RefusedNode;

/// How an agent is set up.
pub struct AgentConfig {
    /// The state folder; must exist.
    pub state: PathBuf,
    /// The one-time join file; not needed once the agent has joined.
    pub join_file: Option<PathBuf>,
    /// `host:port` of the agents' port, tried in turn; empty: those of the join file.
    pub servers: Vec<String>,
    /// The nodes of this agent; empty: all nodes of the join file.
    pub nodes: Vec<String>,
    /// The machine's short name, which it has as a node where the join file is for several.
    pub host_name: String,
    /// Where clients on this machine are answered; none: its server does that.
    pub client_socket: Option<PathBuf>,
    /// The start of this agent is reported as the start of the machine.
    pub booted_now: bool,
    /// What this machine is as a node that no configuration file names; `None`: the configuration names its nodes.
    pub dynamic: Option<Box<NodeConfig>>,
    /// This machine is whichever FUTURE node it is like; `None`: it has a name of its own.
    pub future: Option<Box<FutureMachine>>,
    /// Where this machine hears that its cloud takes it back; `None`: it stays.
    pub spot: Option<SpotConfig>,
    /// It is in a pod of Kubernetes, which ends with it and whose limits are the node's.
    pub in_pod: bool,
    /// The devices of a node that this machine's own files say, which count before those that are found.
    pub gres_of: Box<GresOfNode>,
}

/// Runs the agent until SIGTERM or SIGINT (`Ok`) or until it cannot continue. Jobs run on without it. `launcher` must
/// be started before anything else in the process.
pub fn run(config: AgentConfig, launcher: Launcher) -> Result<(), AgentError> {
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| AgentError::Link(format!("cannot start the runtime: {e}")))?;
    // Does not wait for blocking tasks: a kill that is under way must not delay the agent's end.
    let ended = runtime.block_on(run_async(config, launcher));
    runtime.shutdown_background();
    ended
}

/// Whether the agent of this state folder has a certificate, and so needs no join file.
pub fn has_joined(state: &Path) -> bool {
    Credentials::are_kept(&state.join("agent"))
}

async fn run_async(mut config: AgentConfig, launcher: Launcher) -> Result<(), AgentError> {
    // Users must be able to pass through the spool's folders; the files in them have modes of their own.
    umask(Mode::from_bits_truncate(0o022));
    let state =
        fs::canonicalize(&config.state).map_err(|e| AgentError::file("find", &config.state, e))?;
    let folder = state.join("agent");
    TrustedDir::make(&folder).map_err(|e| AgentError::file("make", &folder, e))?;
    let _lock = lock(&folder)?;
    let mut stop = Stop::new(config.in_pod)?;
    let way = JoinWay {
        file: config.join_file.clone(),
        servers: config.servers.clone(),
        node: config.nodes.first().unwrap_or(&config.host_name).clone(),
        dynamic: config.dynamic.is_some(),
        future: config.future.take(),
    };
    let Some(mut credentials) = obtain_credentials(&folder, &way, &mut stop).await? else {
        return Ok(());
    };
    let servers = if config.servers.is_empty() {
        credentials.servers.clone()
    } else {
        config.servers.clone()
    };
    if servers.is_empty() {
        return Err(AgentError::NotJoined);
    }
    let gres_of = std::mem::replace(&mut config.gres_of, Box::new(|_| Vec::new()));
    let mut agent = set_up(&state, &config, gres_of, &credentials, launcher)?;
    agent.dynamic = config.dynamic.take();
    if let Some(spot) = config.spot.take() {
        agent.spot = SpotWatch::start(spot);
    } else if config.in_pod {
        let watch = SpotWatch::of_pod();
        agent.spot = watch.map_err(|e| AgentError::Link(format!("cannot watch signals: {e}")))?;
    }
    agent.adopt().await?;
    agent.listen_for_logins(&state);
    let mut tls = credentials.tls()?;
    let client_tls = SharedTls::new(tls.clone());
    let silent = SilentServer::new();
    if let Some(path) = &config.client_socket {
        let nodes = agent.nodes.keys().cloned().collect();
        client_socket::listen(
            path,
            ServerDialler::new(servers.clone(), client_tls.clone(), silent.clone()),
            nodes,
            config.in_pod,
        )?;
        agent.client_state = Some(state.display().to_string());
    }
    let mut backoff = Backoff::new();
    let mut addresses = Addresses::new(servers);
    let has_others = addresses.are_several();
    let mut outage = Outage::default();
    // A node may have been removed, or a dynamic one deleted, while its agent was away, and be let in again since: it asks once
    // with the file of its group, at the start alone.
    let mut may_join_again = way.file.is_some();
    loop {
        let address = &addresses.next();
        let ended = tokio::select! {
            ended = serve(&mut agent, (address, has_others), tls.clone(), credentials.renewals.clone(), &mut backoff) => ended,
            () = stop.requested() => {
                agent.shut_down();
                return Ok(());
            }
        };
        if backoff.is_reset() {
            credentials.settle(&folder);
            addresses.has_answered();
        }
        if ended.as_ref().is_err_and(AgentError::is_silence) {
            addresses.was_silent();
            silent.tell(address);
        }
        if let Err(AgentError::Refused { why }) = &ended {
            let (node, why) = (hostlist::compress(agent.nodes.keys()), why.clone());
            agent.keep_refused(&[RefusedNode { node, why }]);
        }
        match ended {
            Err(lost @ AgentError::LauncherLost) => return Err(lost),
            Err(renewed @ AgentError::CertificateRenewed) => {
                outage = Outage::default();
                outage.log(address, &renewed);
                if let Some(new) = agent.renewed.take() {
                    // If it cannot be kept, the one before is still good, and is renewed again.
                    match credentials.renew(&folder, new).and_then(|()| credentials.tls()) {
                        Ok(new) => {
                            client_tls.set(new.clone());
                            tls = new;
                        }
                        Err(error) => tracing::warn!(%error, "the new certificate is not kept"),
                    }
                }
            }
            // A server that was restored from a backup knows a certificate of before, which proves the same machine.
            Err(AgentError::Refused { why }) if !backoff.is_reset() && credentials.show_next() => {
                outage.log(address, &AgentError::Refused { why });
                tracing::debug!(server = address, "a former certificate is tried");
                tls = credentials.tls()?;
                client_tls.set(tls.clone());
            }
            Err(AgentError::Refused { why }) if !backoff.is_reset() && may_join_again => {
                may_join_again = false;
                match Credentials::join_again(&folder, &way).await {
                    Ok(Some(joined)) => {
                        tracing::info!(why, "joined again");
                        credentials = joined;
                    }
                    Ok(None) => outage.log(address, &AgentError::Refused { why }),
                    Err(error) => outage.log(address, &error),
                }
                tls = credentials.tls()?;
                client_tls.set(tls.clone());
            }
            Err(error) => {
                may_join_again &= !backoff.is_reset();
                // Connected since the last failure: this is a new outage.
                if backoff.is_reset() {
                    outage = Outage::default();
                }
                outage.log(address, &error);
                outage.log_end_of(&credentials);
                // Where no former one was taken the newest is tried again.
                credentials.show_newest();
                tls = credentials.tls()?;
                client_tls.set(tls.clone());
            }
            Ok(never) => match never {},
        }
        tokio::select! {
            paused = pause(&mut agent, backoff.pause()) => paused?,
            () = stop.requested() => {
                agent.shut_down();
                return Ok(());
            }
        }
        backoff.lengthen();
    }
}

/// Obtains the credentials, and waits for a server that is not there yet: the machines of a site start in any order. `None`: the
/// agent was told to stop meanwhile.
async fn obtain_credentials(
    folder: &Path,
    way: &JoinWay,
    stop: &mut Stop,
) -> Result<Option<Credentials>, AgentError> {
    let mut backoff = Backoff::new();
    let (mut tries, mut last_error) = (1_u64, String::new());
    loop {
        let obtained = tokio::select! {
            obtained = Credentials::obtain(folder, way) => obtained,
            () = stop.requested() => return Ok(None),
        };
        match obtained {
            Ok(credentials) => {
                if tries > 1 {
                    tracing::info!(tries, "a server answers: this agent has joined");
                }
                return Ok(Some(credentials));
            }
            Err(error) if error.is_absence() => {
                let text = error.to_string();
                if text == last_error {
                    tracing::debug!(tries, %error, "not joined yet");
                } else {
                    tracing::warn!(%error, "not joined yet; tried again until a server answers");
                }
                last_error = text;
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = sleep(backoff.pause()) => {}
            () = stop.requested() => return Ok(None),
        }
        backoff.lengthen();
        tries += 1;
    }
}

/// A time without a server. Keeps the last logged error, so that it is not logged again at each dial.
#[derive(Default)]
struct Outage {
    last_error: String,
    /// The server closed the link itself: its absence is expected.
    expected: bool,
    /// The end of the certificate was logged.
    end_logged: bool,
}

impl Outage {
    /// Says once what to do where the certificate has ended: no server takes it.
    fn log_end_of(&mut self, credentials: &Credentials) {
        let Some(end) = credentials.ended().filter(|_| !self.end_logged) else { return };
        let (node, end) = (credentials.nodes.join(","), format_iso(end, &timezone::local()));
        tracing::error!("{}", AgentError::CertificateEnded { node, end });
        self.end_logged = true;
    }

    fn log(&mut self, server: &str, error: &AgentError) {
        let text = error.to_string();
        let ours = matches!(error, AgentError::DevicesChanged | AgentError::CertificateRenewed);
        self.expected |= ours || matches!(error, AgentError::Closed);
        let away = ours || matches!(error, AgentError::Closed | AgentError::Unreachable { .. });
        if text == self.last_error {
            tracing::debug!(server, %error, "not connected");
        } else if self.expected && away {
            tracing::info!(server, %error, "not connected");
        } else {
            tracing::warn!(server, %error, "not connected");
        }
        self.last_error = text;
    }
}

/// Raises the limit of open files to the hard limit: each attempt takes a connection and a watch. The launcher was
/// forked before, so that no job inherits it.
fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If this fails, launches beyond the limit fail and report it.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Locks the state folder: two agents would both take its attempts for their own.
fn lock(folder: &Path) -> Result<Flock<File>, AgentError> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|e| AgentError::file("make", &path, e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|_| AgentError::AlreadyRunning { path: folder.display().to_string() })
}

fn set_up(
    state: &Path,
    config: &AgentConfig,
    gres_of: Box<GresOfNode>,
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
    let mut replay_guard = HashMap::new();
    let host = Host::open(state, names.first().ok_or(AgentError::NotJoined)?, config.in_pod)?;
    for name in names {
        let node = Node::open(&host, name)?;
        replay_guard.insert(name.clone(), ReplayGuard::open(&node.folder, wall_clock::now())?);
        nodes.insert(name.clone(), node);
    }
    let gate = Gate::new(&credentials.order_key, replay_guard, privilege::only_user())?;
    // SAFETY: a launcher's descriptor is the same one for as long as the launcher is there, and is closed with it.
    let launcher =
        unsafe { AsyncFd::register_with_interest(launcher, tokio::io::Interest::READABLE) }
            .map_err(|e| AgentError::Link(format!("cannot watch the launcher: {e}")))?;
    let (mut machine, notice) = Machine::detect_with_libraries()?;
    if config.booted_now {
        machine.boot_time = u64::try_from(wall_clock::now().secs()).unwrap_or_default();
    }
    if let Some(why) = notice {
        // The monitor finds the same, and tells it.
        tracing::debug!(why, "the GPUs are those that /proc and /sys show");
    }
    Ok(Agent::new(host, nodes, gate, launcher, machine, gres_of))
}

/// The signals that end the agent.
struct Stop {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Does not end it: the agent has no configuration of its own to read again.
    hangup: tokio::signal::unix::Signal,
    /// Whether SIGTERM is the notice that the pod will be gone: the agent works on until then, so that its jobs end before.
    in_pod: bool,
}

impl Stop {
    fn new(in_pod: bool) -> Result<Stop, AgentError> {
        let watch =
            |kind| signal(kind).map_err(|e| AgentError::Link(format!("cannot watch signals: {e}")));
        Ok(Stop {
            terminate: watch(SignalKind::terminate())?,
            interrupt: watch(SignalKind::interrupt())?,
            hangup: watch(SignalKind::hangup())?,
            in_pod,
        })
    }

    async fn requested(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => if !self.in_pod { return },
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => tracing::info!("SIGHUP: settings come from the server"),
            }
        }
    }
}

/// Waits before the next dial, and handles updates of attempts meanwhile.
async fn pause(agent: &mut Agent, length: Duration) -> Result<(), AgentError> {
    let over = sleep(length);
    tokio::pin!(over);
    loop {
        let has_capacity = !agent.reports.is_full();
        tokio::select! {
            () = &mut over => return Ok(()),
            lost = launcher_lost(&agent.launcher) => return Err(lost),
            Some((key, update)) = agent.updates.recv(), if has_capacity => agent.on_update(&key, update),
            Some(login) = agent.logins.recv() => agent.on_login(login),
        }
    }
}
