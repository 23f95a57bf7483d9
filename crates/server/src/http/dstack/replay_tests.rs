//! The requests that dstack's published client and a real server were recorded with, sent again: the answer has the status that
//! was recorded, and every key with a value of a recorded type. The client's own models read it (`fixtures/dstack-models.py`).

use super::tests::Api;
use super::upload_tests::upload;
use crate::auth::principal::server_principal;
use crate::clock;
use crate::configure::{self, Machine};
use crate::http::tests::port;
use crate::testing::NODE;
use cluster::Command;
use cluster::Job;
use cluster::command::{AttemptReport, CancelJobs, EndedRun};
use model::amount::Bytes;
use model::change::{JobFilter, JobRef};
use model::id::AttemptId;
use model::node::{NodeConfig, NodeGres};
use model::run::{ExitStatus, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

/// `fixtures/dstack-requests.json`: facts of version 0.22.5. Services, gateways, clouds, exports and login are not among them,
/// nor the bytes of archives.
#[derive(Deserialize)]
struct Recorded {
    requests: Vec<Request>,
    /// By route.
    answers: BTreeMap<String, Shape>,
}

#[derive(Deserialize)]
struct Request {
    /// The command that sent it, among others.
    scenario: String,
    path: String,
    body: Value,
    status: u16,
}

/// What was seen at one place of all answers of a route.
#[derive(Deserialize)]
struct Shape {
    types: Vec<String>,
    /// The keys that every mapping had.
    #[serde(default)]
    keys: BTreeMap<String, Shape>,
    #[serde(default)]
    item: Option<Box<Shape>>,
}

/// Values that are null here and were not when it was recorded.
const NULL_HERE: &[&str] = &[
    // Nothing is reached with a key of the server's.
    "ssh_public_key",
    "ssh_private_key",
    "ssh_key",
    "ssh_key_pub",
    "ssh_port",
    "gpu_driver",
    // Nodes do not say it.
    "arch",
    "cpu_arch",
    // A run that goes on the node's own file system has none.
    "home_dir",
    "ports",
    "repo_exists_action",
    "single_branch",
    "job_connection_info",
    "user",
    "service_port",
    // A run that never had a node.
    "fleet",
    "latest_job_submission",
    "job_provisioning_data",
    "job_runtime_data",
    // A fleet of slurm.conf comes from no file of dstack's, and is not reached by ssh.
    "configuration_path",
    "identity_file",
    "port",
    "blocks",
];

/// A fleet that is cut as finely as its nodes can be, where the recorded one had a number.
const ALSO_TEXT: &str = "blocks";

/// Where this server answers otherwise, and with which status.
const OTHERWISE: &[(&str, &str, u16)] = &[
    // The image's configuration is read by the node, not by the server.
    ("task-apply-detach", "/api/project/main/runs/get_plan", 200),
    // The recorded private key was blacked out.
    ("fleet-apply", "/api/project/main/fleets/apply", 400),
    ("fleet-apply", "/api/project/main/fleets/get", 400),
    ("fleet-apply-b", "/api/project/main/fleets/apply", 400),
    ("fleet-apply-b", "/api/project/main/fleets/get", 400),
    ("fleet-apply-same", "/api/project/main/fleets/get_plan", 200),
    ("fleet-delete", "/api/project/main/fleets/get", 400),
    // A run that no node can ever hold is refused at once.
    ("toobig-apply", "/api/project/main/runs/apply", 400),
];

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "map",
    }
}

