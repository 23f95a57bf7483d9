//! `-v` and `-Q` of `sbatch`, `srun` and `salloc`: the options as they were understood and each stage, or nothing but errors.

use crate::harness::{Cluster, TWO_NODES};

/// The lines on standard error without those of a job that had to wait a moment.
fn lines(text: &str) -> Vec<&str> {
    let waits = |line: &&str| {
        line.ends_with("queued and waiting for resources")
            || line.ends_with("has been allocated resources")
    };
    text.lines().filter(|line| !waits(line)).collect()
}

#[test]
fn up_verbose_sbatch_shows_the_options_of_script_and_command_line() {
    let cluster = Cluster::up(TWO_NODES);
    let script = "#!/bin/bash\n#SBATCH -J hdr\n#SBATCH --mem=100\n#SBATCH -n2 -t5\ntrue\n";
    cluster.write("hdr.sh", script);
    let said = cluster.sluice(&["sbatch", "-v", "hdr.sh"]);
    let captured = "\
sbatch: defined options
sbatch: -------------------- --------------------
sbatch: job-name            : hdr
sbatch: mem                 : 100
sbatch: ntasks              : 2
sbatch: time                : 00:05:00
sbatch: verbose             : 1
sbatch: -------------------- --------------------
sbatch: end of defined options
";
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("Submitted batch job 1\n", captured));
    let said = cluster.sluice(&["sbatch", "-vv", "--propagate=CORE", "hdr.sh"]);
    let found = lines(&said.stderr);
    assert!(found.contains(&"sbatch: verbose             : 2"), "{found:?}");
    let limits = found.iter().filter(|line| line.contains("debug:  propagating RLIMIT_"));
    assert_eq!(limits.count(), 1, "{found:?}");
    let said = cluster.sluice(&["sbatch", "-Q", "hdr.sh"]);
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "", ""));
}

#[test]
fn up_verbose_srun_shows_each_stage_in_its_order() {
    let cluster = Cluster::up(TWO_NODES);
    let said =
        cluster.sluice(&["srun", "-v", "-N2", "-n2", "sh", "-c", "echo ran; exit $SLURM_PROCID"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, "ran\nran\n"), "{}", said.stderr);
    let found = lines(&said.stderr);
    let begin = [
        "srun: defined options",
        "srun: -------------------- --------------------",
        "srun: nodes               : 2",
        "srun: ntasks              : 2",
        "srun: verbose             : 1",
        "srun: -------------------- --------------------",
        "srun: end of defined options",
        "srun: Nodes node[1-2] are ready for job",
        "srun: jobid 1: nodes(2):`node[1-2]', cpu counts: 1(x2)",
        "srun: launching StepId=1.0 on host node1, 1 tasks: 0",
        "srun: launching StepId=1.0 on host node2, 1 tasks: 1",
    ];
    assert_eq!(found[..begin.len()], begin, "{}", said.stderr);
    let mut rest = found[begin.len()..].to_vec();
    rest.sort_unstable();
    let tasks = [
        "srun: Node node1, 1 tasks started",
        "srun: Node node2, 1 tasks started",
        "srun: Received task exit notification for 1 task of StepId=1.0 (status=0x0000).",
        "srun: Received task exit notification for 1 task of StepId=1.0 (status=0x0100).",
        "srun: error: node2: task 1: Exited with exit code 1",
        "srun: node1: task 0: Completed",
    ];
    assert_eq!(rest, tasks, "{}", said.stderr);
    let said = cluster.sluice(&["srun", "-Q", "true"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
}

#[test]
fn up_verbose_salloc_and_the_srun_in_it_show_the_allocation() {
    let cluster = Cluster::up(TWO_NODES);
    let said = cluster.shell("salloc -v -n1 srun -vvv true");
    assert_eq!(said.code, 0, "{}", said.stderr);
    let found = lines(&said.stderr);
    for line in [
        "salloc: ntasks              : 1",
        "salloc: Granted job allocation 1",
        "salloc: Nodes node1 are ready for job",
        "srun: jobid               : 1",
        "srun: verbose             : 3",
        "srun: jobid 1: nodes(1):`node1', cpu counts: 1(x1)",
        "srun: launching StepId=1.0 on host node1, 1 tasks: 0",
        "srun: debug2: received task launch",
        "srun: debug2: received task exit",
        "srun: debug:  task 0 done",
        "srun: node1: task 0: Completed",
    ] {
        assert!(found.contains(&line), "{line} in {}", said.stderr);
    }
    let limits = |line: &&&str| line.starts_with("srun: debug:  propagating RLIMIT_");
    assert!(found.iter().filter(limits).count() > 1, "{}", said.stderr);
    // An allocation that is taken away is no error of `salloc`.
    let said = cluster.shell("salloc -Q -K -n1 sh -c 'scancel $SLURM_JOB_ID; exec sleep 600'");
    assert_eq!((said.code, said.stderr.as_str()), (143, ""));
}
