//! Backends: sources of machines that administrators make by calls, beside those of sluice.toml.

use crate::job_builder::{alice, root};
use crate::machines::{asked, in_cloud, joins, machine, made, open, report, small};
use crate::testbed::World;
use cluster::command::MachineReport;
use cluster::{Command, Event, Reply};
use model::backend::{Backend, BackendOrigin, source_name};
use model::cloud_source::{CloudConfig, SourceKind};
use model::fleet::MAIN_PROJECT;
use model::machine::{FailureKind, SourceConfig};
use model::reason::Refusal;
use model::secret::Sealed;
use std::collections::BTreeSet;

fn backend(project: &str, endpoint: &str) -> Backend {
    let endpoint = Some(endpoint.to_owned());
    let kind = SourceKind::Aws(Box::new(CloudConfig { endpoint, ..CloudConfig::default() }));
    let source = SourceConfig {
        features: vec!["cloud".into()],
        ..SourceConfig::of_kind(&source_name("aws", project), kind)
    };
    let credentials = Some(Sealed::new("k1", "hush"));
    let (project, configuration) = (project.to_owned(), "{}".to_owned());
    let origin = BackendOrigin::Call;
    Backend { project, shared: false, origin, source, configuration, credentials }
}

fn set(w: &mut World, backend: Backend) -> Result<Reply, Refusal> {
    w.try_as(root(), Command::SetBackend(Box::new(backend)))
}

fn remove(w: &mut World, project: &str, names: &[&str]) -> Result<Reply, Refusal> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    w.try_as(root(), Command::RemoveBackends { project: project.to_owned(), names })
}

fn said(done: Result<Reply, Refusal>) -> String {
    done.expect_err("it is refused").to_string()
}

#[test]
fn backend_is_made_changed_and_removed_by_administrators() {
    let mut w = open();
    let by_alice = Command::SetBackend(Box::new(backend(MAIN_PROJECT, "https://a")));
    assert_eq!(w.try_as(alice(), by_alice), Err(Refusal::AccessDenied));
    set(&mut w, backend(MAIN_PROJECT, "https://a")).expect("made");
    set(&mut w, backend(MAIN_PROJECT, "https://b")).expect("changed: it has made nothing");
    let names: Vec<&str> = w.state.sources().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["cloud", "aws"]);
    assert!(said(set(&mut w, backend("none", "https://a"))).contains("none"));
    let mut of_file = backend(MAIN_PROJECT, "https://a");
    of_file.source.name = "cloud".into();
    assert!(said(set(&mut w, of_file)).contains("a source of sluice.toml"));
    assert!(said(remove(&mut w, MAIN_PROJECT, &["cloud"])).contains("a source of sluice.toml"));
    // One that is not there: none is removed.
    assert!(remove(&mut w, MAIN_PROJECT, &["aws", "gcp"]).is_err());
    let mut config = (*w.state.config).clone();
    w.run(Command::Configure(Box::new(config.clone())));
    assert_eq!(w.state.sources().count(), 2, "the configuration is not what has it");
    config.sources.push(SourceConfig::new("aws", "/opt/make"));
    let refused = w.try_as(root(), Command::Configure(Box::new(config)));
    assert!(said(refused).contains("a backend of a project has this name"));
    let by_alice = Command::RemoveBackends { project: "main".into(), names: vec!["aws".into()] };
    assert_eq!(w.try_as(alice(), by_alice), Err(Refusal::AccessDenied));
    remove(&mut w, MAIN_PROJECT, &["aws"]).expect("removed");
    assert!(w.state.backends.is_empty() && w.state.sealed_values().next().is_none());
}

#[test]
fn backend_with_a_machine_stays_and_asks_the_same_cloud() {
    let mut w = open();
    set(&mut w, backend(MAIN_PROJECT, "https://a")).expect("made");
    // The other source offers nothing: the machine is the backend's.
    w.run(Command::SetOffers { source: "cloud".into(), offers: Vec::new() });
    w.run(Command::SetOffers { source: "aws".into(), offers: vec![small()] });
    w.submit(in_cloud().cpus(2));
    asked(&mut w);
    made(&mut w, 1);
    assert_eq!(machine(&w, 1).source, "aws");
    assert!(said(remove(&mut w, MAIN_PROJECT, &["aws"])).contains("has machine aws-1"));
    assert!(said(set(&mut w, backend(MAIN_PROJECT, "https://b"))).contains("another endpoint"));
    let key = Some(Sealed::new("k1", "another"));
    let renewed = Backend { credentials: key, ..backend(MAIN_PROJECT, "https://a") };
    set(&mut w, renewed).expect("its keys may be replaced");
    w.run(Command::DeleteMachine { node: "aws-1".into() });
    report(&mut w, 1, MachineReport::Deleted);
    remove(&mut w, MAIN_PROJECT, &["aws"]).expect("removed");
    assert!(!w.state.offers.contains_key("aws"));
}

#[test]
fn other_credentials_of_a_backend_end_its_pause() {
    let mut w = open();
    set(&mut w, backend(MAIN_PROJECT, "https://a")).expect("made");
    w.run(Command::SetOffers { source: "cloud".into(), offers: Vec::new() });
    w.run(Command::SetOffers { source: "aws".into(), offers: vec![small()] });
    w.submit(in_cloud().cpus(2));
    asked(&mut w);
    let (kind, text) = (FailureKind::Refused, "AuthFailure".to_owned());
    report(&mut w, 1, MachineReport::NotMade { kind, text });
    assert!(asked(&mut w).orders.is_empty(), "not at once");
    let key = Some(Sealed::new("k1", "another"));
    let renewed = Backend { credentials: key, ..backend(MAIN_PROJECT, "https://a") };
    set(&mut w, renewed).expect("its keys may be replaced");
    assert!(w.state.source_pauses("aws", w.now).is_empty());
    assert_eq!(asked(&mut w).orders.len(), 1);
}

