//! Jobs that share the same cores and take turns: one of them runs for a slice of time, the others stand still.

use crate::event::Event;
use crate::job::Job;
use crate::state::State;
use model::allocation::NodeShare;
use model::attempt::Attempt;
use model::cpuset::CpuSet;
use model::partition::Partition;
use model::preempt::PreemptMode;
use model::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who goes first: one whose turn is not over, one that waits for its turn, one that has had it; in each the one that
/// has been so for longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Has,
    Waits,
    Had,
}

impl State {
    /// Whose turn begins and whose is over.
    pub(super) fn turns(&self, now: Timestamp) -> Vec<Event> {
        let Some(slice_s) = self.config.parameters.slice_s else { return Vec::new() };
        let slice = Duration::from_secs(u64::from(slice_s));
        let mut sharers: Vec<((Turn, Timestamp), &Job, &Attempt)> = self
            .active
            .iter()
            .filter_map(|id| {
                let job = self.job(*id)?;
                let attempt = job.attempt().filter(|attempt| self.takes_turns(attempt))?;
                Some((turn(attempt, slice, now), job, attempt))
            })
            .collect();
        sharers.sort_by_key(|(turn, job, _)| (*turn, job.id));
        let mut taken: BTreeMap<&str, CpuSet> = BTreeMap::new();
        let mut events = Vec::new();
        for (_, job, attempt) in sharers {
            let held = |share: &&NodeShare| attempt.held_nodes.contains(&share.node);
            let shares = || attempt.allocation.nodes.iter().filter(held);
            let meets = |share: &NodeShare| {
                taken.get(share.node.as_str()).is_some_and(|cpus| cpus.intersects(&share.cpus))
            };
            let runs = !shares().any(meets);
            if runs {
                for share in shares() {
                    taken.entry(&share.node).or_default().union(&share.cpus);
                }
            }
            match (runs, attempt.suspended) {
                (true, true) => events.push(Event::Resumed { job: job.id, at: now }),
                (false, false) => events.push(Event::TurnOver { job: job.id, at: now }),
                _ => {}
            }
        }
        events
    }

    /// Whether the attempt shares its cores in a partition where that is done in turns, and nobody else stopped it.
    fn takes_turns(&self, attempt: &Attempt) -> bool {
        let shared = attempt.allocation.nodes.iter().any(|share| share.sharers > 1);
        let partition = self.partition(&attempt.allocation.partition);
        shared
            && !attempt.is_ending_or_preempted()
            && (!attempt.suspended || attempt.gang_suspended)
            && partition.is_some_and(|partition| has_turns(partition))
    }
}

fn has_turns(partition: &Partition) -> bool {
    let own = partition.preempt_mode.as_deref();
    own.is_none_or(|words| PreemptMode::parse(words) != Some(PreemptMode::Off))
}

fn turn(attempt: &Attempt, slice: Duration, now: Timestamp) -> (Turn, Timestamp) {
    let since = attempt.suspend_changed.unwrap_or(attempt.start);
    let turn = match attempt.suspended {
        true => Turn::Waits,
        false if since + slice <= now => Turn::Had,
        false => Turn::Has,
    };
    (turn, since)
}
