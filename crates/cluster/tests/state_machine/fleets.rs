//! Fleets over SSH: their nodes come and go without disturbing others, and are for their project.

use crate::job_builder::{alice, ask, bob, root};
use crate::testbed::{World, config, node, world};
use cluster::command::{CreateVolume, FleetHostReport, SetFleet};
use cluster::visibility::Viewer;
use cluster::{Command, Reply, State};
use model::bounds::FLEET_HOSTS;
use model::change::JobChange;
use model::fleet::{Blocks, MAIN_PROJECT};
use model::node::SlotState;
use model::project::{MembersChange, ProjectRole};
use model::reason::Refusal;
use model::run::{Hold, JobState};
use model::secret::Sealed;
use model::ssh_fleet::{FleetHost, SshLogin};
use model::volume::VolumePlace;
use std::time::Duration;

fn host(name: &str) -> FleetHost {
    let login = SshLogin {
        hostname: name.into(),
        port: 22,
        user: "root".into(),
        key: Sealed::new("k1", "sealed"),
        host_key: None,
    };
    FleetHost {
        id: format!("id of {name}").to_lowercase(),
        login,
        jump: None,
        internal_ip: None,
        network: None,
        address: None,
        blocks: Blocks::Auto,
        machine: None,
        failure: None,
        leaving: None,
    }
}

fn fleet(project: &str, name: &str, hosts: &[&str]) -> Command {
    Command::SetFleet(Box::new(SetFleet {
        project: project.into(),
        name: name.into(),
        configuration: "{}".into(),
        is_cluster: false,
        hosts: hosts.iter().map(|name| host(name)).collect(),
        cloud: None,
    }))
}

/// The fleet `lab` of the hosts `a`, and `b` with an address of its own, in a network.
fn fleet_in(network: &str) -> Command {
    let Command::SetFleet(mut set) = fleet(MAIN_PROJECT, "lab", &["a", "b"]) else {
        panic!("another command")
    };
    set.hosts.iter_mut().for_each(|host| host.network = network.parse().ok());
    set.hosts[1].internal_ip = Some("192.168.0.2".into());
    Command::SetFleet(set)
}

fn report(w: &mut World, node: &str, report: FleetHostReport) {
    let id = w.state.fleet_host(node).map(|(_, _, host)| host.id.clone()).unwrap_or_default();
    w.run(Command::FleetHost { node: node.into(), id, report });
}

/// The agent of a host says hello.
fn comes_up(w: &mut World, name: &str) {
    report(w, name, FleetHostReport::Found(Box::new(node("whatever"))));
    w.hello(name, &[]);
}

fn remove(w: &mut World, numbers: Option<Vec<u32>>) -> Result<Reply, Refusal> {
    let (project, name) = (MAIN_PROJECT.to_owned(), "lab".to_owned());
    w.try_as(root(), Command::RemoveFleetHosts { project, name, numbers })
}

fn nodes_of(state: &State, partition: &str) -> Vec<String> {
    state.partition(partition).map(|found| found.nodes.clone()).unwrap_or_default()
}

#[test]
fn partition_of_the_configuration_is_no_fleet_that_is_removed() {
    let mut w = world(1);
    let refused = |w: &mut World, name: &str| {
        let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
        let command = Command::RemoveFleetHosts { project, name, numbers: None };
        w.try_as(root(), command).expect_err("refused").to_string()
    };
    let configured = w.state.partitions[0].name.clone();
    let said = refused(&mut w, &configured);
    assert!(said.contains("is a partition of the cluster's configuration"), "{said}");
    let said = refused(&mut w, "nowhere");
    assert!(said.contains("nowhere") && !said.contains("partition"), "{said}");
}

#[test]
fn waiting_run_that_named_a_fleet_among_others_runs_without_it() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a"]));
    comes_up(&mut w, "lab-0");
    let first = w.state.partitions[0].name.clone();
    let either = vec![first, "lab".to_owned()];
    let job = w.submit(ask().held(Hold::User).asking(|request| request.partitions = either));
    remove(&mut w, None).expect("idle");
    report(&mut w, "lab-0", FleetHostReport::Removed);
    w.change(job, JobChange::Release).expect("held");
    w.plan();
    assert_eq!(w.nodes_of(job), ["n1"]);
}

