//! Updates of services in place: a newer deployment of a service runs beside the one before it until its replicas are ready. Then those
//! of the one before get no more requests, and are ended when they have answered what they have. Where some of the newer wait for a place,
//! each that is ready takes the place of one: so the next ones find theirs also where there was one for the first alone.
//!
//! A replica that has given its place waits, held, until the update is done. Where the newer deployment is stopped or fails before that, it
//! starts again. Of several deployments that are to be replaced the earliest goes on: the later ones were updates that the newest overtook.

use super::SETTLED_AFTER;
use super::live::{LiveGroup, LiveService, ReplicaWait, WaitingReplica, task_ref};
use super::replica::Replica;
use super::scaler::DRAIN_MAX;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::CancelJobs;
use model::change::{JobChange, JobFilter, JobRef, Requeue};
use model::run::Hold;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What becomes of a replica that waits for a place which a newer deployment is to have. The journal has whose hold it is: a server that
/// starts anew releases what the last one held, and no hold of its owner.
const OVERTAKEN: JobChange = JobChange::Hold { by: Hold::Update };

/// What becomes of a replica that has given its place. One that has ended meanwhile is not brought back.
const REPLACED: JobChange =
    JobChange::Requeue(Requeue { incomplete: true, for_update: true, ..Requeue::HELD });

/// How long the newer replicas must have answered in the place of an older one before that is ended: a server that takes connections and stops
/// again at once gives its requests back. Each of them must take one more connection when this time is over: of one with a network of its
/// own nobody else says that its server has stopped.
const STEADY_AFTER: Duration = Duration::from_secs(5);

/// What is done about the jobs of a service.
#[derive(Debug, PartialEq)]
enum Step {
    Cancel(Vec<JobRef>),
    Change(JobRef, JobChange),
}

/// What is lost because the queue is full is asked for again in a second.
pub fn roll(shared: &Shared, live: &LiveService, now: Instant) {
    for step in steps(live, now) {
        let command = match step {
            Step::Cancel(jobs) => {
                let filter = JobFilter { jobs, ..JobFilter::default() };
                let cancel =
                    CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
                Command::Cancel(Box::new(cancel))
            }
            Step::Change(job, change) => Command::ChangeJob { job, change },
        };
        shared.writer.enqueue_or_drop(command);
    }
}

fn steps(live: &LiveService, now: Instant) -> Vec<Step> {
    let mut steps = taken_back(live);
    if live.outdated.is_empty() {
        return steps;
    }
    let newest = live.service.deployment;
    let running = live.older().map(|replica| replica.deployment);
    let waiting = live.waiting.iter().map(|replica| replica.deployment);
    live.scale.note_outdated(running.chain(waiting.filter(|deployment| *deployment != newest)));
    if gives_way(live, now) {
        steps.push(Step::Cancel(live.outdated.iter().copied().map(JobRef::whole).collect()));
        return steps;
    }
    if is_overtaken_done(live, now) {
        steps.push(Step::Cancel(live.overtaken.iter().copied().map(JobRef::whole).collect()));
        return steps;
    }
    steps.extend(changes(overtaken(live), &OVERTAKEN));
    steps.extend(changes(missing(live), &JobChange::Release));
    steps.extend(changes(replaced(live, now), &REPLACED));
    steps
}

/// The same change of several jobs, one step for the tasks of an array.
fn changes(jobs: Vec<JobRef>, change: &JobChange) -> impl Iterator<Item = Step> {
    JobRef::distinct(&jobs).into_iter().map(move |job| Step::Change(job, change.clone()))
}

/// The newest deployment may have been one that was to give way to a newer one, which is gone: its replicas get requests again, and those
/// that had given their place start again. Of one that is scaled the load says which, and how many.
fn taken_back(live: &LiveService) -> Vec<Step> {
    for group in live.groups.iter().filter(|group| group.service.scaling.is_none()) {
        live.newest_of(group.index).for_each(|replica| replica.drain(None));
    }
    let newest = live.service.deployment;
    if live.scale.forget_outdated(newest) {
        live.newest().for_each(|replica| replica.drain(None));
    }
    if live.service.scaling.is_some() {
        return Vec::new();
    }
    let is_own =
        |one: &&WaitingReplica| one.deployment == newest && one.wait == ReplicaWait::Update;
    let own = live.waiting.iter().filter(is_own).map(|one| one.job.clone()).collect();
    changes(own, &JobChange::Release).collect()
}

