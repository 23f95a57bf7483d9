//! The calls of clients: those that change something go to the writer, those that only read to the state.

use crate::agents::{hardware, policies};
use crate::clock;
use crate::configure;
use crate::dispatch::launch::srun_prolog_epilog;
use crate::fleet::choice::open_fleets;
use crate::http::await_job::{await_commit, await_end, await_start};
use crate::http::dstack::kept_spec;
use crate::http::partition_bounds::{BeyondPartition, beyond_partition};
use crate::http::unknown_names::unknown_names;
use crate::http::{
    backends, backends_file, delete_run, fleets, gateways, limit_log, machines, nodes, secrets,
    ssh_keys, tokens, volumes, web_links,
};
use crate::per_user::CountedUser;
use crate::proxy;
use crate::secret::{git_credentials, references, registry_auth};
use crate::shared::Shared;
use crate::shared::forecast_queue::Estimates;
use crate::shared::long_calls::{LongCall, LongWork};
use crate::show::job_list::{self, EncodedAnswer, ListedJob};
use crate::show::{
    activity_history, cluster_view, diagnostics, explain, history, kept_text, projects, queue_head,
    reservations, service_address, shares, sstat, submit_test, usage_report, what_if,
};
use crate::step::create;
use crate::user_shares::ShareOwner;
use crate::writer::submission::{check_texts, settle_owner};
use cluster::authorise::{Act, authorise};
use cluster::command::CancelJobs;
use cluster::rights::role_of;
use cluster::visibility::Viewer;
use cluster::{Command, Reply, State, job_selection};
use model::activity::Activity;
use model::bounds;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::trigger::Trigger;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::block_in_place;
use wire::byte_text::ByteText;
use wire::client::{Answer, Call, Cancel, CancelResult, Detail, JobsQuery, Submission};
use wire::version::{AgentVersion, VersionsView};
use wire::view::{ClusterView, JobView};

/// The answer as bytes: JSON, or lines of text. A long list is encoded while it is gathered.
pub async fn call(
    shared: &Arc<Shared>,
    by: Principal,
    call: Call,
) -> Result<EncodedAnswer, serde_json::Error> {
    if let Err(why) = within_token(&by, &call) {
        return serde_json::to_vec(&Answer::Refused(why)).map(EncodedAnswer::Json);
    }
    let begun = match long_work(&call) {
        Some(work) => begin_long(shared, &by, work).await.map(Some),
        None => Ok(None),
    };
    let long = match begun {
        Ok(long) => long,
        Err(why) => return serde_json::to_vec(&Answer::Refused(why)).map(EncodedAnswer::Json),
    };
    let answered = match call {
        Call::Jobs(wanted) => match list_jobs(shared, &by, &wanted).await {
            Ok(encoded) => return Ok(encoded),
            Err(refusal) => Err(refusal),
        },
        Call::Cluster => match encoded_cluster(shared, &by).await {
            Ok(encoded) => return encoded.map(EncodedAnswer::Json),
            Err(refusal) => Err(refusal),
        },
        call => answer(shared, by, call).await,
    };
    let encode = || serde_json::to_vec(&answered.unwrap_or_else(Answer::Refused));
    // What took long to find may be long: the thread's other work goes on while it is written.
    let encoded = if long.is_some() { block_in_place(encode) } else { encode() };
    encoded.map(EncodedAnswer::Json)
}

/// Records that a call may name whose views are made at once, with all that there is of each, and steps of them all; and rows of the
/// head of the queue.
const FEW_JOBS: usize = 64;
const FEW_STEPS: usize = 1000;
const FEW_ROWS: u32 = 1000;

/// Nodes of a cluster whose views are made at once; each is about as long as that of a job.
const FEW_NODES: usize = 500;

/// Bytes of lines that are made at once, and jobs of a queue of which that is tried: longer listings take their turn.
const SHORT_LINES_BYTES: usize = 1 << 20;
const SHORT_QUEUE: usize = 10_000;

