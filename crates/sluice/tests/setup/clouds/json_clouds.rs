//! Machines of Google and of Lambda, as `json_clouds.py` plays them.

use super::ec2_storm::{Storms, outlive};
use super::{BILL_SLACK_MS, Cloud, Site, run_as_ordinary_user_with, seconds, text};
use crate::harness::{Cluster, skip, until};
use serde_json::{Value, json};
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

/// The file with the key of a service account.
fn account(cloud: &Cloud, name: &str, email: &str, private_key: &str) -> String {
    let key = json!({
        "client_email": email,
        "private_key": private_key,
        "token_uri": format!("http://{}/token", cloud.address),
    });
    cloud.secret(name, &key.to_string())
}

const LAB_ACCOUNT: &str = "lab@test.iam.gserviceaccount.com";

/// A source of machines in sluice.toml, up to the lines of its cloud.
fn source(name: &str, kind: &str, machines: u32) -> String {
    format!(
        "[[source]]\nname = '{name}'\nkind = '{kind}'\nfeatures = ['cloud', '{name}']\n\
         machines = {machines}\nidle = '2s'\nboot = '80s'\n[source.cloud]\n"
    )
}

/// A source of Google's machines. `credentials`: the file of an account.
fn google(cloud: &Cloud, name: &str, machines: u32, prices: &str, credentials: &str) -> String {
    format!(
        "{}endpoint = 'http://{}/compute/v1'\nregions = ['us-central1-a']\nproject = 'lab'\n\
         image = 'images/lab'\nprices = '{prices}'\ncredentials = '{credentials}'\ndisk_gb = 8\n\
         network = 'projects/net/global/networks/lab'\npublic_ips = false\n",
        source(name, "gcp", machines),
        cloud.address
    )
}

