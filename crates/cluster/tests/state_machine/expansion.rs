//! `priority/sluice`: the queue by expansion factor, with lengths that are expected from a user's last two jobs.

use crate::job_builder::{Ask, ask, bob};
use crate::testbed::{World, world_with};
use model::id::JobId;
use model::priority::PriorityPolicy;
use model::time::TimeLimit;
use std::cmp::Reverse;
use std::time::Duration;

/// One node, priorities anew each minute, and an hour's wait at most before a job comes first.
fn by_expansion() -> World {
    world_with(1, |config| {
        config.parameters.priority = PriorityPolicy {
            expansion: true,
            max_age_s: 3_600,
            calc_period_s: 60,
            ..PriorityPolicy::default()
        };
    })
}

fn whole_node(minutes: u32) -> Ask {
    ask().cpus(8).asking(|request| request.time_limit = Some(TimeLimit::Minutes(minutes)))
}

fn order(world: &World) -> Vec<JobId> {
    let mut queue = cluster::view::view(&world.state, world.now).queue;
    queue.sort_by_key(|entry| (Reverse(entry.priority), entry.submit, entry.job));
    queue.iter().map(|entry| entry.job).collect()
}

#[test]
fn short_jobs_pass_long_ones_as_they_wait_until_one_has_waited_too_long() {
    let mut world = by_expansion();
    world.started(whole_node(600));
    let long = world.submit(whole_node(600));
    let short = world.submit(whole_node(10));
    assert_eq!(order(&world), [long, short], "with no wait all factors are one");
    // Ten minutes are one length of the short job, and a sixtieth of the long one's.
    world.pass(600);
    assert_eq!(order(&world), [short, long]);
    world.planned();
    // Both have waited for an hour: the order of submission.
    world.pass(3_000);
    let fresh = world.submit(whole_node(1));
    assert_eq!(order(&world), [long, short, fresh]);
    world.planned();
}

#[test]
fn of_a_queue_that_is_all_too_old_the_three_longest_waits_come_first() {
    let mut world = by_expansion();
    let running = world.started(whole_node(600)).job;
    let long: Vec<JobId> = (0..5).map(|_| world.submit(whole_node(600))).collect();
    let short = world.submit(whole_node(10));
    world.pass(3_600);
    assert_eq!(order(&world), [long[0], long[1], long[2], short, long[3], long[4]]);
    let first = cluster::view::view(&world.state, world.now).queue[0].priority;
    // When one of the three starts, the next job takes its place among them at once.
    world.planned();
    world.end(running, 0);
    let started: Vec<JobId> = world.plan().iter().map(|attempt| attempt.job).collect();
    assert_eq!(started, [long[0]]);
    assert_eq!(world.job(long[0]).priority, first, "as the queue had it");
    world.planned();
    assert_eq!(order(&world), [long[1], long[2], long[3], short, long[4]]);
    // After five times as long every job comes first.
    world.pass(4 * 3_600);
    assert_eq!(order(&world), [long[1], long[2], long[3], long[4], short]);
}

#[test]
fn length_of_a_job_is_expected_from_its_owners_last_two() {
    let mut world = by_expansion();
    for run_s in [600, 60, 120] {
        let job = world.started(ask()).job;
        world.now = world.now + Duration::from_secs(run_s);
        world.end(job, 0);
    }
    let others = world.started(whole_node(60).of(bob())).job;
    let next = world.submit(ask());
    assert_eq!(world.job(next).expected_s, Some(90));
    assert_eq!(world.job(others).expected_s, None, "nothing of bob's has run");
    world.pass(90);
    let priority = |world: &World| cluster::view::view(&world.state, world.now).queue[0].priority;
    assert_eq!(priority(&world), 20_000);
    // More than it asks for is expected of no job.
    let short = whole_node(1).cpus(1);
    let short = world.submit(short);
    world.pass(60);
    let view = cluster::view::view(&world.state, world.now);
    let entry = view.queue.iter().find(|entry| entry.job == short).expect("it waits");
    assert_eq!(entry.priority, 20_000);
    world.restart();
    assert_eq!(world.job(next).expected_s, Some(90));
    assert_eq!(world.state.last_runs.expected_s(1000), Some(90));
}
