//! One connection to the server: greeting, then orders in and reports out until it breaks.

mod streams;

use super::Agent;
use super::backoff::Backoff;
use super::silence::SilenceWatch;
use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::launcher::Launcher;
use crate::link::connection::Link;
use crate::link::credentials::RenewedCertificate;
use crate::link::new_key::NewKey;
use crate::link::stream::StreamHandle;
use crate::link::stream_output::StreamOutput;
use crate::network_stack::network_stack;
use crate::wall_clock::ServerClock;
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout};
use wire::frame::{self, Frame};
use wire::link::{
    CHANNEL_CONTROL, CHANNEL_STREAM, Hello, NODES_PER_MESSAGE, RefusedNode, SignedRenewal, ToAgent,
    ToServer, Welcome,
};
use wire::version::{PROTOCOL, compatible};

/// How long a server may take to answer the hello.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer to a renewal is waited for before it is asked for again.
const RENEWAL_PAUSE: Duration = Duration::from_secs(60);
/// Outputs of all streams that may wait to be sent.
const OUTPUTS_MAX: usize = 16;
/// Updates of attempts that are taken in before the messages that they led to are sent.
const UPDATES_AT_ONCE: usize = 256;

/// Returns when the launcher process has ended.
pub(super) async fn launcher_lost(launcher: &AsyncFd<Launcher>) -> AgentError {
    loop {
        match launcher.readable().await {
            Ok(mut ready) if !launcher.get_ref().is_lost() => ready.clear_ready(),
            _ => return AgentError::LauncherLost,
        }
    }
}

/// One connection, from the dial to its end. A server that says nothing any more ends it where `has_others`: there is another
/// address to try.
pub(super) async fn serve(
    agent: &mut Agent,
    (address, has_others): (&str, bool),
    tls: Arc<ClientConfig>,
    mut renewals: Vec<SignedRenewal>,
    backoff: &mut Backoff,
) -> Result<std::convert::Infallible, AgentError> {
    let mut link = Link::dial(address, tls).await?;
    let mut nodes = agent.hello();
    while !nodes.is_empty() {
        let rest = nodes.split_off(nodes.len().min(NODES_PER_MESSAGE));
        let part = std::mem::replace(&mut nodes, rest);
        link.send(&ToServer::Hello(Hello {
            version: PROTOCOL,
            program: format!("sluice {}", wire::version::program()),
            nodes: part,
            more: !nodes.is_empty(),
            renewals: std::mem::take(&mut renewals),
            takes_bytes: true,
            network_stack: network_stack(),
            finds_servers: true,
        }))?;
    }
    link.flush().await?;
    let (welcome, early) = timeout(WELCOME_TIMEOUT, await_welcome(&mut link))
        .await
        .map_err(|_| AgentError::Silent { address: address.to_owned() })??;
    agent.check_term(welcome.term)?;
    let server_clock = ServerClock::told(welcome.now);
    (agent.server_clock, agent.skew) = (Some(server_clock), server_clock.skew());
    if let Some(ahead_s) = agent.skew.noticeable_s() {
        tracing::warn!(
            ahead_s,
            "the server's clock is not this machine's; orders and reports are converted"
        );
    }
    agent.set_policies(welcome.policies);
    agent.reports.reconnect();
    agent.gpus.reconnect();
    backoff.reset();
    agent.keep_refused(&welcome.refused);
    tracing::info!(server = address, term = welcome.term, "connected");
    for RefusedNode { node, why } in &welcome.refused {
        tracing::warn!(node, why, "the server refuses a node of this agent");
    }
    let mut session =
        Session::new(link, Duration::from_millis(welcome.heartbeat_interval_ms.max(100)));
    if let Some(every_ms) = welcome.alive_interval_ms.filter(|_| has_others) {
        let patience = agent.patience.intervals(welcome.term);
        session.silence = SilenceWatch::of(Duration::from_millis(every_ms), patience);
    }
    session.renewal = welcome.renew.map(|at| {
        let wait = u64::try_from(at.millis() - welcome.now.millis()).unwrap_or_default();
        Renewal { due: Instant::now() + Duration::from_millis(wait), key: None }
    });
    session.on_frames(agent, early)?;
    match session.run(agent).await {
        Err(AgentError::Silent { .. }) => {
            agent.patience.lengthen();
            Err(AgentError::Silent { address: address.to_owned() })
        }
        ended => ended,
    }
}

/// Waits for the server's welcome. Returns it and the frames that came with it.
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
    heartbeat: Interval,
    silence: SilenceWatch,
    /// Open streams. They end when the session is dropped.
    streams: HashMap<u32, (AttemptKey, StreamHandle)>,
    outputs_in: mpsc::Sender<(u32, StreamOutput)>,
    outputs: mpsc::Receiver<(u32, StreamOutput)>,
    /// `None` where the server renews no certificates.
    renewal: Option<Renewal>,
}

