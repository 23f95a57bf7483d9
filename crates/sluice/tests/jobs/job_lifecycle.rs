//! The life of a job through the built program: from submit to its accounting record.

use crate::harness::interactive::Running;
use crate::harness::{Cluster, TWO_NODES, program, until};

#[test]
fn up_a_batch_script_has_its_directory_environment_umask_and_exit_code() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "#!/bin/sh\n#SBATCH -J named --ntasks=1\n#SBATCH -o out-%x-%j.txt\n\
                  pwd; umask; echo \"$COLOUR $SLURM_JOB_NAME $1\"; exit 7\n";
    cluster.write("job.sh", script);
    let line = "umask 027; COLOUR=red sbatch --parsable job.sh argument";
    let id = cluster.shell(line).ok().trim().to_string();
    assert_eq!(cluster.await_end(&id), "FAILED|7:0");
    let books = cluster.sluice(&["sacct", "--json", "-j", &id]).ok();
    let books: serde_json::Value = serde_json::from_str(&books).expect("JSON");
    assert_eq!(books["jobs"][0]["state"]["current"], "FAILED", "{books}");
    assert_eq!(books["jobs"][0]["exit_code"]["return_code"], 7, "{books}");
    assert_eq!(books["jobs"][0]["steps"][0]["step"]["id"], "batch", "{books}");
    let output = cluster.read(&format!("out-named-{id}.txt"));
    let work = cluster.path("work").canonicalize().unwrap();
    assert_eq!(output, format!("{}\n0027\nred named argument\n", work.display()));
}

#[test]
fn up_output_files_are_named_by_patterns() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&[
        "-J",
        "p",
        "--array=3-4",
        "-o",
        "o_%A_%a_%4a_%x_%u_%N_%j_%%.txt",
        "-e",
        "e_%a.txt",
        "--wrap",
        "echo out; echo err >&2",
    ]);
    for index in [3, 4] {
        assert_eq!(cluster.await_end(format!("{id}_{index}")), "COMPLETED|0:0");
        let line = format!("ls | grep '^o_{id}_{index}_000{index}_p_'");
        let name = cluster.shell(&line).ok();
        assert!(name.trim().ends_with("_%.txt"), "{name}");
        assert_eq!(cluster.read(name.trim()), "out\n");
        assert_eq!(cluster.read(&format!("e_{index}.txt")), "err\n");
    }
}

#[test]
fn up_a_script_from_standard_input_and_options_from_three_sources_are_read() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "printf '#!/bin/sh\\n#SBATCH -J script -n 2 -c 3\\ntrue\\n' | \
                SBATCH_JOB_NAME=environment sbatch --parsable -H -c 4";
    let id = cluster.shell(line).ok().trim().to_string();
    let shown = cluster.sluice(&["squeue", "-h", "-j", &id, "-o", "%j %C %T %r"]).ok();
    assert_eq!(shown.trim(), "environment 8 PENDING JobHeldUser");
}

#[test]
fn up_dependencies_hold_and_release_jobs() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit(&["-H", "--wrap", "exit 1"]);
    let ok = cluster.submit(&["-d", &format!("afterok:{first}"), "--wrap", "true"]);
    let not_ok = cluster.submit(&["-d", &format!("afternotok:{first}"), "--wrap", "true"]);
    let any = cluster.submit(&["-d", &format!("afterany:{first}"), "--wrap", "true"]);
    cluster.await_state(ok, "PENDING|Dependency");
    cluster.sluice(&["scontrol", "release", &first.to_string()]).ok();
    assert_eq!(cluster.await_end(not_ok), "COMPLETED|0:0");
    assert_eq!(cluster.await_end(any), "COMPLETED|0:0");
    cluster.await_state(ok, "PENDING|DependencyNeverSatisfied");
}

