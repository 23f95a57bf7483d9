//! Who shares nodes, where the configuration changes under running jobs.

use crate::job_builder::{Ask, alice, ask, bob};
use crate::testbed::{World, config, world, world_with};
use cluster::Command;
use model::id::JobId;
use model::partition::{OverSubscribe, Partition};
use model::reason::Reason;
use model::run::JobState;
use model::time::{TimeLimit, Timestamp};
use std::time::Duration;

fn reconfigure(world: &mut World, set: impl FnOnce(&mut Partition)) {
    let mut config = config(&["n1", "n2"]);
    set(&mut config.partitions[0]);
    let beside = Partition::over("beside", vec!["n1".into(), "n2".into()]);
    config.partitions.push(beside);
    world.run(Command::Configure(Box::new(config)));
}

fn minutes(ask: Ask, minutes: u32) -> Ask {
    ask.asking(|request| request.time_limit = Some(TimeLimit::Minutes(minutes)))
}

/// When a waiting job is expected to start.
fn expected(world: &World, job: JobId) -> Option<Timestamp> {
    let view = cluster::view::view(&world.state, world.now);
    let explained = sched::explain(&view, world.now, &mut sched::Memo::default(), job);
    explained.and_then(|explained| explained.expected).map(|estimate| estimate.start)
}

fn reason(world: &World, job: JobId) -> Option<Reason> {
    let view = cluster::view::view(&world.state, world.now);
    let plan = sched::plan(&view, world.now, &mut sched::Memo::default());
    plan.reasons.into_iter().find(|(of, _)| *of == job).map(|(_, reason)| reason)
}

/// The head of the queue keeps its place behind a job that had its node whole, and is not overtaken for the time that it needs.
#[test]
fn whole_node_that_a_new_configuration_shares_comes_free_with_its_job() {
    let shared: [fn(&mut Partition); 3] = [
        |_| {},
        |main| main.over_subscribe = OverSubscribe::Force(1),
        |main| main.exclusive_user = true,
    ];
    for share in shared {
        let mut w = world_with(2, |config| {
            config.partitions[0].over_subscribe = OverSubscribe::Exclusive;
        });
        w.started(minutes(ask().on("n1"), 30));
        reconfigure(&mut w, share);
        assert!(!w.state.nodes["n1"].used.exclusive, "it is as the partition is now");
        let head = w.submit(minutes(ask().nodes(2).cpus(8), 5));
        let later = w.submit(minutes(ask().on("n2").cpus(8), 60));
        assert_eq!(expected(&w, head), Some(w.now + Duration::from_secs(30 * 60)));
        assert_eq!(w.plan(), [], "{:?}", w.is(later));
        assert_eq!(reason(&w, later), Some(Reason::Priority));
        w.restart();
        assert!(!w.state.nodes["n1"].used.exclusive, "a snapshot says the same");
    }
}

/// Two jobs that share a node are both to have it whole: it comes free with the second.
#[test]
fn node_of_two_jobs_that_are_to_have_it_whole_comes_free_with_the_later() {
    let mut w = world(2);
    let first = w.started(minutes(ask().on("n1"), 10)).job;
    let second = w.started(minutes(ask().on("n1"), 20)).job;
    reconfigure(&mut w, |main| main.over_subscribe = OverSubscribe::Exclusive);
    let beside = |request: &mut model::request::Request| request.partitions = vec!["beside".into()];
    let waits = w.submit(ask().on("n1").asking(beside));
    assert_eq!(expected(&w, waits), Some(w.now + Duration::from_secs(20 * 60)));
    assert_eq!(w.plan(), []);
    w.end(first, 0);
    assert_eq!(w.plan(), [], "the second still has it whole");
    w.end(second, 0);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.is(waits), JobState::Running);
}

/// Jobs of two users share a node that is to be one user's: nobody joins either before the other has left.
#[test]
fn node_of_two_users_that_is_to_be_one_users_takes_nobody_before_one_has_left() {
    let mut w = world(2);
    w.started(minutes(ask().of(alice()).on("n1"), 10));
    let of_bob = w.started(minutes(ask().of(bob()).on("n1"), 20)).job;
    reconfigure(&mut w, |main| main.exclusive_user = true);
    let joins = w.submit(minutes(ask().of(alice()).on("n1"), 60));
    assert_eq!(expected(&w, joins), Some(w.now + Duration::from_secs(20 * 60)));
    assert_eq!(w.planned(), [], "what would be refused is not planned");
    w.end(of_bob, 0);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.is(joins), JobState::Running);
}
