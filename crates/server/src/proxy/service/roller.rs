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
use std::time::Instant;

/// What becomes of a replica that waits for a place which a newer deployment is to have. The journal has whose hold it is: a server that
/// starts anew releases what the last one held, and no hold of its owner.
const OVERTAKEN: JobChange = JobChange::Hold { by: Hold::Update };

/// What becomes of a replica that has given its place. One that has ended meanwhile is not brought back.
const REPLACED: JobChange =
    JobChange::Requeue(Requeue { incomplete: true, for_update: true, ..Requeue::HELD });

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
    let held = older
        .filter(|one| one.deployment == earliest && one.wait == ReplicaWait::Update);
    let missing = (group.service.replicas as usize).saturating_sub(there);
    held.take(missing).map(|one| one.job.clone()).collect()
}

/// The replicas of the deployments before the newest that have given their place.
fn replaced(live: &LiveService, now: Instant) -> Vec<JobRef> {
    // The requests of a worker are its router's: nobody knows which it has.
    if !are_alike(live) {
        return Vec::new();
    }
    let answered = live.older().filter(|replica| has_answered(replica, now));
    answered.map(|replica| job_of(replica)).collect()
}

/// Whether there is one kind of replicas, in each deployment. Those of several kinds need each other.
fn are_alike(live: &LiveService) -> bool {
    live.replicas.iter().all(|replica| replica.group_count == 1) && live.service.group.is_none()
}

fn job_of(replica: &Replica) -> JobRef {
    replica.task.map_or_else(|| JobRef::whole(replica.attempt.job), task_ref)
}

/// Whether a replica that gets no more requests has answered those that it had, or had its time for them.
fn has_answered(replica: &Replica, now: Instant) -> bool {
    replica.drained_since().is_some_and(|since| {
        let is_late = now.saturating_duration_since(since) >= DRAIN_MAX;
        // A request that was on its way to it when it was closed has arrived by the next look.
        since < now && replica.outstanding() == 0 || is_late
    })
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
        drain_first(live, replaceable(live, now), now);
        return false;
    }
    drain_first(live, usize::MAX, now);
    live.older().all(|replica| has_answered(replica, now))
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
mod tests {
    use super::ReplicaWait::{Load, Place, Update};
    use super::*;
    use model::array::IndexSet;
    use model::id::{AttemptId, JobId};
    use model::replica_group::{GroupRole, ReplicaGroup};
    use model::service::{Scaling, Service};
    use std::time::Duration;

    const SCALING: Scaling =
        Scaling { min: 0, target_milli: 10_000, window_s: 60, up_delay_s: 300, down_delay_s: 600 };

    fn service(deployment: u32, scaling: Option<Scaling>) -> Service {
        Service { deployment, scaling, replicas: 2, ..Service::at(80) }
    }

    /// A replica whose server is up.
    fn replica(job: u32, service: &Service) -> Arc<Replica> {
        let replica = Replica::new(AttemptId { job: JobId(job), number: 1 }, None, service);
        replica.set_reached();
        Arc::new(replica)
    }