/// Waits for the caller's turn to list many jobs.
async fn list_turn(shared: &Shared, by: &Principal) -> Result<LongCall, Refusal> {
    shared.volatile.whole_lists.begin(share_owner(shared, by), LongWork::Plan).await
}

/// Waits for the caller's turn to list all nodes, where they are many.
async fn cluster_turn(shared: &Shared, by: &Principal) -> Result<Option<LongCall>, Refusal> {
    let is_long = shared.read().nodes.len() > FEW_NODES;
    if is_long { list_turn(shared, by).await.map(Some) } else { Ok(None) }
}

/// The nodes and partitions as bytes. The turn lasts until these are made: they are as long as the views.
async fn encoded_cluster(
    shared: &Shared,
    by: &Principal,
) -> Result<Result<Vec<u8>, serde_json::Error>, Refusal> {
    let turn = cluster_turn(shared, by).await?;
    let encode = || serde_json::to_vec(&Answer::Cluster(whole_cluster(shared, by)));
    Ok(if turn.is_some() { block_in_place(encode) } else { encode() })
}

/// By the clock after the wait for a turn.
fn whole_cluster(shared: &Shared, by: &Principal) -> ClusterView {
    let proxy_url = Some(proxy::origin::base(shared)).filter(|base| !base.is_empty());
    ClusterView { proxy_url, ..cluster_view::cluster(shared, by, clock::now()) }
}

/// Whether these jobs are named and few.
pub fn names_few(shared: &Shared, jobs: &[JobRef]) -> bool {
    names_at_most(shared, jobs, FEW_JOBS)
}

/// Whether jobs are named, and no more records with them. The number of an array names every task that has left it.
fn names_at_most(shared: &Shared, jobs: &[JobRef], most: usize) -> bool {
    (1..=most).contains(&jobs.len()) && job_selection::count_named(&shared.read(), jobs) <= most
}

/// The jobs as lines, or else as views. Views of many jobs are as long as the texts of them all, and take their turn: not among the
/// calls that wait for the books, which may take longer.
async fn list_jobs(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobsQuery,
) -> Result<EncodedAnswer, Refusal> {
    let timeout = Duration::from_millis(wanted.estimates_ms);
    let estimates = match wanted.estimates_ms {
        0 => None,
        _ => Some(shared.forecasts.estimates(timeout).await),
    };
    let estimates = estimates.as_deref();
    if let Some(asked) = &wanted.lines
        && let Some(lines) = list_lines(shared, by, wanted, asked.options.steps, estimates).await?
    {
        return Ok(lines);
    }
    let named = &wanted.filter.jobs;
    let has_many_steps = || job_selection::count_steps(&shared.read(), named) > FEW_STEPS;
    // A short queue is listed at once, as it is without steps.
    let is_short = wanted.detail == Detail::Listing
        && named.is_empty()
        && shared.read().jobs.len() <= FEW_JOBS;
    let shows_steps = wanted.detail == Detail::Full || wanted.steps;
    let is_long = wanted.expand_arrays
        || !is_short && !names_few(shared, named)
        || shows_steps && has_many_steps();
    let _turn = if is_long { Some(list_turn(shared, by).await?) } else { None };
    // By the clock after the wait: a job may have started meanwhile.
    block_in_place(|| job_list::jobs(shared, by, wanted, estimates, clock::now()))
}