#[test]
fn backend_of_a_project_is_for_it_and_keeps_it() {
    let mut w = open();
    w.run(Command::CreateProject { name: "team".into() });
    set(&mut w, backend("team", "https://a")).expect("made");
    set(&mut w, backend(MAIN_PROJECT, "https://a")).expect("another one, of everybody's");
    assert_eq!(w.state.project_of_source("aws-team"), Some("team"));
    assert_eq!(w.state.project_of_source("aws"), None);
    let refused = w.try_as(root(), Command::RemoveProject { name: "team".into() });
    assert!(said(refused).contains("backend aws belongs to it"));
    remove(&mut w, "team", &["aws"]).expect("removed");
    w.run(Command::RemoveProject { name: "team".into() });
    assert_eq!(w.state.backends.keys().collect::<Vec<_>>(), ["aws"]);
}

#[test]
fn machine_of_a_projects_backend_takes_its_jobs_alone_unless_it_is_shared() {
    let of = |account: &str| in_cloud().cpus(2).with(|spec| spec.account = Some(account.into()));
    for shared in [false, true] {
        let mut w = open();
        w.run(Command::CreateProject { name: "team".into() });
        w.run(Command::CreateProject { name: "other".into() });
        set(&mut w, Backend { shared, ..backend("team", "https://a") }).expect("made");
        // The other source offers nothing: the machine is the backend's.
        w.run(Command::SetOffers { source: "cloud".into(), offers: Vec::new() });
        w.run(Command::SetOffers { source: "aws-team".into(), offers: vec![small()] });
        let own = w.submit(of("team"));
        asked(&mut w);
        made(&mut w, 1);
        joins(&mut w, 1);
        w.plan();
        let node = vec![machine(&w, 1).node.clone()];
        assert_eq!(w.nodes_of(own), node);
        w.end(own, 0);
        let other = w.try_submit(of("other"));
        if shared {
            w.plan();
            assert_eq!(w.nodes_of(other.expect("it may be there")), node);
            continue;
        }
        let why = other.expect_err("no node is for it").to_string();
        assert!(why.contains("no node is for jobs of this project"), "{why}");
    }
}

#[test]
fn backend_that_config_yml_drops_makes_no_more_and_goes_with_its_last_machine() {
    let mut w = open();
    w.run(Command::CreateProject { name: "team".into() });
    let of_file = |project: &str| {
        let mut of_file = backend(project, "https://a");
        (of_file.origin, of_file.source.machines_max) = (BackendOrigin::File, 2);
        of_file
    };
    set(&mut w, of_file(MAIN_PROJECT)).expect("made");
    set(&mut w, of_file("team")).expect("made");
    w.run(Command::CreateProject { name: "other".into() });
    set(&mut w, backend("other", "https://a")).expect("made by a call");
    w.run(Command::SetOffers { source: "cloud".into(), offers: Vec::new() });
    w.run(Command::SetOffers { source: "aws".into(), offers: vec![small()] });
    w.submit(in_cloud().cpus(2));
    let plan = asked(&mut w);
    made(&mut w, 1);
    w.submit(in_cloud().cpus(2));
    let retain = |w: &mut World, names: &[&str]| {
        let sources: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        w.run(Command::RetainFileBackends { sources });
    };
    retain(&mut w, &["aws", "aws-team"]);
    assert_eq!(w.state.backends.len(), 3, "the file names them");
    retain(&mut w, &[]);
    let names: Vec<&String> = w.state.backends.keys().collect();
    assert_eq!(names, ["aws", "aws-other"], "that of a call stays");
    let left: Vec<String> = w.state.dropped_backends().filter_map(|(_, held)| held).collect();
    assert_eq!(left, ["machine aws-1"]);
    assert!(asked(&mut w).orders.is_empty(), "it makes no more");
    w.run(Command::AskMachine(Box::new(plan.orders[0].clone())));
    assert_eq!(w.state.machines.len(), 1, "nor by a plan of before");
    w.tick();
    assert!(w.state.backends.contains_key("aws"), "somebody has to delete its machine");
    w.run(Command::DeleteMachine { node: "aws-1".into() });
    report(&mut w, 1, MachineReport::Deleted);
    w.tick();
    assert_eq!(w.state.backends.keys().collect::<Vec<_>>(), ["aws-other"]);
}

#[test]
fn credentials_are_sealed_again_unless_they_were_changed_since() {
    let mut w = open();
    set(&mut w, backend(MAIN_PROJECT, "https://a")).expect("made");
    let (before, after) = (Sealed::new("k1", "hush"), Sealed::new("k2", "hush"));
    let reseal = |w: &mut World, before: &Sealed, after: &Sealed| {
        let (before, after) = (before.clone(), after.clone());
        w.run(Command::ResealBackend { source: "aws".into(), before, after });
    };
    reseal(&mut w, &before, &after);
    assert_eq!(w.state.backends["aws"].credentials, Some(after.clone()));
    reseal(&mut w, &before, &Sealed::new("k3", "late"));
    assert_eq!(w.state.backends["aws"].credentials, Some(after));
    let event = Event::BackendSet(Box::new(w.state.backends["aws"].clone()));
    let text = serde_json::to_string(&event).expect("JSON");
    assert_eq!(serde_json::from_str::<Event>(&text).expect("an event"), event);
}
