//! An agent with read-only or missing control groups, or with groups left by an earlier agent: it reports what it cannot
//! enforce, runs jobs, and removes groups that belong to no job. Needs root.

use crate::harness::{Cluster, TWO_NODES, is_alive, until};
use std::process::{Command, Stdio};

/// Starts the cluster in a mount namespace in which this command was run for each cgroup mount, `$at`.
fn up_where(change: &str) -> Cluster {
    let cluster = Cluster::folder(TWO_NODES);
    // Deepest first: a mount below another is unmounted before it.
    let line = format!(
        "unshare --mount --propagation private bash -c 'while read -r at; do {change}; done \
         < <(grep -e \"- cgroup\" /proc/self/mountinfo | cut -d\" \" -f5 | sort -r); exec {} up --detach \
         --state {} --config {} --listen 127.0.0.1:0 --agents 127.0.0.1:0'",
        crate::harness::program(),
        cluster.state().display(),
        cluster.path("conf").display()
    );
    let said = cluster.shell(&line).ok();
    assert!(said.starts_with("sluice is up"), "{said}");
    cluster
}

#[test]
fn root_up_without_cgroups_jobs_run_and_the_node_reports_what_it_cannot_enforce() {
    let table = [
        ("mount -o remount,bind,ro \"$at\"", "Read-only file system"),
        ("umount -l \"$at\"", "is in no hierarchy"),
    ];
    for (change, why) in table {
        let cluster = up_where(change);
        let node = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        for what in ["containment", "memory", "cpuset"] {
            let start = format!("NotEnforced={what}: ");
            let told = node.lines().find(|line| line.trim_start().starts_with(&start));
            assert!(told.is_some_and(|line| line.contains(why)), "{what}, {why}: {node}");
        }
        let said = "jobs on node[1-2] are not limited in: containment, cpuset, ";
        for (log, said) in [("agent", "not enforced: memory: "), ("server", said)] {
            until("the log has it", || cluster.log(log).contains(said).then_some(()));
        }
        let doctor = cluster.sluice(&["doctor"]).ok();
        assert!(doctor.contains("not enforced: memory: "), "{doctor}");
        // A job runs, is suspended and resumed, and processes that it leaves behind end with it.
        let script = "(trap \"\" TERM HUP; setsid sh -c \"echo \\$\\$ > daemon; while :; do sleep 1; done\" &) > /dev/null 2>&1; \
                      until [ -s daemon ]; do sleep 0.05; done; until [ -e go ]; do sleep 0.05; done; srun true; exit 3";
        let job = cluster.submit(&["-o", "out", "--wrap", script]);
        let daemon = cluster.await_file("daemon", |text| text.ends_with('\n'));
        let daemon: i32 = daemon.trim().parse().expect("a pid");
        cluster.sluice(&["scontrol", "suspend", &job.to_string()]).ok();
        cluster.await_state(job, "SUSPENDED");
        cluster.sluice(&["scontrol", "resume", &job.to_string()]).ok();
        cluster.write("go", "");
        assert_eq!(cluster.await_end(job), "FAILED|3:0", "{}", cluster.read("out"));
        until("the daemon is dead", || (!is_alive(daemon)).then_some(()));
        assert_eq!(cluster.groups(), Vec::<String>::new());
    }
}

#[test]
fn root_up_cgroups_left_by_a_killed_agent_are_emptied_and_removed() {
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit(&[
        "-w",
        "node1",
        "-o",
        "/dev/null",
        "--wrap",
        "until [ -e go ]; do sleep 0.05; done; exit 3",
    ]);
    let own = until("it has groups", || Some(cluster.groups()).filter(|groups| !groups.is_empty()));
    cluster.await_state(job, "RUNNING");
    cluster.kill("agent");
    cluster.kill("server");
    // Groups like those of an attempt without a spool folder, one with a process that ignores signals.
    let mut strangers = Vec::new();
    for group in &own {
        let left = group.replace(&format!("job_{job}_1"), "job_9999_1");
        std::fs::create_dir_all(format!("{left}/step_0")).expect("a group");
        // A v1 cpuset without CPUs takes no process.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            for (from, to) in
                [(group.clone(), left.clone()), (left.clone(), format!("{left}/step_0"))]
            {
                if let Ok(text) = std::fs::read_to_string(format!("{from}/{file}")) {
                    let _ = std::fs::write(format!("{to}/{file}"), text);
                }
            }
        }
        let mut command = Command::new("sh");
        command.args(["-c", &format!("trap '' TERM HUP INT; echo $$ > {left}/step_0/cgroup.procs; echo in; exec sleep 600")]);
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("a process");
        let mut line = [0; 3];
        use std::io::Read;
        child.stdout.take().expect("its output").read_exact(&mut line).expect("it is in");
        strangers.push(child);
    }
    cluster.start();
    for child in &mut strangers {
        until("what is nobody's is killed", || child.try_wait().expect("a child").map(drop));
    }
    let left = || cluster.groups().into_iter().filter(|group| group.contains("job_9999")).count();
    until("its groups are gone", || (left() == 0).then_some(()));
    assert_eq!(cluster.state_of(job), "RUNNING|None", "the job that was running is not");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    until("no group is left", || cluster.groups().is_empty().then_some(()));
}