/// The lines that are asked for, where they can be made here. A format may make megabytes of few jobs, and as many at once as there are
/// connections would not have room: those that become long are made when it is the caller's turn. Nobody waits for the views that
/// others ask for.
async fn list_lines(
    shared: &Arc<Shared>,
    by: &Principal,
    wanted: &JobsQuery,
    with_steps: bool,
    estimates: Option<&Estimates>,
) -> Result<Option<EncodedAnswer>, Refusal> {
    let make = |most: usize| {
        let lines = || job_list::lines(shared, by, wanted, estimates, clock::now(), most);
        block_in_place(lines)
    };
    let is_narrowed = !wanted.filter.jobs.is_empty() || !wanted.filter.users.is_empty();
    let may_be_short = is_narrowed || shared.read().jobs.len() <= SHORT_QUEUE;
    // The steps of a chunk of jobs are held at once.
    if !with_steps
        && may_be_short
        && let Some(lines) = make(SHORT_LINES_BYTES)?
    {
        return Ok(Some(lines));
    }
    let owner = share_owner(shared, by);
    let _turn = shared.volatile.long_listings.begin(owner, LongWork::Plan).await?;
    make(job_list::LINES_BYTES_MAX)
}

/// Refuses a gateway's token for any call but its own.
fn within_token(by: &Principal, call: &Call) -> Result<(), Refusal> {
    match call {
        Call::SyncGateway(_) => Ok(()),
        _ if by.token_limit == Some(Role::Gateway) => Err(Refusal::AccessDenied),
        _ => Ok(()),
    }
}

/// What a call does that takes long; `None` for any other.
pub fn long_work(call: &Call) -> Option<LongWork> {
    match call {
        Call::History(_)
        | Call::UsageReport(_)
        | Call::ActivityHistory(_)
        | Call::KeptText { .. }
        | Call::DeleteRuns { .. } => Some(LongWork::ReadBooks),
        Call::TestSubmit(_) | Call::Offers(_) | Call::Explain(_) | Call::Priorities => {
            Some(LongWork::Plan)
        }
        _ => None,
    }
}

/// Waits until the caller may do work that takes long; it lasts until what this returns is dropped.
pub async fn begin_long(
    shared: &Shared,
    by: &Principal,
    work: LongWork,
) -> Result<LongCall, Refusal> {
    shared.volatile.long_calls.begin(share_owner(shared, by), work).await
}

fn share_owner(shared: &Shared, by: &Principal) -> ShareOwner {
    let is_operator = authorise(&shared.read(), by, Act::Operate).is_ok();
    ShareOwner { uid: shared.counted_user(by.uid), is_operator }
}

/// Jobs that are looked through at once: handing the thread's work to another would take longer.
pub const SHORT_LIST: usize = 2000;

/// The jobs as views, for an answer in another form than the native one; `pick` says which of those that fit.
pub fn jobs(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    pick: impl FnOnce(&mut Vec<ListedJob>),
) -> Result<Vec<JobView>, Refusal> {
    jobs_with(shared, by, wanted, None, pick)
}

/// The same, with the starts that these estimates expect.
pub fn jobs_with(
    shared: &Shared,
    by: &Principal,
    wanted: &JobsQuery,
    estimates: Option<&Estimates>,
    pick: impl FnOnce(&mut Vec<ListedJob>),
) -> Result<Vec<JobView>, Refusal> {
    let list = || job_list::job_views(shared, by, wanted, estimates, clock::now(), pick);
    // One look after the other: who holds the state does not ask for it again.
    let all = shared.read().jobs.len();
    let is_short = all <= SHORT_LIST || names_at_most(shared, &wanted.filter.jobs, SHORT_LIST);
    if is_short { list() } else { block_in_place(list) }
}

/// As [`Call::Submit`], for a run whose configuration was made here.
pub async fn submit_run(
    shared: &Arc<Shared>,
    by: Principal,
    submission: Submission,
) -> Result<Answer, Refusal> {
    let answered = submit(shared, by.clone(), Box::new(submission)).await;
    answered.map_err(|why| shown_refusal(shared, &by, why))
}

/// The answer to a call. A refusal says no more than the caller is shown.
pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    within_token(&by, &call)?;
    let answered = full_answer(shared, by.clone(), call).await;
    answered.map_err(|why| shown_refusal(shared, &by, why))
}

