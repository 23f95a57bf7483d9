//! The agent process. This file has its state: its nodes, their attempts, and what supervisors report. `run` sets it up
//! and dials the server, `session` serves one connection, `orders` carries out orders, `requests` answers requests about
//! attempts, `supervisor_connection` and `liveness` watch the supervisors, `health` checks the nodes.

pub(crate) mod backoff;
mod device_layout;
mod energy;
mod exporter;
mod gpu_usage;
mod gpu_watch;
mod health;
mod liveness;
mod orders;
mod reboot;
mod requests;
mod run;
mod session;
mod supervisor_connection;

use crate::attempt_key::AttemptKey;
use crate::cdi;
use crate::cpu_frequency::SetFrequency;
use crate::detect::Machine;
use crate::error::AgentError;
use crate::launcher::Launcher;
use crate::link::credentials::RenewedCertificate;
use crate::link::reports::ReportQueue;
use crate::login_listener::Login;
use crate::node::facts;
use crate::node::facts::{GresOfNode, MachineLoad};
use crate::node::{Host, Node};
use crate::order_gate::Gate;
use crate::supervisor::folders::scratch::ScratchLocation;
use crate::wall_clock::{self, ServerClock, Skew};
use device_layout::{DeviceLayout, DividedGpus};
use energy::{CpuPart, EnergyMark, EnergyMeter};
use exporter::ExporterWatch;
use gpu_usage::AttemptGpus;
use gpu_watch::GpuWatch;
use health::HealthChecks;
use model::allocation::NodeShare;
use model::id::{CallId, StepId};
use model::limits::{DeviceLine, DeviceUnit};
use model::node::{NodeConfig, NodeFacts};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
pub use run::{AgentConfig, has_joined, run};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use supervisor_connection::{
    AttemptUpdate, ORDERS_MAX, SupervisorSearch, find_supervisor, serve_supervisor,
};
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use wire::link::{NodeHello, NodePolicy, SpooledAttempt, ToServer};
use wire::report::{AttemptEnd, ReportEvent};
use wire::supervisor::{FromSupervisor, SupervisorEvent, ToSupervisor};

/// Updates of attempts, and messages to the server, that may wait.
const UPDATES_MAX: usize = 1024;
/// Nodes of which one heartbeat tells.
const BEAT_NODES_MAX: usize = 512;
/// Logins that may wait.
const LOGINS_MAX: usize = 32;

/// An attempt on one of this agent's nodes, from its launch until the server orders to forget it.
struct AttemptEntry {
    /// `None` if the spool's record cannot be read.
    uid: Option<u32>,
    /// The part of the machine's CPUs that it was granted.
    cpus: CpuPart,
    /// The counters when this agent took it over.
    energy: EnergyMark,
    /// The parts of its steps, with the counters when they began. A step of a former agent is not known any more.
    step_energy: HashMap<StepId, (CpuPart, EnergyMark)>,
    gpus: AttemptGpus,
    divided: DividedGpus,
    /// The share of one that was adopted, until the node's policy says which GPUs those of the share are.
    share: Option<NodeShare>,
    /// The call that submitted the job, for the lines about it.
    call: Option<CallId>,
    /// `None` once its supervisor has ended.
    orders: Option<mpsc::Sender<ToSupervisor>>,
    /// The supervisor's pid, once it has sent it.
    supervisor: Option<i32>,
    /// Its supervisor writes lines of the agent to the job's output.
    takes_notices: bool,
    last_number: u64,
    /// The script's exit, out of memory and timed out, in case the supervisor dies before it reports the attempt's end.
    script: Option<(ExitStatus, bool, bool)>,
    ended: watch::Sender<bool>,
}

/// A line for what a supervisor reports of the whole attempt.
fn log_event(key: &AttemptKey, held: &AttemptEntry, event: &ReportEvent) {
    let (node, attempt, supervisor) = (&key.node, &key.attempt, held.supervisor);
    let call = held.call.as_ref().map(CallId::as_str);
    match event {
        ReportEvent::Started => {
            tracing::info!(node, %attempt, call, supervisor, "supervisor: attempt started");
        }
        ReportEvent::Ended(end) => {
            let exit = end.exit;
            tracing::info!(node, %attempt, call, supervisor, %exit, "supervisor: attempt ended");
        }
        ReportEvent::LaunchFailed { what, .. } => {
            tracing::warn!(node, %attempt, call, supervisor, what, "supervisor: launch failed");
        }
        _ => {}
    }
}