#[test]
fn host_becomes_a_node_of_its_machines_size_and_leaves_without_a_trace() {
    let mut w = world(1);
    let beside = w.submit(ask());
    w.plan();
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    assert_eq!(nodes_of(&w.state, "lab"), ["lab-0", "lab-1"]);
    assert_eq!(w.state.nodes["lab-0"].slot, SlotState::Joining);
    let wants_lab = || ask().cpus(4).asking(|request| request.partitions = vec!["lab".into()]);
    assert!(w.try_submit(wants_lab()).is_err(), "nothing is known to fit there yet");
    comes_up(&mut w, "lab-0");
    let known = &w.state.nodes["lab-0"].config;
    assert_eq!((known.name.as_str(), known.cpus, known.fleet.as_str()), ("lab-0", 8, "lab"));
    let job = w.submit(wants_lab());
    w.plan();
    assert_eq!(w.nodes_of(job), ["lab-0"]);
    // What runs there keeps the fleet; what runs elsewhere is not asked.
    let busy = remove(&mut w, None).expect_err("busy").to_string();
    assert!(busy.contains("instance lab-0 is busy"), "{busy}");
    remove(&mut w, Some(vec![1])).expect("lab-1 is idle");
    assert_eq!(nodes_of(&w.state, "lab"), ["lab-0"]);
    w.end(job, 0);
    remove(&mut w, None).expect("idle");
    assert!(!w.state.nodes.contains_key("lab-0"));
    for number in 0..2 {
        report(&mut w, &format!("lab-{number}"), FleetHostReport::Removed);
    }
    assert!(w.state.fleets.is_empty() && w.state.partition("lab").is_none());
    assert_eq!(w.is(beside), JobState::Running, "another node's job runs on");
}

#[test]
fn fleet_is_the_same_after_a_restart_and_a_new_configuration() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a"]));
    comes_up(&mut w, "lab-0");
    report(&mut w, "lab-0", FleetHostReport::KeySeen { of_jump: false, key: "first".into() });
    w.restart();
    let mut changed = config(&["n1", "n2"]);
    changed.parameters.kill_wait_s = 7;
    w.run(Command::Configure(Box::new(changed)));
    assert_eq!(nodes_of(&w.state, "lab"), ["lab-0"]);
    assert_eq!(w.state.nodes["lab-0"].config.cpus, 8);
    // A key is pinned once.
    report(&mut w, "lab-0", FleetHostReport::KeySeen { of_jump: false, key: "second".into() });
    let (.., host) = w.state.fleet_host("lab-0").expect("a host");
    assert_eq!(host.login.host_key.as_deref(), Some("first"));
    let refused = w.try_as(root(), Command::Configure(Box::new(config(&["lab-0"]))));
    let said = refused.expect_err("the name is taken").to_string();
    assert!(said.contains("node lab-0: a fleet has this name"), "{said}");
}

#[test]
fn hosts_are_added_kept_and_removed_in_place() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    comes_up(&mut w, "lab-0");
    comes_up(&mut w, "lab-1");
    let before = w.events.len();
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    assert_eq!(w.events.len(), before, "the same again changes nothing");
    w.run(fleet(MAIN_PROJECT, "lab", &["B", "c"]));
    assert_eq!(nodes_of(&w.state, "lab"), ["lab-1", "lab-2"]);
    assert_eq!(w.state.nodes["lab-1"].slot, SlotState::Up, "a host that stays is not disturbed");
    // A number is free once nothing of its host is left.
    report(&mut w, "lab-0", FleetHostReport::Removed);
    w.run(fleet(MAIN_PROJECT, "lab", &["b", "c", "d"]));
    assert_eq!(nodes_of(&w.state, "lab"), ["lab-0", "lab-1", "lab-2"]);
    assert!(w.state.nodes["lab-0"].config.cpus == 1, "it is another host");
}

