//! Volumes: who makes, uses and deletes them, on which nodes jobs that name them may run, and that none goes while it is used.

use crate::job_builder::{Ask, alice, ask, bob, root, user};
use crate::testbed::{World, world, world_with};
use cluster::command::CreateVolume;
use cluster::{Command, Reply};
use model::bounds;
use model::change::JobRef;
use model::fleet::MAIN_PROJECT;
use model::partition::Partition;
use model::principal::{Principal, Role};
use model::range::Range;
use model::reason::Refusal;
use model::volume::{VolumePlace, VolumeState, VolumeUse};
use std::sync::Arc;

fn on(node: &str) -> VolumePlace {
    VolumePlace::Node(node.into())
}

fn try_create(
    w: &mut World,
    by: Principal,
    name: &str,
    place: VolumePlace,
) -> Result<Reply, Refusal> {
    let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
    w.try_as(by, Command::CreateVolume(Box::new(CreateVolume { project, name, place, size: None })))
}

/// A volume whose folder is there.
fn create(w: &mut World, by: Principal, name: &str, place: VolumePlace) {
    try_create(w, by, name, place).expect("created");
    settle(w, name, true);
}

fn settle(w: &mut World, name: &str, is_there: bool) {
    let id = w.state.volumes_of(MAIN_PROJECT)[name].id.clone();
    let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
    w.try_as(root(), Command::SettleVolume { project, name, id, is_there }).expect("settled");
}

fn delete(w: &mut World, by: Principal, name: &str) -> Result<Reply, Refusal> {
    w.try_as(by, Command::DeleteVolume { project: MAIN_PROJECT.into(), name: name.into() })
}

fn with(text: &str) -> Ask {
    let volumes = VolumeUse::parse_list(text).expect("volumes");
    ask().with(|spec| Arc::make_mut(&mut spec.launch).volumes = volumes)
}

fn submit(w: &mut World, ask: Ask) -> Result<Reply, Refusal> {
    let by = (*ask.0.spec.owner).clone();
    w.try_as(by, Command::Submit(Box::new(ask.0)))
}

fn why(refused: Result<Reply, Refusal>) -> String {
    refused.expect_err("refused").to_string()
}

/// The nodes that the newest job may have.
fn pool(w: &World) -> Vec<String> {
    w.state.jobs.values().next_back().expect("a job").spec.request().node_pool.clone()
}

#[test]
fn volume_is_made_used_and_deleted_by_its_owner() {
    let mut w = world(3);
    try_create(&mut w, alice(), "data", on("n2")).expect("created");
    assert!(why(submit(&mut w, with("data:/data"))).contains("not made yet"));
    settle(&mut w, "data", true);
    assert!(try_create(&mut w, bob(), "data", on("n1")).is_err(), "the name is taken");
    let of_bob = with("data:/data").with(|spec| spec.owner = Arc::new(bob()));
    assert!(why(submit(&mut w, of_bob)).contains("belongs to alice"));
    assert_eq!(delete(&mut w, bob(), "data"), Err(Refusal::AccessDenied));
    let operator = Principal { role: Role::Operator, ..user("olga", 1002) };
    assert_eq!(delete(&mut w, operator, "data"), Err(Refusal::AccessDenied));
    let Ok(Reply::Submitted { job, .. }) = submit(&mut w, with("data:/data")) else {
        panic!("submitted")
    };
    assert_eq!(pool(&w), ["n2"]);
    assert_eq!(w.state.users_of_volume(MAIN_PROJECT, "data"), [job]);
    assert!(why(delete(&mut w, alice(), "data")).contains(&format!("used by job {job}")));
    w.cancel(&[JobRef::whole(job)]);
    delete(&mut w, alice(), "data").expect("no job uses it any more");
    assert!(why(submit(&mut w, with("data:/data"))).contains("being deleted"));
    let stays = w.state.volumes_of(MAIN_PROJECT)["data"].state;
    assert_eq!(stays, VolumeState::Deleting, "until its node has removed the folder");
    delete(&mut w, root(), "data").expect("a deletion that broke off is asked for again");
    settle(&mut w, "data", false);
    assert!(w.state.volumes.is_empty());
    assert!(why(submit(&mut w, with("data:/data"))).contains("volume data does not exist"));
}

#[test]
fn what_a_node_says_of_an_older_volume_changes_nothing() {
    let mut w = world(1);
    create(&mut w, alice(), "data", on("n1"));
    let old = w.state.volumes_of(MAIN_PROJECT)["data"].id.clone();
    delete(&mut w, alice(), "data").expect("deleting");
    settle(&mut w, "data", false);
    create(&mut w, alice(), "data", on("n1"));
    let (project, name) = (MAIN_PROJECT.to_owned(), "data".to_owned());
    let late = Command::SettleVolume { project, name, id: old, is_there: false };
    w.try_as(root(), late.clone()).expect("taken");
    assert_eq!(w.state.volumes_of(MAIN_PROJECT).len(), 1);
    assert_eq!(w.try_as(alice(), late), Err(Refusal::AccessDenied));
}

