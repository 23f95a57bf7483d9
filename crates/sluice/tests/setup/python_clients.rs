//! Clients of the APIs from Python (`scripts/python-clients` installs what they need), unmodified.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, skip, until, user_name};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The interpreter with the packages of `scripts/python-clients.txt`; `None` where they are not installed.
pub(super) fn python() -> Option<PathBuf> {
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/python/bin/python");
    let program = PathBuf::from(clients);
    if program.exists() {
        return Some(program);
    }
    skip("python-clients", "scripts/python-clients has not installed them");
    None
}

/// A script of this folder.
fn script(name: &str) -> String {
    format!("{}/tests/setup/python/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn run(program: &Path, words: &[&str]) -> CommandOutput {
    Command::new(program).args(words).output().expect("python runs").into()
}

fn url(cluster: &Cluster) -> String {
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).expect("the ports");
    let ports: Value = serde_json::from_str(&ports).expect("JSON");
    format!("http://{}", ports["listen"].as_str().expect("a port"))
}

/// `pyslurmutils` reads our answers by models that were generated from Slurm's own description.
#[test]
fn up_pyslurmutils_submits_lists_and_cancels_in_every_later_version() {
    let Some(python) = python() else { return };
    let cluster = Cluster::up(&format!("{TWO_NODES}AuthAltTypes=auth/jwt\n"));
    let said = cluster.sluice(&["scontrol", "token", "lifespan=600"]).ok();
    let token = said.trim().strip_prefix("SLURM_JWT=").expect("a token");
    let work = cluster.path("work").display().to_string();
    for version in ["v0.0.40", "v0.0.41", "v0.0.42"] {
        let (url, user) = (url(&cluster), user_name());
        let said = run(&python, &[&script("rest_client.py"), &url, &user, token, version, &work]);
        let said = said.ok();
        assert_eq!(said, format!("{version} ok\n"));
    }
}

/// The folder of `scripts/slurm-description`, with the descriptions of the versions that are meant; `None` where they could not be made.
fn description(which: &str) -> Option<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/slurm-description");
    if Path::new(folder).join(format!("ready-{which}")).exists() {
        return Some(folder.to_owned());
    }
    skip("slurm-description", &format!("scripts/slurm-description {which} has not made it"));
    None
}

/// A cluster that has one of everything that Slurm's REST API shows, and a job that has ended.
fn cluster_with_everything() -> (Cluster, u32) {
    let cluster = Cluster::up(&format!("{TWO_NODES}Licenses=matlab:4\n"));
    let user = user_name();
    let reservation = "reservationname=weekly starttime=now+2hours duration=60 nodes=node2";
    for line in [
        "sacctmgr -i add account physics".to_owned(),
        format!("sacctmgr -i add user {user} account=physics"),
        format!("sacctmgr -i add coordinator account=physics names={user}"),
        "sacctmgr -i add qos high".to_owned(),
        format!("scontrol create reservation {reservation} users={user}"),
    ] {
        cluster.shell(&line).ok();
    }
    let ended = cluster.submit(&["-o", "/dev/null", "-L", "matlab", "--wrap", "srun true"]);
    let runs = cluster.submit_sleeper("--gres=gpu:2 -c 2 -t 60");
    cluster.submit_sleeper("-H --array=1-4");
    assert!(cluster.await_end(ended).starts_with("COMPLETED"));
    cluster.await_state(runs, "RUNNING");
    (cluster, ended)
}

/// Holds every answer of these versions to the description that Debian's slurmrestd has of them; each with the number of paths that
/// it describes and that are read here.
fn compare_with_description(versions: &[(&str, u32)], which: &str) {
    let (Some(python), Some(folder)) = (python(), description(which)) else { return };
    let (cluster, ended) = cluster_with_everything();
    let said = cluster.sluice(&["scontrol", "token", "lifespan=600"]).ok();
    let token = said.trim().strip_prefix("SLURM_JWT=").expect("a token");
    let (url, user, ended) = (url(&cluster), user_name(), ended.to_string());
    let (program, work) =
        (script("slurm_description.py"), cluster.path("work").display().to_string());
    for (version, paths) in versions {
        let words: [&str; 8] = [&program, version, &url, token, &folder, &ended, &user, &work];
        assert_eq!(run(&python, &words).ok(), format!("{paths}\n"), "the paths of {version}");
    }
}

#[test]
fn up_answers_of_the_first_version_keep_to_slurms_own_description() {
    compare_with_description(&[("v0.0.38", 27)], "first");
}

#[test]
fn up_answers_of_later_versions_keep_to_slurms_own_description() {
    let versions = [("v0.0.40", 32), ("v0.0.41", 32), ("v0.0.42", 33)];
    compare_with_description(&versions, "later");
}