#[test]
fn up_scancel_of_array_tasks_leaves_the_others() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["--array=1-100%2", "--wrap", "sleep 600"]);
    until("two tasks run", || {
        let text = cluster.sluice(&["squeue", "-h", "-r", "-t", "R", "-o", "%i"]).stdout;
        (text.lines().count() == 2).then_some(())
    });
    cluster.sluice(&["scancel", &format!("{id}_[50-100]")]).ok();
    let rows = cluster.sluice(&["squeue", "-h", "-o", "%i %t %r"]).ok();
    assert!(rows.contains(&format!("{id}_[3-49%2] PD JobArrayTaskLimit")), "{rows}");
    cluster.sluice(&["scancel", &id.to_string()]).ok();
    until("the whole array is gone", || {
        cluster.sluice(&["squeue", "-h"]).stdout.trim().is_empty().then_some(())
    });
    let states = cluster.sluice(&["sacct", "-n", "-X", "-P", "-j", &id.to_string(), "-o", "State"]);
    assert!(states.stdout.lines().all(|s| s.starts_with("CANCELLED by")), "{}", states.stdout);
}

#[test]
fn up_an_array_of_a_million_tasks_costs_only_its_running_tasks() {
    let conf = TWO_NODES.to_string() + "MaxArraySize=1000001\n";
    let cluster = Cluster::up(&conf);
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid("server")));
        let status = status.unwrap();
        let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap().to_string();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = memory();
    let id = cluster.submit(&["--array=0-999999%1", "--wrap", "sleep 600"]);
    cluster.await_state(format!("{id}_0"), "RUNNING");
    let grown = memory().saturating_sub(before);
    assert!(grown < 20_000, "a million pending tasks took {grown} kB");
    let row = cluster.sluice(&["squeue", "-h", "-t", "PD", "-o", "%i"]).ok();
    assert_eq!(row.trim(), format!("{id}_[1-999999%1]"));
}

#[test]
fn up_hold_release_update_and_requeue_work() {
    let cluster = Cluster::up(TWO_NODES);
    let id =
        cluster.submit(&["-J", "one", "-t", "10", "--wrap", "echo run; sleep 600"]).to_string();
    cluster.await_state(&id, "RUNNING");
    cluster.sluice(&["scontrol", "requeue", &id]).ok();
    until("the second attempt runs", || {
        let text = cluster.sluice(&["scontrol", "show", "job", &id]).stdout;
        (text.contains("JobState=RUNNING") && text.contains("Restarts=1")).then_some(())
    });
    let all = cluster.sluice(&["sacct", "-n", "-X", "-D", "-P", "-j", &id, "-o", "State"]).ok();
    assert_eq!(all.lines().next(), Some("REQUEUED"), "{all}");
    cluster.sluice(&["scontrol", "update", &format!("JobId={id}"), "TimeLimit=5"]).ok();
    assert_eq!(cluster.sluice(&["squeue", "-h", "-j", &id, "-o", "%l"]).ok().trim(), "5:00");
    let held = cluster.submit(&["-H", "--wrap", "true"]).to_string();
    cluster.sluice(&["scontrol", "update", &format!("JobId={held}"), "JobName=two", "Nice=5"]).ok();
    assert_eq!(cluster.sluice(&["squeue", "-h", "-j", &held, "-o", "%j"]).ok().trim(), "two");
    cluster.sluice(&["scontrol", "release", &held]).ok();
    assert_eq!(cluster.await_end(&held), "COMPLETED|0:0");
}

#[test]
fn up_a_reconfigure_disturbs_no_job_and_reports_errors() {
    let cluster = Cluster::up(TWO_NODES);
    let id = cluster.submit(&["--wrap", "sleep 600"]);
    cluster.await_state(id, "RUNNING");
    let more = TWO_NODES.to_string() + "PartitionName=late Nodes=node2 State=UP\n";
    cluster.write_conf("slurm.conf", &more);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    assert!(cluster.sluice(&["sinfo", "-h", "-o", "%P"]).ok().contains("late"));
    assert!(cluster.state_of(id).starts_with("RUNNING"));
    cluster.write_conf("slurm.conf", &more.replace("MaxTime", "MaxTiem"));
    let said = cluster.sluice(&["scontrol", "reconfigure"]);
    assert_ne!(said.code, 0);
    assert!(said.stderr.contains("MaxTiem") && said.stderr.contains("MaxTime"), "{}", said.stderr);
    assert!(said.stderr.contains("slurm.conf:8"), "file and line: {}", said.stderr);
    assert!(cluster.sluice(&["sinfo", "-h", "-o", "%P"]).ok().contains("late"), "nothing changed");
}

