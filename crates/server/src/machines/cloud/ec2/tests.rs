//! What is asked of EC2's API, one answer after the other.

use super::*;
use crate::machines::cloud::user_data::tests::order;
use crate::machines::source::{AttachOrder, DiskOrder};
use model::cloud_source::{OsImage, OsImages, SourceKind};
use model::cloud_volume::CloudPlace;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::thread::JoinHandle;

const TYPES: &str = "<R><instanceTypeSet><item><instanceType>c5.large</instanceType>\
    <vCpuInfo><defaultVCpus>2</defaultVCpus></vCpuInfo><memoryInfo><sizeInMiB>4096</sizeInMiB></memoryInfo>\
    <placementGroupInfo><supportedStrategies><item>cluster</item></supportedStrategies></placementGroupInfo>\
    </item></instanceTypeSet></R>";
const IMAGES: &str = "<R><imagesSet><item><architecture>x86_64</architecture>\
    <rootDeviceName>/dev/xvda</rootDeviceName></item></imagesSet></R>";
const NONE: &str = "<R><reservationSet/></R>";

/// EC2 with these answers, in this order; the thread ends with the forms that were sent.
struct Played {
    source: Ec2Source,
    _folder: tempfile::TempDir,
    asked: JoinHandle<Vec<String>>,
}

fn played(answers: Vec<(u16, String)>, more: CloudConfig) -> Played {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().expect("a connection");
            asked.push(form_of(&mut stream));
            let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n", body.len());
            let answer = format!("{head}connection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).expect("an answer");
        }
        asked
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    let key = "aws_access_key_id = A\naws_secret_access_key = s\n";
    std::fs::write(&path, key).expect("a file");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, mode).expect("a mode");
    let cloud = CloudConfig {
        regions: vec!["eu-west-1".into()],
        endpoint: Some(format!("http://{address}")),
        credentials: Some(path.display().to_string()),
        images: [(String::new(), "ami-1".to_owned())].into(),
        disk_gb: 8,
        ..more
    };
    let config = SourceConfig::of_kind("ec2", SourceKind::Aws(Box::new(cloud.clone())));
    Played { source: Ec2Source::new(&config, &cloud, "lab", None), _folder: folder, asked }
}

/// The body of a request.
fn form_of(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let count = stream.read(&mut buffer).expect("a request");
        assert!(count > 0, "a whole request");
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.trim().parse().ok()).expect("a length");
        if body.len() >= length {
            return body.to_owned();
        }
    }
}

fn instance(number: usize) -> String {
    format!(
        "<item><instancesSet><item><instanceId>i-{number}</instanceId>\
         <launchTime>2026-11-17T20:00:00.000Z</launchTime>\
         <instanceState><name>running</name></instanceState>\
         <tagSet><item><key>sluice-token</key><value>t-{number}</value></item></tagSet></item></instancesSet></item>"
    )
}

fn instances(numbers: std::ops::Range<usize>, next: &str) -> (u16, String) {
    let items: String = numbers.map(instance).collect();
    (200, format!("<R><reservationSet>{items}</reservationSet><nextToken>{next}</nextToken></R>"))
}

fn error(status: u16, code: &str) -> (u16, String) {
    (status, format!("<R><Errors><Error><Code>{code}</Code></Error></Errors></R>"))
}

fn made() -> (u16, String) {
    let text = "<R><instancesSet><item><instanceId>i-7</instanceId></item></instancesSet></R>";
    (200, text.to_owned())
}

fn told(text: &str) -> (u16, String) {
    (200, text.to_owned())
}

#[test]
fn thousand_machines_are_one_call_and_further_ones_are_on_the_next_page() {
    let answers = vec![instances(0..1000, "more"), instances(1000..1001, "")];
    let played = played(answers, CloudConfig::default());
    let found = played.source.describe().expect("they are told");
    assert_eq!(found.len(), 1001);
    assert_eq!((found[1000].token.as_str(), found[1000].id.as_str()), ("t-1000", "i-1000"));
    assert_eq!(found[0].since, Some(Timestamp::from_secs(1_794_945_600)));
    let asked = played.asked.join().expect("the API");
    assert!(asked[0].contains("MaxResults=1000") && !asked[0].contains("NextToken"), "{asked:?}");
    assert!(asked[0].contains("tag%3Asluice-cluster&") && asked[0].contains("=lab"), "{asked:?}");
    assert!(asked[1].contains("NextToken=more"), "{asked:?}");
}

