//! What clients ask for in a history: submits as both dialects make them, and changes of jobs, nodes, reservations and
//! the configuration. A refusal is an answer like any other.

use super::site;
use crate::chance::Chance;
use cluster::command::{CancelJobs, StepRequest, Submit};
use cluster::{Command, State};
use model::amount::Bytes;
use model::array::{ArraySpec, IndexSet};
use model::change::{JobChange, JobField, JobFilter, JobRef, NodeChange, Requeue};
use model::dependency::Dependency;
use model::gres::GPU;
use model::id::JobId;
use model::principal::Principal;
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request, Sharing, WaitPolicy};
use model::reservation_request::{
    DurationEdit, EditMode, NamesEdit, NodesChoice, ReservationRequest,
};
use model::run::{Component, ExitStatus, Hold, JobSpec, Launch, LaunchKind, Retry};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// A command of a client.
pub struct Asked {
    pub by: Principal,
    pub command: Command,
}

/// The most reservations at a time: with more of them jobs would only wait.
const RESERVATIONS_MAX: usize = 2;

/// What a client asks for next. `variant` is the number of the site's present files, which a reconfiguration changes.
pub fn next(chance: &mut Chance, state: &State, now: Timestamp, variant: &mut u64) -> Asked {
    let by_root = |command| Asked { by: site::root(), command };
    match chance.below(100) {
        0..=45 => submit(chance, state, now),
        46..=55 => by_root(cancel(job_ref(chance, state))),
        56..=71 => {
            let (job, change) = (job_ref(chance, state), job_change(chance, now));
            by_root(Command::ChangeJob { job, change })
        }
        72..=77 => {
            let ask = StepRequest {
                name: "step".to_owned(),
                tasks: Some(1 + chance.below(3) as u32),
                nodes: chance.one_in(3).then_some(1),
                ..StepRequest::default()
            };
            by_root(Command::CreateStep { job: running(chance, state), ask: Box::new(ask) })
        }
        78..=80 => {
            let exit = ExitStatus { code: chance.below(2) as i32, signal: 0 };
            by_root(Command::Relinquish { job: running(chance, state), exit })
        }
        81 => by_root(Command::ClientLost { job: running(chance, state) }),
        82..=89 => {
            let node = chance.pick(&site::NODES).copied().unwrap_or(site::NODES[0]);
            let reason = "maintenance".to_owned();
            let change = match chance.below(8) {
                0 => NodeChange::Down { reason },
                1 | 2 => NodeChange::Drain { reason },
                3 => NodeChange::Weight(7),
                _ => NodeChange::Resume,
            };
            by_root(Command::ChangeNode { nodes: vec![node.to_owned()], change })
        }
        90..=94 => by_root(reservation(chance, state, now)),
        _ => {
            *variant += 1 + chance.below(7);
            by_root(Command::Configure(Box::new(site::configuration(*variant))))
        }
    }
}

pub fn cancel(job: JobRef) -> Command {
    Command::Cancel(Box::new(CancelJobs {
        filter: JobFilter { jobs: vec![job], ..JobFilter::default() },
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    }))
}

fn submit(chance: &mut Chance, state: &State, now: Timestamp) -> Asked {
    let users = site::users();
    let by = users[chance.below(users.len() as u64) as usize].clone();
    let owner = Arc::new(by.clone());
    let spec = spec(chance, state, &owner, now);
    let kind = spec.launch.kind;
    let is_array = kind == LaunchKind::Batch && chance.one_in(5);
    let is_het = !is_array && kind != LaunchKind::Interactive && chance.one_in(10);
    let submit = Submit {
        array: is_array.then(|| ArraySpec::parse("0-3%2", 1_000).ok()).flatten(),
        hold: chance.one_in(14).then_some(Hold::User),
        priority: None,
        het_components: if is_het { vec![het_component(&spec)] } else { Vec::new() },
        test_only: false,
        unique_name: false,
        spec,
    };
    Asked { by, command: Command::Submit(Box::new(submit)) }
}

/// The second component of a het job, or the second group of a task.
fn het_component(first: &JobSpec) -> JobSpec {
    let launch = match first.launch.kind {
        LaunchKind::Task => first.launch.clone(),
        LaunchKind::Batch | LaunchKind::Interactive => Arc::new(held_allocation()),
    };
    let request = Request { time_limit: first.request().time_limit, ..Request::default() };
    JobSpec {
        components: [Component { request: Arc::new(request) }].into(),
        launch,
        dependency: None,
        qos: None,
        retry: None,
        ..first.clone()
    }
}

/// An allocation without a script. Nobody looks whether its client lives: it ends by its time limit or by an order.
fn held_allocation() -> Launch {
    Launch { unattended: true, ..Launch::empty(LaunchKind::Interactive) }
}

