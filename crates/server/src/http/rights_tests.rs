//! Who may do what: one table of every call of the wire and of every other route, by role, through the real router.

use super::body_limits::BodyLimits;
use super::peer::Peer;
use super::route::Route;
use super::router;
use crate::auth::principal::server_principal;
use crate::clock;
use crate::connection_limits::ConnectionLimits;
use crate::testing::{NODE, TestServer, submission, user};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use cluster::command::CreateVolume;
use cluster::{Command, Reply};
use http_body_util::BodyExt;
use model::account::{Account, Association, Qos, ROOT_ACCOUNT};
use model::change::{JobChange, JobFilter, JobRef, NodeChange, PartitionChange};
use model::fleet::MAIN_PROJECT;
use model::id::{JobId, StepId};
use model::partition::PartitionState;
use model::power::PowerRequest;
use model::principal::{Principal, Role};
use model::private_data::PrivateKind;
use model::project::{MembersChange, ProjectRole};
use model::raw_usage::UsageOwner;
use model::reason::Refusal;
use model::reservation_request::ReservationRequest;
use model::run::{Hold, LaunchKind};
use model::secret::SecretValue;
use model::time::Timestamp;
use model::trigger::{TriggerEvent, TriggerFilter, TriggerRequest, TriggerSubject};
use model::volume::VolumePlace;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tower_service::Service;
use wire::agent_view::NewNodes;
use wire::client::{
    Answer, Call, Cancel, CreateStep, Envelope, HistoryFilter, JobsQuery, KeptText, UsageQuery,
    WebLinkQuery,
};
use wire::diagnostics::LogLevel;
use wire::explain::ExplainQuery;
use wire::fleet::FleetConfiguration;
use wire::gateway::GatewayReport;
use wire::ssh::SshRequest;
use wire::step::StepLaunch;
use wire::token::TokenLife;

/// How long an answer may take; a stream that says nothing for this long is open.
const STREAM_SILENCE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    Anonymous,
    Stranger,
    Owner,
    Coordinator,
    Operator,
    Administrator,
    Root,
}
use Caller::*;

pub const CALLERS: [Caller; 7] =
    [Anonymous, Stranger, Owner, Coordinator, Operator, Administrator, Root];

/// Everybody with an account.
pub const EVERYBODY: &[Caller] = &[Stranger, Owner, Coordinator, Operator, Administrator, Root];
/// To act as the job's owner.
pub const AS_OWNER: &[Caller] = &[Owner, Administrator, Root];
/// To manage the job.
pub const MANAGE: &[Caller] = &[Owner, Coordinator, Operator, Administrator, Root];
/// To keep the account's books.
const BOOKS: &[Caller] = &[Coordinator, Operator, Administrator, Root];
pub const OPERATE: &[Caller] = &[Operator, Administrator, Root];
pub const ADMINISTER: &[Caller] = &[Administrator, Root];
/// The server's keys are theirs who have the machine.
const HAVE_THE_MACHINE: &[Caller] = &[Root];

impl Caller {
    /// Who connects to the socket; nobody does so anonymously.
    pub fn principal(self) -> Option<Principal> {
        let plain = |name: &str, uid| Principal { name: name.into(), uid, gid: uid, ..user() };
        Some(match self {
            Anonymous => return None,
            Stranger => plain("sam", 2001),
            Owner => user(),
            Coordinator => plain("cora", 2002),
            Operator => plain("olga", 2003),
            Administrator => plain("adam", 2004),
            Root => server_principal(),
        })
    }
}

/// The owner's jobs in a cluster with an account `lab`.
pub struct World {
    pub server: TestServer,
    pub router: Router,
    /// Runs, and has a script.
    pub batch: JobId,
    /// Runs, and is held by a client.
    pub allocation: JobId,
    /// Runs, to be cancelled.
    pub cancelled: JobId,
}