#[test]
fn job_runs_where_all_its_volumes_are() {
    let mut w = world_with(3, |config| {
        config.shared_folders.insert("/mnt/all".into(), None);
        config.shared_folders.insert("/mnt/two".into(), Some(vec!["n2".into(), "n3".into()]));
    });
    let shared = |folder: &str| VolumePlace::Shared(folder.into());
    create(&mut w, alice(), "here", on("n1"));
    create(&mut w, alice(), "all", shared("/mnt/all"));
    create(&mut w, alice(), "two", shared("/mnt/two"));
    assert!(try_create(&mut w, alice(), "x", shared("/etc")).is_err());
    assert_eq!(try_create(&mut w, alice(), "x", on("n9")), Err(Refusal::UnknownNode("n9".into())));
    for (asked, nodes) in
        [("all:/a", &[][..]), ("two:/a", &["n2", "n3"]), ("here:/a,all:/b", &["n1"])]
    {
        submit(&mut w, with(asked)).expect(asked);
        assert_eq!(pool(&w), nodes, "{asked}");
    }
    assert!(why(submit(&mut w, with("here:/a,two:/b"))).contains("too few of the nodes"));
    let elsewhere = with("here:/a").asking(|request| request.node_pool = vec!["n2".into()]);
    assert!(why(submit(&mut w, elsewhere)).contains("too few of the nodes"));
    for two in ["all:/a,two:/a", "all:/a,two:/a/b", "all:/a/b,two:/a/"] {
        assert!(why(submit(&mut w, with(two))).contains("two volumes at or below"), "{two}");
    }
}

#[test]
fn job_whose_partition_or_named_node_has_not_its_volume_is_told_where_that_is() {
    let mut w = world_with(3, |config| {
        config.partitions[0].nodes.retain(|name| name != "n3");
        config.partitions.push(Partition::over("large", vec!["n3".into()]));
    });
    create(&mut w, alice(), "data", on("n3"));
    assert_eq!(
        why(submit(&mut w, with("data:/data"))),
        "volume data is on n3, which is not in main: name a partition that has it"
    );
    let there = |ask: Ask| ask.asking(|request| request.partitions = vec!["large".into()]);
    submit(&mut w, there(with("data:/data"))).expect("its partition has the volume");
    create(&mut w, alice(), "other", on("n2"));
    let named = |node: &str| {
        with("other:/data").asking(|request| request.node_list = vec![node.to_owned()])
    };
    assert_eq!(why(submit(&mut w, named("n1"))), "volume other is on n2, and the job names n1");
    assert_eq!(submit(&mut w, named("n9")), Err(Refusal::UnknownNode("n9".into())));
    submit(&mut w, named("n2")).expect("the node has the volume");
}

#[test]
fn volumes_by_rank_are_on_the_nodes_of_their_ranks() {
    let mut w = world(3);
    for (name, node) in [("d-0", "n1"), ("d-1", "n3"), ("e-0", "n2"), ("e-1", "n1")] {
        create(&mut w, alice(), name, on(node));
    }
    let on_two = |name: &str| {
        with(&format!("{name}-${{{{ dstack.node_rank }}}}:/d"))
            .asking(|request| request.nodes = Range::exactly(2))
    };
    submit(&mut w, on_two("d")).expect("submitted");
    assert_eq!(pool(&w), ["n1", "n3"]);
    assert!(why(delete(&mut w, alice(), "d-1")).contains("used by job"));
    assert!(why(submit(&mut w, on_two("e"))).contains("ranks follow the names"));
    let range = on_two("d").asking(|request| request.nodes = Range { min: 1, max: Some(2) });
    assert!(why(submit(&mut w, range)).contains("not a range"));
    let one_of_many = with("d-0:/d").asking(|request| request.nodes = Range::exactly(2));
    assert!(why(submit(&mut w, one_of_many)).contains("volume d-0 is on node n1"));
}

#[test]
fn names_and_numbers_are_bounded() {
    let mut w = world(1);
    for name in ["", "a b", "../x", "A", &"x".repeat(61)] {
        let refused = try_create(&mut w, alice(), name, on("n1"));
        assert!(matches!(refused, Err(Refusal::InvalidValue { .. })), "{name}: {refused:?}");
    }
    for n in 0..bounds::USER_VOLUMES.most {
        create(&mut w, alice(), &format!("v{n}"), on("n1"));
    }
    assert!(try_create(&mut w, alice(), "more", on("n1")).is_err());
    create(&mut w, bob(), "his", on("n1"));
    let many: Vec<String> = (0..=bounds::JOB_VOLUMES.most).map(|n| format!("v{n}:/v{n}")).collect();
    assert!(submit(&mut w, with(&many.join(","))).is_err());
    submit(&mut w, with(&many[1..].join(","))).expect("within the bound");
}
