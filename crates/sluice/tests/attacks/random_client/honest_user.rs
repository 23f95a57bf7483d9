//! A user with real work among the attacks: jobs, arrays, steps, holds and cancels by the commands themselves.

use crate::harness::Cluster;
use crate::harness::dice::Dice;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// What `timeout` ends with when it had to end its command.
const TIMED_OUT: i32 = 124;

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
/// that it needs: a line may then be refused, in one of the commands' own words. No line counts on the default partition.
const WORK: &[&str] = &[
    "sbatch -p gpu -o /dev/null --wrap 'sleep 0.1'",
    "sbatch -p gpu -o /dev/null -a 1-3 --wrap 'sleep 0.1'",
    "sbatch -p gpu -o /dev/null --wrap 'srun true; srun -n2 true'",
    "id=$(sbatch -p gpu --parsable -H -o /dev/null --wrap true) && scontrol update job=$id comment=mine && scontrol release $id",
    "id=$(sbatch -p gpu --parsable -o /dev/null --wrap 'sleep 60') && scancel $id",
    "timeout 20 salloc -p gpu -Q --immediate=5 srun true",
    "timeout 20 srun -p gpu --immediate=5 true",
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
    "Job has already finished for job ",
];

/// By so many lines a job must have been taken.
const LINES_WITHOUT_A_JOB_MAX: u64 = 40;

/// What a user got done.
#[derive(Default)]
pub struct Worked {
    pub lines: u64,
    /// Jobs of which `sbatch` said that they were submitted.
    pub submitted: BTreeSet<u64>,
}

/// Works until it is told to stop.
pub fn work(cluster: &Cluster, user: &str, mut dice: Dice, stop: &AtomicBool) -> Worked {
    let (mut worked, mut last) = (Worked::default(), None);
    while !stop.load(Ordering::Relaxed) {
        let (look, word) = *dice.pick(LOOKS);
        let said = cluster.shell_as(user, look);
        assert!(said.code == 0 && said.stdout.contains(word), "{look}: {said:?}");
        let line = *dice.pick(WORK);
        let said = cluster.shell_as(user, line);
        let job = said.stdout.strip_prefix("Submitted batch job ");
        worked.submitted.extend(job.map(|job| job.trim().parse::<u64>().expect("a job id")));
        for text in said.stderr.lines().filter(|text| !text.is_empty()) {
            let known = COMMANDS.iter().any(|command| text.starts_with(command));
            assert!(known && !text.contains("panicked"), "{line}: {said:?}");
        }
        let is_explained = said.code == 0 || said.code == TIMED_OUT || !said.stderr.is_empty();
        assert!(is_explained, "{line} failed without a word: {said:?}");
        worked.lines += 2;
        last = Some(said);
    }
    let idle = worked.submitted.is_empty() && worked.lines > LINES_WITHOUT_A_JOB_MAX;
    assert!(!idle, "in {} lines no job was taken: {last:?}", worked.lines);
    worked
}
