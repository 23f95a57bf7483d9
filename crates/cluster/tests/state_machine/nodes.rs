//! Nodes that fall silent, fail, come back with what was given up, are drained, and leave the file.

use crate::job_builder::ask;
use crate::testbed::{START, World, config, ended, world, world_with};
use cluster::command::AttemptReport;
use cluster::hello_answer::HelloAnswer;
use cluster::{ClusterConfig, Command};
use model::amount::Bytes;
use model::change::{JobRef, NodeChange};
use model::health::HealthSource;
use model::id::{AttemptId, JobId};
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeCause, ReasonAuthor};
use model::partition::Partition;
use model::run::{Hold, JobState};
use sched::view::Availability;
use std::collections::BTreeSet;

fn maintenance() -> String {
    "maintenance".into()
}

#[test]
fn silent_node_takes_no_new_jobs_and_keeps_its_jobs_until_the_timeout() {
    let mut w = world(1);
    let job = w.started(ask()).job;
    w.run(Command::NodeLost { node: "n1".into() });
    w.submit(ask());
    assert_eq!(w.plan(), []);
    w.pass(299);
    assert_eq!((w.state.nodes["n1"].slot, w.is(job)), (SlotState::Silent, JobState::Running));
    w.pass(1);
    assert_eq!((w.state.nodes["n1"].slot, w.is(job)), (SlotState::Down, JobState::NodeFail));
}

#[test]
fn stale_attempt_must_end_before_its_node_is_used_again() {
    let mut w = world_with(1, |c| c.parameters.return_to_service = 1);
    let given_up = w.started(ask().requeue());
    w.fail("n1");
    assert_eq!(w.is(given_up.job), JobState::Pending);
    w.hello("n1", &[given_up]);
    assert_eq!(w.state.nodes["n1"].availability(), Availability::Reconciling);
    assert_eq!(w.plan(), []);
    w.report("n1", given_up, ended(0));
    let again = w.plan();
    assert_eq!((again[0].job, again[0].number), (given_up.job, 2));
    assert_eq!(w.is(given_up.job), JobState::Running, "the old attempt's end is not the job's");
}

#[test]
fn attempt_that_a_node_no_longer_holds_does_not_block_it() {
    let mut w = world_with(1, |c| c.parameters.return_to_service = 1);
    w.started(ask());
    w.fail("n1");
    w.hello("n1", &[]);
    assert_eq!(w.state.nodes["n1"].availability(), Availability::Available);
}

#[test]
fn node_that_says_hello_is_told_what_follows_from_what_it_holds() {
    let mut w = world(1);
    let (kept, lost, ending) = (w.started(ask()), w.started(ask()), w.started(ask()));
    w.cancel(&[JobRef::whole(ending.job)]);
    let outcome = w.job(ending.job).attempt().and_then(|a| a.ending).expect("it ends").outcome;
    let unknown = |job| AttemptId { job: JobId(job), number: 1 };
    let held = [(kept, true), (ending, true), (unknown(900), false), (unknown(901), true)];
    let answers = |sent: bool| w.state.hello_answers("n1", &held, |_| sent);
    let common = [
        HelloAnswer::End(ending, outcome),
        HelloAnswer::Forget(unknown(900)),
        HelloAnswer::GoOn(kept),
    ];
    let has_all = |answers: &[HelloAnswer]| common.iter().all(|answer| answers.contains(answer));
    let found = answers(false);
    assert!(has_all(&found) && found.contains(&HelloAnswer::Launch(lost)), "{found:?}");
    assert_eq!(found.len(), 4, "what is alive and unknown is left to its own end: {found:?}");
    // Its launch is on the way: the hello was sent before.
    let found = answers(true);
    assert!(has_all(&found) && found.len() == 3, "{found:?}");
    assert_eq!(w.state.hello_answers("n1", &[], |_| false).len(), 3);
    assert_eq!(w.state.hello_answers("n9", &held, |_| false), []);
}

