//! Events of the state machine. The journal holds these events, and a release reads those of the release before: a renamed field or
//! variant keeps its serialised name.

use crate::config::ClusterConfig;
use crate::membership::{JoinGroup, JoinRecord};
use crate::state::job::{EndRecord, Retries};
use crate::token::UserToken;
use crate::web_session::WebSession;
use model::account::{Account, Association, Qos};
use model::activity::Activity;
use model::allocation::Allocation;
use model::array::IndexSet;
use model::attempt::{Ending, PreemptionGrace};
use model::backend::Backend;
use model::change::{JobField, PartitionChange};
use model::container::ContainerNetwork;
use model::dynamic_node::DynamicNode;
use model::health::HealthSource;
use model::id::{AttemptId, JobId, RunId, StepId};
use model::machine::{Machine, Offer};
use model::node::{AdminState, NodeFacts};
use model::node_reason::NodeReason;
use model::partition::Partition;
use model::power::PowerState;
use model::principal::Role;
use model::project::{KnownUser, Project};
use model::raw_usage::UsageOwner;
use model::reason::{LaunchFailure, Reason};
use model::reservation::Reservation;
use model::run::{ExitStatus, HetComponent, Hold, JobSpec, RunKind, Step, StepEnd, Usage};
use model::secret::Sealed;
use model::ssh_fleet::{FleetHost, SshFleet};
use model::time::Timestamp;
use model::trigger::Trigger;
use model::volume::Volume;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A server took over: every node is silent until it says hello again.
    TermStarted {
        term: u64,
        at: Timestamp,
    },
    /// The state was restored from a backup: what happened after it is not known. A server took over, as with
    /// [`Event::TermStarted`], and ids below `next_job` may have been given out.
    Restored {
        term: u64,
        next_job: u32,
        at: Timestamp,
        /// Jobs of the backup start before all nodes have said what they run.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        start_at_once: bool,
    },
    /// The end of the journal is gone: what happened in it is not known. A server took over, as with [`Event::TermStarted`];
    /// ids below `next_job` and numbers of activities up to `activities` may have been given out.
    HistoryLost {
        term: u64,
        next_job: u32,
        activities: u64,
        at: Timestamp,
    },
    /// What these nodes may still run of the history that is not known is waited for no longer.
    RestoreWaitEnded {
        nodes: Vec<String>,
    },
    Configured {
        config: Box<ClusterConfig>,
        at: Timestamp,
    },
    Submitted(Box<Submitted>),
    Held {
        job: JobId,
        by: Hold,
    },
    Released {
        job: JobId,
    },
    Changed {
        job: JobId,
        fields: Vec<JobField>,
        at: Timestamp,
    },
    /// A pending task of an array gets a record and an id of its own.
    TaskSplit {
        array: JobId,
        index: u32,
        job: JobId,
    },
    /// Pending tasks that will never run; the array's record goes with the last.
    TasksCancelled {
        array: JobId,
        indices: IndexSet,
        ended: Box<EndRecord>,
    },
    Started(Box<Started>),
    Suspended {
        job: JobId,
        at: Timestamp,
        /// For a job that preempts it: it resumes by itself when its cores are free.
        #[serde(default, rename = "for_room", skip_serializing_if = "std::ops::Not::not")]
        for_preemption: bool,
    },
    /// The job is suspended while others that share its cores have their time slice.
    #[serde(rename = "turn_over")]
    GangSuspended {
        job: JobId,
        at: Timestamp,
    },
    /// The job resumes when its cores are free.
    #[serde(rename = "resume_wanted")]
    ResumeRequested {
        job: JobId,
    },
    Resumed {
        job: JobId,
        at: Timestamp,
    },
    StepStarted {
        job: JobId,
        step: Box<Step>,
    },
    /// One node has reported a step's end; with `end` it was the last.
    #[serde(rename = "step_part_ended")]
    StepEndedOnNode {
        job: JobId,
        step: StepId,
        node: String,
        exit: ExitStatus,
        usage: Usage,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<StepEnd>,
    },
    /// The prolog is over on this node.
    #[serde(rename = "part_ready")]
    PrologEndedOnNode {
        attempt: AttemptId,
        node: String,
        /// How much of the attempt's pull credit its pull has taken, where this node was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pull_credit_ms: Option<u64>,
    },
    /// The attempt's container has a network of its own.
    NetworkMade {
        attempt: AttemptId,
        network: ContainerNetwork,
    },
    /// The attempt is preempted after a grace time; its processes are signalled.
    #[serde(rename = "leaving")]
    PreemptionGraceStarted {
        job: JobId,
        leaving: PreemptionGrace,
    },
    /// The attempt is to end; its nodes get the order.
    Ending {
        job: JobId,
        ending: Box<Ending>,
        exit: ExitStatus,
        /// The one of several nodes whose part of it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed_node: Option<String>,
    },
    /// Nothing of the attempt is left on this node.
    #[serde(rename = "part_ended")]
    AttemptEndedOnNode {
        attempt: AttemptId,
        node: String,
        exit: ExitStatus,
        usage: Usage,
        at: Timestamp,
        /// Why the node could not start it, in the node's words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<LaunchFailure>,
    },
    /// The node does not answer: its share of the attempt counts as free, and the attempt as stale there.
    #[serde(rename = "part_given_up")]
    AttemptAbandonedOnNode {
        attempt: AttemptId,
        node: String,
    },
    Ended {
        job: JobId,
        ended: Box<EndRecord>,
    },
    /// The attempt is over and the job waits again.
    Requeued {
        job: JobId,
        ended: Box<EndRecord>,
        begin: Timestamp,
        hold: Option<Hold>,
        reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        special_exit: bool,
        #[serde(default, skip_serializing_if = "Retries::is_none")]
        retries: Retries,
    },
    /// An ended job is to run again.
    #[serde(rename = "revived")]
    EndedJobRequeued {
        job: JobId,
        at: Timestamp,
        hold: Option<Hold>,
        /// The earliest start; none: at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begin: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        special_exit: bool,
        #[serde(default, skip_serializing_if = "Retries::is_none")]
        retries: Retries,
        /// Who asked for it: the user's number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<u32>,
    },
    /// Records of ended jobs that are old enough to leave memory; the books have them.
    Purged {
        jobs: Vec<JobId>,
    },
    /// Lists of runs leave these out from now on.
    RunsDeleted {
        runs: Vec<RunId>,
    },
    ProjectSet {
        name: String,
        project: Project,
    },
    DefaultGatewaySet {
        project: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gateway: Option<String>,
    },
    UserSet {
        name: String,
        user: KnownUser,
    },
    UserRemoved {
        name: String,
    },
    /// Something for the list of events.
    Noted(Box<Activity>),
    NodeUp {
        node: String,
        facts: Box<NodeFacts>,
        stale: Vec<AttemptId>,
        at: Timestamp,
    },
    NodeSilent {
        node: String,
        at: Timestamp,
    },
    NodeDown {
        node: String,
        reason: NodeReason,
        at: Timestamp,
    },
    #[serde(rename = "stale_gone")]
    StaleAttemptGone {
        node: String,
        attempt: AttemptId,
    },
    NodeAdmin {
        node: String,
        admin: Option<AdminState>,
        reason: Option<NodeReason>,
    },
    /// No reason: it stays as it is.
    NodePower {
        node: String,
        power: PowerState,
        at: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<NodeReason>,
    },
    /// What one source found of a node's health changed; no failure: the node is well.
    NodeHealth {
        node: String,
        source: HealthSource,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
    },
    NodeSet {
        node: String,
        weight: Option<u32>,
        features: Option<Vec<String>>,
    },
    PartitionSet {
        partition: String,
        change: PartitionChange,
    },
    PartitionCreated(Box<Partition>),
    PartitionRemoved {
        name: String,
    },
    AccountSet(Account),
    AccountRemoved {
        name: String,
    },
    AssociationSet(Box<Association>),
    AssociationRemoved {
        account: String,
        user: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        partition: Option<String>,
    },
    QosSet(Box<Qos>),
    QosRemoved {
        name: String,
    },
    /// A period of usage ended: raw usage decays, or with `reset` begins from nothing.
    #[serde(rename = "usage_settled")]
    UsagePeriodEnded {
        at: Timestamp,
        #[serde(default)]
        reset: bool,
    },
    UsageForgotten(UsageOwner),
    RoleSet {
        name: String,
        role: Role,
    },
    TokenIssued {
        hash: String,
        nodes: Vec<String>,
        expires: Timestamp,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        made: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<JoinGroup>,
    },
    /// The join token was used; this certificate identifies its nodes from now on.
    TokenUsed {
        hash: String,
        nodes: Vec<String>,
        fingerprint: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<JoinRecord>,
        /// The digest of the certificate request; empty in journals of before it was kept.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        request: String,
        /// The same request had been answered before: the token is not spent once more.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        repeated: bool,
    },
    /// This certificate identifies the nodes from now on, beside the one before.
    CertificateRenewed {
        nodes: Vec<String>,
        former: String,
        fingerprint: String,
        end: Timestamp,
        at: Timestamp,
    },
    RejoinAllowed {
        node: String,
        until: Timestamp,
    },
    /// No certificate identifies the node any more.
    AgentRemoved {
        node: String,
    },
    /// A join token was revoked, or has expired and is forgotten.
    JoinTokenRemoved {
        hash: String,
    },
    UserTokenSet(Box<UserToken>),
    /// It is kept to tell its holder.
    UserTokenRevoked {
        hash: String,
        at: Timestamp,
    },
    /// A token that had ended is forgotten.
    UserTokenRemoved {
        hash: String,
    },
    WebSessionOpened(Box<WebSession>),
    /// Somebody signed out, or the session's time is over.
    WebSessionClosed {
        hash: String,
    },
    SecretSet {
        project: String,
        name: String,
        sealed: Sealed,
        by: String,
        at: Timestamp,
    },
    SecretRemoved {
        project: String,
        name: String,
        by: String,
        at: Timestamp,
    },
    BackendSet(Box<Backend>),
    BackendRemoved {
        source: String,
    },
    VolumeSet {
        project: String,
        name: String,
        volume: Box<Volume>,
    },
    VolumeRemoved {
        project: String,
        name: String,
        /// When the disk of a cloud was gone: it has cost until then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Timestamp>,
    },
    TriggerSet(Box<Trigger>),
    TriggerRemoved {
        id: u32,
    },
    /// Dynamic nodes are there, or are otherwise than before.
    DynamicNodesSet {
        nodes: Vec<DynamicNode>,
        at: Timestamp,
    },
    DynamicNodesRemoved {
        nodes: Vec<String>,
    },
    /// A machine was asked for, or is otherwise than before.
    MachineSet(Box<Machine>),
    /// What a source offers from now on.
    OffersSet {
        source: String,
        offers: Vec<Offer>,
    },
    FleetSet {
        fleet: Box<SshFleet>,
        at: Timestamp,
    },
    FleetHostSet {
        fleet: String,
        number: u32,
        host: Box<FleetHost>,
        at: Timestamp,
    },
    /// Nothing of ours is left on a host that was on its way out.
    FleetHostRemoved {
        fleet: String,
        number: u32,
    },
    FleetRemoved {
        name: String,
    },
    ReservationSet(Box<Reservation>),
    ReservationRemoved {
        name: String,
    },
    /// A waiting job asked for a reservation that is gone; `remaining` lists the others that it asked for.
    ReservationLost {
        job: JobId,
        reservation: String,
        #[serde(default, rename = "left", skip_serializing_if = "Option::is_none")]
        remaining: Option<String>,
        hold: bool,
    },
}