impl World {
    pub async fn new() -> Self {
        let server = TestServer::start().await;
        server.node_up().await;
        let account = |name: &str, parent: &str, coordinators: Vec<String>| {
            let (description, organization) = (String::new(), String::new());
            let (name, parent) = (name.into(), Some(parent.into()));
            Command::SetAccount(Account { name, description, organization, parent, coordinators })
        };
        let member = |account: &str, user: &str| {
            Command::SetAssociation(Box::new(Association::plain(account, Some(user))))
        };
        let setup = [
            account("lab", ROOT_ACCOUNT, vec!["cora".into()]),
            account("bench", "lab", Vec::new()),
            member("lab", &user().name),
            member("lab", "cora"),
            member("lab", "idle"),
            Command::SetRole { name: "olga".into(), role: Role::Operator },
            Command::SetRole { name: "adam".into(), role: Role::Admin },
            Command::SetQos(Box::new(Qos::named("spare"))),
        ];
        for command in setup {
            server.run(command).await.expect("the cluster is set up");
        }
        let batch = submit(&server, LaunchKind::Batch).await;
        let allocation = submit(&server, LaunchKind::Interactive).await;
        let cancelled = submit(&server, LaunchKind::Batch).await;
        server.plan();
        for job in [batch, allocation, cancelled] {
            assert!(server.shared.read().jobs[&job].attempt().is_some(), "job {job} runs");
        }
        let limits: ConnectionLimits = "".parse().expect("limits");
        let router = router(server.shared.clone(), BodyLimits::new(server.shared.clone(), &limits));
        Self { server, router, batch, allocation, cancelled }
    }

    /// The answer as JSON; `None` for one that is no JSON, or a stream.
    async fn send(&self, request: Request<Body>, caller: Caller) -> (StatusCode, Option<Answer>) {
        self.send_as(request, caller.principal()).await
    }

    async fn send_as(
        &self,
        mut request: Request<Body>,
        principal: Option<Principal>,
    ) -> (StatusCode, Option<Answer>) {
        if let Some(principal) = principal {
            request.extensions_mut().insert(Peer::Socket(principal));
        }
        let response = self.router.clone().call(request).await.expect("a response");
        let status = response.status();
        let body = tokio::time::timeout(STREAM_SILENCE, response.into_body().collect()).await;
        let body = body.ok().map(|body| body.expect("a body").to_bytes());
        (status, body.and_then(|body| serde_json::from_slice(&body).ok()))
    }

    pub async fn call(&self, call: Call, caller: Caller) -> (StatusCode, Option<Answer>) {
        let body = serde_json::to_vec(&Envelope::new(call)).expect("JSON");
        let request = Request::post(Route::Call.path()).body(body.into()).expect("a request");
        self.send(request, caller).await
    }

    pub async fn get(&self, path: &str, caller: Caller) -> (StatusCode, Option<Answer>) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        self.send(request, caller).await
    }
}

/// The name of the owner's jobs.
pub const JOB_NAME: &str = "hush-job";

async fn submit(server: &TestServer, kind: LaunchKind) -> JobId {
    let mut submission = submission("");
    Arc::make_mut(&mut submission.spec.launch).kind = kind;
    submission.spec.name = JOB_NAME.into();
    submission.script = Some("#!/bin/sh\n".into());
    match server.shared.writer.submit(Box::new(submission), user()).await {
        Ok(Reply::Submitted { job, .. }) => job,
        other => panic!("{other:?}"),
    }
}

/// Whether the answer refuses for want of a right.
fn is_denied((status, answer): &(StatusCode, Option<Answer>)) -> bool {
    let denied = |why: &Refusal| matches!(why, Refusal::AccessDenied | Refusal::OperatorsOnly);
    *status == StatusCode::UNAUTHORIZED
        || match answer {
            Some(Answer::Refused(why)) => denied(why),
            Some(Answer::Cancelled(results)) => {
                results.iter().any(|r| r.refusal.as_ref().is_some_and(denied))
            }
            Some(Answer::Updated(results)) => {
                results.iter().any(|(_, r)| r.as_ref().err().is_some_and(denied))
            }
            _ => false,
        }
}

fn whole(job: JobId) -> JobRef {
    JobRef::whole(job)
}

fn step() -> StepLaunch {
    let text = r#"{"name":"a","argv":["a"],"environment":"","work_dir":"/","listen":[],"key":""}"#;
    serde_json::from_str(text).expect("a step's launch")
}

