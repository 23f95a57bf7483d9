//! What may start: the checks' own word on holds, begin times, dependencies, the throttle of arrays, nodes and reservations. It
//! reads the records of jobs, and asks nothing that a plan asks.

use cluster::event::Started;
use cluster::{Job, State};
use model::dependency::{DependencyKind, DependencyTerm, Join};
use model::id::JobId;
use model::run::{LaunchKind, Outcome};
use model::time::Timestamp;

/// What a dependency waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    Nothing,
    /// A job that has not ended yet.
    End(JobId),
    /// What has not come about, and never will.
    Never,
}

/// Why the job of this start may not start in this state.
pub fn why_not(state: &State, started: &Started) -> Option<String> {
    let id = started.task.map_or(started.attempt.job, |(array, _)| array);
    let job = state.job(id)?;
    if job.hold.is_some() {
        return Some("it is held".to_owned());
    }
    if job.begin.is_some_and(|begin| begin > started.at) {
        return Some("its time to begin has not come".to_owned());
    }
    if let Some((array, most)) = state.throttle(job) {
        let is_of_array = |id: &&JobId| {
            let task = state.job(**id).and_then(|job| job.task);
            task.is_some_and(|task| task.array == array)
        };
        if state.active.iter().filter(is_of_array).count() >= most as usize {
            return Some(format!("{most} tasks of its array run"));
        }
    }
    match awaited(state, job) {
        Awaited::Nothing => {}
        awaited => return Some(format!("its dependency waits: {awaited:?}")),
    }
    started.allocation.node_names().find_map(|node| node_not_open(state, node, started.at))
}

/// Why a node takes no job that asks for no reservation, as no job of a history does.
fn node_not_open(state: &State, name: &str, at: Timestamp) -> Option<String> {
    let Some(node) = state.nodes.get(name) else { return Some(format!("{name} is no node")) };
    if !node.availability().takes_jobs() {
        return Some(format!("{name} is {:?}", node.availability()));
    }
    let is_kept = state.reservations.values().any(|reservation| {
        let is_now = reservation.start <= at && at < reservation.end;
        is_now && reservation.nodes.iter().any(|node| node == name)
    });
    is_kept.then(|| format!("{name} is reserved"))
}

/// What the job's dependency waits for, by the records of the jobs that it names.
pub fn awaited(state: &State, job: &Job) -> Awaited {
    let Some(dependency) = job.spec.dependency.as_deref() else { return Awaited::Nothing };
    let terms = dependency.terms.iter().map(|term| term_awaited(state, job, term));
    let worst = |all: Awaited, next: Awaited| match (all, next) {
        (Awaited::Never, _) | (_, Awaited::Never) => Awaited::Never,
        (Awaited::Nothing, other) | (other, Awaited::Nothing) => other,
        (first, _) => first,
    };
    let best = |all: Awaited, next: Awaited| match (all, next) {
        (Awaited::Nothing, _) | (_, Awaited::Nothing) => Awaited::Nothing,
        (Awaited::Never, other) => other,
        (first, _) => first,
    };
    match dependency.join {
        Join::All => terms.fold(Awaited::Nothing, worst),
        Join::Any => terms.reduce(best).unwrap_or(Awaited::Never),
    }
}

fn term_awaited(state: &State, job: &Job, term: &DependencyTerm) -> Awaited {
    let Some(target) = term.job.map(|target| JobId(target.id)) else {
        return earlier_namesake(state, job).map_or(Awaited::Nothing, Awaited::End);
    };
    let of_target = |other: &&Job| is_of_target(state, other, target);
    let records = || state.jobs.values().map(|job| &**job).filter(of_target);
    let was_cancelled =
        state.runs.values().any(|run| run.job == target && !run.cancelled.is_empty());
    let has_ended = |well: bool| records().any(|other| has_ended_as(other, well));
    if let Some(other) = records().find(|other| !other.has_ended()) {
        // What has ended otherwise decides at once.
        let is_lost = match term.kind {
            DependencyKind::AfterOk => was_cancelled || has_ended(false),
            DependencyKind::AfterNotOk => has_ended(true) && !has_groups(state, target),
            _ => false,
        };
        return if is_lost { Awaited::Never } else { Awaited::End(other.id) };
    }
    let is_met = match term.kind {
        DependencyKind::AfterOk => !was_cancelled && !has_ended(false),
        DependencyKind::AfterNotOk if has_groups(state, target) => has_ended(false),
        DependencyKind::AfterNotOk => !has_ended(true),
        _ => true,
    };
    if is_met { Awaited::Nothing } else { Awaited::Never }
}

fn has_ended_as(job: &Job, well: bool) -> bool {
    job.ended().is_some_and(|ended| (ended.outcome == Outcome::Completed) == well)
}

/// Whether the job is the target, one of its tasks, or another group of the same task.
fn is_of_target(state: &State, job: &Job, target: JobId) -> bool {
    let is_group = || has_groups(state, target) && job.het.is_some_and(|het| het.first == target);
    job.id == target || job.task.is_some_and(|task| task.array == target) || is_group()
}

fn has_groups(state: &State, target: JobId) -> bool {
    let is_first = |job: &Job| job.het.is_some_and(|het| het.first == job.id);
    state.job(target).is_some_and(|job| job.spec.launch.kind == LaunchKind::Task && is_first(job))
}

/// An earlier job of the same owner and name that has not ended. A task is as old as its array.
fn earlier_namesake(state: &State, job: &Job) -> Option<JobId> {
    let age = |job: &Job| job.task.map_or(job.id, |task| task.array);
    let run = job.het.map(|het| het.first);
    let is_earlier = |other: &&Job| {
        !other.has_ended()
            && other.spec.owner.uid == job.spec.owner.uid
            && other.spec.name == job.spec.name
            && age(other) < age(job)
            && (other.het.is_none() || other.het.map(|het| het.first) != run)
    };
    state.jobs.values().map(|job| &**job).find(is_earlier).map(|other| other.id)
}
