//! Volumes that are claims of Kubernetes: made, in the pods of their jobs, one pod's at a time where their access modes say so, and
//! never deleted while a pod has them.

use crate::disk_volumes::{delete, disk, reports, told, volume, work};
use crate::job_builder::{Ask, alice};
use crate::machines::{asked, in_cloud, joins, machine, made, report};
use crate::pods;
use crate::testbed::World;
use cluster::command::{CreateVolume, DiskMade, MachineReport, VolumeReport};
use cluster::volume_reconcile::VolumeWork;
use cluster::{Command, Reply};
use model::amount::Bytes;
use model::cloud_volume::{AttachmentState, ClaimTerms, CloudPlace};
use model::fleet::MAIN_PROJECT;
use model::machine::FailureKind;
use model::machine_choice::MachineChoice;
use model::pod_source::{ClaimMount, KubernetesConfig};
use model::reason::Refusal;
use model::run::JobState;
use model::volume::{VolumePlace, VolumeState, VolumeUse};
use std::sync::Arc;

/// Each pod has the home of its user.
fn open() -> World {
    let home = ClaimMount {
        claim_name: "home-{uid}".into(),
        path: "/home".into(),
        ..ClaimMount::default()
    };
    pods::open_with(KubernetesConfig { claims: vec![home], ..KubernetesConfig::default() })
}

fn place(mode: &str) -> CloudPlace {
    let access_modes = vec![mode.to_owned()];
    let claim = ClaimTerms { access_modes, ..ClaimTerms::default() };
    let claim = Some(Box::new(claim));
    CloudPlace { backend: "kubernetes".into(), claim, ..CloudPlace::default() }
}

fn existing(claim_name: &str) -> CloudPlace {
    CloudPlace { existing: Some(claim_name.to_owned()), ..place("ReadWriteOnce") }
}

fn try_create(w: &mut World, name: &str, place: CloudPlace) -> Result<Reply, Refusal> {
    let size = place.existing.is_none().then(|| Bytes::from_gib(10));
    let place = VolumePlace::Cloud(Box::new(place));
    let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
    w.try_as(alice(), Command::CreateVolume(Box::new(CreateVolume { project, name, place, size })))
}

fn claim_made(mode: &str) -> VolumeReport {
    let (id, access_modes) = ("claim-1".to_owned(), vec![mode.to_owned()]);
    VolumeReport::Made(DiskMade { id, access_modes, ..DiskMade::default() })
}

/// A cluster with a volume that is there.
fn ready(mode: &str) -> World {
    let mut w = open();
    try_create(&mut w, "data", place(mode)).expect("created");
    assert_eq!(work(&w), Some(VolumeWork::Create));
    told(&mut w, claim_made(mode));
    assert_eq!(volume(&w).state, VolumeState::Ready);
    w
}

fn with_data_at(path: &str) -> Ask {
    let volumes = vec![VolumeUse::new("data", path).expect("a use")];
    in_cloud().cpus(2).with(|spec| Arc::make_mut(&mut spec.launch).volumes = volumes)
}

fn why(said: Result<impl std::fmt::Debug, Refusal>) -> String {
    said.expect_err("refused").to_string()
}

