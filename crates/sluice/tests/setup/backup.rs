//! A backup of a running cluster, and what a cluster that was restored from it does.

use super::power::PowerCluster;
use crate::harness::processes::supervisors;
use crate::harness::{Cluster, TWO_NODES, is_alive, program, signal, until};
use std::os::unix::fs::{PermissionsExt, symlink};

/// Writes its pid, and ends when NAME.go is there.
fn waits(name: &str) -> String {
    format!("echo $$ >> {name}.pids; until [ -e {name}.go ]; do sleep 0.05; done")
}

fn submit_waits(cluster: &Cluster, name: &str, options: &[&str]) -> u32 {
    let script = waits(name);
    let mut args = vec!["-J", name, "-o", "/dev/null"];
    args.extend(options);
    args.extend(["--wrap", &script]);
    cluster.submit(&args)
}

/// The pid that the job's last run wrote.
fn pid(cluster: &Cluster, name: &str, runs: usize) -> i32 {
    let text = cluster.await_file(&format!("{name}.pids"), |text| text.lines().count() == runs);
    text.lines().last().unwrap().parse().unwrap()
}

fn backup(cluster: &Cluster) -> String {
    let file = cluster.path("backup.tar").display().to_string();
    cluster.sluice(&["backup", &file]).ok();
    file
}

/// `sluice restore`; the first id that is given out from now on.
fn restore(cluster: &Cluster, file: &str, state: &str) -> u32 {
    let said = cluster.sluice(&["restore", file, "--state", state]).ok();
    let line = said.lines().next().unwrap_or_default();
    line.rsplit(' ').next().unwrap().parse().expect("the next id")
}

/// The accounting of all ended jobs.
fn books(cluster: &Cluster) -> String {
    let columns = "JobID,JobName,State,ExitCode,Start,End,AllocTRES,Account,User";
    let states = "CD,F,CA,NF";
    cluster
        .sluice(&["sacct", "-n", "-P", "-a", "-S", "2026-01-01", "-s", states, "-o", columns])
        .ok()
}

#[test]
fn up_cluster_is_restored_from_its_backup_after_the_machine_is_lost() {
    let cluster = Cluster::up(TWO_NODES);
    for exit in [0, 3] {
        let ended = cluster.submit(&["-o", "/dev/null", "--wrap", &format!("exit {exit}")]);
        cluster.await_end(ended);
    }
    let requeued = submit_waits(&cluster, "requeued", &[]);
    let once = submit_waits(&cluster, "once", &["--no-requeue"]);
    let held = submit_waits(&cluster, "held", &["--hold"]);
    let array = cluster.submit(&["--hold", "-a", "0-9", "-o", "/dev/null", "--wrap", "true"]);
    pid(&cluster, "requeued", 1);
    pid(&cluster, "once", 1);
    let before = books(&cluster);
    let file = backup(&cluster);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let later = submit_waits(&cluster, "later", &[]);
    pid(&cluster, "later", 1);

    // The machine is lost: every process, and the whole folder.
    for of in ["server", "agent"] {
        cluster.kill(of);
    }
    let state = cluster.state();
    supervisors(&state).into_iter().for_each(|pid| signal(pid, "KILL"));
    for (name, runs) in [("requeued", 1), ("once", 1), ("later", 1)] {
        signal(pid(&cluster, name, runs), "KILL");
    }
    std::fs::remove_dir_all(&state).unwrap();
    let next = restore(&cluster, &file, state.to_str().unwrap());
    assert!(next > later + 100_000, "ids that may have been given out are left out: {next}");
    cluster.start();

    // What was acknowledged up to the backup is there, and what came after it is not.
    assert_eq!(
        cluster.await_end(once),
        "NODE_FAIL|0:0",
        "a job that may run once is not run again"
    );
    pid(&cluster, "requeued", 2);
    assert_eq!(cluster.read("once.pids").lines().count(), 1);
    let now = books(&cluster);
    let kept: Vec<&str> = now.lines().filter(|line| !line.contains("|once|")).collect();
    let kept: Vec<&str> =
        kept.into_iter().filter(|line| !line.starts_with(&format!("{once}."))).collect();
    assert_eq!(kept, before.lines().collect::<Vec<_>>(), "the books are those of the backup");
    let listed = cluster.sluice(&["squeue", "-h", "-o", "%A %j %T"]).ok();
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    let (held_line, array_line) = (format!("{held} held PENDING"), format!("{array} wrap PENDING"));
    let mut expected = vec![format!("{requeued} requeued RUNNING"), held_line, array_line];
    expected.sort_unstable();
    assert_eq!(listed, expected);

    // The blobs: a script from before the backup runs. New jobs run, under new ids.
    cluster.shell(&format!("scontrol release {held}; scontrol release {array}")).ok();
    for name in ["held", "requeued"] {
        cluster.write(&format!("{name}.go"), "");
    }
    for job in [held, requeued] {
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    }
    let new = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert!(new >= next, "job {new} has an id that may have been another's");
    assert_eq!(cluster.await_end(new), "COMPLETED|0:0");

    // Another start, and a backup of the restored cluster.
    cluster.kill("server");
    cluster.start();
    assert!(cluster.submit(&["-o", "/dev/null", "--wrap", "true"]) > new);
    std::fs::remove_file(&file).unwrap();
    backup(&cluster);
}