/// The replicas of overtaken deployments that wait for a place: they would take those of the newest.
fn overtaken(live: &LiveService) -> Vec<JobRef> {
    let (earliest, newest) = (live.earliest(), live.service.deployment);
    let is_overtaken = |one: &&WaitingReplica| {
        one.wait == ReplicaWait::Place && ![earliest, newest].contains(&one.deployment)
    };
    live.waiting.iter().filter(is_overtaken).map(|one| one.job.clone()).collect()
}

/// The replicas of the earliest deployment that start again because replicas of the newest have failed for good: so many that there are
/// as many as the newest is to have.
fn missing(live: &LiveService) -> Vec<JobRef> {
    let [group] = &live.groups[..] else { return Vec::new() };
    if group.service.scaling.is_some() || !are_alike(live) {
        return Vec::new();
    }
    let (earliest, newest) = (live.earliest(), live.service.deployment);
    let older = live.waiting.iter().filter(|one| one.deployment != newest);
    let queued = older.clone().filter(|one| one.wait == ReplicaWait::Place).count();
    let there = group.active as usize + live.newest_queued() + live.older().count() + queued;
    let held = older.filter(|one| one.deployment == earliest && one.wait == ReplicaWait::Update);
    let missing = (group.service.replicas as usize).saturating_sub(there);
    held.take(missing).map(|one| one.job.clone()).collect()
}

/// The replicas of the deployments before the newest that have given their place.
fn replaced(live: &LiveService, now: Instant) -> Vec<JobRef> {
    // The requests of a worker are its router's: nobody knows which it has.
    if !are_alike(live) {
        return Vec::new();
    }
    let gone = live.older().filter(|one| has_answered(one, now) && is_stood_in_for(live, one));
    gone.map(|replica| job_of(replica)).collect()
}

/// Whether there is one kind of replicas, in each deployment. Those of several kinds need each other.
fn are_alike(live: &LiveService) -> bool {
    live.replicas.iter().all(|replica| replica.group_count == 1) && live.service.group.is_none()
}

fn job_of(replica: &Replica) -> JobRef {
    replica.task.map_or_else(|| JobRef::whole(replica.attempt.job), task_ref)
}

/// Whether a replica that gets no more requests has answered those that it had, or had its time for them, and others stand in for it.
fn has_answered(replica: &Replica, now: Instant) -> bool {
    replica.drained_since().is_some_and(|since| {
        let drained_for = now.saturating_duration_since(since);
        // A request that was on its way to it when it was closed has arrived by then.
        drained_for >= STEADY_AFTER && replica.outstanding() == 0 || drained_for >= DRAIN_MAX
    })
}

/// Whether the newest replicas that stand in for one that gets no more requests have taken a connection since their time of trial. Those that
/// have not are connected to.
fn is_stood_in_for(live: &LiveService, replica: &Replica) -> bool {
    let Some(since) = replica.drained_since() else { return false };
    let up = live.newest().filter(|one| one.is_up());
    // Each is asked, not only the first that has taken none.
    up.filter(|one| !one.is_reached_since(since + STEADY_AFTER)).count() == 0
}

/// Drains the replicas of the deployments before the newest once enough of it are up, and before that as many as it stands in for;
/// whether all of them are drained and have answered what they have.
fn gives_way(live: &LiveService, now: Instant) -> bool {
    let is_up = |replica: &&Arc<Replica>| replica.is_up();
    let are_up = |group: &LiveGroup| {
        live.newest_of(group.index).filter(is_up).count() >= needed(live, group) as usize
    };
    // A group of the newest whose replicas have all ended is in no list: the older deployment answers in its place.
    let count = live.service.group.as_ref().map_or(1, |group| group.count as usize);
    if live.groups.len() < count || !live.groups.iter().all(are_up) {
        // One of the newest may have failed since they were drained: they answer again.
        if are_alike(live) {
            drain_first(live, replaceable(live, now), now);
        } else {
            drain_overtaken(live, now);
        }
        return false;
    }
    drain_first(live, usize::MAX, now);
    live.older().all(|replica| has_answered(replica, now) && is_stood_in_for(live, replica))
}

/// Drains so many of the replicas before the newest deployment; the others get requests.
fn drain_first(live: &LiveService, count: usize, now: Instant) {
    let mut older: Vec<&Arc<Replica>> = live.older().collect();
    let earliest = live.earliest();
    // Replicas that are drained already stay drained, as they may be about to end; next go those that are not ready, which are missed
    // least, and of equals those of overtaken deployments. A probe may change that meanwhile: each replica is looked at once.
    older.sort_by_cached_key(|replica| {
        let is_earliest = replica.deployment == earliest;
        (replica.drained_since().is_none(), replica.is_up(), is_earliest)
    });
    for (n, replica) in older.into_iter().enumerate() {
        let since = replica.drained_since().unwrap_or(now);
        replica.drain((n < count).then_some(since));
    }
}

