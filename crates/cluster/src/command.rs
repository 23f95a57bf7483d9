//! The commands that the state machine decides on, and its answers.

use crate::config::ClusterConfig;
use crate::event::Event;
use crate::token::UserToken;
use crate::web_session::WebSession;
use model::account::{Account, Association, AssociationKey, Qos};
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::array::ArraySpec;
use model::attempt::EndCause;
use model::backend::Backend;
use model::change::{JobChange, JobFilter, JobRef, NodeChange, PartitionChange};
use model::cloud_fleet::CloudFleet;
use model::container::ContainerNetwork;
use model::cpu_frequency::CpuFrequency;
use model::dynamic_node::FutureMachine;
use model::health::HealthSource;
use model::id::{AttemptId, JobId, RunId, StepId};
use model::ip_network::IpNetwork;
use model::machine::{FailureKind, Offer};
use model::node::{NodeConfig, NodeFacts};
use model::partition::Partition;
use model::power::PowerProgram;
use model::price::Price;
use model::principal::{Principal, Role};
use model::project::{Members, MembersChange};
use model::raw_usage::UsageOwner;
use model::reason::{LaunchFault, Refusal, UserFault};
use model::reservation_request::ReservationRequest;
use model::run::{ExitStatus, Hold, JobSpec, Usage};
use model::secret::Sealed;
use model::ssh_fleet::FleetHost;
use model::step::StepShape;
use model::time::Timestamp;
use model::trigger::{TriggerFilter, TriggerRequest};
use model::volume::{Volume, VolumeId, VolumePlace};
use sched::machines::MachineOrder;
use sched::view::Preemption;
use sched::{Plan, Start};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

/// Time and randomness, which come in from outside: deciding reads no clock.
#[derive(Debug, Clone)]
pub struct Context {
    pub now: Timestamp,
    pub random: u128,
    /// The caller; the server itself is root.
    pub by: Principal,
}