#[test]
fn call_that_was_made_before_finds_its_machine_and_makes_no_second_one() {
    let mismatch = error(400, "IdempotentParameterMismatch");
    let answers = vec![
        told(TYPES),
        told(IMAGES),
        mismatch.clone(),
        instances(1..2, ""),
        mismatch,
        told(NONE),
    ];
    let played = played(answers, CloudConfig::default());
    let order = order("c5.large@eu-west-1", "eu-west-1", false);
    let found = played.source.create(&order).expect("it is found");
    assert_eq!(found.id, "i-1");
    let unseen = played.source.create(&order).expect_err("it cannot be seen yet");
    assert_eq!(unseen.kind, FailureKind::Unknown, "it is asked for again");
    let asked = played.asked.join().expect("the API");
    assert!(asked[2].contains("ClientToken=1-ab"), "{asked:?}");
    assert!(asked[3].contains("tag%3Asluice-token"), "{asked:?}");
}

#[test]
fn placement_group_is_made_when_it_is_missing() {
    let unknown = error(400, "InvalidPlacementGroup.Unknown");
    let answers = vec![told(TYPES), told(IMAGES), unknown, told("<R/>"), made()];
    let more = CloudConfig { placement_group: true, ..CloudConfig::default() };
    let played = played(answers, more);
    let order = order("c5.large@eu-west-1", "eu-west-1", false);
    assert_eq!(played.source.create(&order).expect("it is made").id, "i-7");
    let asked = played.asked.join().expect("the API");
    let group = "GroupName=sluice-lab-ec2-eu-west-1";
    assert!(asked[3].contains("Action=CreatePlacementGroup"), "{asked:?}");
    assert!(asked[2].contains(group) && asked[3].contains(group), "{asked:?}");
}

fn subnet(id: &str, zone: &str, is_public: bool) -> String {
    format!(
        "<item><subnetId>{id}</subnetId><state>available</state><availabilityZone>{zone}</availabilityZone>\
         <mapPublicIpOnLaunch>{is_public}</mapPublicIpOnLaunch></item>"
    )
}

fn vpcs(ids: &[&str]) -> (u16, String) {
    let items: String = ids.iter().map(|id| format!("<item><vpcId>{id}</vpcId></item>")).collect();
    (200, format!("<R><vpcSet>{items}</vpcSet></R>"))
}

fn in_vpc() -> CloudConfig {
    CloudConfig { vpc_name: Some("lab".into()), ..CloudConfig::default() }
}

#[test]
fn machine_is_in_a_subnet_of_its_vpc_and_from_the_newest_image_of_its_name() {
    let image = |id: &str, day: &str| {
        let made = format!("<creationDate>2026-{day}T08:00:00.000Z</creationDate>");
        format!("<item><imageId>{id}</imageId>{made}</item>")
    };
    let images = [image("ami-3", "03-01"), image("ami-9", "10-01"), image("ami-5", "05-01")];
    let images = format!("<R><imagesSet>{}</imagesSet></R>", images.concat());
    let subnets = [
        subnet("subnet-1", "eu-west-1a", true),
        subnet("subnet-2", "eu-west-1b", true),
        subnet("subnet-4", "eu-west-1b", false),
        subnet("subnet-3", "eu-west-1b", false),
    ];
    let subnets = format!("<R><subnetSet>{}</subnetSet></R>", subnets.concat());
    let answers = vec![told(TYPES), told(&images), vpcs(&["vpc-1"]), told(&subnets), made()];
    let cpu = Some(OsImage { name: "lab cpu".into(), owner: "self".into() });
    let more = CloudConfig {
        public_ips: Some(false),
        os_images: OsImages { cpu, nvidia: None },
        identity: Some("nodes".into()),
        tags: [("team".to_owned(), "vision".to_owned())].into(),
        ..in_vpc()
    };
    let played = played(answers, more);
    let here = order("c5.large@eu-west-1b", "eu-west-1", false);
    assert_eq!(played.source.create(&here).expect("it is made").id, "i-7");
    let elsewhere = order("c5.large@eu-west-1d", "eu-west-1", false);
    let said = played.source.create(&elsewhere).expect_err("it would be in another VPC");
    assert_eq!(said.text, "eu-west-1d: no subnet there, only in eu-west-1a, eu-west-1b");
    let asked = played.asked.join().expect("the API");
    for (at, part) in [
        (1, "Owner.1=self"),
        (1, "Filter.1.Name=name&Filter.1.Value.1=lab%20cpu"),
        (2, "Filter.1.Name=tag%3AName&Filter.1.Value.1=lab&"),
        (3, "Filter.1.Name=vpc-id&Filter.1.Value.1=vpc-1"),
        (4, "ImageId=ami-9"),
        (4, "NetworkInterface.1.AssociatePublicIpAddress=false"),
        (4, "NetworkInterface.1.SubnetId=subnet-3"),
        (4, "IamInstanceProfile.Name=nodes"),
        (4, "TagSpecification.1.Tag.4.Key=team&TagSpecification.1.Tag.4.Value=vision"),
    ] {
        assert!(asked[at].contains(part), "{part}: {}", asked[at]);
    }
    assert!(!asked[4].contains("AvailabilityZone"), "{}", asked[4]);
}

