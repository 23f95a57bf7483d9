//! What is asked of the state machine, and what it answers.

use crate::config::ClusterConfig;
use crate::event::{Event, UserToken};
use model::account::{Account, Association, AssociationKey, Qos};
use model::allocation::NodeShare;
use model::array::ArraySpec;
use model::change::{JobChange, JobFilter, JobRef, NodeChange, PartitionChange};
use model::id::{AttemptId, JobId, RunId, StepId};
use model::node::NodeFacts;
use model::principal::{Principal, Role};
use model::raw_usage::UsageOwner;
use model::reason::Refusal;
use model::reservation_request::ReservationRequest;
use model::run::{ExitStatus, Hold, JobSpec, Usage};
use model::step::StepShape;
use model::time::Timestamp;
use sched::Start;
use sched::view::Preemption;

/// Time and chance, which come in from outside.
#[derive(Debug, Clone)]
pub struct Context {
    pub now: Timestamp,
    pub random: u128,
    /// Who asks; the server itself is root.
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
    /// All of these or none.
    StartTogether(Vec<Start>),
    Preempt(Preempt),
    /// A job that stood still and whose cores are free again goes on.
    Resume {
        job: JobId,
    },
    Cancel(Box<CancelJobs>),
    ChangeJob {
        job: JobRef,
        change: JobChange,
    },
    Relinquish {
        job: JobId,
        exit: ExitStatus,
    },
    /// The client that held the allocation is gone.
    HolderLost {
        job: JobId,
    },
    CreateStep {
        job: JobId,
        ask: Box<StepAsk>,
    },
    Report {
        node: String,
        attempt: AttemptId,
        at: Timestamp,
        what: PartReport,
    },
    NodeHello {
        node: String,
        facts: Box<NodeFacts>,
        held: Vec<(AttemptId, bool)>,
    },
    NodeLost {
        node: String,
    },
    ChangeNode {
        nodes: Vec<String>,
        change: NodeChange,
    },
    ChangePartition {
        name: String,
        change: PartitionChange,
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
    IssueToken {
        hash: String,
        nodes: Vec<String>,
        expires: Timestamp,
    },
    UseToken {
        hash: String,
        fingerprint: String,
    },
    SetUserToken(Box<UserToken>),
    CreateReservation(Box<ReservationRequest>),
    UpdateReservation {
        name: String,
        ask: Box<ReservationRequest>,
    },
    RemoveReservation {
        name: String,
    },
    /// Time has passed: silent nodes, deadlines, patience, old records.
    Tick {
        booked: bool,
    },
}

/// A job is to make room for another.
#[derive(Debug, Clone, Copy)]
pub struct Preempt {
    pub preemption: Preemption,
    /// When that was planned: an attempt that began later is not meant.
    pub planned: Timestamp,
}

#[derive(Debug, Clone)]
pub struct Submit {
    pub spec: JobSpec,
    pub array: Option<ArraySpec>,
    pub hold: Option<Hold>,
    pub priority: Option<u64>,
    /// Further jobs that start with it or not at all.
    pub het_components: Vec<JobSpec>,
    /// Check only: nothing is submitted.
    pub test_only: bool,
}

#[derive(Debug, Clone)]
pub struct CancelJobs {
    pub filter: JobFilter,
    pub step: Option<StepId>,
    /// None: end the jobs.
    pub signal: Option<i32>,
    pub batch_only: bool,
    pub full: bool,
}

/// What a step wants of its job's allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepAsk {
    pub name: String,
    pub tasks: Option<u32>,
    pub nodes: Option<u32>,
    pub tasks_per_node: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub node_list: Vec<String>,
    pub overcommit: bool,
    pub submit_line: String,
    pub shape: StepShape,
}

/// What an agent says of its part of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartReport {
    /// Nothing new: the start itself was journalled before the order went out.
    Started,
    LaunchFailed {
        what: String,
        /// The node's fault and not the job's: with this reason it is drained, and the job runs elsewhere.
        unfit: Option<String>,
        /// Another attempt of the job waits until somebody releases it.
        hold: bool,
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
    /// Per job named: what became of it.
    PerJob(Vec<(String, Result<(), Refusal>)>),
    /// Signals to pass on, which leave no trace in the state; and what was refused.
    Signals {
        signals: Vec<SignalJob>,
        results: Vec<(String, Result<(), Refusal>)>,
    },
    Step(StepPlaced),
    TokenNodes(Vec<String>),
    ReservationCreated {
        name: String,
    },
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
pub struct StepPlaced {
    pub attempt: AttemptId,
    pub step: StepId,
    pub nodes: Vec<(NodeShare, Vec<u32>)>,
    pub cpus_per_task: u32,
    /// It was there already: the asker had not heard the answer.
    pub known: bool,
}

impl From<Vec<Event>> for Decision {
    fn from(events: Vec<Event>) -> Self {
        Self { events, reply: Reply::Done }
    }
}

/// One command for each start; those that start together have one for all.
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
        commands.push(Command::StartTogether(all));
    }
    commands
}