#[derive(Debug, Clone)]
pub enum Command {
    StartTerm {
        term: u64,
    },
    Configure(Box<ClusterConfig>),
    Submit(Box<Submit>),
    Start(Box<Start>),
    /// All components of a het job start, or none.
    StartHetJob(Vec<Start>),
    Preempt(Preempt),
    /// A suspended job whose cores are free again goes on.
    Resume {
        job: JobId,
    },
    Cancel(Box<CancelJobs>),
    ChangeJob {
        job: JobRef,
        change: JobChange,
    },
    DeleteRuns(Vec<EndedRun>),
    Relinquish {
        job: JobId,
        exit: ExitStatus,
    },
    /// A running attempt is to end for good: its GPUs did less than its `utilization_policy` asks for, or nobody was connected to
    /// it for its `inactivity_duration`.
    EndByPolicy {
        attempt: AttemptId,
        cause: EndCause,
    },
    /// The client that held the allocation is gone.
    ClientLost {
        job: JobId,
    },
    CreateStep {
        job: JobId,
        ask: Box<StepRequest>,
    },
    Report {
        node: String,
        attempt: AttemptId,
        at: Timestamp,
        what: AttemptReport,
    },
    NodeHello {
        node: String,
        facts: Box<NodeFacts>,
        held: Vec<(AttemptId, bool)>,
    },
    NodeLost {
        node: String,
    },
    /// What one source found of a node's health; no failure: the node is well.
    NodeHealth {
        node: String,
        source: HealthSource,
        failure: Option<String>,
    },
    ChangeNode {
        nodes: Vec<String>,
        change: NodeChange,
    },
    /// Nodes that no configuration file names.
    CreateNodes(Vec<NodeConfig>),
    /// The agent of a dynamic node says what it has.
    RegisterNode(Box<NodeConfig>),
    DeleteNodes {
        nodes: Vec<String>,
    },
    ChangePartition {
        name: String,
        change: PartitionChange,
    },
    /// A partition that no configuration file names.
    CreatePartition(Box<Partition>),
    RemovePartition {
        name: String,
    },
    SetAccount(Account),
    RemoveAccount {
        name: String,
    },
    SetAssociation(Box<Association>),
    RemoveAssociation(AssociationKey),
    SetQos(Box<Qos>),
    RemoveQos {
        name: String,
    },
    ForgetUsage(UsageOwner),
    SetRole {
        name: String,
        role: Role,
    },
    CreateProject {
        name: String,
    },
    RemoveProject {
        name: String,
    },
    SetMembers {
        project: String,
        members: Members,
        change: MembersChange,
    },
    /// The gateway of a project's services that name none; `None` for the site's.
    SetDefaultGateway {
        project: String,
        gateway: Option<String>,
    },
    SetTrigger(Box<TriggerRequest>),
    ClearTriggers(TriggerFilter),
    /// A trigger has fired and does not stay, or can never fire.
    SettleTrigger {
        id: u32,
    },
    SetFleet(Box<SetFleet>),
    /// The hosts of these numbers leave the fleet; without numbers all of them, and the fleet goes with the last.
    RemoveFleetHosts {
        project: String,
        name: String,
        numbers: Option<Vec<u32>>,
    },
    /// What was found out about the host of a fleet that is this node.
    FleetHost {
        node: String,
        /// The host that it was found out about: the node may be another host's by now.
        id: String,
        report: FleetHostReport,
    },
    SetUser(SetUser),
    RemoveUsers {
        names: Vec<String>,
    },
    IssueToken {
        hash: String,
        nodes: Vec<String>,
        expires: Timestamp,
    },
    /// A join token for the host of a fleet that is this node, if it still is.
    IssueHostToken {
        hash: String,
        node: String,
        id: String,
        expires: Timestamp,
    },
    /// A join token for every node of a pattern, so many times; without a count, once for each name.
    IssueGroupToken {
        hash: String,
        pattern: String,
        count: Option<u32>,
        /// Machines that no configuration file names may become nodes with it.
        dynamic: bool,
        expires: Timestamp,
    },
    UseToken(JoinAttempt),
    /// An agent has proven its certificate, `former`, and is given a new one.
    RenewCertificate {
        nodes: Vec<String>,
        former: String,
        fingerprint: String,
        end: Timestamp,
    },
    /// The node may join once more, though it has a certificate.
    RejoinNode {
        node: String,
    },
    /// The node's certificate is void.
    RemoveAgent {
        node: String,
    },
    SetUserToken(Box<UserToken>),
    /// Makes this the administrator's token, instead of the one before.
    SetAdminToken(Box<UserToken>),
    RevokeToken {
        name: String,
        /// The token's user, where several users have a token of that name.
        user: Option<String>,
    },
    /// A browser signs in or out: a session begins, and those with these hashes end.
    SetWebSessions {
        open: Option<Box<WebSession>>,
        close: Vec<String>,
    },
    SetSecret {
        project: String,
        name: String,
        sealed: Sealed,
    },
    RemoveSecrets {
        project: String,
        names: Vec<String>,
    },
    /// The same values under another key.
    ResealSecrets(Vec<ResealedSecret>),
    /// Makes a backend, or changes it.
    SetBackend(Box<Backend>),
    /// Backends of a project, by kind: all that are named, or none.
    RemoveBackends {
        project: String,
        names: Vec<String>,
    },
    /// `config.yml` names these sources, and no others: what came from it before is removed.
    RetainFileBackends {
        sources: BTreeSet<String>,
    },
    /// The same credentials of a backend under another key. Those that were changed since are left alone.
    ResealBackend {
        source: String,
        before: Sealed,
        after: Sealed,
    },
    /// The same private keys of a fleet under another key, by the form that they had before.
    ResealFleet {
        name: String,
        forms: HashMap<Sealed, Sealed>,
    },
    CreateVolume(Box<CreateVolume>),
    /// The volume is on its way out, unless a job uses it.
    DeleteVolume {
        project: String,
        name: String,
    },
    /// Its node has made or removed the folder of this volume.
    SettleVolume {
        project: String,
        name: String,
        id: VolumeId,
        is_there: bool,
    },
    /// What became of the disk of this volume.
    VolumeReport {
        project: String,
        name: String,
        id: VolumeId,
        report: VolumeReport,
    },
    CreateReservation(Box<ReservationRequest>),
    UpdateReservation {
        name: String,
        ask: Box<ReservationRequest>,
    },
    RemoveReservation {
        name: String,
    },
    /// Nodes are to be looked at that can be powered down, and those that are to be powered up or rebooted.
    PowerSave,
    /// A program of the site was called to its end for these nodes.
    PowerProgramEnded {
        nodes: Vec<String>,
        program: PowerProgram,
    },
    /// A machine is asked of a source. It is journalled before the source is called.
    AskMachine(Box<MachineOrder>),
    /// What became of a machine at its source.
    MachineReport {
        token: String,
        report: MachineReport,
    },
    /// What a source offers now.
    SetOffers {
        source: String,
        offers: Vec<Offer>,
    },
    /// The machine of this node is to go; its jobs end first.
    DeleteMachine {
        node: String,
    },
    /// Time has passed: silent nodes, deadlines, wait policies, old records.
    Tick {
        booked: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineReport {
    /// The source says that it is there, and where it tells it since when.
    Made { id: String, since: Option<Timestamp> },
    /// The source says that none was made.
    NotMade { kind: FailureKind, text: String },
    /// Its agent is a node.
    Joined,
    /// It was not made, or its agent did not join, in the time that it has for it.
    Late { text: String },
    /// The source does not tell of it any more.
    Vanished,
    /// The source says that it will not serve, or serves no more: it found no place, or was evicted.
    Failed { kind: FailureKind, text: String },
    /// The source has deleted it.
    Deleted,
}

/// What is told of the disk of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeReport {
    /// The source says that it is there.
    Made(DiskMade),
    /// The source will not make it, or has lost it.
    Failed {
        text: String,
    },
    /// The source is to attach it to this machine: it is in the journal before the call.
    Attach {
        node: String,
        machine: String,
    },
    /// It is mounted on its node.
    Attached,
    /// It cannot be used on its node.
    AttachFailed {
        text: String,
    },
    /// The source is to detach it.
    Detach,
    Detached,
    /// The source has deleted it.
    Deleted,
}

/// A disk that a source has made or found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskMade {
    pub id: String,
    pub zone: Option<String>,
    pub size: Option<Bytes>,
    pub price: Option<Price>,
    /// The access modes of a claim of Kubernetes; empty for other disks.
    pub access_modes: Vec<String>,
}

