//! Machines on demand, made by the example program of docs/machines.md: agents on this machine.

use super::power::PowerCluster;
use crate::harness::{Cluster, is_alive, program, until};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const PROGRAM: &str = include_str!("../../../../examples/local_machines.py");

pub(super) const CONF: &str = "\
ClusterName=machines
SlurmdParameters=config_overrides
DefMemPerCPU=16
KillWait=1 AuthInfo=cred_expire=0
MaxNodeCount=20
NodeSet=cloud Feature=cloud
PartitionName=cloud Nodes=cloud Default=YES State=UP DefaultTime=01:00:00
";

/// Runs a test of this program once more, as an ordinary user.
fn run_as_ordinary_user(name: &str) {
    run_as_ordinary_user_with(name, &[]);
}

/// The same with these variables.
pub(super) fn run_as_ordinary_user_with(name: &str, variables: &[(&str, &str)]) {
    let user = nix::unistd::User::from_name("nobody").expect("users").expect("nobody");
    let ids = [format!("--reuid={}", user.uid), format!("--regid={}", user.gid)];
    let itself = std::env::current_exe().expect("this program");
    let mut command = std::process::Command::new("setpriv");
    command.args(ids).arg("--clear-groups").arg(itself);
    // The long runs are ignored otherwise.
    command.args([name, "--exact", "--nocapture", "--include-ignored"]);
    command.envs(variables.iter().copied());
    let status = command.env("HOME", "/").status().expect("setpriv");
    assert!(status.success(), "as an ordinary user: {status}");
}

/// A cluster without a node of its own, and a source of at most two machines of one CPU.
struct Site {
    cluster: PowerCluster,
    folder: PathBuf,
}

impl Site {
    fn up() -> Self {
        Self::up_of(CONF, "")
    }

    fn up_of(conf: &str, more: &str) -> Self {
        let cluster = Cluster::folder(conf);
        let script = cluster.path("bin/make.py");
        std::fs::write(&script, PROGRAM).expect("the program");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("a mode");
        let settings = serde_json::json!({
            "sluice": program(),
            "folder": cluster.path("made"),
            "offers": [
                {"id": "large", "cpus": 8, "memory_mib": 400, "price": 10},
                {"id": "small", "cpus": 1, "memory_mib": 200, "price": 3.6},
            ],
        });
        std::fs::write(cluster.path("bin/make.json"), settings.to_string()).expect("its settings");
        Self::with_source(cluster, &script.display().to_string(), "80s", more)
    }

    fn with_source(cluster: Cluster, script: &str, boot: &str, more: &str) -> Self {
        let source = format!(
            "[[source]]\nname = 'cloud'\nprogram = '{script}'\nmachines = 2\nidle = '2s'\nboot = '{boot}'\nbudget_per_month = 100\n{more}"
        );
        cluster.write_conf("sluice.toml", &source);
        let folder = cluster.path("made");
        Self { cluster: PowerCluster::up_in(cluster, "127.0.0.1:0"), folder }
    }

    fn shell(&self, line: &str) -> crate::harness::CommandOutput {
        self.cluster.cluster().shell(line)
    }

    /// Submits once the source has told what it offers: before that nothing could hold the job.
    fn submit(&self, wrap: &str) -> u32 {
        until("a job is taken", || {
            let said = self.shell(&format!("sbatch --parsable -n 1 --wrap '{wrap}'"));
            // Machines are made for the partition: that it has no node yet is nothing to note.
            assert!(!said.stderr.contains("gives a job at most"), "{}", said.stderr);
            said.stdout.trim().parse().ok()
        })
    }

