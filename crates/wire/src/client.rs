//! The calls of clients and the server's answers: `POST /api/v1/call`, JSON both ways.

use crate::agent_view::{AgentView, NewNodes};
use crate::byte_text::ByteText;
pub use crate::call_body::{
    Cancel, CancelResult, CreateStep, Detail, GroupTexts, JobUsage, JobsQuery, LOADS_MAX,
    NodeOutage, Offer, QueueHead, QueueOrder, SERVER_SILENCE_MS, STANDBY_LAG_HEADER, ServerView,
    StepUsage, Submission, SubmitForecast, WebLinkQuery,
};
use crate::diagnostics::{DiagnosticsView, LogLevel};
use crate::explain::{ExplainQuery, ExplainedJob};
use crate::fleet::{FleetConfiguration, FleetView};
use crate::gateway::{GatewayReport, GatewayRoutes};
use crate::job_list::JobList;
use crate::machine::MachinesView;
use crate::project::ProjectView;
use crate::reservation::{LicenseView, ReservationsView};
use crate::ssh::{SshAnswer, SshRequest};
use crate::step::{SrunPrologEpilog, StepLaunch, StepLayout};
use crate::token::{LoginHint, TokenLife, TokenView};
use crate::version::VersionsView;
use crate::view::{
    AccountsView, ClusterView, ConfigView, JobView, PrioritiesView, SharesView, SubmitChoices,
    UnknownNames,
};
use crate::volume::VolumeView;
use crate::what_if::{WhatIfQuery, WhatIfView};
use model::account::{Account, Association, AssociationKey, Qos};
use model::activity::{Activity, ActivityFilter};
use model::allocation::Allocation;
use model::amount::Bytes;
use model::change::{JobChange, JobRef, NodeChange, PartitionChange};
use model::id::{CallId, JobId, RunId, StepId};
use model::partition::Partition;
use model::project::{Members, MembersChange};
use model::raw_usage::UsageOwner;
use model::reason::{PartitionBound, Reason, Refusal};
pub use model::record::HistoryFilter;
use model::record::JobRecord;
use model::reservation_request::ReservationRequest;
use model::run::{ExitStatus, JobState, Outcome};
use model::secret::SecretValue;
use model::time::Timestamp;
use model::trigger::{Trigger, TriggerFilter, TriggerRequest};
pub use model::usage_report::{UsageQuery, UsageReport};
use model::volume::VolumePlace;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The largest request that the server reads.
pub const REQUEST_BYTES_MAX: usize = model::bounds::REQUEST_BYTES.most;

/// The largest script: Slurm's own bound.
pub const SCRIPT_BYTES_MAX: usize = model::bounds::SCRIPT_BYTES.most;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    pub version: u32,
    /// The id under which logs have the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<CallId>,
    pub call: Call,
}

impl Envelope {
    /// A call of this version, without an id.
    pub fn new(call: Call) -> Self {
        Self { version: crate::version::PROTOCOL, id: None, call }
    }
}

