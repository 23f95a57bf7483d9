//! A user with real work among the attacks: jobs, arrays, steps, holds and cancels by the commands themselves.

use crate::harness::Cluster;
use crate::harness::dice::Dice;
use std::sync::atomic::{AtomicBool, Ordering};

const LINES: &[&str] = &[
    "sbatch -o /dev/null --wrap 'sleep 0.1'",
    "sbatch -o /dev/null -a 1-3 --wrap 'sleep 0.1'",
    "sbatch -o /dev/null --wrap 'srun true; srun -n2 true'",
    "id=$(sbatch --parsable -H -o /dev/null --wrap true); scontrol update job=$id comment=mine; scontrol release $id",
    "id=$(sbatch --parsable -o /dev/null --wrap 'sleep 60'); scontrol suspend $id; scancel $id",
    "timeout 20 salloc -Q --immediate=5 srun true",
    "timeout 20 srun --immediate=5 true",
    "sacct -X; sshare; sprio; sinfo",
];

/// Works until it is told to stop; returns how many lines were run. What a line answers depends on what others do to its jobs.
pub fn work(cluster: &Cluster, user: &str, mut dice: Dice, stop: &AtomicBool) -> u64 {
    let mut lines = 0;
    while !stop.load(Ordering::Relaxed) {
        let said = cluster.shell_as(user, LINES[dice.below(LINES.len() as u64) as usize]);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
        lines += 1;
    }
    lines
}