/// A refusal as its caller is shown it. One of a commit that was not kept has nothing to hide, and is answered while the writer
/// holds the state to read it back: it does not wait for the state.
fn shown_refusal(shared: &Shared, by: &Principal, why: Refusal) -> Refusal {
    match why {
        Refusal::DiskFull(_) | Refusal::Other(_) => why,
        why => Viewer::new(&shared.read(), by).refusal(why),
    }
}

async fn full_answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let now = clock::now();
    match call {
        Call::Ping => Ok(Answer::Pong {
            version: wire::version::program(),
            now,
            hostname: shared.setup.hostname.clone(),
            user: by.name,
            servers: shared.volatile.servers.views(),
            store_fault: shared.volatile.servers.contact.fault(),
        }),
        Call::Submit(submission) => {
            if let Some(kept) = &submission.configuration {
                kept_spec::check(kept)?;
            }
            submit(shared, by, submission).await
        }
        Call::Resubmit(mut submission) => {
            if let Some(kept) = &submission.configuration {
                kept_spec::check(kept)?;
            }
            submission.is_repeat = true;
            submit(shared, by, submission).await
        }
        // A call that may take long leaves its thread to others while it works.
        Call::TestSubmit(submission) => submit_test::test_submit(shared, by, *submission).await,
        Call::Explain(wanted) => explain::explain(shared, &by, &wanted).await,
        Call::WhatIf(query) => what_if::what_if(shared, &by, query).await,
        Call::Diagnostics { reset } => {
            if reset {
                authorise(&shared.read(), &by, Act::Operate)?;
                shared.volatile.counters.reset();
            }
            Ok(Answer::Diagnostics(Box::new(diagnostics::diagnostics(shared, &by))))
        }
        Call::Versions => {
            authorise(&shared.read(), &by, Act::Operate)?;
            Ok(Answer::Versions(versions(shared)))
        }
        Call::Handover => hand_over(shared, &by).await,
        Call::SetLogLevel { level } => {
            authorise(&shared.read(), &by, Act::Administer)?;
            (shared.setup.set_log_level)(level);
            // An error is logged at every level.
            tracing::error!(?level, by = by.name, "log level set");
            Ok(Answer::Done)
        }
        Call::Offers(submission) => block_in_place(|| submit_test::offers(shared, by, *submission)),
        Call::AwaitStart { job, timeout_ms, ready } => {
            let _waits = waiting_call(shared, &by)?;
            await_start(shared, &by, job, timeout_ms, ready).await
        }
        Call::AwaitEnd { job, timeout_ms } => {
            let _waits = waiting_call(shared, &by)?;
            await_end(shared, &by, job, timeout_ms).await
        }
        Call::AwaitCommit { seen, timeout_ms } => {
            let _waits = waiting_call(shared, &by)?;
            Ok(await_commit(shared, seen, timeout_ms).await)
        }
        Call::QueueHead(wanted) => {
            // All jobs are looked through and put into order, however few are shown.
            let is_long = wanted.rows > FEW_ROWS || shared.read().jobs.len() > SHORT_QUEUE;
            let _turn = if is_long { Some(list_turn(shared, &by).await?) } else { None };
            block_in_place(|| queue_head::queue_head(shared, &by, wanted, clock::now()))
        }
        Call::Cluster => {
            let _turn = cluster_turn(shared, &by).await?;
            Ok(Answer::Cluster(whole_cluster(shared, &by)))
        }
        Call::Config => Ok(Answer::Config(cluster_view::config(shared, now))),
        Call::SubmitChoices => Ok(Answer::SubmitChoices(cluster_view::submit_choices(shared, &by))),
        Call::Cancel(cancel) => cancel_jobs(shared, by, cancel).await,
        Call::UpdateJob { job, change } => {
            change_answer(shared.writer.run(Command::ChangeJob { job, change }, by).await?)
        }
        Call::UpdateNode { nodes, change } => {
            change_answer(shared.writer.run(Command::ChangeNode { nodes, change }, by).await?)
        }
        Call::UpdatePartition { name, change } => {
            change_answer(shared.writer.run(Command::ChangePartition { name, change }, by).await?)
        }
        Call::CreatePartition(partition) => {
            authorise(&shared.read(), &by, Act::Administer)?;
            // The groups are those of the server's machine, whoever asks.
            let partition = Box::new(configure::with_group_ids(*partition));
            change_answer(shared.writer.run(Command::CreatePartition(partition), by).await?)
        }
        Call::DeletePartition { name } => {
            change_answer(shared.writer.run(Command::RemovePartition { name }, by).await?)
        }
        Call::Reconfigure { files } => match reconfigure(shared, by, files).await? {
            Reconfigured::Whole => Ok(Answer::Done),
            Reconfigured::ExceptBackend(why) => Err(Refusal::Other(why)),
        },
        Call::History(filter) => {
            // A record that is made of the state alone lacks what the attempt knew.
            shared.books.wait_settled().await;
            block_in_place(|| history::history(shared, &by, &filter)).map(Answer::History)
        }
        Call::UsageReport(query) => {
            shared.books.wait_settled().await;
            block_in_place(|| usage_report::usage_report(shared, &by, &query))
                .map(Answer::UsageReport)
        }
        Call::Activities => Ok(Answer::Activities(activities(shared, &by))),
        Call::ActivityHistory(filter) => {
            shared.books.wait_settled().await;
            block_in_place(|| activity_history::activity_history(shared, &by, &filter))
                .map(Answer::Activities)
        }
        Call::DeleteRuns { runs } => delete_run::delete(shared, by, &runs).await,
        Call::Usage { jobs, load } => sstat::usage(shared, &by, &jobs, load).await,
        Call::Script { job } => script(shared, &by, job),
        Call::KeptText { job, of } => {
            // A task that was cancelled as it waited is in the books alone.
            shared.books.wait_settled().await;
            block_in_place(|| kept_text::kept_text(shared, &by, job, of))
        }
        Call::CreateStep(create) => {
            let _waits = waiting_call(shared, &by)?;
            create::create(shared, by, *create).await
        }
        Call::LeaveStep { job, ticket } => create::leave(shared, &by, job, ticket),
        Call::LaunchStep { job, step, launch } => {
            create::resend_launch(shared, &by, job, step, *launch)
        }
        Call::SignalStep { job, step, signal } => {
            let cancel = CancelJobs {
                filter: one_job(job),
                step: Some(step),
                signal: Some(signal),
                batch_only: false,
                full: false,
            };
            change_answer(shared.writer.run(Command::Cancel(Box::new(cancel)), by).await?)
        }
        Call::Relinquish { job, exit } => {
            change_answer(shared.writer.run(Command::Relinquish { job, exit }, by).await?)
        }
        other => administer(shared, by, other).await,
    }
}