/// What [`Call::KeptText`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptText {
    Script,
    /// `NAME=value`, ended by NUL each.
    Environment,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Ping,
    Submit(Box<Submission>),
    /// The same submission once more, under the id of the first call, whose answer was lost: the job that it has become is
    /// answered, and one is made only where there is none. A call of its own, so that a server that does not know it makes none.
    Resubmit(Box<Submission>),
    /// Checks, and says when it would start; changes nothing.
    TestSubmit(Box<Submission>),
    /// Answered when the job has started or ended, or when `timeout_ms` has passed.
    AwaitStart {
        job: JobId,
        timeout_ms: u64,
        /// Waits also for the prologs on all its nodes, where the site has them waited for.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ready: bool,
    },
    /// Answered when the job (or every task of the array) has ended.
    AwaitEnd {
        job: JobId,
        timeout_ms: u64,
    },
    /// Answered when the number of commits is another than `seen`, or when `timeout_ms` has passed; at once without `seen`.
    AwaitCommit {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<u64>,
        timeout_ms: u64,
    },
    Jobs(JobsQuery),
    QueueHead(QueueHead),
    Cluster,
    Config,
    Cancel(Cancel),
    UpdateJob {
        job: JobRef,
        change: JobChange,
    },
    UpdateNode {
        nodes: Vec<String>,
        change: NodeChange,
    },
    UpdatePartition {
        name: String,
        change: PartitionChange,
    },
    /// `scontrol create PartitionName=…`: until a changed configuration is read.
    CreatePartition(Box<Partition>),
    /// `scontrol delete PartitionName=…`
    DeletePartition {
        name: String,
    },
    /// Read the configuration again. `files` holds what the client read of the folder, for a server
    /// whose user may not read it; by name.
    Reconfigure {
        files: Option<BTreeMap<String, String>>,
    },
    History(HistoryFilter),
    /// `sreport`: what was used in a period.
    UsageReport(Box<UsageQuery>),
    /// Runs that have ended leave the lists of runs; the books keep them.
    DeleteRuns {
        runs: Vec<RunId>,
    },
    /// What was done beside the jobs, the oldest first.
    Activities,
    /// The audit trail of the books: `sacctmgr show transactions` and `show event`. Operators are shown all, others what they did
    /// themselves and what became of nodes.
    ActivityHistory(ActivityFilter),
    /// `sstat`: what the running steps of these jobs use now.
    Usage {
        jobs: Vec<JobRef>,
        /// Also their load on each node until now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        load: bool,
    },
    /// A job's script, for its owner and administrators alone.
    Script {
        job: JobId,
    },
    /// The script or environment of a job in memory or in the books, for its owner and administrators alone.
    KeptText {
        job: JobRef,
        of: KeptText,
    },
    CreateStep(Box<CreateStep>),
    /// Withdraws a step that waits.
    LeaveStep {
        job: JobId,
        ticket: u64,
    },
    /// Repeats the launch of a step that exists: the server that took it may be gone.
    LaunchStep {
        job: JobId,
        step: StepId,
        launch: Box<StepLaunch>,
    },
    SignalStep {
        job: JobId,
        step: StepId,
        signal: i32,
    },
    /// The client that holds an allocation lets go of it, with its own exit code.
    Relinquish {
        job: JobId,
        exit: ExitStatus,
    },
    Accounts,
    /// `sshare`: what each association was promised and has used.
    Shares,
    /// `sprio`: what the priorities of pending jobs are made of.
    Priorities,
    /// What the caller may name at a submit, after a name was refused.
    SubmitChoices,
    SetAccount(Account),
    RemoveAccount {
        name: String,
    },
    SetAssociation(Association),
    RemoveAssociation(AssociationKey),
    SetQos(Qos),
    RemoveQos {
        name: String,
    },
    Triggers,
    SetTrigger(Box<TriggerRequest>),
    ClearTriggers(TriggerFilter),
    SetRole {
        name: String,
        role: model::principal::Role,
    },
    /// The projects of which the caller is a member; an operator sees all.
    Projects,
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
    /// The gateway of a project's services that name none, one that runs; `None` for the site's.
    SetDefaultGateway {
        project: String,
        gateway: Option<String>,
    },
    /// `RawUsage=0`: what an account and all below it, or a QOS, have used is forgotten.
    ForgetUsage(UsageOwner),
    /// A one-time join file for these nodes.
    NodeToken {
        nodes: Vec<String>,
        #[serde(default, skip_serializing_if = "TokenLife::is_usual")]
        life: TokenLife,
    },
    /// A join file for every node of a pattern, so many times; without a count, once for each name.
    GroupToken {
        pattern: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        count: Option<u32>,
        /// Machines that no configuration file names may become nodes with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        dynamic: bool,
        #[serde(default, skip_serializing_if = "TokenLife::is_usual")]
        life: TokenLife,
    },
    /// The machines and their agents.
    Agents,
    /// A node that has joined may join once more.
    RejoinNode {
        name: String,
    },
    /// `scontrol create NodeName=…`
    CreateNodes(Box<NewNodes>),
    /// `scontrol delete NodeName=…`
    DeleteNodes {
        nodes: Vec<String>,
    },
    /// Voids the certificate of a node's agent, and ends its connection.
    RemoveNode {
        name: String,
    },
    UserToken {
        name: String,
        account: Option<String>,
        unix_user: Option<String>,
        /// The most that its holder may do.
        role: Option<model::principal::Role>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token_name: Option<String>,
        #[serde(default, skip_serializing_if = "TokenLife::is_usual")]
        life: TokenLife,
    },
    /// `scontrol token`: for Slurm's REST API. A JSON Web Token where the site has `AuthAltTypes=auth/jwt`, else a token as
    /// [`Call::UserToken`] makes it.
    RestToken {
        /// `None` for the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
        life_s: u64,
    },
    /// One's own tokens; an administrator sees all.
    Tokens,
    RevokeToken {
        name: String,
        user: Option<String>,
    },
    /// The administrator's token is the one with this hash from now on.
    RotateAdminToken {
        hash: String,
        /// The token itself, where several servers share it: sealed, in their database.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<SecretValue>,
    },
    /// Keys for the SSH endpoint, one's own; an administrator may name another user.
    Ssh {
        user: Option<String>,
        request: SshRequest,
        /// The job that a client is about to enter. The answer refuses it to whom the job is not for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job: Option<JobId>,
    },
    /// The names of a project's secrets.
    Secrets {
        project: String,
    },
    /// One secret, with its value.
    Secret {
        project: String,
        name: String,
    },
    SetSecret {
        project: String,
        name: String,
        value: SecretValue,
    },
    RemoveSecrets {
        project: String,
        names: Vec<String>,
    },
    /// Encrypts every secret with a new key.
    RotateSecretKey,
    /// A link that opens a web page of a job in a browser, once.
    WebLink(WebLinkQuery),
    /// What a gateway passes on; answered with its routes. For tokens of the role `gateway`.
    SyncGateway(GatewayReport),
    /// The volumes of a project.
    Volumes {
        project: String,
    },
    /// Makes a volume; answered when its folder is there.
    CreateVolume {
        project: String,
        name: String,
        place: VolumePlace,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<Bytes>,
    },
    /// Deletes a volume and its files; answered when they are gone.
    DeleteVolume {
        project: String,
        name: String,
    },
    /// Machines on demand and their sources, for operators.
    Machines,
    /// Deletes a machine, named by its node or its token; its jobs end first.
    DeleteMachine {
        name: String,
    },
    /// Makes a backend of a project, or changes it: a source of machines, in dstack's words, with its credentials.
    SetBackend {
        project: String,
        config_yaml: SecretValue,
    },
    /// Removes backends of a project, by their types: all that are named, or none.
    RemoveBackends {
        project: String,
        names: Vec<String>,
    },
    /// The fleets over SSH of the caller's projects.
    Fleets,
    /// Makes a fleet over SSH, or changes it in place.
    ApplyFleet {
        project: String,
        configuration: FleetConfiguration,
    },
    /// Removes hosts of a fleet, or without numbers all of it.
    RemoveFleetHosts {
        project: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        numbers: Option<Vec<u32>>,
    },
    Reservations,
    Licenses,
    CreateReservation(Box<ReservationRequest>),
    UpdateReservation {
        name: String,
        ask: Box<ReservationRequest>,
    },
    RemoveReservation {
        name: String,
    },
    /// What would be granted, without submitting: dstack's plan.
    Offers(Box<Submission>),
    /// Why jobs wait.
    Explain(ExplainQuery),
    /// What would change for the jobs that wait if nodes came or went.
    WhatIf(WhatIfQuery),
    /// `sdiag`; `reset` sets the counters back.
    Diagnostics {
        reset: bool,
    },
    /// Which versions run where.
    Versions,
    /// `scontrol takeover`, `sluice server handover`: the leader gives the lead up to a server that waits.
    Handover,
    /// `scontrol setdebug`: how much the server logs, until its next start.
    SetLogLevel {
        level: LogLevel,
    },
}

