//! How long a job waits for capacity, where its wait has a bound.

use crate::dependency::Dependencies;
use crate::state::State;
use crate::state::job::{Job, Phase};
use model::dependency::DependencyState;
use model::id::JobId;
use model::time::Timestamp;

impl State {
    /// The time at which a job that was to wait from its submit until `until` has waited as long for capacity. What it waits for
    /// besides does not count: a time to begin, the jobs that it depends on, and the `%N` of an array. `None` while it waits for
    /// those, and for a job whose wait for capacity nobody can tell from another: one that somebody holds or has held, and one
    /// that waits for its namesakes.
    pub(super) fn capacity_deadline(
        &self,
        job: &Job,
        until: Timestamp,
        dependencies: &Dependencies<'_>,
    ) -> Option<Timestamp> {
        if job.hold.is_some() || job.retries.was_held {
            return None;
        }
        if dependencies.state_of(job) != DependencyState::Fulfilled {
            return None;
        }
        let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
        let mut from = job.begin.map_or(job.submit, |begin| begin.max(job.submit));
        for term in terms {
            from = from.max(self.latest_change(JobId(term.job?.id)));
        }
        Some(from.max(self.unthrottled_since(job)?) + until.since(job.submit))
    }

    /// Since when the `%N` of the job's array has let more tasks start; `None` while it does not. A task that starts found
    /// capacity, so the wait of the next begins then.
    fn unthrottled_since(&self, job: &Job) -> Option<Timestamp> {
        let eased = job.pending.as_ref().and_then(|tasks| tasks.throttle_eased);
        let eased = eased.unwrap_or(Timestamp::from_secs(0));
        match self.throttle(job) {
            Some((array, most)) if self.running_tasks(array) >= most => None,
            Some((array, _)) => Some(eased.max(self.latest_change(array))),
            None => Some(eased),
        }
    }

    /// The last end, or start where it runs, of the job or of the array's tasks; the beginning of time if none is known.
    fn latest_change(&self, id: JobId) -> Timestamp {
        let alone = self.jobs.get(&id).filter(|job| job.pending.is_none());
        let jobs = alone.into_iter().chain(self.array_jobs(id));
        let change = |phase: &Phase| match phase {
            Phase::Waiting => None,
            Phase::Active(attempt) => Some(attempt.start),
            Phase::Ended(ended) => Some(ended.end),
        };
        let latest = jobs.filter_map(|job| change(&job.phase)).max();
        latest.unwrap_or(Timestamp::from_secs(0))
    }
}
