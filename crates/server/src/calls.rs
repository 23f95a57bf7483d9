//! Each call of a client: to the writer if it changes something, to the state if it looks.

use crate::agents;
use crate::clock;
use crate::configure;
use crate::counters;
use crate::explained;
use crate::list::{self, Written};
use crate::measure;
use crate::principal;
use crate::probe;
use crate::reservations;
use crate::shared::Shared;
use crate::shares;
use crate::step_queue;
use crate::steps::Steps;
use crate::token;
use crate::views::{self, Lens};
use cluster::authorise::{Act, authorise};
use cluster::command::CancelJobs;
use cluster::event::UserToken;
use cluster::{Command, Context, Reply, books, job_selection};
use model::attempt::Attempt;
use model::change::JobRef;
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::run::{JobState, Launch, LaunchKind, Outcome};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::block_in_place;
use wire::client::{
    Answer, Call, Cancel, CancelResult, Detail, HistoryFilter, SCRIPT_BYTES_MAX, Submission,
};

/// The longest that one call waits for a job; the client asks again.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// What script and environment may take in an order, with room left for all the rest of it.
const ORDER_TEXT_MAX: usize = wire::frame::PAYLOAD_MAX - (2 << 20);

/// How long a join token is good for.
const TOKEN_LIFE: Duration = Duration::from_secs(24 * 3600);

/// The most records that one `sacct` gets.
const HISTORY_MAX: u32 = 1_000_000;

/// The answer, as JSON but for lines of text; what may be long is written as it is gathered.
pub async fn call(
    shared: &Arc<Shared>,
    by: Principal,
    call: Call,
) -> Result<Written, serde_json::Error> {
    let answered = match call {
        Call::Jobs(wanted) => {
            let patience = Duration::from_millis(wanted.estimates_ms);
            let estimates = match wanted.estimates_ms {
                0 => None,
                _ => Some(shared.foresight.estimates(patience).await),
            };
            let list = || list::jobs(shared, &wanted, estimates.as_deref(), clock::now());
            match block_in_place(list) {
                Ok(written) => return Ok(written),
                Err(refusal) => Err(refusal),
            }
        }
        call => answer(shared, by, call).await,
    };
    serde_json::to_vec(&answered.unwrap_or_else(Answer::Refused)).map(Written::Json)
}

async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let now = clock::now();
    match call {
        Call::Ping => Ok(Answer::Pong {
            version: env!("CARGO_PKG_VERSION").into(),
            now,
            hostname: shared.setup.hostname.clone(),
        }),
        Call::Submit(submission) => submit(shared, by, submission).await,
        // What may take long leaves its thread to others while it works.
        Call::TestSubmit(submission) => probe::test_submit(shared, by, *submission).await,
        Call::Explain(wanted) => explained::explain(shared, &wanted).await,
        Call::Diagnostics { reset } => {
            if reset {
                authorise(&shared.read(), &by, Act::Operate)?;
                shared.volatile.counters.reset();
            }
            Ok(Answer::Diagnostics(Box::new(counters::view(shared))))
        }
        Call::Offers(submission) => block_in_place(|| probe::offers(shared, by, *submission)),
        Call::AwaitStart { job, timeout_ms, ready } => {
            await_start(shared, &by, job, timeout_ms, ready).await
        }
        Call::AwaitEnd { job, timeout_ms } => await_end(shared, job, timeout_ms).await,
        Call::Cluster => Ok(Answer::Cluster(views::cluster(shared, now))),
        Call::Config => Ok(Answer::Config(views::config(shared, now))),
        Call::Cancel(cancel) => cancel_jobs(shared, by, cancel).await,
        Call::UpdateJob { job, change } => {
            done(shared.writer.run(Command::ChangeJob { job, change }, by).await?)
        }
        Call::UpdateNode { nodes, change } => {
            done(shared.writer.run(Command::ChangeNode { nodes, change }, by).await?)
        }
        Call::UpdatePartition { name, change } => {
            done(shared.writer.run(Command::ChangePartition { name, change }, by).await?)
        }
        Call::Reconfigure { files } => reconfigure(shared, by, files).await,
        Call::History(filter) => block_in_place(|| history(shared, &filter)).map(Answer::History),
        Call::Usage { jobs } => measure::usage(shared, &by, &jobs).await,
        Call::Script { job } => script(shared, &by, job),
        Call::CreateStep(create) => step_queue::create(shared, by, *create).await,
        Call::LeaveStep { job, ticket } => step_queue::leave(shared, &by, job, ticket),
        Call::LaunchStep { job, step, launch } => {
            Steps::say_again(shared, &by, job, step, *launch).map(|()| Answer::Done)
        }
        Call::SignalStep { job, step, signal } => {
            let cancel = CancelJobs {
                filter: one_job(job),
                step: Some(step),
                signal: Some(signal),
                batch_only: false,
                full: false,
            };
            done(shared.writer.run(Command::Cancel(Box::new(cancel)), by).await?)
        }
        Call::Relinquish { job, exit } => {
            done(shared.writer.run(Command::Relinquish { job, exit }, by).await?)
        }
        other => administer(shared, by, other).await,
    }
}

