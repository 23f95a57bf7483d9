//! Brings the replicas of services to the number that their load asks for.
//!
//! All replicas that a service may have are tasks of one array; those that it does not need are held. One that is to be given up gets no
//! more requests, and is requeued and held when it has answered those that it has.

use super::autoscale::{self, Load};
use super::live::{LiveGroup, LiveService, task_ref};
use super::replica::Replica;
use crate::shared::Shared;
use cluster::Command;
use model::change::{JobChange, Requeue};
use model::run::{ArrayTask, Hold};
use model::service::Scaling;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a replica that is given up may take to answer what it has.
pub const DRAIN_MAX: Duration = Duration::from_secs(300);

/// What becomes of a replica that is given up: it waits until it is needed again. One that has ended meanwhile is not brought back.
const GIVEN_UP: JobChange = JobChange::Requeue(Requeue { incomplete: true, ..Requeue::HELD });

pub fn scale(shared: &Shared, live: &LiveService, now: Instant) {
    for group in &live.groups {
        scale_group(shared, live, group, now);
    }
}

fn scale_group(shared: &Shared, live: &LiveService, group: &LiveGroup, now: Instant) {
    let Some(scaling) = &group.service.scaling else { return };
    if !live.may_start(group) {
        return;
    }
    let draining = live.newest_of(group.index).filter(|replica| replica.drained_since().is_some());
    let draining: Vec<&Arc<Replica>> = draining.collect();
    let current = group.wanted().saturating_sub(draining.len() as u32);
    let load = load(scaling, live, group.index, current, now);
    let wanted = autoscale::wanted(scaling, group.service.replicas, &load);
    if wanted > current {
        live.scale.note_change(group.index, now);
        add(shared, group, &draining, (wanted - current) as usize);
    } else if wanted < current {
        live.scale.note_change(group.index, now);
        give_up(shared, live, group, (current - wanted) as usize, now);
    }
    for replica in draining.into_iter().filter(|replica| is_drained(live, replica, now)) {
        if let Some(task) = replica.task {
            change(shared, task, GIVEN_UP);
        }
    }
}

/// Whether a replica that gets no more requests has answered those that it had, or had its time for them.
fn is_drained(live: &LiveService, replica: &Replica, now: Instant) -> bool {
    let is_over = |since: Instant| now.saturating_duration_since(since) >= DRAIN_MAX;
    let since = replica.drained_since();
    since.is_some_and(|since| live.outstanding(replica) == 0 || is_over(since))
}

/// All requests count for each group: behind a router each of them needs a replica of every group.
fn load(scaling: &Scaling, live: &LiveService, group: u32, replicas: u32, now: Instant) -> Load {
    let window = Duration::from_secs(scaling.window_s.into());
    // The replicas of an older deployment take the requests, and wait for one that takes their place: no request waits for that.
    let is_awaited = live.older().next().is_some();
    Load {
        requests: live.scale.arrivals.within(window, now),
        waiting: live.scale.waiting() + usize::from(is_awaited),
        outstanding: live.replicas.iter().map(|replica| replica.outstanding()).sum(),
        replicas,
        unchanged: live.scale.unchanged(group, now),
    }
}

/// Adds replicas: ones that are being drained are kept first, because they answer at once; then held ones are released.
fn add(shared: &Shared, group: &LiveGroup, draining: &[&Arc<Replica>], more: usize) {
    draining.iter().take(more).for_each(|replica| replica.drain(None));
    for task in group.parked.iter().take(more.saturating_sub(draining.len())) {
        change(shared, *task, JobChange::Release);
    }
}

/// Gives replicas up: ones that have not started are held first, because that costs no request; then running ones are drained,
/// the last ones first.
fn give_up(shared: &Shared, live: &LiveService, group: &LiveGroup, fewer: usize, now: Instant) {
    let mut left = fewer;
    for task in group.queued.iter().rev().take(fewer) {
        change(shared, *task, JobChange::Hold { by: Hold::User });
        left -= 1;
    }
    let running = live.newest_of(group.index).rev();
    let running = running.filter(|replica| replica.drained_since().is_none());
    running.take(left).for_each(|replica| replica.drain(Some(now)));
}

/// What is lost because the queue is full is asked for again in a second.
pub fn change(shared: &Shared, task: ArrayTask, change: JobChange) {
    shared.writer.enqueue_or_drop(Command::ChangeJob { job: task_ref(task), change });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::place_use::PlaceUse;
    use crate::testing::TestServer;
    use model::id::{AttemptId, JobId};
    use model::service::Service;

    const SCALING: Scaling =
        Scaling { min: 0, target_milli: 10_000, window_s: 60, up_delay_s: 300, down_delay_s: 600 };

    fn replica(job: u32) -> Arc<Replica> {
        let attempt = AttemptId { job: JobId(job), number: 1 };
        Arc::new(Replica::new(attempt, None, &Service::at(80)))
    }

    #[test]
    fn first_replica_of_a_deployment_starts_for_those_before_it() {
        let wanted = |deployment: u32| {
            let service = Service { deployment, scaling: Some(SCALING), ..Service::at(80) };
            let live = LiveService::of_test(service, vec![replica(1)], 0);
            autoscale::wanted(&SCALING, 5, &load(&SCALING, &live, 0, 0, Instant::now()))
        };
        assert_eq!((wanted(1), wanted(0)), (1, 0));
    }

    #[tokio::test]
    async fn replica_that_is_given_up_gets_no_more_requests_and_answers_those_that_it_has() {
        let server = TestServer::without_writer();
        let service = Service { replicas: 2, scaling: Some(SCALING), ..Service::at(80) };
        let (first, last) = (replica(1), replica(2));
        let live = LiveService::of_test(service, vec![first.clone(), last.clone()], 2);
        let request = last.enter();
        scale(&server.shared, &live, Instant::now());
        assert!(last.is_open(), "the delay has not passed");
        let now = Instant::now() + Duration::from_secs(SCALING.down_delay_s.into());
        scale(&server.shared, &live, now);
        assert!(first.is_open() && !last.is_open(), "one is left for the request");
        let chosen = |_| live.choose(&[], PlaceUse::Whole).map(|replica| replica.attempt);
        assert!((0..4).map(chosen).all(|attempt| attempt == Some(first.attempt)));
        assert!(!is_drained(&live, &last, now) && !is_drained(&live, &first, now));
        assert!(is_drained(&live, &last, now + DRAIN_MAX), "it does not wait for ever");
        drop(request);
        assert!(is_drained(&live, &last, now));
    }
}