/// Gives the lead up, where another server is there to take it. Nothing is committed from then on: commands that wait are not
/// answered here, and ask the next leader.
async fn hand_over(shared: &Shared, by: &Principal) -> Result<Answer, Refusal> {
    authorise(&shared.read(), by, Act::Administer)?;
    let servers = shared.volatile.servers.views();
    if !servers.iter().any(|server| !server.is_leader && server.is_up()) {
        return Err(Refusal::Other("no other server waits: nobody could take over".into()));
    }
    tracing::info!(by = by.name, "the lead is handed over");
    // The writer tells that it has stopped: whoever asked may be gone by then, and this call with them.
    shared.writer.stop().await;
    Ok(Answer::Done)
}

fn versions(shared: &Shared) -> VersionsView {
    let agents = shared.agents.builds().into_iter().map(|(build, nodes)| AgentVersion {
        version: build.program.to_string(),
        protocol: build.protocol,
        nodes,
    });
    VersionsView {
        server: wire::version::program(),
        protocol: wire::version::PROTOCOL,
        journal: store::JOURNAL_FORMAT,
        agents: agents.collect(),
    }
}

/// Counts a call that waits. One user has a bounded number of them; an administrator as many as there are connections.
fn waiting_call(shared: &Shared, by: &Principal) -> Result<CountedUser, Refusal> {
    let is_admin = role_of(&shared.read(), by) == Role::Admin;
    let most = if is_admin { usize::MAX } else { bounds::WAITING_CALLS.most };
    let counted = shared.volatile.waiting_calls.enter(shared.counted_user(by.uid), most);
    counted.ok_or_else(|| Refusal::InvalidValue {
        what: bounds::WAITING_CALLS.what.into(),
        value: (most + 1).to_string(),
        expected: format!("at most {most}"),
    })
}

