//! `priority/sluice`: the queue by expansion factor, with lengths that are expected from a user's last two jobs.

use crate::job_builder::{Ask, ask, bob};
use crate::testbed::{World, world_with};
use cluster::view::priority::Ranking;
use model::change::{JobChange, JobRef};
use model::id::JobId;
use model::priority::{PriorityFlags, PriorityPolicy};
use model::run::Hold;
use model::time::TimeLimit;
use std::cmp::Reverse;
use std::time::Duration;

/// One node, priorities anew each minute, and an hour's wait at most before a job comes first.
fn by_expansion() -> World {
    by_expansion_with(PriorityFlags::default())
}

fn by_expansion_with(flags: PriorityFlags) -> World {
    world_with(1, |config| {
        config.parameters.priority = PriorityPolicy {
            expansion: true,
            max_age_s: 3_600,
            calc_period_s: 60,
            flags,
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

/// The priority that is shown of a job. A start, which looks at one job alone, has the same.
fn priority(world: &World, id: JobId) -> u64 {
    let (job, now) = (world.job(id), world.now);
    let shown = Ranking::new(&world.state, now).shown(job, now);
    assert_eq!(Ranking::shown_of_one(&world.state, job, now), shown, "job {id}");
    shown
}

/// The jobs that come before all others because of their age, in order.
fn first(world: &World) -> Vec<JobId> {
    order(world).into_iter().filter(|id| priority(world, *id) >= 1 << 31).collect()
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
fn het_job_takes_one_place_among_the_first_and_none_while_a_component_is_held() {
    let mut world = by_expansion();
    world.started(whole_node(600));
    let leader = world.submit(whole_node(600).cpus(2).het(2));
    let long: Vec<JobId> = (0..3).map(|_| world.submit(whole_node(600))).collect();
    world.pass(3_600);
    assert_eq!(first(&world), [leader, long[0], long[1]]);
    world.planned();
    let component = JobId(leader.0 + 1);
    world.change(component, JobChange::Hold { by: Hold::Admin }).expect("the component waits");
    assert_eq!(first(&world), long, "the het job cannot start");
    world.planned();
    world.change(component, JobChange::Release).expect("the component is held");
    assert_eq!(first(&world), [leader, long[0], long[1]]);
    world.planned();
}

/// An hour is six times as long as a job of ten minutes, whose priority is 70,000 with that wait and 10,000 without.
#[test]
fn with_accrue_always_jobs_that_may_not_start_age_but_take_no_place_among_the_first() {
    let after_an_hour = |accrue_always: bool| {
        let mut world =
            by_expansion_with(PriorityFlags { accrue_always, ..PriorityFlags::default() });
        let running = world.started(whole_node(600)).job;
        let held = world.submit(whole_node(10).held(Hold::User));
        let dependent = world.submit(whole_node(10).after(&format!("afterok:{running}")));
        let long: Vec<JobId> = (0..3).map(|_| world.submit(whole_node(600))).collect();
        world.pass(3_600);
        assert_eq!(first(&world), long, "ACCRUE_ALWAYS: {accrue_always}");
        world.planned();
        let priorities = [held, dependent].map(|id| priority(&world, id));
        (world, held, long, priorities)
    };
    let (.., priorities) = after_an_hour(false);
    assert_eq!(priorities, [10_000, 10_000]);
    let (mut world, held, long, priorities) = after_an_hour(true);
    assert_eq!(priorities, [70_000, 70_000]);
    // Released, the job takes the place of its age at once.
    world.change(held, JobChange::Release).expect("the job is held");
    assert_eq!(first(&world), [held, long[0], long[1]]);
    world.planned();
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
    assert_eq!(priority(&world, next), 20_000);
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

#[test]
fn job_that_ends_without_a_start_keeps_the_priority_that_it_waited_with() {
    let mut world = by_expansion();
    let begin = Some(world.now + Duration::from_secs(7_200));
    let later = world.submit(ask().asking(|request| request.begin = begin));
    let array = world.submit(ask().array("0-1"));
    for id in [later, array] {
        let waiting = priority(&world, id);
        assert!(waiting < 1 << 31, "{waiting} is a place in the queue");
        world.cancel(&[JobRef::whole(id)]);
        assert!(world.job(id).has_ended());
        let booked = world.records.last().expect("its record").priority;
        assert_eq!((priority(&world, id), booked), (waiting, waiting));
    }
    let held = world.submit(ask().held(Hold::User));
    world.cancel(&[JobRef::whole(held)]);
    assert_eq!(world.records.last().expect("its record").priority, 0);
}