/// The sources of both clouds, good ones and ones that are not accepted.
fn sources(cloud: &Cloud, private_key: &str) -> String {
    let account_file = account(cloud, "account.json", LAB_ACCOUNT, private_key);
    let stranger = account(cloud, "stranger.json", "stranger@elsewhere", private_key);
    let key = cloud.secret("lambda-key", "lambda-key\n");
    let wrong = cloud.secret("wrong-key", "another\n");
    let prices = cloud.prices(
        "gcp",
        "us-central1",
        &json!({"e2-small": {"on_demand": 0.36}, "e2-medium": {"on_demand": 3.6}}),
    );
    let google = |name: &str, credentials: &str| google(cloud, name, 1, &prices, credentials);
    let lambda = |name: &str, credentials: &str| {
        format!(
            "{}endpoint = 'http://{}/api/v1'\nregions = ['us-west-1']\nssh_key = 'lab'\n\
             credentials = '{credentials}'\n",
            source(name, "lambda", 1),
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

/// A source of one type, as spot alone, for fleets alone.
fn spot_source(cloud: &Cloud, machines: u32, private_key: &str) -> String {
    let account_file = account(cloud, "account.json", LAB_ACCOUNT, private_key);
    let prices = json!({"e2-small": {"on_demand": 3.6, "spot": 0.05}});
    let prices = cloud.prices("gcp", "us-central1", &prices);
    let source = google(cloud, "gcp", machines, &prices, &account_file);
    // Without a partition of its own the fleet is the only one that makes machines of it.
    let source = source.replace("features = ['cloud', 'gcp']", "features = ['of-fleets']");
    let metadata = format!("http://{}/imds", cloud.address);
    format!("{source}types = ['e2-small']\nspot = 'spot'\nmetadata = '{metadata}'\n")
}

/// As on EC2. The first call for a machine is one too many, and the source waits.
#[test]
fn up_jobs_outlive_a_spot_storm_of_google_and_a_kill_of_the_server() {
    if nix::unistd::getuid().is_root() {
        let name =
            "clouds::json_clouds::up_jobs_outlive_a_spot_storm_of_google_and_a_kill_of_the_server";
        return run_as_ordinary_user_with(name, &[]);
    }
    let storms = Storms { jobs: 6, seconds: 1, machines: 2, at: &[(1, true)] };
    let mut has_key = false;
    let mut site = Site::up(CLOUDS, &[], |cloud| {
        cloud.control(&json!({"throttle": 1}));
        let key = private_key(cloud);
        has_key = key.is_some();
        key.map_or_else(String::new, |key| spot_source(cloud, storms.machines, &key))
    });
    if !has_key {
        return skip("ssh-client", "no ssh-keygen");
    }
    outlive(&mut site, &storms, "e2-small@us-central1-a/spot");
    let created = site.cloud.logged("create");
    assert!(created.iter().all(|line| line["spot"] == true), "{created:?}");
    assert!(site.cluster.log().contains("rateLimitExceeded"), "it was throttled");
}

#[test]
fn up_jobs_run_on_machines_of_google_and_of_lambda() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::json_clouds::up_jobs_run_on_machines_of_google_and_of_lambda";
        return run_as_ordinary_user_with(name, &[]);
    }
    let mut has_key = false;
    let mut site = Site::up(CLOUDS, &[], |cloud| {
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
        let wait = format!("until [ -e go-{source} ]; do sleep 0.05; done; echo ran >> ran");
        let job = site.submit(&format!("-C {source}"), &wait);
        site.cluster.cluster().await_state(job, "RUNNING");
        // Its machine is found again.
        site.cluster.kill_server();
        site.cluster.start_server();
        site.cluster.cluster().write(&format!("go-{source}"), "");
        assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    }
    assert_eq!(site.cluster.cluster().read("ran").lines().count(), 2);
    site.await_none(seconds(60));
    let created = site.cloud.logged("create");
    let types: Vec<String> = created.iter().map(|line| text(line, "type")).collect();
    assert_eq!(types, ["e2-medium", "cpu_4x_general"]);
    // The machine is in a subnetwork of the network that is named, which is another project's, and has no public address.
    let network = "projects/net/global/networks/lab";
    let subnetwork = "projects/net/regions/us-central1/subnetworks/lab-a";
    let interface = json!({"network": network, "subnetwork": subnetwork});
    assert_eq!(created[0]["interface"], interface);
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

/// Asks dstack's API as the administrator: the status, and what is answered.
fn ask_api(cluster: &Cluster, path: &str, body: &Value) -> (String, Value) {
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    cluster.write("body.json", &body.to_string());
    let said = cluster.shell(&format!(
        "curl -sS -w '\\n%{{http_code}}' -X POST -H 'Authorization: Bearer {}' \
         -H 'Content-Type: application/json' -d @body.json http://{}/api/{path}",
        token.trim(),
        cluster.address_of("listen")
    ));
    let said = said.ok();
    let (answer, status) = said.trim().rsplit_once('\n').expect("an answer and its status");
    (status.to_owned(), serde_json::from_str(answer).expect("JSON"))
}

#[test]
fn up_backend_that_is_made_by_the_api_makes_machines_at_once_and_after_a_restart() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::json_clouds::up_backend_that_is_made_by_the_api_makes_machines_at_once_and_after_a_restart";
        return run_as_ordinary_user_with(name, &[]);
    }
    let mut site = Site::up(CLOUDS, &[], |_| String::new());
    let yaml = format!(
        "type: lambda\nregions: [us-west-1]\nssh_key: lab\nendpoint: http://{}/api/v1\n\
         features: [cloud]\nmachines: 1\nidle: 2s\nboot: 80s\n",
        site.cloud.address
    );
    let with_key = |key: &str| json!({"config_yaml": format!("{yaml}creds: {{type: api_key, api_key: {key}}}\n")});
    let create = "project/main/backends/create_yaml";
    let (status, said) = ask_api(site.cluster.cluster(), create, &with_key("another-key"));
    assert_eq!((status.as_str(), said), ("200", Value::Null));
    let (status, said) = ask_api(site.cluster.cluster(), create, &with_key("another-key"));
    assert_eq!((status.as_str(), &said["detail"][0]["code"]), ("400", &json!("resource_exists")));
    until("the wrong key is told", || {
        let failure = &site.listed()["sources"][0]["failure"];
        failure.as_str()?.contains("global/invalid-api-key").then_some(())
    });
    site.cluster.kill_server();
    site.cluster.start_server();
    let cluster = site.cluster.cluster();
    let (status, project) = ask_api(cluster, "projects/main/get", &json!({}));
    let shown = json!([{"name": "lambda", "config": {"type": "lambda", "regions": ["us-west-1"]}}]);
    assert_eq!((status.as_str(), &project["backends"]), ("200", &shown));
    let update = "project/main/backends/update_yaml";
    assert_eq!(ask_api(cluster, update, &with_key("lambda-key")).0, "200");
    // Its keys stay where none are said.
    assert_eq!(ask_api(cluster, update, &json!({ "config_yaml": yaml })).0, "200");
    let job = site.submit("", "until [ -e go ]; do sleep 0.1; done");
    until("the job runs on its machine", || {
        cluster.shell("squeue -h -t R -o %i").stdout.trim().parse::<u32>().ok()
    });
    let delete = "project/main/backends/delete";
    let names = json!({"backends_names": ["lambda"]});
    let (status, said) = ask_api(cluster, delete, &names);
    let why = said["detail"][0]["msg"].as_str().unwrap_or_default();
    assert!(status == "400" && why.starts_with("backend lambda has machine "), "{said}");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    site.await_none(seconds(60));
    let (_, kept) = ask_api(cluster, "project/main/backends/lambda/get_yaml", &json!({}));
    let kept = text(&kept, "config_yaml");
    assert!(kept.contains("ssh_key") && !kept.contains("lambda-key"), "{kept}");
    assert_eq!(ask_api(cluster, delete, &names).0, "200");
    assert_eq!(site.listed()["sources"], json!([]));
    // dstack's own file beside slurm.conf has it made again.
    let lines: String = yaml.lines().map(|line| format!("    {line}\n")).collect();
    let lines = lines.replacen("    type", "  - type", 1);
    let creds = "    creds: {type: api_key, api_key: lambda-key}\n";
    let file = format!("projects:\n- name: main\n  backends:\n{lines}{creds}");
    cluster.write_conf("config.yml", &file);
    let path = cluster.path("conf").join("config.yml");
    cluster.shell(&format!("chmod 600 {} && scontrol reconfigure", path.display())).ok();
    assert_eq!(text(&site.listed()["sources"][0], "project"), "main");
    // One that the file does not name any more goes.
    cluster.write_conf("config.yml", "projects: [{name: main}]\n");
    cluster.shell(&format!("chmod 600 {} && scontrol reconfigure", path.display())).ok();
    assert_eq!(site.listed()["sources"], json!([]));
    // Neither the journal nor the log has the key as it is.
    let (state, log) = (cluster.state(), cluster.path("server.out"));
    let places = format!("{} {}", state.display(), log.display());
    assert_eq!(cluster.shell(&format!("grep -rlaF lambda-key {places}")).stdout, "");
}
