//! dstack's `inactivity_duration`: a dev environment that nobody is connected to by SSH for so long is ended.
//!
//! The time begins when its commands may run, with the end of the last connection, after a resume, and after a restart of the server.

use crate::shared::Shared;
use crate::task_groups;
use cluster::Command;
use cluster::{Job, State};
use model::attempt::EndCause;
use model::id::{AttemptId, JobId};
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(1);

pub async fn run(shared: Arc<Shared>) {
    let mut watched = Watched::default();
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let runs = active_runs(&shared.read());
        let connections = &shared.volatile.ssh_connections;
        connections.keep(|job| runs.iter().any(|run| run.attempt.job == job));
        let unconnected =
            |run: &ActiveRun, from: Instant| connections.unconnected_since(run.attempt.job, from);
        for attempt in watched.inactive(&runs, Instant::now(), unconnected) {
            let cause = EndCause::Inactive;
            shared.writer.enqueue_or_drop(Command::EndByPolicy { attempt, cause });
        }
        shared.volatile.inactivity_times.set(watched.times(&runs, unconnected));
    }
}

/// A run with an `inactivity_duration` whose commands may run.
struct ActiveRun {
    attempt: AttemptId,
    limit: Duration,
    resumed: Option<Timestamp>,
}

fn active_runs(state: &State) -> Vec<ActiveRun> {
    let active = state.active.iter().filter_map(|id| state.jobs.get(id));
    active.filter_map(|job| active_run(state, job)).collect()
}

fn active_run(state: &State, job: &Job) -> Option<ActiveRun> {
    let limit = job.spec.inactivity_s?;
    let active = job.attempt().filter(|active| active.ending.is_none() && !active.suspended)?;
    if task_groups::is_preparing(state, job) {
        return None;
    }
    let limit = Duration::from_secs(limit.into());
    Some(ActiveRun { attempt: job.attempt_id()?, limit, resumed: active.suspend_changed })
}

/// Since when each run has been looked at.
#[derive(Default)]
struct Watched(HashMap<AttemptId, (Option<Timestamp>, Instant)>);

impl Watched {
    /// The runs that nobody was connected to for longer than they allow. `unconnected` says since when that is so of a run, not
    /// before a time.
    fn inactive(
        &mut self,
        runs: &[ActiveRun],
        now: Instant,
        unconnected: impl Fn(&ActiveRun, Instant) -> Option<Instant>,
    ) -> Vec<AttemptId> {
        let mut before = std::mem::take(&mut self.0);
        let mut found = Vec::new();
        for run in runs {
            let known = before.remove(&run.attempt).filter(|(resumed, _)| *resumed == run.resumed);
            let (_, from) = known.unwrap_or((run.resumed, now));
            self.0.insert(run.attempt, (run.resumed, from));
            let since = unconnected(run, from);
            if since.is_some_and(|since| now.saturating_duration_since(since) > run.limit) {
                found.push(run.attempt);
            }
        }
        found
    }

    /// Since when nobody has been connected to each run that was looked at.
    fn times(
        &self,
        runs: &[ActiveRun],
        unconnected: impl Fn(&ActiveRun, Instant) -> Option<Instant>,
    ) -> HashMap<JobId, Option<Instant>> {
        let looked_at = runs.iter().filter_map(|run| Some((run, self.0.get(&run.attempt)?)));
        looked_at.map(|(run, (_, from))| (run.attempt.job, unconnected(run, *from))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::ssh_connections::{InactivityTimes, SshConnections};

    #[test]
    fn run_is_inactive_when_nobody_was_connected_for_its_time() {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let limit = Duration::from_secs(60);
        let run = |resumed| [ActiveRun { attempt, limit, resumed }];
        let (mut watched, start) = (Watched::default(), Instant::now());
        let connections = SshConnections::default();
        let unconnected =
            |run: &ActiveRun, from| connections.unconnected_since(run.attempt.job, from);
        let mut at = |after: u64, resumed| {
            watched.inactive(&run(resumed), start + Duration::from_secs(after), unconnected)
        };
        assert_eq!(at(0, None), []);
        assert_eq!(at(60, None), [], "not longer than its time");
        let connection = connections.opened(attempt.job);
        assert_eq!(at(1000, None), [], "somebody is connected");
        drop(connection);
        assert_eq!(at(1000, None), [attempt], "the connection ended long ago");
        let resumed = Some(Timestamp(5));
        assert_eq!(at(1001, resumed), [], "its time begins anew after a resume");
        assert_eq!(at(1062, resumed), [attempt]);
    }

    #[test]
    fn seconds_without_a_connection_are_those_since_the_last_one() {
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let runs = [ActiveRun { attempt, limit: Duration::from_secs(60), resumed: None }];
        let (mut watched, start) = (Watched::default(), Instant::now());
        let connections = SshConnections::default();
        let unconnected =
            |run: &ActiveRun, from| connections.unconnected_since(run.attempt.job, from);
        let (times, later) = (InactivityTimes::default(), start + Duration::from_secs(40));
        assert_eq!(times.seconds(attempt.job, later), None, "nobody watches it");
        watched.inactive(&runs, start, unconnected);
        times.set(watched.times(&runs, unconnected));
        assert_eq!(times.seconds(attempt.job, later), Some(40));
        let _connection = connections.opened(attempt.job);
        times.set(watched.times(&runs, unconnected));
        assert_eq!(times.seconds(attempt.job, later), Some(0), "somebody is connected");
    }
}
