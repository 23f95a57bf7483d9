//! The web page in a real browser: Debian's Chromium, driven by the scripts of `tests/browser`, which `scripts/browser` has
//! installed what they need for. Pictures of each view are written to `target/browser`.

use crate::harness::{Cluster, TWO_NODES, signal, skip};
use crate::python_clients::{Provider, python};
use crate::web_page::{Browser, admin_token};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const LOCK: &str = include_str!("../../../../tests/browser/package-lock.json");
const CHROMIUM: &str = "/usr/bin/chromium";

/// What a user writes that would be a script, if it were taken for one; as in `tests/browser/harness.mjs`.
const MARKUP: &str = "<img src=x onerror=window.hacked=1>";

/// The folder with the packages of the lock file; `None` where the machine lacks them, or the browser.
fn packages() -> Option<PathBuf> {
    let folders = std::fs::read_dir(Path::new(ROOT).join("target/clients")).ok()?;
    let is_ours = |folder: &PathBuf| {
        let lock = std::fs::read_to_string(folder.join("package-lock.json"));
        lock.is_ok_and(|lock| lock == LOCK) && folder.join("node_modules").is_dir()
    };
    let found = folders.flatten().map(|entry| entry.path()).find(is_ours)?;
    Path::new(CHROMIUM).exists().then_some(found)
}

fn cannot() {
    skip("browser", "Chromium is not here, or scripts/browser has not installed what drives it");
}

/// Runs a script to its end, and does what it asks for in lines that begin with `@`.
fn drive(cluster: &Cluster, packages: &Path, script: &str, token: &str, jobs: &Value) {
    let settings = json!({
        "modules": packages,
        "chromium": CHROMIUM,
        "base": format!("http://{}", Browser::of(cluster).address),
        "token": token,
        "shots": Path::new(ROOT).join("target/browser"),
    });
    let mut command = Command::new("node");
    command.arg(Path::new(ROOT).join("tests/browser").join(script));
    command.env("SLUICE_BROWSER_TEST", settings.to_string());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("node runs");
    let mut answers = child.stdin.take().expect("a pipe");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut said = String::new();
    for line in lines.map(|line| line.expect("text")) {
        let Some(words) = line.strip_prefix('@') else {
            said += &format!("{line}\n");
            continue;
        };
        let answer = match words.split_once(' ').unwrap_or((words, "")) {
            ("shell", line) => json!(cluster.shell(line).ok()),
            ("jobs", _) => jobs.clone(),
            ("lose", _) => {
                cluster.kill("server");
                Value::Null
            }
            ("hang", _) => {
                signal(cluster.pid("server"), "STOP");
                Value::Null
            }
            ("go", _) => {
                signal(cluster.pid("server"), "CONT");
                Value::Null
            }
            ("return", _) => {
                cluster.start();
                Value::Null
            }
            _ => panic!("it asks for {words}"),
        };
        writeln!(answers, "{answer}").expect("sent");
    }
    assert!(child.wait().expect("an end").success(), "{said}");
    println!("{said}");
}

/// A job that runs, whose texts are markup wherever a user may write.
fn job_with_markup(cluster: &Cluster) -> u32 {
    let script = format!(
        "#!/bin/sh\n#SBATCH -J '{MARKUP}' --comment '{MARKUP}' -o '{MARKUP}.txt' --gres=gpu:2 -t 60\n\
         echo '{MARKUP}'\necho the last line\nexec sleep 600\n"
    );
    cluster.write(&format!("{MARKUP}.sh"), &script);
    let said = cluster.shell(&format!("sbatch --parsable '{MARKUP}.sh'")).ok();
    let job: u32 = said.trim().parse().expect("a job id");
    cluster.await_state(job, "RUNNING");
    job
}

fn clusters_own() -> Cluster {
    let cluster = Cluster::up(&format!("{TWO_NODES}Licenses=matlab:4\n"));
    // Where pages of jobs are shown, administrators only look.
    cluster.write_conf("sluice.toml", "[web]\njob_pages = false\n");
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    cluster
}

#[test]
fn up_page_is_used_in_a_real_browser() {
    let Some(packages) = packages() else { return cannot() };
    let cluster = clusters_own();
    let job = job_with_markup(&cluster);
    let waits = cluster.submit_sleeper("-J wide -N2 --gres=gpu:8 -t 60");
    let user = crate::harness::user_name();
    for (name, start) in [("weekly-fix", "now+2hours"), ("to-remove", "now+20hours")] {
        let line = format!(
            "scontrol create reservation reservationname={name} starttime={start} duration=60 nodes=node2 users={user}"
        );
        cluster.shell(&line).ok();
    }
    cluster.sluice(&["volume", "create", "kept", "--node", "node1"]).ok();
    cluster.sluice(&["secret", "set", "api_key", "hush"]).ok();
    let account = format!("sacctmgr -i add account physics description='{MARKUP}'");
    cluster.shell(&account).ok();
    let token = admin_token(&cluster);
    let mut browser = Browser::of(&cluster);
    browser.sign_in(&token);
    let project = json!({"call": {"create_project": {"name": "atlas"}}});
    let made = browser.post("/api/web/call", &project);
    assert_eq!(made.status, 200, "{}", made.body);
    drive(&cluster, &packages, "page.mjs", &token, &json!({ "job": job, "waits": waits }));
}

#[test]
fn root_page_of_another_user_in_a_real_browser_offers_and_does_no_more_than_he_may() {
    let Some(packages) = packages() else { return cannot() };
    let cluster = clusters_own();
    let job = job_with_markup(&cluster);
    let own = cluster.submit_as("games", "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(own, "RUNNING");
    let token = cluster.sluice(&["token", "user", "games", "--name", "page"]).ok();
    let jobs = json!({ "job": job, "own": own });
    drive(&cluster, &packages, "rights.mjs", token.trim(), &jobs);
}

/// The button of the page leads to the identity provider, and back to the view that the page was left at.
#[test]
fn up_button_of_the_page_signs_in_at_an_identity_provider() {
    let Some(packages) = packages() else { return cannot() };
    let Some(python) = python() else { return };
    let user = "nobody";
    let provider = Provider::with_user(&python, user);
    let cluster = Cluster::up(TWO_NODES);
    provider.vouch_for(&cluster);
    let known = json!({ "user": user, "provider": provider.address });
    drive(&cluster, &packages, "sign_on.mjs", "", &known);
}
