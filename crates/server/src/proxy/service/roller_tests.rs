//! What an update does at each look, by what runs and waits.

use super::ReplicaWait::{Load, Place, Update};
use super::*;
use model::array::IndexSet;
use model::id::{AttemptId, JobId};
use model::replica_group::{GroupRole, ReplicaGroup};
use model::run::ArrayTask;
use model::service::{Scaling, Service};
use std::time::Duration;

const SCALING: Scaling =
    Scaling { min: 0, target_milli: 10_000, window_s: 60, up_delay_s: 300, down_delay_s: 600 };

fn service(deployment: u32, scaling: Option<Scaling>) -> Service {
    Service { deployment, scaling, replicas: 2, ..Service::at(80) }
}

/// Longer than any test looks ahead.
const LONG: Duration = Duration::from_secs(3600);

/// A replica whose server is up, and has taken a connection whenever one is looked for.
fn replica(job: u32, service: &Service) -> Arc<Replica> {
    let replica = Replica::new(AttemptId { job: JobId(job), number: 1 }, None, service);
    replica.set_reached(Instant::now() + LONG);
    Arc::new(replica)
}

#[test]
fn scaled_deployment_gives_way_once_a_replica_of_the_next_is_up() {
    let (before, next) = (service(0, Some(SCALING)), service(1, Some(SCALING)));
    let (old, new) = (replica(1, &before), replica(2, &next));
    let (start, later) = (Instant::now(), Instant::now() + STEADY_AFTER);
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
fn replica_answers_again_where_the_server_of_the_next_has_stopped_soon() {
    let (before, next) = (service(0, None), service(1, None));
    let (old, news) = (replica(1, &before), [replica(2, &next), replica(3, &next)]);
    let all = vec![old.clone(), news[0].clone(), news[1].clone()];
    let live = LiveService::of_test(next, all, 2);
    let start = Instant::now();
    assert!(!gives_way(&live, start) && !old.is_open());
    assert!(!gives_way(&live, start + STEADY_AFTER / 2), "it has answered what it had");
    news[1].note_unreached(start + 2 * LONG);
    assert!(!gives_way(&live, start + STEADY_AFTER) && old.is_open());
}

#[test]
fn replica_ends_once_each_that_stands_in_for_it_has_taken_a_connection_after_its_trial() {
    let (before, next) = (service(0, None), service(1, None));
    let (old, news) = (replica(1, &before), [replica(2, &next), replica(3, &next)]);
    let (start, later) = (Instant::now(), Instant::now() + 2 * STEADY_AFTER);
    // The agents have no word of their servers.
    news.iter().for_each(|new| new.set_reached(start));
    let all = vec![old.clone(), news[0].clone(), news[1].clone()];
    let live = LiveService::of_test(next, all, 2);
    assert!(!gives_way(&live, start) && !old.is_open());
    assert!(!news[0].is_to_be_reached(), "the trial goes on");
    assert!(!gives_way(&live, later) && !old.is_open());
    assert!(news.iter().all(|new| new.is_to_be_reached()), "each is connected to");
    news[0].set_reached(later);
    assert!(!gives_way(&live, later), "the other may have stopped");
    news[1].set_reached(later);
    assert!(gives_way(&live, later));
    news[1].note_unreached(later + STEADY_AFTER);
    assert!(!gives_way(&live, later) && old.is_open(), "it has");
}

#[test]
fn replica_gives_its_place_once_that_which_stands_in_for_it_has_taken_a_connection() {
    let (before, next) = (service(0, None), service(1, None));
    let (first, second, new) = (replica(1, &before), replica(2, &before), replica(3, &next));
    let (start, later) = (Instant::now(), Instant::now() + 2 * STEADY_AFTER);
    new.set_reached(start);
    let mut live = LiveService::of_test(next, vec![first, second, new.clone()], 1);
    live.waiting = waiting(3, 1, &[1], Place);
    for now in [start, later] {
        assert!(steps(&live, now).is_empty());
    }
    new.set_reached(later);
    assert_eq!(steps(&live, later), [Step::Change(JobRef::whole(JobId(1)), REPLACED)]);
}

/// Replicas of a deployment that have no place: these tasks of an array.
fn waiting(array: u32, deployment: u32, indices: &[u32], wait: ReplicaWait) -> Vec<WaitingReplica> {
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
    let (now, later) = (Instant::now(), Instant::now() + STEADY_AFTER);
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
    assert_eq!(steps(&live, later + STEADY_AFTER), [Step::Cancel(ended)]);
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
    let (now, later) = (Instant::now(), Instant::now() + STEADY_AFTER);
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
    let (now, later) = (Instant::now(), Instant::now() + STEADY_AFTER);
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
fn overtaken_deployment_of_several_kinds_leaves_its_places_to_the_newest() {
    let (old, middle) = (replica(1, &grouped(0, 2)), replica(2, &grouped(1, 2)));
    let (now, later) = (Instant::now(), Instant::now() + STEADY_AFTER);
    let running = vec![old.clone(), middle.clone()];
    let mut live = LiveService::of_test(grouped(2, 2), running, 0);
    assert!(steps(&live, now).is_empty());
    assert!(old.is_open() && middle.is_open(), "the newest has its places");
    let queued = vec![ArrayTask { array: JobId(3), index: 0 }];
    live.groups[0].queued = queued.clone();
    let request = middle.enter();
    for now in [now, later] {
        assert!(steps(&live, now).is_empty(), "it has a request");
        assert!(old.is_open() && !middle.is_open());
    }
    drop(request);
    let ended = vec![JobRef::whole(JobId(2))];
    assert_eq!(steps(&live, later), [Step::Cancel(ended)]);
    // Where it alone can answer it goes on, and gets requests again.
    let unready = |job: u32, service: Service| {
        replica(job, &Service { probes: vec![Default::default()], ..service })
    };
    let settled = later + 2 * SETTLED_AFTER;
    let running = vec![unready(1, grouped(0, 2)), middle.clone()];
    let mut live = LiveService::of_test(grouped(2, 2), running, 0);
    live.groups[0].queued = queued.clone();
    assert!(steps(&live, settled).is_empty() && middle.is_open());
    // Where none answers it leaves its places.
    let running = vec![unready(1, grouped(0, 2)), unready(2, grouped(1, 2))];
    let mut live = LiveService::of_test(grouped(2, 2), running, 0);
    live.groups[0].queued = queued;
    for early in [now, later] {
        assert!(steps(&live, early).is_empty(), "the server has just started");
    }
    assert!(steps(&live, settled).is_empty(), "it is drained");
    let ended = vec![JobRef::whole(JobId(2))];
    assert_eq!(steps(&live, settled + STEADY_AFTER), [Step::Cancel(ended)]);
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
