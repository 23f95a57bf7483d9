//! Nodes that no configuration file names: brought by their agents, created and deleted.

use crate::job_builder::{Ask, alice, ask, root};
use crate::testbed::{World, config, node, world_with};
use cluster::command::JoinAttempt;
use cluster::{ClusterConfig, Command, Reply};
use model::amount::Bytes;
use model::change::NodeChange;
use model::dynamic_node::FutureMachine;
use model::node::{AdminState, NodeConfig, SlotState};
use model::partition::{DynamicMembers, Partition};
use model::power::PowerState;
use model::reason::Refusal;
use model::topology::{Switch, Topology};
use std::sync::Arc;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// `n1` in `main`; `all` and `fast` take dynamic nodes in. There may be three nodes.
fn open(config: &mut ClusterConfig) {
    config.parameters.max_node_count = 3;
    let mut all = Partition::over("all", vec!["n1".into()]);
    all.dynamic_members.all = true;
    let mut fast = Partition::over("fast", Vec::new());
    fast.dynamic_members = DynamicMembers { all: false, features: vec!["fast".into()] };
    config.partitions.extend([all, fast]);
}

fn join(w: &mut World, node: &str, dynamic: bool) -> Result<(), String> {
    let number = w.state.joins.len();
    let attempt = JoinAttempt {
        hash: "group000".into(),
        fingerprint: format!("certificate of {node}"),
        request: format!("request {number} of {node}"),
        certificate_end: w.now + DAY,
        node: Some(node.into()),
        dynamic,
        future: None,
    };
    w.try_as(root(), Command::UseToken(attempt)).map(drop).map_err(|why| why.to_string())
}

fn issue(w: &mut World, pattern: &str) -> Result<(), Refusal> {
    issue_as(w, pattern, true)
}

fn issue_as(w: &mut World, pattern: &str, dynamic: bool) -> Result<(), Refusal> {
    let (hash, pattern, expires) = ("group000".into(), pattern.to_owned(), w.now + DAY);
    let command = Command::IssueGroupToken { hash, pattern, count: Some(99), dynamic, expires };
    w.try_as(root(), command).map(drop)
}

fn says(w: &mut World, said: &NodeConfig) {
    w.run(Command::RegisterNode(Box::new(said.clone())));
    w.hello(&said.name, &[]);
}

fn delete(w: &mut World, name: &str) -> Result<(), String> {
    let command = Command::DeleteNodes { nodes: vec![name.into()] };
    w.try_as(root(), command).map(drop).map_err(|why| why.to_string())
}

fn members<'w>(w: &'w World, partition: &str) -> Vec<&'w str> {
    w.state.partition(partition).expect("it is there").nodes.iter().map(String::as_str).collect()
}

fn fast(name: &str) -> NodeConfig {
    NodeConfig { features: vec!["fast".into()], ..node(name) }
}

fn in_fast() -> Ask {
    ask().asking(|request| request.partitions = vec!["fast".into()])
}

#[track_caller]
fn refused(said: Result<(), String>, words: &str) {
    let said = said.expect_err("it is refused");
    assert!(said.contains(words), "{said}");
}

#[test]
fn node_joins_that_no_file_names_and_is_in_the_partitions_that_take_it_in() {
    let mut w = world_with(1, open);
    issue(&mut w, "d[1-9],n1").expect("a token though no file names them");
    refused(join(&mut w, "d1", false), "not in the configuration");
    refused(join(&mut w, "n1", true), "without --dynamic");
    refused(join(&mut w, "x1", true), "does not fit");
    join(&mut w, "d1", true).expect("it joins");
    assert_eq!(w.state.nodes["d1"].slot, SlotState::Joining);
    says(&mut w, &fast("d1"));
    assert_eq!(w.state.nodes["d1"].config.cpus, 8);
    assert_eq!((members(&w, "all"), members(&w, "fast")), (vec!["n1", "d1"], vec!["d1"]));
    assert_eq!(members(&w, "main"), ["n1"]);
    let job = w.started(in_fast()).job;
    assert_eq!(w.nodes_of(job), ["d1"]);
    join(&mut w, "d2", true).expect("it joins");
    refused(join(&mut w, "d3", true), "MaxNodeCount, which is 3");
    refused(join(&mut w, "d2", true), "sluice node rejoin d2");
    w.restart();
    assert_eq!(members(&w, "fast"), ["d1"]);
}