#[test]
fn claim_is_in_the_pod_of_its_job_and_is_not_deleted_before_that_pod_is_gone() {
    let mut w = ready("ReadWriteOnce");
    let job = w.submit(with_data_at("/data"));
    asked(&mut w);
    let pod = machine(&w, 1).terms.pod.as_ref().expect("a pod");
    let claims: Vec<_> = pod.claims.iter().map(|of| (&*of.claim_name, &*of.path)).collect();
    assert_eq!(claims, [("claim-1", "/data")]);
    assert!(pod.claims[0].is_own && pod.claims[0].is_exclusive);
    made(&mut w, 1);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.is(job), JobState::Running, "nothing is to be attached first");
    reports(&mut w);
    let attachment = disk(&w).attachment.as_ref().expect("it is in a pod");
    assert_eq!((&*attachment.node, &attachment.state), ("cloud-1", &AttachmentState::Attached));
    assert!(w.state.has_claim_at("cloud-1", volume(&w), "/data"));
    assert!(!w.state.has_claim_at("cloud-1", volume(&w), "/other"));
    assert!(why(delete(&mut w)).contains("is used by job"));
    w.end(job, 0);
    reports(&mut w);
    assert_eq!((disk(&w).attachment.as_ref(), disk(&w).idle_since), (None, Some(w.now)));
    delete(&mut w).expect("no job uses it any more");
    assert_eq!(work(&w), None, "a pod has it");
    w.pass(100);
    w.restart();
    assert_eq!(work(&w), None, "that pod is being deleted");
    report(&mut w, 1, MachineReport::Deleted);
    assert_eq!(work(&w), Some(VolumeWork::Delete));
    told(&mut w, VolumeReport::Deleted);
    assert!(w.state.volumes.is_empty());
}

#[test]
fn claim_that_is_one_pods_at_a_time_is_in_no_second_one() {
    let mut w = ready("ReadWriteOnce");
    let first = w.submit(with_data_at("/data"));
    let second = w.submit(with_data_at("/data"));
    asked(&mut w);
    assert_eq!(w.state.machines.len(), 1, "no second pod");
    assert!(asked(&mut w).orders.is_empty(), "who waits for a claim waits for no machine");
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    assert!(w.is(first) == JobState::Running && w.job(second).is_waiting());
    // Another path is another pod: it is made when the first one is gone.
    let elsewhere = w.submit(with_data_at("/mnt/data"));
    w.end(first, 0);
    reports(&mut w);
    w.plan();
    assert_eq!(w.nodes_of(second), ["cloud-1"], "the same pod");
    w.end(second, 0);
    reports(&mut w);
    asked(&mut w);
    assert_eq!(w.state.machines.len(), 1);
    w.pass(100);
    report(&mut w, 1, MachineReport::Deleted);
    asked(&mut w);
    assert_eq!(machine(&w, 2).job, Some(elsewhere));
}

#[test]
fn claim_of_several_pods_is_in_all_of_a_jobs() {
    let mut w = ready("ReadWriteMany");
    w.submit(with_data_at("/data").nodes(2));
    w.submit(with_data_at("/data"));
    asked(&mut w);
    let pods = w.state.machines.values();
    assert_eq!(pods.filter(|of| of.terms.mounts("claim-1")).count(), 3);
    let mut once = ready("ReadWriteOnce");
    let said = why(once.try_submit(with_data_at("/data").nodes(2)));
    assert!(said.contains("one pod's at a time (ReadWriteOnce)"), "{said}");
}

/// Two volumes for a job on two nodes, one for each rank.
fn with_parts(mode: &str) -> World {
    let mut w = open();
    for rank in 0..2 {
        let name = format!("part-{rank}");
        try_create(&mut w, &name, place(mode)).expect("created");
        let id = w.state.volumes_of(MAIN_PROJECT)[&name].id.clone();
        let (claim, access_modes) = (format!("claim-{rank}"), vec![mode.to_owned()]);
        let made = DiskMade { id: claim, access_modes, ..DiskMade::default() };
        let (project, report) = (MAIN_PROJECT.to_owned(), VolumeReport::Made(made));
        w.run(Command::VolumeReport { project, name, id, report });
    }
    w
}

fn by_rank() -> Ask {
    let used = VolumeUse::new("part-${{ dstack.node_rank }}", "/part").expect("a use");
    let ask = in_cloud().cpus(2).nodes(2);
    ask.with(|spec| Arc::make_mut(&mut spec.launch).volumes = vec![used])
}

fn mounted(w: &World, number: u32) -> String {
    machine(w, number).terms.own_pod().expect("a pod").claims[0].claim_name.clone()
}

