//! Moments of a replay at which nothing can start: no plan need be made of them.
//!
//! Nothing starts while every job that waits asks for more than is free. While no job ends, a plan that started nothing is followed
//! by others that start nothing, as long as the first job of the queue is the same: what is free stays free, the jobs that have a
//! backfill slot keep it, and beside it the others have ever less time. A job that comes changes nothing of that if it asks for more
//! than is free; nor if another waits that asks for no more processors and no more time, where all processors are alike: where that
//! one cannot start, this one cannot. Under `priority/sluice`, where the order of the queue is worked out anew every minute, most
//! minutes of a trace are so: it is enough to ask who would be first, and to carry out the last of such ticks before the next thing
//! that happens.

use crate::trace::Trace;
use cluster::ClusterConfig;
use model::partition::{OverSubscribe, Partition};
use model::preempt::PreemptBy;

/// Whether time decides nothing in this replay but the order of the queue, and that of no jobs but the first.
pub fn are_possible(trace: &Trace, config: &ClusterConfig) -> bool {
    let parameters = &config.parameters;
    let limits = &parameters.backfill_limits;
    let by_order_alone = !parameters.priority.multifactor
        && parameters.preempt.by == PreemptBy::Nothing
        && parameters.requeue_wait_s == 0
        && !parameters.power.is_enabled()
        && config.sources.is_empty();
    let has_one_slot = !parameters.backfill || parameters.backfill_slots_max <= 1;
    // As time passes a slot comes within the window, and those behind it move.
    let slots_stay = !parameters.priority.expansion && limits.window_min.is_none();
    let by_first_alone =
        (has_one_slot || slots_stay) && limits.age_min_s == 0 && limits.priority_min.is_none();
    // Where jobs share processors, one that is taken is free for others.
    let is_shared = |p: &Partition| matches!(p.over_subscribe, OverSubscribe::Force(_));
    let alone = !parameters.select.shares_cpus && !config.partitions.iter().any(is_shared);
    // With devices the jobs that are typical are counted at each tick.
    let without_devices = config.nodes.iter().all(|node| node.gres.is_empty());
    // A job that outlasts its limit moves the slots of others as it does.
    let end_in_time = || trace.jobs.iter().all(|job| job.run_s <= job.estimate_s);
    by_order_alone && by_first_alone && alone && without_devices && end_in_time()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::single_processor_nodes;
    use crate::policy::Policy;

    fn are_possible_with(policy: Policy, change: impl FnOnce(&mut ClusterConfig)) -> bool {
        let trace = Trace::default();
        let mut config = single_processor_nodes(4, policy);
        change(&mut config);
        are_possible(&trace, &config)
    }

    #[test]
    fn every_plan_is_made_where_jobs_share_processors() {
        for policy in Policy::ALL {
            assert!(are_possible_with(policy, |_| {}), "{policy}");
            let is_forced = are_possible_with(policy, |config| {
                config.partitions[0].over_subscribe = OverSubscribe::Force(2);
            });
            let by_memory =
                are_possible_with(policy, |config| config.parameters.select.shares_cpus = true);
            assert!(!is_forced && !by_memory, "{policy}");
        }
    }

    #[test]
    fn every_plan_is_made_where_slots_come_within_a_window() {
        let with_window = |policy| {
            are_possible_with(policy, |config| {
                config.parameters.backfill_limits.window_min = Some(60);
            })
        };
        assert!(with_window(Policy::Easy) && !with_window(Policy::Conservative));
    }
}