#[test]
fn administrators_changes_of_a_dynamic_node_stay_whatever_its_agent_says() {
    let mut w = world_with(1, open);
    issue(&mut w, "d[1-9]").expect("a token");
    join(&mut w, "d1", true).expect("it joins");
    says(&mut w, &node("d1"));
    assert!(members(&w, "fast").is_empty());
    w.change_nodes(&["d1"], NodeChange::Features(vec!["fast".into()]));
    w.change_nodes(&["d1"], NodeChange::Weight(7));
    assert_eq!(members(&w, "fast"), ["d1"]);
    says(&mut w, &node("d1"));
    let mut again = config(&["n1"]);
    open(&mut again);
    again.parameters.kill_wait_s += 1;
    w.run(Command::Configure(Box::new(again)));
    assert_eq!(members(&w, "fast"), ["d1"], "after a hello and a new configuration");
    assert_eq!(w.state.nodes["d1"].config.weight, 7);
    assert_eq!(w.state.nodes["d1"].slot, SlotState::Up);

    let busy = w.started(in_fast()).job;
    let smaller = NodeConfig { cpus: 2, ..node("d1") };
    says(&mut w, &smaller);
    assert_eq!(w.state.nodes["d1"].config.cpus, 8, "not under a running job");
    w.end(busy, 0);
    says(&mut w, &smaller);
    assert_eq!(w.state.nodes["d1"].config.cpus, 2);
    let another = NodeConfig { features: vec!["slow".into()], weight: 3, ..smaller };
    says(&mut w, &another);
    w.restart();
    assert_eq!((members(&w, "fast"), w.state.nodes["d1"].config.weight), (vec!["d1"], 7));
    assert_eq!(w.state.nodes["d1"].config.features, ["fast"]);
}

#[test]
fn join_file_makes_nodes_only_if_it_was_made_for_that() {
    let mut w = world_with(1, open);
    let said = issue_as(&mut w, "d[1-9]", false).expect_err("no node of the configuration");
    assert!(said.to_string().contains("--dynamic"), "{said}");
    issue_as(&mut w, "d[1-9],n1", false).expect("a token for nodes of the configuration");
    refused(join(&mut w, "d1", true), "sluice token node --dynamic");
    assert!(w.state.dynamic_nodes.is_empty());
    w.run(Command::CreateNodes(vec![node("d1")]));
    join(&mut w, "d1", true).expect("a node that an administrator created");
    let mut full = world_with(3, open);
    let said = issue(&mut full, "d[1-9]").expect_err("no room");
    assert!(said.to_string().contains("MaxNodeCount is 3"), "{said}");
}

#[test]
fn removed_machine_stays_out_when_its_node_is_deleted() {
    let mut w = world_with(1, open);
    issue(&mut w, "d[1-9]").expect("a token");
    join(&mut w, "d1", true).expect("it joins");
    w.run(Command::RemoveAgent { node: "d1".into() });
    delete(&mut w, "d1").expect("nothing is on it");
    refused(join(&mut w, "d1", true), "was removed");
    let mut again = config(&["n1"]);
    open(&mut again);
    again.parameters.kill_wait_s += 1;
    w.run(Command::Configure(Box::new(again)));
    w.restart();
    refused(join(&mut w, "d1", true), "sluice node rejoin d1");
    w.run(Command::RejoinNode { node: "d1".into() });
    join(&mut w, "d1", true).expect("by an administrator's word");
    delete(&mut w, "d1").expect("nothing is on it");
    join(&mut w, "d1", true).expect("a node that was deleted alone comes back");
}

#[test]
fn created_node_is_deleted_when_nothing_is_on_it_and_leaves_all_partitions() {
    let mut w = world_with(1, open);
    let create =
        |names: &[&str]| Command::CreateNodes(names.iter().map(|name| fast(name)).collect());
    assert_eq!(w.try_as(alice(), create(&["d1"])), Err(Refusal::AccessDenied));
    for (wrong, words) in [
        (&["n1"][..], "n1"),
        (&["d1", "d1"], "d1"),
        (&["d1", "d2", "d3"], "MaxNodeCount"),
        (&["a,b"], "letters, digits"),
        (&["all"], "not ALL"),
    ] {
        let said = w.try_as(root(), create(wrong)).expect_err("refused").to_string();
        assert!(said.contains(words), "{said}");
        assert!(w.state.dynamic_nodes.is_empty(), "{wrong:?}");
    }
    w.run(create(&["d1", "d2"]));
    assert_eq!(members(&w, "fast"), ["d1", "d2"]);
    let mut clash = config(&["n1", "d1"]);
    open(&mut clash);
    let said = w.try_as(root(), Command::Configure(Box::new(clash))).expect_err("a clash");
    assert!(said.to_string().contains("scontrol delete nodename=d1"), "{said}");

    let hash = "only-d1".to_owned();
    let (nodes, expires) = (vec!["d1".to_owned()], w.now + DAY);
    w.run(Command::IssueToken { hash: hash.clone(), nodes, expires });
    w.hello("d1", &[]);
    let job = w.started(in_fast()).job;
    refused(delete(&mut w, "n1"), "not dynamic");
    refused(delete(&mut w, "d1"), &format!("job {job} is on it"));
    assert!(delete(&mut w, "d9").is_err());
    let denied = w.try_as(alice(), Command::DeleteNodes { nodes: vec!["d2".into()] });
    assert_eq!(denied, Err(Refusal::AccessDenied));
    w.end(job, 0);
    delete(&mut w, "d1").expect("nothing is on it");
    assert_eq!((members(&w, "all"), members(&w, "fast")), (vec!["n1", "d2"], vec!["d2"]));
    assert!(!w.state.nodes.contains_key("d1") && !w.state.tokens.contains_key(&hash));
    w.restart();
    assert!(!w.state.nodes.contains_key("d1"));
    w.run(create(&["d1"]));
}