#[test]
fn vpc_that_is_not_there_or_is_not_one_makes_no_machine() {
    let answers = vec![
        told(TYPES),
        told(IMAGES),
        vpcs(&[]),
        vpcs(&["vpc-1", "vpc-2"]),
        vpcs(&["vpc-1"]),
        told("<R><subnetSet/></R>"),
    ];
    let played = played(answers, in_vpc());
    let order = order("c5.large@eu-west-1a", "eu-west-1", false);
    for words in [
        "VPC lab: there is none in eu-west-1",
        "VPC lab: there are 2 in eu-west-1: name one by vpc_ids",
        "VPC vpc-1: no subnet of it is available in eu-west-1",
    ] {
        let said = played.source.create(&order).expect_err(words);
        assert_eq!((said.kind, said.text.as_str()), (FailureKind::Refused, words));
    }
    played.asked.join().expect("the API");
}

fn disk_order() -> DiskOrder {
    let place = CloudPlace { region: "eu-west-1".into(), ..CloudPlace::default() };
    let (token, name) = ("0123456789abcdef".to_owned(), "data".to_owned());
    DiskOrder { token, name, project: "main".into(), place, size_gb: 10, id: None }
}

fn volume(attachment: &str) -> String {
    format!(
        "<item><volumeId>vol-1</volumeId><size>10</size><status>in-use</status>\
         <availabilityZone>eu-west-1b</availabilityZone><attachmentSet>{attachment}</attachmentSet>\
         <tagSet><item><key>sluice-token</key><value>0123456789abcdef</value></item>\
         <item><key>sluice-volume</key><value>data</value></item></tagSet></item>"
    )
}

fn volumes(items: &str) -> (u16, String) {
    (200, format!("<R><volumeSet>{items}</volumeSet></R>"))
}

#[test]
fn disk_is_made_once_in_a_zone_and_found_again_by_its_token() {
    let zones = "<R><availabilityZoneInfo><item><zoneName>eu-west-1b</zoneName></item>\
        <item><zoneName>eu-west-1a</zoneName></item></availabilityZoneInfo></R>";
    let made = "<R><volumeId>vol-1</volumeId><size>10</size><status>creating</status></R>";
    let answers = vec![volumes(""), told(zones), told(made), volumes(&volume(""))];
    let played = played(answers, CloudConfig::default());
    let first = played.source.create_disk(&disk_order()).expect("it is made");
    assert_eq!((first.id.as_str(), first.zone.as_deref()), ("vol-1", Some("eu-west-1a")));
    assert!(first.price.is_some(), "the price file has disks");
    let again = played.source.create_disk(&disk_order()).expect("it is found");
    assert_eq!((again.id.as_str(), again.zone.as_deref()), ("vol-1", Some("eu-west-1b")));
    let asked = played.asked.join().expect("the API");
    assert!(asked[2].contains("Action=CreateVolume"), "{asked:?}");
    for part in ["ClientToken=0123456789abcdef", "Size=10", "AvailabilityZone=eu-west-1a"] {
        assert!(asked[2].contains(part), "{part}: {asked:?}");
    }
}