/// The server's machine is lost, and the nodes go on.
#[test]
fn up_nodes_follow_a_server_that_was_restored_from_a_backup() {
    let cluster = Cluster::up(TWO_NODES);
    let running = submit_waits(&cluster, "running", &[]);
    let ended = submit_waits(&cluster, "ended", &["--no-requeue"]);
    let waiting = submit_waits(&cluster, "waiting", &["--hold"]);
    let (first, _) = (pid(&cluster, "running", 1), pid(&cluster, "ended", 1));
    // Several starts of the server, so that terms must go far beyond.
    let file = backup(&cluster);
    for _ in 0..3 {
        cluster.kill("server");
        cluster.start();
    }
    cluster.write("ended.go", "");
    assert_eq!(cluster.await_end(ended), "COMPLETED|0:0");
    cluster.shell(&format!("scontrol release {waiting}")).ok();
    let later = submit_waits(&cluster, "later", &[]);
    let lost = [pid(&cluster, "waiting", 1), pid(&cluster, "later", 1)];

    cluster.kill("server");
    std::fs::remove_dir_all(cluster.state().join("server")).unwrap();
    let other = cluster.path("restored");
    restore(&cluster, &file, other.to_str().unwrap());
    std::fs::rename(other.join("server"), cluster.state().join("server")).unwrap();
    cluster.start();

    // A job that both know goes on; those that the server does not know as started are ended.
    until("jobs that began after the backup are ended", || {
        lost.iter().all(|pid| !is_alive(*pid)).then_some(())
    });
    assert!(cluster.state_of(running).starts_with("RUNNING"));
    assert!(is_alive(first), "job {running} went on");
    assert_eq!(cluster.await_end(ended), "NODE_FAIL|0:0", "its end came after the backup");
    assert!(cluster.state_of(later).is_empty(), "job {later} came after the backup");
    assert_eq!(cluster.state_of(waiting), "PENDING|JobHeldUser");
    // The same attempt of the same job is taken by the node that had it before.
    cluster.shell(&format!("scontrol release {waiting}")).ok();
    pid(&cluster, "waiting", 2);
    for name in ["waiting", "running"] {
        cluster.write(&format!("{name}.go"), "");
    }
    for job in [waiting, running] {
        assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    }
    assert_eq!(cluster.read("running.pids").lines().count(), 1);
    assert_eq!(cluster.read("ended.pids").lines().count(), 1);
}

const TWO_MACHINES: &str = "\
ClusterName=two
SlurmdParameters=config_overrides
DefMemPerCPU=16
KillWait=1 AuthInfo=cred_expire=0
NodeName=a CPUs=2 RealMemory=500
NodeName=b CPUs=2 RealMemory=500
PartitionName=main Nodes=a,b Default=YES State=UP
";

/// A job waits when the backup is made, starts on one node, and that node is away when the restored server begins.
#[test]
fn up_job_of_a_backup_does_not_run_twice_while_its_node_is_away() {
    let mut site = PowerCluster::up_with(TWO_MACHINES);
    for node in ["a", "b"] {
        site.start_agent(node, &[]);
        site.await_node(node, "idle");
    }
    let job = submit_waits(site.cluster(), "job", &["--hold"]);
    let file = backup(site.cluster());
    let release = format!("scontrol release {job}");
    let drain = "scontrol update nodename=a state=drain reason=test";
    site.cluster().shell(&format!("{drain} && {release}")).ok();
    let first = pid(site.cluster(), "job", 1);
    site.stop_agent("b");
    site.kill_server();
    let (cluster, other) = (site.cluster(), site.cluster().path("restored"));
    std::fs::remove_dir_all(cluster.state().join("server")).unwrap();
    restore(cluster, &file, other.to_str().unwrap());
    std::fs::rename(other.join("server"), cluster.state().join("server")).unwrap();
    site.start_server();
    site.await_node("a", "idle");

    site.cluster().shell(&release).ok();
    let reason = "PENDING|ReqNodeNotAvail, Nodes have not reported since a restore";
    site.cluster().await_state(job, reason);
    let new = site.cluster().submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(site.cluster().await_end(new), "COMPLETED|0:0", "a new job may start");
    assert!(is_alive(first) && site.cluster().state_of(job) == reason, "job {job} runs once");
    site.start_agent("b", &[]);
    pid(site.cluster(), "job", 2);
    assert!(!is_alive(first), "what began after the backup was ended first");
    site.cluster().write("job.go", "");
    assert_eq!(site.cluster().await_end(job), "COMPLETED|0:0");
}

