//! What happened. These are what the journal holds; a release reads those of the release before.

use crate::config::ClusterConfig;
use crate::job::Ended;
use model::account::{Account, Association, Qos};
use model::allocation::Allocation;
use model::array::IndexSet;
use model::attempt::{Ending, PreemptionGrace};
use model::change::{JobField, PartitionChange};
use model::id::{AttemptId, JobId, RunId, StepId};
use model::node::{AdminState, NodeFacts, NodeReason};
use model::principal::Role;
use model::raw_usage::UsageOwner;
use model::reason::Reason;
use model::reservation::Reservation;
use model::run::{ExitStatus, HetComponent, Hold, JobSpec, RunKind, Step, StepEnd, Usage};
use model::time::Timestamp;
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
        ended: Box<Ended>,
    },
    Started(Box<Started>),
    Suspended {
        job: JobId,
        at: Timestamp,
        /// For another job: it goes on by itself when there is room.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        for_room: bool,
    },
    /// It stands still while others that share its cores have their turn.
    TurnOver {
        job: JobId,
        at: Timestamp,
    },
    /// It may go on, and does so when its cores are free.
    ResumeWanted {
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
    StepPartEnded {
        job: JobId,
        step: StepId,
        node: String,
        exit: ExitStatus,
        usage: Usage,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<StepEnd>,
    },
    /// The site's program before the attempt is over on this node.
    PartReady {
        attempt: AttemptId,
        node: String,
    },
    /// The attempt must make room soon; its processes are told.
    Leaving {
        job: JobId,
        leaving: PreemptionGrace,
    },
    /// The attempt is to end; its nodes are told.
    Ending {
        job: JobId,
        ending: Box<Ending>,
        exit: ExitStatus,
    },
    /// Nothing of the attempt is left on this node.
    PartEnded {
        attempt: AttemptId,
        node: String,
        exit: ExitStatus,
        usage: Usage,
        at: Timestamp,
    },
    /// The node does not answer and its part of the attempt was given up.
    PartGivenUp {
        attempt: AttemptId,
        node: String,
    },
    Ended {
        job: JobId,
        ended: Box<Ended>,
    },
    /// The attempt is over and the job waits again.
    Requeued {
        job: JobId,
        ended: Box<Ended>,
        begin: Timestamp,
        hold: Option<Hold>,
        reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        special_exit: bool,
    },
    /// An ended job is to run again.
    Revived {
        job: JobId,
        at: Timestamp,
        hold: Option<Hold>,
        /// Not before this; none: at once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begin: Option<Timestamp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        special_exit: bool,
    },
    /// Ended records that are old enough; the books have them.
    Purged {
        jobs: Vec<JobId>,
    },
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
    StaleGone {
        node: String,
        attempt: AttemptId,
    },
    NodeAdmin {
        node: String,
        admin: Option<AdminState>,
        reason: Option<NodeReason>,
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
    /// A period of usage ended; with `reset` what was spent is forgotten.
    UsageSettled {
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
    },
    /// The token is spent; this certificate speaks for its nodes from now on.
    TokenUsed {
        hash: String,
        nodes: Vec<String>,
        fingerprint: String,
    },
    UserTokenSet(Box<UserToken>),
    ReservationSet(Box<Reservation>),
    ReservationRemoved {
        name: String,
    },
    /// A waiting job asked for a reservation that is gone; `left`: those of its list that are not.
    ReservationLost {
        job: JobId,
        reservation: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left: Option<String>,
        hold: bool,
    },
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
    /// Somebody set it: it is not worked out.
    #[serde(default)]
    pub priority_set: bool,
    /// It starts with others or not at all.
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    pub het: Option<HetComponent>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub attempt: AttemptId,
    /// The array and index, for a task that leaves the pending state with this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<(JobId, u32)>,
    pub allocation: Allocation,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_limit: Option<Timestamp>,
    /// The reservation that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// What it had when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// Somebody waits for the site's programs before it, on all its nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preparing: bool,
    /// The batch step, or the step that `srun` starts with its job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
}

/// A token by its hash, and who it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserToken {
    pub hash: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix_user: Option<String>,
    #[serde(default)]
    pub role: Role,
}