pub fn spec(chance: &mut Chance, state: &State, owner: &Arc<Principal>, now: Timestamp) -> JobSpec {
    let launch = match chance.below(10) {
        0..=5 => Launch::empty(LaunchKind::Batch),
        6 | 7 => held_allocation(),
        _ => Launch::empty(LaunchKind::Task),
    };
    let is_task = launch.kind == LaunchKind::Task;
    let retry = Retry {
        on_no_capacity: false,
        on_interruption: true,
        on_error: true,
        duration_s: None,
        attempts_max: Some(3),
    };
    JobSpec {
        name: if chance.one_in(4) { "other".into() } else { "job".into() },
        owner: owner.clone(),
        account: None,
        qos: chance.one_in(6).then(|| site::LIMITED_QOS.to_owned()),
        components: [Component { request: Arc::new(request(chance, now)) }].into(),
        launch: Arc::new(launch),
        dependency: chance.one_in(7).then(|| dependency(chance, state)).flatten(),
        kill_on_invalid_dependency: chance.one_in(2),
        nice: 0,
        dstack_priority: None,
        requeue: !chance.one_in(3),
        retry: (is_task && chance.one_in(2)).then(|| Box::new(retry)),
        signal: None,
        comment: None,
        wckey: None,
        submit_line: "".into(),
        submit_host: "".into(),
        submit_sid: 0,
        mail: None,
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    }
}

fn request(chance: &mut Chance, now: Timestamp) -> Request {
    let soon = now + Duration::from_secs(10 + chance.below(300));
    let mut request = Request {
        nodes: Range::exactly(if chance.one_in(4) { 2 } else { 1 }),
        nodes_given: true,
        cpus_per_task: Range::exactly(1 + chance.below(4) as u32),
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(1 + chance.below(4)))),
        time_limit: Some(TimeLimit::Minutes(1 + chance.below(6) as u32)),
        ..Request::default()
    };
    if chance.one_in(3) {
        request.gres.push(GresRequest {
            per: Per::Node,
            name: GPU.to_owned(),
            kinds: Vec::new(),
            count: Range::exactly(1 + chance.below(2)),
            by_model: false,
            make: DeviceMake::default(),
            device_memory: None,
            total_memory: None,
        });
    }
    if chance.one_in(7) {
        request.partitions = vec![site::URGENT_PARTITION.to_owned()];
    }
    match chance.below(24) {
        0 => request.wait_policy = WaitPolicy::Now,
        1 => request.wait_policy = WaitPolicy::Until(soon),
        2 => request.deadline = Some(soon),
        3 | 4 => request.begin = Some(soon),
        5 => request.sharing = Sharing::Node,
        6 => request.sharing = Sharing::User,
        _ => {}
    }
    request
}

fn dependency(chance: &mut Chance, state: &State) -> Option<Box<Dependency>> {
    let target = any_job(chance, state);
    let text = match chance.below(5) {
        0 => "singleton".to_owned(),
        1 => format!("afterok:{target}"),
        2 => format!("afternotok:{target}"),
        _ => format!("afterany:{target}"),
    };
    Dependency::parse(&text).ok().map(Box::new)
}

fn job_change(chance: &mut Chance, now: Timestamp) -> JobChange {
    let field = |field| JobChange::Fields(vec![field]);
    match chance.below(18) {
        0 => JobChange::Hold { by: Hold::Admin },
        1..=4 => JobChange::Release,
        5..=8 => JobChange::Requeue(Requeue { hold: chance.one_in(4), ..Requeue::default() }),
        9 | 10 => JobChange::Suspend,
        11..=13 => JobChange::Resume,
        14 => field(JobField::Begin(now + Duration::from_secs(chance.below(60)))),
        15 => field(JobField::ArrayThrottle(Some(1 + chance.below(2) as u32))),
        16 => field(JobField::TimeLimit(TimeLimit::Minutes(1 + chance.below(5) as u32))),
        _ => field(JobField::Priority(1 + chance.below(50))),
    }
}

fn reservation(chance: &mut Chance, state: &State, now: Timestamp) -> Command {
    let names: Vec<&String> = state.reservations.keys().collect();
    let is_full = names.len() >= RESERVATIONS_MAX;
    if let Some(name) = chance.pick(&names).filter(|_| is_full) {
        return Command::RemoveReservation { name: (*name).clone() };
    }
    let node = chance.pick(&site::NODES).copied().unwrap_or(site::NODES[0]);
    Command::CreateReservation(Box::new(ReservationRequest {
        start: Some(now),
        duration: Some(DurationEdit::Set(TimeLimit::Minutes(1 + chance.below(4) as u32))),
        nodes: Some(NodesChoice::Named(vec![node.to_owned()])),
        users: Some(NamesEdit { edit: EditMode::Set, names: vec!["alice".to_owned()] }),
        ..ReservationRequest::default()
    }))
}

/// A job of any phase, and now and then one that does not exist.
fn any_job(chance: &mut Chance, state: &State) -> JobId {
    let at = chance.below(state.jobs.len() as u64 + 1) as usize;
    state.jobs.keys().nth(at).copied().unwrap_or(JobId(4_711))
}

/// Mostly a job that holds resources.
fn running(chance: &mut Chance, state: &State) -> JobId {
    let at = chance.below(state.active.len() as u64 + 1) as usize;
    match state.active.iter().nth(at) {
        Some(job) => *job,
        None => any_job(chance, state),
    }
}

/// A whole job, or a task of an array.
fn job_ref(chance: &mut Chance, state: &State) -> JobRef {
    let id = if chance.one_in(2) { running(chance, state) } else { any_job(chance, state) };
    let Some(job) = state.job(id) else { return JobRef::whole(id) };
    let array = job.task.map(|task| task.array).or(job.pending.is_some().then_some(id));
    match array.filter(|_| chance.one_in(2)) {
        Some(array) => {
            let index = chance.below(4) as u32;
            JobRef::tasks(array, IndexSet::from_range(index, index))
        }
        None => JobRef::whole(id),
    }
}
