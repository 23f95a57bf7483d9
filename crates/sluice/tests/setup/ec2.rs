//! Machines of EC2, as moto's server and the proxy before it (`ec2_proxy.py`) play it: each machine's user data starts an agent
//! on this machine.

use super::machines::{CONF, run_as_ordinary_user_with};
use super::power::PowerCluster;
use crate::harness::{Cluster, program, skip, until, within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PROXY: &str = include_str!("ec2_proxy.py");

/// The address of moto's server, for the test as an ordinary user: that user may not reach the Python which moto is in.
const MOTO_VARIABLE: &str = "SLUICE_TEST_MOTO";

/// How far the books may be from the cloud's log, for each machine: the cloud tells whole seconds. One that the cloud has taken
/// back is in the books until it is missed.
const BILL_SLACK_MS: u64 = 10_000;
const SPOT_SLACK_MS: u64 = 60_000;

/// moto's server.
struct Moto {
    process: Child,
    address: String,
}

impl Moto {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/moto-5.2.5");
        let python = Path::new(clients).join("bin/python");
        if !python.exists() {
            return None;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("moto starts");
        until("moto answers", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Some(Self { process, address: format!("http://127.0.0.1:{port}") })
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a test with moto, and as an ordinary user: a server of root's gives root up, and the agents that the proxy starts
/// could run nobody's jobs.
fn with_moto(name: &str, test: impl FnOnce(&str)) {
    if let Ok(address) = std::env::var(MOTO_VARIABLE) {
        return test(&address);
    }
    let Some(moto) = Moto::start() else {
        return skip("moto", "scripts/moto has not installed it");
    };
    if nix::unistd::getuid().is_root() {
        let name = format!("ec2::{name}");
        return run_as_ordinary_user_with(&name, &[(MOTO_VARIABLE, moto.address.as_str())]);
    }
    test(&moto.address);
}

/// The proxy, with its folder.
struct Cloud {
    process: Child,
    folder: PathBuf,
    address: String,
}

impl Cloud {
    fn start(cluster: &Cluster, moto: &str) -> Self {
        let folder = cluster.path("cloud");
        std::fs::create_dir(&folder).expect("a folder");
        let script = folder.join("ec2_proxy.py");
        std::fs::write(&script, PROXY).expect("the proxy");
        let out = std::fs::File::create(folder.join("out")).expect("a file");
        let mut command = Command::new("python3");
        command.arg(&script).arg(&folder).args([moto, program()]);
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a file")).stderr(out);
        let process = command.process_group(0).spawn().expect("the proxy starts");
        let address = until("the proxy listens", || {
            std::fs::read_to_string(folder.join("address")).ok().filter(|text| !text.is_empty())
        });
        Self { process, folder, address }
    }

    /// What is the case from now on.
    fn control(&self, what: &Value) {
        let new = self.folder.join("control.new");
        std::fs::write(&new, what.to_string()).expect("a file");
        std::fs::rename(new, self.folder.join("control.json")).expect("a file");
    }

    /// The lines of the log about this.
    fn logged(&self, what: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("log.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line"));
        lines.filter(|line: &Value| line["what"] == what).collect()
    }

    fn machines(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join("machines")).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|of| of == "json")).collect()
    }

    /// A file with the keys for the API, as AWS's own tools write it.
    fn credentials(&self, name: &str, id: &str, secret: &str) -> String {
        let path = self.folder.join(name);
        let keys = format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
        std::fs::write(&path, format!("[default]\n{keys}")).expect("a file");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("a mode");
        path.display().to_string()
    }

    /// A source of this cloud in sluice.toml. `more`: lines of its table of the cloud.
    fn source(&self, name: &str, credentials: &str, machines: u32, more: &str) -> String {
        format!(
            "[[source]]\nname = '{name}'\nkind = 'aws'\nfeatures = ['cloud']\nmachines = {machines}\nidle = '2s'\nboot = '80s'\n\
             [source.cloud]\nregions = ['eu-west-1']\nendpoint = 'http://{0}'\nmetadata = 'http://{0}/imds'\n\
             credentials = '{credentials}'\nimage = 'ami-test'\ndisk_gb = 8\n{more}\n",
            self.address
        )
    }

    fn prices(&self, prices: &Value) -> String {
        let path = self.folder.join("prices.json");
        let text = json!({"date": "2026-11-01", "prices": {"aws": {"eu-west-1": prices}}});
        std::fs::write(&path, text.to_string()).expect("a file");
        path.display().to_string()
    }
}