impl Event {
    /// Whether it gives a job id out: the id must be below the durable high-water mark.
    pub fn gives_job_id(&self) -> bool {
        match self {
            Self::Submitted(_) | Self::TaskSplit { .. } => true,
            Self::Started(started) => started.task.is_some(),
            _ => false,
        }
    }

    /// Whether a plan that is made after it could differ from the one before.
    pub fn may_start_jobs(&self) -> bool {
        if let Self::Submitted(submitted) = self {
            return submitted.hold.is_none();
        }
        !matches!(
            self,
            Self::Started(_)
                | Self::StepStarted { .. }
                | Self::StepEndedOnNode { .. }
                | Self::Ending { .. }
                | Self::Held { .. }
                | Self::Purged { .. }
                | Self::RunsDeleted { .. }
                | Self::Noted(_)
                | Self::UserSet { .. }
                | Self::UserRemoved { .. }
                | Self::TokenIssued { .. }
                | Self::TokenUsed { .. }
                | Self::CertificateRenewed { .. }
                | Self::RejoinAllowed { .. }
                | Self::AgentRemoved { .. }
                | Self::JoinTokenRemoved { .. }
                | Self::UserTokenSet(_)
                | Self::UserTokenRevoked { .. }
                | Self::UserTokenRemoved { .. }
                | Self::WebSessionOpened(_)
                | Self::WebSessionClosed { .. }
                | Self::SecretSet { .. }
                | Self::SecretRemoved { .. }
                | Self::TriggerSet(_)
                | Self::TriggerRemoved { .. }
                | Self::MachineSet(_)
                | Self::VolumeSet { .. }
                | Self::VolumeRemoved { .. }
        )
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Submitted {
    pub job: JobId,
    pub run: RunId,
    pub kind: RunKind,
    pub spec: Arc<JobSpec>,
    pub account: Arc<str>,
    pub qos: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<IndexSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    pub priority: u64,
    /// Somebody set the priority: it is not computed.
    #[serde(default)]
    pub priority_set: bool,
    /// How long it is expected to run, where priorities depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<u32>,
    /// The job's place in a het job.
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    pub het: Option<HetComponent>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub attempt: AttemptId,
    /// The array and index, for a task that leaves the array's pending set with this start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<(JobId, u32)>,
    pub allocation: Arc<Allocation>,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_limit: Option<Timestamp>,
    /// How much of the time until `end_limit` is for the pull of the image alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_credit_ms: Option<u64>,
    /// The reservation that the attempt runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// The job's priority at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// Something waits until the prolog is over on all nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preparing: bool,
    /// The batch step, or the step that `srun` starts with its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}
