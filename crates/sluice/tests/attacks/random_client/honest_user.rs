//! A user with real work among the attacks: jobs, arrays, steps, holds and cancels by the commands themselves.

use crate::harness::Cluster;
use crate::harness::dice::Dice;
use std::sync::atomic::{AtomicBool, Ordering};

/// What looks, and is answered whatever others do.
const LOOKS: &[(&str, &str)] = &[
    ("squeue", "JOBID"),
    ("sinfo", "PARTITION"),
    ("sacct -X", "JobID"),
    ("sshare", "Account"),
    ("sprio", "JOBID"),
    ("scontrol show config", "ClusterName"),
];

/// What works. An operator and root among the attackers may cancel its jobs, and drain the nodes and close the partitions
/// that it needs: a line may then be refused, in one of the commands' own words.
const WORK: &[&str] = &[
    "sbatch -o /dev/null --wrap 'sleep 0.1'",
    "sbatch -o /dev/null -a 1-3 --wrap 'sleep 0.1'",
    "sbatch -o /dev/null --wrap 'srun true; srun -n2 true'",
    "id=$(sbatch --parsable -H -o /dev/null --wrap true) && scontrol update job=$id comment=mine && scontrol release $id",
    "id=$(sbatch --parsable -o /dev/null --wrap 'sleep 60') && scancel $id",
    "timeout 20 salloc -Q --immediate=5 srun true",
    "timeout 20 srun --immediate=5 true",
];

/// How a command begins a line in which it refuses or loses something.
const COMMANDS: &[&str] = &[
    "sbatch:",
    "srun:",
    "salloc:",
    "scancel:",
    "scontrol:",
    "slurm_",
    "slurmstepd:",
    "Invalid",
    "Job",
    "error:",
];

/// Works until it is told to stop; returns how many lines were run.
pub fn work(cluster: &Cluster, user: &str, mut dice: Dice, stop: &AtomicBool) -> u64 {
    let (mut lines, mut submitted) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let (look, word) = *dice.pick(LOOKS);
        let said = cluster.shell_as(user, look);
        assert!(said.code == 0 && said.stdout.contains(word), "{look}: {said:?}");
        let line = *dice.pick(WORK);
        let said = cluster.shell_as(user, line);
        submitted += u64::from(said.stdout.starts_with("Submitted batch job "));
        for said in said.stderr.lines().filter(|said| !said.is_empty()) {
            let known = COMMANDS.iter().any(|command| said.starts_with(command));
            assert!(known && !said.contains("panicked"), "{line}: {said}");
        }
        if said.code != 0 && said.code != 124 {
            assert!(!said.stderr.is_empty(), "{line} failed without a word: {said:?}");
        }
        lines += 2;
    }
    assert!(lines < 40 || submitted > 0, "in {lines} lines nothing could be submitted");
    lines
}
