//! Volumes that are disks of a cloud: made, attached to the machine of their job before it is launched, detached after it, and
//! never deleted while they are used.

use crate::job_builder::{Ask, alice, root};
use crate::machines::{asked, in_cloud, joins, machine, made, open, report, small};
use crate::testbed::World;
use cluster::command::{CreateVolume, DiskMade, MachineReport, VolumeReport};
use cluster::state::disk_use::DiskVolume;
use cluster::volume_reconcile::{ATTACH_LIMIT, SourceDisk, VolumeWork};
use cluster::{Command, Reply};
use model::amount::Bytes;
use model::cloud_volume::{AttachmentState, CloudPlace, Disk};
use model::fleet::MAIN_PROJECT;
use model::machine::Offer;
use model::machine_choice::MachineChoice;
use model::price::{Cost, Price};
use model::reason::Refusal;
use model::run::JobState;
use model::volume::{Volume, VolumePlace, VolumeState, VolumeUse};
use std::sync::Arc;
use std::time::Duration;

const HOUR: u64 = 3600;

fn place() -> CloudPlace {
    CloudPlace { backend: "remote".into(), ..CloudPlace::default() }
}

fn try_create(w: &mut World, place: CloudPlace, size: Option<Bytes>) -> Result<Reply, Refusal> {
    let (project, name) = (MAIN_PROJECT.to_owned(), "data".to_owned());
    let place = VolumePlace::Cloud(Box::new(place));
    w.try_as(alice(), Command::CreateVolume(Box::new(CreateVolume { project, name, place, size })))
}

pub fn delete(w: &mut World) -> Result<Reply, Refusal> {
    let (project, name) = (MAIN_PROJECT.into(), "data".into());
    w.try_as(alice(), Command::DeleteVolume { project, name })
}

pub fn volume(w: &World) -> &Volume {
    &w.state.volumes_of(MAIN_PROJECT)["data"]
}

pub fn disk(w: &World) -> &Disk {
    volume(w).disk.as_ref().expect("a disk")
}

pub fn work(w: &World) -> Option<VolumeWork> {
    let of = DiskVolume { project: MAIN_PROJECT, name: "data", volume: volume(w) };
    w.state.volume_work(of, w.now)
}

pub fn told(w: &mut World, report: VolumeReport) {
    let (project, name, id) = (MAIN_PROJECT.into(), "data".into(), volume(w).id.clone());
    w.run(Command::VolumeReport { project, name, id, report });
}

/// Does what is due without a call of the source.
pub fn reports(w: &mut World) {
    while let Some(VolumeWork::Report(report)) = work(w) {
        told(w, report);
    }
}

fn disk_made(zone: Option<&str>) -> VolumeReport {
    let price = Price::from_dollars(0.36);
    let zone = zone.map(str::to_owned);
    let id = "vol-1".to_owned();
    VolumeReport::Made(DiskMade { id, zone, price, ..DiskMade::default() })
}

fn with_disk() -> Ask {
    let volumes = VolumeUse::parse_list("data:/data").expect("volumes");
    in_cloud().cpus(2).with(|spec| Arc::make_mut(&mut spec.launch).volumes = volumes)
}

/// A cloud with a volume that is there.
fn ready() -> World {
    let mut w = open();
    try_create(&mut w, place(), Some(Bytes::from_gib(10))).expect("created");
    assert_eq!(work(&w), Some(VolumeWork::Create));
    told(&mut w, disk_made(None));
    assert_eq!(volume(&w).state, VolumeState::Ready);
    w
}

#[test]
fn disk_is_attached_before_its_job_is_launched_and_detached_after_it() {
    let mut w = ready();
    let job = w.submit(with_disk());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    assert_eq!((w.is(job), work(&w).is_some()), (JobState::Configuring, true));
    reports(&mut w);
    let Some(VolumeWork::Attach { attachment, machine }) = work(&w) else { panic!("attach it") };
    assert_eq!((attachment.node.as_str(), machine.as_str()), ("cloud-1", "i-1"));
    w.restart();
    assert!(matches!(work(&w), Some(VolumeWork::Attach { .. })), "it was in the journal");
    w.pass(30);
    told(&mut w, VolumeReport::Attached);
    assert_eq!((w.is(job), work(&w)), (JobState::Running, None));
    assert!(delete(&mut w).is_err(), "a job uses it");
    w.end(job, 0);
    reports(&mut w);
    let Some(VolumeWork::Detach { machine, .. }) = work(&w) else { panic!("detach it") };
    assert_eq!(machine.as_deref(), Some("i-1"));
    told(&mut w, VolumeReport::Detached);
    assert_eq!(work(&w), None);
    delete(&mut w).expect("no job uses it any more");
    assert_eq!(work(&w), Some(VolumeWork::Delete));
    told(&mut w, VolumeReport::Deleted);
    assert!(w.state.volumes.is_empty());
}