async fn administer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let command = match call {
        Call::Accounts => return Ok(Answer::Accounts(views::accounts(shared))),
        Call::Shares => return Ok(Answer::Shares(shares::shares(shared, clock::now()))),
        Call::Priorities => {
            let view = block_in_place(|| shares::priorities(shared, clock::now()));
            return Ok(Answer::Priorities(view));
        }
        call @ (Call::Reservations
        | Call::Licenses
        | Call::CreateReservation(_)
        | Call::UpdateReservation { .. }
        | Call::RemoveReservation { .. }) => return reservations::answer(shared, by, call).await,
        Call::NodeToken { nodes } => return node_token(shared, by, nodes).await,
        Call::UserToken { name, account, unix_user, role } => {
            let text = token::generate();
            let hash = token::hash(&text);
            let role = role.unwrap_or(Role::User);
            let kept = UserToken { hash, name, account, unix_user, role };
            shared.writer.run(Command::SetUserToken(Box::new(kept)), by).await?;
            return Ok(Answer::Token { text });
        }
        Call::SetAccount(account) => Command::SetAccount(account),
        Call::RemoveAccount { name } => Command::RemoveAccount { name },
        Call::SetAssociation(association) => Command::SetAssociation(Box::new(association)),
        Call::RemoveAssociation(key) => Command::RemoveAssociation(key),
        Call::SetRole { name, role } => Command::SetRole { name, role },
        Call::ForgetUsage(of) => Command::ForgetUsage(of),
        Call::SetQos(qos) => Command::SetQos(Box::new(qos)),
        Call::RemoveQos { name } => Command::RemoveQos { name },
        other => unreachable!("{other:?} is answered above"),
    };
    done(shared.writer.run(command, by).await?)
}

fn done(reply: Reply) -> Result<Answer, Refusal> {
    Ok(match reply {
        Reply::PerJob(results) => Answer::Updated(results),
        _ => Answer::Done,
    })
}

fn one_job(job: JobId) -> model::change::JobFilter {
    model::change::JobFilter { jobs: vec![JobRef::whole(job)], ..Default::default() }
}

/// Whose job it is to be: the asker's, unless root submits for another.
pub fn settle_owner(submission: &mut Submission, by: &Principal) -> Result<(), Refusal> {
    let named = &submission.spec.owner;
    if by.is_admin() && named.uid != by.uid && !named.name.is_empty() {
        submission.spec.owner = Arc::new(principal::of_uid(named.uid, named.gid));
    } else {
        submission.spec.owner = Arc::new(Principal { role: Role::User, ..by.clone() });
    }
    let size = submission.script.as_ref().map_or(0, String::len);
    if size > SCRIPT_BYTES_MAX {
        return Err(Refusal::InvalidValue {
            what: "script".into(),
            value: format!("{size} bytes"),
            expected: format!("at most {SCRIPT_BYTES_MAX} bytes"),
        });
    }
    let environment = submission.environment.as_deref().unwrap_or_default();
    let step = submission.first_step.as_deref();
    let texts = [submission.script.as_deref().unwrap_or_default(), environment];
    let of_step = step.map_or("", |s| s.environment.as_str());
    fits_an_order(texts.into_iter().chain([of_step]))?;
    let Submission { spec, het_components, .. } = submission;
    for other in het_components.iter_mut() {
        other.owner = spec.owner.clone();
        *Arc::make_mut(&mut other.launch) = follower(&other.launch);
    }
    if std::iter::once(&*spec).chain(&*het_components).any(|spec| spec.components.len() != 1) {
        return Err(Refusal::Other("a job has one request".into()));
    }
    Ok(())
}