#[test]
fn pods_of_a_job_have_the_claims_of_their_ranks_also_when_one_is_made_anew() {
    let mut w = with_parts("ReadWriteOnce");
    let job = w.submit(by_rank());
    assert_eq!(asked(&mut w).orders.len(), 2);
    assert_eq!([mounted(&w, 1), mounted(&w, 2)], ["claim-0", "claim-1"]);
    made(&mut w, 2);
    let (kind, text) = (FailureKind::NoCapacity, "no place".to_owned());
    report(&mut w, 1, MachineReport::NotMade { kind, text });
    w.pass(31);
    w.restart();
    assert_eq!(asked(&mut w).orders.len(), 1);
    assert_eq!(mounted(&w, 3), "claim-0", "the rank that has no pod");
    made(&mut w, 3);
    joins(&mut w, 2);
    joins(&mut w, 3);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.nodes_of(job), ["cloud-0000-3", "cloud-0001-2"], "ranks follow the names");
    for (rank, node) in ["cloud-0000-3", "cloud-0001-2"].into_iter().enumerate() {
        let volumes = w.state.volumes_of(MAIN_PROJECT);
        let has = |name: &str| w.state.has_claim_at(node, &volumes[name], "/part");
        assert_eq!([has("part-0"), has("part-1")], [rank == 0, rank == 1], "{node}");
    }
}

#[test]
fn claims_of_ranks_are_in_one_set_of_pods_at_a_time() {
    for mode in ["ReadWriteOnce", "ReadWriteMany"] {
        let mut w = with_parts(mode);
        let first = w.submit(by_rank());
        let second = w.submit(by_rank());
        asked(&mut w);
        assert_eq!(w.state.machines.len(), 2, "{mode}: no second set");
        for number in [1, 2] {
            made(&mut w, number);
            joins(&mut w, number);
        }
        w.plan();
        assert!(w.is(first) == JobState::Running && w.job(second).is_waiting(), "{mode}");
        let nodes = w.nodes_of(first);
        w.end(first, 0);
        w.plan();
        assert_eq!(w.nodes_of(second), nodes, "{mode}: the same pods");
    }
}

#[test]
fn what_no_claim_and_no_pod_can_be_is_refused_in_one_line() {
    let mut w = open();
    let none = CloudPlace { claim: Some(Box::default()), ..place("") };
    let create = CreateVolume {
        project: MAIN_PROJECT.into(),
        name: "data".into(),
        place: VolumePlace::Cloud(Box::new(none)),
        size: None,
    };
    let said = why(w.try_as(alice(), Command::CreateVolume(Box::new(create))));
    assert!(said.contains("needs a `size` or a `claim_name`"), "{said}");
    let table = [
        (place("rw"), "expected ReadWriteOnce"),
        (existing("../pods/x"), "claim_name"),
        (existing("home-1000"), "is the site's"),
    ];
    for (place, words) in table {
        let said = why(try_create(&mut w, "data", place));
        assert!(said.contains(words), "{words}: {said}");
    }
    try_create(&mut w, "data", existing("old")).expect("it is registered");
    let said = why(try_create(&mut w, "other", existing("old")));
    assert!(said.contains("is volume data of project main already"), "{said}");
    told(&mut w, claim_made("ReadWriteOnce"));
    let aws = MachineChoice { backends: vec!["aws".into()], ..MachineChoice::default() };
    let cache = VolumeUse::new("cache", "/cache").expect("a use");
    let instance = VolumeUse { instance: true, ..cache };
    let beside =
        with_data_at("/data").with(|spec| Arc::make_mut(&mut spec.launch).volumes.push(instance));
    let table = [
        (with_data_at("/home/alice"), "have /home already"),
        (with_data_at("/tmp"), "have /tmp/sluice already"),
        (
            with_data_at("/data").asking(|request| request.machines = Some(Box::new(aws))),
            "is of the backend kubernetes, and the job is to be on aws",
        ),
        (beside, "volume cache cannot be in a pod"),
    ];
    for (ask, words) in table {
        let said = why(w.try_submit(ask));
        assert!(said.contains(words), "{words}: {said}");
    }
    delete(&mut w).expect("deleted");
    let gone = Some(VolumeWork::Report(VolumeReport::Deleted));
    assert_eq!(work(&w), gone, "a claim that was there stays");
}