impl Drop for Cloud {
    /// A test that failed leaves agents behind.
    fn drop(&mut self) {
        let pid_of = |path: &PathBuf| {
            let text = std::fs::read_to_string(path).ok()?;
            let record: Value = serde_json::from_str(&text).ok()?;
            i32::try_from(record["pid"].as_i64()?).ok()
        };
        let agents: Vec<i32> = self.machines().iter().filter_map(pid_of).collect();
        let proxy = i32::try_from(self.process.id()).expect("a pid");
        for group in agents.into_iter().chain([proxy]) {
            let group = nix::unistd::Pid::from_raw(group);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.process.wait();
    }
}

/// A cluster without a node of its own, and the cloud.
struct Site {
    /// Its folder is in the cluster's.
    cloud: Cloud,
    cluster: PowerCluster,
}

impl Site {
    fn up(moto: &str, sources: impl FnOnce(&Cloud) -> String) -> Self {
        let cluster = Cluster::folder(CONF);
        let cloud = Cloud::start(&cluster, moto);
        cluster.write_conf("sluice.toml", &sources(&cloud));
        Self { cloud, cluster: PowerCluster::up_in(cluster, "127.0.0.1:0") }
    }

    /// Submits once the source has told what it offers: before that nothing could hold the job.
    fn submit(&self, options: &str, wrap: &str) -> u32 {
        until("a job is taken", || {
            let line = format!("sbatch --parsable -n 1 {options} --wrap '{wrap}'");
            self.cluster.cluster().shell(&line).stdout.trim().parse().ok()
        })
    }

    fn listed(&self) -> Value {
        let said = self.cluster.cluster().sluice(&["machine", "list", "--all", "--json"]).ok();
        serde_json::from_str(&said).expect("JSON")
    }

    fn await_none(&self, limit: Duration) {
        within(limit, "the machines end at zero", || {
            let listed = self.listed();
            let machines = listed["machines"].as_array().expect("machines");
            let is_gone = |of: &Value| of["machine"]["phase"] == "gone";
            machines.iter().all(is_gone).then_some(())
        });
        assert!(self.cloud.machines().is_empty(), "the cloud has none either");
    }

    /// What the books have is the cloud's log times the price file: each machine that was made, once, for as long as it was
    /// there.
    fn compare_bill(&self, prices: &BTreeMap<&str, u64>, slack_ms: u64) {
        let created = self.cloud.logged("create");
        let ended: BTreeMap<String, u64> = self
            .cloud
            .logged("terminate")
            .iter()
            .map(|line| (text(line, "id"), line["at"].as_u64().expect("a time")))
            .collect();
        let listed = self.listed();
        let machines = listed["machines"].as_array().expect("machines");
        let made = machines.iter().filter(|of| of["machine"]["made"].is_u64());
        let made: BTreeMap<String, &Value> =
            made.map(|of| (text(&of["machine"], "token"), of)).collect();
        assert_eq!(made.len(), created.len(), "each that was made is in the books, and no other");
        for line in &created {
            let (id, token) = (text(line, "id"), text(line, "token"));
            let of = made[&token];
            let machine = &of["machine"];
            assert_eq!(text(machine, "id"), id);
            let time = |key: &str| machine[key].as_u64().expect("a time");
            let name = text(&machine["offer"], "id");
            let price = machine["offer"]["price"].as_u64().expect("a price");
            assert_eq!(prices.get(name.as_str()), Some(&price), "{name} costs what the file says");
            let ours = time("gone") - time("made");
            let clouds = ended[&id] - line["at"].as_u64().expect("a time");
            assert!(ours.abs_diff(clouds) < slack_ms, "{id}: {ours} ms, {clouds} ms");
            // Parts of 1/10,000 dollar an hour, and millionths of a dollar.
            let cost = u128::from(price) * 100 * u128::from(ours) / 3_600_000;
            assert_eq!(of["cost"].as_u64().map(u128::from), Some(cost));
        }
        let sum: u64 = machines.iter().filter_map(|of| of["cost"].as_u64()).sum();
        assert_eq!(listed["sources"][0]["month"].as_u64(), Some(sum), "all of it is this month's");
    }
}

fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}")).to_owned()
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn up_queue_runs_on_machines_of_ec2_and_the_bill_is_the_clouds_log() {
    let name = "up_queue_runs_on_machines_of_ec2_and_the_bill_is_the_clouds_log";
    with_moto(name, |moto| {
        let mut site = Site::up(moto, |cloud| {
            let key = cloud.credentials("key", "AKIAGOOD", "secret");
            let prices = cloud.prices(&json!({
                "t3.micro": {"on_demand": 0.36},
                "t3.small": {"on_demand": 3.6},
                "c5.large": {"on_demand": 36},
            }));
            // The cheapest is sold out, the next call is one too many, and what was made is not seen at once.
            cloud.control(&json!({"sold_out": ["t3.micro"], "throttle": 1, "lag": 1}));
            let more = format!(
                "prices = '{prices}'\ntypes = ['t3.micro', 't3.small', 'c5.*']\nplacement_group = true"
            );
            cloud.source("ec2", &key, 2, &more)
        });
        let wait = "while [ ! -e go ]; do sleep 0.05; done; echo $SLURM_JOB_ID >> ran";
        // Each has a machine to itself.
        let mut jobs: Vec<u32> = (0..4).map(|_| site.submit("-c 2", wait)).collect();
        until("a machine is made", || (!site.cloud.logged("create").is_empty()).then_some(()));
        site.cluster.kill_server();
        site.cluster.start_server();
        site.cluster.cluster().write("go", "");
        for job in &jobs {
            assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
        }
        site.await_none(seconds(60));
        // Machines of the dearest type can be near each other: their group is made when it is missing.
        site.cloud.control(&json!({"sold_out": ["t3.micro", "t3.small"]}));
        jobs.push(site.submit("-c 2", wait));
        assert_eq!(site.cluster.cluster().await_end(jobs[4]), "COMPLETED|0:0");
        site.await_none(seconds(60));
        let groups: Vec<String> =
            site.cloud.logged("group").iter().map(|line| text(line, "name")).collect();
        assert_eq!(groups, ["sluice-machines-ec2-eu-west-1"]);
        let ran = site.cluster.cluster().read("ran");
        let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().expect("a job")).collect();
        ran.sort_unstable();
        assert_eq!(ran, jobs, "every job ran once");
        let sold_out: BTreeSet<String> =
            site.cloud.logged("sold_out").iter().map(|line| text(line, "type")).collect();
        assert!(sold_out.contains("t3.micro"), "the next offer is tried: {sold_out:?}");
        assert!(site.cluster.log().contains("RequestLimitExceeded"), "it was throttled");
        let prices =
            BTreeMap::from([("t3.small@eu-west-1", 36_000), ("c5.large@eu-west-1", 360_000)]);
        site.compare_bill(&prices, BILL_SLACK_MS);
    });
}