#[test]
fn disk_that_was_there_is_found_where_it_is_tagged_for_the_project() {
    let tagged = |project: &str| {
        let tag = format!("<tagSet><item><key>sluice-project</key><value>{project}</value></item>");
        volumes(&volume("").replace("<tagSet>", &tag))
    };
    let answers = vec![volumes(&volume("")), tagged("other"), tagged("main")];
    let played = played(answers, CloudConfig::default());
    let mut order = disk_order();
    order.place.existing = Some("vol-1".into());
    for _ in 0..2 {
        let said = played.source.create_disk(&order).expect_err("it is not the project's");
        assert_eq!(said.kind, FailureKind::Refused, "nobody asks again");
        assert!(said.text.contains("no tag sluice-project=main"), "{}", said.text);
    }
    let found = played.source.create_disk(&order).expect("it is found");
    assert_eq!(found.id, "vol-1");
    played.asked.join().expect("the API");
}

#[test]
fn disk_is_attached_at_a_free_letter_and_detached_from_its_own_machine_alone() {
    let on = |machine: &str, letter: char| {
        let device = format!("<device>/dev/sd{letter}</device>");
        format!("<item><instanceId>{machine}</instanceId>{device}<status>attached</status></item>")
    };
    let here = on("i-1", 'g');
    let answers = vec![
        volumes(&volume("")),
        volumes(&volume(&on("i-1", 'f'))),
        told("<R/>"),
        volumes(&volume(&here)),
        volumes(&volume(&on("i-2", 'f'))),
        volumes(&volume(&on("i-2", 'f'))),
        volumes(&volume(&here)),
        told("<R/>"),
        volumes(&volume("")),
    ];
    let played = played(answers, CloudConfig::default());
    let order = AttachOrder { disk: disk_order(), machine: "i-1".into() };
    let devices = played.source.attach_disk(&order).expect("it is attached");
    assert_eq!(devices[1], "/dev/xvdg", "the other letter is taken");
    let again = played.source.attach_disk(&order).expect("it is found attached");
    assert_eq!(again, devices);
    let elsewhere = played.source.attach_disk(&order).expect_err("another machine has it");
    assert_eq!(elsewhere.kind, FailureKind::Unknown, "it is asked for again");
    played.source.detach_disk(&order).expect("it is not attached to this machine");
    played.source.detach_disk(&order).expect("it is detached");
    let asked = played.asked.join().expect("the API");
    assert!(asked[2].contains("Action=AttachVolume") && asked[2].contains("Device=%2Fdev%2Fsdg"));
    assert!(asked[7].contains("Action=DetachVolume"), "{asked:?}");
}

#[test]
fn machine_that_is_not_there_is_told_so_and_one_that_is_taken_back_at_once_is_no_capacity() {
    let taken = "<R><instancesSet><item><instanceId>i-7</instanceId><instanceState>\
        <name>terminated</name></instanceState></item></instancesSet></R>";
    let answers = vec![
        error(400, "InvalidInstanceID.NotFound"),
        told(NONE),
        told(TYPES),
        told(IMAGES),
        told(taken),
        told("<R/>"),
    ];
    let played = played(answers, CloudConfig::default());
    for id in [Some("i-1".to_owned()), None] {
        let (offer, region) = ("c5.large@eu-west-1".to_owned(), "eu-west-1".to_owned());
        let order = DeleteOrder { token: "t".into(), id, offer, region };
        let error = played.source.delete(&order).expect_err("there is none");
        assert_eq!(error.kind, FailureKind::NotFound);
    }
    let order = order("c5.large@eu-west-1", "eu-west-1", true);
    let error = played.source.create(&order).expect_err("it is gone");
    assert_eq!(error.kind, FailureKind::NoCapacity);
    let (id, region) = (Some("i-2".to_owned()), "us-east-1".to_owned());
    let former = DeleteOrder { token: "t".into(), id, offer: String::new(), region };
    played.source.delete(&former).expect("also in a region that the site does not name any more");
    let asked = played.asked.join().expect("the API");
    assert!(asked[5].contains("Action=TerminateInstances"), "{asked:?}");
}
