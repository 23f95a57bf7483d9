//! dstack's names on `/metrics`: which runs, jobs and nodes they have, and who sees them.

use super::scrape;
use super::tests::{line, promtool};
use crate::configure::{self, Machine};
use crate::shared::live_loads::Loads;
use crate::shared::scrapes::Reader;
use crate::show::dstack_id::uuid;
use crate::testing::{NODE, TestServer};
use cluster::Command;
use cluster::command::{CancelJobs, FleetHostReport, SetFleet};
use model::amount::Bytes;
use model::change::{JobFilter, JobRef};
use model::fleet::Blocks;
use model::load::{Load, LoadSample};
use model::node::NodeConfig;
use model::price::Price;
use model::secret::Sealed;
use model::ssh_fleet::{FleetHost, SshLogin};
use model::time::Timestamp;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread")]
async fn runs_jobs_and_nodes_have_dstacks_names_too() {
    let server = TestServer::start().await;
    server.node_up().await;
    let runs = server.submit("name: runs").await.expect("a job");
    server.plan();
    let stopped = server.submit("name: stopped").await.expect("a job");
    let filter = JobFilter { jobs: vec![JobRef::whole(stopped)], ..JobFilter::default() };
    let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
    server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
    let sample = |cpu_s: u64| LoadSample {
        at: Timestamp(0),
        cpu_us: cpu_s * 1_000_000,
        memory: 4096,
        resident: 1024,
    };
    let samples = vec![sample(1), sample(3)];
    let load = Load { samples, gpus: Vec::new() };
    let loads = Loads::from([((runs, NODE.to_owned()), load)]);
    let text = scrape(&server.shared, Reader::Operator, &loads);
    let owner = "dstack_project_name=\"main\",dstack_user_name=\"ada\"";
    let of_project = "project_name=\"main\",run_type=\"task\"";
    for wanted in [
        format!("dstack_run_count_total{{{owner}}} 2"),
        format!("dstack_run_count_terminated_total{{{owner}}} 1"),
        format!("dstack_run_count_failed_total{{{owner}}} 0"),
        format!("dstack_run_count_done_total{{{owner}}} 0"),
        format!("dstack_submit_to_provision_duration_seconds_bucket{{le=\"15.0\",{of_project}}} 1"),
        format!("dstack_submit_to_provision_duration_seconds_bucket{{le=\"+Inf\",{of_project}}} 1"),
        format!("dstack_submit_to_provision_duration_seconds_count{{{of_project}}} 1"),
        format!("dstack_pending_runs_total{{{of_project}}} 0"),
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted} in\n{text}");
    }
    let node = line(&text, "dstack_instance_gpu_count{");
    let labels =
        format!("dstack_fleet_name=\"main\",dstack_fleet_id=\"{}\"", uuid("fleet", "main"));
    assert!(node.contains(&labels) && node.contains("dstack_backend=\"remote\""), "{node}");
    for (name, value) in [
        ("dstack_job_cpu_count", "1"),
        ("dstack_job_gpu_count", "0"),
        ("dstack_job_price_dollars_per_hour", "0"),
        ("dstack_job_cpu_time_seconds_total", "3"),
        ("dstack_job_memory_usage_bytes", "4096"),
        ("dstack_job_memory_working_set_bytes", "1024"),
    ] {
        let found = line(&text, &format!("{name}{{"));
        let names = "dstack_run_name=\"runs\"";
        let numbers = "dstack_job_name=\"runs-0-0\"";
        assert!(found.contains(owner) && found.contains(names) && found.contains(numbers));
        assert!(found.ends_with(&format!(" {value}")), "{found}");
    }
    assert_eq!(promtool(&text), "", "promtool check metrics");
    let open = scrape(&server.shared, Reader::Anonymous, &Loads::default());
    assert!(!open.contains("ada") && !open.contains("dstack_job_cpu_count{"), "{open}");
    assert!(open.contains("dstack_instance_gpu_count{"), "{open}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_the_jobs_on_them_have_the_price_of_the_site() {
    let server = TestServer::start().await;
    let machine = Machine { node: NodeConfig::plain(NODE, 4, Bytes::from_gib(16)) };
    let mut config = configure::load(None, Some(&machine)).expect("a configuration");
    let price = Price::from_dollars(2.5).expect("a price");
    config.prices.insert(NODE.into(), price);
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    server.node_up().await;
    server.submit("name: runs").await.expect("a job");
    server.plan();
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    for name in ["dstack_instance_price_dollars_per_hour", "dstack_job_price_dollars_per_hour"] {
        let found = line(&text, &format!("{name}{{"));
        assert!(found.ends_with(" 2.5"), "{found}");
    }
    assert_eq!(promtool(&text), "", "promtool check metrics");
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_tasks_that_never_ran_are_ended_runs() {
    let server = TestServer::start().await;
    let array = server.submit("name: sweep\narray: 0-2\nretry: true").await.expect("an array");
    let filter = JobFilter { jobs: vec![JobRef::whole(array)], ..JobFilter::default() };
    let cancel = CancelJobs { filter, step: None, signal: None, batch_only: false, full: true };
    server.run(Command::Cancel(Box::new(cancel))).await.expect("cancelled");
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    for (name, count) in [("dstack_run_count_total", 3), ("dstack_run_count_terminated_total", 3)] {
        assert!(line(&text, &format!("{name}{{")).ends_with(&format!(" {count}")), "{text}");
    }
}

/// Tasks of an array, and jobs on several nodes, have the same run: each part still has labels of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_samples_have_the_same_labels() {
    let server = TestServer::start().await;
    server.node_up().await;
    server.submit("name: sweep\narray: 0-2").await.expect("an array");
    server.submit("name: other").await.expect("a job");
    server.plan();
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = samples.filter_map(|line| line.rsplit_once(' ')).map(|s| s.0).collect();
    let different: BTreeSet<&&str> = names.iter().collect();
    assert_eq!(names.len(), different.len(), "{text}");
    assert_eq!(text.matches("dstack_job_cpu_count{").count(), 4, "{text}");
    assert!(text.contains("dstack_replica_num=\"2\""), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_of_a_project_is_its_projects_and_not_shown_to_anonymous_readers() {
    let server = TestServer::start().await;
    server.run(Command::CreateProject { name: "hidden".into() }).await.expect("a project");
    let login = SshLogin {
        hostname: "10.0.0.1".into(),
        port: 22,
        user: "root".into(),
        key: Sealed(String::new()),
        host_key: None,
    };
    let host = FleetHost {
        id: "1".into(),
        login,
        jump: None,
        internal_ip: None,
        network: None,
        address: None,
        blocks: Blocks::Auto,
        machine: None,
        failure: None,
        leaving: None,
    };
    let set = SetFleet {
        project: "hidden".into(),
        name: "vault".into(),
        configuration: "{}".into(),
        is_cluster: false,
        hosts: vec![host],
        cloud: None,
    };
    server.run(Command::SetFleet(Box::new(set))).await.expect("a fleet");
    let id = server.shared.read().fleets["vault"].hosts[&0].id.clone();
    let found = Box::new(NodeConfig::plain("vault-0", 2, Bytes(1 << 30)));
    let report = FleetHostReport::Found(found);
    server.run(Command::FleetHost { node: "vault-0".into(), id, report }).await.expect("found");
    let read = |reader| scrape(&server.shared, reader, &Loads::default());
    let known = read(Reader::Operator);
    let labels =
        "dstack_instance_gpu_count{dstack_project_name=\"hidden\",dstack_fleet_name=\"vault\"";
    assert!(known.lines().any(|line| line.starts_with(labels)), "{known}");
    let open = read(Reader::Anonymous);
    assert!(!open.contains("vault") && open.contains(NODE), "{open}");
}
