//! What a scrape holds, who sees what, its speed, and the files of docs/metrics.

use super::scrape;
use crate::shared::scrapes::Reader;
use crate::testing::{NODE, TestServer};
use cluster::{Command, Job};
use model::amount::Bytes;
use model::id::JobId;
use model::node::{NodeConfig, NodeFacts, NodeGres};
use model::partition::Partition;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

const RULES: &str = include_str!("../../../../docs/metrics/rules.yml");
const DASHBOARD: &str = include_str!("../../../../docs/metrics/dashboard.json");

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found = text.lines().find(|line| line.starts_with(start));
    found.unwrap_or_else(|| panic!("no {start} in\n{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn scrape_shows_queue_jobs_nodes_and_the_server() {
    let server = TestServer::start().await;
    server.node_up().await;
    let runs = server.submit("name: runs").await.expect("a job");
    server.plan();
    for name in ["a", "b", "c", "d"] {
        server.submit(&format!("name: wait-{name}")).await.expect("a job");
    }
    server.plan();
    let text = scrape(&server.shared, Reader::Operator);
    let expected = [
        "sluice_jobs{state=\"running\"} 4".to_owned(),
        "sluice_jobs{state=\"pending\"} 1".to_owned(),
        "sluice_partition_jobs{partition=\"main\",state=\"pending\"} 1".to_owned(),
        "sluice_jobs_pending{reason=\"Resources\"} 1".to_owned(),
        "sluice_jobs_submitted_total 5".to_owned(),
        "sluice_jobs_started_total 4".to_owned(),
        "sluice_nodes{state=\"allocated\"} 1".to_owned(),
        format!("sluice_node_state{{node=\"{NODE}\",state=\"allocated\"}} 1"),
        format!("sluice_node_available{{node=\"{NODE}\"}} 1"),
        format!("sluice_node_cpus_allocated{{node=\"{NODE}\"}} 4"),
        "sluice_cpus 4".to_owned(),
        "sluice_partition_cpus_allocated{partition=\"main\"} 4".to_owned(),
        format!("sluice_node_memory_allocated_bytes{{node=\"{NODE}\"}} {}", 4_u64 << 30),
        format!("sluice_job_cpus{{job=\"{runs}\"}} 1"),
    ];
    for wanted in expected {
        assert!(text.lines().any(|line| line == wanted), "{wanted} in\n{text}");
    }
    assert!(line(&text, "sluice_job_info").contains("user=\"ada\""));
    assert!(!line(&text, "sluice_plan_duration_seconds_count").ends_with(" 0"));
    assert!(!line(&text, "sluice_commit_duration_seconds_count").ends_with(" 0"));
    assert!(!line(&text, "sluice_journal_bytes").ends_with(" 0"));
    let open = scrape(&server.shared, Reader::Anonymous);
    assert!(!open.contains("ada"), "nobody's name is shown to strangers:\n{open}");
    assert!(open.contains("sluice_jobs{state=\"running\"} 4"));
}

/// The series that a scrape can have.
async fn series() -> BTreeSet<String> {
    let server = TestServer::start().await;
    let text = scrape(&server.shared, Reader::Operator);
    let mut names = BTreeSet::new();
    for family in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = family.split_once(' ').expect("a name and a kind");
        names.insert(name.to_owned());
        if kind == "summary" {
            names.extend(["_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        }
    }
    names
}

/// The words of an expression that look like our series.
fn named(expression: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(move |c| !is_name(c));
    words.filter(|word| ["sluice_", "process_", "DCGM_"].iter().any(|p| word.starts_with(p)))
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_dashboard_name_only_series_that_exist() {
    let series = series().await;
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<&str> = targets.filter_map(|target| target["expr"].as_str()).collect();
    assert!(expressions.len() > 10, "{expressions:?}");
    let rules = RULES.lines().filter_map(|line| line.trim().strip_prefix("expr:"));
    let rules: Vec<&str> = rules.collect();
    assert!(rules.len() > 5, "{rules:?}");
    for expression in expressions.into_iter().chain(rules) {
        let names: Vec<&str> = named(expression).collect();
        assert!(!names.is_empty(), "{expression}: names no series");
        for name in names {
            assert!(series.contains(name), "{expression}: no series {name}");
        }
    }
}

/// A cluster of 1,000 nodes with 10,000 jobs, of which 4,000 run. By hand:
/// `cargo nextest run -p server --run-ignored all -E 'test(scrape_of_a_large)' --no-capture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn scrape_of_a_large_cluster_is_fast() {
    let server = TestServer::start().await;
    let mut config = (*server.shared.read().config).clone();
    let name = |at: u32| format!("node{at:04}");
    config.nodes = (0..1000)
        .map(|at| {
            let mut node = NodeConfig::plain(&name(at), 4, Bytes::from_gib(16));
            node.gres = vec![NodeGres::plain("gpu", Some("h100"), 8)];
            node
        })
        .collect();
    let mut partition =
        Partition::over("main", config.nodes.iter().map(|n| n.name.clone()).collect());
    partition.default = true;
    config.partitions = vec![partition];
    config.parameters.max_job_count = 100_000;
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    for at in 0..1000 {
        let facts = Box::new(NodeFacts::default());
        let hello = Command::NodeHello { node: name(at), facts, held: Vec::new() };
        server.run(hello).await.expect("up");
    }
    let running = server.submit("name: runs").await.expect("a job");
    server.plan();
    let waiting = server.submit("name: waits").await.expect("a job");
    {
        let mut state = server.shared.state.write();
        let (running, waiting) = (state.jobs[&running].clone(), state.jobs[&waiting].clone());
        assert!(running.attempt().is_some() && waiting.is_waiting());
        for at in 0..10_000 {
            let (id, like) = (JobId(1000 + at), if at < 4000 { &running } else { &waiting });
            state.jobs.insert(id, Arc::new(Job { id, ..(**like).clone() }));
            if at < 4000 {
                state.active.insert(id);
            }
        }
    }
    for _ in 0..5 {
        let begun = Instant::now();
        let text = scrape(&server.shared, Reader::Operator);
        println!("{} bytes, {} lines, {:?}", text.len(), text.lines().count(), begun.elapsed());
    }
}