/// `pip install` from the repository, without a network, and used as a program would.
#[test]
fn up_python_client_of_the_repository_submits_waits_reads_and_cancels() {
    let Some(python) = python() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let packages = cluster.path("packages").display().to_string();
    // Built from a copy: a build leaves files beside its source.
    let source = cluster.path("python").display().to_string();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python");
    let copied = Command::new("cp").args(["-r", repository, source.as_str()]).output();
    CommandOutput::from(copied.expect("cp runs")).ok();
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let (target, source) = (packages.as_str(), source.as_str());
    let from = ["--no-index", "--no-build-isolation", "--target", target, source];
    run(&python, &[&install[..], &from[..]].concat()).ok();
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    let work = cluster.path("work").display().to_string();
    let said: CommandOutput = Command::new(&python)
        .arg(script("own_client.py"))
        .args([url(&cluster).as_str(), token.trim(), work.as_str()])
        .env("PYTHONPATH", &packages)
        .output()
        .expect("python runs")
        .into();
    assert_eq!(said.ok(), "ok\n");
}

#[test]
fn up_openapi_document_is_served_and_valid() {
    let Some(python) = python() else { return };
    let cluster = Cluster::up(TWO_NODES);
    let address = url(&cluster).strip_prefix("http://").expect("an address").to_owned();
    let mut stream = TcpStream::connect(&address).expect("the server");
    let request =
        format!("GET /openapi.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, document) = answer.split_once("\r\n\r\n").expect("a body");
    let mut validator = Command::new(&python)
        .arg(script("openapi.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python runs");
    let mut input = validator.stdin.take().expect("its input");
    input.write_all(document.as_bytes()).expect("written");
    drop(input);
    let said: CommandOutput = validator.wait_with_output().expect("python ends").into();
    assert!(said.ok().trim().parse::<u32>().is_ok_and(|paths| paths > 10));
}

/// A unit test of the server holds what it makes to this file.
#[test]
fn up_manifests_of_pods_keep_to_the_schema_of_kubernetes() {
    let Some(python) = python() else { return };
    let manifests = "/../server/src/machines/kubernetes/manifests.json";
    let manifests = format!("{}{manifests}", env!("CARGO_MANIFEST_DIR"));
    assert_eq!(run(&python, &[&script("manifests.py"), &manifests]).ok(), "3\n");
}

/// A mock of an identity provider, which ends with the test.
pub(super) struct Provider {
    process: Child,
    pub(super) address: String,
}

impl Provider {
    /// One that knows a user, who is in the group `ml`.
    pub(super) fn with_user(python: &Path, user: &str) -> Self {
        let groups = ["ml", "other"];
        let claims = json!({"sub": user, "preferred_username": user, "groups": groups});
        Self::start(python, &claims)
    }

    /// Has the cluster send browsers here; the group `ml` becomes managers of the project `atlas`.
    pub(super) fn vouch_for(&self, cluster: &Cluster) {
        cluster.sluice(&["project", "create", "atlas"]).ok();
        let toml = format!(
            "[oidc]\nissuer = 'http://{}'\nclient_id = 'sluice'\nsecret_file = 'oidc.secret'\n\
             redirect_url = '{}/api/web/oidc/callback'\n\
             [oidc.groups]\nml = [{{ project = 'atlas', role = 'manager' }}]\n",
            self.address,
            url(cluster)
        );
        cluster.write_conf("oidc.secret", "between us\n");
        cluster.write_conf("sluice.toml", &toml);
        cluster.sluice(&["scontrol", "reconfigure"]).ok();
    }

    fn start(python: &Path, claims: &Value) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        let port = address.rsplit(':').next().expect("a port").to_owned();
        drop(free);
        let process = Command::new(python)
            .args(["-m", "oidc_provider_mock", "--port", &port, "--user-claims"])
            .arg(claims.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("python runs");
        until("the provider answers", || TcpStream::connect(&address).ok().map(drop));
        Self { process, address }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The code flow with PKCE against a provider, as a browser goes through it; the user's groups become memberships.
#[test]
fn up_browser_signs_in_at_an_identity_provider_and_groups_become_members() {
    let Some(python) = python() else { return };
    let user = "nobody";
    let provider = Provider::with_user(&python, user);
    let cluster = Cluster::up(TWO_NODES);
    provider.vouch_for(&cluster);
    let url = url(&cluster);
    let said = run(&python, &[&script("sign_on.py"), &url, user]).ok();
    assert_eq!(said, "ok\n");
    let shown = ["sacctmgr", "-n", "-P", "show", "assoc", "format=account,user"];
    let members = cluster.sluice(&shown).ok();
    assert!(members.lines().any(|line| line == "atlas|nobody"), "{members}");
}