/// An agent that wants to join, with a token.
#[derive(Debug, Clone, PartialEq)]
pub struct JoinAttempt {
    pub hash: String,
    /// The fingerprint of the certificate that the agent is given if it is admitted.
    pub fingerprint: String,
    /// The digest of its certificate request. Who asks with the same has the same key: it may be asked again.
    pub request: String,
    pub certificate_end: Timestamp,
    /// Which node it says it is, where the token is for several.
    pub node: Option<String>,
    /// It may be a node that no configuration file names.
    pub dynamic: bool,
    /// It is to be a node with `State=FUTURE` that it is like.
    pub future: Option<Box<FutureMachine>>,
}

/// A fleet as it is asked for. Nothing is known yet of its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetFleet {
    pub project: String,
    pub name: String,
    /// As it is kept: without private keys.
    pub configuration: String,
    pub is_cluster: bool,
    pub hosts: Vec<FleetHost>,
    /// For a fleet of machines that sources make.
    pub cloud: Option<Box<CloudFleet>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetHostReport {
    /// The public key that it, or the host before it, showed at first sight.
    KeySeen { of_jump: bool, key: String },
    /// Why it is not in service; nothing: it is no longer known why not.
    Failed(Option<String>),
    /// Its agent answers, and found this machine.
    Found(Box<NodeConfig>),
    /// Its address in the network of its fleet.
    Address { network: IpNetwork, address: IpAddr },
    /// Nothing of ours is left there.
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateVolume {
    pub project: String,
    pub name: String,
    pub place: VolumePlace,
    pub size: Option<Bytes>,
}

/// A secret whose value was encrypted again. One that was changed since is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResealedSecret {
    pub project: String,
    pub name: String,
    pub before: Sealed,
    pub after: Sealed,
}

/// A job is to give its resources to another.
#[derive(Debug, Clone, Copy)]
pub struct Preempt {
    pub preemption: Preemption,
    /// When it was planned: an attempt that began later is not preempted.
    pub planned: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Submit {
    pub spec: JobSpec,
    pub array: Option<ArraySpec>,
    pub hold: Option<Hold>,
    pub priority: Option<u64>,
    /// The components of a het job after the first: they start with it or not at all.
    pub het_components: Vec<JobSpec>,
    /// Check only: nothing is submitted.
    pub test_only: bool,
    /// Refused while the owner has a run of this name that has not ended.
    pub unique_name: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetUser {
    pub name: String,
    pub role: Role,
    pub email: Option<String>,
    pub active: bool,
    /// Whether the user must not be known yet; else it must.
    pub is_new: bool,
}

/// A run that has ended: in memory, or in the books alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    pub run: RunId,
    pub name: String,
    pub owner: u32,
    pub account: String,
}

#[derive(Debug, Clone)]
pub struct CancelJobs {
    pub filter: JobFilter,
    pub step: Option<StepId>,
    /// The signal to send; none: the jobs are ended.
    pub signal: Option<i32>,
    pub batch_only: bool,
    pub full: bool,
}

/// What a step asks of its job's allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepRequest {
    pub name: String,
    pub tasks: Option<u32>,
    pub nodes: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub node_list: Vec<String>,
    pub overcommit: bool,
    pub submit_line: String,
    pub cpu_frequency: Option<CpuFrequency>,
    /// As `Container::image_of_step` has it.
    pub image: Option<String>,
    /// A session in the place of the job's script, with the script's devices.
    pub joins_script: bool,
    pub shape: StepShape,
}