/// A job that starts with another has nodes for that one's steps, and nothing of its own to run; nobody holds it.
fn follower(asked: &Launch) -> Launch {
    Launch {
        work_dir: asked.work_dir.clone(),
        umask: asked.umask,
        rlimits: asked.rlimits.clone(),
        unattended: true,
        ..Launch::empty(LaunchKind::Interactive)
    }
}

/// Refuses texts that would not fit into the order that carries them to a node.
pub fn fits_an_order<'a>(texts: impl Iterator<Item = &'a str>) -> Result<(), Refusal> {
    // An order is JSON within JSON: a quote takes four bytes there, a control character seven.
    let within = |byte: u8| match byte {
        b'"' | b'\\' => 4,
        0..0x20 => 7,
        _ => 1,
    };
    let texts: Vec<&str> = texts.collect();
    if texts.iter().map(|text| text.len()).sum::<usize>() <= ORDER_TEXT_MAX / 7 {
        return Ok(());
    }
    let bytes: usize = texts.into_iter().flat_map(str::bytes).map(within).sum();
    if bytes <= ORDER_TEXT_MAX {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: "script and environment".into(),
        value: format!("{bytes} bytes in an order"),
        expected: format!("at most {ORDER_TEXT_MAX}"),
    })
}

async fn submit(
    shared: &Arc<Shared>,
    by: Principal,
    mut submission: Box<Submission>,
) -> Result<Answer, Refusal> {
    settle_owner(&mut submission, &by)?;
    let name = submission.spec.name.to_string();
    match shared.writer.submit(submission, by).await? {
        Reply::Submitted { job, run } => {
            let srun_prolog_epilog = crate::launch::srun_prolog_epilog(&shared.read());
            Ok(Answer::Submitted { job, run, name, srun_prolog_epilog })
        }
        other => Err(Refusal::Other(format!("a submit was answered with {other:?}"))),
    }
}

pub fn context(by: &Principal) -> Context {
    Context { now: clock::now(), random: clock::random_u128(), by: by.clone() }
}

async fn await_start(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    timeout_ms: u64,
    ready: bool,
) -> Result<Answer, Refusal> {
    let mut changes = shared.changes.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    loop {
        {
            let state = shared.read();
            let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
            authorise(&state, by, Act::OwnJob(found))?;
            let prepares = |a: &Attempt| !a.prolog_nodes.is_empty() && a.ending.is_none();
            let waiting = found.is_waiting() || (ready && found.attempt().is_some_and(prepares));
            if !waiting || tokio::time::Instant::now() >= deadline {
                let shapes = RefCell::default();
                let lens = Lens::new(shared, &state, clock::now(), Detail::Full, &shapes);
                let view = lens.job(found, None);
                return Ok(Answer::Start {
                    state: view.state,
                    reason: view.reason.clone(),
                    allocation: found.attempt().map(|a| a.allocation.clone()),
                    view: Box::new(view),
                });
            }
        }
        let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
    }
}

async fn await_end(shared: &Arc<Shared>, job: JobId, timeout_ms: u64) -> Result<Answer, Refusal> {
    let mut changes = shared.changes.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    loop {
        if let Some(end) = ended(shared, job)? {
            return Ok(end);
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(Answer::End { ended: false, exit: Default::default(), outcome: None });
        }
        let _ = tokio::time::timeout_at(deadline, changes.changed()).await;
    }
}

