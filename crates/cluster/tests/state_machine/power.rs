//! Power saving and reboots, in virtual time.

use crate::job_builder::{alice, ask, root};
use crate::testbed::{World, world_with};
use cluster::{ClusterConfig, Command, Event};
use model::change::{JobRef, NodeChange};
use model::id::JobId;
use model::node::{AdminState, NodeFacts, SlotState};
use model::node_reason::NodeReason;
use model::power::{
    AfterReboot, ExemptNodes, ExemptState, PartitionPower, PowerDownMode, PowerProgram,
    PowerRequest, PowerState, SuspendTime,
};
use model::reason::Refusal;
use model::run::JobState;
use model::time::Timestamp;

fn saving(config: &mut ClusterConfig) {
    let power = &mut config.parameters.power;
    power.suspend_program = Some("/sbin/down".into());
    power.resume_program = Some("/sbin/up".into());
    power.reboot_program = Some("/sbin/reboot".into());
    power.suspend_time_s = Some(600);
}

fn power(w: &World, name: &str) -> PowerState {
    w.state.nodes[name].power
}

fn ask_power(w: &mut World, names: &[&str], request: PowerRequest) -> Result<(), Refusal> {
    let nodes = names.iter().map(|name| (*name).to_owned()).collect();
    let change = NodeChange::Power(request);
    w.try_as(root(), Command::ChangeNode { nodes, change }).map(drop)
}

fn program_ended(w: &mut World, names: &[&str], program: PowerProgram) {
    let nodes = names.iter().map(|name| (*name).to_owned()).collect();
    w.run(Command::PowerProgramEnded { nodes, program });
}

/// Suspends a node to the end, its agent gone.
fn powered_down(w: &mut World, name: &str) {
    ask_power(w, &[name], PowerRequest::Down(PowerDownMode::WhenIdle)).expect("taken");
    w.run(Command::PowerSave);
    w.run(Command::NodeLost { node: name.into() });
    program_ended(w, &[name], PowerProgram::Suspend);
    w.pass(30);
    assert_eq!(power(w, name), PowerState::PoweredDown);
}

fn is_going_down(w: &World, name: &str) -> bool {
    matches!(power(w, name), PowerState::PoweringDown { .. })
}

#[test]
fn idle_node_goes_down_after_suspend_time_and_is_not_taken_for_lost() {
    let mut w = world_with(2, saving);
    let busy = w.started(ask()).job;
    let busy_node = w.nodes_of(busy)[0].clone();
    let idle = if busy_node == "n1" { "n2" } else { "n1" };
    w.pass(599);
    w.run(Command::PowerSave);
    assert_eq!(power(&w, idle), PowerState::On);
    w.pass(1);
    w.run(Command::PowerSave);
    assert!(is_going_down(&w, idle), "{:?}", power(&w, idle));
    assert_eq!(power(&w, &busy_node), PowerState::On, "a node with a job stays up");
    w.run(Command::NodeLost { node: idle.into() });
    w.pass(400);
    assert!(is_going_down(&w, idle), "the program has not been called yet");
    program_ended(&mut w, &[idle], PowerProgram::Suspend);
    w.pass(1);
    assert_eq!(
        (power(&w, idle), w.state.nodes[idle].reason.clone()),
        (PowerState::PoweredDown, None)
    );
    w.pass(100_000);
    assert_eq!(w.state.nodes[idle].slot, SlotState::Joining, "silence is expected of it");
}

#[test]
fn job_on_a_powered_down_node_waits_for_it_and_has_its_whole_time() {
    let mut w = world_with(1, saving);
    powered_down(&mut w, "n1");
    let job = w.started(ask()).job;
    assert_eq!((w.is(job), power(&w, "n1")), (JobState::Configuring, PowerState::PowerUpPending));
    let limit = w.job(job).attempt().and_then(|a| a.end_limit).expect("a limit");
    w.run(Command::PowerSave);
    assert_eq!(power(&w, "n1").program_due(), Some(PowerProgram::Resume));
    program_ended(&mut w, &["n1"], PowerProgram::Resume);
    w.pass(40);
    w.hello("n1", &[]);
    assert_eq!((w.is(job), power(&w, "n1")), (JobState::Running, PowerState::On));
    let after = w.job(job).attempt().and_then(|a| a.end_limit).expect("a limit");
    assert_eq!(after.since(limit).as_secs(), 40, "the boot does not count against the limit");
    w.end(job, 0);
    assert_eq!(w.is(job), JobState::Completed);
}