/// How much the steps of a job have freed until now. A step that had to wait for others has to as long as this is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreedBySteps {
    pub(crate) attempt: u32,
    pub(crate) ended: usize,
    /// The nodes of the job, which may be given up.
    pub(crate) nodes: usize,
}

/// What an agent reports of an attempt on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptReport {
    /// The prolog is over. The start itself was journalled before the order went out.
    Started,
    /// Its container has a network of its own.
    Network(ContainerNetwork),
    LaunchFailed {
        what: String,
        /// The part of the launch that failed.
        fault: LaunchFault,
        /// The node's fault and not the job's: the node is drained with this reason, and the job runs elsewhere.
        unfit: Option<String>,
        /// The next attempt of the job waits until somebody releases it.
        hold: bool,
        /// The job's owner may not run on the node: the next attempt waits until somebody releases it.
        user: Option<UserFault>,
    },
    /// The node is drained with this reason; the attempt goes on.
    Unfit {
        why: String,
    },
    StepEnded {
        step: StepId,
        exit: ExitStatus,
        usage: Usage,
        oom: bool,
    },
    ScriptEnded {
        exit: ExitStatus,
        oom: bool,
        timed_out: bool,
    },
    Ended {
        exit: ExitStatus,
        usage: Usage,
        oom: bool,
        timed_out: bool,
        lost: bool,
    },
    /// The order came too late or twice: the node has nothing of the attempt.
    Missing,
}

#[derive(Debug, Clone, Default)]
pub struct Decision {
    pub events: Vec<Event>,
    pub reply: Reply,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub enum Reply {
    #[default]
    Done,
    Submitted {
        job: JobId,
        run: RunId,
    },
    /// What became of each job that was named.
    PerJob(Vec<(String, Result<(), Refusal>)>),
    /// Signals to deliver, which leave no trace in the state, and the result for each job.
    Signals {
        signals: Vec<SignalJob>,
        results: Vec<(String, Result<(), Refusal>)>,
    },
    Step(StepPlacement),
    TokenNodes(Vec<String>),
    ReservationCreated {
        name: String,
    },
    /// A volume whose folder is to be made or removed.
    Volume(Box<Volume>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalJob {
    pub attempt: AttemptId,
    pub step: Option<StepId>,
    pub signal: i32,
    /// The batch shell alone.
    pub leader_only: bool,
    /// The steps, and not the batch shell.
    pub steps_only: bool,
}

/// Where a step's tasks are: per node its share and the global ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct StepPlacement {
    pub attempt: AttemptId,
    pub step: StepId,
    pub nodes: Vec<(NodeShare, Vec<u32>)>,
    pub cpus_per_task: u32,
    /// The step existed already: its client had not received the first answer.
    pub known: bool,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self { events, reply: Reply::Done }
    }
}

/// One command for each start; the components of a het job have one for all.
pub fn start_commands(starts: Vec<Start>) -> Vec<Command> {
    let mut commands = Vec::with_capacity(starts.len());
    let mut starts = starts.into_iter().peekable();
    while let Some(start) = starts.next() {
        let Some(het) = start.het else {
            commands.push(Command::Start(Box::new(start)));
            continue;
        };
        let mut all = vec![start];
        let of_group = |s: &Start| s.het.is_some_and(|of| of.first == het.first);
        while let Some(next) = starts.next_if(of_group) {
            all.push(next);
        }
        commands.push(Command::StartHetJob(all));
    }
    commands
}

/// The commands that carry out a plan which was made at `planned`.
pub fn plan_commands(plan: Plan, planned: Timestamp) -> Vec<Command> {
    let preempt = |preemption| Command::Preempt(Preempt { preemption, planned });
    let resumes = plan.resumes.into_iter().map(|job| Command::Resume { job });
    let preemptions = plan.preemptions.into_iter().map(preempt);
    resumes.chain(start_commands(plan.starts)).chain(preemptions).collect()
}