#[test]
fn up_job_of_a_spot_machine_is_warned_and_runs_again_when_the_cloud_takes_it_back() {
    let name = "up_job_of_a_spot_machine_is_warned_and_runs_again_when_the_cloud_takes_it_back";
    with_moto(name, |moto| {
        let site = Site::up(moto, |cloud| {
            let key = cloud.credentials("key", "AKIAGOOD", "secret");
            let prices = cloud.prices(&json!({"t3.small": {"on_demand": 3.6}}));
            let more = format!("prices = '{prices}'\ntypes = ['t3.small']\nspot = 'spot'");
            cloud.source("ec2", &key, 2, &more)
        });
        let job = site.submit(
            "--requeue --signal=B:USR1@30",
            "trap \"touch warned\" USR1; [ ! -e warned ] || exit 0; touch began; \
             for i in $(seq 600); do sleep 0.1; done; exit 1",
        );
        site.cluster.cluster().await_file("began", |_| true);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("a time").as_millis() as u64;
        site.cloud.control(&json!({"storm": {"before": now, "after": 3}}));
        site.cluster.cluster().await_file("warned", |_| true);
        until("the node is drained", || {
            let said = site.cluster.cluster().shell("sinfo -R -h -o %E").stdout;
            (said.contains("spot interruption") || !site.cloud.logged("interrupted").is_empty())
                .then_some(())
        });
        within(seconds(90), "the job has run again", || {
            site.cluster.cluster().state_of(job).starts_with("COMPLETED").then_some(())
        });
        site.await_none(seconds(60));
        assert_eq!(site.cloud.logged("interrupted").len(), 1);
        let created = site.cloud.logged("create");
        assert!(created.iter().all(|line| line["spot"] == true), "{created:?}");
        assert_eq!(created.len(), 2, "{created:?}");
        // The price of the API's own, not of the file.
        let prices = BTreeMap::from([("t3.small@eu-west-1/spot", 500)]);
        site.compare_bill(&prices, SPOT_SLACK_MS);
    });
}

