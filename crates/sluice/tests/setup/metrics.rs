//! `/metrics`: clean for promtool, and read by a real Prometheus. Needs Debian's package `prometheus`.

use crate::harness::{Cluster, TWO_NODES, skip, until};
use std::collections::HashSet;
use std::io::Write;
use std::process::{Child, Command, Stdio};

/// The address of the clients' port.
fn address(cluster: &Cluster) -> String {
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    ports["listen"].as_str().unwrap().to_owned()
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    if found.is_err() {
        skip("prometheus", &format!("no {program} here"));
    }
    found.is_ok()
}

/// The answer to a GET, whole.
fn get(address: &str, path: &str, token: Option<&str>) -> String {
    use std::io::Read;
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: x\r\n{}Connection: close\r\n\r\n",
        token.unwrap_or_default()
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn admin_token(cluster: &Cluster) -> String {
    std::fs::read_to_string(cluster.state().join("admin.token")).unwrap().trim().to_owned()
}

/// A process that ends with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn up_metrics_need_a_token_and_are_clean_for_promtool() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit_sleeper("-n2 --gres=gpu:2 -J 'a\"b'");
    cluster.await_state(job, "RUNNING");
    let address = address(&cluster);
    assert!(get(&address, "/metrics", None).starts_with("HTTP/1.1 401 "));
    assert!(get(&address, "/metrics", Some("wrong")).starts_with("HTTP/1.1 401 "));
    // A job has used nothing yet when it begins.
    let uses =
        |line: &str| line.starts_with("dstack_job_memory_usage_bytes{") && !line.ends_with(" 0");
    let answer = until("the node says what the job uses", || {
        let answer = get(&address, "/metrics", Some(&admin_token(&cluster)));
        answer.lines().any(uses).then_some(answer)
    });
    let (head, text) = answer.split_once("\r\n\r\n").expect("a body");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.contains("version=0.0.4"), "{head}");
    for line in [
        "sluice_jobs{state=\"running\"} 1".to_owned(),
        format!("sluice_job_gpus{{job=\"{job}\"}} 2"),
        "sluice_node_gpus_allocated{node=\"node1\"} 2".to_owned(),
        "sluice_agents_connected 1".to_owned(),
    ] {
        assert!(text.lines().any(|have| have == line), "{line} in\n{text}");
    }
    assert!(text.contains("name=\"a\\\"b\""), "{text}");
    assert_dstacks_names(text);
    if !has("promtool") {
        return;
    }
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut check = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let said = check.wait_with_output().unwrap();
    // Names of dstack's are what they are: its gauges end in `_count`.
    let is_dstacks =
        |line: &&str| line.starts_with("dstack_") && line.contains("\"_count\" suffix");
    let stderr = String::from_utf8_lossy(&said.stderr).into_owned();
    let faults: Vec<&str> = stderr.lines().filter(|line| !is_dstacks(line)).collect();
    assert!(faults.is_empty(), "promtool check metrics: {faults:?}");
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics/rules.yml");
    let rules = Command::new("promtool").args(["check", "rules", rules]).output().unwrap();
    assert!(rules.status.success(), "{}", String::from_utf8_lossy(&rules.stderr));
}

/// The series of dstack's own server, here of one job of `sbatch` on two CPUs with two GPUs.
fn assert_dstacks_names(text: &str) {
    let sample = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
        found.unwrap_or_else(|| panic!("no {name} in\n{text}"))
    };
    let owner = "dstack_project_name=\"main\",dstack_user_name=\"root\"";
    for (name, value) in [
        ("dstack_run_count_total", "1"),
        ("dstack_run_count_done_total", "0"),
        ("dstack_job_gpu_count", "2"),
        ("dstack_job_cpu_count", "2"),
    ] {
        let found = sample(name);
        assert!(found.contains(owner) && found.ends_with(&format!(" {value}")), "{found}");
    }
    // What the job uses was asked of its node.
    let memory = sample("dstack_job_memory_usage_bytes");
    assert!(!memory.ends_with(" 0") && memory.contains("dstack_job_num=\"0\""), "{memory}");
    sample("dstack_job_cpu_time_seconds_total");
    let waits = sample("dstack_submit_to_provision_duration_seconds_count");
    assert!(waits.contains("run_type=\"task\"") && waits.ends_with(" 1"), "{waits}");
    let node = sample("dstack_instance_gpu_count");
    assert!(node.contains("dstack_instance_name=\"node1\"") && node.ends_with(" 8"), "{node}");
}

const DASHBOARD: &str = include_str!("../../../../docs/metrics/dashboard.json");

