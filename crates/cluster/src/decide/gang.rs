//! Gang scheduling: of jobs that share the same cores one runs for a time slice, and the others are suspended.

use crate::event::Event;
use crate::state::State;
use crate::state::job::Job;
use model::allocation::NodeShare;
use model::attempt::Attempt;
use model::cpuset::CpuSet;
use model::partition::Partition;
use model::preempt::PreemptMode;
use model::time::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// The order in which jobs get their cores: first those within their slice, then those that wait for one, then those that
/// have used theirs up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GangTurn {
    Running,
    Waiting,
    Expired,
}

impl State {
    /// Resumes the jobs whose slice begins, and suspends those whose slice is over.
    pub(super) fn gang_events(&self, now: Timestamp) -> Vec<Event> {
        let Some(gang_slice_s) = self.config.parameters.gang_slice_s else { return Vec::new() };
        let slice = Duration::from_secs(u64::from(gang_slice_s));
        let mut sharers: Vec<((GangTurn, Timestamp), &Job, &Attempt)> = self
            .active
            .iter()
            .filter_map(|id| {
                let job = self.job(*id)?;
                let attempt = job.attempt().filter(|attempt| self.is_gang_scheduled(attempt))?;
                Some((gang_turn(attempt, slice, now), job, attempt))
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
                (false, false) if attempt.booting_nodes.is_empty() => {
                    events.push(Event::GangSuspended { job: job.id, at: now })
                }
                _ => {}
            }
        }
        events
    }

    /// Whether the attempt shares its cores in a partition with gang scheduling, and is not suspended for another reason.
    fn is_gang_scheduled(&self, attempt: &Attempt) -> bool {
        let shared = attempt.allocation.nodes.iter().any(|share| share.sharers > 1);
        let partition = self.partition(&attempt.allocation.partition);
        shared
            && !attempt.is_ending_or_preempted()
            && (!attempt.suspended || attempt.gang_suspended)
            && partition.is_some_and(|partition| allows_gang(partition))
    }
}

fn allows_gang(partition: &Partition) -> bool {
    let own = partition.preempt_mode.as_deref();
    own.is_none_or(|words| PreemptMode::parse(words) != Some(PreemptMode::Off))
}

fn gang_turn(attempt: &Attempt, slice: Duration, now: Timestamp) -> (GangTurn, Timestamp) {
    let since = attempt.suspend_changed.unwrap_or(attempt.start);
    let turn = if attempt.suspended {
        GangTurn::Waiting
    } else if since + slice <= now {
        GangTurn::Expired
    } else {
        GangTurn::Running
    };
    (turn, since)
}