#[test]
fn return_to_service_decides_whether_a_node_that_was_down_is_used_at_once() {
    for (return_to_service, expected) in [(0, Availability::Down), (1, Availability::Available)] {
        let mut w = world_with(1, |c| c.parameters.return_to_service = return_to_service);
        w.fail("n1");
        assert_eq!(w.state.nodes["n1"].availability(), Availability::Down);
        w.hello("n1", &[]);
        let node = &w.state.nodes["n1"];
        assert_eq!((node.slot, node.availability()), (SlotState::Up, expected));
        assert_eq!(
            node.reason.is_some(),
            return_to_service == 0,
            "the reason stays with the state"
        );
        w.change_nodes(&["n1"], NodeChange::Resume);
        assert_eq!(w.state.nodes["n1"].availability(), Availability::Available);
    }
}

#[test]
fn node_that_was_silent_briefly_keeps_its_jobs_and_takes_new_ones() {
    let mut w = world(1);
    let attempt = w.started(ask());
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(60);
    w.hello("n1", &[attempt]);
    assert_eq!(w.state.nodes["n1"].availability(), Availability::Available);
    w.end(attempt.job, 0);
    assert_eq!(w.is(attempt.job), JobState::Completed);
}

#[test]
fn new_term_uses_no_node_before_its_hello() {
    let mut w = world(2);
    let attempt = w.started(ask().on("n1"));
    w.run(Command::StartTerm { term: 2 });
    assert!(w.state.nodes.values().all(|n| n.slot == SlotState::Silent));
    w.hello("n1", &[attempt]);
    w.pass(300);
    assert_eq!(w.is(attempt.job), JobState::Running);
    assert_eq!(w.state.nodes["n2"].slot, SlotState::Down);
}