async fn administer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let command = match call {
        Call::Accounts => return Ok(Answer::Accounts(cluster_view::accounts(shared, &by))),
        Call::Shares => return Ok(Answer::Shares(shares::shares(shared, &by, clock::now()))),
        Call::Priorities => {
            let view = block_in_place(|| shares::priorities(shared, &by, clock::now()));
            return Ok(Answer::Priorities(view));
        }
        call @ (Call::Reservations
        | Call::Licenses
        | Call::CreateReservation(_)
        | Call::UpdateReservation { .. }
        | Call::RemoveReservation { .. }) => return reservations::answer(shared, by, call).await,
        call @ (Call::Agents
        | Call::RejoinNode { .. }
        | Call::RemoveNode { .. }
        | Call::CreateNodes(_)
        | Call::DeleteNodes { .. }) => {
            return nodes::answer(shared, by, call).await;
        }
        call @ (Call::NodeToken { .. }
        | Call::GroupToken { .. }
        | Call::UserToken { .. }
        | Call::RestToken { .. }
        | Call::Tokens
        | Call::RevokeToken { .. }
        | Call::RotateAdminToken { .. }) => return tokens::answer(shared, by, call).await,
        Call::Ssh { user, request, job } => {
            return ssh_keys::answer(shared, &by, user, request, job);
        }
        call @ (Call::Secrets { .. }
        | Call::Secret { .. }
        | Call::SetSecret { .. }
        | Call::RemoveSecrets { .. }
        | Call::RotateSecretKey) => return secrets::answer(shared, by, call).await,
        call @ (Call::Fleets | Call::ApplyFleet { .. } | Call::RemoveFleetHosts { .. }) => {
            return fleets::answer(shared, by, call).await;
        }
        call @ (Call::SetBackend { .. } | Call::RemoveBackends { .. }) => {
            return backends::answer(shared, by, call).await;
        }
        Call::Machines => return machines::list(shared, &by),
        Call::DeleteMachine { name } => Command::DeleteMachine { node: name },
        Call::Triggers => return Ok(Answer::Triggers(triggers(shared, &by))),
        Call::SetTrigger(request) => Command::SetTrigger(request),
        Call::ClearTriggers(filter) => Command::ClearTriggers(filter),
        Call::WebLink(wanted) => return web_links::answer(shared, by, &wanted),
        Call::SyncGateway(report) => return gateways::sync(shared, &by, report),
        Call::Volumes { project } => return volumes::list(shared, &by, &project),
        call @ (Call::CreateVolume { .. } | Call::DeleteVolume { .. }) => {
            let _waits = waiting_call(shared, &by)?;
            return volumes::change(shared, by, call).await;
        }
        Call::SetAccount(account) => Command::SetAccount(account),
        Call::RemoveAccount { name } => Command::RemoveAccount { name },
        Call::SetAssociation(association) => Command::SetAssociation(Box::new(association)),
        Call::RemoveAssociation(key) => Command::RemoveAssociation(key),
        Call::SetRole { name, role } => Command::SetRole { name, role },
        Call::Projects => return Ok(Answer::Projects(projects::projects(shared, &by))),
        Call::CreateProject { name } => Command::CreateProject { name },
        Call::RemoveProject { name } => Command::RemoveProject { name },
        Call::SetMembers { project, members, change } => {
            Command::SetMembers { project, members, change }
        }
        Call::SetDefaultGateway { project, gateway } => {
            gateways::set_default(shared, by, project, gateway).await?;
            return Ok(Answer::Done);
        }
        Call::ForgetUsage(of) => Command::ForgetUsage(of),
        Call::SetQos(qos) => Command::SetQos(Box::new(qos)),
        Call::RemoveQos { name } => Command::RemoveQos { name },
        other => unreachable!("{other:?} is answered above"),
    };
    change_answer(shared.writer.run(command, by).await?)
}

