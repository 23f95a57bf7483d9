//! The timer: a tick to the writer each second, and the end of allocations whose client is gone.

use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use model::id::JobId;
use model::run::LaunchKind;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);

/// An interactive allocation without a client is given back after this long, whether it ever had one or not: a
/// client that lost the server has so much time to find it again.
const HOLDER_GRACE: Duration = Duration::from_secs(30);

/// The same for an `srun` whose step is over: one that still lives holds its job again within two seconds of the
/// server's return, and one that does not could not say that it was done.
const FINISHED_GRACE: Duration = Duration::from_secs(5);

pub async fn run(shared: Arc<Shared>) {
    let mut unheld = UnheldAllocations::default();
    let mut power_saved = None;
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        shared.volatile.counters.new_day(clock::now());
        shared.writer.enqueue_or_drop(Command::Tick { booked: shared.books.is_settled() });
        send_health_reports(&shared).await;
        if is_power_save_due(&shared, power_saved) {
            power_saved = Some(Instant::now());
            shared.writer.enqueue_or_drop(Command::PowerSave);
        }
        let allocations = attended_allocations(&shared);
        let held = {
            let holders = shared.volatile.holders.lock().expect("no panic with it held");
            holders.keys().copied().collect()
        };
        for job in unheld.expired(&allocations, &held, Instant::now()) {
            shared.writer.enqueue_or_drop(Command::ClientLost { job });
        }
    }
}

/// Sends on what agents said about the health of nodes too soon. What cannot be kept is tried again.
async fn send_health_reports(shared: &Arc<Shared>) {
    for (node, source, failure) in shared.volatile.health_reports.due(Instant::now()) {
        let (name, found) = (node.clone(), failure.clone());
        let command = Command::NodeHealth { node, source, failure };
        let answer = shared.writer.enqueue(command, server_principal()).await;
        let shared = shared.clone();
        tokio::spawn(async move {
            let answer = match answer {
                Some(answer) => answer.await.ok(),
                None => None,
            };
            if answer.is_none_or(|answer| answer.is_err()) {
                shared.volatile.health_reports.put_back(&name, source, found);
            }
        });
    }
}

/// Whether nodes are to be powered down, up or rebooted by now: every `power_save_interval`, and sooner where somebody waits.
fn is_power_save_due(shared: &Shared, last: Option<Instant>) -> bool {
    let state = shared.read();
    let policy = &state.config.parameters.power;
    let passed = |seconds: u32| {
        last.is_none_or(|last| last.elapsed() >= Duration::from_secs(seconds.into()))
    };
    policy.is_enabled() && passed(policy.interval_s)
        || passed(policy.min_interval_s) && state.has_power_work()
}

/// The allocations that a client should hold, and whether their `srun`'s step is over.
fn attended_allocations(shared: &Shared) -> Vec<(JobId, bool)> {
    let state = shared.read();
    let alive = state.jobs.values().filter(|job| !job.has_ended());
    let attended = alive.filter(|job| {
        job.spec.launch.kind == LaunchKind::Interactive && !job.spec.launch.unattended
    });
    attended.map(|job| (job.id, job.finished_step().is_some())).collect()
}

/// Since when each allocation has had no client.
#[derive(Default)]
struct UnheldAllocations(HashMap<JobId, Instant>);

impl UnheldAllocations {
    /// The allocations that have been without a client for longer than their grace.
    fn expired(
        &mut self,
        allocations: &[(JobId, bool)],
        held: &HashSet<JobId>,
        now: Instant,
    ) -> Vec<JobId> {
        let unheld: Vec<_> = allocations.iter().filter(|(job, _)| !held.contains(job)).collect();
        let jobs: HashSet<JobId> = unheld.iter().map(|(job, _)| *job).collect();
        self.0.retain(|job, _| jobs.contains(job));
        let over = unheld.into_iter().filter(|(job, finished)| {
            let since = *self.0.entry(*job).or_insert(now);
            let grace = if *finished { FINISHED_GRACE } else { HOLDER_GRACE };
            now.duration_since(since) > grace
        });
        over.map(|(job, _)| *job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unheld_allocation_expires_after_its_grace_and_not_before() {
        let (running, finished, held) = (JobId(1), JobId(2), JobId(3));
        let all = [(running, false), (finished, true), (held, true)];
        let holders = HashSet::from([held]);
        let (mut unheld, start) = (UnheldAllocations::default(), Instant::now());
        let mut at = |after: Duration, holders: &HashSet<JobId>| {
            unheld.expired(&all, holders, start + after)
        };
        let moment = Duration::from_millis(1);
        assert_eq!(at(Duration::ZERO, &holders), []);
        assert_eq!(at(FINISHED_GRACE, &holders), []);
        assert_eq!(at(FINISHED_GRACE + moment, &holders), [finished]);
        assert_eq!(at(HOLDER_GRACE + moment, &holders), [running, finished], "never held");
        // A client that comes back starts the time anew.
        let back = HashSet::from([running, finished, held]);
        assert_eq!(at(HOLDER_GRACE + 2 * moment, &back), []);
        assert_eq!(at(HOLDER_GRACE + 3 * moment, &holders), []);
    }
}