#[test]
fn drained_node_finishes_its_jobs_and_takes_none_until_resumed() {
    let mut w = world(1);
    let job = w.started(ask()).job;
    w.change_nodes(&["n1"], NodeChange::Drain { reason: maintenance() });
    w.submit(ask());
    assert_eq!((w.plan(), w.is(job)), (vec![], JobState::Running));
    let root = ReasonAuthor::User { name: "root".into(), uid: 0 };
    assert_eq!(w.state.nodes["n1"].reason.as_ref().map(|r| &r.author), Some(&root));
    w.change_nodes(&["n1"], NodeChange::Resume);
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn job_whose_nodes_go_down_at_once_is_closed_once() {
    let mut w = world(3);
    let wide = w.started(ask().nodes(2).requeue()).job;
    let names = w.nodes_of(wide);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let twice = [names.clone(), names].concat();
    w.change_nodes(&twice, NodeChange::Down { reason: maintenance() });
    assert_eq!((w.is(wide), w.records.len()), (JobState::Pending, 1));
    assert!(w.state.nodes.values().all(|n| n.holders.is_empty()));
}

#[test]
fn job_ends_on_its_other_nodes_when_one_is_set_down() {
    let mut w = world(2);
    let attempt = w.started(ask().nodes(2));
    w.change_nodes(&["n1"], NodeChange::Down { reason: maintenance() });
    assert_eq!(w.is(attempt.job), JobState::Completing);
    w.report("n2", attempt, ended(0));
    assert_eq!(w.is(attempt.job), JobState::NodeFail);
    w.change_nodes(&["n1"], NodeChange::Resume);
    let stale = w.state.nodes["n1"].availability();
    assert_eq!(stale, Availability::Reconciling, "its agent has not said that the part is gone");
    w.report("n1", attempt, AttemptReport::Missing);
    assert_eq!(w.state.nodes["n1"].availability(), Availability::Available);
}

#[test]
fn node_that_leaves_the_configuration_finishes_its_jobs_first() {
    let mut w = world(2);
    let attempt = w.started(ask().on("n2"));
    w.run(Command::Configure(Box::new(config(&["n1"]))));
    assert!(w.state.nodes["n2"].removed);
    w.submit(ask().cpus(8));
    w.submit(ask().cpus(8));
    assert_eq!(w.plan().len(), 1, "only the node that stays takes work");
    w.report("n2", attempt, ended(0));
    assert_eq!(w.is(attempt.job), JobState::Completed);
    assert!(!w.state.nodes.contains_key("n2"));
}

#[test]
fn configuration_tells_which_nodes_and_partitions_it_drops_from_jobs() {
    let with = |nodes: &[&str], partitions: &[&str]| {
        let mut config = config(nodes);
        let over =
            |name: &&str| Partition::over(name, nodes.iter().map(|n| n.to_string()).collect());
        config.partitions.extend(partitions.iter().map(over));
        config
    };
    let mut w = world_with(3, |c| *c = with(&["n1", "n2", "n3"], &["debug", "short"]));
    let told = |w: &World, config: ClusterConfig| {
        let dropped = w.state.dropped_by(&config);
        assert_eq!(dropped.is_empty(), dropped.nodes.is_empty() && dropped.partitions.is_empty());
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(" ");
        (list(&dropped.nodes), list(&dropped.partitions))
    };
    let said = |nodes: &str, partitions: &str| (nodes.to_owned(), partitions.to_owned());
    assert_eq!(told(&w, config(&["n1"])), said("", ""), "nobody is on what it drops");
    let runs = w.started(ask().on("n2"));
    w.submit(ask().held(Hold::User).asking(|r| r.partitions = vec!["debug".into()]));
    let two = vec!["main".to_owned(), "short".to_owned()];
    w.submit(ask().held(Hold::User).asking(|r| r.partitions = two));
    assert_eq!(told(&w, config(&["n1"])), said("n2", "debug"), "who may run in main waits for it");
    assert_eq!(told(&w, with(&["n1", "n2"], &["debug"])), said("", ""));
    w.report("n2", runs, ended(0));
    assert_eq!(told(&w, with(&["n1"], &["debug"])), said("", ""), "its job has ended");
    w.submit(ask().held(Hold::User));
    let mut renamed = with(&["n1"], &["debug", "short"]);
    renamed.partitions[0].name = "other".into();
    assert_eq!(
        told(&w, renamed.clone()),
        said("", ""),
        "one that names none waits for the new default"
    );
    renamed.partitions[0].default = false;
    assert_eq!(told(&w, renamed), said("", "main"), "there is none");
}

#[test]
fn configuration_with_less_memory_keeps_running_jobs_and_grants_no_more() {
    let mut w = world(1);
    let first = w.started(ask()).job;
    let second = w.started(ask()).job;
    let mut smaller = config(&["n1"]);
    smaller.nodes[0].memory = Bytes::from_gib(1);
    w.run(Command::Configure(Box::new(smaller)));
    w.restart();
    w.submit(ask());
    assert_eq!(w.plan(), []);
    w.end(first, 0);
    assert_eq!((w.is(first), w.is(second)), (JobState::Completed, JobState::Running));
    w.end(second, 0);
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn node_may_be_configured_as_drained() {
    let w = world_with(2, |c| {
        c.nodes[0].initial = Some(AdminState::Drain);
        c.nodes[0].initial_reason = Some("new".into());
    });
    assert_eq!(w.state.nodes["n1"].availability(), Availability::Drained);
    let new = NodeCause::Text("new".into());
    assert_eq!(w.state.nodes["n1"].reason.as_ref().map(|r| &r.cause), Some(&new));
}

fn health(source: HealthSource, failure: Option<&str>) -> Command {
    Command::NodeHealth { node: "n1".into(), source, failure: failure.map(str::to_owned) }
}

fn change(change: NodeChange) -> Command {
    Command::ChangeNode { nodes: vec!["n1".into()], change }
}

fn out_of_service(w: &crate::testbed::World) -> Option<String> {
    let node = &w.state.nodes["n1"];
    let text = match node.reason.as_ref().map(|reason| &reason.cause) {
        Some(NodeCause::Text(text) | NodeCause::Unhealthy { text, .. }) => text.clone(),
        Some(NodeCause::NotResponding) => "Not responding".into(),
        None => String::new(),
    };
    (node.availability() != Availability::Available).then_some(text)
}

#[test]
fn failed_check_drains_a_node_and_a_passed_one_resumes_it() {
    let mut w = world(1);
    w.run(health(HealthSource::Check, Some("no scratch")));
    assert_eq!(out_of_service(&w).as_deref(), Some("no scratch"));
    w.run(health(HealthSource::Check, Some("no home")));
    assert_eq!(out_of_service(&w).as_deref(), Some("no home"), "the reason is the latest");
    w.restart();
    w.run(health(HealthSource::Check, None));
    assert_eq!(out_of_service(&w), None);
    // An administrator who resumes the node before it is well sees it drained by the next check.
    w.run(health(HealthSource::Check, Some("no home")));
    w.run(change(NodeChange::Resume));
    assert_eq!(out_of_service(&w), None);
    w.run(health(HealthSource::Check, Some("no home")));
    assert_eq!(out_of_service(&w).as_deref(), Some("no home"));
}

#[test]
fn passed_check_does_not_undo_what_an_administrator_said() {
    let own = [
        NodeChange::Drain { reason: "mine".into() },
        NodeChange::Reason("mine".into()),
        NodeChange::Fail { reason: "mine".into() },
    ];
    for own in own {
        for drained_before in [false, true] {
            let mut w = world(1);
            if drained_before {
                w.run(health(HealthSource::Check, Some("ill")));
                w.run(change(own.clone()));
            } else {
                w.run(change(NodeChange::Drain { reason: "mine".into() }));
                w.run(health(HealthSource::Check, Some("ill")));
            }
            assert_eq!(out_of_service(&w).as_deref(), Some("mine"), "{own:?}");
            w.run(health(HealthSource::Check, None));
            assert_eq!(out_of_service(&w).as_deref(), Some("mine"), "{own:?}");
        }
    }
}

#[test]
fn resumed_node_is_not_drained_again_by_the_same_counters() {
    let mut w = world(1);
    w.run(health(HealthSource::Gpu, Some("GPU 1: 1 uncorrectable error")));
    w.run(change(NodeChange::Resume));
    w.run(health(HealthSource::Gpu, Some("GPU 1: 1 uncorrectable error")));
    assert_eq!(out_of_service(&w), None, "the administrator knows of it");
    // Neither does the check, which says nothing of it.
    w.run(health(HealthSource::Check, Some("ill")));
    w.run(health(HealthSource::Check, None));
    assert_eq!(out_of_service(&w), None);
    w.run(health(HealthSource::Gpu, Some("GPU 1: 2 uncorrectable errors")));
    assert_eq!(out_of_service(&w).as_deref(), Some("GPU 1: 2 uncorrectable errors"));
}

#[test]
fn node_with_two_failures_is_resumed_when_both_have_passed() {
    let mut w = world(1);
    w.run(health(HealthSource::Check, Some("ill")));
    w.run(health(HealthSource::Gpu, Some("GPU 0: too hot")));
    assert_eq!(out_of_service(&w).as_deref(), Some("ill"));
    w.run(health(HealthSource::Check, None));
    assert_eq!(out_of_service(&w).as_deref(), Some("GPU 0: too hot"));
    w.run(health(HealthSource::Gpu, None));
    assert_eq!(out_of_service(&w), None);
}

#[test]
fn drained_node_that_was_down_still_has_the_reason_of_its_drain() {
    let mut w = world_with(1, |c| c.parameters.return_to_service = 1);
    w.run(health(HealthSource::Check, Some("ill")));
    w.fail("n1");
    w.hello("n1", &[]);
    assert_eq!(out_of_service(&w).as_deref(), Some("ill"));
    w.run(health(HealthSource::Check, None));
    assert_eq!(out_of_service(&w), None);
}

#[test]
fn cluster_begins_with_its_first_term() {
    let mut w = world(1);
    assert_eq!(w.state.begun, Some(START));
    w.pass(60);
    w.run(Command::StartTerm { term: 2 });
    assert_eq!(w.state.begun, Some(START), "a restart begins no cluster");
}