/// The triggers that the caller may clear.
fn triggers(shared: &Shared, by: &Principal) -> Vec<Trigger> {
    let state = shared.read();
    let own =
        |trigger: &&Trigger| authorise(&state, by, Act::ClearTriggersOf(trigger.owner_uid)).is_ok();
    state.triggers.values().filter(own).cloned().collect()
}

/// What was done beside the jobs, as far as the caller is told of it.
pub fn activities(shared: &Shared, by: &Principal) -> Vec<Activity> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let shown = state.activities.iter().filter(|activity| viewer.activity(activity));
    let for_viewer = |activity: &Activity| {
        let actor = activity.actor.clone().filter(|name| viewer.user(name));
        Activity { actor, ..activity.clone() }
    };
    shown.map(for_viewer).collect()
}

fn change_answer(reply: Reply) -> Result<Answer, Refusal> {
    match reply {
        Reply::PerJob(results) => Ok(Answer::Updated(results)),
        // The signal for one step of one job: a refusal there refuses the call.
        Reply::Signals { results, .. } => {
            let refusal = results.into_iter().find_map(|(_, result)| result.err());
            refusal.map_or(Ok(Answer::Done), Err)
        }
        _ => Ok(Answer::Done),
    }
}

fn one_job(job: JobId) -> JobFilter {
    JobFilter { jobs: vec![JobRef::whole(job)], ..Default::default() }
}

/// Submits; a configuration is one of dstack's that was read here or checked.
async fn submit(
    shared: &Arc<Shared>,
    by: Principal,
    submission: Box<Submission>,
) -> Result<Answer, Refusal> {
    let user = by.name.clone();
    let answered = submit_unlogged(shared, by, submission).await;
    if let Err(why) = &answered {
        limit_log::note_submit(shared, &user, why);
    }
    answered
}

async fn submit_unlogged(
    shared: &Arc<Shared>,
    by: Principal,
    mut submission: Box<Submission>,
) -> Result<Answer, Refusal> {
    let coming = shared.writer.announce_submission();
    if submission.workspace.is_some() {
        // Its archives are read.
        block_in_place(|| check_texts(&submission))?;
    } else {
        check_texts(&submission)?;
    }
    settle_owner(shared, &mut submission, &by)?;
    {
        let state = shared.read();
        open_fleets(&state, &mut submission);
        check_script_size(&state, &submission)?;
    }
    service_address::check(shared, &submission).await?;
    references::check_submission(&shared.read(), &submission)?;
    let _sealing = shared.sealing.read().await;
    registry_auth::seal(shared, &mut submission)?;
    git_credentials::seal(shared, &mut submission)?;
    let name = submission.spec.name.to_string();
    drop(coming);
    match shared.writer.submit(submission, by.clone()).await? {
        Reply::Submitted { job, run } => {
            let state = shared.read();
            let srun_prolog_epilog = srun_prolog_epilog(&state);
            let BeyondPartition { nodes: beyond_partition, time: beyond_time } =
                beyond_partition(&state, &by, job);
            let unknown_names = unknown_names(&state, job);
            Ok(Answer::Submitted {
                job,
                run,
                name,
                srun_prolog_epilog,
                beyond_partition,
                beyond_time,
                unknown_names,
            })
        }
        other => Err(Refusal::Other(format!("a submit was answered with {other:?}"))),
    }
}