#[test]
fn address_of_a_host_is_its_own_else_that_in_the_fleets_network_else_that_of_the_login() {
    let mut w = world(1);
    w.run(fleet_in("10.88.0.0/24"));
    comes_up(&mut w, "lab-0");
    let address = |w: &World, node: &str| w.state.nodes[node].config.address.clone();
    let lacks = |w: &World, node: &str| {
        w.state.fleet_host(node).is_some_and(|(.., host)| host.lacks_address())
    };
    assert_eq!((address(&w, "lab-0"), lacks(&w, "lab-0")), ("a".into(), true));
    assert_eq!((address(&w, "lab-1"), lacks(&w, "lab-1")), ("192.168.0.2".into(), false));
    report(&mut w, "lab-0", FleetHostReport::Failed(Some("no address".into())));
    let found = |network: &str, ip: &str| FleetHostReport::Address {
        network: network.parse().expect("a network"),
        address: ip.parse().expect("an address"),
    };
    report(&mut w, "lab-0", found("10.99.0.0/24", "10.99.0.1"));
    assert!(lacks(&w, "lab-0"), "of a network that is not asked for any more");
    report(&mut w, "lab-0", found("10.88.0.0/24", "10.88.0.1"));
    assert_eq!((address(&w, "lab-0"), lacks(&w, "lab-0")), ("10.88.0.1".into(), false));
    assert_eq!(w.state.nodes["lab-0"].reason, None, "it is no longer said to fail");
    w.restart();
    w.run(fleet_in("10.88.0.0/24"));
    assert_eq!(address(&w, "lab-0"), "10.88.0.1", "the same again forgets nothing");
    assert_eq!(w.state.nodes["lab-0"].config.cpus, 8, "nor what its machine is");
    w.run(fleet_in("10.99.0.0/24"));
    assert_eq!((address(&w, "lab-0"), lacks(&w, "lab-0")), ("a".into(), true));
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    assert_eq!((address(&w, "lab-1"), lacks(&w, "lab-0")), ("b".into(), false));
}

/// A fleet of as many hosts as it may have. The key of each is as long as a sealed Ed25519 key.
#[test]
fn fleet_of_ten_thousand_hosts_is_changed_and_deleted_by_events_that_a_commit_holds() {
    /// The journal's bound, and what the frame around the events takes.
    const COMMIT_BYTES: usize = (16 << 20) - (4 << 10);
    let names: Vec<String> =
        (0..FLEET_HOSTS.most).map(|number| format!("host{number:05}.example.org")).collect();
    let large = |names: &[String]| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let Command::SetFleet(mut set) = fleet(MAIN_PROJECT, "lab", &names) else {
            panic!("another command")
        };
        let key = Sealed::new("0123456789abcdef", &"x".repeat(640));
        set.hosts.iter_mut().for_each(|host| host.login.key = key.clone());
        Command::SetFleet(set)
    };
    let mut w = world(1);
    let mut one_more = names.clone();
    one_more.push("one-more.example.org".into());
    let refused = w.try_as(root(), large(&one_more)).expect_err("one too many").to_string();
    assert!(refused.contains("hosts of a fleet"), "{refused}");
    let largest = |w: &World, from: usize| {
        let sizes = w.events[from..].iter().map(|event| {
            let text = serde_json::to_vec(event).expect("an event is written");
            text.len()
        });
        sizes.max().expect("an event")
    };
    w.run(large(&names));
    let made = largest(&w, 0);
    assert!(made < COMMIT_BYTES, "{made}");
    for node in ["lab-0", "lab-9999"] {
        comes_up(&mut w, node);
    }
    let before = w.events.len();
    w.run(large(&names[..FLEET_HOSTS.most - 2]));
    assert!(largest(&w, before) <= made + (1 << 10), "what was found out is not said again");
    assert_eq!(w.state.nodes["lab-0"].config.cpus, 8, "and is not forgotten");
    assert!(!w.state.nodes.contains_key("lab-9999"));
    let before = w.events.len();
    remove(&mut w, None).expect("idle");
    assert!(largest(&w, before) < COMMIT_BYTES);
    assert_eq!(nodes_of(&w.state, "lab"), Vec::<String>::new());
}