#[test]
fn created_node_is_powered_down_in_a_cloud_and_out_of_service_until_its_agent_comes() {
    let mut w = world_with(1, |config| {
        open(config);
        config.parameters.power.suspend_program = Some("/sbin/down".into());
        config.parameters.power.resume_program = Some("/sbin/up".into());
        config.parameters.power.suspend_time_s = Some(600);
    });
    let cloud = NodeConfig { cloud: true, ..fast("d1") };
    let future = NodeConfig { initial: Some(AdminState::Future), ..node("d2") };
    w.run(Command::CreateNodes(vec![cloud, future]));
    assert_eq!(w.state.nodes["d1"].power, PowerState::PoweredDown);
    assert_eq!(w.state.nodes["d2"].admin, Some(AdminState::Future));
    let job = w.started(in_fast()).job;
    assert_eq!(w.state.nodes["d1"].power, PowerState::PowerUpPending, "for job {job}");
    // It stays as it was created: its agent only comes.
    says(&mut w, &NodeConfig { cpus: 2, ..node("d2") });
    assert_eq!((w.state.nodes["d2"].admin, w.state.nodes["d2"].config.cpus), (None, 8));
}

#[test]
fn dynamic_node_is_on_the_switch_that_it_names() {
    let switch = |name: &str, nodes: &[&str], switches: &[&str]| Switch {
        name: name.into(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        switches: switches.iter().map(|name| (*name).to_owned()).collect(),
        ..Switch::default()
    };
    let switches = vec![switch("s1", &["n1"], &[]), switch("top", &[], &["s1"])];
    let mut w = world_with(1, |config| {
        open(config);
        config.topology = Some(Arc::new(Topology { switches, ..Topology::default() }));
    });
    let on = |name: &str, switch: &str| NodeConfig { topology: Some(switch.into()), ..node(name) };
    let create = |w: &mut World, node: NodeConfig| {
        let created = w.try_as(root(), Command::CreateNodes(vec![node]));
        created.map(drop).map_err(|why| why.to_string())
    };
    for wrong in ["s9", "top"] {
        refused(create(&mut w, on("d1", wrong)), "a switch or block of topology.conf");
    }
    let address = |w: &World, node: &str| w.state.topology().expect("a topology").address(node).0;
    assert_eq!(address(&w, "d1"), "d1");
    create(&mut w, on("d1", "s1")).expect("created");
    assert_eq!((address(&w, "d1"), address(&w, "n1")), ("top.s1.d1".into(), "top.s1.n1".into()));
    let view = cluster::view::view(&w.state, w.now);
    assert_eq!(view.topology, w.state.topology(), "the scheduler is shown the same");

    // What an agent says of a switch that is not there is passed over: its node is on none.
    issue(&mut w, "d[1-9]").expect("a token");
    join(&mut w, "d2", true).expect("brought");
    says(&mut w, &on("d2", "s9"));
    assert_eq!(address(&w, "d2"), "d2");
    says(&mut w, &on("d2", "s1"));
    assert_eq!(address(&w, "d2"), "top.s1.d2");
    delete(&mut w, "d1").expect("deleted");
    assert_eq!(address(&w, "d1"), "d1");
}

#[test]
fn machine_becomes_the_first_future_node_that_it_is_like() {
    let mut w = world_with(1, open);
    let future = |name: &str, cpus| NodeConfig {
        initial: Some(AdminState::Future),
        ..NodeConfig::plain(name, cpus, Bytes::from_gib(1))
    };
    w.run(Command::CreateNodes(vec![future("f1", 64), future("f2", 8)]));
    issue_as(&mut w, "f[1-9]", false).expect("a token");
    let become_one = |w: &mut World, fingerprint: &str| {
        let machine = FutureMachine { detected: node("host7"), feature: None };
        let attempt = JoinAttempt {
            hash: "group000".into(),
            fingerprint: fingerprint.into(),
            request: fingerprint.into(),
            certificate_end: w.now + DAY,
            node: Some("host7".into()),
            dynamic: false,
            future: Some(Box::new(machine)),
        };
        w.try_as(root(), Command::UseToken(attempt)).map_err(|why| why.to_string())
    };
    match become_one(&mut w, "first") {
        Ok(Reply::TokenNodes(nodes)) => assert_eq!(nodes, ["f2"], "f1 has other processors"),
        other => panic!("{other:?}"),
    }
    assert!(w.state.speaks_for("f2", "first"));
    assert!(w.state.is_dynamic_future("f2") && !w.state.is_dynamic_future("f1"));
    w.hello("f2", &[]);
    assert_eq!((w.state.nodes["f2"].slot, w.state.nodes["f2"].admin), (SlotState::Up, None));
    refused(
        become_one(&mut w, "second").map(drop),
        "no FUTURE node of f[1-9] is like this machine",
    );
}
