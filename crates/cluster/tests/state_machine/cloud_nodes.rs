//! Nodes of slurm.conf with `State=CLOUD` that a source of machines backs: each is a machine while it is powered up.

use crate::job_builder::{ask, root};
use crate::machines::{machine, made, notice, phase, report, small};
use crate::testbed::{World, world_with};
use cluster::command::MachineReport;
use cluster::{ClusterConfig, Command};
use model::amount::Bytes;
use model::budget::Budget;
use model::id::JobId;
use model::machine::{MachinePhase, Offer, OfferedGpus, SourceConfig};
use model::node::AdminState;
use model::power::PowerState;
use model::price::{Cost, Price};

/// What every node of slurm.conf fits on.
fn large() -> Offer {
    let gpus = OfferedGpus { kind: "h100".into(), count: 8, memory: None };
    Offer { cpus: 256, memory: Bytes::from_gib(4096), gpus: Some(gpus), ..small() }
}

/// The one node of slurm.conf is of a cloud, and a source backs it.
fn backed(config: &mut ClusterConfig) {
    let by_source = || Some("[[source]]".to_owned());
    let power = &mut config.parameters.power;
    (power.suspend_program, power.resume_program) = (by_source(), by_source());
    config.nodes[0].cloud = true;
    let source = SourceConfig::new("cloud", "/opt/make");
    config.sources = vec![SourceConfig { nodes: vec!["n1".into()], idle_s: 100, ..source }];
}

#[test]
fn cloud_node_of_slurm_conf_is_a_machine_of_its_source_while_it_is_powered_up() {
    let mut w = world_with(1, backed);
    let large = large();
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![large] });
    let power = |w: &World| w.state.nodes["n1"].power;
    w.pass(101);
    w.run(Command::PowerSave);
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(1);
    w.pass(40);
    assert_eq!(power(&w), PowerState::PoweredDown, "it was idle, and no program is called");
    let job = w.started(ask()).job;
    w.run(Command::PowerSave);
    w.pass(1);
    assert!(matches!(power(&w), PowerState::PoweringUp { called: true, .. }), "{:?}", power(&w));
    let asked = machine(&w, 1);
    assert_eq!((asked.node.as_str(), asked.job), ("n1", Some(job)));
    w.pass(1);
    assert_eq!(w.state.machines.len(), 1, "one machine for one node");
    made(&mut w, 1);
    w.hello("n1", &[]);
    assert!(w.state.has_joined(machine(&w, 1)));
    report(&mut w, 1, MachineReport::Joined);
    let price = w.job(job).attempt().map(|attempt| attempt.allocation.price());
    assert!(price > Some(Price::default()), "{price:?}");
    w.end(job, 0);
    w.pass(99);
    w.run(Command::PowerSave);
    assert_eq!((power(&w), phase(&w, 1)), (PowerState::On, MachinePhase::Joined));
    w.pass(2);
    w.run(Command::PowerSave);
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    let refused = w.try_as(root(), Command::DeleteMachine { node: "n1".into() });
    assert!(refused.is_err(), "it is on its way out");
}

#[test]
fn cloud_node_whose_machine_was_taken_back_is_powered_up_with_another_one() {
    let mut w = world_with(1, backed);
    let large = large();
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![large] });
    w.pass(101);
    w.run(Command::PowerSave);
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(1);
    w.pass(40);
    for number in [1, 2] {
        let job = w.started(ask()).job;
        w.run(Command::PowerSave);
        w.pass(1);
        assert_eq!(machine(&w, number).job, Some(job));
        made(&mut w, number);
        w.hello("n1", &[]);
        report(&mut w, number, MachineReport::Joined);
        w.end(job, 0);
        w.run(notice("n1"));
        assert_eq!(phase(&w, number), MachinePhase::Deleting);
        assert_eq!(w.state.nodes["n1"].admin, Some(AdminState::Drain));
        report(&mut w, number, MachineReport::Deleted);
        w.run(Command::NodeLost { node: "n1".into() });
        w.pass(10);
        w.pass(1);
        let node = &w.state.nodes["n1"];
        assert_eq!((node.power, node.admin), (PowerState::PoweredDown, None));
        assert!(node.failures.is_empty() && node.reason.is_none(), "{:?}", node.reason);
    }
}

/// A job runs on n1, whose machine was made for it and has joined.
fn running_on_machine() -> (World, JobId) {
    let mut w = world_with(1, backed);
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![large()] });
    w.pass(101);
    w.run(Command::PowerSave);
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(1);
    w.pass(40);
    let job = w.started(ask().requeue()).job;
    w.run(Command::PowerSave);
    w.pass(1);
    made(&mut w, 1);
    w.hello("n1", &[]);
    report(&mut w, 1, MachineReport::Joined);
    (w, job)
}

#[test]
fn jobs_of_a_cloud_node_whose_machine_is_gone_do_not_wait_for_slurmd_timeout() {
    let (mut w, job) = running_on_machine();
    report(&mut w, 1, MachineReport::Vanished);
    w.pass(1);
    assert!(!w.job(job).is_waiting(), "its agent speaks");
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(1);
    assert!(w.job(job).is_waiting());
}

#[test]
fn jobs_of_a_cloud_node_that_is_taken_back_outlast_a_short_silence() {
    let (mut w, job) = running_on_machine();
    w.run(notice("n1"));
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    w.run(Command::NodeLost { node: "n1".into() });
    w.pass(9);
    assert!(!w.job(job).is_waiting(), "its machine is there until it is taken");
    w.pass(1);
    assert!(w.job(job).is_waiting(), "long before SlurmdTimeout");
}

#[test]
fn cloud_nodes_that_are_powered_up_together_keep_the_limits_of_source_and_account() {
    let table = [(1, None, 1), (9, Some(7.5), 2), (9, Some(4.0), 1), (9, Some(3.0), 0)];
    for (machines_max, budget, expected) in table {
        let mut w = world_with(2, |config| {
            backed(config);
            config.nodes[1].cloud = true;
            config.sources[0].nodes.push("n2".into());
            config.sources[0].machines_max = machines_max;
        });
        let large = large();
        w.run(Command::SetOffers { source: "cloud".into(), offers: vec![large] });
        w.pass(101);
        w.run(Command::PowerSave);
        for node in ["n1", "n2"] {
            w.run(Command::NodeLost { node: node.into() });
        }
        w.pass(1);
        w.pass(40);
        let job = w.started(ask().nodes(2)).job;
        let mut config = (*w.state.config).clone();
        if let Some(dollars) = budget {
            let month = Cost::from_dollars(dollars).expect("money");
            let account = w.job(job).account.to_string();
            config.budgets = vec![Budget { account, month, warn_percent: 80 }];
        }
        w.run(Command::Configure(Box::new(config)));
        w.run(Command::PowerSave);
        w.pass(1);
        assert_eq!(w.state.machines.len(), expected, "{machines_max} {budget:?}");
    }
}
