//! Updates of services in place: a newer deployment of a service runs beside the one before it until its replicas are ready. Then those
//! of the one before get no more requests, and are ended when they have answered what they have. Where some of the newer wait for a place,
//! each that is ready takes the place of one: so the next ones find theirs also where there was one for the first alone.

use super::live::{LiveGroup, LiveService};
use super::replica::Replica;
use super::scaler::DRAIN_MAX;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::CancelJobs;
use model::array::IndexSet;
use model::change::{JobFilter, JobRef};
use model::run::ArrayTask;
use std::sync::Arc;
use std::time::Instant;

pub fn roll(shared: &Shared, live: &LiveService, now: Instant) {
    if live.outdated.is_empty() {
        // The newer deployment that this one was to give way to is gone.
        for group in live.groups.iter().filter(|group| group.service.scaling.is_none()) {
            live.newest_of(group.index).for_each(|replica| replica.drain(None));
        }
        return;
    }
    let jobs = replaced(live, now);
    if !jobs.is_empty() {
        let filter = JobFilter { jobs, ..JobFilter::default() };
        let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
        shared.writer.enqueue_or_drop(Command::Cancel(Box::new(cancel)));
    }
}

/// The jobs of the deployments before the newest that can be ended: all once all have given way, and before that each replica that has.
fn replaced(live: &LiveService, now: Instant) -> Vec<JobRef> {
    if gives_way(live, now) {
        return live.outdated.iter().copied().map(JobRef::whole).collect();
    }
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
    match replica.task {
        Some(ArrayTask { array, index }) => {
            JobRef::tasks(array, IndexSet::from_range(index, index))
        }
        None => JobRef::whole(replica.attempt.job),
    }
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
        drain_first(live, replaceable(live), now);
        return false;
    }
    drain_first(live, usize::MAX, now);
    live.older().all(|replica| has_answered(replica, now))
}

/// Drains so many of the replicas before the newest deployment; the others get requests.
fn drain_first(live: &LiveService, count: usize, now: Instant) {
    let mut older: Vec<&Arc<Replica>> = live.older().collect();
    // Replicas that are drained already stay drained, as they may be about to end; next go those that are not ready, which are missed
    // least. A probe may change that meanwhile: each replica is looked at once.
    older.sort_by_cached_key(|replica| (replica.drained_since().is_none(), replica.is_up()));
    for (n, replica) in older.into_iter().enumerate() {
        let since = replica.drained_since().unwrap_or(now);
        replica.drain((n < count).then_some(since));
    }
}

/// How many replicas before the newest deployment can go while others of it wait for a place: with those that are up of it, as many
/// as it is to have go on.
fn replaceable(live: &LiveService) -> usize {
    let [group] = &live.groups[..] else { return 0 };
    let up = live.newest_of(group.index).filter(|replica| replica.is_up()).count();
    if up == 0 || group.queued.is_empty() || !are_alike(live) {
        return 0;
    }
    (up + live.older().count()).saturating_sub(needed(live, group) as usize)
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
    use super::*;
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

    #[test]
    fn each_replica_of_the_next_takes_the_place_of_one_before_it() {
        let (before, next) = (service(0, None), service(1, None));
        let (first, second) = (replica(1, &before), replica(2, &before));
        let new = replica(3, &next);
        let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(1));
        let waiting = vec![ArrayTask { array: JobId(3), index: 1 }];
        let all = vec![first.clone(), second.clone(), new.clone()];
        let mut live = LiveService::of_test(next.clone(), all, 1);
        assert!(!gives_way(&live, now) && first.is_open(), "the next has its place");
        live.groups[0].queued = waiting.clone();
        let request = first.enter();
        assert!(!gives_way(&live, now) && !first.is_open() && second.is_open());
        assert!(!has_answered(&first, later), "it has a request");
        drop(request);
        assert!(!has_answered(&first, now) && has_answered(&first, later));
        assert_eq!(replaced(&live, later), [JobRef::whole(JobId(1))]);
        let mut live = LiveService::of_test(next.clone(), vec![second.clone(), new.clone()], 1);
        live.groups[0].queued = waiting;
        assert!(!gives_way(&live, later) && second.is_open(), "it is to have two");
        let live = LiveService::of_test(next.clone(), vec![second.clone()], 0);
        assert!(!gives_way(&live, later) && second.is_open(), "the new one has failed");
        let both = vec![second.clone(), new, replica(4, &next)];
        let live = LiveService::of_test(next, both, 2);
        assert!(!gives_way(&live, later) && !second.is_open());
        assert!(gives_way(&live, later + Duration::from_secs(1)));
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
        live.groups[0].queued = vec![ArrayTask { array: JobId(3), index: 1 }];
        assert!(replaced(&live, now).is_empty());
        assert!(router.is_open() && worker.is_open(), "one would not do without the other");
        let request = router.enter();
        let all = vec![router.clone(), worker.clone(), new, replica(4, &next)];
        let live = LiveService::of_test(next, all, 2);
        for now in [now, later] {
            assert!(replaced(&live, now).is_empty(), "the worker may have the router's request");
        }
        assert!(!router.is_open() && !worker.is_open());
        drop(request);
        assert_eq!(replaced(&live, later), [1, 2].map(|job| JobRef::whole(JobId(job))));
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