impl AttemptEntry {
    fn new(uid: Option<u32>, cpus: CpuPart, energy: EnergyMark, gpus: Vec<u32>) -> AttemptEntry {
        AttemptEntry {
            uid,
            cpus,
            energy,
            step_energy: HashMap::new(),
            gpus: AttemptGpus::new(gpus),
            divided: DividedGpus::default(),
            share: None,
            call: None,
            orders: None,
            supervisor: None,
            takes_notices: false,
            last_number: 0,
            script: None,
            ended: watch::channel(false).0,
        }
    }

    fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }
}

pub(crate) struct Agent {
    host: Arc<Host>,
    pub nodes: BTreeMap<String, Node>,
    /// The last node that a heartbeat told of.
    last_told: Option<String>,
    attempts: HashMap<AttemptKey, AttemptEntry>,
    pub launcher: AsyncFd<Launcher>,
    gate: Gate,
    pub skew: Skew,
    /// The clock that `skew` is measured against; `None` before the first welcome.
    pub server_clock: Option<ServerClock>,
    pub reports: ReportQueue,
    updates_in: mpsc::Sender<(AttemptKey, AttemptUpdate)>,
    pub updates: mpsc::Receiver<(AttemptKey, AttemptUpdate)>,
    /// Messages for the server that are worthless on another connection.
    pub outgoing: Vec<ToServer>,
    last_reboot: Option<reboot::Reboot>,
    logins_in: mpsc::Sender<Login>,
    pub logins: mpsc::Receiver<Login>,
    health: HealthChecks,
    gpus: GpuWatch,
    exporter: ExporterWatch,
    energy: EnergyMeter,
    layout: DeviceLayout,
    machine: Machine,
    /// What the machine has for each of its nodes.
    hardware: BTreeMap<String, NodeConfig>,
    gres_of: Box<GresOfNode>,
    /// The state folder whose socket this agent offers: where the commands in a job find their server.
    pub client_state: Option<String>,
    /// What its node is to be, where no configuration file names it.
    pub dynamic: Option<Box<NodeConfig>>,
    /// A new certificate, for the next connection.
    pub renewed: Option<RenewedCertificate>,
    started: Timestamp,
    /// What was said last of vendors' files on devices.
    cdi_faults: Vec<String>,
}

impl Agent {
    pub fn new(
        host: Arc<Host>,
        nodes: BTreeMap<String, Node>,
        gate: Gate,
        launcher: AsyncFd<Launcher>,
        machine: Machine,
        gres_of: Box<GresOfNode>,
    ) -> Agent {
        let found = |name: &String| facts::with_own_gres(name, &machine, &*gres_of);
        let hardware = nodes.keys().map(|name| (name.clone(), found(name))).collect();
        let (updates_in, updates) = mpsc::channel(UPDATES_MAX);
        let (logins_in, logins) = mpsc::channel(LOGINS_MAX);
        Agent {
            host,
            nodes,
            last_told: None,
            attempts: HashMap::new(),
            launcher,
            gate,
            skew: Skew::default(),
            server_clock: None,
            reports: ReportQueue::default(),
            updates_in,
            updates,
            outgoing: Vec::new(),
            last_reboot: None,
            logins_in,
            logins,
            health: HealthChecks::new(),
            gpus: GpuWatch::start(),
            exporter: ExporterWatch::start(),
            energy: EnergyMeter::new(),
            layout: DeviceLayout::of(&machine),
            machine,
            hardware,
            gres_of,
            client_state: None,
            dynamic: None,
            renewed: None,
            started: wall_clock::now(),
            cdi_faults: Vec::new(),
        }
    }