impl Shape {
    /// Adds a line for each place where the value differs.
    fn compare(&self, value: &Value, place: &str, differences: &mut Vec<String>) {
        let found = type_of(value);
        let always_null = self.types == ["null"];
        let leaf = place.rsplit('.').next().unwrap_or_default();
        let null_here = found == "null" && NULL_HERE.contains(&leaf);
        let also_text = found == "text" && leaf == ALSO_TEXT;
        if !always_null
            && !null_here
            && !also_text
            && !self.types.iter().any(|known| known == found)
        {
            differences.push(format!("{place}: {found}, recorded {:?}", self.types));
            return;
        }
        match value {
            Value::Object(map) => {
                for (key, shape) in &self.keys {
                    let place = format!("{place}.{key}");
                    match map.get(key) {
                        Some(value) => shape.compare(value, &place, differences),
                        None => differences.push(format!("{place}: missing")),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    let shape = self.item.iter();
                    shape.for_each(|shape| shape.compare(item, &format!("{place}[]"), differences));
                }
            }
            _ => {}
        }
    }
}

/// A node like that of the recorded fleet.
async fn api() -> Api {
    let api = Api::empty().await;
    let device_memory = Some(Bytes::from_gib(80));
    let gres = NodeGres { device_memory, ..NodeGres::plain("gpu", Some("H100"), 8) };
    let mut node = NodeConfig::plain(NODE, 64, Bytes::from_gib(512));
    (node.gres, node.tmp_disk) = (vec![gres], Bytes::from_gib(1000));
    let config = configure::load(None, Some(&Machine { node })).expect("a configuration");
    api.server.run(Command::Configure(Box::new(config))).await.expect("a configured cluster");
    api.server.node_up().await;
    api
}

/// The name of the run that a request is about, if it must be there already.
fn run_of(request: &Request) -> Option<String> {
    let of_metrics = || request.path.split("/metrics/job/").nth(1)?.split('?').next();
    let name = request.body["run_name"].as_str().or(request.body["runs_names"][0].as_str());
    name.or_else(of_metrics).filter(|_| request.status == 200).map(str::to_owned)
}

impl Api {
    /// Starts a run as the recorded server had it.
    async fn begin(&self, recorded: &Recorded, name: &str) {
        let mut applied = recorded.requests.iter().filter(|request| {
            request.scenario == "task-apply-detach-ok" && request.path.ends_with("/runs/apply")
        });
        let mut plan = applied.next().expect("a recorded apply").body.clone();
        let spec = &mut plan["plan"]["run_spec"];
        spec["run_name"] = json!(name);
        spec["configuration"]["name"] = json!(name);
        let apply = "/api/project/main/runs/apply";
        let (status, said) = self.send(apply, plan, Some(server_principal())).await;
        assert_eq!(status, 200, "{name} {said}");
        self.server.plan();
    }

    /// Takes what the command before has left out of the lists.
    async fn delete_all(&self) {
        let ended = |job: &Arc<Job>| EndedRun {
            run: job.run,
            name: job.spec.name.to_string(),
            owner: job.spec.owner.uid,
            account: job.account.to_string(),
        };
        let runs = self.server.shared.read().jobs.values().map(ended).collect();
        self.server.run(Command::DeleteRuns(runs)).await.expect("they have ended");
    }

    /// Ends every run, as its node would report it.
    pub(super) async fn end_all(&self) {
        let jobs: Vec<_> = self.server.shared.read().jobs.keys().copied().collect();
        for job in jobs {
            let cancel = CancelJobs {
                filter: JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() },
                step: None,
                signal: None,
                batch_only: false,
                full: true,
            };
            let _ = self.server.run(Command::Cancel(Box::new(cancel))).await;
            let number = self.server.shared.read().jobs[&job].attempts;
            let what = AttemptReport::Ended {
                exit: ExitStatus::default(),
                usage: Usage::default(),
                oom: false,
                timed_out: false,
                lost: false,
            };
            let attempt = AttemptId { job, number };
            let report = Command::Report { node: NODE.into(), attempt, at: clock::now(), what };
            let _ = self.server.run(report).await;
        }
    }
}

/// A run that names a secret of the recorded server is sent without it.
fn without_secrets(body: &mut Value) {
    for spec in ["/run_spec", "/plan/run_spec"] {
        let env = body.pointer_mut(&format!("{spec}/configuration/env"));
        env.and_then(Value::as_object_mut).map(|env| env.remove("SECRET_X"));
    }
}

/// The bytes of an archive with one file.
fn archive(number: usize) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    let name = format!("{number}.txt");
    builder.append_data(&mut header, name, &b"hi"[..]).expect("an entry");
    builder.into_inner().expect("an archive")
}

/// A run that brings archives along names those that were uploaded here.
fn with_archives(body: &mut Value, archives: &[Value]) {
    for spec in ["/run_spec", "/plan/run_spec"] {
        let named = body.pointer_mut(&format!("{spec}/file_archives"));
        let named = named.and_then(Value::as_array_mut).into_iter().flatten();
        named.zip(archives).for_each(|(named, id)| named["id"] = id.clone());
    }
}

/// What came of the requests.
#[derive(Default)]
struct Replayed {
    /// A line for each place where an answer differs from the record.
    differences: Vec<String>,
    /// The answers to what was not refused.
    answers: Vec<Answered>,
}

#[derive(Serialize)]
struct Answered {
    /// The command and the path.
    place: String,
    route: String,
    answer: Value,
}