/// The path of calls, whose answers are whole.
pub const CALL_PATH: &str = "/api/v1/call";

/// Where a backup is streamed from.
pub const BACKUP_PATH: &str = "/api/v1/backup";

/// What Prometheus reads.
pub const METRICS_PATH: &str = "/metrics";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Pong {
        version: String,
        now: Timestamp,
        hostname: String,
        /// Whom the server takes the caller for.
        #[serde(default)]
        user: String,
        /// The servers of the cluster, where there may be several.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        servers: Vec<ServerView>,
        /// What the server cannot do with the database that it shares with others.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        store_fault: Option<String>,
    },
    Done,
    Submitted {
        job: JobId,
        run: RunId,
        name: String,
        #[serde(default, rename = "programs", skip_serializing_if = "SrunPrologEpilog::is_none")]
        srun_prolog_epilog: SrunPrologEpilog,
        /// It asks for more nodes than any of its partitions gives a job, and waits until that changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beyond_partition: Option<PartitionBound>,
        /// The same of its time limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        beyond_time: Option<PartitionBound>,
        /// What it names that the cluster does not know, and takes all the same.
        #[serde(default, skip_serializing_if = "UnknownNames::is_empty")]
        unknown_names: UnknownNames,
    },
    Tested(Vec<SubmitForecast>),
    /// `allocation` once it has started; the reason while it waits.
    Start {
        state: JobState,
        reason: Reason,
        allocation: Option<Allocation>,
        view: Box<JobView>,
    },
    End {
        ended: bool,
        exit: ExitStatus,
        outcome: Option<Outcome>,
        /// Why it ended so, where the state alone does not say it.
        #[serde(default, skip_serializing_if = "Reason::is_none")]
        reason: Reason,
    },
    /// How many commits this server has made. A count of before its start says nothing.
    Commits {
        count: u64,
    },
    Jobs {
        now: Timestamp,
        jobs: JobList,
    },
    /// The counts are of all jobs of the users that were asked for.
    QueueHead {
        now: Timestamp,
        running: u64,
        waiting: u64,
        /// How many of them the filter leaves; `None` of a server that knows neither filters nor orders.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        matching: Option<u64>,
        /// Whether these are the last jobs; never of a server that knows the head alone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        from_end: bool,
        jobs: JobList,
    },
    Triggers(Vec<Trigger>),
    Cluster(ClusterView),
    Config(ConfigView),
    Cancelled(Vec<CancelResult>),
    /// Per job, for commands that name several (an array's tasks).
    Updated(Vec<(String, Result<(), Refusal>)>),
    History(Vec<JobRecord>),
    UsageReport(UsageReport),
    Activities(Vec<Activity>),
    Projects(Vec<ProjectView>),
    Usage(Vec<JobUsage>),
    Script {
        text: ByteText,
    },
    /// `None` where the job had none, or it is not kept.
    KeptText {
        text: Option<ByteText>,
    },
    Step(StepLayout),
    Accounts(AccountsView),
    Shares(SharesView),
    Priorities(PrioritiesView),
    SubmitChoices(SubmitChoices),
    Token {
        text: String,
        /// How its user logs in from another machine, if others reach the clients' port.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        login: Option<LoginHint>,
        /// The server's machine does not know its user: the token is refused until it does.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        user_unknown: bool,
    },
    Tokens(Vec<TokenView>),
    Agents(Vec<AgentView>),
    Ssh(SshAnswer),
    Secrets(Vec<String>),
    Secret {
        value: SecretValue,
    },
    /// The whole address.
    WebLink {
        url: SecretValue,
    },
    GatewayRoutes(Box<GatewayRoutes>),
    Volumes(Vec<VolumeView>),
    Machines(MachinesView),
    Fleets(Vec<FleetView>),
    Offers(Vec<Offer>),
    Reservations(ReservationsView),
    ReservationCreated {
        name: String,
    },
    Licenses(Vec<LicenseView>),
    Explained(Vec<ExplainedJob>),
    WhatIf(WhatIfView),
    Diagnostics(Box<DiagnosticsView>),
    Versions(VersionsView),
    Refused(Refusal),
}