    /// Takes over what an earlier agent left: living supervisors, unreported ends, and groups of no known attempt.
    pub async fn adopt(&mut self) -> Result<(), AgentError> {
        let names: Vec<String> = self.nodes.keys().cloned().collect();
        if let Some(state) = self.nodes.values().next().and_then(Node::state) {
            SetFrequency::release_of_other_nodes(state, &|node| self.nodes.contains_key(node));
        }
        let groups = self.host.existing_groups()?;
        for name in names {
            let node = &self.nodes[&name];
            let mut attempts = node.spool.attempts()?;
            if node.has_group(&groups) {
                node.clear_leftover_groups(&attempts)?;
            }
            node.clear_leftover_files(&attempts);
            // A folder without its record was never passed to the launcher.
            for unstarted in attempts.extract_if(.., |a| !node.spool.has_record(*a)) {
                node.spool.remove(unstarted)?;
            }
            if let Some(guard) = self.gate.replay_guard(&name) {
                guard.release_unstarted(&attempts)?;
            }
            for attempt in attempts {
                self.adopt_one(AttemptKey { node: name.clone(), attempt }).await?;
            }
        }
        Ok(())
    }

    async fn adopt_one(&mut self, key: AttemptKey) -> Result<(), AgentError> {
        let dir = self.nodes[&key.node].spool.open_attempt(key.attempt)?;
        let entry = match dir.read_launch() {
            Ok(record) => {
                let (share, call) = (record.launch.share, record.launch.call);
                let entry = self.entry(&key.node, record.launch.user.uid, &share);
                let limits = record.limits.devices.unwrap_or_default();
                let divided = self.adopted_gpus(&limits);
                AttemptEntry { share: Some(share), call, divided, ..entry }
            }
            Err(error) => {
                tracing::warn!(%error, "an attempt's record is damaged; it is taken for lost");
                AttemptEntry::new(None, CpuPart::default(), self.energy.mark(&[]), Vec::new())
            }
        };
        match find_supervisor(&dir).await {
            // A written end counts even if no supervisor's claim is found.
            SupervisorSearch::NeverStarted if matches!(dir.read_status(), Ok(None)) => {
                tracing::info!(node = key.node, attempt = %key.attempt, "found a launch that was never carried out");
                self.nodes[&key.node].spool.remove(key.attempt)?;
                if let Some(guard) = self.gate.replay_guard(&key.node) {
                    guard.release(key.attempt)?;
                }
            }
            SupervisorSearch::Alive(stream) => {
                tracing::info!(node = key.node, attempt = %key.attempt, "found a running attempt");
                self.attempts.insert(key.clone(), entry);
                self.connect_supervisor(key, stream);
            }
            SupervisorSearch::NeverStarted | SupervisorSearch::Gone => {
                self.attempts.insert(key.clone(), entry);
                self.on_closed(&key);
            }
        }
        Ok(())
    }

    /// An attempt whose energy and use of GPUs are counted from now on.
    fn entry(&mut self, node: &str, uid: u32, share: &NodeShare) -> AttemptEntry {
        let gpus = self.gpus_of(node, share);
        let energy = self.energy.mark(&gpus);
        let units = DeviceUnit::granted(share, &self.device_lines(node));
        let divided = self.divided_gpus(&units);
        let cpus = CpuPart::of(&share.cpus, &self.machine);
        let entry = AttemptEntry::new(Some(uid), cpus, energy, gpus);
        AttemptEntry { divided, ..entry }
    }

    /// The numbers of a share's GPUs among the machine's. The GPUs of a declared node are not the machine's.
    fn gpus_of(&self, node: &str, share: &NodeShare) -> Vec<u32> {
        let lines = self.device_lines(node);
        gpu_usage::device_numbers(share, &lines, &self.machine.gpus)
    }

    /// The devices of a node, as far as they are the machine's.
    fn device_lines(&self, node: &str) -> Vec<DeviceLine> {
        let Some(Node { policy, .. }) = self.nodes.get(node) else { return Vec::new() };
        if policy.limits.declared {
            return Vec::new();
        }
        // Before the server has sent the policy, the machine's own devices are taken for the node's; `confirm_gpus` corrects
        // what follows from that.
        let own = || self.hardware.get(node).map(|own| DeviceLine::of_node(&own.gres));
        let lines = Some(policy.limits.devices.clone()).filter(|lines| !lines.is_empty());
        lines.or_else(own).unwrap_or_default()
    }

