//! Clients of the APIs from Python (`scripts/python-clients` installs what they need), unmodified.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, skip, user_name};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter with the packages of `scripts/python-clients.txt`; `None` where they are not installed.
fn python() -> Option<PathBuf> {
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