#[test]
fn disk_that_cannot_be_used_lets_its_job_go_on_to_fail_and_is_detached() {
    let mut w = ready();
    let job = w.submit(with_disk());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    reports(&mut w);
    w.pass(ATTACH_LIMIT.as_secs());
    reports(&mut w);
    let state = disk(&w).attachment.as_ref().map(|of| of.state.clone());
    assert!(matches!(state, Some(AttachmentState::Failed(_))), "{state:?}");
    assert_eq!(w.is(job), JobState::Running, "its launch says why it cannot run");
    let next = w.submit(with_disk());
    w.end(job, 1);
    assert_eq!(w.plan().len(), 0, "the next would fail by what the first has failed by");
    reports(&mut w);
    told(&mut w, VolumeReport::Detached);
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.is(next), JobState::Configuring, "it is attached anew");
}

#[test]
fn disk_that_the_next_job_has_taken_meanwhile_is_not_detached() {
    let mut w = ready();
    let first = w.submit(with_disk());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    reports(&mut w);
    told(&mut w, VolumeReport::Attached);
    let second = w.submit(with_disk());
    w.end(first, 0);
    assert_eq!(work(&w), Some(VolumeWork::Report(VolumeReport::Detach)));
    assert_eq!(w.plan().len(), 1);
    assert_eq!(w.is(second), JobState::Running, "the disk is on its node already");
    // What was found due before the second had started.
    told(&mut w, VolumeReport::Detach);
    let state = disk(&w).attachment.as_ref().map(|of| of.state.clone());
    assert_eq!((state, work(&w)), (Some(AttachmentState::Attached), None));
}

#[test]
fn disk_is_one_jobs_at_a_time_and_goes_with_its_machine() {
    let mut w = ready();
    let first = w.submit(with_disk());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    w.plan();
    let second = w.submit(with_disk());
    assert!(asked(&mut w).orders.is_empty(), "no machine is made for who waits for a disk");
    reports(&mut w);
    told(&mut w, VolumeReport::Attached);
    assert!(w.is(first) == JobState::Running && w.job(second).is_waiting());
    w.end(first, 0);
    w.pass(100);
    report(&mut w, 1, MachineReport::Deleted);
    reports(&mut w);
    let Some(VolumeWork::Detach { machine, .. }) = work(&w) else { panic!("detach it") };
    assert_eq!(machine, None, "the machine is gone: nobody is to be called");
    told(&mut w, VolumeReport::Detached);
    assert_eq!(asked(&mut w).orders.len(), 1, "the second has its turn");
}

#[test]
fn machine_is_made_in_the_zone_of_the_disk() {
    let mut w = open();
    let wanted = CloudPlace { region: "eu".into(), ..place() };
    try_create(&mut w, wanted, Some(Bytes::from_gib(10))).expect("created");
    told(&mut w, disk_made(Some("eu-a")));
    let offer = |id: &str, price: f64| Offer {
        id: id.into(),
        region: "eu".into(),
        price: Price::from_dollars(price).expect("a price"),
        ..small()
    };
    let offers = vec![offer("small@eu-b", 0.1), offer("small@eu-a", 0.9), offer("small", 0.5)];
    w.run(Command::SetOffers { source: "cloud".into(), offers });
    let mut probed = with_disk().0.spec;
    w.state.settle_volumes(&mut probed, false).expect("its volumes are there");
    let place = probed.request().machines.as_ref().and_then(|choice| choice.place.as_ref());
    assert_eq!(place.and_then(|place| place.zone.as_deref()), Some("eu-a"), "offers are there too");
    w.submit(with_disk());
    asked(&mut w);
    let order = machine(&w, 1);
    assert_eq!((order.offer.id.as_str(), order.terms.zone.as_deref()), ("small", Some("eu-a")));
}

#[test]
fn machine_is_made_in_the_zone_that_its_job_has_chosen() {
    let mut w = open();
    let offer = Offer { region: "eu".into(), ..small() };
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![offer] });
    let zones = vec!["us-a".to_owned(), "eu-b".to_owned()];
    let choice = MachineChoice { zones, ..MachineChoice::default() };
    w.submit(in_cloud().asking(|request| request.machines = Some(Box::new(choice))));
    asked(&mut w);
    assert_eq!(machine(&w, 1).terms.zone.as_deref(), Some("eu-b"));
}

