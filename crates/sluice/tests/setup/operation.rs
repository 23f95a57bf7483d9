//! What an on-call engineer has of a running cluster: the log's story, signals, and an agent that is brought back.

use crate::harness::processes::supervisors;
use crate::harness::{Cluster, is_alive, signal, until};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
NodeName=node1 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
";

/// The lines of the server's log with this text.
fn lines(cluster: &Cluster, text: &str) -> Vec<String> {
    let log = cluster.log("server");
    log.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}

#[test]
fn up_log_tells_of_jobs_nodes_configuration_and_recovery() {
    let cluster = Cluster::up(CONF);
    let job = cluster.submit(&["-J", "train", "--wrap", "exit 3"]);
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    let refused = cluster.sluice(&["sbatch", "-a", "0-5000", "--wrap", "true"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    cluster.shell("scontrol update NodeName=node1 State=DRAIN Reason='bad disk'").ok();
    cluster.shell("scontrol update NodeName=node1 State=RESUME").ok();
    cluster.shell(&format!("scontrol requeuehold {job}")).ok();
    let (user, uid) = (crate::harness::user_name(), nix::unistd::geteuid());
    for (text, parts) in [
        ("state recovered", vec!["jobs=0", "took_ms="]),
        ("configuration changed", vec!["nodes=1", "cluster=\"test\""]),
        ("node up", vec!["node=\"node1\""]),
        ("job submitted", vec!["job=1 ", "name=\"train\"", &*format!("user=\"{user}\"")]),
        ("job started", vec!["job=1 ", "nodes=\"node1\"", "cpus=1"]),
        ("job ended", vec!["job=1 ", "state=\"FAILED\"", "exit=3:0"]),
        ("ended job requeued", vec!["job=1 ", "held=true", &*format!("by_uid={uid}")]),
        ("limit reached", vec!["MaxArraySize", "5000 asked", &*format!("user=\"{user}\"")]),
        ("node taken out", vec!["node=\"node1\"", "reason=\"bad disk\"", "state=Drain"]),
        ("node resumed", vec!["node=\"node1\""]),
    ] {
        let line = until(text, || lines(&cluster, text).into_iter().next());
        assert!(parts.iter().all(|part| line.contains(part)), "{parts:?} in {line}");
    }
    // After a kill the keeper starts the server again, and the log says with what.
    cluster.kill_alone("server");
    cluster.shell("sinfo").ok();
    let again = until("the second start", || lines(&cluster, "state recovered").into_iter().nth(1));
    assert!(again.contains("jobs=1"), "{again}");
}

#[test]
fn up_partition_is_created_used_and_deleted() {
    let cluster = Cluster::up(CONF);
    let scontrol = |line: &str| cluster.shell(&format!("scontrol {line}"));
    let shown = || {
        let all = cluster.sluice(&["sinfo", "-h", "-o", "%R %N %l"]).ok();
        all.lines().find(|line| line.starts_with("new ")).map(str::to_owned)
    };
    let there = Some("new node1 10:00".to_owned());
    scontrol("create PartitionName=new Nodes=node1 MaxTime=10").ok();
    assert_eq!(shown(), there);
    let job = cluster.submit(&["-p", "new", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(job, "RUNNING");
    let refused = scontrol("delete PartitionName=new");
    assert_eq!((refused.code, shown()), (1, there.clone()), "{}", refused.stderr);
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    // It is there after a restart too.
    cluster.sluice(&["down"]).ok();
    cluster.start();
    assert_eq!(shown(), there);
    scontrol("delete PartitionName=new").ok();
    assert_eq!(shown(), None);
    let wrong = scontrol("create partition=other Nodes=node9");
    assert_eq!((wrong.code, wrong.stdout.as_str()), (1, ""));
    assert!(wrong.stderr.contains("Nodes: \"node9\""), "{}", wrong.stderr);
}

#[test]
fn up_setdebug_changes_how_much_a_running_server_logs() {
    let cluster = Cluster::up(CONF);
    let submitted = |name: &str| {
        cluster.submit(&["-H", "-J", name, "--wrap", "true"]);
    };
    cluster.shell("scontrol setdebug error").ok();
    submitted("silent");
    cluster.shell("scontrol setdebug 3").ok();
    submitted("spoken");
    until("the line of the second job", || lines(&cluster, "name=\"spoken\"").into_iter().next());
    assert!(lines(&cluster, "name=\"silent\"").is_empty(), "{}", cluster.log("server"));
    assert_eq!(lines(&cluster, "log level set").len(), 2);
    let wrong = cluster.shell("scontrol setdebug loud");
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("invalid debug level: loud"), "{}", wrong.stderr);
}

#[test]
fn up_log_is_json_where_that_is_asked_for() {
    let cluster = Cluster::folder(CONF);
    cluster.start_with(&[("SLUICE_LOG_FORMAT", "json")]);
    cluster.submit(&["-J", "a\"b", "--wrap", "true"]);
    let line = until("the line", || lines(&cluster, "job submitted").into_iter().next());
    let line: serde_json::Value = serde_json::from_str(&line).expect("an object");
    assert_eq!((&line["message"], &line["name"]), (&"job submitted".into(), &"a\"b".into()));
    assert_eq!((&line["job"], &line["level"]), (&"1".into(), &"INFO".into()));
}

/// Makes a file readable for the server's user alone. A server of root's has given root up.
fn give_to_server(cluster: &Cluster, path: &Path) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid("server")));
    let status = status.expect("the server's process");
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let id = ids.and_then(|ids| ids.split_whitespace().next()?.parse().ok());
    std::os::unix::fs::chown(path, Some(id.expect("a user id")), None).expect("its owner");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).expect("its mode");
}

