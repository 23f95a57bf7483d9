//! Ticks of a replay that need not be carried out one by one.
//!
//! Under `priority/sluice` the order of the queue is worked out anew every minute, and most minutes of a trace start nothing. While
//! no job comes or ends, a plan that started nothing is followed by others that start nothing, as long as the first job of the queue
//! is the same: what is free stays free, the first job has the same backfill slot, and beside it the others have ever less time. So
//! it is enough to ask who would be first, and to carry out the last of such ticks before the next thing that happens.

use crate::trace::Trace;
use cluster::ClusterConfig;
use model::preempt::PreemptBy;

/// Whether ticks of this replay decide nothing but the order of the queue, and its first job alone decides who else may start.
pub fn are_possible(trace: &Trace, config: &ClusterConfig) -> bool {
    let parameters = &config.parameters;
    let limits = &parameters.backfill_limits;
    let by_order_alone = parameters.priority.expansion
        && parameters.preempt.by == PreemptBy::Nothing
        && parameters.requeue_wait_s == 0
        && !parameters.power.is_enabled()
        && config.sources.is_empty();
    let by_first_alone = (!parameters.backfill || parameters.backfill_slots_max <= 1)
        && limits.age_min_s == 0
        && limits.priority_min.is_none();
    // With devices the jobs that are typical are counted at each tick.
    let without_devices = config.nodes.iter().all(|node| node.gres.is_empty());
    // A job that outlasts its limit moves the slots of others as it does.
    let end_in_time = || trace.jobs.iter().all(|job| job.run_s <= job.estimate_s);
    by_order_alone && by_first_alone && without_devices && end_in_time()
}
