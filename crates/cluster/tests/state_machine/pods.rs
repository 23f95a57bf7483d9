//! Pods as machines: each is of the size that its job asks for and for jobs of one sort, and what becomes of it is its jobs'.

use crate::job_builder::{alice, ask, bob};
use crate::machines::{agent_joins, asked, in_cloud, joins, machine, made, phase, report, small};
use crate::testbed::{World, world_with};
use cluster::Command;
use cluster::command::MachineReport;
use model::amount::Bytes;
use model::cloud_source::SourceKind;
use model::machine::{FailureKind, MachineAnswer, MachinePhase, Offer, SourceConfig};
use model::partition::{DynamicMembers, Partition};
use model::pod_source::KubernetesConfig;
use model::secret::Sealed;
use std::sync::Arc;
use std::time::Duration;

fn open() -> World {
    open_with(KubernetesConfig::default())
}

/// `cloud` takes the pods of a source in, whose cluster has nodes of 16 CPUs.
pub fn open_with(pods: KubernetesConfig) -> World {
    let mut w = world_with(1, |config| {
        config.parameters.max_node_count = 10;
        let mut cloud = Partition::over("cloud", Vec::new());
        cloud.dynamic_members = DynamicMembers { all: false, features: vec!["cloud".into()] };
        config.partitions.push(cloud);
        let source = SourceConfig::of_kind("cloud", SourceKind::Kubernetes(Box::new(pods)));
        config.sources = vec![SourceConfig { machines_max: 4, idle_s: 100, ..source }];
    });
    let node = Offer { cpus: 16, memory: Bytes::from_gib(64), ..small() };
    w.run(Command::SetOffers { source: "cloud".into(), offers: vec![node] });
    w
}

fn failed(kind: FailureKind, text: &str) -> MachineReport {
    MachineReport::Failed { kind, text: text.to_owned() }
}

#[test]
fn pod_is_of_the_size_that_its_job_asks_for_and_for_its_owner_alone() {
    let mut w = open();
    let first = w.submit(in_cloud().cpus(2));
    let other = w.submit(in_cloud().cpus(2).of(bob()));
    let plan = asked(&mut w);
    let sizes: Vec<u32> = plan.orders.iter().map(|order| order.offer.cpus).collect();
    assert_eq!(sizes, [2, 2], "{plan:?}");
    assert!(plan.orders.iter().all(|order| order.offer.price < small().price), "{plan:?}");
    let uid = |number: u32| machine(&w, number).terms.pod.as_ref().map(|pod| pod.uid);
    assert_eq!([uid(1), uid(2)], [Some(alice().uid), Some(bob().uid)]);
    w.restart();
    assert!(asked(&mut w).orders.is_empty(), "no second one for either");
    made(&mut w, 2);
    joins(&mut w, 2);
    w.plan();
    assert!(w.job(first).is_waiting(), "the pod is another's");
    assert_eq!(w.nodes_of(other), ["cloud-2"]);
}

#[test]
fn job_of_a_pod_that_is_evicted_begins_again_at_once() {
    let mut w = open();
    let job = w.submit(in_cloud().requeue());
    asked(&mut w);
    made(&mut w, 1);
    joins(&mut w, 1);
    assert_eq!(w.plan().len(), 1);
    report(&mut w, 1, failed(FailureKind::NoCapacity, "its pod failed: Evicted"));
    assert!(w.job(job).is_waiting(), "long before SlurmdTimeout");
    assert_eq!(phase(&w, 1), MachinePhase::Leaving);
    w.pass(1);
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
}

#[test]
fn pod_without_a_place_pauses_its_offer_and_an_image_that_there_is_none_of_its_job_alone() {
    let mut w = open();
    let first = w.submit(in_cloud());
    asked(&mut w);
    made(&mut w, 1);
    report(&mut w, 1, failed(FailureKind::Refused, "image lab/none: ImagePullBackOff"));
    assert_eq!(phase(&w, 1), MachinePhase::Deleting);
    w.submit(in_cloud().of(bob()));
    let plan = asked(&mut w);
    assert_eq!(plan.answers[0], (first, MachineAnswer::Unserved), "{plan:?}");
    assert_eq!(plan.orders.len(), 1, "another's pod is made: {plan:?}");
    made(&mut w, 2);
    report(&mut w, 2, failed(FailureKind::NoCapacity, "no place for its pod"));
    assert!(asked(&mut w).orders.is_empty(), "the cluster is full");
    w.pass(31);
    assert_eq!(asked(&mut w).orders.len(), 1, "it is tried again");
}

/// A quota counts the pod whose answer was lost, and refuses the call that is made again.
#[test]
fn pod_that_is_refused_after_a_lost_answer_is_no_node_of_everybody() {
    let mut w = open();
    w.submit(in_cloud());
    w.submit(in_cloud().of(bob()));
    asked(&mut w);
    let refused = || {
        let text = "pod: Forbidden: exceeded quota".to_owned();
        MachineReport::NotMade { kind: FailureKind::Quota, text }
    };
    agent_joins(&mut w, 1);
    report(&mut w, 1, refused());
    assert_eq!(phase(&w, 1), MachinePhase::Deleting, "it is there");
    assert!(!w.state.dynamic_nodes.contains_key("cloud-1"));
    let (hash, expires) = ("of-a-second".to_owned(), w.now + Duration::from_secs(600));
    let (pattern, count) = ("cloud-2".to_owned(), Some(1));
    w.run(Command::IssueGroupToken { hash, pattern, count, dynamic: true, expires });
    report(&mut w, 2, refused());
    assert_eq!(phase(&w, 2), MachinePhase::Gone);
    assert!(!w.state.tokens.contains_key("of-a-second"), "its agent does not join later");
}

/// `srun --container-image` brings a login for the image of its step, which a pod cannot have.
#[test]
fn job_that_brings_a_login_for_the_image_of_a_step_is_in_no_pod() {
    let mut w = open();
    let plain = w.submit(ask());
    let of_step = w.submit(ask().with(|spec| {
        let login = Box::new(Sealed::new("k1", "login"));
        Arc::make_mut(&mut spec.launch).registry_auth = Some(login);
    }));
    let has_pod = |job| w.job(job).spec.request().pod.is_some();
    assert!(has_pod(plain) && !has_pod(of_step));
}