#[test]
fn up_hangup_reads_the_configuration_again_and_ends_nothing() {
    let cluster = Cluster::up(CONF);
    let daemons = ["server", "server-keeper", "agent", "keeper"];
    let before: Vec<i32> = daemons.iter().map(|of| cluster.pid(of)).collect();
    let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let names: String = before.iter().map(name).collect();
    assert_eq!(names, "sluice-server\nsluice-keeper\nsluice-agent\nsluice-keeper\n");
    let partitions = || cluster.shell("sinfo -h -o %R").ok();
    assert_eq!(partitions(), "main\n");
    for (number, of) in daemons.iter().take(2).enumerate() {
        let more = format!("{CONF}PartitionName=more{number} Nodes=node1\n");
        cluster.write_conf("slurm.conf", &more);
        signal(cluster.pid(of), "HUP");
        until("the partition", || partitions().contains(&format!("more{number}")).then_some(()));
    }
    // A backend that is refused does not hold the rest of the configuration up, and the log does not say that it does.
    cluster.write_conf("slurm.conf", &format!("{CONF}PartitionName=beside Nodes=node1\n"));
    let keyless = "{type: lambda, regions: [us-west-1], ssh_key: lab}";
    let file = format!("projects: [{{name: main, backends: [{keyless}]}}]\n");
    cluster.write_conf("config.yml", &file);
    give_to_server(&cluster, &cluster.path("conf").join("config.yml"));
    signal(cluster.pid("server"), "HUP");
    let refused = "the configuration is in force, except for a backend: config.yml: project main: \
                   backend: creds: missing";
    let line = until("the line", || lines(&cluster, refused).into_iter().next());
    assert!(line.contains("SIGHUP: ") && partitions().contains("beside"), "{line}");
    assert!(lines(&cluster, "stays as it was").is_empty(), "{}", cluster.log("server"));
    let said = cluster.shell("scontrol reconfigure");
    assert!(said.code != 0 && said.stderr.contains(refused), "{said:?}");
    // A configuration that cannot be read changes nothing, and the log says so.
    cluster.write_conf("slurm.conf", "Nonsense=1\n");
    signal(cluster.pid("server"), "HUP");
    until("the error", || lines(&cluster, "configuration stays as it was").into_iter().next());
    signal(cluster.pid("agent"), "HUP");
    signal(cluster.pid("keeper"), "HUP");
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(daemons.map(|of| cluster.pid(of)).to_vec(), before, "nobody was started again");
    assert!(before.iter().all(|pid| is_alive(*pid)));
}

#[test]
fn up_ps_shows_which_job_a_supervisor_has() {
    let cluster = Cluster::up(CONF);
    let job = cluster.submit_sleeper("-t 10");
    cluster.await_state(job, "RUNNING");
    let line = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
    let expected = format!("sluice: supervisor job {job}\0");
    until("it says so", || {
        let mut lines = supervisors(&cluster.state()).into_iter().flat_map(line);
        lines.any(|line| line.starts_with(&expected)).then_some(())
    });
}

#[test]
fn root_daemons_of_up_go_before_the_jobs_of_their_machine() {
    let cluster = Cluster::up(CONF);
    let job = cluster.submit_sleeper("-t 10");
    cluster.await_state(job, "RUNNING");
    let share = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/autogroup")).unwrap();
    for of in ["server", "agent"] {
        assert!(share(cluster.pid(of)).ends_with(" nice -10\n"), "{of}");
    }
    // The server says that a job runs when its node was told.
    let supervisors = until("its supervisor runs", || {
        Some(supervisors(&cluster.state())).filter(|all| !all.is_empty())
    });
    for pid in supervisors {
        assert!(share(pid).ends_with(" nice 0\n"), "a supervisor");
    }
}

#[test]
fn up_of_a_cluster_whose_agent_is_lost_brings_it_back() {
    let cluster = Cluster::up(CONF);
    cluster.kill("agent");
    let server = cluster.pid("server");
    let said = cluster.try_start();
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stdout.contains("its agent was lost and is started again"), "{}", said.stdout);
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.pid("server"), server, "the server goes on");
    let said = cluster.try_start();
    assert!(said.code != 0 && said.stderr.contains("already"), "{}", said.stderr);
}
