//! Updates of services in place: a newer deployment of a service runs beside the one before it until its replicas are ready. Then those
//! of the one before get no more requests, and are ended when they have answered what they have.

use super::live::{LiveGroup, LiveService};
use super::replica::Replica;
use super::scaler::DRAIN_MAX;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::CancelJobs;
use model::change::{JobFilter, JobRef};
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
    if gives_way(live, now) {
        let jobs = live.outdated.iter().copied().map(JobRef::whole).collect();
        let filter = JobFilter { jobs, ..JobFilter::default() };
        let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
        shared.writer.enqueue_or_drop(Command::Cancel(Box::new(cancel)));
    }
}

/// Drains the replicas of the deployments before the newest once enough of it are up; whether they have answered what they have.
fn gives_way(live: &LiveService, now: Instant) -> bool {
    let is_up = |replica: &&Arc<Replica>| replica.is_up();
    let are_up = |group: &LiveGroup| {
        live.newest_of(group.index).filter(is_up).count() >= needed(live, group) as usize
    };
    // A group of the newest whose replicas have all ended is in no list: the older deployment answers in its place.
    let count = live.service.group.as_ref().map_or(1, |group| group.count as usize);
    if live.groups.len() < count || !live.groups.iter().all(are_up) {
        // One of the newest may have failed since they were drained: they answer again.
        live.older().for_each(|replica| replica.drain(None));
        return false;
    }
    let mut is_done = true;
    for replica in live.older() {
        let since = replica.drained_since().unwrap_or(now);
        replica.drain(Some(since));
        let is_late = now.saturating_duration_since(since) >= DRAIN_MAX;
        // A request that was on its way to it when it was closed has arrived by the next look.
        is_done &= since < now && replica.outstanding() == 0 || is_late;
    }
    is_done
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
    fn deployment_before_stays_when_a_whole_group_of_the_next_has_ended() {
        let place = |count| ReplicaGroup {
            index: 0,
            count,
            first_replica: 0,
            name: "first".into(),
            role: GroupRole::Serves,
            waits_for_router: false,
        };
        let of = |deployment, count| Service {
            group: Some(place(count)),
            replicas: 1,
            ..service(deployment, None)
        };
        let now = Instant::now();
        for (count, stays) in [(2, true), (1, false)] {
            let (old, new) = (replica(1, &of(0, count)), replica(2, &of(1, count)));
            let live = LiveService::of_test(of(1, count), vec![old.clone(), new], 1);
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