#[test]
fn up_bad_backups_and_used_folders_are_refused_and_nothing_is_changed() {
    let cluster = Cluster::up(TWO_NODES);
    let file = backup(&cluster);
    let again = cluster.sluice(&["backup", &file]);
    let said = format!(
        "sluice: error: {file} exists already: a backup is written to a new file, so name another one\n"
    );
    assert_eq!((again.code, again.stderr), (1, said));
    let bytes = std::fs::read(&file).unwrap();
    let piped = cluster.command(&["backup", "-", "--without-keys"]).output().unwrap();
    assert!(piped.status.success() && piped.stdout.len() > 1000);
    assert!(!piped.stdout.windows(11).any(|part| part == b"keys/order."), "no key was asked for");
    assert!(bytes.windows(11).any(|part| part == b"keys/order."));
    let names: Vec<String> = std::fs::read_dir(cluster.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.contains("partial")), "{names:?}");

    let state = cluster.path("other");
    let try_restore = |content: &[u8], words: &str| {
        let bad = cluster.path("bad.tar");
        std::fs::write(&bad, content).unwrap();
        let args = ["restore", bad.to_str().unwrap(), "--state", state.to_str().unwrap()];
        let said = cluster.sluice(&args);
        assert_eq!(said.code, 1, "{words}");
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        assert!(said.stderr.contains(words), "{}", said.stderr);
        assert!(!state.exists(), "nothing is left of it: {words}");
    };
    try_restore(b"", "cut short or changed");
    try_restore(&bytes[..bytes.len() / 2], "cut short or changed");
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    try_restore(&changed, "cut short or changed");

    // A cluster's folder, and one with a link in it.
    let used = cluster.state();
    let args = ["restore", &file, "--state", used.to_str().unwrap()];
    let said = cluster.sluice(&args);
    assert!(said.code == 1 && said.stderr.contains("is not empty"), "{}", said.stderr);
    std::fs::create_dir_all(&state).unwrap();
    symlink(cluster.path("work"), state.join("server")).unwrap();
    let args = ["restore", &file, "--state", state.to_str().unwrap()];
    let said = cluster.sluice(&args);
    assert!(said.code == 1 && said.stderr.contains("is not empty"), "{}", said.stderr);
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "the cluster is as it was");
}

/// Submits go on while backups are made, and each backup is whole.
#[test]
fn up_backup_is_consistent_while_jobs_come_and_end() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_SNAPSHOT_EVENTS", "40")]);
    let line =
        "for i in $(seq 60); do sbatch --parsable -o /dev/null --wrap \"echo $i\" >> ids; done";
    let mut submits = cluster.spawn_shell(line);
    let mut last = 0;
    for round in 0..4 {
        let wanted = 10 * (round + 1);
        cluster.await_file("ids", |text| text.lines().count() >= wanted);
        let acknowledged = cluster.read("ids").lines().count();
        let file = cluster.path(&format!("backup{round}")).display().to_string();
        cluster.sluice(&["backup", &file]).ok();
        let state = cluster.path(&format!("state{round}"));
        let said = cluster.sluice(&["restore", &file, "--state", state.to_str().unwrap()]).ok();
        let jobs: usize =
            said.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(jobs >= acknowledged && jobs >= last, "{acknowledged} were acknowledged: {said}");
        last = jobs;
    }
    assert!(submits.wait().unwrap().success());
}

#[test]
fn root_backup_is_not_for_other_users() {
    if !nix::unistd::geteuid().is_root() {
        return crate::harness::skip("root", "another user asks");
    }
    let cluster = Cluster::up(TWO_NODES);
    for options in ["", "--without-keys"] {
        let said = cluster.shell_as("games", &format!("{} backup stolen {options}", program()));
        assert_eq!(said.code, 1);
        assert!(said.stderr.contains("access denied"), "{}", said.stderr);
        assert!(!cluster.path("work").join("stolen").exists());
    }
    let mine = cluster.shell_as("games", &format!("{} version", program())).ok();
    assert!(mine.contains("\nserver: ") && !mine.contains("agents"), "{mine}");
}