/// What Grafana needs of a dashboard: panels with numbers of their own, side by side on 24 columns, a source of data that
/// the reader chooses, and expressions that Prometheus reads.
#[test]
fn dashboard_is_one_that_grafana_and_prometheus_read() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    assert!(dashboard["schemaVersion"].as_u64().is_some_and(|version| version >= 30));
    assert!(["title", "uid"].iter().all(|key| dashboard[*key].is_string()));
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    assert!(variables.iter().any(|one| one["name"] == "source" && one["type"] == "datasource"));
    let (mut ids, mut taken) = (HashSet::new(), HashSet::new());
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{title}: a number twice");
        let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(at("x") + at("w") <= 24 && at("w") > 0 && at("h") > 0, "{title}: its place");
        let cells = (at("x")..at("x") + at("w"))
            .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)));
        cells.for_each(|cell| assert!(taken.insert(cell), "{title}: on another panel"));
        let mut names = HashSet::new();
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${source}", "{title}");
            assert!(names.insert(target["refId"].as_str().expect("a name")), "{title}");
            expressions.push(target["expr"].as_str().expect("an expression").to_owned());
        }
    }
    if !has("promtool") {
        return;
    }
    let rule = |(at, expr): (usize, &String)| {
        let expr = expr.replace("$__rate_interval", "5m").replace("$__range", "1h");
        format!("  - record: panel:{at}\n    expr: {}\n", serde_json::json!(expr))
    };
    let rules: String = expressions.iter().enumerate().map(rule).collect();
    let folder = tempfile::tempdir().expect("scratch folder");
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, format!("groups:\n- name: panels\n  rules:\n{rules}")).unwrap();
    let said = Command::new("promtool").args(["check", "rules"]).arg(&file).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

/// Prometheus scrapes each of several servers, and each shows all jobs and nodes: a sum would count them twice.
#[test]
fn dashboard_counts_what_several_servers_show_once() {
    if !has("promtool") {
        return;
    }
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).expect("JSON");
    let shown = [
        ("sluice_jobs", "state=\"running\"", 4),
        ("sluice_node_load1", "node=\"n1\"", 6),
        ("sluice_node_cpus", "node=\"n1\"", 2),
        // Prometheus renames a label `job` of a series: that name is its own.
        ("sluice_job_cpus", "exported_job=\"7\"", 2),
        ("sluice_job_info", "exported_job=\"7\",user=\"ada\"", 1),
        ("sluice_job_cpus", "exported_job=\"8\"", 3),
        ("sluice_job_info", "exported_job=\"8\",user=\"ada\"", 1),
    ];
    let series = shown.iter().flat_map(|(name, labels, value)| {
        ["first:6820", "second:6820"].map(|server| {
            let series = format!("{name}{{job=\"sluice\",instance=\"{server}\",{labels}}}");
            serde_json::json!({"series": series, "values": format!("{value}x10")})
        })
    });
    let expected = [
        ("Jobs by state", "{job=\"sluice\",state=\"running\"}", 4),
        ("Load of nodes over their CPUs", "{job=\"sluice\",node=\"n1\"}", 3),
        ("CPUs granted by user", "{user=\"ada\"}", 5),
    ];
    let panels = dashboard["panels"].as_array().expect("panels");
    let asked = expected.iter().map(|(title, labels, value)| {
        let panel = panels.iter().find(|panel| panel["title"] == *title).expect("a panel");
        serde_json::json!({
            "expr": panel["targets"][0]["expr"],
            "eval_time": "5m",
            "exp_samples": [{"labels": labels, "value": value}],
        })
    });
    let series: Vec<serde_json::Value> = series.collect();
    let asked: Vec<serde_json::Value> = asked.collect();
    let test =
        serde_json::json!({"interval": "1m", "input_series": series, "promql_expr_test": asked});
    let folder = tempfile::tempdir().expect("scratch folder");
    let file = folder.path().join("dashboard.yml");
    // JSON is YAML.
    std::fs::write(&file, serde_json::json!({"tests": [test]}).to_string()).unwrap();
    let said = Command::new("promtool").args(["test", "rules"]).arg(&file).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn up_prometheus_scrapes_the_server() {
    if !has("prometheus") {
        return;
    }
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit_sleeper("-n2");
    cluster.await_state(job, "RUNNING");
    let token = cluster.write("token", &admin_token(&cluster));
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics/rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{rules}']\n\
         scrape_configs:\n- job_name: sluice\n  authorization: {{credentials_file: '{}'}}\n  \
         static_configs: [{{targets: ['{}']}}]\n",
        token.display(),
        address(&cluster)
    );
    let config = cluster.write("prometheus.yml", &config);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let own = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={}", config.display()));
    prometheus.arg(format!("--storage.tsdb.path={}", cluster.path("work/tsdb").display()));
    prometheus.arg(format!("--web.listen-address={own}"));
    let _prometheus =
        Ended(prometheus.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs"));
    let ask = |query: &str| {
        let path = format!("/api/v1/query?query={query}");
        std::net::TcpStream::connect(&own).ok()?;
        let answer = get(&own, &path, None);
        let value = answer.split("\"value\":[").nth(1)?.split(',').nth(1)?;
        Some(value.split(']').next()?.trim_matches('"').to_owned())
    };
    let is = |query: &str, wanted: &str| {
        until(query, || (ask(query)? == wanted).then_some(()));
    };
    is("up%7Bjob%3D%22sluice%22%7D", "1");
    is("sluice_jobs%7Bstate%3D%22running%22%7D", "1");
    is("sluice_cpus_allocated", "2");
    // A rule of the file that is shipped.
    is("sluice%3Acpus%3Aused_ratio", "0.03125");
}