    /// Removes what the agent leaves behind when it ends: groups and folders of nodes without jobs. Jobs continue.
    pub fn shut_down(&self) {
        self.health.shut_down();
        let groups = self.host.existing_groups().unwrap_or_else(|error| {
            tracing::info!(%error, "the groups of its nodes stay");
            BTreeSet::new()
        });
        for node in self.nodes.values() {
            if node.has_group(&groups)
                && let Err(error) = node.remove_root()
            {
                tracing::info!(node = node.name, %error, "its groups stay");
            }
            node.folders(&node.policy.site).iter().for_each(ScratchLocation::remove);
        }
    }

    /// Starts the task that serves the connection to an attempt's supervisor.
    fn connect_supervisor(&mut self, key: AttemptKey, stream: UnixStream) {
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        if let Some(held) = self.attempts.get_mut(&key) {
            held.orders = Some(orders);
        }
        tokio::spawn(serve_supervisor(key, stream, receiver, self.updates_in.clone()));
    }

    /// The nodes' part of the hello at the start of a session.
    pub fn hello(&mut self) -> Vec<NodeHello> {
        let changes = self.note_conflicts();
        let mut held: HashMap<&str, Vec<SpooledAttempt>> = HashMap::new();
        for (key, entry) in &self.attempts {
            let spooled = SpooledAttempt { attempt: key.attempt, alive: !entry.has_ended() };
            held.entry(&key.node).or_default().push(spooled);
        }
        let load = MachineLoad::read();
        let node = |node: &Node| {
            let mut attempts = held.remove(node.name.as_str()).unwrap_or_default();
            attempts.sort_by_key(|held| held.attempt);
            NodeHello {
                name: node.name.clone(),
                facts: self.facts_of(node, load),
                detected: self.hardware[&node.name].clone(),
                attempts,
                device_change: changes.get(&node.name).cloned(),
                dynamic: self.dynamic.clone(),
            }
        };
        self.nodes.values().map(node).collect()
    }

    /// Measures the difference of the clocks again: this machine's may have been set since the welcome, and orders would be taken
    /// for late.
    pub fn measure_skew(&mut self) {
        let Some(measured) = self.server_clock.map(ServerClock::skew) else { return };
        if self.skew.is_outdated_by(measured) {
            self.skew = measured;
            let ahead_s = measured.noticeable_s().unwrap_or_default();
            tracing::warn!(
                ahead_s,
                "this machine's clock was set; orders and reports are converted anew"
            );
        }
    }

    /// The facts of the next nodes in turn, of all where they are few: that a link lives is all that the server needs to
    /// hear of each of them.
    pub fn heartbeat(&mut self) -> ToServer {
        self.energy.read_packages(Instant::now());
        let after = self.last_told.take().map_or(Bound::Unbounded, Bound::Excluded);
        let load = MachineLoad::read();
        let told = self.nodes.range::<String, _>((after, Bound::Unbounded)).take(BEAT_NODES_MAX);
        let told = told.map(|(name, node)| (name.clone(), self.facts_of(node, load)));
        let told: Vec<(String, NodeFacts)> = told.collect();
        let is_round = self.nodes.keys().next_back() == told.last().map(|(name, _)| name);
        self.last_told = told.last().filter(|_| !is_round).map(|(name, _)| name.clone());
        ToServer::Heartbeat { nodes: told }
    }

    fn facts_of(&self, node: &Node, load: MachineLoad) -> NodeFacts {
        let lacks = facts::not_enforced(node.capabilities(), Some(&node.policy), &node.folder);
        let mut facts = facts::facts(&self.machine, load, self.started, lacks);
        facts.gpus.clone_from(&self.gpus.last);
        facts.power_w = self.energy.power_w();
        facts.mean_power_w = self.energy.mean_power_w(Instant::now());
        facts
    }