#[test]
fn nodes_that_are_up_are_used_before_those_that_are_not() {
    let mut w = world_with(3, saving);
    powered_down(&mut w, "n1");
    powered_down(&mut w, "n2");
    ask_power(&mut w, &["n2"], PowerRequest::Up).expect("taken");
    w.run(Command::PowerSave);
    let order: Vec<String> = (0..3)
        .map(|_| {
            let job = w.started(ask().cpus(8)).job;
            w.nodes_of(job)[0].clone()
        })
        .collect();
    assert_eq!(order, ["n3", "n2", "n1"]);
}

#[test]
fn job_of_several_nodes_starts_when_the_last_is_up() {
    let mut w = world_with(2, saving);
    powered_down(&mut w, "n1");
    let job = w.started(ask().nodes(2)).job;
    assert_eq!(w.job(job).attempt().expect("it starts").booting_nodes, ["n1"]);
    w.run(Command::PowerSave);
    w.hello("n2", &[]);
    assert_eq!(w.is(job), JobState::Configuring);
    w.hello("n1", &[]);
    assert_eq!(w.is(job), JobState::Running);
}

#[test]
fn node_that_does_not_come_up_is_down_and_its_job_waits_again() {
    let mut w = world_with(2, |config| {
        saving(config);
        config.parameters.power.resume_fail_program = Some("/sbin/failed".into());
    });
    powered_down(&mut w, "n1");
    powered_down(&mut w, "n2");
    let requeued = w.started(ask().nodes(2).requeue()).job;
    w.run(Command::PowerSave);
    program_ended(&mut w, &["n1", "n2"], PowerProgram::Resume);
    w.pass(59);
    w.hello("n2", &[]);
    assert_eq!(w.is(requeued), JobState::Configuring);
    w.pass(1);
    let node = &w.state.nodes["n1"];
    assert_eq!((node.power, node.admin), (PowerState::ResumeFailed, Some(AdminState::Down)));
    assert_eq!(node.reason.as_ref().and_then(NodeReason::text), Some("ResumeTimeout reached"));
    assert_eq!(w.is(requeued), JobState::Pending);
    assert!(w.state.nodes.values().all(|node| node.holders.is_empty() && node.stale.is_empty()));
    program_ended(&mut w, &["n1"], PowerProgram::ResumeFail);
    assert_eq!(power(&w, "n1"), PowerState::PoweredDown);
    w.change_nodes(&["n1"], NodeChange::Resume);
    w.pass(1);
    assert_eq!(w.plan().len(), 1, "resumed, it may be powered up again");
}

#[test]
fn job_that_is_cancelled_while_its_node_boots_is_gone_at_once() {
    let mut w = world_with(1, saving);
    powered_down(&mut w, "n1");
    let job = w.started(ask()).job;
    w.run(Command::PowerSave);
    w.cancel(&[JobRef::whole(job)]);
    assert_eq!(w.is(job), JobState::Cancelled);
    assert!(w.state.nodes["n1"].holders.is_empty());
    w.hello("n1", &[]);
    assert_eq!(power(&w, "n1"), PowerState::On);
}

#[test]
fn server_that_comes_back_has_the_calls_still_to_make() {
    let mut w = world_with(2, saving);
    powered_down(&mut w, "n1");
    w.started(ask().on("n1"));
    w.run(Command::PowerSave);
    ask_power(&mut w, &["n2"], PowerRequest::Down(PowerDownMode::WhenIdle)).expect("taken");
    w.run(Command::PowerSave);
    w.pass(50);
    let text = serde_json::to_string(&w.state).expect("a snapshot");
    w.state = serde_json::from_str(&text).expect("read back");
    w.state.rebuild_derived();
    w.run(Command::StartTerm { term: 2 });
    w.pass(50);
    assert_eq!(power(&w, "n1").program_due(), Some(PowerProgram::Resume), "not timed out either");
    assert_eq!(power(&w, "n2").program_due(), Some(PowerProgram::Suspend));
}

#[test]
fn rates_bound_how_many_nodes_go_in_a_minute() {
    let mut w = world_with(5, |config| {
        saving(config);
        config.parameters.power.suspend_rate = 2;
    });
    w.pass(600);
    let down = |w: &World| w.state.nodes.keys().filter(|name| is_going_down(w, name)).count();
    w.run(Command::PowerSave);
    w.run(Command::PowerSave);
    assert_eq!(down(&w), 2);
    w.pass(60);
    w.run(Command::PowerSave);
    assert_eq!(down(&w), 4);
}