    /// The tokens of the program's log that were made, or deleted.
    fn logged(&self, what: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines = log.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(did, _)| *did == what).map(|(_, token)| token.to_owned()).collect()
    }

    /// The books have the machines of the program's log, all of them gone and paid for.
    fn compare_books(&self, made: &[String]) {
        let listed = || {
            let said = self.cluster.cluster().sluice(&["machine", "list", "--json"]).ok();
            serde_json::from_str::<serde_json::Value>(&said).expect("JSON")
        };
        let machines = until("all of them are gone", || {
            let machines = listed()["machines"].as_array().expect("machines").clone();
            machines.iter().all(|of| of["machine"]["phase"] == "gone").then_some(machines)
        });
        let text = |of: &serde_json::Value, key: &str| of[key].as_str().map(str::to_owned);
        let mut tokens: Vec<String> =
            machines.iter().filter_map(|of| text(&of["machine"], "token")).collect();
        let mut expected = made.to_vec();
        tokens.sort_unstable();
        expected.sort_unstable();
        assert_eq!(tokens, expected);
        let mut costs = 0;
        for of in &machines {
            let machine = &of["machine"];
            assert_eq!(text(&machine["offer"], "id").as_deref(), Some("small"), "the cheapest");
            let time = |key: &str| machine[key].as_u64().expect("a time");
            // Thousandths of a dollar a second, in millionths for each millisecond.
            assert_eq!(of["cost"].as_u64(), Some(time("gone") - time("made")));
            costs += time("gone") - time("made");
        }
        let source = &listed()["sources"][0];
        assert_eq!((source["machines"].as_u64(), source["month"].as_u64()), (Some(0), Some(costs)));
        let shown = self.cluster.cluster().sluice(&["machine", "list", "--all"]).ok();
        assert!(shown.contains("0/2") && shown.contains("gone"), "{shown}");
    }

    fn records(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.join("machines")).into_iter().flatten();
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