/// `max_script_size` of `SchedulerParameters`.
fn check_script_size(state: &State, submission: &Submission) -> Result<(), Refusal> {
    let most = state.config.parameters.max_script_bytes;
    let of_groups = submission.group_texts.iter().map(|texts| texts.script.len());
    let longest = submission.script.iter().map(ByteText::len).chain(of_groups).max();
    match (longest, most) {
        (Some(bytes), Some(most)) if bytes > most as usize => Err(Refusal::InvalidValue {
            what: "script".into(),
            value: format!("{bytes} bytes"),
            expected: format!("at most {most} bytes"),
        }),
        _ => Ok(()),
    }
}

async fn cancel_jobs(
    shared: &Arc<Shared>,
    by: Principal,
    cancel: Cancel,
) -> Result<Answer, Refusal> {
    let command = CancelJobs {
        filter: cancel.filter,
        step: cancel.step,
        signal: cancel.signal,
        batch_only: cancel.batch_only,
        full: cancel.full,
    };
    match shared.writer.run(Command::Cancel(Box::new(command)), by).await? {
        Reply::Signals { results, .. } => {
            let results = results.into_iter();
            let results = results.map(|(job, r)| CancelResult { job, refusal: r.err() });
            Ok(Answer::Cancelled(results.collect()))
        }
        other => Err(Refusal::Other(format!("a cancel was answered with {other:?}"))),
    }
}

/// What of the configuration that was read again is in force.
pub enum Reconfigured {
    Whole,
    /// All of it but a backend of `config.yml`, which is refused: the line says both.
    ExceptBackend(String),
}

/// Reads the configuration again. A refusal changes nothing.
pub async fn reconfigure(
    shared: &Arc<Shared>,
    by: Principal,
    files: Option<BTreeMap<String, String>>,
) -> Result<Reconfigured, Refusal> {
    authorise(&shared.read(), &by, Act::Administer)?;
    let (dir, machine) = (shared.setup.config_dir.as_deref(), shared.setup.machine.as_ref());
    let config = match (dir, files) {
        (Some(dir), Some(files)) => configure::load_given(dir, files, machine),
        (Some(dir), None) if !configure::may_read(dir) => {
            return Err(Refusal::ConfigurationUnreadable(dir.display().to_string()));
        }
        (dir, _) => configure::load(dir, machine),
    };
    let config = config.map_err(|e| Refusal::Other(e.to_string()))?;
    let projects = backends_file::projects(shared)?;
    shared.writer.run(Command::Configure(Box::new(config)), by).await?;
    // The configuration holds also where a backend is refused: nodes are told of it first.
    shared.volatile.config_is_remembered.store(false, Ordering::Relaxed);
    shared.agents.send_policies(&policies::policies(shared));
    let nodes: Vec<String> = shared.read().nodes.keys().cloned().collect();
    hardware::check(shared, &nodes).await;
    Ok(match backends_file::make(shared, projects).await {
        Ok(()) => Reconfigured::Whole,
        Err(why) => Reconfigured::ExceptBackend(format!(
            "the configuration is in force, except for a backend: {why}"
        )),
    })
}

fn script(shared: &Shared, by: &Principal, job: JobId) -> Result<Answer, Refusal> {
    let blob = {
        let state = shared.read();
        let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
        authorise(&state, by, Act::ActAsOwner(found))?;
        found.spec.launch.script
    };
    let missing = || Refusal::Other(format!("job {job} has no script"));
    let bytes = shared.blob_bytes(&blob.ok_or_else(missing)?);
    Ok(Answer::Script { text: bytes.map_err(|e| Refusal::Other(e.to_string()))?.into() })
}