/// Sends what one command had sent.
async fn replay(api: &Api, recorded: &Recorded, requests: &[&Request], replayed: &mut Replayed) {
    api.end_all().await;
    api.delete_all().await;
    let mut applied = Vec::new();
    let Replayed { differences, answers } = replayed;
    let mut archives: Vec<Value> = Vec::new();
    for request in requests {
        let Request { scenario, path, .. } = request;
        if path.ends_with("/secrets/list") || path.ends_with("/secrets/delete") {
            let (set, tok) = ("create_or_update", json!({"name": "tok", "value": "one"}));
            let set = format!("/api/project/main/secrets/{set}");
            assert_eq!(api.send(&set, tok, Some(server_principal())).await.0, 200);
        }
        if let Some(name) = run_of(request)
            && !applied.contains(&name)
        {
            api.begin(recorded, &name).await;
            applied.push(name);
        }
        if path.ends_with("/runs/list") && applied.is_empty() {
            api.begin(recorded, "listed").await;
            applied.push("listed".into());
        }
        if path.ends_with("/runs/apply")
            && let Some(name) = request.body["plan"]["run_spec"]["run_name"].as_str()
        {
            applied.push(name.to_owned());
        }
        if path.ends_with("/runs/delete") {
            api.end_all().await;
        }
        let mut body = request.body.clone();
        without_secrets(&mut body);
        with_archives(&mut body, &archives);
        if path.ends_with("/logs/poll") {
            let get = json!({"run_name": body["run_name"]});
            let run = api.send("/api/project/main/runs/get", get, Some(server_principal())).await.1;
            body["job_submission_id"] = run["latest_job_submission"]["id"].clone();
        }
        let otherwise = OTHERWISE.iter().find(|(of, at, _)| of == scenario && at == path);
        let expected = otherwise.map_or(request.status, |(.., status)| *status);
        let peer = if scenario == "badtoken" { port() } else { None };
        let is_upload = path.ends_with("/files/upload_archive");
        let (status, said) = match peer {
            _ if is_upload => {
                let bytes = archive(archives.len());
                let (status, said) = upload(api, path, &bytes, server_principal()).await;
                archives.push(said["id"].clone());
                (status, said)
            }
            Some(peer) => api.send_from(path, body, Some(peer), Some("wrong")).await,
            None => api.send(path, body, Some(server_principal())).await,
        };
        let at = format!("{scenario} {path}");
        if status != expected {
            differences.push(format!("{at}: {status}, recorded {expected}: {said}"));
            continue;
        }
        let route = path.split('?').next().unwrap_or_default().replace("/main/", "/{project}/");
        let route = match route.split_once("/job/") {
            Some((before, _)) => format!("{before}/job/{{run}}"),
            None => route,
        };
        if status == 200 {
            recorded.answers[&route].compare(&said, &at, differences);
            answers.push(Answered { place: at, route, answer: said });
        } else {
            let listed = matches!(status.as_u16(), 400 | 422);
            assert_eq!(said["detail"].is_array(), listed, "{at} {said}");
        }
    }
}

async fn replay_all() -> Replayed {
    let recorded = include_str!("../../../fixtures/dstack-requests.json");
    let recorded: Recorded = serde_json::from_str(recorded).expect("the recorded requests");
    let mut scenarios: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
    for request in &recorded.requests {
        scenarios.entry(&request.scenario).or_default().push(request);
    }
    let mut replayed = Replayed::default();
    let api = api().await;
    for requests in scenarios.values() {
        replay(&api, &recorded, requests, &mut replayed).await;
    }
    replayed
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_requests_are_answered_as_they_were() {
    let mut differences = replay_all().await.differences;
    differences.dedup();
    assert!(differences.is_empty(), "{}\n{}", differences.len(), differences.join("\n"));
}

/// Where `scripts/dstack-client` installs the client that the requests were recorded with.
const PYTHON: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/dstack-0.22.5/bin/python");
const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/dstack-models.py");

/// Reports that the client is not installed here, as the tests of the program do (`harness::skip`).
fn skip_without_client() {
    let line = "dstack-client: scripts/dstack-client has not installed it";
    println!("skipped: {line}");
    if let Some(path) = std::env::var_os("SLUICE_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.expect("the list of skips"), "{line}").expect("the list of skips");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn up_answers_to_recorded_requests_are_read_by_the_published_clients_models() {
    if !Path::new(PYTHON).exists() {
        return skip_without_client();
    }
    let answers = replay_all().await.answers;
    assert!(answers.len() > 100, "most requests are answered: {}", answers.len());
    let mut command = Process::new(PYTHON);
    // The client writes a log below its home.
    let home = tempfile::tempdir().expect("a home folder");
    command.arg(MODELS).env("HOME", home.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the client's Python runs");
    // It reads everything before it says anything; a pipe that is dropped has ended.
    let input = serde_json::to_vec(&answers).expect("JSON");
    child.stdin.take().expect("a pipe").write_all(&input).expect("the answers are taken");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), format!("{} answers were read", answers.len()));
    assert!(output.status.success(), "{}", output.status);
}