#[test]
fn names_and_hosts_that_are_taken_are_refused() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a"]));
    let mut refused = |command| w.try_as(root(), command).expect_err("refused").to_string();
    let cases = [
        (fleet(MAIN_PROJECT, "main", &["x"]), "main"),
        (fleet(MAIN_PROJECT, "static", &["x"]), "static"),
        (fleet(MAIN_PROJECT, "other", &["A"]), "host a:22: it is in fleet lab already"),
        (fleet(MAIN_PROJECT, "other", &["x", "x"]), "host x:22: it is named twice"),
        (fleet("nowhere", "other", &["x"]), "nowhere"),
        (fleet(MAIN_PROJECT, "a\nb", &["x"]), "fleet name"),
    ];
    for (command, expected) in cases {
        let said = refused(command);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn why_a_host_is_not_in_service_is_its_nodes_reason_until_it_answers() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a"]));
    let why = "sudo: a password is required";
    report(&mut w, "lab-0", FleetHostReport::Failed(Some(why.into())));
    let reason = w.state.nodes["lab-0"].reason.clone().expect("a reason");
    assert!(format!("{:?}", reason.cause).contains(why));
    comes_up(&mut w, "lab-0");
    assert_eq!(w.state.nodes["lab-0"].reason, None);
    // A host that was lost is back in service when it answers, whatever `ReturnToService` says.
    w.fail("lab-0");
    assert_eq!(w.state.nodes["lab-0"].slot, SlotState::Down);
    comes_up(&mut w, "lab-0");
    let node = &w.state.nodes["lab-0"];
    assert_eq!((node.slot, node.admin, &node.reason), (SlotState::Up, None, &None));
}

#[test]
fn fleet_is_for_the_members_of_its_project() {
    let mut w = world(1);
    w.run(Command::CreateProject { name: "team".into() });
    let members = [(alice().name, ProjectRole::User)].into();
    let (project, change) = ("team".to_owned(), MembersChange::Add);
    w.run(Command::SetMembers { project, members, change });
    assert_eq!(w.try_as(alice(), fleet("team", "lab", &["a"])), Err(Refusal::AccessDenied));
    w.run(fleet("team", "lab", &["a"]));
    comes_up(&mut w, "lab-0");
    assert!(Viewer::new(&w.state, &alice()).fleet("lab"));
    assert!(!Viewer::new(&w.state, &bob()).fleet("lab"));
    let wants = |owner, account: Option<&str>| {
        let account = account.map(str::to_owned);
        let asked = ask().of(owner).asking(|request| request.partitions = vec!["lab".into()]);
        asked.with(|spec| spec.account = account)
    };
    // To name the account is not to be a member.
    let refused = w.try_submit(wants(bob(), Some("team")));
    assert_eq!(refused, Err(Refusal::UnknownPartition("lab".into())));
    let job = w.submit(wants(alice(), Some("team")));
    w.plan();
    assert_eq!(w.nodes_of(job), ["lab-0"]);
    let said = w.try_as(root(), fleet("team", "lab2", &["a"])).expect_err("taken").to_string();
    assert!(said.contains("it is in fleet lab already"), "{said}");
    let said =
        w.try_as(root(), fleet(MAIN_PROJECT, "lab2", &["a"])).expect_err("taken").to_string();
    assert!(said.contains("a fleet of another project"), "{said}");
    let gone = w.try_as(root(), Command::RemoveProject { name: "team".into() });
    let said = gone.expect_err("it has a fleet").to_string();
    assert!(said.contains("fleet lab belongs to it"), "{said}");
}

#[test]
fn run_on_several_nodes_goes_to_a_fleet_whose_nodes_lie_together() {
    let mut w = world(1);
    let of = |is_cluster| {
        let Command::SetFleet(mut set) = fleet(MAIN_PROJECT, "lab", &["a", "b"]) else {
            panic!("a fleet")
        };
        set.is_cluster = is_cluster;
        Command::SetFleet(set)
    };
    w.run(of(false));
    comes_up(&mut w, "lab-0");
    comes_up(&mut w, "lab-1");
    let run = || ask().task().nodes(2).asking(|request| request.partitions = vec!["lab".into()]);
    let said = w.try_submit(run()).expect_err("refused").to_string();
    assert!(said.contains("placement: cluster"), "{said}");
    w.run(of(true));
    let job = w.submit(run());
    w.plan();
    assert_eq!(w.nodes_of(job), ["lab-0", "lab-1"]);
}

