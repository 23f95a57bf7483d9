//! The agent process. This file has its state: its nodes, their attempts, and what the server is told of them. `run` sets it up
//! and dials the server (`addresses`, `backoff`), `adoption` takes over what an earlier agent left, `session` serves one connection,
//! `silence` finds out that the server says nothing any more, `orders` carries out orders, `requests` answers requests about attempts, `supervisor_connection` and `liveness` watch the supervisors,
//! `supervisor_events` takes what they report, `health` checks the nodes, `spot_notice` hears that the machine is taken back,
//! `server_finder` looks who listens at the ports of services.

mod addresses;
mod adoption;
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
mod server_finder;
mod session;
mod silence;
mod spot_notice;
mod supervisor_connection;
mod supervisor_events;

use crate::attempt_key::AttemptKey;
use crate::cdi;
use crate::detect::Machine;
use crate::error::AgentError;
use crate::launcher::Launcher;
use crate::link::credentials::RenewedCertificate;
use crate::link::reports::ReportQueue;
use crate::login_listener::Login;
use crate::node::facts::{GresOfNode, MachineLoad};
use crate::node::{Host, Node, facts};
use crate::order_gate::Gate;
use crate::refused_nodes;
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
use model::run::ExitStatus;
use model::time::Timestamp;
pub use run::{AgentConfig, has_joined, run};
use server_finder::ServerFinder;
use silence::Patience;
use spot_notice::SpotWatch;
pub use spot_notice::{SpotCloud, SpotConfig};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;
use supervisor_connection::AttemptUpdate;
use tokio::io::unix::AsyncFd;
use tokio::sync::{mpsc, watch};
use wire::link::{NodeHello, NodePolicy, RefusedNode, SpooledAttempt, ToServer};
use wire::supervisor::ToSupervisor;

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
    spot: SpotWatch,
    servers: ServerFinder,
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
    /// With a server that says nothing.
    pub patience: Patience,
    started: Timestamp,
    /// What was said last of vendors' files on devices.
    cdi_faults: Vec<String>,
    /// What was logged of what its nodes cannot enforce.
    logged_gaps: BTreeSet<String>,
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
            spot: SpotWatch::none(),
            servers: ServerFinder::new(),
            machine,
            hardware,
            gres_of,
            client_state: None,
            dynamic: None,
            renewed: None,
            patience: Patience::new(),
            started: wall_clock::now(),
            cdi_faults: Vec::new(),
            logged_gaps: BTreeSet::new(),
        }
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

    /// Keeps for `sluice doctor` which nodes the server does not take from this agent.
    pub fn keep_refused(&self, refused: &[RefusedNode]) {
        if let Some(state) = self.nodes.values().next().and_then(Node::state) {
            refused_nodes::keep(state, refused);
        }
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
        self.log_gaps();
    }

    /// Says what its nodes cannot hold their jobs to, once while it stays so.
    fn log_gaps(&mut self) {
        let lacks = self.nodes.values().flat_map(|node| {
            facts::not_enforced(node.capabilities(), Some(&node.policy), &node.folder)
        });
        let gaps: BTreeSet<String> = lacks.collect();
        for gap in gaps.difference(&self.logged_gaps) {
            tracing::warn!("not enforced: {gap}");
        }
        self.logged_gaps = gaps;
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
}