    #[test]
    fn scaled_deployment_gives_way_once_a_replica_of_the_next_is_up() {
        let (before, next) = (service(0, Some(SCALING)), service(1, Some(SCALING)));
        let (old, new) = (replica(1, &before), replica(2, &next));
        let (start, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        // All of the next are held.
        let held = LiveService::of_test(next.clone(), vec![old.clone()], 0);
        assert!(!gives_way(&held, start) && old.is_open());
        let least = Service { scaling: Some(Scaling { min: 2, ..SCALING }), ..next.clone() };
        let few = LiveService::of_test(least, vec![old.clone(), new.clone()], 1);
        assert!(!gives_way(&few, start) && old.is_open(), "it is to have two");
        let up = LiveService::of_test(next, vec![old.clone(), new.clone()], 1);
        assert!(!gives_way(&up, start) && !old.is_open() && new.is_open());
        assert!(gives_way(&up, later));
    }

    /// Replicas of a deployment that have no place: these tasks of an array.
    fn waiting(
        array: u32,
        deployment: u32,
        indices: &[u32],
        wait: ReplicaWait,
    ) -> Vec<WaitingReplica> {
        let one = |index: &u32| {
            let job = JobRef::tasks(JobId(array), IndexSet::from_range(*index, *index));
            WaitingReplica { job, deployment, wait }
        };
        indices.iter().map(one).collect()
    }

    /// A change of tasks of an array.
    fn change(array: u32, (first, last): (u32, u32), change: JobChange) -> Step {
        Step::Change(JobRef::tasks(JobId(array), IndexSet::from_range(first, last)), change)
    }

    #[test]
    fn each_replica_of_the_next_takes_the_place_of_one_before_it() {
        let (before, next) = (service(0, None), service(1, None));
        let (first, second) = (replica(1, &before), replica(2, &before));
        let new = replica(3, &next);
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let queued = waiting(3, 1, &[1], Place);
        let all = vec![first.clone(), second.clone(), new.clone()];
        let mut live = LiveService::of_test(next.clone(), all, 1);
        assert!(!gives_way(&live, now) && first.is_open(), "the next has its place");
        live.waiting = queued.clone();
        let request = first.enter();
        assert!(!gives_way(&live, now) && !first.is_open() && second.is_open());
        assert!(!has_answered(&first, later), "it has a request");
        drop(request);
        assert!(!has_answered(&first, now) && has_answered(&first, later));
        // It waits until the update is done.
        assert_eq!(steps(&live, later), [Step::Change(JobRef::whole(JobId(1)), REPLACED)]);
        let mut live = LiveService::of_test(next.clone(), vec![second.clone(), new.clone()], 1);
        live.waiting = queued;
        assert!(!gives_way(&live, later) && second.is_open(), "it is to have two");
        let live = LiveService::of_test(next.clone(), vec![second.clone()], 0);
        assert!(!gives_way(&live, later) && second.is_open(), "the new one has failed");
        let both = vec![second.clone(), new, replica(4, &next)];
        let live = LiveService::of_test(next, both, 2);
        assert!(!gives_way(&live, later) && !second.is_open());
        let ended = vec![JobRef::whole(JobId(2))];
        assert_eq!(steps(&live, later + Duration::from_secs(1)), [Step::Cancel(ended)]);
    }

    #[test]
    fn replicas_that_gave_their_place_start_again_when_the_next_deployment_is_gone() {
        let (before, next) = (service(0, None), service(1, None));
        let (old, new) = (replica(1, &before), replica(3, &next));
        let now = Instant::now();
        let replaced = waiting(1, 0, &[1], Update);
        let mut live = LiveService::of_test(next, vec![old.clone(), new], 1);
        live.waiting = [replaced.clone(), waiting(3, 1, &[1], Place)].concat();
        assert!(steps(&live, now).is_empty(), "the update goes on");
        old.drain(Some(now));
        // The server knows nothing of the update but what the state has: it may have started since.
        let mut alone = LiveService::of_test(before, vec![old.clone()], 1);
        alone.waiting = replaced;
        assert_eq!(steps(&alone, now), [change(1, (1, 1), JobChange::Release)]);
        assert!(old.is_open());
        // What its owner holds stays held, also where the deployment has fewer replicas than it is to have.
        let mut again = LiveService { scale: live.scale, ..alone };
        again.waiting = waiting(1, 0, &[1], Load);
        assert!(steps(&again, now).is_empty());
    }

    #[test]
    fn scaled_deployment_whose_update_is_gone_starts_replicas_by_its_load_alone() {
        let (before, next) = (service(0, Some(SCALING)), service(1, Some(SCALING)));
        let (old, now) = (replica(1, &before), Instant::now());
        let live = LiveService::of_test(next, vec![old.clone()], 0);
        steps(&live, now);
        old.drain(Some(now));
        let alone = LiveService::of_test(before, vec![old.clone()], 1);
        let mut again = LiveService { scale: live.scale, ..alone };
        again.waiting = waiting(1, 0, &[1], Update);
        assert!(steps(&again, now).is_empty());
        assert!(old.is_open(), "the update drained it");
        // From now on it is drained by the scaling.
        old.drain(Some(now));
        assert!(steps(&again, now).is_empty() && !old.is_open());
    }

    #[test]
    fn replica_before_starts_again_for_one_of_the_next_that_failed_for_good() {
        let (before, next) = (service(0, None), service(1, None));
        let now = Instant::now();
        // The next deployment has one task left, which has no place.
        let mut live = LiveService::of_test(next, vec![], 0);
        live.outdated = [JobId(1)].into();
        live.waiting = [waiting(1, 0, &[0, 1], Update), waiting(3, 1, &[1], Place)].concat();
        assert_eq!(steps(&live, now), [change(1, (0, 0), JobChange::Release)]);
        live.waiting[0].wait = Load;
        assert_eq!(steps(&live, now), [change(1, (1, 1), JobChange::Release)], "its owner's hold");
        live.replicas = vec![replica(1, &before)];
        live.waiting.remove(0);
        assert!(steps(&live, now).is_empty(), "there are two");
    }

    #[test]
    fn update_that_a_newer_one_overtakes_leaves_it_its_places() {
        let (first, second, third) = (service(0, None), service(1, None), service(2, None));
        let (old, middle) = (replica(1, &first), replica(3, &second));
        let stuck = Arc::new(Replica::new(
            AttemptId { job: JobId(4), number: 1 },
            None,
            &Service { probes: vec![Default::default()], ..second.clone() },
        ));
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let running = vec![old.clone(), middle.clone(), stuck.clone()];
        let mut live = LiveService::of_test(third.clone(), running, 0);
        let queued = waiting(5, 2, &[0, 1], Place);
        live.waiting = [waiting(3, 1, &[1, 2], Place), queued.clone()].concat();
        assert_eq!(steps(&live, now), [change(3, (1, 2), OVERTAKEN)]);
        assert!(old.is_open() && middle.is_open(), "as many as it is to have");
        live.waiting = queued.clone();
        assert_eq!(steps(&live, later), [Step::Change(JobRef::whole(JobId(4)), REPLACED)]);
        // One of the overtaken goes where all are up; none where those that are up would be too few.
        let running = vec![old.clone(), middle.clone(), replica(6, &second)];
        let mut live = LiveService::of_test(third.clone(), running, 0);
        live.waiting = queued.clone();
        assert!(steps(&live, now).is_empty());
        assert!(old.is_open() && !middle.is_open());
        middle.drain(None);
        let mut live = LiveService::of_test(third, vec![old.clone(), stuck.clone()], 0);
        live.waiting = queued;
        stuck.drain(None);
        assert!(steps(&live, now).is_empty());
        assert!(stuck.drained_since().is_none(), "the server has just started");
        steps(&live, now + 2 * SETTLED_AFTER);
        assert!(stuck.drained_since().is_some() && old.is_open());
    }

    /// A service with so many groups, and a replica in the first.
    fn grouped(deployment: u32, count: u32) -> Service {
        let group = ReplicaGroup {
            index: 0,
            count,
            first_replica: 0,
            name: "first".into(),
            role: GroupRole::Serves,
            waits_for_router: false,
        };
        Service { group: Some(group), replicas: 1, ..service(deployment, None) }
    }

    #[test]
    fn replicas_of_several_kinds_end_together() {
        let (before, next) = (grouped(0, 2), service(1, None));
        let (router, worker) = (replica(1, &before), replica(2, &before));
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let new = replica(3, &next);
        let all = vec![router.clone(), worker.clone(), new.clone()];
        let mut live = LiveService::of_test(next.clone(), all, 1);
        live.waiting = waiting(3, 1, &[1], Place);
        assert!(steps(&live, now).is_empty());
        assert!(router.is_open() && worker.is_open(), "one would not do without the other");
        let request = router.enter();
        let all = vec![router.clone(), worker.clone(), new, replica(4, &next)];
        let live = LiveService::of_test(next, all, 2);
        for now in [now, later] {
            assert!(steps(&live, now).is_empty(), "the worker may have the router's request");
        }
        assert!(!router.is_open() && !worker.is_open());
        drop(request);
        let ended = [1, 2].map(|job| JobRef::whole(JobId(job))).to_vec();
        assert_eq!(steps(&live, later), [Step::Cancel(ended)]);
    }

    #[test]
    fn deployment_before_stays_when_a_whole_group_of_the_next_has_ended() {
        let now = Instant::now();
        for (count, stays) in [(2, true), (1, false)] {
            let (old, new) = (replica(1, &grouped(0, count)), replica(2, &grouped(1, count)));
            let live = LiveService::of_test(grouped(1, count), vec![old.clone(), new], 1);
            assert!(!gives_way(&live, now));
            assert_eq!(old.is_open(), stays, "{count} groups, of which one is there");
        }
    }

    #[test]
    fn deployment_before_answers_again_when_a_replica_of_the_next_has_failed() {
        let (before, next) = (service(0, None), service(1, None));
        let old = replica(1, &before);
        let (first, second) = (replica(2, &next), replica(3, &next));
        let now = Instant::now();
        let both = vec![old.clone(), first.clone(), second];
        let both = LiveService::of_test(next.clone(), both, 2);
        assert!(!gives_way(&both, now) && !old.is_open());
        let one = LiveService::of_test(next, vec![old.clone(), first], 1);
        assert!(!gives_way(&one, now + Duration::from_secs(1)) && old.is_open());
    }
}
