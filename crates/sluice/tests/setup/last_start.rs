//! A state folder that was started before: with the configuration of the last start, with another, and with one that would take
//! nodes or partitions from jobs.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use std::path::Path;

fn up(cluster: &Cluster, more: &[&str]) -> CommandOutput {
    cluster.sluice(&[&["up", "--detach"], more].concat())
}

fn partitions(cluster: &Cluster) -> String {
    cluster.sluice(&["sinfo", "-h", "-o", "%R"]).ok()
}

/// A second folder with this slurm.conf.
fn other_folder(cluster: &Cluster, conf: &str) -> String {
    let folder = cluster.path("other");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("slurm.conf"), conf).expect("a file");
    real(&folder)
}

fn real(path: &Path) -> String {
    path.canonicalize().expect("a path").display().to_string()
}

#[test]
fn up_without_a_configuration_is_the_cluster_of_the_last_start_and_says_so() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["-H", "-p", "debug", "--wrap", "true"]);
    cluster.sluice(&["down"]).ok();
    let said = up(&cluster, &[]);
    let conf = real(&cluster.path("conf"));
    let note = format!(
        "sluice: note: the configuration is that of the last start: {conf} (--no-config starts without one)\n"
    );
    assert_eq!((said.code, said.stderr), (0, note), "{}", cluster.log("server"));
    assert_eq!(partitions(&cluster), "gpu\ndebug\n");
    let shown = cluster.sluice(&["squeue", "-h", "-j", &job.to_string(), "-o", "%P"]).ok();
    assert_eq!(shown, "debug\n");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.sluice(&["down"]).ok();
    let said = up(&cluster, &["--no-config"]);
    let note = format!(
        "sluice: note: the configuration of the last start was {conf}; that of this one is none\n"
    );
    assert_eq!((said.code, said.stderr), (0, note), "{}", cluster.log("server"));
    assert_eq!(partitions(&cluster), "main\n");
    // A start that has said it once is what the next one goes by.
    cluster.sluice(&["down"]).ok();
    let said = up(&cluster, &[]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{}", cluster.log("server"));
}

#[test]
fn up_server_that_crashed_is_started_again_whatever_its_configuration_has_lost() {
    let cluster = Cluster::up(TWO_NODES);
    let waits = cluster.submit(&["-H", "-p", "debug", "--wrap", "true"]).to_string();
    cluster.kill("server");
    let lines = TWO_NODES.lines().filter(|line| !line.contains("=debug"));
    let without: String = lines.map(|line| format!("{line}\n")).collect();
    cluster.write_conf("slurm.conf", &without);
    // Who names another folder is there to be asked.
    let said = up(&cluster, &["--config", &other_folder(&cluster, &without)]);
    assert_eq!(said.code, 1);
    let dropped = "jobs are in partitions debug, which this configuration does not have";
    assert!(said.stderr.contains(&format!("error: {dropped}: name them")), "{}", said.stderr);
    cluster.start();
    let log = cluster.log("server");
    assert!(log.contains(&format!("the server starts all the same: {dropped}")), "{log}");
    assert_eq!(partitions(&cluster), "gpu\n");
    let shown = cluster.sluice(&["squeue", "-h", "-j", &waits, "-o", "%A"]).ok();
    assert_eq!(shown.trim(), waits);
    cluster.sluice(&["scancel", &waits]).ok();
}

/// Nobody is there to mend the files when the keeper starts a server again; a person who starts one is told.
#[test]
fn up_server_that_dies_over_a_broken_configuration_comes_back_with_the_last_that_was_accepted() {
    let cluster = Cluster::up(TWO_NODES);
    let waits = cluster.submit(&["-H", "--wrap", "true"]).to_string();
    // Another one than at the start is in force when the server dies.
    let accepted = TWO_NODES.replace("PartitionName=debug", "PartitionName=short");
    cluster.write_conf("slurm.conf", &accepted);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    assert_eq!(partitions(&cluster), "gpu\nshort\n");
    cluster.write_conf("slurm.conf", "Nonsense\n");
    let killed = cluster.pid("server");
    cluster.kill_alone("server");
    until("another server answers", || {
        let answers = cluster.sluice(&["squeue", "-h", "-o", "%i"]).stdout.trim() == waits;
        (answers && cluster.pid("server") != killed).then_some(())
    });
    assert_eq!(partitions(&cluster), "gpu\nshort\n");
    let words = "the last configuration that was accepted is in force";
    let said = cluster.sluice(&["sinfo"]);
    assert!(said.stderr.starts_with("sinfo: note: ") && said.stderr.contains(words), "{said:?}");
    let said = cluster.sluice(&["doctor"]);
    let told = said.stdout.contains(words) && said.stdout.contains("remedy:     scontrol reconf");
    assert!(said.code == 1 && told, "{said:?}");
    let log = cluster.log("server");
    assert!(log.contains(words) && log.contains("Nonsense"), "{log}");

    cluster.write_conf("slurm.conf", &accepted);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    assert_eq!(cluster.sluice(&["sinfo"]).stderr, "");
    cluster.sluice(&["down"]).ok();
    cluster.write_conf("slurm.conf", "Nonsense\n");
    let said = cluster.try_start();
    assert!(said.code == 1 && said.stderr.contains("Nonsense"), "{said:?}");
    cluster.write_conf("slurm.conf", &accepted);
    cluster.start();
    cluster.sluice(&["scancel", &waits]).ok();
}