    pub fn set_policies(&mut self, policies: BTreeMap<String, NodePolicy>) {
        self.set_health_checks(&policies);
        self.check_cdi_files(&policies);
        self.set_exporter(&policies);
        let mut told = BTreeSet::new();
        for (name, policy) in policies {
            if let Some(node) = self.nodes.get_mut(&name) {
                node.policy = policy;
                told.insert(name);
            }
        }
        self.confirm_gpus(&told);
    }

    /// Says what is wrong with vendors' files, once while it stays so.
    fn check_cdi_files(&mut self, policies: &BTreeMap<String, NodePolicy>) {
        let folders: BTreeSet<&Vec<String>> =
            policies.values().map(|policy| &policy.site.containers.cdi).collect();
        let mut faults: Vec<String> =
            folders.into_iter().flat_map(|folders| cdi::faults(folders)).collect();
        faults.dedup();
        if faults != self.cdi_faults {
            faults.iter().for_each(|fault| tracing::warn!("{fault}"));
            self.cdi_faults = faults;
        }
    }

    /// Sets the GPUs of adopted attempts by their node's first policy. What was counted of others is dropped.
    fn confirm_gpus(&mut self, nodes: &BTreeSet<String>) {
        let of_nodes = self.attempts.iter_mut().filter(|(key, _)| nodes.contains(&key.node));
        let adopted = of_nodes.filter_map(|(key, held)| Some((key.clone(), held.share.take()?)));
        let adopted: Vec<(AttemptKey, NodeShare)> = adopted.collect();
        for (key, share) in adopted {
            let gpus = self.gpus_of(&key.node, &share);
            let energy = self.energy.mark(&gpus);
            if let Some(held) = self.attempts.get_mut(&key)
                && held.gpus.numbers() != gpus
            {
                (held.gpus, held.energy) = (AttemptGpus::new(gpus), energy);
            }
        }
    }

    /// Refuses a server of an older term: it has been replaced.
    pub fn check_term(&self, term: u64) -> Result<(), AgentError> {
        match self.gate.term() {
            seen if term < seen => Err(AgentError::Deposed { term, seen }),
            _ => Ok(()),
        }
    }

    /// Drops a report that is on the server's disk, and tells its supervisor.
    pub fn on_acknowledged(&mut self, serial: u64) {
        let Some(pending) = self.reports.acknowledge(serial) else { return };
        if pending.is_step_end()
            && let Some(orders) =
                self.attempts.get(&pending.key).and_then(|held| held.orders.as_ref())
        {
            // If it is lost, the supervisor sends the event again on its next connection.
            let _ = orders.try_send(ToSupervisor::Acknowledge { number: pending.number });
        }
    }

    pub fn on_update(&mut self, key: &AttemptKey, update: AttemptUpdate) {
        match update {
            AttemptUpdate::Message(FromSupervisor::Event(event)) => self.on_event(key, event),
            AttemptUpdate::Message(FromSupervisor::Hello { pid, takes_notices, .. }) => {
                if let Some(held) = self.attempts.get_mut(key) {
                    held.supervisor = Some(pid);
                    held.takes_notices = takes_notices;
                }
            }
            AttemptUpdate::Message(FromSupervisor::StepAccepted { step }) => {
                let (node, attempt) = (key.node.clone(), key.attempt);
                if self.outgoing.len() < UPDATES_MAX {
                    self.outgoing.push(ToServer::StepAccepted { node, attempt, step });
                }
            }
            AttemptUpdate::Message(FromSupervisor::Measured { request: ask, mut used }) => {
                if let Some(held) = self.attempts.get(key) {
                    for step in &mut used.steps {
                        let gpus = held.gpus.of_step(step.step);
                        gpus.iter().for_each(|gpus| step.used.set_gpus(gpus));
                        let known = held.step_energy.get(&step.step);
                        let used = known.map(|(cpus, mark)| self.energy.used_since(mark, cpus));
                        step.used.set_energy(used.unwrap_or(0));
                    }
                    used.load.gpus = held.gpus.series();
                }
                if self.outgoing.len() < UPDATES_MAX {
                    self.outgoing.push(ToServer::Measured { request: ask, used });
                }
            }
            AttemptUpdate::Message(FromSupervisor::Refused { why }) => {
                tracing::warn!(node = key.node, attempt = %key.attempt, why, "the supervisor refused an order");
            }
            AttemptUpdate::Disconnected => self.on_closed(key),
            AttemptUpdate::Cleared(usage) => self.on_cleared(key, usage),
        }
    }