#[test]
fn exempt_nodes_partitions_and_states_stay_up() {
    let exempt = |set: fn(&mut ClusterConfig)| {
        let mut w = world_with(4, |config| {
            saving(config);
            set(config);
        });
        w.change_nodes(&["n4"], NodeChange::Drain { reason: "disk".into() });
        w.pass(600);
        w.run(Command::PowerSave);
        let up = |name: &&String| power(&w, name) == PowerState::On;
        w.state.nodes.keys().filter(up).cloned().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(exempt(|_| {}), "");
    let by_name = |config: &mut ClusterConfig| {
        let nodes = vec!["n2".to_owned()];
        config.parameters.power.exempt_nodes = vec![ExemptNodes { nodes, count: None }];
    };
    assert_eq!(exempt(by_name), "n2");
    let by_count = |config: &mut ClusterConfig| {
        let nodes = ["n1", "n2", "n3", "n4"].map(str::to_owned).to_vec();
        config.parameters.power.exempt_nodes = vec![ExemptNodes { nodes, count: Some(2) }];
    };
    assert_eq!(exempt(by_count), "n2 n3", "two of those that could take jobs");
    let by_partition = |config: &mut ClusterConfig| {
        config.parameters.power.exempt_partitions = vec!["main".into()];
    };
    assert_eq!(exempt(by_partition), "n1 n2 n3 n4");
    let by_state = |config: &mut ClusterConfig| {
        config.parameters.power.exempt_states = vec![ExemptState::Drain];
    };
    assert_eq!(exempt(by_state), "n4");
}

#[test]
fn partition_sets_times_of_its_own_and_may_power_down_on_idle() {
    let mut w = world_with(1, |config| {
        saving(config);
        config.partitions[0].power = PartitionPower {
            suspend_time: Some(SuspendTime::Never),
            suspend_timeout_s: Some(5),
            resume_timeout_s: None,
            down_on_idle: true,
        };
    });
    w.pass(10_000);
    w.run(Command::PowerSave);
    assert_eq!(power(&w, "n1"), PowerState::On, "it never goes down for being idle");
    let job = w.started(ask()).job;
    w.end(job, 0);
    w.run(Command::PowerSave);
    assert!(is_going_down(&w, "n1"), "but after its job");
    program_ended(&mut w, &["n1"], PowerProgram::Suspend);
    w.pass(5);
    assert_eq!(power(&w, "n1"), PowerState::PoweredDown);
}

#[test]
fn cloud_node_begins_powered_down_and_hello_brings_it_up() {
    let mut w = world_with(1, |config| {
        saving(config);
        config.parameters.power.reported_addresses = true;
        let mut cloud = crate::testbed::node("c1");
        cloud.cloud = true;
        config.nodes.push(cloud);
        config.partitions[0].nodes.push("c1".into());
    });
    assert_eq!(power(&w, "c1"), PowerState::PoweredDown);
    let facts = NodeFacts { address: "10.1.2.3".into(), ..NodeFacts::default() };
    let hello = |facts: NodeFacts| Command::NodeHello {
        node: "c1".into(),
        facts: Box::new(facts),
        held: Vec::new(),
    };
    w.run(hello(facts));
    assert_eq!(power(&w, "c1"), PowerState::On);
    assert_eq!(w.state.nodes["c1"].config.address, "10.1.2.3");
}

#[test]
fn manual_requests_wait_drain_or_force() {
    let down = |mode| PowerRequest::Down(mode);
    let mut w = world_with(1, saving);
    let first = w.started(ask()).job;
    ask_power(&mut w, &["n1"], down(PowerDownMode::WhenIdle)).expect("taken");
    w.run(Command::PowerSave);
    assert_eq!(power(&w, "n1"), PowerState::PowerDownPending { drains: false });
    let second = w.started(ask()).job;
    ask_power(&mut w, &["n1"], down(PowerDownMode::Asap)).expect("taken");
    w.submit(ask());
    assert_eq!(w.plan(), [], "it takes no more jobs");
    w.end(first, 0);
    ask_power(&mut w, &["n1"], down(PowerDownMode::Force)).expect("taken");
    assert!(is_going_down(&w, "n1"));
    assert_eq!(w.is(second), JobState::NodeFail);
    ask_power(&mut w, &["n1"], PowerRequest::Up).expect("taken");
    program_ended(&mut w, &["n1"], PowerProgram::Suspend);
    w.pass(30);
    assert_eq!(power(&w, "n1"), PowerState::PowerUpPending, "as was asked meanwhile");
}

#[test]
fn reboot_waits_for_idle_and_ends_with_a_newer_boot() {
    let mut w = world_with(1, saving);
    let hello = |w: &mut World, boot: i64| {
        let facts = NodeFacts { boot_time: Timestamp::from_secs(boot), ..NodeFacts::default() };
        let (node, held) = ("n1".into(), Vec::new());
        w.run(Command::NodeHello { node, facts: Box::new(facts), held });
    };
    hello(&mut w, 1_000);
    let job = w.started(ask()).job;
    let (drains, next) = (true, AfterReboot::Resume);
    let reboot = PowerRequest::Reboot { drains, next, reason: None };
    ask_power(&mut w, &["n1"], reboot.clone()).expect("taken");
    w.submit(ask());
    w.run(Command::PowerSave);
    assert_eq!(w.plan(), [], "ASAP drains");
    assert_eq!(power(&w, "n1"), PowerState::RebootPending { drains, next });
    w.end(job, 0);
    w.run(Command::PowerSave);
    let reason = |w: &World| {
        w.state.nodes["n1"].reason.as_ref().and_then(NodeReason::text).map(str::to_owned)
    };
    assert_eq!(reason(&w).as_deref(), Some("Reboot ASAP : reboot issued"));
    assert!(matches!(power(&w, "n1"), PowerState::Rebooting { .. }));
    hello(&mut w, 1_001);
    assert!(matches!(power(&w, "n1"), PowerState::Rebooting { .. }), "the same boot");
    hello(&mut w, 2_000);
    assert_eq!((power(&w, "n1"), reason(&w)), (PowerState::On, None));
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn reboot_times_out_is_cancelled_or_refused() {
    let mut w = world_with(2, saving);
    let reboot = PowerRequest::Reboot { drains: false, next: AfterReboot::Down, reason: None };
    ask_power(&mut w, &["n1", "n2"], reboot.clone()).expect("taken");
    ask_power(&mut w, &["n2"], PowerRequest::CancelReboot).expect("taken");
    let refused = |w: &mut World, name: &str, request: PowerRequest| {
        ask_power(w, &[name], request).expect_err("refused").to_string()
    };
    assert!(refused(&mut w, "n2", PowerRequest::CancelReboot).contains("no reboot is pending"));
    assert!(refused(&mut w, "n9", PowerRequest::Up).contains("n9"));
    w.run(Command::PowerSave);
    assert_eq!(power(&w, "n2"), PowerState::On);
    assert!(refused(&mut w, "n1", PowerRequest::CancelReboot).contains("cannot be cancelled"));
    w.pass(60);
    let node = &w.state.nodes["n1"];
    assert_eq!((node.power, node.admin), (PowerState::On, Some(AdminState::Down)));
    let text = node.reason.as_ref().and_then(NodeReason::text);
    assert_eq!(text, Some("reboot requested : reboot issued : reboot timed out"));
    // Its agent was there all the time: an administrator's word is enough.
    w.run(Command::ChangeNode { nodes: vec!["n1".into()], change: NodeChange::Resume });
    let node = &w.state.nodes["n1"];
    assert_eq!((node.slot, node.admin), (SlotState::Up, None));
}

#[test]
fn without_programs_nothing_is_powered_and_users_may_not_ask() {
    let mut w = world_with(1, |_| {});
    for request in [
        PowerRequest::Down(PowerDownMode::Force),
        PowerRequest::Reboot { drains: false, next: AfterReboot::AsBefore, reason: None },
    ] {
        let said = ask_power(&mut w, &["n1"], request).expect_err("refused").to_string();
        assert!(said.contains("is not configured"), "{said}");
    }
    let change = NodeChange::Power(PowerRequest::Up);
    let asked = w.try_as(alice(), Command::ChangeNode { nodes: vec!["n1".into()], change });
    assert_eq!(asked, Err(Refusal::AccessDenied));
    w.pass(100_000);
    w.run(Command::PowerSave);
    assert!(!w.events.iter().any(|event| matches!(event, Event::NodePower { .. })));
}

#[test]
fn expected_end_of_a_job_that_boots_is_the_latest() {
    let mut w = world_with(1, saving);
    powered_down(&mut w, "n1");
    let job: JobId = w.started(ask()).job;
    let view = cluster::view::view(&w.state, w.now);
    let running =
        view.running.iter().find(|running| running.job == job).expect("it holds the node");
    let limit = w.job(job).attempt().and_then(|a| a.end_limit).expect("a limit");
    assert_eq!(running.end.expect("an end").since(limit).as_secs(), 60, "ResumeTimeout later");
}

fn hello_of(w: &mut World, node: &str, agent_start: i64) {
    let facts =
        NodeFacts { agent_start: Timestamp::from_secs(agent_start), ..NodeFacts::default() };
    let (node, held) = (node.into(), Vec::new());
    w.run(Command::NodeHello { node, facts: Box::new(facts), held });
}

#[test]
fn machine_that_is_slow_to_go_down_is_no_machine_that_came_up() {
    let mut w = world_with(1, saving);
    hello_of(&mut w, "n1", 1_000);
    powered_down(&mut w, "n1");
    // The agent of before answers once more: the machine is about to go.
    hello_of(&mut w, "n1", 1_000);
    assert!(is_going_down(&w, "n1"));
    let waiting = w.submit(ask());
    assert_eq!(w.plan(), [], "nothing starts there");
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(30);
    assert_eq!(power(&w, "n1"), PowerState::PoweredDown);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(power(&w, "n1"), PowerState::PowerUpPending);
    hello_of(&mut w, "n1", 1_000);
    assert!(is_going_down(&w, "n1"), "nor is it for a job that waits");
    assert_eq!(w.is(waiting), JobState::Configuring);
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(30);
    w.run(Command::PowerSave);
    hello_of(&mut w, "n1", 2_000);
    assert_eq!((power(&w, "n1"), w.is(waiting)), (PowerState::On, JobState::Running));
}

#[test]
fn machine_that_nothing_powers_down_is_in_service_again_after_its_time() {
    let mut w = world_with(1, saving);
    hello_of(&mut w, "n1", 1_000);
    powered_down(&mut w, "n1");
    let waiting = w.started(ask()).job;
    hello_of(&mut w, "n1", 1_000);
    w.pass(30);
    assert_eq!((power(&w, "n1"), w.is(waiting)), (PowerState::On, JobState::Running));
}

#[test]
fn reboot_of_a_node_waits_for_the_others_of_its_machine_and_takes_them_along() {
    let mut w = world_with(3, saving);
    let expires = w.now + std::time::Duration::from_secs(60);
    for (hash, nodes) in [("one", vec!["n1", "n2"]), ("two", vec!["n3"])] {
        let nodes = nodes.into_iter().map(str::to_owned).collect();
        w.run(Command::IssueToken { hash: hash.into(), nodes, expires });
        w.run(Command::UseToken(cluster::command::JoinAttempt {
            hash: hash.into(),
            fingerprint: format!("machine {hash}"),
            request: format!("request {hash}"),
            certificate_end: expires,
            node: None,
            dynamic: false,
            future: None,
        }));
    }
    let job = w.started(ask().on("n2")).job;
    let other = w.started(ask().on("n3")).job;
    let reboot = PowerRequest::Reboot { drains: false, next: AfterReboot::Resume, reason: None };
    ask_power(&mut w, &["n1"], reboot).expect("taken");
    w.run(Command::PowerSave);
    let reboots = |w: &World, name: &str| matches!(power(w, name), PowerState::Rebooting { .. });
    assert!(!reboots(&w, "n1"), "job {job} is on the same machine");
    assert!(!w.state.has_power_work());
    w.end(job, 0);
    w.run(Command::PowerSave);
    assert!(reboots(&w, "n1") && reboots(&w, "n2") && !reboots(&w, "n3"), "beside job {other}");
    w.submit(ask().on("n2"));
    assert_eq!(w.plan(), [], "nothing starts on a machine that reboots");
    for node in ["n1", "n2"] {
        let facts = NodeFacts { boot_time: Timestamp::from_secs(9_000), ..NodeFacts::default() };
        let (node, held) = (node.into(), Vec::new());
        w.run(Command::NodeHello { node, facts: Box::new(facts), held });
    }
    assert_eq!((power(&w, "n1"), power(&w, "n2")), (PowerState::On, PowerState::On));
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn job_whose_nodes_are_not_up_yet_is_not_suspended() {
    let mut w = world_with(1, saving);
    powered_down(&mut w, "n1");
    let job = w.started(ask()).job;
    assert_eq!(w.is(job), JobState::Configuring);
    let said = w.change(job, model::change::JobChange::Suspend);
    let refused = match said {
        Err(why) => why,
        Ok(cluster::Reply::PerJob(each)) => each[0].1.clone().expect_err("refused"),
        Ok(other) => panic!("{other:?}"),
    };
    assert_eq!(refused, Refusal::JobNotRunning(job));
    w.run(Command::PowerSave);
    w.hello("n1", &[]);
    assert_eq!(w.is(job), JobState::Running);
}
