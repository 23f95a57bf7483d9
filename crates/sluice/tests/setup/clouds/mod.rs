//! Machines of clouds: programs of Python play the clouds' APIs (`ec2_proxy.py` before moto's server, `json_clouds.py`,
//! `kubernetes_api.py`), and the user data of each machine starts an agent on this machine (`machine_host.py`).

mod ec2;
mod ec2_storm;
mod json_clouds;
mod kubernetes;

use super::machines::{CONF, run_as_ordinary_user_with};
use super::power::PowerCluster;
use crate::harness::{Cluster, program, until, within};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const HOST: &str = include_str!("machine_host.py");

/// How far the books may be from the cloud's log, for each machine: the cloud tells whole seconds.
const BILL_SLACK_MS: u64 = 10_000;

/// A cloud that a program of Python plays, with its folder.
pub(super) struct Cloud {
    process: Child,
    pub folder: PathBuf,
    pub address: String,
}

impl Cloud {
    fn start(cluster: &Cluster, script: &str, arguments: &[&str]) -> Self {
        let folder = cluster.path("cloud");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("machine_host.py"), HOST).expect("a program");
        let path = folder.join("cloud.py");
        std::fs::write(&path, script).expect("a program");
        let out = std::fs::File::create(folder.join("out")).expect("a file");
        let mut command = Command::new("python3");
        command.arg(&path).arg(&folder).args(arguments).arg(program());
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a file")).stderr(out);
        let process = command.process_group(0).spawn().expect("the cloud starts");
        let address = until("the cloud listens", || {
            std::fs::read_to_string(folder.join("address")).ok().filter(|text| !text.is_empty())
        });
        Self { process, folder, address }
    }

    /// What is the case from now on.
    pub fn control(&self, what: &Value) {
        let new = self.folder.join("control.new");
        std::fs::write(&new, what.to_string()).expect("a file");
        std::fs::rename(new, self.folder.join("control.json")).expect("a file");
    }

    /// The lines of the log about this.
    pub fn logged(&self, what: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("log.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line"));
        lines.filter(|line: &Value| line["what"] == what).collect()
    }

    pub fn machines(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join("machines")).into_iter().flatten();
        let paths = entries.flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|of| of == "json")).collect()
    }

    /// A file that nobody else reads.
    pub fn secret(&self, name: &str, text: &str) -> String {
        let path = self.folder.join(name);
        std::fs::write(&path, text).expect("a file");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("a mode");
        path.display().to_string()
    }

    /// A price file of one region.
    pub fn prices(&self, kind: &str, region: &str, prices: &Value) -> String {
        let path = self.folder.join(format!("{kind}.json"));
        let text = json!({"date": "2026-11-01", "prices": {kind: {region: prices}}});
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
        let own = i32::try_from(self.process.id()).expect("a pid");
        for group in agents.into_iter().chain([own]) {
            let group = nix::unistd::Pid::from_raw(group);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.process.wait();
    }
}

/// A cluster without a node of its own, and the cloud.
pub(super) struct Site {
    /// Its folder is in the cluster's.
    pub cloud: Cloud,
    pub cluster: PowerCluster,
}

impl Site {
    /// `script`: what plays the cloud. `sources`: sluice.toml, once its address is known.
    pub fn up(script: &str, arguments: &[&str], sources: impl FnOnce(&Cloud) -> String) -> Self {
        let cluster = Cluster::folder(CONF);
        let cloud = Cloud::start(&cluster, script, arguments);
        cluster.write_conf("sluice.toml", &sources(&cloud));
        Self { cloud, cluster: PowerCluster::up_in(cluster, "127.0.0.1:0") }
    }

    /// Submits once the source has told what it offers: before that nothing could hold the job.
    pub fn submit(&self, options: &str, wrap: &str) -> u32 {
        until("a job is taken", || {
            let line = format!("sbatch --parsable -n 1 {options} --wrap '{wrap}'");
            self.cluster.cluster().shell(&line).stdout.trim().parse().ok()
        })
    }

    pub fn listed(&self) -> Value {
        let said = self.cluster.cluster().sluice(&["machine", "list", "--all", "--json"]).ok();
        serde_json::from_str(&said).expect("JSON")
    }

    pub fn await_none(&self, limit: Duration) {
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
    pub fn compare_bill(&self, prices: &BTreeMap<&str, u64>, slack_ms: u64) {
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
            // An agent may join before its cloud has told the machine's id; it is deleted by its token then.
            assert_eq!(machine["id"].as_str().unwrap_or(&id), id);
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
        let sources = listed["sources"].as_array().expect("sources");
        let months: u64 = sources.iter().filter_map(|of| of["month"].as_u64()).sum();
        assert_eq!(months, sum, "all of it is this month's");
        let idle: u64 = sources.iter().filter_map(|of| of["idle"].as_u64()).sum();
        // What the jobs had is not idle; the rest is.
        assert!(idle > 0 && idle <= months, "the bill is {months}: idle {idle}");
    }
}

pub(super) fn text(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}")).to_owned()
}

pub(super) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