#[test]
fn up_wrong_words_about_a_cloud_are_one_line_of_the_log_each() {
    let name = "up_wrong_words_about_a_cloud_are_one_line_of_the_log_each";
    with_moto(name, |moto| {
        let site = Site::up(moto, |cloud| {
            let good = cloud.credentials("good", "AKIAGOOD", "secret");
            let prices = cloud.prices(&json!({"none.such": {"on_demand": 1}}));
            let types = "types = ['t3.small']";
            let key = |name: &str, id: &str, secret: &str| {
                let key = cloud.credentials(name, id, secret);
                cloud.source(name, &key, 1, types)
            };
            let nowhere = cloud.source("nowhere", &good, 1, types);
            [
                key("stranger", "AKIAOTHER", "secret"),
                key("forged", "AKIAGOOD", "wrong"),
                key("denied", "AKIADENIED", "secret"),
                key("skewed", "AKIASKEW", "secret"),
                key("garbage", "AKIAGARBAGE", "secret"),
                nowhere.replace("'eu-west-1'", "'xx-nowhere-1'"),
                cloud.source("priceless", &good, 1, &format!("{types}\nprices = '{prices}'")),
                cloud.source("keyless", "/nowhere/key", 1, types),
                cloud.source("imageless", &good, 1, types).replace("ami-test", "ami-none"),
            ]
            .concat()
        });
        for (source, words) in [
            ("stranger", "AuthFailure: AWS was not able to validate"),
            ("forged", "SignatureDoesNotMatch"),
            ("denied", "(allow ec2:DescribeInstanceTypes)"),
            ("skewed", "(this machine's clock is wrong, or the credentials have ended)"),
            ("garbage", "the answer is no XML"),
            ("nowhere", "AuthFailure: Credential should be scoped to a valid region"),
            ("priceless", "no type can be offered: 1 types of eu-west-1 have no price in"),
            ("keyless", "credentials: /nowhere/key: "),
            ("imageless", "image ami-none: there is none in eu-west-1"),
        ] {
            let line = until(source, || {
                let log = site.cluster.log();
                let of_source = format!("source {source}:");
                let mut lines = log.lines().filter(|line| line.contains(&of_source));
                lines.find(|line| line.contains(words)).map(str::to_owned)
            });
            assert!(!line.contains("secret"), "{line}");
        }
    });
}

/// Two hundred jobs on at most twenty spot machines, three storms that take all of them back, two kills of the server.
#[test]
#[ignore = "a long run: make soak"]
fn root_soak_two_hundred_jobs_outlive_three_spot_storms_and_two_kills_of_the_server() {
    let name = "root_soak_two_hundred_jobs_outlive_three_spot_storms_and_two_kills_of_the_server";
    with_moto(name, |moto| {
        let mut site = Site::up(moto, |cloud| {
            let key = cloud.credentials("key", "AKIAGOOD", "secret");
            let prices = cloud.prices(&json!({"t3.small": {"on_demand": 3.6}}));
            let more = format!("prices = '{prices}'\ntypes = ['t3.small']\nspot = 'spot'");
            cloud.source("ec2", &key, 20, &more)
        });
        site.submit("", "true");
        let line = "sbatch --parsable --requeue -n 1 --array=1-200 \
                    --wrap 'sleep 4; echo $SLURM_ARRAY_TASK_ID >> ended'";
        let array = site.cluster.cluster().shell(line).ok();
        let ended = |site: &Site| {
            let path = site.cluster.cluster().path("work/ended");
            let text = std::fs::read_to_string(path).unwrap_or_default();
            text.lines().filter_map(|line| line.parse::<u32>().ok()).collect::<Vec<u32>>()
        };
        for (part, kill) in [(20, true), (70, false), (120, true)] {
            within(seconds(600), "a part of the jobs has ended", || {
                (ended(&site).len() >= part).then_some(())
            });
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.expect("a time").as_millis() as u64;
            site.cloud.control(&json!({"storm": {"before": now, "after": 3}}));
            if kill {
                site.cluster.kill_server();
                site.cluster.start_server();
            }
        }
        within(seconds(1200), "all jobs have ended", || {
            let line = format!("squeue -h -j {}", array.trim());
            site.cluster.cluster().shell(&line).stdout.trim().is_empty().then_some(())
        });
        let line = format!("sacct -n -X -P -o State -j {}", array.trim());
        let states = site.cluster.cluster().shell(&line).ok();
        let (count, done) =
            (states.lines().count(), states.lines().filter(|state| *state == "COMPLETED").count());
        assert_eq!((count, done), (200, 200), "every job ends once: {states}");
        let numbers: BTreeSet<u32> = ended(&site).into_iter().collect();
        assert_eq!(numbers.len(), 200);
        site.await_none(seconds(300));
        let prices = BTreeMap::from([("t3.small@eu-west-1/spot", 500)]);
        site.compare_bill(&prices, SPOT_SLACK_MS);
    });
}
