//! Preemption, requeue and backfill reservations, from slurm.conf.

use cluster::Parameters;
use model::partition::Partition;
use model::preempt::{PreemptBy, PreemptMode, PreemptPolicy};
use sched::view::BackfillLimits;
use slurm::conf::keys::choices::{self as conf, Choice, PreemptType};
use slurm::conf::slurm_conf::globals::Globals;

/// The parameters of these subjects; the others have their defaults.
pub(super) fn parameters(globals: &Globals) -> Parameters {
    let preemption = &globals.preemption;
    let has = |mode| preemption.modes.contains(&mode);
    let backfill = &globals.scheduling.backfill;
    let defaults = Parameters::default();
    let words = &globals.scheduling.parameters;
    Parameters {
        preempt: PreemptPolicy {
            by: match preemption.kind {
                PreemptType::None => PreemptBy::Nothing,
                PreemptType::PartitionPrio => PreemptBy::Partition,
                PreemptType::Qos => PreemptBy::Qos,
            },
            mode: if has(conf::PreemptMode::Suspend) {
                PreemptMode::Suspend
            } else if has(conf::PreemptMode::Requeue) {
                PreemptMode::Requeue
            } else if has(conf::PreemptMode::Cancel) {
                PreemptMode::Cancel
            } else {
                PreemptMode::Off
            },
            exempt_s: preemption
                .exempt_time
                .secs()
                .map_or(0, |s| s.min(u64::from(u32::MAX)) as u32),
            within: has(conf::PreemptMode::Within),
        },
        gang_slice_s: has(conf::PreemptMode::Gang).then_some(preemption.time_slice_s),
        backfill_slots_max: backfill.places.unwrap_or(defaults.backfill_slots_max),
        backfill_limits: BackfillLimits {
            window_min: backfill.window_min,
            per_user: backfill.per_user,
            per_array: backfill.per_array.unwrap_or(defaults.backfill_limits.per_array),
            priority_min: backfill.priority_min,
            age_min_s: backfill.age_min_s.unwrap_or(0),
            starts_max: backfill.starts_max,
            narrow_jobs_end_first: false,
        },
        // As Slurm: until the credential has surely run out.
        requeue_wait_s: match globals.launch.requeue_wait_s {
            0 => 0,
            seconds => seconds.saturating_add(1),
        },
        requeue_exits: globals.launch.requeue_exit.clone(),
        requeue_exits_held: globals.launch.requeue_exit_hold.clone(),
        user_top: words.has("enable_user_top"),
        pack_serial_at_end: words.has("pack_serial_at_end"),
        kill_invalid_dependency: words.has("kill_invalid_depend")
            || globals.scheduling.dependency_parameters.has("kill_invalid_depend"),
        ..defaults
    }
}

/// Gives partitions without a `PreemptMode` the cluster's, in the order in which Slurm shows its words.
pub(super) fn with_preempt_mode(
    mut partitions: Vec<Partition>,
    modes: &[conf::PreemptMode],
) -> Vec<Partition> {
    let mut words: Vec<&str> = modes.iter().map(|mode| mode.word()).collect();
    words.sort_by_key(|word| *word != "GANG");
    for partition in partitions.iter_mut().filter(|p| p.preempt_mode.is_none()) {
        partition.preempt_mode = Some(words.join(",")).filter(|words| words != "OFF");
    }
    partitions
}

#[cfg(test)]
mod tests {
    use super::*;
    use slurm::conf::{MemoryFiles, load_dir};
    use std::path::Path;

    #[test]
    fn preemption_requeue_and_backfill_keys_reach_the_parameters() {
        let text = "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\n\
                    PreemptExemptTime=00:02:00\nSchedulerTimeSlice=10\nRequeueExit=5\n\
                    AuthInfo=cred_expire=30\nDependencyParameters=kill_invalid_depend\n\
                    SchedulerParameters=bf_max_job_part=7,bf_max_job_user=3,bf_max_job_start=9,\
                    bf_window=60,enable_user_top,pack_serial_at_end\n\
                    NodeName=n1\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=n1 PreemptMode=OFF\n";
        let files = MemoryFiles::default().with("/c/slurm.conf", text);
        let conf = load_dir(&files, Path::new("/c")).expect("a good file");
        let parameters = parameters(&conf.slurm.globals);
        let preempt = PreemptPolicy {
            by: PreemptBy::Partition,
            mode: PreemptMode::Suspend,
            exempt_s: 120,
            within: false,
        };
        assert_eq!((parameters.preempt, parameters.gang_slice_s), (preempt, Some(10)));
        assert_eq!((parameters.backfill_slots_max, parameters.requeue_wait_s), (7, 31));
        let reserve = &parameters.backfill_limits;
        assert_eq!((reserve.per_user, reserve.starts_max), (Some(3), Some(9)));
        assert_eq!((reserve.window_min, reserve.per_array), (Some(60), 20));
        assert_eq!(parameters.requeue_exits, [(5, 5)]);
        assert!(parameters.user_top && parameters.kill_invalid_dependency);
        assert!(parameters.pack_serial_at_end);
        let partitions = conf.slurm.partitions.iter().map(|p| p.partition.clone()).collect();
        let partitions = with_preempt_mode(partitions, &conf.slurm.globals.preemption.modes);
        let modes: Vec<_> = partitions.iter().map(|p| p.preempt_mode.as_deref()).collect();
        assert_eq!(modes, [Some("GANG,SUSPEND"), Some("OFF")]);
    }
}
