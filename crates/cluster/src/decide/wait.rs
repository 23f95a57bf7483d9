//! How long a job waits for capacity, where its wait has a bound.

use crate::dependency::Dependencies;
use crate::state::State;
use crate::state::job::{Job, Phase};
use model::dependency::{DependencyState, DependencyTerm};
use model::id::JobId;
use model::time::Timestamp;

impl State {
    /// The time at which a job that was to wait from its submit until `until` has waited as long for capacity. What it waits for
    /// besides does not count: a time to begin, and the jobs that it depends on. `None` while it waits for those, and for a job
    /// whose wait for capacity nobody can tell from another: one that somebody holds or has held, an array with `%N`, and one
    /// that waits for its namesakes.
    pub(super) fn capacity_deadline(
        &self,
        job: &Job,
        until: Timestamp,
        dependencies: &Dependencies<'_>,
    ) -> Option<Timestamp> {
        let is_throttled = job.pending.as_ref().is_some_and(|tasks| tasks.throttle.is_some());
        if job.hold.is_some() || job.retries.was_held || is_throttled {
            return None;
        }
        if dependencies.state_of(job) != DependencyState::Fulfilled {
            return None;
        }
        let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        let mut from = job.begin.map_or(job.submit, |begin| begin.max(job.submit));
        for term in terms {
            from = from.max(self.latest_change(term)?);
        }
        Some(from + until.since(job.submit))
    }

    /// The last end, or start where it runs, of the jobs that the term names; the beginning of time if none is known.
    fn latest_change(&self, term: &DependencyTerm) -> Option<Timestamp> {
        let id = JobId(term.job?.id);
        let alone = self.jobs.get(&id).filter(|job| job.pending.is_none());
        let jobs = alone.into_iter().chain(self.array_jobs(id));
        let change = |phase: &Phase| match phase {
            Phase::Waiting => None,
            Phase::Active(attempt) => Some(attempt.start),
            Phase::Ended(ended) => Some(ended.end),
        };
        let latest = jobs.filter_map(|job| change(&job.phase)).max();
        Some(latest.unwrap_or(Timestamp::from_secs(0)))
    }
}