    fn on_event(&mut self, key: &AttemptKey, mut event: SupervisorEvent) {
        let Some(held) = self.attempts.get_mut(key) else { return };
        if event.number <= held.last_number || held.has_ended() {
            return;
        }
        held.last_number = event.number;
        log_event(key, held, &event.event);
        if let ReportEvent::ScriptEnded { exit, oom, timed_out } = event.event {
            held.script = Some((exit, oom, timed_out));
        }
        let (used, gpus) = match &mut event.event {
            ReportEvent::Ended(end) => {
                end.usage.energy_mj = self.energy.used_since(&held.energy, &held.cpus);
                (end.usage.tasks.as_deref_mut(), held.gpus.whole())
            }
            ReportEvent::StepEnded { step, usage, .. } => {
                if let Some((cpus, mark)) = held.step_energy.remove(step) {
                    usage.energy_mj = self.energy.used_since(&mark, &cpus);
                    let tasks = usage.tasks.iter_mut();
                    tasks.for_each(|tasks| tasks.set_energy(usage.energy_mj));
                }
                (usage.tasks.as_deref_mut(), held.gpus.end_step(*step))
            }
            _ => (None, None),
        };
        if let (Some(used), Some(gpus)) = (used, gpus) {
            used.set_gpus(&gpus);
        }
        if event.is_last() {
            held.ended.send_replace(true);
            held.orders = None;
        }
        self.reports.push(key.clone(), event.number, event.at, event.event);
    }

    /// Handles the end of a supervisor. If it reported the attempt's end or left it in the spool, nothing is lost; else
    /// the attempt's processes are killed.
    fn on_closed(&mut self, key: &AttemptKey) {
        let Some(held) = self.attempts.get_mut(key) else { return };
        held.orders = None;
        if held.has_ended() {
            return;
        }
        let Some(node) = self.nodes.get(&key.node) else { return };
        let status = node.spool.open_attempt(key.attempt).and_then(|dir| dir.read_status());
        match status {
            Ok(status) => status.into_iter().flat_map(|s| s.events).for_each(|event| {
                self.on_event(key, event);
            }),
            Err(error) => tracing::warn!(%error, "an attempt's status cannot be read"),
        }
        if self.attempts.get(key).is_some_and(AttemptEntry::has_ended) {
            return;
        }
        tracing::warn!(node = key.node, attempt = %key.attempt, "the supervisor is lost; killing the attempt");
        let (groups, updates, key) = (
            self.nodes[&key.node].attempt_groups(key.attempt),
            self.updates_in.clone(),
            key.clone(),
        );
        tokio::spawn(async move {
            let cleared = tokio::task::spawn_blocking(move || groups.clear()).await;
            let usage = match cleared {
                Ok(Ok(usage)) => usage,
                Ok(Err(error)) => {
                    // The attempt is not reported as ended, because its processes remain. The next agent tries again.
                    tracing::error!(node = key.node, attempt = %key.attempt, %error, "cannot clear an attempt");
                    return;
                }
                Err(_) => Usage::default(),
            };
            let _ = updates.send((key, AttemptUpdate::Cleared(usage))).await;
        });
    }

    fn on_cleared(&mut self, key: &AttemptKey, usage: Usage) {
        let Some(held) = self.attempts.get(key) else { return };
        let (exit, oom, timed_out) = held.script.unwrap_or_default();
        let end = AttemptEnd { exit, usage, oom, timed_out, supervisor_lost: true };
        let number = held.last_number + 1;
        self.on_event(
            key,
            SupervisorEvent { number, at: wall_clock::now(), event: ReportEvent::Ended(end) },
        );
    }
}
