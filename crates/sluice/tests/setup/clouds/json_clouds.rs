//! Machines of Google and of Lambda, as `json_clouds.py` plays them.

use super::{BILL_SLACK_MS, Cloud, Site, run_as_ordinary_user_with, seconds, text};
use crate::harness::{skip, until};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

const CLOUDS: &str = include_str!("json_clouds.py");

/// Makes the key of a service account, whose public half the cloud reads, and returns the private one; `None` where there is no
/// program to make it.
fn private_key(cloud: &Cloud) -> Option<String> {
    let path = cloud.folder.join("key");
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "rsa", "-b", "2048", "-m", "PKCS8", "-N", "", "-f"]).arg(&path);
    let made = command.stdin(Stdio::null()).status().ok()?;
    assert!(made.success(), "ssh-keygen runs");
    Some(std::fs::read_to_string(path).expect("a key"))
}

/// The sources of both clouds, good ones and ones that are not accepted.
fn sources(cloud: &Cloud, private_key: &str) -> String {
    let account = |email: &str| {
        json!({
            "client_email": email,
            "private_key": private_key,
            "token_uri": format!("http://{}/token", cloud.address),
        })
        .to_string()
    };
    let account_file = cloud.secret("account.json", &account("lab@test.iam.gserviceaccount.com"));
    let stranger = cloud.secret("stranger.json", &account("stranger@elsewhere"));
    let key = cloud.secret("lambda-key", "lambda-key\n");
    let wrong = cloud.secret("wrong-key", "another\n");
    let prices = cloud.prices(
        "gcp",
        "us-central1",
        &json!({"e2-small": {"on_demand": 0.36}, "e2-medium": {"on_demand": 3.6}}),
    );
    let source = |name: &str, kind: &str| {
        format!(
            "[[source]]\nname = '{name}'\nkind = '{kind}'\nfeatures = ['cloud', '{name}']\n\
             machines = 1\nidle = '2s'\nboot = '80s'\n[source.cloud]\n"
        )
    };
    let google = |name: &str, credentials: &str| {
        format!(
            "{}endpoint = 'http://{}/compute/v1'\nregions = ['us-central1-a']\nproject = 'lab'\n\
             image = 'images/lab'\nprices = '{prices}'\ncredentials = '{credentials}'\ndisk_gb = 8\n",
            source(name, "gcp"),
            cloud.address
        )
    };
    let lambda = |name: &str, credentials: &str| {
        format!(
            "{}endpoint = 'http://{}/api/v1'\nregions = ['us-west-1']\nssh_key = 'lab'\n\
             credentials = '{credentials}'\n",
            source(name, "lambda"),
            cloud.address
        )
    };
    [
        google("gcp", &account_file),
        google("stranger", &stranger),
        google("nowhere", &account_file).replace("us-central1-a", "xx-nowhere1-a"),
        lambda("lambda", &key),
        lambda("unknown", &wrong),
    ]
    .concat()
}

#[test]
fn up_jobs_run_on_machines_of_google_and_of_lambda() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::json_clouds::up_jobs_run_on_machines_of_google_and_of_lambda";
        return run_as_ordinary_user_with(name, &[]);
    }
    let mut has_key = false;
    let site = Site::up(CLOUDS, &[], |cloud| {
        // The cheapest of Google's types is sold out.
        cloud.control(&json!({"sold_out": ["e2-small"]}));
        let key = private_key(cloud);
        has_key = key.is_some();
        key.map_or_else(String::new, |key| sources(cloud, &key))
    });
    if !has_key {
        return skip("ssh-client", "no ssh-keygen");
    }
    for source in ["gcp", "lambda"] {
        let job = site.submit(&format!("-C {source}"), "echo $SLURMD_NODENAME >> ran");
        assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    }
    assert_eq!(site.cluster.cluster().read("ran").lines().count(), 2);
    site.await_none(seconds(60));
    let types: Vec<String> =
        site.cloud.logged("create").iter().map(|line| text(line, "type")).collect();
    assert_eq!(types, ["e2-medium", "cpu_4x_general"]);
    assert!(!site.cloud.logged("sold_out").is_empty(), "the next offer is tried");
    // Lambda tells its prices itself.
    let prices =
        BTreeMap::from([("e2-medium@us-central1-a", 36_000), ("cpu_4x_general@us-west-1", 72_000)]);
    site.compare_bill(&prices, BILL_SLACK_MS);
    let cluster = site.cluster.cluster();
    let volume = "type: volume\nname: data\nbackend: gcp\nregion: us-central1\nsize: 10GB\n";
    cluster.write("data.dstack.yml", volume);
    cluster.sluice(&["apply", "-f", "data.dstack.yml", "-y"]).ok();
    until("the disk is made", || {
        let listed = cluster.sluice(&["volume", "list"]).ok();
        (listed.contains("gcp us-central1-a") && listed.contains("active")).then_some(())
    });
    cluster.sluice(&["volume", "delete", "data", "-y"]).ok();
    until("the disk is deleted", || {
        let lines = site.cloud.logged("disk");
        let actions: Vec<String> = lines.iter().map(|line| text(line, "action")).collect();
        (actions == ["insert", "delete"]).then_some(())
    });
    for (source, words) in [
        ("stranger", "no access token: status 400: invalid_grant: Invalid JWT Signature."),
        ("nowhere", "machineTypes in xx-nowhere1-a: notFound"),
        ("unknown", "/instance-types: global/invalid-api-key: API key was invalid."),
        ("lambda", "global/too-many-requests"),
    ] {
        until(source, || {
            let (log, of_source) = (site.cluster.log(), format!("source {source}:"));
            let mut lines = log.lines().filter(|line| line.contains(&of_source));
            lines.find(|line| line.contains(words)).map(drop)
        });
    }
}