/// The end of a job, or of every task of an array: the highest exit status of them.
fn ended(shared: &Shared, job: JobId) -> Result<Option<Answer>, Refusal> {
    let state = shared.read();
    let records = job_selection::resolve(&state, &JobRef::whole(job));
    if records.is_empty() {
        return Err(Refusal::UnknownJob(job.to_string()));
    }
    if records.iter().any(|c| !c.job.has_ended()) {
        return Ok(None);
    }
    let ends: Vec<_> = records.iter().filter_map(|c| c.job.ended()).collect();
    let exit = ends.iter().map(|e| e.exit).max().unwrap_or_default();
    let failed = ends.iter().map(|e| e.outcome).find(|o| *o != Outcome::Completed);
    let outcome = failed.or(Some(Outcome::Completed));
    Ok(Some(Answer::End { ended: true, exit, outcome }))
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

async fn reconfigure(
    shared: &Arc<Shared>,
    by: Principal,
    files: Option<BTreeMap<String, String>>,
) -> Result<Answer, Refusal> {
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
    shared.writer.run(Command::Configure(Box::new(config)), by).await?;
    shared.agents.tell_policies(&agents::policies(shared));
    Ok(Answer::Done)
}

/// Living records from the state, ended ones from the books: each attempt once.
fn history(
    shared: &Shared,
    filter: &HistoryFilter,
) -> Result<Vec<model::record::JobRecord>, Refusal> {
    let limit = filter.limit.unwrap_or(HISTORY_MAX).min(HISTORY_MAX);
    let wanted = HistoryFilter { limit: Some(limit), ..filter.clone() };
    let mut records = {
        let reader = shared.books.reader.lock().expect("no panic with the reader held");
        reader.query(&wanted).map_err(|e| Refusal::Other(e.to_string()))?
    };
    let key = |r: &model::record::JobRecord| (r.job, r.attempt, r.array_pending.clone());
    let booked: std::collections::HashSet<_> = records.iter().map(key).collect();
    let state = shared.read();
    let now = crate::clock::now();
    let alive = state.jobs.values().map(|job| books::record_at(&state, job.id, now));
    let alive = alive.filter(|r| !booked.contains(&key(r)));
    records.extend(alive.filter(|r| store::books::matches(r, &wanted)));
    records.sort_by_key(|r| (r.array_job.unwrap_or(r.job), r.array_task, r.job, r.attempt));
    if !filter.duplicates {
        // The last attempt stands for its job.
        let mut last = std::collections::HashMap::new();
        for (at, record) in records.iter().enumerate() {
            last.insert((record.job, record.array_pending.clone()), at);
        }
        let keep: std::collections::HashSet<usize> = last.into_values().collect();
        let mut at = 0;
        records.retain(|_| {
            at += 1;
            keep.contains(&(at - 1))
        });
    }
    let beyond = records.len().saturating_sub(limit as usize);
    records.drain(..beyond);
    Ok(records)
}

fn script(shared: &Shared, by: &Principal, job: JobId) -> Result<Answer, Refusal> {
    let blob = {
        let state = shared.read();
        let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
        authorise(&state, by, Act::OwnJob(found))?;
        found.spec.launch.script
    };
    let missing = || Refusal::Other(format!("job {job} has no script"));
    let text = crate::launch::blob_text(shared, &blob.ok_or_else(missing)?);
    Ok(Answer::Script { text: text.map_err(|e| Refusal::Other(e.to_string()))? })
}

async fn node_token(
    shared: &Arc<Shared>,
    by: Principal,
    nodes: Vec<String>,
) -> Result<Answer, Refusal> {
    let text = token::generate();
    let expires = clock::now() + TOKEN_LIFE;
    let command = Command::IssueToken { hash: token::hash(&text), nodes: nodes.clone(), expires };
    shared.writer.run(command, by).await?;
    let servers = shared.setup.agents_addresses.clone();
    let file = agents::join_file(&shared.identity, servers, text, nodes);
    let text = serde_json::to_string_pretty(&file).map_err(|e| Refusal::Other(e.to_string()))?;
    Ok(Answer::Token { text: text + "\n" })
}

/// Whether the job is an allocation that this principal may hold.
pub fn may_hold(shared: &Shared, by: &Principal, job: JobId) -> Result<(), Refusal> {
    let state = shared.read();
    let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
    authorise(&state, by, Act::OwnJob(found))?;
    match (found.spec.launch.kind, found.state()) {
        (LaunchKind::Interactive, s) if s != JobState::Completing && !s.is_ended() => Ok(()),
        _ => Err(Refusal::JobEnded(job)),
    }
}