impl Drop for Site {
    /// A test that failed leaves agents behind.
    fn drop(&mut self) {
        for path in self.records() {
            if let Some(pid) = pid_of(&path) {
                let group = nix::unistd::Pid::from_raw(pid);
                let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
}

fn pid_of(record: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(record).ok()?;
    let record: serde_json::Value = serde_json::from_str(&text).ok()?;
    i32::try_from(record["pid"].as_i64()?).ok()
}

#[test]
fn up_queue_is_served_by_machines_that_are_made_for_it_and_none_is_forgotten() {
    // A server of root's gives root up, and the agents that its program starts could run nobody's jobs.
    if nix::unistd::getuid().is_root() {
        let name =
            "machines::up_queue_is_served_by_machines_that_are_made_for_it_and_none_is_forgotten";
        return run_as_ordinary_user(name);
    }
    let mut site = Site::up();
    let refused = |site: &Site| site.shell("sbatch --parsable -n 1 -c 64 --wrap true");
    let jobs: Vec<u32> = (0..6)
        .map(|_| site.submit("while [ ! -e go ]; do sleep 0.05; done; echo $SLURM_JOB_ID >> ran"))
        .collect();
    assert_ne!(refused(&site).code, 0, "no offer has so many CPUs");
    until("the last job is held back by the limit", || {
        let said = site.shell(&format!("{} explain {}", program(), jobs[5])).stdout;
        said.contains("it has 2 machines, as many as it may have").then_some(())
    });
    until("a machine is asked for", || (!site.logged("create").is_empty()).then_some(()));
    site.cluster.kill_server();
    site.cluster.start_server();
    site.cluster.cluster().write("go", "");
    site.cluster.cluster().await_state(jobs[1], "COMPLETED");
    site.cluster.kill_server();
    site.cluster.start_server();
    for job in &jobs {
        assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    }
    let ran = site.cluster.cluster().read("ran");
    let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().expect("a job")).collect();
    ran.sort_unstable();
    assert_eq!(ran, jobs, "every job ran once");
    until("the machines end at zero", || site.records().is_empty().then_some(()));
    until("their nodes are gone", || {
        site.shell("sinfo -h -N -o %N").stdout.trim().is_empty().then_some(())
    });
    let made = site.logged("create");
    let tokens: BTreeSet<&String> = made.iter().collect();
    assert_eq!(tokens.len(), made.len(), "a token is one machine");
    let deleted = site.logged("delete");
    assert_eq!(deleted.iter().collect::<BTreeSet<_>>(), tokens);
    site.compare_books(&made);
}

#[test]
fn up_fleet_of_machines_is_applied_serves_a_job_and_is_deleted() {
    if nix::unistd::getuid().is_root() {
        let name = "machines::up_fleet_of_machines_is_applied_serves_a_job_and_is_deleted";
        return run_as_ordinary_user(name);
    }
    let site = Site::up();
    let cluster = site.cluster.cluster();
    let fleet = "type: fleet\nname: burst\nnodes: 0..1\nidle_duration: 2s\n";
    cluster.write("fleet.dstack.yml", fleet);
    let applied = cluster.sluice(&["apply", "-f", "fleet.dstack.yml", "-y"]).ok();
    assert!(applied.contains("0..1") && applied.contains("cloud"), "{applied}");
    let job: u32 = until("a job is taken", || {
        let said = site.shell("sbatch --parsable -p burst -n 1 --wrap true");
        said.stdout.trim().parse().ok()
    });
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let books = site.shell(&format!("sacct -nXP -j {job} -o NodeList,AllocTRES")).stdout;
    assert!(books.starts_with("burst-1|") && books.contains("cost=3.6"), "{books}");
    until("the machine was idle and is gone", || site.records().is_empty().then_some(()));
    let deleted = cluster.sluice(&["fleet", "delete", "burst", "-y"]);
    assert_eq!(deleted.code, 0, "{deleted:?}");
    assert_ne!(site.shell("sbatch -p burst --wrap true").code, 0, "its partition is gone");
}

#[test]
fn up_run_is_offered_machines_and_waits_for_the_one_that_is_made_for_it() {
    if nix::unistd::getuid().is_root() {
        let name = "machines::up_run_is_offered_machines_and_waits_for_the_one_that_is_made_for_it";
        return run_as_ordinary_user(name);
    }
    let site = Site::up();
    let cluster = site.cluster.cluster();
    let first = until("the source has told what it offers", || {
        let said = cluster.sluice(&["offer", "--cpu", "1..", "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        (listed["total_offers"] == 2).then(|| listed["offers"][0].clone())
    });
    assert_eq!((&first["node"], &first["price"]), (&"small".into(), &3.6.into()), "{first}");
    assert_eq!(first["availability"], "available", "{first}");
    let small = "resources: {cpu: 1.., memory: 16MB.., disk: 0GB..}\n";
    let task = format!("type: task\nname: one\ncommands: ['sleep 1.1']\n{small}");
    cluster.write("task.dstack.yml", &task);
    let applied = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    until("it has run on its machine", || {
        let said = site.shell("sacct -nXP -o JobName,State,NodeList,AllocTRES").stdout;
        said.contains("one|COMPLETED|cloud-1|").then_some(()).filter(|()| said.contains("cost="))
    });
    let listed = cluster.sluice(&["ps", "-a", "--json"]).ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert!(listed["runs"][0]["cost"].as_f64().is_some_and(|cost| cost > 0.0), "{listed}");
    let shown = cluster.sluice(&["ps", "-a", "-v"]).ok();
    assert!(shown.contains("COST") && shown.contains("$0.00"), "{shown}");
    // A region that no offer has is refused in one line, and makes nothing.
    cluster.write("task.dstack.yml", &format!("{task}regions: [nowhere]\n"));
    let refused = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert_eq!(site.logged("create").len(), 1);
}

#[test]
fn up_cloud_node_of_slurm_conf_is_made_by_its_source_and_deleted_when_it_is_idle() {
    if nix::unistd::getuid().is_root() {
        let name = "machines::up_cloud_node_of_slurm_conf_is_made_by_its_source_and_deleted_when_it_is_idle";
        return run_as_ordinary_user(name);
    }
    let conf = "\
ClusterName=machines
SlurmdParameters=config_overrides
DefMemPerCPU=16
KillWait=1 AuthInfo=cred_expire=0
SuspendTimeout=5
SlurmctldParameters=power_save_interval=1
NodeName=c1 CPUs=1 RealMemory=200 Feature=small State=CLOUD
PartitionName=cloud Nodes=c1 Default=YES State=UP DefaultTime=01:00:00
";
    let site = Site::up_of(conf, "nodes = 'c1'\n");
    let node = || site.shell("sinfo -h -N -o '%N %t'").stdout;
    until("there is no machine", || node().contains("c1 idle~").then_some(()));
    until("the source has told what it offers", || {
        let said = site.cluster.cluster().sluice(&["machine", "list", "--json"]).ok();
        let listed: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        (listed["sources"][0]["offers"] == 2).then_some(())
    });
    let job = site.submit("true");
    assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    let books = site.shell(&format!("sacct -nXP -j {job} -o NodeList,AllocTRES")).stdout;
    assert!(books.starts_with("c1|") && books.contains("cost=3.6"), "{books}");
    until("the machine was idle and is gone", || site.records().is_empty().then_some(()));
    until("its node is powered down", || node().contains("c1 idle~").then_some(()));
    assert_eq!(site.logged("create").len(), 1);
}

#[test]
fn up_provider_program_that_lies_harms_its_own_machines_alone() {
    let cluster = Cluster::folder(CONF);
    let log = cluster.path("work/calls").display().to_string();
    let script = cluster.write_program(
        "make",
        &format!(
            "read -r request\n\
             case $request in\n\
             *'\"call\":\"offers\"'*) echo '{{\"offers\":[{{\"id\":\"small\",\"cpus\":1,\"memory_mib\":200,\"price\":1}},{{\"id\":\"paid\",\"cpus\":9,\"memory_mib\":200,\"price\":-1}}]}}';;\n\
             *'\"call\":\"create\"'*) echo '{{\"machine\":{{\"token\":\"another\",\"id\":\"i-1\"}}}}';;\n\
             *'\"call\":\"describe\"'*) echo '{{\"machines\":[{{\"token\":\"nobodys\",\"id\":\"i-9\"}}]}}';;\n\
             *'\"call\":\"delete\"'*) echo delete >> {log}; echo '{{\"deleted\":true}}';;\n\
             esac"
        ),
    );
    let site = Site::with_source(cluster, &script, "1s", "");
    let job = site.submit("true");
    let large = site.shell("sbatch -n 1 -c 9 --wrap true");
    assert_ne!(large.code, 0, "an offer of a negative price is none");
    let listed = until("a machine failed", || {
        let listed = site.cluster.cluster().sluice(&["machine", "list", "--all"]).ok();
        listed.contains("failed").then_some(listed)
    });
    assert!(listed.contains("cloud-1"), "{listed}");
    assert!(
        site.cluster.cluster().read("calls").contains("delete"),
        "what may be there is deleted"
    );
    until("the stranger is told of", || {
        site.cluster.log().contains("ALARM: source cloud has machine i-9").then_some(())
    });
    assert!(site.cluster.cluster().state_of(job).starts_with("PENDING|Resources"));
    let said = site.cluster.cluster().sluice(&["machine", "delete", "cloud-99"]);
    assert!(said.code != 0 && said.stderr.contains("cloud-99"), "{said:?}");
}

/// Calls of a program that never answers, by the file that it writes its process ids into.
struct HangingCalls(PathBuf);

impl HangingCalls {
    fn pids(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }
}

impl Drop for HangingCalls {
    /// Each is a process group of its own, and outlives a server that was killed.
    fn drop(&mut self) {
        for pid in self.pids() {
            let group = nix::unistd::Pid::from_raw(pid);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

#[test]
fn up_provider_program_that_hangs_holds_up_no_other_source() {
    if nix::unistd::getuid().is_root() {
        let name = "machines::up_provider_program_that_hangs_holds_up_no_other_source";
        return run_as_ordinary_user(name);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (script, calls) = (folder.path().join("hang"), folder.path().join("calls"));
    let text = format!("#!/bin/sh\necho $$ >> {}\nexec sleep 600\n", calls.display());
    std::fs::write(&script, text).expect("the program");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("a mode");
    let calls = HangingCalls(calls);
    let hangs = format!(
        "[[source]]\nname = 'hangs'\nprogram = '{}'\nfeatures = ['cloud']\nmachines = 2\ncall_limit = '10m'\n",
        script.display()
    );
    let site = Site::up_of(CONF, &hangs);
    // What it offers and what it has are asked for at once.
    let hanging = until("it is called", || Some(calls.pids()).filter(|pids| pids.len() >= 2));
    let job = site.submit("true");
    assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    assert!(hanging.iter().all(|pid| is_alive(*pid)), "its calls go on all the while");
}