/// Drains the replicas of overtaken deployments where those go as a whole; the others before the newest get requests.
fn drain_overtaken(live: &LiveService, now: Instant) {
    let is_dispensable = are_overtaken_dispensable(live, now);
    for replica in live.older() {
        let since = replica.drained_since().unwrap_or(now);
        let is_drained = is_dispensable && is_overtaken(live, replica);
        replica.drain(is_drained.then_some(since));
    }
}

/// Whether overtaken deployments are to leave their places to the newest, which waits for some: the earliest answers, or none of them
/// does. Replicas of several kinds need each other, so that all of a deployment go.
fn are_overtaken_dispensable(live: &LiveService, now: Instant) -> bool {
    let waits = live.groups.iter().any(|group| !group.queued.is_empty());
    if live.overtaken.is_empty() || !waits || are_alike(live) {
        return false;
    }
    let mut earliest = live.older().filter(|replica| !is_overtaken(live, replica));
    if earliest.any(|replica| replica.is_up() && live.is_serving(replica)) {
        return true;
    }
    // Drained replicas count too: one that is ready would answer again if its drain were lifted.
    let mut overtaken = live.older().filter(|replica| is_overtaken(live, replica));
    let is_one_ready =
        overtaken.any(|replica| replica.is_reached() && replica.readiness.is_ready());
    // A server that has just started has not reached them all yet.
    !is_one_ready && live.scale.known_for(now) >= SETTLED_AFTER
}

/// Whether overtaken deployments leave their places as a whole, and have answered what they have.
fn is_overtaken_done(live: &LiveService, now: Instant) -> bool {
    let mut running = live.older().filter(|replica| is_overtaken(live, replica));
    are_overtaken_dispensable(live, now) && running.all(|replica| has_answered(replica, now))
}

fn is_overtaken(live: &LiveService, replica: &Replica) -> bool {
    let run = replica.task.map_or(replica.attempt.job, |task| task.array);
    live.overtaken.contains(&run)
}

/// How many replicas before the newest deployment can go while others of it wait for a place: with those that are up of it, as many
/// as it is to have go on.
fn replaceable(live: &LiveService, now: Instant) -> usize {
    let [group] = &live.groups[..] else { return 0 };
    if live.newest_queued() == 0 || !are_alike(live) {
        return 0;
    }
    let up = live.newest_of(group.index).filter(|replica| replica.is_up()).count();
    if up == 0 {
        return dispensable(live, group, now);
    }
    (up + live.older().count()).saturating_sub(needed(live, group) as usize)
}

/// How many replicas before the newest deployment can go while none of it is up: at most those of overtaken deployments. Of them those go
/// that are not up, and others where as many are up without them as the newest is to have, which one that is scaled does not know yet.
fn dispensable(live: &LiveService, group: &LiveGroup, now: Instant) -> usize {
    let earliest = live.earliest();
    let (up, down): (Vec<&Arc<Replica>>, Vec<&Arc<Replica>>) =
        live.older().partition(|replica| replica.is_up());
    let overtaken_down = down.iter().filter(|replica| replica.deployment != earliest).count();
    let overtaken = live.older().filter(|replica| replica.deployment != earliest).count();
    let beyond = up.len().checked_sub(group.service.replicas as usize);
    match beyond.filter(|_| group.service.scaling.is_none()) {
        Some(beyond) => overtaken.min(down.len() + beyond),
        // A server that has just started has not reached them all yet.
        None if live.scale.known_for(now) < SETTLED_AFTER => 0,
        None => overtaken_down,
    }
}

/// How many replicas of a group of the newest deployment must be up before those before it give way. All of one that is scaled are
/// held at first: as long as an older one runs, one at least must be there to take its place.
fn needed(live: &LiveService, group: &LiveGroup) -> u32 {
    match group.service.scaling {
        Some(scaling) => {
            let is_served = live.older().next().is_some();
            // Replicas that the scaling drains do not count: an update would start them again.
            let newest = live.newest_of(group.index);
            let given_up = newest.filter(|one| one.drained_since().is_some()).count() as u32;
            let wanted = group.wanted().saturating_sub(given_up);
            wanted.max(scaling.min).max(u32::from(is_served))
        }
        None => group.service.replicas,
    }
}

#[cfg(test)]
#[path = "roller_tests.rs"]
mod tests;