#[test]
fn up_node_that_leaves_the_configuration_and_comes_back_takes_jobs_again() {
    let cluster = Cluster::up(TWO_NODES);
    let waits = cluster.submit(&["-w", "node2", "--begin=now+1hour", "--wrap", "true"]);
    for (names, is_gone) in [("node1", true), ("node[1-2]", false)] {
        cluster.write_conf("slurm.conf", &TWO_NODES.replace("node[1-2]", names));
        cluster.sluice(&["scontrol", "reconfigure"]).ok();
        let why = cluster.sluice(&["explain", &waits.to_string()]).ok();
        let line = "  It names node2, which the cluster does not have any more; ";
        assert_eq!(why.contains(line), is_gone, "{why}");
    }
    let id = cluster.submit(&["-w", "node2", "--wrap", "hostname"]);
    cluster.await_state(id, "COMPLETED");
}

#[test]
fn up_srun_and_salloc_run_commands_in_an_allocation() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.sluice(&[
        "srun",
        "-N2",
        "-n4",
        "-l",
        "sh",
        "-c",
        "echo $SLURM_PROCID-$SLURM_NTASKS",
    ]);
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort();
    assert_eq!(lines, ["0: 0-4", "1: 1-4", "2: 2-4", "3: 3-4"], "{}", said.stderr);
    let said = cluster.sluice(&["srun", "-n3", "sh", "-c", "exit $SLURM_PROCID"]);
    assert_eq!(said.code, 2, "the highest code wins");
    let said =
        cluster.shell("salloc -n2 sh -c 'echo $SLURM_JOB_ID; srun hostname | wc -l; exit 4'");
    assert_eq!(said.code, 4);
    let id = said.stdout.lines().next().unwrap().to_string();
    assert_eq!(said.stdout.lines().nth(1).map(str::trim), Some("2"));
    assert!(
        said.stderr.contains(&format!("salloc: Granted job allocation {id}")),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains(&format!("salloc: Relinquishing job allocation {id}")));
    let id = cluster.submit(&[
        "-n2",
        "--wrap",
        "srun -n2 sh -c 'echo task $SLURM_PROCID of $SLURM_STEP_ID'",
    ]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let output = cluster.read(&format!("slurm-{id}.out"));
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort();
    assert_eq!(lines, ["task 0 of 0", "task 1 of 0"]);
    let steps =
        cluster.sluice(&["sacct", "-n", "-P", "-j", &id.to_string(), "-o", "JobID,State"]).ok();
    assert!(steps.contains(&format!("{id}.batch|COMPLETED")), "{steps}");
    assert!(steps.contains(&format!("{id}.0|COMPLETED")), "{steps}");
}

#[test]
fn up_an_allocation_ends_with_its_client() {
    let cluster = Cluster::up(TWO_NODES);
    let mut client = cluster.spawn(&["srun", "sleep", "600"]);
    let id = until("the step runs", || {
        let text = cluster.sluice(&["squeue", "-h", "-t", "R", "-o", "%A"]).stdout;
        (!text.trim().is_empty()).then(|| text.trim().to_string())
    });
    client.kill().unwrap();
    client.wait().unwrap();
    let end = cluster.await_end(id);
    assert!(end.starts_with("CANCELLED"), "{end}");
}