/// The process that starts the server again has the configuration of its own start, and a server after it had another.
#[test]
fn up_server_that_dies_over_a_broken_configuration_keeps_the_nodes_that_came_after_the_start() {
    let cluster = Cluster::up(&TWO_NODES.replace("node[1-2]", "node1"));
    let restart = |conf: &str| {
        cluster.write_conf("slurm.conf", conf);
        let killed = cluster.pid("server");
        cluster.kill_alone("server");
        until("another server answers, and both nodes do", || {
            let nodes = cluster.sluice(&["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t"]).stdout;
            let up = nodes == "node1 idle\nnode2 idle\n";
            (up && cluster.pid("server") != killed).then_some(())
        });
    };
    restart(TWO_NODES);
    restart("Nonsense\n");
    let said = cluster.sluice(&["sinfo"]);
    assert!(said.stderr.contains("the last configuration that was accepted"), "{said:?}");
    let job = cluster.submit(&["-w", "node2", "--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0", "{}", cluster.log("server"));
}

#[test]
fn up_start_that_drops_nodes_or_partitions_with_jobs_is_refused_unless_it_is_forced() {
    let cluster = Cluster::up(TWO_NODES);
    let runs = cluster.submit_sleeper("-w node2");
    let waits = cluster.submit(&["-H", "-p", "debug", "--wrap", "true"]).to_string();
    cluster.await_state(runs, "RUNNING");
    cluster.sluice(&["down"]).ok();
    let one = TWO_NODES.replace("node[1-2]", "node1");
    let one: String =
        one.lines().filter(|l| !l.contains("=debug")).map(|l| format!("{l}\n")).collect();
    let (conf, other) = (real(&cluster.path("conf")), other_folder(&cluster, &one));
    let told = "jobs are on nodes node2 and in partitions debug, which this configuration does not have: \
                name them in it, end the jobs, or start with --force\n";
    let before = || {
        let read = |name: &str| std::fs::read_to_string(cluster.state().join(name)).ok();
        (read("start.json"), read("ports.json"), read("server/local.join"))
    };
    let was = before();
    let said = up(&cluster, &["--config", &other]);
    let note = format!(
        "sluice: note: the configuration of the last start was {conf}; that of this one is {other}\n"
    );
    assert_eq!((said.code, said.stderr), (1, format!("{note}sluice: error: {told}")));
    assert_eq!(before(), was, "nothing has changed");
    // The same folder, with another file in it.
    cluster.write_conf("slurm.conf", &one);
    let said = cluster.try_start();
    assert_eq!((said.code, said.stderr), (1, format!("sluice: error: {told}")));
    assert_eq!(before(), was, "nothing has changed");
    cluster.write_conf("slurm.conf", TWO_NODES);
    cluster.start();
    cluster.await_state(runs, "RUNNING");
    cluster.sluice(&["scancel", &runs.to_string()]).ok();
    cluster.await_end(runs);
    cluster.sluice(&["down"]).ok();
    let said = up(&cluster, &["--config", &other]);
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("error: jobs are in partitions debug, which"), "{}", said.stderr);
    let said = up(&cluster, &["--config", &other, "--force"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    until("the nodes of the other configuration", || {
        let nodes = cluster.sluice(&["sinfo", "-h", "-N", "-o", "%N %R"]).stdout;
        (nodes == "node1 gpu\n").then_some(())
    });
    cluster.sluice(&["scancel", &waits]).ok();
}

/// The agent of `up` is every node of its machine. A node that the configuration drops keeps it until its jobs have ended: without
/// it nobody would hear of their end, and a job that may be requeued would run elsewhere beside its first copy.
#[test]
fn up_job_on_a_node_that_a_forced_start_drops_goes_on_to_its_end_and_runs_once() {
    let cluster = Cluster::up(TWO_NODES);
    let script =
        "echo $SLURMD_NODENAME >> begun; until [ -e go ]; do sleep 0.1; done; echo end >> begun";
    let runs = cluster.submit(&["--requeue", "-w", "node2", "--wrap", script]);
    cluster.await_file("begun", |text| text == "node2\n");
    cluster.sluice(&["down"]).ok();
    let one = TWO_NODES.replace("node[1-2]", "other");
    let one = one.replace("Nodes=node1", "Nodes=other");
    let other = other_folder(&cluster, &one);
    let said = up(&cluster, &["--config", &other, "--force"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    // The new node works, and the dropped one is with the cluster: its job is heard of.
    let new = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(new), "COMPLETED|0:0");
    cluster.await_state(runs, "RUNNING");
    std::fs::write(cluster.path("work/go"), "").expect("a file");
    assert_eq!(cluster.await_end(runs), "COMPLETED|0:0");
    let begun = std::fs::read_to_string(cluster.path("work/begun")).expect("a file");
    assert_eq!(begun, "node2\nend\n", "it ran once, to its end");
    until("the dropped node is gone", || {
        let said = cluster.sluice(&["scontrol", "show", "node", "node2"]);
        (said.code != 0).then_some(())
    });
    // The next start has no more to do with it.
    cluster.sluice(&["down"]).ok();
    let said = up(&cluster, &[]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    let join = std::fs::read_to_string(cluster.state().join("server/local.join")).expect("a file");
    assert!(!join.contains("node2"), "{join}");
}
