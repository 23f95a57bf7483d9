//! The CPU time limit of a job, which ends it like its time limit, and the nice values that processes inherit.

use crate::harness::{Cluster, TWO_NODES, until};

const BUSY: &str = "while :; do :; done";

fn limited(plugin: &str) -> Cluster {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("cgroup.conf", &format!("CgroupPlugin={plugin}\nMaxCPUTime=1\n"));
    cluster.start();
    cluster
}

#[test]
fn root_up_a_job_is_ended_at_its_cpu_time_limit_and_told_why() {
    for plugin in ["autodetect", "disabled"] {
        let cluster = limited(plugin);
        // Children count, and so do processes that have ended.
        cluster.write("job.sh", &format!("#!/bin/bash\n({BUSY}) &\n{BUSY}\n"));
        let id = cluster.submit(&["-o", "out", "job.sh"]);
        cluster.write("idle.sh", "#!/bin/bash\nuntil [ -e enough ]; do sleep 0.5; done\n");
        let idle = cluster.submit(&["idle.sh"]);
        assert_eq!(cluster.await_end(id), "TIMEOUT|0:0", "{plugin}");
        let text = cluster.read("out");
        let start = format!("slurmstepd: error: *** JOB {id} ON node1 CANCELLED AT ");
        assert!(text.starts_with(&start), "{plugin}: {text}");
        assert!(text.trim_end().ends_with("DUE TO CPU TIME LIMIT ***"), "{plugin}: {text}");
        // A sleeping job uses no CPU time.
        cluster.write("enough", "");
        assert_eq!(cluster.await_end(idle), "COMPLETED|0:0", "{plugin}");
        until("nothing of them is left", || cluster.groups().is_empty().then_some(()));
    }
}

#[test]
fn root_up_a_signal_warns_before_the_cpu_time_limit() {
    let cluster = limited("autodetect");
    let script = "#!/bin/bash\ntrap 'echo cpu' XCPU; trap 'echo term; over=1' TERM\necho ready\n\
                  until [ \"$over\" ]; do :; done\n";
    cluster.write("job.sh", script);
    let id = cluster.submit(&["-o", "out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "TIMEOUT|0:0");
    let text = cluster.read("out");
    let own: Vec<&str> = text.lines().filter(|line| !line.starts_with("slurmstepd")).collect();
    let mut heard = own.clone();
    heard.sort_unstable();
    assert_eq!(heard, ["cpu", "ready", "term"], "{text}");
}

#[test]
fn root_up_the_cpu_time_limit_on_one_node_ends_the_whole_job() {
    let cluster = limited("autodetect");
    let busy = format!("[ $SLURM_PROCID = 0 ] && sleep 600; {BUSY}");
    cluster.write("job.sh", &format!("#!/bin/bash\nsrun -n2 bash -c '{busy}'\n"));
    let id = cluster.submit(&["-N2", "-n2", "-o", "out", "job.sh"]);
    assert_eq!(cluster.await_end(id), "TIMEOUT|0:0");
    let text = cluster.read("out");
    let script = format!("*** JOB {id} ON node1 CANCELLED AT ");
    assert!(text.contains(&script) && text.contains("DUE TO CPU TIME LIMIT"), "{text}");
    until("nothing of it is left", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn up_the_submitters_cpu_time_limit_is_inherited() {
    let cluster = Cluster::up(TWO_NODES);
    // The limit of a single process is enforced by the kernel with SIGXCPU.
    let said = cluster.shell(&format!("ulimit -St 1; srun --propagate=CPU sh -c '{BUSY}'"));
    assert_eq!(said.code, 128 + 24, "{said:?}");
    let said = cluster.shell("ulimit -St 77; srun --propagate=NONE sh -c 'ulimit -St'");
    assert_ne!(said.ok().trim(), "77");
}

/// The nice values of a step, of a script, and of a step in the script.
fn nice_values(cluster: &Cluster, with: &str) -> [String; 3] {
    let step = cluster.shell(&format!("nice -n {with} srun nice")).ok().trim().to_owned();
    cluster.write("job.sh", "#!/bin/sh\necho $(nice) $(srun nice) ${SLURM_PRIO_PROCESS-unset}\n");
    let line = format!("nice -n {with} sbatch --wait -o out job.sh");
    cluster.shell(&line).ok();
    let out = cluster.read("out");
    let words: Vec<&str> = out.split_whitespace().collect();
    let [script, inner, told] = words[..] else { panic!("{out}") };
    assert_eq!(script, inner);
    [step, script.to_owned(), told.to_owned()]
}

#[test]
fn root_up_nice_values_are_inherited_as_configured() {
    // The daemon's nice value is that of the test process.
    let own: i32 = nix_nice();
    let above = (own + 7).to_string();
    for (mode, asked, want, told) in [
        (0, 7, own, above.as_str()),
        (1, 7, own + 7, "unset"),
        (2, 7, own + 7, "unset"),
        (2, 0, own + 1, "unset"),
    ] {
        let cluster = Cluster::up(&format!("{TWO_NODES}PropagatePrioProcess={mode}\n"));
        let values = nice_values(&cluster, &asked.to_string());
        let want = want.to_string();
        assert_eq!(values, [want.as_str(), &want, told], "PropagatePrioProcess={mode}");
    }
}

#[test]
fn root_up_only_root_inherits_a_negative_nice_value() {
    let own = nix_nice();
    let higher = own - 5;
    let cluster = Cluster::up(&format!("{TWO_NODES}PropagatePrioProcess=1\n"));
    assert_eq!(cluster.shell("nice -n -5 srun nice").ok().trim(), higher.to_string());
    let user = "setpriv --reuid=daemon --regid=daemon --init-groups";
    let said = cluster.shell(&format!("nice -n -5 {user} srun nice"));
    let line =
        format!("slurmstepd: error: setpriority(PRIO_PROCESS, {higher}): Permission denied\n");
    assert_eq!(
        (said.stdout.trim(), said.stderr.as_str()),
        (own.to_string().as_str(), line.as_str())
    );
    // A lower priority than the daemon's is allowed to everybody.
    let said = cluster.shell(&format!("nice -n 3 {user} srun nice"));
    assert_eq!((said.stdout.trim(), said.stderr.as_str()), ((own + 3).to_string().as_str(), ""));
}

fn nix_nice() -> i32 {
    let said = std::process::Command::new("nice").output().expect("nice runs");
    String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number")
}