#[test]
fn up_a_yaml_run_is_queued_with_other_jobs_and_stays_within_its_offer() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write(
        "task.dstack.yml",
        "type: task\nname: hello\nenv:\n  - GREETING=hi\nnodes: 2\ncommands:\n  \
         - echo \"$GREETING $DSTACK_NODE_RANK of $DSTACK_NODES_NUM\"\n  - echo gpus=$DSTACK_GPUS_PER_NODE\n\
         resources:\n  cpu: 2..4\n  memory: 64MB..\n  gpu: H100:1..2\n",
    );
    let said = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y"]);
    assert_eq!(said.code, 0, "{}\n{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("hi 0 of 2"), "{}", said.stdout);
    assert!(said.stdout.contains("gpus=8"), "whole nodes: {}", said.stdout);
    let row =
        cluster.sluice(&["sacct", "-n", "-X", "-P", "--name", "hello", "-o", "State,AllocTRES"]);
    assert!(row.stdout.starts_with("COMPLETED|"), "{}", row.stdout);
    for part in ["gres/gpu=16", "mem=8000M", "node=2"] {
        assert!(row.stdout.contains(part), "{part}: {}", row.stdout);
    }
    let logs = cluster.sluice(&["logs", "hello"]).ok();
    assert!(logs.contains("hi 0 of 2"), "{logs}");
    let id = cluster.submit(&["-J", "batch-job", "--wrap", "sleep 600"]);
    cluster.await_state(id, "RUNNING");
    assert!(cluster.sluice(&["ps"]).ok().contains("batch-job"), "an sbatch job is in ps");
    cluster.write(
        "long.dstack.yml",
        "type: task\nname: long\ncommands: [sleep 600]\nresources: {cpu: 2..4, memory: 16MB.., gpu: 'H100:1..2'}\n",
    );
    cluster.sluice(&["apply", "-f", "long.dstack.yml", "-y", "-d"]).ok();
    until("the run has the smallest share", || {
        cluster.sluice(&["ps", "-v"]).ok().contains("(1/8)").then_some(())
    });
    assert!(
        cluster.sluice(&["squeue", "-h", "-o", "%j"]).ok().contains("long"),
        "a run is in squeue"
    );
    cluster.sluice(&["stop", "long", "-y"]).ok();
    until("the run is stopped", || {
        (!cluster.sluice(&["squeue", "-h", "-o", "%j"]).stdout.contains("long")).then_some(())
    });
}

/// The client does not see the folder that the job writes to.
#[test]
fn root_up_logs_of_a_batch_job_are_read_on_its_node() {
    let cluster = Cluster::up(TWO_NODES);
    let work = cluster.path("work").display().to_string();
    let job = cluster.submit(&[
        "-o",
        "there.txt",
        "--wrap",
        "echo written there; until [ -e go ]; do sleep 0.1; done; echo last",
    ]);
    cluster.await_file("there.txt", |text| !text.is_empty());
    let elsewhere = |verb: &str| {
        let line = format!("mount -t tmpfs none {work} && cd / && {} {verb}", program());
        cluster.shell(&format!("unshare -m sh -c '{line}'"))
    };
    assert_eq!(elsewhere(&format!("logs {job}")).ok(), "written there\n");
    let follows = cluster.spawn_shell(&format!(
        "unshare -m sh -c 'mount -t tmpfs none {work} && cd / && exec {} logs -f {job}'",
        program()
    ));
    cluster.write("go", "");
    let followed = follows.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&followed.stdout), "written there\nlast\n");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    std::fs::remove_file(cluster.path("work").join("there.txt")).expect("the file was there");
    let gone = elsewhere(&format!("logs {job}"));
    assert!(
        gone.code == 1 && gone.stderr.contains("there.txt: No such file or directory"),
        "{}",
        gone.stderr
    );
    let waits = cluster.submit(&["-H", "--wrap", "true"]);
    let early = cluster.sluice(&["logs", &waits.to_string()]);
    assert!(early.stderr.contains("has not started"), "{}", early.stderr);
}

#[test]
fn up_a_followed_log_of_a_waiting_job_says_once_why_it_waits() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&["-H", "--wrap", "echo at last"]);
    let mut follows = Running::start(&cluster, &["logs", "-f", &job.to_string()]);
    let note = format!("sluice: note: job {job} waits (JobHeldUser)\n");
    follows.await_error(|text| text == note);
    cluster.sluice(&["scontrol", "release", &job.to_string()]).ok();
    let said = follows.end();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("at last\n", note.as_str()));
}