/// A host has the number of one that left: what is still said of that one, or was issued for it, does nothing.
#[test]
fn host_that_left_is_nothing_to_the_next_one_of_its_name() {
    let mut w = world(1);
    let expires = w.now + Duration::from_secs(60);
    let issue = |hash: &str, id: &str| {
        let (hash, node, id) = (hash.into(), "lab-0".into(), id.into());
        Command::IssueHostToken { hash, node, id, expires }
    };
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    w.run(issue("waits", "id of a"));
    assert_eq!(w.try_as(alice(), issue("h", "id of a")), Err(Refusal::AccessDenied));
    remove(&mut w, Some(vec![0])).expect("removed");
    w.try_as(root(), issue("late", "id of a")).expect_err("it leaves");
    report(&mut w, "lab-0", FleetHostReport::Removed);
    assert!(w.state.tokens.is_empty(), "its token is gone with it");
    w.run(fleet(MAIN_PROJECT, "lab", &["b", "c"]));
    let before = w.state.fleets["lab"].clone();
    assert_eq!(before.hosts[&0].id, "id of c");
    w.try_as(root(), issue("late", "id of a")).expect_err("it is another host's name");
    let reports = [
        FleetHostReport::KeySeen { of_jump: false, key: "its".into() },
        FleetHostReport::Failed(Some("it failed".into())),
        FleetHostReport::Found(Box::new(node("whatever"))),
        FleetHostReport::Removed,
    ];
    for report in reports {
        w.run(Command::FleetHost { node: "lab-0".into(), id: "id of a".into(), report });
        assert_eq!(w.state.fleets["lab"], before);
    }
    w.run(issue("good", "id of c"));
}

#[test]
fn name_of_a_login_node_or_of_a_known_agent_is_no_fleets() {
    let mut w = world(1);
    let with_login = |name: &str| {
        let mut config = config(&["n1"]);
        config.login_nodes = vec![name.into()];
        Command::Configure(Box::new(config))
    };
    w.run(with_login("lab-0"));
    let taken = Refusal::AlreadyExists { what: "node".into(), name: "lab-0".into() };
    assert_eq!(w.try_as(root(), fleet(MAIN_PROJECT, "lab", &["a"])), Err(taken.clone()));
    let expires = w.now + Duration::from_secs(60);
    w.run(Command::IssueToken { hash: "h".into(), nodes: vec!["lab-0".into()], expires });
    w.run(crate::tokens::spend("h", "its"));
    w.run(with_login("other"));
    assert_eq!(w.try_as(root(), fleet(MAIN_PROJECT, "lab", &["a"])), Err(taken));
    w.run(fleet(MAIN_PROJECT, "two", &["a"]));
    let said = w.try_as(root(), with_login("two-0")).expect_err("taken").to_string();
    assert!(said.contains("sluice.toml: login node two-0: a fleet has this name"), "{said}");
}

#[test]
fn keys_of_a_fleet_get_another_form_unless_they_were_changed() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    comes_up(&mut w, "lab-0");
    let nodes = w.state.nodes.clone();
    let reseal = |before: &str| {
        let forms = [(Sealed::new("k1", before), Sealed::new("k2", "anew"))].into();
        Command::ResealFleet { name: "lab".into(), forms }
    };
    assert_eq!(w.try_as(alice(), reseal("sealed")), Err(Refusal::AccessDenied));
    w.run(reseal("another"));
    let keys = |w: &World| w.state.fleets["lab"].sealed_values().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&w), vec![Sealed::new("k1", "sealed"); 2]);
    w.run(reseal("sealed"));
    assert_eq!(keys(&w), vec![Sealed::new("k2", "anew"); 2]);
    assert_eq!(w.state.nodes["lab-0"].slot, nodes["lab-0"].slot, "its nodes are not disturbed");
}

/// With a host goes what is kept on it.
#[test]
fn host_that_keeps_a_volume_stays_in_its_fleet() {
    let mut w = world(1);
    w.run(fleet(MAIN_PROJECT, "lab", &["a", "b"]));
    comes_up(&mut w, "lab-0");
    comes_up(&mut w, "lab-1");
    let place = VolumePlace::Node("lab-1".into());
    let (project, name) = (MAIN_PROJECT.to_owned(), "data".to_owned());
    w.run(Command::CreateVolume(Box::new(CreateVolume { project, name, place, size: None })));
    let left_out = w.try_as(root(), fleet(MAIN_PROJECT, "lab", &["a"]));
    for refused in [left_out, remove(&mut w, Some(vec![1])), remove(&mut w, None)] {
        let why = refused.expect_err("the volume is there").to_string();
        assert!(why.contains("data"), "{why}");
    }
    remove(&mut w, Some(vec![0])).expect("nothing is kept there");
}