/// One cluster serves all rows in turn: a call that is refused changes nothing, and none that is allowed takes a right away.
/// Makes `allowed`, which says of every call who may make it, and `sample`, which has a call for each row. The match has
/// no wildcard: a call that is added without a row does not compile.
/// A row whose answer shows what `PrivateData` can hide says so (`shows`): `privacy_tests` finds a row that does not.
macro_rules! authorisation_table {
    ($world:ident; $($call:pat => $callers:expr, $sample:expr $(, shows $($kind:ident)+)?;)+) => {
        fn allowed(call: &Call) -> &'static [Caller] {
            match call { $($call => $callers,)+ }
        }

        pub type Sample = fn(&World) -> Call;

        /// A call of each row, and whether it is of that row.
        const SAMPLES: &[(Sample, fn(&Call) -> bool)] =
            &[$((|$world: &World| { let _ = $world; $sample }, |call| matches!(call, $call)),)+];

        /// A call of each row, with the kinds of private information in its answer.
        pub const SHOWN: &[(Sample, &[PrivateKind])] = &[$((
            |$world: &World| { let _ = $world; $sample },
            &[$($(PrivateKind::$kind),+)?],
        ),)+];
    };
}

authorisation_table! { w;
    Call::Ping => EVERYBODY, Call::Ping;
    // The owner of the new job has a test of its own: `submitted_job_is_the_callers_unless_an_administrator_names_another`.
    Call::Submit(_) => EVERYBODY, Call::Submit(Box::new(submission("")));
    Call::Resubmit(_) => EVERYBODY, Call::Resubmit(Box::new(submission("")));
    Call::TestSubmit(_) => EVERYBODY, Call::TestSubmit(Box::new(submission("")));
    Call::Offers(_) => EVERYBODY, Call::Offers(Box::new(submission("")));
    Call::AwaitStart { .. } => MANAGE, Call::AwaitStart { job: w.batch, timeout_ms: 0, ready: false }, shows Jobs;
    Call::AwaitEnd { .. } => EVERYBODY, Call::AwaitEnd { job: w.batch, timeout_ms: 0 };
    Call::AwaitCommit { .. } => EVERYBODY, Call::AwaitCommit { seen: None, timeout_ms: 0 };
    Call::Jobs(_) => EVERYBODY, Call::Jobs(JobsQuery::default()), shows Jobs;
    Call::QueueHead { .. } => EVERYBODY, Call::QueueHead(wire::client::QueueHead { rows: 9, ..Default::default() }), shows Jobs;
    Call::Cluster => EVERYBODY, Call::Cluster, shows Nodes Partitions;
    Call::Config => EVERYBODY, Call::Config;
    Call::History(_) => EVERYBODY, Call::History(HistoryFilter::default()), shows Jobs;
    // Everybody may ask for a report. Which rows it has for whom is tested apart:
    // `usage_is_summed_over_the_period_and_shown_to_whom_it_may_be`.
    Call::UsageReport(_) => EVERYBODY, {
        let filter = HistoryFilter {
            from: Some(Timestamp(0)),
            until: Some(clock::now()),
            ..HistoryFilter::default()
        };
        Call::UsageReport(Box::new(UsageQuery { filter, by_size: true, cluster: true }))
    };
    Call::Activities => EVERYBODY, Call::Activities, shows Accounts Users Reservations Events;
    Call::ActivityHistory(_) => EVERYBODY, Call::ActivityHistory(Default::default()), shows Accounts Users Reservations Events;
    Call::Explain(_) => EVERYBODY, {
        let (jobs, names) = (vec![whole(w.batch)], Vec::new());
        Call::Explain(ExplainQuery { jobs, names })
    }, shows Jobs;
    Call::Reservations => EVERYBODY, Call::Reservations, shows Reservations;
    Call::Licenses => EVERYBODY, Call::Licenses;
    Call::Accounts => EVERYBODY, Call::Accounts, shows Accounts Users;
    Call::Shares => EVERYBODY, Call::Shares, shows Accounts Usage Users;
    Call::Priorities => EVERYBODY, Call::Priorities, shows Jobs;
    Call::SubmitChoices => EVERYBODY, Call::SubmitChoices, shows Partitions;
    Call::Diagnostics { reset: false } => EVERYBODY, Call::Diagnostics { reset: false }, shows Users;

    Call::Script { .. } => AS_OWNER, Call::Script { job: w.batch };
    Call::KeptText { .. } => AS_OWNER,
        Call::KeptText { job: whole(w.batch), of: KeptText::Environment };
    Call::CreateStep(_) => AS_OWNER,
        Call::CreateStep(Box::new(CreateStep { job: w.batch, launch: step(), wait_ms: 0 }));
    Call::LaunchStep { .. } => AS_OWNER, {
        let launch = Box::new(step());
        Call::LaunchStep { job: w.batch, step: StepId::Number(0), launch }
    };
    Call::LeaveStep { .. } => AS_OWNER, Call::LeaveStep { job: w.batch, ticket: 1 };
    Call::Relinquish { .. } => AS_OWNER,
        Call::Relinquish { job: w.allocation, exit: Default::default() };

    Call::Cancel(_) => MANAGE, {
        let filter = JobFilter { jobs: vec![whole(w.cancelled)], ..JobFilter::default() };
        Call::Cancel(Cancel { filter, step: None, signal: None, batch_only: false, full: false })
    };
    Call::SignalStep { .. } => MANAGE,
        Call::SignalStep { job: w.batch, step: StepId::Number(0), signal: 15 };
    Call::UpdateJob { .. } => MANAGE,
        Call::UpdateJob { job: whole(w.batch), change: JobChange::Hold { by: Hold::User } };
    Call::DeleteRuns { .. } => MANAGE, {
        let run = w.server.shared.read().jobs[&w.batch].run;
        Call::DeleteRuns { runs: vec![run] }
    };
    Call::Usage { .. } => MANAGE, Call::Usage { jobs: vec![whole(w.batch)], load: true };

    Call::SetAccount(_) => BOOKS, {
        let bench = w.server.shared.read().accounts["bench"].clone();
        Call::SetAccount(Account { description: "benches".into(), ..bench })
    };
    Call::RemoveAccount { .. } => BOOKS, Call::RemoveAccount { name: "bench".into() };
    Call::SetAssociation(_) => BOOKS, Call::SetAssociation(Association::plain("lab", Some("new")));
    Call::RemoveAssociation(_) => BOOKS,
        Call::RemoveAssociation(Association::plain("lab", Some("idle")).key());
    Call::ForgetUsage(_) => BOOKS,
        Call::ForgetUsage(UsageOwner::User { account: "lab".into(), user: "idle".into() });

    Call::Projects => EVERYBODY, Call::Projects, shows Accounts Users;
    Call::SetMembers { .. } => BOOKS, Call::SetMembers {
        project: "lab".into(),
        members: [("idle".to_owned(), ProjectRole::User)].into(),
        change: MembersChange::Add,
    };
    Call::SetDefaultGateway { .. } => OPERATE,
        Call::SetDefaultGateway { project: "lab".into(), gateway: None };
    Call::CreateProject { .. } => OPERATE, Call::CreateProject { name: "atlas".into() };
    Call::RemoveProject { .. } => OPERATE, Call::RemoveProject { name: "lab".into() };

    Call::SetQos(_) => OPERATE, Call::SetQos(Qos::named("long"));
    Call::RemoveQos { .. } => OPERATE, Call::RemoveQos { name: "spare".into() };
    Call::CreateReservation(_) => OPERATE, Call::CreateReservation(Box::new(reservation()));
    Call::UpdateReservation { .. } => OPERATE,
        Call::UpdateReservation { name: "none".into(), ask: Box::new(reservation()) };
    Call::RemoveReservation { .. } => OPERATE, Call::RemoveReservation { name: "none".into() };
    Call::Diagnostics { reset: true } => OPERATE, Call::Diagnostics { reset: true };
    Call::Versions => OPERATE, Call::Versions;
    Call::WhatIf(_) => OPERATE, Call::WhatIf(Default::default());

    Call::UpdateNode { change: NodeChange::Power(_), .. } => ADMINISTER, Call::UpdateNode {
        nodes: vec![NODE.into()],
        change: NodeChange::Power(PowerRequest::Up),
    };
    Call::UpdateNode { .. } => ADMINISTER,
        Call::UpdateNode { nodes: vec![NODE.into()], change: NodeChange::Undrain };
    Call::UpdatePartition { .. } => ADMINISTER, {
        let name = w.server.shared.read().partitions[0].name.clone();
        Call::UpdatePartition { name, change: PartitionChange::State(PartitionState::Up) }
    };
    Call::SetTrigger(_) => HAVE_THE_MACHINE, Call::SetTrigger(Box::new(TriggerRequest {
        subject: TriggerSubject::Nodes(Vec::new()),
        event: TriggerEvent::Down,
        offset_s: 0,
        program: "/bin/true".into(),
        permanent: false,
    }));
    // Each is shown, and clears, their own; administrators all.
    Call::Triggers => EVERYBODY, Call::Triggers;
    Call::ClearTriggers(_) => EVERYBODY, Call::ClearTriggers(TriggerFilter::default());
    Call::SetRole { .. } => ADMINISTER, Call::SetRole { name: "idle".into(), role: Role::Admin };
    Call::NodeToken { .. } => ADMINISTER, Call::NodeToken { nodes: vec![NODE.into()], life: TokenLife::Usual };
    Call::GroupToken { .. } => ADMINISTER,
        Call::GroupToken { pattern: NODE.into(), count: None, dynamic: false, life: TokenLife::Usual };
    Call::Agents => OPERATE, Call::Agents;
    Call::RejoinNode { .. } => ADMINISTER, Call::RejoinNode { name: NODE.into() };
    Call::CreateNodes(_) => ADMINISTER, {
        let node = model::node::NodeConfig::plain("", 1, model::amount::Bytes::from_gib(1));
        let (addresses, hostnames) = (Vec::new(), Vec::new());
        Call::CreateNodes(Box::new(NewNodes { names: "d1".into(), addresses, hostnames, node }))
    };
    Call::DeleteNodes { .. } => ADMINISTER, Call::DeleteNodes { nodes: vec![NODE.into()] };
    Call::RemoveNode { .. } => ADMINISTER, Call::RemoveNode { name: NODE.into() };
    // One's own token has a test of its own: `users_make_list_and_revoke_their_own_tokens`.
    Call::UserToken { .. } => ADMINISTER, user_token("nobody", None);
    Call::RestToken { .. } => ADMINISTER, Call::RestToken { user: Some("nobody".into()), life_s: 60 };
    Call::Tokens => EVERYBODY, Call::Tokens;
    Call::RevokeToken { .. } => AS_OWNER,
        Call::RevokeToken { name: "laptop".into(), user: Some(user().name) };
    Call::Ssh { request: SshRequest::List, .. } => AS_OWNER, ssh(SshRequest::List);
    Call::Ssh { request: SshRequest::Connect, .. } => AS_OWNER, ssh(SshRequest::Connect);
    Call::Ssh { request: SshRequest::Add { .. }, .. } => AS_OWNER, ssh(SshRequest::Add { key: "none".into(), proof: None });
    Call::Ssh { request: SshRequest::Remove { .. }, .. } => AS_OWNER, ssh(SshRequest::Remove { key: "none".into() });
    Call::Ssh { request: SshRequest::Renew, .. } => AS_OWNER, ssh(SshRequest::Renew);
    Call::RotateAdminToken { .. } => ADMINISTER, Call::RotateAdminToken { hash: "0".repeat(64), token: None };
    Call::Secrets { .. } => ADMINISTER, Call::Secrets { project: MAIN_PROJECT.into() };
    Call::Secret { .. } => ADMINISTER, {
        let (project, name) = (MAIN_PROJECT.into(), "none".into());
        Call::Secret { project, name }
    };
    Call::SetSecret { .. } => ADMINISTER, {
        let (project, name) = (MAIN_PROJECT.into(), "token".into());
        Call::SetSecret { project, name, value: SecretValue("hush".into()) }
    };
    Call::RemoveSecrets { .. } => ADMINISTER,
        Call::RemoveSecrets { project: MAIN_PROJECT.into(), names: vec!["none".into()] };
    Call::RotateSecretKey => ADMINISTER, Call::RotateSecretKey;
    Call::WebLink(_) => AS_OWNER,
        Call::WebLink(WebLinkQuery { job: w.batch, rank: 0, port: 80, whole_path: false });
    Call::SyncGateway(_) => OPERATE, {
        Call::SyncGateway(GatewayReport { name: "edge".into(), ..GatewayReport::default() })
    };
    Call::Volumes { .. } => EVERYBODY, Call::Volumes { project: MAIN_PROJECT.into() };
    // Whose volume is deleted has a test of its own: `volume_is_deleted_by_its_owner_and_administrators`.
    Call::CreateVolume { .. } => EVERYBODY, {
        let place = VolumePlace::Node("none".into());
        Call::CreateVolume { project: MAIN_PROJECT.into(), name: "data".into(), place, size: None }
    };
    Call::DeleteVolume { .. } => EVERYBODY,
        Call::DeleteVolume { project: MAIN_PROJECT.into(), name: "none".into() };
    Call::Machines => OPERATE, Call::Machines;
    Call::DeleteMachine { .. } => ADMINISTER, Call::DeleteMachine { name: "none".into() };
    Call::SetBackend { .. } => ADMINISTER, {
        let config_yaml = SecretValue("type: none".into());
        Call::SetBackend { project: MAIN_PROJECT.into(), config_yaml }
    };
    Call::RemoveBackends { .. } => ADMINISTER,
        Call::RemoveBackends { project: MAIN_PROJECT.into(), names: vec!["none".into()] };
    Call::Fleets => EVERYBODY, Call::Fleets;
    Call::ApplyFleet { .. } => ADMINISTER, {
        let configuration = FleetConfiguration(serde_json::json!({"type": "fleet"}));
        Call::ApplyFleet { project: MAIN_PROJECT.into(), configuration }
    };
    Call::RemoveFleetHosts { .. } => ADMINISTER, {
        let (project, name) = (MAIN_PROJECT.into(), "none".into());
        Call::RemoveFleetHosts { project, name, numbers: None }
    };
    Call::CreatePartition(_) => ADMINISTER,
        Call::CreatePartition(Box::new(model::partition::Partition::over("new", Vec::new())));
    Call::DeletePartition { .. } => ADMINISTER, Call::DeletePartition { name: "none".into() };
    Call::Handover => ADMINISTER, Call::Handover;
    Call::SetLogLevel { .. } => ADMINISTER, Call::SetLogLevel { level: LogLevel::Info };
    Call::Reconfigure { .. } => ADMINISTER, Call::Reconfigure { files: None };
}

