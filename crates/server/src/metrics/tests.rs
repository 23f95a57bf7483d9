//! What a scrape holds, who sees what, its speed, and the files of docs/metrics.

use super::scrape;
use crate::shared::live_loads::Loads;
use crate::shared::scrapes::Reader;
use crate::testing::{NODE, TestServer};
use cluster::{Command, Job};
use model::amount::Bytes;
use model::gpu_health::GpuReading;
use model::gpu_series::{GpuSeries, SeriesFamily, SeriesSource};
use model::id::JobId;
use model::node::{NodeConfig, NodeFacts, NodeGres};
use model::partition::Partition;
use model::private_data::PrivateKind;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

const RULES: &str = include_str!("../../../../docs/metrics/rules.yml");
const DASHBOARD: &str = include_str!("../../../../docs/metrics/dashboard.json");

pub(super) fn line<'a>(text: &'a str, start: &str) -> &'a str {
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
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
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
    let open = scrape(&server.shared, Reader::Anonymous, &Loads::default());
    assert!(!open.contains("ada"), "nobody's name is shown to strangers:\n{open}");
    assert!(open.contains("sluice_jobs{state=\"running\"} 4"));
}

/// A scrape where the site has set `PrivateData` so.
async fn scraped(server: &TestServer, reader: Reader, private: &[PrivateKind]) -> String {
    let mut config = (*server.shared.read().config).clone();
    config.parameters.private_data = private.iter().copied().collect();
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    scrape(&server.shared, reader, &Loads::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_private_is_not_shown_to_strangers_and_totals_are() {
    let server = TestServer::start().await;
    server.node_up().await;
    server.submit("name: runs").await.expect("a job");
    server.plan();
    let reading = GpuReading { uuid: "GPU-0".into(), ..GpuReading::default() };
    let facts = NodeFacts { gpus: vec![reading], ..NodeFacts::default() };
    server.shared.volatile.facts.write().expect("facts").insert(NODE.into(), facts);
    let series = GpuSeries {
        sources: vec![SeriesSource { uuid: "GPU-0".into(), ..SeriesSource::default() }],
        families: vec![SeriesFamily {
            name: "DCGM_FI_DEV_GPU_TEMP".into(),
            help: "Temperature.".into(),
            samples: vec![(0, 40.0)],
        }],
    };
    server.shared.volatile.relayed.put(vec![NODE.into()], series, crate::clock::now());
    let (node, partition) = (format!("\"{NODE}\""), "\"main\"");
    let private = [PrivateKind::Nodes, PrivateKind::Partitions];
    let all = scraped(&server, Reader::Operator, &private).await;
    assert!(all.contains(&node) && all.contains(partition), "{all}");
    let open = scraped(&server, Reader::Anonymous, &[]).await;
    assert!(open.contains(&node) && open.contains(partition), "{open}");
    let without_nodes = scraped(&server, Reader::Anonymous, &private[..1]).await;
    assert!(!without_nodes.contains(&node), "{without_nodes}");
    assert!(without_nodes.contains("sluice_partition_cpus{partition=\"main\"} 4"));
    let without = scraped(&server, Reader::Anonymous, &private).await;
    assert!(!without.contains(&node) && !without.contains("partition=\"main\""), "{without}");
    for total in ["sluice_cpus 4", "sluice_jobs{state=\"running\"} 1"] {
        assert!(without.lines().any(|line| line == total), "{total} in\n{without}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_have_the_names_of_dcgm_and_the_job_that_has_them() {
    let server = TestServer::start().await;
    let mut config = (*server.shared.read().config).clone();
    config.nodes[0].gres = vec![NodeGres::plain("gpu", None, 2)];
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    server.node_up().await;
    let with_gpu = "name: trains\nresources: {cpu: 1, memory: 1GB, gpu: 1}";
    let text = format!("type: task\ncommands: [make]\n{with_gpu}\n");
    let job = server.submit_text(&text).await.expect("a job");
    server.plan();
    let gpu = |index: u32, minor| GpuReading {
        index,
        minor: Some(minor),
        uuid: format!("GPU-{index}"),
        model: "NVIDIA H200".into(),
        memory: Bytes::from_gib(2),
        memory_used: Bytes::from_gib(1),
        power_mw: Some(70_500),
        ecc_uncorrected: Some(u64::from(index)),
        ..GpuReading::default()
    };
    let facts = NodeFacts { gpus: vec![gpu(0, 1), gpu(1, 0)], ..NodeFacts::default() };
    server.shared.volatile.facts.write().expect("facts").insert(NODE.into(), facts);
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    let labels = |gpu: u32, job: &str| {
        format!(
            "{{gpu=\"{gpu}\",UUID=\"GPU-{gpu}\",model=\"NVIDIA H200\",Hostname=\"{NODE}\"{job}}}"
        )
    };
    // The node's first GPU is the one with the lowest device number.
    let job = format!(",hpc_job=\"{job}\",user=\"ada\",account=\"{}\"", account(&server, job));
    let expected = [
        format!("DCGM_FI_DEV_FB_FREE{} 1024", labels(0, "")),
        format!("DCGM_FI_DEV_POWER_USAGE{} 70.5", labels(1, &job)),
        format!("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{} 1", labels(1, &job)),
        format!("sluice_gpu_health{{node=\"{NODE}\",gpu=\"0\",UUID=\"GPU-0\"}} 0"),
        format!("sluice_gpu_health{{node=\"{NODE}\",gpu=\"1\",UUID=\"GPU-1\"}} 2"),
    ];
    for wanted in expected {
        assert!(text.lines().any(|line| line == wanted), "{wanted} in\n{text}");
    }
    assert_eq!(promtool(&text), "", "promtool check metrics");
}

fn account(server: &TestServer, job: JobId) -> String {
    server.shared.read().jobs[&job].account.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn series_of_an_exporter_have_the_job_and_replace_our_own_of_that_gpu() {
    let server = TestServer::start().await;
    let mut config = (*server.shared.read().config).clone();
    config.nodes[0].gres = vec![NodeGres::plain("gpu", None, 2)];
    server.run(Command::Configure(Box::new(config))).await.expect("configured");
    server.node_up().await;
    let text =
        "type: task\ncommands: [make]\nname: trains\nresources: {cpu: 1, memory: 1GB, gpu: 1}\n";
    let job = server.submit_text(text).await.expect("a job");
    server.plan();
    let gpu = |index: u32| GpuReading {
        index,
        minor: Some(index),
        uuid: format!("GPU-{index}"),
        temperature_c: Some(30),
        busy_percent: Some(99),
        ..GpuReading::default()
    };
    let facts = NodeFacts { gpus: vec![gpu(0), gpu(1)], ..NodeFacts::default() };
    server.shared.volatile.facts.write().expect("facts").insert(NODE.into(), facts);
    let source = |index: u32, uuid: &str, is_slice: bool| SeriesSource {
        uuid: uuid.into(),
        index: Some(index),
        is_slice,
        labels: vec![("pci_bus_id".into(), "1".into())],
    };
    let family = |name: &str, samples: &[(u32, f64)]| SeriesFamily {
        name: name.into(),
        help: "Of the exporter.".into(),
        samples: samples.to_vec(),
    };
    let series = GpuSeries {
        sources: vec![source(0, "GPU-0", false), source(1, "", false), source(0, "GPU-0", true)],
        families: vec![
            family("DCGM_FI_DEV_GPU_UTIL", &[(0, 7.0)]),
            family("DCGM_FI_DEV_SM_CLOCK", &[(0, 1980.5), (1, 3.0), (2, 4.0)]),
        ],
    };
    let relayed = &server.shared.volatile.relayed;
    relayed.put(vec![NODE.into()], series.clone(), crate::clock::now());
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    let of_job = format!("hpc_job=\"{job}\",user=\"ada\",account=\"{}\"", account(&server, job));
    let start = format!("pci_bus_id=\"1\",Hostname=\"{NODE}\"");
    let expected = [
        format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-0\",{start},{of_job}}} 7"),
        format!("DCGM_FI_DEV_SM_CLOCK{{gpu=\"0\",UUID=\"GPU-0\",{start},{of_job}}} 1980.5"),
        format!("DCGM_FI_DEV_SM_CLOCK{{gpu=\"1\",{start}}} 3"),
        format!("DCGM_FI_DEV_SM_CLOCK{{gpu=\"0\",UUID=\"GPU-0\",{start}}} 4"),
    ];
    for wanted in expected {
        assert!(text.lines().any(|line| line == wanted), "{wanted} in\n{text}");
    }
    let busy = |start: &str| {
        let start = format!("DCGM_FI_DEV_GPU_UTIL{{gpu={start}");
        text.lines().filter(|line| line.starts_with(&start)).count()
    };
    assert_eq!(busy("\"0\""), 1, "ours is left out:\n{text}");
    assert_eq!(busy("\"1\""), 1, "the exporter has none of this GPU:\n{text}");
    assert_eq!(text.matches("DCGM_FI_DEV_GPU_TEMP{").count(), 2, "the exporter has none:\n{text}");
    assert_eq!(text.matches("# TYPE DCGM_FI_DEV_SM_CLOCK ").count(), 1);
    assert_eq!(promtool(&text), "", "promtool check metrics");
    let open = scrape(&server.shared, Reader::Anonymous, &Loads::default());
    assert!(!open.contains("ada") && open.contains("DCGM_FI_DEV_SM_CLOCK"), "{open}");
    // What was not sent again is not shown.
    let long_ago = Timestamp(crate::clock::now().0 - 61_000);
    relayed.put(vec![NODE.into()], series, long_ago);
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    assert!(!text.contains("SM_CLOCK") && text.matches("DCGM_FI_DEV_GPU_UTIL{").count() == 2);
}

/// Each sends as much as a node may; what one further node says is then left out, and not begun.
#[tokio::test(flavor = "multi_thread")]
async fn series_of_many_nodes_are_held_to_the_bytes_of_a_scrape() {
    let server = TestServer::start().await;
    let series = |prefix: &str| {
        let labels = (0..16).map(|at| (format!("label{at}"), "x".repeat(128))).collect();
        let family = |at: u32| SeriesFamily {
            name: format!("DCGM_{prefix}_{at}"),
            help: "Of the exporter.".into(),
            samples: vec![(0, 1.0)],
        };
        let sources = vec![SeriesSource { labels, ..SeriesSource::default() }];
        let mut series = GpuSeries { sources, families: (0..4096).map(family).collect() };
        series.hold_to_bounds();
        series
    };
    let (relayed, now) = (&server.shared.volatile.relayed, crate::clock::now());
    relayed.put((0..80).map(|at| format!("node{at}")).collect(), series("FIRST"), now);
    relayed.put(vec!["other".into()], series("LAST"), now);
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
    let most = model::bounds::ALL_SERIES_BYTES.most;
    assert!(text.len() > most - most / 16 && text.len() < most + (1 << 20), "{}", text.len());
    assert!(text.contains("# TYPE DCGM_FIRST_0 ") && !text.contains("DCGM_LAST"));
}

/// What promtool finds wrong with a scrape; nothing where there is no promtool.
pub(super) fn promtool(text: &str) -> String {
    let mut check = std::process::Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut check) = check.spawn() else { return String::new() };
    check.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("written");
    let said = check.wait_with_output().expect("it ends");
    // Names of dstack's are what they are: its gauges end in `_count`.
    let is_dstacks =
        |line: &&str| line.starts_with("dstack_") && line.contains("\"_count\" suffix");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    said.lines().filter(|line| !is_dstacks(line)).collect::<Vec<_>>().join("\n")
}

/// The series that a scrape can have.
async fn series() -> BTreeSet<String> {
    let server = TestServer::start().await;
    let text = scrape(&server.shared, Reader::Operator, &Loads::default());
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
    words.filter(|word| {
        ["sluice_", "dstack_", "process_", "DCGM_"].iter().any(|p| word.starts_with(p))
    })
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
        let text = scrape(&server.shared, Reader::Operator, &Loads::default());
        println!("{} bytes, {} lines, {:?}", text.len(), text.lines().count(), begun.elapsed());
    }
}