/// The next certificate.
struct Renewal {
    /// When it is asked for, and asked for again where no answer came.
    due: Instant,
    /// The key that it was asked for.
    key: Option<NewKey>,
}

/// Returns when the next certificate is to be asked for.
async fn renewal_due(renewal: Option<&Renewal>) {
    match renewal {
        Some(renewal) => sleep_until(renewal.due).await,
        None => std::future::pending().await,
    }
}

impl Session {
    fn new(link: Link, every: Duration) -> Session {
        let mut heartbeat = interval(every);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (outputs_in, outputs) = mpsc::channel(OUTPUTS_MAX);
        let (silence, streams) = (SilenceWatch::none(), HashMap::new());
        Session { link, heartbeat, silence, streams, outputs_in, outputs, renewal: None }
    }

    async fn run(&mut self, agent: &mut Agent) -> Result<std::convert::Infallible, AgentError> {
        loop {
            for taken in agent.outgoing.drain(..) {
                self.link.send(&taken)?;
            }
            for report in agent.reports.take_unsent(agent.skew) {
                self.link.send(&ToServer::Report(report))?;
            }
            self.link.flush().await?;
            if std::mem::take(&mut agent.layout.renew) {
                return Err(AgentError::DevicesChanged);
            }
            let has_capacity = !agent.reports.is_full();
            tokio::select! {
                frames = self.link.receive() => {
                    // Also where a long frame is under way on a slow line.
                    self.silence.heard();
                    self.on_frames(agent, frames?)?;
                }
                Some((key, update)) = agent.updates.recv(), if has_capacity => {
                    agent.on_update(&key, update);
                    for _ in 1..UPDATES_AT_ONCE {
                        let Ok((key, update)) = agent.updates.try_recv() else { break };
                        agent.on_update(&key, update);
                    }
                }
                Some((stream, output)) = self.outputs.recv() => self.on_stream_output(stream, output)?,
                Some(login) = agent.logins.recv() => agent.on_login(login),
                round = agent.gpus.next() => agent.on_gpu_round(round),
                found = agent.layout.next() => agent.on_machine(found),
                round = agent.exporter.next() => agent.on_exporter_round(round),
                event = agent.health.next() => agent.on_health(event),
                notice = agent.spot.next() => agent.on_spot_notice(notice),
                found = agent.servers.next() => agent.outgoing.push(found),
                () = renewal_due(self.renewal.as_ref()) => self.ask_for_certificate(agent)?,
                _ = self.heartbeat.tick() => {
                    agent.measure_skew();
                    self.link.send(&agent.heartbeat())?;
                }
                // Its address is known to whoever dialled it.
                () = self.silence.over() => return Err(AgentError::Silent { address: String::new() }),
                lost = launcher_lost(&agent.launcher) => return Err(lost),
            }
        }
    }

    fn ask_for_certificate(&mut self, agent: &Agent) -> Result<(), AgentError> {
        // Only for a person who looks at it; all names of a large machine would not fit into a certificate.
        let key = NewKey::generate(agent.nodes.keys().next().cloned().unwrap_or_default())?;
        self.link.send(&ToServer::Renew { certificate_request: key.request.clone() })?;
        self.renewal = Some(Renewal { due: Instant::now() + RENEWAL_PAUSE, key: Some(key) });
        Ok(())
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
            // An unknown message of a newer server does not close the link.
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
                self.open(agent, stream, AttemptKey { node, attempt }, kind)?;
            }
            ToAgent::StreamEnd { stream, .. } => {
                if let Some((key, StreamHandle::Step { ask, .. })) = self.streams.remove(&stream) {
                    agent.on_client_gone(&key, ask.step, stream);
                }
            }
            ToAgent::Credit { stream, bytes } => {
                if let Some((_, handle)) = self.streams.get_mut(&stream) {
                    handle.credit(bytes);
                }
            }
            ToAgent::Measure { request: ask, node, attempt } => {
                agent.measure(ask, &AttemptKey { node, attempt })
            }
            ToAgent::FindServer { request: ask, node, attempt, port } => {
                agent.find_server(ask, AttemptKey { node, attempt }, port)
            }
            ToAgent::Policies(policies) => agent.set_policies(policies),
            ToAgent::Refused { why } => return Err(AgentError::Refused { why }),
            ToAgent::Renewed { certificate, expires, proof } => {
                if let Some(key) = self.renewal.as_mut().and_then(|renewal| renewal.key.take()) {
                    agent.renewed = Some(RenewedCertificate { key, certificate, expires, proof });
                    return Err(AgentError::CertificateRenewed);
                }
            }
            ToAgent::Welcome(_) | ToAgent::Joined(_) => {}
        }
        Ok(())
    }
}