#[test]
fn job_has_the_first_of_several_volumes_that_is_there() {
    let mut w = ready();
    let names = ["none".to_owned(), "data".to_owned()];
    let used = VolumeUse::one_of(&names, "/data").expect("names");
    let ask = in_cloud().with(|spec| Arc::make_mut(&mut spec.launch).volumes = vec![used]);
    let job = w.submit(ask);
    assert_eq!(w.state.users_of_volume(MAIN_PROJECT, "data"), [job]);
    assert!(w.job(job).spec.launch.volumes[0].others.is_empty(), "it is chosen");
}

#[test]
fn disk_costs_while_it_is_there_and_goes_by_itself_when_nobody_uses_it() {
    let mut w = open();
    let kept = CloudPlace { cleanup_s: Some(7200), ..place() };
    try_create(&mut w, kept, Some(Bytes::from_gib(10))).expect("created");
    told(&mut w, disk_made(None));
    w.pass(HOUR);
    assert_eq!(volume(&w).state, VolumeState::Ready);
    let cost = |w: &World| w.state.machine_costs("cloud", w.now);
    assert_eq!(Some(cost(&w)), Cost::from_dollars(0.36));
    w.pass(HOUR);
    assert_eq!((volume(&w).state, work(&w)), (VolumeState::Deleting, Some(VolumeWork::Delete)));
    told(&mut w, VolumeReport::Deleted);
    w.pass(HOUR);
    assert_eq!(Some(cost(&w)), Cost::from_dollars(0.72), "not after it was gone");
}

#[test]
fn what_a_cloud_will_not_have_is_refused_in_one_line() {
    let mut w = open();
    let size = Some(Bytes::from_gib(1));
    let why = |said: Result<Reply, Refusal>| said.expect_err("refused").to_string();
    let other = CloudPlace { backend: "aws".into(), ..place() };
    assert!(why(try_create(&mut w, other, size)).contains("no source of the cluster is of"));
    assert!(why(try_create(&mut w, place(), None)).contains("needs a `size` or a `volume_id`"));
    let odd = CloudPlace { zone: Some("a b\n".into()), ..place() };
    assert!(why(try_create(&mut w, odd, size)).contains("printable"));
    let existing = CloudPlace { existing: Some("vol-9".into()), ..place() };
    try_create(&mut w, existing, None).expect("it is registered");
    told(&mut w, disk_made(None));
    assert_eq!(disk(&w).price, None, "the cluster does not pay for it");
    let mut config = (*w.state.config).clone();
    config.sources.clear();
    let refused = w.try_as(root(), Command::Configure(Box::new(config)));
    assert!(why(refused).contains("has volume data"), "nobody could delete it");
    delete(&mut w).expect("deleted");
    assert_eq!(work(&w), Some(VolumeWork::Report(VolumeReport::Deleted)), "its disk stays");
}

#[test]
fn disk_of_a_volume_is_no_second_volume() {
    let mut w = ready();
    let mut register = |id: &str, name: &str| {
        let zone = Some(format!("zone-of-{name}"));
        let place = CloudPlace { existing: Some(id.into()), zone, ..place() };
        let (project, name) = (MAIN_PROJECT.to_owned(), name.to_owned());
        let place = VolumePlace::Cloud(Box::new(place));
        let create = CreateVolume { project, name, place, size: None };
        w.try_as(alice(), Command::CreateVolume(Box::new(create))).map_err(|why| why.to_string())
    };
    let said = "is a volume of the cluster already";
    let taken = |id: &str| -> Result<Reply, String> { Err(format!("disk {id} {said}")) };
    assert_eq!(register("vol-1", "mine"), taken("vol-1"), "the cluster has made it");
    register("vol-2", "first").expect("it is registered");
    assert_eq!(register("vol-2", "second"), taken("vol-2"), "it is registered already");
}

#[test]
fn disks_that_the_cloud_has_lost_and_those_that_nobody_asked_for_are_found() {
    let mut w = ready();
    let one = |token: &str| SourceDisk { token: token.into(), id: "vol-7".into() };
    let later = w.now + Duration::from_secs(300);
    let own = one(volume(&w).id.as_str());
    let found = w.state.disk_differences("cloud", &[own.clone(), one("other")], later);
    assert_eq!(found, (Vec::new(), vec![one("other")]));
    let (lost, _) = w.state.disk_differences("cloud", &[], later);
    assert_eq!(lost, [(MAIN_PROJECT.to_owned(), "data".to_owned())]);
    told(&mut w, VolumeReport::Failed { text: "the cloud has lost it".into() });
    let refused = w.try_submit(with_disk()).expect_err("it is lost").to_string();
    assert!(refused.contains("the cloud has lost it"), "{refused}");
}