/// Makes a token for this user.
fn ssh(request: SshRequest) -> Call {
    Call::Ssh { user: Some(user().name), request, job: None }
}

fn user_token(name: &str, role: Option<Role>) -> Call {
    let (name, life) = (name.into(), TokenLife::Usual);
    Call::UserToken { name, account: None, unix_user: None, role, token_name: None, life }
}

fn reservation() -> ReservationRequest {
    ReservationRequest::default()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_is_allowed_to_the_roles_of_its_row_and_to_no_other() {
    let world = World::new().await;
    for (sample, is_of_row) in SAMPLES {
        for caller in CALLERS {
            let call = sample(&world);
            assert!(is_of_row(&call), "{call:?} stands in another row");
            let (shown, expected) = (format!("{call:?}"), allowed(&call).contains(&caller));
            let answer = world.call(call, caller).await;
            assert_eq!(!is_denied(&answer), expected, "{caller:?}: {shown}: {answer:?}");
            if caller == Anonymous {
                assert_eq!(answer.0, StatusCode::UNAUTHORIZED, "{shown}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_for_the_owner_of_the_job() {
    let world = World::new().await;
    let (batch, allocation) = (world.batch, world.allocation);
    for route in Route::ALL {
        let query = match route {
            // Its rows are those of `authorisation_table`.
            Route::Call => continue,
            Route::Hold => format!("job={allocation}"),
            Route::Logs => format!("job={batch}"),
            Route::Step => format!("job={batch}&step=batch&node={NODE}"),
            // Has a test of its own: `backup_is_for_administrators_and_the_keys_for_root_on_the_machine`.
            Route::Backup => continue,
        };
        let path = format!("{}?{query}", route.path());
        for caller in CALLERS {
            let answer = world.get(&path, caller).await;
            let expected = AS_OWNER.contains(&caller);
            assert_eq!(!is_denied(&answer), expected, "{caller:?}: {path}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_is_for_administrators_and_the_keys_for_root_on_the_machine() {
    let world = World::new().await;
    let path = |keys: bool| format!("{}?keys={keys}", Route::Backup.path());
    for caller in CALLERS {
        for (keys, allowed) in [(false, ADMINISTER), (true, &[Root])] {
            let answer = world.get(&path(keys), caller).await;
            let expected = allowed.contains(&caller);
            assert_eq!(!is_denied(&answer), expected, "{caller:?}, keys {keys}: {answer:?}");
            until_backup_is_over(&world).await;
        }
    }
    // By a token, and as a node vouches for its users.
    let by_token = Principal { token_limit: Some(Role::Admin), ..server_principal() };
    let request = Request::get(path(true)).body(Body::empty()).expect("a request");
    let answer = world.send_as(request, Some(by_token)).await;
    assert!(is_denied(&answer), "{answer:?}");
}

/// There is one at a time, and the thread that makes it outlives its client.
async fn until_backup_is_over(world: &World) {
    while world.server.shared.volatile.backup_runs.load(Ordering::Acquire) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_operators_unless_the_site_has_opened_them() {
    let world = World::new().await;
    let status = async |caller| world.get(super::metrics::PATH, caller).await.0;
    for caller in CALLERS {
        let expected = match caller {
            Anonymous => StatusCode::UNAUTHORIZED,
            _ if OPERATE.contains(&caller) => StatusCode::OK,
            _ => StatusCode::FORBIDDEN,
        };
        assert_eq!(status(caller).await, expected, "{caller:?}");
    }
    let mut config = (*world.server.shared.read().config).clone();
    config.open_metrics = true;
    world.server.run(Command::Configure(Box::new(config))).await.expect("configured");
    for caller in CALLERS {
        assert_eq!(status(caller).await, StatusCode::OK, "{caller:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_job_is_the_callers_unless_an_administrator_names_another() {
    let world = World::new().await;
    for caller in EVERYBODY {
        let mut submission = submission("");
        let nobody = Principal { name: "nobody".into(), uid: 65_534, gid: 65_534, ..user() };
        submission.spec.owner = Arc::new(nobody);
        let (_, answer) = world.call(Call::Submit(Box::new(submission)), *caller).await;
        let Some(Answer::Submitted { job, .. }) = answer else { panic!("{caller:?}: {answer:?}") };
        let owner = world.server.shared.read().jobs[&job].spec.owner.uid;
        let own = caller.principal().expect("somebody").uid;
        let expected = if ADMINISTER.contains(caller) { 65_534 } else { own };
        assert_eq!(owner, expected, "{caller:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_is_deleted_by_its_owner_and_administrators() {
    let world = World::new().await;
    let owner = Owner.principal().expect("somebody");
    for caller in EVERYBODY {
        let name = format!("data-{}", caller.principal().expect("somebody").uid);
        let (project, place) = (MAIN_PROJECT.to_owned(), VolumePlace::Node(NODE.into()));
        let create = CreateVolume { project, name: name.clone(), place, size: None };
        let create = Command::CreateVolume(Box::new(create));
        world.server.shared.writer.run(create, owner.clone()).await.expect("created");
        let (_, answer) =
            world.call(Call::DeleteVolume { project: MAIN_PROJECT.into(), name }, *caller).await;
        let denied = matches!(answer, Some(Answer::Refused(Refusal::AccessDenied)));
        // No agent is there to delete it for those who may.
        assert_eq!(!denied, AS_OWNER.contains(caller), "{caller:?}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_make_list_and_revoke_their_own_tokens() {
    let world = World::new().await;
    let own = |caller: Caller| caller.principal().expect("somebody").name;
    for caller in EVERYBODY {
        let mut wanted = user_token(&own(*caller), None);
        if let Call::UserToken { token_name, .. } = &mut wanted {
            *token_name = Some("laptop".into());
        }
        let (_, made) = world.call(wanted, *caller).await;
        assert!(matches!(made, Some(Answer::Token { .. })), "{caller:?}: {made:?}");
    }
    for caller in EVERYBODY {
        let (_, answer) = world.call(Call::Tokens, *caller).await;
        let Some(Answer::Tokens(tokens)) = answer else { panic!("{caller:?}: {answer:?}") };
        let expected = if ADMINISTER.contains(caller) { EVERYBODY.len() } else { 1 };
        assert_eq!(tokens.len(), expected, "{caller:?}: {tokens:?}");
    }
    for caller in [Stranger, Operator] {
        let (_, raised) = world.call(user_token(&own(caller), Some(Role::Admin)), caller).await;
        let refused = matches!(raised, Some(Answer::Refused(Refusal::AccessDenied)));
        assert!(refused, "{caller:?} made a token that may do more: {raised:?}");
        let revoke = Call::RevokeToken { name: "laptop".into(), user: None };
        let (_, revoked) = world.call(revoke, caller).await;
        assert!(matches!(revoked, Some(Answer::Done)), "{caller:?}: {revoked:?}");
    }
}
